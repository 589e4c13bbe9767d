//! Guests behind ports: the vhost-user socket, and the thread that serves the VMM.
//!
//! The thread waits for a VMM, serves its session, and waits for the next one, as long as the port
//! exists. It does not handle frames: workers take them from the device's queues. Changes are sent
//! to the server as [`GuestNews`].
//!
//! **The server never waits for the thread.** A session may block on something the VMM has passed,
//! such as a file whose owner does not respond; the port is then removed anyway, and the thread
//! ends when it can. The thread does not wait for the server without limit either: a VMM that
//! changes its state continuously is slowed down ([`NEWS_COUNT`]), and little of it is logged
//! ([`LINE_COUNT`]).

mod listener;

use std::cell::{Cell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use tapswitch_channel::Backoff;
use tapswitch_openflow::{PortNo, PortState};
use tapswitch_vhost::{self as vhost, Features, MORE_FILES, SessionEnd, Shortage, Status};
use tapswitch_wire::MacAddr;
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::allowance::Allowance;
use crate::bell;
use crate::report::GuestReport;
use crate::rx::{GuestRx, RxDevice};
use crate::socket_file::try_connect;
use crate::tx::{GuestTx, Takes, TxDevice, TxPort};
use crate::{GuestSocket, PortSpec, SocketSide};
use listener::Listener;

/// A change of the guest behind a port.
#[derive(Debug)]
pub(crate) struct GuestNews {
    pub(crate) port: PortNo,
    /// The guest's device: the port number may have been reused.
    device: Arc<vhost::Device>,
    change: GuestChange,
}

#[derive(Debug)]
enum GuestChange {
    /// No VMM can connect, for this reason; it is retried.
    Waits(String),
    /// The socket's file was missing, and was created again.
    Renewed,
    /// A VMM has connected.
    Met,
    /// The set of running queues has changed.
    Status(Status),
    /// The guest was migrated here and does not announce itself.
    Announce(MacAddr),
    /// The session has ended.
    Ended(SessionEnd),
}

/// The guest of a port, running or not.
#[derive(Debug)]
pub(crate) struct Guest {
    spec: PortSpec,
    socket: GuestSocket,
    device: Arc<vhost::Device>,
    status: Status,
    /// True during a session with a VMM.
    is_met: bool,
    sessions: u64,
    resets: u64,
    last_reset: Option<String>,
    /// Whether its queues have run in this session.
    has_run: bool,
    /// Why no VMM can connect.
    obstacle: Option<String>,
    /// The last log line about sessions.
    said: String,
    /// Limits the log lines.
    lines: Allowance,
    warnings: Allowance,
    /// How to connect with the VMM, until the thread is started.
    meeting: Option<Meeting>,
    thread: Option<GuestThread>,
}

/// Why a guest's socket cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenGuestError {
    /// Another process listens on the path.
    #[error("another process listens on {path}; give the port its own socket")]
    Taken {
        /// Path of the socket.
        path: String,
    },
    /// The path is in use by something other than a socket.
    #[error("{path} exists and is not a socket; give the port another path")]
    NoSocket {
        /// The path.
        path: String,
    },
    /// The kernel refused to listen.
    #[error("cannot listen on {path}: {source}; its directory must exist and be writable")]
    Listen {
        /// Path of the socket.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The socket cannot be given to another user or group.
    #[error(
        "cannot set the {what} of {path}: {source}; only root may set another user, or a group \
         that the user is not in"
    )]
    Access {
        /// Path of the socket.
        path: String,
        /// The attribute that could not be set.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// No file descriptors.
    #[error("a file descriptor for a queue: {0}; {remedy}", remedy = MORE_FILES)]
    Io(#[from] io::Error),
}

impl Guest {
    /// Creates a device without a guest, and the socket if the switch is to listen.
    pub(crate) fn open(spec: &PortSpec, socket: &GuestSocket) -> Result<Self, OpenGuestError> {
        let offered = if spec.offload { Features::OFFERED } else { Features::without_offloads() };
        let device = vhost::Device::offering(spec.queues().get(), offered)?;
        let meeting = Some(match socket.side {
            SocketSide::Server => Meeting::Listen(Arc::new(Listener::open(socket)?)),
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
            has_run: false,
            obstacle: None,
            said: String::new(),
            lines: Allowance::new(LINE_COUNT, SILENCE),
            warnings: Allowance::new(1, SILENCE),
            meeting,
            thread: None,
        })
    }

    /// Starts the thread that serves VMMs. It ends when the guest is dropped.
    pub(crate) fn start(&mut self, news: mpsc::Sender<GuestNews>) -> io::Result<()> {
        let Some(meeting) = self.meeting.take() else { return Ok(()) };
        let port = self.spec.number;
        self.thread = Some(GuestThread::start(self.device.clone(), meeting, port, news)?);
        Ok(())
    }

    /// Records an event, if it concerns this guest. Returns the station to announce, if any.
    pub(crate) fn note(&mut self, news: GuestNews) -> Option<MacAddr> {
        if !Arc::ptr_eq(&self.device, &news.device) {
            return None;
        }
        match news.change {
            GuestChange::Waits(why) => {
                self.say(&why);
                self.obstacle = Some(why);
            }
            GuestChange::Renewed => {
                self.obstacle = None;
                self.say(&format!(
                    "{} was deleted; the port listens on a new socket there",
                    self.socket.path
                ));
            }
            GuestChange::Met => {
                self.sessions += 1;
                (self.is_met, self.has_run, self.obstacle) = (true, false, None);
            }
            GuestChange::Status(status) => {
                self.has_run |= status.pairs > 0;
                let was_blank = std::mem::replace(&mut self.status, status).is_blank;
                if status.is_blank && !was_blank && self.warnings.take() {
                    tracing::warn!("port {}: {BLANK_MEMORY}", self.spec);
                }
                self.say(&self.what_runs());
            }
            GuestChange::Announce(station) => {
                self.say(&format!("the guest was moved here: {station} is announced for it"));
                return Some(station);
            }
            GuestChange::Ended(end) => {
                self.is_met = false;
                self.note_end(end);
            }
        }
        None
    }

    /// The running queues as text.
    fn what_runs(&self) -> String {
        let Status { pairs, features, .. } = self.status;
        match pairs {
            0 => "the guest's queues have stopped".to_owned(),
            _ if features.contains(Features::LOG_ALL) => "the guest is being migrated".to_owned(),
            _ => format!(
                "the guest is connected ({pairs} of {} pairs of queues, {} rings; accepts {})",
                self.spec.queues(),
                rings(features),
                Takes::from(features)
            ),
        }
    }

    /// Logs a line, unless it equals the last one or the limit is reached.
    fn say(&mut self, text: &str) {
        let spec = &self.spec;
        if self.said == text {
            return tracing::debug!("port {spec}: {text}");
        }
        text.clone_into(&mut self.said);
        if self.lines.take() {
            return tracing::info!("port {spec}: {text}");
        }
        tracing::debug!("port {spec}: {text}");
        if self.lines.was_last() {
            let time = SILENCE.as_secs();
            tracing::info!(
                "port {spec}: its guest keeps connecting and disconnecting; further messages are \
                 suppressed for {time} s"
            );
        }
    }

    fn note_end(&mut self, end: SessionEnd) {
        let spec = &self.spec;
        match end {
            SessionEnd::Closed if self.has_run => self.say("the VMM disconnected"),
            SessionEnd::Closed => {
                let text = format!(
                    "the VMM disconnected before its guest ran; if the VM has more pairs of queues \
                     than the port ({}), set queues= of the port to the same number",
                    spec.queues()
                );
                self.say(&text);
            }
            SessionEnd::Refused(why) | SessionEnd::Reset(why) => {
                self.resets += 1;
                // A VMM that reconnects and fails again in the same way is no news.
                if self.last_reset.as_ref() == Some(&why) {
                    tracing::debug!("port {spec}: the guest was disconnected again: {why}");
                } else {
                    tracing::warn!("port {spec}: the guest was disconnected: {why}");
                }
                self.last_reset = Some(why);
            }
        }
    }

    /// The port's own address, which guests never see: the same at each start.
    pub(crate) fn mac(&self) -> MacAddr {
        let mut hasher = DefaultHasher::new();
        self.socket.path.hash(&mut hasher);
        let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
        // Locally administered (IEEE 802-2014 §8.2.2).
        MacAddr([0x02, a, b, c, d, e])
    }

    /// The port's OpenFlow link state.
    pub(crate) fn state(&self) -> PortState {
        if self.status.pairs > 0 { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// The offloads that the guest takes, as text.
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
            warning: self.warning(is_blank),
            sessions: self.sessions,
            resets: self.resets,
            last_reset: self.last_reset.clone(),
        }
    }

    /// What keeps the guest from running or receiving.
    fn warning(&self, is_blank: bool) -> Option<String> {
        let blank = is_blank.then(|| BLANK_MEMORY.to_owned());
        let obstacle = self.obstacle.clone();
        let all: Vec<_> = blank.into_iter().chain(obstacle).chain(self.shortage()).collect();
        (!all.is_empty()).then(|| all.join("; and "))
    }

    /// The longest shortage of receive buffers, unless it has just begun: a busy guest has one now
    /// and then.
    fn shortage(&self) -> Option<String> {
        let queues = (0..).map_while(|index| self.device.receive_queue(index));
        let short = queues.filter_map(|queue| queue.shortage()).max_by_key(|it| it.age)?;
        let seconds = short.age.as_secs();
        match short {
            Shortage { is_unready: true, .. } => Some(format!("for {seconds} s, {NO_BUFFERS_YET}")),
            Shortage { age, .. } if age < HICCUP => None,
            Shortage { .. } => Some(format!("for {seconds} s, {TOO_FEW_BUFFERS}")),
        }
    }

    /// The queues to read, in order.
    pub(crate) fn rx_devices(&self) -> Vec<RxDevice> {
        let queues = (0..).map_while(|index| self.device.transmit_queue(index));
        let device = |queue: &Arc<vhost::Queue>| {
            RxDevice::Guest(GuestRx { device: self.device.clone(), queue: queue.clone() })
        };
        queues.map(device).collect()
    }

    /// The handle through which `worker` of `workers` sends: with its own queues if the guest runs
    /// enough.
    pub(crate) fn tx_port(&self, worker: usize, workers: usize) -> TxPort {
        let own = worker % usize::from(self.spec.queues().get());
        let guest = GuestTx::new(self.device.clone(), own, workers.max(1));
        TxPort::new(TxDevice::Guest(guest), Takes::NOTHING)
    }
}

/// The negotiated kind of rings.
fn rings(features: Features) -> &'static str {
    if features.contains(Features::RING_PACKED) { "packed" } else { "split" }
}

/// The server's handle of the thread that serves VMMs.
#[derive(Debug)]
struct GuestThread {
    device: Arc<vhost::Device>,
    end: Arc<OwnedFd>,
    listener: Option<Arc<Listener>>,
}

impl GuestThread {
    fn start(
        device: Arc<vhost::Device>,
        meeting: Meeting,
        port: PortNo,
        news: mpsc::Sender<GuestNews>,
    ) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let listener = match &meeting {
            Meeting::Listen(listener) => Some(listener.clone()),
            Meeting::Connect(_) => None,
        };
        let pace = RefCell::new(Allowance::new(NEWS_COUNT, NEWS_TIME));
        let keeper = Keeper { device: device.clone(), meeting, end: end.clone(), port, news, pace };
        // Not joined; see the module.
        std::thread::Builder::new()
            .name(format!("tapswitch-g{port}"))
            .spawn(move || keeper.run())?;
        Ok(Self { device, end, listener })
    }
}

impl Drop for GuestThread {
    fn drop(&mut self) {
        // First, as a VMM may reconnect as soon as its session ends, to whoever listens there next.
        self.listener.iter().for_each(|listener| listener.close());
        bell::ring(&*self.end);
        self.device.close();
    }
}

/// The state of the thread.
struct Keeper {
    device: Arc<vhost::Device>,
    meeting: Meeting,
    end: Arc<OwnedFd>,
    port: PortNo,
    news: mpsc::Sender<GuestNews>,
    /// Limits the news sent to the server.
    pace: RefCell<Allowance>,
}

impl Keeper {
    fn run(self) {
        let mut backoff = Backoff::default();
        while let Some(stream) = self.meet() {
            let begin = Instant::now();
            self.tell(GuestChange::Met);
            let (end, has_run) = self.serve(stream);
            let pause = match end {
                SessionEnd::Closed if has_run || begin.elapsed() >= TRIAL => {
                    backoff.handle_success();
                    Duration::ZERO
                }
                // An unsatisfied VMM usually reconnects at once, and disconnects again.
                SessionEnd::Closed => backoff.handle_failure(),
                // A VMM that was cut off will do the same again.
                _ => PENANCE,
            };
            self.tell(GuestChange::Ended(end));
            if !pause.is_zero() && self.ends_within(pause) {
                return;
            }
        }
    }

    /// Runs one session. Returns its end, and whether its guest ran.
    fn serve(&self, stream: UnixStream) -> (SessionEnd, bool) {
        let has_run = Cell::new(false);
        let observe = |news| match news {
            vhost::News::Status(status) => {
                has_run.set(has_run.get() || status.pairs > 0);
                self.tell(GuestChange::Status(status));
            }
            vhost::News::Announce(station) => self.tell(GuestChange::Announce(MacAddr(station))),
        };
        (self.serve_alone(|| self.device.serve(stream, observe)), has_run.get())
    }

    /// Rejects other VMMs during a session, as nothing would serve them.
    fn serve_alone(&self, serve: impl FnOnce() -> SessionEnd) -> SessionEnd {
        let Meeting::Listen(listener) = &self.meeting else { return serve() };
        // Without file descriptors or a thread, others wait until the session ends.
        let Ok(over) = eventfd(0, EventfdFlags::CLOEXEC) else { return serve() };
        let (port, over) = (self.port, &over);
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name(format!("tapswitch-d{port}"));
            let door = builder.spawn_scoped(scope, move || turn_away(port, listener, over));
            if let Err(error) = door {
                tracing::debug!("port {port}: {error}");
            }
            let end = serve();
            bell::ring(over);
            end
        })
    }

    /// Waits for a VMM; `None` when the port is removed.
    fn meet(&self) -> Option<UnixStream> {
        let mut told = None;
        // A VMM that still listens would be connected to again and again.
        while !self.ends_within(Duration::ZERO) {
            match self.try_to_meet() {
                Ok(None) => told = None,
                Ok(stream) => return stream,
                Err(why) => {
                    if told.as_ref() != Some(&why) {
                        self.tell(GuestChange::Waits(why.clone()));
                        told = Some(why);
                    }
                    if self.ends_within(RETRY) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Connects to a VMM, or waits for a while for one to connect. Returns why none could.
    fn try_to_meet(&self) -> Result<Option<UnixStream>, String> {
        let listener = match &self.meeting {
            Meeting::Listen(listener) => listener,
            Meeting::Connect(path) => {
                return try_connect(Path::new(path)).map(Some).map_err(|no| not_met(path, no));
            }
        };
        if listener.renew().map_err(|error| error.to_string())? {
            self.tell(GuestChange::Renewed);
        }
        let socket = listener.socket();
        let ready = wait(&[socket.listener.as_fd(), self.end.as_fd()], Some(LOOK));
        if ready & 1 == 0 {
            return Ok(None);
        }
        match socket.listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) => match not_accepted(&error) {
                Some(why) => Err(why),
                None => {
                    tracing::debug!("port {}: {error}", self.port);
                    self.ends_within(RETRY);
                    Ok(None)
                }
            },
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        wait(&[self.end.as_fd()], Some(time)) != 0
    }

    /// Notifies the server, which may be busy, until this thread is told to end: the server may be
    /// removing the port.
    fn tell(&self, change: GuestChange) {
        let mut pace = self.pace.borrow_mut();
        if !pace.take() && self.ends_within(pace.time_left()) {
            return;
        }
        let mut news = GuestNews { port: self.port, device: self.device.clone(), change };
        while let Err(TrySendError::Full(back)) = self.news.try_send(news) {
            if self.ends_within(SERVER_TIME) {
                return;
            }
            news = back;
        }
    }
}

/// Why a VMM that waits cannot be accepted; `None` if it has disconnected.
fn not_accepted(error: &io::Error) -> Option<String> {
    let is_ours = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
    is_ours.then(|| format!("a VMM waits, and cannot be accepted: {error}; {MORE_FILES}"))
}

/// Rejects VMMs that connect during a session, until it ends. One that replaces a VMM that has just
/// disconnected is left for the next session.
fn turn_away(port: PortNo, listener: &Listener, over: &OwnedFd) {
    let (mut warnings, socket) = (Allowance::new(1, SILENCE), listener.socket());
    loop {
        let ready = wait(&[socket.listener.as_fd(), over.as_fd()], None);
        if ready & 2 != 0 || wait(&[over.as_fd()], Some(SUCCESSION)) != 0 {
            return;
        }
        if ready == 0 || socket.listener.accept().is_err() {
            continue;
        }
        let text = "a second VMM tried to connect and was refused; a port serves one guest";
        if warnings.take() {
            tracing::warn!("port {port}: {}: {text}", listener.path());
        } else {
            tracing::debug!("port {port}: {}: {text}", listener.path());
        }
    }
}

/// Waits until one of the descriptors is readable, and returns which ones, as one bit each.
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

/// How the switch and the VMM connect.
#[derive(Debug)]
enum Meeting {
    Listen(Arc<Listener>),
    Connect(String),
}

/// Why no VMM was reached at `path`, as text.
fn not_met(path: &str, errno: Errno) -> String {
    let why = match errno {
        Errno::NOENT => "the socket does not exist yet".to_owned(),
        Errno::CONNREFUSED => "no process listens on it".to_owned(),
        Errno::AGAIN => "its listener accepts no connection at the moment".to_owned(),
        other => io::Error::from(other).to_string(),
    };
    format!("waiting for {path}: {why}; trying again every 0.2 s")
}

/// Only a warning, as this is a guess.
const BLANK_MEMORY: &str = "the guest's memory appears to be empty: its VMM has most likely passed \
                            a private copy instead of shared memory; give the VM shared memory, as \
                            in QEMU's -object memory-backend-memfd,id=mem,size=SIZE,share=on -numa \
                            node,memdev=mem";
const NO_BUFFERS_YET: &str = "the guest has provided no receive buffers, and frames for it are \
                              dropped: its driver provides them once its interface is up (`ip \
                              link set IFNAME up` in the guest)";
const TOO_FEW_BUFFERS: &str = "the guest has provided no receive buffers, or too few, and frames \
                               wait for it: it is overloaded or hangs (see its console); stall=MS \
                               limits how long senders wait for it";
/// A shortage of receive buffers that is shorter is none to speak of.
const HICCUP: Duration = Duration::from_secs(1);
/// Time between two checks that the socket's file still exists.
const LOOK: Duration = Duration::from_secs(2);
/// Time between two connection attempts.
const RETRY: Duration = Duration::from_millis(200);
/// A session that lasts this long was of use, whether its guest ran or not.
const TRIAL: Duration = Duration::from_secs(2);
/// Time in which a VMM may replace one that disconnects.
const SUCCESSION: Duration = Duration::from_millis(500);
/// Time between two equal warnings, and the period for [`LINE_COUNT`] log lines about a guest's
/// sessions: a few restarts, or one line per queue.
const SILENCE: Duration = Duration::from_secs(60);
const LINE_COUNT: u32 = 32;
/// News per period that a guest may cause: each queue pair that starts is one.
const NEWS_COUNT: u32 = 256;
const NEWS_TIME: Duration = Duration::from_secs(1);
/// Time between two attempts to notify a busy server.
const SERVER_TIME: Duration = Duration::from_millis(10);
/// How long a VMM that was cut off waits.
const PENANCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(spec: &str) -> Guest {
        let spec: PortSpec = spec.parse().unwrap();
        let crate::PortKind::Guest { socket, .. } = &spec.kind else { panic!() };
        Guest::open(&spec, socket).unwrap()
    }

    fn note(guest: &mut Guest, change: GuestChange) {
        let (port, device) = (guest.spec.number, guest.device.clone());
        guest.note(GuestNews { port, device, change });
    }

    /// The same goes for a VMM whose machine has more queue pairs than the port.
    #[test]
    fn who_comes_and_goes_in_the_same_way_is_told_of_once() {
        let mut guest = guest("1=vhost:/run/vm0.sock,client,queues=2");
        for _ in 0..2 * LINE_COUNT {
            note(&mut guest, GuestChange::Met);
            note(&mut guest, GuestChange::Ended(SessionEnd::Closed));
        }
        assert!(guest.said.contains("the port (2)") && guest.said.contains("queues="));
        for _ in 1..LINE_COUNT {
            assert!(guest.lines.take(), "it took one line");
        }
        assert!(!guest.lines.take());
    }

    #[test]
    fn what_keeps_a_monitor_from_being_met_is_told_until_it_is() {
        let mut guest = guest("1=vhost:/run/vm0.sock,client");
        note(&mut guest, GuestChange::Waits(not_met("/run/vm0.sock", Errno::NOENT)));
        let warning = guest.report().warning.unwrap();
        assert!(
            warning.starts_with("waiting for /run/vm0.sock: the socket does not exist yet"),
            "{warning}"
        );
        assert_eq!(guest.said, warning);
        note(&mut guest, GuestChange::Met);
        assert_eq!(guest.report().warning, None);
    }

    /// It would look like a VMM that does not come.
    #[test]
    fn a_monitor_that_waits_while_files_run_out_is_told_of() {
        let why = |errno: Errno| not_accepted(&errno.into());
        assert!(why(Errno::MFILE).is_some_and(|why| why.contains("limit of open files")));
        assert_eq!(why(Errno::CONNABORTED), None, "it has gone");
    }
}
