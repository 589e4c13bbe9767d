//! Words for what an inspection was not permitted to see.

/// A number of processes.
pub(super) fn counted(processes: usize) -> String {
    if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") }
}

/// The privilege that shows more.
pub(super) fn remedy() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "this root user may not inspect all of them: run outside of any container"
    } else {
        "run as root, outside of any container"
    }
}
