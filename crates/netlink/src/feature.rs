//! Offload features of an interface, as `ethtool -K` sets them.
//!
//! Two ways, because there are two kernel interfaces (`include/uapi/linux/ethtool.h`): [`Feature`]
//! for the old requests, one per group of features, and names for all that the kernel has. Names
//! and their bits differ between kernels, so the kernel is asked for them each time.

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

/// One feature as the kernel knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureState {
    /// The kernel's name, such as `tx-checksum-ip-generic`.
    pub name: String,
    /// Somebody may change it.
    pub available: bool,
    /// Somebody wants it to be on.
    pub requested: bool,
    /// It is on.
    pub active: bool,
    /// No driver ever lets it be changed.
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

    /// True when nobody can change it; `ethtool` says `[fixed]`.
    pub fn is_fixed(&self) -> bool {
        self.never_changed || !self.available
    }
}

impl Netlink {
    /// True when `feature` of `name` is on.
    ///
    /// # Errors
    /// [`LinkError`]; [`LinkError::Refused`] when the driver does not know it.
    pub fn feature(&self, name: &str, feature: Feature) -> Result<bool, LinkError> {
        ethtool::value(self, name, feature.command(), 0).map(|value| value != 0).map_err(|cause| {
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
        let command = feature.command().setter();
        ethtool::value(&*self, name, command, on.into()).map(drop).map_err(|cause| {
            let action = format_args!("set {feature:?} of {name} to {on}");
            self.error(action, name, cause.into())
        })
    }

    /// All features of `name`, by the names that `ethtool -k` shows for single ones.
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

    /// Asks for the feature of `name` that the kernel calls `feature`, such as
    /// `tx-tcp-mangleid-segmentation` or `rx-udp-gro-forwarding`, to be on or off; answers what
    /// became of it. The driver may still keep it off, as a tun device does with what its program
    /// has not asked for: then it is requested, but not active.
    ///
    /// # Errors
    /// [`LinkError::Refused`] when there is no such feature, or it cannot be changed.
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

    /// How many frames the driver of `name` may gather before it hands them to the network stack
    /// (`ethtool -c`, `rx-frames`). A tun device has 0, which is none, to 64; they matter to
    /// vhost-net alone (Linux 4.10).
    ///
    /// # Errors
    /// [`LinkError::Refused`] when the driver gathers nothing.
    pub fn rx_frames(&self, name: &str) -> Result<u32, LinkError> {
        ethtool::rx_frames(self, name).map_err(|cause| {
            self.error(format_args!("read rx-frames of {name}"), name, cause.into())
        })
    }

    /// Sets what [`Self::rx_frames`] tells.
    ///
    /// # Errors
    /// [`LinkError::Refused`] when the driver gathers nothing. A tun device cuts larger numbers
    /// to 64.
    pub fn set_rx_frames(&mut self, name: &str, count: u32) -> Result<(), LinkError> {
        ethtool::set_rx_frames(&*self, name, count).map_err(|cause| {
            self.error(format_args!("set rx-frames of {name} to {count}"), name, cause.into())
        })
    }
}
