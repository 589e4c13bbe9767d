//! Stand-in.
use std::os::fd::{AsFd, OwnedFd};

use libc::c_int;
use rustix::io::{self, Errno};
use rustix::ioctl::{self, Getter, Ioctl, IoctlOutput, Opcode, Updater, opcode};

unsafe fn int<const OPCODE: Opcode>(fd: impl AsFd) -> io::Result<c_int> {
    // SAFETY: the caller promises that OPCODE takes a pointer to an int.
    let getter = unsafe { Getter::<OPCODE, c_int>::new() };
    // SAFETY: the int is inside `getter`, which outlives the call.
    unsafe { ioctl::ioctl(fd, getter) }
}

pub(crate) fn interface(fd: impl AsFd) -> io::Result<(String, u16)> {
    let mut body = [0_u8; 40];
    // SAFETY: TUNGETIFF writes a struct ifreq.
    let updater =
        unsafe { Updater::<{ opcode::read::<c_int>(b'T', 210) }, [u8; 40]>::new(&mut body) };
    // SAFETY: as above.
    unsafe { ioctl::ioctl(fd, updater) }?;
    let name = body[..16].split(|&byte| byte == 0).next().unwrap_or_default();
    let name = String::from_utf8(name.to_vec()).map_err(|_| Errno::ILSEQ)?;
    Ok((name, u16::from_ne_bytes([body[16], body[17]])))
}

pub(crate) fn send_buffer_len(fd: impl AsFd) -> io::Result<u32> {
    // SAFETY: TUNGETSNDBUF writes an int.
    let len = unsafe { int::<{ opcode::read::<c_int>(b'T', 211) }>(fd) }?;
    u32::try_from(len).map_err(|_| Errno::INVAL)
}

pub(crate) fn header_len(fd: impl AsFd) -> io::Result<usize> {
    // SAFETY: TUNGETVNETHDRSZ writes an int.
    let len = unsafe { int::<{ opcode::read::<c_int>(b'T', 215) }>(fd) }?;
    usize::try_from(len).map_err(|_| Errno::INVAL)
}

pub(crate) fn little_endian(fd: impl AsFd) -> io::Result<bool> {
    // SAFETY: TUNGETVNETLE writes an int.
    unsafe { int::<{ opcode::read::<c_int>(b'T', 221) }>(fd) }.map(|value| value != 0)
}

pub(crate) fn big_endian(fd: impl AsFd) -> io::Result<bool> {
    // SAFETY: TUNGETVNETBE writes an int.
    unsafe { int::<{ opcode::read::<c_int>(b'T', 223) }>(fd) }.map(|value| value != 0)
}

pub(crate) fn features(fd: impl AsFd) -> io::Result<u16> {
    // SAFETY: TUNGETFEATURES writes an int.
    let bits = unsafe { int::<{ opcode::read::<c_int>(b'T', 207) }>(fd) }?;
    u16::try_from(bits).map_err(|_| Errno::INVAL)
}

pub(crate) use crate::ioctl::set_offload;

pub(crate) fn device_namespace(fd: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: TUNGETDEVNETNS takes nothing and answers a new descriptor that is ours.
    let call = unsafe { NewFd::<{ opcode::none(b'T', 227) }>::new() };
    // SAFETY: the call refers to no memory.
    unsafe { ioctl::ioctl(fd, call) }
}

struct NewFd<const OPCODE: Opcode>(());

impl<const OPCODE: Opcode> NewFd<OPCODE> {
    /// # Safety
    /// The call `OPCODE` must take nothing and answer a new file descriptor.
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
        // SAFETY: whoever made this promised that the answer is a descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(answer) })
    }
}
