//! Validation of the fields of a match (OpenFlow 1.3.5 §7.2.3.4 to §7.2.3.8).

use tapswitch_wire::{EtherType, ip_proto};

use super::field::{Info, Needs};
use super::{Masked, Oxm, OxmField, VID_NONE, VID_PRESENT};
use crate::{CheckError, ErrorKind, Match};

/// What matched fields imply about a packet: enough to decide which other fields it has (§7.2.3.6).
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// Bit *n* is set when the field with number *n* was there.
    seen: u64,
    /// The EtherType, once it is known.
    pub(crate) eth_type: Option<EtherType>,
    /// True once a VLAN tag is certain.
    pub has_vlan: bool,
    ip_proto: Option<u8>,
    icmpv6_type: Option<u8>,
}

/// The context of a match that was validated before.
impl From<&Match> for Context {
    fn from(matching: &Match) -> Self {
        let mut context = Self::default();
        matching.iter().for_each(|oxm| context.learn(oxm));
        context
    }
}

impl Context {
    /// Adds the next field of a match.
    pub(crate) fn add(&mut self, oxm: &Oxm) -> Result<(), CheckError> {
        let Some((field, value, mask)) = oxm.parts() else {
            return Err(refuse(oxm, ErrorKind::OFPBMC_BAD_FIELD, "unknown field"));
        };
        let bit = 1 << field as u64;
        if self.seen & bit != 0 {
            return Err(refuse(oxm, ErrorKind::OFPBMC_DUP_FIELD, "the field occurs twice"));
        }
        if !self.allows(field) {
            let text = format!("{:?} must be matched first", field.info().needs);
            return Err(refuse(oxm, ErrorKind::OFPBMC_BAD_PREREQ, &text));
        }
        check_bits(&field.info(), value, mask).map_err(|(kind, text)| refuse(oxm, kind, text))?;
        if let Oxm::VlanVid(vid) = oxm {
            check_vid(*vid).map_err(|(kind, text)| refuse(oxm, kind, text))?;
        }
        self.seen |= bit;
        self.learn(oxm);
        Ok(())
    }

    /// Adds what a field implies, without validation.
    pub(crate) fn learn(&mut self, oxm: &Oxm) {
        match oxm {
            Oxm::EthType(eth_type) => self.eth_type = Some(*eth_type),
            Oxm::VlanVid(vid) => self.has_vlan = vid.value & VID_PRESENT != 0,
            Oxm::IpProto(proto) => self.ip_proto = Some(*proto),
            Oxm::Icmpv6Type(icmp_type) => self.icmpv6_type = Some(*icmp_type),
            _ => {}
        }
    }

    /// Drops everything after the EtherType.
    pub(crate) fn forget_payload(&mut self, eth_type: Option<EtherType>) {
        self.eth_type = eth_type;
        self.ip_proto = None;
        self.icmpv6_type = None;
    }

    /// Whether the packet has `field`, so that an action may set it.
    pub fn has(&self, field: OxmField) -> bool {
        // A match uses this field to test for the tag itself.
        let lacks_tag = field == OxmField::VlanVid && !self.has_vlan;
        !lacks_tag && self.allows(field)
    }

    /// Whether the packet is IPv4 or IPv6.
    pub fn is_ip(&self) -> bool {
        matches!(self.eth_type, Some(EtherType::IPV4 | EtherType::IPV6))
    }

    /// Whether the prerequisites of `field` are met.
    fn allows(&self, field: OxmField) -> bool {
        let is_type = |eth_type| self.eth_type == Some(eth_type);
        let is_ip = self.is_ip();
        let carries = |proto| is_ip && self.ip_proto == Some(proto);
        let is_icmpv6 = is_type(EtherType::IPV6) && self.ip_proto == Some(ip_proto::ICMPV6);
        let is_nd = |icmp_type| is_icmpv6 && self.icmpv6_type == Some(icmp_type);
        match field.info().needs {
            Needs::Nothing => true,
            Needs::InPort => self.seen & 1 << OxmField::InPort as u64 != 0,
            Needs::Vlan => self.has_vlan,
            Needs::Ip => is_ip,
            Needs::Ipv4 => is_type(EtherType::IPV4),
            Needs::Ipv6 => is_type(EtherType::IPV6),
            Needs::Arp => is_type(EtherType::ARP),
            Needs::Mpls => is_type(MPLS) || is_type(MPLS_MULTICAST),
            Needs::Pbb => is_type(PBB),
            Needs::Tcp => carries(ip_proto::TCP),
            Needs::Udp => carries(ip_proto::UDP),
            Needs::Sctp => carries(ip_proto::SCTP),
            Needs::Icmpv4 => is_type(EtherType::IPV4) && carries(ip_proto::ICMP),
            Needs::Icmpv6 => is_icmpv6,
            Needs::NdTarget => is_nd(NEIGHBOUR_SOLICITATION) || is_nd(NEIGHBOUR_ADVERTISEMENT),
            Needs::NdSll => is_nd(NEIGHBOUR_SOLICITATION),
            Needs::NdTll => is_nd(NEIGHBOUR_ADVERTISEMENT),
        }
    }
}

/// Checks value and mask against the field's width (§6.4) and each other (§7.2.3.4).
pub(crate) fn check_bits(
    info: &Info,
    value: u128,
    mask: Option<u128>,
) -> Result<(), (ErrorKind, &'static str)> {
    let outside = !info.all_bits();
    if value & outside != 0 {
        return Err((ErrorKind::OFPBMC_BAD_VALUE, "the value is too large"));
    }
    let Some(mask) = mask else { return Ok(()) };
    if mask & outside != 0 {
        return Err((ErrorKind::OFPBMC_BAD_MASK, "the mask is too large"));
    }
    if value & !mask != 0 {
        let text = "the value has bits outside the mask";
        return Err((ErrorKind::OFPBMC_BAD_WILDCARDS, text));
    }
    Ok(())
}

/// Checks that a VLAN id is matched together with `VID_PRESENT` (§7.2.3.8, table of VLAN tags).
/// Zero bits may be matched without it, as they are zero without a tag, too. So `0/0xfff` matches
/// packets without a tag or with VLAN 0; the table does not forbid it, and Open vSwitch supports
/// it.
fn check_vid(vid: Masked<u16>) -> Result<(), (ErrorKind, &'static str)> {
    let mask = vid.mask.unwrap_or(u16::MAX);
    if vid.value != VID_NONE && mask & VID_PRESENT == 0 {
        let text = "the mask omits OFPVID_PRESENT";
        return Err((ErrorKind::OFPBMC_BAD_MASK, text));
    }
    if vid.value != VID_NONE && vid.value & VID_PRESENT == 0 {
        let text = "OFPVID_PRESENT (0x1000) is missing";
        return Err((ErrorKind::OFPBMC_BAD_VALUE, text));
    }
    Ok(())
}

#[cold]
fn refuse(oxm: &Oxm, kind: ErrorKind, text: &str) -> CheckError {
    CheckError::new(kind, format!("{oxm}: {text}"))
}

/// EtherType of MPLS unicast (RFC 5332).
pub(crate) const MPLS: EtherType = EtherType(0x8847);
/// EtherType of MPLS multicast (RFC 5332).
pub(crate) const MPLS_MULTICAST: EtherType = EtherType(0x8848);
/// EtherType of provider backbone bridging (IEEE 802.1ah).
pub(crate) const PBB: EtherType = EtherType(0x88e7);
/// ICMPv6 type (RFC 4861).
const NEIGHBOUR_SOLICITATION: u8 = 135;
/// ICMPv6 type (RFC 4861).
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
