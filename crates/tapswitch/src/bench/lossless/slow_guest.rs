//! A virtual machine that takes frames at a pace of its own, without a VMM: the driver of one
//! receive ring, whose memory is a file.
//!
//! A slow link is emulated by the kernel on the core that sends to it, with a timer for each train
//! that it releases. This guest costs that core nothing but the copy into its memory, as a real one
//! on another core does: it gives back buffers once per [`TICK`], unread.
//!
//! ```text
//! 0x0000  descriptors ┐                0x10_0000  buffers, one per descriptor
//! 0x1000  available   │ receive ring
//! 0x2000  used        ┘                the transmit ring is empty, at 0x4000
//! ```

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use tapswitch_vhost::Features;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use super::Failure;

/// A running guest, ended on drop.
pub(super) struct SlowGuest {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// The session, which ends with its socket.
    _frontend: Frontend,
}

impl SlowGuest {
    /// Connects a guest to the switch's port at `socket`. It takes `mbps` Mb/s; everything if
    /// `None`.
    pub(super) fn start(socket: &Path, mbps: Option<f64>) -> Result<Self, Failure> {
        let mut frontend = Frontend::from_stream(UnixStream::connect(socket)?, 2);
        negotiate(&mut frontend)?;
        let ring = Ring::new(mbps)?;
        frontend.set_mem_table(&[ring.region()])?;
        let call = EventFd::new(0)?;
        for (index, start) in [(0, RECEIVE), (1, TRANSMIT)] {
            start_ring(&mut frontend, index, start, &ring.kick, &call)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = thread::Builder::new().name("guest".to_owned());
        let thread = Some(thread.spawn(move || ring.run(&flag))?);
        Ok(Self { is_over, thread, _frontend: frontend })
    }
}

impl Drop for SlowGuest {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Ok(Err(error))) = ended {
            tell!("the guest cannot access its memory: {error}");
        }
    }
}

fn negotiate(frontend: &mut Frontend) -> Result<(), vhost::Error> {
    frontend.set_owner()?;
    frontend.get_features()?;
    let protocol = frontend.get_protocol_features()?;
    frontend.set_protocol_features(protocol & VhostUserProtocolFeatures::REPLY_ACK)?;
    frontend.set_features(FEATURES.bits())
}

/// Starts queue `index`, with its ring at `start`.
fn start_ring(
    frontend: &mut Frontend,
    index: usize,
    start: u64,
    kick: &EventFd,
    call: &EventFd,
) -> Result<(), vhost::Error> {
    let place = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: BASE + start,
        avail_ring_addr: BASE + start + AVAILABLE,
        used_ring_addr: BASE + start + USED,
        log_addr: None,
    };
    frontend.set_vring_num(index, SIZE)?;
    frontend.set_vring_addr(index, &place)?;
    frontend.set_vring_base(index, 0)?;
    frontend.set_vring_call(index, call)?;
    frontend.set_vring_kick(index, kick)?;
    frontend.set_vring_enable(index, true)
}

/// A receive ring from the driver's side.
struct Ring {
    memory: File,
    kick: EventFd,
    /// Bytes per second; `None` for no limit.
    rate: Option<f64>,
    /// Buffers made available so far, and those that were seen to be used, modulo 65536.
    offered: u16,
    seen: u16,
}

impl Ring {
    /// A ring full of buffers.
    fn new(mbps: Option<f64>) -> Result<Self, Failure> {
        let memory: OwnedFd = rustix::fs::memfd_create("slow-guest", MemfdFlags::CLOEXEC)?;
        let memory = File::from(memory);
        memory.set_len(MEMORY_LEN)?;
        for id in 0..SIZE {
            let address = BASE + BUFFERS + u64::from(id) * u64::from(BUFFER_LEN);
            let descriptor = [&address.to_le_bytes()[..], &BUFFER_LEN.to_le_bytes(), &WRITABLE];
            memory.write_all_at(&descriptor.concat(), RECEIVE + 16 * u64::from(id))?;
        }
        let rate = mbps.map(|mbps| mbps * 1e6 / 8.0);
        let mut ring = Self { memory, kick: EventFd::new(0)?, rate, offered: 0, seen: 0 };
        (0..SIZE).try_for_each(|id| ring.offer(id))?;
        ring.show()?;
        Ok(ring)
    }

    fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: MEMORY_LEN,
            userspace_addr: BASE,
            mmap_offset: 0,
            mmap_handle: self.memory.as_raw_fd(),
        }
    }

    /// Takes frames until it `is_over`.
    fn run(mut self, is_over: &AtomicBool) -> io::Result<()> {
        let (mut due, mut before) = (0.0, Instant::now());
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            let now = Instant::now();
            due = match self.rate {
                // What was not there to be taken is not made up for.
                Some(rate) => (due + rate * (now - before).as_secs_f64()).min(rate * CATCH_UP),
                None => f64::INFINITY,
            };
            before = now;
            due -= self.take(due)?;
        }
        Ok(())
    }

    /// Gives back used buffers, until they contained `due` bytes. Returns how many they did.
    fn take(&mut self, due: f64) -> io::Result<f64> {
        let (mut taken, before) = (0.0, self.offered);
        let [flags, used] = [self.read_u16(RECEIVE + USED)?, self.read_u16(RECEIVE + USED + 2)?];
        while self.seen != used && taken < due {
            let element = RECEIVE + USED + 4 + 8 * u64::from(self.seen % SIZE);
            let id = self.read_u16(element)?;
            taken += f64::from(self.read_u32(element + 4)?);
            self.seen = self.seen.wrapping_add(1);
            self.offer(id)?;
        }
        if self.offered != before {
            self.show()?;
            if flags & NO_NOTIFY == 0 {
                self.kick.write(1)?;
            }
        }
        Ok(taken)
    }

    /// Puts a buffer into the ring.
    fn offer(&mut self, id: u16) -> io::Result<()> {
        let place = RECEIVE + AVAILABLE + 4 + 2 * u64::from(self.offered % SIZE);
        self.offered = self.offered.wrapping_add(1);
        self.memory.write_all_at(&id.to_le_bytes(), place)
    }

    /// Makes all buffers in the ring available to the device.
    fn show(&self) -> io::Result<()> {
        self.memory.write_all_at(&self.offered.to_le_bytes(), RECEIVE + AVAILABLE + 2)
    }

    fn read_u16(&self, at: u64) -> io::Result<u16> {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, at)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn read_u32(&self, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// How often frames are taken, as a guest's interrupts are moderated.
const TICK: Duration = Duration::from_millis(1);
/// Seconds of its rate that a guest takes at once after it was not scheduled.
const CATCH_UP: f64 = 0.01;
/// Descriptors per ring: QEMU's default.
const SIZE: u16 = 256;
/// Address of the memory, of the guest and of the VMM.
const BASE: u64 = 1 << 32;
const RECEIVE: u64 = 0;
const TRANSMIT: u64 = 0x4000;
/// From the start of a ring.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 1 << 20;
/// A train of maximum length, its network header, and tags.
const BUFFER_LEN: u32 = 68 * 1024;
// Nothing overlaps.
const _: () = {
    let size = SIZE as u64;
    assert!(16 * size <= AVAILABLE && AVAILABLE + 6 + 2 * size <= USED);
    assert!(USED + 6 + 8 * size <= TRANSMIT - RECEIVE && 2 * TRANSMIT <= BUFFERS);
};
const MEMORY_LEN: u64 = BUFFERS + SIZE as u64 * BUFFER_LEN as u64;
/// The flags of a descriptor that the device writes to, alone in its chain (virtio 1.2 §2.7.5).
const WRITABLE: [u8; 4] = [2, 0, 0, 0];
/// The device asks not to be told of new buffers (virtio 1.2 §2.7.10).
const NO_NOTIFY: u16 = 1;
/// Trains arrive whole.
const FEATURES: Features = Features::VERSION_1
    .union(Features::PROTOCOL_FEATURES)
    .union(Features::GUEST_CSUM)
    .union(Features::GUEST_TSO4)
    .union(Features::GUEST_TSO6)
    .union(Features::GUEST_ECN);

#[cfg(test)]
mod tests {
    use super::*;

    /// The device's side: uses the next `count` buffers for frames of `len` bytes.
    fn fill(ring: &Ring, used: &mut u16, count: u16, len: u32) {
        for _ in 0..count {
            let id = u32::from(*used % SIZE);
            let element = [id.to_le_bytes(), len.to_le_bytes()].concat();
            let at = RECEIVE + USED + 4 + 8 * u64::from(*used % SIZE);
            ring.memory.write_all_at(&element, at).unwrap();
            *used = used.wrapping_add(1);
        }
        ring.memory.write_all_at(&used.to_le_bytes(), RECEIVE + USED + 2).unwrap();
    }

    #[test]
    fn a_guest_takes_what_is_due_and_no_more() {
        let (mut ring, mut used) = (Ring::new(Some(1.0)).unwrap(), 0);
        assert_eq!((ring.offered, ring.read_u16(RECEIVE + AVAILABLE + 2).unwrap()), (SIZE, SIZE));
        fill(&ring, &mut used, 5, 1000);
        assert!((ring.take(2500.0).unwrap() - 3000.0).abs() < 1.0, "whole frames");
        assert_eq!((ring.seen, ring.offered), (3, SIZE + 3));
        assert!(ring.take(-500.0).unwrap() < 1.0, "it took more than was due before");
        assert_eq!(ring.read_u16(RECEIVE + AVAILABLE + 2).unwrap(), SIZE + 3);
        assert!((ring.take(f64::INFINITY).unwrap() - 2000.0).abs() < 1.0, "all that is there");
    }
}
