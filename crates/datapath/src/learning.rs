//! The MAC table of the reserved port NORMAL: at which port each station was last seen (IEEE
//! 802.1Q-2022 §8.7, §8.8), per VLAN, by the outermost tag or by the two outermost.
//!
//! Workers read an immutable [`MacTable`]; its single owner, [`MacLearning`], changes it and
//! publishes a new one. A worker that meets a station at another port than the table says reports
//! it ([`Sighting`]). A station at its known port is refreshed in place by a store to its own
//! entry, so that stations that stay need no new version of the table.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use tapswitch_openflow::PortNo;
use tapswitch_wire::{EtherType, MacAddr, Tag};

use crate::{Frame, Millis};

/// Ports of stations, as workers see them.
#[derive(Clone, Debug, Default)]
pub struct MacTable {
    by_stack: bool,
    stations: HashMap<Station, Arc<Location>>,
}

impl MacTable {
    /// The port of `station`.
    #[inline]
    pub fn port(&self, station: Station) -> Option<PortNo> {
        self.stations.get(&station).map(|location| location.port)
    }

    /// Refreshes `station`, which sent a frame into `port`. Returns `false` if the table does not
    /// have it there: then it is for [`MacLearning::handle_sighting`].
    #[inline]
    pub fn refresh(&self, station: Station, port: PortNo, now: Millis) -> bool {
        match self.stations.get(&station) {
            Some(location) if location.port == port => {
                location.last_seen.store(now.0, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// The VLAN of `frame` in this table.
    #[inline]
    pub fn vlan(&self, frame: &Frame<'_>) -> VlanKey {
        match frame.outer_tag() {
            None => VlanKey::UNTAGGED,
            Some(outer) => VlanKey::new(outer, frame.tag(1).filter(|_| self.by_stack)),
        }
    }

    /// Number of stations.
    pub fn count(&self) -> usize {
        self.stations.len()
    }

    /// All stations with their ports and when they were last seen, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Station, PortNo, Millis)> + '_ {
        self.stations.iter().map(|(station, location)| {
            (*station, location.port, Millis(location.last_seen.load(Ordering::Relaxed)))
        })
    }
}

/// A station: its address within a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station {
    /// Its VLAN.
    pub vlan: VlanKey,
    /// MAC address.
    pub mac: MacAddr,
}

/// A VLAN, by kind of tag and identifier, so that a C-VLAN and an S-VLAN with the same number are
/// different; optionally with the inner one. Priority-tagged frames are in no VLAN, like untagged
/// ones.
///
/// One word, with the outermost tag in its upper half, so that it is hashed at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanKey(u32);

impl VlanKey {
    /// No VLAN.
    pub const UNTAGGED: Self = Self(0);

    /// The VLAN of frames with the tag `outer`, or the one of `inner` within it.
    #[inline]
    pub fn new(outer: Tag, inner: Option<Tag>) -> Self {
        Self(Self::half(outer) << 16 | inner.map_or(0, Self::half))
    }

    /// Twelve bits of identifier, and above them the kind of tag.
    #[inline]
    fn half(tag: Tag) -> u32 {
        let kind = match tag.tpid() {
            EtherType::VLAN => 1,
            EtherType::SERVICE_VLAN => 2,
            _ => 3,
        };
        if tag.vid() == 0 { 0 } else { kind << VID_BITS | u32::from(tag.vid()) }
    }
}

/// `-`, `c10`, `s100` or `s100/c10`.
impl fmt::Display for VlanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = |half: u32| {
            let number = half & u32::from(Tag::VID_MASK);
            match half >> VID_BITS & 3 {
                0 => "-".to_owned(),
                1 => format!("c{number}"),
                2 => format!("s{number}"),
                _ => format!("x{number}"),
            }
        };
        f.write_str(&half(self.0 >> 16))?;
        match self.0 & 0xffff {
            0 => Ok(()),
            inner => write!(f, "/{}", half(inner)),
        }
    }
}

/// A station at a port where the table does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The station.
    pub station: Station,
    /// Where it was seen.
    pub port: PortNo,
}

/// A station that was seen at two ports in turn: there is a loop, or two have its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restless {
    /// The station.
    pub station: Station,
    /// Its last two ports, the current one last.
    pub ports: [PortNo; 2],
}

impl Restless {
    /// Moves within [`Self::PERIOD`] that are usual.
    pub const USUAL_MOVES: u32 = 5;
    /// Time without moves after which they are forgotten, and the least time between two reports,
    /// as a loop concerns all stations.
    pub const PERIOD: Millis = Millis(10_000);
}

/// The owner of the MAC table.
#[derive(Debug)]
pub struct MacLearning {
    table: Arc<MacTable>,
    age_limit: Millis,
    count_limit: usize,
    refused: u64,
    restless: Option<Restless>,
    quiet_until: Millis,
}

impl MacLearning {
    /// An empty table that forgets stations after `age_limit` and holds at most `count_limit`.
    pub fn new(age_limit: Millis, count_limit: usize) -> Self {
        let (restless, quiet_until) = (None, Millis(0));
        Self { table: Arc::default(), age_limit, count_limit, refused: 0, restless, quiet_until }
    }

    /// Distinguishes VLANs by the two outermost tags instead of the outermost alone: for S-VLANs in
    /// which customers use one address in several C-VLANs. Must be set before anything is learned.
    #[must_use]
    pub fn by_stack(mut self, by_stack: bool) -> Self {
        Arc::make_mut(&mut self.table).by_stack = by_stack;
        self
    }

    /// Learns or moves a station. Returns `true` if the table changed.
    ///
    /// A full table refuses new stations, so that a flood of forged addresses cannot evict known
    /// ones; frames for new stations are flooded.
    pub fn handle_sighting(&mut self, sighting: Sighting, now: Millis) -> bool {
        let Sighting { station, port } = sighting;
        if !station.mac.is_unicast() || self.table.refresh(station, port, now) {
            return false;
        }
        let old = self.table.stations.get(&station);
        if old.is_none() && self.table.count() >= self.count_limit {
            self.refused += 1;
            return false;
        }
        let moves = old.map_or(Moves::default(), |old| old.moves.and_one(now));
        let from = old.map(|old| old.port).filter(|_| moves.count > Restless::USUAL_MOVES);
        if let Some(from) = from {
            self.note_restless(Restless { station, ports: [from, port] }, now);
        }
        let location = Location { port, last_seen: AtomicU64::new(now.0), moves };
        Arc::make_mut(&mut self.table).stations.insert(station, Arc::new(location));
        true
    }

    /// A station that moves more often than [usual](Restless::USUAL_MOVES), if that is news.
    pub fn take_restless(&mut self) -> Option<Restless> {
        self.restless.take()
    }

    /// Forgets the stations behind `port`. Returns `true` if there were any.
    pub fn handle_port_down(&mut self, port: PortNo) -> bool {
        self.retain(|location| location.port != port)
    }

    /// Forgets the stations that were not seen for the age limit. Returns `true` if there were any.
    pub fn handle_timeout(&mut self, now: Millis) -> bool {
        let age_limit = self.age_limit;
        self.retain(|location| {
            now.since(Millis(location.last_seen.load(Ordering::Relaxed))) < age_limit
        })
    }

    /// The current table, for the workers.
    pub fn table(&self) -> &Arc<MacTable> {
        &self.table
    }

    /// Stations that were not learned because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn note_restless(&mut self, restless: Restless, now: Millis) {
        if self.quiet_until <= now {
            self.quiet_until = Millis(now.0 + Restless::PERIOD.0);
            self.restless = Some(restless);
        }
    }

    fn retain(&mut self, keep: impl Fn(&Location) -> bool) -> bool {
        if self.table.stations.values().all(|location| keep(location)) {
            return false;
        }
        Arc::make_mut(&mut self.table).stations.retain(|_, location| keep(location));
        true
    }
}

#[derive(Debug)]
struct Location {
    port: PortNo,
    last_seen: AtomicU64,
    moves: Moves,
}

/// Recent moves of a station, and until when they count.
#[derive(Clone, Copy, Debug, Default)]
struct Moves {
    count: u32,
    until: Millis,
}

impl Moves {
    fn and_one(self, now: Millis) -> Self {
        let recent = if now < self.until { self.count } else { 0 };
        Self { count: recent.saturating_add(1), until: Millis(now.0 + Restless::PERIOD.0) }
    }
}

/// Position of the kind of tag in half a [`VlanKey`].
const VID_BITS: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Millis = Millis(300_000);

    fn station(last: u8) -> Station {
        Station { vlan: VlanKey::UNTAGGED, mac: MacAddr([2, 0, 0, 0, 0, last]) }
    }

    fn sighting(last: u8, port: u32) -> Sighting {
        Sighting { station: station(last), port: PortNo(port) }
    }

    #[test]
    fn stations_are_learnt_and_move() {
        let mut learning = MacLearning::new(AGE, 10);
        assert!(learning.handle_sighting(sighting(1, 1), Millis(0)));
        let before = learning.table().clone();
        assert!(!learning.handle_sighting(sighting(1, 1), Millis(1)), "nothing new");
        assert!(learning.handle_sighting(sighting(1, 2), Millis(2)));
        assert_eq!(learning.table().port(station(1)), Some(PortNo(2)));
        assert_eq!(before.port(station(1)), Some(PortNo(1)), "workers keep what they hold");
    }

    #[test]
    fn who_is_at_two_ports_in_turn_is_restless() {
        let mut learning = MacLearning::new(AGE, 10);
        let mut news = |second: u64| {
            learning.handle_sighting(sighting(1, 1 + (second % 2) as u32), Millis(second * 1000));
            learning.take_restless()
        };
        assert!((0..=5).all(|second| news(second).is_none()), "five moves");
        let ports = [PortNo(2), PortNo(1)];
        assert_eq!(news(6), Some(Restless { station: station(1), ports }));
        assert!((7..16).all(|second| news(second).is_none()), "no news");
        assert!(news(16).is_some(), "a reminder");
        assert!((27..=31).all(|second| news(second).is_none()), "it was calm for ten seconds");
    }

    #[test]
    fn a_loop_is_told_once() {
        let mut learning = MacLearning::new(AGE, 100);
        let mut told = 0;
        for (turn, host) in (0..10).flat_map(|turn| (0..100).map(move |host| (turn, host))) {
            learning.handle_sighting(sighting(host, turn % 2), Millis(u64::from(turn)));
            told += usize::from(learning.take_restless().is_some());
        }
        assert_eq!(told, 1);
    }

    #[test]
    fn a_vlan_is_a_world_of_its_own() {
        let mut learning = MacLearning::new(AGE, 10);
        learning.handle_sighting(sighting(1, 1), Millis(0));
        let tag = |tpid, tci| VlanKey::new(Tag::new(tpid, tci), None);
        let (c, s) = (tag(EtherType::VLAN, 7), tag(EtherType::SERVICE_VLAN, 7));
        let at = |vlan| learning.table().port(Station { vlan, ..station(1) });
        assert_eq!((at(c), at(s)), (None, None));
        assert_ne!(c, s, "a C-VLAN is no S-VLAN");
        assert_eq!(at(tag(EtherType::VLAN, 0xe000)), Some(PortNo(1)), "a priority is no VLAN");
    }

    #[test]
    fn a_vlan_is_told_by_its_kind_and_number() {
        let (c, s) = (Tag::new(EtherType::VLAN, 0xe00a), Tag::new(EtherType::SERVICE_VLAN, 100));
        assert_eq!(VlanKey::UNTAGGED.to_string(), "-");
        assert_eq!(VlanKey::new(s, None).to_string(), "s100");
        assert_eq!(VlanKey::new(s, Some(c)).to_string(), "s100/c10");
    }

    #[test]
    fn group_addresses_are_never_learnt() {
        let mut learning = MacLearning::new(AGE, 10);
        let station = Station { mac: MacAddr::BROADCAST, ..station(1) };
        assert!(!learning.handle_sighting(Sighting { station, port: PortNo(1) }, Millis(0)));
    }

    #[test]
    fn silent_stations_age_and_busy_ones_stay() {
        let mut learning = MacLearning::new(AGE, 10);
        learning.handle_sighting(sighting(1, 1), Millis(0));
        learning.handle_sighting(sighting(2, 1), Millis(0));
        assert!(learning.table().refresh(station(2), PortNo(1), Millis(200_000)));
        assert!(learning.handle_timeout(Millis(300_000)));
        assert_eq!(learning.table().port(station(1)), None);
        assert_eq!(learning.table().port(station(2)), Some(PortNo(1)));
        assert!(!learning.handle_timeout(Millis(300_000)));
    }

    #[test]
    fn a_port_that_goes_down_takes_its_stations_along() {
        let mut learning = MacLearning::new(AGE, 10);
        learning.handle_sighting(sighting(1, 1), Millis(0));
        learning.handle_sighting(sighting(2, 2), Millis(0));
        assert!(learning.handle_port_down(PortNo(1)));
        assert_eq!(learning.table().count(), 1);
    }

    #[test]
    fn a_full_table_keeps_who_is_there() {
        let mut learning = MacLearning::new(AGE, 1);
        learning.handle_sighting(sighting(1, 1), Millis(0));
        assert!(!learning.handle_sighting(sighting(2, 1), Millis(0)));
        assert!(learning.handle_sighting(sighting(1, 2), Millis(0)), "a move needs no room");
        assert_eq!((learning.refused(), learning.table().count()), (1, 1));
    }
}
