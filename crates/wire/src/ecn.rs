//! Explicit congestion notification in IP headers (RFC 3168).

use crate::checksum::update;
use crate::{EtherType, ethernet, ipv4, ipv6, parse, read_u16, write_u16};

/// What came of [`mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// The frame carries the mark now.
    Marked,
    /// It carried the mark already.
    WasMarked,
    /// Its sender is not ECN-capable.
    NotCapable,
    /// It is not IP, or cut short.
    NotIp,
}

/// Sets "congestion experienced" in the outermost IP header of an Ethernet `frame`, behind any
/// tags, if its sender is ECN-capable (RFC 3168 §5); the IPv4 header's checksum follows. Else not a
/// bit is changed.
pub fn mark(frame: &mut [u8]) -> Marking {
    let Ok(parsed) = parse(frame) else {
        return Marking::NotIp;
    };
    let (start, end) = (usize::from(parsed.layout.network), usize::from(parsed.layout.end));
    let header = &mut frame[start..end];
    match parsed.key.eth_type() {
        EtherType::IPV4 if header.len() >= ipv4::MIN_HEADER_LEN => mark_ipv4(header),
        EtherType::IPV6 if header.len() >= ipv6::HEADER_LEN => mark_ipv6(header),
        _ => Marking::NotIp,
    }
}

/// The ECN field, of two bits, in the outermost IP header of an Ethernet frame that begins with
/// `head`, behind any tags. Zero, which is "not ECN-capable transport", where there is none.
#[inline]
pub fn of(head: &[u8]) -> u8 {
    let mut kind_at = ethernet::ADDRESSES_LEN;
    while let Some(&[a, b, _, class]) = head.get(kind_at..).and_then(<[u8]>::first_chunk) {
        match EtherType(u16::from_be_bytes([a, b])) {
            EtherType::IPV4 => return class & 0b11,
            EtherType::IPV6 => return class >> 4 & 0b11,
            kind if kind.is_tag() => kind_at += ethernet::TAG_LEN,
            _ => break,
        }
    }
    0
}

/// True when a type of service or traffic class says "congestion experienced".
pub const fn is_marked(class: u8) -> bool {
    class as u16 & MASK == CE
}

fn mark_ipv4(header: &mut [u8]) -> Marking {
    let old = read_u16(header, ipv4::field::VERSION_IHL);
    match old & MASK {
        NOT_ECT => return Marking::NotCapable,
        CE => return Marking::WasMarked,
        _ => {}
    }
    let new = old | CE;
    let checksum = read_u16(header, ipv4::field::CHECKSUM);
    let checksum = update(checksum, &old.to_be_bytes(), &new.to_be_bytes());
    write_u16(header, ipv4::field::VERSION_IHL, new);
    write_u16(header, ipv4::field::CHECKSUM, checksum);
    Marking::Marked
}

/// The traffic class lies across the first two bytes, four bits in front of where IPv4 has it.
fn mark_ipv6(header: &mut [u8]) -> Marking {
    let old = read_u16(header, ipv6::field::VERSION_CLASS_LABEL);
    match (old >> 4) & MASK {
        NOT_ECT => return Marking::NotCapable,
        CE => return Marking::WasMarked,
        _ => {}
    }
    write_u16(header, ipv6::field::VERSION_CLASS_LABEL, old | CE << 4);
    Marking::Marked
}

/// The ECN field (RFC 3168 §5), where IPv4 has it in its first word.
const MASK: u16 = 0b11;
/// "Not ECN-capable transport".
const NOT_ECT: u16 = 0b00;
/// "Congestion experienced".
const CE: u16 = 0b11;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A frame long enough to be marked says by its field what comes of that.
        #[test]
        fn the_field_is_the_one_that_a_mark_changes(
            tags in 0..=8usize,
            (is_v6, class) in any::<(bool, u8)>(),
        ) {
            let tag = [0x81, 0, 0, 5].repeat(tags);
            let start = match is_v6 {
                false => vec![8, 0, 0x45, class, 0, 20],
                true => vec![0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 0, 0, 0, 59, 64],
            };
            let mut frame = [&[0; 12][..], &tag, &start, &[0; 40]].concat();
            let field = of(&frame);
            prop_assert_eq!(field, class & 3);
            let expected = match field {
                0 => Marking::NotCapable,
                3 => Marking::WasMarked,
                _ => Marking::Marked,
            };
            prop_assert_eq!(mark(&mut frame), expected);
            prop_assert_eq!(of(&frame), if field == 0 { 0 } else { 3 });
        }

        #[test]
        fn any_bytes_have_a_field(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(of(&bytes) < 4);
        }
    }

    #[test]
    fn what_is_not_ip_is_not_capable() {
        let arp = [&[0xff; 12][..], &[8, 6], &[0xff; 28]].concat();
        assert_eq!((of(&arp), of(&arp[..13]), of(&[])), (0, 0, 0));
        let cut = [&[0xff; 12][..], &[8, 0, 0x45]].concat();
        assert_eq!(of(&cut), 0);
    }

    #[test]
    fn one_codepoint_of_four_is_the_mark() {
        let marked: Vec<u8> = (0..=7).filter(|&class| is_marked(class)).collect();
        assert_eq!(marked, [3, 7]);
    }

    #[test]
    fn a_frame_is_marked_is_not_capable_or_is_no_ip() {
        let mut frame = [0; 14 + 20];
        (frame[12], frame[14], frame[17]) = (8, 0x45, 20);
        let before = frame;
        assert_eq!((mark(&mut frame), frame), (Marking::NotCapable, before));
        frame[15] = 2;
        assert_eq!((mark(&mut frame), frame[15]), (Marking::Marked, 3));
        assert_eq!((mark(&mut frame), frame[15]), (Marking::WasMarked, 3));
        frame[13] = 6;
        assert_eq!(mark(&mut frame), Marking::NotIp, "ARP");
        assert_eq!(mark(&mut frame[..13]), Marking::NotIp);
    }
}
