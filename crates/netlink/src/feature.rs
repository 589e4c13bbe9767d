//! Offload features of an interface, as `ethtool -K` sets them.
//!
//! The old per-feature requests of `SIOCETHTOOL` (`include/uapi/linux/ethtool.h`) are enough here
//! and work on every kernel: a command and a number, no strings to look up.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater};

use crate::{LinkError, Netlink};

/// An offload feature that can be switched on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Checks the checksums of received packets (`rx-checksumming`).
    RxChecksum,
    /// Leaves checksums of sent packets to the device (`tx-checksumming`). Off on a veth means
    /// that packets come out of it with complete checksums and cut to the MTU.
    TxChecksum,
    /// Sends from scattered memory (`scatter-gather`).
    ScatterGather,
    /// Leaves the cutting of TCP trains to the device (`tcp-segmentation-offload`).
    Tso,
    /// Cuts trains late, in software (`generic-segmentation-offload`).
    Gso,
    /// Joins received packets to trains (`generic-receive-offload`).
    Gro,
}

impl Feature {
    /// `ETHTOOL_G*` number; the `ETHTOOL_S*` number is the next.
    const fn command(self) -> u32 {
        match self {
            Self::RxChecksum => 0x14,
            Self::TxChecksum => 0x16,
            Self::ScatterGather => 0x18,
            Self::Tso => 0x1e,
            Self::Gso => 0x23,
            Self::Gro => 0x2b,
        }
    }
}

impl Netlink {
    /// True when `feature` of `name` is on.
    ///
    /// # Errors
    /// [`LinkError`]; [`LinkError::Refused`] when the driver does not know it.
    pub fn feature(&self, name: &str, feature: Feature) -> Result<bool, LinkError> {
        ethtool(self, name, feature.command(), 0).map(|value| value != 0).map_err(|cause| {
            let action = format_args!("read {feature:?} of {name}");
            self.error(action, name, cause.into())
        })
    }

    /// Switches `feature` of `name`. Features that depend on it follow: without checksums there
    /// are no trains.
    ///
    /// # Errors
    /// [`LinkError`]; [`LinkError::Refused`] when the driver does not know it.
    pub fn set_feature(&mut self, name: &str, feature: Feature, on: bool) -> Result<(), LinkError> {
        ethtool(&*self, name, feature.command() + 1, u32::from(on)).map(drop).map_err(|cause| {
            let action = format_args!("set {feature:?} of {name} to {on}");
            self.error(action, name, cause.into())
        })
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` with `ifr_data`.
#[repr(C)]
struct Request<'a> {
    name: [u8; libc::IFNAMSIZ],
    value: &'a mut Value,
    /// The union is 24 bytes long where pointers are 8, and shorter where they are 4.
    rest: [u8; 16],
}

fn ethtool(socket: impl AsFd, name: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = Value { command, data };
    let mut request = Request { name: [0; libc::IFNAMSIZ], value: &mut value, rest: [0; 16] };
    // The last byte stays zero: it ends the name.
    request.name[..libc::IFNAMSIZ - 1]
        .get_mut(..name.len())
        .ok_or(Errno::NODEV)?
        .copy_from_slice(name.as_bytes());
    // SAFETY: (no safe call exists.) SIOCETHTOOL takes a pointer to struct ifreq, which `Request`
    // is laid out as.
    let update = unsafe { Updater::<SIOCETHTOOL, Request<'_>>::new(&mut request) };
    // SAFETY: the commands of `Feature` read and write no more than the struct ethtool_value that
    // `value` points to; both structs outlive the call and nobody else refers to them.
    unsafe { ioctl::ioctl(socket, update) }?;
    Ok(value.data)
}

/// `include/uapi/linux/sockios.h`.
const SIOCETHTOOL: Opcode = 0x8946;
