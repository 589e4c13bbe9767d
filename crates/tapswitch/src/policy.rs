//! `tapswitch policy`: TAP policies of a running controller.

use tapswitch_control::{Direction, PolicyReport, PolicyState, TapPolicy, Vlan};

use crate::cli::{AskArgs, PolicyAddArgs, PolicyArgs, PolicyCommand, PolicyNameArgs};
use crate::management::{AskError, Request, ask};
use crate::show::print_json;
use crate::table::{grouped, print, table};

/// Carries out one command.
pub(crate) fn main(args: PolicyArgs) -> Result<(), AskError> {
    match args.command {
        PolicyCommand::Add(args) => add(*args),
        PolicyCommand::List(args) => list(&args),
        PolicyCommand::Show(args) => one(&args, Request::Policy),
        PolicyCommand::Delete(args) => one(&args, Request::DeletePolicy),
    }
}

fn add(args: PolicyAddArgs) -> Result<(), AskError> {
    let direction = if args.both { Direction::Both } else { Direction::Forward };
    let policy = TapPolicy {
        src_mac: args.src_mac,
        dst_mac: args.dst_mac,
        src_ip: args.src_ip,
        dst_ip: args.dst_ip,
        ip_proto: args.ip_proto,
        vlan: args.vlan.unwrap_or_default(),
        src_port: args.src_port,
        dst_port: args.dst_port,
        direction,
        ..TapPolicy::new(args.name, args.monitor)
    };
    let report = ask(args.ask.socket.as_deref(), &Request::AddPolicy(Box::new(policy)))?;
    show(&args.ask, &report);
    Ok(())
}

fn list(args: &AskArgs) -> Result<(), AskError> {
    let reports: Vec<PolicyReport> = ask(args.socket.as_deref(), &Request::Policies)?;
    if args.json {
        print_json(&reports);
        return Ok(());
    }
    let mut rows = table(&["POLICY", "STATE", "TRAFFIC", "MONITOR", "MATCHED ", "COPIED "]);
    for report in &reports {
        rows.add_row([
            report.policy.name.clone(),
            state(&report.state).0.to_owned(),
            traffic(&report.policy),
            monitor(report),
            grouped(report.matched.packets),
            grouped(copied(report)),
        ]);
    }
    print(&rows, "no policies");
    Ok(())
}

fn one(args: &PolicyNameArgs, request: fn(String) -> Request) -> Result<(), AskError> {
    let report = ask(args.ask.socket.as_deref(), &request(args.name.clone()))?;
    show(&args.ask, &report);
    Ok(())
}

fn show(args: &AskArgs, report: &PolicyReport) {
    if args.json {
        return print_json(report);
    }
    let (word, reason) = state(&report.state);
    let mut rows = table(&["", ""]);
    let mut row = |what: &str, value: String| {
        rows.add_row([what.to_owned(), value]);
    };
    row("policy", report.policy.name.clone());
    row("state", if reason.is_empty() { word.to_owned() } else { format!("{word}: {reason}") });
    row("traffic", traffic(&report.policy));
    row("monitor", monitor(report));
    let bytes = |count: u64| format!("{} bytes", grouped(count));
    row(
        "matched",
        format!("{} frames, {}", grouped(report.matched.packets), bytes(report.matched.bytes)),
    );
    for copies in &report.copied {
        let to = format!("{} port {}", copies.monitor.switch, copies.monitor.port);
        let (frames, bytes) = (grouped(copies.counts.packets), bytes(copies.counts.bytes));
        row("copied", format!("{frames} frames, {bytes} to {to}"));
    }
    row("ledger", ledger(report).to_owned());
    say!("{}", rows.trim_fmt().trim_start());
}

/// Whether what matched is what was copied. Under traffic the counters of rules and groups are read
/// one after the other and may differ by what passed between.
fn ledger(report: &PolicyReport) -> &'static str {
    match (report.is_complete, report.matched.packets == copied(report)) {
        (true, true) => "adds up",
        (true, false) => "frames are under way: look again when the traffic rests",
        (false, _) => "incomplete: a switch was lost before it told its last counters",
    }
}

fn copied(report: &PolicyReport) -> u64 {
    report.copied.iter().map(|copies| copies.counts.packets).sum()
}

fn state(state: &PolicyState) -> (&'static str, &str) {
    match state {
        PolicyState::Pending { reason } => ("pending", reason),
        PolicyState::Installing => ("installing", ""),
        PolicyState::Active => ("active", ""),
        PolicyState::Failed { reason } => ("failed", reason),
        PolicyState::Deleted => ("deleted", ""),
        _ => ("unknown", ""),
    }
}

fn monitor(report: &PolicyReport) -> String {
    match &report.monitor {
        Some(port) => format!("{} (port {} {})", report.policy.monitor, port.port, port.name),
        None => report.policy.monitor.to_string(),
    }
}

/// The fields that a policy names, as they are typed.
fn traffic(policy: &TapPolicy) -> String {
    let mut fields = Vec::new();
    let mut field = |name: &str, value: Option<String>| {
        fields.extend(value.map(|value| format!("{name}={value}")));
    };
    field("src-mac", policy.src_mac.map(|mac| mac.to_string()));
    field("dst-mac", policy.dst_mac.map(|mac| mac.to_string()));
    field("src-ip", policy.src_ip.map(|ip| ip.to_string()));
    field("dst-ip", policy.dst_ip.map(|ip| ip.to_string()));
    field("ip-proto", policy.ip_proto.map(|proto| proto.to_string()));
    field("vlan", (policy.vlan != Vlan::Any).then(|| policy.vlan.to_string()));
    field("src-port", policy.src_port.map(|port| port.to_string()));
    field("dst-port", policy.dst_port.map(|port| port.to_string()));
    if policy.direction == Direction::Both {
        fields.push("both directions".to_owned());
    }
    if fields.is_empty() { "everything".to_owned() } else { fields.join(" ") }
}
