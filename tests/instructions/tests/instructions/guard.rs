//! Late work on frames takes no more instructions per packet than recorded.
//!
//! Instructions are counted by callgrind, which makes them a property of the code alone,
//! independent of the machine's speed and load. They do depend on the compiler, and on the vector
//! loops that valgrind lets the program detect; the record has both. A packet that became cheaper
//! is reported as well, so that the record keeps up.
//!
//! After an intended change, `TAPSWITCH_RECORD=1 cargo test -p tapswitch-instructions` writes the
//! record anew; the commit shows the effect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

use crate::common::{built, successful};

#[test]
fn no_packet_takes_more_instructions_than_on_record() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIP: needs valgrind; `apt-get install valgrind`");
        return;
    }
    let counter = Counter::build();
    let measured = counter.measure();
    if std::env::var_os("TAPSWITCH_RECORD").is_some() {
        return measured.write();
    }
    let mut record = Record::read();
    record.instructions.retain(|name, _| Counter::can_run(name));
    if record.loops != measured.loops {
        let (theirs, ours) = (&record.loops, &measured.loops);
        println!("SKIP: the record is of a processor with {theirs}, this one has {ours}");
        return;
    }
    let complaints = record.complaints(&measured);
    assert!(
        complaints.is_empty(),
        "\n{}\nif that is meant, TAPSWITCH_RECORD=1 cargo test -p tapswitch-instructions",
        complaints.join("\n")
    );
}

/// Instructions per packet or operation.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Compiler version.
    rustc: String,
    /// Vector loops that were used.
    loops: String,
    instructions: BTreeMap<String, f64>,
}

impl Record {
    fn read() -> Self {
        toml::from_str(&std::fs::read_to_string(Self::path()).unwrap()).unwrap()
    }

    fn write(&self) {
        let text = toml::to_string(self).unwrap();
        std::fs::write(Self::path(), format!("{HEAD}{text}")).unwrap();
    }

    fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("record.toml")
    }

    /// What differs too much in `measured`, one line each.
    fn complaints(&self, measured: &Self) -> Vec<String> {
        let same_compiler = self.rustc == measured.rustc;
        let margin = if same_compiler { SAME_COMPILER } else { OTHER_COMPILER };
        let names = self.instructions.keys().chain(measured.instructions.keys());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.dedup();
        let complaint = |name: &String| {
            let pair = (self.instructions.get(name), measured.instructions.get(name));
            let (Some(before), Some(now)) = pair else {
                return Some(format!("{name}: on record or measured, but not both"));
            };
            let change = now / before;
            let is_fine = (margin.0..=margin.1).contains(&change) || (now - before).abs() < 2.0;
            (!is_fine).then(|| format!("{name}: {now:.1} instructions, {before:.1} on record"))
        };
        names.into_iter().filter_map(complaint).collect()
    }
}

/// The program that does the work, in a release build.
struct Counter {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Counter {
    fn build() -> Self {
        let args = ["--release", "--package", "tapswitch-instructions"];
        let program = built(&args, "\"executable\":\"", "instructions");
        Self { program, folder: tempfile::tempdir().unwrap() }
    }

    fn measure(&self) -> Record {
        let listing = successful(&mut self.valgrind("callgrind.out", &[]));
        let listing = String::from_utf8(listing.stdout).unwrap();
        let (loops, cases) = listing.split_once('\n').unwrap();
        let rustc = successful(Command::new("rustc").arg("--version")).stdout;
        Record {
            rustc: String::from_utf8(rustc).unwrap().trim().to_owned(),
            loops: loops.to_owned(),
            instructions: self.measure_all(&cases.lines().collect::<Vec<_>>()),
        }
    }

    /// Measures these cases, on all processors: the counts do not depend on what else runs.
    fn measure_all(&self, cases: &[&str]) -> BTreeMap<String, f64> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let measure = |first| {
            let cases = cases.iter().skip(first).step_by(workers);
            cases.filter_map(|line| self.per_unit(line)).collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let running: Vec<_> =
                (0..workers).map(|first| scope.spawn(move || measure(first))).collect();
            running.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        })
    }

    /// True if the case can run: cases with devices need privilege.
    fn can_run(name: &str) -> bool {
        can_make_devices() || !name.starts_with("tap-")
    }

    /// The difference of two runs, which excludes everything before and after the work.
    fn per_unit(&self, line: &str) -> Option<(String, f64)> {
        let (units, name) = line.split_once(' ').unwrap();
        if !Self::can_run(name) {
            println!("SKIP: {name} needs root and /dev/net/tun");
            return None;
        }
        let units: f64 = units.parse().unwrap();
        let [few, many] = TURNS.map(|turns| self.count(name, turns));
        let turns = f64::from(TURNS[1] - TURNS[0]);
        let tenths = ((many - few) as f64 / turns / units * 10.0).round();
        Some((name.to_owned(), tenths / 10.0))
    }

    /// All instructions of a run.
    fn count(&self, name: &str, turns: u32) -> u64 {
        let file = format!("{name}-{turns}");
        successful(&mut self.valgrind(&file, &[name, &turns.to_string()]));
        let text = std::fs::read_to_string(self.folder.path().join(file)).unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        total.expect("callgrind says how many there were").trim().parse().unwrap()
    }

    /// The program with these arguments, whose counts go to that file.
    fn valgrind(&self, file: &str, args: &[&str]) -> Command {
        let is_apart = can_make_devices();
        let mut command = Command::new(if is_apart { "unshare" } else { "valgrind" });
        if is_apart {
            command.args(["--net", "sh", "-c", QUIETLY, "valgrind"]);
        }
        let out = self.folder.path().join(file);
        command.args(["--tool=callgrind", "--quiet"]);
        command.arg(format!("--callgrind-out-file={}", out.display()));
        command.arg(&self.program).args(args);
        command
    }
}

/// True if devices can be created, in a network namespace of their own.
fn can_make_devices() -> bool {
    let apart = Command::new("unshare").args(["--net", "true"]).status();
    apart.is_ok_and(|status| status.success()) && Path::new("/dev/net/tun").exists()
}

#[test]
fn both_directions_and_missing_cases_are_complained_of() {
    let record = |counts: &[(&str, f64)], rustc: &str| Record {
        rustc: rustc.to_owned(),
        loops: String::new(),
        instructions: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
    };
    let before = record(&[("a", 100.0), ("b", 100.0), ("c", 100.0), ("d", 3.0), ("e", 1.0)], "1");
    let counts = [("a", 111.0), ("b", 84.0), ("c", 109.0), ("d", 4.9), ("f", 1.0)];
    let expected = [
        "a: 111.0 instructions, 100.0 on record",
        "b: 84.0 instructions, 100.0 on record",
        "e: on record or measured, but not both",
        "f: on record or measured, but not both",
    ];
    assert_eq!(before.complaints(&record(&counts, "1")), expected);
    let expected =
        ["e: on record or measured, but not both", "f: on record or measured, but not both"];
    assert_eq!(before.complaints(&record(&counts, "2")), expected);
}

/// Runs a program in a namespace whose kernel sends nothing on its own on new devices: that would
/// be counted.
const QUIETLY: &str = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; exec \"$0\" \"$@\"";
/// Turns of the two runs.
const TURNS: [u32; 2] = [10, 60];
/// Factors by which a count may change.
const SAME_COMPILER: (f64, f64) = (0.85, 1.10);
/// With another compiler only a large regression can be distinguished from its effect.
const OTHER_COMPILER: (f64, f64) = (0.5, 1.3);

const HEAD: &str =
    "# Instructions per packet or operation, counted by callgrind: see tests/guard.rs.
# Written by `TAPSWITCH_RECORD=1 cargo test -p tapswitch-instructions`.
";
