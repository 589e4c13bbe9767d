//! Small frames from guest to guest, as a worker moves them.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
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

/// Moves bursts of 60-byte frames from one ring of a guest to the other.
pub(crate) fn relay(turns: u32) {
    if let Err(error) = try_relay(turns) {
        eprintln!("no guest: {error}");
    }
}

fn try_relay(turns: u32) -> Result<(), Box<dyn Error>> {
    let (memory, device) = (memory()?, Device::new(1)?);
    let _frontend = connect(&device, &memory)?;
    let (from, to) = (device.transmit_queue(0), device.receive_queue(0));
    let (Some(from), Some(to)) = (from, to) else { return Err("no queues".into()) };
    let mut available = 0u16;
    for _ in 0..turns {
        // The descriptors and the available ring stay the same: only the available index grows.
        available = available.wrapping_add(RING_SIZE);
        for ring in [RECEIVE, TRANSMIT] {
            memory.write_all_at(&available.to_le_bytes(), ring + AVAILABLE + 2)?;
        }
        burst(from, to)?;
    }
    Ok(())
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

/// Memory with two split rings whose drivers have disabled notifications.
fn memory() -> Result<File, Box<dyn Error>> {
    let memory = tempfile::tempfile_in("/dev/shm")?;
    memory.set_len(LEN)?;
    for (ring, write) in [(RECEIVE, 2u16), (TRANSMIT, 0)] {
        memory.write_all_at(&1u16.to_le_bytes(), ring + AVAILABLE)?;
        for index in 0..RING_SIZE {
            let at = u64::from(index);
            let len: u32 = if write == 0 { 12 + 60 } else { 2048 };
            let address = BASE + ring + BUFFERS + 2048 * at;
            let halves =
                [address.to_le_bytes(), (u64::from(write) << 32 | u64::from(len)).to_le_bytes()];
            memory.write_all_at(&halves.concat(), ring + 16 * at)?;
            memory.write_all_at(&index.to_le_bytes(), ring + AVAILABLE + 4 + 2 * at)?;
        }
    }
    Ok(memory)
}

/// A session that runs both rings, for as long as the returned value lives.
fn connect(device: &Arc<Device>, memory: &File) -> Result<Frontend, Box<dyn Error>> {
    let (ours, theirs) = UnixStream::pair()?;
    let serving = device.clone();
    std::thread::spawn(move || serving.serve(theirs, |_| ()));
    let mut frontend = Frontend::from_stream(ours, 2);
    frontend.set_owner()?;
    frontend.get_features()?;
    let protocol = frontend.get_protocol_features()?;
    frontend.set_protocol_features(protocol)?;
    let features = Features::VERSION_1 | Features::MRG_RXBUF | Features::PROTOCOL_FEATURES;
    frontend.set_features(features.bits())?;
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
        frontend.set_vring_base(index, 0)?;
        frontend.set_vring_call(index, &call)?;
        frontend.set_vring_kick(index, &kick)?;
        frontend.set_vring_enable(index, true)?;
    }
    // A reply to this means that all earlier messages were processed.
    frontend.get_features()?;
    Ok(frontend)
}

/// Start of the guest's memory, both for the guest and for its VMM.
const BASE: u64 = 0x10_0000;
const LEN: u64 = 1 << 20;
/// Offsets of the rings, and of their parts behind the descriptors.
const RECEIVE: u64 = 0;
const TRANSMIT: u64 = LEN / 2;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x4000;
