//! What running switches know alone: which devices are their ports, and what they dropped because
//! of a setting.

use std::path::{Path, PathBuf};

use tapswitch_netlink::Namespace;
use tapswitch_switch::report::PortReport;
use tapswitch_tap::inspect::Inspected;

use super::finding::{Finding, HERE, Severity};
use crate::cli::device::DeviceDoctorArgs;
use crate::device::namespace;
use crate::management::{Request, Topic, ask, running_switches};

/// A port, and what its switch is called.
#[derive(Clone, Debug)]
pub(super) struct SwitchPort {
    pub(super) switch: String,
    pub(super) port: PortReport,
}

impl SwitchPort {
    /// True when the device is this port. One that is in the namespace of its switch is in that of
    /// who holds it.
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

/// The ports of all switches that can be asked, or of the one at `socket`. One that does not answer
/// has nothing to say.
pub(super) fn ports(socket: Option<&PathBuf>) -> Vec<SwitchPort> {
    let sockets = socket.map_or_else(running_switches, |socket| vec![socket.clone()]);
    let of_switch = |socket: &PathBuf| {
        let ports = ask::<Vec<PortReport>>(Some(socket), &Request::Show(Topic::Ports));
        let switch = name(socket);
        let port = |port| SwitchPort { switch: switch.clone(), port };
        ports.unwrap_or_default().into_iter().map(port).collect::<Vec<_>>()
    };
    sockets.iter().flat_map(of_switch).collect()
}

/// Findings about the ports that were asked for.
pub(super) fn findings(args: &DeviceDoctorArgs, ports: &[SwitchPort]) -> Vec<Finding> {
    let asked = ports.iter().filter(|it| is_asked_for(args, &it.port));
    asked.filter_map(|it| oversize(&it.switch, &it.port)).collect()
}

/// The namespace may be asked for by another name than the switch has for it.
fn is_asked_for(args: &DeviceDoctorArgs, port: &PortReport) -> bool {
    let is_there = |netns: &String| {
        let of_port = Namespace::find(port.netns.as_ref()?).ok()?;
        namespace(Some(netns)).ok()?.is_same(&of_port).ok()
    };
    args.name.as_ref().is_none_or(|name| *name == port.name)
        && args.place.netns.as_ref().is_none_or(|netns| is_there(netns) == Some(true))
}

/// The switch by its socket, which is called as it is unless told otherwise.
fn name(socket: &Path) -> String {
    socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Frames that are too long, or bear too many tags, for a port.
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
