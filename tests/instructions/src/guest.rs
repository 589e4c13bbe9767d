//! Small frames from guest to guest, as a worker moves them.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tapswitch_vhost::{Device, Features, Part, Queue};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// Buffers of a ring, all of which are used in one turn.
pub(crate) const RING_SIZE: u16 = 32;

/// Kind of both rings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Split,
    Packed,
}

/// Moves bursts of 60-byte frames from one ring of a guest to the other.
pub(crate) fn relay(kind: Kind, turns: u32) {
    if let Err(error) = try_relay(kind, turns) {
        eprintln!("no guest: {error}");
    }
}

fn try_relay(kind: Kind, turns: u32) -> Result<(), Box<dyn Error>> {
    let (memory, device) = (memory()?, Device::new(1)?);
    let _frontend = connect(kind, &device, &memory)?;
    let (from, to) = (device.transmit_queue(0), device.receive_queue(0));
    let (Some(from), Some(to)) = (from, to) else { return Err("no queues".into()) };
    // The flags of a packed ring are other ones in each turn around it.
    let tables = [RECEIVE, TRANSMIT]
        .map(|ring| (ring, [USED_FLAG, AVAIL_FLAG].map(|flag| table(ring, flag))));
    for turn in 1..=turns {
        for (ring, tables) in &tables {
            match kind {
                Kind::Split => make_available(&memory, *ring, turn)?,
                Kind::Packed => memory.write_all_at(&tables[turn as usize % 2], *ring)?,
            }
        }
        burst(from, to)?;
    }
    Ok(())
}

/// In a split ring the descriptors and the available ring stay the same: only the index grows.
fn make_available(memory: &File, ring: u64, turn: u32) -> io::Result<()> {
    let available = (turn * u32::from(RING_SIZE)).to_le_bytes();
    memory.write_all_at(&available[..2], ring + AVAILABLE + 2)
}

/// The descriptors of all buffers of a ring, with further `flags`.
fn table(ring: u64, flags: u64) -> Vec<u8> {
    let descriptor = |index| {
        let (address, len, write) = buffer(ring, index);
        let rest = u64::from(len) | u64::from(index) << 32 | (write | flags) << 48;
        [address.to_le_bytes(), rest.to_le_bytes()].concat()
    };
    (0..RING_SIZE).flat_map(descriptor).collect()
}

fn burst(from: &Queue, to: &Queue) -> Result<(), Box<dyn Error>> {
    let (mut from, mut to) = (from.lock(), to.lock());
    let (Some(from), Some(to)) = (from.as_mut(), to.as_mut()) else { return Err("stopped".into()) };
    let count = from.fetch(usize::from(RING_SIZE))?;
    let mut head = [0; 192];
    for _ in 0..count {
        let Some(chain) = from.peek(0) else { break };
        if let Some((header, len)) = from.read_frame(&chain, black_box(&mut head)) {
            let parts = [Part::Ours(&head[..len.min(head.len())])].into_iter();
            black_box(to.deliver(header, len, parts))?;
        }
        from.complete(0);
    }
    from.publish();
    to.publish();
    Ok(())
}

/// Address, length and the flag WRITE of a buffer.
fn buffer(ring: u64, index: u16) -> (u64, u32, u64) {
    let (len, write) = if ring == TRANSMIT { (12 + 60, 0) } else { (2048, 2) };
    (BASE + ring + BUFFERS + 2048 * u64::from(index), len, write)
}

/// Memory with two split rings whose drivers have disabled notifications. A packed ring takes the
/// place of the descriptors, and its event suppression, disabled too, that of the available ring.
fn memory() -> Result<File, Box<dyn Error>> {
    let memory = tempfile::tempfile_in("/dev/shm")?;
    memory.set_len(LEN)?;
    for ring in [RECEIVE, TRANSMIT] {
        memory.write_all_at(&[1, 0, 1, 0], ring + AVAILABLE)?;
        for index in 0..RING_SIZE {
            let entry = ring + AVAILABLE + 4 + 2 * u64::from(index);
            memory.write_all_at(&index.to_le_bytes(), entry)?;
            // A split ring has no identifier in its descriptors.
            let (address, len, write) = buffer(ring, index);
            let rest = u64::from(len) | write << 32;
            let descriptor = [address.to_le_bytes(), rest.to_le_bytes()].concat();
            memory.write_all_at(&descriptor, ring + 16 * u64::from(index))?;
        }
    }
    Ok(memory)
}

/// A session that runs both rings, for as long as the returned value lives.
fn connect(kind: Kind, device: &Arc<Device>, memory: &File) -> Result<Frontend, Box<dyn Error>> {
    let (ours, theirs) = UnixStream::pair()?;
    let serving = device.clone();
    std::thread::spawn(move || serving.serve(theirs, |_| ()));
    let mut frontend = Frontend::from_stream(ours, 2);
    frontend.set_owner()?;
    frontend.get_features()?;
    let protocol = frontend.get_protocol_features()?;
    frontend.set_protocol_features(protocol)?;
    let features = Features::VERSION_1 | Features::MRG_RXBUF | Features::PROTOCOL_FEATURES;
    let (ring_kind, base) = match kind {
        Kind::Split => (Features::empty(), 0),
        // The start of a packed ring: both wrap counters are one.
        Kind::Packed => (Features::RING_PACKED, 0x8000),
    };
    frontend.set_features((features | ring_kind).bits())?;
    frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE,
        memory_size: LEN,
        userspace_addr: BASE,
        mmap_offset: 0,
        mmap_handle: memory.as_raw_fd(),
    }])?;
    let (kick, call) = (EventFd::new(0)?, EventFd::new(libc::EFD_NONBLOCK)?);
    for (index, ring) in [(0, RECEIVE), (1, TRANSMIT)] {
        let place = VringConfigData {
            queue_max_size: RING_SIZE,
            queue_size: RING_SIZE,
            flags: 0,
            desc_table_addr: BASE + ring,
            avail_ring_addr: BASE + ring + AVAILABLE,
            used_ring_addr: BASE + ring + USED,
            log_addr: None,
        };
        frontend.set_vring_num(index, RING_SIZE)?;
        frontend.set_vring_addr(index, &place)?;
        frontend.set_vring_base(index, base)?;
        frontend.set_vring_call(index, &call)?;
        frontend.set_vring_kick(index, &kick)?;
        frontend.set_vring_enable(index, true)?;
    }
    // A reply to this means that all earlier messages were processed.
    frontend.get_features()?;
    Ok(frontend)
}

/// `VIRTQ_DESC_F_AVAIL` and `VIRTQ_DESC_F_USED`.
const AVAIL_FLAG: u64 = 1 << 7;
const USED_FLAG: u64 = 1 << 15;
/// Start of the guest's memory, both for the guest and for its VMM.
const BASE: u64 = 0x10_0000;
const LEN: u64 = 1 << 20;
/// Offsets of the rings, and of their parts behind the descriptors.
const RECEIVE: u64 = 0;
const TRANSMIT: u64 = LEN / 2;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x4000;
