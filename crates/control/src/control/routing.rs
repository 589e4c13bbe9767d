//! Which hosts are where, and which switches know the way to them.
//!
//! Up to [`Limits::max_ways`], each switch knows the way to each host. With thousands of switches
//! and hosts that would be millions of rules of which hardly any is ever met; so beyond, a switch
//! knows the ways to those hosts that its own hosts talk to, and to those whose frames pass through
//! it. Who talks to whom is seen by the answers to ARP and neighbour discovery, which come to the
//! controller, by the first frames of hosts, and by what a switch has to flood: that comes to the
//! controller too, then. A way that is known stays known until the host goes. It is one way then,
//! where it would be all that are equally short.
//!
//! **No frame goes round.** Where a switch knows a way, so do all switches behind it. For the
//! moment between, a frame that comes over a link that is not on the tree, to a host that is not
//! known, is dropped: only ways lead over such links. A frame that is flooded may meet switches
//! that know the way, and then arrive twice, and reach a monitor beside its copy, until the switch
//! where it came in knows the way too.
//!
//! [`Limits::max_ways`]: crate::Limits::max_ways

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tapswitch_openflow::DatapathId;
use tapswitch_wire::MacAddr;

use super::Control;
use crate::hosts::HostKey;
use crate::place::Place;
use crate::routes::Routes;
use crate::{Event, MonitorPort};

impl Control {
    /// A host came to a switch, or went. Returns the port that it left, if that is of another one.
    pub(super) fn relocate(&mut self, key: HostKey, id: DatapathId) -> Option<MonitorPort> {
        self.fabric.as_ref()?;
        let mut left = None;
        let is_here = self.switches.get(&id).is_some_and(|switch| switch.hosts.find(key).is_some());
        match self.located.find(key) {
            Some(old) if is_here && old != id && self.routes.connects(old, id) => {
                if let Some(switch) = self.switches.get_mut(&old) {
                    left = switch.hosts.find(key).map(|host| switch.monitor_port(host.port));
                    switch.forget_host(key);
                    switch.signals.events.retain(|event| !matches!(event, Event::HostGone { .. }));
                    self.touched.insert(old);
                }
            }
            Some(old) if !is_here && old != id => return None,
            _ => {}
        }
        self.located.set(key, is_here.then_some(id));
        self.unrouted.insert(key);
        // Who talks to it does so from elsewhere than before, too.
        self.unrouted.extend(self.talks.peers(key));
        left
    }

    /// Two hosts talk to each other.
    pub(super) fn note_talk(&mut self, a: HostKey, b: HostKey) {
        if self.is_vast && self.located.find(b).is_some() && self.talks.insert(a, b) {
            self.unrouted.extend([a, b]);
        }
    }

    /// A switch had the way to a host before it connected. The host may not be found yet.
    pub(super) fn note_known(&mut self, key: HostKey, at: DatapathId) {
        self.talks.remembered.entry(key).or_default().insert(at);
        self.unrouted.insert(key);
    }

    /// Looks whether there are so many hosts that not every switch can know all of them.
    pub(super) fn weigh_hosts(&mut self) {
        let ways = self.located.count().saturating_mul(self.switches.len());
        if self.is_vast || ways <= self.limits.max_ways {
            return;
        }
        self.is_vast = true;
        self.has_rewired = true;
        self.unrouted.extend(self.located.keys());
        for (id, switch) in self.switches.iter() {
            for key in switch.known_hosts() {
                self.talks.known.entry(key).or_default().insert(*id);
            }
        }
    }

    /// Links came or went: the ways to some hosts are others than before.
    pub(super) fn unroute(&mut self, before: &Routes) {
        let changes = self.routes.changes(before);
        let mut from: HashMap<DatapathId, Option<BTreeSet<DatapathId>>> = HashMap::new();
        for (key, at) in self.located.iter() {
            let is_concerned = match from.entry(at).or_insert_with(|| changes.to(at)) {
                None => true,
                Some(from) if self.is_vast => {
                    self.talks.known.get(&key).is_some_and(|known| !known.is_disjoint(from))
                }
                Some(from) => !from.is_empty(),
            };
            self.unrouted.extend(is_concerned.then_some(key));
        }
    }

    /// Tells switches the ways to hosts that came, went or moved: so many at a time that messages
    /// which come meanwhile do not wait for long.
    pub(super) fn route_hosts(&mut self) {
        while self.told_ways < WAYS_AT_A_TIME
            && let Some(key) = self.unrouted.pop_first()
        {
            let place = self.located.find(key).and_then(|id| {
                let host = self.switches.get(&id)?.hosts.find(key)?;
                Some(Place { switch: id, port: host.port })
            });
            let knowing: Vec<_> = match self.is_vast {
                true => self.knowing(key, place),
                false => self.switches.keys().copied().collect(),
            };
            self.told_ways += knowing.len();
            for id in knowing {
                let Some(switch) = self.switches.get_mut(&id) else { continue };
                if switch.hosts.find(key).is_none() {
                    let route = place.and_then(|place| self.routes.route(id, place));
                    // Only the switches on one way know it, then.
                    let route = route.map(|r| if self.is_vast { r.single() } else { r });
                    if switch.set_way(key, route) {
                        self.touched.insert(id);
                    }
                }
            }
        }
    }

    /// The switches that are to know the way to a host, or have to forget it.
    fn knowing(&mut self, key: HostKey, place: Option<Place>) -> Vec<DatapathId> {
        let mut knowing = self.talks.known.remove(&key).unwrap_or_default();
        let Some(place) = place else {
            self.talks.forget(key);
            return knowing.into_iter().collect();
        };
        knowing.extend(self.talks.remembered.remove(&key).into_iter().flatten());
        knowing.extend(self.talks.peers(key).filter_map(|peer| self.located.find(peer)));
        let behind = knowing.iter().flat_map(|at| self.routes.all_behind(*at, place));
        let behind: Vec<_> = behind.collect();
        knowing.extend(behind);
        let all = knowing.iter().copied().collect();
        self.talks.known.insert(key, knowing);
        all
    }
}

/// The switch that each host is at.
#[derive(Clone, Debug, Default)]
pub(super) struct Located(BTreeMap<HostKey, DatapathId>);

impl Located {
    /// Where a host is.
    pub(super) fn find(&self, key: HostKey) -> Option<DatapathId> {
        self.0.get(&key).copied()
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn set(&mut self, key: HostKey, at: Option<DatapathId>) {
        match at {
            Some(at) => _ = self.0.insert(key, at),
            None => _ = self.0.remove(&key),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = HostKey> {
        self.0.keys().copied()
    }

    fn iter(&self) -> impl Iterator<Item = (HostKey, DatapathId)> {
        self.0.iter().map(|(key, at)| (*key, *at))
    }

    /// The switches that the hosts with this address are at, one for each VLAN.
    pub(super) fn with_mac(&self, mac: MacAddr) -> impl Iterator<Item = DatapathId> {
        let first = HostKey { mac, vlan: None };
        let last = HostKey { mac, vlan: Some(u16::MAX) };
        self.0.range(first..=last).map(|(_, at)| *at)
    }
}

/// Who talks to whom, where not every switch knows every host.
#[derive(Clone, Debug, Default)]
pub(super) struct Talks {
    peers: BTreeMap<HostKey, BTreeSet<HostKey>>,
    /// The switches that know the way to a host.
    known: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    /// Those that had rules that say so when they connected.
    remembered: BTreeMap<HostKey, BTreeSet<DatapathId>>,
}

impl Talks {
    /// Returns whether that is news. What is beyond the bound is flooded.
    fn insert(&mut self, a: HostKey, b: HostKey) -> bool {
        let count = |key| self.peers.get(key).map_or(0, BTreeSet::len);
        if count(&a) >= MAX_PEERS || count(&b) >= MAX_PEERS {
            return false;
        }
        self.peers.entry(b).or_default().insert(a);
        self.peers.entry(a).or_default().insert(b)
    }

    fn peers(&self, key: HostKey) -> impl Iterator<Item = HostKey> {
        self.peers.get(&key).into_iter().flatten().copied()
    }

    fn forget(&mut self, key: HostKey) {
        for peer in self.peers.remove(&key).into_iter().flatten() {
            if let Some(peers) = self.peers.get_mut(&peer) {
                peers.remove(&key);
                if peers.is_empty() {
                    self.peers.remove(&peer);
                }
            }
        }
    }
}

/// Hosts that one host is known to talk to.
const MAX_PEERS: usize = 4096;
/// Ways that are told until what came meanwhile is handled: some milliseconds of work.
const WAYS_AT_A_TIME: usize = 2000;
