//! Information that only running switches have: which devices are their ports, and what they
//! dropped because of a setting.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tapswitch_netlink::{Namespace, NamespaceError};
use tapswitch_switch::report::{PortReport, SwitchReport};
use tapswitch_tap::inspect::Inspected;

use super::finding::{Finding, HERE, Severity};
use crate::device::args::DeviceDoctorArgs;
use crate::device::namespace;
use crate::management::{AskError, Request, Topic, ask_within, sockets};
use crate::table::counted;

/// A port and its switch.
#[derive(Clone, Debug)]
pub(super) struct SwitchPort {
    pub(super) switch: String,
    /// Identity of the namespace that the switch runs in; `None` if it does not say.
    pub(super) home: Option<(u64, u64)>,
    pub(super) port: PortReport,
}

impl SwitchPort {
    /// True if the port is a tun or tap device.
    fn has_device(&self) -> bool {
        ["tap", "tun"].contains(&self.port.kind.as_str())
    }

    /// True if the device is this port. A port in the namespace of its switch is in the namespace
    /// of the process that holds it.
    pub(super) fn is_device(&self, device: &Inspected) -> bool {
        let PortReport { name, netns, .. } = &self.port;
        let is_it = |namespace: Namespace| {
            namespace.identity().is_ok_and(|identity| identity == device.namespace_id)
        };
        let is_there = |path: &str| Namespace::open_path(path).is_ok_and(is_it);
        *name == device.link.name
            && self.has_device()
            && match netns {
                Some(netns) => Namespace::find(netns).is_ok_and(is_it),
                None => {
                    let mut pids = device.holders.iter().map(|holder| holder.pid);
                    pids.any(|pid| is_there(&format!("/proc/{pid}/ns/net")))
                }
            }
    }
}

/// Answers of running switches.
#[derive(Debug, Default)]
pub(super) struct Switches {
    pub(super) ports: Vec<SwitchPort>,
    /// Those that did not answer, one sentence each.
    pub(super) unseen: Vec<String>,
}

/// Queries all switches, or the one at `socket`.
pub(super) fn ask(socket: Option<&PathBuf>) -> Switches {
    let mut said = Switches::default();
    for path in socket.map_or_else(sockets, |socket| vec![socket.clone()]) {
        match ports(&path) {
            Ok(ports) => said.ports.extend(ports),
            // A process without a switch, or a stale socket.
            Err(AskError::Refused(_) | AskError::Connect { .. }) if socket.is_none() => {}
            Err(error) => said.unseen.push(unanswered(&error)),
        }
    }
    said
}

fn ports(socket: &Path) -> Result<Vec<SwitchPort>, AskError> {
    let said: SwitchReport = ask_within(socket, &Request::Show(Topic::Switch), PATIENCE)?;
    let ports: Vec<PortReport> = ask_within(socket, &Request::Show(Topic::Ports), PATIENCE)?;
    // A switch of an older version does not say.
    let home = ask_within(socket, &Request::Namespace, PATIENCE).ok();
    let of_switch = |port| SwitchPort { switch: said.name.clone(), home, port };
    Ok(ports.into_iter().map(of_switch).collect())
}

fn unanswered(error: &AskError) -> String {
    match error {
        AskError::Silent { path, patience } => format!(
            "the switch at {}: no answer within {} s, so it is busy or stopped; findings about its \
             ports may be wrong",
            path.display(),
            patience.as_secs()
        ),
        other => format!("a switch: {other}"),
    }
}

/// Findings about the selected ports; `devices` are the selected devices.
pub(super) fn findings(
    args: &DeviceDoctorArgs,
    ports: &[SwitchPort],
    devices: &[Inspected],
) -> Vec<Finding> {
    let asked = ports.iter().filter(|it| is_asked_for(args, it, devices));
    asked.filter_map(oversize).collect()
}

/// Whether a port is selected, by a name or a namespace. A name alone means the namespace of the
/// command: devices of that name may exist in others.
fn is_asked_for(args: &DeviceDoctorArgs, it: &SwitchPort, devices: &[Inspected]) -> bool {
    let (name, netns) = (args.name.as_deref(), args.place.netns.as_deref());
    match (name, netns) {
        (None, None) => true,
        _ if it.has_device() => devices.iter().any(|device| it.is_device(device)),
        _ => name.is_none_or(|name| name == it.port.name) && is_in(it, netns),
    }
}

/// Whether a port without a device is in a namespace, which the user may have named differently
/// than the switch does.
fn is_in(it: &SwitchPort, netns: Option<&str>) -> bool {
    let asked = identity(namespace(netns));
    match &it.port.netns {
        Some(of_port) => asked.is_some() && asked == identity(Namespace::find(of_port)),
        None if it.home.is_some() => asked == it.home,
        // The namespace of such a switch is taken for that of the command.
        None => netns.is_none(),
    }
}

fn identity(namespace: Result<Namespace, NamespaceError>) -> Option<(u64, u64)> {
    namespace.and_then(|namespace| namespace.identity()).ok()
}

/// How to call the namespace of a port.
fn place(SwitchPort { switch, home, port }: &SwitchPort) -> String {
    match &port.netns {
        Some(netns) => netns.clone(),
        None if home.is_none() || *home == identity(Namespace::current()) => HERE.to_owned(),
        None => format!("(of switch {switch})"),
    }
}

/// Frames that are too long, or have too many tags, for a port.
pub(super) fn oversize(it: &SwitchPort) -> Option<Finding> {
    let SwitchPort { switch, port, .. } = it;
    let dropped = port.drops.get("oversize").copied().filter(|&count| count > 0)?;
    let remedy = port.oversize_remedy()?;
    let frames = counted(dropped, "frame");
    let text = format!(
        "port {} of switch {switch} dropped {frames} as oversize (mtu={}, envelope={}): \
         {remedy}",
        port.port, port.mtu, port.envelope
    );
    Some(Finding {
        severity: Severity::Error,
        device: port.name.clone(),
        namespace: place(it),
        rule: "oversize",
        text,
        mend: None,
        is_sure: true,
    })
}

/// A running switch answers at once; a stopped one must not delay the others.
const PATIENCE: Duration = Duration::from_secs(1);
