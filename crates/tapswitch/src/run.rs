//! `tapswitch run`: a switch, and optionally a controller, from a configuration file.

use std::path::PathBuf;

use clap::Args;

use crate::config::RunConfig;
use crate::daemon::{Parts, ReadFile, serve};
use crate::management::ServeArgs;
use crate::runtime::block_on;

#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Configuration file (TOML).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// Runs them until a stop signal.
pub(crate) fn main(args: &RunArgs) -> Result<(), Box<dyn std::error::Error>> {
    let file = ReadFile::read(&args.config);
    let RunConfig { switch, controller, forgets } = RunConfig::read(&args.config)?;
    if forgets {
        tracing::warn!(
            "policies that are added at run time, and the audit log, are kept only in memory and \
             are lost when this process exits; set controller.store in {} to a file, or to \
             \"none\" to silence this warning",
            args.config.display()
        );
    }
    let socket = args.socket.path(&switch.name);
    block_on(serve(Parts { controller, switch: Some(switch), socket, file }))
}
