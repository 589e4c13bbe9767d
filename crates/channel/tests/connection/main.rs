//! Both ends of a connection, joined by a wire of our own and a clock that only we move.
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
