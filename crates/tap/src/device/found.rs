//! How a device that was there had been left, so that it can be left like that again.

use std::io;

use tapswitch_netlink::{Namespace, Netlink};

use super::open::Opened;
use crate::capabilities::negotiate;
use crate::inspect::offloads_among;
use crate::{Offloads, Queue, ioctl};

/// How [`Device::create`](crate::Device::create) found a device that was there, as far as it has
/// reset what the next program may count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Length of the network header in bytes, which may be any.
    header_len: usize,
    offloads: Offloads,
}

impl Found {
    /// What the device of this first file has, that nobody has set anything of yet. `None` when
    /// nothing can be told.
    pub(super) fn of(first: &Opened) -> Option<Self> {
        let header_len = ioctl::header_len(&first.fd).ok()?;
        let netlink = Netlink::open(&Namespace::current().ok()?).ok()?;
        let offloads = offloads_among(&netlink.features(&first.name).ok()?);
        Some(Self { header_len, offloads })
    }

    /// Puts header and offloads back, by any queue of the device. Nobody may read frames any more,
    /// as what lies in front of them changes.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn put_back(&self, queue: &Queue) -> io::Result<()> {
        // Trains in tunnels are never on with a header that is too short for them.
        negotiate(queue, Offloads::empty())?;
        ioctl::set_header_len(queue, self.header_len)?;
        negotiate(queue, self.offloads)?;
        Ok(())
    }
}
