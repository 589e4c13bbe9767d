//! Tests of a whole switch from outside: its ports, its controllers and its guests.
//!
//! One program, as linking each test separately would take as long. Files next to this directory
//! have tests that examine their process, or that run in a guest.

#[path = "../common/mod.rs"]
mod common;
#[path = "../vm/mod.rs"]
mod vm;

mod burdens;
mod congestion;
mod controller;
mod copies;
mod fail_mode;
mod faults;
mod files;
mod forwarding;
mod gre;
mod gro;
mod guest_rings;
mod guests;
mod malformed;
mod meters;
mod names;
mod netdev;
mod ofctl;
mod offload;
mod os_ken;
mod ports;
mod pressure;
mod robustness;
mod shaping;
mod start;
mod tun;
mod tunnel;
mod vlan;

// The guest module imports these from its crate.
use tapswitch_vhost::{GuestMemory, RegionSpec, RingFeatures, RingPlace};
