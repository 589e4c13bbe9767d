//! A port with raw sockets: its sockets, and sending and receiving frames.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::again::send_again;
use crate::config::SEND_BUFFER_LEN;
use crate::congestion::{Marks, pass_on};
use crate::counters::Tally;
use crate::cut::Cut;
use crate::error::is_unreachable;
use crate::gre::{About, Carrier, GreRefusal, Prefix, outer_tci};
use crate::port::{MAX_PARTS, connect};
use crate::{Counters, OpenError, RECV_BUF_LEN, RecvError, Refused, SendError, socket};

/// Configuration of a [`GrePort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreConfig {
    pub(crate) remote: IpAddr,
    carrier: Carrier,
    pub(crate) local: Option<IpAddr>,
    receive_buffer_len: usize,
    send_buffer_len: usize,
}

impl GreConfig {
    /// A tunnel of this type to `remote`.
    pub const fn new(remote: IpAddr, carrier: Carrier) -> Self {
        let (receive_buffer_len, send_buffer_len) = (8 << 20, SEND_BUFFER_LEN);
        Self { remote, carrier, local: None, receive_buffer_len, send_buffer_len }
    }

    /// Sets the local address that the remote sends to and packets are sent from. By default the
    /// source address of the route to the remote when the port is opened.
    #[must_use]
    pub const fn local(mut self, local: Option<IpAddr>) -> Self {
        self.local = local;
        self
    }

    pub(crate) fn local_or_any(&self) -> IpAddr {
        self.local.unwrap_or(match self.remote {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}

/// One end of a GRE or ERSPAN tunnel. Several threads may send concurrently; only one may receive.
#[derive(Debug)]
pub struct GrePort {
    receive: OwnedFd,
    sender: OwnedFd,
    remote: IpAddr,
    local: IpAddr,
    carrier: Carrier,
    marks: Marks,
    /// Sequence number of the next frame.
    sequence: AtomicU32,
    tally: Tally,
}

impl GrePort {
    /// Opens the sockets in the network namespace of the calling thread (`CAP_NET_RAW`). Sends
    /// nothing.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and a remedy.
    pub fn open(config: &GreConfig) -> Result<Self, OpenError> {
        let GreConfig { remote, carrier, local, .. } = *config;
        crate::port::check(remote, local)?;
        let receive = open_receiver(config)?;
        let failed = |call| move |errno| OpenError::new(remote, call, errno);
        let local = socket::local_address(&receive).map_err(failed("getsockname"))?.ip();
        let sender = open_sender(config, local)?;
        let (marks, sequence, tally) = (Marks::new(remote), AtomicU32::new(0), Tally::default());
        Ok(Self { receive, sender, remote, local, carrier, marks, sequence, tally })
    }

    /// Sends one frame without offloads that consists of `parts`, at most [`MAX_PARTS`], the first
    /// of which contains the IP header. `cut` is the length that it was truncated to, if it was.
    /// Never blocks or allocates: one writev(2), or sendmsg(2).
    ///
    /// # Errors
    /// [`SendError`]; the frame was not sent.
    #[inline]
    pub fn send<'a>(
        &self,
        parts: &[IoSlice<'_>],
        cut: impl Into<Cut<'a>>,
    ) -> Result<(), SendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let head = parts.first().map_or(&[][..], |part| part);
        let count = 1 + parts.len();
        self.send_by(head, len, cut, |fd, prefix, control| {
            let mut pieces = [IoSlice::new(&[]); MAX_PARTS + 1];
            pieces[0] = IoSlice::new(prefix);
            pieces.get_mut(1..count).ok_or(Errno::TOOBIG)?.copy_from_slice(parts);
            socket::send(fd, &pieces[..count], control)
        })
    }

    /// Sends one frame of `len` bytes that begins with `head` by a system call of the caller, such
    /// as a writev(2) from memory that cannot be borrowed. The callback gets the socket, the bytes
    /// to write before the frame, and the control messages (cmsg(3)) to send with it, if any; it
    /// may be called twice.
    ///
    /// # Errors
    /// As [`Self::send`], derived from the call's errno.
    #[inline]
    pub fn send_by<'a>(
        &self,
        head: &[u8],
        len: usize,
        cut: impl Into<Cut<'a>>,
        write: impl Fn(BorrowedFd<'_>, &[u8], &[u8]) -> rustix::io::Result<usize>,
    ) -> Result<(), SendError> {
        let first = self.take_numbers(1);
        let prefix = self.prefix(first, self.time(), head, cut.into().is_cut(0, len));
        let (fd, control) = (self.sender.as_fd(), self.marks.of(head));
        let outcome = self.again(|| write(fd, prefix.bytes(), control).map(drop));
        if outcome.is_err() {
            self.give_back(first, 1, 0);
        }
        outcome.map_err(SendError::new)?;
        self.tally.note_sent(1);
        Ok(())
    }

    /// Sends at most [`GRE_MAX_PACKETS`] packets without offloads, each of which consists of three
    /// parts, the first of which contains the IP header; parts may be empty. `cut` describes
    /// truncation; for a train, whose last packet may just fit, only [`Cut::Each`] is exact. Never
    /// blocks or allocates.
    ///
    /// # Errors
    /// The number of sent packets, and the error of the next one; the following ones were not sent.
    pub fn send_packets<'a>(
        &self,
        packets: &[[IoSlice<'_>; 3]],
        cut: impl Into<Cut<'a>>,
    ) -> Result<(), (usize, SendError)> {
        let mut prefixes = [Prefix::EMPTY; GRE_MAX_PACKETS];
        let places = prefixes.get_mut(..packets.len()).ok_or((0, SendError::TooManyParts))?;
        let (first, time, cut) = (self.take_numbers(packets.len()), self.time(), cut.into());
        for (index, (place, packet)) in places.iter_mut().zip(packets).enumerate() {
            let len = packet.iter().map(|part| part.len()).sum();
            let number = first.wrapping_add(to_u32(index));
            *place = self.prefix(number, time, &packet[0], cut.is_cut(index, len));
        }
        let mut messages = [[IoSlice::new(&[]); 4]; GRE_MAX_PACKETS];
        for ((message, prefix), packet) in messages.iter_mut().zip(&prefixes).zip(packets) {
            message[0] = IoSlice::new(prefix.bytes());
            message[1..].copy_from_slice(packet);
        }
        let (sent, outcome) = self.send_each(&messages[..packets.len()]);
        self.give_back(first, packets.len(), sent);
        if sent > 0 {
            self.tally.note_sent(sent);
        }
        outcome.map_err(|errno| (sent, SendError::new(errno)))
    }

    fn send_each(&self, messages: &[[IoSlice<'_>; 4]]) -> (usize, rustix::io::Result<()>) {
        let mut sent = 0;
        let outcome = self.again(|| {
            let rest = &messages[sent..];
            let (count, outcome) =
                socket::send_each(&self.sender, rest, |pieces| self.marks.of(&pieces[1]));
            sent += count;
            outcome
        });
        (sent, outcome)
    }

    fn prefix(&self, sequence: u32, time: u32, head: &[u8], is_cut: bool) -> Prefix {
        self.carrier.prefix(&About { sequence, time, tci: outer_tci(head), is_cut })
    }

    /// Timestamp of packets sent now, for encapsulations that have one.
    #[inline]
    fn time(&self) -> u32 {
        if self.carrier.is_timed() { now() } else { 0 }
    }

    fn take_numbers(&self, count: usize) -> u32 {
        match self.carrier.counts() {
            true => self.sequence.fetch_add(to_u32(count), Ordering::Relaxed),
            false => 0,
        }
    }

    /// Returns the sequence numbers of packets that were not sent, unless another thread has taken
    /// some since: the other end would report a gap as loss.
    #[cold]
    fn give_back(&self, first: u32, taken: usize, sent: usize) {
        if self.carrier.counts() && sent < taken {
            let (next, used) =
                (first.wrapping_add(to_u32(taken)), first.wrapping_add(to_u32(sent)));
            let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
            // If it fails, the numbers remain used.
            let _ = self.sequence.compare_exchange(next, used, set, fetch);
        }
    }

    /// Calls `send`, and again if the error may belong to an earlier packet.
    #[inline]
    fn again(&self, send: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        send_again(&self.sender, &self.tally, self.tells_own(), send)
    }

    /// Distinguishes the packets of this tunnel from those of others to the same remote, whose
    /// errors its sockets receive as well.
    fn tells_own(&self) -> impl Fn(&[u8]) -> bool + use<> {
        let carrier = self.carrier;
        move |quoted: &[u8]| carrier.may_have_sent(quoted)
    }

    /// Receives one frame into `buf` at about `headroom`, and returns its position; `None` if none
    /// is queued. Its checksums are not verified. Never blocks.
    ///
    /// Packets that are no frame of this tunnel are counted ([`Counters`]) and skipped; after very
    /// many of them the result is `None` as well and the port stays readable, so that a flood
    /// cannot occupy the caller. Marks of routers are propagated to the inner packet (RFC 6040
    /// §4.2).
    ///
    /// # Errors
    /// [`RecvError`]; the next call continues after the lost packet.
    #[inline]
    pub fn recv(&self, buf: &mut [u8], headroom: usize) -> Result<Option<Range<usize>>, RecvError> {
        let expected = self.ip_header_len() + self.carrier.prefix_len();
        let at = headroom.checked_sub(expected).ok_or(RecvError::Misplaced)?;
        let room = buf.get_mut(at..).ok_or(RecvError::Misplaced)?;
        for _ in 0..REFUSED_MAX {
            let message = match socket::recv(&self.receive, &mut [IoSliceMut::new(room)]) {
                Ok(message) if message.is_cut => {
                    return Err(RecvError::Lost { errno: Errno::MSGSIZE.raw_os_error() });
                }
                Ok(message) => message,
                Err(Errno::AGAIN) => return Ok(None),
                // An earlier packet was not delivered. The error queue of the sending socket has
                // the details.
                Err(errno) if is_unreachable(errno) => {
                    let told = socket::drain_errors(&self.sender, self.tells_own());
                    self.tally.note_unreachable(told.own);
                    return Ok(None);
                }
                Err(errno) => return Err(RecvError::Lost { errno: errno.raw_os_error() }),
            };
            self.tally.note_received(1);
            match self.frame_of(&room[..message.len]) {
                Ok(start) if pass_on(&mut room[start..message.len], message.class) => {
                    return Ok(Some(at + start..at + message.len));
                }
                Ok(_) => self.tally.note_congested(),
                Err(refusal) => self.tally.note_gre_refused(refusal),
            }
        }
        Ok(None)
    }

    /// An IPv4 packet is received with its header, an IPv6 packet without (raw(7), RFC 3542 §3).
    fn frame_of(&self, packet: &[u8]) -> Result<usize, GreRefusal> {
        let ip_len = match self.remote {
            IpAddr::V4(_) => packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4),
            IpAddr::V6(_) => 0,
        };
        let packet = packet.get(ip_len..).ok_or(GreRefusal::Runt)?;
        self.carrier.frame_of(packet).map(|start| ip_len + start)
    }

    fn ip_header_len(&self) -> usize {
        if self.remote.is_ipv4() { 20 } else { 0 }
    }

    /// The counters since the port was opened.
    pub fn counters(&self) -> Counters {
        // The kernel is not expected to fail.
        let dropped = socket::dropped(&self.receive).unwrap_or(0);
        self.tally.counters(dropped.into())
    }

    /// The received and dropped packets of [`Self::counters`], without a system call.
    #[inline]
    pub fn refused(&self) -> Refused {
        self.tally.refused()
    }

    /// Current MTU of the path to the remote in bytes, as known to the kernel.
    ///
    /// # Errors
    /// [`OpenError::NoRoute`], [`OpenError::Refusing`].
    pub fn path_mtu(&self) -> Result<u32, OpenError> {
        let failed = |errno| OpenError::connect(self.remote, errno);
        socket::path_mtu(&self.sender, SocketAddr::new(self.remote, 0)).map_err(failed)
    }

    /// Maximum bytes of packets waiting to be received, as granted by the kernel.
    ///
    /// # Errors
    /// If the kernel does not answer, which is not expected.
    pub fn receive_buffer_len(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.receive)?)
    }

    /// Changes the limit of bytes in transmission; packets already queued stay. Otherwise as
    /// [`crate::Config::send_buffer_len`].
    ///
    /// # Errors
    /// If the kernel refuses, which is not expected.
    pub fn set_send_buffer_len(&self, len: usize) -> io::Result<()> {
        Ok(crate::port::set_send_buffer(&self.sender, len)?)
    }

    /// Address of the other end.
    pub fn remote(&self) -> IpAddr {
        self.remote
    }

    /// Local address.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// The encapsulation.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }
}

/// The socket that receives.
impl AsFd for GrePort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receive.as_fd()
    }
}

/// Bound before it is connected, it may have received packets of others in between: those are
/// dropped.
fn open_receiver(config: &GreConfig) -> Result<OwnedFd, OpenError> {
    let remote = config.remote;
    let failed = |call| move |errno| OpenError::new(remote, call, errno);
    let fd = socket::open_gre(remote).map_err(|errno| OpenError::raw(remote, errno))?;
    crate::port::set_buffer(&fd, config.receive_buffer_len).map_err(failed("SO_RCVBUF"))?;
    socket::set_class_told(&fd, remote).map_err(failed("IP_RECVTOS"))?;
    bind(&fd, remote, config.local_or_any())?;
    connect(&fd, SocketAddr::new(remote, 0))?;
    while rustix::net::recv(&fd, &mut [0u8; 1], rustix::net::RecvFlags::TRUNC).is_ok() {}
    Ok(fd)
}

/// A filter prevents it from receiving the same packets as the other socket.
fn open_sender(config: &GreConfig, local: IpAddr) -> Result<OwnedFd, OpenError> {
    let remote = config.remote;
    let failed = |call| move |errno| OpenError::new(remote, call, errno);
    let fd = socket::open_gre(remote).map_err(|errno| OpenError::raw(remote, errno))?;
    socket::set_deaf(&fd).map_err(failed("SO_ATTACH_FILTER"))?;
    socket::set_no_fragments(&fd, remote).map_err(failed("IP_MTU_DISCOVER"))?;
    socket::set_errors_told(&fd, remote).map_err(failed("IP_RECVERR"))?;
    crate::port::set_send_buffer(&fd, config.send_buffer_len).map_err(failed("SO_SNDBUF"))?;
    bind(&fd, remote, local)?;
    connect(&fd, SocketAddr::new(remote, 0))?;
    Ok(fd)
}

fn bind(fd: &OwnedFd, remote: IpAddr, local: IpAddr) -> Result<(), OpenError> {
    let address = SocketAddr::new(local, 0);
    rustix::net::bind(fd, &address).map_err(|errno| OpenError::bind(remote, address, errno))
}

/// Narrows a number of packets of one call.
#[expect(clippy::cast_possible_truncation, reason = "a few packets")]
const fn to_u32(count: usize) -> u32 {
    count as u32
}

/// Current time in units of 100 ns, as in ERSPAN III.
#[expect(clippy::cast_possible_truncation, reason = "it wraps around")]
fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() / 100) as u32
}

/// Maximum number of packets of one call of [`GrePort::send_packets`].
pub const GRE_MAX_PACKETS: usize = 32;
/// Maximum number of refused packets before one frame.
const REFUSED_MAX: usize = 64;
const _: () = assert!(RECV_BUF_LEN >= 65_535, "an IP packet of any length");
