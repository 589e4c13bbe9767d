//! Where policies are applied: on each switch that reaches their monitors, with copies tagged on
//! their way through others.
//!
//! **Two phases.** Copies are made only when every switch on their way confirmed that it carries
//! them, and are carried until every switch that made them told its last counters. So no frame is
//! half-tapped while policies, links and monitors come and go.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tapswitch_openflow::DatapathId;

use super::Control;
use super::policies::PolicyEntry;
use super::wiring::Carries;
use crate::exit::Exit;
use crate::group::Carry;
use crate::overlap::{Aim, PolicyId, Tap};
use crate::resolve::{Place, hosts_of, resolve};
use crate::routes::Routes;
use crate::switch::Switch;
use crate::tags::Tags;

impl Control {
    /// Looks up where each policy's monitors are, and tells the switches what is wanted there.
    pub(super) fn place_policies(&mut self) {
        let mut monitors: HashMap<DatapathId, BTreeSet<_>> = HashMap::new();
        for entry in self.policies.iter_mut() {
            let specs = entry.policy.monitor.iter();
            entry.places = specs.map(|monitor| resolve(monitor, &self.switches)).collect();
            for (monitor, place) in entry.policy.monitor.iter().zip(&entry.places) {
                let switch = place.as_ref().ok().and_then(|place| self.switches.get(&place.switch));
                if let Some(switch) = switch {
                    let hosts = hosts_of(monitor, switch);
                    monitors.entry(switch.id()).or_default().extend(hosts);
                }
            }
        }
        self.place_carries();
        let mut wanted = self.wanted_taps();
        for (id, switch) in self.switches.iter_mut().filter(|(_, switch)| switch.is_up()) {
            switch.set_wanted(wanted.remove(id).unwrap_or_default());
            switch.set_monitors(monitors.remove(id).unwrap_or_default());
            self.touched.insert(*id);
        }
        self.has_news = true;
    }

    /// Tells the switches which copies of others they carry.
    fn place_carries(&mut self) {
        let mut carries = Carries::new();
        let range = self.limits.copy_vids;
        for entry in self.policies.iter_mut() {
            for (slot, place) in entry.found_places().collect::<Vec<_>>() {
                let user = (entry.id, slot);
                let has_sources = self.routes.sources(place).next().is_some();
                let tag = match has_sources {
                    true => self.tags.assign(user, &entry.policy.name, (place, range)),
                    false => self.tags.find(user),
                };
                if let Some(tag) = tag {
                    entry.carried.insert(slot, (tag, place));
                }
            }
        }
        let carried = self.policies.carried();
        for (tag, place, delivery) in carried {
            for switch in self.routes.carriers(place) {
                let Some(exit) = self.routes.exit(switch, place) else { continue };
                let carry = Carry { tag, exit, delivery: Some(delivery) };
                let kept = carries.entry(switch).or_default().entry(tag).or_insert(carry);
                // Where policies share an identifier, the stronger contract counts.
                kept.delivery = kept.delivery.map(|kept| kept.or_stronger(delivery));
            }
        }
        let none = BTreeMap::new();
        for (id, switch) in self.switches.iter_mut().filter(|(_, switch)| switch.is_up()) {
            switch.set_carries(carries.get(id).unwrap_or(&none));
        }
    }

    /// The policies that each switch applies.
    fn wanted_taps(&self) -> HashMap<DatapathId, Vec<Tap>> {
        let mut wanted: HashMap<DatapathId, Vec<Tap>> = HashMap::new();
        for entry in self.policies.iter().filter(|entry| entry.rests_until.is_none()) {
            for id in entry.switches(&self.routes, &self.switches) {
                let Some(switch) = self.switches.get(&id).filter(|switch| switch.is_up()) else {
                    continue;
                };
                let aims = self.aims(entry, id, switch);
                if !aims.is_empty() {
                    wanted.entry(id).or_default().push(entry.tap(aims));
                }
            }
        }
        wanted
    }

    /// Where a switch sends the copies of a policy: none of them as long as a way is not open that
    /// was not used before.
    fn aims(&self, entry: &PolicyEntry, id: DatapathId, switch: &Switch) -> Vec<Aim> {
        let mut aims = Vec::new();
        for (slot, place) in entry.found_places() {
            match self.aim((entry, slot), place, id) {
                Some(aim) => aims.push(aim),
                None => match switch.aim_before(entry.id, slot) {
                    Some(before) if before.exit.end(id) == place => aims.push(before),
                    _ if self.routes.exit(id, place).is_some() => return Vec::new(),
                    _ => {}
                },
            }
        }
        aims
    }

    /// Where a switch sends copies for a monitor, if the way is open.
    fn aim(&self, (entry, slot): (&PolicyEntry, u8), to: Place, from: DatapathId) -> Option<Aim> {
        let exit = self.routes.exit(from, to)?;
        if exit.beyond.is_none() {
            return Some(Aim { slot, exit, tag: 0 });
        }
        let tag = self.tags.find((entry.id, slot))?;
        is_open(&self.routes, (tag, to), from, |id, exit| {
            let switch = self.switches.get(&id);
            // One that is not connected carried it before, or it is not told now.
            switch.is_some_and(|switch| switch.is_carrying(tag, exit))
        })
        .then_some(Aim { slot, exit, tag })
    }

    /// Frees what deleted policies used. Called when nothing counts for them any more.
    pub(super) fn release_tags(&mut self, policy: PolicyId) {
        for tag in self.tags.release(policy) {
            self.switches.values_mut().for_each(|switch| switch.ledger.forget_carried(tag));
        }
    }

    /// The identifiers of copies.
    pub(super) const fn tags(&self) -> &Tags {
        &self.tags
    }
}

/// Whether all switches on the way carry the copies.
fn is_open(
    routes: &Routes,
    (_, to): (u16, Place),
    from: DatapathId,
    is_carrying: impl Fn(DatapathId, Exit) -> bool,
) -> bool {
    let entered = routes.path(from, to).into_iter().skip(1).step_by(2);
    let mut entered = entered.map(|place| place.switch);
    entered.all(|id| routes.exit(id, to).is_some_and(|exit| is_carrying(id, exit)))
}
