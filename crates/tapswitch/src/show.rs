//! `tapswitch show`: state of a running switch or controller, as a table or as JSON.

mod files;
mod meters;
mod rings;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tapswitch_control::{HostReport, LinkReport, MonitorPort, SwitchReport as ConnectedSwitch};
use tapswitch_controller::{ClusterReport, ClusterRole};
use tapswitch_switch::report::{
    BooksReport, BucketReport, CountReport, DropReport, FlowReport, GroupReport, GuestReport,
    MeterReport, PortReport, SwitchReport, TapReport, TunnelReport, WorkerReport,
};

use crate::management::{AskArgs, AskError, Request, Topic, ask};
use crate::table::{drops_text, grouped, print, print_json, table};

#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// What to show.
    pub(crate) what: ShowWhat,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowWhat {
    /// The switch as a whole, and its controllers.
    Switch,
    /// Ports: state, traffic, drops.
    Ports,
    /// Rules of all tables.
    Flows,
    /// Groups and their buckets.
    Groups,
    /// Meters and their bands: measured, dropped and marked packets.
    Meters,
    /// Workers: frames read, and how their programs were found.
    Workers,
    /// All drops, by port and reason.
    Drops,
    /// TAPs: matched, delivered and dropped copies.
    Taps,
    /// Hosts that the controller has learned.
    Hosts,
    /// Switches connected to the controller.
    Switches,
    /// Links between switches that the controller has discovered.
    Links,
    /// Role of the controller among those that share its store, and the leader.
    Controller,
    /// Counters of ports and TAPs in Prometheus text format.
    Metrics,
}

/// Queries the process and prints the answer.
pub(crate) fn main(args: &ShowArgs) -> Result<(), AskError> {
    let ask = &args.ask;
    match args.what {
        ShowWhat::Switch => show(ask, Topic::Switch, |report: &SwitchReport| switch(report)),
        ShowWhat::Ports => show(ask, Topic::Ports, |report: &Vec<PortReport>| ports(report)),
        ShowWhat::Flows => show(ask, Topic::Flows, |report: &Vec<FlowReport>| flows(report)),
        ShowWhat::Groups => show(ask, Topic::Groups, |report: &Vec<GroupReport>| groups(report)),
        ShowWhat::Meters => {
            show(ask, Topic::Meters, |report: &Vec<MeterReport>| meters::meters(report))
        }
        ShowWhat::Workers => {
            show(ask, Topic::Workers, |report: &Vec<WorkerReport>| workers(report))
        }
        ShowWhat::Drops => show(ask, Topic::Drops, |report: &Vec<DropReport>| drops(report)),
        ShowWhat::Taps => show(ask, Topic::Taps, |report: &Vec<TapReport>| taps(report)),
        ShowWhat::Hosts => show(ask, Topic::Hosts, |report: &Vec<HostReport>| hosts(report)),
        ShowWhat::Metrics => crate::metrics::main(ask),
        ShowWhat::Switches => {
            show(ask, Topic::Switches, |report: &Vec<ConnectedSwitch>| switches(report))
        }
        ShowWhat::Links => show(ask, Topic::Links, |report: &Vec<LinkReport>| links(report)),
        ShowWhat::Controller => {
            show(ask, Topic::Controller, |report: &ClusterReport| controller(report))
        }
    }
}

fn show<T: DeserializeOwned + Serialize>(
    args: &AskArgs,
    topic: Topic,
    print: impl FnOnce(&T),
) -> Result<(), AskError> {
    let report: T = ask(args.socket.as_deref(), &Request::Show(topic))?;
    if args.json {
        print_json(&report);
    } else {
        print(&report);
    }
    Ok(())
}

fn switch(report: &SwitchReport) {
    let mut rows = table(&["SWITCH", "DATAPATH", "FAIL-MODE", "FORWARDS BY", "STATIONS "]);
    let mode = if report.standalone { "learning (no controller)" } else { "rules" };
    rows.add_row([
        report.name.clone(),
        report.datapath_id.to_string(),
        report.fail_mode.clone(),
        mode.to_owned(),
        report.stations.to_string(),
    ]);
    print(&rows, "");
    books(&report.books);
    let mut rows = table(&["CONTROLLER", "STATE"]);
    for controller in &report.controllers {
        let state = if controller.connected { "connected" } else { "not connected" };
        rows.add_row([controller.endpoint.as_str(), state]);
    }
    print(&rows, "no controllers");
}

/// Prints the accounting of all frames: each received frame has exactly one outcome.
fn books(books: &BooksReport) {
    let mut rows = table(&[
        "RECEIVED ",
        "+ COPIED ",
        "+ INJECTED ",
        "= SENT ",
        "+ CONSUMED ",
        "+ DROPPED ",
        "+ QUEUED ",
        "+ READ AHEAD ",
        "+ UNDER WAY ",
    ]);
    let BooksReport { received, copied, injected, sent, consumed, dropped, queued, ahead } = *books;
    let counts = [received, copied, injected, sent, consumed, dropped, queued, ahead].map(grouped);
    let under_way = books.unaccounted().to_string();
    rows.add_row(counts.into_iter().chain([under_way]).collect::<Vec<_>>());
    print(&rows, "");
}

fn ports(reports: &[PortReport]) {
    let mut rows = table(&[
        "PORT ",
        "NAME",
        "KIND",
        "NETNS",
        "STATE",
        "MTU+TAGS ",
        "VLANS",
        "QUEUES ",
        "STEERED",
        "RX FRAMES ",
        "RX PACKETS ",
        "RX BYTES ",
        "TX FRAMES ",
        "TX PACKETS ",
        "TX BYTES ",
        "QUEUED ",
        "DROPS",
        "OFFLOADS",
    ]);
    for port in reports {
        rows.add_row([
            port.port.clone(),
            port.name.clone(),
            port.kind.clone(),
            port.netns.clone().unwrap_or_else(|| "-".to_owned()),
            port.state.clone(),
            format!("{}+{}", port.mtu, port.envelope),
            port.mode.clone().unwrap_or_else(|| "-".to_owned()),
            port.queues.to_string(),
            steered_text(&port.steered),
            grouped(port.rx.frames),
            grouped(port.rx.packets),
            grouped(port.rx.bytes),
            grouped(port.tx.frames),
            grouped(port.tx.packets),
            grouped(port.tx.bytes),
            grouped(port.pressure.queued.frames),
            drops_text(&port.drops),
            port.offloads.clone(),
        ]);
    }
    print(&rows, "no ports");
    rings::rings(reports);
    rings::queueing(reports);
    guests(reports);
    pauses(reports);
    tunnels(reports);
    files::files(reports);
    for port in reports {
        if let Some(remedy) = port.oversize_remedy() {
            say!("port {}: {remedy}", port.port);
        }
    }
}

/// Prints which ports waited for which, if any did.
fn pauses(reports: &[PortReport]) {
    let columns = [
        "PORT ",
        "WAITED FOR ",
        "TIMES ",
        "IN ALL ",
        "QUEUES NOW ",
        "READ AHEAD ",
        "STALLED ",
        "MARKED ",
    ];
    let mut rows = table(&columns);
    let mut is_empty = true;
    for port in reports {
        for pause in &port.pressure.waits_for {
            is_empty = false;
            let culprit = reports.iter().find(|other| other.port == pause.port);
            rows.add_row([
                port.port.clone(),
                pause.port.clone(),
                grouped(pause.count),
                format!("{:?}", Duration::from_micros(pause.total_us)),
                pause.now.to_string(),
                read_ahead(port.pressure.ahead),
                culprit.map_or(0, |port| port.pressure.stalls).to_string(),
                grouped(port.pressure.marked),
            ]);
        }
    }
    if !is_empty {
        say!();
        print(&rows, "");
    }
}

/// What a port has read ahead, if anything.
fn read_ahead(ahead: CountReport) -> String {
    match ahead.frames {
        0 => "-".to_owned(),
        frames => format!("{} ({} bytes)", grouped(frames), grouped(ahead.bytes)),
    }
}

/// Prints the guests of vhost ports, if there are any.
fn guests(reports: &[PortReport]) {
    let guests: Vec<_> = reports
        .iter()
        .filter_map(|port| Some((port.port.as_str(), port.guest.as_ref()?)))
        .collect();
    if guests.is_empty() {
        return;
    }
    let mut rows = table(&[
        "PORT ",
        "GUEST",
        "SOCKET",
        "QUEUES ",
        "RINGS",
        "SESSIONS ",
        "RESETS ",
        "FEATURES",
    ]);
    for (port, guest) in &guests {
        rows.add_row(guest_row(port, guest));
    }
    say!();
    print(&rows, "");
    for (port, guest) in guests {
        guest_troubles(guest).for_each(|trouble| say!("port {port}: {trouble}"));
    }
}

fn guest_row(port: &str, guest: &GuestReport) -> [String; 8] {
    let features = guest.feature_names.join(" ");
    [
        port.to_owned(),
        guest.state.clone(),
        guest.socket.clone(),
        guest.queues.to_string(),
        guest.rings.clone().unwrap_or_else(|| "-".to_owned()),
        grouped(guest.sessions),
        grouped(guest.resets),
        if features.is_empty() { "-".to_owned() } else { features },
    ]
}

fn guest_troubles(guest: &GuestReport) -> impl Iterator<Item = String> {
    let reset = guest.last_reset.as_ref().map(|why| format!("last reset: {why}"));
    guest.warning.clone().into_iter().chain(reset)
}

/// Prints the tunnels, if there are any.
fn tunnels(reports: &[PortReport]) {
    let tunnels: Vec<_> = reports
        .iter()
        .filter_map(|port| Some((port.port.as_str(), port.tunnel.as_ref()?)))
        .collect();
    if tunnels.is_empty() {
        return;
    }
    let mut rows = table(&[
        "PORT ",
        "REMOTE",
        "LOCAL",
        "ID ",
        "PATH MTU ",
        "RECEIVE BUFFER ",
        "SENT ",
        "BY CALLS ",
        "RECEIVED ",
        "BY CALLS ",
        "REFUSED",
        "UNREACHABLE ",
    ]);
    for (port, tunnel) in &tunnels {
        rows.add_row(tunnel_row(port, tunnel));
    }
    say!();
    print(&rows, "");
    for (port, tunnel) in tunnels {
        tunnel.warning.iter().for_each(|warning| say!("port {port}: {warning}"));
    }
}

/// Path MTU, or a dash if there is none.
fn path_mtu_text(mtu: u32) -> String {
    if mtu == 0 { "-".to_owned() } else { mtu.to_string() }
}

fn tunnel_row(port: &str, tunnel: &TunnelReport) -> [String; 12] {
    [
        port.to_owned(),
        tunnel.remote.clone(),
        tunnel.local.clone(),
        tunnel.id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
        path_mtu_text(tunnel.path_mtu),
        grouped(tunnel.receive_buffer as u64),
        grouped(tunnel.sent),
        grouped(tunnel.send_calls),
        grouped(tunnel.received),
        grouped(tunnel.receive_calls),
        drops_text(&tunnel.refused),
        grouped(tunnel.unreachable),
    ]
}

/// Number of frames steered to each queue, or a dash.
fn steered_text(frames: &[u64]) -> String {
    let texts: Vec<_> = frames.iter().copied().map(grouped).collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(" ") }
}

fn flows(reports: &[FlowReport]) {
    let mut rows = table(&[
        "TABLE ",
        "PRIORITY ",
        "MATCH",
        "ACTIONS",
        "FRAMES ",
        "BYTES ",
        "AGE ",
        "IDLE ",
        "OPTIONS",
        "COOKIE",
    ]);
    for flow in reports {
        rows.add_row([
            flow.table.to_string(),
            flow.priority.to_string(),
            flow.matching.clone(),
            flow.actions.clone(),
            grouped(flow.count.frames),
            grouped(flow.count.bytes),
            format!("{}s", flow.age_s),
            flow.idle_s.map_or_else(|| "never hit".to_owned(), |seconds| format!("{seconds}s")),
            options_text(flow),
            flow.cookie.clone(),
        ]);
    }
    print(&rows, "no flows");
}

/// Timeouts and flags of a rule in the syntax of `ovs-ofctl`, or a dash.
fn options_text(flow: &FlowReport) -> String {
    let timeout = |name, seconds| (seconds > 0).then(|| format!("{name}={seconds}"));
    let (idle, hard) = (flow.idle_timeout, flow.hard_timeout);
    let timeouts = [timeout("idle_timeout", idle), timeout("hard_timeout", hard)];
    let texts: Vec<_> = timeouts.into_iter().flatten().chain(flow.flags.iter().cloned()).collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(",") }
}

fn groups(reports: &[GroupReport]) {
    let mut rows = table(&[
        "GROUP ",
        "TYPE",
        "NUMBER ",
        "BUCKET",
        "FRAMES ",
        "BYTES ",
        "DELIVERED ",
        "QUEUED ",
        "DROPPED",
    ]);
    for group in reports {
        rows.add_row([
            group.group.to_string(),
            group.kind.clone(),
            String::new(),
            String::new(),
            grouped(group.count.frames),
            grouped(group.count.bytes),
        ]);
        for (index, bucket) in group.buckets.iter().enumerate() {
            rows.add_row([
                String::new(),
                String::new(),
                (index + 1).to_string(),
                bucket.bucket.clone(),
                grouped(bucket.count.frames),
                grouped(bucket.count.bytes),
                grouped(bucket.delivered.frames),
                grouped(bucket.queued.frames),
                drops_text(&bucket.drops),
            ]);
        }
    }
    print(&rows, "no groups");
}

fn workers(reports: &[WorkerReport]) {
    let mut rows = table(&[
        "WORKER ",
        "QUEUES",
        "FRAMES ",
        "BURSTS ",
        "WAKEUPS ",
        "COALESCED ",
        "TRAINS ",
        "EXACT HITS ",
        "MASKED HITS ",
        "WALKS ",
        "CACHED ",
    ]);
    for worker in reports {
        rows.add_row([
            worker.worker.to_string(),
            worker.queues.join(" "),
            grouped(worker.frames),
            grouped(worker.bursts),
            grouped(worker.wakeups),
            grouped(worker.coalesced),
            grouped(worker.trains),
            grouped(worker.exact_hits),
            grouped(worker.masked_hits),
            grouped(worker.walks),
            grouped(worker.cached),
        ]);
    }
    print(&rows, "no workers");
}

fn drops(reports: &[DropReport]) {
    let mut rows = table(&["PORT ", "NAME", "REASON", "FRAMES ", "REMEDY"]);
    for drop in reports {
        rows.add_row([
            drop.port.clone(),
            drop.name.clone(),
            drop.reason.clone(),
            grouped(drop.count),
            drop.remedy.clone().unwrap_or_default(),
        ]);
    }
    print(&rows, "nothing was dropped");
}

/// Counts packets on the wire, as the controller does.
fn taps(reports: &[TapReport]) {
    let mut rows = table(&[
        "GROUP ",
        "COOKIES",
        "PATH",
        "ACTIONS",
        "MATCHED ",
        "DELIVERED ",
        "QUEUED ",
        "DROPPED",
        "LEDGER",
    ]);
    for tap in reports {
        let mut row = |path: &str, bucket: &BucketReport, ledger: &str| {
            rows.add_row([
                tap.group.to_string(),
                tap.cookies.join(" "),
                path.to_owned(),
                bucket.actions.clone(),
                grouped(bucket.count.packets),
                grouped(bucket.delivered.packets),
                grouped(bucket.queued.packets),
                drops_text(&bucket.packet_drops),
                ledger.to_owned(),
            ]);
        };
        row("original", &tap.original, if tap.adds_up { "adds up" } else { "DOES NOT ADD UP" });
        tap.copies.iter().for_each(|copy| row("copy", copy, ""));
    }
    print(&rows, "no TAPs");
}

fn hosts(reports: &[HostReport]) {
    let mut rows = table(&["SWITCH", "PORT ", "NAME", "VLAN", "MAC", "IP ADDRESSES"]);
    for host in reports {
        rows.add_row([
            host.switch.to_string(),
            host.port.clone(),
            host.port_name.clone(),
            vlans(host),
            host.mac.to_string(),
            addresses(host),
        ]);
    }
    print(&rows, "no hosts");
}

/// A host's addresses; a question mark follows those that it only sent packets from.
fn addresses(host: &HostReport) -> String {
    let texts = host.addresses.iter().map(|address| {
        let mark = if host.unproven_addresses.contains(address) { "?" } else { "" };
        format!("{address}{mark}")
    });
    let texts: Vec<_> = texts.collect();
    texts.join(" ")
}

/// The stack of a host's VLAN tags from the outermost one, such as 100.20.
fn vlans(host: &HostReport) -> String {
    let stack = host.vlan.iter().chain(&host.inner_vlans);
    let names: Vec<_> = stack.map(ToString::to_string).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(".") }
}

fn switches(reports: &[ConnectedSwitch]) {
    let mut rows = table(&["SWITCH", "STATE", "PORTS", "HOSTS ", "RULES ", "GROUPS ", "REFUSED "]);
    for switch in reports {
        let ports: Vec<_> =
            switch.ports.iter().map(|port| format!("{}={}", port.port, port.name)).collect();
        rows.add_row([
            switch.switch.to_string(),
            state(switch).to_owned(),
            ports.join(" "),
            switch.hosts.to_string(),
            switch.rules.to_string(),
            switch.groups.to_string(),
            switch.refusals.to_string(),
        ]);
    }
    print(&rows, "no switches");
    reports.iter().flat_map(hostilities).for_each(|line| say!("{line}"));
}

const fn state(switch: &ConnectedSwitch) -> &'static str {
    match (switch.is_connected, switch.is_silent) {
        (false, _) => "gone",
        // It does not answer requests for counters.
        (true, true) => "silent",
        (true, false) if switch.through.is_some() => "relayed",
        (true, false) => "connected",
    }
}

/// Suspicious behaviour of hosts and others that the controller ignored or undid, with remedies.
fn hostilities(switch: &ConnectedSwitch) -> impl Iterator<Item = String> {
    let said = [
        (
            switch.hosts_refused,
            "hosts or addresses did not fit: they are reached by flooding; look for a port with \
             thousands of them (tapswitch show hosts)",
        ),
        (
            switch.address_conflicts,
            "claims of an address of another host were ignored; look for a duplicate address, or a \
             host that forges ARP or neighbour discovery",
        ),
        (
            switch.drifted,
            "rules and groups differed from what was installed, and were restored; look for \
             another controller or tool that changes them (the controller's log says which)",
        ),
        (
            switch.lldp_forged,
            "LLDP frames were forged, or come from another controller, and were ignored; look for \
             a second controller, or a host that forges links",
        ),
        (
            switch.lldp_late,
            "LLDP frames of this controller arrived too late to prove a link; look for an \
             overloaded link or switch, or a host that replays old frames",
        ),
    ];
    let name = switch.switch;
    let happened = said.into_iter().filter(|(count, _)| *count > 0);
    happened.map(move |(count, what)| format!("{name}: {} {what}", grouped(count)))
}

fn links(reports: &[LinkReport]) {
    let mut rows = table(&["LINK", "", "STATE", "FLOODS", "AT MOST "]);
    let end = |port: &MonitorPort| format!("{}/{} {}", port.switch, port.port, port.name);
    for link in reports {
        rows.add_row([
            end(&link.a),
            end(&link.b),
            link_state(link),
            if link.is_tree { "yes" } else { "no" }.to_owned(),
            format!("{:?}", Duration::from_nanos(link.latency_ns)),
        ]);
    }
    print(&rows, "no links between switches");
}

/// State of a link.
fn link_state(link: &LinkReport) -> String {
    match link.held_ms {
        Some(ms) => format!("flaps, held for {} s", ms.div_ceil(1000)),
        None if link.is_sure => "up".to_owned(),
        None => "not watched".to_owned(),
    }
}

fn controller(report: &ClusterReport) {
    let mut rows = table(&["CONTROLLER", "ROLE", "LEADER", "ITS REST", "GENERATION "]);
    let text = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
    let role = match report.role {
        ClusterRole::Alone => "alone",
        ClusterRole::Leader => "leader",
        _ => "follower",
    };
    let leader = report.leader.as_ref();
    rows.add_row([
        text(report.id.as_ref()),
        role.to_owned(),
        text(leader.map(|leader| &leader.id)),
        text(leader.and_then(|leader| leader.rest.as_ref())),
        leader.map_or_else(|| "-".to_owned(), |leader| leader.generation.to_string()),
    ]);
    print(&rows, "");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts join it with the output of controllers and policies.
    #[test]
    fn a_datapath_has_one_name_in_json() {
        let said = r#"{"name": "br0", "datapath_id": "0x2a", "fail_mode": "secure",
            "standalone": false, "controllers": [], "stations": 0, "books": BOOKS}"#;
        let books = serde_json::to_string(&BooksReport::default()).unwrap();
        let report: SwitchReport = serde_json::from_str(&said.replace("BOOKS", &books)).unwrap();
        assert_eq!(report.datapath_id.to_string(), "000000000000002a", "for tables");
        assert_eq!(serde_json::to_value(&report).unwrap()["datapath_id"], "0x2a");
    }

    #[test]
    fn a_tunnel_is_shown_with_what_it_refused() {
        let mut tunnel = TunnelReport { remote: "192.0.2.2".into(), ..TunnelReport::default() };
        assert_eq!(tunnel_row("5", &tunnel)[10], "-");
        (tunnel.id, tunnel.sent, tunnel.send_calls) = (Some(42), 1234, 30);
        tunnel.refused = [("runt", 1), ("wrong_vni", 2)].map(|(it, n)| (it.to_owned(), n)).into();
        let row = tunnel_row("5", &tunnel);
        assert_eq!([&row[1], &row[3], &row[6], &row[7]], ["192.0.2.2", "42", "1_234", "30"]);
        assert_eq!(row[10], "runt=1 wrong_vni=2");
    }

    #[test]
    fn what_hosts_forge_is_told_with_its_remedy() {
        let text = r#"{"switch":"0x1","is_connected":true,"ports":[],"hosts":1,"hosts_refused":0,
            "address_conflicts":0,"lldp_forged":0,"rules":1,"groups":0,"refusals":0}"#;
        let mut report: ConnectedSwitch = serde_json::from_str(text).unwrap();
        assert_eq!(hostilities(&report).count(), 0);
        (report.hosts_refused, report.drifted, report.lldp_forged) = (1234, 2, 1);
        report.lldp_late = 3;
        let lines: Vec<_> = hostilities(&report).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("0000000000000001: 1_234 hosts or addresses did not fit"));
        assert!(lines[1].contains("look for another controller or tool"), "{}", lines[1]);
        assert!(lines[2].contains("look for a second controller"), "{}", lines[2]);
        assert!(
            lines[3].contains("3 LLDP frames of this controller arrived too late"),
            "{}",
            lines[3]
        );
    }

    #[test]
    fn addresses_that_only_packets_tell_are_marked() {
        let text = r#"{"switch":"0x1","port":"1","port_name":"a","mac":"02:00:00:00:00:01",
            "vlan":null,"addresses":["10.0.0.1","fe80::1"],"unproven_addresses":["10.0.0.1"]}"#;
        let host: HostReport = serde_json::from_str(text).unwrap();
        assert_eq!(addresses(&host), "10.0.0.1? fe80::1");
    }

    #[test]
    fn a_guest_is_shown_with_what_it_runs_and_what_went_wrong() {
        let mut guest = GuestReport {
            state: "waiting".into(),
            socket: "/run/vm0.sock".into(),
            ..GuestReport::default()
        };
        let waiting = ["1", "waiting", "/run/vm0.sock", "0", "-", "0", "0", "-"];
        assert_eq!(guest_row("1", &guest), waiting);
        assert_eq!(guest_troubles(&guest).count(), 0);
        guest.state = "running".into();
        (guest.queues, guest.rings) = (2, Some("packed".into()));
        (guest.sessions, guest.resets) = (1234, 1);
        guest.feature_names = vec!["csum".into(), "mq".into()];
        guest.last_reset = Some("a loop of descriptors".into());
        guest.warning = Some("blank".into());
        let running = ["1", "running", "/run/vm0.sock", "2", "packed", "1_234", "1", "csum mq"];
        assert_eq!(guest_row("1", &guest), running);
        let troubles = guest_troubles(&guest).collect::<Vec<_>>();
        assert_eq!(troubles, ["blank", "last reset: a loop of descriptors"]);
    }
}
