//! The system calls of a tunnel's sockets as safe functions, and nothing else (udp(7), ip(7),
//! ipv6(7), socket(7)).
//!
//! rustix lacks `UDP_SEGMENT`, `UDP_GRO` and their control messages, hence the unsafe blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::{c_int, c_void, sock_extended_err, socklen_t};
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::is_unreachable;

/// Opens a UDP socket for the IP version of `remote` only.
pub(crate) fn open(remote: IpAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if remote.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

/// Opens a raw socket for GRE packets of the IP version of `remote` (`CAP_NET_RAW`).
pub(crate) fn open_gre(remote: IpAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::RAW, flags, Some(rustix::net::ipproto::GRE))
}

/// Disables reception, by a filter that refuses each packet.
pub(crate) fn set_deaf(fd: impl AsFd) -> io::Result<()> {
    let mut refuse = libc::sock_filter { code: BPF_RET_K, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut refuse };
    let (raw, level, option) = (fd.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    let (pointer, len) = ((&raw const program).cast(), len_of::<libc::sock_fprog>());
    // SAFETY: pointer and length describe `program`, which points to one instruction, as its length
    // states; both outlive the call, which only reads them.
    let outcome = unsafe { libc::setsockopt(raw, level, option, pointer, len) };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

/// Lets the socket be bound to an address without a port, so that it can be bound again (Linux
/// 4.2).
pub(crate) fn set_no_port(fd: impl AsFd) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// The address that the socket is bound to.
pub(crate) fn local_address(fd: impl AsFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd)?)
}

/// Disables fragmentation, on this host and on the path (`IP_PMTUDISC_DO`).
pub(crate) fn set_no_fragments(fd: impl AsFd, remote: IpAddr) -> io::Result<()> {
    match remote {
        IpAddr::V4(_) => set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        IpAddr::V6(_) => {
            set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
        }
    }
}

/// Makes the socket report datagrams dropped by the queue of the underlying interface (`ENOBUFS`),
/// which Linux does not do otherwise (`udp_send_skb`). Errors are then queued: see
/// [`drain_errors`].
pub(crate) fn set_errors_told(fd: impl AsFd, remote: IpAddr) -> io::Result<()> {
    match remote {
        IpAddr::V4(_) => set(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        IpAddr::V6(_) => set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    }
}

/// Sends with a checksum over IPv4, the default of sockets, or with zero instead (`SO_NO_CHECK`).
pub(crate) fn set_checksum(fd: impl AsFd, is_on: bool) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, c_int::from(!is_on))
}

/// Receives datagrams of one flow together (Linux 5.0). Older kernels deliver them individually.
pub(crate) fn set_gro(fd: impl AsFd) -> io::Result<()> {
    set(fd, libc::SOL_UDP, UDP_GRO, 1)
}

/// Receives the type of service or traffic class, which contains the marks of routers (RFC 3168).
pub(crate) fn set_class_told(fd: impl AsFd, remote: IpAddr) -> io::Result<()> {
    match remote {
        IpAddr::V4(_) => set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
        IpAddr::V6(_) => set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
    }
}

/// Path MTU to `remote`, the address that the socket is connected to, in bytes.
///
/// The kernel uses the route that the socket used last, even if its interface has gone down since
/// (`__sk_dst_get` in Linux `net/ipv4/ip_sockglue.c`; it then returns 68). Connecting the socket
/// again repeats the route lookup.
pub(crate) fn path_mtu(fd: impl AsFd, remote: SocketAddr) -> io::Result<u32> {
    let (level, option) = match remote {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    rustix::net::connect(&fd, &remote)?;
    let [mtu] = ask::<1>(fd, level, option)?;
    Ok(mtu)
}

/// Number of datagrams that the kernel dropped at this socket (`SO_MEMINFO`, Linux 4.12).
pub(crate) fn dropped(fd: impl AsFd) -> io::Result<u32> {
    let info = ask::<MEMINFO_COUNT>(fd, libc::SOL_SOCKET, SO_MEMINFO)?;
    Ok(info[MEMINFO_DROPS])
}

/// Result of one recvmsg(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Length of all datagrams in bytes.
    pub(crate) len: usize,
    /// Length of each but the last one, if there may be several.
    pub(crate) stride: Option<usize>,
    pub(crate) is_cut: bool,
    /// Type of service or traffic class of all of them: the kernel does not join datagrams that
    /// differ in it.
    pub(crate) class: u8,
}

/// Receives contiguous datagrams into `parts`.
#[inline]
pub(crate) fn recv(fd: impl AsFd, parts: &mut [IoSliceMut<'_>]) -> io::Result<Message> {
    let mut control = [Control::default(); 2];
    // SAFETY: (some C libraries pad the struct with private fields, so it cannot be constructed
    // directly.) It consists of integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr().cast();
    message.msg_iovlen = parts.len() as _;
    message.msg_control = (&raw mut control).cast::<c_void>();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: IoSliceMut has the layout of struct iovec (its documentation). Each pointer in
    // `message` has the length of its memory, which outlives the call, is not borrowed elsewhere,
    // and any bytes are valid in it.
    let len = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| last_error())?;
    let is_cut = message.msg_flags & libc::MSG_TRUNC != 0;
    let stride = control.iter().find_map(|it| it.value(libc::SOL_UDP, UDP_GRO));
    let class = control.iter().find_map(Control::class).unwrap_or_default();
    Ok(Message { len, stride, is_cut, class })
}

/// Sends `parts` as one datagram, with these control messages.
#[inline]
pub(crate) fn send(fd: impl AsFd, parts: &[IoSlice<'_>], control: &[u8]) -> io::Result<usize> {
    if control.is_empty() { rustix::io::writev(fd, parts) } else { sendmsg(fd, parts, control) }
}

/// Sends the contiguous datagrams in `parts`, each of `stride` bytes except the last one, with
/// these control messages.
#[inline]
pub(crate) fn send_segments(
    fd: impl AsFd,
    parts: &[IoSlice<'_>],
    stride: u16,
    control: &[u8],
) -> io::Result<()> {
    let mut both = [0; 2 * CONTROL_LEN];
    both[..CONTROL_LEN].copy_from_slice(&Control::segment(stride).bytes());
    let len = CONTROL_LEN + control.len();
    both.get_mut(CONTROL_LEN..len).ok_or(Errno::TOOBIG)?.copy_from_slice(control);
    sendmsg(fd, parts, &both[..len]).map(drop)
}

fn sendmsg(fd: impl AsFd, parts: &[IoSlice<'_>], control: &[u8]) -> io::Result<usize> {
    let message = message_of(parts, control);
    // SAFETY: each pointer in `message` has the length of its memory, which outlives the call; the
    // kernel only reads it.
    let sent = unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent).map_err(|_| last_error())
}

/// A message to send, valid as long as the memory that it points to.
#[inline]
fn message_of(parts: &[IoSlice<'_>], control: &[u8]) -> libc::msghdr {
    // SAFETY: as in `recv`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // IoSlice has the layout of struct iovec (its documentation).
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    if !control.is_empty() {
        message.msg_control = control.as_ptr().cast_mut().cast::<c_void>();
        message.msg_controllen = control.len() as _;
    }
    message
}

/// Sends each of `messages`, in order, until one fails, with its control messages from `control`.
/// Returns the number of sent ones, and the error.
pub(crate) fn send_each<'a, const PIECES: usize>(
    fd: impl AsFd,
    messages: &[[IoSlice<'_>; PIECES]],
    control: impl Fn(&[IoSlice<'_>; PIECES]) -> &'a [u8],
) -> (usize, io::Result<()>) {
    let mut count = 0;
    while count < messages.len() {
        match send_some(&fd, &messages[count..], &control) {
            Ok(sent) => count += sent,
            Err(errno) => return (count, Err(errno)),
        }
    }
    (count, Ok(()))
}

/// One sendmmsg(2). It reports an error only for the first message.
fn send_some<'a, const PIECES: usize>(
    fd: impl AsFd,
    messages: &[[IoSlice<'_>; PIECES]],
    control: impl Fn(&[IoSlice<'_>; PIECES]) -> &'a [u8],
) -> io::Result<usize> {
    // SAFETY: as in `recv`.
    let mut headers: [libc::mmsghdr; SEND_COUNT] = unsafe { mem::zeroed() };
    let mut count = 0;
    for (header, pieces) in headers.iter_mut().zip(messages) {
        header.msg_hdr = message_of(pieces, control(pieces));
        count += 1;
    }
    let raw = fd.as_fd().as_raw_fd();
    // SAFETY: `count` of the headers are set, as in `sendmsg`; the kernel writes only to these, the
    // accepted lengths.
    let sent = unsafe { libc::sendmmsg(raw, headers.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| last_error())
}

/// The control message that sends a datagram to `remote` with this type of service or traffic
/// class.
pub(crate) fn class_control(remote: IpAddr, class: u8) -> [u8; CONTROL_LEN] {
    let (level, kind) = match remote {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    let [a, b, c, d] = c_int::from(class).to_ne_bytes();
    let len = size_of::<libc::cmsghdr>() + size_of::<c_int>();
    Control { len, level, kind, value: [a, b, c, d, 0, 0, 0, 0] }.bytes()
}

/// Errors that report an unreachable destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreachable {
    /// About packets of this tunnel.
    pub(crate) own: u64,
    /// About packets of others: a raw socket gets errors of all packets of its protocol.
    pub(crate) others: u64,
}

/// Empties the socket's error queue, so that it does not fill up and the next call reports no old
/// error. `is_own` decides whether the quoted packet, after the headers that the kernel adds,
/// belongs to the tunnel.
#[cold]
pub(crate) fn drain_errors(fd: impl AsFd, is_own: impl Fn(&[u8]) -> bool) -> Unreachable {
    let raw = fd.as_fd().as_raw_fd();
    let mut unreachable = Unreachable::default();
    let mut quoted = [0; QUOTED_LEN];
    for _ in 0..ERRORS_MAX {
        // SAFETY: `ErrorControl` and the struct consist of integers and pointers, for which zeros
        // are valid.
        let (mut control, mut message): (ErrorControl, libc::msghdr) = unsafe { mem::zeroed() };
        message.msg_control = (&raw mut control).cast::<c_void>();
        message.msg_controllen = size_of::<ErrorControl>() as _;
        let mut room = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: QUOTED_LEN };
        (message.msg_iov, message.msg_iovlen) = (&raw mut room, 1);
        // SAFETY: the pointers set in `message` have the length of `control` and of the single
        // `room`, which is that of `quoted`; any bytes are valid in all of them, and they outlive
        // the call.
        let len = unsafe { libc::recvmsg(raw, &raw mut message, libc::MSG_ERRQUEUE) };
        let Ok(len) = usize::try_from(len) else { break };
        if control.is_unreachable() {
            match is_own(&quoted[..len.min(QUOTED_LEN)]) {
                true => unreachable.own += 1,
                false => unreachable.others += 1,
            }
        }
    }
    unreachable
}

/// Room for the control message of an error, and for the address that the kernel appends.
#[repr(C)]
struct ErrorControl {
    len: usize,
    level: c_int,
    kind: c_int,
    error: sock_extended_err,
    offender: [u8; size_of::<libc::sockaddr_in6>() + 4],
}

impl ErrorControl {
    /// Errors about a datagram that is too long, or that the kernel itself could not send, do not
    /// count as unreachable.
    fn is_unreachable(&self) -> bool {
        let is_error = matches!(
            (self.level, self.kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        let is_icmp =
            matches!(self.error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
        let errno = c_int::try_from(self.error.ee_errno).map(Errno::from_raw_os_error);
        is_error && is_icmp && errno.is_ok_and(is_unreachable)
    }
}

/// Room for one control message of an `int` or less, in the kernel's layout: `struct cmsghdr` and
/// its data, padded.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Control {
    len: usize,
    level: c_int,
    kind: c_int,
    value: [u8; 8],
}

impl Control {
    /// `UDP_SEGMENT`, which takes 16 bits.
    fn segment(stride: u16) -> Self {
        let [a, b] = stride.to_ne_bytes();
        let value = [a, b, 0, 0, 0, 0, 0, 0];
        Self { len: size_of::<libc::cmsghdr>() + 2, level: libc::SOL_UDP, kind: UDP_SEGMENT, value }
    }

    /// Their bytes in memory.
    fn bytes(&self) -> [u8; CONTROL_LEN] {
        let Self { len, level, kind, value } = self;
        let fields = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), value];
        let mut bytes = [0; CONTROL_LEN];
        let mut rest = &mut bytes[..];
        for field in fields {
            let (place, behind) = rest.split_at_mut(field.len());
            place.copy_from_slice(field);
            rest = behind;
        }
        bytes
    }

    /// The number in a message of this kind, if the kernel wrote one.
    #[inline]
    fn value(&self, level: c_int, kind: c_int) -> Option<usize> {
        let [a, b, c, d, ..] = self.value;
        let is_it = (self.level, self.kind) == (level, kind);
        is_it.then(|| usize::try_from(c_int::from_ne_bytes([a, b, c, d])).ok()).flatten()
    }

    /// The type of service, of one byte, or the traffic class, if this is one.
    #[inline]
    fn class(&self) -> Option<u8> {
        match (self.level, self.kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) => Some(self.value[0]),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let class = self.value(libc::IPPROTO_IPV6, libc::IPV6_TCLASS)?;
                u8::try_from(class).ok()
            }
            _ => None,
        }
    }
}

fn set(fd: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let raw = fd.as_fd().as_raw_fd();
    let len = len_of::<c_int>();
    // SAFETY: pointer and length describe `value`, which outlives the call; the kernel only reads
    // it.
    let outcome = unsafe { libc::setsockopt(raw, level, option, (&raw const value).cast(), len) };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

fn ask<const COUNT: usize>(fd: impl AsFd, level: c_int, option: c_int) -> io::Result<[u32; COUNT]> {
    let mut values = [0; COUNT];
    let mut len = len_of::<[u32; COUNT]>();
    let raw = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes to `values`, in which any bytes are valid, and
    // the length to `len`; both outlive the call.
    let outcome =
        unsafe { libc::getsockopt(raw, level, option, (&raw mut values).cast(), &raw mut len) };
    if outcome == 0 { Ok(values) } else { Err(last_error()) }
}

#[expect(clippy::cast_possible_truncation, reason = "used for types of a few bytes")]
const fn len_of<T>() -> socklen_t {
    size_of::<T>() as socklen_t
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

// `include/uapi/linux/udp.h`, `include/uapi/asm-generic/socket.h`,
// `include/uapi/linux/sock_diag.h`.
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;
const SO_MEMINFO: c_int = 55;
/// Returns a constant (`BPF_RET | BPF_K`).
const BPF_RET_K: u16 = 0x06;
const MEMINFO_COUNT: usize = 9;
const MEMINFO_DROPS: usize = 8;
/// Length of one control message with padding.
pub(crate) const CONTROL_LEN: usize = size_of::<Control>();
/// Number of messages of one sendmmsg(2).
const SEND_COUNT: usize = 16;
/// Number of evaluated bytes of a packet quoted in an error: the headers before a frame.
const QUOTED_LEN: usize = crate::PREFIX_MAX;
/// Maximum number of errors read at once; more may be queued.
const ERRORS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_laid_out_as_the_kernels() {
        assert_eq!(mem::offset_of!(Control, value), size_of::<libc::cmsghdr>());
        // SAFETY: (no pointer is involved: the C macro computes a length.)
        let space = unsafe { libc::CMSG_SPACE(4) };
        assert_eq!(size_of::<Control>(), space as usize);
        assert_eq!(Control::default().value(libc::SOL_UDP, UDP_GRO), None);
        assert_eq!(Control::segment(1458).value(libc::SOL_UDP, UDP_SEGMENT), Some(1458));
        assert_eq!(mem::offset_of!(ErrorControl, error), size_of::<libc::cmsghdr>());
        let bytes = Control::segment(1458).bytes();
        let at = mem::offset_of!(Control, value);
        assert_eq!(bytes[at..at + 2], 1458u16.to_ne_bytes());
    }
}
