//! The system calls of a packet socket as safe functions, and nothing else (packet(7),
//! netdevice(7)).
//!
//! rustix lacks the address, options and control messages of this family, hence the unsafe blocks.

use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};
use rustix::io::{self, Errno};
use rustix::ioctl::{self, Opcode, Updater};
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sendmmsg,
};

use crate::tag::Auxdata;

/// Opens a packet socket that receives nothing until it is bound.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
}

/// Binds to every protocol on the interface with `index`.
pub(crate) fn bind(fd: impl AsFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: AF_PACKET,
        sll_protocol: ETH_P_ALL.to_be(),
        sll_ifindex: c_int::try_from(index).map_err(|_| Errno::NODEV)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the pointer and the length are those of `address`, which outlives the call.
    let outcome = unsafe {
        libc::bind(fd.as_fd().as_raw_fd(), (&raw const address).cast(), len_of(&address))
    };
    check(outcome)
}

/// Sets an option of level `SOL_PACKET` that is an `int`.
pub(crate) fn set_flag(fd: impl AsFd, option: c_int, on: bool) -> io::Result<()> {
    set_option(fd, option, &c_int::from(on))
}

/// Puts the interface with `index` into promiscuous mode while the socket is open.
pub(crate) fn set_promiscuous(fd: impl AsFd, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: c_int::try_from(index).map_err(|_| Errno::NODEV)?,
        mr_type: PACKET_MR_PROMISC,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Frames received (including dropped ones) and dropped since the last call.
pub(crate) fn take_statistics(fd: impl AsFd) -> io::Result<(u32, u32)> {
    let mut counts = [0u32; 2];
    let mut len = len_of(&counts);
    // SAFETY: the kernel writes at most `len` bytes to `counts` (struct tpacket_stats is two
    // unsigned ints) and the length to `len`; both outlive the call.
    let outcome = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counts).cast(),
            &raw mut len,
        )
    };
    check(outcome)?;
    Ok((counts[0], counts[1]))
}

/// Result of one recvmsg(2).
pub(crate) struct Message {
    /// The virtio network header, [`VNET_HEADER_LEN`] bytes and two of zero.
    pub(crate) header: [u8; tapswitch_wire::NET_HEADER_LEN],
    /// Length of the part of the frame that is in the buffer.
    pub(crate) len: usize,
    pub(crate) is_cut: bool,
    pub(crate) auxdata: Auxdata,
}

/// Receives one frame into `room`.
#[inline]
pub(crate) fn recv(fd: impl AsFd, room: &mut [u8]) -> io::Result<Message> {
    let mut header = [0; tapswitch_wire::NET_HEADER_LEN];
    let mut control = Control::default();
    let mut parts = [
        libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: VNET_HEADER_LEN },
        libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
    ];
    // SAFETY: (some C libraries pad the struct with private fields, so it cannot be constructed
    // directly.) It consists of integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    message.msg_control = (&raw mut control).cast::<c_void>();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: each pointer in `message` has the length of its memory, which outlives the call, is
    // not borrowed elsewhere, and any bytes are valid in it.
    let len = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| last_error())?;
    Ok(Message {
        header,
        len: len.saturating_sub(VNET_HEADER_LEN),
        is_cut: message.msg_flags & libc::MSG_TRUNC != 0,
        auxdata: control.auxdata()?,
    })
}

/// Result of [`send_all`].
pub(crate) struct SentAll {
    /// Number of messages that were sent.
    pub(crate) done: usize,
    /// The error that stopped it.
    pub(crate) outcome: io::Result<()>,
    /// Number of attempts for the one that failed.
    pub(crate) tries: u64,
}

/// Sends the first `count` of `messages`, in order, until one fails.
pub(crate) fn send_all<const N: usize, const PIECES: usize>(
    fd: impl AsFd,
    messages: &[[IoSlice<'_>; PIECES]; N],
    count: usize,
) -> SentAll {
    let mut controls: [_; N] = std::array::from_fn(|_| SendAncillaryBuffer::default());
    let mut pieces = messages.iter();
    let mut headers = controls.each_mut().map(|control| {
        let pieces = pieces.next().map_or(&[][..], |pieces| pieces);
        MMsgHdr::new(pieces, control)
    });
    let Some(headers) = headers.get_mut(..count) else {
        return SentAll { done: 0, outcome: Err(Errno::INVAL), tries: 0 };
    };
    let (mut done, mut tries) = (0, 0);
    while let Some(rest) = headers.get_mut(done..).filter(|rest| !rest.is_empty()) {
        // It reports an error only for the first message; so those before it are subtracted, and
        // one after them that failed is tried again.
        match sendmmsg(&fd, rest, SendFlags::empty()) {
            Ok(sent) => (done, tries) = (done + sent, u64::from(sent < rest.len())),
            Err(errno) => return SentAll { done, outcome: Err(errno), tries: tries + 1 },
        }
    }
    SentAll { done, outcome: Ok(()), tries }
}

/// Room for the one requested control message, in the kernel's layout: a `struct cmsghdr` and its
/// data.
#[derive(Default)]
#[repr(C)]
struct Control {
    len: usize,
    level: c_int,
    kind: c_int,
    auxdata: Auxdata,
}

impl Control {
    /// A frame whose tag is unknown must not be delivered.
    #[inline]
    fn auxdata(&self) -> io::Result<Auxdata> {
        if self.level == libc::SOL_PACKET && self.kind == libc::PACKET_AUXDATA {
            Ok(self.auxdata)
        } else {
            Err(Errno::PROTO)
        }
    }
}

/// The hardware type (`ARPHRD_*`) and address of the interface called `name`.
pub(crate) fn hardware(fd: impl AsFd, name: &str) -> io::Result<(u16, [u8; 6])> {
    let [t0, t1, a, b, c, d, e, f, ..] = ask::<SIOCGIFHWADDR>(fd, name, [0; 24])?;
    Ok((u16::from_ne_bytes([t0, t1]), [a, b, c, d, e, f]))
}

/// The MTU of the interface called `name` in bytes.
pub(crate) fn mtu(fd: impl AsFd, name: &str) -> io::Result<u32> {
    let [a, b, c, d, ..] = ask::<SIOCGIFMTU>(fd, name, [0; 24])?;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// The flags (`IFF_*`) of the interface called `name`.
pub(crate) fn flags(fd: impl AsFd, name: &str) -> io::Result<u16> {
    let [a, b, ..] = ask::<SIOCGIFFLAGS>(fd, name, [0; 24])?;
    Ok(u16::from_ne_bytes([a, b]))
}

/// Sets the flags of the interface called `name`.
pub(crate) fn set_flags(fd: impl AsFd, name: &str, flags: u16) -> io::Result<()> {
    let mut body = [0; 24];
    body[..2].copy_from_slice(&flags.to_ne_bytes());
    ask::<SIOCSIFFLAGS>(fd, name, body).map(drop)
}

/// `struct ifreq`: a name and a union, as long as with 8-byte pointers.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    body: [u8; 24],
}

/// Makes the call `OPCODE`, one of those below, and returns the union.
fn ask<const OPCODE: Opcode>(fd: impl AsFd, name: &str, body: [u8; 24]) -> io::Result<[u8; 24]> {
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], body };
    // The last byte stays zero to terminate the name.
    request.name[..libc::IFNAMSIZ - 1]
        .get_mut(..name.len())
        .ok_or(Errno::NODEV)?
        .copy_from_slice(name.as_bytes());
    // SAFETY: all calls of netdevice(7) below take a struct ifreq, the layout of this type.
    let update = unsafe { Updater::<OPCODE, InterfaceRequest>::new(&mut request) };
    // SAFETY: they read and write no other memory; the request outlives the call, and any bytes
    // are valid in it.
    unsafe { ioctl::ioctl(fd, update) }?;
    Ok(request.body)
}

fn set_option<T>(fd: impl AsFd, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which outlives the call; the kernel
    // only reads it.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            len_of(value),
        )
    };
    check(outcome)
}

#[expect(clippy::cast_possible_truncation, reason = "used for types of a few bytes")]
const fn len_of<T>(_: &T) -> socklen_t {
    size_of::<T>() as socklen_t
}

fn check(outcome: c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Length of the virtio network header on the socket in bytes (`PACKET_VNET_HDR`). The two
/// additional bytes of `PACKET_VNET_HDR_SZ` (Linux 6.4) have no use here.
pub(crate) const VNET_HEADER_LEN: usize = 10;

/// Hardware type of Ethernet (`include/uapi/linux/if_arp.h`).
pub(crate) const ARPHRD_ETHER: u16 = 1;
/// The interface is up (`include/uapi/linux/if.h`).
pub(crate) const IFF_UP: u16 = 1;
/// Linux 4.20 (`include/uapi/linux/if_packet.h`).
pub(crate) const PACKET_IGNORE_OUTGOING: c_int = 23;

#[expect(clippy::cast_possible_truncation, reason = "17")]
const AF_PACKET: u16 = libc::AF_PACKET as u16;
#[expect(clippy::cast_possible_truncation, reason = "3")]
const ETH_P_ALL: u16 = libc::ETH_P_ALL as u16;
const PACKET_MR_PROMISC: u16 = 1;

// `include/uapi/linux/sockios.h`.
const SIOCGIFFLAGS: Opcode = 0x8913;
const SIOCSIFFLAGS: Opcode = 0x8914;
const SIOCGIFMTU: Opcode = 0x8921;
const SIOCGIFHWADDR: Opcode = 0x8927;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_laid_out_as_the_kernels() {
        assert!(size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());
        assert_eq!(size_of::<Auxdata>(), size_of::<libc::tpacket_auxdata>());
        assert_eq!(mem::offset_of!(Control, auxdata), size_of::<libc::cmsghdr>());
    }

    #[test]
    fn a_frame_without_its_control_message_is_refused() {
        assert_eq!(Control::default().auxdata(), Err(Errno::PROTO));
    }
}
