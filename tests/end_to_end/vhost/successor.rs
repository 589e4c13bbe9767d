//! VMMs that reconnect as soon as their switch is gone.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use rustix::process::Signal;

use crate::support::*;

/// Cloud Hypervisor up to version 53 gives its device up if a connection is accepted and then
/// reset.
#[test]
fn no_vmm_is_connected_to_a_switch_that_is_ending() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let [vmm, management] = ["vm0.sock", "s.sock"].map(|name| directory.path().join(name));
    let port = format!("1=vhost:{}", vmm.display());
    let socket = management.display().to_string();
    for signal in [Signal::KILL, Signal::TERM].repeat(5) {
        let args = ["switch", "--socket", &socket, "--port", &port];
        let mut switch = Daemon::tapswitch(&room, directory.path(), &args);
        let session = eventually("the socket", || UnixStream::connect(&vmm).ok());
        until("the session", || has_met(&socket));
        let path = vmm.clone();
        let next = thread::spawn(move || reconnect(session, &path));
        switch.signal(signal);
        switch.wait();
        let next = next.join().unwrap();
        assert!(next.is_err(), "{signal:?}: connected to the old switch: {next:?}");
    }
}

/// Whether the VMM was accepted.
fn has_met(socket: &str) -> bool {
    let shown = tapswitch(&["show", "ports", "--json", "--socket", socket]);
    shown.code == Some(0) && shown.out.contains("\"connected\"")
}

/// Waits for the end of a session, and connects again.
fn reconnect(mut session: UnixStream, path: &Path) -> std::io::Result<UnixStream> {
    // The switch may say something before, and the end may be a reset.
    while session.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    UnixStream::connect(path)
}
