//! What the code that moves frames costs, counted and inspected in builds of its own.
//!
//! One program for all, so that their builds and runs use all processors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "test code; counts have less than 53 bits"
)]

mod common;
mod guard;
mod inlined;
