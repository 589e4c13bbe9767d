//! `tapswitch policy`: TAP policies of a running controller.

mod args;

use std::process::ExitCode;

use comfy_table::Table;
use tapswitch_control::{
    Copied, Counts, Monitors, Plan, PolicyReport, PolicyState, Proof, Tagging, TapPolicy,
    Transport, Verdict,
};
use tapswitch_controller::{Applied, How};
use tapswitch_openflow::Delivery;

use crate::management::{AskArgs, AskError, Request, ask};
use crate::table::{counted, grouped, print, print_json, table};

pub(crate) use args::PolicyArgs;

use args::{PolicyAddArgs, PolicyCommand, PolicyDeleteArgs, PolicyNameArgs};

/// Executes a command. A dry run fails if its result is not proved.
pub(crate) fn main(args: PolicyArgs) -> Result<ExitCode, AskError> {
    let is_good = match args.command {
        PolicyCommand::Add(args) => apply(*args, false)?,
        PolicyCommand::Set(args) => apply(*args, true)?,
        PolicyCommand::List(args) => list(&args).map(|()| true)?,
        PolicyCommand::Show(args) => show_one(args).map(|()| true)?,
        PolicyCommand::Delete(args) => delete(args)?,
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn apply(args: PolicyAddArgs, replaces: bool) -> Result<bool, AskError> {
    let (ask_args, dry_run) = (args.ask.clone(), args.dry_run);
    let how = How { replaces, by_force: args.force };
    let (socket, policy) = (ask_args.socket.as_deref(), Box::new(policy(args)));
    if dry_run {
        let request = match replaces {
            false => Request::PlanPolicy(policy),
            true => Request::PlanReplacement(policy),
        };
        return Ok(show_plan(&ask_args, &ask(socket, &request)?));
    }
    show_applied(&ask_args, &ask(socket, &Request::ApplyPolicy(policy, how))?);
    Ok(true)
}

fn delete(args: PolicyDeleteArgs) -> Result<bool, AskError> {
    let socket = args.ask.socket.as_deref();
    if args.dry_run {
        return Ok(show_plan(&args.ask, &ask(socket, &Request::PlanDeletion(args.name))?));
    }
    let request = Request::DeletePolicy(args.name, args.force);
    show_applied(&args.ask, &ask(socket, &request)?);
    Ok(true)
}

fn show_applied(args: &AskArgs, applied: &Applied) {
    if args.json {
        return print_json(applied);
    }
    show(args, &applied.report);
    let Verdict { proof, unproved, .. } = &applied.verdict;
    proof.iter().for_each(show_proof);
    unproved.iter().for_each(|reason| say!("not proved: {reason}"));
}

/// Converts the arguments to a policy.
fn policy(args: PolicyAddArgs) -> TapPolicy {
    TapPolicy {
        filter: args.filter,
        src_mac: args.src_mac,
        dst_mac: args.dst_mac,
        eth_type: args.eth_type,
        src_ip: args.src_ip,
        dst_ip: args.dst_ip,
        ip_proto: args.ip_proto,
        vlan: args.vlan.unwrap_or_default(),
        src_port: args.src_port,
        dst_port: args.dst_port,
        direction: args.direction,
        delivery: args.delivery,
        snaplen: args.snaplen,
        sample: args.sample,
        tags: args.tags,
        point: args.point,
        transport: args.transport,
        priority: args.priority,
        expires: args.expires,
        schedule: args.schedule,
        owner: args.owner,
        reason: args.reason,
        ..TapPolicy::to_several(args.name, Monitors::new(args.monitor))
    }
}

/// Prints the changes on each switch as a diff; returns whether they are proved.
fn show_plan(args: &AskArgs, plan: &Plan) -> bool {
    match args.json {
        true => print_json(plan),
        false => show_changes(plan),
    }
    plan.proof.is_proved
}

fn show_changes(plan: &Plan) {
    for change in &plan.changes {
        say!("switch {}", change.switch);
        change.remove.iter().for_each(|line| say!("- {line}"));
        change.add.iter().for_each(|line| say!("+ {line}"));
    }
    show_proof(&plan.proof);
    plan.notes.iter().for_each(|note| say!("note: {note}"));
}

fn show_proof(Proof { is_proved, checked, problems }: &Proof) {
    match is_proved {
        true if *checked == 1 => say!("proved: 1 class of frames arrives where it should"),
        true => say!("proved: {checked} classes of frames arrive where they should"),
        false => problems.iter().for_each(|problem| say!("NOT PROVED: {problem}")),
    }
}

fn list(args: &AskArgs) -> Result<(), AskError> {
    let reports: Vec<PolicyReport> = ask(args.socket.as_deref(), &Request::Policies)?;
    if args.json {
        print_json(&reports);
        return Ok(());
    }
    let mut rows = table(&[
        "POLICY",
        "STATE",
        "TRAFFIC",
        "MONITOR",
        "DELIVERY",
        "MATCHED ",
        "DELIVERED ",
        "IN FLIGHT ",
        "DROPPED ",
        "LEDGER",
    ]);
    for report in &reports {
        let sum = |part: fn(&Copied) -> u64| grouped(report.copied.iter().map(part).sum());
        rows.add_row([
            report.policy.name.clone(),
            state(&report.state).0.to_owned(),
            report.policy.traffic(),
            monitor(report),
            report.policy.delivery.to_string(),
            grouped(report.matched.packets),
            sum(|copies| copies.delivered.packets.saturating_add(copies.flooded)),
            sum(|copies| copies.in_flight),
            sum(|copies| copies.dropped.values().sum()),
            mark(report).to_owned(),
        ]);
    }
    print(&rows, "no policies");
    Ok(())
}

fn show_one(args: PolicyNameArgs) -> Result<(), AskError> {
    let report = ask(args.ask.socket.as_deref(), &Request::Policy(args.name))?;
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
    row("traffic", report.policy.traffic());
    row("monitor", monitor(report));
    row("delivery", report.policy.delivery.to_string());
    for (what, value) in terms(&report.policy) {
        row(what, value);
    }
    let Counts { packets, bytes } = report.matched;
    row("matched", format!("{}, {}", counted(packets, "packet"), counted(bytes, "byte")));
    if report.policy.delivery == Delivery::SampleOnPressure {
        row("sampled", ratio(report));
    }
    row("ledger", ledger(report).to_owned());
    report.notes.iter().for_each(|note| row("note", note.clone()));
    say!("{}", rows.trim_fmt().trim_start());
    if !report.copied.is_empty() {
        say!("\n{}", outcomes(report).trim_fmt());
    }
}

/// The settings of a policy other than traffic, monitor and delivery, if they are set.
fn terms(policy: &TapPolicy) -> Vec<(&'static str, String)> {
    let text = |value: Option<&dyn std::fmt::Display>| value.map(ToString::to_string);
    let is_other = policy.transport != Transport::Svlan;
    let rows = [
        ("snaplen", text(policy.snaplen.as_ref().map(|len| len as _))),
        ("sample", text(policy.sample.as_ref().map(|sample| sample as _))),
        ("tags", text((policy.tags != Tagging::Keep).then_some(&policy.tags as _))),
        ("point", text(policy.point.as_ref().map(|point| point as _))),
        ("transport", text(is_other.then_some(&policy.transport as _))),
        ("priority", text((policy.priority > 0).then_some(&policy.priority as _))),
        ("schedule", policy.schedule.as_ref().map(|hours| format!("{hours} UTC"))),
        ("expires", text(policy.expires.as_ref().map(|expiry| expiry as _))),
        ("owner", policy.owner.clone()),
        ("reason", policy.reason.clone()),
    ];
    rows.into_iter().filter_map(|(what, value)| Some((what, value?))).collect()
}

/// The outcome of the copies at each monitor: one line for each possible outcome.
fn outcomes(report: &PolicyReport) -> Table {
    let mut rows = table(&["SWITCH", "PORT ", "NAME", "COPIES", "PACKETS ", "BYTES "]);
    for copies in &report.copied {
        let port = &copies.monitor;
        let mut row = |what: String, packets: u64, bytes: Option<u64>| {
            rows.add_row([
                port.switch.to_string(),
                if port.is_controller() { "-".to_owned() } else { port.port.to_string() },
                port.name.clone(),
                what,
                grouped(packets),
                bytes.map_or_else(|| "-".to_owned(), grouped),
            ]);
        };
        row("delivered".to_owned(), copies.delivered.packets, Some(copies.delivered.bytes));
        if copies.flooded > 0 {
            row("with a flood".to_owned(), copies.flooded, None);
        }
        row("in flight".to_owned(), copies.in_flight, None);
        for (reason, count) in &copies.dropped {
            row(format!("dropped: {reason}"), *count, None);
        }
    }
    rows
}

/// The share of delivered copies among those with a known outcome.
fn ratio(report: &PolicyReport) -> String {
    let copied = report.copied.iter();
    let delivered: u64 = copied.clone().map(|copies| copies.delivered.packets).sum();
    let dropped: u64 = copied.flat_map(|copies| copies.dropped.values()).sum();
    let known = u128::from(delivered) + u128::from(dropped);
    match (u128::from(delivered) * 10_000).checked_div(known) {
        None => "nothing yet".to_owned(),
        Some(share) => format!("{}.{:02} % of the copies delivered", share / 100, share % 100),
    }
}

/// Whether each matched frame is accounted for. Under traffic the counters of rules and groups are
/// read one after the other, and may differ by the frames in between.
fn ledger(report: &PolicyReport) -> &'static str {
    match (report.is_complete, report.adds_up) {
        (true, true) => "adds up",
        (true, false) => {
            "does not add up: frames are in transit, or are missing; check again without traffic"
        }
        (false, true) => {
            "incomplete: counters were lost with a switch, or started unknown; the rest adds up"
        }
        (false, false) => {
            "does not add up; incomplete: counters were lost with a switch, or started unknown"
        }
    }
}

/// The same as a single word, for a list.
fn mark(report: &PolicyReport) -> &'static str {
    match (report.is_complete, report.adds_up) {
        (true, true) => "ok",
        (true, false) => "! does not add up",
        (false, true) => "! incomplete",
        (false, false) => "! does not add up, incomplete",
    }
}

fn state(state: &PolicyState) -> (&'static str, &str) {
    let reason = match state {
        PolicyState::Pending { reason }
        | PolicyState::Resting { reason }
        | PolicyState::Partial { reason }
        | PolicyState::Failed { reason } => reason,
        _ => "",
    };
    (state.name(), reason)
}

fn monitor(report: &PolicyReport) -> String {
    match report.monitors.as_slice() {
        [] => report.policy.monitor.to_string(),
        ports => {
            let real = ports.iter().filter(|port| !port.is_controller());
            let real: Vec<_> =
                real.map(|port| format!("port {} {}", port.port, port.name)).collect();
            match real.is_empty() {
                true => report.policy.monitor.to_string(),
                false => format!("{} ({})", report.policy.monitor, real.join(", ")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_control::{Counts, MonitorPort};

    use super::*;

    fn report(delivered: u64, in_flight: u64, dropped: u64) -> PolicyReport {
        let frames = |packets| Counts { packets, bytes: packets * 100 };
        let monitor =
            MonitorPort { switch: tapswitch_switch::DatapathId(1), port: 3, name: "mon0".into() };
        let matched = frames(delivered + in_flight + dropped);
        let copied = Copied {
            monitor: monitor.clone(),
            counts: matched,
            delivered: frames(delivered),
            flooded: 0,
            in_flight,
            dropped: [("egress_full".to_owned(), dropped)].into(),
        };
        PolicyReport {
            number: 1,
            policy: TapPolicy::new("p", "3".parse().unwrap()),
            state: PolicyState::Active,
            monitor: Some(monitor.clone()),
            monitors: vec![monitor],
            matched,
            copied: vec![copied],
            adds_up: true,
            is_complete: true,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_plan_that_is_not_proved_fails() {
        for (is_proved, json) in [(true, true), (true, false), (false, true), (false, false)] {
            let problems = if is_proved { Vec::new() } else { vec!["a copy goes astray".into()] };
            let proof = Proof { is_proved, checked: 7, problems };
            let plan = Plan { changes: Vec::new(), proof, notes: Vec::new() };
            let args = AskArgs { socket: None, json };
            assert_eq!(show_plan(&args, &plan), is_proved);
        }
    }

    #[test]
    fn what_became_of_copies_is_a_line_each() {
        let text = outcomes(&report(1200, 5, 3)).trim_fmt();
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = text.lines().map(cells).collect();
        let port = ["0000000000000001", "3", "mon0"];
        assert_eq!(lines[1], [&port[..], &["delivered", "1_200", "120_000"]].concat());
        assert_eq!(lines[2], [&port[..], &["in", "flight", "5", "-"]].concat());
        assert_eq!(lines[3], [&port[..], &["dropped:", "egress_full", "3", "-"]].concat());
        assert_eq!(lines.len(), 4);
    }

    /// Each switch sends it copies of its own.
    #[test]
    fn the_controller_as_a_monitor_has_a_line_for_each_switch() {
        let mut shown = report(7, 0, 0);
        shown.policy = TapPolicy::new("p", "controller".parse().unwrap());
        let to = MonitorPort::of_controller();
        shown.copied[0].monitor =
            MonitorPort { switch: tapswitch_switch::DatapathId(7), ..to.clone() };
        shown.monitors = vec![to];
        assert_eq!(monitor(&shown), "controller");
        let text = outcomes(&shown).trim_fmt();
        let line = text.lines().nth(1).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells, ["0000000000000007", "-", "controller", "delivered", "7", "700"]);
    }

    #[test]
    fn a_policy_without_some_of_its_monitors_says_so() {
        let reason = "1 of 2 monitors reached".to_owned();
        assert_eq!(state(&PolicyState::Partial { reason }), ("partial", "1 of 2 monitors reached"));
    }

    #[test]
    fn the_ratio_is_of_what_is_not_under_way() {
        assert_eq!(ratio(&report(1, 9, 2)), "33.33 % of the copies delivered");
        assert_eq!(ratio(&report(0, 9, 0)), "nothing yet");
        assert_eq!(ratio(&report(u64::MAX / 200, 0, 0)), "100.00 % of the copies delivered");
    }

    #[test]
    fn a_ledger_that_does_not_add_up_is_marked() {
        assert_eq!(mark(&report(1, 0, 0)), "ok");
        let off = PolicyReport { adds_up: false, ..report(1, 0, 0) };
        assert_eq!(mark(&off), "! does not add up");
        let lost = PolicyReport { is_complete: false, ..off };
        assert_eq!(mark(&lost), "! does not add up, incomplete");
        assert_eq!(mark(&PolicyReport { adds_up: true, ..lost }), "! incomplete");
    }
}
