//! VLAN identifiers, and sets of them.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// The identifier of a VLAN: 1 to 4094 (IEEE 802.1Q-2022 §9.6; 0 means "no VLAN", 4095 is
/// reserved).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(NonZeroU16);

impl Vid {
    /// The lowest.
    pub const MIN: Self = Self(NonZeroU16::MIN);
    /// The highest.
    pub const MAX: Self = match NonZeroU16::new(4094) {
        Some(number) => Self(number),
        None => Self::MIN,
    };

    /// The identifier with this number, if it is valid.
    #[inline]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(nonzero) if number <= Self::MAX.number() => Some(Self(nonzero)),
            _ => None,
        }
    }

    /// Its number.
    #[inline]
    pub const fn number(self) -> u16 {
        self.0.get()
    }
}

impl FromStr for Vid {
    type Err = NoVid;

    fn from_str(text: &str) -> Result<Self, NoVid> {
        text.parse().ok().and_then(Self::new).ok_or(NoVid)
    }
}

/// A text is not a VLAN identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a VLAN identifier from 1 to 4094")]
pub struct NoVid;

impl fmt::Display for Vid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Vid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of VLAN identifiers, one bit each.
#[derive(Clone, PartialEq, Eq)]
pub struct VidSet(Box<[u64; WORDS]>);

impl VidSet {
    /// The empty set.
    pub fn none() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// All identifiers.
    pub fn all() -> Self {
        let mut set = Self::none();
        set.insert_range(Vid::MIN, Vid::MAX);
        set
    }

    /// Adds `first` to `last`, both inclusive.
    pub fn insert_range(&mut self, first: Vid, last: Vid) {
        for number in first.number()..=last.number() {
            self.0[usize::from(number / 64)] |= 1 << (number % 64);
        }
    }

    /// Removes an identifier.
    pub fn remove(&mut self, vid: Vid) {
        self.0[usize::from(vid.number() / 64)] &= !(1 << (vid.number() % 64));
    }

    /// True if the number is an identifier in the set; never for 0 and 4095.
    #[inline]
    pub fn contains(&self, number: u16) -> bool {
        let word = self.0.get(usize::from(number / 64)).copied().unwrap_or(0);
        word >> (number % 64) & 1 == 1
    }

    /// The set as ordered ranges, both ends inclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (Vid, Vid)> + '_ {
        let mut next = Vid::MIN.number();
        std::iter::from_fn(move || {
            let first = (next..=Vid::MAX.number()).find(|&number| self.contains(number))?;
            let behind = (first..).find(|&number| !self.contains(number))?;
            next = behind;
            Some((Vid::new(first)?, Vid::new(behind - 1)?))
        })
    }
}

/// `10+20-30`.
impl fmt::Display for VidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges().enumerate() {
            let gap = if index == 0 { "" } else { "+" };
            write!(f, "{gap}{first}")?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for VidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 4096 bits.
const WORDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn vid(number: u16) -> Vid {
        Vid::new(number).unwrap()
    }

    #[test]
    fn identifiers_end_where_the_standard_says() {
        assert!(Vid::new(0).is_none() && Vid::new(4095).is_none());
        assert_eq!((Vid::MIN, Vid::MAX), (vid(1), vid(4094)));
        assert_eq!("4094".parse(), Ok(vid(4094)));
        assert_eq!("4095".parse::<Vid>(), Err(NoVid));
    }

    #[test]
    fn a_set_is_told_as_ranges() {
        let mut set = VidSet::none();
        assert_eq!(set.to_string(), "");
        for (first, last) in [(20, 29), (10, 10), (30, 30), (63, 64), (4094, 4094)] {
            set.insert_range(vid(first), vid(last));
        }
        assert_eq!(set.to_string(), "10+20-30+63-64+4094");
        assert!(set.contains(25) && set.contains(64) && !set.contains(65));
        assert_eq!(VidSet::all().to_string(), "1-4094");
        assert!(!VidSet::all().contains(0) && !VidSet::all().contains(4095));
        assert!(!VidSet::all().contains(u16::MAX));
        set.remove(vid(25));
        assert_eq!(set.to_string(), "10+20-24+26-30+63-64+4094");
    }
}
