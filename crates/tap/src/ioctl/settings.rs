//! Calls for the device as a whole: permissions, persistence, namespace, link.

use std::os::fd::{AsFd, OwnedFd};

use libc::c_int;
use rustix::io::{self, Errno};
use rustix::ioctl::{self, Getter, Ioctl, IoctlOutput, Opcode, Setter, opcode};

use super::{int, read, set_int, set_number, write};
use crate::Flags;

/// The flags that this kernel knows. The file need not be a queue of a device.
pub(crate) fn features(fd: impl AsFd) -> io::Result<Flags> {
    // SAFETY: TUNGETFEATURES writes an unsigned int.
    let getter = unsafe { Getter::<TUNGETFEATURES, u32>::new() };
    // SAFETY: the number is inside `getter`, which outlives the call.
    let bits: u32 = unsafe { ioctl::ioctl(fd, getter) }?;
    // The flags of `TUNSETIFF` have 16 bits, so there cannot be more.
    Ok(Flags::from_bits_retain((bits & 0xffff) as u16))
}

/// Sets whether the device outlives its last file.
pub(crate) fn set_persistent(fd: impl AsFd, on: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes a number.
    unsafe { set_number::<TUNSETPERSIST>(fd, on.into()) }
}

/// Sets the user who may open the device; [`u32::MAX`] is refused.
pub(crate) fn set_owner(fd: impl AsFd, user: u32) -> io::Result<()> {
    // SAFETY: TUNSETOWNER takes a number.
    unsafe { set_number::<TUNSETOWNER>(fd, user) }
}

/// Sets the group that may open the device; [`u32::MAX`] is refused.
pub(crate) fn set_group(fd: impl AsFd, group: u32) -> io::Result<()> {
    // SAFETY: TUNSETGROUP takes a number.
    unsafe { set_number::<TUNSETGROUP>(fd, group) }
}

/// Sets the link type of the interface (`ARPHRD_*`), which must be down.
pub(crate) fn set_link_type(fd: impl AsFd, link_type: u16) -> io::Result<()> {
    // SAFETY: TUNSETLINK takes a number.
    unsafe { set_number::<TUNSETLINK>(fd, link_type.into()) }
}

/// Sets the interface index, before `TUNSETIFF` creates the interface.
pub(crate) fn set_index(fd: impl AsFd, index: u32) -> io::Result<()> {
    // SAFETY: TUNSETIFINDEX reads an unsigned int.
    let setter = unsafe { Setter::<TUNSETIFINDEX, u32>::new(index) };
    // SAFETY: the number is inside `setter`, which outlives the call; the kernel only reads it.
    unsafe { ioctl::ioctl(fd, setter) }
}

/// Sets the carrier.
pub(crate) fn set_carrier(fd: impl AsFd, on: bool) -> io::Result<()> {
    // SAFETY: TUNSETCARRIER reads an unsigned int, which has the layout of an int.
    unsafe { set_int::<TUNSETCARRIER>(fd, on.into()) }
}

/// Sets the length of the send buffer in bytes; at least 1.
pub(crate) fn set_send_buffer_len(fd: impl AsFd, len: u32) -> io::Result<()> {
    let len = c_int::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: TUNSETSNDBUF reads an int.
    unsafe { set_int::<TUNSETSNDBUF>(fd, len) }
}

/// Length of the send buffer of this file in bytes.
pub(crate) fn send_buffer_len(fd: impl AsFd) -> io::Result<u32> {
    // SAFETY: TUNGETSNDBUF writes an int.
    let len = unsafe { int::<TUNGETSNDBUF>(fd) }?;
    u32::try_from(len).map_err(|_| Errno::INVAL)
}

/// The current network namespace of the device.
pub(crate) fn device_namespace(fd: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: TUNGETDEVNETNS takes no argument and returns a new descriptor that we own.
    let call = unsafe { NewFd::<TUNGETDEVNETNS>::new() };
    // SAFETY: the call refers to no memory.
    unsafe { ioctl::ioctl(fd, call) }
}

/// The network namespace in which the file was opened.
pub(crate) fn socket_namespace(fd: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: SIOCGSKNS takes no argument and returns a new descriptor that we own.
    let call = unsafe { NewFd::<SIOCGSKNS>::new() };
    // SAFETY: the call refers to no memory.
    unsafe { ioctl::ioctl(fd, call) }
}

/// A call without argument that returns a new file descriptor. (rustix has no such form.)
struct NewFd<const OPCODE: Opcode>(());

impl<const OPCODE: Opcode> NewFd<OPCODE> {
    /// # Safety
    /// The call `OPCODE` must take no argument and return a new file descriptor.
    const unsafe fn new() -> Self {
        Self(())
    }
}

// SAFETY: the opcode is a constant, there is no argument, and no memory is written.
unsafe impl<const OPCODE: Opcode> Ioctl for NewFd<OPCODE> {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut libc::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        answer: IoctlOutput,
        _: *mut libc::c_void,
    ) -> io::Result<Self::Output> {
        use std::os::fd::FromRawFd;
        // SAFETY: `new` guarantees that the result is a descriptor that nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(answer) })
    }
}

const TUNSETPERSIST: Opcode = write(203);
const TUNSETOWNER: Opcode = write(204);
const TUNSETLINK: Opcode = write(205);
const TUNSETGROUP: Opcode = write(206);
const TUNGETFEATURES: Opcode = read(207);
const TUNGETSNDBUF: Opcode = read(211);
const TUNSETSNDBUF: Opcode = write(212);
const TUNSETIFINDEX: Opcode = write(218);
const TUNSETCARRIER: Opcode = write(226);
const TUNGETDEVNETNS: Opcode = opcode::none(b'T', 227);
/// `include/uapi/linux/sockios.h`.
const SIOCGSKNS: Opcode = 0x894c;
