//! OpenFlow match fields as bits of the flow key.
//!
//! [`MatchKey`] is a match in a form that can be compared: the wanted value and the mask of the
//! bits that matter. Fields that the switch does not parse (MPLS, PBB, IPv6 extension header
//! presence, physical ports) have no bits and are refused.

use tapswitch_openflow::{Match, Oxm, VID_PRESENT};
use tapswitch_wire::{EtherType, FRAGMENT_WITHOUT_TRANSPORT, FlowKey, MacAddr, Tag, ip_proto};

/// A match as value and mask; bits outside the mask are zero in the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MatchKey {
    /// Wanted bits.
    pub value: FlowKey,
    /// Which bits matter.
    pub mask: FlowKey,
}

impl MatchKey {
    /// Translates a match.
    ///
    /// # Errors
    /// [`UnsupportedField`] for a field that has no bits in the key.
    pub fn new(matching: &Match) -> Result<Self, UnsupportedField> {
        let mut key = Self::default();
        for field in matching.iter() {
            key.add(field)?;
        }
        Ok(key)
    }

    /// True if `key` has all wanted bits.
    #[inline]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.value.equals_under(key, &self.mask)
    }

    /// True if `other` matches every frame that this matches.
    pub fn is_within(&self, other: &Self) -> bool {
        let (own, wider) = (self.mask.words(), other.mask.words());
        own.iter().zip(wider).all(|(own, wider)| own & wider == *wider)
            && other.matches(&self.value)
    }

    /// True if some frame could match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.value.equals_under(&other.value, &self.mask.masked(&other.mask))
    }

    /// Adds one field: its wanted bits, and the bits that matter.
    pub(crate) fn add(&mut self, field: &Oxm) -> Result<(), UnsupportedField> {
        let Self { value: v, mask: m } = self;
        match field {
            Oxm::InPort(port) => exact(&mut v.in_port, &mut m.in_port, port.0.to_be_bytes()),
            Oxm::Metadata(f) => {
                let bits = f.mask.map(u64::to_be_bytes);
                masked(&mut v.metadata, &mut m.metadata, f.value.to_be_bytes(), bits);
            }
            Oxm::TunnelId(f) => {
                let bits = f.mask.map(u64::to_be_bytes);
                masked(&mut v.tunnel_id, &mut m.tunnel_id, f.value.to_be_bytes(), bits);
            }
            Oxm::EthDst(f) => mac(&mut v.eth_dst, &mut m.eth_dst, f.value, f.mask),
            Oxm::EthSrc(f) => mac(&mut v.eth_src, &mut m.eth_src, f.value, f.mask),
            Oxm::EthType(t) => exact(&mut v.eth_type, &mut m.eth_type, t.0.to_be_bytes()),
            Oxm::VlanVid(f) => self.add_vlan_vid(f.value, f.mask.unwrap_or(!0)),
            Oxm::VlanPcp(pcp) => {
                v.tags[0].tci[0] |= pcp << 5;
                m.tags[0].tci[0] |= 0xe0;
            }
            Oxm::IpDscp(dscp) => bits(&mut v.ip_tos, &mut m.ip_tos, dscp << 2, 0xfc),
            Oxm::IpEcn(ecn) => bits(&mut v.ip_tos, &mut m.ip_tos, *ecn, 0x03),
            Oxm::IpProto(protocol) => bits(&mut v.ip_proto, &mut m.ip_proto, *protocol, 0xff),
            _ => return self.add_network(field),
        }
        Ok(())
    }

    fn add_network(&mut self, field: &Oxm) -> Result<(), UnsupportedField> {
        let Self { value: v, mask: m } = self;
        match field {
            Oxm::Ipv4Src(f) | Oxm::ArpSpa(f) => {
                let bits = f.mask.map(|mask| mask.octets());
                masked(&mut v.ip_src, &mut m.ip_src, f.value.octets(), bits);
            }
            Oxm::Ipv4Dst(f) | Oxm::ArpTpa(f) => {
                let bits = f.mask.map(|mask| mask.octets());
                masked(&mut v.ip_dst, &mut m.ip_dst, f.value.octets(), bits);
            }
            Oxm::Ipv6Src(f) => {
                let bits = f.mask.map(|mask| mask.octets());
                masked(&mut v.ip_src, &mut m.ip_src, f.value.octets(), bits);
            }
            Oxm::Ipv6Dst(f) => {
                let bits = f.mask.map(|mask| mask.octets());
                masked(&mut v.ip_dst, &mut m.ip_dst, f.value.octets(), bits);
            }
            Oxm::Ipv6Flabel(f) => {
                let bits = f.mask.unwrap_or(0x000f_ffff).to_be_bytes();
                masked(&mut v.flow_label, &mut m.flow_label, f.value.to_be_bytes(), Some(bits));
            }
            Oxm::ArpOp(op) => exact(&mut v.arp_op, &mut m.arp_op, op.to_be_bytes()),
            Oxm::ArpSha(f) => mac(&mut v.arp_sha, &mut m.arp_sha, f.value, f.mask),
            Oxm::ArpTha(f) => mac(&mut v.arp_tha, &mut m.arp_tha, f.value, f.mask),
            Oxm::Ipv6NdTarget(ip) => exact(&mut v.nd_target, &mut m.nd_target, ip.octets()),
            Oxm::Ipv6NdSll(address) => mac(&mut v.arp_sha, &mut m.arp_sha, *address, None),
            Oxm::Ipv6NdTll(address) => mac(&mut v.arp_tha, &mut m.arp_tha, *address, None),
            _ => return self.add_transport(field),
        }
        Ok(())
    }

    fn add_transport(&mut self, field: &Oxm) -> Result<(), UnsupportedField> {
        let Self { value: v, mask: m } = self;
        match field {
            Oxm::TcpSrc(port) | Oxm::UdpSrc(port) | Oxm::SctpSrc(port) => {
                exact(&mut v.l4_src, &mut m.l4_src, port.to_be_bytes());
            }
            Oxm::TcpDst(port) | Oxm::UdpDst(port) | Oxm::SctpDst(port) => {
                exact(&mut v.l4_dst, &mut m.l4_dst, port.to_be_bytes());
            }
            Oxm::Icmpv4Type(kind) | Oxm::Icmpv6Type(kind) => {
                exact(&mut v.l4_src, &mut m.l4_src, [0, *kind]);
            }
            Oxm::Icmpv4Code(code) | Oxm::Icmpv6Code(code) => {
                exact(&mut v.l4_dst, &mut m.l4_dst, [0, *code]);
            }
            _ => return Err(UnsupportedField),
        }
        Ok(())
    }

    fn add_vlan_vid(&mut self, value: u16, mask: u16) {
        if mask & VID_PRESENT != 0 {
            self.value.tags_present |= u8::from(value & VID_PRESENT != 0);
            self.mask.tags_present |= 1;
        }
        let vid_mask = mask & Tag::VID_MASK;
        // "No tag" has no identifier that could matter; without tags its bits are zero.
        let is_without = mask & VID_PRESENT != 0 && value & VID_PRESENT == 0;
        if !is_without && vid_mask != 0 {
            let [v0, v1] = (value & vid_mask).to_be_bytes();
            let [m0, m1] = vid_mask.to_be_bytes();
            let tci = &mut self.value.tags[0].tci;
            *tci = [tci[0] | v0, tci[1] | v1];
            let tci = &mut self.mask.tags[0].tci;
            *tci = [tci[0] | m0, tci[1] | m1];
        }
    }
}

/// Whether a frame with this key has a field (OpenFlow 1.3.5 §7.2.3.8), and the bits of the key
/// that determine it.
pub(crate) fn presence(field: &Oxm, key: &FlowKey) -> (bool, FlowKey) {
    let is = |kind: EtherType| key.eth_type == kind.0.to_be_bytes();
    let (v4, v6) = (is(EtherType::IPV4), is(EtherType::IPV6));
    let is_elsewhere = key.fragment & FRAGMENT_WITHOUT_TRANSPORT != 0;
    let carries = |protocol| (v4 || v6) && key.ip_proto == protocol && !is_elsewhere;
    let is_there = match field {
        Oxm::VlanVid(_) | Oxm::VlanPcp(_) => {
            let looked_at = FlowKey { tags_present: 1, ..FlowKey::default() };
            return (key.tags_present & 1 != 0, looked_at);
        }
        Oxm::IpDscp(_) | Oxm::IpEcn(_) => v4 || v6,
        Oxm::Ipv4Src(_) | Oxm::Ipv4Dst(_) => v4,
        Oxm::Ipv6Src(_) | Oxm::Ipv6Dst(_) | Oxm::Ipv6Flabel(_) => v6,
        Oxm::ArpOp(_) | Oxm::ArpSpa(_) | Oxm::ArpTpa(_) | Oxm::ArpSha(_) | Oxm::ArpTha(_) => {
            is(EtherType::ARP)
        }
        Oxm::TcpSrc(_) | Oxm::TcpDst(_) => carries(ip_proto::TCP),
        Oxm::UdpSrc(_) | Oxm::UdpDst(_) => carries(ip_proto::UDP),
        Oxm::Icmpv4Type(_) | Oxm::Icmpv4Code(_) => v4 && carries(ip_proto::ICMP),
        Oxm::Icmpv6Type(_) | Oxm::Icmpv6Code(_) => v6 && carries(ip_proto::ICMPV6),
        _ => return (true, FlowKey::default()),
    };
    let fragment = FRAGMENT_WITHOUT_TRANSPORT;
    let looked_at = FlowKey { eth_type: [0xff; 2], ip_proto: 0xff, fragment, ..FlowKey::default() };
    (is_there, looked_at)
}

/// The switch cannot match this field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedField;

fn bits(value: &mut u8, mask: &mut u8, wanted: u8, matters: u8) {
    *value |= wanted & matters;
    *mask |= matters;
}

fn exact<const N: usize>(value: &mut [u8], mask: &mut [u8], wanted: [u8; N]) {
    masked(value, mask, wanted, None);
}

fn masked<const N: usize>(
    value: &mut [u8],
    mask: &mut [u8],
    wanted: [u8; N],
    matters: Option<[u8; N]>,
) {
    let matters = matters.unwrap_or([0xff; N]);
    for (i, (wanted, matters)) in wanted.into_iter().zip(matters).enumerate() {
        bits(&mut value[i], &mut mask[i], wanted, matters);
    }
}

fn mac(value: &mut MacAddr, mask: &mut MacAddr, wanted: MacAddr, matters: Option<MacAddr>) {
    masked(&mut value.0, &mut mask.0, wanted.0, matters.map(|mask| mask.0));
}
