//! A tun port's table of IP addresses: workers read it without a lock, and change it rarely.
//!
//! ```text
//! address ── hash ──> one of 256 sets ──> at most eight entries
//! ```
//! A lookup loads a set and searches it. A change replaces the set: eight pointers are copied,
//! whatever the number of addresses. A full set evicts the entry that was seen longest ago. An
//! address that was only seen in a packet never evicts one that was confirmed, so forged source
//! addresses cannot evict hosts that answered for themselves.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tapswitch_datapath::Millis;

/// Values by address, at most 2048: more than the hosts of a usual subnet.
#[derive(Debug)]
pub(super) struct Table<V> {
    sets: Box<[ArcSwap<Set<V>>]>,
    hasher: RandomState,
    /// How long an entry is valid without being seen again.
    age_limit: Millis,
}

type Set<V> = Vec<Arc<Entry<V>>>;

#[derive(Debug)]
struct Entry<V> {
    ip: IpAddr,
    value: V,
    /// When it was last seen, in milliseconds.
    seen: AtomicU64,
    is_told: AtomicBool,
}

/// How an address was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// From the source address of a packet.
    Seen,
    /// Confirmed by its host through ARP or neighbour discovery, or by the kernel.
    Told,
}

impl<V> Table<V> {
    pub(super) fn new(age_limit: Millis) -> Self {
        let sets = std::iter::repeat_with(ArcSwap::default).take(SET_COUNT).collect();
        Self { sets, hasher: RandomState::new(), age_limit }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "some bits of a hash are as good as all")]
    fn set_of(&self, ip: IpAddr) -> &ArcSwap<Set<V>> {
        &self.sets[self.hasher.hash_one(ip) as usize % SET_COUNT]
    }

    fn is_fresh(&self, entry: &Entry<V>, now: Millis) -> bool {
        entry.age(now) < self.age_limit
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.load().len()).sum()
    }
}

impl<V: Copy + PartialEq> Table<V> {
    #[inline]
    pub(super) fn find(&self, ip: IpAddr, now: Millis) -> Option<V> {
        let set = self.set_of(ip).load();
        let entry = set.iter().find(|entry| entry.ip == ip && self.is_fresh(entry, now));
        entry.map(|entry| entry.value)
    }

    /// Notes that `value` is at `ip`. Returns whether this is new.
    #[inline]
    pub(super) fn note(&self, ip: IpAddr, value: V, source: Source, now: Millis) -> bool {
        let set = self.set_of(ip).load();
        let known = set.iter().find(|entry| entry.ip == ip && entry.value == value);
        match known {
            Some(entry) => entry.refresh(source, now),
            None => self.put(ip, value, source, now),
        }
        known.is_none()
    }

    #[cold]
    fn put(&self, ip: IpAddr, value: V, source: Source, now: Millis) {
        let (seen, is_told) = (now.0.into(), (source == Source::Told).into());
        let entry = Arc::new(Entry { ip, value, seen, is_told });
        self.set_of(ip).rcu(|set| {
            let mut set = Set::clone(set);
            set.retain(|entry| entry.ip != ip && self.is_fresh(entry, now));
            if make_room(&mut set, source, now) {
                set.push(entry.clone());
            }
            set
        });
    }

    #[cold]
    pub(super) fn forget(&self, ip: IpAddr) {
        self.set_of(ip).rcu(|set| {
            let mut set = Set::clone(set);
            set.retain(|entry| entry.ip != ip);
            set
        });
    }
}

/// Makes room for an address learnt from `source`. Returns whether there is room.
fn make_room<V>(set: &mut Set<V>, source: Source, now: Millis) -> bool {
    if set.len() < SET_LEN {
        return true;
    }
    let is_weaker = |entry: &Entry<V>| source == Source::Told || !entry.is_told();
    let oldest = (0..set.len()).filter(|at| is_weaker(&set[*at]));
    // Among the candidates, addresses that were only seen are evicted first.
    let oldest = oldest.max_by_key(|at| (!set[*at].is_told(), set[*at].age(now)));
    oldest.map(|at| set.swap_remove(at)).is_some()
}

impl<V> Entry<V> {
    fn age(&self, now: Millis) -> Millis {
        now.since(Millis(self.seen.load(Ordering::Relaxed)))
    }

    fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// Writes rarely, so that workers do not invalidate the line in each other's caches.
    #[inline]
    fn refresh(&self, source: Source, now: Millis) {
        if self.age(now) >= SEEN_STEP {
            self.seen.store(now.0, Ordering::Relaxed);
        }
        if source == Source::Told && !self.is_told() {
            self.is_told.store(true, Ordering::Relaxed);
        }
    }
}

const SET_COUNT: usize = 256;
const SET_LEN: usize = 8;
#[cfg(test)]
pub(super) const ENTRIES_MAX: usize = SET_COUNT * SET_LEN;
const SEEN_STEP: Millis = Millis(1000);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::Source::{Seen, Told};
    use super::*;

    const LIMIT: Millis = Millis(300_000);

    fn ip(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn what_is_not_seen_again_is_forgotten() {
        let table = Table::new(LIMIT);
        table.note(ip(1), 'a', Seen, Millis(5));
        table.note(ip(2), 'b', Seen, Millis(5));
        table.note(ip(2), 'b', Seen, Millis(200_000));
        let found = |now| [1, 2].map(|number| table.find(ip(number), Millis(now)));
        assert_eq!(found(300_004), [Some('a'), Some('b')]);
        assert_eq!(found(300_005), [None, Some('b')]);
        assert_eq!(found(500_000), [None, None]);
        table.note(ip(1), 'a', Seen, Millis(600_000));
        assert_eq!(found(600_000), [Some('a'), None], "it is back");
        table.note(ip(1), 'c', Seen, Millis(600_001));
        assert_eq!(found(600_001), [Some('c'), None], "it has moved");
        table.forget(ip(1));
        assert_eq!(found(600_001), [None, None]);
    }

    /// So forged addresses cannot grow the table or evict hosts.
    #[test]
    fn who_was_told_of_stays_whatever_is_seen() {
        let table = Table::new(LIMIT);
        for number in 0..100 {
            table.note(ip(number), 'a', Seen, Millis(7));
            table.note(ip(number), 'a', Told, Millis(7));
        }
        for number in 1000..50_000 {
            table.note(ip(number), 'b', Seen, Millis(5000));
        }
        assert!(table.len() <= ENTRIES_MAX);
        let told = (0..100).filter(|number| table.find(ip(*number), Millis(5000)).is_some());
        assert_eq!(told.count(), 100);
        let recent = (49_900..50_000).filter(|it| table.find(ip(*it), Millis(5000)).is_some());
        assert!(recent.count() > 50, "those that were seen last are there");
    }

    #[test]
    fn among_those_that_are_told_the_last_ones_stay() {
        let table = Table::new(LIMIT);
        for number in 0..50_000 {
            table.note(ip(number), 'a', Told, Millis(number.into()));
        }
        assert!(table.len() <= ENTRIES_MAX);
        assert!((49_990..50_000).all(|it| table.find(ip(it), Millis(50_000)).is_some()));
    }
}
