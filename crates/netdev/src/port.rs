//! A port on an interface: opening, receiving, sending, statistics.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::{netdevice, sockopt};
use tapswitch_wire::ethernet::{HEADER_LEN, TAG_LEN};
use tapswitch_wire::{MacAddr, NetHeader};

use crate::socket::{self, Message, SentAll};
use crate::{Config, OpenError, RecvError, SendError, jumbo, list, probe, tag};

/// A port on an Ethernet interface. Several threads may use it concurrently; each frame stays
/// intact.
#[derive(Debug)]
pub struct PacketPort {
    fd: OwnedFd,
    index: u32,
    mac: MacAddr,
    capabilities: Capabilities,
    /// Totals, because reading the kernel's counters resets them.
    received: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

impl PacketPort {
    /// Attaches to the interface `name` in the network namespace of the calling thread. It may be
    /// down. From then on every incoming frame is queued for the port.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and a remedy.
    pub fn open(name: &str, config: &Config) -> Result<Self, OpenError> {
        let failed = |call| move |errno| OpenError::new(name, call, errno);
        let fd = socket::open().map_err(failed("packet socket"))?;
        let index = netdevice::name_to_index(&fd, name).map_err(failed("SIOCGIFINDEX"))?;
        let (kind, mac) = socket::hardware(&fd, name).map_err(failed("SIOCGIFHWADDR"))?;
        if kind != socket::ARPHRD_ETHER {
            return Err(OpenError::NotEthernet { name: name.to_owned(), kind });
        }
        set_options(&fd, name, config)?;
        socket::bind(&fd, index).map_err(failed("bind"))?;
        if config.promiscuous {
            socket::set_promiscuous(&fd, index).map_err(failed("PACKET_MR_PROMISC"))?;
        }
        // Binding to an interface that is down leaves a pending ENETDOWN, which is expected.
        let _ = sockopt::socket_error(&fd);
        Ok(Self {
            fd,
            index,
            mac: MacAddr(mac),
            capabilities: Capabilities { send_udp_trains: probe::sends_udp_trains() },
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Receives one frame into `buf` after `headroom` bytes, or returns `None` if none is queued.
    /// Never blocks or allocates: one recvmsg(2).
    ///
    /// A tag that the kernel removed is restored; the frame then starts four bytes earlier. So
    /// `headroom` must be at least [`HEADROOM_MIN`], and its contents are undefined afterwards. The
    /// header's `hdr_len` is only a hint.
    ///
    /// # Errors
    /// [`RecvError`].
    #[inline]
    pub fn recv(&self, buf: &mut [u8], headroom: usize) -> Result<Option<Received>, RecvError> {
        let room = match buf.get_mut(headroom..) {
            Some(room) if headroom >= HEADROOM_MIN && !room.is_empty() => room,
            _ => return Err(RecvError::NoRoom),
        };
        match socket::recv(&self.fd, room) {
            Ok(message) => finish(&message, buf, headroom).map(Some),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(self.recv_error(errno)),
        }
    }

    /// Sends one frame that consists of `parts`, at most [`MAX_PARTS`]. Never blocks or allocates:
    /// one writev(2).
    ///
    /// # Errors
    /// [`SendError`]; the frame was not sent.
    #[expect(clippy::inline_always, reason = "no return between system calls: as in the worker")]
    #[inline(always)]
    pub fn send(&self, header: &NetHeader, parts: &[IoSlice<'_>]) -> Result<(), SendError> {
        let header = header.encode();
        let mut pieces = [IoSlice::new(&[]); MAX_PARTS + 1];
        pieces[0] = IoSlice::new(&header[..socket::VNET_HEADER_LEN]);
        let count = 1 + parts.len();
        pieces.get_mut(1..count).ok_or(SendError::TooManyParts)?.copy_from_slice(parts);
        match rustix::io::writev(&self.fd, &pieces[..count]) {
            // A frame is accepted whole or not at all.
            Ok(_) => Ok(()),
            Err(errno) => Err(self.send_error(errno, 1)),
        }
    }

    /// Sends one frame by a system call of the caller, such as a writev(2) from memory that cannot
    /// be borrowed. The call must write the first [`SEND_HEADER_LEN`] bytes of the frame's metadata
    /// before the frame.
    ///
    /// # Errors
    /// As [`Self::send`], derived from the call's errno.
    pub fn send_by(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Result<(), SendError> {
        write(self.fd.as_fd()).map(drop).map_err(|errno| self.send_error(errno, 1))
    }

    /// Sends at most [`MAX_PACKETS`] packets with the same metadata, each of which consists of
    /// three parts, which may be empty. Never blocks or allocates: one sendmmsg(2), and another one
    /// if the kernel stops in between.
    ///
    /// Returns how many were sent, and the error that stopped it: that packet and the following
    /// ones were not sent.
    pub fn send_packets(
        &self,
        header: &NetHeader,
        packets: &[[IoSlice<'_>; 3]],
    ) -> (usize, Result<(), SendError>) {
        let header = header.encode();
        let header = IoSlice::new(&header[..socket::VNET_HEADER_LEN]);
        let mut pieces = [[header; 4]; MAX_PACKETS];
        let Some(places) = pieces.get_mut(..packets.len()) else {
            return (0, Err(SendError::TooManyParts));
        };
        for (pieces, packet) in places.iter_mut().zip(packets) {
            pieces[1..].copy_from_slice(packet);
        }
        let SentAll { done, outcome, tries } = socket::send_all(&self.fd, &pieces, packets.len());
        (done, outcome.map_err(|errno| self.send_error(errno, tries)))
    }

    /// Frames received and dropped by this port's queue in the kernel since it was opened.
    ///
    /// # Errors
    /// If the kernel does not answer, which is not expected.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let (arrived, dropped) = socket::take_statistics(&self.fd)?;
        let received = u64::from(arrived.saturating_sub(dropped));
        let dropped = u64::from(dropped);
        // Relaxed: independent counters.
        Ok(Statistics {
            received: self.received.fetch_add(received, Ordering::Relaxed) + received,
            dropped: self.dropped.fetch_add(dropped, Ordering::Relaxed) + dropped,
        })
    }

    /// Number of refusals with [`SendError::Congested`] since the port was opened. The kernel
    /// counts each one as a drop; a frame that was refused after others in the same call was tried
    /// twice.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Index of the interface in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// MAC address of the interface when the port was opened.
    pub fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Offloads that the kernel supports for frames sent here.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Current name of the interface.
    ///
    /// # Errors
    /// If the interface was deleted.
    pub fn name(&self) -> io::Result<String> {
        Ok(netdevice::index_to_name(&self.fd, self.index)?)
    }

    /// Current MTU of the interface: the maximum payload in bytes after the Ethernet header.
    ///
    /// # Errors
    /// If the interface was deleted.
    pub fn mtu(&self) -> io::Result<u32> {
        Ok(socket::mtu(&self.fd, &self.name()?)?)
    }

    /// True if the interface is administratively up.
    ///
    /// # Errors
    /// If the interface was deleted.
    pub fn is_up(&self) -> io::Result<bool> {
        Ok(socket::flags(&self.fd, &self.name()?)? & socket::IFF_UP != 0)
    }

    /// Length in bytes of the receive queue as granted by the kernel: twice the requested one, or
    /// the system's maximum.
    ///
    /// # Errors
    /// If the kernel does not answer, which is not expected.
    pub fn receive_buffer_len(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.fd)?)
    }

    /// Changes the limit of bytes in transmission; frames already queued stay. Otherwise as
    /// [`Config::send_buffer_len`].
    ///
    /// # Errors
    /// If the kernel refuses, which is not expected.
    pub fn set_send_buffer_len(&self, len: usize) -> io::Result<()> {
        Ok(set_send_buffer(&self.fd, len)?)
    }

    /// Converts the errno of a frame that was tried `tries` times.
    #[cold]
    fn send_error(&self, errno: Errno, tries: u64) -> SendError {
        let error = SendError::new(errno);
        if error == SendError::Congested {
            // Relaxed: an independent counter.
            self.refused.fetch_add(tries, Ordering::Relaxed);
        }
        error
    }

    /// `ENETDOWN` is also reported for an interface that is being deleted.
    #[cold]
    fn recv_error(&self, errno: Errno) -> RecvError {
        match errno {
            Errno::NETDOWN if self.name().is_ok() => RecvError::Down,
            Errno::NETDOWN | Errno::NODEV | Errno::NXIO => RecvError::Gone,
            _ => RecvError::Lost { errno: errno.raw_os_error() },
        }
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PacketPort {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its metadata.
    pub header: NetHeader,
    /// Its position in the buffer: at the end of the headroom, or four bytes before.
    pub frame: Range<usize>,
}

/// Counters of the receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Frames that were queued; a train counts as one.
    pub received: u64,
    /// Frames that were lost because the queue was full.
    pub dropped: u64,
}

/// Offloads that the kernel supports for frames sent to a port, in addition to TCP trains and
/// partial checksums (Linux 2.6.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// UDP trains may be sent (Linux 6.2). Determined by a probe; without the privilege for it
    /// (`CAP_SYS_ADMIN`) assumed to be true, and sending may return [`SendError::Rejected`].
    pub send_udp_trains: bool,
}

fn set_options(fd: &OwnedFd, name: &str, config: &Config) -> Result<(), OpenError> {
    let set = |option, on, call| {
        socket::set_flag(fd, option, on).map_err(|errno| OpenError::new(name, call, errno))
    };
    set(libc::PACKET_VNET_HDR, true, "PACKET_VNET_HDR")?;
    set(libc::PACKET_AUXDATA, true, "PACKET_AUXDATA")?;
    set(socket::PACKET_IGNORE_OUTGOING, true, "PACKET_IGNORE_OUTGOING")?;
    if config.qdisc_bypass {
        set(libc::PACKET_QDISC_BYPASS, true, "PACKET_QDISC_BYPASS")?;
    }
    // Only privileged processes may exceed the system's maximum.
    sockopt::set_socket_recv_buffer_size_force(fd, config.receive_buffer_len)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, config.receive_buffer_len))
        .map_err(|errno| OpenError::new(name, "SO_RCVBUF", errno))?;
    set_send_buffer(fd, config.send_buffer_len)
        .map_err(|errno| OpenError::new(name, "SO_SNDBUF", errno))
}

fn set_send_buffer(fd: &OwnedFd, len: usize) -> rustix::io::Result<()> {
    sockopt::set_socket_send_buffer_size_force(fd, len)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, len))
}

/// Restores the frame in `buf`.
#[inline]
fn finish(message: &Message, buf: &mut [u8], headroom: usize) -> Result<Received, RecvError> {
    if message.is_cut {
        let len = usize::try_from(message.auxdata.len).unwrap_or(usize::MAX);
        return Err(RecvError::Truncated { len });
    }
    let mut header = NetHeader::decode(&message.header);
    let mut start = headroom;
    if let Some(tag) = message.auxdata.tag() {
        start = tag::insert(buf, headroom, tag).ok_or(RecvError::NoRoom)?;
        header.shift(TAG_SHIFT);
    }
    let mut frame = start..headroom + message.len;
    if header.is_train() {
        if frame.len() > MAX_FRAME_LEN {
            frame.start += jumbo::remove(&mut header, &mut buf[frame.clone()]);
        }
        list::make_train(&mut header, &mut buf[frame.clone()]);
    }
    Ok(Received { header, frame })
}

/// Minimum headroom in bytes: a tag's length.
pub const HEADROOM_MIN: usize = TAG_LEN;

/// Maximum frame length in bytes, except for "BIG TCP" trains: the largest IP packet, an Ethernet
/// header and four tags.
pub const MAX_FRAME_LEN: usize = 65_535 + HEADER_LEN + 4 * TAG_LEN;

/// Buffer length that holds any frame of [`MAX_FRAME_LEN`] after the minimum headroom. Longer ones
/// are reported as [`RecvError::Truncated`].
pub const RECV_BUF_LEN: usize = HEADROOM_MIN + MAX_FRAME_LEN;

/// Buffer length that holds any train as well: the longest of Linux (`GSO_MAX_SIZE`) with its
/// headers.
pub const BIG_RECV_BUF_LEN: usize = RECV_BUF_LEN + 8 * 65_535;

/// Bytes of metadata that a packet socket expects before a frame (`PACKET_VNET_HDR`).
pub const SEND_HEADER_LEN: usize = socket::VNET_HEADER_LEN;
/// Maximum number of parts of a sent frame: its own headers, and payload in the fragments of a
/// buffer chain.
pub const MAX_PARTS: usize = 16;
/// Maximum number of packets of one [`PacketPort::send_packets`].
pub const MAX_PACKETS: usize = 16;

/// [`TAG_LEN`] as a distance.
const TAG_SHIFT: i16 = 4;
