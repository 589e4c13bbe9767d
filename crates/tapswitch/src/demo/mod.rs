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

use std::process::ExitCode;

use crate::cli::DemoArgs;
use crate::daemon::{StopSignals, block_on};
use crate::hosts;
use crate::output::OutputFile;
use crate::process;

use lab::Lab;
use report::DemoReport;

type Failure = Box<dyn std::error::Error>;

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
