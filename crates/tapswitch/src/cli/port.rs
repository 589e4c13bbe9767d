//! The command line of `tapswitch port`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tapswitch_switch::PortSpec;

#[derive(Args, Clone, Debug)]
pub(crate) struct PortArgs {
    #[command(subcommand)]
    pub(crate) command: PortCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Add a port to a running switch. Other ports do not notice.
    Add(Box<PortAddArgs>),
    /// Take a port away, and the device or socket that the switch made for it. Rules that name the
    /// port stay, and drop.
    Remove(PortRemoveArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PortAddArgs {
    /// The port as for `tapswitch switch --port`: 5=tap:vm5,netns=blue or 6=vhost:/run/vm6.sock.
    #[arg(value_name = "N=KIND:NAME[,OPTION]...")]
    pub(crate) port: PortSpec,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PortRemoveArgs {
    /// Its number, or local.
    #[arg(value_name = "N", value_parser = tapswitch_switch::parse_port_number)]
    pub(crate) number: tapswitch_openflow::PortNo,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

/// Whom to tell.
#[derive(Args, Clone, Debug)]
pub(crate) struct SocketArgs {
    /// Management socket of the switch; the only one in /run/tapswitch when not given.
    #[arg(long, value_name = "PATH", env = "TAPSWITCH_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}
