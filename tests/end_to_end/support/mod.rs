//! Shared by the tests: rooms, hosts, programs, peers, streams of frames and captures.

mod authority;
mod capture;
mod cluster;
pub(crate) mod conservation;
mod fabric;
mod host;
mod lab;
mod leftovers;
pub(crate) mod memory;
pub(crate) mod ovs;
mod process;
mod reader;
mod stream;
mod tcp;
mod testpmd;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use authority::Authority;
pub(crate) use capture::Capture;
pub(crate) use cluster::{Cluster, Side};
pub(crate) use fabric::{Fabric, Kind};
pub(crate) use host::{Host, checksum_errors, count_checksum_errors, join, room};
pub(crate) use lab::{CONTROLLER, Ends, Lab, Peer, number};
pub(crate) use leftovers::{Leftovers, alone, among_others, children, is_running};
pub(crate) use memory::Memory;
pub(crate) use ovs::Ovs;
pub(crate) use process::{BINARY, Daemon, Said, copy_of_binary, tapswitch, tapswitch_in};
pub(crate) use reader::{Feed, Reader, number_in, numbered};
pub(crate) use stream::{Flow, Stream};
pub(crate) use tcp::send_by_tcp;
pub(crate) use testpmd::{Guests, Testpmd};

/// True if the test may create namespaces and tap devices and has these programs; otherwise reports
/// it as skipped.
pub(crate) fn can_run(programs: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to make network namespaces");
    }
    if !Path::new("/dev/net/tun").exists() {
        return skip("no /dev/net/tun");
    }
    match programs.iter().find(|program| !is_installed(program)) {
        Some(program) => skip(&format!("{program} is not installed")),
        None => true,
    }
}

/// Reports that a test cannot run; `cargo xtask check` counts such lines.
pub(crate) fn skip(reason: &str) -> bool {
    println!("SKIP: {reason}");
    false
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories = std::env::split_paths(&path);
    directories.any(|directory| directory.join(program).is_file())
        // Where Debian installs daemons; not in every user's path.
        || Path::new("/usr/sbin").join(program).is_file()
}

/// A name that no other test and no other run uses.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("e2e-{}-{count}", std::process::id())
}

/// A directory that is removed on drop. Its path is short: sockets have room for 108 bytes.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix(&unique()).tempdir().unwrap()
}

/// Repeats `question` until it returns a value, for at most [`PATIENCE`].
pub(crate) fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer in time: {what}");
        // Only to leave the processor to others.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// How long a test waits for what should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// True if a port, by `show ports --json`, has dropped nothing but floods without a receiver, such
/// as broadcasts of a host before others are attached.
pub(crate) fn has_lost_nothing(port: &serde_json::Value) -> bool {
    port["drops"].as_object().unwrap().keys().all(|reason| reason == "no_output")
}
