//! Explicit congestion notification in IP headers (RFC 3168).

use crate::checksum::update;
use crate::{EtherType, ethernet, ipv4, ipv6, parse, read_u16, write_u16};

/// Result of [`mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// The frame is now marked.
    Marked,
    /// The frame was already marked.
    WasMarked,
    /// The sender is not ECN-capable.
    NotCapable,
    /// The frame is not IP, or truncated.
    NotIp,
}

/// Sets "congestion experienced" in the outermost IP header of an Ethernet `frame`, after any tags,
/// if its sender is ECN-capable (RFC 3168 §5), and updates the IPv4 header's checksum. Otherwise
/// changes nothing.
pub fn mark(frame: &mut [u8]) -> Marking {
    set(frame, CE)
}

/// Propagates the ECN field of the outer header to a decapsulated frame, for a tunnel packet with
/// this type of service or traffic class (RFC 6040 §4.2): congestion marked outside is marked
/// inside. [`Marking::NotCapable`] means that a frame of a sender without ECN was marked outside:
/// it must be dropped, as routers drop frames that they cannot mark.
pub fn pass_on(frame: &mut [u8], outer: u8) -> Marking {
    let field = u16::from(outer) & MASK;
    match set(frame, field) {
        // The outer header only says that a sender is ECN-capable; there was no congestion.
        Marking::NotCapable if field != CE => Marking::WasMarked,
        marking => marking,
    }
}

/// Raises the ECN field to a higher congestion level, never lowers it.
fn set(frame: &mut [u8], field: u16) -> Marking {
    let Ok(parsed) = parse(frame) else {
        return Marking::NotIp;
    };
    let (start, end) = (usize::from(parsed.layout.network), usize::from(parsed.layout.end));
    let header = &mut frame[start..end];
    match parsed.key.eth_type() {
        EtherType::IPV4 if header.len() >= ipv4::MIN_HEADER_LEN => set_ipv4(header, field),
        EtherType::IPV6 if header.len() >= ipv6::HEADER_LEN => set_ipv6(header, field),
        _ => Marking::NotIp,
    }
}

/// The ECN field, of two bits, in the outermost IP header of an Ethernet frame that begins with
/// `head`, after any tags. Zero, "not ECN-capable transport", for other frames.
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

/// True if [`pass_on`] has an effect for this type of service or traffic class: it is "congestion
/// experienced", or ECT(1), the weaker mark in networks with two.
pub const fn is_passed_on(class: u8) -> bool {
    matches!(class as u16 & MASK, CE | ECT_1)
}

fn set_ipv4(header: &mut [u8], field: u16) -> Marking {
    let old = read_u16(header, ipv4::field::VERSION_IHL);
    if let Some(marking) = unchanged(old & MASK, field) {
        return marking;
    }
    let new = old & !MASK | field;
    let checksum = read_u16(header, ipv4::field::CHECKSUM);
    let checksum = update(checksum, &old.to_be_bytes(), &new.to_be_bytes());
    write_u16(header, ipv4::field::VERSION_IHL, new);
    write_u16(header, ipv4::field::CHECKSUM, checksum);
    Marking::Marked
}

/// The traffic class spans the first two bytes, four bits before its position in IPv4.
fn set_ipv6(header: &mut [u8], field: u16) -> Marking {
    let old = read_u16(header, ipv6::field::VERSION_CLASS_LABEL);
    if let Some(marking) = unchanged(old >> 4 & MASK, field) {
        return marking;
    }
    let new = old & !(MASK << 4) | field << 4;
    write_u16(header, ipv6::field::VERSION_CLASS_LABEL, new);
    Marking::Marked
}

/// Why a field is not changed; `None` if it becomes `new`.
const fn unchanged(old: u16, new: u16) -> Option<Marking> {
    match (old, new) {
        (NOT_ECT, _) => Some(Marking::NotCapable),
        (ECT_0, ECT_1 | CE) | (ECT_1, CE) => None,
        _ => Some(Marking::WasMarked),
    }
}

/// The ECN field (RFC 3168 §5), at its position in the first word of IPv4.
const MASK: u16 = 0b11;
/// "Not ECN-capable transport".
const NOT_ECT: u16 = 0b00;
/// ECN-capable transport.
const ECT_0: u16 = 0b10;
/// ECN-capable transport, and the weaker mark in networks with two (RFC 6040 §3.1).
const ECT_1: u16 = 0b01;
/// "Congestion experienced".
const CE: u16 = 0b11;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// RFC 6040 §4.2, figure 4: a row for each outer field, a column for each inner one.
        #[test]
        fn what_is_said_outside_is_passed_on(
            is_v6 in any::<bool>(),
            (dscp, inner, outer) in (0..64u8, 0..4usize, 0..4usize),
        ) {
            const FIELDS: [u8; 4] = [0b00, 0b10, 0b01, 0b11];
            const INSIDE: [[Option<u8>; 4]; 4] = [
                [Some(0b00), Some(0b10), Some(0b01), Some(0b11)],
                [Some(0b00), Some(0b10), Some(0b01), Some(0b11)],
                [Some(0b00), Some(0b01), Some(0b01), Some(0b11)],
                [None, Some(0b11), Some(0b11), Some(0b11)],
            ];
            let class = dscp << 2 | FIELDS[inner];
            let start = match is_v6 {
                false => vec![8, 0, 0x45, class, 0, 20],
                true => vec![0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 0, 0, 0, 59, 64],
            };
            let mut frame = [&[0; 12][..], &start, &[0; 40]].concat();
            let before = frame.clone();
            let marking = pass_on(&mut frame, 0xb8 | FIELDS[outer]);
            let inside = (marking != Marking::NotCapable).then(|| of(&frame));
            prop_assert_eq!(inside, INSIDE[outer][inner]);
            prop_assert_eq!(frame != before, marking == Marking::Marked);
            prop_assert!(frame == before || is_passed_on(FIELDS[outer]));
        }

        /// For a frame long enough to be marked, its field determines the result.
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
