//! The crate beside the kernel's tun driver: of this machine, and of the oldest and the newest
//! Linux that it knows, in guests.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/packet_socket.rs"]
mod packet_socket;
#[path = "../common/programs.rs"]
mod programs;
#[path = "../common/recipe.rs"]
mod recipe;

mod create;
mod engines;
mod filters;
mod frames;
mod inspect;
mod offloads;
mod persistent;
mod queues;
mod quirks;
mod settings;
mod shapes;

#[test]
fn all_this_holds_on_linux_6_1() {
    common::LINUX_6_1.test_all();
}

#[test]
fn all_this_holds_on_linux_7_3() {
    common::LINUX_7_3.test_all();
}
