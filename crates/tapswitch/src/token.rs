//! `tapswitch token`: tokens for REST.

use tapswitch_controller::NewToken;

use crate::cli::controller::{TokenArgs, TokenCommand};

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
