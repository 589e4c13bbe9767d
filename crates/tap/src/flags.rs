//! Flags and type of a tun/tap device.

use std::fmt;

use bitflags::bitflags;
use tapswitch_netlink::{TunInfo, TunKind};

use crate::LinkType;

bitflags! {
    /// Flags of `TUNSETIFF`, `TUNGETIFF`, `TUNGETFEATURES` and `TUNSETQUEUE`, and of the file
    /// `tun_flags` in sysfs (`include/uapi/linux/if_tun.h`).
    ///
    /// `TUNSETIFF` ignores unknown flags instead of refusing them. Check
    /// [`Capabilities::features`](crate::Capabilities) first, as [`Device`](crate::Device) does.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u16 {
        /// IP packets without a link-layer header.
        const TUN = 0x0001;
        /// Ethernet frames.
        const TAP = 0x0002;
        /// Written frames pass through NAPI and its GRO (Linux 4.15).
        const NAPI = 0x0010;
        /// The parts of writev(2) become the fragments of a packet; for tests of the network
        /// stack (Linux 4.15).
        const NAPI_FRAGS = 0x0020;
        /// The device starts without a carrier (Linux 6.1).
        const NO_CARRIER = 0x0040;
        /// A full ring stops the queueing discipline, which keeps the packets, instead of dropping
        /// them (Linux 7.3).
        const BACKPRESSURE = 0x0080;
        /// Several files may attach, each as a queue (Linux 3.8).
        const MULTI_QUEUE = 0x0100;
        /// In `TUNSETQUEUE`: attach the queue again (Linux 3.8).
        const ATTACH_QUEUE = 0x0200;
        /// In `TUNSETQUEUE`: detach the queue. In `TUNGETIFF`: the queue is detached (Linux 3.8).
        const DETACH_QUEUE = 0x0400;
        /// The device outlives its last file. Read-only; `TUNSETPERSIST` sets it.
        const PERSIST = 0x0800;
        /// No four bytes of protocol information before each frame.
        ///
        /// `TUNGETIFF` reports `IFF_NOFILTER` in this bit: "no classic filter is attached to this
        /// file". Only sysfs and netlink (`IFLA_TUN_PI`) show whether there is protocol
        /// information.
        const NO_PI = 0x1000;
        /// All packets wait in the ring and none in the queueing discipline. No effect since Linux
        /// 3.8, which always works that way.
        const ONE_QUEUE = 0x2000;
        /// A virtio network header before each frame (Linux 2.6.27).
        const VNET_HDR = 0x4000;
        /// The device must be new (Linux 2.6.30).
        const TUN_EXCL = 0x8000;
    }
}

/// The type of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ethernet frames (`IFF_TAP`).
    #[default]
    Tap,
    /// IP packets without a link-layer header (`IFF_TUN`).
    Tun,
}

impl Kind {
    /// The flag that selects it.
    #[must_use]
    pub const fn flag(self) -> Flags {
        match self {
            Self::Tap => Flags::TAP,
            Self::Tun => Flags::TUN,
        }
    }

    /// The type of an existing device.
    pub(crate) const fn of(info: &TunInfo) -> Self {
        match info.kind {
            TunKind::Tap => Self::Tap,
            TunKind::Tun => Self::Tun,
        }
    }

    /// The default link type of such a device.
    pub(crate) const fn link_type(self) -> LinkType {
        match self {
            Self::Tap => LinkType::ETHERNET,
            Self::Tun => LinkType::NONE,
        }
    }

    /// The type in `flags`; `None` if they contain neither or both.
    #[must_use]
    pub fn from_flags(flags: Flags) -> Option<Self> {
        match (flags.contains(Flags::TAP), flags.contains(Flags::TUN)) {
            (true, false) => Some(Self::Tap),
            (false, true) => Some(Self::Tun),
            _ => None,
        }
    }

    /// `tap` or `tun`, as in ip-tuntap(8).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::Tun => "tun",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether to use a feature that not every kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Do not use it.
    #[default]
    Off,
    /// Use it if the kernel has it.
    IfAvailable,
    /// Fail without it.
    Required,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_and_its_flag_are_two_names_of_one() {
        for kind in [Kind::Tap, Kind::Tun] {
            assert_eq!(Kind::from_flags(kind.flag() | Flags::MULTI_QUEUE), Some(kind));
        }
        assert_eq!(Kind::from_flags(Flags::MULTI_QUEUE), None);
        assert_eq!(Kind::from_flags(Flags::TUN | Flags::TAP), None);
    }
}
