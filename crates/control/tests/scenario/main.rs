//! The control plane with switches modelled by our datapath, connected by OpenFlow bytes.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod frames;
mod model;
mod moves;
mod world;

mod away;
mod claims;
mod contests;
mod contracts;
mod counters;
mod crowd;
mod drift;
mod errors;
mod fabric;
mod flapping;
mod floods;
mod forms;
mod learning;
mod ledger;
mod lifetime;
mod notes;
mod points;
mod proof;
mod property;
mod reconnect;
mod replace;
mod rewriting;
mod room;
mod sharing;
mod silence;
mod sinks;
mod taps;
mod ways;
