//! The machine and software of a measurement.

use std::process::Command;

use serde::Serialize;

/// The machine, and the versions of all participating programs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) tapswitch: &'static str,
    pub(crate) iperf3: String,
    pub(crate) open_vswitch: Option<String>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: model
                .map_or("unknown", |text| text.trim_start_matches([' ', '\t', ':']))
                .to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: release.trim().to_owned(),
            tapswitch: env!("CARGO_PKG_VERSION"),
            iperf3: version("iperf3").unwrap_or_default(),
            open_vswitch: version("ovs-vswitchd"),
        }
    }
}

/// The first line of a program's version output.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
