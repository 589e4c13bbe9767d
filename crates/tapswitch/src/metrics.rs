//! `tapswitch show metrics`: counters in the Prometheus text format 0.0.4.
//!
//! The process is queried over its management socket, as by the other `show` commands: ports and
//! frame accounting of a switch, ledgers of a controller's policies. Each output is complete, for
//! the textfile collector of the node exporter or a small script that serves it:
//!
//! `tapswitch show metrics > /var/lib/node-exporter/tapswitch.prom.new && mv ...`
//!
//! Counters start at zero with the process, as Prometheus expects.

use serde::Serialize;
use tapswitch_control::PolicyReport;
use tapswitch_controller::exposition::{Exposition, Kind, Labels};
use tapswitch_controller::metrics::put_policies;
use tapswitch_switch::report::{PauseReport, PortReport, SwitchReport, TrafficReport};

use crate::management::{AskArgs, AskError, Part, Request, Topic, ask};
use crate::table::print_json;

/// The data to export.
#[derive(Debug, Default, Serialize)]
struct Metrics {
    switch: Option<SwitchReport>,
    ports: Vec<PortReport>,
    policies: Vec<PolicyReport>,
}

/// Queries the process and prints the metrics.
pub(crate) fn main(args: &AskArgs) -> Result<(), AskError> {
    let socket = args.socket.as_deref();
    let mut metrics = Metrics::default();
    let parts: Vec<Part> = ask(socket, &Request::Parts)?;
    if parts.contains(&Part::Switch) {
        metrics.switch = Some(ask(socket, &Request::Show(Topic::Switch))?);
        metrics.ports = ask(socket, &Request::Show(Topic::Ports))?;
    }
    if parts.contains(&Part::Controller) {
        metrics.policies = ask(socket, &Request::Policies)?;
    }
    match args.json {
        true => print_json(&metrics),
        false => say!("{}", metrics.text().trim_end()),
    }
    Ok(())
}

impl Metrics {
    fn text(&self) -> String {
        let mut out = Exposition::default();
        self.put_ports(&mut out);
        self.put_pressure(&mut out);
        self.put_books(&mut out);
        put_policies(&mut out, &self.policies);
        out.into_text()
    }

    fn put_ports(&self, out: &mut Exposition) {
        let is_up = |port: &PortReport| u64::from(port.state == "up");
        self.put_of_ports(out, ("port_up", Kind::Gauge, "Whether the port is up."), is_up);
        self.put_traffic(out, "receive", |port| port.rx);
        self.put_traffic(out, "transmit", |port| port.tx);
        let help = "Frames consumed by the switch: for its controllers, at the ingress port, or to \
                    answer them, at the egress port.";
        let consumed = ("port_consumed_frames_total", Kind::Counter, help);
        self.put_of_ports(out, consumed, |port| port.consumed);
        let drops = self.ports.iter().flat_map(|port| {
            let labels = move || self.port_labels(port);
            port.drops.iter().map(move |(reason, count)| (labels().with("reason", reason), *count))
        });
        let help = "Frames that were dropped at the port, by reason.";
        out.put("port_dropped_frames_total", Kind::Counter, help, drops);
        self.put_losses(out);
    }

    /// Losses outside the switch: in tunnels, queueing disciplines and writes to disk.
    fn put_losses(&self, out: &mut Exposition) {
        let tunnels = || self.ports.iter().filter_map(|port| Some((port, port.tunnel.as_ref()?)));
        let refused = tunnels().flat_map(|(port, tunnel)| {
            let labels = move || self.port_labels(port);
            let refused = tunnel.refused.iter();
            refused.map(move |(reason, count)| (labels().with("reason", reason), *count))
        });
        let name = "port_tunnel_refused_datagrams_total";
        out.put(name, Kind::Counter, TUNNEL_REFUSED, refused);
        let unreachable =
            tunnels().map(|(port, tunnel)| (self.port_labels(port), tunnel.unreachable));
        out.put("port_tunnel_unreachable_total", Kind::Counter, UNREACHABLE, unreachable);
        let shed = self.ports.iter().filter_map(|port| {
            let ring = port.ring.as_ref().map(|ring| ring.shed);
            let shed = port.queueing.as_ref().map(|queueing| queueing.shed).or(ring)?;
            Some((self.port_labels(port), shed))
        });
        out.put("port_shed_packets_total", Kind::Counter, SHED, shed);
        let lost = self.ports.iter().filter_map(|port| {
            let file = port.file.as_ref()?;
            Some((self.port_labels(port), file.lost))
        });
        out.put("port_file_lost_packets_total", Kind::Counter, FILE_LOST, lost);
    }

    fn put_traffic(
        &self,
        out: &mut Exposition,
        way: &str,
        traffic: impl Fn(&PortReport) -> TrafficReport,
    ) {
        let units: [Told<TrafficReport, u64>; 3] = [
            (("frames", Kind::Counter, "Frames; a train counts as one."), |traffic| traffic.frames),
            (
                ("packets", Kind::Counter, "Packets on the wire; each packet of a train counts."),
                |traffic| traffic.packets,
            ),
            (("bytes", Kind::Counter, "Bytes of the frames."), |traffic| traffic.bytes),
        ];
        for ((unit, kind, help), value) in units {
            let name = format!("port_{way}_{unit}_total");
            self.put_of_ports(out, (&name, kind, help), |port| value(&traffic(port)));
        }
    }

    /// Frames waiting for ports, and pauses between ports.
    fn put_pressure(&self, out: &mut Exposition) {
        let (gauge, counter) = (Kind::Gauge, Kind::Counter);
        let families: [Told<PortReport, u64>; 6] = [
            (("port_queued_frames", gauge, "Frames that wait to be sent by the port."), |port| {
                port.pressure.queued.frames
            }),
            (("port_queued_bytes", gauge, "Bytes of the frames that wait."), |port| {
                port.pressure.queued.bytes
            }),
            (("port_read_ahead_frames", gauge, READ_AHEAD), |port| port.pressure.ahead.frames),
            (("port_read_ahead_bytes", gauge, "Bytes of those frames."), |port| {
                port.pressure.ahead.bytes
            }),
            (("port_stalls_total", counter, STALLS), |port| port.pressure.stalls),
            (("port_marked_frames_total", counter, MARKED), |port| port.pressure.marked),
        ];
        families.into_iter().for_each(|(family, value)| self.put_of_ports(out, family, value));
        let families: [Told<PauseReport, f64>; 3] = [
            (("port_pauses_total", counter, PAUSES), |pause| exact(pause.count)),
            (("port_pause_seconds_total", counter, PAUSED), |pause| exact(pause.total_us) / 1e6),
            (("port_paused_queues", gauge, PAUSED_NOW), |pause| pause.now.into()),
        ];
        families.into_iter().for_each(|(family, value)| self.put_pauses(out, family, value));
    }

    fn put_of_ports(
        &self,
        out: &mut Exposition,
        (name, kind, help): Family<'_>,
        value: impl Fn(&PortReport) -> u64,
    ) {
        let samples = self.ports.iter().map(|port| (self.port_labels(port), value(port)));
        out.put(name, kind, help, samples);
    }

    /// Pauses by the port that waits.
    fn put_pauses(
        &self,
        out: &mut Exposition,
        (name, kind, help): Family<'_>,
        value: fn(&PauseReport) -> f64,
    ) {
        let samples = self.ports.iter().flat_map(|port| {
            let labels = |other: &str| self.port_labels(port).with("waiting_port", other);
            let pauses = port.pressure.holds_up.iter();
            pauses.map(move |pause| (labels(&pause.port), value(pause)))
        });
        out.put(name, kind, help, samples);
    }

    /// Whether every received frame is accounted for.
    fn put_books(&self, out: &mut Exposition) {
        let samples = self
            .switch
            .iter()
            .map(|switch| (Labels::new("bridge", &switch.name), switch.books.unaccounted()));
        let help = "Frames received and not accounted for; zero while no frames pass.";
        out.put("switch_unaccounted_frames", Kind::Gauge, help, samples);
    }

    fn port_labels(&self, port: &PortReport) -> Labels {
        let bridge = self.switch.as_ref().map_or("", |switch| &switch.name);
        Labels::new("bridge", bridge).with("port", &port.port).with("interface", &port.name)
    }
}

/// Name, type and help of a metric family.
type Family<'a> = (&'a str, Kind, &'a str);

/// A family, and how to get its value.
type Told<T, V> = (Family<'static>, fn(&T) -> V);

const TUNNEL_REFUSED: &str = "Datagrams that the tunnel received and refused, by reason.";
const UNREACHABLE: &str = "ICMP errors from the tunnel's path: port or host unreachable.";
const SHED: &str = "Packets that the port's queueing discipline dropped, from any sender.";
const FILE_LOST: &str = "Packets that the port accepted and that are in no file.";
const READ_AHEAD: &str =
    "Frames received here that were read ahead while the port waits for another one.";
const STALLS: &str = "Times that the port accepted nothing for longer than others wait for it.";
const MARKED: &str = "Frames received here that were ECN-marked because they waited too long.";
const PAUSES: &str = "Times that another port had to wait for this one.";
const PAUSED: &str = "Total seconds that other ports had to wait for this one.";
const PAUSED_NOW: &str = "Queues of other ports that are waiting for this one.";

/// Converts a count to the type of Prometheus: exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn exact(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use tapswitch_control::{Copied, Counts, MonitorPort, PolicyState, TapPolicy};
    use tapswitch_switch::DatapathId;
    use tapswitch_switch::report::{FileReport, PressureReport, QueueingReport, TunnelReport};

    use super::*;

    fn port(number: &str) -> PortReport {
        PortReport {
            port: number.to_owned(),
            name: "p".to_owned(),
            kind: String::new(),
            netns: None,
            mac: String::new(),
            state: "up".to_owned(),
            mtu: 1500,
            envelope: 0,
            mode: None,
            oversize: None,
            steered: Vec::new(),
            queues: 1,
            offloads: String::new(),
            guest: None,
            ring: None,
            queueing: None,
            tunnel: None,
            file: None,
            rx: TrafficReport::default(),
            tx: TrafficReport::default(),
            drops: [].into(),
            consumed: 0,
            pressure: PressureReport::default(),
        }
    }

    #[test]
    fn what_is_lost_beside_the_switch_is_told() {
        let refused = [("wrong_vni".to_owned(), 3)].into();
        let tunnel = Some(TunnelReport { refused, unreachable: 4, ..TunnelReport::default() });
        let queueing = Some(QueueingReport { qdisc: "tbf".to_owned(), waiting: 1, shed: 5 });
        let file = Some(FileReport { lost: 6, ..FileReport::default() });
        let ports =
            vec![PortReport { tunnel, queueing, ..port("1") }, PortReport { file, ..port("2") }];
        let text = Metrics { ports, ..Metrics::default() }.text();
        for line in [
            "port_tunnel_refused_datagrams_total{bridge=\"\",port=\"1\",interface=\"p\",\
             reason=\"wrong_vni\"} 3",
            r#"port_tunnel_unreachable_total{bridge="",port="1",interface="p"} 4"#,
            r#"port_shed_packets_total{bridge="",port="1",interface="p"} 5"#,
            r#"port_file_lost_packets_total{bridge="",port="2",interface="p"} 6"#,
        ] {
            let line = format!("tapswitch_{line}");
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_policys_ledger_is_told_by_monitor_and_reason() {
        let counts = |packets| Counts { packets, bytes: packets * 100 };
        let copied = Copied {
            monitor: MonitorPort { switch: DatapathId(1), port: 3, name: "mon0".into() },
            counts: counts(10),
            delivered: counts(7),
            flooded: 0,
            in_flight: 1,
            dropped: [("egress_full".to_owned(), 2)].into(),
        };
        let report = PolicyReport {
            number: 1,
            policy: TapPolicy::new("a \"quoted\" one", "3".parse().unwrap()),
            state: PolicyState::Active,
            monitor: None,
            monitors: Vec::new(),
            matched: counts(10),
            copied: vec![copied],
            adds_up: true,
            is_complete: true,
            notes: Vec::new(),
        };
        let text = Metrics { policies: vec![report], ..Metrics::default() }.text();
        let policy = r#"policy="a \"quoted\" one""#;
        let port = r#"switch="0x1",port="3",interface="mon0""#;
        for line in [
            "# TYPE tapswitch_policy_matched_packets_total counter".to_owned(),
            format!("tapswitch_policy_matched_packets_total{{{policy}}} 10"),
            format!("tapswitch_policy_adds_up{{{policy}}} 1"),
            format!("tapswitch_policy_delivered_bytes_total{{{policy},{port}}} 700"),
            "# TYPE tapswitch_policy_in_flight_packets gauge".to_owned(),
            format!("tapswitch_policy_in_flight_packets{{{policy},{port}}} 1"),
            format!(
                "tapswitch_policy_dropped_packets_total{{{policy},{port},reason=\"egress_full\"}} 2"
            ),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        assert!(!text.contains("tapswitch_port"), "this process has no switch");
    }
}
