//! What is wrong with a policy, in words that name the field and the remedy.

use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_wire::MacAddr;

use crate::policy::{MAX_NAME_LEN, MAX_VLAN_ID};
use crate::text::switch_name;
use crate::{IpPrefix, IpProto, MonitorSpec};

/// Why a policy is refused, or not found. Whoever wrote it is to change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The name is empty.
    #[error("name: it is empty; give the policy a name")]
    NameEmpty,
    /// The name is too long.
    #[error("name: {len} characters; at most {MAX_NAME_LEN} are allowed")]
    NameTooLong {
        /// Its characters.
        len: usize,
    },
    /// The name would garble a terminal.
    #[error("name {name:?}: it has a control character; leave that out")]
    NameControl {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("name {name}: there is a policy of this name; delete it first or choose another name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// No frame is from there.
    #[error("src-mac {mac}: no frame has such a source address; leave src-mac out")]
    NeverSource {
        /// The address.
        mac: MacAddr,
    },
    /// No frame comes back from there.
    #[error("dst-mac {mac}: a group never answers; leave `direction = \"both\"` out")]
    NeverAnswers {
        /// The address.
        mac: MacAddr,
    },
    /// No frame goes there.
    #[error("dst-mac 00:00:00:00:00:00: no host has this address; leave dst-mac out")]
    NoDestination,
    /// No packet is of both families.
    #[error(
        "src-ip {src} and dst-ip {dst}: one is IPv4 and one IPv6, no packet has both; \
         leave one out"
    )]
    MixedFamilies {
        /// The source.
        src: IpPrefix,
        /// The destination.
        dst: IpPrefix,
    },
    /// ICMP belongs to IPv4.
    #[error("{field} {prefix}: this is IPv6, which has no icmp; use icmpv6, or leave one out")]
    IcmpOverIpv6 {
        /// The field.
        field: &'static str,
        /// Its value.
        prefix: IpPrefix,
    },
    /// ICMPv6 belongs to IPv6.
    #[error("{field} {prefix}: this is IPv4, which has no icmpv6; use icmp, or leave one out")]
    Icmpv6OverIpv4 {
        /// The field.
        field: &'static str,
        /// Its value.
        prefix: IpPrefix,
    },
    /// The protocol has no ports.
    #[error("{field} {port}: {proto} has no ports; use tcp, udp or sctp, or leave {field} out")]
    NoPorts {
        /// The field.
        field: &'static str,
        /// Its value.
        port: u16,
        /// The protocol.
        proto: IpProto,
    },
    /// No VLAN has this identifier.
    #[error("vlan {id}: ids go from 1 to {MAX_VLAN_ID}; `untagged` means frames without a tag")]
    VlanRange {
        /// The identifier.
        id: u16,
    },
    /// The monitor is not there.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The policy needs more of a switch than is granted.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// There are too many.
    #[error("there are {max} policies, as many as allowed; delete one first")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// There is no such policy.
    #[error("there is no policy named {name}; {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Which there are.
        known: String,
    },
}

/// Why a policy's monitor cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// No switch at all.
    #[error("monitor {monitor}: no switch is connected; point one at this controller")]
    NoSwitch {
        /// The monitor.
        monitor: MonitorSpec,
    },
    /// The switch with the monitor is not connected now.
    #[error(
        "monitor {monitor}: switch {} is not connected; the rules that it has stay in force there",
        switch_name(*switch)
    )]
    Offline {
        /// The monitor.
        monitor: MonitorSpec,
        /// Its switch.
        switch: DatapathId,
    },
    /// The switch is not there.
    #[error("monitor {monitor}: no such switch is connected; connected: {known}")]
    UnknownSwitch {
        /// The monitor.
        monitor: MonitorSpec,
        /// Which are.
        known: String,
    },
    /// The port is not there.
    #[error("monitor {monitor}: there is no such port; {known}")]
    UnknownPort {
        /// The monitor.
        monitor: MonitorSpec,
        /// Which ports and hosts there are.
        known: String,
    },
    /// The host has not been seen.
    #[error(
        "monitor {monitor} is not known yet: {why}; name its port instead, or let it speak first; \
         {known}"
    )]
    UnknownHost {
        /// The monitor.
        monitor: MonitorSpec,
        /// What it should have done.
        why: &'static str,
        /// Which ports and hosts there are.
        known: String,
    },
    /// There are several.
    #[error("monitor {monitor}: it could be any of {places}; name one of these")]
    Ambiguous {
        /// The monitor.
        monitor: MonitorSpec,
        /// Where it could be, as a monitor is written.
        places: String,
    },
    /// The port is down.
    #[error("monitor {monitor}: port {}/{port} is down; bring its link up", switch_name(*switch))]
    Down {
        /// The monitor.
        monitor: MonitorSpec,
        /// Its switch.
        switch: DatapathId,
        /// Its port.
        port: PortNo,
    },
    /// The switch's own port is no monitor: switches disagree whether flooding reaches it, so
    /// that copies could come twice or not at all.
    #[error("monitor {monitor}: LOCAL, the switch's own port, cannot be a monitor; use another")]
    Local {
        /// The monitor.
        monitor: MonitorSpec,
    },
}

/// Why a policy's rules would be too many for a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// Overlaps of overlaps.
    #[error(
        "together with the policies that it overlaps, it would need more than {max} combinations \
         on one switch; give the policies more fields, or fewer of them"
    )]
    Regions {
        /// The limit.
        max: usize,
    },
    /// Combinations times hosts.
    #[error(
        "together with the policies that it overlaps, it would need {needed} more rules on the \
         switch, and {left} are left; give the policies a dst-mac or a vlan, or delete some"
    )]
    Rules {
        /// Rules that may still be added.
        left: usize,
        /// Rules that it needs.
        needed: usize,
    },
    /// It fitted, until there were more hosts.
    #[error(
        "with the hosts that were learned since, the policies need more than {max} rules on one \
         switch; give the policies a dst-mac or a vlan, or delete some"
    )]
    Outgrown {
        /// The limit.
        max: usize,
    },
}
