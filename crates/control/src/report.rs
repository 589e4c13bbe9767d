//! What is told to people and scripts: plain data.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};
use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_wire::MacAddr;

use crate::TapPolicy;
use crate::place::Place;
use crate::text::{as_switch_name, as_text, as_texts};

/// Packets and bytes, as a switch counts them. Ours counts a train as the packets that it makes on
/// a wire, others as one; its bytes are those of the one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Counts {
    /// Nothing.
    pub const ZERO: Self = Self { packets: 0, bytes: 0 };

    /// Counters as OpenFlow sends them: all ones where the switch does not count.
    pub(crate) const fn known(packets: u64, bytes: u64) -> Self {
        let packets = if packets == u64::MAX { 0 } else { packets };
        let bytes = if bytes == u64::MAX { 0 } else { bytes };
        Self { packets, bytes }
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// A policy, how it is doing, and its ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Which one it is: no other one has this number, also of the same name. Nobody else is told.
    #[serde(skip)]
    pub number: u64,
    /// The policy as it was given.
    pub policy: TapPolicy,
    /// How it is doing.
    pub state: PolicyState,
    /// Where its first monitor is, if that is known.
    pub monitor: Option<MonitorPort>,
    /// Where its monitors are, as far as that is known.
    #[serde(default)]
    pub monitors: Vec<MonitorPort>,
    /// What matched: frames that were, or should have been, copied.
    pub matched: Counts,
    /// What was copied, by port: one for each monitor, unless it moved. Monitors that are one port
    /// get one copy of each frame.
    pub copied: Vec<Copied>,
    /// Whether each frame that matched is accounted for, over all monitors: as delivered, flooded,
    /// in flight or dropped. Exact at rest; under traffic the counters of rules and groups are read
    /// one after the other, and differ by what passed between.
    pub adds_up: bool,
    /// Whether the counts are all there are. `false` when a switch was lost, or a rule's last
    /// counters did not come, so that something may be missing; while a switch does not tell its
    /// counters; and when frames passed while a new controller read where the counters of rules and
    /// groups stand.
    pub is_complete: bool,
    /// What is not as the policy asks, or not known: nothing that keeps it from working.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How a policy is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PolicyState {
    /// It waits for its monitor.
    Pending {
        /// What is missing, and what to do.
        reason: String,
    },
    /// Its schedule says that it makes no copies now.
    Resting {
        /// Until when.
        reason: String,
    },
    /// The switch is being told.
    Installing,
    /// The switch makes copies.
    Active,
    /// Copies are made, but not for all of its monitors, or not at all switches where its frames
    /// come in.
    Partial {
        /// What is reached, what is missing, and what to do.
        reason: String,
    },
    /// The switch makes no copies, and will not without a change.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
    /// It is deleted.
    Deleted,
}

impl PolicyState {
    /// The word for it, as in `is` of a report.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Resting { .. } => "resting",
            Self::Installing => "installing",
            Self::Active => "active",
            Self::Partial { .. } => "partial",
            Self::Failed { .. } => "failed",
            Self::Deleted => "deleted",
        }
    }
}

/// A port of a switch where copies go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MonitorPort {
    /// The switch.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// Number of the port.
    pub port: u32,
    /// Name of the port, or what it was before it went; empty when nobody has told it.
    pub name: String,
}

impl MonitorPort {
    /// A port of a switch that is not known any more.
    pub(crate) fn unnamed(place: Place) -> Self {
        let is_controller = place.port == PortNo::CONTROLLER;
        let name = if is_controller { "controller".to_owned() } else { String::new() };
        Self { switch: place.switch, port: place.port.0, name }
    }
}

impl std::fmt::Display for MonitorPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", crate::text::switch_name(self.switch), self.port)
    }
}

/// A link between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// One end.
    pub a: MonitorPort,
    /// The other end.
    pub b: MonitorPort,
    /// Nanoseconds from the controller through both switches and back to it: no less than the link
    /// takes.
    pub latency_ns: u64,
    /// Whether it is on the spanning tree, by which frames are flooded.
    pub is_tree: bool,
    /// Whether both switches are connected, so that it is looked after.
    pub is_sure: bool,
    /// For how many milliseconds it is not used any more, as it came and went again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
}

/// The way of a policy's copies from one switch to one monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// Where it ends.
    pub monitor: MonitorPort,
    /// The switches on it, that of the monitor last.
    pub hops: Vec<HopReport>,
}

/// One switch on the way of copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopReport {
    /// Which one.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// The port by which copies come in; none where they are made.
    pub in_port: Option<u32>,
    /// The port by which they leave.
    pub out_port: u32,
}

/// Copies to one monitor, and what became of them there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Where they went.
    pub monitor: MonitorPort,
    /// How many were made, or should have been.
    #[serde(flatten)]
    pub counts: Counts,
    /// What the port took. From a switch that is not ours: what it was handed.
    pub delivered: Counts,
    /// Frames that went everywhere, this port included, since their destination was not known: as
    /// the original, which is in the counters of the port.
    pub flooded: u64,
    /// Copies that wait for the port to take them.
    pub in_flight: u64,
    /// Copies that were dropped at this port, by reason.
    pub dropped: BTreeMap<String, u64>,
}

impl Copied {
    /// Frames that are accounted for.
    pub fn accounted(&self) -> u64 {
        let dropped = self.dropped.values().sum();
        let parts = [self.delivered.packets, self.flooded, self.in_flight, dropped];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchReport {
    /// Which one.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// Whether it is connected and has told what it holds, so that policies can be added there.
    pub is_connected: bool,
    /// Whether it did not tell its counters in time when it was asked, so that what it told before
    /// counts on.
    #[serde(default)]
    pub is_silent: bool,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// Hosts that are known there.
    pub hosts: usize,
    /// Times that a host or an address found no room among those known, or a host came too fast.
    pub hosts_refused: u64,
    /// Times that a host claimed an address which another one has.
    pub address_conflicts: u64,
    /// Frames of LLDP with our mark that prove no link: with a wrong signature, or back at the port
    /// where they left, which is closed then.
    #[serde(default)]
    pub lldp_forged: u64,
    /// Frames of LLDP that we sent ourselves, and that were under way for too long to prove a link.
    #[serde(default)]
    pub lldp_late: u64,
    /// Frames of LLDP of others, such as hosts.
    #[serde(default)]
    pub lldp_foreign: u64,
    /// Rules of ours that it has.
    pub rules: usize,
    /// Groups of ours that it has.
    pub groups: usize,
    /// Rules and groups of ours that it refused.
    pub refusals: u64,
    /// Rules and groups that it did not hold as it was told, or held with our mark without being
    /// told, for somebody else changed them. They were put right.
    #[serde(default)]
    pub drifted: u64,
}

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Its number, or LOCAL.
    pub port: String,
    /// Its name.
    pub name: String,
    /// Whether it carries frames.
    pub is_up: bool,
    /// What is there.
    #[serde(default)]
    pub role: PortRole,
}

/// What is at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PortRole {
    /// Hosts.
    #[default]
    Edge,
    /// Another switch.
    Link,
    /// It is not known yet, a link works in one direction only, or several switches are there:
    /// nothing passes.
    Closed,
    /// A monitor: the port is for copies, and takes nothing else.
    Monitor,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// The switch where it was seen.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// The port behind which it is, or LOCAL.
    pub port: String,
    /// Name of the port.
    pub port_name: String,
    /// Its MAC address.
    #[serde(with = "as_text")]
    pub mac: MacAddr,
    /// Identifier of its outermost VLAN tag, if it has one.
    pub vlan: Option<u16>,
    /// Identifiers of the tags inside that one, from the outside, as in the frame that the
    /// controller saw last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner_vlans: Vec<u16>,
    /// Its IP addresses.
    #[serde(with = "as_texts")]
    pub addresses: Vec<IpAddr>,
    /// Those of them that it merely sent packets from, and told by no ARP or neighbour discovery.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "as_texts")]
    pub unproven_addresses: Vec<IpAddr>,
}
