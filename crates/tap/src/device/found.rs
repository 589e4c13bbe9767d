//! Saves and restores the state of an existing device.

use std::io;
use std::os::fd::AsFd;

use tapswitch_netlink::{Namespace, Netlink};

use crate::capabilities::negotiate;
use crate::inspect::offloads_among;
use crate::{Offloads, Queue, ioctl};

/// The state in which [`Device::create`](crate::Device::create) found an existing device: the
/// settings that it reset and that the next program may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Length of the network header in bytes; any value is possible.
    header_len: usize,
    offloads: Offloads,
}

impl Found {
    /// Reads the state of the device `name` of this first queue, before anything is set. `None` if
    /// it cannot be read.
    pub(super) fn of(first: impl AsFd, name: &str) -> Option<Self> {
        let header_len = ioctl::header_len(first).ok()?;
        let netlink = Netlink::open(&Namespace::current().ok()?).ok()?;
        let offloads = offloads_among(&netlink.features(name).ok()?);
        Some(Self { header_len, offloads })
    }

    /// Restores header and offloads, through any queue of the device. No program may be reading
    /// frames, because their layout changes.
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn put_back(&self, queue: &Queue) -> io::Result<()> {
        // A short header is never combined with trains in tunnels.
        negotiate(queue, Offloads::empty())?;
        ioctl::set_header_len(queue, self.header_len)?;
        negotiate(queue, self.offloads)?;
        Ok(())
    }
}
