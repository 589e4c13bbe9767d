//! `tapswitch`: a virtual switch with virtual TAPs.
//!
//! One program contains the switch, its controller, the tools to query and control them, a tool for
//! tap devices, a demonstration and the benchmarks. Each has a module; this file selects one.
//!
//! Exit status: 0 for success, 1 if a command or a check failed, 2 for an invalid command line.
//! `device doctor` returns 2 also if it could examine nothing, because 1 means findings.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where nobody reads any more: say! and tell! do not"
)]

/// Prints a line. Discards it if the reader has closed the pipe (`| head`); any other write error
/// makes the program fail at the end.
macro_rules! say {
    () => {
        say!("")
    };
    ($($text:tt)*) => {
        $crate::table::say(format_args!($($text)*))
    };
}

/// Prints a line for the user on standard error. Discards it if nobody reads.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::table::tell(format_args!($($text)*))
    };
}

mod audit;
mod bench;
mod capture;
mod cli;
mod config;
mod controller;
mod daemon;
mod demo;
mod device;
mod hosts;
mod iperf;
mod management;
mod metrics;
mod on_off;
mod output;
mod policy;
mod port;
mod process;
mod run;
mod runtime;
mod show;
mod switch;
mod table;
mod text;
mod token;
mod tshark;
mod users;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

use cli::{Cli, Command};

/// A controller mostly allocates and frees small objects on a second thread, where the allocator of
/// the C library makes many system calls.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli::start_log(&cli);
    let said = |code| table::all_said().map(|()| code).map_err(Into::into);
    match dispatch(cli.command).and_then(said) {
        Ok(code) => code,
        Err(error) => {
            // It may contain names that others chose.
            tell!("tapswitch: {}", text::printable_lines(&text::with_remedy(&error.to_string())));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match command {
        Command::Demo(args) => return demo::main(&args),
        Command::Run(args) => run::main(&args)?,
        Command::Switch(args) => switch::main(args)?,
        Command::Controller(args) => controller::main(&args)?,
        Command::Policy(args) => return Ok(policy::main(args)?),
        Command::Token(args) => token::main(args)?,
        Command::Audit(args) => audit::main(&args)?,
        Command::Port(args) => port::main(args)?,
        Command::Show(args) => show::main(&args)?,
        Command::Capture(args) => capture::main(args)?,
        Command::Device(args) => return device::main(args),
        Command::Bench(args) => bench::main(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
