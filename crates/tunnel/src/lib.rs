//! Tunnels as ports: Ethernet frames in UDP datagrams (VXLAN) over ordinary sockets, or in GRE
//! packets (GRE, ERSPAN) over raw sockets. No kernel device, route or module is needed.
//!
//! ```no_run
//! use std::io::IoSlice;
//! use std::sync::Arc;
//! use tapswitch_tunnel::{Config, RECV_BUF_LEN, Receiver, Room, Vni, VxlanPort};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new("192.0.2.2".parse()?, Vni::new(42).ok_or("too large")?);
//! let port = Arc::new(VxlanPort::open(&config)?);
//! let mut receiver = Receiver::new(port.clone());
//! let mut buf = vec![0; 64 + RECV_BUF_LEN];
//! while let Some(frame) = receiver.recv(&mut buf, 64, Room::ONE)? {
//!     port.send(0, &[IoSlice::new(&buf[frame])])?; // back to where it came from
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **How it works.** A port has one socket to receive, bound to the tunnel's UDP port and connected
//! to the remote address with port 0, so that the kernel distinguishes ports with different remotes
//! and accepts any source port of the remote; and [`SENDERS`] sockets to send, each with its own
//! source port, selected by a hash of the inner flow (RFC 7348 §5, for ECMP). One frame is one
//! datagram. The packets of a train are sent by one sendmsg(2) (`UDP_SEGMENT`, Linux 4.18), and one
//! recvmsg(2) may return many datagrams (`UDP_GRO`, Linux 5.0): between two ends of this kind a
//! train crosses both stacks whole.
//!
//! **GRE and ERSPAN** ([`GrePort`]) have no port numbers to distinguish sockets: the port has one
//! raw socket to receive, connected to the remote, which gets all GRE packets of that remote and
//! keeps those with its key or session; and one to send, which a filter prevents from receiving.
//! One frame is one packet and there are no trains; several packets are sent by one sendmmsg(2).
//!
//! **Checksums.** RFC 7348 §5 says that the outer UDP checksum SHOULD be zero over IPv4. It is
//! computed nevertheless unless [`Config::checksum`] disables it: Linux refuses `UDP_SEGMENT`
//! without it (`EINVAL`; `udp_send_skb` in `net/ipv4/udp.c`, 6.18) and does not join datagrams
//! without it (`udp_gro_receive_segment`), and its own vxlan devices compute it too. With checksum
//! offload in the NIC it costs nothing. Datagrams with a checksum of zero are accepted in any case
//! over IPv4 (RFC 7348 §5); over IPv6 the kernel drops them. The outer checksum does not cover the
//! inner ones, which a sender on this host may have deferred: [`left_undone`].
//!
//! **Fragments.** Packets are never fragmented (RFC 7348 §4.3: "VTEPs MUST NOT fragment"):
//! `IP_PMTUDISC_DO`. A packet that exceeds the path MTU is [`SendError::Oversize`].
//!
//! **ICMP errors** belong to an earlier datagram, and the kernel returns them instead of sending
//! the next one. They are counted ([`Counters::unreachable`]), and that datagram is sent again.
//!
//! **ECN.** The ECN field of the inner packet is copied to each datagram and GRE packet (RFC 6040
//! §4.1, normal mode), by a control message, so that routers can mark packets instead of dropping
//! them. Frames with the same field are still sent together; frames that are not ECN-capable, or
//! not IP, need no control message. Marks of received packets are propagated to the inner packet,
//! and a packet that cannot be marked is dropped ([`Counters::congested`], RFC 6040 §4.2). The
//! outer DSCP is always zero, as that of a Linux vxlan device that does not inherit it (RFC 2983
//! §3.1, the pipe model).
//!
//! **References:** RFC 7348, RFC 2784, RFC 2890, draft-foschiano-erspan-03, RFC 6040, udp(7),
//! raw(7), ip(7), ipv6(7), Linux `include/uapi/linux/udp.h`.
//!
//! **Out of scope:** multicast and learning of remotes (one port, one remote); GPE, GBP and other
//! uses of the reserved bits; scope identifiers of link-local addresses.

mod again;
mod config;
mod congestion;
mod counters;
mod cut;
mod error;
mod gre;
mod gre_port;
mod partial;
mod port;
mod probe;
mod receiver;
mod runs;
mod segments;
mod socket;
mod vxlan;

pub use config::{Config, SEND_BUFFER_LEN, SENDERS, VXLAN_PORT};
pub use counters::{Counters, Refused};
pub use cut::Cut;
pub use error::{OpenError, RecvError, SendError};
pub use gre::{About, Carrier, GreRefusal, PREFIX_MAX, Prefix, Session};
pub use gre_port::{GRE_MAX_PACKETS, GreConfig, GrePort};
pub use partial::left_undone;
pub use port::{MAX_PARTS, VxlanPort, check_addresses};
pub use probe::Probe;
pub use receiver::{RECV_BUF_LEN, Receiver, Room, SLOT_ALIGN};
pub use runs::{DATAGRAMS_LEN_MAX, MAX_PACKETS};
pub use vxlan::{HEADER_LEN, Refusal, Vni, frame_of, header, overhead};
