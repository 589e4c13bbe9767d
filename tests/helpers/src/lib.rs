//! What the tests of several crates share: when they are skipped, names, patience, privileges, and
//! traffic by ordinary sockets.
//!
//! A failed call is a failed test, so these functions panic. Tests on another kernel are the
//! business of `tapswitch-guest`.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod traffic;

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CapabilitySet, CapabilitySets};

pub use traffic::{pattern, set_udp_segment, tcp_transfer, with_cable};

/// True when the test may make namespaces; otherwise says that it is skipped.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root() || skip("needs root to make network namespaces")
}

/// True when the test may make namespaces and tap devices; otherwise says that it is skipped.
pub fn can_tap() -> bool {
    is_root() && (Path::new("/dev/net/tun").exists() || skip("no /dev/net/tun"))
}

/// Says loudly that a test is skipped, and answers `false`: past the harness, which would swallow
/// `println!`; in one piece, on a line of its own, whatever other tests print meanwhile.
pub fn skip(reason: &str) -> bool {
    let _ = io::stdout().write_all(format!("\nSKIP: {reason}\n").as_bytes());
    false
}

/// Version of the kernel, of which the first two numbers count.
pub fn kernel_version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// A name that no other test and no other run uses.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

/// Runs `action` on a thread that has no privilege left.
pub fn unprivileged<R: Send>(action: impl FnOnce() -> R + Send) -> R {
    let action = || {
        without_privilege();
        action()
    };
    thread::scope(|scope| scope.spawn(action).join().unwrap())
}

/// Takes all privileges from the calling thread, for good.
pub fn without_privilege() {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).unwrap();
}

/// Asks `question` until it answers, for as long as patience lasts.
pub fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer in time: {what}");
        // Only to leave the processor to those that are waited for.
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Waits until one of `files` is readable, for a tenth of a second at most.
pub fn wait_readable(files: &[&impl AsFd]) {
    let mut files = files.iter().map(|file| PollFd::new(*file, PollFlags::IN)).collect::<Vec<_>>();
    let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    poll(&mut files, Some(&timeout)).unwrap();
}

/// How long a test waits for what must come at once.
pub const PATIENCE: Duration = Duration::from_secs(30);
