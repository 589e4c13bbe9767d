//! Wire format: golden bytes, round trips, corruption, and comparison with Open vSwitch.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod golden;
mod ovs;
mod parts;
mod refusals;
mod roundtrip;
mod samples;
mod strategies;
mod truncation;

use tapswitch_openflow::Message;

fn encode(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out).expect("a message that fits");
    out
}

/// Sets the length in the header to that of `bytes`.
fn set_len(bytes: &mut [u8]) {
    let len = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
}
