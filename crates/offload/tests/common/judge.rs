//! Checks of packets with another implementation (`etherparse`).

use etherparse::{Ipv4Slice, Ipv6Slice, NetSlice, SlicedPacket, TcpSlice, TransportSlice};
use tapswitch_wire::{GsoType, tcp};

use super::{Ip, Train, Upper};

/// Checks one packet of `train` as parsed by `etherparse`.
pub fn judge(train: &Train, frame: &[u8], index: usize, count: usize) {
    let packet = &frame[train.network_at()..];
    // Etherparse refuses lengths that do not fit the slice.
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    if train.is_partial || count > 1 {
        judge_checksums(packet);
    }
    if let (Some(NetSlice::Ipv4(ip)), Ip::V4 { identification, .. }) = (&sliced.net, &train.ip) {
        let expected = identification.wrapping_add(index as u16);
        assert_eq!(ip.header().identification(), expected);
        assert_eq!(usize::from(ip.header().total_len()), packet.len());
    }
    match (&sliced.transport, &train.upper) {
        (Some(TransportSlice::Tcp(tcp)), Upper::Tcp { flags, sequence, gso_bits, .. }) => {
            let offset = (index * usize::from(train.gso_size)) as u32;
            assert_eq!(tcp.sequence_number(), sequence.wrapping_add(offset));
            let has_cwr = index == 0 || gso_bits & GsoType::ECN == 0;
            judge_flags(tcp, *flags, has_cwr, index + 1 == count);
        }
        (Some(TransportSlice::Udp(udp)), Upper::Udp) => {
            let udp_len = packet.len() - (train.upper_at() - train.network_at());
            assert_eq!(usize::from(udp.length()), udp_len);
        }
        (found, sent) => panic!("sent {sent:?}, found {found:?}"),
    }
}

fn judge_flags(found: &TcpSlice, sent: u8, has_cwr: bool, is_last: bool) {
    assert_eq!(found.cwr(), sent & tcp::CWR != 0 && has_cwr);
    assert_eq!(found.fin(), sent & tcp::FIN != 0 && is_last);
    assert_eq!(found.psh(), sent & tcp::PSH != 0 && is_last);
    assert_eq!(found.ack(), sent & 0x10 != 0);
    assert_eq!(found.urg(), sent & 0x20 != 0);
    assert_eq!(found.ece(), sent & 0x40 != 0);
}

/// Checks the checksums of the IP packet `packet`.
pub fn judge_checksums(packet: &[u8]) {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let (found, expected) = match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(transport)) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            checksums_v4(ip, transport)
        }
        (Some(NetSlice::Ipv6(ip)), Some(transport)) => checksums_v6(ip, transport),
        other => panic!("no IP packet: {other:?}"),
    };
    // Both represent zero, and differ only in UDP.
    let zero = |checksum: u16| if checksum == 0xffff { 0 } else { checksum };
    assert_eq!(zero(found), zero(expected));
    if matches!(sliced.transport, Some(TransportSlice::Udp(_))) {
        assert_ne!(found, 0, "zero would mean that there is no checksum");
    }
}

fn checksums_v4(ip: &Ipv4Slice, transport: &TransportSlice) -> (u16, u16) {
    let (src, dst) = (ip.header().source(), ip.header().destination());
    match transport {
        TransportSlice::Tcp(tcp) => (tcp.checksum(), tcp.calc_checksum_ipv4(src, dst).unwrap()),
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let expected = header.calc_checksum_ipv4_raw(src, dst, udp.payload());
            (udp.checksum(), expected.unwrap())
        }
        other => panic!("neither TCP nor UDP: {other:?}"),
    }
}

fn checksums_v6(ip: &Ipv6Slice, transport: &TransportSlice) -> (u16, u16) {
    let (src, dst) = (ip.header().source(), ip.header().destination());
    match transport {
        TransportSlice::Tcp(tcp) => (tcp.checksum(), tcp.calc_checksum_ipv6(src, dst).unwrap()),
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let expected = header.calc_checksum_ipv6_raw(src, dst, udp.payload());
            (udp.checksum(), expected.unwrap())
        }
        other => panic!("neither TCP nor UDP: {other:?}"),
    }
}
