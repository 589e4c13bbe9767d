//! Prometheus metrics of a controller.

use tapswitch_control::{Copied, PolicyReport, PolicyState, SwitchReport};

use crate::exposition::{Exposition, Kind, Labels};

/// Metrics of policies, and of their copies by monitor.
pub fn put_policies(out: &mut Exposition, policies: &[PolicyReport]) {
    let mut put = |name, kind, help, value: fn(&PolicyReport) -> u64| {
        out.put(name, kind, help, policies.iter().map(|report| (labels(report), value(report))));
    };
    let help = "Whether copies are made for at least one of the policy's monitors.";
    put("policy_active", Kind::Gauge, help, |report| {
        let is_made = matches!(report.state, PolicyState::Active | PolicyState::Partial { .. });
        u64::from(is_made)
    });
    let help = "Packets on the wire that matched; Open vSwitch counts a train as one.";
    put("policy_matched_packets_total", Kind::Counter, help, |report| report.matched.packets);
    put("policy_matched_bytes_total", Kind::Counter, "Their bytes.", |report| report.matched.bytes);
    let help = "Whether each packet that matched is accounted for; exact while none pass.";
    put("policy_adds_up", Kind::Gauge, help, |report| u64::from(report.adds_up));
    let help = "Whether no counters were lost with a switch or started unknown.";
    put("policy_complete", Kind::Gauge, help, |report| u64::from(report.is_complete));
    let states =
        policies.iter().map(|report| (labels(report).with("state", report.state.name()), 1));
    out.put("policy_state", Kind::Gauge, "State of the policy: 1 for the current one.", states);
    put_copies(out, policies);
}

/// Outcome of copies by monitor.
fn put_copies(out: &mut Exposition, policies: &[PolicyReport]) {
    let copies = || {
        policies.iter().flat_map(|report| report.copied.iter().map(move |copied| (report, copied)))
    };
    let mut put = |name, kind, help, value: fn(&Copied) -> u64| {
        let samples = copies().map(|(report, copied)| (copy_labels(report, copied), value(copied)));
        out.put(name, kind, help, samples);
    };
    let help = "Packets that the monitor's port accepted; for a file, that were written.";
    put("policy_delivered_packets_total", Kind::Counter, help, |to| to.delivered.packets);
    let help = "Their bytes.";
    put("policy_delivered_bytes_total", Kind::Counter, help, |to| to.delivered.bytes);
    let help = "Packets that were flooded to several ports, the monitor's among them.";
    put("policy_flooded_packets_total", Kind::Counter, help, |to| to.flooded);
    let help = "Packets that wait for the monitor's port, or for its disk.";
    put("policy_in_flight_packets", Kind::Gauge, help, |to| to.in_flight);
    let drops = copies().flat_map(|(report, copied)| {
        let labels = move |reason| copy_labels(report, copied).with("reason", reason);
        copied.dropped.iter().map(move |(reason, count)| (labels(reason), *count))
    });
    let help = "Packets that were dropped, by reason.";
    out.put("policy_dropped_packets_total", Kind::Counter, help, drops);
}

/// Metrics of switches by datapath id.
pub(crate) fn put_switches(out: &mut Exposition, switches: &[SwitchReport]) {
    let mut put = |name, kind, help, value: fn(&SwitchReport) -> u64| {
        let labels =
            |report: &SwitchReport| Labels::new("switch", &format!("{:#x}", report.switch.0));
        out.put(name, kind, help, switches.iter().map(|report| (labels(report), value(report))));
    };
    let (gauge, counter) = (Kind::Gauge, Kind::Counter);
    let help = "Whether the switch is connected and controlled.";
    put("controller_switch_connected", gauge, help, |report| u64::from(report.is_connected));
    let help = "Whether it failed to report its counters in time, so that older values are used.";
    put("controller_switch_silent", gauge, help, |report| u64::from(report.is_silent));
    let help = "Known hosts at the switch.";
    put("controller_hosts", gauge, help, |report| report.hosts as u64);
    put("controller_rules", gauge, "Rules of this controller at the switch.", |report| {
        report.rules as u64
    });
    put("controller_groups", gauge, "Groups of this controller at the switch.", |report| {
        report.groups as u64
    });
    let help = "Rules and groups of this controller that the switch refused.";
    put("controller_refusals_total", counter, help, |report| report.refusals);
    let help = "Rules and groups that differed from what was installed, and were restored.";
    put("controller_drifted_total", counter, help, |report| report.drifted);
    let help = "Times that a host or an address did not fit among those known.";
    put("controller_hosts_refused_total", counter, help, |report| report.hosts_refused);
    let help = "Times that a host claimed the address of another.";
    put("controller_address_conflicts_total", counter, help, |report| report.address_conflicts);
    let help = "LLDP frames with this controller's ID that were forged or replayed.";
    put("controller_lldp_forged_total", counter, help, |report| report.lldp_forged);
    let help = "LLDP frames of this controller that arrived too late to prove a link.";
    put("controller_lldp_late_total", counter, help, |report| report.lldp_late);
}

fn labels(report: &PolicyReport) -> Labels {
    Labels::new("policy", &report.policy.name)
}

fn copy_labels(report: &PolicyReport, copied: &Copied) -> Labels {
    let port = &copied.monitor;
    let labels = labels(report).with("switch", &format!("{:#x}", port.switch.0));
    labels.with("port", &port.port.to_string()).with("interface", &port.name)
}

#[cfg(test)]
mod tests {
    use tapswitch_control::{Counts, TapPolicy};

    use super::*;

    #[test]
    fn a_policy_that_reaches_some_of_its_monitors_is_active() {
        let reason = || "1 of 2".to_owned();
        let cases = [
            (PolicyState::Active, "active", 1),
            (PolicyState::Partial { reason: reason() }, "partial", 1),
            (PolicyState::Pending { reason: reason() }, "pending", 0),
            (PolicyState::Failed { reason: reason() }, "failed", 0),
        ];
        for (state, name, is_active) in cases {
            let mut out = Exposition::default();
            put_policies(&mut out, &[report(state)]);
            let text = out.into_text();
            for line in [
                format!("tapswitch_policy_active{{policy=\"p\"}} {is_active}"),
                format!("tapswitch_policy_state{{policy=\"p\",state=\"{name}\"}} 1"),
            ] {
                assert!(text.lines().any(|told| told == line), "{line}: {text}");
            }
        }
    }

    fn report(state: PolicyState) -> PolicyReport {
        PolicyReport {
            number: 1,
            policy: TapPolicy::new("p", "3".parse().unwrap()),
            state,
            monitor: None,
            monitors: Vec::new(),
            matched: Counts::ZERO,
            copied: Vec::new(),
            adds_up: true,
            is_complete: true,
            notes: Vec::new(),
        }
    }
}
