//! Announcement of a station that does not announce itself.

use tapswitch_wire::{EtherType, MacAddr};

/// A RARP request (RFC 903) of a station for its own address, as QEMU sends it for a migrated
/// guest: nobody answers, and all bridges learn the station's new place.
pub(crate) fn rarp(station: MacAddr) -> [u8; FRAME_LEN] {
    let (everybody, none) = ([0xff; 6], [0; 4]);
    // Hardware type Ethernet, protocol IPv4, the lengths of their addresses, operation "request
    // reverse".
    let words = [1_u16, EtherType::IPV4.0, 0x0604, 3].map(u16::to_be_bytes);
    let parts: [&[u8]; 8] = [
        &everybody,
        &station.0,
        &RARP.to_be_bytes(),
        words.as_flattened(),
        &station.0,
        &none,
        &station.0,
        &none,
    ];
    let (mut frame, mut at) = ([0; FRAME_LEN], 0);
    for part in parts {
        frame[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    frame
}

/// Minimum length of an Ethernet frame without its FCS.
const FRAME_LEN: usize = 60;
const RARP: u16 = 0x8035;

#[cfg(test)]
mod tests {
    use super::*;

    /// Identical to the frame of QEMU's `announce_self_create` (`net/announce.c`).
    #[test]
    fn it_is_what_qemu_sends() {
        let frame = rarp(MacAddr([2, 0, 0, 0, 0, 7]));
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 0x80, 0x35]);
        assert_eq!(frame[14..22], [0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!(frame[22..42], [2, 0, 0, 0, 0, 7, 0, 0, 0, 0, 2, 0, 0, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(frame[42..], [0; 18]);
    }
}
