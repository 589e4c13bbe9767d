//! Asking a running process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Answer, DIRECTORY, Part, Request};

/// Asks the process behind `socket`, or the only one that is running, and reads its answer as a
/// `T`.
pub(crate) fn ask<T: DeserializeOwned>(
    socket: Option<&Path>,
    request: &Request,
) -> Result<T, AskError> {
    let path = match socket {
        Some(path) => path.to_owned(),
        None => find(request.part())?,
    };
    let value = match exchange(&path, request)? {
        Answer::Ok(value) => value,
        Answer::Error(text) => return Err(AskError::Refused(text)),
    };
    serde_json::from_value(value).map_err(|source| AskError::Answer { path, source })
}

fn exchange(path: &Path, request: &Request) -> Result<Answer, AskError> {
    let io = |source| AskError::Connect { path: path.to_owned(), source };
    let mut stream = UnixStream::connect(path).map_err(io)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(io)?;
    let mut line = serde_json::to_vec(request)
        .map_err(|source| AskError::Answer { path: path.to_owned(), source })?;
    line.push(b'\n');
    stream.write_all(&line).map_err(io)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(io)?;
    serde_json::from_str(&answer)
        .map_err(|source| AskError::Answer { path: path.to_owned(), source })
}

/// The socket of the only running process; of several, the only one that has the part.
fn find(part: Part) -> Result<PathBuf, AskError> {
    let running: Vec<PathBuf> = sockets().into_iter().filter(|path| is_alive(path)).collect();
    match running.as_slice() {
        [] => Err(AskError::NoneRunning),
        [only] => Ok(only.clone()),
        several => {
            let has_part = |path: &&PathBuf| parts(path).contains(&part);
            let mut having = several.iter().filter(has_part);
            match (having.next(), having.next()) {
                (Some(only), None) => Ok(only.clone()),
                _ => Err(AskError::Several { part, sockets: list(several) }),
            }
        }
    }
}

/// The sockets of all running processes that have a switch.
pub(crate) fn running_switches() -> Vec<PathBuf> {
    let mut sockets = sockets();
    sockets.retain(|path| parts(path).contains(&Part::Switch));
    sockets
}

fn sockets() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    paths.sort();
    paths
}

fn is_alive(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

fn parts(path: &Path) -> Vec<Part> {
    match exchange(path, &Request::Parts) {
        Ok(Answer::Ok(value)) => serde_json::from_value(value).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody to ask.
    #[error(
        "no running tapswitch found in {DIRECTORY}; start one with `tapswitch run`, or name its \
         socket with --socket"
    )]
    NoneRunning,
    /// More than one to ask.
    #[error("several processes could be asked for a {part}: {sockets}; choose one with --socket")]
    Several {
        /// What was looked for.
        part: Part,
        /// Who is there.
        sockets: String,
    },
    /// The process cannot be reached.
    #[error("{}: {source}; is tapswitch running, and are you root?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The process says no.
    #[error("{0}")]
    Refused(String),
    /// The answer makes no sense.
    #[error("{}: the answer is not understood ({source}); is it another version?", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// A policy waits for the switch's barrier, at most five seconds.
const TIMEOUT: Duration = Duration::from_secs(15);
