//! Traffic from one host to another: a load, and probes that measure the delay of packets under the
//! load.
//!
//! Everything runs in threads of this process with sockets in the hosts' namespaces, so that one
//! clock times both ends and delays are one-way. The receiver's socket of the load is not read
//! before the end: its kernel counts datagrams that did not fit and those that are read, so that
//! nothing after the network counts as network loss.

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

/// The load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// One TCP flow at the maximum rate.
    Tcp,
    /// Datagrams at a rate in Mb/s, in bursts of one millisecond.
    Paced(f64),
    /// Datagrams as fast as the socket takes them.
    Flood,
}

/// Times of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Time before the measurement.
    pub(super) warm_up: Duration,
    /// Length of the measurement.
    pub(super) length: Duration,
}

/// Results.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// Received payload in the window, in Mb/s.
    pub(super) mbps: f64,
    /// Datagrams sent in all, including probes.
    pub(super) sent: u64,
    /// Datagrams that the receiver's kernel counted.
    pub(super) received: u64,
    /// Retransmitted segments.
    pub(super) retransmits: u64,
    /// One-way delays of the probes that were sent in the window and arrived, sorted.
    pub(super) delays: Vec<Duration>,
    /// Probes that were sent in the window.
    pub(super) probes: usize,
}

impl Passed {
    /// The percentile `share` of the delays in ms, with lost probes as infinite. `None` if it is
    /// infinite.
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
        // While interfaces come up there is no path, which is not an error yet.
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
    /// Destination of the load.
    to: SocketAddr,
    receiver: Namespace,
}

enum LoadSockets {
    /// Sender and receiver.
    Tcp(TcpStream, TcpStream),
    Udp {
        sender: UdpSocket,
        /// Not read before the end.
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

    /// Sends the load to its end; returns the number of datagrams.
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

    /// Reads the rest from the sockets, so that it counts as received.
    fn empty(&self) -> io::Result<()> {
        if let LoadSockets::Udp { receiver, .. } = &self.load {
            receiver.set_nonblocking(true)?;
            while receiver.recv(&mut [0; 8]).is_ok() {}
        }
        self.probe[1].set_nonblocking(true)?;
        while self.probe[1].recv(&mut [0; 8]).is_ok() {}
        Ok(())
    }

    /// Receives TCP. Datagrams are counted by the kernel.
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
            // A probe that does not fit the socket is not sent, and does not count.
            if self.probe[0].send(&payload).is_ok() {
                probes.all += 1;
                probes.measured += usize::from(clock.is_measured(now));
            }
            thread::sleep(PROBE_DISTANCE);
        }
        probes
    }

    /// Delays of the probes of the window, including those that arrive somewhat later.
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

/// Progress of a run.
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

/// Ends the threads of a run that was cancelled.
struct OverOnDrop(Arc<AtomicBool>);

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends the datagrams of each millisecond that has passed, until the end.
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

/// True if the socket accepted a datagram; a refused one was not sent.
fn send(socket: &UdpSocket, to: SocketAddr) -> bool {
    socket.send_to(&[0x5a; DATAGRAM_LEN], to).is_ok()
}

fn udp(host: &Host, port: u16) -> Result<UdpSocket, Failure> {
    let any = Ipv4Addr::UNSPECIFIED;
    Ok(host.namespace.enter(|| UdpSocket::bind((any, port)))??)
}

/// A connection that discards unsent data when it is closed.
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

/// Waits until the host's counters of datagrams are stable.
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
/// Payload of a datagram in bytes, small enough for tunnels.
pub(super) const DATAGRAM_LEN: usize = 1300;
const PROBE_LEN: usize = 64;
const PROBE_DISTANCE: Duration = Duration::from_millis(3);
/// Maximum number of datagrams to send at once, if the sender was delayed.
const PACED_MAX: u64 = 1000;
/// Maximum delay of a probe that counts as arrived.
const LATE_PROBES: Duration = Duration::from_secs(1);
/// How often a thread checks whether it is over.
const TICK: Duration = Duration::from_millis(100);
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time without datagrams after which no more are expected.
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
