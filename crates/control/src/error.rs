//! Errors of policies, whose messages name the field and the remedy.

use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_wire::MacAddr;

use crate::policy::bounds::{MAX_MONITORS, MAX_NAME_LEN, MAX_TEXT_LEN, MAX_VLAN_ID, MIN_SNAPLEN};
use crate::region::MAX_SIZE;
use crate::text::switch_name;
use crate::{EthType, Expiry, FilterError, IpPrefix, IpProto, MonitorSpec, PortRange, VidRange};

/// Why a policy is refused or not found. Its author has to change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The name is empty.
    #[error("name: empty; give the policy a name")]
    NameEmpty,
    /// The name is too long.
    #[error("name: {len} characters; at most {MAX_NAME_LEN} are allowed")]
    NameTooLong {
        /// Its length in characters.
        len: usize,
    },
    /// The name would garble a terminal, or look like another one.
    #[error("name {name:?}: it contains a control character, or an invisible one; remove it")]
    NameUnseen {
        /// The name.
        name: String,
    },
    /// The name is invisible.
    #[error("name {name:?}: it begins or ends with white space; remove it")]
    NameBlank {
        /// The name.
        name: String,
    },
    /// The policy could not be addressed by REST.
    #[error("name {name}: not allowed, as it means a directory in a path; choose another name")]
    NameStep {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("name {name}: there is a policy of this name; delete it first or choose another name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// There is no monitor.
    #[error("monitor: the list is empty; name a port or host that receives the copies")]
    NoMonitor,
    /// There are too many monitors.
    #[error(
        "monitor: {count} monitors; at most {MAX_MONITORS} are allowed; split it into several \
         policies"
    )]
    TooManyMonitors {
        /// Their number.
        count: usize,
    },
    /// A monitor is named twice, but would get each copy once.
    #[error("monitor {monitor}: given twice; give it once")]
    MonitorTwice {
        /// The monitor.
        monitor: MonitorSpec,
    },
    /// No frame has this source.
    #[error("src-mac {mac}: no frame has such a source address; leave src-mac out")]
    NeverSource {
        /// The address.
        mac: MacAddr,
    },
    /// No frame comes back from this address.
    #[error("dst-mac {mac}: groups never answer; leave direction out, or set it to forward")]
    NeverAnswers {
        /// The address.
        mac: MacAddr,
    },
    /// No frame has this destination.
    #[error("dst-mac 00:00:00:00:00:00: no host has this address; leave dst-mac out")]
    NoDestination,
    /// Hosts may not use this VLAN.
    #[error(
        "vlan {id}: {range} are reserved for copies between switches, and frames of hosts in these \
         VLANs are dropped; choose another VLAN"
    )]
    ReservedVlan {
        /// The VLAN.
        id: u16,
        /// The reserved VLANs.
        range: VidRange,
    },
    /// Copies cannot travel with another address if they are made at the ingress.
    #[error("point ingress: transport rewrite copies at the egress; leave point or transport out")]
    RewriteAtIngress,
    /// Copying at the egress requires a destination host.
    #[error("{by} copies at the switch of the destination host: set dst-mac, or leave {by} out")]
    NoOneDestination {
        /// The field and its value.
        by: &'static str,
    },
    /// The destination is a group address.
    #[error(
        "dst-mac {mac} is a group: {by} copies at the switch of one host; set dst-mac to its \
         address, or leave {by} out"
    )]
    GroupAtEgress {
        /// The field and its value.
        by: &'static str,
        /// The address.
        mac: MacAddr,
    },
    /// Answers leave at another switch.
    #[error(
        "direction both: {by} copies at the switch of one host, and answers go to another; create \
         a policy for each direction direction, or leave direction or {by} out"
    )]
    BothAtEgress {
        /// The field and its value.
        by: &'static str,
    },
    /// The destination host is at no known switch.
    #[error(
        "dst-mac {mac}: copies are made at the switch of this host, which is not known; make it \
         send a frame first (`tapswitch show hosts` lists known hosts)"
    )]
    UnknownDestination {
        /// The address.
        mac: MacAddr,
    },
    /// No packet has addresses of both families.
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
    #[error("{field} {ports}: {proto} has no ports; use tcp, udp or sctp, or leave {field} out")]
    NoPorts {
        /// The field.
        field: &'static str,
        /// Its value.
        ports: PortRange,
        /// The protocol.
        proto: IpProto,
    },
    /// The VLAN id is invalid.
    #[error("vlan {id}: expected 1 to {MAX_VLAN_ID}, or `untagged` for frames without a tag")]
    VlanRange {
        /// The identifier.
        id: u16,
    },
    /// The range needs too many rules, one for each port.
    #[error(
        "{field} {ports}: OpenFlow 1.3 matches one port at a time, so this takes {rules} rules, \
         more than the {MAX_SIZE} that a policy may have; narrow it, or set ip-proto and direction \
         forward"
    )]
    RangeTooWide {
        /// The field.
        field: &'static str,
        /// Its value.
        ports: PortRange,
        /// Number of rules.
        rules: usize,
    },
    /// Frames of this type do not have this field.
    #[error("{field}: frames of type {eth_type} have none; leave {field} or eth-type out")]
    NotOfType {
        /// The field.
        field: &'static str,
        /// The type.
        eth_type: EthType,
    },
    /// Frames of this type have addresses of another family.
    #[error("{field} {prefix}: frames of type {eth_type} have no such addresses; leave one out")]
    WrongFamily {
        /// The field.
        field: &'static str,
        /// Its value.
        prefix: IpPrefix,
        /// The type.
        eth_type: EthType,
    },
    /// The ICMP protocol belongs to the other IP version.
    #[error(
        "ip-proto {proto}: does not occur in frames of type {eth_type}, which have the other \
         version of ICMP"
    )]
    WrongIcmp {
        /// The protocol.
        proto: IpProto,
        /// The type.
        eth_type: EthType,
    },
    /// The EtherType is that of a tag, after which the payload's type follows.
    #[error(
        "eth-type {eth_type}: this is the type of a VLAN tag, and eth-type is the type after all \
         tags; use vlan"
    )]
    TagType {
        /// The type.
        eth_type: EthType,
    },
    /// The number is a length, not an EtherType.
    #[error("eth-type {eth_type}: values below 0x0600 are lengths, not types; use 0x0600 or more")]
    NoType {
        /// The type.
        eth_type: EthType,
    },
    /// Shorter than the Ethernet header.
    #[error("snaplen {len}: at least {MIN_SNAPLEN} is needed, the length of the Ethernet header")]
    SnaplenRange {
        /// The length.
        len: u16,
    },
    /// A text is empty.
    #[error("{field}: empty; set a text, or leave {field} out")]
    TextEmpty {
        /// The field.
        field: &'static str,
    },
    /// A text is too long.
    #[error("{field}: {len} characters; at most {MAX_TEXT_LEN} are allowed")]
    TextTooLong {
        /// The field.
        field: &'static str,
        /// Its length in characters.
        len: usize,
    },
    /// A text would garble a terminal, or what follows it.
    #[error("{field}: it contains a control character, or an invisible one; remove it")]
    TextUnseen {
        /// The field.
        field: &'static str,
    },
    /// The filter is invalid.
    #[error("filter: {0}")]
    Filter(#[from] FilterError),
    /// The filter and the other fields exclude each other.
    #[error("filter: no frame can match both it and the other fields; leave one of them out")]
    NothingLeft,
    /// The matched frames are never answered.
    #[error(
        "direction both: frames to groups are never answered; leave direction out, or set it to \
         forward"
    )]
    NoAnswers,
    /// Too many regions.
    #[error(
        "this takes at least {needed} rules, more than the {MAX_SIZE} that a policy may have: use \
         narrower ranges and fewer exceptions, or split it into several policies"
    )]
    TooManyRegions {
        /// Number of regions needed, at least.
        needed: usize,
    },
    /// Computing the match takes too long.
    #[error(
        "this is too complex to compute what it matches: combine fewer port ranges and exceptions, \
         or split it into several policies"
    )]
    TooInvolved,
    /// The time is in the past.
    #[error("expires {at}: in the past; give a future time, or a duration as in 30m")]
    Past {
        /// The time.
        at: Expiry,
    },
    /// The monitor is unavailable.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The policy exceeds the limits of a switch.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// There are too many policies.
    #[error("the limit of {max} policies is reached; delete one first")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// There is no such policy.
    #[error("there is no policy named {name}; {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Existing policies.
        known: String,
    },
}

impl PolicyError {
    /// The field to change, by its name in TOML and JSON; the first of several. `None` if the error
    /// concerns no field.
    pub const fn field(&self) -> Option<&'static str> {
        Some(match self {
            Self::NameEmpty
            | Self::NameTooLong { .. }
            | Self::NameUnseen { .. }
            | Self::NameBlank { .. }
            | Self::NameStep { .. }
            | Self::Duplicate { .. } => "name",
            Self::NeverSource { .. } => "src-mac",
            Self::NeverAnswers { .. }
            | Self::NoDestination
            | Self::NoOneDestination { .. }
            | Self::GroupAtEgress { .. }
            | Self::UnknownDestination { .. } => "dst-mac",
            Self::MixedFamilies { .. } => "src-ip",
            Self::IcmpOverIpv6 { field, .. }
            | Self::Icmpv6OverIpv4 { field, .. }
            | Self::NoPorts { field, .. }
            | Self::RangeTooWide { field, .. }
            | Self::NotOfType { field, .. }
            | Self::WrongFamily { field, .. }
            | Self::TextEmpty { field }
            | Self::TextTooLong { field, .. }
            | Self::TextUnseen { field } => field,
            Self::VlanRange { .. } | Self::ReservedVlan { .. } => "vlan",
            Self::WrongIcmp { .. } => "ip-proto",
            Self::TagType { .. } | Self::NoType { .. } => "eth-type",
            Self::SnaplenRange { .. } => "snaplen",
            Self::Filter(_) | Self::NothingLeft => "filter",
            Self::NoAnswers | Self::BothAtEgress { .. } => "direction",
            Self::RewriteAtIngress => "point",
            Self::Past { .. } => "expires",
            Self::Monitor(_)
            | Self::NoMonitor
            | Self::TooManyMonitors { .. }
            | Self::MonitorTwice { .. } => "monitor",
            Self::TooManyRegions { .. }
            | Self::TooInvolved
            | Self::Budget(_)
            | Self::TooMany { .. }
            | Self::Unknown { .. } => return None,
        })
    }
}

/// Why a policy's monitor is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// No switch is connected.
    #[error("monitor {monitor}: no switch is connected; point one at this controller")]
    NoSwitch {
        /// The monitor.
        monitor: MonitorSpec,
    },
    /// The monitor's switch is disconnected.
    #[error(
        "monitor {monitor}: switch {} is not connected; find out why it does not connect (its log \
         tells), or name a monitor at another switch; the rules that it has stay in force there",
        switch_name(*switch)
    )]
    Offline {
        /// The monitor.
        monitor: MonitorSpec,
        /// Its switch.
        switch: DatapathId,
    },
    /// The monitor's switch disconnected. It gets copies as before, and nobody knows what becomes
    /// of them.
    #[error(
        "monitor {monitor}: switch {} is not connected, so it is unknown whether copies arrive; \
         find out why it does not connect (its log tells), or name a monitor at another switch",
        switch_name(*switch)
    )]
    Unwatched {
        /// The monitor.
        monitor: MonitorSpec,
        /// Its switch.
        switch: DatapathId,
    },
    /// The switch is unknown.
    #[error("monitor {monitor}: no such switch is connected; connected: {known}")]
    UnknownSwitch {
        /// The monitor.
        monitor: MonitorSpec,
        /// Known switches.
        known: String,
    },
    /// The port is unknown.
    #[error("monitor {monitor}: there is no such port; {known}")]
    UnknownPort {
        /// The monitor.
        monitor: MonitorSpec,
        /// Known ports and hosts.
        known: String,
    },
    /// The host has not been seen.
    #[error(
        "monitor {monitor} is not known yet: {why}; name its port instead, or make it send a frame \
         first; {known}"
    )]
    UnknownHost {
        /// The monitor.
        monitor: MonitorSpec,
        /// How it would have been found.
        why: &'static str,
        /// Known ports and hosts.
        known: String,
    },
    /// The monitor is ambiguous.
    #[error("monitor {monitor}: ambiguous; name one of {places}")]
    Ambiguous {
        /// The monitor.
        monitor: MonitorSpec,
        /// The candidates in the text form of monitors.
        places: String,
    },
    /// The port has a link to another switch.
    #[error(
        "monitor {monitor}: port {}/{port} leads to another switch; name a port of that switch, to \
         which copies are forwarded",
        switch_name(*switch)
    )]
    Link {
        /// The monitor.
        monitor: MonitorSpec,
        /// Its switch.
        switch: DatapathId,
        /// Its port.
        port: PortNo,
    },
    /// The port is down.
    #[error(
        "monitor {monitor}: port {}/{port} is down; bring its link up, start the virtual machine \
         behind it, or, if it is a file, free disk space",
        switch_name(*switch)
    )]
    Down {
        /// The monitor.
        monitor: MonitorSpec,
        /// Its switch.
        switch: DatapathId,
        /// Its port.
        port: PortNo,
    },
    /// LOCAL cannot be a monitor: switches disagree on whether flooding includes it, so that frames
    /// could be copied twice or not at all.
    #[error(
        "monitor {monitor}: LOCAL, the switch's own port, cannot be a monitor; use another port"
    )]
    Local {
        /// The monitor.
        monitor: MonitorSpec,
    },
}

/// Why a policy needs too many rules on a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// There is no room for the policy, even without overlaps.
    #[error(
        "switch {} has {used} of {max} combinations in use, and this policy takes {needed} more; \
         delete some policies, or give this one fewer ports and addresses",
        switch_name(*switch)
    )]
    Full {
        /// The switch.
        switch: DatapathId,
        /// Regions in use, including intersections.
        used: usize,
        /// Regions that the policy needs by itself.
        needed: usize,
        /// The limit.
        max: usize,
    },
    /// It has too many intersections with other policies.
    #[error(
        "together with the policies that it overlaps, it would need more than {max} combinations \
         on one switch; give the policies more fields, one direction, or the same monitor, or \
         delete some"
    )]
    Regions {
        /// The limit.
        max: usize,
    },
    /// Too many policies match the same frames.
    #[error(
        "more policies would match the same frames at switch {} than there are priorities; delete \
         some that overlap",
        switch_name(*switch)
    )]
    Policies {
        /// The switch.
        switch: DatapathId,
    },
    /// Too many rules: regions times hosts.
    #[error(
        "together with the policies that it overlaps, it would need {needed} more rules on the \
         switch, and {left} are left; give the policies a dst-mac or a vlan, one direction, or the \
         same monitor, or delete some"
    )]
    Rules {
        /// Remaining rules.
        left: usize,
        /// Rules needed.
        needed: usize,
    },
    /// It fitted until hosts were added.
    #[error(
        "with the hosts that were learned since, the policies need more than {max} rules on one \
         switch; give the policies a dst-mac or a vlan, or delete some"
    )]
    Outgrown {
        /// The limit.
        max: usize,
    },
}
