//! Changes header fields of a frame in place, checksums included.
//!
//! Checksums are updated incrementally (RFC 1624), never recomputed. A partial transport checksum
//! is the sum of the pseudo-header only, so a changed address updates it uncomplemented, and a
//! changed port does not touch it. A UDP checksum of zero means "none" and stays zero; so does one
//! of UDP-Lite, where zero is invalid. A partial one may be zero like any other. The checksum of
//! ICMP for IPv4 does not cover addresses, and no checksum covers an IPv6 destination that is not
//! the last one of a source route.
//!
//! A field that the frame does not have (a port of a later fragment, for example) is left alone:
//! rules state their prerequisites, so this concerns malformed frames only.

use tapswitch_openflow::Oxm;
use tapswitch_wire::checksum::{update, update_partial, update_udp};
use tapswitch_wire::ethernet::{self, ADDRESSES_LEN, Tag};
use tapswitch_wire::tags::{DeiRule, PcpMap};
use tapswitch_wire::{
    EtherType, arp, dccp, icmp, ip_proto, ipv4, ipv6, read_u16, read_u32, tcp, udp, write_u16,
    write_u32,
};

use crate::Frame;

/// The tag that is pushed in front of `outer`: with its identifier and priority, and not drop
/// eligible, which is no field of OpenFlow (1.3.5 §5.12.1).
pub(crate) const fn pushed_tag(tpid: EtherType, outer: Option<Tag>) -> Tag {
    match outer {
        Some(outer) => PUSH.apply(outer, Tag::new(tpid, outer.vid())),
        None => Tag::new(tpid, 0),
    }
}

const PUSH: PcpMap = PcpMap { dei: DeiRule::Clear, ..PcpMap::KEEP };

/// Sets the field that `field` names to its value (OpenFlow 1.3.5 §5.12, set-field).
pub(crate) fn set_field(frame: &mut Frame<'_>, field: &Oxm) {
    match field {
        Oxm::EthDst(mac) => frame.head_mut()[ethernet::field::DST].copy_from_slice(&mac.value.0),
        Oxm::EthSrc(mac) => frame.head_mut()[ethernet::field::SRC].copy_from_slice(&mac.value.0),
        Oxm::VlanVid(vid) => set_tci(frame, Tag::VID_MASK, vid.value & Tag::VID_MASK),
        Oxm::VlanPcp(pcp) => {
            set_tci(frame, !0 << Tag::PCP_SHIFT, u16::from(*pcp) << Tag::PCP_SHIFT);
        }
        Oxm::IpDscp(dscp) => set_tos(frame, 0xfc, dscp << 2),
        Oxm::IpEcn(ecn) => set_tos(frame, 0x03, *ecn),
        Oxm::Ipv4Src(ip) => set_ipv4(frame, ipv4::field::SRC.start, ip.value.octets()),
        Oxm::Ipv4Dst(ip) => set_ipv4(frame, ipv4::field::DST.start, ip.value.octets()),
        Oxm::Ipv6Src(ip) => set_ipv6(frame, ipv6::field::SRC.start, ip.value.octets()),
        Oxm::Ipv6Dst(ip) => set_ipv6(frame, ipv6::field::DST.start, ip.value.octets()),
        Oxm::Ipv6Flabel(label) => set_flow_label(frame, label.value),
        Oxm::TcpSrc(port) => set_port(frame, ip_proto::TCP, tcp::field::SRC_PORT, *port),
        Oxm::TcpDst(port) => set_port(frame, ip_proto::TCP, tcp::field::DST_PORT, *port),
        Oxm::UdpSrc(port) => set_port(frame, ip_proto::UDP, udp::field::SRC_PORT, *port),
        Oxm::UdpDst(port) => set_port(frame, ip_proto::UDP, udp::field::DST_PORT, *port),
        Oxm::Icmpv4Type(value) => set_icmp(frame, ip_proto::ICMP, icmp::field::TYPE, *value),
        Oxm::Icmpv4Code(value) => set_icmp(frame, ip_proto::ICMP, icmp::field::CODE, *value),
        Oxm::Icmpv6Type(value) => set_icmp(frame, ip_proto::ICMPV6, icmp::field::TYPE, *value),
        Oxm::Icmpv6Code(value) => set_icmp(frame, ip_proto::ICMPV6, icmp::field::CODE, *value),
        Oxm::ArpOp(op) => set_arp(frame, arp::field::OPERATION, &op.to_be_bytes()),
        Oxm::ArpSpa(ip) => set_arp(frame, arp::field::SENDER_IP.start, &ip.value.octets()),
        Oxm::ArpTpa(ip) => set_arp(frame, arp::field::TARGET_IP.start, &ip.value.octets()),
        Oxm::ArpSha(mac) => set_arp(frame, arp::field::SENDER_MAC.start, &mac.value.0),
        Oxm::ArpTha(mac) => set_arp(frame, arp::field::TARGET_MAC.start, &mac.value.0),
        // Pipeline registers are in the flow key; other fields are refused when the rule is added.
        _ => {}
    }
}

/// Sets the TTL or hop limit.
pub(crate) fn set_ttl(frame: &mut Frame<'_>, ttl: u8) {
    if let Some((at, _)) = ttl_field(frame) {
        write_ttl(frame, at, ttl);
    }
}

/// Decrements the TTL or hop limit; frames that are not IP have none and pass.
///
/// Returns `false`, and changes nothing, if it would reach zero.
#[must_use]
pub(crate) fn decrement_ttl(frame: &mut Frame<'_>) -> bool {
    match ttl_field(frame) {
        Some((_, 0 | 1)) => false,
        Some((at, ttl)) => {
            write_ttl(frame, at, ttl - 1);
            true
        }
        None => true,
    }
}

/// Raises the drop precedence of a packet of an assured forwarding class by `levels`, at most to
/// the highest (RFC 2597 §6); other packets stay unchanged.
pub(crate) fn raise_drop_precedence(frame: &mut Frame<'_>, levels: u8) {
    if let Some(dscp) = dscp(frame) {
        set_tos(frame, 0xfc, dropped_sooner(dscp, levels) << 2);
    }
}

/// The DSCP with a higher drop precedence. `AFxy` has the bits `xxxyy0`, with a class of 1 to 4 and
/// a precedence of 1 to 3.
pub(crate) fn dropped_sooner(dscp: u8, levels: u8) -> u8 {
    let (class, precedence, low_bit) = (dscp >> 3, dscp >> 1 & 0b11, dscp & 1);
    match (class, precedence, low_bit) {
        (1..=4, 1..=3, 0) => class << 3 | precedence.saturating_add(levels).min(3) << 1,
        _ => dscp,
    }
}

/// The DSCP of an IP packet.
pub(crate) fn dscp(frame: &Frame<'_>) -> Option<u8> {
    let tos_at_4_bits = |network: usize| read_u16(frame.head(), network) >> 4 & 0xff;
    let tos = match ipv4_header(frame) {
        Some(network) => read_u16(frame.head(), network) & 0xff,
        None => tos_at_4_bits(ipv6_header(frame)?),
    };
    u8::try_from(tos >> 2).ok()
}

fn set_tci(frame: &mut Frame<'_>, mask: u16, value: u16) {
    if let Some(tag) = frame.outer_tag() {
        write_u16(frame.head_mut(), ADDRESSES_LEN + 2, tag.tci() & !mask | value);
    }
}

/// Offset of a complete network header of the given type in the frame.
fn network_header(frame: &Frame<'_>, eth_type: EtherType, min_len: usize) -> Option<usize> {
    let at = usize::from(frame.layout().network);
    (frame.eth_type() == eth_type && usize::from(frame.layout().end) >= at + min_len).then_some(at)
}

fn ipv4_header(frame: &Frame<'_>) -> Option<usize> {
    network_header(frame, EtherType::IPV4, ipv4::MIN_HEADER_LEN)
}

fn ipv6_header(frame: &Frame<'_>) -> Option<usize> {
    network_header(frame, EtherType::IPV6, ipv6::HEADER_LEN)
}

fn set_tos(frame: &mut Frame<'_>, mask: u8, value: u8) {
    if let Some(network) = ipv4_header(frame) {
        let old = read_u16(frame.head(), network);
        let new = old & !u16::from(mask) | u16::from(value);
        replace_in_ipv4(frame, network, &new.to_be_bytes());
    } else if let Some(network) = ipv6_header(frame) {
        let shift = 20;
        let old = read_u32(frame.head(), network);
        let new = old & !(u32::from(mask) << shift) | u32::from(value) << shift;
        write_u32(frame.head_mut(), network, new);
    }
}

fn set_flow_label(frame: &mut Frame<'_>, label: u32) {
    if let Some(network) = ipv6_header(frame) {
        let old = read_u32(frame.head(), network);
        write_u32(frame.head_mut(), network, old & 0xfff0_0000 | label & 0x000f_ffff);
    }
}

fn set_ipv4(frame: &mut Frame<'_>, field: usize, address: [u8; 4]) {
    let Some(network) = ipv4_header(frame) else {
        return;
    };
    let at = network + field;
    if has_pseudo_header(frame.layout().protocol) {
        update_transport(frame, at, &address);
    }
    replace_in_ipv4(frame, at, &address);
}

fn set_ipv6(frame: &mut Frame<'_>, field: usize, address: [u8; 16]) {
    let Some(network) = ipv6_header(frame) else {
        return;
    };
    let at = network + field;
    if covers_ipv6(frame, network, field) {
        update_transport(frame, at, &address);
    }
    frame.head_mut()[at..at + address.len()].copy_from_slice(&address);
}

/// True if the transport checksum covers the address at `field` of the IPv6 header.
fn covers_ipv6(frame: &Frame<'_>, network: usize, field: usize) -> bool {
    let protocol = frame.layout().protocol;
    if !has_pseudo_header(protocol) && protocol != ip_proto::ICMPV6 {
        return false;
    }
    let headers = &frame.head()[network..usize::from(frame.layout().end)];
    field == ipv6::field::SRC.start || !ipv6::is_routed_on(headers)
}

/// True for a protocol whose checksum covers the addresses over both versions of IP.
fn has_pseudo_header(protocol: u8) -> bool {
    matches!(protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::UDP_LITE | ip_proto::DCCP)
}

/// Replaces an even number of bytes at `at` in an IPv4 header and updates its checksum.
fn replace_in_ipv4(frame: &mut Frame<'_>, at: usize, new: &[u8]) {
    let checksum_at = usize::from(frame.layout().network) + ipv4::field::CHECKSUM;
    let head = frame.head_mut();
    let checksum = update(read_u16(head, checksum_at), &head[at..at + new.len()], new);
    head[at..at + new.len()].copy_from_slice(new);
    write_u16(head, checksum_at, checksum);
}

fn ttl_field(frame: &Frame<'_>) -> Option<(usize, u8)> {
    let at = match ipv4_header(frame) {
        Some(network) => network + ipv4::field::TTL,
        None => ipv6_header(frame)? + ipv6::field::HOP_LIMIT,
    };
    Some((at, frame.head()[at]))
}

fn write_ttl(frame: &mut Frame<'_>, at: usize, ttl: u8) {
    if ipv4_header(frame).is_some() {
        let protocol = frame.head()[at + 1];
        replace_in_ipv4(frame, at, &[ttl, protocol]);
    } else {
        frame.head_mut()[at] = ttl;
    }
}

fn set_port(frame: &mut Frame<'_>, protocol: u8, field: usize, port: u16) {
    let Some(transport) = transport_header(frame, protocol) else {
        return;
    };
    replace_in_transport(frame, transport + field, &port.to_be_bytes());
}

fn set_icmp(frame: &mut Frame<'_>, protocol: u8, field: usize, value: u8) {
    let Some(transport) = transport_header(frame, protocol) else {
        return;
    };
    let mut both = [frame.head()[transport], frame.head()[transport + 1]];
    both[field] = value;
    replace_in_transport(frame, transport, &both);
}

fn transport_header(frame: &Frame<'_>, protocol: u8) -> Option<usize> {
    let layout = frame.layout();
    layout.transport.filter(|_| layout.protocol == protocol).map(usize::from)
}

/// Replaces an even number of bytes at `at` in a transport header and updates its checksum, unless
/// that is partial: then the header is summed later.
fn replace_in_transport(frame: &mut Frame<'_>, at: usize, new: &[u8]) {
    if !has_partial_checksum(frame) {
        update_transport(frame, at, new);
    }
    frame.head_mut()[at..at + new.len()].copy_from_slice(new);
}

/// Updates the transport checksum for `new` in place of the bytes at `at`.
fn update_transport(frame: &mut Frame<'_>, at: usize, new: &[u8]) {
    let Some(field) = checksum_field(frame) else {
        return;
    };
    let partial = has_partial_checksum(frame);
    let is_udp = matches!(frame.layout().protocol, ip_proto::UDP | ip_proto::UDP_LITE);
    let head = frame.head_mut();
    let old = read_u16(head, field);
    let replaced = &head[at..at + new.len()];
    let checksum = match (partial, is_udp) {
        (true, _) => update_partial(old, replaced, new),
        (false, true) => update_udp(old, replaced, new),
        (false, false) => update(old, replaced, new),
    };
    write_u16(head, field, checksum);
}

/// True if the transport checksum is partial.
fn has_partial_checksum(frame: &Frame<'_>) -> bool {
    frame.meta.needs_checksum() && frame.layout().transport == Some(frame.meta.csum_start)
}

/// Offset of the transport checksum, if the protocol has one that covers the pseudo-header, or the
/// changed header.
fn checksum_field(frame: &Frame<'_>) -> Option<usize> {
    let layout = frame.layout();
    let offset = match layout.protocol {
        ip_proto::TCP => tcp::field::CHECKSUM,
        ip_proto::UDP | ip_proto::UDP_LITE => udp::field::CHECKSUM,
        ip_proto::DCCP => dccp::field::CHECKSUM,
        ip_proto::ICMP | ip_proto::ICMPV6 => icmp::field::CHECKSUM,
        _ => return None,
    };
    let at = usize::from(layout.transport?) + offset;
    (at + 2 <= usize::from(layout.end)).then_some(at)
}

fn set_arp(frame: &mut Frame<'_>, field: usize, value: &[u8]) {
    if let Some(network) = network_header(frame, EtherType::ARP, arp::LEN) {
        let at = network + field;
        frame.head_mut()[at..at + value.len()].copy_from_slice(value);
    }
}
