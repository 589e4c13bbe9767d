//! `tapswitch token`: tokens for REST.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tapswitch_controller::{NewToken, Role};

#[derive(Args, Clone, Debug)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print it once with the lines for the token file, which only contain its
    /// hash.
    New {
        /// Name of the token's owner, as it appears in the audit log.
        name: String,
        /// Role of the token.
        #[arg(long, value_name = "ROLE")]
        role: RoleName,
        /// Append the lines to this file, created with access for its owner alone, and print only
        /// the token.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Permissions of a token.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleName {
    /// Read.
    Viewer,
    /// Also add and delete policies.
    Operator,
    /// Also read the audit log.
    Admin,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Viewer => Self::Viewer,
            RoleName::Operator => Self::Operator,
            RoleName::Admin => Self::Admin,
        }
    }
}

/// Creates a token.
pub(crate) fn main(args: TokenArgs) -> Result<(), Box<dyn std::error::Error>> {
    let TokenCommand::New { name, role, file } = args.command;
    let made = NewToken::make(&name, role.into())?;
    match file {
        Some(path) => {
            made.append(&path)?;
            say!("{}", made.secret);
        }
        None => {
            say!("# The token. It is shown only once and not stored anywhere:");
            say!("# {}", made.secret);
            say!("# Add this to the token file (`tapswitch controller --tokens FILE`):");
            say!("{}", made.entry);
        }
    }
    Ok(())
}
