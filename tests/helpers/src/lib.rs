//! Helpers for the tests of several crates: skipping, names, deadlines, privileges, traffic by
//! ordinary sockets, and what is logged.
//!
//! A failed call is a failed test, so these functions panic. For tests on another kernel see
//! `tapswitch-guest`.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod log;
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

pub use log::Log;
pub use traffic::{pattern, set_udp_segment, tcp_transfer, with_cable};

/// True if the test may create namespaces; otherwise reports it as skipped.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root() || skip("needs root to make network namespaces")
}

/// True if the test may create namespaces and tap devices; otherwise reports it as skipped.
pub fn can_tap() -> bool {
    is_root() && (Path::new("/dev/net/tun").exists() || skip("no /dev/net/tun"))
}

/// Reports that a test is skipped, and returns `false`: past the harness, which would capture
/// `println!`, and as one line in one piece, whatever other tests print meanwhile.
pub fn skip(reason: &str) -> bool {
    let _ = io::stdout().write_all(format!("\nSKIP: {reason}\n").as_bytes());
    false
}

/// The first two numbers of the kernel's version.
pub fn kernel_version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// How many cases a property test runs of which `usual` are enough, since they take longer or
/// shorter than others: as many more or fewer as `PROPTEST_CASES` asks of all tests, and at least
/// one.
pub fn cases(usual: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse::<u32>().ok());
    let scaled = u64::from(usual) * u64::from(asked.unwrap_or(PROPTEST_CASES));
    u32::try_from(scaled / u64::from(PROPTEST_CASES)).unwrap_or(u32::MAX).max(1)
}

/// A name that no other test and no other run uses.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

/// Runs `action` on a thread without privileges.
pub fn unprivileged<R: Send>(action: impl FnOnce() -> R + Send) -> R {
    let action = || {
        without_privilege();
        action()
    };
    thread::scope(|scope| scope.spawn(action).join().unwrap())
}

/// Drops all privileges of the calling thread, for good.
pub fn without_privilege() {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).unwrap();
}

/// Repeats `question` until it returns a value, for at most [`PATIENCE`].
pub fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer in time: {what}");
        // Only to leave the processor to others.
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Waits until one of `files` is readable, for at most a tenth of a second.
pub fn wait_readable(files: &[&impl AsFd]) {
    let mut files = files.iter().map(|file| PollFd::new(*file, PollFlags::IN)).collect::<Vec<_>>();
    let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    poll(&mut files, Some(&timeout)).unwrap();
}

/// What proptest runs unless it is told otherwise.
const PROPTEST_CASES: u32 = 256;

/// How long a test waits for what should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(30);
