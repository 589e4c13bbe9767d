//! Hosts of one switch, and their ports.
//!
//! A host is a MAC address in a VLAN, or in none (as for a priority tag). It is learned from frames
//! that the switch sends up, moves with them, and is removed when its rule on the switch has been
//! idle. It claims its IP addresses by ARP and neighbour discovery.
//!
//! **Sources.** A host with static ARP entries claims nothing, but its first packet has a source
//! address. This is weak evidence, as the packet may be another host's, so it counts only where
//! nothing better is known:
//! - An address claimed by a host is never another one's source, whichever came first.
//! - A host that claims addresses gets no others from sources.
//! - A host that sends from more than [`Limits::max_sources`] addresses forwards packets of others,
//!   like a proxy that does not decrement the TTL. It loses all its sources until it is forgotten.
//! - Of two hosts that send from one address, the first one has it.
//!
//! Sources are used to find monitors whose address nobody claims, and for display. The senders of a
//! policy are located by claims alone.
//!
//! **Conflicting claims.** Addresses can be forged, so all state is bounded; what exceeds the
//! bounds is counted and forwarded by flooding, and so are hosts that arrive at one port faster
//! than [`Limits::host_burst`]. An IP address stays with its host while that host answers for it:
//! another host's claim is counted as a conflict and not accepted at once, since copies for a
//! monitor named by its address would go there. When the host is silent (`control/claims.rs`), the
//! other one gets the address. VLANs are independent, so a host in another VLAN gets the address
//! there; if it is a monitor's, that is a conflict, too, and copies stay where they go. A host that
//! moves is accepted at its new port with its addresses; a host that gets copies only once it is
//! silent at its old port (`control/contests.rs`).
//!
//! A host with too many addresses loses those that it has not claimed for [`Limits::address_age`].
//! Otherwise age does not matter: a host that only receives copies is silent.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use tapswitch_openflow::{Oxm, PortNo};
use tapswitch_wire::MacAddr;

use crate::{Limits, Millis, Vlan};

/// A MAC address in a VLAN, or in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostKey {
    pub(crate) mac: MacAddr,
    /// VLAN id of the outermost tag; `None` for frames without a tag or with a priority tag.
    pub(crate) vlan: Option<u16>,
}

impl HostKey {
    /// The host that sends or receives with this address and outermost VLAN id.
    pub(crate) fn new(mac: MacAddr, vid: Option<u16>) -> Self {
        Self { mac, vlan: vid.filter(|vid| *vid != Vlan::NULL_ID) }
    }

    /// The `vlan_vid` match of its frames.
    pub(crate) fn vid_field(self) -> Option<Oxm> {
        Vlan::of_host(self.vlan).vid().map(Oxm::VlanVid)
    }
}

/// State of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) port: PortNo,
    /// Claimed addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// Addresses seen only as the source of its packets.
    pub(crate) sources: Vec<IpAddr>,
    /// It forwards packets of others, so their sources are no evidence.
    passes_on: bool,
    /// VLAN ids of the tags inside the outermost one, in the last packet-in.
    pub(crate) inner_vlans: Vec<u16>,
    /// Time of its last packet-in. Its last frame may be later, which the switch does not report.
    pub(crate) last_seen: Millis,
}

impl Host {
    /// All of its IP addresses, claimed ones first.
    pub(crate) fn all_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().chain(&self.sources).copied()
    }
}

/// Evidence of the sender's IP address in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The sender claims it, by ARP or neighbour discovery.
    Claim(IpAddr),
    /// It is the source of the sender's packet.
    Source(IpAddr),
}

impl Evidence {
    /// The address.
    #[cfg(test)]
    pub(crate) const fn address(self) -> IpAddr {
        match self {
            Self::Claim(address) | Self::Source(address) => address,
        }
    }
}

/// What a frame reveals about the location of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) key: HostKey,
    pub(crate) port: PortNo,
    pub(crate) evidence: Option<Evidence>,
    /// Destination MAC address.
    pub(crate) to: MacAddr,
    /// As in [`Host`]; `None` if a rule was seen instead of a frame.
    pub(crate) inner_vlans: Option<Vec<u16>>,
}

/// Effect of a sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The location is unchanged.
    Before,
    /// A new host.
    New,
    /// The host moved from another port.
    Moved { from: PortNo },
    /// There is no room for the host.
    Refused,
    /// Hosts arrive too fast at its port.
    Hurried {
        /// The first time since the port was quiet.
        is_first: bool,
    },
}

impl Seen {
    /// Whether the host is known now.
    const fn is_known(self) -> bool {
        !matches!(self, Self::Refused | Self::Hurried { .. })
    }
}

/// Token bucket for new hosts at a port.
#[derive(Clone, Copy, Debug)]
struct Newcomers {
    /// Tokens left at time `at`.
    left: usize,
    at: Millis,
    is_told: bool,
}

impl Newcomers {
    const fn new(limits: &Limits, now: Millis) -> Self {
        Self { left: limits.host_burst, at: now, is_told: false }
    }

    fn refill(&mut self, limits: &Limits, now: Millis) {
        let interval = limits.host_interval.0.max(1);
        let more = now.since(self.at).0 / interval;
        self.at = self.at.plus(Millis(more * interval));
        let left = self.left.saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
        self.left = left.min(limits.host_burst);
        self.is_told &= self.left < limits.host_burst;
    }
}

/// The claimant of an address, and the time of its last claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    key: HostKey,
    at: Millis,
}

/// All hosts of one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    by_key: BTreeMap<HostKey, Host>,
    /// Claimant of each address, by VLAN.
    by_address: BTreeMap<(IpAddr, Option<u16>), Claim>,
    /// Host that sends from an address that nobody claims.
    by_source: BTreeMap<(IpAddr, Option<u16>), HostKey>,
    port_counts: HashMap<PortNo, usize>,
    /// Recent arrivals by port, new and moved hosts apart, so that forged moves leave room for new
    /// hosts.
    newcomers: HashMap<(PortNo, bool), Newcomers>,
    /// Ports with a temporary maximum number of hosts, and until when.
    full: HashMap<PortNo, (usize, Millis)>,
    refused: u64,
    conflicts: u64,
}

impl Hosts {
    /// Records the location of a host. Returns the effect, and the addresses that it got or lost.
    pub(crate) fn handle_sighting(
        &mut self,
        sighting: &Sighting,
        limits: &Limits,
        now: Millis,
    ) -> (Seen, Vec<IpAddr>) {
        let Sighting { key, port, evidence, ref inner_vlans, .. } = *sighting;
        let seen = self.place(key, port, limits, now);
        if let (Some(host), Some(inner_vlans)) = (self.by_key.get_mut(&key), inner_vlans)
            && seen.is_known()
        {
            host.inner_vlans.clone_from(inner_vlans);
        }
        let renamed = match evidence.filter(|_| seen.is_known()) {
            None => Vec::new(),
            Some(Evidence::Claim(address)) => self.claim(key, address, limits, now),
            Some(Evidence::Source(address)) => self.note_source(key, address, limits),
        };
        (seen, renamed)
    }

    /// Forgets a host.
    pub(crate) fn remove(&mut self, key: HostKey) -> Option<Host> {
        let host = self.by_key.remove(&key)?;
        for address in &host.addresses {
            self.by_address.remove(&(*address, key.vlan));
        }
        for address in &host.sources {
            self.by_source.remove(&(*address, key.vlan));
        }
        uncount(&mut self.port_counts, &host.port);
        Some(host)
    }

    /// State of a host.
    pub(crate) fn find(&self, key: HostKey) -> Option<&Host> {
        self.by_key.get(&key)
    }

    /// All hosts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostKey, &Host)> {
        self.by_key.iter().map(|(key, host)| (*key, host))
    }

    /// Number of hosts.
    pub(crate) fn count(&self) -> usize {
        self.by_key.len()
    }

    /// Number of sightings refused for lack of room.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Number of claims to another host's address.
    pub(crate) const fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// Counts a conflict detected elsewhere.
    pub(crate) const fn note_conflict(&mut self) {
        self.conflicts += 1;
    }

    /// The hosts behind a port.
    pub(crate) fn behind(&self, port: PortNo) -> Vec<HostKey> {
        self.iter().filter(|(_, host)| host.port == port).map(|(key, _)| key).collect()
    }

    /// Number of hosts behind each port.
    pub(crate) fn by_port(&self) -> impl Iterator<Item = (PortNo, usize)> {
        self.port_counts.iter().map(|(port, count)| (*port, *count))
    }

    /// Limits the hosts behind a port to `max` until `until`. Returns the number in excess.
    pub(crate) fn bound(&mut self, port: PortNo, max: usize, until: Millis) -> usize {
        self.full.insert(port, (max, until));
        self.port_counts.get(&port).map_or(0, |count| count.saturating_sub(max))
    }

    /// The hosts with a MAC address, one for each VLAN.
    pub(crate) fn with_mac(&self, mac: MacAddr) -> impl Iterator<Item = (HostKey, &Host)> {
        let first = HostKey { mac, vlan: None };
        let last = HostKey { mac, vlan: Some(u16::MAX) };
        self.by_key.range(first..=last).map(|(key, host)| (*key, host))
    }

    /// Hosts that claim an IP address, one for each VLAN.
    pub(crate) fn with_address(&self, address: IpAddr) -> impl Iterator<Item = (HostKey, &Host)> {
        let claims = self.by_address.range(in_all_vlans(address));
        claims.filter_map(|(_, claim)| Some((claim.key, self.by_key.get(&claim.key)?)))
    }

    /// Hosts that send from an IP address that nobody claims in their VLAN.
    pub(crate) fn with_source(&self, address: IpAddr) -> impl Iterator<Item = (HostKey, &Host)> {
        let holders = self.by_source.range(in_all_vlans(address));
        holders.filter_map(|(_, key)| Some((*key, self.by_key.get(key)?)))
    }

    /// The host that claims an IP address in a VLAN.
    pub(crate) fn holder(&self, address: IpAddr, vlan: Option<u16>) -> Option<HostKey> {
        self.by_address.get(&(address, vlan)).map(|claim| claim.key)
    }

    /// Removes a claimed address from a host.
    pub(crate) fn release(&mut self, key: HostKey, address: IpAddr) {
        if self.holder(address, key.vlan) == Some(key) {
            self.by_address.remove(&(address, key.vlan));
            if let Some(host) = self.by_key.get_mut(&key) {
                host.addresses.retain(|claimed| *claimed != address);
            }
        }
    }

    fn place(&mut self, key: HostKey, port: PortNo, limits: &Limits, now: Millis) -> Seen {
        let known_at = self.by_key.get(&key).map(|host| host.port);
        let is_new = known_at.is_none();
        if known_at != Some(port) && !self.has_room(is_new, port, (limits, now)) {
            self.refused += 1;
            return Seen::Refused;
        }
        if known_at != Some(port)
            && let Some(is_first) = self.hurries((port, is_new), limits, now)
        {
            self.refused += 1;
            return Seen::Hurried { is_first };
        }
        let host = self.by_key.entry(key).or_insert_with(|| Host {
            port,
            addresses: Vec::new(),
            sources: Vec::new(),
            passes_on: false,
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

    fn has_room(&mut self, is_new: bool, port: PortNo, (limits, now): (&Limits, Millis)) -> bool {
        self.full.retain(|_, (_, until)| *until > now);
        let full = self.full.get(&port).map_or(usize::MAX, |(max, _)| *max);
        let behind = self.port_counts.get(&port).copied().unwrap_or(0);
        let max = limits.max_hosts_per_port.min(full);
        behind < max && (!is_new || self.count() < limits.max_hosts)
    }

    /// Takes a token for a new or moved host at a port. Without any left, returns whether this is
    /// the first time.
    fn hurries(&mut self, arrival: (PortNo, bool), limits: &Limits, now: Millis) -> Option<bool> {
        if !self.newcomers.contains_key(&arrival) {
            // Full buckets are the same as new ones.
            self.newcomers.retain(|_, newcomers| {
                newcomers.refill(limits, now);
                newcomers.left < limits.host_burst
            });
        }
        let newcomers =
            self.newcomers.entry(arrival).or_insert_with(|| Newcomers::new(limits, now));
        newcomers.refill(limits, now);
        match newcomers.left.checked_sub(1) {
            Some(left) => {
                newcomers.left = left;
                None
            }
            None => Some(!std::mem::replace(&mut newcomers.is_told, true)),
        }
    }

    /// Assigns an address to a host, unless another one has it. Returns the addresses whose holder
    /// changed.
    pub(crate) fn claim(
        &mut self,
        key: HostKey,
        address: IpAddr,
        limits: &Limits,
        now: Millis,
    ) -> Vec<IpAddr> {
        let Some(host) = self.by_key.get(&key) else { return Vec::new() };
        match self.by_address.get_mut(&(address, key.vlan)) {
            Some(claim) if claim.key == key => {
                claim.at = now;
                return Vec::new();
            }
            Some(_) => {
                self.conflicts += 1;
                return Vec::new();
            }
            None => {}
        }
        let mut renamed = vec![address];
        if host.addresses.len() >= limits.max_addresses {
            let Some(old) = self.oldest_address(key, limits, now) else {
                self.refused += 1;
                return Vec::new();
            };
            self.release(key, old);
            renamed.push(old);
        }
        if let Some(host) = self.by_key.get_mut(&key) {
            host.addresses.push(address);
        }
        self.by_address.insert((address, key.vlan), Claim { key, at: now });
        self.forget_source(address, key.vlan);
        renamed
    }

    /// The address that a host has not claimed for the longest time, if that exceeds
    /// [`Limits::address_age`].
    fn oldest_address(&self, key: HostKey, limits: &Limits, now: Millis) -> Option<IpAddr> {
        let addresses = self.by_key.get(&key)?.addresses.iter();
        let claims = addresses
            .filter_map(|address| Some((self.by_address.get(&(*address, key.vlan))?.at, *address)));
        let (at, oldest) = claims.min()?;
        (now.since(at) >= limits.address_age).then_some(oldest)
    }

    /// Assigns to a host the address that it sends from, unless there is better evidence. Returns
    /// the addresses that it got or lost.
    fn note_source(&mut self, key: HostKey, address: IpAddr, limits: &Limits) -> Vec<IpAddr> {
        let at = (address, key.vlan);
        let is_held = self.by_address.contains_key(&at) || self.by_source.contains_key(&at);
        let Some(host) = self.by_key.get_mut(&key).filter(|host| !is_held && !host.passes_on)
        else {
            return Vec::new();
        };
        if host.addresses.iter().any(|claimed| are_claimed_alike(*claimed, address)) {
            return Vec::new();
        }
        if host.sources.len() >= limits.max_sources {
            self.refused += 1;
            host.passes_on = true;
            let lost = std::mem::take(&mut host.sources);
            lost.iter().for_each(|address| _ = self.by_source.remove(&(*address, key.vlan)));
            return lost;
        }
        host.sources.push(address);
        self.by_source.insert(at, key);
        vec![address]
    }

    /// Removes an address that was known from a source only.
    fn forget_source(&mut self, address: IpAddr, vlan: Option<u16>) {
        let holder = self.by_source.remove(&(address, vlan));
        if let Some(host) = holder.and_then(|key| self.by_key.get_mut(&key)) {
            host.sources.retain(|source| *source != address);
        }
    }
}

/// The range of keys of an address in all VLANs.
const fn in_all_vlans(address: IpAddr) -> RangeInclusive<(IpAddr, Option<u16>)> {
    (address, None)..=(address, Some(u16::MAX))
}

/// Whether a host that claims one of the addresses would claim the other, too, if it had it. An
/// IPv6 link-local address, which every host has, is no evidence for others.
const fn are_claimed_alike(a: IpAddr, b: IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V4(_), IpAddr::V4(_)) => true,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.is_unicast_link_local() == b.is_unicast_link_local(),
        _ => false,
    }
}

pub(crate) fn uncount<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn key(last: u8) -> HostKey {
        HostKey { mac: MacAddr([2, 0, 0, 0, 0, last]), vlan: None }
    }

    fn limits() -> Limits {
        Limits { max_hosts: 3, max_hosts_per_port: 2, max_sources: 2, ..Limits::default() }
    }

    fn look(
        hosts: &mut Hosts,
        last: u8,
        port: u32,
        evidence: Option<Evidence>,
    ) -> (Seen, Vec<IpAddr>) {
        let (port, to) = (PortNo(port), MacAddr::BROADCAST);
        let sighting = Sighting { key: key(last), port, evidence, to, inner_vlans: None };
        hosts.handle_sighting(&sighting, &limits(), Millis(5))
    }

    fn see(hosts: &mut Hosts, last: u8, port: u32, claim: Option<[u8; 4]>) -> (Seen, bool) {
        let claim = claim.map(|address| Evidence::Claim(address.into()));
        let (seen, renamed) = look(hosts, last, port, claim);
        (seen, !renamed.is_empty())
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Host `last`, behind its own port, sends from `address`.
    fn send_from(hosts: &mut Hosts, last: u8, address: IpAddr) -> Vec<IpAddr> {
        look(hosts, last, last.into(), Some(Evidence::Source(address))).1
    }

    const NONE: [IpAddr; 0] = [];

    fn senders(hosts: &Hosts, address: IpAddr) -> Vec<HostKey> {
        hosts.with_source(address).map(|(key, _)| key).collect()
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

    #[test]
    fn a_source_counts_until_somebody_claims_it() {
        let mut hosts = Hosts::default();
        assert_eq!(send_from(&mut hosts, 1, ip(9)), [ip(9)]);
        assert_eq!(send_from(&mut hosts, 1, ip(9)), NONE, "no news");
        assert_eq!(send_from(&mut hosts, 2, ip(9)), NONE, "the first one has it");
        assert_eq!((senders(&hosts, ip(9)), hosts.conflicts()), (vec![key(1)], 0));
        assert!(see(&mut hosts, 2, 2, Some([10, 0, 0, 9])).1);
        assert_eq!(
            (senders(&hosts, ip(9)), hosts.find(key(1)).unwrap().sources.len()),
            (vec![], 0)
        );
        assert_eq!(send_from(&mut hosts, 1, ip(9)), NONE, "a claim counts for more");
        assert_eq!(hosts.with_address(ip(9)).next().unwrap().0, key(2));
        hosts.remove(key(2));
        assert_eq!(send_from(&mut hosts, 1, ip(9)), [ip(9)]);
        assert!(see(&mut hosts, 1, 1, Some([10, 0, 0, 9])).1, "it claims its own");
        let host = hosts.remove(key(1)).unwrap();
        assert_eq!((host.addresses, host.sources), (vec![ip(9)], vec![]));
        assert_eq!((hosts.by_address.len(), hosts.by_source.len()), (0, 0));
    }

    #[test]
    fn who_claims_addresses_has_no_others() {
        let mut hosts = Hosts::default();
        see(&mut hosts, 1, 1, Some([10, 0, 0, 1]));
        assert_eq!(send_from(&mut hosts, 1, ip(9)), NONE);
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(send_from(&mut hosts, 1, v6("2001:db8::1")), [v6("2001:db8::1")]);
        look(&mut hosts, 2, 2, Some(Evidence::Claim(v6("fe80::2"))));
        assert_eq!(send_from(&mut hosts, 2, v6("fe80::3")), NONE);
        assert_eq!(send_from(&mut hosts, 2, v6("2001:db8::2")), [v6("2001:db8::2")]);
        assert_eq!(send_from(&mut hosts, 2, ip(9)), [ip(9)]);
    }

    #[test]
    fn who_sends_from_many_addresses_passes_on_those_of_others() {
        let mut hosts = Hosts::default();
        send_from(&mut hosts, 1, ip(1));
        send_from(&mut hosts, 1, ip(2));
        assert_eq!(send_from(&mut hosts, 1, ip(3)), [ip(1), ip(2)], "they are lost");
        assert_eq!((hosts.refused(), hosts.by_source.len()), (1, 0));
        assert_eq!(send_from(&mut hosts, 1, ip(4)), NONE);
        assert_eq!(hosts.refused(), 1);
        assert!(see(&mut hosts, 1, 1, Some([10, 0, 0, 1])).1, "its own it may claim");
        assert_eq!(send_from(&mut hosts, 2, ip(2)), [ip(2)], "others may have them");
        hosts.remove(key(1));
        assert_eq!(send_from(&mut hosts, 1, ip(3)), [ip(3)], "it is another one, maybe");
    }

    proptest! {
        /// For any input: claims are the same as without sources; the reported renames are
        /// complete; and the number of sources is bounded.
        #[test]
        fn sources_touch_no_claim(
            steps in vec((0..4u8, 1..5u8, 1..4u32, 0..6u8), 1..60),
        ) {
            let (mut hosts, mut strict) = (Hosts::default(), Hosts::default());
            let all = |hosts: &Hosts| -> BTreeMap<IpAddr, Vec<HostKey>> {
                let held = |ip| hosts.with_address(ip).chain(hosts.with_source(ip));
                (0..6).map(ip).map(|ip| (ip, held(ip).map(|(key, _)| key).collect())).collect()
            };
            for (step, last, port, address) in steps {
                let before = all(&hosts);
                let evidence = match step {
                    0 => {
                        let gone = [&mut hosts, &mut strict].map(|hosts| hosts.remove(key(last)));
                        prop_assert_eq!(gone[0].is_some(), gone[1].is_some());
                        continue;
                    }
                    1 => Evidence::Claim(ip(address)),
                    _ => Evidence::Source(ip(address)),
                };
                let claim = Some(evidence).filter(|_| step == 1);
                let (seen, renamed) = look(&mut hosts, last, port, Some(evidence));
                prop_assert_eq!(seen, look(&mut strict, last, port, claim).0);
                let after = all(&hosts);
                for (ip, holders) in &after {
                    prop_assert!(holders.len() < 2, "{:?}", after);
                    prop_assert!(before[ip] == *holders || renamed.contains(ip));
                }
                prop_assert_eq!(&hosts.by_address, &strict.by_address);
                prop_assert_eq!(hosts.conflicts(), strict.conflicts());
                let listed: usize = hosts.iter().map(|(_, host)| host.sources.len()).sum();
                prop_assert_eq!(listed, hosts.by_source.len());
                for (_, host) in hosts.iter() {
                    let most = if host.passes_on { 0 } else { 2 };
                    prop_assert!(host.sources.len() <= most);
                }
            }
        }
    }
}
