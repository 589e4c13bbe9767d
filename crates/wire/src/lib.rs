//! Wire formats: Ethernet to TCP headers, the internet checksum, the flow key and the virtio
//! network header.
//!
//! All functions work on byte slices of the caller: no I/O, no clock, no allocation, and no
//! `unsafe` except in the vector loops of [`checksum`]. Header modules define *named offsets* and
//! small readers; they do not own bytes.
//!
//! **Panic contract.** [`parse()`] accepts any bytes. Accessors that take a slice and an offset
//! from a [`Layout`] never panic for the slice that the layout was made from; a function with
//! further requirements documents them.
#![deny(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data")
)]

pub mod arp;
pub mod checksum;
pub mod dccp;
pub mod ecn;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod sctp;
pub mod tags;
pub mod tcp;
pub mod udp;

mod bytes;
mod flow_key;
mod long_net_header;
mod mac;
mod net_header;
mod parse;

pub use bytes::{read_u16, read_u32, write_u16, write_u32};
pub use ethernet::{EtherType, Tag};
pub use flow_key::{
    FRAGMENT, FRAGMENT_WITHOUT_TRANSPORT, FlowKey, KEY_WORDS, MAX_KEY_TAGS, TAG_DEEPER,
};
pub use long_net_header::LongNetHeader;
pub use mac::{MacAddr, ParseMacError};
pub use net_header::{GsoType, MetadataError, NET_HEADER_LEN, NetHeader, NetHeaderFlags};
pub use parse::{Layout, Parsed, Truncated, parse, parse_into};

/// IP protocol numbers (IANA "Assigned Internet Protocol Numbers") that the switch parses.
pub mod ip_proto {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// DCCP (RFC 4340).
    pub const DCCP: u8 = 33;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: u8 = 136;
}
