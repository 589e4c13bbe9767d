//! Late work on frames that carry offload metadata: cutting trains and completing checksums.
//!
//! Theory of operation. A frame travels through the switch with its [`NetHeader`]: "this is a train
//! of 44 TCP segments, and its checksum is partial". Ports that understand the metadata get the
//! frame as it is. Only an egress port that does not asks this crate, once, as late as possible:
//!
//! - [`Segments`] cuts a train (TSO for IPv4 and IPv6, USO) into wire packets. Headers are written
//!   anew for each packet; payload is borrowed from the train, never copied.
//! - [`complete_checksum`] finishes the partial checksum of a frame that is not a train.
//! - [`segment_frame_len_max`], [`wire_bytes`]: how long a train's packets are, without cutting it.
//!
//! The reverse is asked for at the ingress: [`Coalescer`] makes trains of a batch of received packets.
//!
//! A frame comes as two slices, `headers` and `payload`, which together are its bytes: after
//! copy-on-write the headers are ours while the payload is shared. A contiguous frame is all
//! `headers` and an empty `payload`.
//!
//! The rules are those of Linux's software segmentation, byte for byte; `tests/kernel.rs` compares
//! the two. Read virtio 1.2 §5.1.6.2 (what the metadata means), RFC 9293 §3.1, RFC 768, RFC 3168
//! §6.1.2 (CWR) and RFC 1624 first. Limits: a train of at most [`TRAIN_LEN_MAX`] bytes, packets of
//! at most 65,535 bytes of IP.
//!
//! **Contract.** Nothing here panics, allocates or reads past the given slices, whatever frame and
//! metadata say. `hdr_len` is never looked at: headers are parsed again.
//!
//! Deliberately absent: I/O, UFO and trains inside tunnels.
//!
//! [`NetHeader`]: tapswitch_wire::NetHeader
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data")
)]

mod checksum;
pub mod coalesce;
mod error;
mod fragments;
mod in_place;
mod layers;
mod length;
mod options;
mod plan;
mod rewrite;
mod segments;
mod tunnel;
mod verify;

pub use checksum::complete_checksum;
pub use coalesce::Coalescer;
pub use error::OffloadError;
pub use in_place::InPlace;
pub use length::{segment_frame_len_max, wire_bytes};
pub use options::{IdRule, SplitOptions};
pub use plan::TRAIN_LEN_MAX;
pub use segments::{Segment, Segments};
pub use tapswitch_wire::tags;
pub use verify::{Checksums, Verdict, verify};
