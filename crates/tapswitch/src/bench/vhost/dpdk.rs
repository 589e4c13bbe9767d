//! Starts DPDK programs without changing the machine or leaving files: memory without huge pages,
//! no PCI devices, runtime files in our directory.
//!
//! Huge pages were tried for the guests and for Open vSwitch; they made no difference beyond the
//! machine's drift, so they are not used.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tapswitch_netlink::Namespace;
use tokio::process::Child;

use crate::process;

type Failure = Box<dyn std::error::Error>;

/// Options of DPDK's environment for a program that uses `megabytes` of memory.
pub(super) fn environment(prefix: &str, megabytes: usize) -> Vec<String> {
    let memory = megabytes.to_string();
    let prefix = format!("--file-prefix={prefix}");
    ["--no-huge", "--no-pci", "-m", &memory, &prefix].map(str::to_owned).into()
}

/// Both logical cores that `testpmd` needs, one idle and one forwarding, on one core.
pub(super) fn on_core(core: usize) -> String {
    format!("--lcores=0@{core},1@{core}")
}

/// Starts `testpmd` on `core` with these arguments, with pipes for its input and output. Its
/// runtime files are created in `directory`.
pub(super) fn testpmd(core: usize, args: &[String], directory: &Path) -> Result<Child, Failure> {
    // Without a terminal its output would be block-buffered.
    let line_by_line = ["-oL".to_owned(), TESTPMD.to_owned()];
    let args: Vec<_> = line_by_line.iter().chain(args).cloned().collect();
    let (program, args) = process::on_core(Some(core), "stdbuf", &args);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = process::command(&Namespace::current()?, &program, &args);
    command.env("RUNTIME_DIRECTORY", directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command.spawn()?)
}

/// Directory of the runtime files of a program with this prefix.
pub(super) fn runtime(directory: &Path, prefix: &str) -> PathBuf {
    directory.join("dpdk").join(prefix)
}

pub(super) const TESTPMD: &str = "dpdk-testpmd";
