//! Late work on frames that carry offload metadata: cutting trains and completing checksums.
//!
//! Theory of operation. A frame travels through the switch with its [`NetHeader`]: "this is a train
//! of 44 TCP segments, and its checksum is partial". Ports that understand the metadata get the
//! frame as it is. Only an egress port that does not asks this crate, once, as late as possible:
//!
//! - [`Segments`] cuts a train into wire packets: TCP over IPv4 and IPv6 (TSO), UDP datagrams of
//!   equal length (USO), one datagram into IP fragments (UFO, legacy); behind any tags, and the
//!   first two also inside VXLAN, Geneve, GRE, NVGRE and IP in IP. Headers are written anew for
//!   each packet; payload is borrowed from the train, never copied.
//! - [`InPlace`] does the same to a train that the caller owns and needs no more: packets in one
//!   piece, without a buffer for headers, payload not moved.
//! - [`complete_checksum`] finishes the partial checksum of a frame that is not a train, SCTP's
//!   too, which nothing but the headers tells ([`is_sctp_checksum`]).
//! - [`verify()`] says whether the checksums of a packet are right.
//! - [`tags`]: putting tags into a frame's stack, at any depth, and taking them out.
//! - [`segment_frame_len_max`], [`wire_bytes`]: how long a train's packets are, without cutting it.
//!
//! The reverse is asked for at the ingress: [`Coalescer`] makes trains of a batch of packets,
//! inside tunnels for those that ask.
//!
//! A frame comes as slices, `headers` and `payload` in one or more parts, which together are its
//! bytes: after copy-on-write the headers are ours while the payload is shared. A contiguous frame
//! is all `headers` and an empty `payload`.
//!
//! The rules are those of Linux's software segmentation, byte for byte; `tests/kernel.rs` compares
//! the two and lists where they part. Read virtio 1.2 §5.1.6.2 (what the metadata means), RFC 9293
//! §3.1, RFC 768, RFC 3168 §6.1.2 and RFC 9768 §3.2.2 (CWR), RFC 6864 (identification) and RFC 1624
//! first. Limits: a train of at most [`TRAIN_LEN_MAX`] bytes and 8192 packets, packets of at most
//! 65,535 bytes of IP, one tunnel.
//!
//! **Contract.** Nothing here panics, allocates or reads past the given slices, whatever frame and
//! metadata say. `hdr_len` is never looked at: headers are parsed again.
//!
//! **Cost.** One pass over the payload, for its checksum, and a copy of the headers for each
//! packet, made from a template but for the first and the last. The checksum of a tunnel around it
//! is had from that pass.
//!
//! Deliberately absent: I/O, tunnels in tunnels, UFO in tunnels.
//!
//! [`NetHeader`]: tapswitch_wire::NetHeader
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data")
)]

mod checksum;
pub mod coalesce;
mod crc32c;
mod encapsulation;
mod error;
mod fragments;
mod in_place;
mod ip;
mod layers;
mod length;
mod middle;
mod options;
mod plan;
mod rewrite;
mod sctp;
mod segments;
mod tunnel;
mod verify;

pub use checksum::complete_checksum;
pub use coalesce::Coalescer;
pub use error::OffloadError;
pub use in_place::InPlace;
pub use length::{FRAGMENT_HEADER_LEN, segment_frame_len_max, wire_bytes};
pub use options::{IdRule, SplitOptions};
pub use plan::TRAIN_LEN_MAX;
pub use sctp::is_sctp_checksum;
pub use segments::{Segment, Segments};
pub use tapswitch_wire::tags;
pub use verify::{Checksums, Verdict, verify};
