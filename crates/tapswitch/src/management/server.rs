//! Server of the management socket.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use tapswitch_controller::Caller;
use tapswitch_netlink::Namespace;
use tapswitch_openflow::PortNo;
use tapswitch_switch::{ClearError, SocketFile};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::{Answer, DIRECTORY, Part, Request, Topic};
use crate::text::with_remedy;
use crate::users::User;

/// The parts of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    pub(crate) switch: Option<tapswitch_switch::Handle>,
    pub(crate) controller: Option<tapswitch_controller::Handle>,
}

/// A management socket, removed on drop.
#[derive(Debug)]
pub(crate) struct Management {
    socket: Socket,
    services: Services,
    /// Why a deleted socket file cannot be created again.
    obstacle: Option<String>,
    /// Last: the socket is removed first.
    directories: Directories,
}

/// A listening socket; its file is removed with it.
#[derive(Debug)]
struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

impl Management {
    /// Creates the socket. Replaces one that no process listens on.
    pub(crate) fn bind(path: &Path, services: Services) -> Result<Self, BindError> {
        let (directories, socket) = Socket::make(path)?;
        Ok(Self { socket, services, obstacle: None, directories })
    }

    /// Path of the socket.
    pub(crate) fn path(&self) -> &Path {
        self.socket.file.path()
    }

    /// Answers requests, forever.
    pub(crate) async fn serve(&mut self) {
        let (mut looks, mut told_at) = (tokio::time::interval(LOOK), None);
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.listener.accept() => accepted,
                _ = looks.tick() => {
                    self.renew();
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    let services = self.services.clone();
                    tokio::spawn(async move {
                        if let Err(error) = serve_one(stream, &services).await {
                            tracing::debug!("management: {error}");
                        }
                    });
                }
                Err(error) => {
                    // Usually out of file descriptors: waits until some are closed.
                    if told_at.is_none_or(|at: Instant| at.elapsed() >= TELL_AGAIN) {
                        told_at = Some(Instant::now());
                        let error = error.to_string();
                        let error = with_remedy(&error);
                        tracing::warn!("management socket: cannot accept connections: {error}");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Creates the socket again if its file was deleted: otherwise no client finds it.
    fn renew(&mut self) {
        if self.socket.file.is_there() {
            self.obstacle = None;
            return;
        }
        let path = self.path().to_owned();
        match Socket::make(&path) {
            Ok((directories, socket)) => {
                self.directories.add(directories);
                (self.socket, self.obstacle) = (socket, None);
                tracing::warn!(
                    "{} was deleted; the management socket has been created again",
                    path.display()
                );
            }
            Err(error) => {
                let text = error.to_string();
                if self.obstacle.as_ref() != Some(&text) {
                    tracing::error!(
                        "the management socket was deleted and cannot be created again: {text}; \
                         trying again every {} s",
                        LOOK.as_secs()
                    );
                }
                self.obstacle = Some(text);
            }
        }
    }
}

impl Socket {
    fn make(path: &Path) -> Result<(Directories, Self), BindError> {
        let owned = || path.to_owned();
        let failed = |source| BindError::Io { path: owned(), source };
        let directories = Directories::make(path).map_err(failed)?;
        SocketFile::clear(path).map_err(|error| match error {
            ClearError::Taken => BindError::InUse { path: owned() },
            ClearError::Io(source) => failed(source),
            error => BindError::Occupied { path: owned(), error },
        })?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        let file = SocketFile::of(path).map_err(failed)?;
        // Dropped, with its file, if a later step fails.
        let made = Self { listener, file };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok((directories, made))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.file.remove();
    }
}

/// Directories created for a socket, innermost first. They are removed with it, unless they contain
/// other files.
#[derive(Debug)]
struct Directories(Vec<PathBuf>);

impl Directories {
    fn make(socket: &Path) -> io::Result<Self> {
        let parents = socket.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty());
        let missing = parents.take_while(|directory| !directory.exists());
        // All sockets are there by default: another process may be about to create one.
        let made = missing.filter(|directory| *directory != Path::new(DIRECTORY));
        let made = Self(made.map(Path::to_owned).collect());
        if let Some(directory) = socket.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        }
        Ok(made)
    }

    /// Adds those created at another time.
    fn add(&mut self, mut others: Self) {
        others.0.append(&mut self.0);
        std::mem::swap(self, &mut others);
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        for directory in &self.0 {
            // Usually not empty: then others use it.
            let _ = fs::remove_dir(directory);
        }
    }
}

async fn serve_one(mut stream: UnixStream, services: &Services) -> io::Result<()> {
    let caller = caller(&stream);
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    let len = BufReader::new(reader.take(MAX_REQUEST_LEN)).read_line(&mut line).await?;
    if len == 0 {
        // A client only checked whether the process is alive.
        return Ok(());
    }
    let answer = match serde_json::from_str(&line) {
        Ok(request) => services.answer(request, &caller).await,
        Err(error) => Answer::Error(format!("cannot parse the request: {error}")),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    writer.write_all(&bytes).await
}

impl Services {
    async fn answer(&self, request: Request, caller: &Caller) -> Answer {
        match (request.part(), &self.switch, &self.controller) {
            _ if matches!(request, Request::Parts) => said(Ok::<_, String>(self.parts())),
            _ if matches!(request, Request::Namespace) => {
                said(Namespace::current().and_then(|namespace| namespace.identity()))
            }
            (Part::Switch, Some(switch), _) => ask_switch(switch, request).await,
            (Part::Controller, _, Some(controller)) => {
                ask_controller(controller, request, caller).await
            }
            (part, ..) => Answer::Error(missing(part, &request)),
        }
    }

    fn parts(&self) -> Vec<Part> {
        let switch = self.switch.as_ref().map(|_| Part::Switch);
        let controller = self.controller.as_ref().map(|_| Part::Controller);
        switch.into_iter().chain(controller).collect()
    }
}

/// The peer as reported by the kernel (SO_PEERCRED, unix(7)): the user's name, or the ID of a user
/// without a name.
fn caller(stream: &UnixStream) -> Caller {
    let Ok(credentials) = stream.peer_cred() else { return Caller::unix("unknown") };
    let uid = credentials.uid();
    Caller::unix(&User(uid).name().unwrap_or_else(|| uid.to_string()))
}

/// The remedy if this process does not have the part that answers.
fn missing(part: Part, request: &Request) -> String {
    let hint = match request {
        Request::Show(Topic::Taps) => "; `tapswitch policy list` shows the TAPs of a controller",
        _ => "",
    };
    format!("this process has no {part}; use --socket to name a process that has one{hint}")
}

async fn ask_switch(switch: &tapswitch_switch::Handle, request: Request) -> Answer {
    match request {
        Request::Show(topic) => show_switch(switch, topic).await,
        Request::AddPort(spec) => said(switch.add_port(*spec).await),
        Request::RemovePort(number) => said(switch.remove_port(PortNo(number)).await),
        _ => Answer::Error("only a controller answers this request".to_owned()),
    }
}

async fn show_switch(switch: &tapswitch_switch::Handle, topic: Topic) -> Answer {
    match topic {
        Topic::Switch => said(switch.switch().await),
        Topic::Ports => said(switch.ports().await),
        Topic::Flows => said(switch.flows().await),
        Topic::Groups => said(switch.groups().await),
        Topic::Meters => said(switch.meters().await),
        Topic::Workers => said(switch.workers().await),
        Topic::Drops => said(switch.drops().await),
        Topic::Taps => said(switch.taps().await),
        Topic::Hosts | Topic::Switches | Topic::Links | Topic::Controller => {
            Answer::Error("only a controller answers this request".to_owned())
        }
    }
}

async fn ask_controller(
    controller: &tapswitch_controller::Handle,
    request: Request,
    caller: &Caller,
) -> Answer {
    match request {
        Request::PlanPolicy(policy) => said(controller.plan_policy(*policy).await),
        Request::PlanReplacement(policy) => said(controller.plan_replacement(*policy).await),
        Request::ApplyPolicy(policy, how) => {
            said(controller.apply_policy(caller, *policy, how).await)
        }
        Request::Policies => said(controller.policies().await),
        Request::Policy(name) => said(controller.policy(&name).await),
        Request::DeletePolicy(name, by_force) => {
            said(controller.delete_policy(caller, &name, by_force).await)
        }
        Request::PlanDeletion(name) => said(controller.plan_deletion(&name).await),
        Request::Audit { after } => said(controller.audit(after, AUDIT_COUNT).await),
        Request::Show(Topic::Hosts) => said(controller.hosts().await),
        Request::Show(Topic::Switches) => said(controller.switches().await),
        Request::Show(Topic::Links) => said(controller.links().await),
        Request::Show(Topic::Controller) => said(Ok::<_, String>(controller.cluster())),
        _ => Answer::Error("only a switch answers this request".to_owned()),
    }
}

fn said<T: Serialize>(result: Result<T, impl std::fmt::Display>) -> Answer {
    match result.map(serde_json::to_value) {
        Ok(Ok(value)) => Answer::Ok(value),
        Ok(Err(error)) => Answer::Error(format!("cannot encode the answer: {error}")),
        Err(error) => Answer::Error(error.to_string()),
    }
}

/// Error of creating the management socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// Another process uses it.
    #[error(
        "{} is in use by another tapswitch; choose another with --socket, or another name",
        path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path is occupied.
    #[error("management socket {}: {error}; choose another path with --socket", path.display())]
    Occupied {
        /// The socket.
        path: PathBuf,
        /// What occupies it.
        error: ClearError,
    },
    /// Error of the file system.
    #[error("management socket {}: {source}; choose another with --socket", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// Interval of checking that the socket's file exists.
const LOOK: Duration = Duration::from_secs(2);
/// How often the log is told that connections cannot be accepted.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Maximum length of a request in bytes; a policy needs some hundreds.
const MAX_REQUEST_LEN: u64 = 64 << 10;
/// Maximum number of audit records in one answer.
const AUDIT_COUNT: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_others_have_at_its_path_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("br0.sock");
        let bind = || Management::bind(&path, Services::default());
        fs::write(&path, "mine").unwrap();
        let refused = bind().unwrap_err().to_string();
        assert!(
            refused.contains("is not a socket; choose another path with --socket"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        let first = bind().unwrap();
        let refused = bind().unwrap_err().to_string();
        assert!(refused.contains("in use by another"), "{refused}");
        // Another process deletes the file and listens at the same path.
        fs::remove_file(&path).unwrap();
        let second = bind().unwrap();
        drop(first);
        assert!(path.exists(), "it is the second one's");
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_whose_file_was_deleted_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/br0.sock");
        let mut management = Management::bind(&path, Services::default()).unwrap();
        fs::remove_dir_all(folder.path().join("run")).unwrap();
        let serving = tokio::time::timeout(LOOK, management.serve());
        assert!(serving.await.is_err(), "it goes on for ever");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).await.unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        management.renew();
        assert!(management.obstacle.as_ref().is_some_and(|text| text.contains("is not a socket")));
        fs::remove_file(&path).unwrap();
        management.renew();
        assert_eq!(management.obstacle, None);
        drop(management);
        assert!(!folder.path().join("run").exists(), "its directory goes with it");
    }

    #[test]
    fn directories_that_were_made_for_a_socket_go_with_it() {
        let root = std::env::temp_dir().join(format!("tapswitch-sockets-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let made = Directories::make(&root.join("a/b/br0.sock")).unwrap();
        assert!(root.join("a/b").is_dir());
        drop(made);
        assert!(root.is_dir() && !root.join("a").exists());
        let shared = Directories::make(&root.join("a/b/br0.sock")).unwrap();
        fs::write(root.join("a/other"), "").unwrap();
        drop(shared);
        assert!(root.join("a/other").exists() && !root.join("a/b").exists());
        fs::remove_dir_all(&root).unwrap();
    }
}
