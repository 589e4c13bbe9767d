//! Queries a running process.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Answer, DIRECTORY, Part, Request};

/// Sends a request to the process behind `socket`, or to the only running one, and parses its
/// answer as a `T`.
pub(crate) fn ask<T: DeserializeOwned>(
    socket: Option<&Path>,
    request: &Request,
) -> Result<T, AskError> {
    let path = match socket {
        Some(path) => path.to_owned(),
        None => find(request.part())?,
    };
    ask_within(&path, request, TIMEOUT)
}

/// Sends a request to the process behind `path`, and waits at most `patience` for its answer.
pub(crate) fn ask_within<T: DeserializeOwned>(
    path: &Path,
    request: &Request,
    patience: Duration,
) -> Result<T, AskError> {
    let value = match exchange(path, request, patience)? {
        Answer::Ok(value) => value,
        Answer::Error(text) => return Err(AskError::Refused(text)),
    };
    let path = path.to_owned();
    serde_json::from_value(value).map_err(|source| AskError::Answer { path, source })
}

fn exchange(path: &Path, request: &Request, patience: Duration) -> Result<Answer, AskError> {
    let io = |source| AskError::from_io(path, source, patience);
    let mut stream = UnixStream::connect(path).map_err(io)?;
    stream.set_read_timeout(Some(patience)).map_err(io)?;
    stream.set_write_timeout(Some(patience)).map_err(io)?;
    let mut line = serde_json::to_vec(request)
        .map_err(|source| AskError::Answer { path: path.to_owned(), source })?;
    line.push(b'\n');
    stream.write_all(&line).map_err(io)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(io)?;
    serde_json::from_str(&answer)
        .map_err(|source| AskError::Answer { path: path.to_owned(), source })
}

/// The socket of the only running process, or of the only one that has the part.
fn find(part: Part) -> Result<PathBuf, AskError> {
    let running: Vec<PathBuf> = sockets().into_iter().filter(|path| is_alive(path)).collect();
    match running.as_slice() {
        [] => Err(AskError::NoneRunning),
        [only] => Ok(only.clone()),
        several => find_among(several, part),
    }
}

fn find_among(several: &[PathBuf], part: Part) -> Result<PathBuf, AskError> {
    let (mut having, mut denied) = (Vec::new(), None);
    for path in several {
        match parts(path) {
            Ok(parts) if parts.contains(&part) => having.push(path.clone()),
            Ok(_) => {}
            Err(error) => denied = denied.or(Some(error)),
        }
    }
    match (having.as_slice(), denied) {
        ([only], _) => Ok(only.clone()),
        ([], Some(error)) => Err(error),
        ([], None) => Err(AskError::NoneHas { part, sockets: list(several) }),
        _ => Err(AskError::Several { part, sockets: list(&having) }),
    }
}

/// The sockets of all processes, including those of crashed ones.
pub(crate) fn sockets() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    paths.sort();
    paths
}

fn is_alive(path: &Path) -> bool {
    is_somebody(&UnixStream::connect(path).map(drop))
}

/// Whether a connection attempt shows that a process listens; it may refuse this user.
fn is_somebody(answer: &io::Result<()>) -> bool {
    !answer.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::PermissionDenied)
}

/// The parts of a process; none if it does not answer.
///
/// # Errors
/// If access is denied.
fn parts(path: &Path) -> Result<Vec<Part>, AskError> {
    match exchange(path, &Request::Parts, TIMEOUT) {
        Ok(Answer::Ok(value)) => Ok(serde_json::from_value(value).unwrap_or_default()),
        Err(error @ AskError::Denied { .. }) => Err(error),
        _ => Ok(Vec::new()),
    }
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

/// Error of a query.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No process is running.
    #[error(
        "no running tapswitch found in {DIRECTORY}; start one with `tapswitch run`, or name its \
         socket with --socket"
    )]
    NoneRunning,
    /// No running process has the part.
    #[error(
        "none of the running processes is a {part}: {sockets}; start one with `tapswitch {part}`, \
         or name its socket with --socket"
    )]
    NoneHas {
        /// The part.
        part: Part,
        /// The running processes.
        sockets: String,
    },
    /// Several running processes have the part.
    #[error("several processes have a {part}: {sockets}; choose one with --socket")]
    Several {
        /// The part.
        part: Part,
        /// The running processes.
        sockets: String,
    },
    /// The process cannot be reached.
    #[error("{}: {source}; is tapswitch running there?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The process does not answer. It may still execute the request.
    #[error(
        "{}: no answer within {} s; the process is busy or stopped. A change may still be made: \
         check before you repeat it", path.display(), patience.as_secs()
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The time limit.
        patience: Duration,
    },
    /// The process does not accept this user.
    #[error("{}: {source}; run as root", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The process refuses the request.
    #[error("{0}")]
    Refused(String),
    /// The answer cannot be parsed.
    #[error(
        "{}: cannot parse the answer ({source}); check that both are the same version of \
         tapswitch",
        path.display()
    )]
    Answer {
        /// The socket.
        path: PathBuf,
        /// Error of the parser.
        source: serde_json::Error,
    },
}

impl AskError {
    fn from_io(path: &Path, source: io::Error, patience: Duration) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied { path, source },
            // Linux returns the former when a socket times out, other systems the latter.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent { path, patience },
            _ => Self::Connect { path, source },
        }
    }
}

/// A change waits for the barriers of its switches, at most ten seconds, and before that for its
/// turn.
const TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A process with these parts, and its socket.
    fn process(directory: &Path, name: &str, parts: Vec<Part>) -> PathBuf {
        let path = directory.join(name);
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let answer = Answer::Ok(serde_json::to_value(&parts).unwrap());
                let text = serde_json::to_string(&answer).unwrap() + "\n";
                stream.write_all(text.as_bytes()).unwrap();
            }
        });
        path
    }

    #[test]
    fn only_those_are_offered_that_have_what_is_looked_for() {
        use Part::{Controller, Switch};
        let directory = tempfile::tempdir().unwrap();
        let process = |name, parts| process(directory.path(), name, parts);
        let [a, b] = ["a.sock", "b.sock"].map(|name| process(name, vec![Switch]));
        let c = process("c.sock", vec![Controller]);
        let all = [a.clone(), b.clone(), c.clone()];
        assert_eq!(find_among(&all, Controller).unwrap(), c);
        let text = find_among(&all, Switch).unwrap_err().to_string();
        assert!(text.contains(&list(&[a.clone(), b.clone()])), "{text}");
        assert!(!text.contains("c.sock"), "{text}");
        let text = find_among(&[a, b], Controller).unwrap_err().to_string();
        assert!(text.starts_with("none of the running processes is a controller"), "{text}");
        assert!(text.contains("b.sock"), "{text}");
    }

    #[test]
    fn who_does_not_answer_is_busy_or_stopped() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let source = (&ours).read(&mut [0]).unwrap_err();
        let text = AskError::from_io(Path::new("/c.sock"), source, TIMEOUT).to_string();
        let expected = "/c.sock: no answer within 15 s; the process is busy or stopped. A change \
                        may still be made: check before you repeat it";
        assert_eq!(text, expected);
        drop(theirs);
    }

    /// A process of root counts as running for every user.
    #[test]
    fn who_may_not_ask_is_told_so() {
        let answers = |kind: io::ErrorKind| is_somebody(&Err(kind.into()));
        assert!(is_somebody(&Ok(())) && answers(io::ErrorKind::PermissionDenied));
        assert!(!answers(io::ErrorKind::ConnectionRefused) && !answers(io::ErrorKind::NotFound));
        let denied = io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error());
        let text =
            AskError::from_io(Path::new("/run/tapswitch/br0.sock"), denied, TIMEOUT).to_string();
        let expected = "/run/tapswitch/br0.sock: Permission denied (os error 13); run as root";
        assert_eq!(text, expected);
    }
}
