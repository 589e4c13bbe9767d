//! What the tests of this crate share.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tapswitch_netlink::OwnedNamespace;

/// True when the test may make namespaces; otherwise says loudly that it is skipped.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root to make network namespaces");
    }
    root
}

/// Says why a test is skipped; past the harness, which would swallow `eprintln!`, in one piece and
/// on a line of its own.
pub(crate) fn skip(reason: &str) {
    let _ = std::io::stdout().write_all(format!("\nSKIP: {reason}\n").as_bytes());
}

/// Runs `action` on a thread that has no privilege left.
pub(crate) fn unprivileged<R: Send>(action: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            rustix::thread::set_capabilities(None, sets).unwrap();
            action()
        });
        thread.join().unwrap()
    })
}

/// A name that no other test and no other run uses.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

/// A namespace for one test.
pub(crate) fn namespace() -> OwnedNamespace {
    OwnedNamespace::create(&unique("nltest")).unwrap()
}

/// Asks `question` until it answers, for at most five seconds.
pub(crate) fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer in time: {what}");
        std::thread::yield_now();
    }
}
