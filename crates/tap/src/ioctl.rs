//! The ioctl(2) calls of `/dev/net/tun` as safe functions, and nothing else
//! (`include/uapi/linux/if_tun.h`, `drivers/net/tun.c`).
//!
//! There is no safe library for them. Their numbers promise an `int` whatever they really take:
//! the comment at each function says what that is.

use std::os::fd::{AsFd, OwnedFd};

use libc::c_int;
use rustix::fs::{Mode, OFlags};
use rustix::io::{self, Errno};
use rustix::ioctl::{self, IntegerSetter, Opcode, Setter, Updater, opcode};
use tapswitch_wire::{MacAddr, NET_HEADER_LEN};

/// Flags of `TUNSETIFF`.
pub(crate) mod flags {
    /// Ethernet frames.
    pub(crate) const TAP: u16 = 0x0002;
    /// Several files may attach.
    pub(crate) const MULTI_QUEUE: u16 = 0x0100;
    /// No four bytes of protocol information in front.
    pub(crate) const NO_PI: u16 = 0x1000;
    /// A virtio network header in front.
    pub(crate) const VNET_HDR: u16 = 0x4000;
    /// The device must be new.
    pub(crate) const TUN_EXCL: u16 = 0x8000;
}

/// Opens the clone device, non-blocking.
pub(crate) fn open_tun() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty())
}

/// Makes `fd` a queue of the device called `name`, which is made if it is not there.
pub(crate) fn attach(fd: impl AsFd, name: &str, flags: u16) -> io::Result<()> {
    let mut request = InterfaceRequest::named(name)?;
    request.body[..2].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: TUNSETIFF reads a struct ifreq and writes it back.
    unsafe { update::<TUNSETIFF>(fd, &mut request) }
}

/// The name of the device that `fd` is a queue of.
pub(crate) fn name(fd: impl AsFd) -> io::Result<String> {
    let mut request = InterfaceRequest::default();
    // SAFETY: TUNGETIFF writes a struct ifreq.
    unsafe { update::<TUNGETIFF>(fd, &mut request) }?;
    let name = request.name.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8(name.to_vec()).map_err(|_| Errno::ILSEQ)
}

/// The MAC address of the device.
pub(crate) fn mac(fd: impl AsFd) -> io::Result<MacAddr> {
    let mut request = InterfaceRequest::default();
    // SAFETY: SIOCGIFHWADDR writes a struct ifreq; on a tun file it looks at no name.
    unsafe { update::<SIOCGIFHWADDR>(fd, &mut request) }?;
    let [_, _, a, b, c, d, e, f, ..] = request.body;
    Ok(MacAddr([a, b, c, d, e, f]))
}

/// What the device may leave undone in what is read from it.
pub(crate) fn set_offload(fd: impl AsFd, bits: u32) -> io::Result<()> {
    let bits = usize::try_from(bits).map_err(|_| Errno::INVAL)?;
    // SAFETY: TUNSETOFFLOAD takes a number instead of a pointer.
    let setter = unsafe { IntegerSetter::<TUNSETOFFLOAD>::new_usize(bits) };
    // SAFETY: the call refers to no memory.
    unsafe { ioctl::ioctl(fd, setter) }
}

/// Length of the header in front of each frame.
pub(crate) fn set_header_len(fd: impl AsFd, len: c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads an int.
    unsafe { set_int::<TUNSETVNETHDRSZ>(fd, len) }
}

/// Headers in the machine's own byte order.
pub(crate) fn set_native_byte_order(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: TUNSETVNETLE reads an int.
    unsafe { set_int::<TUNSETVNETLE>(fd.as_fd(), 0) }?;
    // SAFETY: TUNSETVNETBE reads an int.
    match unsafe { set_int::<TUNSETVNETBE>(fd, 0) } {
        // Built without CONFIG_TUN_VNET_CROSS_LE: then it cannot have been set.
        Err(Errno::INVAL) => Ok(()),
        outcome => outcome,
    }
}

/// `struct ifreq`: a name and a union. All calls here use the union's first bytes.
#[repr(C)]
#[derive(Default)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    /// As long as the union is where pointers are 8 bytes; elsewhere it is shorter.
    body: [u8; 24],
}

impl InterfaceRequest {
    fn named(name: &str) -> io::Result<Self> {
        let mut request = Self::default();
        // The last byte stays zero: it ends the name.
        request.name[..libc::IFNAMSIZ - 1]
            .get_mut(..name.len())
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(name.as_bytes());
        Ok(request)
    }
}

/// # Safety
/// The call `OPCODE` must read and write at most a `struct ifreq`.
unsafe fn update<const OPCODE: Opcode>(
    fd: impl AsFd,
    request: &mut InterfaceRequest,
) -> io::Result<()> {
    // SAFETY: the caller promises that OPCODE takes what `InterfaceRequest` is laid out as.
    let updater = unsafe { Updater::<OPCODE, InterfaceRequest>::new(request) };
    // SAFETY: the request outlives the call, is as large as the kernel's, and any bytes are valid.
    unsafe { ioctl::ioctl(fd, updater) }
}

/// # Safety
/// The call `OPCODE` must read one `int`.
unsafe fn set_int<const OPCODE: Opcode>(fd: impl AsFd, value: c_int) -> io::Result<()> {
    // SAFETY: the caller promises that OPCODE takes a pointer to an int.
    let setter = unsafe { Setter::<OPCODE, c_int>::new(value) };
    // SAFETY: the int is inside `setter`, which outlives the call; the kernel only reads it.
    unsafe { ioctl::ioctl(fd, setter) }
}

const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<c_int>(b'T', 208);
const TUNGETIFF: Opcode = opcode::read::<c_int>(b'T', 210);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<c_int>(b'T', 216);
const TUNSETVNETLE: Opcode = opcode::write::<c_int>(b'T', 220);
const TUNSETVNETBE: Opcode = opcode::write::<c_int>(b'T', 222);
/// `include/uapi/linux/sockios.h`.
const SIOCGIFHWADDR: Opcode = 0x8927;

/// [`NET_HEADER_LEN`] as the kernel wants it.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "12 fits")]
pub(crate) const HEADER_LEN: c_int = NET_HEADER_LEN as c_int;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_large_as_the_kernels_and_ends_its_name() {
        assert!(size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());
        let request = InterfaceRequest::named("fifteen-bytes-x").unwrap();
        assert_eq!(request.name.last(), Some(&0));
        assert!(InterfaceRequest::named("sixteen-bytes-xy").is_err());
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        // `_IOW('T', 202, int)` and `_IOR('T', 210, unsigned int)` on x86 and Arm.
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!((TUNSETIFF, TUNGETIFF), (0x4004_54ca, 0x8004_54d2));
        }
    }
}
