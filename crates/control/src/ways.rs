//! Routes from one switch to hosts, its own and those of other switches.

use std::collections::{BTreeMap, HashMap};

use tapswitch_wire::MacAddr;

use crate::exit::Route;
use crate::hosts::HostKey;
use crate::region::{MacMask, Region};

/// Routes to all hosts that a switch can reach.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    by_key: BTreeMap<HostKey, Route>,
    vlan_counts: HashMap<Option<u16>, usize>,
}

impl Ways {
    /// Sets or removes the route to a host. Returns the previous one.
    pub(crate) fn set(&mut self, key: HostKey, route: Option<Route>) -> Option<Route> {
        let is_there = route.is_some();
        let before = match route {
            Some(route) => self.by_key.insert(key, route),
            None => self.by_key.remove(&key),
        };
        match (&before, is_there) {
            (None, true) => *self.vlan_counts.entry(key.vlan).or_default() += 1,
            (Some(_), false) => self.uncount(key.vlan),
            _ => {}
        }
        before
    }

    /// All routes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostKey, Route)> {
        self.by_key.iter().map(|(key, route)| (*key, route.clone()))
    }

    /// Number of routes.
    pub(crate) fn count(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is a route to a host.
    pub(crate) fn knows(&self, key: HostKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Routes to the hosts that frames of a region may go to.
    pub(crate) fn reached(&self, region: &Region) -> Vec<(HostKey, Route)> {
        let reached = |(key, _): &(HostKey, Route)| region.reaches(*key);
        match region.dst_mac.and_then(MacMask::exact) {
            Some(mac) => self.with_mac(mac).filter(reached).collect(),
            None => self.iter().filter(reached).collect(),
        }
    }

    /// Number of hosts that frames of a region may go to.
    pub(crate) fn count_reached(&self, region: &Region) -> usize {
        if region.dst_mac.is_some() {
            return self.reached(region).len();
        }
        let vlans = self.vlan_counts.iter();
        vlans.filter(|(vlan, _)| region.reaches_vlan(**vlan)).map(|(_, count)| count).sum()
    }

    /// How many of them are hosts of this switch.
    pub(crate) fn count_reached_here(&self, region: &Region) -> usize {
        let here = |(_, route): &&(HostKey, Route)| route.exit.beyond.is_none();
        self.reached(region).iter().filter(here).count()
    }

    fn with_mac(&self, mac: MacAddr) -> impl Iterator<Item = (HostKey, Route)> {
        let first = HostKey { mac, vlan: None };
        let last = HostKey { mac, vlan: Some(u16::MAX) };
        self.by_key.range(first..=last).map(|(key, route)| (*key, route.clone()))
    }

    fn uncount(&mut self, vlan: Option<u16>) {
        if let Some(count) = self.vlan_counts.get_mut(&vlan) {
            *count -= 1;
            if *count == 0 {
                self.vlan_counts.remove(&vlan);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_openflow::PortNo;

    use super::*;
    use crate::Vlan;
    use crate::exit::Exit;

    fn key(last: u8, vlan: Option<u16>) -> HostKey {
        HostKey { mac: MacAddr([2, 0, 0, 0, 0, last]), vlan }
    }

    #[test]
    fn regions_count_the_hosts_that_they_reach() {
        let mut ways = Ways::default();
        let route = |port| Some(Exit::here(PortNo(port)).into());
        assert_eq!(ways.set(key(1, None), route(1)), None);
        assert_eq!(ways.set(key(2, Some(5)), route(1)), None);
        assert_eq!(ways.set(key(2, Some(5)), route(2)), route(1));
        let all = Region::default();
        let tagged = Region { vlan: Vlan::Id(5), ..all };
        let to_first = Region { dst_mac: Some(key(1, None).mac.into()), ..all };
        for (region, count) in [(all, 2), (tagged, 1), (to_first, 1)] {
            assert_eq!((ways.count_reached(&region), ways.reached(&region).len()), (count, count));
        }
        ways.set(key(1, None), None);
        ways.set(key(9, None), None);
        assert_eq!((ways.count_reached(&all), ways.iter().count()), (1, 1));
    }
}
