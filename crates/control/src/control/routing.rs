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
use crate::hosts::{HostKey, uncount};
use crate::place::Place;
use crate::routes::Routes;
use crate::shared::Shared;
use crate::{Event, MonitorPort};

impl Control {
    /// A host came to a switch, or went. Returns the port that it left, if that is of another one.
    pub(super) fn relocate(&mut self, key: HostKey, id: DatapathId) -> Option<MonitorPort> {
        self.fabric.as_ref()?;
        let mut left = None;
        let is_here = self.has_host(id, key);
        match self.located.find(key) {
            Some(old) if is_here && old != id => match self.routes.connects(old, id) {
                true => left = self.forget_at(old, key),
                // It may be there, too, for all that is known.
                false => _ = self.parted.insert(key),
            },
            Some(old) if !is_here && old != id => return None,
            _ => {}
        }
        let at = is_here.then_some(id).or_else(|| self.parted_at(key));
        self.located.set(key, at);
        self.unrouted.insert(key);
        // Who talks to it does so from elsewhere than before, too.
        self.unrouted.extend(self.talks.peers(key));
        left
    }

    /// A rule that a switch had when it connected says that a host is there. If it was seen
    /// elsewhere since that was true, the rule is one that could not be taken away.
    pub(super) fn forget_if_elsewhere(&mut self, key: HostKey, id: DatapathId) {
        let elsewhere = self.located.find(key).filter(|at| *at != id);
        if elsewhere.is_some_and(|at| self.routes.connects(at, id) && self.has_host(at, key)) {
            self.forget_at(id, key);
        }
    }

    /// Hosts that came to one part of the fabric while another one had them are where they were
    /// seen last, as soon as the parts are linked. One that gets copies is not taken along so.
    fn reunite(&mut self) {
        if self.parted.is_empty() {
            return;
        }
        for key in std::mem::take(&mut *self.parted) {
            let Some(at) = self.located.find(key) else { continue };
            let others = self.switches.keys().copied().filter(|id| *id != at);
            let (left, others): (Vec<_>, Vec<_>) = others
                .filter_map(|id| self.place_at(key, id))
                .partition(|it| self.routes.connects(at, it.switch) && !self.gets_copies(key, *it));
            left.into_iter().for_each(|place| _ = self.forget_at(place.switch, key));
            if !others.is_empty() {
                self.parted.insert(key);
            }
        }
    }

    /// Where one of those is that was located at a switch which it left.
    fn parted_at(&self, key: HostKey) -> Option<DatapathId> {
        self.parted.get(&key)?;
        self.switches.keys().copied().find(|at| self.has_host(*at, key))
    }

    /// A host is not at a switch any more, but at another one. Returns the port that it left.
    fn forget_at(&mut self, id: DatapathId, key: HostKey) -> Option<MonitorPort> {
        let switch = self.switches.get_mut(&id)?;
        let left = switch.hosts.find(key).map(|host| switch.monitor_port(host.port));
        switch.forget_host(key);
        switch.signals.events.retain(|event| !matches!(event, Event::HostGone { .. }));
        self.touched.insert(id);
        left
    }

    pub(super) fn has_host(&self, at: DatapathId, key: HostKey) -> bool {
        self.place_at(key, at).is_some()
    }

    /// Where a host is at a switch.
    pub(super) fn place_at(&self, key: HostKey, switch: DatapathId) -> Option<Place> {
        let port = self.switches.get(&switch)?.hosts.find(key)?.port;
        Some(Place { switch, port })
    }

    /// Two hosts talk to each other.
    pub(super) fn note_talk(&mut self, a: HostKey, b: HostKey) {
        if !self.is_vast || self.located.find(b).is_none() {
            return;
        }
        if let Some(at) = self.located_at(a)
            && self.talks.insert((a, at), b)
        {
            self.unrouted.extend([a, b]);
        }
    }

    /// A switch had the way to a host before it connected. The host may not be found yet.
    pub(super) fn note_known(&mut self, key: HostKey, at: DatapathId) {
        self.talks.remembered.note(key, at);
        self.unrouted.insert(key);
    }

    /// Looks whether there are so many hosts that not every switch can know all of them. When there
    /// were, each knows all again at half as many: so it does not change with each host.
    pub(super) fn weigh_hosts(&mut self) {
        let ways = self.located.count().saturating_mul(self.switches.len());
        let max = if self.is_vast { self.limits.max_ways / 2 } else { self.limits.max_ways };
        let is_vast = ways > max;
        if is_vast == self.is_vast {
            return;
        }
        self.is_vast = is_vast;
        self.has_rewired = true;
        self.unrouted.extend(self.located.keys());
        if !is_vast {
            self.talks = Shared::default();
            return;
        }
        for (id, switch) in self.switches.iter() {
            for key in switch.known_hosts() {
                self.talks.known.entry(key).or_default().insert(*id);
            }
        }
    }

    /// Links came or went: the ways to some hosts are others than before.
    pub(super) fn unroute(&mut self, before: &Routes) {
        self.reunite();
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
            self.route_host(key);
        }
    }

    /// Tells switches the way to a host.
    pub(super) fn route_host(&mut self, key: HostKey) {
        let place = self.located_at(key);
        let knowing: Vec<_> = match self.is_vast {
            true => self.knowing(key, place),
            false => {
                // All are told, and so know it should there be too many hosts one day.
                if place.is_some() && self.talks.remembered.has(key) {
                    self.talks.remembered.take(key);
                }
                self.switches.keys().copied().collect()
            }
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

    fn located_at(&self, key: HostKey) -> Option<Place> {
        self.place_at(key, self.located.find(key)?)
    }

    /// The switches that are to know the way to a host, or have to forget it.
    fn knowing(&mut self, key: HostKey, place: Option<Place>) -> Vec<DatapathId> {
        let mut knowing = self.talks.known.remove(&key).unwrap_or_default();
        let Some(place) = place else {
            self.talks.forget(key);
            return knowing.into_iter().collect();
        };
        knowing.extend(self.talks.remembered.take(key));
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
///
/// What is behind one port has a share of that, of each host and in all: forged talkers leave room
/// for others.
#[derive(Clone, Debug, Default)]
pub(super) struct Talks {
    /// By host, those that it talks to; and where that one is who was the first to talk to it, if
    /// it is the other one.
    peers: BTreeMap<HostKey, BTreeMap<HostKey, Option<Place>>>,
    /// Those that talk to a host from one port, and to all hosts.
    shares: HashMap<(HostKey, Place), usize>,
    at_port: HashMap<Place, usize>,
    /// Pairs in all.
    count: usize,
    /// The switches that know the way to a host.
    known: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    /// Those that had rules that say so when they connected.
    remembered: Remembered,
}

/// Switches that had the way to a host, which is not found again yet. It may never be, so those
/// that were noted first are forgotten where there are too many.
#[derive(Clone, Debug, Default)]
struct Remembered {
    newer: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    older: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    /// Those that were noted since there was nothing newer.
    count: usize,
}

impl Remembered {
    fn note(&mut self, key: HostKey, at: DatapathId) {
        if self.newer.entry(key).or_default().insert(at) {
            self.count += 1;
        }
        if self.count >= MAX_REMEMBERED / 2 {
            self.older = std::mem::take(&mut self.newer);
            self.count = 0;
        }
    }

    fn has(&self, key: HostKey) -> bool {
        self.newer.contains_key(&key) || self.older.contains_key(&key)
    }

    fn take(&mut self, key: HostKey) -> BTreeSet<DatapathId> {
        let mut all = self.newer.remove(&key).unwrap_or_default();
        self.count -= all.len();
        all.extend(self.older.remove(&key).into_iter().flatten());
        all
    }
}

impl Talks {
    /// Returns whether that is news. What is beyond the bound is flooded.
    fn insert(&mut self, (a, at): (HostKey, Place), b: HostKey) -> bool {
        let is_known = self.peers.get(&a).is_some_and(|peers| peers.contains_key(&b));
        if a == b || is_known || !self.has_room((a, at), b) {
            return false;
        }
        self.peers.entry(a).or_default().insert(b, None);
        self.peers.entry(b).or_default().insert(a, Some(at));
        *self.shares.entry((b, at)).or_default() += 1;
        *self.at_port.entry(at).or_default() += 1;
        self.count += 1;
        true
    }

    fn has_room(&self, (a, at): (HostKey, Place), b: HostKey) -> bool {
        let count = |key| self.peers.get(key).map_or(0, BTreeMap::len);
        let share = self.shares.get(&(b, at)).copied().unwrap_or(0);
        let at_port = self.at_port.get(&at).copied().unwrap_or(0);
        let has_peers = |key| count(key) < MAX_PEERS;
        let has_share = share < MAX_PEERS / SHARE && at_port < MAX_TALKS / SHARE;
        has_peers(&a) && has_peers(&b) && has_share && self.count < MAX_TALKS
    }

    fn peers(&self, key: HostKey) -> impl Iterator<Item = HostKey> {
        self.peers.get(&key).into_iter().flat_map(BTreeMap::keys).copied()
    }

    fn forget(&mut self, key: HostKey) {
        for (peer, from) in self.peers.remove(&key).into_iter().flatten() {
            let Some(peers) = self.peers.get_mut(&peer) else { continue };
            let back = peers.remove(&key).flatten();
            if peers.is_empty() {
                self.peers.remove(&peer);
            }
            self.count = self.count.saturating_sub(1);
            for (host, at) in
                [from.map(|at| (key, at)), back.map(|at| (peer, at))].into_iter().flatten()
            {
                uncount(&mut self.shares, &(host, at));
                uncount(&mut self.at_port, &at);
            }
        }
    }
}

/// Hosts that one host is known to talk to.
const MAX_PEERS: usize = 4096;
/// Pairs of hosts that are known to talk to each other.
const MAX_TALKS: usize = 1 << 18;
/// Switches that had the way to some host, of all hosts that are not found again.
const MAX_REMEMBERED: usize = 1 << 18;
/// Hosts behind one port have one of so many parts of each of both.
const SHARE: usize = 4;
/// Ways that are told until what came meanwhile is handled: some milliseconds of work.
const WAYS_AT_A_TIME: usize = 2000;

#[cfg(test)]
mod tests {
    use tapswitch_openflow::PortNo;

    use super::*;

    fn key(number: usize) -> HostKey {
        let [.., a, b, c] = number.to_be_bytes();
        HostKey { mac: MacAddr([2, 0, 0, a, b, c]), vlan: None }
    }

    fn behind(port: u32) -> Place {
        Place { switch: DatapathId(1), port: PortNo(port) }
    }

    /// So many hosts behind a port talk to one.
    fn talk(talks: &mut Talks, (first, count): (usize, usize), port: u32, to: usize) -> usize {
        let from = (first..first + count).map(|number| (key(number), behind(port)));
        from.filter(|from| talks.insert(*from, key(to))).count()
    }

    #[test]
    fn who_talks_much_behind_one_port_leaves_room_for_others() {
        let mut talks = Talks::default();
        assert_eq!(talk(&mut talks, (10, 5000), 1, 0), MAX_PEERS / SHARE);
        assert_eq!(talk(&mut talks, (10_000, 5000), 2, 0), MAX_PEERS / SHARE, "another port");
        assert_eq!(talk(&mut talks, (20_000, 10), 1, 1), 10, "another host");
        assert_eq!(talk(&mut talks, (10, 10), 1, 0), 0, "known already");
    }

    #[test]
    fn ways_to_hosts_that_are_never_found_again_do_not_pile_up() {
        let (mut remembered, at) = (Remembered::default(), DatapathId);
        for number in 0..3 * MAX_REMEMBERED {
            remembered.note(key(number), at(1));
            assert!(remembered.newer.len() + remembered.older.len() <= MAX_REMEMBERED);
        }
        assert_eq!(remembered.take(key(0)), BTreeSet::new());
        remembered.note(key(1), at(1));
        remembered.note(key(1), at(2));
        remembered.note(key(1), at(2));
        assert_eq!(remembered.take(key(1)), [at(1), at(2)].into());
        assert_eq!(remembered.take(key(1)), BTreeSet::new());
        let last = 3 * MAX_REMEMBERED - 1;
        assert_eq!(remembered.take(key(last)), [at(1)].into(), "also where newer ones came");
        assert_eq!(remembered.count, 0);
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut talks = Talks::default();
        let max = MAX_PEERS / SHARE;
        assert_eq!(talk(&mut talks, (10, 5000), 1, 0), max);
        talks.forget(key(10));
        assert_eq!((talk(&mut talks, (9000, 5), 1, 0), talks.count), (1, max));
        talks.forget(key(0));
        assert_eq!((talks.count, talks.peers.len(), talks.shares.len()), (0, 0, 0));
        assert!(talks.at_port.is_empty());
    }

    #[test]
    fn a_port_has_a_share_of_all_that_is_remembered() {
        let mut talks = Talks::default();
        let told: usize = (0..100).map(|to| talk(&mut talks, (1000, 1000), 1, to)).sum();
        assert_eq!(told, MAX_TALKS / SHARE);
        assert_eq!(talk(&mut talks, (5000, 10), 2, 0), 10);
    }
}
