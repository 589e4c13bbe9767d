//! Bodies of the fuzz targets: one function each, in a file of its own, that takes any bytes and
//! panics if an invariant is violated.
//!
//! The same functions run under libFuzzer (`libfuzzer/`, nightly) and, over the committed seeds and
//! crashes, as plain tests (`tests/replay.rs`, stable). See README.md.
#![forbid(unsafe_code)]

mod coalesce;
mod complete_checksum;
mod filter;
mod frame_parser;
mod gre;
mod guest;
mod guest_frames;
mod openflow_decode;
mod split;
mod tags;
mod verify;
mod vhost_user;
mod virtqueue;
mod vxlan;

pub use coalesce::coalesce;
pub use complete_checksum::complete_checksum;
pub use filter::filter;
pub use frame_parser::frame_parser;
pub use gre::gre;
pub use guest_frames::guest_frames;
pub use openflow_decode::openflow_decode;
pub use split::{split, split_long};
pub use tags::tags;
pub use verify::verify;
pub use vhost_user::vhost_user;
pub use virtqueue::virtqueue;
pub use vxlan::vxlan;

use tapswitch_wire::{NET_HEADER_LEN, NetHeader};

/// A target: its name, which is also the name of its folder, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 14] = [
    ("coalesce", coalesce),
    ("complete_checksum", complete_checksum),
    ("filter", filter),
    ("frame_parser", frame_parser),
    ("gre", gre),
    ("guest_frames", guest_frames),
    ("openflow_decode", openflow_decode),
    ("split", split),
    ("split_long", split_long),
    ("tags", tags),
    ("verify", verify),
    ("vhost_user", vhost_user),
    ("virtqueue", virtqueue),
    ("vxlan", vxlan),
];

/// Reads an input of `split` and `complete_checksum`: the metadata as a device writes it, the
/// length of the headers (big-endian), the frame.
fn metadata_and_frame(data: &[u8]) -> Option<(NetHeader, usize, &[u8])> {
    let (meta, rest) = data.split_first_chunk::<NET_HEADER_LEN>()?;
    let (at, frame) = rest.split_first_chunk()?;
    let at = usize::from(u16::from_be_bytes(*at)).min(frame.len());
    Some((NetHeader::decode(meta), at, frame))
}
