//! A port: its sockets, and sending frames.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt;
use tapswitch_wire::ecn;

use crate::again::send_again;
use crate::config::SENDERS;
use crate::congestion::Marks;
use crate::counters::Tally;
use crate::runs::{MAX_PACKETS, first_run};
use crate::segments::Segments;
use crate::vxlan::{self, HEADER_LEN};
use crate::{Config, Counters, OpenError, Refused, SendError, Vni, socket};

/// One end of a VXLAN tunnel. Several threads may send concurrently; each frame stays intact. One
/// [`crate::Receiver`] receives from it.
#[derive(Debug)]
pub struct VxlanPort {
    receive: OwnedFd,
    senders: [OwnedFd; SENDERS],
    remote: IpAddr,
    local: SocketAddr,
    vni: Vni,
    header: [u8; HEADER_LEN],
    marks: Marks,
    segments: Segments,
    pub(crate) tally: Tally,
}

impl VxlanPort {
    /// Opens the sockets in the network namespace of the calling thread. Sends nothing.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and a remedy.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let remote = config.remote;
        check(remote, config.local)?;
        let receive = open_receiver(config)?;
        let failed = |call| move |errno| OpenError::new(remote, call, errno);
        let local = socket::local_address(&receive).map_err(failed("getsockname"))?;
        let mut senders = Vec::with_capacity(SENDERS);
        for _ in 0..SENDERS {
            senders.push(open_sender(config, local.ip())?);
        }
        let senders = senders.try_into().map_err(|_| failed("socket")(Errno::MFILE))?;
        let (vni, header) = (config.vni, vxlan::header(config.vni));
        let segments = Segments::new(config.checksum || remote.is_ipv6());
        let (marks, tally) = (Marks::new(remote), Tally::default());
        Ok(Self { receive, senders, remote, local, vni, header, marks, segments, tally })
    }

    /// Sends one frame without offloads that consists of `parts`, at most [`MAX_PARTS`], the first
    /// of which contains the IP header. `flow` selects the source port: frames with equal numbers
    /// stay in order. Never blocks or allocates: one writev(2), or sendmsg(2).
    ///
    /// # Errors
    /// [`SendError`]; the frame was not sent.
    #[inline]
    pub fn send(&self, flow: u32, parts: &[IoSlice<'_>]) -> Result<(), SendError> {
        let mut pieces = [IoSlice::new(&[]); MAX_PARTS + 1];
        pieces[0] = IoSlice::new(&self.header);
        let count = 1 + parts.len();
        pieces.get_mut(1..count).ok_or(SendError::TooManyParts)?.copy_from_slice(parts);
        let head = parts.first().map_or(&[][..], |head| head);
        self.send_by(flow, head, |fd, _, control| socket::send(fd, &pieces[..count], control))
    }

    /// Sends one frame that begins with `head` by a system call of the caller, such as a writev(2)
    /// from memory that cannot be borrowed. The callback gets the socket, the bytes to write before
    /// the frame in the same datagram, and the control messages (cmsg(3)) to send with it, if any;
    /// it may be called twice.
    ///
    /// # Errors
    /// As [`Self::send`], derived from the call's errno.
    #[inline]
    pub fn send_by(
        &self,
        flow: u32,
        head: &[u8],
        write: impl Fn(BorrowedFd<'_>, &[u8; HEADER_LEN], &[u8]) -> rustix::io::Result<usize>,
    ) -> Result<(), SendError> {
        let (fd, control) = (self.sender(flow), self.marks.of(head));
        self.again(fd, || write(fd, &self.header, control).map(drop)).map_err(SendError::new)?;
        self.tally.note_sent(1);
        Ok(())
    }

    /// Sends at most [`MAX_PACKETS`] packets without offloads, each of which consists of three
    /// parts, the first of which contains the IP header; parts may be empty. Packets with the same
    /// length and ECN field, and a shorter one after them, are sent by one call. Never blocks or
    /// allocates.
    ///
    /// # Errors
    /// The number of sent packets, and the error of the next one; the following ones were not sent.
    pub fn send_packets(
        &self,
        flow: u32,
        packets: &[[IoSlice<'_>; 3]],
    ) -> Result<(), (usize, SendError)> {
        let header = IoSlice::new(&self.header);
        let mut pieces = [[header; 4]; MAX_PACKETS];
        let places = pieces.get_mut(..packets.len()).ok_or((0, SendError::TooManyParts))?;
        for (pieces, packet) in places.iter_mut().zip(packets) {
            pieces[1..].copy_from_slice(packet);
        }
        let mut at = 0;
        while at < packets.len() {
            let head = &packets[at][0];
            let (field, control) = (ecn::of(head), self.marks.of(head));
            let rest = pieces[at..packets.len()].iter();
            let alike = rest.take_while(|pieces| ecn::of(&pieces[1]) == field);
            let count = first_run(alike.map(datagram_len));
            let run = &pieces[at..at + count];
            self.send_run(self.sender(flow), run, control)
                .map_err(|(sent, errno)| (at + sent, SendError::new(errno)))?;
            at += count;
        }
        Ok(())
    }

    /// Sends a run of packets: by one call if there are several and the kernel supports it.
    fn send_run(
        &self,
        fd: BorrowedFd<'_>,
        run: &[[IoSlice<'_>; 4]],
        control: &[u8],
    ) -> Result<(), (usize, Errno)> {
        if run.len() < 2 || !self.segments.take_turn() {
            return self.send_singly(fd, run, control);
        }
        let stride = run.first().map_or(0, datagram_len);
        let stride = u16::try_from(stride).map_err(|_| (0, Errno::MSGSIZE))?;
        let send = || socket::send_segments(fd, run.as_flattened(), stride, control);
        match self.again(fd, send) {
            Ok(()) => {
                self.tally.note_sent(run.len());
                Ok(())
            }
            Err(Errno::IO | Errno::INVAL) => self.send_refused(fd, run, control),
            Err(errno) => Err((0, errno)),
        }
    }

    /// Sends packets individually that the kernel refuses to segment: because the underlying device
    /// lacks checksums or because of IPsec (`EIO`), or because a packet exceeds the path MTU
    /// (`EINVAL`, before Linux 6.13). If an individual one is accepted, the next runs are sent
    /// individually as well.
    #[cold]
    fn send_refused(
        &self,
        fd: BorrowedFd<'_>,
        run: &[[IoSlice<'_>; 4]],
        control: &[u8],
    ) -> Result<(), (usize, Errno)> {
        self.send_singly(fd, run, control)?;
        self.segments.refused();
        Ok(())
    }

    fn send_singly(
        &self,
        fd: BorrowedFd<'_>,
        run: &[[IoSlice<'_>; 4]],
        control: &[u8],
    ) -> Result<(), (usize, Errno)> {
        let mut sent = 0;
        let outcome = self.again(fd, || {
            let (count, outcome) = socket::send_each(fd, &run[sent..], |_| control);
            sent += count;
            outcome
        });
        if sent > 0 {
            self.tally.note_sent(sent);
        }
        outcome.map_err(|errno| (sent, errno))
    }

    /// Calls `send`, and again if the error may belong to an earlier datagram.
    #[inline]
    fn again(
        &self,
        fd: BorrowedFd<'_>,
        send: impl FnMut() -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        // The kernel distinguishes its sockets by their ports.
        send_again(fd, &self.tally, |_| true, send)
    }

    /// The counters since the port was opened.
    pub fn counters(&self) -> Counters {
        // The kernel is not expected to fail.
        let dropped = socket::dropped(&self.receive).unwrap_or(0);
        self.tally.counters(dropped.into())
    }

    /// The received and dropped datagrams of [`Self::counters`], without a system call.
    #[inline]
    pub fn refused(&self) -> Refused {
        self.tally.refused()
    }

    /// Current MTU of the path to the remote in bytes, as known to the kernel: that of the route's
    /// interface, or less if a router reported it.
    ///
    /// # Errors
    /// [`OpenError::NoRoute`], [`OpenError::Refusing`].
    pub fn path_mtu(&self) -> Result<u32, OpenError> {
        let remote = SocketAddr::new(self.remote, self.local.port());
        let failed = |errno| OpenError::connect(self.remote, errno);
        socket::path_mtu(&self.senders[0], remote).map_err(failed)
    }

    /// Maximum bytes of datagrams waiting to be received, as granted by the kernel: twice the
    /// requested number, or the system's maximum.
    ///
    /// # Errors
    /// If the kernel does not answer, which is not expected.
    pub fn receive_buffer_len(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.receive)?)
    }

    /// Changes the limit of bytes in transmission; datagrams already queued stay. Otherwise as
    /// [`Config::send_buffer_len`].
    ///
    /// # Errors
    /// If the kernel refuses, which is not expected.
    pub fn set_send_buffer_len(&self, len: usize) -> io::Result<()> {
        Ok(self.senders.iter().try_for_each(|fd| set_send_buffer(fd, len / SENDERS))?)
    }

    /// Address of the other end.
    pub fn remote(&self) -> IpAddr {
        self.remote
    }

    /// Local address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The VXLAN network of the port.
    pub fn vni(&self) -> Vni {
        self.vni
    }

    /// True while the packets of a train are sent by one call (`UDP_SEGMENT`).
    pub fn sends_segments(&self) -> bool {
        self.segments.is_on()
    }

    /// The socket that sends frames of `flow`: wait for it after [`SendError::Full`].
    #[inline]
    pub fn sender(&self, flow: u32) -> BorrowedFd<'_> {
        self.senders[flow as usize % SENDERS].as_fd()
    }
}

/// The socket that receives.
impl AsFd for VxlanPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receive.as_fd()
    }
}

fn datagram_len<const PIECES: usize>(pieces: &[IoSlice<'_>; PIECES]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

pub(crate) fn check(remote: IpAddr, local: Option<IpAddr>) -> Result<(), OpenError> {
    check_addresses(remote, local).map_err(|what| OpenError::Address { remote, what })
}

/// Whether a tunnel may have this remote, and this local address if it has one of its own. The
/// error is what is wrong with the remote, as far as the addresses alone tell.
pub fn check_addresses(remote: IpAddr, local: Option<IpAddr>) -> Result<(), &'static str> {
    let is_broadcast = remote == IpAddr::V4(Ipv4Addr::BROADCAST);
    if remote.is_unspecified() || remote.is_multicast() || is_broadcast {
        return Err(NO_HOST);
    }
    if matches!(remote, IpAddr::V6(remote) if remote.is_unicast_link_local()) {
        return Err("is a link-local address; give a routable one");
    }
    if remote.to_canonical() != remote {
        return Err("is an IPv4-mapped IPv6 address; write it as IPv4");
    }
    if local == Some(remote) {
        return Err("is the address in local=, too; give the address of the other end");
    }
    if local.is_some_and(|local| local.is_ipv4() != remote.is_ipv4()) {
        return Err("has another IP version than local=; use the same version for both");
    }
    Ok(())
}

/// Connects a socket to the remote.
pub(crate) fn connect(fd: &OwnedFd, remote: SocketAddr) -> Result<(), OpenError> {
    let failed = |errno| OpenError::connect(remote.ip(), errno);
    match rustix::net::connect(fd, &remote) {
        // A route refuses packets, or the remote is a broadcast address of one of our networks,
        // which this permits.
        Err(Errno::ACCESS) => {
            sockopt::set_socket_broadcast(fd, true).map_err(failed)?;
            rustix::net::connect(fd, &remote).map_err(failed)?;
            Err(OpenError::Address { remote: remote.ip(), what: NO_HOST })
        }
        outcome => outcome.map_err(failed),
    }
}

/// Bound before it is connected, it may have received datagrams of others in between: those are
/// dropped.
fn open_receiver(config: &Config) -> Result<OwnedFd, OpenError> {
    let remote = config.remote;
    let failed = |call| move |errno| OpenError::new(remote, call, errno);
    let fd = socket::open(remote).map_err(failed("socket"))?;
    sockopt::set_socket_reuseport(&fd, true).map_err(failed("SO_REUSEPORT"))?;
    set_buffer(&fd, config.receive_buffer_len).map_err(failed("SO_RCVBUF"))?;
    // Optional: not supported before Linux 5.0.
    let _ = socket::set_gro(&fd);
    socket::set_class_told(&fd, remote).map_err(failed("IP_RECVTOS"))?;
    let address = SocketAddr::new(config.local_or_any(), config.port);
    rustix::net::bind(&fd, &address).map_err(|errno| OpenError::bind(remote, address, errno))?;
    connect(&fd, SocketAddr::new(remote, 0))?;
    while rustix::net::recv(&fd, &mut [0u8; 1], rustix::net::RecvFlags::TRUNC).is_ok() {}
    Ok(fd)
}

/// The kernel chooses the source port.
fn open_sender(config: &Config, local: IpAddr) -> Result<OwnedFd, OpenError> {
    let remote = config.remote;
    let failed = |call| move |errno| OpenError::new(remote, call, errno);
    let fd = socket::open(remote).map_err(failed("socket"))?;
    socket::set_no_fragments(&fd, remote).map_err(failed("IP_MTU_DISCOVER"))?;
    socket::set_errors_told(&fd, remote).map_err(failed("IP_RECVERR"))?;
    if !config.checksum && remote.is_ipv4() {
        socket::set_checksum(&fd, false).map_err(failed("SO_NO_CHECK"))?;
    }
    let share = config.send_buffer_len / SENDERS;
    set_send_buffer(&fd, share).map_err(failed("SO_SNDBUF"))?;
    let address = SocketAddr::new(local, 0);
    rustix::net::bind(&fd, &address).map_err(|errno| OpenError::bind(remote, address, errno))?;
    connect(&fd, SocketAddr::new(remote, config.port))?;
    Ok(fd)
}

/// Only privileged processes may exceed the system's maximum.
pub(crate) fn set_buffer(fd: &OwnedFd, len: usize) -> rustix::io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(fd, len)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, len))
}

/// As [`set_buffer`].
pub(crate) fn set_send_buffer(fd: &OwnedFd, len: usize) -> rustix::io::Result<()> {
    sockopt::set_socket_send_buffer_size_force(fd, len)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, len))
}

const NO_HOST: &str = "is not the address of a host; give the unicast address of the remote";
/// Maximum number of parts of a frame for [`VxlanPort::send`].
pub const MAX_PARTS: usize = 16;

#[cfg(test)]
impl VxlanPort {
    /// All sockets that it sends from.
    pub(crate) fn senders(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.senders.iter().map(AsFd::as_fd)
    }
}
