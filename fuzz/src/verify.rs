//! Target `verify`: the verdict on checksums equals `etherparse`'s.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use tapswitch_offload::{Verdict, verify as judge};
use tapswitch_wire::parse;

/// Verifies the frame of `data`, whose first byte limits where its headers may end.
pub fn verify(data: &[u8]) {
    let Some((&at, frame)) = data.split_first() else {
        return;
    };
    let ours = judge(frame, &[]);
    let (headers, payload) = frame.split_at(frame.len().min(at.into()));
    if parse(headers).map(|parsed| parsed.layout) == parse(frame).map(|parsed| parsed.layout) {
        assert_eq!(judge(headers, payload), ours, "where headers end does not matter");
    }
    let Ok(layout) = parse(frame).map(|parsed| parsed.layout) else {
        assert_eq!((ours.network, ours.transport), (Verdict::Unknown, Verdict::Unknown));
        return;
    };
    if ours.transport == Verdict::Unknown {
        return;
    }
    // `etherparse` is strict with lengths and knows fewer extension headers.
    let Ok(sliced) = SlicedPacket::from_ip(&frame[usize::from(layout.network)..]) else {
        return;
    };
    if let Some(is_valid) = is_valid(&sliced) {
        let expected = if is_valid { Verdict::Valid } else { Verdict::Invalid };
        assert_eq!(ours.transport, expected, "{frame:02x?}");
    }
}

/// The verdict of `etherparse` on the transport checksum; `None` if there is none, or if the UDP
/// length is shorter than the data.
fn is_valid(sliced: &SlicedPacket) -> Option<bool> {
    let (found, expected) = match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(transport)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            match transport {
                TransportSlice::Tcp(tcp) => (tcp.checksum(), tcp.calc_checksum_ipv4(src, dst)),
                TransportSlice::Udp(udp) if udp.checksum() != 0 => {
                    let header = udp.to_header();
                    let sum = header.calc_checksum_ipv4_raw(src, dst, udp.payload());
                    (udp.checksum(), sum)
                }
                _ => return None,
            }
        }
        (Some(NetSlice::Ipv6(ip)), Some(transport)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            match transport {
                TransportSlice::Tcp(tcp) => (tcp.checksum(), tcp.calc_checksum_ipv6(src, dst)),
                TransportSlice::Udp(udp) if udp.checksum() != 0 => {
                    let header = udp.to_header();
                    let sum = header.calc_checksum_ipv6_raw(src, dst, udp.payload());
                    (udp.checksum(), sum)
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    // Zero has two forms.
    Some(found % 0xffff == expected.ok()? % 0xffff)
}
