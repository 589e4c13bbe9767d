//! Offload features of an interface, as set by `ethtool -K`.
//!
//! There are two kernel interfaces (`include/uapi/linux/ethtool.h`): [`Feature`] uses the old
//! requests, one per group of features, and names give access to all features. Names and bits
//! differ between kernels, so the kernel is queried for them each time.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::error::Failure;
use crate::ethtool::{self, Value};
use crate::{LinkError, Netlink};

/// An offload feature that can be switched on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Verifies checksums of received packets (`rx-checksumming`).
    RxChecksum,
    /// Leaves checksums of sent packets to the device (`tx-checksumming`). If off on a veth,
    /// packets leave it with complete checksums and segmented to the MTU.
    TxChecksum,
    /// Sends from scattered memory (`scatter-gather`).
    ScatterGather,
    /// Leaves segmentation of TCP trains to the device (`tcp-segmentation-offload`).
    Tso,
    /// Segments trains late, in software (`generic-segmentation-offload`).
    Gso,
    /// Joins received packets into trains (`generic-receive-offload`).
    Gro,
}

impl Feature {
    /// The command that reads it.
    const fn command(self) -> Value {
        match self {
            Self::RxChecksum => Value::RX_CHECKSUM,
            Self::TxChecksum => Value::TX_CHECKSUM,
            Self::ScatterGather => Value::SCATTER_GATHER,
            Self::Tso => Value::TSO,
            Self::Gso => Value::GSO,
            Self::Gro => Value::GRO,
        }
    }
}

/// State of one feature in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureState {
    /// The kernel's name, such as `tx-checksum-ip-generic`.
    pub name: String,
    /// It can be changed.
    pub available: bool,
    /// It is requested to be on.
    pub requested: bool,
    /// It is on.
    pub active: bool,
    /// No driver ever allows changing it.
    pub never_changed: bool,
    bit: usize,
}

impl FeatureState {
    fn new(name: String, bit: usize, blocks: &[ethtool::Block]) -> Self {
        let block = blocks.get(bit / 32).copied().unwrap_or_default();
        let has = |word: u32| word >> (bit % 32) & 1 == 1;
        Self {
            name,
            available: has(block.available),
            requested: has(block.requested),
            active: has(block.active),
            never_changed: has(block.never_changed),
            bit,
        }
    }

    /// True if it cannot be changed; `ethtool` shows `[fixed]`.
    pub fn is_fixed(&self) -> bool {
        self.never_changed || !self.available
    }
}

impl Netlink {
    /// True if `feature` of `name` is on.
    ///
    /// # Errors
    /// [`LinkError`]; [`LinkError::Refused`] if the driver does not support it.
    pub fn feature(&self, name: &str, feature: Feature) -> Result<bool, LinkError> {
        ethtool::value(self, name, feature.command(), 0).map(|value| value != 0).map_err(|cause| {
            let action = format_args!("read {feature:?} of {name}");
            self.error(action, name, cause.into())
        })
    }

    /// Switches `feature` of `name` on or off. Features that depend on it follow: without checksums
    /// there are no trains.
    ///
    /// # Errors
    /// [`LinkError`]; [`LinkError::Refused`] if the driver does not support it.
    pub fn set_feature(&mut self, name: &str, feature: Feature, on: bool) -> Result<(), LinkError> {
        let command = feature.command().setter();
        ethtool::value(&*self, name, command, on.into()).map(drop).map_err(|cause| {
            let action = format_args!("set {feature:?} of {name} to {on}");
            self.error(action, name, cause.into())
        })
    }

    /// All features of `name`, with the names of single features in `ethtool -k`.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn features(&self, name: &str) -> Result<Vec<FeatureState>, LinkError> {
        let read = || {
            let names = ethtool::feature_names(self, name)?;
            let blocks = ethtool::features(self, name, names.len())?;
            let states = (0..).zip(names).map(|(bit, name)| FeatureState::new(name, bit, &blocks));
            // Bits that this kernel does not use have no name.
            Ok(states.filter(|state| !state.name.is_empty()).collect())
        };
        read().map_err(|cause: io::Error| {
            self.error(format_args!("read the features of {name}"), name, cause.into())
        })
    }

    /// Requests the feature with the kernel's name `feature`, such as
    /// `tx-tcp-mangleid-segmentation` or `rx-udp-gro-forwarding`, to be on or off, and returns its
    /// state. The driver may still keep it off, as a tun device does with offloads that its program
    /// has not enabled: then it is requested but not active.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if there is no such feature, or it cannot be changed.
    pub fn set_feature_by_name(
        &mut self,
        name: &str,
        feature: &str,
        on: bool,
    ) -> Result<FeatureState, LinkError> {
        let state = if on { "on" } else { "off" };
        let action = format!("switch {feature} of {name} {state}");
        let refused = |reason: fmt::Arguments<'_>| {
            let source = Errno::OPNOTSUPP.into();
            self.error(&action, name, Failure { source, message: Some(reason.to_string()) })
        };
        let before = self.features(name)?;
        let Some(found) = before.iter().find(|state| state.name == feature) else {
            return Err(refused(format_args!("no such feature; `ethtool -k {name}` lists them")));
        };
        if found.is_fixed() && found.active != on {
            return Err(refused(format_args!("the driver does not allow changing it")));
        }
        let set = |bit| {
            let count = ethtool::feature_names(&*self, name)?.len();
            ethtool::set_feature(&*self, name, count, bit, on)
        };
        if !found.is_fixed() {
            set(found.bit).map_err(|cause| self.error(&action, name, cause.into()))?;
        }
        let after = self.features(name)?.into_iter().find(|state| state.name == feature);
        after.ok_or_else(|| refused(format_args!("it was deleted in the meantime")))
    }

    /// Number of frames that the driver of `name` may batch before it passes them to the network
    /// stack (`ethtool -c`, `rx-frames`). For a tun device 0 (none) to 64; only used by vhost-net
    /// (Linux 4.10).
    ///
    /// # Errors
    /// [`LinkError::Refused`] if the driver does not support it.
    pub fn rx_frames(&self, name: &str) -> Result<u32, LinkError> {
        ethtool::rx_frames(self, name).map_err(|cause| {
            self.error(format_args!("read rx-frames of {name}"), name, cause.into())
        })
    }

    /// Sets [`Self::rx_frames`].
    ///
    /// # Errors
    /// [`LinkError::Refused`] if the driver does not support it. A tun device limits larger numbers
    /// to 64.
    pub fn set_rx_frames(&mut self, name: &str, count: u32) -> Result<(), LinkError> {
        ethtool::set_rx_frames(&*self, name, count).map_err(|cause| {
            self.error(format_args!("set rx-frames of {name} to {count}"), name, cause.into())
        })
    }
}
