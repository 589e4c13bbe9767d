//! A vhost-user back end: guests as network ports, with their virtqueues served from the device's
//! side.
//!
//! A virtual machine monitor (QEMU, Cloud Hypervisor, DPDK's `virtio-user`) shares its guest's
//! memory over a Unix socket and passes the addresses of the virtqueues; frames are then exchanged
//! with the guest without system calls. There are three layers, each usable alone:
//!
//! - [`Device`]: sessions with the VMM, which start, move and stop rings. The messages are
//!   implemented by the `vhost` crate.
//! - [`Queue`], [`Running`]: a ring, locked for a burst; frames in a guest's buffers, from guest to
//!   guest by one copy of the payload ([`Part`]).
//! - [`Ring`], [`Chains`], [`GuestMemory`]: split and packed virtqueues, fetched and given back in
//!   batches.
//!
//! **The guest is hostile**, and so may its VMM be. Every address, length, index and table is
//! fetched once, checked, and used from our copy; an invalid one ends that guest's session with a
//! reason, and no other's. Memory that is truncated reads as zeroes, and is detected. Nothing here
//! waits for a guest; but the kernel may block a thread that touches a guest's page, which a VMM
//! can prolong (see `memory.rs`). `tests/hostile.rs` contains attacks that succeeded on others,
//! `tests/small_model.rs` all small rings; the latter replaces a bounded proof (Kani), whose
//! toolchain this project does not build with.
//!
//! ```no_run
//! use std::os::unix::net::UnixListener;
//! use tapswitch_vhost::Device;
//!
//! # fn main() -> std::io::Result<()> {
//! let device = Device::new(1)?;
//! let (stream, _) = UnixListener::bind("/run/vm0.sock")?.accept()?;
//! let serving = device.clone();
//! let tell = |news| println!("{news:?}");
//! let session = std::thread::spawn(move || serving.serve(stream, tell));
//! if let Some(queue) = device.transmit_queue(0) {
//!     // Wait for the queue to be readable, then:
//!     queue.acknowledge();
//!     if let Some(ring) = queue.lock().as_mut() {
//!         while ring.fetch(64).is_ok_and(|count| count > 0) {
//!             let Some(chain) = ring.peek(0) else { break };
//!             let mut headers = [0; 128];
//!             // The VMM may have disabled the ring: frames must then be discarded.
//!             if ring.is_enabled() {
//!                 println!("{:?}", ring.read_frame(&chain, &mut headers));
//!             }
//!             ring.complete(0);
//!         }
//!         ring.publish();
//!     }
//! }
//! println!("{:?}", session.join());
//! # Ok(())
//! # }
//! ```
//!
//! `examples/reflect.rs` is a complete program. **Read first:** virtio 1.2 §2.7, §2.8 and §5.1, and
//! "Vhost-user Protocol" in QEMU's documentation.
//!
//! **Not here:** a table of buffers in flight (positions are found in the rings, see [`Ring`] and
//! `docs/adr/0013-no-table-of-buffers-in-flight.md`), `VHOST_USER_PROTOCOL_F_STATUS`.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data")
)]

mod call;
mod chain;
mod copy;
mod device;
mod features;
mod guard;
mod log;
mod memory;
mod net;
mod queue;
mod ring;
mod scatter;
mod shortage;
#[cfg(test)]
mod test_guest;

pub use chain::{Chain, Chains};
pub use device::{Device, MEMORY_LOST, MORE_FILES, News, SessionEnd, Status};
pub use features::{Features, NET_HEADER_LEN, RingFeatures};
pub use memory::{GuestBytes, GuestMemory, MapError, MemoryError, RegionSpec};
pub use net::{Part, RawHeader, Undelivered};
pub use queue::{Held, Queue, Running, SessionNumber};
pub use ring::{Direction, PREFETCHED_LEN, Ring, RingError, RingPlace};
pub use scatter::{MAX_PIECES, send_parts, write_parts};
pub use shortage::Shortage;
