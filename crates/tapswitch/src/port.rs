//! `tapswitch port`: adds and removes ports of a running switch.

use std::path;

use tapswitch_switch::{PortKind, PortSpec};

use crate::cli::port::{PortArgs, PortCommand};
use crate::management::{AskError, Request, ask};

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
