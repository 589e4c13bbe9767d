//! Deferred work on frames with offload metadata: segmentation and checksums.
//!
//! Theory of operation. A frame passes through the switch with its [`NetHeader`]: "this is a train
//! of 44 TCP segments with a partial checksum". Ports that support the metadata get the frame
//! unchanged. Only for an egress port that does not, this crate does the work, once, as late as
//! possible:
//!
//! - [`Segments`] splits a train into wire packets: TCP over IPv4 and IPv6 (TSO), UDP datagrams of
//!   equal length (USO), one datagram into IP fragments (UFO, legacy); after any tags, and the
//!   first two also inside VXLAN, Geneve, GRE, NVGRE and IP in IP. Headers are rewritten for each
//!   packet; payload is borrowed from the train, never copied.
//! - [`InPlace`] does the same to a train that the caller owns and no longer needs: contiguous
//!   packets without a header buffer, payload not moved.
//! - [`complete_checksum`] completes the partial checksum of a frame that is not a train, including
//!   SCTP's, which only the headers identify ([`is_sctp_checksum`]).
//! - [`verify()`] checks the checksums of a packet.
//! - [`tags`] inserts and removes tags at any depth.
//! - [`segment_frame_len_max`] and [`wire_bytes`] compute the lengths of a train's packets without
//!   splitting it.
//!
//! In the other direction, [`Coalescer`] joins a batch of packets into trains at the ingress,
//! optionally inside tunnels.
//!
//! A frame is passed as slices, `headers` and `payload` in one or more parts, which together are
//! its bytes: after copy-on-write the headers are owned while the payload is shared. For a
//! contiguous frame, `headers` is the whole frame and `payload` is empty.
//!
//! The rules are those of Linux's software segmentation, byte for byte; `tests/kernel.rs` compares
//! the two and lists the differences. References: virtio 1.2 §5.1.6.2 (meaning of the metadata),
//! RFC 9293 §3.1, RFC 768, RFC 3168 §6.1.2 and RFC 9768 §3.2.2 (CWR), RFC 6864 (identification) and
//! RFC 1624. Limits: a train of at most [`TRAIN_LEN_MAX`] bytes and 8192 packets, packets of at
//! most 65,535 bytes of IP, one tunnel.
//!
//! **Contract.** Nothing here panics, allocates or reads beyond the given slices, for any frame and
//! metadata. `hdr_len` is ignored: headers are parsed again.
//!
//! **Cost.** One pass over the payload, for its checksum, and a copy of the headers for each
//! packet, from a template except for the first and the last. The checksum of an outer tunnel is
//! derived from the same pass. For a port that takes partial checksums the payload is not read
//! ([`ChecksumRule::Partial`]); the outer checksum does not depend on it.
//!
//! Out of scope: I/O, nested tunnels, UFO in tunnels.
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
pub use options::{ChecksumRule, IdRule, SplitOptions};
pub use plan::TRAIN_LEN_MAX;
pub use sctp::is_sctp_checksum;
pub use segments::{Segment, Segments};
pub use tapswitch_wire::tags;
pub use verify::{Checksums, Verdict, verify};
