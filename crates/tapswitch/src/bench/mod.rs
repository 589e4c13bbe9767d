//! `tapswitch bench`: measurements in comparison with other programs, in one run on one machine.
//!
//! Rates depend on machine and time; ratios within a round hardly do. So every candidate is
//! measured once per round, and the median over rounds is reported, of rates and of ratios.

mod bare;
mod bulk;
mod candidate;
mod controller;
mod cores;
mod echo;
mod flood;
mod lossless;
mod machine;
mod offload;
mod openflow;
mod ovs;
mod paired;
mod statistics;
mod svg;
mod tap_forward;
mod vhost;
mod vlan;

use serde::Serialize;

use crate::cli::{BenchArgs, BenchCommand};
use crate::daemon::{StopSignals, block_on};
use crate::output::OutputFile;
use crate::process;

pub(crate) use controller::ControllerBenchArgs;
pub(crate) use echo::{EchoArgs, PartArgs};
pub(crate) use lossless::LosslessArgs;
pub(crate) use offload::OffloadArgs;
pub(crate) use vhost::{ProbeArgs, VhostArgs};
pub(crate) use vlan::VlanArgs;

type Failure = Box<dyn std::error::Error>;

/// Runs one benchmark.
pub(crate) fn main(args: BenchArgs) -> Result<(), Failure> {
    match args.command {
        BenchCommand::TapForward(args) => tap_forward::main(&args),
        BenchCommand::Echo(args) => echo::main(&args),
        BenchCommand::Vlan(args) => vlan::main(&args),
        BenchCommand::Vhost(args) => vhost::main(&args),
        BenchCommand::Offload(args) => offload::main(&args),
        BenchCommand::Lossless(args) => lossless::main(&args),
        BenchCommand::Controller(args) => controller::main(&args),
        BenchCommand::VhostProbe(args) => vhost::probe(&args),
        BenchCommand::EchoPart(args) => echo::part(&args),
        BenchCommand::BareForwarder(args) => bare::main(&args),
        BenchCommand::UdpFlood(args) => flood::main(&args),
    }
}

/// Runs a benchmark to its end, or until a signal; none of its processes is left running.
fn run(bench: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let _reaped = process::Reaped;
    block_on(async {
        let mut signals = StopSignals::listen()?;
        tokio::select! {
            result = bench => result,
            signal = signals.next() => Err(format!("{signal}: cleaned up").into()),
        }
    })
}

/// Parses the length of a measurement.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.ok_or_else(|| "expected a number of seconds from 0.1 to 60".to_owned())
}

/// Writes a report as JSON, if a file is given.
fn write_data(file: Option<OutputFile>, report: &impl Serialize) -> Result<(), Failure> {
    Ok(file.map_or(Ok(()), |file| file.write_json(report))?)
}
