//! Guests behind ports: the socket where their monitor is met, and the thread that talks to it.
//!
//! The thread meets a monitor, serves its session, and meets the next one, for as long as the port
//! is there. Frames are none of its business: workers take them from the device's queues. What
//! changes comes to the server as [`GuestNews`].
//!
//! **The server never waits for the thread.** A session may hang in what a monitor has handed over,
//! such as a file whose owner does not answer; then its port goes all the same, and the thread when
//! it can. Nor does the thread wait for the server without an end: a monitor that changes something
//! all the time is slowed down ([`NEWS_COUNT`]), and little of it is logged ([`LINE_COUNT`]).

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
use tapswitch_vhost::{self as vhost, Features, SessionEnd, Status};
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

/// Something happened to the guest behind a port.
#[derive(Debug)]
pub(crate) struct GuestNews {
    pub(crate) port: PortNo,
    /// Whose guest it is: the number may be another port's by now.
    device: Arc<vhost::Device>,
    change: GuestChange,
}

/// What happened.
#[derive(Debug)]
enum GuestChange {
    /// No monitor can be met, for this reason; it is tried again.
    Waits(String),
    /// The file of the socket was gone, and is there again.
    Renewed,
    /// A monitor was met.
    Met,
    /// Other queues run now.
    Status(Status),
    /// It was moved here, and does not say so itself.
    Announce(MacAddr),
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
    /// Whether its queues have run since its monitor was met.
    has_run: bool,
    /// Why no monitor can be met.
    obstacle: Option<String>,
    /// What was logged last of its coming and going.
    said: String,
    /// What may be logged of it.
    lines: Allowance,
    warnings: Allowance,
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

    /// Starts to meet monitors. The thread ends when the guest is dropped.
    pub(crate) fn start(&mut self, news: mpsc::Sender<GuestNews>) -> io::Result<()> {
        let Some(meeting) = self.meeting.take() else { return Ok(()) };
        let port = self.spec.number;
        self.thread = Some(GuestThread::start(self.device.clone(), meeting, port, news)?);
        Ok(())
    }

    /// Notes what happened, if it did to this guest. Answers the station that is to be announced,
    /// if one is.
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
                    "somebody has deleted {}; the port listens there again, by a new socket",
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

    /// Which queues run, in words.
    fn what_runs(&self) -> String {
        let Status { pairs, features, .. } = self.status;
        match pairs {
            0 => "the guest's queues have stopped".to_owned(),
            _ if features.contains(Features::LOG_ALL) => "the guest is being moved".to_owned(),
            _ => format!(
                "the guest is there ({pairs} of {} pairs of queues, {} rings; takes {})",
                self.spec.queues(),
                rings(features),
                Takes::from(features)
            ),
        }
    }

    /// Logs what is worth a line, unless it was the last one, or there have been too many.
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
            tracing::info!("port {spec}: its guest comes and goes; no more of it for {time} s");
        }
    }

    fn note_end(&mut self, end: SessionEnd) {
        let spec = &self.spec;
        match end {
            SessionEnd::Closed if self.has_run => self.say("the monitor is gone"),
            SessionEnd::Closed => {
                let text = format!(
                    "the monitor is gone before its guest ran; if its VM has more pairs of queues \
                     than the port, which has {}, give the port as many by queues=",
                    spec.queues()
                );
                self.say(&text);
            }
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
            warning: is_blank.then(|| BLANK_MEMORY.to_owned()).or_else(|| self.obstacle.clone()),
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

    /// The handle by which `worker` of so many sends: queues of its own while the guest runs so
    /// many.
    pub(crate) fn tx_port(&self, worker: usize, workers: usize) -> TxPort {
        let own = worker % usize::from(self.spec.queues().get());
        let guest = GuestTx::new(self.device.clone(), own, workers.max(1));
        TxPort::new(TxDevice::Guest(guest), Takes::NOTHING)
    }
}

/// Which kind of rings was negotiated.
fn rings(features: Features) -> &'static str {
    if features.contains(Features::RING_PACKED) { "packed" } else { "split" }
}

/// The thread that meets monitors and serves them, as the server holds it.
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
        // Nobody waits for it; see the module.
        std::thread::Builder::new()
            .name(format!("tapswitch-g{port}"))
            .spawn(move || keeper.run())?;
        Ok(Self { device, end, listener })
    }
}

impl Drop for GuestThread {
    fn drop(&mut self) {
        bell::ring(&*self.end);
        self.device.close();
        // Another port may listen there from now on.
        self.listener.iter().for_each(|listener| listener.remove_file());
    }
}

/// What the thread holds.
struct Keeper {
    device: Arc<vhost::Device>,
    meeting: Meeting,
    end: Arc<OwnedFd>,
    port: PortNo,
    news: mpsc::Sender<GuestNews>,
    /// What the server is told.
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
                // Who is not served as he likes comes back at once, as a rule, and goes again.
                SessionEnd::Closed => backoff.handle_failure(),
                // Who is cut off does the same again.
                _ => PENANCE,
            };
            self.tell(GuestChange::Ended(end));
            if !pause.is_zero() && self.ends_within(pause) {
                return;
            }
        }
    }

    /// One session, and whether its guest ran.
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

    /// Whoever else comes meanwhile is turned away, as nobody would serve them.
    fn serve_alone(&self, serve: impl FnOnce() -> SessionEnd) -> SessionEnd {
        let Meeting::Listen(listener) = &self.meeting else { return serve() };
        // Without descriptors or a thread, others wait until the session is over.
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

    /// Waits for a monitor; `None` when the port goes.
    fn meet(&self) -> Option<UnixStream> {
        let mut told = None;
        // A monitor that still listens would be met again and again.
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

    /// Connects to a monitor, or waits a while for one to connect. Returns why none could.
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
            Err(error) => {
                // It has gone again, or there are no descriptors for it now.
                tracing::debug!("port {}: {error}", self.port);
                self.ends_within(RETRY);
                Ok(None)
            }
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        wait(&[self.end.as_fd()], Some(time)) != 0
    }

    /// Tells the server, which has others to listen to, and listens no more when it stops. It may
    /// also be about to take the port away.
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

/// Turns away who comes while there is a session, until it is over. One that comes in the place of
/// a monitor which has just gone is left for the next session.
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
        let text = "another one tried to connect, and was turned away; one port is one guest";
        if warnings.take() {
            tracing::warn!("port {port}: {}: {text}", listener.path());
        } else {
            tracing::debug!("port {port}: {}: {text}", listener.path());
        }
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
    Listen(Arc<Listener>),
    Connect(String),
}

/// Why nobody was met at `path`, in words.
fn not_met(path: &str, errno: Errno) -> String {
    let why = match errno {
        Errno::NOENT => "nobody has made that socket yet".to_owned(),
        Errno::CONNREFUSED => "nobody listens there".to_owned(),
        Errno::AGAIN => "who listens there takes nobody at the moment".to_owned(),
        other => io::Error::from(other).to_string(),
    };
    format!("waits for {path}: {why}; it is tried again five times a second")
}

/// A port works on, as this is a guess.
const BLANK_MEMORY: &str = "the guest's memory looks as if nobody had ever written there: its \
                            monitor has most likely not shared it, but given away a copy; give the \
                            VM shared memory, as in QEMU's -object \
                            memory-backend-memfd,id=mem,size=SIZE,share=on -numa node,memdev=mem";
/// Time between two looks whether the file of a socket is still there.
const LOOK: Duration = Duration::from_secs(2);
/// Time between two attempts to meet a monitor.
const RETRY: Duration = Duration::from_millis(200);
/// Time after which a session was of use, whether its guest ran or not.
const TRIAL: Duration = Duration::from_secs(2);
/// Time in which a monitor may take the place of one that goes.
const SUCCESSION: Duration = Duration::from_millis(500);
/// Time between two warnings of the same, and in which a guest's coming and going is worth
/// [`LINE_COUNT`] lines: it is started a few times then, or told of by each of its queues.
const SILENCE: Duration = Duration::from_secs(60);
const LINE_COUNT: u32 = 32;
/// What a guest may have the server told in a time: each pair of queues that starts is one of it.
const NEWS_COUNT: u32 = 256;
const NEWS_TIME: Duration = Duration::from_secs(1);
/// Time that the server has to listen to what is waiting.
const SERVER_TIME: Duration = Duration::from_millis(10);
/// Time that a monitor waits which was cut off.
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

    /// So does a monitor whose machine is to have more pairs of queues than the port has.
    #[test]
    fn who_comes_and_goes_in_the_same_way_is_told_of_once() {
        let mut guest = guest("1=vhost:/run/vm0.sock,client,queues=2");
        for _ in 0..2 * LINE_COUNT {
            note(&mut guest, GuestChange::Met);
            note(&mut guest, GuestChange::Ended(SessionEnd::Closed));
        }
        assert!(guest.said.contains("which has 2") && guest.said.contains("queues="));
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
        assert!(warning.starts_with("waits for /run/vm0.sock: nobody has made"), "{warning}");
        assert_eq!(guest.said, warning);
        note(&mut guest, GuestChange::Met);
        assert_eq!(guest.report().warning, None);
    }
}
