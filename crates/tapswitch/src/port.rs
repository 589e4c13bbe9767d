//! `tapswitch port`: ports of a running switch come and go.

use crate::cli::port::{PortArgs, PortCommand};
use crate::management::{AskError, Request, ask};

/// Carries out one command.
pub(crate) fn main(args: PortArgs) -> Result<(), AskError> {
    match args.command {
        PortCommand::Add(args) => {
            ask(args.socket.socket.as_deref(), &Request::AddPort(Box::new(args.port)))
        }
        PortCommand::Remove(args) => {
            ask(args.socket.socket.as_deref(), &Request::RemovePort(args.number.0))
        }
    }
}
