//! The MAC table behind the reserved port NORMAL: which station was last seen on which port
//! (IEEE 802.1Q-2022 §8.7, §8.8), per outer VLAN identifier.
//!
//! Workers read an immutable [`MacTable`]; the one owner of [`MacLearning`] changes it and hands
//! out a new one. A worker that meets a station that is not where the table says reports it
//! ([`Sighting`]); one that is, is refreshed in place by a store to its own entry, so that the
//! table needs no new version for stations that stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use tapswitch_openflow::PortNo;
use tapswitch_wire::MacAddr;

use crate::Millis;

/// Where stations are, as workers see it.
#[derive(Clone, Debug, Default)]
pub struct MacTable {
    stations: HashMap<Station, Arc<Location>>,
}

impl MacTable {
    /// The port behind which `station` is.
    #[inline]
    pub fn port(&self, station: Station) -> Option<PortNo> {
        self.stations.get(&station).map(|location| location.port)
    }

    /// Notes that `station` sent a frame into `port`. Returns `false` when the table does not say
    /// so yet: then it is for [`MacLearning::handle_sighting`].
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

/// A station: its address within a VLAN (identifier 0 for frames without a tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station {
    /// Outer VLAN identifier.
    pub vid: u16,
    /// MAC address.
    pub mac: MacAddr,
}

/// A station seen on a port that the table does not know it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Who.
    pub station: Station,
    /// Where.
    pub port: PortNo,
}

/// The owner of the MAC table.
#[derive(Debug)]
pub struct MacLearning {
    table: Arc<MacTable>,
    age_limit: Millis,
    count_limit: usize,
    refused: u64,
}

impl MacLearning {
    /// An empty table that forgets stations after `age_limit` and holds at most `count_limit`.
    pub fn new(age_limit: Millis, count_limit: usize) -> Self {
        Self { table: Arc::default(), age_limit, count_limit, refused: 0 }
    }

    /// Learns or moves a station. Returns `true` when the table changed.
    ///
    /// A full table refuses new stations, so that a flood of forged addresses cannot push out the
    /// stations that are there; their frames are flooded.
    pub fn handle_sighting(&mut self, sighting: Sighting, now: Millis) -> bool {
        let Sighting { station, port } = sighting;
        if !station.mac.is_unicast() || self.table.refresh(station, port, now) {
            return false;
        }
        let is_new = !self.table.stations.contains_key(&station);
        if is_new && self.table.count() >= self.count_limit {
            self.refused += 1;
            return false;
        }
        let location = Location { port, last_seen: AtomicU64::new(now.0) };
        Arc::make_mut(&mut self.table).stations.insert(station, Arc::new(location));
        true
    }

    /// Forgets the stations behind `port`. Returns `true` when there were any.
    pub fn handle_port_down(&mut self, port: PortNo) -> bool {
        self.retain(|location| location.port != port)
    }

    /// Forgets the stations that were not seen for the age limit. Returns `true` when there were
    /// any.
    pub fn handle_timeout(&mut self, now: Millis) -> bool {
        let age_limit = self.age_limit;
        self.retain(|location| {
            now.since(Millis(location.last_seen.load(Ordering::Relaxed))) < age_limit
        })
    }

    /// The table as it stands, for the workers.
    pub fn table(&self) -> &Arc<MacTable> {
        &self.table
    }

    /// Stations that were not learnt because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Millis = Millis(300_000);

    fn station(last: u8) -> Station {
        Station { vid: 0, mac: MacAddr([2, 0, 0, 0, 0, last]) }
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
    fn a_vlan_is_a_world_of_its_own() {
        let mut learning = MacLearning::new(AGE, 10);
        learning.handle_sighting(sighting(1, 1), Millis(0));
        assert_eq!(learning.table().port(Station { vid: 7, ..station(1) }), None);
    }

    #[test]
    fn group_addresses_are_never_learnt() {
        let mut learning = MacLearning::new(AGE, 10);
        let station = Station { vid: 0, mac: MacAddr::BROADCAST };
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
