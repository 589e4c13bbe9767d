//! IEEE 802 MAC addresses.

use std::fmt;
use std::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A 48-bit IEEE 802 address, in transmission order.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    IntoBytes,
    FromBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones: every station of the link.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeros: no address.
    pub const ZERO: Self = Self([0; 6]);

    /// True for group addresses, broadcast included (the I/G bit, IEEE 802-2014 §8.2.2).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// True for the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// True for an address that a single station can own: neither a group address nor all zeros.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// True for the sixteen addresses 01-80-C2-00-00-0X that a bridge must not forward (IEEE
    /// 802.1Q-2022 §8.6.3): spanning tree, pause, LACP, LLDP and others.
    #[inline]
    pub fn is_bridge_reserved(self) -> bool {
        self.0[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && self.0[5] & 0xf0 == 0
    }

    /// True for those of the sixteen that a provider bridge must not forward either (IEEE
    /// 802.1Q-2022 §8.6.3, table 8-2). The others are used between customer bridges through the
    /// provider.
    #[inline]
    pub fn is_provider_bridge_reserved(self) -> bool {
        self.is_bridge_reserved() && matches!(self.0[5], 0x01..=0x0a | 0x0e)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut address = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut address {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(ParseMacError)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        parts.next().is_none().then_some(Self(address)).ok_or(ParseMacError)
    }
}

/// Why a text is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected six hexadecimal bytes, as in 02:00:00:00:00:01")
    }
}

impl std::error::Error for ParseMacError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_a_round_trip() {
        let mac: MacAddr = "02:00:5E:ab:CD:0f".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:ab:cd:0f");
        assert_eq!("02-00-5e-ab-cd-0f".parse(), Ok(mac));
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in
            ["", "02:00:5e:ab:cd", "02:00:5e:ab:cd:0f:11", "2:0:5e:ab:cd:f", "zz:00:5e:ab:cd:0f"]
        {
            assert_eq!(text.parse::<MacAddr>(), Err(ParseMacError), "{text}");
        }
    }

    #[test]
    fn kinds_of_addresses() {
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
        assert!(MacAddr([0x02, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!MacAddr::ZERO.is_unicast());
        assert!(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]).is_bridge_reserved());
        assert!(!MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x10]).is_bridge_reserved());
        let is_kept = |last| MacAddr([0x01, 0x80, 0xc2, 0, 0, last]).is_provider_bridge_reserved();
        let carried = (0..=0xff).filter(|&last| last < 0x10 && !is_kept(last));
        assert!(carried.eq([0x00, 0x0b, 0x0c, 0x0d, 0x0f]) && !is_kept(0x1e));
    }
}
