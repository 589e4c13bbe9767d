//! Guests as ports of a switch: their memory, and the virtqueues in it, from the device's side.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data")
)]

mod chain;
mod guard;
mod memory;
mod ring;
#[cfg(test)]
mod test_guest;

pub use chain::{Chain, Chains};
pub use memory::{GuestBytes, GuestMemory, MemoryError, RegionSpec};
pub use ring::{Direction, Ring, RingError, RingFeatures, RingPlace};
