//! Cutting, joining and checksums, from outside of the crate.
//!
//! One program, as each file by itself would take as long to link. Files beside this folder make
//! devices.

#[path = "../common/mod.rs"]
mod common;
#[path = "../packets/mod.rs"]
mod packets;

mod coalesce;
mod coalesce_tunnels;
mod fragments;
mod in_place;
mod property;
mod segments;
mod tags;
mod tunnels;
mod verify;
