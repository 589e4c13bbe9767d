//! Linux tap and tun devices, with every offload of the kernel.
//!
//! A tap device is an Ethernet interface whose cable ends in a file descriptor: [`Queue::recv`]
//! reads the frames that the kernel transmits, and the kernel receives the frames that
//! [`Queue::send`] writes. A tun device carries IP packets without an Ethernet header ([`Kind`]).
//! Each frame follows a 12-byte [`NetHeader`] that describes deferred work: a checksum to complete,
//! or a train (super-frame) of up to 64 KiB to segment. Most of the speed of a tap device comes
//! from passing trains on whole.
//!
//! ```no_run
//! use tapswitch_tap::{Config, Device, NET_HEADER_LEN, NetHeader, RECV_BUF_LEN};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tap = Device::create(&Config::new("tap0".parse()?))?;
//! println!("{} is {}, {:?}", tap.name(), tap.mac()?, tap.capabilities());
//!
//! // After `ip link set tap0 up`:
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
//! **Overview.** [`Config`] describes a device, [`Device::create`] creates it and determines what
//! the kernel supports ([`Capabilities`]), and each [`Queue`] is one file descriptor.
//! [`Device::join`] opens queues of an existing device, and [`Device::from_fds`] takes file
//! descriptors that another program opened. The device exists until its last queue is closed,
//! unless it is [persistent](Config::persistent). It is created in the network namespace of the
//! calling thread; its queues work from any namespace.
//!
//! **Kernel versions** are given for features that need one. Everything else works since Linux
//! 2.6.27, the first release with the network header.
//!
//! **Pitfalls of the kernel's interface** (Linux 6.18 and 7.3, `drivers/net/tun.c`), and how this
//! crate handles them. `tests/quirks.rs` lists the test for each:
//!
//! - A buffer that is too short truncates the frame *silently*: use [`RECV_BUF_LEN`].
//! - The offloads ([`Offloads`]) apply to frames *received* from the device. Any header may be
//!   sent, even with all offloads off. Which trains may be sent depends on the kernel alone; a
//!   probe on a private device, invisible to other programs, determines it.
//! - `TUNSETOFFLOAD` refuses the whole set because of one unknown bit, so smaller sets are tried
//!   until the kernel accepts one.
//! - Before Linux 6.11, programs that send UDP trains through a device without [`Offloads::CSUM`]
//!   get `EIO`.
//! - Some releases (6.6.44, 6.10.3) refuse valid trains: [`SendFallback`] disables one train type
//!   at a time, temporarily.
//! - With trains in tunnels and a header of less than 24 bytes, the kernel loses every frame that
//!   is read. [`Offloads::within`] never enables that combination.
//! - The kernel ignores unknown flags instead of refusing them, so its known flags are queried
//!   first ([`Wish`]).
//! - `EINVAL` does not say that the device exists with another type. The interface is then queried,
//!   and [`Mismatch`] names the setting to change.
//! - A persistent device keeps header length, byte order, offloads, send buffer, link type,
//!   filters, steering and carrier of its former user: all are set explicitly.
//! - Any program with permission may attach a queue to a multi-queue device at any time, receive a
//!   share of its traffic, and send. `IFF_TUN_EXCL` does not prevent that: it only affects
//!   creation. Before Linux 7.3 *every user* has permission if neither [`Config::owner`] nor
//!   [`Config::group`] is set, and udev makes `/dev/net/tun` accessible to all users: set one of
//!   the two. [`Device::foreign_queues`] counts the queues of other programs. Linux ignores the
//!   flags of additional queues; this crate adopts those of the device ([`Device::join`]), or
//!   refuses.
//! - Detaching a queue moves the last queue to its index: see [`Device::queue_order`].
//! - With a classic filter, Linux reports queues as attached that are not, because `IFF_NOFILTER`
//!   is the same bit as `IFF_NO_PI`. This crate refuses such filters where that could happen, and
//!   detects the ones that a former user left.
//! - Linux accepts any eBPF program, even one for Ethernet frames on a tun device, where it
//!   misreads each packet. [`Steering::attach`] and [`Filter::attach`] check for that;
//!   [`Device::set_steering`] and [`Device::set_filter`] accept any program and cannot.
//! - A full ring drops frames: see the interface's `tx_dropped`, and its `txqueuelen` (1000 frames
//!   per queue by default). In the other direction, nothing fills up by default: the file
//!   descriptor is writable while the interface is up.
//! - While the interface is down, sending returns [`SendError::Down`] and increments the
//!   interface's `rx_dropped`; receiving returns `None`.
//! - A write is cheapest (one page fragment, no second buffer) if the file is non-blocking, the
//!   send buffer unlimited and the frame shorter than a page. All files here are non-blocking.
//!
//! **References:** Linux `Documentation/networking/tuntap.rst`, `include/uapi/linux/if_tun.h`;
//! virtio 1.2 §5.1.6.
//!
//! **Out of scope:** setting the interface up, its MTU and addresses (use rtnetlink); segmentation
//! and completing checksums; other operating systems.

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
mod ring_length;
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
pub use ring_length::lossless_ring_length;
pub use steering::{FlowHash, Steering};
pub use tapswitch_wire::{
    EtherType, GsoType, LongNetHeader, MacAddr, NET_HEADER_LEN, NetHeader, NetHeaderFlags,
};
pub use tx_filter::TxFilter;

/// The code of the README is compiled as that of the documentation is.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
