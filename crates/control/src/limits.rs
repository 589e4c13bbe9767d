//! Limits on all state that grows with received traffic.

use crate::Millis;

/// Limits and timeouts. The defaults suit switches with some hundreds of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum switches remembered. When another one connects, a disconnected one is forgotten;
    /// connected ones are kept regardless.
    pub max_switches: usize,
    /// Maximum ports of a switch.
    pub max_ports: usize,
    /// Maximum hosts of a switch; frames to others are flooded.
    pub max_hosts: usize,
    /// Maximum hosts behind one port, so that forged addresses at one port leave room for others.
    pub max_hosts_per_port: usize,
    /// New hosts accepted at once behind one port. Frames to hosts that arrive faster are flooded
    /// for a while: each host costs rules, and forged ones cost nothing.
    pub host_burst: usize,
    /// Interval at which one more new host is accepted behind a port.
    pub host_interval: Millis,
    /// Maximum IP addresses of a host.
    pub max_addresses: usize,
    /// Age without a claim after which an address gives way to a new one, if a host has the
    /// maximum.
    pub address_age: Millis,
    /// Maximum IP addresses of a host known only from its packets. A host that sends from more
    /// forwards packets of others, and keeps none of these.
    pub max_sources: usize,
    /// Maximum policies.
    pub max_policies: usize,
    /// Maximum pairs of policy and switch. The oldest policies are applied at all switches where
    /// their frames could come in. Beyond the limit, newer policies whose senders are known hosts
    /// are applied at their switches only.
    pub max_places: usize,
    /// Maximum routes from all switches to all hosts. Beyond it, each switch has routes to the
    /// hosts that its own hosts talk to.
    pub max_ways: usize,
    /// Maximum regions on a switch: matches of policies and their intersections.
    pub max_regions: usize,
    /// Maximum rules for TAPs on a switch: regions times the hosts that each reaches.
    pub max_tap_rules: usize,
    /// Maximum messages queued for a switch that does not read; then it is disconnected. This is
    /// several times the number of rules, as a switch may get all of them at once.
    pub max_waiting: usize,
    /// Interval of reading counters while TAPs are active; `None` for only on request.
    pub stats_interval: Option<Millis>,
    /// Time for a switch to report its counters. After that the round ends without it.
    pub stats_wait: Millis,
    /// Time for a switch to report its tables.
    pub read_back_wait: Millis,
    /// Time to wait for the last counters of deleted rules.
    pub final_counts_wait: Millis,
    /// Interval of reading an unused group with queued copies.
    pub waiting_interval: Millis,
    /// Time after a rule was deleted by others until the switch is read again.
    pub repair_delay: Millis,
    /// Interval of checking each switch for unexpected changes; `None` for never. Checked in turn,
    /// and less often if there are many, or with many rules.
    pub check_interval: Option<Millis>,
    /// Link discovery; `None` for isolated switches: then links between them are not detected, and
    /// may form loops.
    pub discovery: Option<Discovery>,
    /// VLAN ids of copies between switches, which hosts may not use there.
    pub copy_vids: VidRange,
}

/// Link discovery by LLDP.
#[derive(Clone, PartialEq, Eq)]
pub struct Discovery {
    /// Key that signs the probes. Whoever has it can forge links.
    pub key: [u8; 32],
    /// Interval of probing a port with a link.
    pub link_interval: Millis,
    /// Interval of probing other ports.
    pub edge_interval: Millis,
    /// Silence after which a link is removed, unless the switch reports it down before.
    pub link_timeout: Millis,
    /// Time for which a new port is closed unless a link is found.
    pub probe_wait: Millis,
}

impl Discovery {
    /// The default times, with this key.
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

/// A range of VLAN ids that one OpenFlow match can express: a power of two, aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VidRange {
    first: u16,
    count: u16,
}

impl VidRange {
    /// `count` ids starting at `first`; `None` if no match can express that.
    pub const fn new(first: u16, count: u16) -> Option<Self> {
        let is_sound = count.is_power_of_two() && first.is_multiple_of(count);
        let (last, is_small) = (first as u32 + count as u32, count <= 2048);
        if is_sound && is_small && first > 0 && last <= 4096 {
            Some(Self { first, count })
        } else {
            None
        }
    }

    /// Value and mask of the match.
    pub(crate) const fn masked(self) -> (u16, u16) {
        (self.first, 0xfff & !(self.count - 1))
    }

    /// The first id, and the number of usable ids: 4095 is reserved (IEEE 802.1Q-2022 §9.6).
    pub(crate) fn usable(self) -> (u16, u16) {
        (self.first, self.count.min(4095 - self.first))
    }

    /// Whether the range contains the id.
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
    /// Limits with half as many regions and rules.
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
