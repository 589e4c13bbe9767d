//! A limit on everything that grows with what others send.

use crate::Millis;

/// The limits, and the waits. The defaults are for a switch with some hundreds of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Switches that are remembered. When another one connects, one that is not connected is
    /// forgotten; those that are connected are kept however many they are.
    pub max_switches: usize,
    /// Ports of one switch that are remembered.
    pub max_ports: usize,
    /// Hosts of one switch that are remembered; more are forwarded by flooding.
    pub max_hosts: usize,
    /// Hosts behind one port, so that forged addresses from one port leave room for the others.
    pub max_hosts_per_port: usize,
    /// New hosts behind one port that may come at once. Those that come faster are forwarded by
    /// flooding for a while: each costs rules, and forged ones cost nothing.
    pub host_burst: usize,
    /// The time after which one more new host may come behind a port.
    pub host_interval: Millis,
    /// IP addresses of one host.
    pub max_addresses: usize,
    /// For how long a host that claims one more than that keeps one that it does not claim again.
    pub address_age: Millis,
    /// IP addresses of one host that only packets tell, since it sent them from there. Who sends
    /// from more passes on packets of others, and has none of these.
    pub max_sources: usize,
    /// Policies.
    pub max_policies: usize,
    /// Places, of policies at switches. The oldest policies are applied at all switches where their
    /// frames could come in. Where that would be more places, newer ones whose senders are known
    /// hosts are applied where those are.
    pub max_places: usize,
    /// Ways, of all hosts from all switches. Where there would be more, each switch knows the ways
    /// to the hosts that its own hosts talk to.
    pub max_ways: usize,
    /// Regions of one switch: matches of policies and of their overlaps.
    pub max_regions: usize,
    /// Rules of one switch that TAPs need: regions, times the hosts that each reaches.
    pub max_tap_rules: usize,
    /// Messages that may wait for a switch that does not follow; then it is given up. A switch gets
    /// all of its rules at once, so this is several times as many.
    pub max_waiting: usize,
    /// How often counters are asked for while TAPs are active; `None` for only on request.
    pub stats_interval: Option<Millis>,
    /// How long a switch may take to tell its counters. Then those of the others count without
    /// them.
    pub stats_wait: Millis,
    /// How long a switch may take to tell what it holds.
    pub read_back_wait: Millis,
    /// How long the last counters of deleted rules are waited for.
    pub final_counts_wait: Millis,
    /// How often a group that no rule uses is asked whether its last copies still wait.
    pub waiting_interval: Millis,
    /// How long after a rule was deleted by somebody else the switch is read again.
    pub repair_delay: Millis,
    /// How often each switch is asked whether it still holds what it was told; `None` for never.
    /// One is asked after the other, and less often where they are many, or have many rules.
    pub check_interval: Option<Millis>,
    /// How links between switches are found; `None` where each switch stands alone: then a link
    /// between two of them that closes a loop is a loop.
    pub discovery: Option<Discovery>,
    /// The VLAN identifiers that copies between switches have, which hosts may not use there.
    pub copy_vids: VidRange,
}

/// How links between switches are found, by LLDP.
#[derive(Clone, PartialEq, Eq)]
pub struct Discovery {
    /// What the frames are signed with. Whoever knows it can make up links.
    pub key: [u8; 32],
    /// How often a port with a link is probed.
    pub link_interval: Millis,
    /// How often a port without one is.
    pub edge_interval: Millis,
    /// After what silence a link is gone, when the switch does not say so.
    pub link_timeout: Millis,
    /// How long a new port stays closed unless a link is found there.
    pub probe_wait: Millis,
}

impl Discovery {
    /// The usual times, with this key.
    pub const fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            link_interval: Millis(250),
            edge_interval: Millis(5000),
            link_timeout: Millis(750),
            probe_wait: Millis(300),
        }
    }
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: _, link_interval, edge_interval, link_timeout, probe_wait } = self;
        f.debug_struct("Discovery")
            .field("link_interval", link_interval)
            .field("edge_interval", edge_interval)
            .field("link_timeout", link_timeout)
            .field("probe_wait", probe_wait)
            .finish_non_exhaustive()
    }
}

/// VLAN identifiers that one OpenFlow match can say: a power of two of them, from a multiple of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VidRange {
    first: u16,
    count: u16,
}

impl VidRange {
    /// `count` identifiers from `first` on; `None` when no match can say that.
    pub const fn new(first: u16, count: u16) -> Option<Self> {
        let is_sound = count.is_power_of_two() && first.is_multiple_of(count);
        let (last, is_small) = (first as u32 + count as u32, count <= 2048);
        if is_sound && is_small && first > 0 && last <= 4096 {
            Some(Self { first, count })
        } else {
            None
        }
    }

    /// The value and the mask of a match on them.
    pub(crate) const fn masked(self) -> (u16, u16) {
        (self.first, 0xfff & !(self.count - 1))
    }

    /// The first, and how many may be used: 4095 is reserved (IEEE 802.1Q-2022 §9.6).
    pub(crate) fn usable(self) -> (u16, u16) {
        (self.first, self.count.min(4095 - self.first))
    }

    /// Whether the identifier is one of them.
    pub const fn contains(self, id: u16) -> bool {
        id & self.masked().1 == self.first
    }
}

impl Default for VidRange {
    /// 3072 to 4094.
    fn default() -> Self {
        Self { first: 3072, count: 1024 }
    }
}

impl std::fmt::Display for VidRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, (self.first + self.count - 1).min(4094))
    }
}

impl std::str::FromStr for VidRange {
    type Err = crate::ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "a range of VLAN IDs, as in 3072-4094: its size is a power of two (counting \
                        4095, which is not used), and its start a multiple of that";
        let ends = text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let range = ends.and_then(|(first, last): (u16, u16)| {
            let last = if last == 4094 { 4095 } else { last };
            Self::new(first, last.checked_sub(first)?.checked_add(1)?)
        });
        range.ok_or_else(|| crate::ParseTextError::new(text, expected))
    }
}

impl Limits {
    /// Half as many regions and rules of one switch.
    pub(crate) fn half_of_room(&self) -> Self {
        let (max_regions, max_tap_rules) = (self.max_regions / 2, self.max_tap_rules / 2);
        Self { max_regions, max_tap_rules, ..self.clone() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_switches: 1024,
            max_ports: 4096,
            max_hosts: 8192,
            max_hosts_per_port: 4096,
            host_burst: 512,
            host_interval: Millis(20),
            max_addresses: 16,
            address_age: Millis(600_000),
            max_sources: 4,
            max_policies: 1 << 17,
            max_places: 20_000,
            max_ways: 1 << 17,
            max_regions: 4096,
            max_tap_rules: 65_536,
            max_waiting: 1 << 20,
            stats_interval: Some(Millis(5000)),
            stats_wait: Millis(15_000),
            read_back_wait: Millis(30_000),
            final_counts_wait: Millis(2000),
            waiting_interval: Millis(50),
            repair_delay: Millis(1000),
            check_interval: Some(Millis(60_000)),
            discovery: None,
            copy_vids: VidRange::default(),
        }
    }
}
