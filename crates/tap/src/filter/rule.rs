//! Rules of a filter.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use tapswitch_wire::MacAddr;

use super::FilterError;
use crate::bpf::headers::{Addresses, Headers, Link};

/// Conditions on a frame, all of which must hold. Setting a condition again replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) ether_type: Option<u16>,
    pub(super) mac: Option<(End, MacAddr)>,
    pub(super) network: Option<(End, IpAddr, u8)>,
    pub(super) protocol: Option<u8>,
    pub(super) ports: Option<(End, RangeInclusive<u16>)>,
}

/// The end of a flow that a condition refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Either one; other conditions of the rule may match the other end.
    Either,
}

impl Rule {
    /// Any frame with a complete link-layer header.
    pub const ANY: Self =
        Self { ether_type: None, mac: None, network: None, protocol: None, ports: None };

    /// Matches the EtherType after any tags. On a tun device 0x0800 or 0x86dd.
    #[must_use]
    pub fn ether_type(self, ether_type: u16) -> Self {
        Self { ether_type: Some(ether_type), ..self }
    }

    /// Matches a MAC address. Not for tun devices.
    #[must_use]
    pub fn mac(self, end: End, mac: MacAddr) -> Self {
        Self { mac: Some((end, mac)), ..self }
    }

    /// Matches an IP address whose first `prefix_len` bits are those of `address`.
    #[must_use]
    pub fn network(self, end: End, address: IpAddr, prefix_len: u8) -> Self {
        Self { network: Some((end, address, prefix_len)), ..self }
    }

    /// Matches the IP protocol; for IPv6, the one after the extension headers.
    #[must_use]
    pub fn protocol(self, protocol: u8) -> Self {
        Self { protocol: Some(protocol), ..self }
    }

    /// Matches TCP, UDP or SCTP ports. Fragments have no ports.
    #[must_use]
    pub fn ports(self, end: End, ports: RangeInclusive<u16>) -> Self {
        Self { ports: Some((end, ports)), ..self }
    }

    pub(super) fn matches(&self, headers: &Headers<'_>) -> bool {
        self.ether_type.is_none_or(|ether_type| headers.ether_type == ether_type)
            && self.mac.is_none_or(|(end, mac)| is_mac(headers, end, mac))
            && self.network.is_none_or(|(end, address, len)| is_in(headers, end, address, len))
            && self
                .protocol
                .is_none_or(|protocol| headers.addresses.is_some() && headers.protocol == protocol)
            && self.ports.as_ref().is_none_or(|(end, ports)| has_port(headers, *end, ports))
    }

    pub(super) fn check(&self, link: Link) -> Result<(), FilterError> {
        match self.network {
            _ if link == Link::Ip && self.mac.is_some() => Err(FilterError::NoMac),
            Some((_, address, prefix_len)) if u32::from(prefix_len) > address_bits(address) => {
                Err(FilterError::Prefix { address, prefix_len })
            }
            _ => Ok(()),
        }
    }
}

impl End {
    /// True if `wanted` holds at the selected end.
    fn holds<T>(self, src: T, dst: T, wanted: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Source => wanted(src),
            Self::Destination => wanted(dst),
            Self::Either => wanted(src) || wanted(dst),
        }
    }
}

fn is_mac(headers: &Headers<'_>, end: End, MacAddr(wanted): MacAddr) -> bool {
    headers.macs.is_some_and(|macs| {
        let (dst, src) = macs.split_at(wanted.len());
        end.holds(src, dst, |mac| mac == wanted)
    })
}

fn is_in(headers: &Headers<'_>, end: End, network: IpAddr, prefix_len: u8) -> bool {
    match (headers.addresses, network) {
        (Some(Addresses::V4 { src, dst }), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len.min(32))).unwrap_or(0);
            let difference = |address: &[u8; 4]| u32::from_be_bytes(*address) ^ network.to_bits();
            end.holds(src, dst, |address| difference(address) & mask == 0)
        }
        (Some(Addresses::V6 { src, dst }), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len.min(128))).unwrap_or(0);
            let difference = |address: &[u8; 16]| u128::from_be_bytes(*address) ^ network.to_bits();
            end.holds(src, dst, |address| difference(address) & mask == 0)
        }
        _ => false,
    }
}

fn has_port(headers: &Headers<'_>, end: End, wanted: &RangeInclusive<u16>) -> bool {
    headers.ports.is_some_and(|[s0, s1, d0, d1]| {
        let [src, dst] = [[s0, s1], [d0, d1]].map(u16::from_be_bytes);
        end.holds(src, dst, |port| wanted.contains(&port))
    })
}

pub(super) fn address_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { u32::BITS } else { u128::BITS }
}
