//! What a port is to be: `1=tap:vm0,netns=blue,queues=2,mtu=1500` or `2=netdev:eth1`.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tapswitch_datapath::MAX_PORT;
use tapswitch_openflow::PortNo;

/// One port as the user describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// OpenFlow port number; [`PortNo::LOCAL`] for the switch's own.
    pub number: PortNo,
    /// What is behind it.
    pub kind: PortKind,
    /// Namespace of the interface; the one that the switch runs in when `None`.
    pub netns: Option<String>,
    /// Largest payload in bytes; the interface's own when `None`.
    pub mtu: Option<u32>,
}

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A tap device that the switch creates and owns.
    Tap {
        /// Name of the device.
        name: String,
        /// Queues, each with its own file descriptor.
        queues: NonZeroU16,
    },
    /// An interface that is there already, attached by `AF_PACKET`.
    Netdev {
        /// Name of the interface.
        name: String,
    },
}

impl PortSpec {
    /// Name of the interface.
    pub fn name(&self) -> &str {
        match &self.kind {
            PortKind::Tap { name, .. } | PortKind::Netdev { name } => name,
        }
    }

    /// Number of queues.
    pub fn queues(&self) -> NonZeroU16 {
        match self.kind {
            PortKind::Tap { queues, .. } => queues,
            PortKind::Netdev { .. } => NonZeroU16::MIN,
        }
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let (number, device) = text.split_once('=').ok_or(Fault::NoNumber)?;
        let mut parts = device.split(',');
        let (kind, name) = parts.next().and_then(|d| d.split_once(':')).ok_or(Fault::NoKind)?;
        if name.is_empty() {
            return Err(Fault::NoName);
        }
        let kind = match kind {
            "tap" => PortKind::Tap { name: name.into(), queues: NonZeroU16::MIN },
            "netdev" => PortKind::Netdev { name: name.into() },
            other => return Err(Fault::UnknownKind(other.into())),
        };
        let mut spec = Self { number: parse_number(number)?, kind, netns: None, mtu: None };
        parts.try_for_each(|option| spec.set(option))?;
        Ok(spec)
    }

    fn set(&mut self, option: &str) -> Result<(), Fault> {
        let (key, value) = option.split_once('=').ok_or_else(|| Fault::NoValue(option.into()))?;
        let bad = |expected| Fault::BadValue { key: key.into(), value: value.into(), expected };
        match (key, &mut self.kind) {
            ("netns", _) if !value.is_empty() => self.netns = Some(value.into()),
            ("netns", _) => return Err(bad("the name of a network namespace")),
            ("mtu", _) => self.mtu = Some(parse_mtu(value).ok_or_else(|| bad(MTU_EXPECTED))?),
            ("queues", PortKind::Tap { queues, .. }) => {
                *queues = parse_queues(value).ok_or_else(|| bad(QUEUES_EXPECTED))?;
            }
            _ => return Err(Fault::UnknownOption { key: key.into(), port: self.to_string() }),
        }
        Ok(())
    }
}

/// Parses a port number: `1` to `4095`, or `local`.
fn parse_number(text: &str) -> Result<PortNo, Fault> {
    if text.eq_ignore_ascii_case("local") {
        return Ok(PortNo::LOCAL);
    }
    let number = text.parse().ok().filter(|number| (1..=MAX_PORT).contains(number));
    number.map(PortNo).ok_or_else(|| Fault::BadNumber(text.into()))
}

/// Parses an MTU: what IPv4 requires (RFC 791 §3.2) to what a tap device takes.
fn parse_mtu(text: &str) -> Option<u32> {
    text.parse().ok().filter(|mtu| (68..=MAX_MTU).contains(mtu))
}

fn parse_queues(text: &str) -> Option<NonZeroU16> {
    text.parse().ok().filter(|queues: &NonZeroU16| queues.get() <= MAX_QUEUES)
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            PortNo::LOCAL => f.write_str("local")?,
            number => write!(f, "{number}")?,
        }
        match &self.kind {
            PortKind::Tap { name, queues } if queues.get() > 1 => {
                write!(f, "=tap:{name},queues={queues}")?;
            }
            PortKind::Tap { name, .. } => write!(f, "=tap:{name}")?,
            PortKind::Netdev { name } => write!(f, "=netdev:{name}")?,
        }
        if let Some(netns) = &self.netns {
            write!(f, ",netns={netns}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, ",mtu={mtu}")?;
        }
        Ok(())
    }
}

impl FromStr for PortSpec {
    type Err = ParsePortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).map_err(|fault| ParsePortError { text: text.into(), fault })
    }
}

impl Serialize for PortSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a text does not describe a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port '{text}': {fault}")]
pub struct ParsePortError {
    text: String,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("expected NUMBER=tap:NAME or NUMBER=netdev:IFNAME, as in 1=tap:vm0")]
    NoNumber,
    #[error("'{0}' is not a port number; expected 1 to {MAX_PORT}, or local")]
    BadNumber(String),
    #[error("expected tap:NAME or netdev:IFNAME behind the number")]
    NoKind,
    #[error("'{0}' is no kind of port; expected tap or netdev")]
    UnknownKind(String),
    #[error("the name of the interface is missing")]
    NoName,
    #[error("option '{0}' has no value; expected KEY=VALUE")]
    NoValue(String),
    #[error("{key}={value}: expected {expected}")]
    BadValue { key: String, value: String, expected: &'static str },
    #[error("{port} has no option '{key}'; there are netns and mtu, and queues for tap")]
    UnknownOption { key: String, port: String },
}

const MTU_EXPECTED: &str = "a number of bytes from 68 to 65521";
const QUEUES_EXPECTED: &str = "a number of queues from 1 to 256";
/// Largest MTU of a tap device (Linux `tun_net_init`).
const MAX_MTU: u32 = 65_521;
/// Most queues of a tap device (Linux `MAX_TAP_QUEUES`).
const MAX_QUEUES: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<PortSpec>().unwrap_err().to_string()
    }

    #[test]
    fn a_port_survives_a_round_trip() {
        for text in [
            "1=tap:vm0",
            "2=tap:vm1,queues=4,netns=blue,mtu=9000",
            "3=netdev:eth1",
            "local=tap:br0",
            "4095=netdev:veth-a,netns=red",
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_name_the_place_and_what_was_expected() {
        assert!(error("tap:vm0").contains("expected NUMBER=tap:NAME"));
        assert!(error("0=tap:vm0").contains("'0' is not a port number; expected 1 to 4095"));
        assert!(error("1=veth:x").contains("'veth' is no kind of port"));
        assert!(error("1=tap:").contains("name of the interface is missing"));
        assert!(error("1=tap:a,mtu=12").contains("mtu=12: expected a number of bytes"));
        assert!(error("1=tap:a,queues=0").contains("queues=0: expected a number of queues"));
        assert!(error("1=netdev:a,queues=2").contains("no option 'queues'"));
        assert!(error("1=tap:a,colour").contains("option 'colour' has no value"));
    }
}
