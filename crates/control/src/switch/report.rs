//! Reports on a switch.

use tapswitch_openflow::PortNo;

use super::Switch;
use crate::{HostReport, MonitorPort, PortReport, PortRole, SwitchReport};

impl Switch {
    /// Report on the switch.
    pub(crate) fn report(&self) -> SwitchReport {
        SwitchReport {
            switch: self.id,
            is_connected: self.is_up() && !self.is_held(),
            is_silent: self.is_silent(),
            through: None,
            ports: self.port_reports().map(|(_, port)| port).collect(),
            hosts: self.hosts.count(),
            hosts_refused: self.hosts.refused(),
            address_conflicts: self.hosts.conflicts(),
            lldp_forged: 0,
            lldp_late: 0,
            lldp_foreign: 0,
            rules: self.held.rule_count(),
            groups: self.held.groups().count(),
            refusals: self.refusals,
            drifted: self.drifted,
        }
    }

    /// Reports on its ports.
    pub(super) fn port_reports(&self) -> impl Iterator<Item = (PortNo, PortReport)> {
        self.ports.iter().map(|(number, port)| {
            let (name, role) = (port.name.clone(), self.role(number));
            let report = PortReport { port: number.to_string(), name, is_up: port.is_up, role };
            (number, report)
        })
    }

    fn role(&self, port: PortNo) -> PortRole {
        if self.ports.is_sink(port) {
            PortRole::Monitor
        } else if self.wiring.links.contains(&port) {
            PortRole::Link
        } else if self.is_edge(port) {
            PortRole::Edge
        } else {
            PortRole::Closed
        }
    }

    /// Reports on its hosts.
    pub(crate) fn host_reports(&self) -> impl Iterator<Item = HostReport> {
        self.hosts.iter().map(|(key, host)| HostReport {
            switch: self.id,
            port: host.port.to_string(),
            port_name: self.port_name(host.port),
            mac: key.mac,
            vlan: key.vlan,
            inner_vlans: host.inner_vlans.clone(),
            addresses: host.all_addresses().collect(),
            unproven_addresses: host.sources.clone(),
        })
    }

    /// Report on a monitor's port.
    pub(crate) fn monitor_port(&self, port: PortNo) -> MonitorPort {
        MonitorPort { switch: self.id, port: port.0, name: self.port_name(port) }
    }

    fn port_name(&self, port: PortNo) -> String {
        if port == PortNo::CONTROLLER {
            return "controller".to_owned();
        }
        self.ports.name(port).unwrap_or_default().to_owned()
    }
}
