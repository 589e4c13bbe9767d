//! What the tests of this crate share: namespaces with hosts, a running switch, a controller that
//! does as it is told, traffic, captured frames.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod capture;
mod controller;
mod host;
mod lab;
pub(crate) mod ofctl;
mod rules;
mod traffic;
mod underlay;

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use capture::{Capture, frame, without_hint};
pub(crate) use controller::{Controller, accept, listen};
pub(crate) use host::{Host, introduce};
pub(crate) use lab::{Lab, Running, ask, config, has_dropped, runtime, start_here};
pub(crate) use rules::*;
pub(crate) use traffic::*;
pub(crate) use underlay::{Fabric, TUNNEL, Underlay, VXLAN};

/// True when the test may make namespaces and tap devices; otherwise says that it is skipped.
pub(crate) fn can_run() -> bool {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to make network namespaces");
    }
    Path::new("/dev/net/tun").exists() || skip("no /dev/net/tun")
}

/// Past the harness, which would swallow `eprintln!`; in one piece, on a line of its own.
pub(crate) fn skip(reason: &str) -> bool {
    let _ = io::stdout().write_all(format!("\nSKIP: {reason}\n").as_bytes());
    false
}

/// A name that no other test and no other run uses.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

/// Asks `question` until it answers, for as long as patience lasts.
pub(crate) fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer in time: {what}");
        // Only to leave the processor to those that are waited for.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// How long a test waits for what must come at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
