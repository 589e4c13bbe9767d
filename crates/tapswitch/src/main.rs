//! `tapswitch`: a virtual switch with virtual TAPs.
//!
//! One program: the switch, its controller, the tools that ask and command them, a tool for tap
//! devices, a demonstration and the benchmarks. What each does is in its module; this file only
//! picks one.
//!
//! Exit codes: 0 for success, 1 when a command failed or a check did not hold, 2 for a command line
//! that makes no sense. `device doctor` answers 2 also when it cannot look, for 1 is what it finds.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where nobody reads any more: say! and tell! do not"
)]

/// Prints a line. Where nobody reads any more, as behind `| head`, it goes nowhere; what cannot be
/// written for another reason makes the program fail in the end.
macro_rules! say {
    () => {
        say!("")
    };
    ($($text:tt)*) => {
        $crate::table::say(format_args!($($text)*))
    };
}

/// Prints a line on standard error: what people are to know. Where nobody reads, it goes nowhere.
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
mod daemon;
mod demo;
mod device;
mod hosts;
mod iperf;
mod management;
mod metrics;
mod output;
mod policy;
mod port;
mod process;
mod show;
mod table;
mod token;
mod tshark;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

use cli::{Cli, Command};

/// What a controller does is mostly to make and drop small things, on a thread beside the first
/// one, where the C library's allocator asks the kernel again and again.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli::start_log(&cli);
    let said = |code| table::all_said().map(|()| code).map_err(Into::into);
    match dispatch(cli.command).and_then(said) {
        Ok(code) => code,
        Err(error) => {
            // It may name what others have named.
            tell!("tapswitch: {}", device::text::printable_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match command {
        Command::Demo(args) => return demo::main(&args),
        Command::Run(args) => daemon::run(&args)?,
        Command::Switch(args) => daemon::switch(args)?,
        Command::Controller(args) => daemon::controller(&args)?,
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
