//! Effects of links on each switch: floods, routes to hosts, and carried copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tapswitch_openflow::{Action, Body, DatapathId, PacketIn, PacketOut};
use tapswitch_wire::EtherType;

use super::Control;
use crate::exit::Flood;
use crate::fabric::{Clock, Fabric, ProbeOut, Role, Unproven};
use crate::learn::in_port;
use crate::place::Place;
use crate::resolve::named_port;
use crate::routes::Routes;
use crate::shared::Shared;
use crate::switch::Switch;
use crate::translate::Wiring;
use crate::{Event, Limits, LinkReport, Millis, MonitorPort, SwitchReport};

impl Control {
    /// Sets the precise time: nanoseconds since any origin; without it links have no latency.
    /// `listened` is the time during which input was processed at once: what has not arrived by
    /// this clock is missing, not just unread. Without it, all time counts.
    pub const fn set_clock(&mut self, now_ns: u64, listened: Millis) {
        (self.now_ns, self.listened) = (now_ns, Some(listened));
    }

    pub(super) fn clock(&self) -> Clock {
        Clock { now: self.now, listened: self.listened.unwrap_or(self.now), ns: self.now_ns }
    }

    /// Links between switches.
    pub fn links(&self) -> Vec<LinkReport> {
        let Some(fabric) = &self.fabric else { return Vec::new() };
        let used = fabric.links().map(|(a, b, latency_ns)| (a, b, latency_ns, None));
        let held = fabric.held_links(self.now);
        let held = held.map(|(a, b, latency_ns, until)| (a, b, latency_ns, Some(until)));
        let links = used.chain(held).map(|(a, b, latency_ns, held)| LinkReport {
            a: self.named(a),
            b: self.named(b),
            latency_ns,
            is_tree: self.tree.contains(&a),
            is_sure: !fabric.is_frozen(a.switch) && !fabric.is_frozen(b.switch),
            held_ms: held.map(|until| until.since(self.now).0),
        });
        links.collect()
    }

    /// A port with its name, if known.
    pub(super) fn named(&self, place: Place) -> MonitorPort {
        named_port(place, &self.switches)
    }

    pub(super) fn report_switch(&self, switch: &Switch) -> SwitchReport {
        let unproven = self.fabric.as_ref().map(|fabric| fabric.unproven(switch.id()));
        let Unproven { forged, late, foreign } = unproven.unwrap_or_default();
        let (lldp_forged, lldp_late, lldp_foreign) = (forged, late, foreign);
        SwitchReport { lldp_forged, lldp_late, lldp_foreign, ..switch.report() }
    }

    /// Processes an LLDP frame. Returns whether it was one.
    pub(super) fn handle_lldp(&mut self, switch: DatapathId, packet_in: &PacketIn) -> bool {
        let is_lldp = packet_in.data.get(12..14) == Some(&EtherType::LLDP.0.to_be_bytes());
        let clock = self.clock();
        if let Some(fabric) = self.fabric.as_mut().filter(|_| is_lldp)
            && let Some(port) = in_port(packet_in)
        {
            let place = Place { switch, port };
            let (was_reflecting, was_shared) =
                (fabric.is_reflecting(place), fabric.sharing(place).is_some());
            self.has_rewired |= fabric.handle_lldp(place, &packet_in.data, clock);
            let sharing = fabric.sharing(place).filter(|_| !was_shared);
            if !was_reflecting && fabric.is_reflecting(place) {
                self.tell_reflected(place);
            }
            if let Some(peers) = sharing {
                self.tell_shared(place, peers);
            }
        }
        is_lldp
    }

    fn tell_reflected(&mut self, at: Place) {
        let port = self.named(at);
        let reason = format!(
            "{port} receives its own LLDP and is closed: look for a loop behind it, or a host that \
             poses as a switch"
        );
        self.events.push_back(Event::PortClosed { switch: at.switch, reason });
    }

    fn tell_shared(&mut self, at: Place, peers: [Place; 2]) {
        let (port, [a, b]) = (self.named(at), peers.map(|peer| self.named(peer)));
        let reason = format!(
            "{port} receives LLDP from several switch ports ({a} and {b}) and is closed: a link \
             must be point-to-point; connect the switches without a hub or bridge in between"
        );
        self.events.push_back(Event::PortClosed { switch: at.switch, reason });
    }

    /// Determines which held links are needed nevertheless, and reports newly held ones.
    fn weigh_held(&mut self) {
        let now = self.now;
        // Avoids copying the fabric.
        let Some(fabric) = self.fabric.as_mut().filter(|it| it.has_held()) else { return };
        fabric.weigh_held(now);
        for (a, b, until, is_needed) in fabric.take_newly_held(now) {
            let (near, far) = (self.named(a), self.named(b));
            let seconds = until.since(now).0.div_ceil(1000);
            let what = match is_needed {
                true => "no other link connects its switches, so it is still used".to_owned(),
                false => format!(
                    "it is not used for {seconds} seconds, and longer if it keeps flapping, unless \
                     no other path is left (show links)"
                ),
            };
            let reason = format!(
                "the link from {near} to {far} flaps: {what}; look for a loose cable, a port that \
                 resets, or a switch that restarts"
            );
            self.events.push_back(Event::LinkHeld { switch: a.switch, reason });
        }
    }

    /// Updates the ports of a switch in the fabric.
    pub(super) fn update_ports(&mut self, id: DatapathId) {
        let clock = self.clock();
        let (Some(fabric), Some(switch)) = (&mut self.fabric, self.switches.get(&id)) else {
            return;
        };
        self.has_rewired |= if switch.is_down() {
            fabric.freeze(id, clock.now)
        } else {
            // Probes are no copies, so ports for copies only are left out.
            let up = switch.ports.iter().filter(|(_, port)| port.is_up && !port.is_sink);
            let up: BTreeSet<_> = up.map(|(number, _)| number).collect();
            fabric.set_ports(id, &up, clock) | switch.has_new_sink()
        };
    }

    /// Sends discovery probes that are due.
    pub(super) fn probe(&mut self) {
        let clock = self.clock();
        let Some(fabric) = &mut self.fabric else { return };
        let (probes, changed) = fabric.handle_timeout(clock);
        self.has_rewired |= changed;
        for ProbeOut { from, frame } in probes {
            let Some(switch) = self.switches.get_mut(&from.switch) else { continue };
            let actions = vec![Action::output(from.port)];
            switch.send_unanswered(Body::PacketOut(PacketOut::new(frame, actions)));
            self.turns.add(from.switch);
        }
        self.sweep();
    }

    /// Asks all switches for a barrier, if a sweep is due.
    fn sweep(&mut self) {
        let Some(fabric) = self.fabric.as_mut().filter(|it| it.is_sweep_due(self.now)) else {
            return;
        };
        let connected = self.switches.iter_mut().filter(|(_, switch)| !switch.is_down());
        let asked = connected.map(|(id, switch)| {
            switch.sweep();
            self.turns.add(*id);
            *id
        });
        fabric.start_sweep(&asked.collect(), self.now);
    }

    /// A switch has answered the sweep.
    pub(super) fn handle_swept(&mut self, switch: DatapathId) {
        if let Some(fabric) = &mut self.fabric {
            fabric.handle_swept(switch, self.now);
        }
    }

    /// Takes over the switches whose port roles are known.
    ///
    /// Switches with links from an earlier connection are taken over together: the paths of each
    /// lead through others, and are assumed unchanged until all are known.
    fn release_held(&mut self) {
        let Some(fabric) = &mut self.fabric else { return };
        let (mut ready, mut is_awaited) = (Vec::new(), false);
        let unsettled = self.agenda.unsettled().iter();
        let unsettled = unsettled.filter_map(|id| self.switches.get_key_value(id));
        let waiting: Vec<_> = unsettled.filter(|(_, switch)| switch.is_waiting()).collect();
        let is_searched = fabric.is_searched() && waiting.iter().all(|(_, it)| it.is_held());
        let relink_wait = if is_searched { RELINK_WAIT } else { MAX_RELINK_WAIT };
        for (id, switch) in waiting {
            let is_late = switch.is_held_for(relink_wait, self.now);
            if switch.is_held() && fabric.is_settled(*id, self.now) {
                self.has_rewired |= fabric.update_switch(*id, self.now);
                let is_missing =
                    |port| !matches!(fabric.role(Place { switch: *id, port }), Role::Link(_));
                if is_late || !switch.remembered_links().any(is_missing) {
                    ready.push((*id, is_late || switch.remembered_links().next().is_none()));
                    continue;
                }
            }
            is_awaited |= !is_late;
        }
        for (id, _) in ready.into_iter().filter(|(_, is_apart)| *is_apart || !is_awaited) {
            if let Some(switch) = self.switches.get_mut(&id) {
                switch.release();
                self.shaken.insert(id);
                self.touched.insert(id);
                self.has_rewired = true;
            }
        }
    }

    /// Handles the first policy whose copies travel with other addresses.
    pub(super) fn note_rewriting(&mut self) {
        if self.policies.has_rewritten && !self.is_rewriting {
            // At once: hosts must not send frames that look like copies.
            (self.is_rewriting, self.has_rewired) = (true, true);
            self.rewire_at = self.now;
        }
    }

    /// Handles changed links, unless it did so within the current delay: then later changes are
    /// handled together. The first failure after a calm period is handled at once: frames are lost
    /// until then, and the changes that started the delay may have concerned only host ports.
    pub(super) fn rewire(&mut self) {
        if self.is_first_loss() || self.now >= self.rewire_at {
            self.release_held();
            if std::mem::take(&mut self.has_rewired) {
                return self.rewire_now();
            }
        }
        self.open_faded();
    }

    /// Whether a used link failed, and none did for longer than the current delay, at least
    /// [`LEAST_PAUSE`].
    fn is_first_loss(&mut self) -> bool {
        // Avoids copying the fabric.
        let Some(fabric) = self.fabric.as_mut().filter(|it| it.has_lost()) else { return false };
        fabric.take_lost();
        let before = std::mem::replace(&mut self.lost_at, self.now);
        self.now.since(before).0 > self.rewire_pause.0.max(LEAST_PAUSE)
    }

    fn rewire_now(&mut self) {
        self.weigh_held();
        let Some(fabric) = &self.fabric else { return };
        let graph = fabric.graph(&BTreeSet::new());
        self.tree = self.find_tree(&graph).into();
        self.open_links();
        let ids: Vec<_> = self.switches.keys().copied().collect();
        ids.iter().for_each(|id| self.wire(*id));
        let before = std::mem::replace(&mut self.routes, Routes::new(graph).into());
        self.unroute(&before);
        ids.into_iter().for_each(|id| self.collect_signals(id));
        self.find_untagged_ends();
        let copy_routes = self.routes_of_copies();
        let before = std::mem::replace(&mut self.copy_routes, copy_routes);
        let turned = self.note_away();
        self.touch_moved(&before, &turned);
        self.tell_links();
        let links = u64::try_from(self.told_links.len()).unwrap_or(u64::MAX);
        let least = links / LINKS_PER_MS;
        let is_calm = self.now.since(self.rewire_at).0 > self.rewire_pause.0.max(LEAST_PAUSE);
        let most = (least * 8).max(LEAST_PAUSE);
        let pause =
            if is_calm { least } else { (self.rewire_pause.0 * 2).clamp(least.max(1), most) };
        self.rewire_pause = Millis(pause);
        self.rewire_at = self.now.plus(self.rewire_pause);
    }

    /// Updates the port roles of a switch.
    pub(super) fn wire(&mut self, id: DatapathId) {
        let known = |switch: &&mut Switch| switch.is_up() && !switch.is_held();
        let (Some(fabric), Some(switch)) = (&self.fabric, self.switches.get_mut(&id).filter(known))
        else {
            return;
        };
        let is_open = |end| self.tree.contains(&end) && !self.floods.is_barred(end);
        let wiring = wiring(fabric, switch, is_open, &self.limits);
        let (asks, has_rewritten) = (self.is_vast, self.is_rewriting);
        if switch.set_wiring(Wiring { asks, has_rewritten, ..wiring }) {
            // A monitor's port may have become unsuitable.
            self.policies.touch_at(id);
        }
        self.touched.insert(id);
    }

    /// Finds link ends that send no S-tags.
    fn find_untagged_ends(&mut self) {
        let Some(fabric) = &self.fabric else { return };
        let refuses = |end: &Place| {
            let at = self.switches.get(&end.switch);
            at.is_some_and(|switch| switch.ports.refuses_tags(end.port))
        };
        let ends = fabric.links().flat_map(|(a, b, _)| [a, b]);
        let ends: BTreeSet<_> = ends.filter(refuses).collect();
        if *self.untagged_ends != ends {
            self.untagged_ends = ends.into();
            let policies: Vec<_> = self.policies.iter().map(|entry| entry.id).collect();
            self.policies.dirty.extend(policies);
        }
    }

    /// Returns the switches that were lost or came back since links were last handled.
    fn note_away(&mut self) -> BTreeSet<DatapathId> {
        let away = self.fabric.as_ref().map(|fabric| fabric.frozen().clone()).unwrap_or_default();
        let turned = &away ^ &*self.away;
        if !turned.is_empty() {
            self.away = away.into();
        }
        turned
    }

    /// Routes of copies, which are tagged between switches: they avoid links that take no S-tags if
    /// there is another path.
    fn routes_of_copies(&self) -> Shared<Routes> {
        match &self.fabric {
            Some(fabric) if !self.untagged_ends.is_empty() => {
                Routes::new(fabric.graph(&self.untagged_ends)).into()
            }
            _ => self.routes.clone(),
        }
    }

    /// Reports changed links.
    fn tell_links(&mut self) {
        let links = self.fabric.iter().flat_map(|fabric| fabric.links());
        let links = links.map(|(a, b, _)| ((a, b), (self.named(a), self.named(b))));
        let links: BTreeMap<_, _> = links.collect();
        let told = std::mem::replace(&mut self.told_links, links.into());
        let is_in = |links: &BTreeMap<_, _>, key: &_| links.contains_key(key);
        let gone = told.iter().filter(|(key, _)| !is_in(&self.told_links, key));
        let gone = gone.map(|(_, (a, b))| Event::LinkDown { a: a.clone(), b: b.clone() });
        let new = self.told_links.iter().filter(|(key, _)| !is_in(&told, key));
        let new = new.map(|(_, (a, b))| Event::LinkUp { a: a.clone(), b: b.clone() });
        self.events.extend(gone.chain(new));
    }
}

/// Port roles of a switch.
fn wiring(
    fabric: &Fabric,
    at: &Switch,
    is_open: impl Fn(Place) -> bool,
    limits: &Limits,
) -> Wiring {
    let switch = at.id();
    let mut wiring = Wiring { is_searched: true, ..Wiring::default() };
    let mut flood = Vec::new();
    for (port, role) in fabric.roles(switch) {
        let (set, floods) = match role {
            Role::Edge => (&mut wiring.edges, true),
            Role::Link(peer) if peer.switch != switch => {
                (&mut wiring.links, is_open(Place { switch, port }))
            }
            // No path uses a cable from a switch to itself. Frames that arrive there come from
            // hosts that reflect our frames, and frames from links are not copied.
            Role::Link(_) | Role::Closed => (&mut wiring.closed, false),
        };
        set.insert(port);
        if wiring.links.contains(&port) && !floods {
            wiring.shortcuts.insert(port);
        }
        flood.extend(floods.then_some(port));
    }
    // A device behind a monitor's port may connect to other switches, which is not probed.
    wiring.closed.extend(at.ports.sinks());
    wiring.closed.extend(at.shut_while_down());
    if !wiring.links.is_empty() {
        // Without links there is no loop: frames from a closed port are dropped.
        wiring.flood = Flood::Ports(Arc::from(flood));
    }
    wiring.copy_vids = (!wiring.links.is_empty()).then_some(limits.copy_vids);
    wiring
}

/// Time for a switch that had links to find them again after our start: the switches at the other
/// ends connect in their own time.
const RELINK_WAIT: Millis = Millis(3000);
/// The same while switches have not reported their ports, or had no time to report probes: a link
/// mistaken for an edge closes a loop.
const MAX_RELINK_WAIT: Millis = Millis(30_000);
/// Number of links per millisecond of delay in handling link changes; the delay doubles while
/// changes continue. All routes are computed anew, which takes long with thousands of links.
const LINKS_PER_MS: u64 = 10;
/// Minimum in milliseconds of the longest delay, and of the time without changes after which the
/// next change is handled at once.
const LEAST_PAUSE: u64 = 64;
