//! Guests for tests: a VMM with a driver, and a switch with several of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a panic fails a test; test data"
)]

#[path = "../../../vhost/src/test_guest.rs"]
#[expect(dead_code, reason = "these tests do without a part of it")]
mod test_guest;

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use tapswitch_switch::Config;
use tapswitch_switch::report::GuestReport;
use tapswitch_vhost::{Features, RingFeatures, RingPlace};
use tapswitch_wire::{MacAddr, NetHeader};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use crate::common::*;
use test_guest::{BASE, Buffer, Driver, Guest};
pub(crate) use test_guest::{BUFFERS, LEN};

/// Two memories of a megabyte each: one with the ring on which the guest sends, and one with the
/// ring on which it receives, [`APART`] from the first.
pub(crate) struct Vm {
    frontend: Frontend,
    /// For messages that `Frontend` does not implement.
    stream: UnixStream,
    sends: Guest,
    receives: Guest,
    send_ring: Driver,
    receive_ring: Driver,
    kick: EventFd,
    call: EventFd,
    /// Receive buffers provided so far, in order.
    offered: u64,
    sent: u64,
    taken: u64,
    /// Frames that arrived after the requested ones.
    inbox: VecDeque<Vec<u8>>,
}

impl Vm {
    /// A guest at a socket, with receive buffers.
    pub(crate) fn start(path: &PathBuf, features: Features) -> Self {
        let mut vm = Self::connect(path, features);
        vm.start_rings();
        vm.set_up();
        vm
    }

    /// Provides receive buffers, as a driver does when its interface is set up.
    pub(crate) fn set_up(&mut self) {
        (0..RING_SIZE).for_each(|_| self.offer(RECEIVE));
    }

    pub(crate) fn connect(path: &PathBuf, features: Features) -> Self {
        let stream = eventually("a socket", || UnixStream::connect(path).ok());
        let raw = stream.try_clone().unwrap();
        let mut frontend = Frontend::from_stream(stream, 4);
        frontend.set_owner().unwrap();
        frontend.get_features().unwrap();
        let protocol = frontend.get_protocol_features().unwrap();
        frontend.set_protocol_features(protocol).unwrap();
        frontend.set_features(features.bits()).unwrap();
        let ring = || {
            let packed = features.contains(Features::RING_PACKED);
            let features = RingFeatures { packed, event_index: true, indirect: true };
            Driver::new(RING_SIZE, features)
        };
        Self {
            frontend,
            stream: raw,
            sends: Guest::new(),
            receives: Guest::new(),
            send_ring: ring(),
            receive_ring: ring(),
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
            offered: 0,
            sent: 0,
            taken: 0,
            inbox: VecDeque::new(),
        }
    }

    /// Announces the guest, as VMMs do after a migration if it does not do so itself
    /// (`VHOST_USER_SEND_RARP`).
    pub(crate) fn announce(&mut self, station: MacAddr) {
        let header = [19, 1, 8_u32].map(u32::to_ne_bytes).concat();
        let message = [&header[..], &station.0, &[0; 2]].concat();
        self.stream.write_all(&message).unwrap();
    }

    pub(crate) fn start_rings(&mut self) {
        let regions = [region(&self.sends, 0), region(&self.receives, APART)];
        self.frontend.set_mem_table(&regions).unwrap();
        self.start_ring(0, APART);
        self.start_ring(1, 0);
    }

    /// Starts queue `index` with a ring `apart` bytes from the start of the first memory.
    fn start_ring(&mut self, index: usize, apart: u64) {
        let RingPlace { size, descriptors, driver, device } = self.send_ring.place();
        let place = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: descriptors + apart,
            avail_ring_addr: driver + apart,
            used_ring_addr: device + apart,
            log_addr: None,
        };
        self.frontend.set_vring_num(index, size).unwrap();
        self.frontend.set_vring_addr(index, &place).unwrap();
        self.frontend.set_vring_base(index, self.send_ring.base() as u16).unwrap();
        self.frontend.set_vring_call(index, &self.call).unwrap();
        self.frontend.set_vring_kick(index, &self.kick).unwrap();
        self.frontend.set_vring_enable(index, true).unwrap();
    }

    /// Runs a second pair's receive ring as well, in memory of its own, full of buffers.
    pub(crate) fn start_second_pair(&mut self) -> SecondRing {
        let (guest, features) =
            (Guest::new(), RingFeatures { packed: false, event_index: true, indirect: true });
        self.frontend.add_mem_region(&region(&guest, 2 * APART)).unwrap();
        let mut ring = SecondRing { guest, driver: Driver::new(RING_SIZE, features), offered: 0 };
        (0..RING_SIZE).for_each(|_| ring.offer());
        self.start_ring(2, 2 * APART);
        // An answer arrives when it runs.
        self.frontend.get_features().unwrap();
        ring
    }

    /// Stops the second pair's ring. Frames in it stay there.
    pub(crate) fn stop_second_pair(&mut self) {
        self.frontend.get_vring_base(2).unwrap();
    }

    /// Shares all of its memory again, so that both of its rings stop and continue.
    pub(crate) fn share_again(&mut self) {
        let regions = [region(&self.sends, 0), region(&self.receives, APART)];
        self.frontend.set_mem_table(&regions).unwrap();
    }

    /// Removes the memory that it receives into, with the ring, as if it were to be replaced.
    pub(crate) fn take_memory(&mut self) {
        self.frontend.remove_mem_region(&region(&self.receives, APART)).unwrap();
    }

    /// Adds it again.
    pub(crate) fn give_memory(&mut self) {
        self.frontend.add_mem_region(&region(&self.receives, APART)).unwrap();
    }

    /// Its memory files, for a VMM to manipulate: the one it sends from, and the one it receives
    /// into.
    pub(crate) fn files(&self) -> [OwnedFd; 2] {
        [&self.sends, &self.receives].map(|guest| guest.file().try_clone().unwrap())
    }

    /// Disables its transmit ring and enables it again. Returns `false` if the session has ended.
    pub(crate) fn toggle(&mut self) -> bool {
        [false, true].into_iter().all(|on| self.frontend.set_vring_enable(1, on).is_ok())
    }

    /// Enables or disables its transmit ring.
    pub(crate) fn enable(&mut self, on: bool) {
        self.frontend.set_vring_enable(1, on).unwrap();
    }

    /// Provides a receive buffer at `address` plus an offset that grows with each buffer.
    pub(crate) fn offer(&mut self, address: u64) {
        self.offer_len(address, BUFFER_LEN as u32);
    }

    /// As [`Self::offer`], with `len` bytes.
    pub(crate) fn offer_len(&mut self, address: u64, len: u32) {
        let slot = self.offered % u64::from(RING_SIZE) * BUFFER_LEN;
        let pieces = vec![(address + slot, len)];
        let buffer = Buffer { pieces, writable: true, indirect: false };
        self.receive_ring.offer(&self.receives, &buffer).expect("room in the ring");
        self.offered += 1;
    }

    /// Adds the first [`SHREDDED`] bytes of its buffers as further memory: one region per page.
    pub(crate) fn shred_memory(&mut self) {
        for at in (0..SHREDDED).step_by(PAGE as usize) {
            let region = VhostUserMemoryRegionInfo {
                guest_phys_addr: SHREDS + at,
                memory_size: PAGE,
                userspace_addr: 2 * BASE + SHREDS + at,
                mmap_offset: BUFFERS + at,
                mmap_handle: self.receives.file().as_raw_fd(),
            };
            self.frontend.add_mem_region(&region).unwrap();
        }
        // An answer arrives when all of that is done.
        self.frontend.get_features().unwrap();
    }

    /// Fills its split ring with buffers that share one table of a thousand descriptors, each of
    /// `len` bytes.
    pub(crate) fn offer_tables(&self, address: u64, len: u32) {
        let entry = |address: u64, len: u32, flags: u16, next: u16| {
            let flags = [flags.to_le_bytes(), next.to_le_bytes()].concat();
            [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags].concat()
        };
        let next = |at: u16| if at + 1 < TABLE_LEN { 3 } else { 2 };
        let table: Vec<_> =
            (0..TABLE_LEN).flat_map(|at| entry(address, len, next(at), at + 1)).collect();
        self.receives.write(TABLE, &table);
        let RingPlace { descriptors, driver, .. } = self.receive_ring.place();
        let buffer = entry(APART + BASE + TABLE, u32::from(TABLE_LEN) * 16, 4, 0);
        self.receives.write(descriptors - 2 * BASE, &buffer.repeat(RING_SIZE.into()));
        let all: Vec<_> = (0..RING_SIZE).flat_map(u16::to_le_bytes).collect();
        self.receives.write(driver - 2 * BASE + 4, &all);
        self.offer_tables_again();
    }

    /// Recycles used buffers. Returns how many there have been, modulo 65536.
    pub(crate) fn offer_tables_again(&self) -> u16 {
        let RingPlace { driver, device, .. } = self.receive_ring.place();
        let used = self.receives.read_u16(device - 2 * BASE + 2);
        self.receives.write_u16(driver - 2 * BASE + 2, used.wrapping_add(RING_SIZE));
        used
    }

    /// Sends the content of its first buffers, which may be a train, if there is room in the ring.
    pub(crate) fn try_send_first(&mut self, len: usize) -> bool {
        self.taken += self.send_ring.reap(&self.sends).len() as u64;
        let buffer = Buffer::to_read(BASE + BUFFERS, len as u32);
        let is_sent = self.send_ring.offer(&self.sends, &buffer).is_some();
        self.sent += u64::from(is_sent);
        self.kick.write(1).unwrap();
        is_sent
    }

    /// Writes a frame into its first buffers. Returns the number of bytes.
    pub(crate) fn write_first(&self, header: &NetHeader, frame: &[u8]) -> usize {
        let bytes = [&header.encode()[..], frame].concat();
        self.sends.write(BUFFERS, &bytes);
        bytes.len()
    }

    /// Sends a frame with a complete checksum.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        assert!(self.try_send(frame), "no room in the ring");
    }

    /// Sends a frame with a complete checksum, if there is room in the ring.
    pub(crate) fn try_send(&mut self, frame: &[u8]) -> bool {
        self.try_send_with(&NetHeader::default(), frame)
    }

    /// As [`Self::try_send`], with this metadata.
    pub(crate) fn try_send_with(&mut self, header: &NetHeader, frame: &[u8]) -> bool {
        self.taken += self.send_ring.reap(&self.sends).len() as u64;
        if self.sent - self.taken == u64::from(RING_SIZE) {
            return false;
        }
        let at = BUFFERS + self.sent % u64::from(RING_SIZE) * BUFFER_LEN;
        self.sends.write(at, &[&header.encode()[..], frame].concat());
        let buffer = Buffer::to_read(BASE + at, 12 + frame.len() as u32);
        self.send_ring.offer(&self.sends, &buffer).expect("room in the ring");
        self.sent += 1;
        self.kick.write(1).unwrap();
        true
    }

    /// Sent frames that the switch has taken.
    pub(crate) fn taken(&mut self) -> u64 {
        self.taken += self.send_ring.reap(&self.sends).len() as u64;
        self.taken
    }

    /// The next frame that arrives.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        eventually("a frame in the guest", || {
            let arrived = self.try_receive();
            self.inbox.extend(arrived);
            self.inbox.pop_front()
        })
    }

    /// Number of used buffers that this guest has not recycled.
    pub(crate) fn reap(&mut self) -> usize {
        self.receive_ring.reap(&self.receives).len()
    }

    /// Frames that have arrived, of one buffer each.
    pub(crate) fn try_receive(&mut self) -> Vec<Vec<u8>> {
        self.try_receive_with().into_iter().map(|(_, frame)| frame).collect()
    }

    /// The same with their metadata.
    pub(crate) fn try_receive_with(&mut self) -> Vec<(NetHeader, Vec<u8>)> {
        let used = self.receive_ring.reap(&self.receives);
        let frames = frames_in(&self.receives, self.offered, &used);
        used.iter().for_each(|_| self.offer(RECEIVE));
        frames
    }
}

/// A guest's second receive ring.
pub(crate) struct SecondRing {
    guest: Guest,
    driver: Driver,
    offered: u64,
}

impl SecondRing {
    fn offer(&mut self) {
        let slot = self.offered % u64::from(RING_SIZE) * BUFFER_LEN;
        let pieces = vec![(2 * APART + BASE + BUFFERS + slot, BUFFER_LEN as u32)];
        let buffer = Buffer { pieces, writable: true, indirect: false };
        self.driver.offer(&self.guest, &buffer).expect("room in the ring");
        self.offered += 1;
    }

    /// Frames that have arrived, of one buffer each.
    pub(crate) fn try_receive(&mut self) -> Vec<Vec<u8>> {
        let used = self.driver.reap(&self.guest);
        let frames = frames_in(&self.guest, self.offered, &used);
        used.iter().for_each(|_| self.offer());
        frames.into_iter().map(|(_, frame)| frame).collect()
    }
}

/// The frames in `used` buffers, after `offered` ones were provided, with their metadata.
fn frames_in(guest: &Guest, offered: u64, used: &[(u16, u32)]) -> Vec<(NetHeader, Vec<u8>)> {
    let frame = |(slot, (_, len)): (u64, &(u16, u32))| {
        let at = BUFFERS + slot % u64::from(RING_SIZE) * BUFFER_LEN;
        let bytes = guest.read::<{ BUFFER_LEN as usize }>(at);
        (NetHeader::decode(bytes[..12].try_into().unwrap()), bytes[12..*len as usize].to_vec())
    };
    (offered - u64::from(RING_SIZE)..).zip(used).map(frame).collect()
}

/// A memory region of a guest, `apart` bytes from the start of the first one.
fn region(guest: &Guest, apart: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE + apart,
        memory_size: LEN,
        userspace_addr: 2 * BASE + apart,
        mmap_offset: 0,
        mmap_handle: guest.file().as_raw_fd(),
    }
}

/// A switch with ports 1 to `count` for guests, none of which runs yet.
pub(crate) struct Room {
    pub(crate) switch: Running,
    directory: PathBuf,
}

impl Room {
    pub(crate) fn new(count: u32, options: &str) -> Self {
        Self::with(count, options, |_| {})
    }

    /// As [`Self::new`], with options and a changed configuration.
    pub(crate) fn with(count: u32, options: &str, change: impl FnOnce(&mut Config)) -> Self {
        let directory = std::env::temp_dir().join(unique("tapswitch-guests"));
        std::fs::create_dir(&directory).unwrap();
        let spec = |number| format!("{number}=vhost:{}/{number}{options}", directory.display());
        let mut config = config(&(1..=count).map(spec).collect::<Vec<_>>());
        change(&mut config);
        Self { switch: Running::start(config), directory }
    }

    pub(crate) fn socket(&self, number: u32) -> PathBuf {
        self.directory.join(number.to_string())
    }

    /// Starts a guest behind this port, and waits until the port is up.
    pub(crate) fn guest(&self, number: u32, features: Features) -> Vm {
        let vm = Vm::start(&self.socket(number), features);
        until("the port is up", || self.switch.port(number).state == "up");
        vm
    }

    /// Starts a guest behind each port.
    pub(crate) fn guests(&self) -> Vec<Vm> {
        let count = self.switch.ports().len() as u32;
        (1..=count).map(|number| self.guest(number, split())).collect()
    }

    pub(crate) fn report(&self, number: u32) -> GuestReport {
        self.switch.port(number).guest.unwrap()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.switch.stop();
        // It must be empty, or something was left behind.
        let removed = std::fs::remove_dir(&self.directory);
        assert!(std::thread::panicking() || removed.is_ok(), "a socket was left behind");
    }
}

pub(crate) fn split() -> Features {
    Features::VERSION_1
        | Features::MRG_RXBUF
        | Features::INDIRECT_DESC
        | Features::EVENT_IDX
        | Features::PROTOCOL_FEATURES
}

/// Distance between the two memories of a guest.
pub(crate) const APART: u64 = 16 << 20;
/// Address of the receive buffers.
pub(crate) const RECEIVE: u64 = APART + BASE + BUFFERS;
pub(crate) const RING_SIZE: u16 = 16;
const BUFFER_LEN: u64 = 2048;
/// Address of shredded memory, and its length.
pub(crate) const SHREDS: u64 = 4 * APART;
pub(crate) const SHREDDED: u64 = 60 * PAGE;
const PAGE: u64 = 4096;
/// Address of a table of descriptors, behind the rings, and its entries.
const TABLE: u64 = 0x1_0000;
const TABLE_LEN: u16 = 1024;
