//! Which hosts a switch has, and behind which ports.
//!
//! A host is a MAC address in a VLAN. It is learned from the frames that the switch sends up, moves
//! with them, and goes when its rule on the switch has been idle. Its IP addresses come from ARP
//! and neighbour discovery.
//!
//! **What others claim.** Addresses can be forged, so everything is bounded, and what does not fit
//! is counted and forwarded by flooding. An IP address stays with the host that has it as long as
//! that host is known: somebody else's claim is counted as a conflict and not believed, since
//! copies for a monitor that was named by its address would go there. VLANs are worlds of their
//! own, so who claims it in another one has it there; where it is a monitor's that is a conflict,
//! too, and copies stay where they go. A host that moves is believed, and takes its addresses
//! along; one that gets copies only when it is silent where it was (`control/contests.rs`).

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use tapswitch_openflow::{PortNo, VID_NONE, VID_PRESENT};
use tapswitch_wire::MacAddr;

use crate::{Limits, Millis};

/// A MAC address in a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostKey {
    pub(crate) mac: MacAddr,
    /// Identifier of the outermost tag; `None` for frames without one.
    pub(crate) vlan: Option<u16>,
}

impl HostKey {
    /// The VLAN as OpenFlow's `vlan_vid`.
    pub(crate) fn vid(self) -> u16 {
        self.vlan.map_or(VID_NONE, |vid| VID_PRESENT | vid)
    }
}

/// What is known of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) port: PortNo,
    pub(crate) addresses: Vec<IpAddr>,
    /// Identifiers of the tags inside the outermost one, of the frame that came up last.
    pub(crate) inner_vlans: Vec<u16>,
    /// When a frame of it came up last; not when it sent one last, of which the switch says
    /// nothing.
    pub(crate) last_seen: Millis,
}

/// What a frame says about where a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) key: HostKey,
    pub(crate) port: PortNo,
    /// The IP address that the host claims.
    pub(crate) address: Option<IpAddr>,
    /// To whom it sends.
    pub(crate) to: MacAddr,
    /// As in [`Host`]; none where no frame was seen, but a rule.
    pub(crate) inner_vlans: Option<Vec<u16>>,
}

/// What a sighting changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing about the place.
    Before,
    /// The host is new.
    New,
    /// The host was behind another port.
    Moved { from: PortNo },
    /// There is no room for the host.
    Refused,
}

/// All hosts of one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    by_key: BTreeMap<HostKey, Host>,
    /// Which host has an address, by VLAN.
    by_address: BTreeMap<(IpAddr, Option<u16>), HostKey>,
    port_counts: HashMap<PortNo, usize>,
    refused: u64,
    conflicts: u64,
}

impl Hosts {
    /// Notes where a host is. Returns what changed, and whether an address is new.
    pub(crate) fn handle_sighting(
        &mut self,
        sighting: &Sighting,
        limits: &Limits,
        now: Millis,
    ) -> (Seen, bool) {
        let Sighting { key, port, address, ref inner_vlans, .. } = *sighting;
        let seen = self.place(key, port, limits, now);
        if let (Some(host), Some(inner_vlans)) = (self.by_key.get_mut(&key), inner_vlans)
            && seen != Seen::Refused
        {
            host.inner_vlans.clone_from(inner_vlans);
        }
        let claimed = match seen {
            Seen::Refused => false,
            _ => address.is_some_and(|address| self.claim(key, address, limits)),
        };
        (seen, claimed)
    }

    /// Forgets a host.
    pub(crate) fn remove(&mut self, key: HostKey) -> Option<Host> {
        let host = self.by_key.remove(&key)?;
        for address in &host.addresses {
            self.by_address.remove(&(*address, key.vlan));
        }
        uncount(&mut self.port_counts, &host.port);
        Some(host)
    }

    /// What is known of a host.
    pub(crate) fn find(&self, key: HostKey) -> Option<&Host> {
        self.by_key.get(&key)
    }

    /// All hosts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostKey, &Host)> {
        self.by_key.iter().map(|(key, host)| (*key, host))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.by_key.len()
    }

    /// Sightings that found no room.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Claims of addresses that another host has.
    pub(crate) const fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// Somebody elsewhere is what one host should be.
    pub(crate) const fn note_conflict(&mut self) {
        self.conflicts += 1;
    }

    /// The hosts behind a port.
    pub(crate) fn behind(&self, port: PortNo) -> Vec<HostKey> {
        self.iter().filter(|(_, host)| host.port == port).map(|(key, _)| key).collect()
    }

    /// The hosts with a MAC address, one for each VLAN.
    pub(crate) fn with_mac(&self, mac: MacAddr) -> impl Iterator<Item = (HostKey, &Host)> {
        let first = HostKey { mac, vlan: None };
        let last = HostKey { mac, vlan: Some(u16::MAX) };
        self.by_key.range(first..=last).map(|(key, host)| (*key, host))
    }

    /// The hosts with an IP address, one for each VLAN.
    pub(crate) fn with_address(&self, address: IpAddr) -> impl Iterator<Item = (HostKey, &Host)> {
        let holders = self.by_address.range((address, None)..=(address, Some(u16::MAX)));
        holders.filter_map(|(_, key)| Some((*key, self.by_key.get(key)?)))
    }

    fn place(&mut self, key: HostKey, port: PortNo, limits: &Limits, now: Millis) -> Seen {
        let known_at = self.by_key.get(&key).map(|host| host.port);
        if known_at != Some(port) && !self.has_room(known_at.is_none(), port, limits) {
            self.refused += 1;
            return Seen::Refused;
        }
        let host = self.by_key.entry(key).or_insert_with(|| Host {
            port,
            addresses: Vec::new(),
            inner_vlans: Vec::new(),
            last_seen: now,
        });
        (host.port, host.last_seen) = (port, now);
        if known_at == Some(port) {
            return Seen::Before;
        }
        *self.port_counts.entry(port).or_default() += 1;
        match known_at {
            Some(from) => {
                uncount(&mut self.port_counts, &from);
                Seen::Moved { from }
            }
            None => Seen::New,
        }
    }

    fn has_room(&self, is_new: bool, port: PortNo, limits: &Limits) -> bool {
        let behind = self.port_counts.get(&port).copied().unwrap_or(0);
        behind < limits.max_hosts_per_port && (!is_new || self.count() < limits.max_hosts)
    }

    /// Gives an address to a host, unless another one has it. Returns whether that is news.
    fn claim(&mut self, key: HostKey, address: IpAddr, limits: &Limits) -> bool {
        match self.by_address.get(&(address, key.vlan)) {
            Some(holder) if *holder == key => return false,
            Some(_) => {
                self.conflicts += 1;
                return false;
            }
            None => {}
        }
        let Some(host) = self.by_key.get_mut(&key) else {
            return false;
        };
        if host.addresses.len() >= limits.max_addresses {
            self.refused += 1;
            return false;
        }
        host.addresses.push(address);
        self.by_address.insert((address, key.vlan), key);
        true
    }
}

fn uncount<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u8) -> HostKey {
        HostKey { mac: MacAddr([2, 0, 0, 0, 0, last]), vlan: None }
    }

    fn see(hosts: &mut Hosts, last: u8, port: u32, address: Option<[u8; 4]>) -> (Seen, bool) {
        let limits = Limits { max_hosts: 3, max_hosts_per_port: 2, ..Limits::default() };
        let address = address.map(IpAddr::from);
        let to = MacAddr::BROADCAST;
        let sighting =
            Sighting { key: key(last), port: PortNo(port), address, to, inner_vlans: None };
        hosts.handle_sighting(&sighting, &limits, Millis(5))
    }

    #[test]
    fn a_host_is_learned_moves_and_goes() {
        let mut hosts = Hosts::default();
        assert_eq!(see(&mut hosts, 1, 1, None).0, Seen::New);
        assert_eq!(see(&mut hosts, 1, 1, None).0, Seen::Before);
        assert_eq!(see(&mut hosts, 1, 2, None).0, Seen::Moved { from: PortNo(1) });
        assert_eq!((hosts.behind(PortNo(1)), hosts.behind(PortNo(2))), (vec![], vec![key(1)]));
        assert_eq!(hosts.remove(key(1)).unwrap().port, PortNo(2));
        assert_eq!((hosts.count(), hosts.port_counts.len()), (0, 0));
    }

    #[test]
    fn there_is_room_for_so_many_only() {
        let mut hosts = Hosts::default();
        assert_eq!(see(&mut hosts, 1, 1, None).0, Seen::New);
        assert_eq!(see(&mut hosts, 2, 1, None).0, Seen::New);
        assert_eq!(see(&mut hosts, 3, 1, None).0, Seen::Refused, "port 1 is full");
        assert_eq!(see(&mut hosts, 3, 2, None).0, Seen::New);
        assert_eq!(see(&mut hosts, 4, 3, None).0, Seen::Refused, "the switch is full");
        assert_eq!(see(&mut hosts, 3, 1, None).0, Seen::Refused, "no move to a full port");
        assert_eq!(see(&mut hosts, 1, 2, None).0, Seen::Moved { from: PortNo(1) });
        assert_eq!((hosts.refused(), hosts.count()), (3, 3));
    }

    #[test]
    fn an_address_stays_with_its_host() {
        let mut hosts = Hosts::default();
        let address = [10, 0, 0, 9];
        assert_eq!(see(&mut hosts, 1, 1, Some(address)), (Seen::New, true));
        assert_eq!(see(&mut hosts, 1, 1, Some(address)), (Seen::Before, false));
        assert_eq!(see(&mut hosts, 2, 2, Some(address)), (Seen::New, false));
        assert_eq!(hosts.conflicts(), 1);
        let holder = |hosts: &Hosts| hosts.with_address(address.into()).next().map(|(key, _)| key);
        assert_eq!(holder(&hosts), Some(key(1)));
        hosts.remove(key(1));
        assert_eq!(holder(&hosts), None);
        assert!(see(&mut hosts, 2, 2, Some(address)).1, "free again");
    }
}
