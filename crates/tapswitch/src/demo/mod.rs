//! `tapswitch demo`: three hosts on tap ports, real traffic, one TAP on a flow that already runs.
//!
//! Sender, receiver and monitor are network namespaces; each has the kernel's end of a tap device
//! that is a port of the switch. Switch and controller run in this process and meet as OpenFlow on
//! TCP loopback. Throughput is measured at the switch's ports, over windows of the same TCP flow
//! before and after the TAP is there.
//!
//! Whatever ends the demonstration (its end, a failure, a signal), namespaces, devices, programs
//! and files go with it; what a killed one left behind is swept by the next.

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

/// Runs the demonstration. Exit code 0 only if every check held.
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

/// Everything but the end: what runs still, and what was found.
async fn show(args: &DemoArgs, json: Option<OutputFile>) -> Result<(Lab, DemoReport), Failure> {
    let lab = Lab::set_up().await?;
    // Whoever may make namespaces may remove those of earlier runs.
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

/// As shells have it for SIGINT.
const EXIT_INTERRUPTED: u8 = 130;
