//! Arguments that name a management socket.

use std::path::PathBuf;

use clap::Args;

use super::default_path;

/// Where a long-running command listens for `show` and `policy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// Management socket. Default: /run/tapswitch/NAME.sock.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl ServeArgs {
    /// The socket of a process called `name`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| default_path(name))
    }
}

/// Which process `show` and `policy` query.
#[derive(Args, Clone, Debug)]
pub(crate) struct AskArgs {
    /// Management socket of the process to query. Default: the only one in /run/tapswitch.
    #[arg(long, value_name = "PATH", env = "TAPSWITCH_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which switch to address.
#[derive(Args, Clone, Debug)]
pub(crate) struct SocketArgs {
    /// Management socket of the switch. Default: the only one in /run/tapswitch.
    #[arg(long, value_name = "PATH", env = "TAPSWITCH_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}
