//! The datapath from outside the crate: rules, groups, modes and queues.
//!
//! One program, because each file by itself would take as long to link.

#[path = "../common/mod.rs"]
mod common;

mod aqm;
mod bursts;
mod cache_model;
mod coalesced;
mod forwarding;
mod fragments;
mod groups;
mod meters;
mod normal;
mod packet_in;
mod remarks_model;
mod rewrite;
mod rules;
mod rules_model;
mod shaping;
mod vlan;
mod waiting;
