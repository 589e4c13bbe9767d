//! A file of an existing device, to read and set what only a file gives access to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use tapswitch_netlink::Namespace;

use crate::{Flags, HeaderLen, Offloads, capabilities, ioctl};

/// A file of a device that another program or no program holds. Changes affect every program that
/// uses the device.
#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
}

impl Handle {
    /// Duplicates the file descriptor `fd` of the process `pid` (pidfd_getfd(2), Linux 5.6). Needs
    /// the same privileges as attaching with ptrace(2).
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_PTRACE`, `ESRCH` or `EBADF` if the process or file does not exist.
    pub fn borrow(pid: u32, fd: i32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let fd = rustix::process::pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?;
        Ok(Self { fd })
    }

    /// Opens the persistent device `name`, which no program holds, in the namespace of the calling
    /// thread. `flags` become the flags of the device (`IFF_*`), so pass its current flags except
    /// those to change. While the handle is open, the device has a carrier; frames sent to it
    /// meanwhile are lost.
    ///
    /// # Errors
    /// `EBUSY` if it is held, or not a tun or tap device; `EINVAL` if its type or `IFF_MULTI_QUEUE`
    /// differs.
    pub fn open(name: &str, flags: Flags) -> io::Result<Self> {
        let fd = ioctl::open_tun()?;
        ioctl::attach(&fd, name, flags.difference(Flags::PERSIST))?;
        Ok(Self { fd })
    }

    /// The current name of the device.
    ///
    /// # Errors
    /// `EBADFD` for a file that is not attached to a device, or not of `/dev/net/tun`.
    pub fn name(&self) -> io::Result<String> {
        Ok(ioctl::interface(&self.fd)?.0)
    }

    /// The namespace of the device (`TUNGETDEVNETNS`, Linux 5.2).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` in it.
    pub fn namespace(&self, label: &str) -> io::Result<Namespace> {
        let fd = ioctl::device_namespace(&self.fd)?;
        Namespace::from_fd(fd, label).map_err(io::Error::other)
    }

    /// The state of the file.
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
            // Optional in the kernel's configuration.
            big_endian: ioctl::big_endian(&self.fd).unwrap_or_default(),
        })
    }

    /// Sets the offloads for frames read on any queue of the device (`TUNSETOFFLOAD`) to the best
    /// set within `at_most` that this kernel supports, and returns it. Removing offloads is safe
    /// for every program; adding some is safe for a program that evaluates the network header.
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn set_offloads(&self, at_most: Offloads) -> io::Result<Offloads> {
        Ok(capabilities::negotiate(&self.fd, at_most)?)
    }

    /// Sets the length of the network header before each frame (`TUNSETVNETHDRSZ`), on any queue. A
    /// program that holds the device expects the length that it set itself, so use this for a
    /// device that no program holds.
    ///
    /// # Errors
    /// `EINVAL` for [`HeaderLen::None`]: a flag says whether there is a header.
    pub fn set_header_len(&self, len: HeaderLen) -> io::Result<()> {
        Ok(ioctl::set_header_len(&self.fd, len.bytes())?)
    }

    /// Sets the only user ID that may open the device without `CAP_NET_ADMIN` (`TUNSETOWNER`).
    ///
    /// # Errors
    /// `EINVAL` if the ID does not exist.
    pub fn set_owner(&self, user: u32) -> io::Result<()> {
        Ok(ioctl::set_owner(&self.fd, user)?)
    }

    /// Sets the only group ID whose members may open the device without `CAP_NET_ADMIN`
    /// (`TUNSETGROUP`). If an owner is set as well, both must match.
    ///
    /// # Errors
    /// `EINVAL` if the ID does not exist.
    pub fn set_group(&self, group: u32) -> io::Result<()> {
        Ok(ioctl::set_group(&self.fd, group)?)
    }

    /// Sets whether the device outlives its last file (`TUNSETPERSIST`).
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn set_persistent(&self, on: bool) -> io::Result<()> {
        Ok(ioctl::set_persistent(&self.fd, on)?)
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// State of the file of a queue, in addition to the properties of its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Flags as `TUNGETIFF` returns them: here [`Flags::NO_PI`] means that no classic filter is
    /// attached to this file.
    pub flags: Flags,
    /// Length of the network header in bytes; meaningful if the device has one.
    pub header_len: usize,
    /// Length of the send buffer in bytes; `i32::MAX`, the default, means no limit.
    pub send_buffer_len: u32,
    /// Fields of the network header are little-endian (`TUNSETVNETLE`) instead of native.
    pub little_endian: bool,
    /// Fields are big-endian (`TUNSETVNETBE`).
    pub big_endian: bool,
}

/// True if the files of two processes, each given by process and descriptor, are the same open file
/// (kcmp(2)); `None` if that cannot be determined.
pub(super) fn is_same_file(
    (pid, fd): (u32, i32),
    (other_pid, other_fd): (u32, i32),
) -> Option<bool> {
    // SAFETY: (no safe call exists.) kcmp(2) takes five numbers and accesses no memory.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, KCMP_FILE, fd, other_fd) };
    (order >= 0).then_some(order == 0)
}

/// `include/uapi/linux/kcmp.h`.
const KCMP_FILE: libc::c_int = 0;
