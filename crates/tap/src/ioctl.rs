//! The ioctl(2) calls of `/dev/net/tun` as safe functions, and nothing else
//! (`include/uapi/linux/if_tun.h`, `drivers/net/tun.c`).
//!
//! No safe library offers them. The opcodes encode an `int` whatever the call really takes, which
//! the comment at each function states. All except [`features`] and [`socket_namespace`] take the
//! RTNL lock, so they are for set-up only.
//!
//! Omitted: `TUNSETNOCSUM`, which does nothing, and `TUNSETDEBUG`, which makes the driver write to
//! the kernel's log.

mod filter;
mod header;
mod interface;
mod settings;

use std::os::fd::{AsFd, OwnedFd};

use libc::c_int;
use rustix::fs::{Mode, OFlags};
use rustix::io;
use rustix::ioctl::{self, Getter, IntegerSetter, Opcode, Setter, opcode};

pub(crate) use filter::{
    attach_classic_filter, classic_filter_len, detach_classic_filter, set_filter, set_steering,
    set_tx_filter,
};
pub(crate) use header::{
    BYTE_ORDER_IS_FIXED, big_endian, header_len, little_endian, set_big_endian, set_header_len,
    set_little_endian, set_offload,
};
pub(crate) use interface::{attach, hardware_address, interface, set_hardware_address, set_queue};
pub(crate) use settings::{
    device_namespace, features, send_buffer_len, set_carrier, set_group, set_index, set_link_type,
    set_owner, set_persistent, set_send_buffer_len, socket_namespace,
};

/// Opens the clone device, non-blocking.
pub(crate) fn open_tun() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty())
}

/// # Safety
/// The call `OPCODE` must read one `int`.
unsafe fn set_int<const OPCODE: Opcode>(fd: impl AsFd, value: c_int) -> io::Result<()> {
    // SAFETY: the caller promises that OPCODE takes a pointer to an int.
    let setter = unsafe { Setter::<OPCODE, c_int>::new(value) };
    // SAFETY: the int is inside `setter`, which outlives the call; the kernel only reads it.
    unsafe { ioctl::ioctl(fd, setter) }
}

/// # Safety
/// The call `OPCODE` must write one `int` when it succeeds.
unsafe fn int<const OPCODE: Opcode>(fd: impl AsFd) -> io::Result<c_int> {
    // SAFETY: the caller promises that OPCODE takes a pointer to an int.
    let getter = unsafe { Getter::<OPCODE, c_int>::new() };
    // SAFETY: the int is inside `getter`, which outlives the call.
    unsafe { ioctl::ioctl(fd, getter) }
}

/// # Safety
/// The call `OPCODE` must take a number instead of a pointer.
unsafe fn set_number<const OPCODE: Opcode>(fd: impl AsFd, number: u32) -> io::Result<()> {
    let number = usize::try_from(number).map_err(|_| io::Errno::INVAL)?;
    // SAFETY: the caller promises that OPCODE takes a number.
    let setter = unsafe { IntegerSetter::<OPCODE>::new_usize(number) };
    // SAFETY: the call refers to no memory.
    unsafe { ioctl::ioctl(fd, setter) }
}

const fn write(number: u8) -> Opcode {
    opcode::write::<c_int>(b'T', number)
}

const fn read(number: u8) -> Opcode {
    opcode::read::<c_int>(b'T', number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        // `_IOW('T', 202, int)` and `_IOR('T', 210, unsigned int)` on x86 and Arm.
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!((write(202), read(210)), (0x4004_54ca, 0x8004_54d2));
        }
    }
}
