//! A back end that is killed at any moment, as by SIGKILL, and its successor without any state: the
//! guest's frames arrive once and in order, except those not given back yet, which arrive again.
//!
//! The back end is this program again, with the socket and a log file of frames passed in its
//! environment.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "helpers of tests"
)]

#[path = "../src/test_guest.rs"]
#[expect(dead_code, reason = "these tests do without a part of it")]
mod test_guest;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_vhost::{Device, Features, GuestMemory, RegionSpec, RingFeatures, RingPlace};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use test_guest::{BASE, BUFFERS, Buffer, Driver, Guest, LEN};

/// The back end; not a test unless the environment names a socket.
#[test]
fn back_end() {
    let (Some(socket), Some(log)) = (std::env::var_os(SOCKET), std::env::var_os(LOG)) else {
        return;
    };
    let stream = UnixStream::connect(socket).unwrap();
    let mut log = OpenOptions::new().append(true).open(log).unwrap();
    let device = Device::new(1).unwrap();
    let serving = device.clone();
    let session = std::thread::spawn(move || serving.serve(stream, |_| ()));
    while !session.is_finished() {
        burst(&device, &mut log);
        let queue = device.transmit_queue(0).unwrap();
        let mut fds = [PollFd::new(queue, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).unwrap();
    }
}

/// Logs the numbers of all available frames, one by one, and gives them back together.
fn burst(device: &Arc<Device>, log: &mut File) {
    let queue = device.transmit_queue(0).unwrap();
    queue.acknowledge();
    let mut running = queue.lock();
    let Some(running) = running.as_mut() else { return };
    running.disarm();
    loop {
        while running.fetch(5).unwrap() > 0 {
            for _ in 0..5 {
                let Some(chain) = running.peek(0) else { break };
                let mut number = [0; 4];
                running.read_frame(&chain, &mut number).unwrap();
                log.write_all(&number).unwrap();
                running.complete(0);
            }
            running.publish();
        }
        if running.arm() {
            return;
        }
    }
}

/// A VMM whose guest numbers its frames.
struct Vmm {
    features: Features,
    guest: Guest,
    driver: Driver,
    kick: EventFd,
    call: EventFd,
    lent: VecDeque<u16>,
    offered: u32,
    returned: u32,
    folder: PathBuf,
}

impl Vmm {
    fn new(name: &str, features: Features) -> Self {
        let folder = std::env::temp_dir().join(format!("tapswitch-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let ring = RingFeatures {
            packed: features.contains(Features::RING_PACKED),
            event_index: features.contains(Features::EVENT_IDX),
            indirect: features.contains(Features::INDIRECT_DESC),
        };
        let event = || EventFd::new(libc_nonblock()).unwrap();
        Self {
            features,
            guest: Guest::new(),
            driver: Driver::new(16, ring),
            kick: event(),
            call: event(),
            lent: VecDeque::new(),
            offered: 0,
            returned: 0,
            folder,
        }
    }

    /// Starts a back end with the base that QEMU would send: the used index of a split ring, the
    /// start of a packed one.
    fn start(&self) -> (Child, Frontend) {
        let (socket, log) = (self.folder.join("socket"), self.folder.join("log"));
        let _ = std::fs::remove_file(&socket);
        File::create(&log).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "back_end"])
            .envs([(SOCKET, &socket), (LOG, &log)])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut frontend = Frontend::from_stream(accept(&listener), 2);
        frontend.set_owner().unwrap();
        frontend.get_features().unwrap();
        let protocol = frontend.get_protocol_features().unwrap();
        frontend.set_protocol_features(protocol).unwrap();
        frontend.set_features(self.features.bits()).unwrap();
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: LEN,
            userspace_addr: 2 * BASE,
            mmap_offset: 0,
            mmap_handle: self.guest.file().as_raw_fd(),
        };
        frontend.set_mem_table(&[region]).unwrap();
        let RingPlace { size, descriptors, driver, device } = self.driver.place();
        let ring = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: descriptors,
            used_ring_addr: device,
            avail_ring_addr: driver,
            log_addr: None,
        };
        let is_packed = self.features.contains(Features::RING_PACKED);
        let base = if is_packed { 0x8000 } else { self.guest.read_u16(0x2002) };
        frontend.set_vring_num(1, size).unwrap();
        frontend.set_vring_addr(1, &ring).unwrap();
        frontend.set_vring_base(1, base).unwrap();
        frontend.set_vring_call(1, &self.call).unwrap();
        frontend.set_vring_kick(1, &self.kick).unwrap();
        frontend.set_vring_enable(1, true).unwrap();
        (child, frontend)
    }

    /// Offers as many frames as the ring has room for, some in a chain, some in a table.
    fn send(&mut self) {
        loop {
            let at = BUFFERS + u64::from(self.offered % 64) * 0x100;
            self.guest.write(at + 12, &self.offered.to_le_bytes());
            let pieces = match self.offered % 3 {
                0 => vec![(BASE + at, 76)],
                _ => vec![(BASE + at, 12), (BASE + at + 12, 64)],
            };
            let buffer = Buffer { pieces, writable: false, indirect: self.offered % 3 == 2 };
            let Some(id) = self.driver.offer(&self.guest, &buffer) else { break };
            self.lent.push_back(id);
            self.offered += 1;
        }
        let _ = self.kick.write(1);
    }

    /// Checks that buffers come back in the order in which they were offered.
    fn reap(&mut self) {
        for (id, _) in self.driver.reap(&self.guest) {
            assert_eq!(self.lent.pop_front(), Some(id));
            self.returned += 1;
        }
    }

    /// Sends until `count` more frames have come back.
    fn run(&mut self, count: u32) {
        let (deadline, target) = (Instant::now() + PATIENCE, self.returned + count);
        while self.returned < target {
            assert!(Instant::now() < deadline, "{} of {target} frames", self.returned);
            self.send();
            self.reap();
        }
    }

    /// The numbers of the frames that back ends have seen.
    fn seen(&self) -> Vec<u32> {
        let bytes = std::fs::read(self.folder.join("log")).unwrap();
        bytes.chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect()
    }
}

impl Drop for Vmm {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.folder));
    }
}

/// The connection of a back end that was just started.
fn accept(listener: &UnixListener) -> UnixStream {
    let limit = Timespec::try_from(PATIENCE).unwrap();
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "no back end has connected");
    listener.accept().unwrap().0
}

/// Runs one back end after the other, each killed in the middle of its work.
fn killed_again_and_again(name: &str, features: Features) {
    let mut vmm = Vmm::new(name, features);
    let (mut first, mut dead) = (0, 0);
    while dead < KILLS {
        let (mut child, _frontend) = vmm.start();
        vmm.run(50 + 37 * dead);
        vmm.send();
        child.kill().unwrap();
        child.wait().unwrap();
        vmm.reap();
        let seen = vmm.seen();
        let expected: Vec<u32> = (first..first + seen.len() as u32).collect();
        assert_eq!(seen, expected, "from the first one on that had not been given back, in order");
        let next = first + seen.len() as u32;
        assert!(
            (vmm.returned..vmm.returned + 6).contains(&next),
            "a burst and no more comes again"
        );
        first = vmm.returned;
        dead += 1;
    }
}

#[test]
fn a_split_ring_goes_on_when_its_back_end_was_killed() {
    killed_again_and_again("split", modern());
    killed_again_and_again("split-flags", modern() - Features::EVENT_IDX);
}

#[test]
fn a_packed_ring_goes_on_when_its_back_end_was_killed() {
    killed_again_and_again("packed", modern() | Features::RING_PACKED);
    let with_flags = modern() - Features::EVENT_IDX;
    killed_again_and_again("packed-flags", with_flags | Features::RING_PACKED);
}

fn modern() -> Features {
    Features::VERSION_1
        | Features::EVENT_IDX
        | Features::INDIRECT_DESC
        | Features::PROTOCOL_FEATURES
}

fn libc_nonblock() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

const SOCKET: &str = "TAPSWITCH_TEST_SOCKET";
const LOG: &str = "TAPSWITCH_TEST_LOG";
const KILLS: u32 = 12;
/// Much longer than any wait.
const PATIENCE: Duration = Duration::from_secs(60);
