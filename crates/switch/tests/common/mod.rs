//! Shared test support: namespaces with hosts, a running switch, a controller driven by tests,
//! traffic, captured frames.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod capture;
mod controller;
mod host;
mod lab;
pub(crate) mod ofctl;
mod rules;
mod traffic;
mod underlay;

pub(crate) use tapswitch_helpers::{
    PATIENCE, can_tap as can_run, eventually, set_udp_segment, skip, unique, unprivileged,
};

pub(crate) use capture::{Capture, frame, without_hint};
pub(crate) use controller::{Controller, accept, listen};
pub(crate) use host::{Host, introduce};
pub(crate) use lab::{Lab, Running, ask, config, has_dropped, runtime, start_here};
pub(crate) use rules::*;
pub(crate) use traffic::*;
pub(crate) use underlay::{Fabric, TUNNEL, Underlay, VXLAN};

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
