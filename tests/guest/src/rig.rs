//! Tests that run in a guest, written beside those that run on the host.

use std::any;
use std::collections::HashMap;
use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::guest::{Guest, Outcome};
use crate::kernel::{Kernel, Series};
use crate::root::find;
use crate::{REPORT, skip};

/// The environment of a test. Defaults: no modules, two processors, 512 MiB, five minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rig {
    series: Series,
    modules: &'static [&'static str],
    programs: &'static [&'static str],
    only: Option<&'static str>,
    memory_mib: u32,
    cpus: u32,
    limit: Duration,
}

impl Rig {
    /// A guest with a kernel of `series`.
    #[must_use]
    pub const fn new(series: Series) -> Self {
        let limit = Duration::from_secs(300);
        Self { series, modules: &[], programs: &[], only: None, memory_mib: 512, cpus: 2, limit }
    }

    /// Loads these modules and their dependencies.
    #[must_use]
    pub const fn modules(mut self, names: &'static [&'static str]) -> Self {
        self.modules = names;
        self
    }

    /// Copies these programs of the host to `/bin`, replacing busybox's. Programs that the host
    /// lacks are left out.
    #[must_use]
    pub const fn programs(mut self, names: &'static [&'static str]) -> Self {
        self.programs = names;
        self
    }

    /// Runs only tests with `part` in their names, if [`Self::test`] is called without a filter:
    /// otherwise all others of the binary run in the guest as well, slowly and for nothing.
    #[must_use]
    pub const fn only(mut self, part: &'static str) -> Self {
        self.only = Some(part);
        self
    }

    /// Memory in MiB.
    #[must_use]
    pub const fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Number of processors.
    #[must_use]
    pub const fn cpus(mut self, count: u32) -> Self {
        self.cpus = count;
        self
    }

    /// Limit of the time for boot and tests together.
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs `body` in the guest. Called by a test of this binary, in its own name: the first test
    /// boots the guest, which runs the binary with the host's own filter; the others wait for their
    /// results. Reports the test as skipped if no guest can run.
    ///
    /// # Panics
    /// If `body` does in the guest, with all output of the guest; if the guest fails.
    #[expect(clippy::panic, reason = "this is the assertion of a test")]
    pub fn test<F: FnOnce()>(&self, body: F) {
        // The same binary on both sides gives a closure the same name.
        let key = any::type_name::<F>();
        if let Some(rig) = rig_inside() {
            if rig == self.key() {
                body();
                report(&format!("passed {key}"));
            }
            return;
        }
        match &*self.shared() {
            Ok(outcome) if outcome.has_passed(key) => {}
            Ok(outcome) => {
                panic!("it did not pass in the guest, which said:\n{}", outcome.quoted())
            }
            Err(Error::Unavailable { what, remedy }) => skip(format!("{what}; {remedy}")),
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs all tests of this binary in the guest; those that call [`Self::test_all`] pass there.
    /// Each counts as a test, and skipped ones are reported. Reports the test as skipped if no
    /// guest can run.
    ///
    /// # Panics
    /// If a test fails in the guest, with all output of the guest; if the guest fails.
    #[expect(clippy::panic, reason = "this is the assertion of a test")]
    pub fn test_all(&self) {
        if rig_inside().is_some() {
            report(ALL);
            return;
        }
        match self.boot(&[]) {
            Ok(outcome) => {
                let is_sound = outcome.status == 0 && outcome.told.lines().any(|line| line == ALL);
                outcome.forward(&["test result: "]);
                assert!(is_sound, "not all passed in the guest, which said:\n{}", outcome.quoted());
            }
            Err(Error::Unavailable { what, remedy }) => skip(format!("{what}; {remedy}")),
            Err(error) => panic!("{error}"),
        }
    }

    /// The run that all tests of this process with this rig share.
    fn shared(&self) -> Arc<Result<Outcome, Error>> {
        let run = Arc::clone(lock(runs()).entry(*self).or_default());
        let boot = || {
            let mut args = filters(env::args().skip(1));
            if args.is_empty() {
                args.extend(self.only.map(str::to_owned));
            }
            let outcome = self.boot(&args);
            if let Ok(outcome) = &outcome {
                outcome.forward(&[]);
            }
            Arc::new(outcome)
        };
        Arc::clone(run.get_or_init(boot))
    }

    /// Runs this binary in the guest, with `args` for its harness.
    fn boot(&self, args: &[String]) -> Result<Outcome, Error> {
        let kernel = Kernel::of(self.series)?;
        let program = env::current_exe().map_err(Error::io("the test binary"))?;
        let mut guest = Guest::new(&kernel, program)
            .modules(self.modules.iter().copied())
            .args(args)
            .args(["--show-output", "--color=never"])
            .env(INSIDE, kernel.release())
            .env(RIG, self.key())
            .memory_mib(self.memory_mib)
            .cpus(self.cpus)
            .limit(self.limit);
        for name in self.programs {
            if let Some(path) = find(name) {
                guest = guest.file(path, format!("/bin/{name}"));
            }
        }
        if let Ok(backtrace) = env::var("RUST_BACKTRACE") {
            guest = guest.env("RUST_BACKTRACE", backtrace);
        }
        guest.run()
    }

    /// Identifies the rig, on both sides.
    fn key(&self) -> String {
        format!("{self:?}")
    }
}

impl Outcome {
    fn has_passed(&self, key: &str) -> bool {
        self.told.lines().any(|line| line.strip_prefix("passed ") == Some(key))
    }

    /// The output in a form that is not taken for the host's own.
    fn quoted(&self) -> String {
        self.output.lines().map(|line| format!("| {line}\n")).collect()
    }

    /// Prints lines about tests that were skipped in the guest, and lines that start with one of
    /// `more`; everything if the environment requests that.
    fn forward(&self, more: &[&str]) {
        if env::args().any(|arg| arg == "--nocapture" || arg == "--no-capture") {
            print!("{}", self.quoted());
        }
        let mut lines = String::new();
        for line in self.output.lines() {
            if line.starts_with("SKIP:") || more.iter().any(|start| line.starts_with(start)) {
                lines.push_str(&format!("\n{line} (in a guest)"));
            }
        }
        let _ = io::stdout().write_all(format!("{lines}\n").as_bytes());
    }
}

/// The release of the guest's kernel, if this runs in a guest.
pub fn inside() -> Option<String> {
    env::var(INSIDE).ok()
}

fn rig_inside() -> Option<String> {
    env::var(RIG).ok()
}

/// Reports a line to the host, in one piece. A test whose report fails counts as not passed.
fn report(line: &str) {
    let told = OpenOptions::new().write(true).open(REPORT);
    let told = told.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = told {
        println!("{REPORT}: {error}");
    }
}

/// The arguments of a libtest harness that select tests.
fn filters(args: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut args = args.into_iter();
    let mut filters = Vec::new();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--exact" => filters.push(arg),
            "--skip" => filters.extend([arg].into_iter().chain(args.next())),
            "--test-threads" | "--color" | "--format" | "--logfile" | "--shuffle-seed" | "-Z" => {
                args.next();
            }
            _ if arg.starts_with('-') && !arg.starts_with("--skip=") => {}
            _ => filters.push(arg),
        }
    }
    filters
}

type Runs = Mutex<HashMap<Rig, Arc<OnceLock<Arc<Result<Outcome, Error>>>>>>;

/// Guests that this process has booted for [`Rig::test`].
fn runs() -> &'static Runs {
    static RUNS: OnceLock<Runs> = OnceLock::new();
    RUNS.get_or_init(Runs::default)
}

fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Environment variables that are set in a guest: the kernel's release, and the rig.
const INSIDE: &str = "TAPSWITCH_GUEST";
const RIG: &str = "TAPSWITCH_GUEST_RIG";
/// The report of a guest that has run all tests of a binary.
const ALL: &str = "passed all";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chooses_tests_is_passed_on_and_nothing_else() {
        let args = "a::b --exact --nocapture --test-threads 1 --skip slow --color=never -q c \
                    --skip=x --format json";
        let args = args.split(' ').map(str::to_owned);
        assert_eq!(filters(args), ["a::b", "--exact", "--skip", "slow", "c", "--skip=x"]);
    }
}
