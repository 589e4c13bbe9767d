//! Programs that the demonstration and the benchmarks run inside namespaces, and that end with us.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use tapswitch_netlink::{Namespace, die_with_parent};
use tokio::process::{Child, Command};

/// A program to run inside `namespace`. It is killed when its handle is dropped, and when this
/// process ends in any way.
pub(crate) fn command(namespace: &Namespace, program: &str, args: &[&str]) -> Command {
    let mut command = namespace.command(program);
    command.args(args);
    die_with_parent(&mut command);
    let mut command = Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Starts a program in the background, and discards its output.
pub(crate) fn start(
    namespace: &Namespace,
    program: &str,
    args: &[&str],
) -> Result<Child, ProcessError> {
    let mut command = command(namespace, program, args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|source| ProcessError::start(program, source))
}

/// Runs a program to completion and returns its output.
pub(crate) async fn run(
    namespace: &Namespace,
    program: &str,
    args: &[&str],
    limit: Duration,
) -> Result<String, ProcessError> {
    let mut command = command(namespace, program, args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output();
    let output = tokio::time::timeout(limit, output)
        .await
        .map_err(|_| ProcessError::TooLong { program: program.to_owned(), limit })?
        .map_err(|source| ProcessError::start(program, source))?;
    check(program, &output)
}

fn check(program: &str, output: &Output) -> Result<String, ProcessError> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    // iperf3 reports errors in its JSON, others on standard error.
    let said = if stderr.trim().is_empty() { stdout.trim() } else { stderr.trim() };
    let lines: Vec<_> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(3)..].join("; ");
    // A killed program printed nothing.
    let said = if last.is_empty() { output.status.to_string() } else { last };
    Err(ProcessError::Failed { program: program.to_owned(), said })
}

/// The program and its arguments, pinned to `core` if given (taskset(1), part of every Debian
/// system).
pub(crate) fn on_core(
    core: Option<usize>,
    program: &str,
    args: &[impl AsRef<str>],
) -> (String, Vec<String>) {
    let args = args.iter().map(|arg| arg.as_ref().to_owned());
    match core {
        None => (program.to_owned(), args.collect()),
        Some(core) => {
            let pinned = ["-c".to_owned(), core.to_string(), program.to_owned()];
            ("taskset".to_owned(), pinned.into_iter().chain(args).collect())
        }
    }
}

/// On drop, waits for children that were killed when their handles were dropped, so that no zombies
/// are left to a parent that may not reap them.
#[derive(Debug)]
pub(crate) struct Reaped;

impl Drop for Reaped {
    fn drop(&mut self) {
        while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::empty()) {}
    }
}

/// True when the program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<_> = std::env::split_paths(&path).collect();
    // Debian's directories for daemons, which are not in every user's path.
    directories.extend(["/usr/sbin".into(), "/sbin".into()]);
    directories.iter().any(|directory| directory.join(program).is_file())
}

/// Error of running a program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// It is not installed.
    #[error("{program}: not installed; install it with `apt-get install {package}`")]
    Missing {
        /// The program.
        program: String,
        /// Debian package of the program.
        package: &'static str,
    },
    /// It cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// It failed.
    #[error("{program}: failed: {said}")]
    Failed {
        /// The program.
        program: String,
        /// Last line of its output.
        said: String,
    },
    /// It did not end in time.
    #[error("{program}: did not end within {limit:?}")]
    TooLong {
        /// The program.
        program: String,
        /// The time limit.
        limit: Duration,
    },
}

impl ProcessError {
    fn start(program: &str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => {
                Self::Missing { program: program.to_owned(), package: package_of(program) }
            }
            _ => Self::Start { program: program.to_owned(), source },
        }
    }
}

/// Fails unless these programs are installed.
pub(crate) fn require(programs: &[&str]) -> Result<(), ProcessError> {
    match programs.iter().find(|program| !is_installed(program)) {
        Some(&program) => {
            Err(ProcessError::Missing { program: program.to_owned(), package: package_of(program) })
        }
        None => Ok(()),
    }
}

fn package_of(program: &str) -> &'static str {
    match program {
        "ping" => "iputils-ping",
        "tshark" => "tshark",
        "iperf3" => "iperf3",
        "tc" => "iproute2",
        _ => "openvswitch-switch",
    }
}
