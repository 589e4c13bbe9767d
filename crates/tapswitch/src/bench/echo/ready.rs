//! How a process of a measurement tells its parent that it is ready.

/// Tells it.
pub(super) fn announce() {
    say!("{READY}");
}

/// The line that says so.
pub(super) const READY: &str = "ready";
