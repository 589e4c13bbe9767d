//! The asynchronous runtime of a command, and the signals that stop it.

use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};

type Failure = Box<dyn std::error::Error>;

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// The stop signals. By default they end the process at once without cleanup, so listen before
/// creating anything.
pub(crate) struct StopSignals {
    term: Signal,
    int: Signal,
    hangup: Signal,
    quit: Signal,
    /// The process was started with SIGHUP ignored, as by nohup(1).
    ignores_hangup: bool,
}

impl StopSignals {
    /// Starts catching the signals.
    pub(crate) fn listen() -> std::io::Result<Self> {
        // Must precede catching the signals, which changes it.
        let ignores_hangup = ignores_hangup();
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            ignores_hangup,
        })
    }

    /// Waits for the next signal that is not ignored, and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            let signal = self.any().await;
            if !self.spares(signal) {
                return signal;
            }
        }
    }

    /// True for the hangup of a terminal that the process is to outlive.
    pub(crate) fn spares(&self, signal: &str) -> bool {
        self.ignores_hangup && signal == HANGUP
    }

    /// Waits for the next signal of any meaning.
    pub(crate) async fn any(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            _ = self.hangup.recv() => HANGUP,
            _ = self.quit.recv() => "SIGQUIT",
        }
    }

    /// Waits for the next stop signal; with `may_reload`, SIGHUP is none.
    pub(crate) async fn next_stop(&mut self, may_reload: bool) -> &'static str {
        loop {
            match self.next().await {
                HANGUP if may_reload => {}
                signal => return signal,
            }
        }
    }
}

/// Whether this process was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    static AT_THE_START: OnceLock<bool> = OnceLock::new();
    let status = || std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    *AT_THE_START.get_or_init(|| is_ignored(&status(), SignalKind::hangup()))
}

/// Whether a process with this status (proc_pid_status(5)) ignores a signal.
fn is_ignored(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signals are counted from 1.
    mask.is_some_and(|mask| mask >> (signal.as_raw_value() - 1) & 1 == 1)
}

/// Name of the signal that makes a controller read its files again, and stops other processes.
pub(crate) const HANGUP: &str = "SIGHUP";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_ignores_is_read_from_its_status() {
        let of = |mask: &str| {
            let status = format!("Name:\ttapswitch\nSigBlk:\tffffffffffffffff\nSigIgn:\t{mask}\n");
            [SignalKind::hangup(), SignalKind::terminate()].map(|it| is_ignored(&status, it))
        };
        assert_eq!(of("0000000000000001"), [true, false]);
        assert_eq!(of("0000000000004000"), [false, true]);
        assert_eq!(of("0000000000000000"), [false, false]);
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
