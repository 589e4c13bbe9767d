//! A handle of a device that one has not made: what only a file of it tells, and what only a file
//! can set.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use tapswitch_netlink::Namespace;

use crate::{Flags, HeaderLen, Offloads, capabilities, ioctl};

/// A file of a device that another program holds, or that nobody does. What is changed by it is
/// changed for every program that uses the device.
#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
}

impl Handle {
    /// A second handle of the file `fd` of the process `pid` (pidfd_getfd(2), Linux 5.6). Needs
    /// what ptrace(2) needs to attach to that program.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_PTRACE`, `ESRCH` or `EBADF` when process or file are gone.
    pub fn borrow(pid: u32, fd: i32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let fd = rustix::process::pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?;
        Ok(Self { fd })
    }

    /// Opens the persistent device `name`, which nobody holds, in the namespace of the calling
    /// thread; `flags` become the flags of the device (`IFF_*`), so they should be those that it
    /// has, but for what shall change. While this is open, the device has a carrier; frames that
    /// are sent to it meanwhile are lost.
    ///
    /// # Errors
    /// `EBUSY` when it is held, or no tun or tap device; `EINVAL` when its kind or
    /// `IFF_MULTI_QUEUE` is another.
    pub fn open(name: &str, flags: Flags) -> io::Result<Self> {
        let fd = ioctl::open_tun()?;
        ioctl::attach(&fd, name, flags.difference(Flags::PERSIST))?;
        Ok(Self { fd })
    }

    /// The name of the device, as it is now.
    ///
    /// # Errors
    /// `EBADFD` for a file that is attached to no device, or is none of `/dev/net/tun`.
    pub fn name(&self) -> io::Result<String> {
        Ok(ioctl::interface(&self.fd)?.0)
    }

    /// The namespace in which the device is (`TUNGETDEVNETNS`, Linux 5.2).
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
    /// (`TUNSETOFFLOAD`), to the best that this kernel takes within `at_most`; answers what that
    /// is. Fewer than before are safe for every program. More are safe for one that reads the
    /// network header alone.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn set_offloads(&self, at_most: Offloads) -> io::Result<Offloads> {
        Ok(capabilities::negotiate(&self.fd, at_most)?)
    }

    /// Sets the length of the network header in front of each frame (`TUNSETVNETHDRSZ`), on any
    /// queue. Who holds the device looks for frames behind the length that it has set itself, so
    /// this is for one that nobody holds.
    ///
    /// # Errors
    /// `EINVAL` for [`HeaderLen::None`]: whether there is a header, the flags say.
    pub fn set_header_len(&self, len: HeaderLen) -> io::Result<()> {
        Ok(ioctl::set_header_len(&self.fd, len.bytes())?)
    }

    /// Lets the user, by number, open the device without `CAP_NET_ADMIN` (`TUNSETOWNER`), and no
    /// other.
    ///
    /// # Errors
    /// `EINVAL` when there is no such number.
    pub fn set_owner(&self, user: u32) -> io::Result<()> {
        Ok(ioctl::set_owner(&self.fd, user)?)
    }

    /// Lets members of the group, by number, open the device without `CAP_NET_ADMIN`
    /// (`TUNSETGROUP`), and no others. With an owner too, it takes both.
    ///
    /// # Errors
    /// `EINVAL` when there is no such number.
    pub fn set_group(&self, group: u32) -> io::Result<()> {
        Ok(ioctl::set_group(&self.fd, group)?)
    }

    /// Lets the device stay or go with its last file (`TUNSETPERSIST`).
    ///
    /// # Errors
    /// When the device is gone.
    pub fn set_persistent(&self, on: bool) -> io::Result<()> {
        Ok(ioctl::set_persistent(&self.fd, on)?)
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the file of a queue tells, beside what its device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Flags as `TUNGETIFF` answers them: [`Flags::NO_PI`] says here that no classic filter is
    /// attached to this file.
    pub flags: Flags,
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

/// True when the files of two processes, each told by process and number, are one open file
/// (kcmp(2)); `None` when that cannot be found out.
pub(super) fn is_same_file(
    (pid, fd): (u32, i32),
    (other_pid, other_fd): (u32, i32),
) -> Option<bool> {
    // SAFETY: (no safe call exists.) kcmp(2) takes five numbers and refers to no memory.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, KCMP_FILE, fd, other_fd) };
    (order >= 0).then_some(order == 0)
}

/// `include/uapi/linux/kcmp.h`.
const KCMP_FILE: libc::c_int = 0;
