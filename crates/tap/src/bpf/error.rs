//! Errors of loading eBPF programs and maps.

use std::io;

use thiserror::Error;

use super::asm::AssembleError;

/// Error of loading an eBPF program, or of using its maps.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BpfError {
    /// `EPERM`.
    #[error(
        "{name}: {call}: not permitted; loading eBPF programs needs CAP_BPF (before Linux 5.8 \
         CAP_SYS_ADMIN), as kernel.unprivileged_bpf_disabled is set: run as root or `setcap \
         cap_bpf,cap_net_admin+ep PROGRAM`; in a container, the seccomp profile must permit \
         bpf(2); before Linux 5.11, the limit of locked memory (`ulimit -l`) applies, too"
    )]
    NotPermitted {
        /// Name of the program.
        name: &'static str,
        /// The command of bpf(2).
        call: &'static str,
    },
    /// `ENOSYS`.
    #[error("{name}: this kernel has no bpf(2); it must be built with CONFIG_BPF_SYSCALL")]
    NoBpf {
        /// Name of the program.
        name: &'static str,
    },
    /// The kernel is too old for the program.
    #[error("{name}: Linux {release} is too old for this eBPF program, which needs Linux {needed}")]
    TooOld {
        /// Name of the program.
        name: &'static str,
        /// Release of the running kernel.
        release: String,
        /// Minimum release.
        needed: String,
    },
    /// The verifier refuses the program.
    #[error(
        "{name}: the kernel's verifier rejected the program ({source}); please report this bug \
         with the kernel's version and these last lines of the verifier's log:\n{log}"
    )]
    Rejected {
        /// Name of the program.
        name: &'static str,
        /// Error of bpf(2).
        source: io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// The program is longer than the reach of a jump.
    #[error("{name}: the program does not fit: {reason}; give it fewer rules")]
    TooLong {
        /// Name of the program.
        name: &'static str,
        /// What exceeds the limit.
        reason: String,
    },
    /// Counters of a queue that no device can have.
    #[error("{name}: there is no queue {index}: a device has at most {count}, counted from 0")]
    NoSuchQueue {
        /// Name of the program.
        name: &'static str,
        /// The requested index.
        index: u16,
        /// Maximum number of queues.
        count: u16,
    },
    /// Any other error.
    #[error("{name}: {call}: {source}")]
    Refused {
        /// Name of the program.
        name: &'static str,
        /// The command of bpf(2).
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl BpfError {
    pub(crate) fn assemble(name: &'static str) -> impl FnOnce(AssembleError) -> Self {
        move |error| Self::TooLong { name, reason: error.to_string() }
    }

    /// Converts the error of a command.
    pub(super) fn new(name: &'static str, call: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM) => Self::NotPermitted { name, call },
            Some(libc::ENOSYS) => Self::NoBpf { name },
            _ => Self::Refused { name, call, source },
        }
    }

    /// Converts the error of loading a program; `log` is the whole log of the verifier.
    pub(super) fn load(
        name: &'static str,
        source: io::Error,
        needed: (u32, u32),
        log: &str,
    ) -> Self {
        let error = Self::new(name, "BPF_PROG_LOAD", source);
        match (error, release()) {
            (Self::Refused { .. }, Some((release, version))) if version < needed => {
                Self::TooOld { name, release, needed: format!("{}.{}", needed.0, needed.1) }
            }
            (Self::Refused { source, .. }, _) => Self::Rejected { name, source, log: tail(log) },
            (error, _) => error,
        }
    }
}

/// Release of the running kernel, and the first two numbers in it.
fn release() -> Option<(String, (u32, u32))> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let release = release.trim().to_owned();
    let version = version_of(&release)?;
    Some((release, version))
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn tail(log: &str) -> String {
    let lines = log.lines().collect::<Vec<_>>();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Number of lines of the verifier's log in an error. The last ones contain the reason.
const LOG_LINES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_they_are_written() {
        assert_eq!(version_of("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version_of("7.3-rc1"), Some((7, 3)));
        assert_eq!(version_of("5.2.0+"), Some((5, 2)));
        assert_eq!(version_of("next"), None);
    }

    #[test]
    fn of_a_log_the_end_is_shown() {
        let log = (0..100).map(|line| format!("line {line}\n")).collect::<String>();
        assert_eq!(tail(&log).lines().count(), LOG_LINES);
        assert!(tail(&log).ends_with("line 99"));
        assert_eq!(tail("R1 invalid mem access\n"), "R1 invalid mem access");
    }

    #[test]
    fn errors_name_the_cause() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let error = BpfError::load("steering", denied, (5, 3), "");
        assert!(error.to_string().contains("CAP_BPF"), "{error}");
        let absent = io::Error::from_raw_os_error(libc::ENOSYS);
        let error = BpfError::new("steering", "BPF_MAP_CREATE", absent);
        assert!(error.to_string().contains("CONFIG_BPF_SYSCALL"), "{error}");
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let error = BpfError::load("steering", invalid(), (999, 0), "");
        assert!(error.to_string().contains("needs Linux 999.0"), "{error}");
        let error = BpfError::load("steering", invalid(), (2, 6), "R1 invalid mem access");
        assert!(error.to_string().contains("R1 invalid mem access"), "{error}");
    }
}
