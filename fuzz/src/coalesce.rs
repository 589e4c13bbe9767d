//! Target `coalesce`: any batch becomes valid units, and cutting them gives back the input.

use tapswitch_offload::coalesce::{Place, Tunnels};
use tapswitch_offload::{Coalescer, Segments, SplitOptions, complete_checksum};
use tapswitch_wire::{
    LongNetHeader, NET_HEADER_LEN, NetHeader, ip_proto, ipv6, parse, read_u16, tcp, write_u16,
};

/// Coalesces the frames of `data`, with tunnels and without. Each frame: metadata, a big-endian
/// length, bytes.
pub fn coalesce(data: &[u8]) {
    let (buf, batch) = batch(data);
    for tunnels in [Tunnels::None, Tunnels::Udp, Tunnels::All] {
        coalesce_inside(tunnels, buf.clone(), &batch);
    }
}

fn coalesce_inside(tunnels: Tunnels, mut buf: Vec<u8>, batch: &[Place]) {
    let before = buf.clone();
    let mut coalescer = Coalescer::with_tunnels(batch.len(), tunnels);
    let mut is_seen = vec![false; batch.len()];
    let units: Vec<_> = coalescer
        .coalesce(&mut buf, batch)
        .map(|unit| (unit.first, unit.long_meta(), unit.parts.to_vec()))
        .collect();
    for (first, long, parts) in units {
        let meta = long.base;
        let Place { start, end, .. } = batch[first];
        assert!(!std::mem::replace(&mut is_seen[first], true), "a frame is in one unit");
        if parts.is_empty() {
            assert_eq!((meta, &buf[start..end]), (batch[first].meta, &before[start..end]));
            continue;
        }
        let mut sent = wire_packets(&batch[first].meta, &before[start..end]);
        let mut bytes = buf[start..end].to_vec();
        for part in parts {
            assert_eq!(buf[part.clone()], before[part.clone()], "payload is never written");
            bytes.extend(&buf[part.clone()]);
            let index = batch.iter().position(|place| place.end == part.end);
            let joined = index.filter(|index| batch[*index].start < part.start);
            assert!(joined.is_some_and(|index| index > first), "in the order of arrival");
            let Some(joined) = joined else { continue };
            assert!(!std::mem::replace(&mut is_seen[joined], true), "a frame is in one unit");
            let Place { meta, start, end } = batch[joined];
            sent.extend(wire_packets(&meta, &before[start..end]));
        }
        let received = wire_packets(&meta, &bytes);
        assert!(!received.is_empty(), "a train can be cut");
        assert!(received == sent, "cutting gives back what went in");
        assert_eq!(long.check(bytes.len()), Ok(()));
        assert!(cut(&long, &bytes) == received, "where the tunnel lies is told truly");
    }
    assert!(is_seen.iter().all(|seen| *seen), "no frame is lost");
}

/// Places the frames of `data` in a buffer, with some room in between.
fn batch(mut data: &[u8]) -> (Vec<u8>, Vec<Place>) {
    let (mut buf, mut batch) = (Vec::new(), Vec::new());
    while let Some((meta, rest)) = data.split_first_chunk::<NET_HEADER_LEN>() {
        let Some((len, rest)) = rest.split_first_chunk() else { break };
        let len = usize::from(u16::from_be_bytes(*len)).clamp(1, rest.len().max(1));
        let Some((frame, rest)) = rest.split_at_checked(len) else { break };
        buf.resize(buf.len() + 3, 0xee);
        let start = buf.len();
        buf.extend(frame);
        batch.push(Place { meta: NetHeader::decode(meta), start, end: buf.len() });
        data = rest;
    }
    (buf, batch)
}

/// The complete packets of a frame on the wire; empty if its metadata is invalid. A wrong checksum
/// that the metadata declares valid is corrected.
fn wire_packets(meta: &NetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    if !meta.is_train() {
        if meta.flags == 0 {
            return vec![frame.to_vec()];
        }
        let (mut frame, field) =
            (frame.to_vec(), usize::from(meta.csum_start) + usize::from(meta.csum_offset));
        let completed = complete_checksum(&mut meta.clone(), &mut frame, &[]);
        // Of TCP, cutting writes a zero as it is.
        let is_tcp = usize::from(meta.csum_offset) == tcp::field::CHECKSUM;
        if meta.needs_checksum() && is_tcp && completed.is_ok() && read_u16(&frame, field) == 0xffff
        {
            write_u16(&mut frame, field, 0);
        }
        return vec![put_right(frame)];
    }
    cut(&LongNetHeader::from(*meta), frame)
}

/// The packets of a train; empty if its metadata is invalid.
fn cut(meta: &LongNetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    let Ok(mut segments) = Segments::with(meta, &SplitOptions::default(), frame, &[]) else {
        return Vec::new();
    };
    let mut room = vec![0; segments.headers_len()];
    let mut packets = Vec::new();
    while let Some(segment) = segments.next(&mut room) {
        let [first, second] = segment.payload;
        packets.push(put_right([&room[..segment.headers_len], first, second].concat()));
    }
    packets
}

/// Recomputes the checksum of TCP or UDP, as cutting does. That of a packet on a source route is
/// for another destination, and is not recomputed.
fn put_right(mut frame: Vec<u8>) -> Vec<u8> {
    use tapswitch_wire::checksum::{pseudo_header_v4, pseudo_header_v6};
    let Ok(parsed) = parse(&frame) else { return frame };
    let Some(at) = parsed.layout.transport.map(usize::from) else { return frame };
    let key = &parsed.key;
    let (field, is_udp) = match key.ip_proto {
        ip_proto::TCP => (at + 16, false),
        ip_proto::UDP => (at + 6, true),
        _ => return frame,
    };
    let Ok(len) = u16::try_from(frame.len() - at) else { return frame };
    let pseudo_header = if key.eth_type() == tapswitch_wire::EtherType::IPV4 {
        pseudo_header_v4(&key.ip_src[..4], &key.ip_dst[..4], key.ip_proto, len)
    } else {
        if ipv6::is_routed_on(&frame[usize::from(parsed.layout.network)..at]) {
            return frame;
        }
        pseudo_header_v6(&key.ip_src, &key.ip_dst, key.ip_proto, u32::from(len))
    };
    if is_udp && read_u16(&frame, field) == 0 {
        return frame;
    }
    write_u16(&mut frame, field, 0);
    let sum = pseudo_header.add_bytes(&frame[at..]);
    write_u16(&mut frame, field, if is_udp { sum.udp_checksum() } else { sum.checksum() });
    frame
}
