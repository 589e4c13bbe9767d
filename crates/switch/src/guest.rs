//! Guests behind ports: the socket where their monitor is met, and the thread that talks to it.
//!
//! The thread meets a monitor, serves its session, and meets the next one, for as long as the port
//! is there. Frames are none of its business: workers take them from the device's queues. What
//! changes comes to the server as [`GuestNews`].

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tapswitch_openflow::{PortNo, PortState};
use tapswitch_vhost::{self as vhost, Features, SessionEnd, Status};
use tapswitch_wire::MacAddr;
use tokio::sync::mpsc;

use crate::bell;
use crate::report::GuestReport;
use crate::rx::{GuestRx, RxDevice};
use crate::tx::{GuestTx, Takes, TxDevice, TxPort};
use crate::{GuestSocket, PortSpec, SocketAccess, SocketSide};

/// Something happened to the guest behind a port.
#[derive(Debug)]
pub(crate) struct GuestNews {
    pub(crate) port: PortNo,
    pub(crate) change: GuestChange,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum GuestChange {
    /// A monitor was met.
    Met,
    /// Other queues run now.
    Status(Status),
    /// The session is over.
    Ended(SessionEnd),
}

/// The guest behind a port, there or not.
#[derive(Debug)]
pub(crate) struct Guest {
    spec: PortSpec,
    socket: GuestSocket,
    device: Arc<vhost::Device>,
    status: Status,
    /// True while there is a session with a monitor.
    is_met: bool,
    sessions: u64,
    resets: u64,
    last_reset: Option<String>,
    /// How to meet its monitor, until the thread does so.
    meeting: Option<Meeting>,
    thread: Option<GuestThread>,
}

/// Why a guest's socket cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenGuestError {
    /// Something else listens there.
    #[error("another process listens on {path}; give the port a socket of its own")]
    Taken {
        /// Path of the socket.
        path: String,
    },
    /// There is something that is no socket.
    #[error("{path} is there and is no socket; give the port another path")]
    NoSocket {
        /// The path.
        path: String,
    },
    /// The kernel refused.
    #[error("cannot listen on {path}: {source}; its directory must be there and writable")]
    Listen {
        /// Path of the socket.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// It may not be given to others.
    #[error(
        "cannot give {path} the {what}: {source}; only root may give it to another user, or to a \
         group that it is not in itself"
    )]
    Access {
        /// Path of the socket.
        path: String,
        /// What it was to have.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// No descriptors.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Guest {
    /// Makes a device without a guest, and the socket if the switch is to listen there.
    pub(crate) fn open(spec: &PortSpec, socket: &GuestSocket) -> Result<Self, OpenGuestError> {
        let offered = if spec.offload { Features::OFFERED } else { Features::without_offloads() };
        let device = vhost::Device::offering(spec.queues().get(), offered)?;
        let meeting = Some(match socket.side {
            SocketSide::Server => Meeting::Listen(Listener::bind(socket)?),
            SocketSide::Client => Meeting::Connect(socket.path.clone()),
        });
        Ok(Self {
            spec: spec.clone(),
            socket: socket.clone(),
            device,
            status: Status::default(),
            is_met: false,
            sessions: 0,
            resets: 0,
            last_reset: None,
            meeting,
            thread: None,
        })
    }

    /// Starts to meet monitors. The thread ends when the guest is dropped.
    pub(crate) fn start(&mut self, news: mpsc::Sender<GuestNews>) -> io::Result<()> {
        let Some(meeting) = self.meeting.take() else { return Ok(()) };
        let port = self.spec.number;
        self.thread = Some(GuestThread::start(self.device.clone(), meeting, port, news)?);
        Ok(())
    }

    /// Notes what happened.
    pub(crate) fn note(&mut self, change: GuestChange) {
        let spec = &self.spec;
        match change {
            GuestChange::Met => {
                self.sessions += 1;
                self.is_met = true;
            }
            GuestChange::Status(status) => {
                if status.is_blank && !self.status.is_blank {
                    tracing::warn!("port {spec}: {BLANK_MEMORY}");
                }
                self.status = status;
                match status.pairs {
                    0 => tracing::info!("port {spec}: the guest's queues have stopped"),
                    _ if status.features.contains(Features::LOG_ALL) => {
                        tracing::info!("port {spec}: the guest is being moved");
                    }
                    pairs => tracing::info!(
                        "port {spec}: the guest is there ({pairs} of {} pairs of queues, {} \
                         rings; takes {})",
                        spec.queues(),
                        rings(status.features),
                        Takes::from(status.features)
                    ),
                }
            }
            GuestChange::Ended(end) => {
                self.is_met = false;
                self.note_end(end);
            }
        }
    }

    fn note_end(&mut self, end: SessionEnd) {
        let spec = &self.spec;
        match end {
            SessionEnd::Closed => tracing::info!("port {spec}: the monitor is gone"),
            SessionEnd::Refused(why) | SessionEnd::Reset(why) => {
                self.resets += 1;
                // A monitor that comes back and does the same again says nothing new.
                if self.last_reset.as_ref() == Some(&why) {
                    tracing::debug!("port {spec}: the guest was cut off again: {why}");
                } else {
                    tracing::warn!("port {spec}: the guest was cut off: {why}");
                }
                self.last_reset = Some(why);
            }
        }
    }

    /// An address of the port itself, which guests never see: the same at each start.
    pub(crate) fn mac(&self) -> MacAddr {
        let mut hasher = DefaultHasher::new();
        self.socket.path.hash(&mut hasher);
        let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
        // Locally administered (IEEE 802-2014 §8.2.2).
        MacAddr([0x02, a, b, c, d, e])
    }

    /// How OpenFlow calls the state of its link.
    pub(crate) fn state(&self) -> PortState {
        if self.status.pairs > 0 { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// What the guest takes, in words.
    pub(crate) fn offloads(&self) -> String {
        if self.status.pairs == 0 {
            return "none".to_owned();
        }
        Takes::from(self.status.features).to_string()
    }

    pub(crate) fn report(&self) -> GuestReport {
        let Status { pairs, features, is_blank } = self.status;
        let state = match (self.is_met, pairs) {
            (false, _) => "waiting",
            (true, 0) => "connected",
            (true, _) => "running",
        };
        GuestReport {
            state: state.to_owned(),
            socket: self.socket.to_string(),
            queues: pairs,
            rings: (pairs > 0).then(|| rings(features).to_owned()),
            features: format!("{:#x}", features.bits()),
            feature_names: features.iter_names().map(|(name, _)| name.to_lowercase()).collect(),
            warning: is_blank.then(|| BLANK_MEMORY.to_owned()),
            sessions: self.sessions,
            resets: self.resets,
            last_reset: self.last_reset.clone(),
        }
    }

    /// What there is to be read, in order.
    pub(crate) fn rx_devices(&self) -> Vec<RxDevice> {
        let queues = (0..).map_while(|index| self.device.transmit_queue(index));
        let device = |queue: &Arc<vhost::Queue>| {
            RxDevice::Guest(GuestRx { device: self.device.clone(), queue: queue.clone() })
        };
        queues.map(device).collect()
    }

    /// The handle by which `worker` sends: a queue of its own while the guest runs so many.
    pub(crate) fn tx_port(&self, worker: usize) -> TxPort {
        let own = worker % usize::from(self.spec.queues().get());
        let guest = GuestTx::new(self.device.clone(), own);
        TxPort::new(TxDevice::Guest(guest), Takes::NOTHING)
    }
}

/// Which kind of rings was negotiated.
fn rings(features: Features) -> &'static str {
    if features.contains(Features::RING_PACKED) { "packed" } else { "split" }
}

/// The thread that meets monitors and serves them.
#[derive(Debug)]
struct GuestThread {
    device: Arc<vhost::Device>,
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl GuestThread {
    fn start(
        device: Arc<vhost::Device>,
        meeting: Meeting,
        port: PortNo,
        news: mpsc::Sender<GuestNews>,
    ) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let keeper = Keeper { device: device.clone(), meeting, end: end.clone(), port, news };
        let builder = std::thread::Builder::new().name(format!("tapswitch-g{port}"));
        let thread = Some(builder.spawn(move || keeper.run())?);
        Ok(Self { device, end, thread })
    }
}

impl Drop for GuestThread {
    fn drop(&mut self) {
        bell::ring(&*self.end);
        self.device.close();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// What the thread holds.
struct Keeper {
    device: Arc<vhost::Device>,
    meeting: Meeting,
    end: Arc<OwnedFd>,
    port: PortNo,
    news: mpsc::Sender<GuestNews>,
}

impl Keeper {
    fn run(self) {
        while let Some(stream) = self.meet() {
            self.tell(GuestChange::Met);
            let end = self.serve(stream);
            let is_clean = end == SessionEnd::Closed;
            self.tell(GuestChange::Ended(end));
            // Who is cut off comes back at once, as a rule, and does the same again.
            if !is_clean && self.ends_within(PENANCE) {
                return;
            }
        }
    }

    /// One session. Whoever else comes meanwhile is turned away, as nobody would serve them.
    fn serve(&self, stream: UnixStream) -> SessionEnd {
        let serve = || self.device.serve(stream, |status| self.tell(GuestChange::Status(status)));
        let Meeting::Listen(listener) = &self.meeting else { return serve() };
        // Without descriptors or a thread, others wait until the session is over.
        let Ok(over) = eventfd(0, EventfdFlags::CLOEXEC) else { return serve() };
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name(format!("tapswitch-d{}", self.port));
            let door = builder.spawn_scoped(scope, || self.turn_away(listener, &over));
            if let Err(error) = door {
                tracing::debug!("port {}: {error}", self.port);
            }
            let end = serve();
            bell::ring(&over);
            end
        })
    }

    /// Turns away who comes while there is a session, until it is over. One that comes in the place
    /// of a monitor which has just gone is left for the next session.
    fn turn_away(&self, listener: &Listener, over: &OwnedFd) {
        let mut said: Option<Instant> = None;
        loop {
            let ready = wait(&[listener.socket.as_fd(), over.as_fd()], None);
            if ready & 2 != 0 || wait(&[over.as_fd()], Some(SUCCESSION)) != 0 {
                return;
            }
            if ready == 0 || listener.socket.accept().is_err() {
                continue;
            }
            let text = "another one tried to connect, and was turned away; one port is one guest";
            if said.is_none_or(|said| said.elapsed() >= SILENCE) {
                tracing::warn!("port {}: {}: {text}", self.port, listener.path);
                said = Some(Instant::now());
            } else {
                tracing::debug!("port {}: {}: {text}", self.port, listener.path);
            }
        }
    }

    /// Waits for a monitor; `None` when the port goes.
    fn meet(&self) -> Option<UnixStream> {
        loop {
            match &self.meeting {
                Meeting::Listen(listener) => {
                    let ready = [listener.socket.as_fd(), self.end.as_fd()];
                    if wait(&ready, None) & 2 != 0 {
                        return None;
                    }
                    match listener.socket.accept() {
                        Ok((stream, _)) => return Some(stream),
                        Err(error) => tracing::debug!("port {}: {error}", self.port),
                    }
                }
                // A monitor that still listens would be met again and again.
                Meeting::Connect(_) if self.ends_within(Duration::ZERO) => return None,
                Meeting::Connect(path) => match UnixStream::connect(path) {
                    Ok(stream) => return Some(stream),
                    Err(error) => tracing::trace!("port {}: {path}: {error}", self.port),
                },
            }
            if self.ends_within(RETRY) {
                return None;
            }
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        wait(&[self.end.as_fd()], Some(time)) != 0
    }

    fn tell(&self, change: GuestChange) {
        // A switch that stops does not listen any more.
        let _ = self.news.blocking_send(GuestNews { port: self.port, change });
    }
}

/// Waits until one of the descriptors is readable, and returns which, one bit for each.
fn wait(fds: &[std::os::fd::BorrowedFd<'_>], time: Option<Duration>) -> u32 {
    let mut fds: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(&mut fds, time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => tracing::error!("cannot wait for a guest: {error}"),
    }
    let bits = fds.iter().zip(0..).map(|(fd, bit)| u32::from(!fd.revents().is_empty()) << bit);
    bits.sum()
}

/// How a monitor is met.
#[derive(Debug)]
enum Meeting {
    Listen(Listener),
    Connect(String),
}

/// A listening socket; its file goes with it.
#[derive(Debug)]
struct Listener {
    socket: UnixListener,
    path: String,
    /// Device and number of the socket's file: what has taken its place is not ours to remove.
    file: (u64, u64),
}

impl Listener {
    fn bind(at: &GuestSocket) -> Result<Self, OpenGuestError> {
        let path = at.path.as_str();
        Self::clear(path)?;
        let failed = |source| OpenGuestError::Listen { path: path.to_owned(), source };
        let refused = |errno: Errno| failed(errno.into());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(refused)?;
        let address = SocketAddrUnix::new(path).map_err(refused)?;
        bind(&socket, &address).map_err(refused)?;
        let file = file_of(path).map_err(failed)?;
        // Gone with its file when something fails below.
        let listener = Self { socket: socket.into(), path: path.to_owned(), file };
        listener.give(&at.access)?;
        // Nobody can connect before.
        listen(&listener.socket, BACKLOG).map_err(refused)?;
        Ok(listener)
    }

    /// Lets those connect who shall.
    fn give(&self, access: &SocketAccess) -> Result<(), OpenGuestError> {
        let failed = |what| {
            let path = self.path.clone();
            move |source| OpenGuestError::Access { path, what, source }
        };
        let &SocketAccess { owner, group, permissions } = access;
        if let Some(permissions) = permissions {
            let permissions = std::fs::Permissions::from_mode(permissions.into());
            let set = std::fs::set_permissions(&self.path, permissions);
            set.map_err(failed("permissions"))?;
        }
        if owner.is_some() || group.is_some() {
            let given = std::os::unix::fs::lchown(&self.path, owner, group);
            given.map_err(failed("owner or group"))?;
        }
        Ok(())
    }

    /// Takes away the socket of a switch that was killed.
    fn clear(path: &str) -> Result<(), OpenGuestError> {
        let Ok(there) = std::fs::symlink_metadata(path) else { return Ok(()) };
        let owned = || path.to_owned();
        if !there.file_type().is_socket() {
            return Err(OpenGuestError::NoSocket { path: owned() });
        }
        if UnixStream::connect(path).is_ok() {
            return Err(OpenGuestError::Taken { path: owned() });
        }
        std::fs::remove_file(path)
            .map_err(|source| OpenGuestError::Listen { path: owned(), source })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if file_of(&self.path).is_ok_and(|file| file == self.file) {
            // Somebody may have been faster.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_of(path: &str) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// A port works on, as this is a guess.
const BLANK_MEMORY: &str = "the guest's memory looks as if nobody had ever written there: its \
                            monitor has most likely not shared it, but given away a copy; give the \
                            VM shared memory, as in QEMU's -object \
                            memory-backend-memfd,id=mem,size=SIZE,share=on -numa node,memdev=mem";
/// Time between two attempts to meet a monitor.
const RETRY: Duration = Duration::from_millis(200);
/// Time in which a monitor may take the place of one that goes.
const SUCCESSION: Duration = Duration::from_millis(500);
/// Time between two warnings of the same.
const SILENCE: Duration = Duration::from_secs(60);
/// Monitors that may wait at a socket: one comes, and another when that was restarted.
const BACKLOG: i32 = 16;
/// Time that a monitor waits which was cut off.
const PENANCE: Duration = Duration::from_secs(1);
