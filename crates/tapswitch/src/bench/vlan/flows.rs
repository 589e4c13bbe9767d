//! Traffic: one thread sends and receives in turn, so that the number of bytes in flight is known.
//!
//! A tap device never makes its sender wait. Small datagrams sent at the maximum rate of a core
//! would fill the first queue and be dropped there, and the rate would be that of the first switch
//! alone, whatever the second does. So the number of datagrams in flight is limited: the rate is
//! the maximum of the whole path without loss, and the cost of any part of it shows. TCP limits
//! itself.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt as socket_options;
use rustix::net::{RecvFlags, recv};

use crate::bench::bulk::{PIECE_LEN, connect, memory_file, push, take};
use crate::bench::cores::stay_on;

use super::stage::{RECEIVER, Stage};
use super::workload::Workload;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Times of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
}

/// Results of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    /// Bytes of payload that arrived within the window.
    pub(super) bytes: u64,
    /// Length of the window.
    pub(super) seconds: f64,
    /// Bytes of payload that never arrived.
    pub(super) lost: u64,
}

/// The sockets of a workload at a stage, idle between windows.
#[derive(Debug)]
pub(super) enum Flows {
    Tcp(Streams),
    Udp(Datagrams),
}

impl Flows {
    pub(super) fn open(stage: &Stage, workload: Workload) -> Result<Self, Failure> {
        match workload.traffic.datagram_len() {
            None => Streams::open(stage, workload.flows).map(Self::Tcp),
            Some(len) => Datagrams::open(stage, workload, len).map(Self::Udp),
        }
    }

    /// Sends and receives on `core`, in the calling thread, for the length of the window and until
    /// everything has arrived.
    pub(super) fn run(&mut self, core: usize, window: Window) -> Result<Arrived, Failure> {
        stay_on(core).map_err(|error| error.to_string())?;
        self.resume();
        let (start, mut opened) = (Instant::now(), None);
        let opens = start + window.warm_up;
        let lost_before = self.lost();
        loop {
            self.step()?;
            let now = Instant::now();
            match opened {
                None if now >= opens => opened = Some((now, self.received())),
                Some((opened, before)) if now >= opened + window.length => {
                    let bytes = self.received() - before;
                    let seconds = (now - opened).as_secs_f64();
                    self.drain()?;
                    // Bytes considered lost may have arrived after all.
                    let lost = self.lost().saturating_sub(lost_before);
                    return Ok(Arrived { bytes, seconds, lost });
                }
                _ => {}
            }
        }
    }

    fn resume(&mut self) {
        if let Self::Udp(datagrams) = self {
            datagrams.latest = Instant::now();
        }
    }

    fn step(&mut self) -> Result<(), Failure> {
        match self {
            Self::Tcp(streams) => streams.step(Sends::Yes),
            Self::Udp(datagrams) => datagrams.step(),
        }
    }

    /// Receives what is still in flight.
    fn drain(&mut self) -> Result<(), Failure> {
        match self {
            Self::Tcp(streams) => streams.drain(),
            Self::Udp(datagrams) => datagrams.drain(),
        }
    }

    fn received(&self) -> u64 {
        match self {
            Self::Tcp(streams) => streams.received,
            Self::Udp(datagrams) => datagrams.received,
        }
    }

    fn lost(&self) -> u64 {
        match self {
            Self::Tcp(_) => 0,
            Self::Udp(datagrams) => datagrams.written_off,
        }
    }
}

/// Whether to send new data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sends {
    Yes,
    No,
}

/// TCP connections, both ends.
#[derive(Debug)]
pub(super) struct Streams {
    /// Senders, then receivers, in the same order.
    sockets: Vec<TcpStream>,
    count: usize,
    poll: OwnedFd,
    file: OwnedFd,
    buf: Vec<u8>,
    received: u64,
}

impl Streams {
    fn open(stage: &Stage, count: usize) -> Result<Self, Failure> {
        let listener = stage.receiver.enter(|| TcpListener::bind((RECEIVER, 0)))??;
        let to = listener.local_addr()?;
        let connect_all = || (0..count).map(|_| connect(&to)).collect::<std::io::Result<Vec<_>>>();
        let mut sockets = stage.sender.enter(connect_all)??;
        for _ in 0..count {
            sockets.push(listener.accept()?.0);
        }
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (socket, index) in sockets.iter().zip(0..) {
            socket.set_nonblocking(true)?;
            let is_sender = index < count as u64;
            let flags = if is_sender { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            if is_sender && count > 1 {
                socket_options::set_socket_send_buffer_size(socket, SEND_BUFFERS_LEN / count)?;
            }
            epoll::add(&poll, socket, epoll::EventData::new_u64(index), flags)?;
        }
        let (file, buf) = (memory_file()?, vec![0; PIECE_LEN]);
        Ok(Self { sockets, count, poll, file, buf, received: 0 })
    }

    /// Receives until nothing arrives any more: the senders' sockets still send their buffers.
    fn drain(&mut self) -> Result<(), Failure> {
        let mut latest = (Instant::now(), self.received);
        while latest.0.elapsed() < SILENCE {
            self.step(Sends::No)?;
            if self.received > latest.1 {
                latest = (Instant::now(), self.received);
            }
        }
        Ok(())
    }

    /// Waits briefly for ready sockets, and serves them.
    fn step(&mut self, sends: Sends) -> Result<(), Failure> {
        let mut events = Vec::with_capacity(EVENT_COUNT);
        let timeout = Timespec { tv_sec: 0, tv_nsec: MOMENT_NS };
        match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut was_busy = false;
        for event in &events {
            let index = usize::try_from(event.data.u64())?;
            let socket = &self.sockets[index];
            if index >= self.count {
                was_busy = true;
                if !take(socket, &mut self.buf, &mut self.received) {
                    return Err("a connection ended".into());
                }
            } else if sends == Sends::Yes {
                was_busy = true;
                push(socket, &self.file)?;
            }
        }
        if !was_busy {
            // Senders are ready but must not send, so epoll did not wait.
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// UDP sockets: senders, and one receiver.
#[derive(Debug)]
pub(super) struct Datagrams {
    senders: Vec<UdpSocket>,
    receiver: UdpSocket,
    payload: Vec<u8>,
    next: usize,
    /// Maximum number of bytes in flight.
    most_under_way: u64,
    sent: u64,
    received: u64,
    /// Bytes that are considered lost.
    written_off: u64,
    /// Time of the last received datagram.
    latest: Instant,
}

impl Datagrams {
    fn open(stage: &Stage, workload: Workload, len: usize) -> Result<Self, Failure> {
        let train_count = workload.traffic.train_count();
        let receiver = stage.receiver.enter(|| UdpSocket::bind((RECEIVER, 0)))??;
        receiver.set_nonblocking(true)?;
        socket_options::set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER_LEN)?;
        setsockopt(&receiver, sockopt::UdpGroSegment, &(train_count > 1))?;
        let to = receiver.local_addr()?;
        let open = || (0..workload.flows).map(|_| sender(to)).collect::<Result<Vec<_>, _>>();
        let senders = stage.sender.enter(open)??;
        if train_count > 1 {
            for socket in &senders {
                setsockopt(socket, sockopt::UdpGsoSegment, &i32::try_from(len)?)?;
            }
        }
        let payload = vec![0x5a; len * train_count];
        let most_under_way =
            (payload.len() * if train_count > 1 { TRAINS } else { SINGLES }) as u64;
        let latest = Instant::now();
        let (sent, received, written_off) = (0, 0, 0);
        Ok(Self {
            senders,
            receiver,
            payload,
            next: 0,
            most_under_way,
            sent,
            received,
            written_off,
            latest,
        })
    }

    /// Sends the permitted bytes, in turn from each socket, and receives.
    fn step(&mut self) -> Result<(), Failure> {
        let may_send = self.most_under_way.saturating_sub(self.under_way());
        if may_send < self.most_under_way / 4 {
            thread::sleep(PAUSE);
        } else {
            let count = may_send.min(self.most_under_way / 8) / self.payload.len() as u64;
            for _ in 0..count.max(1) {
                self.send();
            }
        }
        self.take_in()?;
        if self.under_way() > 0 && self.latest.elapsed() > PATIENCE {
            self.write_off();
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        while self.under_way() > 0 && self.latest.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
            self.take_in()?;
        }
        self.write_off();
        Ok(())
    }

    fn send(&mut self) {
        let socket = &self.senders[self.next];
        self.next = (self.next + 1) % self.senders.len();
        // Datagrams that the kernel cannot accept now are not sent.
        if let Ok(len) = socket.send(&self.payload) {
            self.sent += len as u64;
        }
    }

    fn take_in(&mut self) -> Result<(), Failure> {
        let before = self.received;
        loop {
            let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
            match recv(&self.receiver, &mut [0_u8; 1], flags) {
                Ok((_, len)) => self.received += len as u64,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        if self.received > before {
            self.latest = Instant::now();
        }
        Ok(())
    }

    fn under_way(&self) -> u64 {
        (self.sent - self.received).saturating_sub(self.written_off)
    }

    /// Considers everything that has not arrived as lost.
    fn write_off(&mut self) {
        self.written_off = self.sent - self.received;
        self.latest = Instant::now();
    }
}

fn sender(to: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(to)?;
    Ok(socket)
}

/// Maximum number of datagrams in flight: less than the 500 of a tap device's queue.
const SINGLES: usize = 384;
/// The same for trains.
const TRAINS: usize = 32;
const RECEIVE_BUFFER_LEN: usize = 16 << 20;
/// Maximum total of unsent TCP data, which every queue on the path must hold.
const SEND_BUFFERS_LEN: usize = 12 << 20;
const EVENT_COUNT: usize = 256;
const MOMENT_NS: i64 = 20_000_000;
/// In this time, a switch forwards some hundred small frames.
const PAUSE: Duration = Duration::from_micros(100);
/// Time without data after which a connection is idle.
const SILENCE: Duration = Duration::from_millis(20);
/// Time without data after which datagrams are considered lost. On a busy machine a switch may not
/// be scheduled for tens of milliseconds; sending more then would overflow the queues permanently.
const PATIENCE: Duration = Duration::from_millis(200);
