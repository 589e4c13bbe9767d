//! An Ethernet interface that exists already (a veth, a VMM's tap, a NIC) as a port: every frame
//! that comes in on it is received, any frame can be sent out, with offload metadata both ways.
//!
//! ```no_run
//! use std::io::IoSlice;
//! use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let port = PacketPort::open("veth0", &Config::default())?;
//! let mut buf = vec![0; RECV_BUF_LEN];
//! while let Some(received) = port.recv(&mut buf, HEADROOM_MIN)? {
//!     let frame = &buf[received.frame];
//!     port.send(&received.header, &[IoSlice::new(frame)])?; // back to where it came from
//! }
//! println!("{:?}", port.statistics()?);
//! # Ok(())
//! # }
//! ```
//!
//! **How it works.** One `AF_PACKET` socket per port, bound to one interface in the network
//! namespace of the thread that opens it. Each frame travels behind a virtio network header
//! (`PACKET_VNET_HDR`), so trains and partial checksums pass whole. One system call moves one
//! frame, or a batch of packets that are sent. Threads may share a port.
//!
//! **What the kernel does on the way** (Linux 6.18, `net/packet/af_packet.c`, `net/core/dev.c`),
//! and what is done about it:
//!
//! - The outermost VLAN tag is taken off each frame before a socket sees it, and told beside it
//!   (`PACKET_AUXDATA`). [`PacketPort::recv`] puts it back, byte for byte, and moves the metadata's
//!   offsets along.
//! - A socket sees what its own interface sends, too. Not here (`PACKET_IGNORE_OUTGOING`, 4.20).
//! - A socket that is not read drops frames: [`PacketPort::statistics`] counts them.
//! - Trains of kinds that the header has no words for (SCTP) are lost at reception, as
//!   [`RecvError::Lost`]. Switch off what joins them: `ethtool -K IF gro off`.
//! - Trains in tunnels come as what is inside. Nothing but the place of the checksum, behind an
//!   inner IP header, says that there is a tunnel. Linux cannot cut one that is sent like that: cut
//!   it before (the crate `tapswitch-offload` does).
//! - "BIG TCP" makes trains that no buffer of [`RECV_BUF_LEN`] takes; they are lost as
//!   [`RecvError::Truncated`]. One of [`BIG_RECV_BUF_LEN`] takes them; the lengths in their IP
//!   headers say nothing, and the jumbo option of IPv6 is taken out. It is on where `gro_max_size`
//!   of the interface is above 65536, or `gso_max_size` of the other end of a veth:
//!   `ip link set IF gro_max_size 65536 gro_ipv4_max_size 65536`.
//! - With `rx-gro-list` on, trains come with the checksum of their first packet. They are given
//!   that of a train.
//! - A train's IP and TCP or UDP headers are checked when it is sent; one that is none is dropped
//!   and told as [`SendError::Congested`], the kernel's word for it.
//! - A TCP train with CWR and without the ECN bit loses CWR on all packets but the first where it
//!   is cut, as the metadata has no word for AccECN (RFC 9768). Cut it before.
//! - The length of a frame is checked against the MTU when sent, with four bytes more for a tag
//!   0x8100 but *not* for 0x88a8; the length of a train and its segments is not checked at all.
//! - The host's own IP stack receives every frame as well. Give an interface that is a port no
//!   address, or the host answers too.
//!
//! **Read first:** packet(7), Linux `include/uapi/linux/if_packet.h`, virtio 1.2 §5.1.6.
//!
//! **Not done here:** switching the interface on, its MTU and the watch over its state (rtnetlink
//! does that); rings (`PACKET_RX_RING`), which cannot grow with a train; sharing one interface out
//! among sockets (`PACKET_FANOUT`).

mod config;
mod error;
mod jumbo;
mod list;
mod port;
mod probe;
mod socket;
mod tag;

pub use config::{Config, SEND_BUFFER_LEN};
pub use error::{OpenError, RecvError, SendError};
pub use port::{
    BIG_RECV_BUF_LEN, Capabilities, HEADROOM_MIN, MAX_FRAME_LEN, MAX_PACKETS, MAX_PARTS,
    PacketPort, RECV_BUF_LEN, Received, SEND_HEADER_LEN, Statistics,
};
