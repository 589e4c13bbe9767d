//! Monitors of a policy: by port number, port name, or host address.
//!
//! Text forms: `3`, `0x1/3`, `mon0`, `0x1/mon0`, `02:00:00:00:00:09`, `10.0.0.9`, `2001:db8::9`,
//! `controller`, `one-of:0x1/3+0x1/4`. A port is the most reliable form: addresses are learned from
//! hosts' claims, or from the source of their packets if nobody claims them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_wire::MacAddr;

use crate::exit::MAX_SPREAD;
use crate::text::{ParseTextError, as_text, parse_switch_name, switch_name};

/// Destination of copies, as named by a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MonitorSpec {
    /// A port by number.
    Port {
        /// Its switch; `None` if only one switch has such a port.
        switch: Option<DatapathId>,
        /// Its number.
        port: PortNo,
    },
    /// A port by name.
    Name {
        /// Its switch; `None` if only one switch has such a port.
        switch: Option<DatapathId>,
        /// Its name.
        name: String,
    },
    /// The controller itself, which displays the start of each copy.
    Controller,
    /// The port of the host with this MAC address.
    Mac(MacAddr),
    /// The port of the host with this IP address.
    Ip(IpAddr),
    /// Several ports, on one switch or several: each flow's copies go to one of them, the same for
    /// both directions; while that has no link, to the others.
    OneOf(Vec<Self>),
}

impl MonitorSpec {
    /// The switch that it names.
    pub const fn switch(&self) -> Option<DatapathId> {
        match self {
            Self::Port { switch, .. } | Self::Name { switch, .. } => *switch,
            Self::Controller | Self::Mac(_) | Self::Ip(_) | Self::OneOf(_) => None,
        }
    }

    /// The same port on this switch, if it names none.
    pub(crate) fn at(&self, id: DatapathId) -> Self {
        match self.clone() {
            Self::Port { switch: None, port } => Self::Port { switch: Some(id), port },
            Self::Name { switch: None, name } => Self::Name { switch: Some(id), name },
            other => other,
        }
    }

    /// Applies `each` to each port.
    pub(crate) fn map(&self, each: impl Fn(&Self) -> Self) -> Self {
        match self {
            Self::OneOf(members) => Self::OneOf(members.iter().map(each).collect()),
            one => each(one),
        }
    }

    /// Qualifies ports with their switches in `before`, where unambiguous.
    pub(crate) fn with_switches_of(&self, before: &[Self]) -> Self {
        self.map(|member| {
            let before = before.iter().flat_map(Self::members);
            let mut same = before.filter(|before| before.is_taken_for(member));
            let taken = same.next().filter(|_| same.next().is_none());
            taken.unwrap_or(member).clone()
        })
    }

    /// Whether it may denote `port`, being without a switch.
    fn is_taken_for(&self, port: &Self) -> bool {
        self.switch().is_some_and(|switch| port.at(switch) == *self)
    }

    /// Whether it names a port without a switch.
    pub(crate) const fn roams(&self) -> bool {
        matches!(self, Self::Port { switch: None, .. } | Self::Name { switch: None, .. })
    }

    /// The member with this number, from 1, of those that share flows; else itself.
    pub(crate) fn sharing(&self, share: u8) -> &Self {
        let index = usize::from(share).checked_sub(1);
        index.and_then(|index| self.members().get(index)).unwrap_or(self)
    }

    /// The members of a `one-of`, else itself.
    pub const fn members(&self) -> &[Self] {
        match self {
            Self::OneOf(members) => members.as_slice(),
            one => std::slice::from_ref(one),
        }
    }
}

/// The monitors of a policy, each of which gets a copy. In TOML and JSON a string, or a list of
/// strings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Monitors(Vec<MonitorSpec>);

impl Monitors {
    /// Monitors in this order; the policy's check validates their number.
    pub const fn new(monitors: Vec<MonitorSpec>) -> Self {
        Self(monitors)
    }

    /// The monitors.
    pub fn iter(&self) -> std::slice::Iter<'_, MonitorSpec> {
        self.0.iter()
    }

    /// Qualifies ports with their switches in `before`, where unambiguous.
    #[must_use]
    pub fn with_switches_of(&self, before: &Self) -> Self {
        self.map(|monitor| monitor.with_switches_of(&before.0))
    }

    /// Applies `each` to each monitor.
    pub(crate) fn map(&self, each: impl FnMut(&MonitorSpec) -> MonitorSpec) -> Self {
        Self(self.iter().map(each).collect())
    }

    /// Number of monitors.
    pub const fn count(&self) -> usize {
        self.0.len()
    }
}

impl<'a> IntoIterator for &'a Monitors {
    type Item = &'a MonitorSpec;
    type IntoIter = std::slice::Iter<'a, MonitorSpec>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<MonitorSpec> for Monitors {
    fn from(monitor: MonitorSpec) -> Self {
        Self(vec![monitor])
    }
}

impl fmt::Display for Monitors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, monitor) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{monitor}")?;
        }
        Ok(())
    }
}

impl Serialize for Monitors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &*self.0 {
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Monitors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MonitorsVisitor)
    }
}

struct MonitorsVisitor;

impl<'de> Visitor<'de> for MonitorsVisitor {
    type Value = Monitors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a monitor, or a list of monitors")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Monitors, E> {
        text.parse().map(|monitor: MonitorSpec| monitor.into()).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Monitors, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Monitors, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Monitors, A::Error> {
        let mut monitors = Vec::new();
        while let Some(monitor) = seq.next_element()? {
            monitors.push(monitor);
        }
        Ok(Monitors(monitors))
    }
}

impl FromStr for MonitorSpec {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(members) = text.strip_prefix(ONE_OF) {
            return one_of(text, members);
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        if let Ok(mac) = text.parse::<MacAddr>() {
            let is_host = mac.is_unicast();
            return is_host.then_some(Self::Mac(mac)).ok_or(ParseTextError::new(text, HOST_MAC));
        }
        if text == CONTROLLER {
            return Ok(Self::Controller);
        }
        let (switch, port) = match text.split_once('/') {
            Some((switch, port)) => (Some(parse_switch_name(switch)?), port),
            None => (None, text),
        };
        if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = port.parse().ok().map(PortNo).filter(|port| port.is_real());
            let port = number.ok_or_else(|| ParseTextError::new(text, PORT_NUMBER))?;
            return Ok(Self::Port { switch, port });
        }
        let is_name = (1..=MAX_PORT_NAME_LEN).contains(&port.len())
            && !port.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/');
        let name = || Self::Name { switch, name: port.to_owned() };
        is_name.then(name).ok_or_else(|| ParseTextError::new(text, EXPECTED))
    }
}

/// Parses several ports that share flows.
fn one_of(text: &str, members: &str) -> Result<MonitorSpec, ParseTextError> {
    let wrong = || ParseTextError::new(text, SEVERAL);
    let members = members.split(SEPARATOR).map(|member| match member.parse() {
        Ok(MonitorSpec::Controller | MonitorSpec::OneOf(_)) => Err(wrong()),
        other => other,
    });
    let members: Vec<MonitorSpec> = members.collect::<Result<_, _>>()?;
    let are_different = (1..)
        .zip(&members)
        .all(|(next, member)| members.get(next..).is_none_or(|others| !others.contains(member)));
    let is_sound = (2..=MAX_SPREAD).contains(&members.len()) && are_different;
    is_sound.then_some(MonitorSpec::OneOf(members)).ok_or_else(wrong)
}

impl fmt::Display for MonitorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut behind = |switch: &Option<DatapathId>, port: &dyn fmt::Display| match switch {
            Some(switch) => write!(f, "{}/{port}", switch_name(*switch)),
            None => write!(f, "{port}"),
        };
        match self {
            Self::Port { switch, port } => behind(switch, port),
            Self::Name { switch, name } => behind(switch, name),
            Self::Controller => f.write_str(CONTROLLER),
            Self::Mac(mac) => mac.fmt(f),
            Self::Ip(address) => address.fmt(f),
            Self::OneOf(members) => {
                let members: Vec<_> = members.iter().map(ToString::to_string).collect();
                write!(f, "{ONE_OF}{}", members.join(SEPARATOR))
            }
        }
    }
}

impl Serialize for MonitorSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for MonitorSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// Maximum bytes of a port name without the final zero (`OFP_MAX_PORT_NAME_LEN`).
const MAX_PORT_NAME_LEN: usize = 15;
const EXPECTED: &str = "a monitor: a port's number (3), a port with its switch (0x1/3), a port's \
                        name of at most 15 characters (mon0), a MAC or an IP address, or several \
                        ports among which flows are distributed (one-of:3+4)";
const PORT_NUMBER: &str = "a port's number from 1 to 4294967040";
const HOST_MAC: &str = "the MAC address of one host, not of a group";

const SEVERAL: &str =
    "two to eight different ports, among which flows are distributed (one-of:0x1/3+0x2/4)";

/// Prefix of [`MonitorSpec::OneOf`].
const ONE_OF: &str = "one-of:";
const SEPARATOR: &str = "+";

/// Text of [`MonitorSpec::Controller`].
const CONTROLLER: &str = "controller";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_name_a_monitor_survives_a_round_trip() {
        for text in [
            "3",
            "0x1/3",
            "mon0",
            "0xab/mon0",
            "02:00:00:00:00:09",
            "10.0.0.9",
            "2001:db8::9",
            "one-of:0x1/3+0x1/mon0",
        ] {
            let spec: MonitorSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
        let (switch, port) = (Some(DatapathId(1)), PortNo(3));
        assert_eq!("0x1/3".parse(), Ok(MonitorSpec::Port { switch, port }));
        assert_eq!("10.0.0.9".parse(), Ok(MonitorSpec::Ip([10, 0, 0, 9].into())));
    }

    #[test]
    fn what_names_no_monitor_is_refused() {
        for text in [
            "",
            "0",
            "4294967041",
            "99999999999",
            "a name",
            "sixteencharacter",
            "0x1/",
            "s1/3",
            "0x1/a/b",
            "01:00:5e:00:00:01",
            "one-of:",
            "one-of:3",
            "one-of:3+3",
            "one-of:3+controller",
            "one-of:3+one-of:4+5",
            "one-of:1+2+3+4+5+6+7+8+9",
        ] {
            assert!(text.parse::<MonitorSpec>().is_err(), "{text}");
        }
    }
}
