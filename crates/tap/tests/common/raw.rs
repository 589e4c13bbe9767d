//! `/dev/net/tun` without the crate: actions of other programs on devices.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Opens a file and makes it a queue of `name`, in the namespace of the calling thread. Panics if
/// the kernel refuses.
pub(crate) fn open(name: &str, flags: u16) -> OwnedFd {
    try_open(name, flags).unwrap()
}

pub(crate) fn try_open(name: &str, flags: u16) -> io::Result<OwnedFd> {
    let path = CString::new("/dev/net/tun").unwrap();
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    checked(fd)?;
    // SAFETY: the descriptor is new and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes a struct ifreq of 40 bytes, which outlives the call.
    let outcome = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF as _, request.as_mut_ptr()) };
    checked(outcome)?;
    Ok(fd)
}

/// A call that reads or writes one int.
pub(crate) fn int(fd: &impl AsRawFd, call: u64, value: &mut i32) -> io::Result<()> {
    // SAFETY: the calls of the tests access one int, which outlives them.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), call as _, std::ptr::from_mut(value)) })
}

/// A call that takes a number.
pub(crate) fn number(fd: &impl AsRawFd, call: u64, value: i64) -> io::Result<()> {
    // SAFETY: the calls of the tests access no memory.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), call as _, value) })
}

/// Attaches a classic filter that keeps every frame whole. It has the same address whenever Linux
/// looks for it again: when a queue attaches, it is read from the memory of *that* program.
pub(crate) fn attach_classic_filter(fd: &impl AsRawFd) -> io::Result<()> {
    static KEEP: libc::sock_filter = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
    let program = libc::sock_fprog { len: 1, filter: (&raw const KEEP).cast_mut() };
    // SAFETY: TUNATTACHFILTER reads a struct sock_fprog and its instruction, which outlive it.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), TUNATTACHFILTER as _, &raw const program) })
}

/// Passes only frames to `address`.
pub(crate) fn set_tx_filter(fd: &impl AsRawFd, address: [u8; 6]) {
    let mut filter = [0_u8; 10];
    filter[2..4].copy_from_slice(&1_u16.to_ne_bytes());
    filter[4..].copy_from_slice(&address);
    // SAFETY: TUNSETTXFILTER reads a struct tun_filter with one address, which outlives the call.
    let count = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETTXFILTER as _, filter.as_ptr()) };
    assert_eq!(count, 1, "{}", io::Error::last_os_error());
}

/// An eBPF socket filter that always returns `value`; `None` if this is not permitted.
pub(crate) fn bpf_return(value: i32) -> Option<OwnedFd> {
    // `r0 = value; exit`.
    let [a, b, c, d] = value.to_ne_bytes();
    let program = [0xb7, 0, 0, 0, a, b, c, d, 0x95, 0, 0, 0, 0, 0, 0, 0_u8];
    bpf_load(BPF_PROG_TYPE_SOCKET_FILTER, &program).ok()
}

/// Makes XDP redirect every frame received on the interface `from` to the interface `to`, both by
/// index in the namespace of the calling thread, until the result is dropped.
pub(crate) fn redirect_by_xdp(from: u32, to: u32) -> io::Result<OwnedFd> {
    // `r1 = to; r2 = 0; r0 = bpf_redirect(r1, r2); exit`.
    let [a, b, c, d] = to.to_ne_bytes();
    let program = [
        [0xb7, 1, 0, 0, a, b, c, d],
        [0xb7, 2, 0, 0, 0, 0, 0, 0],
        [0x85, 0, 0, 0, 23, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0_u8],
    ];
    let program = bpf_load(BPF_PROG_TYPE_XDP, program.as_flattened())?;
    let program = u32::try_from(program.as_raw_fd()).unwrap();
    let mut attributes = [0_u8; 64];
    for (place, value) in [program, from, BPF_XDP, XDP_FLAGS_DRV_MODE].into_iter().enumerate() {
        attributes[4 * place..][..4].copy_from_slice(&value.to_ne_bytes());
    }
    // SAFETY: BPF_LINK_CREATE reads attributes of 64 bytes, which outlive the call.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }
}

fn bpf_load(kind: u32, program: &[u8]) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let mut attributes = [0_u8; 128];
    attributes[0..4].copy_from_slice(&kind.to_ne_bytes());
    attributes[4..8].copy_from_slice(&u32::try_from(program.len() / 8).unwrap().to_ne_bytes());
    attributes[8..16].copy_from_slice(&(program.as_ptr() as u64).to_ne_bytes());
    attributes[16..24].copy_from_slice(&(license.as_ptr() as u64).to_ne_bytes());
    // SAFETY: BPF_PROG_LOAD reads attributes of 128 bytes, and program and licence by the addresses
    // in them; all outlive the call.
    unsafe { bpf(BPF_PROG_LOAD, &attributes) }
}

/// # Safety
/// `attributes` must be those of `command`, and their pointers be valid for the call.
unsafe fn bpf(command: i32, attributes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees it.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    checked(fd)?;
    // SAFETY: the descriptor is new and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(outcome: i32) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) const TUN: u16 = 0x0001;
pub(crate) const TAP: u16 = 0x0002;
pub(crate) const MULTI_QUEUE: u16 = 0x0100;
pub(crate) const NO_PI: u16 = 0x1000;
pub(crate) const VNET_HDR: u16 = 0x4000;

const TUNSETIFF: u64 = 0x4004_54ca;
pub(crate) const TUNSETPERSIST: u64 = 0x4004_54cb;
pub(crate) const TUNSETOWNER: u64 = 0x4004_54cc;
pub(crate) const TUNSETLINK: u64 = 0x4004_54cd;
pub(crate) const TUNSETGROUP: u64 = 0x4004_54ce;
pub(crate) const TUNSETOFFLOAD: u64 = 0x4004_54d0;
const TUNSETTXFILTER: u64 = 0x4004_54d1;
pub(crate) const TUNGETSNDBUF: u64 = 0x8004_54d3;
pub(crate) const TUNSETSNDBUF: u64 = 0x4004_54d4;
const TUNATTACHFILTER: u64 = 0x4010_54d5;
pub(crate) const TUNGETVNETHDRSZ: u64 = 0x8004_54d7;
pub(crate) const TUNSETVNETHDRSZ: u64 = 0x4004_54d8;
pub(crate) const TUNSETVNETLE: u64 = 0x4004_54dc;
pub(crate) const TUNSETSTEERINGEBPF: u64 = 0x8004_54e0;
pub(crate) const TUNSETFILTEREBPF: u64 = 0x8004_54e1;
pub(crate) const TUNSETCARRIER: u64 = 0x4004_54e2;

const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// Attach type of a link.
const BPF_XDP: u32 = 37;
/// In the driver, not in the generic stack.
const XDP_FLAGS_DRV_MODE: u32 = 4;
