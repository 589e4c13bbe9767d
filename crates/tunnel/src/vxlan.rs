//! The VXLAN header (RFC 7348 §5).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |R|R|R|R|I|R|R|R|            Reserved                           |
//! |                VXLAN Network Identifier (VNI) |   Reserved    |
//! ```
//! The I flag marks the VNI as valid. Reserved bits are zero when sent and ignored on receipt.

use std::fmt;
use std::net::IpAddr;

use tapswitch_wire::ethernet;

/// A VXLAN network identifier: 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vni(u32);

impl Vni {
    /// Maximum value.
    pub const MAX: u32 = (1 << 24) - 1;

    /// `None` if it exceeds 24 bits.
    pub const fn new(vni: u32) -> Option<Self> {
        if vni <= Self::MAX { Some(Self(vni)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Vni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a datagram contains no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Shorter than a VXLAN header and an Ethernet header.
    #[error("shorter than a VXLAN header and an Ethernet header")]
    Runt,
    /// The I flag is not set, so there is no VNI.
    #[error("the I flag is not set")]
    NoVni,
    /// Another VNI.
    #[error("VNI {0} is not that of the port")]
    WrongVni(u32),
}

/// The header before each frame of `vni`.
pub const fn header(vni: Vni) -> [u8; HEADER_LEN] {
    let [_, a, b, c] = vni.0.to_be_bytes();
    [FLAG_I, 0, 0, 0, a, b, c, 0]
}

/// The frame in `datagram`.
///
/// # Errors
/// [`Refusal`] if it contains no frame of `vni`.
#[inline]
pub fn frame_of(datagram: &[u8], vni: Vni) -> Result<&[u8], Refusal> {
    let Some((&[flags, _, _, _, a, b, c, _], frame)) = datagram.split_first_chunk() else {
        return Err(Refusal::Runt);
    };
    if frame.len() < ethernet::HEADER_LEN {
        return Err(Refusal::Runt);
    }
    if flags & FLAG_I == 0 {
        return Err(Refusal::NoVni);
    }
    match u32::from_be_bytes([0, a, b, c]) {
        found if found == vni.0 => Ok(frame),
        other => Err(Refusal::WrongVni(other)),
    }
}

/// Bytes of a packet to `remote` other than the inner frame's payload: IP, UDP, VXLAN and Ethernet
/// header. 50 over IPv4, 70 over IPv6. The maximum payload of a frame without tags is the path MTU
/// less this.
pub const fn overhead(remote: IpAddr) -> u32 {
    let ip = match remote {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    };
    ip + UDP_HEADER_LEN + 8 + 14
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 8;
const FLAG_I: u8 = 0x08;
const UDP_HEADER_LEN: u32 = 8;
const _: () = assert!(HEADER_LEN == 8 && ethernet::HEADER_LEN == 14);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vni(number: u32) -> Vni {
        Vni::new(number).unwrap()
    }

    #[test]
    fn the_header_is_the_one_of_the_rfc() {
        assert_eq!(header(vni(0x12_3456)), [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(Vni::new(1 << 24), None);
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"].map(|ip| overhead(ip.parse().unwrap()));
        assert_eq!((v4, v6), (50, 70));
    }

    #[test]
    fn each_thing_that_is_wrong_has_its_name() {
        let mut datagram = [&header(vni(7))[..], &[0; 14]].concat();
        assert_eq!(frame_of(&datagram, vni(7)), Ok(&[0; 14][..]));
        assert_eq!(frame_of(&datagram, vni(8)), Err(Refusal::WrongVni(7)));
        assert_eq!(frame_of(&datagram[..21], vni(7)), Err(Refusal::Runt));
        assert_eq!(frame_of(&[], vni(7)), Err(Refusal::Runt));
        // Reserved bits are ignored.
        (datagram[0], datagram[1], datagram[7]) = (0xff, 0xff, 0xff);
        assert!(frame_of(&datagram, vni(7)).is_ok());
        datagram[0] = 0xf7;
        assert_eq!(frame_of(&datagram, vni(7)), Err(Refusal::NoVni));
    }

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(
            number in 0..=Vni::MAX,
            other in 0..=Vni::MAX,
            frame in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let datagram = [&header(vni(number))[..], &frame].concat();
            let expected = match (frame.len() >= 14, number == other) {
                (false, _) => Err(Refusal::Runt),
                (true, true) => Ok(&frame[..]),
                (true, false) => Err(Refusal::WrongVni(number)),
            };
            prop_assert_eq!(frame_of(&datagram, vni(other)), expected);
        }

        #[test]
        fn any_bytes_are_a_frame_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(frame) = frame_of(&bytes, vni(1)) {
                prop_assert_eq!(frame, &bytes[8..]);
                prop_assert!(bytes[0] & 8 != 0 && bytes[4..7] == [0, 0, 1]);
            }
        }
    }
}
