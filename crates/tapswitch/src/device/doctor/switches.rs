//! What running switches dropped because of a setting: they alone know.

use std::path::{Path, PathBuf};

use tapswitch_switch::report::PortReport;

use super::finding::{Finding, Severity};
use crate::cli::device::DeviceDoctorArgs;
use crate::management::{Request, Topic, ask, running_switches};

/// Findings about the ports of all switches that can be asked. One that does not answer has
/// nothing to say.
pub(super) fn findings(args: &DeviceDoctorArgs) -> Vec<Finding> {
    let sockets = match &args.socket {
        Some(socket) => vec![socket.clone()],
        None => running_switches(),
    };
    let of_switch = |socket: &PathBuf| {
        let ports = ask::<Vec<PortReport>>(Some(socket), &Request::Show(Topic::Ports));
        let ports = ports.unwrap_or_default().into_iter().filter(|port| is_asked_for(args, port));
        let switch = name(socket);
        ports.filter_map(|port| oversize(&switch, &port)).collect::<Vec<_>>()
    };
    sockets.iter().flat_map(of_switch).collect()
}

fn is_asked_for(args: &DeviceDoctorArgs, port: &PortReport) -> bool {
    let netns = args.place.netns.as_ref();
    args.name.as_ref().is_none_or(|name| *name == port.name)
        && netns.is_none_or(|netns| port.netns.as_ref() == Some(netns))
}

/// The switch by its socket, which is called as it is unless told otherwise.
fn name(socket: &Path) -> String {
    socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Frames that are too long, or bear too many tags, for a port.
pub(super) fn oversize(switch: &str, port: &PortReport) -> Option<Finding> {
    let dropped = port.drops.get("oversize").copied().filter(|&count| count > 0)?;
    let remedy = port.oversize?.remedy(port.mtu, port.envelope);
    let text = format!(
        "port {} of switch {switch} dropped {dropped} frames as oversize (mtu={}, envelope={}): \
         {remedy}",
        port.port, port.mtu, port.envelope
    );
    Some(Finding {
        severity: Severity::Error,
        device: port.name.clone(),
        namespace: port.netns.clone().unwrap_or_else(|| "(current)".to_owned()),
        rule: "oversize",
        text,
        mend: None,
    })
}
