//! Programs: those that run in the background, and those whose output is examined.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tapswitch_netlink::{Namespace, die_with_parent};

use super::{PATIENCE, unique};

/// A program in the background, stopped on drop. Its output is kept in a file.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `tapswitch` in `namespace`, with its output in `directory`.
    pub(crate) fn tapswitch(namespace: &Namespace, directory: &Path, args: &[&str]) -> Self {
        let mut command = namespace.command(BINARY);
        command.args(args).env(MMAP_THRESHOLD.0, MMAP_THRESHOLD.1);
        Self::start(command, directory)
    }

    /// Starts any program.
    pub(crate) fn start(mut command: Command, directory: &Path) -> Self {
        let log = directory.join(format!("{}.log", unique()));
        let file = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = die_with_parent(&mut command).spawn().unwrap();
        Self { child, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        // It may have ended already; its process id is not reused before it is waited for.
        let _ = kill_process(Pid::from_raw(id).unwrap(), signal);
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.wait_until(Instant::now() + PATIENCE)
            .unwrap_or_else(|| panic!("it does not end; it said:\n{}", self.log()))
    }

    /// Asks it to stop, and waits for its end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.wait_until(Instant::now() + GRACE).is_none() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
        let log = self.log();
        if thread::panicking() {
            println!("--- {} ---\n{log}", self.log.display());
        } else {
            assert!(!log.contains("panicked"), "{log}");
            // A switch checks conservation when it ends: whatever a test did, each frame is
            // accounted for.
            assert!(!log.contains("are not accounted for"), "{log}");
        }
    }
}

/// Larger allocations are returned to the system when they are freed (mallopt(3)). Otherwise small
/// ones behind them prevent that, and the memory of a switch before and after cannot be compared.
const MMAP_THRESHOLD: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");

/// The output of a program, and how it ended.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn by(command: &mut Command) -> Self {
        Self::by_telling(command, "")
    }

    /// The same, with this text as its input.
    pub(crate) fn by_telling(command: &mut Command, text: &str) -> Self {
        let io = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = io.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        // It may end without reading; all texts here fit the pipe.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(!err.contains("panicked"), "{command:?}: {err}");
        Self { code: status.code(), out, err }
    }

    /// Its output; it must have succeeded.
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Its output, as JSON.
    pub(crate) fn json(self) -> Value {
        let text = self.well();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The one-line error message of a failed program, which must contain all `words`.
    pub(crate) fn refused(self, words: &[&str]) -> String {
        let Self { code, out, err } = self;
        assert_eq!(code, Some(1), "{out}{err}");
        assert_eq!(out, "", "nothing is printed before the refusal");
        assert_eq!(err.lines().count(), 1, "one plain line: {err}");
        assert!(err.starts_with("tapswitch: "), "{err}");
        for word in words {
            assert!(err.contains(word), "'{word}' is not in: {err}");
        }
        err
    }
}

/// Runs `tapswitch` to its end.
pub(crate) fn tapswitch(args: &[&str]) -> Said {
    Said::by(Command::new(BINARY).args(args))
}

/// The same in `namespace`.
pub(crate) fn tapswitch_in(namespace: &Namespace, args: &[&str]) -> Said {
    Said::by(namespace.command(BINARY).args(args))
}

/// A copy of the binary in `directory`, for users who may not read the original. Another program
/// makes it: if this process had written it, a program that another thread starts at that moment
/// might hold it open a little longer, and a file that is open for writing cannot be executed
/// (`ETXTBSY`).
pub(crate) fn copy_of_binary(directory: &Path) -> PathBuf {
    let copy = directory.join("tapswitch");
    Said::by(Command::new("cp").arg(BINARY).arg(&copy)).well();
    copy
}

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tapswitch");
/// How long a program may take to clean up.
const GRACE: Duration = Duration::from_secs(10);
