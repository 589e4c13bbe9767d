//! Guests behind ports: frames from memory to memory, and guests that come, go and misbehave.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a panic fails a test; test data"
)]

mod common;
#[path = "../../vhost/src/test_guest.rs"]
#[expect(dead_code, reason = "these tests do without a part of it")]
mod test_guest;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use common::*;
use tapswitch_openflow::{Action, Body, GroupModCommand, Oxm, PortNo};
use tapswitch_switch::report::GuestReport;
// What the guest's own module looks for in its crate.
use tapswitch_vhost::{Features, GuestMemory, RegionSpec, RingFeatures, RingPlace};
use tapswitch_wire::{EtherType, MacAddr};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use test_guest::{BASE, BUFFERS, Buffer, Driver, Guest, LEN};

/// Two megabytes of memory: one with the ring by which the guest sends, and one with the ring by
/// which it receives, [`APART`] from the first.
struct Vm {
    frontend: Frontend,
    sends: Guest,
    receives: Guest,
    send_ring: Driver,
    receive_ring: Driver,
    kick: EventFd,
    call: EventFd,
    /// Buffers that were offered to receive, in order.
    offered: u64,
    sent: u64,
}

impl Vm {
    /// A guest at a socket, with buffers to receive.
    fn start(path: &PathBuf, features: Features) -> Self {
        let mut vm = Self::connect(path, features);
        vm.start_rings();
        (0..RING_SIZE).for_each(|_| vm.offer(APART + BASE + BUFFERS));
        vm
    }

    fn connect(path: &PathBuf, features: Features) -> Self {
        let stream = eventually("a socket", || UnixStream::connect(path).ok());
        let mut frontend = Frontend::from_stream(stream, 2);
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
            sends: Guest::new(),
            receives: Guest::new(),
            send_ring: ring(),
            receive_ring: ring(),
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
            offered: 0,
            sent: 0,
        }
    }

    fn start_rings(&mut self) {
        let region = |guest: &Guest, apart| VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE + apart,
            memory_size: LEN,
            userspace_addr: 2 * BASE + apart,
            mmap_offset: 0,
            mmap_handle: guest.file().as_raw_fd(),
        };
        let regions = [region(&self.sends, 0), region(&self.receives, APART)];
        self.frontend.set_mem_table(&regions).unwrap();
        for (index, apart) in [(0, APART), (1, 0)] {
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
    }

    /// Offers a buffer to receive at `address` and behind, one for each that was offered before.
    fn offer(&mut self, address: u64) {
        let slot = self.offered % u64::from(RING_SIZE) * BUFFER_LEN;
        let pieces = vec![(address + slot, BUFFER_LEN as u32)];
        let buffer = Buffer { pieces, writable: true, indirect: false };
        self.receive_ring.offer(&self.receives, &buffer).expect("room in the ring");
        self.offered += 1;
    }

    /// Sends a frame with nothing left undone.
    fn send(&mut self, frame: &[u8]) {
        self.send_ring.reap(&self.sends);
        let at = BUFFERS + self.sent % u64::from(RING_SIZE) * BUFFER_LEN;
        self.sends.write(at, &[&[0; 12], frame].concat());
        let buffer = Buffer::to_read(BASE + at, 12 + frame.len() as u32);
        self.send_ring.offer(&self.sends, &buffer).expect("room in the ring");
        self.sent += 1;
        self.kick.write(1).unwrap();
    }

    /// The next frame that arrives.
    fn receive(&mut self) -> Vec<u8> {
        eventually("a frame in the guest", || self.try_receive().pop())
    }

    /// What has arrived: frames that fit one buffer each.
    fn try_receive(&mut self) -> Vec<Vec<u8>> {
        let first = self.offered - u64::from(RING_SIZE);
        let used = self.receive_ring.reap(&self.receives);
        let frame = |(slot, (_, len)): (u64, &(u16, u32))| {
            let at = BUFFERS + slot % u64::from(RING_SIZE) * BUFFER_LEN;
            let bytes = self.receives.read::<{ BUFFER_LEN as usize }>(at);
            bytes[12..*len as usize].to_vec()
        };
        let frames = (first..).zip(&used).map(frame).collect();
        used.iter().for_each(|_| self.offer(APART + BASE + BUFFERS));
        frames
    }
}

/// A switch with guests behind ports 1 to `count`, none there yet.
struct Room {
    switch: Running,
    directory: PathBuf,
}

impl Room {
    fn new(count: u32, options: &str) -> Self {
        let directory = std::env::temp_dir().join(unique("tapswitch-guests"));
        std::fs::create_dir(&directory).unwrap();
        let spec = |number| format!("{number}=vhost:{}/{number}{options}", directory.display());
        let switch = Running::start(config(&(1..=count).map(spec).collect::<Vec<_>>()));
        Self { switch, directory }
    }

    fn socket(&self, number: u32) -> PathBuf {
        self.directory.join(number.to_string())
    }

    /// A guest behind this port, and the port is up.
    fn guest(&self, number: u32, features: Features) -> Vm {
        let vm = Vm::start(&self.socket(number), features);
        until("the port is up", || self.switch.port(number).state == "up");
        vm
    }

    fn report(&self, number: u32) -> GuestReport {
        self.switch.port(number).guest.unwrap()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.switch.stop();
        // Empty, or something was left behind.
        let removed = std::fs::remove_dir(&self.directory);
        assert!(std::thread::panicking() || removed.is_ok(), "a socket was left behind");
    }
}

fn split() -> Features {
    Features::VERSION_1
        | Features::MRG_RXBUF
        | Features::INDIRECT_DESC
        | Features::EVENT_IDX
        | Features::PROTOCOL_FEATURES
}

/// A frame of `len` bytes whose last byte is `mark`.
fn marked(len: usize, mark: u8) -> Vec<u8> {
    let mut bytes = frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]), &[], len);
    *bytes.last_mut().unwrap() = mark;
    bytes
}

fn copies(monitor: u32) -> Vec<Body> {
    let buckets = vec![vec![output(2)], vec![output(monitor)]];
    let group = group_all(GroupModCommand::Add, 1, buckets);
    vec![group, Body::FlowMod(rule(1, in_port(1), vec![to_group(1)]))]
}

#[test]
fn frames_and_copies_go_from_guest_to_guest() {
    for features in [split(), split() | Features::RING_PACKED] {
        let room = Room::new(3, "");
        assert_eq!(room.switch.port(1).state, "no-link");
        let mut guests: Vec<_> = (1..=3).map(|number| room.guest(number, features)).collect();
        let [sender, receiver, monitor] = &mut guests[..] else { panic!() };
        room.switch.controller().apply(copies(3));
        for mark in 0..50 {
            // Small ones, and such whose end stays in the sender's memory until it is copied.
            let sent = marked(if mark % 2 == 0 { 60 } else { 1514 }, mark);
            sender.send(&sent);
            assert!(receiver.receive() == sent && monitor.receive() == sent);
        }
        room.switch.controller().barrier();
        let ports: Vec<_> = (1..=3).map(|number| room.switch.port(number)).collect();
        assert_eq!((ports[0].rx.frames, ports[1].tx.frames, ports[2].tx.frames), (50, 50, 50));
        assert_eq!(room.report(2).queues, 1);
        drop(guests);
        (1..=3).for_each(|number| {
            until("the port is down", || room.switch.port(number).state == "no-link");
        });
    }
}

#[test]
fn a_sleeping_worker_is_woken_each_time() {
    let room = Room::new(2, "");
    let (mut one, mut other) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(join(1, 2));
    for mark in 0..100 {
        let (from, to) =
            if mark % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        // Longer than any worker looks for frames by itself.
        std::thread::sleep(std::time::Duration::from_millis(1));
        from.send(&marked(60, mark));
        assert!(to.receive() == marked(60, mark));
    }
}

#[test]
fn a_guest_that_misbehaves_is_cut_off_and_nobody_else_notices() {
    let room = Room::new(3, "");
    let (mut sender, mut receiver) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(copies(3));
    for attempt in 1..=3 {
        // Its buffers lie where it has no memory.
        let mut hostile = Vm::connect(&room.socket(3), split());
        hostile.start_rings();
        hostile.offer(1 << 40);
        until("the port is up", || room.switch.port(3).state == "up");
        sender.send(&marked(60, attempt));
        assert!(receiver.receive() == marked(60, attempt));
        until("the guest is cut off", || room.report(3).resets == u64::from(attempt));
        let why = room.report(3).last_reset.unwrap();
        assert!(why.contains("outside of the memory"), "{why}");
        sender.send(&marked(60, 100));
        assert!(receiver.receive() == marked(60, 100));
    }
    assert_eq!((room.report(1).resets, room.report(2).resets), (0, 0));
}

#[test]
fn a_guest_that_harms_itself_harms_itself_alone() {
    let room = Room::new(2, "");
    let mut hostile = Vm::connect(&room.socket(1), split());
    hostile.start_rings();
    hostile.offer(1 << 40);
    until("the port is up", || room.switch.port(1).state == "up");
    let back = Body::FlowMod(rule(1, in_port(1), vec![Action::output(PortNo::IN_PORT)]));
    room.switch.controller().apply(vec![back]);
    hostile.send(&marked(60, 1));
    until("the guest is cut off", || room.report(1).resets == 1);
    let mut good = room.guest(1, split());
    good.send(&marked(60, 2));
    assert!(good.receive() == marked(60, 2));
}

#[test]
fn headers_may_be_longer_than_what_is_fetched_at_first() {
    let room = Room::new(2, "");
    let (mut sender, mut receiver) = (room.guest(1, split()), room.guest(2, split()));
    let fields = in_port(1).with(Oxm::EthType(EtherType::IPV6)).with(Oxm::IpProto(17));
    room.switch.controller().apply(vec![Body::FlowMod(rule(1, fields, vec![output(2)]))]);
    // IPv6, and so many options that UDP comes behind the first 256 bytes.
    let mut long = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 1, 0xb8, 60, 64]].concat();
    long.extend([[0xfd; 16], [0xfc; 16]].concat());
    long.extend([17, 31, 1, 4, 0, 0, 0, 0]);
    long.extend([0; 248]);
    long.extend([0, 80, 0, 81, 0, 184, 0, 0]);
    long.extend([7; 176]);
    sender.send(&long);
    assert!(receiver.receive() == long);
}

/// Distance of the two memories of a guest.
const APART: u64 = 16 << 20;
const RING_SIZE: u16 = 16;
const BUFFER_LEN: u64 = 2048;
