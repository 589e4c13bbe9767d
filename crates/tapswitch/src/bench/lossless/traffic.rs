//! Traffic from one host to another: a load, and beside it probes that tell how long a packet takes
//! while the load is there.
//!
//! Everything is a thread of this process with sockets in the hosts' namespaces, so one clock times
//! both ends and what is told is the time of one way. Nobody reads the socket that the load's
//! datagrams go to until it is over: the receiver's kernel counts those that found no room there,
//! and those that are read, so nothing that happens behind the network counts as lost in it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tapswitch_netlink::Namespace;

use crate::bench::bulk;
use crate::hosts::Host;

use super::Failure;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// One TCP flow, as fast as it goes.
    Tcp,
    /// Datagrams at a rate in Mb/s, those of a millisecond at once.
    Paced(f64),
    /// Datagrams as fast as the socket takes them.
    Flood,
}

/// When it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Before anything is measured.
    pub(super) warm_up: Duration,
    /// For as long as it is measured.
    pub(super) length: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// What arrived in the window, in Mb/s of payload.
    pub(super) mbps: f64,
    /// Datagrams that were sent, probes among them, from beginning to end.
    pub(super) sent: u64,
    /// Datagrams that the receiver's kernel has counted of these.
    pub(super) received: u64,
    /// Segments that were sent again.
    pub(super) retransmits: u64,
    /// One-way times of the probes that were sent in the window and arrived, sorted.
    pub(super) delays: Vec<Duration>,
    /// Probes that were sent in the window.
    pub(super) probes: usize,
}

impl Passed {
    /// The time that this share of the probes needed at most, in ms; a lost probe needed for ever.
    /// `None` when so many were lost.
    pub(super) fn percentile_ms(&self, share: f64) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place among a few thousand"
        )]
        let place = (self.probes as f64 * share).ceil().max(1.0) as usize - 1;
        self.delays.get(place).map(|delay| delay.as_secs_f64() * 1e3)
    }
}

/// Waits until a datagram of `from` reaches `to`.
pub(super) fn wait_for_path(from: &Host, to: &Host) -> Result<(), Failure> {
    let (there, here) = (udp(to, PATH_PORT)?, udp(from, 0)?);
    there.set_read_timeout(Some(Duration::from_millis(100)))?;
    let deadline = Instant::now() + START_LIMIT;
    while Instant::now() < deadline {
        // While interfaces come up there is no way, which is no failure yet.
        let _ = here.send_to(&[1], (to.ipv4(), PATH_PORT));
        if there.recv(&mut [0; 8]).is_ok() {
            return Ok(());
        }
    }
    Err(format!("no packet reached the other host within {START_LIMIT:?}").into())
}

/// Sends a load and measures it. Ends at once when this future is dropped.
pub(super) async fn pass(
    from: &Host,
    to: &Host,
    load: Load,
    window: Window,
) -> Result<Passed, Failure> {
    let before = (to.received_datagrams()?, retransmits(&from.namespace)?);
    let line = Line::new(from, to, load)?;
    let is_over = OverOnDrop(Arc::default());
    let flag = Arc::clone(&is_over.0);
    let run = move || line.run(load, window, &flag).map(|passed| (line, passed));
    let (line, passed) = tokio::task::spawn_blocking(run).await??;
    settle(to).await?;
    line.empty()?;
    let received = to.received_datagrams()? - before.0;
    let retransmits = retransmits(&from.namespace)? - before.1;
    Ok(Passed { received, retransmits, ..passed })
}

/// The sockets.
struct Line {
    probe: [UdpSocket; 2],
    load: LoadSockets,
    /// Where the load goes.
    to: SocketAddr,
    receiver: Namespace,
}

enum LoadSockets {
    /// Sender and receiver.
    Tcp(TcpStream, TcpStream),
    Udp {
        sender: UdpSocket,
        /// Nobody reads it before the end.
        receiver: UdpSocket,
    },
}

impl Line {
    fn new(from: &Host, to: &Host, load: Load) -> Result<Self, Failure> {
        let probe = [udp(from, 0)?, udp(to, PROBE_PORT)?];
        probe[0].connect((to.ipv4(), PROBE_PORT))?;
        probe[1].set_read_timeout(Some(TICK))?;
        let address = SocketAddr::from((to.ipv4(), LOAD_PORT));
        let load = match load {
            Load::Tcp => tcp(from, to, address)?,
            Load::Paced(_) | Load::Flood => {
                LoadSockets::Udp { sender: udp(from, 0)?, receiver: udp(to, LOAD_PORT)? }
            }
        };
        Ok(Self { probe, load, to: address, receiver: Namespace::clone(&to.namespace) })
    }

    fn run(&self, load: Load, window: Window, is_over: &AtomicBool) -> Result<Passed, String> {
        let start = Instant::now();
        let clock = Clock { start, window, is_over };
        let bytes = AtomicU64::new(0);
        let (sent, probes, delays, rate) = thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(load, clock));
            let receiver = scope.spawn(|| self.receive(clock, &bytes));
            let probes = scope.spawn(|| self.send_probes(clock));
            let delays = scope.spawn(|| self.receive_probes(clock));
            let rate = self.rate(clock, &bytes);
            (sender.join(), probes.join(), (delays.join(), receiver.join()), rate)
        });
        let lost_thread = || "a thread of the traffic has panicked".to_owned();
        let sent = sent.map_err(|_| lost_thread())?.map_err(|error| error.to_string())?;
        let probes = probes.map_err(|_| lost_thread())?;
        delays.1.map_err(|_| lost_thread())?;
        let mut delays = delays.0.map_err(|_| lost_thread())?;
        delays.sort_unstable();
        Ok(Passed {
            mbps: rate?,
            sent: sent + probes.all,
            delays,
            probes: probes.measured,
            ..Passed::default()
        })
    }

    /// Sends the load to its end; answers the number of datagrams.
    fn send(&self, load: Load, clock: Clock<'_>) -> io::Result<u64> {
        match (&self.load, load) {
            (LoadSockets::Tcp(stream, _), _) => {
                let file = bulk::memory_file()?;
                while clock.goes_on() {
                    bulk::push(stream, &file)?;
                }
                Ok(0)
            }
            (LoadSockets::Udp { sender: socket, .. }, Load::Paced(mbps)) => {
                Ok(paced(socket, self.to, mbps, clock))
            }
            (LoadSockets::Udp { sender: socket, .. }, _) => Ok(flood(socket, self.to, clock)),
        }
    }

    /// Reads what was left in the sockets, which counts it as received.
    fn empty(&self) -> io::Result<()> {
        if let LoadSockets::Udp { receiver, .. } = &self.load {
            receiver.set_nonblocking(true)?;
            while receiver.recv(&mut [0; 8]).is_ok() {}
        }
        self.probe[1].set_nonblocking(true)?;
        while self.probe[1].recv(&mut [0; 8]).is_ok() {}
        Ok(())
    }

    /// Takes in what TCP brings. Datagrams are counted by the kernel.
    fn receive(&self, clock: Clock<'_>, bytes: &AtomicU64) {
        let LoadSockets::Tcp(_, stream) = &self.load else { return };
        let mut buf = vec![0; bulk::PIECE_LEN];
        let mut total = 0;
        while clock.goes_on() && bulk::take(stream, &mut buf, &mut total) {
            bytes.store(total, Ordering::Relaxed);
        }
    }

    /// Mb/s from the end of the warm-up to that of the window.
    fn rate(&self, clock: Clock<'_>, bytes: &AtomicU64) -> Result<f64, String> {
        let arrived = || match &self.load {
            LoadSockets::Tcp(..) => Ok(bytes.load(Ordering::Relaxed)),
            LoadSockets::Udp { .. } => Ok(datagrams(&self.receiver)? * DATAGRAM_LEN as u64),
        };
        let text = |error: Failure| error.to_string();
        clock.sleep_until(clock.window.warm_up);
        let (first, first_at) = (arrived().map_err(text)?, Instant::now());
        clock.sleep_until(clock.window.warm_up + clock.window.length);
        let (last, last_at) = (arrived().map_err(text)?, Instant::now());
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
        let bits = (last - first) as f64 * 8.0;
        Ok(bits / (last_at - first_at).as_secs_f64() / 1e6)
    }

    fn send_probes(&self, clock: Clock<'_>) -> Probes {
        let mut probes = Probes::default();
        let mut payload = [0; PROBE_LEN];
        while clock.goes_on() {
            let now = clock.start.elapsed();
            payload[..8].copy_from_slice(&nanoseconds(now).to_be_bytes());
            // What finds no room in the socket is not sent, and no probe.
            if self.probe[0].send(&payload).is_ok() {
                probes.all += 1;
                probes.measured += usize::from(clock.is_measured(now));
            }
            thread::sleep(PROBE_DISTANCE);
        }
        probes
    }

    /// Times of the probes of the window, also of those that come a while later.
    fn receive_probes(&self, clock: Clock<'_>) -> Vec<Duration> {
        let mut delays = Vec::new();
        let mut payload = [0; PROBE_LEN];
        while clock.goes_on_for(LATE_PROBES) {
            if let Ok(PROBE_LEN) = self.probe[1].recv(&mut payload) {
                let now = clock.start.elapsed();
                let [a, b, c, d, e, f, g, h, ..] = payload;
                let sent = Duration::from_nanos(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
                delays.extend(clock.is_measured(sent).then(|| now.saturating_sub(sent)));
            }
        }
        delays
    }
}

#[derive(Default)]
struct Probes {
    all: u64,
    measured: usize,
}

/// Where a run stands.
#[derive(Clone, Copy)]
struct Clock<'a> {
    start: Instant,
    window: Window,
    is_over: &'a AtomicBool,
}

impl Clock<'_> {
    fn goes_on(self) -> bool {
        self.goes_on_for(Duration::ZERO)
    }

    fn goes_on_for(self, longer: Duration) -> bool {
        let Window { warm_up, length } = self.window;
        !self.is_over.load(Ordering::Relaxed) && self.start.elapsed() < warm_up + length + longer
    }

    fn is_measured(self, since_start: Duration) -> bool {
        let Window { warm_up, length } = self.window;
        (warm_up..warm_up + length).contains(&since_start)
    }

    fn sleep_until(self, since_start: Duration) {
        while !self.is_over.load(Ordering::Relaxed) && self.start.elapsed() < since_start {
            thread::sleep((since_start.saturating_sub(self.start.elapsed())).min(TICK));
        }
    }
}

/// Ends the threads of a run that nobody waits for any more.
struct OverOnDrop(Arc<AtomicBool>);

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Datagrams of each millisecond that has gone by, until the end.
fn paced(socket: &UdpSocket, to: SocketAddr, mbps: f64, clock: Clock<'_>) -> u64 {
    let per_second = mbps * 1e6 / 8.0 / DATAGRAM_LEN as f64;
    let mut sent = 0;
    while clock.goes_on() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of datagrams"
        )]
        let due = (clock.start.elapsed().as_secs_f64() * per_second) as u64;
        let behind = due.saturating_sub(sent).min(PACED_MAX);
        sent += (0..behind).map(|_| u64::from(send(socket, to))).sum::<u64>();
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

fn flood(socket: &UdpSocket, to: SocketAddr, clock: Clock<'_>) -> u64 {
    let mut sent = 0;
    while clock.goes_on() {
        sent += (0..64).map(|_| u64::from(send(socket, to))).sum::<u64>();
    }
    sent
}

/// True when the socket took a datagram; what it refused was not sent.
fn send(socket: &UdpSocket, to: SocketAddr) -> bool {
    socket.send_to(&[0x5a; DATAGRAM_LEN], to).is_ok()
}

fn udp(host: &Host, port: u16) -> Result<UdpSocket, Failure> {
    let any = Ipv4Addr::UNSPECIFIED;
    Ok(host.namespace.enter(|| UdpSocket::bind((any, port)))??)
}

/// A connection that forgets what it has not sent when it is closed.
fn tcp(from: &Host, to: &Host, address: SocketAddr) -> Result<LoadSockets, Failure> {
    let listener = to.namespace.enter(|| TcpListener::bind(address))??;
    let connect = || TcpStream::connect_timeout(&address, START_LIMIT);
    let sender = from.namespace.enter(connect)??;
    let (receiver, _) = listener.accept()?;
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
    }
    Ok(LoadSockets::Tcp(sender, receiver))
}

/// Waits until the host counts no more datagrams.
async fn settle(host: &Host) -> Result<(), Failure> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    let (mut last, mut since) = (host.received_datagrams()?, Instant::now());
    while since.elapsed() < SETTLED && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = host.received_datagrams()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

fn datagrams(namespace: &Namespace) -> Result<u64, Failure> {
    crate::hosts::datagrams_in(namespace)
}

/// `RetransSegs` of the namespace (`/proc/net/snmp`, RFC 4022).
fn retransmits(namespace: &Namespace) -> Result<u64, Failure> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
    segments_again(&namespace.enter(read)??).ok_or_else(|| "no TCP counters".into())
}

fn segments_again(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let place = lines.next()?.split(' ').position(|name| name == "RetransSegs")?;
    lines.next()?.split(' ').nth(place)?.parse().ok()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const PATH_PORT: u16 = 9001;
const PROBE_PORT: u16 = 9002;
const LOAD_PORT: u16 = 9003;
/// Payload of a datagram in bytes: what fits everywhere, tunnels included.
pub(super) const DATAGRAM_LEN: usize = 1300;
const PROBE_LEN: usize = 64;
const PROBE_DISTANCE: Duration = Duration::from_millis(3);
/// Datagrams that are sent at once at most, when the sender was kept from running.
const PACED_MAX: u64 = 1000;
/// How late a probe may be that counts as arrived.
const LATE_PROBES: Duration = Duration::from_secs(1);
/// How often a thread looks whether it is over.
const TICK: Duration = Duration::from_millis(100);
const START_LIMIT: Duration = Duration::from_secs(20);
/// Nothing more comes when nothing came for as long as this.
const SETTLED: Duration = Duration::from_millis(400);
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_probe_is_the_slowest_of_all() {
        let delays: Vec<_> = (1..=98).map(Duration::from_millis).collect();
        let passed = Passed { delays, probes: 100, ..Passed::default() };
        assert_eq!(passed.percentile_ms(0.5), Some(50.0));
        assert_eq!(passed.percentile_ms(0.98), Some(98.0));
        assert_eq!(passed.percentile_ms(0.99), None);
        assert_eq!(Passed::default().percentile_ms(0.99), None);
    }

    #[test]
    fn segments_that_were_sent_again_are_found() {
        let snmp = "Ip: A\nIp: 1\nTcp: InSegs OutSegs RetransSegs InErrs\nTcp: 1 2 33 4\nUdp: X\n";
        assert_eq!(segments_again(snmp), Some(33));
        assert_eq!(segments_again(""), None);
    }
}
