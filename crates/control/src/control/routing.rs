//! Location of hosts, and which switches have routes to them.
//!
//! Up to [`Limits::max_ways`], each switch has a route to each host. With thousands of switches and
//! hosts this would be millions of rules, hardly any of which is ever hit; so beyond, a switch has
//! routes to the hosts that its own hosts talk to, and to those whose frames pass through it. Who
//! talks to whom is learned from ARP and neighbour discovery replies, which reach the controller,
//! from the first frames of hosts, and from frames that a switch has to flood, which are sent to
//! the controller in this mode. A route stays until the host is gone. In this mode it is a single
//! path instead of all equally short ones.
//!
//! **No loops.** If a switch has a route, so do all switches after it on the path. In the meantime,
//! a frame that arrives over a link outside the tree for an unknown host is dropped: such links
//! only carry routed frames. A flooded frame may reach switches with a route, and then arrive
//! twice, or reach a monitor besides its copy, until the ingress switch has the route, too.
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
    /// A host was added to or removed from a switch. Returns its former port if that is on another
    /// switch.
    pub(super) fn relocate(&mut self, key: HostKey, id: DatapathId) -> Option<MonitorPort> {
        self.fabric.as_ref()?;
        let mut left = None;
        let is_here = self.has_host(id, key);
        match self.located.find(key) {
            Some(old) if is_here && old != id => match self.routes.connects(old, id) {
                true => left = self.forget_at(old, key),
                // As far as known, it may be there, too.
                false => _ = self.parted.insert(key),
            },
            Some(old) if !is_here && old != id => return None,
            _ => {}
        }
        let at = is_here.then_some(id).or_else(|| self.parted_at(key));
        self.located.set(key, at);
        self.unrouted.insert(key);
        // Its peers now send to another location, too.
        self.unrouted.extend(self.talks.peers(key));
        left
    }

    /// Handles a host known only from a rule that a switch had when it connected. If the host was
    /// seen elsewhere since, the rule is one that could not be deleted.
    pub(super) fn forget_if_elsewhere(&mut self, key: HostKey, id: DatapathId) {
        let elsewhere = self.located.find(key).filter(|at| *at != id);
        if elsewhere.is_some_and(|at| self.routes.connects(at, id) && self.has_host(at, key)) {
            self.forget_at(id, key);
        }
    }

    /// When parts of the fabric are connected: a host known in both is where it was seen last. A
    /// host that receives copies does not move in this way.
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

    /// Switch of a parted host that left the switch where it was located.
    fn parted_at(&self, key: HostKey) -> Option<DatapathId> {
        self.parted.get(&key)?;
        self.switches.keys().copied().find(|at| self.has_host(*at, key))
    }

    /// A host has left a switch for another one. Returns the port that it left.
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

    /// Port of a host at a switch.
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

    /// A switch had a route to a host before it connected. The host may not be located yet.
    pub(super) fn note_known(&mut self, key: HostKey, at: DatapathId) {
        self.talks.remembered.note(key, at);
        self.unrouted.insert(key);
    }

    /// Decides whether there are too many hosts for routes on every switch. Full routes return at
    /// half the limit, so that the mode does not flap.
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

    /// Links changed: marks hosts whose routes have changed.
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

    /// Updates the routes to new, removed or moved hosts, a limited number at a time, so that input
    /// is not delayed for long.
    pub(super) fn route_hosts(&mut self) {
        while self.told_ways < WAYS_AT_A_TIME
            && let Some(key) = self.unrouted.pop_first()
        {
            self.route_host(key);
        }
    }

    /// Updates the route to a host on all switches.
    pub(super) fn route_host(&mut self, key: HostKey) {
        let place = self.located_at(key);
        let knowing: Vec<_> = match self.is_vast {
            true => self.knowing(key, place),
            false => {
                // All switches get the route, and keep it should there be too many hosts.
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
                // Only the switches on one path have it in this mode.
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

    /// Switches that should have a route to a host, or have to remove it.
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

/// Switch of each host.
#[derive(Clone, Debug, Default)]
pub(super) struct Located(BTreeMap<HostKey, DatapathId>);

impl Located {
    /// The switch of a host.
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

    /// Switches of hosts with this address, one for each VLAN.
    pub(super) fn with_mac(&self, mac: MacAddr) -> impl Iterator<Item = DatapathId> {
        let first = HostKey { mac, vlan: None };
        let last = HostKey { mac, vlan: Some(u16::MAX) };
        self.0.range(first..=last).map(|(_, at)| *at)
    }
}

/// Which hosts talk to each other, used if not every switch has routes to every host.
///
/// Hosts behind one port have a limited share, for each peer and in total: forged talkers leave
/// room for others.
#[derive(Clone, Debug, Default)]
pub(super) struct Talks {
    /// By host: its peers, and the port of the one that talked first, if that is the peer.
    peers: BTreeMap<HostKey, BTreeMap<HostKey, Option<Place>>>,
    /// Number of hosts at one port that talk to a host, and in total.
    shares: HashMap<(HostKey, Place), usize>,
    at_port: HashMap<Place, usize>,
    /// Number of pairs.
    count: usize,
    /// Switches with a route to a host.
    known: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    /// Switches that had a route when they connected.
    remembered: Remembered,
}

/// Switches that had routes to hosts not located again yet. As these may never be, the oldest
/// records are dropped if there are too many.
#[derive(Clone, Debug, Default)]
struct Remembered {
    newer: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    older: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    /// Number of records in the latest generation.
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
    /// Returns whether the pair is new. Pairs beyond the limit are flooded.
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

/// Maximum peers of a host.
const MAX_PEERS: usize = 4096;
/// Maximum pairs.
const MAX_TALKS: usize = 1 << 18;
/// Maximum records for hosts not located again.
const MAX_REMEMBERED: usize = 1 << 18;
/// Hosts behind one port get one part in this many of both limits.
const SHARE: usize = 4;
/// Routes updated before other input is processed: some milliseconds of work.
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

    /// `count` hosts behind a port talk to one host.
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
