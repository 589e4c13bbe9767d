//! `cargo xtask check`: runs all checks and tests, and prints one summary.
//!
//! The page, its format and types, and Rust format, lints and documentation count as one test each.
//! The tests themselves are cargo's and the page's, which print results in libtest's format. A test
//! that lacks a peer or a privilege prints a line that starts with `SKIP:`. It counts as skipped
//! and is listed again at the end, as are the longest parts with their times. The last line is
//! `N passed, N failed, N skipped`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

mod clock;
mod soak;

use clock::Clock;
pub(crate) use soak::run as soak;

/// Results of the run so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// As libtest counts them, which includes skipped tests.
    passed: u64,
    failed: u64,
    /// Tests that libtest ignored.
    ignored: u64,
    /// Names of failed tests and steps.
    failures: Vec<String>,
    /// Why tests were skipped.
    skips: Vec<String>,
    /// Section of the output that the next line belongs to.
    section: Section,
    /// Panic messages and errors of failed tests.
    panics: Vec<String>,
    clock: Clock,
}

/// Sections of libtest's output.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// One line for each test, and output that libtest does not capture.
    #[default]
    Results,
    /// Captured output of passed tests, which is not printed.
    OfPassed,
    /// Captured output of failed tests.
    OfFailed,
    /// The same, from a panic to its backtrace.
    Panic,
    /// Indented lines after a failed test of the page, which give the cause. The number is how many
    /// more of them the summary repeats.
    Cause(u8),
}

/// Whether to print a line.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Yes,
    No,
}

/// Runs all checks and tests.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut tally = Tally::default();
    tally.begin("page");
    page(root, &mut tally);
    for (name, args) in STEPS {
        tally.begin(name);
        let held = cargo(root, args).status().is_ok_and(|status| status.success());
        tally.step(name, held);
    }
    tally.begin("tests");
    let seed = seed(std::env::var_os(SEED));
    println!("seed of the property tests: {SEED}={}", seed.display());
    tests("cargo test", cargo_tests(root, &seed), &mut tally);
    tally.begin("tests of the page");
    tests("scripts/test-ui", page_tests(root), &mut tally);
    tally.clock.end();
    tally.print();
    ExitCode::from(u8::from(tally.failed > 0))
}

/// Builds and checks the page. This comes first because the binary embeds it.
fn page(root: &Path, tally: &mut Tally) {
    let is_there = Command::new("node").arg("--version").output().is_ok();
    if !is_there {
        tally.step("page", true);
        println!("SKIP: the page: node is not installed");
        tally.take("SKIP: the page: node is not installed");
        return;
    }
    let mut build = Command::new(root.join("scripts/build-ui"));
    let is_built = build.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    tally.step("page", is_built);
    let mut check = Command::new("npm");
    check.args(["run", "--silent", "check"]).current_dir(root.join("ui")).stdin(Stdio::null());
    tally.step("format and types of the page", check.status().is_ok_and(|s| s.success()));
}

/// The seed of the property tests: the same in each run, unless the environment has another one.
fn seed(of_environment: Option<OsString>) -> OsString {
    of_environment.unwrap_or_else(|| "1".into())
}

fn cargo_tests(root: &Path, seed: &OsStr) -> Command {
    let mut command = cargo(root, &["test", "--workspace", "--no-fail-fast"]);
    // Shows the output of passed tests too, so that skipped ones can be counted.
    command.args(["--", "--show-output"]).env(SEED, seed);
    if std::env::var_os(THREADS).is_none() {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        command.env(THREADS, threads(processors).to_string());
    }
    command
}

/// Tests at once. Those with switches and guests wait a third of the time.
const fn threads(processors: usize) -> usize {
    processors + processors.div_ceil(2)
}

/// The page's tests, which run the binary that cargo's tests have built.
fn page_tests(root: &Path) -> Command {
    let mut command = Command::new(root.join("scripts/test-ui"));
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    command.env("TAPSWITCH_BINARY", root.join(target).join("debug/tapswitch"));
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// Runs tests that print results in libtest's format.
fn tests(name: &str, mut command: Command, tally: &mut Tally) {
    if let Err(error) = run_tests(name, &mut command, tally) {
        eprintln!("{name}: {error}");
        tally.step(name, false);
    }
}

fn run_tests(name: &str, command: &mut Command, tally: &mut Tally) -> io::Result<()> {
    let failed_before = tally.failed;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let follower = child.stderr.take().map(|errors| thread::spawn(|| clock::follow(errors)));
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            if tally.take(&line) == News::Yes {
                println!("{line}");
            }
        }
    }
    let held = child.wait()?.success();
    if let Some(Ok(clock)) = follower.map(thread::JoinHandle::join) {
        tally.clock.append(clock);
    }
    if !held && tally.failed == failed_before {
        // The tests did not compile or start.
        tally.step(name, false);
    }
    Ok(())
}

impl Tally {
    /// Prints and times the start of a part of the run.
    fn begin(&mut self, name: &str) {
        println!("==> {name}");
        self.clock.begin(name);
    }

    fn step(&mut self, name: &str, held: bool) {
        if held {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.failures.push(name.to_owned());
        }
    }

    /// Processes one line of libtest's output; returns whether to print it.
    fn take(&mut self, line: &str) -> News {
        if let Some(reason) = line.strip_prefix("SKIP:") {
            self.skips.push(reason.trim().to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.ignored += count(result, "ignored");
            self.section = Section::Results;
            return News::No;
        } else if let Some(name) = failure(line) {
            self.failures.push(name.to_owned());
            self.section = Section::Cause(CAUSE_LINES);
        } else {
            return self.listen(line);
        }
        News::Yes
    }

    /// Processes a line that is not a result.
    fn listen(&mut self, line: &str) -> News {
        self.section = match (line, self.section) {
            ("successes:", _) => Section::OfPassed,
            ("failures:", _) => Section::OfFailed,
            (_, Section::OfFailed) if line.contains("panicked at ") => Section::Panic,
            (_, Section::Panic) if line.starts_with("stack backtrace:") => Section::OfFailed,
            (_, Section::Panic) if line.starts_with("note: ") => Section::OfFailed,
            (_, Section::Cause(_)) if !line.starts_with("    ") => Section::Results,
            (_, section) => section,
        };
        if matches!(self.section, Section::Panic | Section::Cause(1..)) {
            self.panics.push(line.trim().to_owned());
        }
        if let Section::Cause(left) = &mut self.section {
            *left = left.saturating_sub(1);
            return News::Yes;
        }
        if self.section == Section::OfPassed || !is_news(line) { News::No } else { News::Yes }
    }

    fn print(&self) {
        let print = |heading: &str, lines: &[String]| {
            if !lines.is_empty() {
                println!("\n{heading}:");
                lines.iter().for_each(|line| println!("  {line}"));
            }
        };
        print("longest", &self.clock.longest());
        print("skipped", &by_reason(&self.skips));
        print("failed", &self.failures);
        print("because", &self.panics);
        let (passed, skipped) = (self.really_passed(), self.skipped());
        println!("\n{passed} passed, {} failed, {skipped} skipped", self.failed);
    }

    fn skipped(&self) -> u64 {
        self.ignored + self.skips.len() as u64
    }

    fn really_passed(&self) -> u64 {
        self.passed.saturating_sub(self.skips.len() as u64)
    }
}

/// Each reason once, with its number of occurrences.
fn by_reason(skips: &[String]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    skips.iter().for_each(|reason| *counts.entry(reason).or_insert(0) += 1);
    counts.into_iter().map(|(reason, count)| format!("{count} × {reason}")).collect()
}

/// The number before `word` in libtest's last line.
fn count(result: &str, word: &str) -> u64 {
    let before = result.split(word).next().unwrap_or_default();
    before.split_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// The name of the failed test in its result line.
fn failure(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Whether to print a line of libtest's output: true for all but passed tests and headings.
fn is_news(line: &str) -> bool {
    let is_quiet = line.is_empty()
        || line.ends_with(" ... ok")
        || line.starts_with("running ")
        || line.starts_with("---- ")
        || line.starts_with("successes:")
        || line.starts_with("    ");
    !is_quiet
}

fn cargo(root: &Path, args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(root).stdin(Stdio::null());
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// proptest's environment variable for the seed of random cases.
const SEED: &str = "PROPTEST_RNG_SEED";

/// libtest's environment variable for the number of tests at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Limits the summary: a diff may be long, and the output above has all of it.
const CAUSE_LINES: u8 = 12;

/// Checks other than tests.
const STEPS: [(&str, &[&str]); 3] = [
    ("format", &["fmt", "--all", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    ("documentation", &["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.take(line);
        }
        tally
    }

    #[test]
    fn results_add_up() {
        let tally = tally(&[
            "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
            "test a::b ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        ]);
        assert_eq!((tally.really_passed(), tally.failed, tally.skipped()), (9, 1, 1));
        assert_eq!(tally.failures, ["a::b"]);
    }

    /// What a check finds is a change's fault, not a seed's.
    #[test]
    fn the_seed_is_the_same_in_each_run_unless_it_is_given() {
        assert_eq!(seed(None), seed(None));
        assert_eq!(seed(Some("7".into())), "7");
        let command = cargo_tests(Path::new("."), &seed(None));
        let mut set = command.get_envs();
        assert!(set.any(|(name, value)| name == SEED && value == Some(&seed(None))));
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let tally = tally(&[
            "SKIP: needs root",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        ]);
        assert_eq!((tally.really_passed(), tally.failed, tally.skipped()), (2, 0, 1));
        assert_eq!(tally.skips, ["needs root"]);
    }

    #[test]
    fn what_failed_tests_said_is_shown_and_told_again() {
        let mut tally = Tally::default();
        let lines = [
            ("successes:", News::No),
            ("thread 'a' (1) panicked at src/a.rs:1:1:", News::No),
            ("SKIP: needs root", News::Yes),
            ("failures:", News::Yes),
            ("it says", News::Yes),
            ("thread 'b' (2) panicked at src/b.rs:2:2:", News::Yes),
            ("two of three", News::Yes),
            ("stack backtrace:", News::Yes),
            ("   0: main", News::Yes),
            ("test result: FAILED. 1 passed; 1 failed; 0 ignored", News::No),
            ("others say", News::Yes),
        ];
        for (line, news) in lines {
            assert_eq!(tally.take(line), news, "{line}");
        }
        assert_eq!(tally.panics, ["thread 'b' (2) panicked at src/b.rs:2:2:", "two of three"]);
    }

    #[test]
    fn what_the_page_s_tests_say_behind_a_failure_is_told_again() {
        let mut tally = Tally::default();
        let lines = [
            ("test page::lab::it works ... FAILED", News::Yes),
            ("    Error: it does not", News::Yes),
            ("test page::lab::it draws ... ok", News::No),
            ("    what nobody asked for", News::No),
        ];
        for (line, news) in lines {
            assert_eq!(tally.take(line), news, "{line}");
        }
        assert_eq!(tally.failures, ["page::lab::it works"]);
        assert_eq!(tally.panics, ["Error: it does not"]);
    }

    #[test]
    fn a_reason_is_told_once() {
        let skips = ["needs root", "no tshark", "needs root"].map(str::to_owned);
        assert_eq!(by_reason(&skips), ["2 × needs root", "1 × no tshark"]);
    }
}
