//! Calls that set filters and the selection of queues.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::c_int;
use rustix::io::{self, Errno};
use rustix::ioctl::{self, Getter, Ioctl, IoctlOutput, Opcode, Setter, opcode};
use tapswitch_wire::MacAddr;

use super::{read, set_int, set_number, write};
use crate::ClassicInstruction;

/// Sets the addresses that the kernel may send to; returns how many it compares exactly. Zero means
/// no filter.
pub(crate) fn set_tx_filter(
    fd: impl AsFd,
    addresses: &[MacAddr],
    all_multicast: bool,
) -> io::Result<u32> {
    let count = u16::try_from(addresses.len()).map_err(|_| Errno::INVAL)?;
    // `struct tun_filter`: flags, count, addresses.
    let mut bytes = Vec::with_capacity(4 + 6 * addresses.len());
    bytes.extend_from_slice(&u16::from(all_multicast).to_ne_bytes());
    bytes.extend_from_slice(&count.to_ne_bytes());
    addresses.iter().for_each(|address| bytes.extend_from_slice(&address.0));
    // SAFETY: the call refers to `bytes`, which outlives it and holds as many addresses as it says;
    // the kernel only reads.
    unsafe { ioctl::ioctl(fd, AddressFilter(&mut bytes)) }
}

/// Attaches a classic filter to every attached queue.
pub(crate) fn attach_classic_filter(
    fd: impl AsFd,
    program: &[ClassicInstruction],
) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = SocketFilter { len, instructions: program.as_ptr().cast_mut() };
    // SAFETY: TUNATTACHFILTER reads a struct sock_fprog.
    let setter = unsafe { Setter::<TUNATTACHFILTER, SocketFilter>::new(program) };
    // SAFETY: the instructions that it points to outlive the call; the kernel copies them.
    unsafe { ioctl::ioctl(fd, setter) }
}

/// Detaches the classic filter from every attached queue.
pub(crate) fn detach_classic_filter(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: TUNDETACHFILTER ignores its argument.
    unsafe { set_number::<TUNDETACHFILTER>(fd, 0) }
}

/// Number of instructions of the classic filter that was attached last. The kernel also returns
/// their address in the memory of the program that attached it, which is of no use.
pub(crate) fn classic_filter_len(fd: impl AsFd) -> io::Result<u16> {
    // SAFETY: TUNGETFILTER writes a struct sock_fprog.
    let getter = unsafe { Getter::<TUNGETFILTER, SocketFilter>::new() };
    // SAFETY: the struct is inside `getter`, which outlives the call.
    unsafe { ioctl::ioctl(fd, getter) }.map(|program| program.len)
}

/// Sets the eBPF program that selects the queue.
pub(crate) fn set_steering(fd: impl AsFd, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
    // SAFETY: TUNSETSTEERINGEBPF reads an int.
    unsafe { set_int::<TUNSETSTEERINGEBPF>(fd, number(program)) }
}

/// Sets the eBPF program that drops and truncates.
pub(crate) fn set_filter(fd: impl AsFd, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
    // SAFETY: TUNSETFILTEREBPF reads an int.
    unsafe { set_int::<TUNSETFILTEREBPF>(fd, number(program)) }
}

/// The program's descriptor, or the value for none.
fn number(program: Option<BorrowedFd<'_>>) -> c_int {
    program.map_or(-1, |program| program.as_raw_fd())
}

/// `struct sock_fprog`.
#[repr(C)]
struct SocketFilter {
    len: u16,
    instructions: *mut ClassicInstruction,
}

/// `TUNSETTXFILTER`, whose result is its return value. (rustix has no such form.)
struct AddressFilter<'a>(&'a mut [u8]);

// SAFETY: the opcode is a constant; the argument is a struct tun_filter as `set_tx_filter` lays it
// out; the kernel writes nothing.
unsafe impl Ioctl for AddressFilter<'_> {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        TUNSETTXFILTER
    }

    fn as_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(answer: IoctlOutput, _: *mut libc::c_void) -> io::Result<u32> {
        u32::try_from(answer).map_err(|_| Errno::INVAL)
    }
}

const TUNSETTXFILTER: Opcode = write(209);
const TUNATTACHFILTER: Opcode = opcode::write::<SocketFilter>(b'T', 213);
const TUNDETACHFILTER: Opcode = opcode::write::<SocketFilter>(b'T', 214);
const TUNGETFILTER: Opcode = opcode::read::<SocketFilter>(b'T', 219);
const TUNSETSTEERINGEBPF: Opcode = read(224);
const TUNSETFILTEREBPF: Opcode = read(225);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_the_kernels() {
        assert_eq!(size_of::<SocketFilter>(), size_of::<libc::sock_fprog>());
        assert_eq!(size_of::<ClassicInstruction>(), size_of::<libc::sock_filter>());
    }

    #[test]
    fn the_steering_call_has_the_number_of_the_header() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!((TUNSETSTEERINGEBPF, TUNSETFILTEREBPF), (0x8004_54e0, 0x8004_54e1));
        }
    }
}
