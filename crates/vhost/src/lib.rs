//! Guests as ports of a switch: their memory, and the virtqueues in it, from the device's side.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data")
)]

mod chain;
mod device;
mod features;
mod guard;
mod memory;
mod net;
mod queue;
mod ring;
#[cfg(test)]
mod test_guest;

pub use chain::{Chain, Chains};
pub use device::{Device, SessionEnd};
pub use features::Features;
pub use memory::{GuestBytes, GuestMemory, MemoryError, RegionSpec};
pub use net::{NET_HEADER_LEN, Part, Undelivered};
pub use queue::{Queue, Running};
pub use ring::{Direction, Ring, RingError, RingFeatures, RingPlace};
