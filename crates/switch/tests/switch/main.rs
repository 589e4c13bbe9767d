//! A whole switch, from outside: what its ports, its controllers and its guests see.
//!
//! One program, as each would take as long to link. Files beside this folder have tests that look
//! at their process, or that run in a guest.

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

// What the module of a guest looks for in its crate.
use tapswitch_vhost::{GuestMemory, RegionSpec, RingFeatures, RingPlace};
