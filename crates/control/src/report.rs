//! Reports for people and scripts: plain data.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};
use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_wire::MacAddr;

use crate::TapPolicy;
use crate::place::Place;
use crate::text::{as_switch_name, as_text, as_texts};

/// Packets and bytes as counted by a switch. A tapswitch counts a train as the packets that it
/// represents on a wire, others as one packet; the bytes are those of the one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Counts {
    /// Zero.
    pub const ZERO: Self = Self { packets: 0, bytes: 0 };

    /// Counters from OpenFlow: all ones mean "not counted".
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

/// A policy with its state and ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Unique number of the policy, also among policies of the same name. Not serialised.
    #[serde(skip)]
    pub number: u64,
    /// The policy as given.
    pub policy: TapPolicy,
    /// Its state.
    pub state: PolicyState,
    /// Port of its first monitor, if known.
    pub monitor: Option<MonitorPort>,
    /// Ports of its monitors, as far as known.
    #[serde(default)]
    pub monitors: Vec<MonitorPort>,
    /// Matched frames, which were or should have been copied.
    pub matched: Counts,
    /// Copies by port: one port for each monitor, unless it moved. Monitors at one port get one
    /// copy of each frame.
    pub copied: Vec<Copied>,
    /// Whether every matched frame is accounted for, over all monitors: delivered, flooded, in
    /// flight or dropped. Exact at rest; under traffic, rules and groups are read one after the
    /// other, and the counters differ by the frames in between.
    pub adds_up: bool,
    /// Whether the counts are complete. `false` if a switch was lost or a rule's last counters did
    /// not arrive, so that counts may be missing; while a switch does not answer; and if frames
    /// passed while a new controller first read the counters of rules and groups.
    pub is_complete: bool,
    /// Deviations from the policy and unknowns that do not prevent it from working.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// State of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PolicyState {
    /// Waits for its monitor.
    Pending {
        /// What is missing, and the remedy.
        reason: String,
    },
    /// Paused by its schedule.
    Resting {
        /// Until when.
        reason: String,
    },
    /// The switches are being configured.
    Installing,
    /// Copies are made.
    Active,
    /// Copies are made, but not for all of its monitors, or not at all switches where its frames
    /// come in.
    Partial {
        /// What is reached, what is missing, and the remedy.
        reason: String,
    },
    /// No copies are made, which will not change by itself.
    Failed {
        /// Cause and remedy.
        reason: String,
    },
    /// Deleted.
    Deleted,
}

impl PolicyState {
    /// Name of the state, as in `is` of a report.
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

/// A port that receives copies. The controller as a monitor, to which all switches send copies, is
/// serialised without a switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "told::Port", into = "told::Port")]
pub struct MonitorPort {
    /// The switch; that of [`Self::of_controller`] is none.
    pub switch: DatapathId,
    /// Number of the port.
    pub port: u32,
    /// Current or former name of the port; empty if unknown.
    pub name: String,
}

impl MonitorPort {
    /// The controller, as the monitor of a policy.
    pub fn of_controller() -> Self {
        Self::unnamed(Place::CONTROLLER)
    }

    /// Whether this is the port CONTROLLER of a switch or of all switches.
    pub const fn is_controller(&self) -> bool {
        self.port == PortNo::CONTROLLER.0
    }

    /// A port without a known name.
    pub(crate) fn unnamed(place: Place) -> Self {
        let is_controller = place.port == PortNo::CONTROLLER;
        let name = if is_controller { "controller".to_owned() } else { String::new() };
        Self { switch: place.switch, port: place.port.0, name }
    }

    const fn place(&self) -> Place {
        Place { switch: self.switch, port: PortNo(self.port) }
    }
}

impl std::fmt::Display for MonitorPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place().fmt(f)
    }
}

/// A link between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// One end.
    pub a: MonitorPort,
    /// The other end.
    pub b: MonitorPort,
    /// Nanoseconds from the controller through both switches and back: an upper bound for the link.
    pub latency_ns: u64,
    /// Whether it is on the spanning tree for floods.
    pub is_tree: bool,
    /// Whether both switches are connected, so that the link is monitored.
    pub is_sure: bool,
    /// Milliseconds for which it is held after repeated failures, and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
}

/// Path of a policy's copies from one switch to one monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// The monitor.
    pub monitor: MonitorPort,
    /// Switches on the path; the last one is the monitor's.
    pub hops: Vec<HopReport>,
}

/// A switch on the path of copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopReport {
    /// The switch.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// Ingress port of the copies; `None` where they are made.
    pub in_port: Option<u32>,
    /// Egress port of the copies.
    pub out_port: u32,
}

/// Copies to one monitor, and their outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The monitor.
    pub monitor: MonitorPort,
    /// Copies that were or should have been made.
    #[serde(flatten)]
    pub counts: Counts,
    /// Copies accepted by the port; for switches other than tapswitch, handed to it.
    pub delivered: Counts,
    /// Frames flooded to this and other ports because their destination was unknown: the original,
    /// which the port's counters include.
    pub flooded: u64,
    /// Copies queued for the port.
    pub in_flight: u64,
    /// Copies dropped at this port, by reason.
    pub dropped: BTreeMap<String, u64>,
}

impl Copied {
    /// Number of frames accounted for.
    pub fn accounted(&self) -> u64 {
        let dropped = self.dropped.values().sum();
        let parts = [self.delivered.packets, self.flooded, self.in_flight, dropped];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchReport {
    /// Its datapath id.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// Whether it is connected and has been read, so that policies can be added.
    pub is_connected: bool,
    /// Whether it did not answer a request for counters in time, so that its former counters remain
    /// in use.
    #[serde(default)]
    pub is_silent: bool,
    /// Name of the controller that relays it to the leader; `None` if it is connected itself, or
    /// not at all.
    #[serde(default)]
    pub through: Option<String>,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of hosts and addresses rejected for lack of room, or because hosts arrived too fast.
    pub hosts_refused: u64,
    /// Number of claims to an address that another host has.
    pub address_conflicts: u64,
    /// LLDP frames with our TLV that prove no link: with an invalid signature, or received at the
    /// sending port, which is then closed.
    #[serde(default)]
    pub lldp_forged: u64,
    /// Our own LLDP frames that were in transit too long to prove a link.
    #[serde(default)]
    pub lldp_late: u64,
    /// LLDP frames of other systems, such as hosts.
    #[serde(default)]
    pub lldp_foreign: u64,
    /// Number of our rules on it.
    pub rules: usize,
    /// Number of our groups on it.
    pub groups: usize,
    /// Number of our rules and groups that it rejected.
    pub refusals: u64,
    /// Number of rules and groups that were missing, changed, or added with our cookie by others.
    /// They were repaired.
    #[serde(default)]
    pub drifted: u64,
}

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Port number, or LOCAL.
    pub port: String,
    /// Its name.
    pub name: String,
    /// Whether it is up.
    pub is_up: bool,
    /// Its role.
    #[serde(default)]
    pub role: PortRole,
}

/// Role of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PortRole {
    /// For hosts.
    #[default]
    Edge,
    /// Linked to another switch.
    Link,
    /// Unknown yet, a link that works in one direction only, or several switches: no traffic
    /// passes.
    Closed,
    /// For a monitor: takes copies only.
    Monitor,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its switch.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// Its port, or LOCAL.
    pub port: String,
    /// Name of the port.
    pub port_name: String,
    /// Its MAC address.
    #[serde(with = "as_text")]
    pub mac: MacAddr,
    /// VLAN id of its outermost tag, if any.
    pub vlan: Option<u16>,
    /// VLAN ids of the tags inside that one, outermost first, in its last packet-in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner_vlans: Vec<u16>,
    /// Its IP addresses.
    #[serde(with = "as_texts")]
    pub addresses: Vec<IpAddr>,
    /// Addresses seen only as the source of its packets, not in ARP or neighbour discovery.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "as_texts")]
    pub unproven_addresses: Vec<IpAddr>,
}

/// Serialised forms.
mod told {
    use serde::{Deserialize, Serialize};
    use tapswitch_openflow::DatapathId;

    use super::MonitorPort;
    use crate::place::Place;
    use crate::text::as_switch_name;

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Switch(#[serde(with = "as_switch_name")] DatapathId);

    #[derive(Serialize, Deserialize)]
    pub(super) struct Port {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        switch: Option<Switch>,
        port: u32,
        name: String,
    }

    impl From<MonitorPort> for Port {
        fn from(at: MonitorPort) -> Self {
            let switch = (at.place() != Place::CONTROLLER).then_some(Switch(at.switch));
            Self { switch, port: at.port, name: at.name }
        }
    }

    impl From<Port> for MonitorPort {
        fn from(told: Port) -> Self {
            let Port { switch, port, name } = told;
            Self { switch: switch.map_or(Place::CONTROLLER.switch, |Switch(id)| id), port, name }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `0xffffffffffffffff` would look like a switch.
    #[test]
    fn the_controller_as_a_monitor_is_told_without_a_switch() {
        let controller = MonitorPort::of_controller();
        let of_switch = MonitorPort { switch: DatapathId(1), ..controller.clone() };
        for (port, text) in [
            (controller, r#"{"port":4294967293,"name":"controller"}"#),
            (of_switch, r#"{"switch":"0x1","port":4294967293,"name":"controller"}"#),
        ] {
            assert_eq!(serde_json::to_string(&port).unwrap(), text);
            assert_eq!(serde_json::from_str::<MonitorPort>(text).unwrap(), port);
        }
        assert_eq!(MonitorPort::of_controller().to_string(), "the controller");
    }
}
