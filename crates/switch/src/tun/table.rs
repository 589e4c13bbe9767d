//! What a tun port knows of IP addresses: workers read it without a lock, and change it rarely.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tapswitch_datapath::Millis;

/// Values by address, at most [`STATIONS_MAX`].
#[derive(Debug)]
pub(super) struct Table<V> {
    map: ArcSwap<Map<V>>,
    change: Mutex<()>,
    /// For how long one counts that is not seen again.
    age_limit: Millis,
}

type Map<V> = HashMap<IpAddr, Arc<Entry<V>>>;

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// When it was seen last, in milliseconds.
    seen: AtomicU64,
}

impl<V> Table<V> {
    pub(super) fn new(age_limit: Millis) -> Self {
        Self { map: ArcSwap::default(), change: Mutex::default(), age_limit }
    }
}

impl<V: Copy + PartialEq> Table<V> {
    #[inline]
    pub(super) fn find(&self, ip: IpAddr, now: Millis) -> Option<V> {
        let map = self.map.load();
        map.get(&ip).filter(|entry| self.is_fresh(entry, now)).map(|entry| entry.value)
    }

    /// Notes that `value` is seen at `ip`. Returns `false` when the table does not say so yet.
    #[inline]
    pub(super) fn refresh(&self, ip: IpAddr, value: V, now: Millis) -> bool {
        let map = self.map.load();
        let Some(entry) = map.get(&ip).filter(|entry| entry.value == value) else { return false };
        // Not each time, so that workers do not take it from each other's caches.
        if entry.age(now) >= SEEN_STEP {
            entry.seen.store(now.0, Ordering::Relaxed);
        }
        true
    }

    #[cold]
    pub(super) fn set(&self, ip: IpAddr, value: V, now: Millis) {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut map = Map::clone(&self.map.load());
        if map.len() >= STATIONS_MAX && !map.contains_key(&ip) {
            self.make_room(&mut map, now);
        }
        map.insert(ip, Arc::new(Entry { value, seen: now.0.into() }));
        self.map.store(Arc::new(map));
    }

    #[cold]
    pub(super) fn forget(&self, ip: IpAddr) {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let map = self.map.load();
        if map.contains_key(&ip) {
            let mut map = Map::clone(&map);
            map.remove(&ip);
            self.map.store(Arc::new(map));
        }
    }

    /// Forgets those that are too old, and where that is not enough the half that was seen longest
    /// ago: many addresses that come at once do not make it look at all of them each time.
    fn make_room(&self, map: &mut Map<V>, now: Millis) {
        map.retain(|_, entry| self.is_fresh(entry, now));
        if map.len() < STATIONS_MAX {
            return;
        }
        let mut ages: Vec<_> = map.values().map(|entry| entry.age(now)).collect();
        ages.sort_unstable();
        let limit = ages[ages.len() / 2];
        map.retain(|_, entry| entry.age(now) < limit);
    }

    fn is_fresh(&self, entry: &Entry<V>, now: Millis) -> bool {
        entry.age(now) < self.age_limit
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.map.load().len()
    }
}

impl<V> Entry<V> {
    fn age(&self, now: Millis) -> Millis {
        now.since(Millis(self.seen.load(Ordering::Relaxed)))
    }
}

/// Most entries of a table: more than a subnet has, few enough to be copied at each change.
pub(super) const STATIONS_MAX: usize = 1024;
const SEEN_STEP: Millis = Millis(1000);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMIT: Millis = Millis(300_000);

    fn ip(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn what_is_not_seen_again_is_forgotten() {
        let table = Table::new(LIMIT);
        table.set(ip(1), 'a', Millis(5));
        table.set(ip(2), 'b', Millis(5));
        assert!(!table.refresh(ip(1), 'c', Millis(200_000)), "it is another one");
        assert!(table.refresh(ip(2), 'b', Millis(200_000)));
        let found = |now| [1, 2].map(|number| table.find(ip(number), Millis(now)));
        assert_eq!(found(300_004), [Some('a'), Some('b')]);
        assert_eq!(found(300_005), [None, Some('b')]);
        assert_eq!(found(500_000), [None, None]);
        assert!(table.refresh(ip(1), 'a', Millis(600_000)), "it is back");
        assert_eq!(found(600_000), [Some('a'), None]);
        table.forget(ip(1));
        assert_eq!(found(600_000), [None, None]);
    }

    #[test]
    fn one_that_is_full_keeps_those_that_were_seen_last() {
        let table = Table::new(LIMIT);
        for number in 0..STATIONS_MAX {
            let number = u32::try_from(number).unwrap();
            table.set(ip(number), (), Millis(number.into()));
        }
        assert!(table.refresh(ip(0), (), Millis(5000)));
        table.set(ip(9999), (), Millis(5000));
        assert!((2..=STATIONS_MAX / 2 + 2).contains(&table.len()), "{}", table.len());
        assert!([0, 1023, 9999].iter().all(|it| table.find(ip(*it), Millis(5000)).is_some()));
        assert!(table.find(ip(1), Millis(5000)).is_none());
        // Those that are too old go first.
        let old = Table::new(LIMIT);
        for number in 0..u32::try_from(STATIONS_MAX).unwrap() {
            old.set(ip(number), (), Millis(if number < 1000 { 0 } else { 200_000 }));
        }
        old.set(ip(9999), (), Millis(300_000));
        assert_eq!(old.len(), 25);
    }

    /// So that nobody who makes addresses up makes it larger.
    #[test]
    fn it_is_bounded() {
        let table = Table::new(LIMIT);
        for number in 0..5000 {
            table.set(ip(number), (), Millis(7));
            assert!(table.len() <= STATIONS_MAX);
        }
    }
}
