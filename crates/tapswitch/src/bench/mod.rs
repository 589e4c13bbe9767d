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

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::output::OutputFile;
use crate::process;
use crate::runtime::{StopSignals, block_on};

use bare::BareForwarderArgs;
use controller::ControllerBenchArgs;
use echo::{EchoArgs, PartArgs};
use flood::UdpFloodArgs;
use lossless::LosslessArgs;
use offload::OffloadArgs;
use tap_forward::TapForwardArgs;
use vhost::{ProbeArgs, VhostArgs};
use vlan::VlanArgs;

type Failure = Box<dyn std::error::Error>;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Forwarding between tap devices in two namespaces, compared with a bare forwarder and Open
    /// vSwitch.
    TapForward(TapForwardArgs),
    /// Tap device that returns packets with exchanged addresses, with and without offloads,
    /// compared with a bare loop and tun-rs.
    Echo(EchoArgs),
    /// Cost of VLAN tags: none to three tags between two switches, TCP and UDP, one flow and many.
    Vlan(VlanArgs),
    /// Guests on vhost-user ports: forwarding and copying by frame size, compared with Open vSwitch
    /// with DPDK and a bare loop.
    Vhost(VhostArgs),
    /// Processing of frames without a device: checksums, segmentation, coalescing, tags.
    Offload(OffloadArgs),
    /// Loss where a queue is full: rings of every length, slow links, slow monitors and long paths,
    /// with and without backpressure.
    Lossless(LosslessArgs),
    /// Controller with many simulated switches, hosts and policies: time until all are installed,
    /// for one policy, for many, and after a link failure.
    Controller(ControllerBenchArgs),
    /// Sender of the round trips that vhost measures.
    #[command(hide = true)]
    VhostProbe(ProbeArgs),
    /// One of the processes that echo measures with.
    #[command(hide = true)]
    EchoPart(PartArgs),
    /// The bare forwarder that tap-forward compares with: two file descriptors, read and write.
    #[command(hide = true)]
    BareForwarder(BareForwarderArgs),
    /// Sender of small datagrams that tap-forward uses.
    #[command(hide = true)]
    UdpFlood(UdpFloodArgs),
}

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
