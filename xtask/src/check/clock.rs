//! Measures how long the parts of the run take.

use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

/// Finished parts with their times, and the running one with its start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    parts: Vec<(String, Duration)>,
    running: Option<(String, Instant)>,
}

impl Clock {
    /// Starts a part and ends the previous one.
    pub(super) fn begin(&mut self, name: &str) {
        self.end();
        self.running = Some((name.to_owned(), Instant::now()));
    }

    pub(super) fn end(&mut self) {
        if let Some((name, since)) = self.running.take() {
            self.parts.push((name, since.elapsed()));
        }
    }

    /// Appends the parts of another clock.
    pub(super) fn append(&mut self, mut other: Self) {
        other.end();
        self.parts.append(&mut other.parts);
    }

    /// One line for each part of at least [`WORTH_A_LINE`], longest first.
    pub(super) fn longest(&self) -> Vec<String> {
        let is_long = |part: &&(String, Duration)| part.1 >= WORTH_A_LINE;
        let mut parts: Vec<_> = self.parts.iter().filter(is_long).collect();
        parts.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        parts.iter().map(|(name, time)| format!("{:4} s {name}", time.as_secs())).collect()
    }
}

/// Copies cargo's standard error to ours, and times the test programs that it names.
pub(super) fn follow(errors: impl Read) -> Clock {
    let mut clock = Clock::default();
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        eprintln!("{line}");
        if let Some(program) = program(&line) {
            clock.begin(program);
        } else if clock.running.is_none() && line.trim_start().starts_with("Compiling ") {
            clock.begin("build of the tests");
        }
    }
    clock.end();
    clock
}

/// The name of the test program or crate in cargo's line
/// `Running tests/a.rs (target/debug/deps/a-0123456789abcdef)` or `Doc-tests a`.
fn program(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(of) = line.strip_prefix("Doc-tests ") {
        return Some(of);
    }
    let (_, path) = line.strip_prefix("Running ")?.split_once('(')?;
    let file = path.trim_end_matches(')').rsplit('/').next()?;
    file.rsplit_once('-').map(|(name, _hash)| name)
}

const WORTH_A_LINE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_as_cargo_names_them() {
        let line = "     Running tests/server/main.rs (target/debug/deps/server-8f669a40a74ddc71)";
        assert_eq!(program(line), Some("server"));
        assert_eq!(program("   Doc-tests tapswitch_tap"), Some("tapswitch_tap"));
        assert_eq!(program("   Compiling tapswitch v0.1.0 (/a/b)"), None);
    }

    #[test]
    fn parts_follow_each_other() {
        let output = "Compiling a v1\nRunning a (deps/a-1)\nerror\nRunning b (deps/b-2)\n";
        let clock = follow(output.as_bytes());
        let names: Vec<_> = clock.parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["build of the tests", "a", "b"]);
        assert_eq!(clock.running, None);
    }

    #[test]
    fn the_longest_is_named_first_and_short_ones_are_not() {
        let part = |name: &str, seconds| (name.to_owned(), Duration::from_secs(seconds));
        let parts = vec![part("a", 25), part("b", 3), part("c", 130)];
        let clock = Clock { parts, running: None };
        assert_eq!(clock.longest(), [" 130 s c", "  25 s a"]);
    }
}
