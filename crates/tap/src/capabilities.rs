//! Capabilities of a kernel and of a device.

use std::os::fd::AsFd;

use rustix::io::{self, Errno};

use crate::{Flags, HeaderLen, Offloads, ioctl};

/// Capabilities of the kernel ([`Self::probe`]) or of one device
/// ([`Device::capabilities`](crate::Device::capabilities)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The flags that the kernel knows (`TUNGETFEATURES`, Linux 2.6.27).
    pub features: Flags,
    /// The longest header that the kernel interprets: [`HeaderLen::Tunnel`] since Linux 6.17,
    /// [`HeaderLen::V1`] before.
    pub longest_header: HeaderLen,
    /// Offloads for frames received from the device. For a device: what the kernel supports and the
    /// configuration permits.
    pub receive: Offloads,
    /// Offloads for frames sent to the device; all other work must be done before sending. They
    /// depend on the kernel and the header alone, not on [`Self::receive`].
    ///
    /// Determined by a probe. Without the privilege for it (`CAP_SYS_ADMIN`), the offloads that the
    /// kernel supports for receiving are assumed: both directions were added in the same releases.
    pub send: Offloads,
}

impl Capabilities {
    /// Of a kernel or a device with these features and offloads in either direction.
    pub(crate) const fn new(features: Flags, receive: Offloads, send: Offloads) -> Self {
        let has_tunnels = receive.union(send).intersects(Offloads::TUNNEL);
        let longest_header = if has_tunnels { HeaderLen::Tunnel } else { HeaderLen::V1 };
        Self { features, longest_header, receive, send }
    }

    /// True if a full ring can stop the queueing discipline instead of dropping
    /// (`IFF_BACKPRESSURE`, Linux 7.3).
    #[must_use]
    pub const fn has_backpressure(&self) -> bool {
        self.features.contains(Flags::BACKPRESSURE)
    }

    /// True if written frames can pass through NAPI (`IFF_NAPI`, Linux 4.15).
    #[must_use]
    pub const fn has_napi(&self) -> bool {
        self.features.contains(Flags::NAPI)
    }

    /// True if a device can have several queues (`IFF_MULTI_QUEUE`, Linux 3.8).
    #[must_use]
    pub const fn has_multi_queue(&self) -> bool {
        self.features.contains(Flags::MULTI_QUEUE)
    }

    /// True if a device can start without a carrier (`IFF_NO_CARRIER`, Linux 6.1).
    #[must_use]
    pub const fn has_no_carrier(&self) -> bool {
        self.features.contains(Flags::NO_CARRIER)
    }
}

/// Sets the best offloads within `cap` that the kernel accepts for received frames.
///
/// The header must have the length that they need *before*: with trains in tunnels and a short
/// header, Linux 6.17 loses every frame that is read (`EFAULT`).
pub(crate) fn negotiate(fd: impl AsFd, cap: Offloads) -> io::Result<Offloads> {
    let fd = fd.as_fd();
    for rung in Offloads::ladder(cap) {
        match ioctl::set_offload(fd, rung.bits()) {
            // Since Linux 4.14, the kernel accepts UFO but never delivers such frames.
            Ok(()) => return Ok(rung.difference(Offloads::UFO)),
            Err(Errno::INVAL) => {}
            Err(other) => return Err(other),
        }
    }
    Err(Errno::INVAL)
}
