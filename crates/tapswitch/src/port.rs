//! `tapswitch port`: adds and removes ports of a running switch.

use std::path;

use clap::{Args, Subcommand};
use tapswitch_switch::{PortKind, PortSpec};

use crate::management::{AskError, Request, SocketArgs, ask};

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

/// Executes a command.
pub(crate) fn main(args: PortArgs) -> Result<(), AskError> {
    match args.command {
        PortCommand::Add(args) => {
            let port = Box::new(from_here(args.port));
            ask(args.socket.socket.as_deref(), &Request::AddPort(port))
        }
        PortCommand::Remove(args) => {
            ask(args.socket.socket.as_deref(), &Request::RemovePort(args.number.0))
        }
    }
}

/// Makes paths absolute: they are relative to the caller's directory, not the switch's.
fn from_here(mut port: PortSpec) -> PortSpec {
    let path = match &mut port.kind {
        PortKind::Guest { socket, .. } => &mut socket.path,
        PortKind::Pcapng(file) => &mut file.path,
        _ => return port,
    };
    // Without a current directory, the switch reports that the path does not exist.
    let absolute =
        path::absolute(&*path).ok().and_then(|path| path.into_os_string().into_string().ok());
    if let Some(absolute) = absolute {
        *path = absolute;
    }
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_where_the_command_is_given() {
        let here = std::env::current_dir().unwrap();
        for (kind, path) in [("vhost", "vm0.sock"), ("pcapng", "./deep/all.pcapng")] {
            let port = from_here(format!("5={kind}:{path}").parse().unwrap());
            let expected =
                format!("5={kind}:{}", here.join(path.trim_start_matches("./")).display());
            assert!(port.to_string().starts_with(&expected), "{port}");
        }
        let port: PortSpec = "5=vhost:/run/vm0.sock".parse().unwrap();
        assert_eq!(from_here(port.clone()), port);
    }
}
