//! Targets `split` and `split_long`: any train is refused or cut into valid packets.

mod tunnel;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use tapswitch_offload::{
    ChecksumRule, IdRule, InPlace, Segments, SplitOptions, Verdict, complete_checksum,
    segment_frame_len_max, verify, wire_bytes,
};
use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    EtherType, GsoType, LongNetHeader, NetHeader, Parsed, ip_proto, ipv6, parse, tcp, udp,
    write_u16,
};

/// Cuts the frame of `data` in all ways of distributing it over headers and payload.
pub fn split(data: &[u8]) {
    let Some((meta, at, frame)) = crate::metadata_and_frame(data) else {
        return;
    };
    let options = SplitOptions::default();
    let Some(packets) = cut_in_all_ways(&meta.into(), &options, at, frame) else {
        return;
    };
    let parsed = parse(frame);
    assert!(parsed.is_ok(), "what was cut can be parsed");
    let Ok(whole) = parsed else { return };
    if !packets.is_fragmented && packets.headers_len == usize::from(whole.layout.end) {
        check_bytes(&meta, frame, packets.headers_len, &packets.frames);
        for packet in &packets.frames {
            assert_eq!(parse(packet).map(|packet| packet.layout), Ok(whole.layout));
        }
        if packets.frames.len() > 1 {
            check_with_true_checksum(&meta, frame, &whole);
        }
    }
}

/// As [`split`], with the long metadata, which has one byte of choices more than a device's.
pub fn split_long(data: &[u8]) {
    let Some((meta, rest)) = data.split_at_checked(LongNetHeader::LEN) else {
        return;
    };
    let (Some(meta), Some((&[choices, at], frame))) =
        (LongNetHeader::decode(meta), rest.split_first_chunk())
    else {
        return;
    };
    let rule = |bit: u8| if choices & bit != 0 { IdRule::Fixed } else { IdRule::Increment };
    let options = SplitOptions {
        id: rule(1),
        outer_id: rule(2),
        fragment_seed: u32::from(choices),
        checksum: ChecksumRule::Complete,
    };
    let packets = cut_in_all_ways(&meta, &options, frame.len().min(at.into()), frame);
    if let (Some(packets), Ok(whole)) = (packets, parse(frame))
        && !packets.is_fragmented
        && packets.headers_len > usize::from(whole.layout.end)
    {
        tunnel::check_with_true_checksum(&meta, &options, frame, &whole);
    }
}

/// The packets of a train.
#[derive(Debug, PartialEq)]
struct Packets {
    frames: Vec<Vec<u8>>,
    headers_len: usize,
    /// True if they are IP fragments.
    is_fragmented: bool,
}

/// Cuts `frame` with everything behind `at` as its payload in one piece, in two pieces, and in
/// place. `None` if it is refused; with fewer bytes of headers it may be refused when with more it
/// is not.
fn cut_in_all_ways(
    meta: &LongNetHeader,
    options: &SplitOptions,
    at: usize,
    frame: &[u8],
) -> Option<Packets> {
    let (headers, payload) = frame.split_at(at);
    let (first, second) = payload.split_at(payload.len() / 2);
    let spread = cut(meta, options, headers, &[payload]);
    let scattered = cut(meta, options, headers, &[first, &[], second]);
    let packets = cut(meta, options, frame, &[]);
    for other in [spread, scattered].into_iter().flatten() {
        assert_eq!(packets.as_ref(), Some(&other), "where headers end does not matter");
    }
    assert_eq!(
        cut_in_place(meta, options, frame),
        packets.as_ref().map(|packets| packets.frames.clone())
    );
    let packets = packets?;
    check_partial(meta, options, frame, &packets.frames);
    if !packets.is_fragmented {
        let payloads = packets.frames.iter().map(|packet| &packet[packets.headers_len..]);
        assert_eq!(payloads.collect::<Vec<_>>().concat(), frame[packets.headers_len..]);
    } else {
        check_fragments(frame, &packets);
    }
    if packets.frames.len() > 1 {
        for packet in &packets.frames {
            assert_ne!(verify(packet, &[]).network, Verdict::Invalid);
        }
    }
    Some(packets)
}

/// The packets of a train, or `None` if it is refused.
fn cut(
    meta: &LongNetHeader,
    options: &SplitOptions,
    headers: &[u8],
    parts: &[&[u8]],
) -> Option<Packets> {
    let mut segments = Segments::with(meta, options, headers, parts).ok()?;
    let (count, headers_len) = (segments.remaining(), segments.headers_len());
    let mut room = vec![0; headers_len];
    let mut frames = Vec::new();
    while let Some(segment) = segments.next(&mut room) {
        let [first, second] = segment.payload;
        frames.push([&room[..segment.headers_len], first, second].concat());
    }
    assert_eq!(frames.len(), count as usize, "as many as promised");
    let is_fragmented = meta.base.gso_type.kind() == GsoType::UDP && count > 1;
    Some(Packets { frames, headers_len, is_fragmented })
}

/// The same in place, with a device's header in front of each packet.
fn cut_in_place(
    meta: &LongNetHeader,
    options: &SplitOptions,
    frame: &[u8],
) -> Option<Vec<Vec<u8>>> {
    let mut buf = [&[0; HEADROOM], frame].concat();
    let mut packets = InPlace::with(meta, options, &mut buf, HEADROOM).ok()?;
    let mut frames = Vec::new();
    while let Some(packet) = packets.next(HEADROOM - FRAGMENT_LEN) {
        let (prefix, packet) = packet.split_at_mut(HEADROOM - FRAGMENT_LEN);
        prefix.fill(0xee);
        frames.push(packet.to_vec());
    }
    Some(frames)
}

/// Cuts the train into packets with partial checksums, which are `complete` once completed.
fn check_partial(meta: &LongNetHeader, options: &SplitOptions, frame: &[u8], complete: &[Vec<u8>]) {
    let options = SplitOptions { checksum: ChecksumRule::Partial, ..*options };
    let segments = Segments::with(meta, &options, frame, &[]);
    let told = segments.map(|segments| segments.net_header()).unwrap_or_default();
    let packets = cut(meta, &options, frame, &[]).map(|packets| packets.frames);
    assert_eq!(cut_in_place(meta, &options, frame), packets);
    let mut packets = packets.unwrap_or_default();
    assert_eq!(packets.len(), complete.len());
    let field = usize::from(told.csum_start) + usize::from(told.csum_offset);
    for (packet, complete) in packets.iter_mut().zip(complete) {
        assert_eq!(complete_checksum(&mut told.clone(), packet, &[]), Ok(()));
        let mut complete = complete.clone();
        // Zero has two forms, and this one is written when a checksum is completed.
        if told.needs_checksum() && complete[field..field + 2] == [0, 0] {
            write_u16(&mut complete, field, 0xffff);
        }
        assert_eq!(*packet, complete);
    }
}

/// The fragments carry what the datagram had behind the repeated headers, except for the checksum.
fn check_fragments(frame: &[u8], packets: &Packets) {
    let Some(first) = packets.frames.first() else { return };
    let Ok(Parsed { key, layout }) = parse(first) else { return };
    let is_v4 = key.eth_type() == EtherType::IPV4;
    let inserted = if is_v4 { 0 } else { FRAGMENT_LEN };
    let network = usize::from(layout.network);
    let carried_at =
        if is_v4 { packets.headers_len - udp::HEADER_LEN } else { behind_fragment(first, network) };
    let carried = packets.frames.iter().map(|packet| &packet[carried_at..]);
    let mut joined = carried.collect::<Vec<_>>().concat();
    let expected = &frame[carried_at - inserted..];
    let field = packets.headers_len - udp::HEADER_LEN + udp::field::CHECKSUM - carried_at;
    joined[field..field + 2].copy_from_slice(&expected[field..field + 2]);
    assert_eq!(joined, expected);
}

/// End of the fragment header of an IPv6 packet.
fn behind_fragment(frame: &[u8], network: usize) -> usize {
    let mut next = frame[network + ipv6::field::NEXT_HEADER];
    let mut at = network + ipv6::HEADER_LEN;
    while next != ipv6::FRAGMENT {
        (next, at) = (frame[at], at + (usize::from(frame[at + 1]) + 1) * 8);
    }
    at + FRAGMENT_LEN
}

/// The lengths are as predicted.
fn check_bytes(meta: &NetHeader, frame: &[u8], headers_len: usize, packets: &[Vec<u8>]) {
    let lengths = packets.iter().map(Vec::len);
    let longest = segment_frame_len_max(meta, headers_len, frame.len());
    assert_eq!(lengths.clone().max(), Some(longest));
    let total = wire_bytes(meta, headers_len, frame.len());
    assert_eq!(lengths.sum::<usize>() as u64, total);
}

/// Cuts the frame once more with a correct partial checksum, and verifies each packet's checksums
/// by `etherparse`.
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
    let cut = cut(&(*meta).into(), &SplitOptions::default(), &frame, &[]);
    let network = usize::from(whole.layout.network);
    let is_readable = SlicedPacket::from_ip(&frame[network..]).is_ok();
    for packet in cut.map(|packets| packets.frames).unwrap_or_default() {
        let is_checked = check_checksums(&packet[network..]);
        assert!(is_checked || !is_readable, "what the train was, its packets are: {packet:02x?}");
        assert!(matches!(verify(&packet, &[]).transport, Verdict::Valid | Verdict::Unknown));
    }
}

fn add_udp_len(pseudo_header: Sum, len: [u8; 2]) -> u16 {
    pseudo_header.add(u16::from_be_bytes(len)).partial()
}

/// Verifies the checksums of the IP packet `packet`. Returns `false` if `etherparse` cannot parse
/// it: it treats some extension headers differently.
fn check_checksums(packet: &[u8]) -> bool {
    let Ok(sliced) = SlicedPacket::from_ip(packet) else {
        return false;
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
        _ => return true,
    };
    if let Some(expected) = expected {
        // Zero has two forms, which only UDP distinguishes: there zero itself is never sent.
        assert_eq!(found % 0xffff, expected % 0xffff, "{packet:02x?}");
        let is_udp = matches!(sliced.transport, Some(TransportSlice::Udp(_)));
        assert!(found != 0 || !is_udp);
    }
    true
}

/// Bytes in front of a train that is cut in place.
const HEADROOM: usize = 20;
/// Length of the fragment header of IPv6.
const FRAGMENT_LEN: usize = 8;
