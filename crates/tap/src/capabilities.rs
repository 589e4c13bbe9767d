//! What a kernel and a device can do, as a value.

use std::os::fd::AsFd;

use rustix::io::{self, Errno};

use crate::{CreateError, Flags, HeaderLen, Offloads, ioctl, probe};

/// What a kernel can do ([`Self::probe`]), or what holds for one device
/// ([`Device::capabilities`](crate::Device::capabilities)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The flags that the kernel knows (`TUNGETFEATURES`, Linux 2.6.27).
    pub features: Flags,
    /// The longest header that the kernel acts upon: [`HeaderLen::Tunnel`] since Linux 6.17,
    /// [`HeaderLen::V1`] before.
    pub longest_header: HeaderLen,
    /// What may be left undone in frames that come from the device. For a device: what the kernel
    /// has and the configuration permits.
    pub receive: Offloads,
    /// What may be left undone in frames that go to the device; the rest must be done before
    /// sending. It depends on the kernel and the header alone, whatever [`Self::receive`] is.
    ///
    /// Found out by a probe; without the privilege for that (`CAP_SYS_ADMIN`), taken to be what the
    /// kernel offers the other way, which came in the same releases.
    pub send: Offloads,
}

impl Capabilities {
    /// What this kernel can do. Asks once per process, some twenty milliseconds long, in a network
    /// namespace that exists only for that: no frame and no event is seen outside.
    ///
    /// # Errors
    /// [`CreateError`]: no `/dev/net/tun`, or no privilege to make a namespace (`CAP_SYS_ADMIN`)
    /// and a device in it.
    pub fn probe() -> Result<Self, CreateError> {
        probe::kernel()
    }

    /// True when a full ring can stop the queueing discipline instead of dropping
    /// (`IFF_BACKPRESSURE`, Linux 7.3).
    #[must_use]
    pub const fn has_backpressure(&self) -> bool {
        self.features.contains(Flags::BACKPRESSURE)
    }

    /// True when what is sent can pass through NAPI (`IFF_NAPI`, Linux 4.15).
    #[must_use]
    pub const fn has_napi(&self) -> bool {
        self.features.contains(Flags::NAPI)
    }

    /// True when a device can have several queues (`IFF_MULTI_QUEUE`, Linux 3.8).
    #[must_use]
    pub const fn has_multi_queue(&self) -> bool {
        self.features.contains(Flags::MULTI_QUEUE)
    }

    /// True when a device can start without a carrier (`IFF_NO_CARRIER`, Linux 6.1).
    #[must_use]
    pub const fn has_no_carrier(&self) -> bool {
        self.features.contains(Flags::NO_CARRIER)
    }
}

/// Sets the best offloads within `cap` that the kernel takes for what is read from the device.
///
/// The header must be as long as they need *before*: with trains in tunnels and a short header,
/// Linux 6.17 loses every frame that is read (`EFAULT`).
pub(crate) fn negotiate(fd: impl AsFd, cap: Offloads) -> io::Result<Offloads> {
    let fd = fd.as_fd();
    for rung in Offloads::ladder(cap) {
        match ioctl::set_offload(fd, rung.bits()) {
            // Since Linux 4.14, taking UFO does not mean that such frames come.
            Ok(()) => return Ok(rung.difference(Offloads::UFO)),
            Err(Errno::INVAL) => {}
            Err(other) => return Err(other),
        }
    }
    Err(Errno::INVAL)
}
