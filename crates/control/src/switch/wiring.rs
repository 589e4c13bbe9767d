//! A switch within a fabric: roles of its ports, routes, and copies in transit that it carries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tapswitch_openflow::multipart::{FlowStats, GroupDesc};
use tapswitch_openflow::{Action, Body, DatapathId, Oxm, PacketIn, PortNo};

use super::refused::Refused;
use super::{Link, Switch};
use crate::exit::{Exit, Route, Spread};
use crate::group::Carry;
use crate::hosts::HostKey;
use crate::learn::in_port;
use crate::overlap::{Aim, PolicyId, Slot, TapRegion};
use crate::rule::{Cookie, FlowId, Kind, Outcome};
use crate::tags::{self, Use};
use crate::text::switch_name;
use crate::translate::{
    Goal, Wiring, arrival_rules, base_rules, carry_rule, region_rules, search_rule, way_rules,
};
use crate::{Event, Millis, ShownCopy, Ticket};

/// Copies in transit that the switch carries.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    carry: Carry,
    /// Barrier after the latest change; `None` while no change is pending.
    barrier: Option<Ticket>,
    is_confirmed: bool,
}

impl Carried {
    fn is_refused(&self, refused: &Refused) -> bool {
        !refused.is_empty() && refused.find(&carry_rule(self.carry).0).is_some()
    }
}

impl Switch {
    /// Whether the VLAN is reserved for copies between switches.
    pub(crate) fn reserves(&self, vlan: u16) -> bool {
        self.wiring.copy_vids.is_some_and(|range| range.contains(vlan))
    }

    /// Sets the roles of its ports. Hosts at ports that are not edges are forgotten. Returns
    /// whether the set of links changed.
    pub(crate) fn set_wiring(&mut self, wiring: Wiring) -> bool {
        self.remembered_cables.clear();
        if *self.wiring == wiring {
            return false;
        }
        let gone: Vec<_> = wiring.links.union(&wiring.closed).copied().collect();
        gone.into_iter().for_each(|port| self.forget_behind(port));
        let old = std::mem::replace(&mut self.wiring, wiring.into());
        self.note_shut(&old);
        let before: HashMap<_, _> = base_rules(&old).into_iter().collect();
        let after: HashMap<_, _> = base_rules(&self.wiring).into_iter().collect();
        let gone = before.iter().filter(|(id, rule)| after.get(*id) != Some(rule));
        gone.for_each(|(id, rule)| self.desired.remove(&(id.clone(), rule.clone())));
        let new = after.into_iter().filter(|(id, rule)| before.get(id) != Some(rule));
        new.for_each(|rule| self.desired.insert(rule));
        if (&old.flood, old.asks) != (&self.wiring.flood, self.wiring.asks) {
            let regions = || self.closure.regions();
            regions()
                .flat_map(|region| region_rules(region, &old))
                .for_each(|rule| self.desired.remove(&rule));
            regions()
                .flat_map(|region| region_rules(region, &self.wiring))
                .for_each(|rule| self.desired.insert(rule));
        }
        old.links != self.wiring.links
    }

    /// Whether the port has a link.
    pub(crate) fn is_link(&self, port: PortNo) -> bool {
        self.wiring.links.contains(&port)
    }

    /// Whether the port is an edge.
    pub(crate) fn is_edge(&self, port: PortNo) -> bool {
        !self.ports.is_sink(port) && (!self.wiring.is_searched || self.wiring.edges.contains(&port))
    }

    /// Whether there is a port for copies only that its rules do not consider yet.
    pub(crate) fn has_new_sink(&self) -> bool {
        self.ports.sinks().any(|port| !self.wiring.closed.contains(&port))
    }

    /// Sets or removes the route to a host. Returns whether it changed.
    pub(crate) fn set_way(&mut self, key: HostKey, route: Option<Route>) -> bool {
        let route = route.map(|route| self.allowed(route));
        let before = self.ways.set(key, route.clone());
        if before == route {
            return false;
        }
        if let Some(before) = before {
            for rule in self.rules_to(key, before) {
                self.desired.remove(&rule);
            }
        }
        if let Some(route) = route {
            for rule in self.rules_to(key, route) {
                self.desired.insert(rule);
            }
        }
        true
    }

    /// Rules for frames to a host: forwarding and copying.
    fn rules_to(&self, key: HostKey, route: Route) -> Vec<(FlowId, Goal)> {
        let exit = route.exit;
        let mut rules = way_rules((key, route), self.closure.regions());
        if exit.beyond.is_none() {
            let arrivals = self.arrivals.regions().filter(|tap| tap.region.reaches(key));
            rules.extend(arrivals.flat_map(|tap| arrival_rules(tap, key, exit)));
        }
        rules
    }

    /// Sets all copies in transit that the switch carries.
    pub(crate) fn set_carries(&mut self, carries: &BTreeMap<u16, Carry>) {
        let gone = self.carries.keys().filter(|tag| !carries.contains_key(tag));
        for tag in gone.copied().collect::<Vec<_>>() {
            self.set_carry(tag, None);
        }
        for (tag, carry) in carries {
            self.set_carry(*tag, Some(*carry));
        }
    }

    /// Sets or removes copies in transit with this identifier.
    pub(crate) fn set_carry(&mut self, tag: u16, carry: Option<Carry>) {
        let carry = carry.map(|carry| {
            let delivery = carry.delivery.filter(|_| self.is_ours);
            Carry { delivery, ..carry }
        });
        let before = self.carries.get(&tag).map(|carried| carried.carry);
        if before == carry {
            return;
        }
        let history = self.history();
        if let Some(before) = before {
            self.desired.remove(&carry_rule(before));
            self.carries.remove(&tag);
        }
        if let Some(carry) = carry {
            self.desired.insert(carry_rule(carry));
            let is_confirmed = self.is_remembered(tag, carry.exit);
            self.carries.insert(tag, Carried { carry, barrier: None, is_confirmed });
            // Otherwise a barrier tells it.
            self.signals.opened.extend(is_confirmed.then_some(tag));
        }
        self.note_carry(history, (tag, carry));
    }

    /// Whether the switch has confirmed that it sends copies with this identifier by this exit.
    pub(crate) fn is_carrying(&self, tag: u16, exit: Exit) -> bool {
        let carried = self.carries.get(&tag);
        carried.is_some_and(|carried| carried.is_confirmed && carried.carry.exit == exit)
    }

    /// Why copies with this identifier are not carried, if the switch rejected that.
    pub(crate) fn carry_refusal(&self, tag: u16) -> Option<String> {
        let carried = self.carries.get(&tag)?;
        let kind = self.refused.find(&carry_rule(carried.carry).0)?;
        Some(format!(
            "switch {} refused the rules that forward its copies: {kind}; they are sent again \
             within a minute: free space in its tables, or delete other policies",
            switch_name(self.id)
        ))
    }

    /// All rules for copies in transit have been sent before this barrier.
    pub(super) fn await_carries(&mut self, barrier: Ticket) {
        let refused = &self.refused;
        let new = self.carries.values_mut().filter(|carried| !carried.is_confirmed);
        let new = new.filter(|carried| carried.barrier.is_none() && !carried.is_refused(refused));
        new.for_each(|carried| carried.barrier = Some(barrier));
    }

    /// Everything before the barrier took effect or was rejected.
    pub(super) fn confirm_carries(&mut self, barrier: Ticket) {
        let is_reached = |carried: &Carried| carried.barrier.is_some_and(|at| at <= barrier);
        for (tag, carried) in self.carries.iter_mut().filter(|(_, carried)| is_reached(carried)) {
            (carried.barrier, carried.is_confirmed) = (None, !carried.is_refused(&self.refused));
            self.signals.opened.insert(*tag);
        }
    }

    /// The connection was lost, or the switch is read again: everything will be sent again.
    pub(super) fn distrust_carries(&mut self) {
        for carried in self.carries.values_mut() {
            (carried.barrier, carried.is_confirmed) = (None, false);
        }
    }

    /// Adds the rules of hosts, routes and copies, for a switch that is sent everything again.
    pub(super) fn insert_all(&mut self) {
        base_rules(&self.wiring).into_iter().for_each(|rule| self.desired.insert(rule));
        let hosts: Vec<_> = self.hosts.iter().map(|(key, host)| (key, host.port)).collect();
        for (key, port) in hosts {
            self.insert_source(key, port);
            self.ways.set(key, Some(Exit::here(port).into()));
        }
        for (key, route) in self.ways.iter().collect::<Vec<_>>() {
            let route = self.allowed(route);
            self.ways.set(key, Some(route.clone()));
            way_rules((key, route), []).into_iter().for_each(|rule| self.desired.insert(rule));
        }
        for carried in self.carries.values() {
            self.desired.insert(carry_rule(carried.carry));
        }
    }

    /// Processes a copy for the controller itself.
    pub(super) fn handle_copy(&mut self, packet_in: &PacketIn, cookie: Cookie) {
        let Some(port) = in_port(packet_in) else { return };
        let regions = self.regions_marked(cookie.number(), &packet_in.data).into_iter();
        let members = regions.flat_map(|tap| tap.members.iter());
        let shown = members.filter(|member| member.aim.exit.port == PortNo::CONTROLLER);
        let policies: BTreeSet<_> = shown.map(|member| member.policy.0).collect();
        if !policies.is_empty() {
            let copy = ShownCopy {
                policies: policies.into_iter().collect(),
                switch: self.id,
                port: port.0,
                len: packet_in.total_len,
                start: packet_in.data.clone(),
            };
            self.signals.events.push(Event::Copy(Box::new(copy)));
        }
    }

    /// Regions whose rules have this hash. As different policies may have the same hash of names,
    /// only regions that contain the frame count: nobody may see frames of other policies.
    fn regions_marked(&self, mark: u32, frame: &[u8]) -> Vec<&TapRegion> {
        let mut regions: Vec<_> = self.closure.regions().filter(|tap| tap.mark == mark).collect();
        let first = regions.first().copied();
        let is_shared =
            regions.iter().any(|tap| first.is_some_and(|it| !policies(tap).eq(policies(it))));
        if is_shared {
            let parsed = tapswitch_wire::parse(frame);
            regions.retain(|tap| parsed.as_ref().is_ok_and(|it| tap.region.contains(&it.key)));
        }
        regions
    }

    /// Delays taking over the switch until the roles of its ports are known: until then it forwards
    /// by the rules that it has, and only gets the rule for link discovery.
    pub(crate) fn hold(&mut self, now: Millis) {
        self.held_since = Some(now);
        self.remembered_links.clear();
        self.remembered_carries.clear();
    }

    /// Sends the rule for link discovery to a delayed switch without it.
    pub(super) fn search_early(&mut self, rules: &[FlowStats]) {
        let (id, rule) = search_rule();
        let is_it =
            |told: &FlowStats| told.priority == id.priority && Cookie(told.cookie) == rule.cookie;
        if self.held_since.is_some() && !rules.iter().any(is_it) {
            self.send_early((id.into(), rule));
        }
    }

    /// Whether it is connected but not taken over yet.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.held_since.is_some() && !matches!(self.link, Link::Down)
    }

    /// Whether it has been read and waits to be taken over.
    pub(crate) const fn is_held(&self) -> bool {
        self.held_since.is_some() && matches!(self.link, Link::Read(_))
    }

    /// Whether it has been delayed for this long.
    pub(crate) fn is_held_for(&self, wait: Millis, now: Millis) -> bool {
        self.held_since.is_none_or(|since| now.since(since) >= wait)
    }

    /// Ends the delay.
    pub(crate) const fn release(&mut self) {
        self.held_since = None;
    }

    /// Ports with links, according to the rules that it had when it connected.
    pub(crate) fn remembered_links(&self) -> impl Iterator<Item = PortNo> {
        self.remembered_links.iter().copied().filter(|port| self.ports.is_up(*port))
    }

    /// Records the copies in transit that it carried before it connected.
    pub(super) fn remember_carries(&mut self, rules: &[FlowStats], groups: &[GroupDesc]) {
        let carries = rules.iter().filter_map(|rule| read_carry(rule, groups));
        self.remembered_carries = carries.collect::<BTreeMap<_, _>>().into();
        let confirmed: Vec<_> = self
            .carries
            .iter()
            .map(|(tag, carried)| (*tag, self.is_remembered(*tag, carried.carry.exit)))
            .collect();
        for (tag, is_confirmed) in confirmed {
            if let Some(carried) = self.carries.get_mut(&tag) {
                carried.is_confirmed = is_confirmed;
                self.signals.opened.extend(is_confirmed.then_some(tag));
            }
        }
    }

    fn is_remembered(&self, tag: u16, exit: Exit) -> bool {
        let spread = exit.spread_here();
        let ports = spread.as_ref().map_or(std::slice::from_ref(&exit.port), Spread::ports);
        let remembered = self.remembered_carries.get(&tag);
        remembered.is_some_and(|(told, is_end)| told == ports && *is_end == exit.beyond.is_none())
    }

    /// Whether the policy is applied here, or about to be.
    pub(crate) fn applies(&self, policy: PolicyId) -> bool {
        self.wanted.contains_key(&policy)
    }

    /// Where the switch sent the copies of a policy before.
    pub(crate) fn aim_before(&self, policy: PolicyId, slot: Slot) -> Option<Aim> {
        let tap = self.wanted.get(&policy)?;
        tap.aims.iter().find(|aim| aim.slot == slot).copied()
    }

    /// Whether copies for a policy's monitor may still leave by another exit.
    pub(crate) fn sends_otherwise(&self, (policy, slot): Use, exit: Option<Exit>) -> bool {
        let changes = self.stale.contains(&policy) || self.moving.contains_key(&policy);
        let aim = self.aim_before(policy, slot);
        changes || aim.is_some_and(|aim| Some(aim.exit) != exit)
    }

    /// Its datapath id.
    pub(crate) const fn id(&self) -> DatapathId {
        self.id
    }

    /// Requests a barrier for a sweep.
    pub(crate) fn sweep(&mut self) {
        self.outbox.sweep();
    }

    /// Sends a message without a reply whose loss is harmless.
    pub(crate) fn send_unanswered(&mut self, body: Body) {
        self.outbox.send_unanswered(body);
    }
}

/// Policies whose monitors get the frames of a region, once for each monitor.
fn policies(tap: &TapRegion) -> impl Iterator<Item = PolicyId> {
    tap.members.iter().map(|member| member.policy)
}

/// Copies carried by a rule: identifier, output ports (several if they are shared), and whether the
/// tag is removed.
fn read_carry(rule: &FlowStats, groups: &[GroupDesc]) -> Option<(u16, (Vec<PortNo>, bool))> {
    let [field] = rule.match_fields.fields.as_slice() else { return None };
    let tag = tags::read(field)?;
    let Outcome::Group(group) = Outcome::read(&rule.instructions)? else { return None };
    let group = groups.iter().find(|told| told.group_id == group)?;
    let ports = group.buckets.iter().map(|bucket| match bucket.actions.last() {
        Some(Action::Output { port, .. }) => Some(*port),
        _ => None,
    });
    let ports: Vec<_> = ports.collect::<Option<_>>()?;
    let undoes =
        |action: &Action| matches!(action, Action::PopVlan | Action::SetField(Oxm::EthDst(_)));
    let is_end = group.buckets.iter().all(|bucket| bucket.actions.iter().any(undoes));
    let is_carry = Cookie(rule.cookie).is(Kind::Carry) && !ports.is_empty();
    is_carry.then_some((tag, (ports, is_end)))
}
