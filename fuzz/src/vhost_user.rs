//! Target `vhost_user`: whatever messages and descriptors a VMM sends, the session ends, and a
//! worker meanwhile finds a usable ring, or none.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tapswitch_vhost::{Device, Queue};

use crate::guest::{Guest, take};

/// `data` has messages: request, flags, choice of descriptors, length of the payload, payload.
pub fn vhost_user(mut data: &[u8]) {
    let Some(vmm) = Vmm::new() else { return };
    let Ok(device) = Device::new(2) else { return };
    let Ok((ours, theirs)) = UnixStream::pair() else { return };
    // A session that waits until we read does not wait for ever: it ends when we close.
    assert!(ours.set_nonblocking(true).is_ok());
    let serving = device.clone();
    let session = std::thread::spawn(move || serving.serve(theirs, |_| ()));
    for _ in 0..MESSAGES_MAX {
        if vmm.send(&ours, &mut data).is_none() {
            break;
        }
        work(&device);
    }
    work(&device);
    drop(ours);
    assert!(session.join().is_ok(), "the session has panicked");
    vmm.guest.check();
    let queues = [device.receive_queue(0), device.transmit_queue(1)];
    assert!(queues.into_iter().flatten().all(|queue| queue.lock().is_none()), "a ring runs on");
}

/// File descriptors that a VMM can pass.
struct Vmm {
    guest: Guest,
    event: OwnedFd,
    null: File,
}

impl Vmm {
    fn new() -> Option<Self> {
        let event = eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        Some(Self { guest: Guest::new(&[])?, event, null: File::open("/dev/null").ok()? })
    }

    /// Sends the next message of `data`. `None` if there is none, or the peer is gone.
    fn send(&self, stream: &UnixStream, data: &mut &[u8]) -> Option<()> {
        let (request, flags, fds, len) = (take(data)?, take(data)?, take(data)?, take(data)?);
        let (payload, rest) = data.split_at(data.len().min(len.into()));
        *data = rest;
        let words = [u32::from(request), u32::from(flags), u32::from(len)];
        let message = [&words.map(u32::to_le_bytes).concat()[..], payload].concat();
        let fds = self.descriptors(fds);
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(7))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let parts = [IoSlice::new(&message)];
        sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL).ok().map(|_| ())
    }

    /// Up to seven descriptors of the chosen kind.
    fn descriptors(&self, choice: u8) -> Vec<BorrowedFd<'_>> {
        let kind = match choice >> 4 {
            0..=7 => self.guest.file().as_fd(),
            8..=13 => self.event.as_fd(),
            _ => self.null.as_fd(),
        };
        vec![kind; usize::from(choice & 7)]
    }
}

/// Does a worker's work on all queues.
fn work(device: &Device) {
    for index in 0..2 {
        let queues = [device.receive_queue(index), device.transmit_queue(index)];
        let faults = queues.into_iter().flatten().filter_map(|queue| burst(queue));
        faults.for_each(|fault| device.reset(device.session(), fault));
    }
}

fn burst(queue: &Queue) -> Option<String> {
    queue.acknowledge();
    let mut running = queue.lock();
    let running = running.as_mut()?;
    let outcome = running.fetch(16);
    while let Some(chain) = running.peek(0) {
        running.read_frame(&chain, &mut [0; 64]);
        running.complete(0);
    }
    running.publish();
    running.arm();
    outcome.err().map(|fault| fault.to_string())
}

/// Limit of messages in a session.
const MESSAGES_MAX: usize = 64;
