//! Both ends of a connection, with a simulated wire and clock.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod chunks;
mod faults;
mod handshake;
mod keepalive;
mod multipart;
mod order;
mod pair;
mod pressure;
mod requests;
mod roles;
