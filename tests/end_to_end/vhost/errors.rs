//! Errors of sockets and memory, and how the switch reports them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use tapswitch_guest::{Guest, Series};

use super::lab::{Lab, vhost};
use super::machine::{Machine, Nic, boot, can_boot};
use crate::support::*;

#[test]
fn sockets_that_cannot_be_are_refused_with_a_remedy() {
    let (lab, directory) = (Lab::new(), directory());
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "").unwrap();
    let _taken = UnixListener::bind(at("taken")).unwrap();
    let start = |port: &str| {
        let socket = lab.socket("management").display().to_string();
        let args = ["--log", "off", "switch", "--socket", &socket, "--port", port];
        tapswitch_in(&lab.room, &args)
    };
    let refused = |port: &str, words: &[&str]| start(port).refused(words);
    // Text that is not even a valid port.
    let misread = |port: &str, word: &str| {
        let Said { code, err, .. } = start(port);
        assert!(code == Some(2) && err.contains(word), "{port}: {err}");
    };
    let port = |name: &str| vhost(1, &at(name), "");
    refused(&port("file"), &["file", "is not a socket", "another path"]);
    refused(&port("taken"), &["taken", "another process listens", "its own socket"]);
    refused(&port("no/vm.sock"), &["no/vm.sock", "No such file", "directory must exist"]);
    misread("1=vhost:", "the path of the socket or file, is missing");
    misread(&format!("{},queues=0", port("vm")), "expected a number of pairs of queues");
    misread(&format!("{},server,sideways", port("vm")), "option 'sideways'");
    misread(&format!("1=vhost:/tmp/{}", "long".repeat(30)), "at most 107 bytes");
    assert!(fs::exists(at("file")).unwrap(), "what is no socket of ours stays");
}

#[test]
fn a_directory_that_nobody_may_write_is_named() {
    if !can_run(&["setpriv"]) {
        return;
    }
    let (lab, directory) = (Lab::new(), directory());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = copy_of_binary(directory.path());
    let mut command = lab.room.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
    let port = vhost(1, &directory.path().join("vm.sock"), "");
    let socket = lab.socket("management").display().to_string();
    command.args(["--log", "off", "switch", "--socket", &socket, "--port", &port]);
    Said::by(&mut command).refused(&["vm.sock", "Permission denied", "writable"]);
}

#[test]
fn the_socket_of_a_killed_switch_is_taken_over_and_that_of_a_stopped_one_is_gone() {
    if !can_run(&[]) {
        return;
    }
    let mut lab = Lab::new();
    let socket = lab.socket("vm1");
    let ports = [vhost(1, &socket, "")];
    lab.start_switch(&[], &ports);
    assert!(fs::exists(&socket).unwrap());
    lab.kill_switch();
    assert!(fs::exists(&socket).unwrap());
    lab.start_switch(&[], &ports);
    assert_eq!(lab.port(1)["guest"]["state"], "waiting");
    let shown = lab.show_text("ports");
    let line = shown.lines().find(|line| line.contains(socket.to_str().unwrap())).unwrap();
    assert!(line.contains("waiting"), "{shown}");
    lab.stop_switch();
    assert!(!fs::exists(&socket).unwrap());
}

#[test]
fn memory_without_a_file_is_named_with_the_remedy() {
    let Some(lab) = misled(Guest::private_memory) else { return };
    assert_eq!(lab.port(1)["state"], "no-link");
}

#[test]
fn memory_of_which_the_monitor_has_a_copy_is_named_with_the_remedy() {
    misled(Guest::private_file);
}

/// A switch that has reported what is wrong with the memory of a guest.
fn misled(mistake: fn(Guest) -> Guest) -> Option<Lab> {
    if !can_boot() {
        return None;
    }
    let mut lab = Lab::new();
    let socket = lab.socket("vm1");
    lab.start_switch(&[], &[vhost(1, &socket, "")]);
    let nics = [Nic::new(&socket)];
    let start = || Machine::start_as(Series::V7_3, 1, lab.directory.path(), &nics, mistake);
    let [mut machine] = boot([start])?;
    machine.run("ip link set eth0 up");
    until("the reason", || lab.show_text("ports").contains("share=on"));
    assert!(lab.log().contains("share=on"), "{}", lab.log());
    Some(lab)
}
