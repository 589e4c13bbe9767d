//! Trains that the kernel keeps as lists of whole packets.
//!
//! With `rx-gro-list` on (ethtool(8); UDP Linux 5.6, TCP 6.10), GRO links packets without changing
//! them (`SKB_GSO_FRAGLIST`). The metadata cannot express that: such a train looks like any other,
//! but its checksum is that of the first packet, complete or partial, whereas a train's is partial
//! and covers all of it. Segmenting it by the metadata, in Linux as well, results in wrong
//! checksums; and Linux refuses to send a UDP train without a partial checksum.
//!
//! So such a train gets the checksum that the metadata implies. Its packets were verified when they
//! were joined.

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    EtherType, FlowKey, GsoType, NetHeader, NetHeaderFlags, Parsed, ip_proto, parse, read_u16, tcp,
    udp, write_u16,
};

/// Sets the partial checksum of a train in `frame`, a train with the metadata `header`, if it has
/// the checksum of its first packet.
pub(crate) fn make_train(header: &mut NetHeader, frame: &mut [u8]) {
    let Some(place) = Place::find(header, frame) else { return };
    if !place.is_of_first(header, frame) {
        return;
    }
    let partial = place.pseudo_header.add(place.len).partial();
    write_u16(frame, usize::from(place.start) + usize::from(place.offset), partial);
    header.flags = NetHeaderFlags::NEEDS_CSUM;
    (header.csum_start, header.csum_offset) = (place.start, place.offset);
}

/// The TCP or UDP header of a train.
struct Place {
    start: u16,
    /// Offset of the checksum in it.
    offset: u16,
    /// Length of header and all payload in bytes.
    len: u16,
    /// The same of the first packet.
    first_len: u16,
    /// Sum of the pseudo-header without a length.
    pseudo_header: Sum,
}

impl Place {
    fn find(header: &NetHeader, frame: &[u8]) -> Option<Self> {
        let Parsed { key, layout } = parse(frame).ok()?;
        let start = layout.transport?;
        let offset = match (header.gso_type.kind(), layout.protocol) {
            (GsoType::TCPV4 | GsoType::TCPV6, ip_proto::TCP) => tcp::field::CHECKSUM,
            (GsoType::UDP_L4, ip_proto::UDP) => udp::field::CHECKSUM,
            _ => return None,
        };
        let len = u16::try_from(frame.len() - usize::from(start)).ok()?;
        let first_len = (layout.end - start).checked_add(header.gso_size)?;
        let offset = u16::try_from(offset).ok()?;
        let pseudo_header = pseudo_header(&key, layout.protocol);
        (first_len < len).then_some(Self { start, offset, len, first_len, pseudo_header })
    }

    /// True if the checksum in `frame` is the correct one of the first packet.
    fn is_of_first(&self, header: &NetHeader, frame: &[u8]) -> bool {
        let upper = &frame[usize::from(self.start)..];
        let offset = usize::from(self.offset);
        let first = self.pseudo_header.add(self.first_len);
        if header.needs_checksum() {
            return (header.csum_start, header.csum_offset) == (self.start, self.offset)
                && read_u16(upper, offset) == first.partial();
        }
        let mut sum = first.add_bytes(&upper[..usize::from(self.first_len)]);
        if offset == udp::field::CHECKSUM {
            // The length field already is that of the train.
            sum = sum.remove(read_u16(upper, udp::field::LENGTH)).add(self.first_len);
        }
        header.flags & NetHeaderFlags::DATA_VALID != 0 && sum.is_valid()
    }
}

fn pseudo_header(key: &FlowKey, protocol: u8) -> Sum {
    match key.eth_type() {
        EtherType::IPV6 => pseudo_header_v6(&key.ip_src, &key.ip_dst, protocol, 0),
        _ => pseudo_header_v4(&key.ip_src[..4], &key.ip_dst[..4], protocol, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first packet with a correct checksum, followed by two more payloads; the metadata, and
    /// the length of the first packet's TCP or UDP.
    fn strung(is_v6: bool, is_tcp: bool, is_partial: bool) -> (NetHeader, Vec<u8>, u16) {
        let (protocol, upper_len, offset) = if is_tcp { (6, 20, 16) } else { (17, 8, 6u16) };
        let mut frame = [0x02; 12].to_vec();
        if is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64]);
            frame.extend([[0x20; 16], [0x30; 16]].concat());
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let start = frame.len();
        let payload = 0..u8::MAX;
        frame.extend((0..upper_len).map(|_| 0).chain(payload.cycle().take(3 * usize::from(SIZE))));
        let (first_len, len) = (upper_len + SIZE, upper_len + 3 * SIZE);
        if is_tcp {
            frame[start + 12] = 0x50;
        } else {
            write_u16(&mut frame, start + 4, first_len);
        }
        let key = parse(&frame).unwrap().key;
        let pseudo_header = pseudo_header(&key, protocol).add(first_len);
        let first = &frame[start..start + usize::from(first_len)];
        let checksum = match is_partial {
            true => pseudo_header.partial(),
            false => pseudo_header.add_bytes(first).udp_checksum(),
        };
        write_u16(&mut frame, start + usize::from(offset), checksum);
        if !is_tcp {
            write_u16(&mut frame, start + 4, len);
        }
        let flags =
            if is_partial { NetHeaderFlags::NEEDS_CSUM } else { NetHeaderFlags::DATA_VALID };
        let gso_type = match (is_tcp, is_v6) {
            (true, false) => GsoType::TCPV4,
            (true, true) => GsoType::TCPV6,
            (false, _) => GsoType::UDP_L4,
        };
        let mut header = NetHeader { flags, gso_type, gso_size: SIZE, ..NetHeader::PLAIN };
        if is_partial {
            (header.csum_start, header.csum_offset) = (u16::try_from(start).unwrap(), offset);
        }
        (header, frame, first_len)
    }

    #[test]
    fn every_kind_gets_the_checksum_of_a_train_once() {
        for case in 0..8 {
            let [is_v6, is_tcp, is_partial] = [1, 2, 4].map(|bit| case & bit != 0);
            let (mut header, mut frame, first_len) = strung(is_v6, is_tcp, is_partial);
            make_train(&mut header, &mut frame);
            assert_eq!(header.flags, NetHeaderFlags::NEEDS_CSUM);
            let start = usize::from(header.csum_start);
            let place = start + usize::from(header.csum_offset);
            let expected = pseudo_header(&parse(&frame).unwrap().key, if is_tcp { 6 } else { 17 })
                .add(first_len + 2 * SIZE)
                .partial();
            assert_eq!(read_u16(&frame, place), expected);
            let train = (header, frame.clone());
            make_train(&mut header, &mut frame);
            assert_eq!((header, frame), train, "it is one already");
        }
    }

    #[test]
    fn what_is_not_right_stays_as_it_is() {
        for (is_tcp, is_partial) in [(false, false), (true, false), (true, true)] {
            let (mut header, mut frame, _) = strung(false, is_tcp, is_partial);
            let start = parse(&frame).unwrap().layout.transport.unwrap();
            frame[usize::from(start) + if is_tcp { 16 } else { 6 }] ^= 1;
            let before = (header, frame.clone());
            make_train(&mut header, &mut frame);
            assert_eq!((header, frame), before);
        }
        let (header, frame, _) = strung(true, true, false);
        for len in 0..frame.len() {
            make_train(&mut header.clone(), &mut frame[..len].to_vec());
        }
        let mut unseen = NetHeader { flags: 0, ..header };
        make_train(&mut unseen, &mut frame.clone());
        assert_eq!(unseen.flags, 0, "nobody has looked at its checksums");
    }

    const SIZE: u16 = 100;
}
