//! The command line as a whole. Each command has its arguments in its own module.

use std::io::IsTerminal;

use clap::{Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use crate::audit::AuditArgs;
use crate::bench::BenchArgs;
use crate::capture::CaptureArgs;
use crate::controller::ControllerArgs;
use crate::demo::DemoArgs;
use crate::device::DeviceArgs;
use crate::policy::PolicyArgs;
use crate::port::PortArgs;
use crate::run::RunArgs;
use crate::show::ShowArgs;
use crate::switch::SwitchArgs;
use crate::token::TokenArgs;

/// Virtual switch with virtual TAPs: forwards packet trains whole between tap devices, interfaces,
/// virtual machines and tunnels, and copies selected flows to monitors without affecting the
/// original traffic.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log level: off, error, warn, info, debug or trace. Default: info for long-running commands,
    /// warn for others.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<LevelFilter>,
    /// Log format: text, or json with one object per line.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a demonstration: three hosts, real traffic, one TAP, and a table of checked results.
    Demo(DemoArgs),
    /// Run a switch, and optionally a controller, from a configuration file.
    Run(RunArgs),
    /// Run the OpenFlow switch alone.
    Switch(SwitchArgs),
    /// Run the controller alone.
    Controller(Box<ControllerArgs>),
    /// Add, replace, list, show or delete TAP policies of a running controller.
    Policy(PolicyArgs),
    /// Create tokens for the controller's REST interface.
    Token(TokenArgs),
    /// Read, follow, export or verify the audit log of a running controller.
    Audit(AuditArgs),
    /// Add ports to a running switch, or remove them.
    Port(PortArgs),
    /// Show the state of a running switch or controller.
    Show(ShowArgs),
    /// Write the packets that an interface receives to a pcapng file, with trains split into
    /// packets.
    Capture(CaptureArgs),
    /// List, create, change and diagnose the tun and tap devices of this machine.
    Device(DeviceArgs),
    /// Run benchmarks.
    Bench(BenchArgs),
}

impl Cli {
    fn log_level(&self) -> LevelFilter {
        let runs_long =
            matches!(self.command, Command::Run(_) | Command::Switch(_) | Command::Controller(_));
        self.log.unwrap_or(if runs_long { LevelFilter::INFO } else { LevelFilter::WARN })
    }
}

/// Writes the log to standard error, so that standard output contains only data.
pub(crate) fn start_log(cli: &Cli) {
    let log = tracing_subscriber::fmt()
        .with_max_level(cli.log_level())
        .with_writer(std::io::stderr)
        // It would write to standard error with a macro that panics on failure.
        .log_internal_errors(false)
        .with_target(false);
    match cli.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
