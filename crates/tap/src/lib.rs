//! Linux tap and tun devices, read and written as fast as the kernel allows.
//!
//! A tap device is an Ethernet interface whose cable ends in a file descriptor: what the kernel
//! sends comes out of [`Queue::recv`], what goes into [`Queue::send`] the kernel receives. A tun
//! device carries IP packets without Ethernet ([`Kind`]). Each frame travels behind a 12-byte
//! [`NetHeader`] that says what was left undone: a checksum to complete, a train of up to 64 KiB to
//! cut. Handing trains on whole is worth more than anything else one can do for the speed of a tap
//! device.
//!
//! ```no_run
//! use tapswitch_tap::{Config, Device, NET_HEADER_LEN, NetHeader, RECV_BUF_LEN};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tap = Device::create(&Config::new("tap0".parse()?))?;
//! println!("{} is {}, {:?}", tap.name(), tap.mac()?, tap.capabilities());
//!
//! // Now somebody switches it on: `ip link set tap0 up`.
//! let queue = &tap.queues()[0];
//! let mut buf = vec![0; RECV_BUF_LEN];
//! while let Some(len) = queue.recv(&mut buf)? {
//!     let Some((header, frame)) = buf[..len].split_first_chunk::<NET_HEADER_LEN>() else {
//!         continue;
//!     };
//!     println!("{} bytes, {:?}", frame.len(), NetHeader::decode(header));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **How it fits together.** [`Config`] says what is wanted, [`Device::create`] makes it so and
//! finds out what the kernel can do ([`Capabilities`]), each [`Queue`] is one file descriptor.
//! [`Device::join`] opens queues of a device that is there, [`Device::from_fds`] takes those that
//! another program opened. The device lives until its last queue is closed, unless it is
//! [persistent](Config::persistent). It is made in the network namespace of the calling thread, and
//! its queues work from any other.
//!
//! **Releases of Linux** stand where something came with one. What names none is in every Linux
//! since 2.6.27, the first with the network header.
//!
//! **What the kernel does not tell** (Linux 6.18 and 7.3, `drivers/net/tun.c`), and what is done
//! about it. `tests/quirks.rs` names the test of each:
//!
//! - A buffer that is too short cuts the frame *silently*: use [`RECV_BUF_LEN`].
//! - The offloads ([`Offloads`]) concern what is *received* from the device. Any header may be
//!   sent, also with all offloads off; whether a kind of train is understood depends on the kernel
//!   alone and is found out by a probe on a device of its own that nobody can see.
//! - `TUNSETOFFLOAD` refuses the whole set for one unknown bit. So sets are tried downwards.
//! - Before Linux 6.11, programs that send UDP trains through a device without [`Offloads::CSUM`]
//!   get `EIO`.
//! - Some releases refuse valid trains (6.6.44, 6.10.3): [`SendFallback`] gives up one kind at a
//!   time, and for a while.
//! - Trains in tunnels behind a header of less than 24 bytes make every frame that is read get
//!   lost: they are never enabled there ([`Offloads::within`]).
//! - Flags that a kernel does not know are ignored, never refused: it is asked first for those that
//!   it knows ([`Wish`]).
//! - `EINVAL` does not say that a device is of another kind: the interface is looked at, and
//!   [`Mismatch`] says what to write instead.
//! - A persistent device keeps header length, byte order, offloads, send buffer, link type,
//!   filters, steering and carrier as its former user left them: all are set explicitly.
//! - A multi-queue device may be joined at any time by any program that is permitted to, which
//!   then takes its share of the traffic and may send. `IFF_TUN_EXCL` keeps nobody out: it concerns
//!   the making alone. Before Linux 7.3 *every user* is permitted to where neither
//!   [`Config::owner`] nor [`Config::group`] is set, and `/dev/net/tun` is open to all where udev
//!   runs: set one of both. [`Device::foreign_queues`] counts the queues of others. Linux ignores
//!   the flags of whoever joins: here, it is told what the device is, or refused.
//! - Detaching a queue moves the last one to its index: see [`Device::queue_order`].
//! - With a classic filter, files are called attached that are not, because `IFF_NOFILTER` is
//!   `IFF_NO_PI`: such filters are refused where that can happen, and found out where it did.
//! - Any eBPF program is taken, also one for Ethernet frames by a tun device, where it misreads
//!   each packet: [`Steering::attach`] and [`Filter::attach`] refuse that.
//!   [`Device::set_steering`] and [`Device::set_filter`] are for programs of others too, and cannot
//!   tell.
//! - A full ring drops what the kernel sends: see `tx_dropped` of the interface, and its
//!   `txqueuelen` (1000 frames at first, per queue). The other way nothing is ever full: a file
//!   descriptor is writable as long as the interface is up.
//! - While the interface is down, sending answers [`SendError::Down`] and counts on the
//!   interface's `rx_dropped`; receiving answers `None`.
//! - The copy of a frame is cheapest (one page fragment, no second buffer) when the file is
//!   non-blocking, the send buffer unlimited and the frame shorter than a page. All files here are
//!   non-blocking.
//!
//! **Read first:** Linux `Documentation/networking/tuntap.rst`, `include/uapi/linux/if_tun.h`,
//! virtio 1.2 §5.1.6.
//!
//! **Not done here:** switching the interface on, its MTU and addresses (rtnetlink does that);
//! cutting trains and completing checksums; other operating systems.

mod bpf;
mod capabilities;
mod classic;
mod config;
mod device;
mod engine;
mod error;
mod fallback;
pub mod filter;
mod flags;
mod frame;
mod header;
pub mod inspect;
mod io_error;
mod ioctl;
mod link_type;
mod name;
mod offloads;
mod probe;
mod queue;
pub mod steering;
mod tx_filter;

pub use bpf::{AttachError, BpfError};
pub use capabilities::Capabilities;
pub use classic::ClassicInstruction;
pub use config::Config;
pub use device::{ByteOrder, Device, Found};
pub use engine::{
    Drain, Engine, EngineError, EngineKind, OpenError, Refused, Sent, Uring, Vhost, VhostConfig,
    VhostError,
};
pub use error::{CreateError, Mismatch, SettingError, Taken};
pub use fallback::SendFallback;
pub use filter::{Filter, FilterConfig};
pub use flags::{Flags, Kind, Wish};
pub use frame::{Burst, BurstSize, Frame, FrameMut, Frames, FramesMut, Outgoing};
pub use header::{HeaderLen, PacketInfo, Prefix};
pub use io_error::{RecvError, SendError};
pub use link_type::LinkType;
pub use name::{DeviceName, NameError, NamePattern};
pub use offloads::Offloads;
pub use queue::{MAX_FRAME_LEN, Queue, RECV_BUF_LEN};
pub use steering::{FlowHash, Steering};
pub use tapswitch_wire::{
    EtherType, GsoType, LongNetHeader, MacAddr, NET_HEADER_LEN, NetHeader, NetHeaderFlags,
};
pub use tx_filter::TxFilter;

/// The code of the README is compiled as that of the documentation is.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
