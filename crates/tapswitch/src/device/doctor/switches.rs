//! Information that only running switches have: which devices are their ports, and what they
//! dropped because of a setting.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tapswitch_netlink::Namespace;
use tapswitch_switch::report::{PortReport, SwitchReport};
use tapswitch_tap::inspect::Inspected;

use super::finding::{Finding, HERE, Severity};
use crate::device::args::DeviceDoctorArgs;
use crate::device::namespace;
use crate::management::{AskError, Request, Topic, ask_within, sockets};

/// A port, and the name of its switch.
#[derive(Clone, Debug)]
pub(super) struct SwitchPort {
    pub(super) switch: String,
    pub(super) port: PortReport,
}

impl SwitchPort {
    /// True if the device is this port. A port in the namespace of its switch is in the namespace
    /// of the process that holds it.
    pub(super) fn is_device(&self, device: &Inspected) -> bool {
        let PortReport { name, kind, netns, .. } = &self.port;
        let is_it = |namespace: Namespace| {
            namespace.identity().is_ok_and(|identity| identity == device.namespace_id)
        };
        let is_there = |path: &str| Namespace::open_path(path).is_ok_and(is_it);
        *name == device.link.name
            && ["tap", "tun"].contains(&kind.as_str())
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
    let of_switch = |port| SwitchPort { switch: said.name.clone(), port };
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

/// Findings about the selected ports.
pub(super) fn findings(args: &DeviceDoctorArgs, ports: &[SwitchPort]) -> Vec<Finding> {
    let asked = ports.iter().filter(|it| is_asked_for(args, &it.port));
    asked.filter_map(|it| oversize(&it.switch, &it.port)).collect()
}

/// The user may have named the namespace differently than the switch does.
fn is_asked_for(args: &DeviceDoctorArgs, port: &PortReport) -> bool {
    let is_there = |netns: &String| {
        let of_port = Namespace::find(port.netns.as_ref()?).ok()?;
        namespace(Some(netns)).ok()?.is_same(&of_port).ok()
    };
    args.name.as_ref().is_none_or(|name| *name == port.name)
        && args.place.netns.as_ref().is_none_or(|netns| is_there(netns) == Some(true))
}

/// Frames that are too long, or have too many tags, for a port.
pub(super) fn oversize(switch: &str, port: &PortReport) -> Option<Finding> {
    let dropped = port.drops.get("oversize").copied().filter(|&count| count > 0)?;
    let remedy = port.oversize_remedy()?;
    let text = format!(
        "port {} of switch {switch} dropped {dropped} frames as oversize (mtu={}, envelope={}): \
         {remedy}",
        port.port, port.mtu, port.envelope
    );
    Some(Finding {
        severity: Severity::Error,
        device: port.name.clone(),
        namespace: port.netns.clone().unwrap_or_else(|| HERE.to_owned()),
        rule: "oversize",
        text,
        mend: None,
        is_sure: true,
    })
}

/// A running switch answers at once; a stopped one must not delay the others.
const PATIENCE: Duration = Duration::from_secs(1);
