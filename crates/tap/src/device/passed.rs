//! Queues that another program opened and passed as file descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tapswitch_netlink::Link;

use super::Device;
use super::existing::{look, look_in, net_header};
use crate::{Capabilities, CreateError, DeviceName, Flags, Kind, Prefix, Queue, ioctl};

impl Device {
    /// Takes over one queue that another program opened; see [`Self::from_fds`].
    ///
    /// # Errors
    /// As [`Self::from_fds`].
    pub fn from_fd(fd: OwnedFd) -> Result<Self, CreateError> {
        Self::from_fds(vec![fd])
    }

    /// Takes over queues that another program opened: file descriptors that were inherited or
    /// received over a Unix socket. They become non-blocking, also for programs that share them;
    /// nothing else about the device changes. [`Capabilities::receive`](crate::Capabilities) is
    /// therefore an upper bound.
    ///
    /// Only netlink tells whether frames have protocol information. So the interface must be in the
    /// calling thread's network namespace, or the process needs `CAP_NET_ADMIN`; otherwise use
    /// [`Self::from_fds_with`].
    ///
    /// # Errors
    /// [`CreateError::NoDescriptor`], [`CreateError::NotAQueue`], [`CreateError::SeveralDevices`],
    /// [`CreateError::UnknownPrefix`].
    pub fn from_fds(fds: Vec<OwnedFd>) -> Result<Self, CreateError> {
        let passed = Passed::check(&fds)?;
        let link = passed.link(&fds[0])?;
        let info = link.tun.unwrap_or_default();
        passed.into_device(fds, info.packet_info, link.index)
    }

    /// As [`Self::from_fds`], if the caller knows whether frames have protocol information.
    /// [`Self::index`] is zero then.
    ///
    /// # Errors
    /// [`CreateError::NoDescriptor`], [`CreateError::NotAQueue`], [`CreateError::SeveralDevices`].
    pub fn from_fds_with(fds: Vec<OwnedFd>, packet_info: bool) -> Result<Self, CreateError> {
        Passed::check(&fds)?.into_device(fds, packet_info, 0)
    }
}

/// Properties that all the file descriptors share.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Passed {
    name: String,
    kind: Kind,
    /// From `TUNGETIFF`, without the flags that differ by queue.
    flags: Flags,
    mac: [u8; 6],
    /// `None` if the process may read neither.
    place: Option<Place>,
}

/// A network namespace, by device and inode number. Devices of the same name in the same namespace
/// are identical; two tun devices cannot be distinguished otherwise, as they have no MAC address.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The namespace of the device.
    Device(u64, u64),
    /// The namespace where the file was opened, if that of the device may not be read.
    Origin(u64, u64),
}

impl Place {
    /// Both need privileges in the namespace in question.
    fn of(fd: BorrowedFd<'_>) -> Option<Self> {
        let identity = |namespace: OwnedFd| {
            let stat = rustix::fs::fstat(namespace)?;
            Ok((stat.st_dev, stat.st_ino))
        };
        let device = ioctl::device_namespace(fd).and_then(identity);
        let origin = || ioctl::socket_namespace(fd).and_then(identity).ok();
        match device {
            Ok((device, inode)) => Some(Self::Device(device, inode)),
            Err(_) => origin().map(|(device, inode)| Self::Origin(device, inode)),
        }
    }
}

impl Passed {
    /// Checks that all `fds` are queues of one device.
    fn check(fds: &[OwnedFd]) -> Result<Self, CreateError> {
        let Some((first, others)) = fds.split_first() else {
            return Err(CreateError::NoDescriptor);
        };
        let found = Self::of(first)?;
        for other in others {
            let other = Self::of(other)?;
            if other != found {
                let is_namesake = other.name == found.name && other.place != found.place;
                let more = if is_namesake { " of another network namespace" } else { "" };
                let other = format!("{}{more}", other.name);
                return Err(CreateError::SeveralDevices { first: found.name, other });
            }
        }
        Ok(found)
    }

    pub(super) fn of(fd: impl AsFd) -> Result<Self, CreateError> {
        let fd = fd.as_fd();
        let not_a_queue = |what| CreateError::NotAQueue { fd: fd.as_raw_fd(), what };
        let (name, flags) = ioctl::interface(fd).map_err(|errno| match errno {
            Errno::BADFD => {
                not_a_queue("it is not a queue of a tun/tap device, or the device was deleted")
            }
            _ => not_a_queue("it is not an open /dev/net/tun"),
        })?;
        let kind =
            Kind::from_flags(flags).ok_or(not_a_queue("it is neither a tap nor a tun device"))?;
        let (_, address) =
            ioctl::hardware_address(fd).map_err(CreateError::refused(&name, "SIOCGIFHWADDR"))?;
        let [a, b, c, d, e, f, ..] = address;
        let flags = flags.difference(Flags::DETACH_QUEUE | Flags::NO_PI);
        Ok(Self { name, kind, flags, mac: [a, b, c, d, e, f], place: Place::of(fd) })
    }

    /// The interface, in its namespace if permitted, else in the caller's.
    fn link(&self, fd: &OwnedFd) -> Result<Link, CreateError> {
        let unknown = |what| CreateError::UnknownPrefix { name: self.name.clone(), what };
        let link = match ioctl::device_namespace(fd) {
            Ok(namespace) => look_in(namespace, &self.name),
            Err(_) => look(&self.name),
        };
        let link = link.map_err(|error| unknown(error.to_string()))?;
        // Without permission for its namespace, this may be another interface of the same name.
        if self.is(&link) {
            return Ok(link);
        }
        Err(unknown("another interface has that name".to_owned()))
    }

    /// True if `link` may be this device: nothing else about a file can be compared.
    pub(super) fn is(&self, link: &Link) -> bool {
        let Some(info) = &link.tun else { return false };
        Kind::of(info) == self.kind
            && info.net_header == self.flags.contains(Flags::VNET_HDR)
            && info.multi_queue == self.flags.contains(Flags::MULTI_QUEUE)
            && info.persistent == self.flags.contains(Flags::PERSIST)
            && link.mac.unwrap_or_default() == self.mac
    }

    fn into_device(
        self,
        fds: Vec<OwnedFd>,
        packet_info: bool,
        index: u32,
    ) -> Result<Device, CreateError> {
        let name = self.name.as_str();
        let net_header = net_header(&fds[0], name, self.flags.contains(Flags::VNET_HDR))?;
        let prefix = Prefix { packet_info, net_header };
        let refused = |call| CreateError::refused(name, call);
        let features = ioctl::features(&fds[0]).map_err(refused("TUNGETFEATURES"))?;
        for fd in &fds {
            let flags = rustix::fs::fcntl_getfl(fd).map_err(refused("F_GETFL"))?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(refused("F_SETFL"))?;
        }
        let queue = |fd| Queue::new(fd, self.kind, prefix);
        Ok(Device {
            index,
            kind: self.kind,
            prefix,
            multi_queue: self.flags.contains(Flags::MULTI_QUEUE),
            capabilities: Capabilities::at_most(features, net_header),
            queues: fds.into_iter().map(queue).collect(),
            order: None,
            classic_filter: false,
            found: None,
            name: DeviceName::from_kernel(self.name),
        })
    }
}
