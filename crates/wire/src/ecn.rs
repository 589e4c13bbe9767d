//! Explicit congestion notification in IP headers (RFC 3168).

use crate::checksum::update;
use crate::{EtherType, ipv4, ipv6, parse, read_u16, write_u16};

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
    use super::*;

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
