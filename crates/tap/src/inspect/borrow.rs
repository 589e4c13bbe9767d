//! A queue that another program holds: what only its file tells.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use tapswitch_netlink::Namespace;

use super::calls as ioctl;
use crate::Offloads;

/// A second handle of a queue that another program holds (pidfd_getfd(2), Linux 5.6). Needs what
/// ptrace(2) needs to attach to that program. What is changed here is changed for that program.
#[derive(Debug)]
pub struct BorrowedQueue {
    fd: OwnedFd,
}

impl BorrowedQueue {
    /// Borrows the file `fd` of the process `pid`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_PTRACE`, `ESRCH` or `EBADF` when process or file are gone.
    pub fn borrow(pid: u32, fd: i32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let fd = rustix::process::pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?;
        Ok(Self { fd })
    }

    /// The name of the device, as it is now.
    ///
    /// # Errors
    /// `EBADFD` for a file that is attached to no device, or is none of `/dev/net/tun`.
    pub fn name(&self) -> io::Result<String> {
        Ok(ioctl::interface(&self.fd)?.0)
    }

    /// The namespace in which the device is (`TUNGETDEVNETNS`, Linux 5.7).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` there.
    pub fn namespace(&self, label: &str) -> io::Result<Namespace> {
        let fd = ioctl::device_namespace(&self.fd)?;
        Namespace::from_fd(fd, label).map_err(io::Error::other)
    }

    /// What the file tells.
    ///
    /// # Errors
    /// As [`Self::name`].
    pub fn state(&self) -> io::Result<QueueState> {
        let (_, flags) = ioctl::interface(&self.fd)?;
        Ok(QueueState {
            flags,
            header_len: ioctl::header_len(&self.fd)?,
            send_buffer_len: ioctl::send_buffer_len(&self.fd)?,
            little_endian: ioctl::little_endian(&self.fd).unwrap_or_default(),
            // Not every kernel is built with it.
            big_endian: ioctl::big_endian(&self.fd).unwrap_or_default(),
        })
    }

    /// Sets what the kernel may leave undone in what is read from the device, on any queue
    /// (`TUNSETOFFLOAD`). Fewer than before are safe for every program. More are safe for one that
    /// reads the network header alone.
    ///
    /// # Errors
    /// `EINVAL` for a set that this kernel does not take.
    pub fn set_offloads(&self, offloads: Offloads) -> io::Result<()> {
        Ok(ioctl::set_offload(&self.fd, offloads.bits())?)
    }

    /// True when both are one open file, which several processes may hold (kcmp(2)); `None` when
    /// this kernel does not tell.
    pub(super) fn is_same_file(&self, other: &Self) -> Option<bool> {
        let me = rustix::process::getpid().as_raw_pid();
        let (a, b) = (self.fd.as_raw_fd(), other.fd.as_raw_fd());
        // SAFETY: (no safe call exists.) kcmp(2) takes five numbers and refers to no memory.
        let order = unsafe { libc::syscall(libc::SYS_kcmp, me, me, KCMP_FILE, a, b) };
        (order >= 0).then_some(order == 0)
    }
}

impl AsFd for BorrowedQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the file of a queue tells, beside what its device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Flags as `TUNGETIFF` answers them. Here 0x1000 does not say whether there is packet
    /// information: it means that no classic filter is attached to this file.
    pub flags: u16,
    /// Length of the network header in bytes; it means something when the device has one.
    pub header_len: usize,
    /// Length of the send buffer in bytes; `i32::MAX`, which is the default, is no limit.
    pub send_buffer_len: u32,
    /// Numbers of the network header are little-endian (`TUNSETVNETLE`); otherwise they are as on
    /// this machine.
    pub little_endian: bool,
    /// They are big-endian (`TUNSETVNETBE`).
    pub big_endian: bool,
}

/// `include/uapi/linux/kcmp.h`.
const KCMP_FILE: libc::c_int = 0;
