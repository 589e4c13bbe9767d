//! `cargo xtask soak`: searches for defects with new random seeds, until a time is over.
//!
//! A check uses the same seed each time, so that what fails there is a change's fault. Each round
//! of this has a seed of its own, and more cases. It runs the property tests (the functions in
//! `proptest!`) and the comparison with Open vSwitch. What fails is printed with the command that
//! repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use syn::visit::{self, Visit};

use super::clock::Clock;
use super::{SEED, Tally, cargo};
use crate::tidy::walk;

/// Tests whose seed and number of cases are environment variables.
struct Part {
    name: &'static str,
    /// For the seed, and for the number of cases.
    variables: [&'static str; 2],
    /// In a round.
    cases: u32,
    /// Names of the tests with their packages; none means all.
    tests: BTreeMap<String, BTreeSet<String>>,
    /// Arguments of cargo that choose the test programs in `tests`.
    programs: Vec<String>,
}

/// Runs rounds until `time` is over, and the last of them to its end.
pub(crate) fn run(root: &Path, time: Duration) -> ExitCode {
    let parts = match properties(root) {
        Ok(properties) => [properties, differential()],
        Err(error) => {
            eprintln!("soak: {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    let (begin, mut tally) = (Instant::now(), Tally::default());
    for part in &parts {
        part.build(root, &mut tally);
    }
    let is_built = tally.failed == 0;
    for round in 1.. {
        if !is_built || round > 1 && begin.elapsed() >= time {
            break;
        }
        let seed = new_seed();
        println!("==> round {round}, seed {seed}");
        parts.iter().for_each(|part| part.run(root, seed, &mut tally));
    }
    // Of several rounds, times tell nothing, and the output above has all that failed tests said.
    tally.clock = Clock::default();
    tally.panics.clear();
    tally.print();
    ExitCode::from(u8::from(tally.failed > 0))
}

impl Part {
    fn build(&self, root: &Path, tally: &mut Tally) {
        let built = self.cargo_test(root).arg("--no-run").status();
        tally.step(&format!("build of the {}", self.name), built.is_ok_and(|s| s.success()));
    }

    /// Runs the tests with a seed, and tells how to repeat those that failed.
    fn run(&self, root: &Path, seed: u32, tally: &mut Tally) {
        let before = tally.failures.len();
        let mut command = self.cargo_test(root);
        command.envs(self.environment(seed)).env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        command.args(["--", "--show-output"]).args(self.tests.keys());
        super::tests(self.name, command, tally);
        for failure in &mut tally.failures[before..] {
            *failure = format!("{failure}: {}", self.repeat(seed, failure));
            println!("{failure}");
        }
    }

    fn cargo_test(&self, root: &Path) -> Command {
        let mut command = cargo(root, &["test", "--no-fail-fast"]);
        command.args(&self.programs);
        command
    }

    fn environment(&self, seed: u32) -> [(&'static str, String); 2] {
        let [seed_in, cases_in] = self.variables;
        [(seed_in, seed.to_string()), (cases_in, self.cases.to_string())]
    }

    /// The command that repeats a test with a seed.
    fn repeat(&self, seed: u32, test: &str) -> String {
        let environment = self.environment(seed).map(|(name, value)| format!("{name}={value}"));
        let packages = self.tests.get(test.rsplit("::").next().unwrap_or(test));
        let programs = match packages {
            Some(packages) => of_packages(packages),
            None => self.programs.clone(),
        };
        format!("{} cargo test {} {test}", environment.join(" "), programs.join(" "))
    }
}

/// All property tests of the workspace.
fn properties(root: &Path) -> io::Result<Part> {
    let (mut files, mut tests) = (Vec::new(), BTreeMap::<_, BTreeSet<_>>::new());
    walk(root, &mut files)?;
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "rs")) {
        for name in names(&fs::read_to_string(file)?) {
            tests.entry(name).or_default().extend(package(file)?);
        }
    }
    let programs = of_packages(&tests.values().flatten().cloned().collect());
    let variables = [SEED, "PROPTEST_CASES"];
    Ok(Part { name: "property tests", variables, cases: CASES, tests, programs })
}

/// The comparison of our switch with Open vSwitch.
fn differential() -> Part {
    let programs = ["--package", "tapswitch-switch", "--test", "differential"];
    Part {
        name: "comparison with Open vSwitch",
        variables: ["TAPSWITCH_DIFFERENTIAL_SEED", "TAPSWITCH_DIFFERENTIAL_ROUNDS"],
        cases: PIPELINES,
        tests: BTreeMap::new(),
        programs: programs.map(str::to_owned).into(),
    }
}

/// Arguments of cargo for all test programs of packages.
fn of_packages(packages: &BTreeSet<String>) -> Vec<String> {
    let packages = packages.iter().flat_map(|name| ["--package".to_owned(), name.clone()]);
    packages.chain(["--tests".to_owned()]).collect()
}

/// The name of the package that a file belongs to.
fn package(file: &Path) -> io::Result<Option<String>> {
    let manifest = file.ancestors().map(|folder| folder.join("Cargo.toml")).find(|at| at.exists());
    let text = manifest.map(fs::read_to_string).transpose()?.unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("name = "));
    Ok(name.map(|name| name.trim_matches('"').to_owned()))
}

/// Names of the property tests in a file.
fn names(text: &str) -> Vec<String> {
    let mut found = Found::default();
    // What is not Rust, `tidy` reports.
    if let Ok(file) = syn::parse_file(text) {
        found.visit_file(&file);
    }
    found.names
}

/// Finds property tests in a syntax tree.
#[derive(Default)]
struct Found {
    names: Vec<String>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        if found.path.is_ident("proptest") {
            let mut tokens = found.tokens.clone().into_iter();
            while tokens.any(|token| token.to_string() == "fn") {
                self.names.extend(tokens.next().map(|name| name.to_string()));
            }
        }
        visit::visit_macro(self, found);
    }
}

/// A random number; short, since it is to be typed again.
fn new_seed() -> u32 {
    // The standard library's only source of randomness.
    let [.., a, b, c, d] = RandomState::new().build_hasher().finish().to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Cases of a property test in a round, of which a check runs a quarter.
const CASES: u32 = 1024;

/// Pipelines in a round, of which a check runs a quarter as well.
const PIPELINES: u32 = 1200;

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "
        #[cfg(test)]
        mod tests {
            proptest! {
                #![proptest_config(ProptestConfig::with_cases(3))]

                /// This fn has a comment.
                #[test]
                fn one(x in 0..9u8) { fn inner() {} }

                #[test]
                fn two(y: u8) { let _ = |y: fn()| y(); }
            }

            #[test]
            fn plain() { other! { fn three() {} } }
        }";

    #[test]
    fn property_tests_are_found() {
        assert_eq!(names(EXAMPLE), ["one", "two"]);
        let part = properties(crate::workspace()).unwrap();
        let of_control = &part.tests["whoever_is_let_in_is_in_force"];
        assert_eq!(of_control.iter().collect::<Vec<_>>(), ["tapswitch-control"]);
    }

    #[test]
    fn what_failed_can_be_repeated() {
        let packages = BTreeSet::from(["b".to_owned()]);
        let tests = BTreeMap::from([("holds".to_owned(), packages)]);
        let part = Part { tests, ..properties(crate::workspace()).unwrap() };
        let command =
            "PROPTEST_RNG_SEED=7 PROPTEST_CASES=1024 cargo test --package b --tests a::holds";
        assert_eq!(part.repeat(7, "a::holds"), command);
        let command = "TAPSWITCH_DIFFERENTIAL_SEED=7 TAPSWITCH_DIFFERENTIAL_ROUNDS=1200 \
                       cargo test --package tapswitch-switch --test differential alike";
        assert_eq!(differential().repeat(7, "alike"), command);
    }

    #[test]
    fn seeds_differ() {
        let seeds: BTreeSet<_> = (0..8).map(|_| new_seed()).collect();
        assert!(seeds.len() > 1, "{seeds:?}");
    }
}
