//! An existing Ethernet interface (a veth, a VMM's tap, a NIC) as a port: receives every incoming
//! frame and sends any frame, with offload metadata in both directions.
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
//! namespace of the thread that opens it. Each frame follows a virtio network header
//! (`PACKET_VNET_HDR`), so trains and partial checksums stay whole. One system call moves one
//! frame, or a batch of sent packets. Threads may share a port.
//!
//! **Pitfalls of the kernel's interface** (Linux 6.18, `net/packet/af_packet.c`, `net/core/dev.c`),
//! and how this crate handles them:
//!
//! - The kernel removes the outermost VLAN tag of each frame before a socket sees it, and passes it
//!   separately (`PACKET_AUXDATA`). [`PacketPort::recv`] restores it, byte for byte, and adjusts
//!   the metadata's offsets.
//! - By default a socket also receives what its interface sends. Disabled here
//!   (`PACKET_IGNORE_OUTGOING`, 4.20).
//! - A socket that is not read drops frames: [`PacketPort::statistics`] counts them.
//! - Trains of types that the header cannot describe (SCTP) are lost at reception, as
//!   [`RecvError::Lost`]. Disable what joins them: `ethtool -K IF gro off`.
//! - Tunneled trains are described as their inner packets. Only the position of the checksum, after
//!   an inner IP header, shows that there is a tunnel. Linux cannot segment such a train when it is
//!   sent: segment it before (with the crate `tapswitch-offload`).
//! - "BIG TCP" creates trains that exceed a buffer of [`RECV_BUF_LEN`]; they are lost as
//!   [`RecvError::Truncated`]. A buffer of [`BIG_RECV_BUF_LEN`] holds them; the lengths in their IP
//!   headers are meaningless, and the jumbo option of IPv6 is removed. It is active if
//!   `gro_max_size` of the interface, or `gso_max_size` of the other end of a veth, is above 65536:
//!   `ip link set IF gro_max_size 65536 gro_ipv4_max_size 65536`.
//! - With `rx-gro-list` on, trains have the checksum of their first packet. It is replaced by that
//!   of a train.
//! - The kernel checks IP and TCP or UDP headers of a sent train, and drops an invalid one with
//!   [`SendError::Congested`].
//! - A TCP train with CWR and without the ECN bit loses CWR on all packets but the first when it is
//!   segmented, because the metadata cannot describe AccECN (RFC 9768). Segment it before.
//! - The length of a sent frame is checked against the MTU, with four additional bytes for a tag
//!   0x8100 but *not* for 0x88a8; the length of a train and its segments is not checked.
//! - The host's own IP stack receives every frame as well. Do not assign an address to an interface
//!   that is a port, or the host answers too.
//!
//! **References:** packet(7), Linux `include/uapi/linux/if_packet.h`, virtio 1.2 §5.1.6.
//!
//! **Out of scope:** setting the interface up, its MTU and monitoring its state (use rtnetlink);
//! rings (`PACKET_RX_RING`), which cannot hold trains; distributing one interface over several
//! sockets (`PACKET_FANOUT`).

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
