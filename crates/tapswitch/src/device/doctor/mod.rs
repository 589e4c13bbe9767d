//! `tapswitch device doctor`: what is wrong with a device, and the command that mends it.
//!
//! Each rule is a function from what was found out about a device ([`Inspected`]) and its machine
//! ([`Machine`]) to findings; nothing is asked or changed meanwhile. What was not to be seen gives
//! no finding. Running switches are asked which devices are their ports, and what they dropped
//! because of their settings.

mod finding;
mod flow;
mod health;
mod offload;
mod switches;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use tapswitch_tap::inspect::{Inspected, Inspection, Unread, inspect};

pub(super) use self::finding::names;
use self::finding::{Finding, Severity, Subject};
use self::switches::SwitchPort;
use super::machine::Machine;
use super::text::printable;
use super::{Failure, find, namespace, unseen, warn_unseen};
use crate::cli::device::DeviceDoctorArgs;
use crate::show::print_json;

pub(super) fn main(args: &DeviceDoctorArgs) -> Result<ExitCode, Failure> {
    let Seen { devices, unseen, unread } = match &args.name {
        Some(name) => {
            let (device, unseen) = find(name, &args.place)?;
            Seen { devices: vec![device], unseen, unread: Vec::new() }
        }
        None => all(args.place.netns.as_deref())?,
    };
    let ports = switches::ports(args.socket.as_ref());
    let port_of = |device: &Inspected| ports.iter().find(|port| port.is_device(device));
    let mut findings = examine(&devices, &Machine::here(), port_of);
    findings.extend(switches::findings(args, &ports));
    findings.extend(unread.into_iter().map(unread_namespace));
    if args.json {
        print_json(&findings);
    } else {
        findings.iter().for_each(|finding| say!("{}", printable(&finding.to_string())));
        say!("{}", summary(devices.len(), &findings));
    }
    warn_unseen(&unseen);
    let is_wrong = findings.iter().any(|finding| finding.severity > Severity::Hint);
    Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What was looked at, and what could not be.
struct Seen {
    devices: Vec<Inspected>,
    /// A sentence each.
    unseen: Vec<String>,
    /// The namespace that was asked for, if it is one of those.
    unread: Vec<Unread>,
}

/// All devices of a namespace, or of all; asked for is that of the command when none is named.
fn all(netns: Option<&str>) -> Result<Seen, Failure> {
    let identity = namespace(netns)?.identity()?;
    let found = inspect();
    let unseen = unseen(&found, netns);
    let Inspection { mut devices, mut unread, .. } = found;
    devices.retain(|device| netns.is_none() || device.namespace_id == identity);
    unread.retain(|place| place.namespace_id == identity);
    Ok(Seen { devices, unseen, unread })
}

/// Who hears nothing of a namespace must not take it for sound.
fn unread_namespace(place: Unread) -> Finding {
    let text = format!("{}: there may be devices of which nothing is said", place.reason);
    let (severity, device, namespace) = (Severity::Warning, "-".to_owned(), place.namespace);
    Finding {
        severity,
        device,
        namespace,
        rule: "unread-namespace",
        text,
        mend: None,
        is_sure: true,
    }
}

/// All findings: by device, the worst first.
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
