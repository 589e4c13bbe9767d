//! Index of regions by sender. Most regions name one sender, and those with different senders are
//! disjoint. So a policy is compared with those of its own sender and those of any sender, instead
//! of with all.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tapswitch_wire::MacAddr;

use crate::IpPrefix;
use crate::index::{Index, forget, note};
use crate::region::{MacMask, Region};

/// Values by the sender of their regions.
#[derive(Clone, Debug)]
pub(crate) struct Senders<T> {
    by_mac: Buckets<MacAddr, T>,
    by_ip: Buckets<IpAddr, T>,
}

/// By the single address of a region; regions without one are under `None`.
type Buckets<K, T> = Index<Option<K>, T>;

impl<T> Default for Senders<T> {
    fn default() -> Self {
        Self { by_mac: Index::default(), by_ip: Index::default() }
    }
}

impl<T: Copy + Ord> Senders<T> {
    /// Adds a value for a region.
    pub(crate) fn insert(&mut self, region: &Region, value: T) {
        note(&mut self.by_mac, &mac(region), value);
        note(&mut self.by_ip, &ip(region), value);
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, region: &Region, value: T) {
        forget(&mut self.by_mac, &mac(region), &value);
        forget(&mut self.by_ip, &ip(region), &value);
    }

    /// Merges a former copy's changes into its base, which no other copy shares.
    pub(crate) fn join(&mut self) {
        self.by_mac.join();
        self.by_ip.join();
    }

    /// Values whose regions intersect this one, and some more; a value of several regions may occur
    /// several times. This may be most values, so filter before collecting.
    pub(crate) fn near(&self, region: &Region) -> impl Iterator<Item = T> {
        self.near_sender(Sender::of(region))
    }

    /// The same for several regions. A policy with port ranges has many regions of one sender, with
    /// the same neighbours.
    pub(crate) fn near_any(
        &self,
        regions: impl Iterator<Item = Region>,
    ) -> impl Iterator<Item = T> {
        let mut senders: BTreeSet<_> = regions.map(|region| Sender::of(&region)).collect();
        if senders.contains(&Sender::ANY) {
            // Everything is near.
            senders = [Sender::ANY].into();
        }
        senders.into_iter().flat_map(|sender| self.near_sender(sender))
    }

    fn near_sender(&self, sender: Sender) -> impl Iterator<Item = T> + use<'_, T> {
        let near = [
            sender.mac.map(|mac| near(&self.by_mac, mac)),
            sender.ip.map(|ip| near(&self.by_ip, ip)),
        ];
        let count = |sets: &Vec<&BTreeSet<T>>| sets.iter().map(|set| set.len()).sum::<usize>();
        let fewest = near.into_iter().flatten().min_by_key(count);
        let sets = fewest.unwrap_or_else(|| self.by_mac.values().collect());
        sets.into_iter().flatten().copied()
    }
}

/// The sender of a region, if it is a single one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    mac: Option<MacAddr>,
    ip: Option<IpAddr>,
}

impl Sender {
    const ANY: Self = Self { mac: None, ip: None };

    fn of(region: &Region) -> Self {
        Self { mac: mac(region), ip: ip(region) }
    }
}

fn near<K: Copy + Ord, T: Clone + Ord>(buckets: &Buckets<K, T>, key: K) -> Vec<&BTreeSet<T>> {
    [Some(key), None].into_iter().filter_map(|key| buckets.get(&key)).collect()
}

fn mac(region: &Region) -> Option<MacAddr> {
    region.src_mac.and_then(MacMask::exact)
}

fn ip(region: &Region) -> Option<IpAddr> {
    region.src_ip.and_then(IpPrefix::only)
}
