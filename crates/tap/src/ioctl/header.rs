//! Calls for the network header and the offloads.

use std::os::fd::AsFd;

use libc::c_int;
use rustix::io::{self, Errno};
use rustix::ioctl::Opcode;

use super::{int, read, set_int, set_number, write};

/// Sets the length of the header before each frame, in bytes; Linux accepts 10 and more.
pub(crate) fn set_header_len(fd: impl AsFd, len: usize) -> io::Result<()> {
    let len = c_int::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: TUNSETVNETHDRSZ reads an int.
    unsafe { set_int::<TUNSETVNETHDRSZ>(fd, len) }
}

/// Length of the header before each frame, in bytes.
pub(crate) fn header_len(fd: impl AsFd) -> io::Result<usize> {
    // SAFETY: TUNGETVNETHDRSZ writes an int.
    let len = unsafe { int::<TUNGETVNETHDRSZ>(fd) }?;
    usize::try_from(len).map_err(|_| Errno::INVAL)
}

/// Sets the offloads for frames read from the device.
pub(crate) fn set_offload(fd: impl AsFd, bits: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number.
    unsafe { set_number::<TUNSETOFFLOAD>(fd, bits) }
}

/// Makes headers little-endian, whatever the machine's byte order.
pub(crate) fn set_little_endian(fd: impl AsFd, on: bool) -> io::Result<()> {
    // SAFETY: TUNSETVNETLE reads an int.
    unsafe { set_int::<TUNSETVNETLE>(fd, on.into()) }
}

/// True if headers are little-endian.
pub(crate) fn little_endian(fd: impl AsFd) -> io::Result<bool> {
    // SAFETY: TUNGETVNETLE writes an int.
    unsafe { int::<TUNGETVNETLE>(fd) }.map(|value| value != 0)
}

/// Makes headers big-endian; [`BYTE_ORDER_IS_FIXED`] if the kernel does not support it.
pub(crate) fn set_big_endian(fd: impl AsFd, on: bool) -> io::Result<()> {
    // SAFETY: TUNSETVNETBE reads an int.
    unsafe { set_int::<TUNSETVNETBE>(fd, on.into()) }
}

/// True if headers are big-endian.
pub(crate) fn big_endian(fd: impl AsFd) -> io::Result<bool> {
    // SAFETY: TUNGETVNETBE writes an int.
    unsafe { int::<TUNGETVNETBE>(fd) }.map(|value| value != 0)
}

/// Error of the calls for big-endian headers in a kernel without `CONFIG_TUN_VNET_CROSS_LE`.
pub(crate) const BYTE_ORDER_IS_FIXED: Errno = Errno::INVAL;

const TUNSETOFFLOAD: Opcode = write(208);
const TUNGETVNETHDRSZ: Opcode = read(215);
const TUNSETVNETHDRSZ: Opcode = write(216);
const TUNSETVNETLE: Opcode = write(220);
const TUNGETVNETLE: Opcode = read(221);
const TUNSETVNETBE: Opcode = write(222);
const TUNGETVNETBE: Opcode = read(223);
