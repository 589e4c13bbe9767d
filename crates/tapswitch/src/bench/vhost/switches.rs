//! The candidates.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use tapswitch_netlink::Namespace;
use tapswitch_switch::report::WorkerReport;
use tokio::process::Child;

use crate::process;

use super::dpdk;
use super::loader::Load;
use super::ovs_dpdk::OpenVswitch;
use super::setup::Setup;

type Failure = Box<dyn std::error::Error>;

/// A candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Candidate {
    /// `dpdk-testpmd` with two `net_vhost` devices: it moves frames between them without parsing or
    /// copying. The upper bound for a DPDK switch.
    Bare,
    /// Open vSwitch with DPDK, one polling thread.
    OpenVswitch,
    /// This switch, one worker.
    Tapswitch,
}

impl Candidate {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare vhost loop",
            Self::OpenVswitch => "Open vSwitch, DPDK",
            Self::Tapswitch => "tapswitch",
        }
    }
}

/// A running switch, ended on drop.
#[derive(Debug)]
pub(super) struct Switch {
    program: Program,
    namespace: Namespace,
    /// Its OpenFlow address, in that namespace.
    target: String,
}

#[derive(Debug)]
enum Program {
    Bare(Child),
    /// With the path of its management socket.
    Tapswitch(Child, String),
    OpenVswitch(Box<OpenVswitch>),
}

impl Switch {
    /// Starts it. It connects as soon as the guests listen.
    pub(super) async fn start(candidate: Candidate, setup: &Setup<'_>) -> Result<Self, Failure> {
        match candidate {
            Candidate::Bare => start_bare(setup),
            Candidate::Tapswitch => start_tapswitch(setup),
            Candidate::OpenVswitch => {
                let ovs = Box::new(OpenVswitch::start(setup).await?);
                let target = ovs.target();
                Ok(Self::new(Program::OpenVswitch(ovs), setup, target))
            }
        }
    }

    fn new(program: Program, setup: &Setup<'_>, target: String) -> Self {
        Self { program, namespace: setup.namespace.clone(), target }
    }

    /// Adds rules or groups, in the syntax of ovs-ofctl.
    pub(super) async fn ofctl(&self, command: &str, what: &str) -> Result<(), Failure> {
        self.ask(&[command, &self.target, what]).await?;
        Ok(())
    }

    /// Number of frames dropped on sending, over all ports.
    pub(super) async fn dropped(&self) -> Result<u64, Failure> {
        if self.target.is_empty() {
            return Ok(0); // The bare loop has no counters.
        }
        Ok(transmit_drops(&self.ask(&["dump-ports", &self.target]).await?))
    }

    async fn ask(&self, args: &[&str]) -> Result<String, Failure> {
        let args = [&["-O", "OpenFlow13"], args].concat();
        let deadline = Instant::now() + COMMAND_LIMIT;
        loop {
            match process::run(&self.namespace, OFCTL, &args, COMMAND_LIMIT).await {
                Ok(said) => return Ok(said),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Mirrors frames from port 1 to port 2 to port 3, or stops that. Only Open vSwitch supports
    /// it.
    pub(super) async fn mirror(&self, on: bool) -> Result<(), Failure> {
        match &self.program {
            Program::OpenVswitch(ovs) => ovs.mirror(on).await,
            _ => Ok(()),
        }
    }

    /// Waits until changes apply to the next frame: Open vSwitch answers barriers before its caches
    /// are updated.
    pub(super) async fn settle(&self) -> Result<(), Failure> {
        match &self.program {
            Program::OpenVswitch(ovs) => ovs.settle().await,
            _ => Ok(()),
        }
    }

    /// Number of frames that each of its threads has forwarded; empty if it cannot be queried.
    pub(super) async fn shares(&self) -> Result<Vec<u64>, Failure> {
        match &self.program {
            Program::Bare(_) => Ok(Vec::new()),
            Program::OpenVswitch(ovs) => ovs.shares().await,
            Program::Tapswitch(_, socket) => {
                let program = std::env::current_exe()?;
                let args = ["show", "workers", "--json", "--socket", socket];
                let program = program.to_string_lossy();
                let said = process::run(&self.namespace, &program, &args, COMMAND_LIMIT).await?;
                let workers: Vec<WorkerReport> = serde_json::from_str(&said)?;
                Ok(workers.iter().map(|worker| worker.frames).collect())
            }
        }
    }

    /// Stops it while others are measured: Open vSwitch and the bare loop use their core even when
    /// idle.
    pub(super) fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let id = i32::try_from(self.id()?)?;
        Ok(kill_process(Pid::from_raw(id).ok_or("no process")?, signal)?)
    }

    pub(super) fn id(&self) -> Result<u32, Failure> {
        let id = match &self.program {
            Program::Bare(child) | Program::Tapswitch(child, _) => child.id(),
            Program::OpenVswitch(ovs) => ovs.id(),
        };
        Ok(id.ok_or("a switch exited")?)
    }
}

/// The two devices in a ring with one that discards, so that frames go from the first to the second
/// only.
fn start_bare(setup: &Setup<'_>) -> Result<Switch, Failure> {
    let [core] = setup.cores[..] else { return Err("the bare loop has one core".into()) };
    let mut args = dpdk::environment("bare", BARE_MEGABYTES);
    args.extend([dpdk::on_core(core), "--no-telemetry".to_owned()]);
    for guest in &setup.guests {
        let path = setup.sockets.path(*guest);
        let offloads = match setup.load {
            Load::Frames => "",
            Load::Trains => BARE_OFFLOADS,
        };
        args.push(format!("--vdev=net_vhost{guest},iface={},client=1{offloads}", path.display()));
    }
    args.extend(BARE_OPTIONS.map(str::to_owned));
    args.extend(match setup.load {
        Load::Frames => BARE_FRAME_OPTIONS.map(str::to_owned).to_vec(),
        Load::Trains => BARE_TRAIN_OPTIONS.map(str::to_owned).to_vec(),
    });
    let child = dpdk::testpmd(core, &args, setup.sockets.directory())?;
    Ok(Switch::new(Program::Bare(child), setup, String::new()))
}

fn start_tapswitch(setup: &Setup<'_>) -> Result<Switch, Failure> {
    let target = "tcp:127.0.0.1:6654".to_owned();
    let socket = setup.sockets.directory().join("tapswitch.sock").display().to_string();
    let cores: Vec<_> = setup.cores.iter().map(usize::to_string).collect();
    let (workers, cores) = (cores.len().to_string(), cores.join(","));
    let mut args: Vec<String> = ["switch", "--log", "error", "--datapath-id", "0x1"]
        .into_iter()
        .chain(["--fail-mode", "secure", "--workers", &workers, "--cores", &cores])
        .chain(["--listen", &target, "--socket", &socket])
        .map(str::to_owned)
        .collect();
    for guest in &setup.guests {
        let path = setup.sockets.path(*guest);
        args.extend(["--port".to_owned(), format!("{guest}=vhost:{},client", path.display())]);
    }
    if let Some((port, name)) = setup.interface {
        args.extend(["--port".to_owned(), format!("{port}=netdev:{name}")]);
    }
    let program = std::env::current_exe()?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = process::command(setup.namespace, &program.to_string_lossy(), &args);
    let program = Program::Tapswitch(command.spawn()?, socket);
    Ok(Switch::new(program, setup, target))
}

/// The sum of `drop=` in the transmit lines of `ovs-ofctl dump-ports`.
fn transmit_drops(text: &str) -> u64 {
    let transmit = text.lines().filter_map(|line| line.trim_start().strip_prefix("tx "));
    let counts = transmit.filter_map(|line| line.split("drop=").nth(1)?.split(',').next());
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

/// CPU time of each thread of a process.
pub(super) fn processor_times(id: u32) -> Result<BTreeMap<OsString, Duration>, Failure> {
    let mut times = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
        let thread = thread?;
        // A thread may end meanwhile.
        if let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) {
            let nanoseconds = text.split(' ').next().unwrap_or_default().parse()?;
            times.insert(thread.file_name(), Duration::from_nanos(nanoseconds));
        }
    }
    Ok(times)
}

const OFCTL: &str = "ovs-ofctl";
const COMMAND_LIMIT: Duration = Duration::from_secs(15);
const BARE_MEGABYTES: usize = 256;
/// Trains are accepted, and the guests' metadata is passed on unchanged.
const BARE_OFFLOADS: &str = ",tso=1,legacy-ol-flags=1";
const BARE_OPTIONS: [&str; 5] = [
    "--vdev=net_null0,no-rx=1",
    "--",
    "--forward-mode=io",
    "--port-topology=chained",
    "--burst=32",
];
const BARE_FRAME_OPTIONS: [&str; 1] = ["--total-num-mbufs=8192"];
/// Buffers as large as the guests': with small ones the rate drops to a third.
const BARE_TRAIN_OPTIONS: [&str; 2] = ["--total-num-mbufs=4096", "--mbuf-size=4096"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_drops_on_the_way_out_count() {
        let text = "OFPST_PORT reply (OF1.3) (xid=0x2): 2 ports\n  \
                    port  1: rx pkts=10, bytes=600, drop=7, errs=0, frame=0, over=0, crc=0\n   \
                    tx pkts=3, bytes=0, drop=2, errs=0, coll=0\n   duration=1.5s\n  \
                    port  2: rx pkts=0, bytes=0, drop=?, errs=?, frame=?, over=?, crc=?\n   \
                    tx pkts=9, bytes=540, drop=40, errs=?, coll=?\n";
        assert_eq!(transmit_drops(text), 42);
        assert_eq!(transmit_drops(""), 0);
    }
}
