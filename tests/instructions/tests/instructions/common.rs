//! Programs for the tests.

use std::path::PathBuf;
use std::process::{Command, Output};

/// The file with `name` in its path that a `cargo build` with these arguments reports under `key`.
pub(crate) fn built(args: &[&str], key: &str, name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("build").args(args).args(["--message-format", "json-render-diagnostics"]);
    let messages = String::from_utf8(successful(&mut cargo).stdout).unwrap();
    let mut files = messages.lines().filter_map(|line| {
        let (_, rest) = line.split_once(key)?;
        rest.split('"').next().filter(|file| file.contains(name))
    });
    PathBuf::from(files.next_back().expect("cargo names what it built"))
}

pub(crate) fn successful(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}
