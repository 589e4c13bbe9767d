//! Trains for the unit tests, and checks of the packets that they are cut into.

use tapswitch_wire::checksum::{Sum, pseudo_header_v4};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ip_proto, parse, read_u16, write_u16};

/// Length of the Ethernet, IPv4 and TCP headers of [`tcp_train`].
pub(crate) const HEADERS_LEN: usize = 54;

/// A TCP train over IPv4 with packets of `gso_size` bytes and a partial checksum; if that is zero,
/// a single packet with a partial checksum.
pub(crate) fn tcp_train(payload_len: usize, gso_size: u16) -> (NetHeader, Vec<u8>) {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, ip_proto::TCP, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend((0..=u8::MAX).cycle().take(payload_len));
    let upper_len = u16::try_from(frame.len() - 34).unwrap();
    write_u16(&mut frame, 16, upper_len + 20);
    let ip = Sum::of(&frame[14..34]).checksum();
    write_u16(&mut frame, 24, ip);
    let partial = pseudo_header_v4(&frame[26..30], &frame[30..34], ip_proto::TCP, upper_len);
    write_u16(&mut frame, 50, partial.partial());
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: if gso_size == 0 { GsoType::NONE } else { GsoType::TCPV4 },
        hdr_len: 54,
        gso_size,
        csum_start: 34,
        csum_offset: 16,
    };
    (meta, frame)
}

/// A UDP train over IPv4 with packets of `gso_size` bytes and a partial checksum.
pub(crate) fn udp_train(payload_len: usize, gso_size: u16) -> (NetHeader, Vec<u8>) {
    let (_, mut frame) = tcp_train(payload_len, 0);
    frame.drain(42..HEADERS_LEN);
    frame[23] = ip_proto::UDP;
    let upper_len = u16::try_from(frame.len() - 34).unwrap();
    write_u16(&mut frame, 16, upper_len + 20);
    write_u16(&mut frame, 24, 0);
    let ip = Sum::of(&frame[14..34]).checksum();
    write_u16(&mut frame, 24, ip);
    write_u16(&mut frame, 38, upper_len);
    let partial = pseudo_header_v4(&frame[26..30], &frame[30..34], ip_proto::UDP, upper_len);
    write_u16(&mut frame, 40, partial.partial());
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::UDP_L4,
        hdr_len: 42,
        gso_size,
        csum_start: 34,
        csum_offset: 6,
    };
    (meta, frame)
}

/// Length of the headers in front of the inner frame in [`vxlan_train`].
pub(crate) const OUTER_LEN: usize = 50;

/// The frame of [`tcp_train`] inside VXLAN, with the metadata that Linux has for it in a header
/// without tunnel fields.
pub(crate) fn vxlan_train(payload_len: usize, gso_size: u16) -> (NetHeader, Vec<u8>) {
    let (meta, inner) = tcp_train(payload_len, gso_size);
    let mut frame = vec![2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, ip_proto::UDP, 0, 0]);
    frame.extend([10, 0, 1, 1, 10, 0, 1, 2]);
    frame.extend([0xd0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
    frame.extend(inner);
    let network_len = u16::try_from(frame.len() - 14).unwrap();
    write_u16(&mut frame, 16, network_len);
    write_u16(&mut frame, 38, network_len - 20);
    let ip = Sum::of(&frame[14..34]).checksum();
    write_u16(&mut frame, 24, ip);
    let csum_start = meta.csum_start + u16::try_from(OUTER_LEN).unwrap();
    (NetHeader { csum_start, hdr_len: 104, ..meta }, frame)
}

/// The payload of a TCP packet over IPv4, whose lengths and checksums are checked.
#[track_caller]
pub(crate) fn checked_payload(packet: &[u8]) -> &[u8] {
    let parsed = parse(packet).unwrap();
    assert_eq!(usize::from(parsed.layout.end), HEADERS_LEN);
    assert_eq!(usize::from(read_u16(packet, 16)), packet.len() - 14, "total length");
    assert_eq!(Sum::of(&packet[14..34]).checksum(), 0, "IPv4 checksum");
    let upper_len = u16::try_from(packet.len() - 34).unwrap();
    let pseudo = pseudo_header_v4(&packet[26..30], &packet[30..34], ip_proto::TCP, upper_len);
    assert_eq!(pseudo.add_bytes(&packet[34..]).checksum(), 0, "TCP checksum");
    &packet[HEADERS_LEN..]
}
