//! A VMM that can send any message, with a similar guest, and a worker that serves them.
//!
//! Messages are assembled byte by byte here, so that they can be invalid in ways that no front
//! end's library permits.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use tapswitch_vhost::{Device, Features, Part, Queue, SessionEnd, Undelivered};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest, LEN};

/// Request numbers of the vhost-user protocol.
pub(crate) mod request {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_LOG_BASE: u32 = 6;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const GET_INFLIGHT_FD: u32 = 31;
    pub(crate) const SET_INFLIGHT_FD: u32 = 32;
    pub(crate) const ADD_MEM_REG: u32 = 37;
    pub(crate) const REM_MEM_REG: u32 = 38;
}

/// The queues of the first pair.
pub(crate) const RECEIVE: u32 = 0;
pub(crate) const TRANSMIT: u32 = 1;

/// A VMM with a guest, and the session that serves it.
pub(crate) struct Vmm {
    pub(crate) stream: UnixStream,
    pub(crate) guest: Guest,
    pub(crate) driver: Driver,
    pub(crate) device: Arc<Device>,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    features: Features,
    session: JoinHandle<SessionEnd>,
}

/// A memory region as in messages: guest address, length, VMM's address, offset.
pub(crate) type Region = [u64; 4];

impl Vmm {
    /// A session that has negotiated features, and nothing more.
    pub(crate) fn connect(features: Features) -> Self {
        let mut vmm = Self::silent_as(features);
        vmm.send(request::SET_OWNER, &[], &[]);
        vmm.ask(request::GET_FEATURES, &[]);
        let protocol = vmm.ask(request::GET_PROTOCOL_FEATURES, &[]);
        vmm.send(request::SET_PROTOCOL_FEATURES, &protocol, &[]);
        vmm.send(request::SET_FEATURES, &features.bits().to_le_bytes(), &[]);
        vmm
    }

    /// A session without any messages.
    pub(crate) fn silent() -> Self {
        Self::silent_as(modern())
    }

    fn silent_as(features: Features) -> Self {
        let device = Device::new(1).unwrap();
        let (stream, theirs) = UnixStream::pair().unwrap();
        let serving = device.clone();
        let session = std::thread::spawn(move || serving.serve(theirs, |_| ()));
        let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let (guest, driver) = (Guest::new(), Driver::new(8, ring(features)));
        let (kick, call) = (event(), event());
        Self { stream, guest, driver, device, kick, call, features, session }
    }

    /// A session whose guest shares all of its memory and has one ring.
    pub(crate) fn start(features: Features, index: u32) -> Self {
        let mut vmm = Self::connect(features);
        vmm.share(&[[BASE, LEN, 2 * BASE, 0]]);
        vmm.start_ring(index);
        vmm
    }

    /// Sends a message unchanged. A failure means that the session has ended.
    pub(crate) fn send(&mut self, request: u32, payload: &[u8], fds: &[RawFd]) {
        let len = u32::try_from(payload.len()).unwrap();
        let header = [request, VERSION, len].map(u32::to_le_bytes).concat();
        let _ = self.stream.send_with_fds(&[&header[..], payload], fds);
    }

    /// Sends a message and waits for the answer, which is empty if the session has ended.
    pub(crate) fn ask(&mut self, request: u32, payload: &[u8]) -> Vec<u8> {
        self.send(request, payload, &[]);
        let mut header = [0; 12];
        if self.stream.read_exact(&mut header).is_err() {
            return Vec::new();
        }
        let [_, _, _, _, _, _, _, _, len @ ..] = header;
        let mut payload = vec![0; u32::from_le_bytes(len) as usize];
        self.stream.read_exact(&mut payload).unwrap();
        payload
    }

    /// Waits for an answer without reading it.
    pub(crate) fn wait_for_answer(&self) {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
    }

    /// Waits until all earlier messages have been processed.
    pub(crate) fn settle(&mut self) {
        self.ask(request::GET_FEATURES, &[]);
    }

    /// Shares regions of the guest's file.
    pub(crate) fn share(&mut self, regions: &[Region]) {
        let fds = vec![self.guest.file().as_raw_fd(); regions.len()];
        self.send(request::SET_MEM_TABLE, &mem_table(regions), &fds);
    }

    /// Describes the driver's ring as queue `index` and starts it.
    pub(crate) fn start_ring(&mut self, index: u32) {
        let place = self.driver.place();
        let base = if self.features.contains(Features::RING_PACKED) { 0x8000_8000 } else { 0 };
        self.send(request::SET_VRING_NUM, &pair(index, place.size.into()), &[]);
        self.send(request::SET_VRING_BASE, &pair(index, base), &[]);
        self.set_addresses(index, [place.descriptors, place.device, place.driver]);
        let call = self.call.as_raw_fd();
        self.send(request::SET_VRING_CALL, &u64::from(index).to_le_bytes(), &[call]);
        let kick = self.kick.as_raw_fd();
        self.send(request::SET_VRING_KICK, &u64::from(index).to_le_bytes(), &[kick]);
        self.send(request::SET_VRING_ENABLE, &pair(index, 1), &[]);
        self.settle();
    }

    /// Sends the addresses of ring `index`: descriptors, device's part, driver's part.
    pub(crate) fn set_addresses(&mut self, index: u32, addresses: [u64; 3]) {
        let mut payload = pair(index, 0);
        addresses.into_iter().chain([0]).for_each(|address| payload.extend(address.to_le_bytes()));
        self.send(request::SET_VRING_ADDR, &payload, &[]);
    }

    pub(crate) fn queue(&self, index: u32) -> &Queue {
        let queue = match index {
            RECEIVE => self.device.receive_queue(0),
            _ => self.device.transmit_queue(0),
        };
        queue.unwrap()
    }

    /// Lets the guest send a frame of 60 bytes of `byte`.
    pub(crate) fn transmit(&mut self, byte: u8) {
        assert!(self.try_transmit(byte), "the ring is full");
    }

    /// As [`Self::transmit`], if the guest has room in its ring.
    pub(crate) fn try_transmit(&mut self, byte: u8) -> bool {
        self.guest.write(BUFFERS, &[byte; 72]);
        let id = self.driver.offer(&self.guest, &Buffer::to_read(BASE + BUFFERS, 72));
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        id.is_some()
    }

    /// Processes the guest's frames like a worker; see [`work`].
    pub(crate) fn work(&self) -> Vec<Vec<u8>> {
        work(&self.device)
    }

    /// Delivers a frame to the guest like a worker. Resets the device as [`Self::work`] does.
    pub(crate) fn deliver(&self, frame: &[u8]) -> Result<(), Undelivered> {
        let outcome = {
            let mut running = self.queue(RECEIVE).lock();
            let Some(running) = running.as_mut() else { return Err(Undelivered::Full) };
            let outcome = running.deliver([0; 12], frame.len(), [Part::Ours(frame)].into_iter());
            running.publish();
            outcome
        };
        if let Err(Undelivered::Ring(fault)) = outcome {
            self.device.reset(self.device.session(), format!("queue {RECEIVE}: {fault}"));
        }
        outcome
    }

    /// Disconnects. Returns why the session ended.
    pub(crate) fn end(self) -> SessionEnd {
        drop(self.stream);
        join(self.session)
    }

    /// Waits for the session to end by itself. Returns why it ended.
    pub(crate) fn ended(self) -> SessionEnd {
        join(self.session)
    }
}

/// Processes a guest's frames like a worker: takes up to a ring full of them, and gives the buffers
/// back. Resets the device if the guest has violated the protocol.
pub(crate) fn work(device: &Device) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let fault = {
        let queue = device.transmit_queue(0).unwrap();
        queue.acknowledge();
        let mut running = queue.lock();
        let Some(running) = running.as_mut() else { return frames };
        let outcome = running.fetch(16);
        while let Some(chain) = running.peek(0) {
            let mut frame = vec![0; FRAME_LEN_MAX.min(chain.len())];
            if let Some((_, len)) = running.read_frame(&chain, &mut frame) {
                frame.truncate(len);
                frames.push(frame);
            }
            running.complete(0);
        }
        running.publish();
        outcome.err()
    };
    if let Some(fault) = fault {
        device.reset(device.session(), format!("queue {TRANSMIT}: {fault}"));
    }
    frames
}

/// Waits with a limit: a session that does not end is a failure.
fn join(session: JoinHandle<SessionEnd>) -> SessionEnd {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !session.is_finished() {
        assert!(Instant::now() < deadline, "the session does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    session.join().unwrap()
}

/// The payload of most messages about rings.
pub(crate) fn pair(index: u32, value: u32) -> Vec<u8> {
    [index.to_le_bytes(), value.to_le_bytes()].concat()
}

/// The payload of `SET_MEM_TABLE`.
pub(crate) fn mem_table(regions: &[Region]) -> Vec<u8> {
    let mut payload = pair(u32::try_from(regions.len()).unwrap(), 0);
    regions.iter().flatten().for_each(|word| payload.extend(word.to_le_bytes()));
    payload
}

/// The features negotiated unless a test is about others.
pub(crate) fn modern() -> Features {
    Features::VERSION_1
        | Features::MRG_RXBUF
        | Features::INDIRECT_DESC
        | Features::EVENT_IDX
        | Features::PROTOCOL_FEATURES
}

/// The same with split rings and with packed ones.
pub(crate) fn both_rings() -> [Features; 2] {
    [modern(), modern() | Features::RING_PACKED]
}

fn ring(features: Features) -> tapswitch_vhost::RingFeatures {
    tapswitch_vhost::RingFeatures {
        packed: features.contains(Features::RING_PACKED),
        event_index: features.contains(Features::EVENT_IDX),
        indirect: features.contains(Features::INDIRECT_DESC),
    }
}

/// Sends the first `len` bytes of a valid message.
pub(crate) fn send_part(stream: &mut UnixStream, len: usize) {
    let message = [[1u32, VERSION, 8].map(u32::to_le_bytes).concat(), vec![0; 8]].concat();
    stream.write_all(&message[..len]).unwrap();
}

/// Message flags: the version.
const VERSION: u32 = 1;
/// Maximum length of a frame.
const FRAME_LEN_MAX: usize = 65_550;
