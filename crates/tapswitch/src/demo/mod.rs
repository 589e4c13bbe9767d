//! `tapswitch demo`: three hosts on tap ports, real traffic, one TAP on a running flow.
//!
//! Sender, receiver and monitor are network namespaces, each with the kernel side of a tap device
//! that is a port of the switch. Switch and controller run in this process, connected by OpenFlow
//! over TCP on the loopback interface. Throughput is measured at the switch's ports, in windows of
//! the same TCP flow before and after the TAP is added.
//!
//! However the demonstration ends (completion, failure, signal), it removes its namespaces,
//! devices, programs and files; the next one removes what a killed one left behind.

mod lab;
mod report;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::hosts;
use crate::output::OutputFile;
use crate::process;
use crate::runtime::{StopSignals, block_on};

use lab::Lab;
use report::DemoReport;

type Failure = Box<dyn std::error::Error>;

#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Also write the table to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Length of each measurement in seconds.
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Leave everything running for exploration, until Ctrl-C.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Runs the demonstration. Exit status 0 only if every check succeeded.
pub(crate) fn main(args: &DemoArgs) -> Result<ExitCode, Failure> {
    process::require(&["iperf3", "tshark", "ping"])?;
    let json = OutputFile::open(args.json.as_deref())?;
    let _reaped = process::Reaped;
    block_on(demonstrate(args, json))
}

async fn demonstrate(args: &DemoArgs, json: Option<OutputFile>) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::listen()?;
    let (lab, report) = tokio::select! {
        result = show(args, json) => result?,
        signal = signals.next() => {
            tell!("\n{signal}: cleaning up");
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        }
    };
    if args.keep {
        lab.explain();
        signals.next().await;
    }
    lab.tear_down().await;
    Ok(exit_code(&report))
}

/// Runs everything except the end: returns the running parts and the results.
async fn show(args: &DemoArgs, json: Option<OutputFile>) -> Result<(Lab, DemoReport), Failure> {
    let lab = Lab::set_up().await?;
    // A process that may create namespaces may remove those of earlier runs.
    hosts::sweep();
    let report = steps::all(&lab, args.seconds).await?;
    report.print();
    if let Some(file) = json {
        file.write_json(&report)?;
    }
    Ok((lab, report))
}

fn exit_code(report: &DemoReport) -> ExitCode {
    if report.all_checks_held() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Exit status of shells for SIGINT.
const EXIT_INTERRUPTED: u8 = 130;
