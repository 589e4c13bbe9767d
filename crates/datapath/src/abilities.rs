//! What the datapath can match, set and execute, for OpenFlow's table features (OpenFlow 1.3.5
//! §7.3.5.5).

use tapswitch_openflow::{MeterFlags, OxmField};

/// Fields that rules can match.
pub const MATCH_FIELDS: &[OxmField] = &[
    OxmField::InPort,
    OxmField::Metadata,
    OxmField::EthDst,
    OxmField::EthSrc,
    OxmField::EthType,
    OxmField::VlanVid,
    OxmField::VlanPcp,
    OxmField::IpDscp,
    OxmField::IpEcn,
    OxmField::IpProto,
    OxmField::Ipv4Src,
    OxmField::Ipv4Dst,
    OxmField::TcpSrc,
    OxmField::TcpDst,
    OxmField::UdpSrc,
    OxmField::UdpDst,
    OxmField::SctpSrc,
    OxmField::SctpDst,
    OxmField::Icmpv4Type,
    OxmField::Icmpv4Code,
    OxmField::ArpOp,
    OxmField::ArpSpa,
    OxmField::ArpTpa,
    OxmField::ArpSha,
    OxmField::ArpTha,
    OxmField::Ipv6Src,
    OxmField::Ipv6Dst,
    OxmField::Ipv6Flabel,
    OxmField::Icmpv6Type,
    OxmField::Icmpv6Code,
    OxmField::Ipv6NdTarget,
    OxmField::Ipv6NdSll,
    OxmField::Ipv6NdTll,
    OxmField::TunnelId,
];

/// Fields that set-field can set. The others determine what a frame is, or are covered by a
/// checksum that is not updated (SCTP's CRC, options of neighbour discovery).
pub const SET_FIELDS: &[OxmField] = &[
    OxmField::EthDst,
    OxmField::EthSrc,
    OxmField::VlanVid,
    OxmField::VlanPcp,
    OxmField::IpDscp,
    OxmField::IpEcn,
    OxmField::Ipv4Src,
    OxmField::Ipv4Dst,
    OxmField::TcpSrc,
    OxmField::TcpDst,
    OxmField::UdpSrc,
    OxmField::UdpDst,
    OxmField::Icmpv4Type,
    OxmField::Icmpv4Code,
    OxmField::ArpOp,
    OxmField::ArpSpa,
    OxmField::ArpTpa,
    OxmField::ArpSha,
    OxmField::ArpTha,
    OxmField::Ipv6Src,
    OxmField::Ipv6Dst,
    OxmField::Ipv6Flabel,
    OxmField::Icmpv6Type,
    OxmField::Icmpv6Code,
    OxmField::TunnelId,
];

/// Actions: the numbers of `ofp_action_type` for output, push and pop of VLAN tags, group, set and
/// decrement of the TTL, set-field.
pub const ACTION_KINDS: &[u16] = &[0, 17, 18, 22, 23, 24, 25];

/// Instructions: the numbers of `ofp_instruction_type`, all of them.
pub const INSTRUCTION_KINDS: &[u16] = &[1, 2, 3, 4, 5, 6];

/// Bands of meters: the numbers of `ofp_meter_band_type` for drop and DSCP remark.
pub const METER_BAND_KINDS: &[u16] = &[1, 2];

/// Units and options of meters.
pub const METER_FLAGS: MeterFlags = MeterFlags::all();
