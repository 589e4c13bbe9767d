//! The server over real TCP, with scripted switches.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod running;
mod script;

mod connections;
mod etcd;
mod requests;
mod rest;
