//! Ports of one switch.

use std::collections::BTreeMap;

use tapswitch_openflow::{Port, PortConfig, PortNo, PortReason, PortState, PortStatus};

/// State of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortInfo {
    /// The switch declares that the port sends no S-tags, which copies have between switches.
    pub(crate) refuses_tags: bool,
    pub(crate) name: String,
    /// Neither administratively down nor without a link.
    pub(crate) is_up: bool,
    /// For copies only: the switch declares that the port takes no floods (OpenFlow 1.3.5 §7.2.1).
    pub(crate) is_sink: bool,
}

impl From<&Port> for PortInfo {
    fn from(port: &Port) -> Self {
        let is_down = port.config.contains(PortConfig::PORT_DOWN)
            || port.state.contains(PortState::LINK_DOWN);
        let is_sink = port.state.contains(PortState::BLOCKED);
        let refuses_tags = port.state.contains(PortState::NO_SERVICE_TAGS);
        Self { name: port.name.to_string(), is_up: !is_down, is_sink, refuses_tags }
    }
}

/// All ports of one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports {
    by_number: BTreeMap<PortNo, PortInfo>,
    /// Names of removed ports, whose copies are still in ledgers.
    former_names: BTreeMap<PortNo, String>,
}

impl Ports {
    /// Replaces all ports. Returns those that are no longer up.
    pub(crate) fn handle_description(&mut self, ports: &[Port], max: usize) -> Vec<PortNo> {
        let new = ports.iter().filter(|port| is_usable(port.port_no)).take(max);
        let new = new.map(|port| (port.port_no, PortInfo::from(port))).collect();
        let old = std::mem::replace(&mut self.by_number, new);
        let mut no_longer_up = Vec::new();
        for (number, info) in old {
            if info.is_up && !self.is_up(number) {
                no_longer_up.push(number);
            }
            self.remember(number, info.name, max);
        }
        no_longer_up
    }

    /// A port was added, removed or changed. Returns whether it is no longer up.
    pub(crate) fn handle_status(&mut self, status: &PortStatus, max: usize) -> bool {
        let number = status.desc.port_no;
        let was_up = self.is_up(number);
        if status.reason == PortReason::DELETE {
            if let Some(info) = self.by_number.remove(&number) {
                self.remember(number, info.name, max);
            }
        } else if is_usable(number)
            && (self.by_number.len() < max || self.by_number.contains_key(&number))
        {
            self.by_number.insert(number, PortInfo::from(&status.desc));
        }
        was_up && !self.is_up(number)
    }

    fn remember(&mut self, number: PortNo, name: String, max: usize) {
        if self.former_names.len() < max || self.former_names.contains_key(&number) {
            self.former_names.insert(number, name);
        }
    }

    /// Current or former name of a port.
    pub(crate) fn name(&self, number: PortNo) -> Option<&str> {
        let now = self.find(number).map(|port| &port.name);
        now.or_else(|| self.former_names.get(&number)).map(String::as_str)
    }

    /// State of a port.
    pub(crate) fn find(&self, number: PortNo) -> Option<&PortInfo> {
        self.by_number.get(&number)
    }

    /// Whether the port exists and is up.
    pub(crate) fn is_up(&self, number: PortNo) -> bool {
        self.find(number).is_some_and(|port| port.is_up)
    }

    /// Whether the port takes copies only.
    pub(crate) fn is_sink(&self, number: PortNo) -> bool {
        self.find(number).is_some_and(|port| port.is_sink)
    }

    /// Ports that take copies only.
    pub(crate) fn sinks(&self) -> impl Iterator<Item = PortNo> {
        self.iter().filter(|(_, port)| port.is_sink).map(|(number, _)| number)
    }

    /// All ports ordered by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PortNo, &PortInfo)> {
        self.by_number.iter().map(|(number, info)| (*number, info))
    }

    /// Ports with this name.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = PortNo> {
        self.iter().filter(move |(_, info)| info.name == name).map(|(number, _)| number)
    }

    /// Whether tagged copies cannot be sent from the port.
    pub(crate) fn refuses_tags(&self, number: PortNo) -> bool {
        self.find(number).is_some_and(|port| port.refuses_tags)
    }
}

/// Whether frames can come from the port: a real port or LOCAL.
fn is_usable(number: PortNo) -> bool {
    number.is_real() || number == PortNo::LOCAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_wire::MacAddr;

    fn port(number: u32, state: PortState) -> Port {
        Port::new(PortNo(number), MacAddr::ZERO, &format!("p{number}"), state)
    }

    fn status(reason: PortReason, desc: Port) -> PortStatus {
        PortStatus { reason, desc }
    }

    #[test]
    fn a_port_that_goes_or_loses_its_link_is_told() {
        let mut ports = Ports::default();
        let up = |number| port(number, PortState::LIVE);
        assert_eq!(ports.handle_description(&[up(1), up(2), up(0)], 9), []);
        assert_eq!((ports.iter().count(), ports.named("p2").next()), (2, Some(PortNo(2))));
        let down = status(PortReason::MODIFY, port(1, PortState::LINK_DOWN));
        assert!(ports.handle_status(&down, 9) && !ports.handle_status(&down, 9));
        assert!(ports.find(PortNo(1)).is_some() && !ports.is_up(PortNo(1)));
        assert!(ports.handle_status(&status(PortReason::DELETE, up(2)), 9));
        ports.handle_status(&status(PortReason::MODIFY, up(1)), 9);
        assert_eq!(ports.handle_description(&[up(3)], 9), [PortNo(1)]);
    }

    #[test]
    fn a_port_that_takes_no_floods_is_for_copies() {
        let mut ports = Ports::default();
        let sink = |number| port(number, PortState::LIVE | PortState::BLOCKED);
        ports.handle_description(&[port(1, PortState::LIVE), sink(2)], 9);
        assert!(ports.sinks().eq([PortNo(2)]) && ports.is_up(PortNo(2)));
        assert!(!ports.handle_status(&status(PortReason::MODIFY, sink(1)), 9));
        assert!(ports.is_sink(PortNo(1)) && !ports.is_sink(PortNo(9)));
    }

    #[test]
    fn a_port_that_is_gone_keeps_its_name_until_another_has_its_number() {
        let (mut ports, live) = (Ports::default(), PortState::LIVE);
        ports.handle_description(&[port(1, live), port(2, live)], 9);
        ports.handle_status(&status(PortReason::DELETE, port(1, live)), 9);
        assert!(ports.find(PortNo(1)).is_none());
        assert_eq!((ports.name(PortNo(1)), ports.name(PortNo(3))), (Some("p1"), None));
        ports.handle_description(&[], 9);
        assert_eq!(ports.name(PortNo(2)), Some("p2"));
        let other = Port { name: port(7, live).name, ..port(1, live) };
        ports.handle_status(&status(PortReason::ADD, other), 9);
        assert_eq!(ports.name(PortNo(1)), Some("p7"));
        assert_eq!(ports.named("p2").next(), None, "nothing goes there");
    }

    #[test]
    fn there_are_so_many_ports_only() {
        let mut ports = Ports::default();
        for number in 1..9 {
            ports.handle_status(&status(PortReason::ADD, port(number, PortState::LIVE)), 3);
        }
        assert_eq!(ports.iter().count(), 3);
    }
}
