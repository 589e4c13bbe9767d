//! The commands of bpf(2) as safe functions, and nothing else (`include/uapi/linux/bpf.h`).
//!
//! No safe library offers them without a compiler's object files. The kernel accepts a structure
//! shorter than its own and takes the rest as zeros, so the structure of each command ends with the
//! last field used.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long};

use super::asm::Instruction;

/// Map types.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum MapType {
    Array = 2,
    PerCpuArray = 6,
}

/// Creates a map with keys 0 to `count - 1`.
pub(super) fn create_map(
    map_type: MapType,
    name: &str,
    value_len: usize,
    count: usize,
) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        map_type: map_type as u32,
        key_size: KEY_LEN,
        value_size: length(value_len)?,
        max_entries: length(count)?,
        map_flags: 0,
        inner_map_fd: 0,
        numa_node: 0,
        name: object_name(name),
    };
    // SAFETY: BPF_MAP_CREATE reads the structure and accesses no other memory.
    let fd = unsafe { bpf(BPF_MAP_CREATE, &mut attributes) }?;
    owned(fd)
}

/// Writes one value of a map.
///
/// # Safety
/// `value` must be as long as the kernel reads: the map's value length.
pub(super) unsafe fn update(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let mut attributes = MapElement::new(map, &key, value.as_ptr().expose_provenance());
    // SAFETY: the kernel reads the key, which outlives the call, and as much of the value as the
    // caller guarantees to be there.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Reads one value of a map.
///
/// # Safety
/// `value` must be as long as what the kernel writes: the map's value length, multiplied by the
/// number of possible CPUs for a per-CPU map.
pub(super) unsafe fn lookup(map: BorrowedFd<'_>, key: u32, value: &mut [u64]) -> io::Result<()> {
    let mut attributes = MapElement::new(map, &key, value.as_mut_ptr().expose_provenance());
    // SAFETY: the kernel reads the key, which outlives the call, and writes no more than the caller
    // guarantees to have room for; all bytes are valid numbers.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attributes) }.map(drop)
}

/// Loads a program of type "socket filter". The verifier's messages go to `log`, which may be
/// empty; a log that is too short fails with `ENOSPC`.
pub(super) fn load(name: &str, code: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = ProgramLoad {
        prog_type: BPF_PROG_TYPE_SOCKET_FILTER,
        insn_cnt: length(code.len())?,
        insns: address(code.as_ptr().expose_provenance()),
        license: address(LICENSE.as_ptr().expose_provenance()),
        log_level: u32::from(!log.is_empty()),
        log_size: length(log.len())?,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        name: object_name(name),
    };
    if !log.is_empty() {
        attributes.log_buf = address(log.as_mut_ptr().expose_provenance());
    }
    // SAFETY: the kernel reads `insn_cnt` instructions and the license up to its zero, and writes
    // at most `log_size` bytes to the log; all outlive the call.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &mut attributes) }?;
    owned(fd)
}

/// Runs a program `repeat` times on `data`; returns its result and the mean time in ns. `context`
/// sets the fields of the program's context that the kernel allows to be set.
pub(super) fn test_run(
    program: BorrowedFd<'_>,
    data: &[u8],
    context: &[u32],
    repeat: u32,
) -> io::Result<(u32, u32)> {
    let mut attributes = TestRun {
        prog_fd: program.as_raw_fd(),
        retval: 0,
        data_size_in: length(data.len())?,
        data_size_out: 0,
        data_in: address(data.as_ptr().expose_provenance()),
        data_out: 0,
        repeat,
        duration: 0,
        ctx_size_in: length(size_of_val(context))?,
        ctx_size_out: 0,
        ctx_in: 0,
        ctx_out: 0,
    };
    if !context.is_empty() {
        attributes.ctx_in = address(context.as_ptr().expose_provenance());
    }
    // SAFETY: the kernel reads `data_size_in` bytes of the data and `ctx_size_in` of the context,
    // which outlive the call, does not write frame or context back, as no memory is given for them,
    // and writes its result into the structure.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attributes) }?;
    Ok((attributes.retval, attributes.duration))
}

/// # Safety
/// `attributes` must be the structure of `command`, and its pointers be valid for the command.
unsafe fn bpf<T>(command: c_int, attributes: &mut T) -> io::Result<c_long> {
    let attributes: *mut T = attributes;
    // SAFETY: the caller guarantees that the structure, whose length is given, belongs to the
    // command.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

/// Converts the result of a command that creates an object.
fn owned(fd: c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created it for us (with O_CLOEXEC), and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn length(len: usize) -> io::Result<u32> {
    u32::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))
}

/// An address as the kernel's ABI represents it.
const fn address(exposed: usize) -> u64 {
    exposed as u64
}

/// A name for listings, `BPF_OBJ_NAME_LEN` long, zero-terminated.
fn object_name(name: &str) -> [u8; NAME_LEN] {
    let mut bytes = [0; NAME_LEN];
    let len = name.len().min(NAME_LEN - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; NAME_LEN],
}

#[repr(C)]
struct MapElement {
    map_fd: RawFd,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl MapElement {
    fn new(map: BorrowedFd<'_>, key: &u32, value: usize) -> Self {
        let key = address((&raw const *key).expose_provenance());
        Self { map_fd: map.as_raw_fd(), padding: 0, key, value: address(value), flags: 0 }
    }
}

#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; NAME_LEN],
}

#[repr(C)]
struct TestRun {
    prog_fd: RawFd,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
}

const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_LOOKUP_ELEM: c_int = 1;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_PROG_LOAD: c_int = 5;
const BPF_PROG_TEST_RUN: c_int = 10;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
const NAME_LEN: usize = 16;
/// Keys of arrays are 32-bit numbers.
const KEY_LEN: u32 = 4;
/// The programs call no helper that requires the GPL.
const LICENSE: &CStr = c"MIT OR Apache-2.0";
