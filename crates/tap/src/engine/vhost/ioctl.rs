//! The ioctl(2) calls of `/dev/vhost-net` as safe functions, and nothing else
//! (`include/uapi/linux/vhost.h`, `drivers/vhost/{vhost,net}.c`).
//!
//! Only the process that called [`set_owner`] may make the other calls (`EPERM` in a child of
//! fork(2)). No safe library offers them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io;
use rustix::ioctl::{self, Getter, NoArg, Opcode, Setter, opcode};

/// Opens the device, which is one queue pair without rings.
pub(super) fn open() -> io::Result<OwnedFd> {
    rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Feature bits that the kernel supports.
pub(super) fn features(fd: impl AsFd) -> io::Result<u64> {
    // SAFETY: VHOST_GET_FEATURES writes a u64.
    let getter = unsafe { Getter::<GET_FEATURES, u64>::new() };
    // SAFETY: the u64 is inside `getter`, which outlives the call.
    unsafe { ioctl::ioctl(fd, getter) }
}

/// Sets the negotiated feature bits; `EOPNOTSUPP` for one that the kernel lacks.
pub(super) fn set_features(fd: impl AsFd, bits: u64) -> io::Result<()> {
    // SAFETY: VHOST_SET_FEATURES reads a u64.
    unsafe { set::<SET_FEATURES, u64>(fd, bits) }
}

/// Makes the worker a separate kernel thread; must precede [`set_owner`]. `ENOTTY` if the kernel
/// was built without `CONFIG_VHOST_ENABLE_FORK_OWNER_CONTROL`, `EPERM` before Linux 6.17.
pub(super) fn set_kernel_thread(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: VHOST_SET_FORK_FROM_OWNER reads a u8.
    unsafe { set::<SET_FORK_FROM_OWNER, u8>(fd, FORK_OWNER_KTHREAD) }
}

/// Starts the worker, which from then on accesses the memory of this process.
pub(super) fn set_owner(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: VHOST_SET_OWNER takes nothing.
    let call = unsafe { NoArg::<SET_OWNER>::new() };
    // SAFETY: the call refers to no memory.
    unsafe { ioctl::ioctl(fd, call) }
}

/// Sets the memory regions for buffers; descriptors contain addresses of this process.
pub(super) fn set_memory<const COUNT: usize>(
    fd: impl AsFd,
    regions: [(u64, u64); COUNT],
) -> io::Result<()> {
    let regions = regions.map(|(address, len)| MemoryRegion {
        guest_address: address,
        len,
        user_address: address,
        padding: 0,
    });
    let count = u32::try_from(COUNT).map_err(|_| io::Errno::TOOBIG)?;
    let table = Memory { count, padding: 0, regions };
    // SAFETY: VHOST_SET_MEM_TABLE reads a struct vhost_memory and as many regions as that says.
    unsafe { set::<SET_MEM_TABLE, Memory<COUNT>>(fd, table) }
}

/// Sets the number of buffers of ring `index`.
pub(super) fn set_ring_size(fd: impl AsFd, index: u32, size: u16) -> io::Result<()> {
    // SAFETY: VHOST_SET_VRING_NUM reads a struct vhost_vring_state.
    unsafe { set::<SET_VRING_NUM, RingState>(fd, RingState { index, value: size.into() }) }
}

/// Sets the start of the indices of ring `index`.
pub(super) fn set_ring_base(fd: impl AsFd, index: u32, base: u16) -> io::Result<()> {
    // SAFETY: VHOST_SET_VRING_BASE reads a struct vhost_vring_state.
    unsafe { set::<SET_VRING_BASE, RingState>(fd, RingState { index, value: base.into() }) }
}

/// Sets the addresses of descriptors, available and used ring of ring `index`. They must stay valid
/// until the back end is removed: the worker reads and writes them.
pub(super) fn set_ring_addresses(
    fd: impl AsFd,
    index: u32,
    [descriptors, avail, used]: [u64; 3],
) -> io::Result<()> {
    let addresses = RingAddresses { index, flags: 0, descriptors, used, avail, log: 0 };
    // SAFETY: VHOST_SET_VRING_ADDR reads a struct vhost_vring_addr.
    unsafe { set::<SET_VRING_ADDR, RingAddresses>(fd, addresses) }
}

/// Sets the eventfd(2) that wakes the worker for ring `index`.
pub(super) fn set_kick(fd: impl AsFd, index: u32, event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: VHOST_SET_VRING_KICK reads a struct vhost_vring_file.
    unsafe { set::<SET_VRING_KICK, RingFile>(fd, RingFile::new(index, Some(event))) }
}

/// Sets the eventfd(2) with which the worker wakes us when a buffer of ring `index` is returned.
pub(super) fn set_call(fd: impl AsFd, index: u32, event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: VHOST_SET_VRING_CALL reads a struct vhost_vring_file.
    unsafe { set::<SET_VRING_CALL, RingFile>(fd, RingFile::new(index, Some(event))) }
}

/// Sets the eventfd(2) with which the worker reports that ring `index` is broken.
pub(super) fn set_error(fd: impl AsFd, index: u32, event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: VHOST_SET_VRING_ERR reads a struct vhost_vring_file.
    unsafe { set::<SET_VRING_ERR, RingFile>(fd, RingFile::new(index, Some(event))) }
}

/// Starts ring `index` on a queue of a tap device. `None` stops it: when the call returns, the
/// worker no longer uses the ring's memory.
pub(super) fn set_backend(
    fd: impl AsFd,
    index: u32,
    queue: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    // SAFETY: VHOST_NET_SET_BACKEND reads a struct vhost_vring_file.
    unsafe { set::<NET_SET_BACKEND, RingFile>(fd, RingFile::new(index, queue)) }
}

/// Sets how long the worker polls ring `index` before it sleeps, in microseconds.
pub(super) fn set_busy_poll(fd: impl AsFd, index: u32, timeout_us: u32) -> io::Result<()> {
    let state = RingState { index, value: timeout_us };
    // SAFETY: VHOST_SET_VRING_BUSYLOOP_TIMEOUT reads a struct vhost_vring_state.
    unsafe { set::<SET_VRING_BUSYLOOP_TIMEOUT, RingState>(fd, state) }
}

/// # Safety
/// The call `OPCODE` must read a `T`, or less.
unsafe fn set<const OPCODE: Opcode, T>(fd: impl AsFd, value: T) -> io::Result<()> {
    // SAFETY: the caller promises that OPCODE takes a pointer to a `T`.
    let setter = unsafe { Setter::<OPCODE, T>::new(value) };
    // SAFETY: the value is inside `setter`, which outlives the call; the kernel only reads it.
    unsafe { ioctl::ioctl(fd, setter) }
}

/// `struct vhost_vring_state`.
#[repr(C)]
struct RingState {
    index: u32,
    value: u32,
}

/// `struct vhost_vring_file`.
#[repr(C)]
struct RingFile {
    index: u32,
    /// -1 for none.
    fd: i32,
}

impl RingFile {
    fn new(index: u32, fd: Option<BorrowedFd<'_>>) -> Self {
        Self { index, fd: fd.map_or(-1, |fd| fd.as_raw_fd()) }
    }
}

/// `struct vhost_vring_addr`.
#[repr(C)]
struct RingAddresses {
    index: u32,
    flags: u32,
    descriptors: u64,
    used: u64,
    avail: u64,
    log: u64,
}

/// `struct vhost_memory`.
#[repr(C)]
struct Memory<const COUNT: usize> {
    count: u32,
    padding: u32,
    regions: [MemoryRegion; COUNT],
}

/// `struct vhost_memory_region`.
#[repr(C)]
struct MemoryRegion {
    guest_address: u64,
    len: u64,
    user_address: u64,
    padding: u64,
}

/// Path of the device.
pub(super) const PATH: &str = "/dev/vhost-net";

const FORK_OWNER_KTHREAD: u8 = 0;

const GET_FEATURES: Opcode = opcode::read::<u64>(0xaf, 0x00);
const SET_FEATURES: Opcode = opcode::write::<u64>(0xaf, 0x00);
const SET_OWNER: Opcode = opcode::none(0xaf, 0x01);
/// The opcode contains the size of the table without its regions.
const SET_MEM_TABLE: Opcode = opcode::write::<Memory<0>>(0xaf, 0x03);
const SET_VRING_NUM: Opcode = opcode::write::<RingState>(0xaf, 0x10);
const SET_VRING_ADDR: Opcode = opcode::write::<RingAddresses>(0xaf, 0x11);
const SET_VRING_BASE: Opcode = opcode::write::<RingState>(0xaf, 0x12);
const SET_VRING_KICK: Opcode = opcode::write::<RingFile>(0xaf, 0x20);
const SET_VRING_CALL: Opcode = opcode::write::<RingFile>(0xaf, 0x21);
const SET_VRING_ERR: Opcode = opcode::write::<RingFile>(0xaf, 0x22);
const SET_VRING_BUSYLOOP_TIMEOUT: Opcode = opcode::write::<RingState>(0xaf, 0x23);
const NET_SET_BACKEND: Opcode = opcode::write::<RingFile>(0xaf, 0x30);
const SET_FORK_FROM_OWNER: Opcode = opcode::write::<u8>(0xaf, 0x84);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        // `_IOC` of x86 and Arm; other architectures encode direction and size differently.
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(GET_FEATURES, 0x8008_af00);
            assert_eq!((SET_OWNER, SET_MEM_TABLE), (0xaf01, 0x4008_af03));
            assert_eq!((SET_VRING_NUM, SET_VRING_ADDR), (0x4008_af10, 0x4028_af11));
            assert_eq!((NET_SET_BACKEND, SET_FORK_FROM_OWNER), (0x4008_af30, 0x4001_af84));
        }
    }
}
