//! `tapswitch token`: tokens for REST.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use tapswitch_controller::NewToken;

use crate::cli::controller::{TokenArgs, TokenCommand};

/// Makes a token.
pub(crate) fn main(args: TokenArgs) -> Result<(), Box<dyn std::error::Error>> {
    let TokenCommand::New { name, role, file } = args.command;
    let NewToken { secret, entry } = NewToken::make(&name, role.into())?;
    let Some(path) = file else {
        say!("# The token. It is told this once, and nowhere kept:");
        say!("# {secret}");
        say!("# For the file of tokens (`tapswitch controller --tokens FILE`):");
        say!("{entry}");
        return Ok(());
    };
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).mode(0o600).open(&path);
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    opened.and_then(|mut file| writeln!(file, "{entry}")).map_err(named)?;
    say!("{secret}");
    Ok(())
}
