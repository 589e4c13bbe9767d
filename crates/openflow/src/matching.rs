//! Flow matches (OpenFlow 1.3.5 §7.2.3).

use std::fmt;

use crate::codec::{Codec, Reader, Writer, padding};
use crate::fault::{Fault, Within};
use crate::oxm::Context;
use crate::{CheckError, ErrorKind, Oxm};

/// Fields that a packet must have (`ofp_match` of type `OFPMT_OXM`, §7.2.3.1). An empty match
/// matches every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    /// The fields in wire order: prerequisites come first.
    pub fields: Vec<Oxm>,
}

impl Match {
    /// Matches every packet.
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Adds a field. Its prerequisites must have been added before.
    #[must_use]
    pub fn with(mut self, field: Oxm) -> Self {
        self.fields.push(field);
        self
    }

    /// Validates the match: known fields, each once and after its prerequisites (§7.2.3.6), with
    /// values and masks in range (§7.2.3.4, §7.2.3.5).
    pub fn check(&self) -> Result<(), CheckError> {
        self.context().map(|_| ())
    }

    /// What a valid match implies about a packet.
    pub(crate) fn context(&self) -> Result<Context, CheckError> {
        let mut context = Context::default();
        for field in self {
            context.add(field)?;
        }
        Ok(context)
    }

    /// The fields in wire order.
    pub fn iter(&self) -> std::slice::Iter<'_, Oxm> {
        self.fields.iter()
    }
}

impl Codec for Match {
    fn encode(&self, w: &mut Writer<'_>) {
        w.tlv_then_pad(TYPE_OXM, |w| w.put(&self.fields));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let start = r.clone();
        let (kind, len): (u16, u16) = (r.take()?, r.take()?);
        if kind != TYPE_OXM {
            let text = format!("type {kind} is not OFPMT_OXM");
            return Err(start.fault(ErrorKind::OFPBMC_BAD_TYPE, text)).within("match");
        }
        r.within("match", ErrorKind::OFPBMC_BAD_LEN, |r| {
            let mut body = r.sub_after(len, 4)?;
            r.skip(padding(len.into()))?;
            let fields = body.take()?;
            Ok(Self { fields })
        })
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{field}")?;
        }
        Ok(())
    }
}

impl FromIterator<Oxm> for Match {
    fn from_iter<I: IntoIterator<Item = Oxm>>(fields: I) -> Self {
        Self { fields: fields.into_iter().collect() }
    }
}

impl<'a> IntoIterator for &'a Match {
    type Item = &'a Oxm;
    type IntoIter = std::slice::Iter<'a, Oxm>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// `OFPMT_OXM`.
const TYPE_OXM: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Masked, PortNo, VID_NONE, VID_PRESENT};
    use tapswitch_wire::{EtherType, MacAddr};

    /// The error of an invalid list of fields.
    fn kind(fields: &[Oxm]) -> Option<ErrorKind> {
        let result: Match = fields.iter().cloned().collect();
        result.check().err().map(|error| error.kind)
    }

    #[test]
    fn prerequisites_come_first() {
        let ip = Oxm::EthType(EtherType::IPV4);
        let ipv6 = Oxm::EthType(EtherType::IPV6);
        let tcp = [ip.clone(), Oxm::IpProto(6), Oxm::TcpDst(80)];
        let nd = [
            ipv6.clone(),
            Oxm::IpProto(58),
            Oxm::Icmpv6Type(135),
            Oxm::Ipv6NdSll(MacAddr([2, 0, 0, 0, 0, 1])),
        ];
        assert_eq!(kind(&tcp), None);
        assert_eq!(kind(&nd), None);
        let missing = Some(ErrorKind::OFPBMC_BAD_PREREQ);
        assert_eq!(kind(&tcp[1..]), missing);
        assert_eq!(kind(&[ip.clone(), Oxm::TcpDst(80)]), missing);
        assert_eq!(kind(&[ip.clone(), Oxm::IpProto(17), Oxm::TcpDst(80)]), missing);
        assert_eq!(kind(&[Oxm::IpProto(6), ip]), missing);
        assert_eq!(kind(&[ipv6, Oxm::IpProto(1), Oxm::Icmpv4Type(8)]), missing);
        assert_eq!(kind(&[Oxm::InPhyPort(PortNo(1))]), missing);
        assert_eq!(kind(&[Oxm::MplsLabel(1)]), missing);
    }

    #[test]
    fn vlans_are_matched_with_their_presence() {
        let vid = |value| Oxm::VlanVid(Masked::exact(value));
        let masked = |value, mask| Oxm::VlanVid(Masked::with_mask(value, mask));
        assert_eq!(kind(&[vid(VID_NONE)]), None);
        assert_eq!(kind(&[vid(VID_PRESENT | 7), Oxm::VlanPcp(3)]), None);
        assert_eq!(kind(&[masked(VID_PRESENT, VID_PRESENT), Oxm::VlanPcp(3)]), None);
        assert_eq!(kind(&[masked(0, 0)]), None);
        assert_eq!(kind(&[masked(0, 0xfff)]), None, "no tag, or one of no VLAN");
        let missing = Some(ErrorKind::OFPBMC_BAD_PREREQ);
        assert_eq!(kind(&[Oxm::VlanPcp(3)]), missing);
        assert_eq!(kind(&[vid(VID_NONE), Oxm::VlanPcp(3)]), missing);
        assert_eq!(kind(&[masked(0, 0xfff), Oxm::VlanPcp(3)]), missing);
        assert_eq!(kind(&[vid(7)]), Some(ErrorKind::OFPBMC_BAD_VALUE));
        assert_eq!(kind(&[masked(7, 0x1fff)]), Some(ErrorKind::OFPBMC_BAD_VALUE));
        assert_eq!(kind(&[vid(0x2000)]), Some(ErrorKind::OFPBMC_BAD_VALUE));
        assert_eq!(kind(&[masked(7, 0xfff)]), Some(ErrorKind::OFPBMC_BAD_MASK));
    }

    #[test]
    fn values_stay_in_their_range() {
        let ip = || Oxm::EthType(EtherType::IPV4);
        let ipv6 = || Oxm::EthType(EtherType::IPV6);
        let mpls = || Oxm::EthType(EtherType(0x8847));
        for (good, bad) in [
            ([ip(), Oxm::IpDscp(63)], [ip(), Oxm::IpDscp(64)]),
            ([ip(), Oxm::IpEcn(3)], [ip(), Oxm::IpEcn(4)]),
            ([mpls(), Oxm::MplsBos(1)], [mpls(), Oxm::MplsBos(2)]),
            ([mpls(), Oxm::MplsTc(7)], [mpls(), Oxm::MplsTc(8)]),
            ([mpls(), Oxm::MplsLabel(0xf_ffff)], [mpls(), Oxm::MplsLabel(0x10_0000)]),
            (
                [ipv6(), Oxm::Ipv6Flabel(0xf_ffff.into())],
                [ipv6(), Oxm::Ipv6Flabel(0x10_0000.into())],
            ),
            ([ipv6(), Oxm::Ipv6Exthdr(0x1ff.into())], [ipv6(), Oxm::Ipv6Exthdr(0x200.into())]),
        ] {
            assert_eq!(kind(&good), None, "{good:?}");
            assert_eq!(kind(&bad), Some(ErrorKind::OFPBMC_BAD_VALUE), "{bad:?}");
        }
    }

    #[test]
    fn a_value_stays_under_its_mask_and_a_field_comes_once() {
        let metadata = |value, mask| Oxm::Metadata(Masked::with_mask(value, mask));
        assert_eq!(kind(&[metadata(1, 3)]), None);
        assert_eq!(kind(&[metadata(5, 3)]), Some(ErrorKind::OFPBMC_BAD_WILDCARDS));
        let twice = [Oxm::InPort(PortNo(1)), Oxm::InPort(PortNo(1))];
        assert_eq!(kind(&twice), Some(ErrorKind::OFPBMC_DUP_FIELD));
        let unknown = Oxm::Unknown { class: 1, field: 1, has_mask: false, payload: vec![1] };
        assert_eq!(kind(&[unknown]), Some(ErrorKind::OFPBMC_BAD_FIELD));
    }
}
