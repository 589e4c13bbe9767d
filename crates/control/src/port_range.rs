//! Port ranges for TCP, UDP and SCTP.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::{ParseTextError, as_text};

/// An inclusive range of ports. OpenFlow matches single ports, so a range takes one rule for each
/// port, or for each excluded port if it has more than half of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// From `first` to `last`; `None` if `last` is lower.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// Whether the range contains the port.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    /// Whether the range has more than half of all ports.
    pub(crate) fn is_most(self) -> bool {
        self.count() > ALL / 2
    }

    /// Number of regions needed.
    pub(crate) fn region_count(self) -> usize {
        if self.is_most() { 1 + ALL - self.count() } else { self.count() }
    }

    /// The ports.
    pub(crate) fn iter(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// All other ports.
    pub(crate) fn others(self) -> impl Iterator<Item = u16> {
        (0..=u16::MAX).filter(move |port| !self.contains(*port))
    }

    fn count(self) -> usize {
        usize::from(self.last - self.first) + 1
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self { first: port, last: port }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for PortRange {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().ok()).flatten()
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ends = port(first).zip(port(last));
        let range = ends.and_then(|(first, last)| Self::new(first, last));
        range.ok_or_else(|| ParseTextError::new(text, EXPECTED))
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.first == self.last {
            true => serializer.serialize_u16(self.first),
            false => as_text::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// Number of all ports.
const ALL: usize = 1 << 16;
const EXPECTED: &str = "a port up to 65535, or a range of ports, as in 8000-8010";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_shown() {
        for text in ["80", "8000-8010", "0-65535"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        assert_eq!("80-80".parse::<PortRange>().unwrap().to_string(), "80");
        for text in ["", "-", "1-", "2-1", "65536", "+1", "1-2-3", "http"] {
            assert_eq!(text.parse::<PortRange>().unwrap_err().expected, EXPECTED, "{text}");
        }
    }

    #[test]
    fn most_ports_are_said_by_the_others() {
        let range = |first, last| PortRange::new(first, last).unwrap();
        assert_eq!(range(8000, 8010).region_count(), 11);
        assert_eq!(range(1024, 65535).region_count(), 1025);
        assert_eq!(range(1024, 65535).others().count(), 1024);
        assert_eq!((range(0, 65535).region_count(), range(0, 32767).region_count()), (1, 32768));
    }
}
