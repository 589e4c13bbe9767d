//! Senders and receivers with minimal socket overhead, so that they are not what is measured.
//!
//! A TCP sender uses sendfile(2) from a file in memory, which copies nothing; a receiver discards
//! the bytes inside the kernel (`MSG_TRUNC`, tcp(7)). A UDP sender passes a train per call to the
//! kernel (`UDP_SEGMENT`, udp(7), Linux 4.18); if the kernel cannot send trains through a device
//! without checksums (`EIO` before Linux 6.11), it sends single datagrams by sendmmsg(2). A UDP
//! receiver accepts whole trains (`UDP_GRO`) and reads none of them: its queue fills up, and the
//! rest is counted and dropped there.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde::{Deserialize, Serialize};

use crate::bench::bulk::{PIECE_LEN, connect, memory_file, push, take};
use crate::bench::cores::stay_on;

use super::measure::Window;
use super::ready::announce;

type Failure = Box<dyn std::error::Error>;

/// Type of traffic.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Traffic {
    /// TCP bulk.
    Tcp,
    /// Datagrams of 1400 bytes, a train per system call.
    Udp,
}

impl Traffic {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// Sends until the time is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Send {
    pub(super) traffic: Traffic,
    pub(super) to: SocketAddr,
    /// Number of sockets, served in turn.
    pub(super) flows: usize,
    pub(super) core: usize,
    pub(super) length_ms: u64,
}

/// Result of sending.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sent {
    /// Datagrams; zero for TCP.
    pub(super) datagrams: u64,
    /// Bytes of payload.
    pub(super) bytes: u64,
    /// Datagrams were sent individually, because the kernel does not send trains through this
    /// device.
    pub(super) singly: bool,
}

impl Sent {
    fn add_datagrams(&mut self, count: u64) {
        self.datagrams += count;
        self.bytes += count * PAYLOAD_LEN as u64;
    }
}

impl Send {
    /// Sends, in this process.
    pub(super) fn run(&self) -> Result<Sent, Failure> {
        stay_on(self.core)?;
        match self.traffic {
            Traffic::Tcp => self.tcp(),
            Traffic::Udp => self.udp(),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.length_ms)
    }

    fn tcp(&self) -> Result<Sent, Failure> {
        let file = memory_file()?;
        let mut streams = Vec::new();
        for _ in 0..self.flows {
            let stream = connect(&self.to)?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let (mut sent, deadline) = (Sent::default(), self.deadline());
        while Instant::now() < deadline {
            wait(&streams, PollFlags::OUT)?;
            for stream in &streams {
                sent.bytes += push(stream, &file)?;
            }
        }
        Ok(sent)
    }

    fn udp(&self) -> Result<Sent, Failure> {
        let sockets = (0..self.flows).map(|_| self.datagrams()).collect::<Result<Vec<_>, _>>()?;
        let payload = vec![0x5a; TRAIN_COUNT * PAYLOAD_LEN];
        let trains = sockets.iter().map(|socket| takes_trains(socket, &payload));
        let trains = trains.collect::<Result<Vec<_>, _>>()?;
        let tried = trains.iter().filter(|taken| **taken).count() * TRAIN_COUNT;
        let mut sent = Sent { singly: tried == 0, ..Sent::default() };
        sent.add_datagrams(tried as u64);
        let deadline = self.deadline();
        while Instant::now() < deadline {
            for socket in &sockets {
                // Datagrams that the kernel cannot accept now are lost, as on a wire.
                let count = if sent.singly {
                    send_singly(socket, &payload)
                } else {
                    socket.send(&payload).map_or(0, |len| (len / PAYLOAD_LEN) as u64)
                };
                sent.add_datagrams(count);
            }
        }
        Ok(sent)
    }

    fn datagrams(&self) -> Result<UdpSocket, Failure> {
        let socket = UdpSocket::bind((unspecified(self.to.ip()), 0))?;
        socket.connect(self.to)?;
        Ok(socket)
    }
}

/// Enables trains, and tries one.
fn takes_trains(socket: &UdpSocket, payload: &[u8]) -> Result<bool, Failure> {
    setsockopt(socket, sockopt::UdpGsoSegment, &i32::try_from(PAYLOAD_LEN)?)?;
    match socket.send(payload) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
            setsockopt(socket, sockopt::UdpGsoSegment, &0)?;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn send_singly(socket: &UdpSocket, payload: &[u8]) -> u64 {
    let parts: Vec<_> = payload.chunks(PAYLOAD_LEN).map(|part| [IoSlice::new(part)]).collect();
    let mut controls: Vec<_> = parts.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<_> = parts
        .iter()
        .zip(&mut controls)
        .map(|(part, control)| MMsgHdr::new(part, control))
        .collect();
    sendmmsg(socket, &mut messages, SendFlags::empty()).unwrap_or(0) as u64
}

/// Receives traffic.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sink {
    pub(super) traffic: Traffic,
    pub(super) at: SocketAddr,
    pub(super) flows: usize,
    pub(super) core: usize,
    pub(super) window: Window,
}

/// Result of receiving TCP.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Received {
    /// All bytes of payload.
    pub(super) bytes: u64,
    /// Bytes within the window.
    pub(super) window_bytes: u64,
    /// Length of the window.
    pub(super) seconds: f64,
}

impl Sink {
    /// Receives: TCP until every sender has ended or should have, UDP forever.
    pub(super) fn run(&self) -> Result<Received, Failure> {
        stay_on(self.core)?;
        match self.traffic {
            Traffic::Tcp => self.tcp(),
            Traffic::Udp => self.udp(),
        }
    }

    fn tcp(&self) -> Result<Received, Failure> {
        let listener = TcpListener::bind(self.at)?;
        announce();
        let mut streams = Vec::new();
        for _ in 0..self.flows {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let opens = Instant::now() + Duration::from_millis(self.window.warm_up_ms);
        let length = Duration::from_millis(self.window.length_ms);
        let (mut received, mut buf) = (Received::default(), vec![0; PIECE_LEN]);
        let (mut first, mut latest, mut last) = (None, None, None);
        while !streams.is_empty() && Instant::now() < opens + length + LINGER {
            wait(&streams, PollFlags::IN)?;
            let before = received.bytes;
            streams.retain(|stream| take(stream, &mut buf, &mut received.bytes));
            let mark = (Instant::now(), received.bytes);
            if received.bytes > before {
                latest = Some(mark);
            }
            match first {
                None if mark.0 >= opens => first = Some(mark),
                Some((opened, _)) if mark.0 - opened >= length => last = last.or(Some(mark)),
                _ => {}
            }
        }
        // If a sender ends early, the window ends with its last byte.
        if let (Some((opened, before)), Some((closed, after))) = (first, last.or(latest)) {
            received.window_bytes = after - before;
            received.seconds = (closed - opened).as_secs_f64();
        }
        Ok(received)
    }

    fn udp(&self) -> Result<Received, Failure> {
        let socket = UdpSocket::bind(self.at)?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        announce();
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
}

/// Waits briefly for one of `streams`.
fn wait(streams: &[TcpStream], flags: PollFlags) -> io::Result<()> {
    let fds = streams.iter().map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), flags));
    poll(&mut fds.collect::<Vec<_>>(), Some(&Timespec { tv_sec: 0, tv_nsec: MOMENT_NS }))?;
    Ok(())
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Payload of a datagram; 1442 bytes as an Ethernet frame with IPv4.
pub(super) const PAYLOAD_LEN: usize = 1400;
/// Maximum number of datagrams in the largest IPv4 packet; the kernel allows at least 64.
const TRAIN_COUNT: usize = 46;
pub(super) const PORT: u16 = 5201;
/// Maximum time to wait for a sender whose end was lost.
const LINGER: Duration = Duration::from_secs(2);
const MOMENT_NS: i64 = 20_000_000;
