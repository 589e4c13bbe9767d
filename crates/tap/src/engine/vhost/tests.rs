//! Tests of the engine with a device implemented here: one that is slow, full, wrong, or acts at
//! the worst moment.

use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::device::{Device, pattern};
use super::*;
use crate::{BurstSize, Refused};

#[test]
fn frames_that_come_after_an_empty_burst_are_signalled_once() {
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    assert_eq!(rig.recv(), Ok(0));
    assert!(rig.deliver(&[frame(1)]), "asked for");
    assert!(!rig.deliver(&[frame(2)]), "on its way already");
    assert_eq!(rig.recv(), Ok(2));
    assert!(!rig.deliver(&[frame(3)]), "not while frames come");
    assert_eq!(rig.recv(), Ok(1));
    assert_eq!(rig.recv(), Ok(0));
    assert!(!is_readable(&rig.vhost), "the old signal is taken");
    assert!(rig.deliver(&[frame(4)]));
}

/// As if they arrived just after the first check found none.
#[test]
fn frames_that_come_while_sleep_is_prepared_are_received() {
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    rig.deliver(&[frame(1), frame(2)]);
    rig.vhost.rest(&mut rig.burst).unwrap();
    assert_eq!(rig.burst.len(), 2);
}

#[test]
fn who_waits_before_he_ever_received_is_woken() {
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    assert!(rig.deliver(&[frame(1)]));
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    rig.receiver.give(&[]);
    assert_eq!(rig.vhost.wait(Some(Duration::ZERO)).ok(), Some(false));
    rig.deliver(&[frame(1)]);
    assert_eq!(rig.vhost.wait(None).ok(), Some(true));
    // Nothing signals frames from before the request: the second check finds them.
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    rig.deliver(&[frame(1), frame(2)]);
    let mut one = Burst::new(BurstSize::DEFAULT.frames(1));
    assert_eq!(rig.vhost.recv(&mut one), Ok(1));
    rustix::io::read(&rig.vhost, &mut [0; 8]).unwrap();
    assert_eq!(rig.vhost.wait(Some(Duration::ZERO)).ok(), Some(true));
}

#[test]
fn a_loop_that_never_sleeps_asks_for_no_signals() {
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    rig.vhost.set_polling(true);
    rig.deliver(&[frame(1)]);
    for number in 2..5000 {
        assert_eq!(rig.recv(), Ok(1));
        assert_eq!(rig.recv(), Ok(0));
        assert!(!rig.deliver(&[frame(number)]), "{number}");
    }
    rig.vhost.set_polling(false);
    assert_eq!((rig.recv(), rig.recv()), (Ok(1), Ok(0)));
    assert!(rig.deliver(&[frame(1)]));
}

#[test]
fn room_is_signalled_even_if_the_signal_was_taken_for_another() {
    let mut rig = Rig::new(VhostConfig::DEFAULT.send_frames(4));
    let full = Refused { index: 4, error: SendError::Full };
    assert_eq!(rig.send(6).stopped, Some(full));
    assert_eq!(rig.send(1).stopped, Some(Refused { index: 0, ..full }));
    assert_eq!([rig.transmit(), rig.transmit()], [(1, false), (1, true)], "half is free");
    assert!(is_readable(&rig.vhost));
    // Frames arrived at the same time: their burst consumes the signal.
    assert_eq!(rig.recv(), Ok(0));
    assert!(is_readable(&rig.vhost), "given again");
    assert_eq!(rig.recv(), Ok(0));
    assert!(!is_readable(&rig.vhost), "and only once");
    assert_eq!(rig.send(3), Sent { count: 2, refused: &[], stopped: Some(full_at(2)) });
}

#[test]
fn a_frame_that_finds_room_only_just_is_sent() {
    let mut rig = Rig::new(VhostConfig::DEFAULT.send_frames(4));
    assert_eq!(rig.send(4).count, 4);
    assert_eq!([rig.transmit().0, rig.transmit().0], [1, 1]);
    assert_eq!(rig.vhost.unsent(), Ok(2));
    assert!(rig.send(2).is_complete());
}

#[test]
fn buffers_are_given_back_with_a_kick_if_the_device_has_run_out() {
    let mut rig = Rig::new(VhostConfig::DEFAULT.receive_buffers(64));
    assert!(rig.deliver(&vec![frame(1); 64]));
    assert!(rig.receiver.sleep(), "no buffer is left");
    assert_eq!(rig.recv(), Ok(64));
    let [kick, _] = rig.vhost.worker.kicks();
    assert!(is_readable(kick));
    assert!(!rig.deliver(&vec![frame(2); 64]));
    assert_eq!(rig.recv(), Ok(64));
}

#[test]
fn a_ring_that_is_out_of_step_is_told_for_good() {
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    rig.deliver(&[frame(1)]);
    rig.receiver.give(&[(77, 12)]);
    assert_eq!(rig.recv(), Ok(1), "what came before");
    let broken = RecvError::from(Broken::OutOfTurn { id: 77, due: 1 });
    assert_eq!((rig.recv(), rig.recv()), (Err(broken), Err(broken)));
    assert_eq!(rig.vhost.wait(None).ok(), Some(true), "no sleep without end");
    let error = SendError::from(Broken::OutOfTurn { id: 77, due: 1 });
    assert_eq!(rig.send(2).stopped, Some(Refused { index: 0, error }));

    let mut rig = Rig::new(VhostConfig::DEFAULT);
    rig.sender.lie(1);
    let broken = Broken::TooMany { came_back: 1, out: 0 };
    assert_eq!(rig.vhost.unsent(), Err(broken.into()));
    assert_eq!(rig.recv(), Err(broken.into()), "both rings stand and fall together");
}

#[test]
fn the_kernels_own_complaint_is_told() {
    let mut rig = Rig::new(VhostConfig::DEFAULT);
    signal(rig.vhost.worker.error());
    assert_eq!(rig.vhost.wait(None).ok(), Some(true));
    assert_eq!(rig.recv(), Err(RecvError::from(Broken::Stopped)));
    assert!(rig.send(1).stopped.is_some());
}

/// The device delivers frames at any moment, even while the engine prepares to sleep, and waits for
/// their echoes. The result does not depend on time: a lost wake-up waits until the time limit.
#[test]
fn no_wake_up_is_lost_however_the_threads_run() {
    const COUNT: usize = 50_000;
    let config = VhostConfig::DEFAULT.receive_buffers(64).send_frames(1);
    let Rig { mut vhost, mut receiver, mut sender, .. } = Rig::new(config);
    let [_, kick] = vhost.worker.kicks().map(|fd| fd.try_clone_to_owned().unwrap());
    let call = vhost.as_fd().try_clone_to_owned().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut given, mut echoed) = (0, 0);
            while echoed < COUNT {
                while given < COUNT && given - echoed < 3 {
                    let buffers = receiver.receive(&frame(given)).unwrap();
                    if receiver.give(&buffers) {
                        signal(&call);
                    }
                    given += 1;
                }
                if let Some((head, echo)) = sender.transmit() {
                    assert_eq!(echo, frame(echoed));
                    if sender.give(&[(head, 0)]) {
                        signal(&call);
                    }
                    echoed += 1;
                } else if sender.sleep() {
                    patiently(&kick);
                    rustix::io::read(&kick, &mut [0; 8]).unwrap();
                }
            }
        });
        let mut burst = Burst::default();
        let mut echoed = 0;
        while echoed < COUNT {
            patiently(&vhost);
            while vhost.recv(&mut burst).unwrap() > 0 {
                echoed += burst.len();
                let mut frames = burst.iter();
                while frames.len() > 0 {
                    let rest = frames.clone();
                    let Sent { count, stopped, .. } = vhost.send(rest);
                    frames.by_ref().take(count).for_each(drop);
                    if stopped.is_some() {
                        assert_eq!(stopped, Some(full_at(count)));
                        patiently(&vhost);
                        rustix::io::read(&vhost, &mut [0; 8]).unwrap();
                    }
                }
            }
        }
    });
}

/// An engine, and the other ends of its rings.
struct Rig {
    vhost: Vhost,
    receiver: Device,
    sender: Device,
    burst: Burst,
}

impl Rig {
    fn new(config: VhostConfig) -> Self {
        let mut receiver = Receiver::new(config.receive_buffers, 0).unwrap();
        let sender = Transmitter::new(config.send_frames, 0, config.send_bytes).unwrap();
        receiver.release();
        let (theirs, ours) = (receiver.ring().addresses(), sender.ring().addresses());
        let vhost = Vhost {
            worker: Worker::with_events(event()).unwrap(),
            receiver,
            sender,
            queue: Queue::new(event(), Kind::Tap, PREFIX),
            shortest: ETHERNET_LEN,
            is_polling: false,
            is_blocked: false,
            pending: None,
            broken: None,
            log: SendLog::default(),
        };
        Self {
            vhost,
            receiver: Device::new(theirs, config.receive_buffers, 0),
            sender: Device::new(ours, config.send_frames, 0),
            burst: Burst::default(),
        }
    }

    /// Delivers frames, and a signal if requested: returns whether it was.
    fn deliver(&mut self, packets: &[Vec<u8>]) -> bool {
        let buffers = packets.iter().flat_map(|packet| self.receiver.receive(packet).unwrap());
        let buffers = buffers.collect::<Vec<_>>();
        let wanted = self.receiver.give(&buffers);
        if wanted {
            signal(&self.vhost);
        }
        wanted
    }

    /// Takes a sent frame and returns its buffer: the number of frames, and whether there was a
    /// signal.
    fn transmit(&mut self) -> (usize, bool) {
        let Some((head, _)) = self.sender.transmit() else { return (0, false) };
        let wanted = self.sender.give(&[(head, 0)]);
        if wanted {
            signal(&self.vhost);
        }
        (1, wanted)
    }

    fn recv(&mut self) -> Result<usize, RecvError> {
        self.vhost.recv(&mut self.burst)
    }

    fn send(&mut self, count: usize) -> Sent<'_> {
        let frame = &frame(9)[NET_HEADER_LEN..];
        let parts = [IoSlice::new(frame)];
        self.vhost.send((0..count).map(|_| Outgoing::new(NetHeader::PLAIN, &parts)))
    }
}

/// A frame of 60 bytes with a header without offloads.
fn frame(number: usize) -> Vec<u8> {
    let seed = u8::try_from(number % 251).unwrap();
    [&[0; NET_HEADER_LEN][..], &pattern(60, seed)].concat()
}

fn full_at(index: usize) -> Refused {
    Refused { index, error: SendError::Full }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn signal(event: impl AsFd) {
    rustix::io::write(event, &1_u64.to_ne_bytes()).unwrap();
}

fn is_readable(event: impl AsFd) -> bool {
    waits(&event, Duration::ZERO)
}

/// Waits for a signal; five seconds mean that it was lost.
fn patiently(event: &impl AsFd) {
    assert!(waits(event, Duration::from_secs(5)), "a wake-up was lost");
}

fn waits(event: &impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}
