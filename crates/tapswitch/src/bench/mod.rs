//! `tapswitch bench`: measurements beside other programs, in one run on one machine.
//!
//! Rates depend on the machine and the hour; ratios within a round do not, as far as anything does.
//! So every candidate is measured once per round, and what is reported is the median over rounds,
//! of rates and of ratios.

mod bare;
mod bulk;
mod candidate;
mod cores;
mod echo;
mod flood;
mod machine;
mod offload;
mod openflow;
mod ovs;
mod paired;
mod statistics;
mod tap_forward;
mod vlan;

use crate::cli::{BenchArgs, BenchCommand};

pub(crate) use echo::{EchoArgs, PartArgs};
pub(crate) use offload::OffloadArgs;
pub(crate) use vlan::VlanArgs;

type Failure = Box<dyn std::error::Error>;

/// Runs one benchmark.
pub(crate) fn main(args: BenchArgs) -> Result<(), Failure> {
    match args.command {
        BenchCommand::TapForward(args) => tap_forward::main(&args),
        BenchCommand::Echo(args) => echo::main(&args),
        BenchCommand::Vlan(args) => vlan::main(&args),
        BenchCommand::Offload(args) => offload::main(&args),
        BenchCommand::EchoPart(args) => echo::part(&args),
        BenchCommand::BareForwarder(args) => bare::main(&args),
        BenchCommand::UdpFlood(args) => flood::main(&args),
    }
}
