//! Segmentation, coalescing and checksums through the public interface.
//!
//! One program, because each file would take as long to link. Files beside this directory create
//! devices.

#[path = "../common/mod.rs"]
mod common;
#[path = "../packets/mod.rs"]
mod packets;

mod coalesce;
mod coalesce_tunnels;
mod fragments;
mod in_place;
mod partial;
mod property;
mod segments;
mod tags;
mod tunnels;
mod verify;
