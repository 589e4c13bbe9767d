//! Tunnels as ports: Ethernet frames in UDP datagrams (VXLAN) by ordinary sockets, or in GRE
//! packets (GRE, ERSPAN) by raw ones, so that no device, route or module has to be made for them.
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
//! **How it works.** A port is one socket to receive by, bound to the tunnel's UDP port and
//! connected to the remote address with port 0, so that the kernel tells ports with different
//! remotes apart and any source port of the remote's is welcome; and [`SENDERS`] sockets to send
//! by, each with a source port of its own, one of which a hash of the inner flow chooses (RFC 7348
//! §5: the routers between see several flows). One frame is one datagram. The packets of a train
//! go out by one sendmsg(2) (`UDP_SEGMENT`, Linux 4.18), and one recvmsg(2) may bring many
//! datagrams (`UDP_GRO`, Linux 5.0): between two ends of ours a train crosses both stacks whole.
//!
//! **GRE and ERSPAN** ([`GrePort`]) have no ports that tell sockets apart: the port has one raw
//! socket to receive by, connected to the remote, which gets all GRE packets of that remote, and
//! takes those of its key or session; and one to send by, which a filter makes deaf. One frame is
//! one packet and there are no trains; several packets go out by one sendmmsg(2).
//!
//! **Checksums.** RFC 7348 §5 says that the outer UDP checksum SHOULD be zero over IPv4. It is
//! computed here all the same unless [`Config::checksum`] says otherwise: Linux refuses
//! `UDP_SEGMENT` without (`EINVAL`; `udp_send_skb` in `net/ipv4/udp.c`, 6.18) and joins no
//! datagrams without (`udp_gro_receive_segment`), and its own vxlan devices compute it too. Where
//! the NIC does the sum it costs nothing. Datagrams with a checksum of zero are taken either way
//! over IPv4 (RFC 7348 §5); over IPv6 the kernel drops them. The outer checksum says nothing of the
//! inner ones, which a sender on this host may even have left undone: [`left_undone`].
//!
//! **Fragments.** None are made (RFC 7348 §4.3: "VTEPs MUST NOT fragment"): `IP_PMTUDISC_DO`. What
//! is longer than the path takes is [`SendError::Oversize`].
//!
//! **Errors from afar.** An ICMP error belongs to an earlier datagram, and the kernel tells it in
//! place of sending the next. It is counted ([`Counters::unreachable`]), and that one is sent
//! again.
//!
//! **Marks.** Each datagram and GRE packet says outside what the packet in it says of ECN (RFC 6040
//! §4.1, normal mode), by a control message, so that routers mark what they would drop else.
//! Frames that say the same go out together as before; one that is not ECN-capable, or not IP,
//! needs no control message. What comes in marked has its inner packet marked, and one that cannot
//! be is left out ([`Counters::congested`], RFC 6040 §4.2). The outer DSCP is always zero, as that
//! of a vxlan device of Linux is unless it is told to inherit (RFC 2983 §3.1, the pipe model).
//!
//! **Read first:** RFC 7348, RFC 2784, RFC 2890, draft-foschiano-erspan-03, RFC 6040, udp(7),
//! raw(7), ip(7), ipv6(7), Linux `include/uapi/linux/udp.h`.
//!
//! **Not done here:** multicast and learning of remotes (one port, one remote); GPE, GBP and other
//! uses of the reserved bits; scope identifiers of link-local addresses.

mod address;
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
mod receiver;
mod runs;
mod segments;
mod socket;
mod vxlan;

pub use address::has_address;
pub use config::{Config, SEND_BUFFER_LEN, SENDERS, VXLAN_PORT};
pub use counters::{Counters, Refused};
pub use cut::Cut;
pub use error::{OpenError, RecvError, SendError};
pub use gre::{About, Carrier, GreRefusal, PREFIX_MAX, Prefix, Session};
pub use gre_port::{GRE_MAX_PACKETS, GreConfig, GrePort};
pub use partial::left_undone;
pub use port::{MAX_PARTS, VxlanPort};
pub use receiver::{RECV_BUF_LEN, Receiver, Room, SLOT_ALIGN};
pub use runs::{DATAGRAMS_LEN_MAX, MAX_PACKETS};
pub use vxlan::{HEADER_LEN, Refusal, Vni, frame_of, header, overhead};
