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
    /// Add a port to a running switch, without disturbing other ports.
    Add(Box<PortAddArgs>),
    /// Remove a port, and the device or socket that the switch created for it. Rules that refer to
    /// the port stay and drop.
    Remove(PortRemoveArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PortAddArgs {
    /// Port as for `tapswitch switch --port`: 5=tap:vm5,netns=blue or 6=vhost:/run/vm6.sock.
    #[arg(value_name = "N=KIND:NAME[,OPTION]...")]
    pub(crate) port: PortSpec,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PortRemoveArgs {
    /// Number of the port, or local.
    #[arg(value_name = "N", value_parser = tapswitch_switch::parse_port_number)]
    pub(crate) number: tapswitch_openflow::PortNo,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

/// Which switch to address.
#[derive(Args, Clone, Debug)]
pub(crate) struct SocketArgs {
    /// Management socket of the switch. Default: the only one in /run/tapswitch.
    #[arg(long, value_name = "PATH", env = "TAPSWITCH_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}
