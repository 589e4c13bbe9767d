//! Target `split`: any train is refused or cut into packets that make sense.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use tapswitch_offload::{Segments, segment_frame_len_max, wire_bytes};
use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{EtherType, NetHeader, Parsed, ip_proto, parse, tcp, udp, write_u16};

/// Cuts the frame of `data`, however it is spread over headers and payload.
pub fn split(data: &[u8]) {
    let Some((meta, at, frame)) = crate::metadata_and_frame(data) else {
        return;
    };
    let (headers, payload) = frame.split_at(at);
    let spread = cut(&meta, headers, payload);
    let Some(packets) = cut(&meta, frame, &[]) else {
        assert_eq!(spread, None, "fewer headers make no train of a frame");
        return;
    };
    if let Some(spread) = spread {
        assert_eq!(spread, packets, "where headers end does not matter");
    }
    let parsed = parse(frame);
    assert!(parsed.is_ok(), "what was cut can be parsed");
    let Ok(whole) = parsed else { return };
    check_bytes(&meta, frame, &whole, &packets);
    for packet in &packets {
        assert_eq!(parse(packet).map(|packet| packet.layout), Ok(whole.layout));
    }
    if packets.len() > 1 {
        check_with_true_checksum(&meta, frame, &whole);
    }
}

/// The packets of a train, or `None` when it is refused.
fn cut(meta: &NetHeader, headers: &[u8], payload: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut segments = Segments::new(meta, headers, payload).ok()?;
    let count = segments.remaining();
    let mut room = vec![0; segments.headers_len()];
    let mut packets = Vec::new();
    while let Some(segment) = segments.next(&mut room) {
        let [first, second] = segment.payload;
        packets.push([&room[..segment.headers_len], first, second].concat());
    }
    assert_eq!(packets.len(), count as usize, "as many as promised");
    Some(packets)
}

/// No payload byte is lost, added or moved, and lengths are as foretold.
fn check_bytes(meta: &NetHeader, frame: &[u8], whole: &Parsed, packets: &[Vec<u8>]) {
    let headers_len = usize::from(whole.layout.end);
    let payloads = packets.iter().map(|packet| &packet[headers_len..]);
    assert_eq!(payloads.collect::<Vec<_>>().concat(), frame[headers_len..]);
    let lengths = packets.iter().map(Vec::len);
    let longest = segment_frame_len_max(meta, headers_len, frame.len());
    assert_eq!(lengths.clone().max(), Some(longest));
    let total = wire_bytes(meta, headers_len, frame.len());
    assert_eq!(lengths.sum::<usize>() as u64, total);
}

/// Has the frame cut once more with the partial checksum that its sender should have left, and
/// each packet's checksums judged by `etherparse`.
fn check_with_true_checksum(meta: &NetHeader, frame: &[u8], whole: &Parsed) {
    let mut frame = frame.to_vec();
    let (key, at) = (&whole.key, usize::from(whole.layout.transport.unwrap_or(0)));
    let len = frame.len() - at;
    let is_v4 = key.eth_type() == EtherType::IPV4;
    let pseudo_header = if is_v4 {
        pseudo_header_v4(&key.ip_src[..4], &key.ip_dst[..4], key.ip_proto, 0)
    } else {
        pseudo_header_v6(&key.ip_src, &key.ip_dst, key.ip_proto, 0)
    };
    let [_, _, high, low] = u32::try_from(len).unwrap_or(0).to_be_bytes();
    if key.ip_proto == ip_proto::UDP {
        frame[at + udp::field::LENGTH..][..2].copy_from_slice(&[high, low]);
        let partial = add_udp_len(pseudo_header, [high, low]);
        write_u16(&mut frame, at + udp::field::CHECKSUM, partial);
    } else {
        let partial = pseudo_header.add_u32(u32::try_from(len).unwrap_or(0));
        write_u16(&mut frame, at + tcp::field::CHECKSUM, partial.partial());
    }
    for packet in cut(meta, &frame, &[]).unwrap_or_default() {
        check_checksums(&packet[usize::from(whole.layout.network)..]);
    }
}

fn add_udp_len(pseudo_header: Sum, len: [u8; 2]) -> u16 {
    pseudo_header.add(u16::from_be_bytes(len)).partial()
}

/// Checks the checksums of the IP packet `packet`, unless `etherparse` reads its extension headers
/// in another way.
fn check_checksums(packet: &[u8]) {
    let Ok(sliced) = SlicedPacket::from_ip(packet) else {
        return;
    };
    let expected = match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(transport)) => {
            // Not by `etherparse`, which takes the reserved flag for zero.
            assert_eq!(Sum::of(ip.header().slice()).partial(), 0xffff);
            let (src, dst) = (ip.header().source(), ip.header().destination());
            match transport {
                TransportSlice::Tcp(tcp) => tcp.calc_checksum_ipv4(src, dst).ok(),
                TransportSlice::Udp(udp) => {
                    let header = udp.to_header();
                    header.calc_checksum_ipv4_raw(src, dst, udp.payload()).ok()
                }
                _ => None,
            }
        }
        (Some(NetSlice::Ipv6(ip)), Some(transport)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            match transport {
                TransportSlice::Tcp(tcp) => tcp.calc_checksum_ipv6(src, dst).ok(),
                TransportSlice::Udp(udp) => {
                    let header = udp.to_header();
                    header.calc_checksum_ipv6_raw(src, dst, udp.payload()).ok()
                }
                _ => None,
            }
        }
        _ => None,
    };
    let found = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => tcp.checksum(),
        Some(TransportSlice::Udp(udp)) => udp.checksum(),
        _ => return,
    };
    if let Some(expected) = expected {
        // Zero has two forms, which only UDP tells apart: there it is never sent.
        assert_eq!(found % 0xffff, expected % 0xffff, "{packet:02x?}");
        let is_udp = matches!(sliced.transport, Some(TransportSlice::Udp(_)));
        assert!(found != 0 || !is_udp);
    }
}
