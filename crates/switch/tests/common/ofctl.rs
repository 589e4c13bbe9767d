//! `ovs-ofctl`, Open vSwitch's tool for any OpenFlow switch.

use std::process::{Command, Output};

use super::{Running, skip};

/// True if the tool is installed; otherwise prints that the test is skipped.
pub(crate) fn is_there() -> bool {
    Command::new("ovs-ofctl").arg("--version").output().is_ok()
        || skip("no ovs-ofctl; install openvswitch-common")
}

/// The output of a command that must succeed.
pub(crate) fn run(switch: &Running, command: &str, arguments: &[&str]) -> String {
    let output = output(switch, command, arguments);
    let text = text(&output);
    assert!(output.status.success(), "{command} {arguments:?}: {text}");
    assert!(!text.contains("OFPT_ERROR"), "{command} {arguments:?}: {text}");
    text
}

/// The output of a command that the switch must refuse.
pub(crate) fn refused(switch: &Running, command: &str, arguments: &[&str]) -> String {
    let text = text(&output(switch, command, arguments));
    assert!(text.contains("OFPT_ERROR"), "{command} {arguments:?}: no error in {text}");
    text
}

pub(crate) fn output(switch: &Running, command: &str, arguments: &[&str]) -> Output {
    let target = format!("tcp:{}", switch.address());
    Command::new("ovs-ofctl")
        .args(["-O", "OpenFlow13", "--timeout=30", command, &target])
        .args(arguments)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}
