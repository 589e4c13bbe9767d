//! `tapswitch device doctor`: finds problems of devices, and the commands that fix them.
//!
//! Each rule is a function from the state of a device ([`Inspected`]) and its machine ([`Machine`])
//! to findings; it queries and changes nothing. What could not be inspected is reported as such.
//! Running switches are asked which devices are their ports, and what they dropped because of their
//! settings. `docs/doctor.md` lists all rules.

mod finding;
mod flow;
mod health;
mod offload;
mod subject;
mod switches;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use tapswitch_tap::inspect::{Inspected, Inspection, inspect};

pub(super) use self::subject::names;

use self::finding::{Finding, Severity};
use self::subject::Subject;
use self::switches::{SwitchPort, Switches};
use super::args::{DeviceDoctorArgs, PlaceArgs};
use super::machine::Machine;
use super::{Failure, find, namespace};
use crate::table::print_json;
use crate::text::{printable, printable_lines};

pub(super) fn main(args: &DeviceDoctorArgs) -> ExitCode {
    match diagnose(args) {
        Ok(is_wrong) => is_wrong.into(),
        // A failure is not a finding: scripts must be able to distinguish them.
        Err(error) => {
            tell!("tapswitch: {}", printable_lines(&error.to_string()));
            ExitCode::from(2)
        }
    }
}

/// Prints the findings; returns 1 if there are any but hints.
fn diagnose(args: &DeviceDoctorArgs) -> Result<u8, Failure> {
    let Seen { devices, gaps } = match &args.name {
        Some(name) => one(name, &args.place)?,
        None => all(args.place.netns.as_deref())?,
    };
    let Switches { ports, unseen } = switches::ask(args.socket.as_ref());
    let port_of = |device: &Inspected| ports.iter().find(|port| port.is_device(device));
    let mut findings = examine(&devices, &Machine::here(), port_of);
    findings.extend(switches::findings(args, &ports, &devices));
    findings.extend(gaps);
    findings.extend(unseen.into_iter().map(|what| Finding::gap(Severity::Hint, "unseen", what)));
    if args.json {
        print_json(&findings);
    } else {
        findings.iter().for_each(|finding| say!("{}", printable(&finding.to_string())));
        say!("{}", summary(devices.len(), &findings));
    }
    Ok(findings.iter().any(|finding| finding.severity > Severity::Hint).into())
}

/// The inspected devices, and what could not be inspected.
struct Seen {
    devices: Vec<Inspected>,
    gaps: Vec<Finding>,
}

/// The device `name`. Only this one is opened if no program holds it, because its user is probably
/// not just starting its program.
fn one(name: &str, place: &PlaceArgs) -> Result<Seen, Failure> {
    let (mut device, mut unseen) = find(name, place)?;
    let opened = device.look_inside(&namespace(place.netns.as_deref())?);
    if let Err(error) = opened {
        unseen.push(format!("the network header of {name}: cannot be opened: {error}"));
    }
    let gaps = unseen.into_iter().map(|what| Finding::gap(Severity::Hint, "unseen", what));
    Ok(Seen { devices: vec![device], gaps: gaps.collect() })
}

/// All devices of one namespace, or of all. An inaccessible namespace that the user asked for must
/// not appear healthy; without an option that is the current one.
fn all(netns: Option<&str>) -> Result<Seen, Failure> {
    let identity = namespace(netns)?.identity()?;
    let Inspection { mut devices, unseen, unseen_namespaces, unread, .. } = inspect();
    devices.retain(|device| netns.is_none() || device.namespace_id == identity);
    let unread: Vec<_> = unread.iter().filter(|it| it.namespace_id == identity).collect();
    let is_told = |what: &String| unread.iter().any(|place| place.reason == *what);
    let gap = |severity, what: &String| Finding::gap(severity, "unseen", what.clone());
    let hidden = unseen_namespaces.iter().filter(|_| netns.is_none());
    let others = unseen.iter().filter(|what| !is_told(what));
    let mut gaps: Vec<_> = unread.iter().map(|place| Finding::unread_namespace(place)).collect();
    gaps.extend(hidden.map(|what| gap(Severity::Warning, what)));
    gaps.extend(others.map(|what| gap(Severity::Hint, what)));
    Ok(Seen { devices, gaps })
}

/// All findings: by device, the most severe first.
fn examine<'a>(
    devices: &[Inspected],
    machine: &Machine,
    port_of: impl Fn(&Inspected) -> Option<&'a SwitchPort>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in devices {
        let subject = Subject { device, machine, port: port_of(device) };
        let rules = offload::RULES.iter().chain(flow::RULES).chain(health::RULES);
        let mut found: Vec<_> = rules.filter_map(|rule| rule(&subject)).collect();
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings.extend(found);
    }
    findings
}

fn summary(devices: usize, findings: &[Finding]) -> String {
    let count = |severity, word| {
        counted(findings.iter().filter(|it| it.severity == severity).count(), word)
    };
    format!(
        "{}: {}, {}, {}",
        counted(devices, "device"),
        count(Severity::Error, "error"),
        count(Severity::Warning, "warning"),
        count(Severity::Hint, "hint")
    )
}

fn counted(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}
