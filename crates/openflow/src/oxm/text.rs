//! Match fields as text, in the syntax of `ovs-ofctl` where it knows the field.

use std::fmt::{self, Display as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use tapswitch_wire::MacAddr;

use super::field::{Style, Value};
use super::{Masked, Oxm, OxmField, VID_PRESENT};
use crate::PortNo;

impl fmt::Display for Oxm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::VlanVid(Masked { value, mask: None }) = self
            && value & VID_PRESENT != 0
        {
            return write!(f, "dl_vlan={}", value & !VID_PRESENT);
        }
        match self.parts() {
            Some((field, ..)) => write!(f, "{}={}", field.info().text, OxmValue(self)),
            None => OxmValue(self).fmt(f),
        }
    }
}

/// Prints the value of a field, and its mask if any.
pub(crate) struct OxmValue<'a>(pub(crate) &'a Oxm);

impl fmt::Display for OxmValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.parts() {
            Some((field, value, mask)) => {
                write_number(field, value, f)?;
                mask.map_or(Ok(()), |mask| write_mask(field, mask, f))
            }
            None => write_unknown(self.0, f),
        }
    }
}

fn write_number(field: OxmField, number: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match field.info().style {
        Style::Port => PortNo::from_number(number).fmt(f),
        Style::Decimal => number.fmt(f),
        Style::Hex => write!(f, "{number:#x}"),
        Style::EtherType => write!(f, "{number:#06x}"),
        Style::Mac => MacAddr::from_number(number).fmt(f),
        Style::Ipv4 => Ipv4Addr::from_number(number).fmt(f),
        Style::Ipv6 => Ipv6Addr::from_number(number).fmt(f),
    }
}

/// Prints `/` and the mask; a contiguous mask of an IP address as a prefix length.
fn write_mask(field: OxmField, mask: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let info = field.info();
    let is_address = matches!(info.style, Style::Ipv4 | Style::Ipv6);
    let ones = (mask << (u128::BITS - info.bits)).leading_ones();
    f.write_str("/")?;
    if is_address && mask.count_ones() == ones {
        return ones.fmt(f);
    }
    write_number(field, mask, f)
}

fn write_unknown(oxm: &Oxm, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Oxm::Unknown { class, field, has_mask, payload } = oxm else {
        return Ok(());
    };
    let slash = if *has_mask { "/" } else { "" };
    write!(f, "oxm({class:#06x}:{field}{slash})=")?;
    payload.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_wire::EtherType;

    #[test]
    fn fields_print_like_ovs_ofctl() {
        let net = Masked::with_mask(Ipv4Addr::new(10, 1, 0, 0), Ipv4Addr::new(255, 255, 0, 0));
        let odd = Masked::with_mask(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(255, 0, 0, 255));
        let v6 = Masked::with_mask("fe80::".parse().unwrap(), "ffc0::".parse().unwrap());
        let unknown =
            Oxm::Unknown { class: 0xffff, field: 3, has_mask: true, payload: vec![0xab, 0xcd] };
        for (oxm, text) in [
            (Oxm::InPort(PortNo(7)), "in_port=7"),
            (Oxm::InPort(PortNo::LOCAL), "in_port=LOCAL"),
            (Oxm::EthType(EtherType::IPV4), "dl_type=0x0800"),
            (Oxm::VlanVid(Masked::exact(VID_PRESENT | 100)), "dl_vlan=100"),
            (Oxm::VlanVid(Masked::exact(0)), "vlan_vid=0x0"),
            (Oxm::VlanVid(Masked::with_mask(0x1000, 0x1000)), "vlan_vid=0x1000/0x1000"),
            (Oxm::Ipv4Src(net), "nw_src=10.1.0.0/16"),
            (Oxm::Ipv4Dst(odd), "nw_dst=10.0.0.1/255.0.0.255"),
            (Oxm::Ipv6Src(v6), "ipv6_src=fe80::/10"),
            (Oxm::Metadata(Masked::with_mask(1, 0xff)), "metadata=0x1/0xff"),
            (Oxm::TcpDst(80), "tcp_dst=80"),
            (unknown, "oxm(0xffff:3/)=abcd"),
        ] {
            assert_eq!(oxm.to_string(), text);
        }
    }
}
