//! Why no guest ran.

use std::fmt;
use std::io;
use std::process::{Command, Output};
use std::time::Duration;

use thiserror::Error;

/// Why no guest ran, or why it did not reach its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine lacks something: tests that need a guest are skipped.
    #[error("{what}; {remedy}")]
    Unavailable {
        /// What is missing, and why.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// The caller requested something that does not exist.
    #[error("{0}")]
    Wrong(String),
    /// A file or a program of the host failed.
    #[error("{what}: {source}")]
    Io {
        /// The file or program.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel of the guest panicked or oopsed.
    #[error("{release}: {why}\n{console}")]
    Panicked {
        /// Release of the kernel.
        release: String,
        /// The kernel's message.
        why: String,
        /// True if the program had been started.
        booted: bool,
        /// The end of the console and of the output.
        console: Tail,
    },
    /// The guest was not done within its limit.
    #[error("{release}: not done within {limit:?}; allow more, or see where it hangs:\n{console}")]
    TimedOut {
        /// Release of the kernel.
        release: String,
        /// The guest's limit, or that of a boot until the program begins.
        limit: Duration,
        /// True if the program had been started.
        booted: bool,
        /// The end of the console and of the output.
        console: Tail,
    },
    /// QEMU ended, or the guest's init gave up, before the program's exit status was reported.
    #[error("{release}: {why}\n{console}")]
    Died {
        /// Release of the kernel.
        release: String,
        /// What was observed.
        why: String,
        /// The end of the console and of the output.
        console: Tail,
    },
}

impl Error {
    pub(crate) fn io(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.to_string(), source }
    }

    pub(crate) fn unavailable(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unavailable { what: what.into(), remedy: remedy.into() }
    }
}

/// The last lines of a guest's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail(String);

impl Tail {
    pub(crate) fn of(parts: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (heading, part) in parts.iter().filter(|(_, part)| !part.trim().is_empty()) {
            text.push_str(&format!("--- {heading} ---\n"));
            let lines = part.lines().collect::<Vec<_>>();
            for line in &lines[begin(&lines)..] {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        Self(text)
    }
}

/// Start of the relevant lines: the message of a kernel panic, whose trace is as long as the stack
/// was deep; otherwise some lines before the end.
fn begin(lines: &[&str]) -> usize {
    let panic = lines.iter().position(|line| line.contains(PANIC)).unwrap_or(lines.len());
    panic.saturating_sub(PRELUDE_LINES).min(lines.len().saturating_sub(TAIL_LINES))
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs a program to its end; returns its output, or its error message.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output().map_err(Error::io(&name))?;
    if status.success() {
        return Ok(stdout);
    }
    let complaint = String::from_utf8_lossy(&stderr);
    // Of several errors apt reports the cause first, other programs last.
    let mut lines = complaint.lines();
    let complaint =
        lines.clone().find(|line| line.starts_with("E: ")).or_else(|| lines.next_back());
    let complaint = complaint.unwrap_or("no word of why");
    Err(Error::Io { what: name, source: io::Error::other(format!("{status}: {complaint}")) })
}

/// The message of a kernel panic.
pub(crate) const PANIC: &str = "Kernel panic - not syncing";
/// Lines of each part that are shown.
const TAIL_LINES: usize = 40;
/// Lines before a panic that are shown: an oops, or its cause.
const PRELUDE_LINES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_has_all_of_a_panic_however_deep_its_stack_was() {
        let mut console: Vec<_> = (0..100).map(|at| format!("before {at}")).collect();
        console.push(format!("[ 3.1] {PANIC}: sysrq triggered crash"));
        console.extend((0..90).map(|at| format!("after {at}")));
        let tail = Tail::of(&[("console", &console.join("\n"))]).to_string();
        assert!(tail.starts_with("--- console ---\nbefore 60\n"), "{tail}");
        assert!(tail.contains(PANIC) && tail.ends_with("\nafter 89\n"), "{tail}");
    }

    #[test]
    fn else_the_tail_has_the_last_lines() {
        let output: Vec<_> = (0..100).map(|at| format!("line {at}")).collect();
        let tail = Tail::of(&[("output", &output.join("\n")), ("qemu", "\n")]).to_string();
        assert!(tail.starts_with("--- output ---\nline 60\n"), "{tail}");
        assert!(tail.ends_with("\nline 99\n"), "{tail}");
    }
}
