//! A limit on everything that grows with what others send.

use crate::Millis;

/// The limits, and the waits. The defaults are for a switch with some hundreds of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Switches that are remembered. When another one connects, one that is not connected is
    /// forgotten; those that are connected are kept however many they are.
    pub max_switches: usize,
    /// Ports of one switch that are remembered.
    pub max_ports: usize,
    /// Hosts of one switch that are remembered; more are forwarded by flooding.
    pub max_hosts: usize,
    /// Hosts behind one port, so that forged addresses from one port leave room for the others.
    pub max_hosts_per_port: usize,
    /// IP addresses of one host.
    pub max_addresses: usize,
    /// Policies.
    pub max_policies: usize,
    /// Regions of one switch: matches of policies and of their overlaps.
    pub max_regions: usize,
    /// Rules of one switch that TAPs need: regions, times the hosts that each reaches.
    pub max_tap_rules: usize,
    /// How often counters are asked for while TAPs are active; `None` for only on request.
    pub stats_interval: Option<Millis>,
    /// How long a switch may take to tell what it holds.
    pub read_back_wait: Millis,
    /// How long the last counters of deleted rules are waited for.
    pub final_counts_wait: Millis,
    /// How often a group that no rule uses is asked whether its last copies still wait.
    pub waiting_interval: Millis,
    /// How long after a rule was deleted by somebody else the switch is read again.
    pub repair_delay: Millis,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_switches: 1024,
            max_ports: 4096,
            max_hosts: 8192,
            max_hosts_per_port: 4096,
            max_addresses: 16,
            max_policies: 4096,
            max_regions: 4096,
            max_tap_rules: 65_536,
            stats_interval: Some(Millis(5000)),
            read_back_wait: Millis(30_000),
            final_counts_wait: Millis(2000),
            waiting_interval: Millis(50),
            repair_delay: Millis(1000),
        }
    }
}
