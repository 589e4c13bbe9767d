//! IP prefixes: `10.0.0.0/24`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::{ParseTextError, as_text};

/// All addresses that start with the same bits. The remaining bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    address: IpAddr,
    /// Prefix length, at most the bits of the family.
    len: u8,
}

impl IpPrefix {
    /// The prefix of the first `len` bits of `address`; `None` if the family has fewer bits or
    /// others are set.
    pub fn new(address: impl Into<IpAddr>, len: u8) -> Option<Self> {
        let address = address.into();
        let prefix = Self { address, len };
        let fits = len <= width(address) && bits(address) & !prefix.mask() == 0;
        fits.then_some(prefix)
    }

    /// The prefix of one address.
    pub fn host(address: impl Into<IpAddr>) -> Self {
        let address = address.into();
        Self { address, len: width(address) }
    }

    /// The prefix of `len` bits that contains an address; `None` if the family has fewer bits.
    pub(crate) fn around(address: IpAddr, len: u8) -> Option<Self> {
        let mask = Self { address, len }.mask();
        let kept = bits(address) & mask;
        let first: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(kept).ok()?).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(kept).into(),
        };
        Self::new(first, len)
    }

    /// The first address.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// The prefix length.
    #[expect(clippy::len_without_is_empty, reason = "the length of a prefix, by its usual name")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// The address, if the prefix contains only one.
    pub(crate) fn only(self) -> Option<IpAddr> {
        (self == Self::host(self.address())).then_some(self.address())
    }

    /// True for IPv4.
    pub const fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// True when the prefix is every address of its family.
    pub const fn is_all(self) -> bool {
        self.len == 0
    }

    /// True when `other` is inside this prefix.
    pub fn covers(self, other: Self) -> bool {
        self.is_ipv4() == other.is_ipv4()
            && self.len <= other.len
            && (bits(self.address) ^ bits(other.address)) & self.mask() == 0
    }

    /// True when the prefix contains the address.
    pub fn contains(self, address: IpAddr) -> bool {
        self.covers(Self::host(address))
    }

    /// The intersection: the longer prefix, if it is inside the other one.
    pub fn intersect(self, other: Self) -> Option<Self> {
        if self.covers(other) { Some(other) } else { other.covers(self).then_some(self) }
    }

    /// The last address: all host bits set.
    pub(crate) fn last(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => (address | !mask_v4(self.len)).into(),
            IpAddr::V6(address) => (address | !mask_v6(self.len)).into(),
        }
    }

    /// The network mask, aligned with the address in the low bits of the number.
    fn mask(self) -> u128 {
        let width = width(self.address);
        let all = u128::MAX >> (128 - u32::from(width));
        let free = u32::from(width.saturating_sub(self.len));
        all & u128::MAX.checked_shl(free).unwrap_or(0)
    }
}

/// Width of the family's addresses in bits.
const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The mask of an IPv4 prefix of `len` bits.
pub(crate) fn mask_v4(len: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0))
}

/// The mask of an IPv6 prefix of `len` bits.
pub(crate) fn mask_v6(len: u8) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0))
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len == width(self.address) {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.len),
        }
    }
}

impl FromStr for IpPrefix {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseTextError::new(text, EXPECTED);
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let is_number = |len: &&str| len.bytes().all(|byte| byte.is_ascii_digit());
        let Some(len) = len else {
            return Ok(Self::host(address));
        };
        let len = Some(len).filter(is_number).and_then(|len| len.parse().ok());
        let len: u8 = len.filter(|&len| len <= width(address)).ok_or_else(malformed)?;
        Self::new(address, len).ok_or_else(|| ParseTextError::new(text, EXPECTED_ZEROS))
    }
}

impl Serialize for IpPrefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for IpPrefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

const EXPECTED: &str = "an IPv4 or IPv6 address, or a prefix as in 10.0.0.0/24 or 2001:db8::/32";
const EXPECTED_ZEROS: &str =
    "zeros after the prefix; write the network, as in 10.0.0.0/24, or the address without `/`";

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn text_survives_a_round_trip() {
        for text in ["10.0.0.0/24", "10.0.0.1", "0.0.0.0/0", "2001:db8::/32", "::1", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("10.0.0.1/32").to_string(), "10.0.0.1");
    }

    #[test]
    fn malformed_prefixes_are_refused_with_a_remedy() {
        for text in ["", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "x/8"] {
            let error = text.parse::<IpPrefix>().unwrap_err();
            assert_eq!(error.expected, EXPECTED, "{text}");
        }
        let error = "10.0.0.1/24".parse::<IpPrefix>().unwrap_err();
        assert_eq!(error.expected, EXPECTED_ZEROS);
    }

    #[test]
    fn prefixes_nest_or_are_apart() {
        let cases = [
            ("10.0.0.0/8", "10.1.0.0/16", Some("10.1.0.0/16")),
            ("10.0.0.0/8", "11.0.0.0/8", None),
            ("0.0.0.0/0", "10.0.0.1", Some("10.0.0.1")),
            ("0.0.0.0/0", "::/0", None),
            ("::/0", "2001:db8::/32", Some("2001:db8::/32")),
            ("2001:db8::/32", "2001:db9::/32", None),
            ("10.0.0.1", "10.0.0.1", Some("10.0.0.1")),
        ];
        for (a, b, both) in cases {
            assert_eq!(prefix(a).intersect(prefix(b)), both.map(prefix), "{a} {b}");
            assert_eq!(prefix(b).intersect(prefix(a)), both.map(prefix), "{b} {a}");
        }
    }

    #[test]
    fn masks_have_the_length() {
        assert_eq!(mask_v4(0), Ipv4Addr::UNSPECIFIED);
        assert_eq!(mask_v4(24), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(mask_v4(32), Ipv4Addr::BROADCAST);
        assert_eq!(mask_v6(0), Ipv6Addr::UNSPECIFIED);
        assert_eq!(mask_v6(10), "ffc0::".parse::<Ipv6Addr>().unwrap());
        assert_eq!(mask_v6(128).to_bits(), u128::MAX);
    }
}
