//! Two threads on one ring: the device sleeps until the driver notifies, and the driver until the
//! device does. If a notification is lost, the test fails by a timeout.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::super::descriptor::Table;
use super::*;
use crate::features::Features;
use crate::queue::{Queue, Running};

/// Buffers that pass through each ring.
const COUNT: u16 = 20_000;
const SIZE: u16 = 4;
/// Much longer than any wait: a thread that sleeps longer was not notified.
const PATIENCE: Duration = Duration::from_secs(60);

/// A driver that uses atomics on shared memory, like real drivers.
struct Atomic {
    words: Table<AtomicU16>,
    rests: Table<AtomicU64>,
    features: RingFeatures,
    kick: OwnedFd,
    call: OwnedFd,
    /// Keeps the tables mapped.
    _memory: Arc<GuestMemory>,
}

impl Atomic {
    fn word(&self, offset: u64) -> &AtomicU16 {
        // SAFETY: the memory is mapped as long as `self` exists.
        unsafe { self.words.at(u32::try_from(offset / 2).unwrap()) }
    }

    /// The second word of a descriptor: all but the address.
    fn rest(&self, slot: u16) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.rests.at(2 * u32::from(slot) + 1) }
    }

    /// Offers buffer `number`, and notifies if the device wants that.
    fn offer(&self, number: u16) {
        let (slot, wrap) = (number % SIZE, (number / SIZE).is_multiple_of(2));
        if self.features.packed {
            let flags = if wrap { 1u64 << 7 } else { 1 << 15 };
            self.rest(slot).store(1 | u64::from(slot) << 32 | flags << 48, Ordering::Release);
        } else {
            self.rest(slot).store(1, Ordering::Relaxed);
            self.word(DRIVER + 4 + 2 * u64::from(slot)).store(slot, Ordering::Relaxed);
            self.word(DRIVER + 2).store(number.wrapping_add(1), Ordering::Release);
        }
        fence(Ordering::SeqCst);
        let word = |offset| self.word(DEVICE + offset).load(Ordering::Relaxed);
        let is_wished = match (self.features.packed, self.features.event_index) {
            (false, false) => word(0) == 0,
            (false, true) => word(4 + 8 * u64::from(SIZE)) == number,
            (true, _) => match word(2) {
                0 => true,
                2 => word(0) == place(number),
                _ => false,
            },
        };
        if is_wished {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// True if buffer `number` has been given back.
    fn is_back(&self, number: u16) -> bool {
        if self.features.packed {
            let flags = self.rest(number % SIZE).load(Ordering::Acquire) >> 48;
            let used = if place(number) & 0x8000 != 0 { 0x8080 } else { 0 };
            return flags & 0x8080 == used;
        }
        let index = self.word(DEVICE + 2).load(Ordering::Acquire);
        index.wrapping_sub(number).cast_signed() > 0
    }

    /// Waits until buffer `number` is given back; polls a few times before it sleeps.
    fn wait(&self, number: u16) {
        for _ in 0..number % 7 {
            if self.is_back(number) {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            self.arm(number);
            fence(Ordering::SeqCst);
            if self.is_back(number) {
                return;
            }
            sleep(&self.call, "driver", number);
            let mut count = [0; 8];
            rustix::io::read(&self.call, &mut count).unwrap();
        }
    }

    fn arm(&self, number: u16) {
        let word = |offset| self.word(DRIVER + offset);
        match (self.features.packed, self.features.event_index) {
            (false, false) => word(0).store(0, Ordering::Relaxed),
            (false, true) => word(4 + 2 * u64::from(SIZE)).store(number, Ordering::Relaxed),
            (true, false) => word(2).store(0, Ordering::Relaxed),
            (true, true) => {
                word(0).store(place(number), Ordering::Relaxed);
                word(2).store(2, Ordering::Release);
            }
        }
    }
}

fn place(number: u16) -> u16 {
    let wrap = if (number / SIZE).is_multiple_of(2) { 0x8000 } else { 0 };
    (number % SIZE) | wrap
}

/// Sleeps until the descriptor is readable.
fn sleep(on: impl AsFd, who: &str, at: u16) {
    let mut fds = [PollFd::new(&on, PollFlags::IN)];
    let limit = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "the {who} was not woken at {at}");
}

/// Takes and gives back all buffers, like a worker.
fn serve(queue: &Queue) {
    let mut done = 0;
    while done < COUNT {
        queue.acknowledge();
        let mut place = queue.lock();
        let running = place.as_mut().unwrap();
        running.disarm();
        while running.fetch(4).unwrap() > 0 {
            running.complete(0);
            running.publish();
            done += 1;
        }
        let sleeps = running.arm();
        drop(place);
        if sleeps && done < COUNT {
            sleep(queue, "device", done);
        }
    }
}

#[test]
fn two_threads_that_sleep_wake_each_other_every_time() {
    for features in all_features() {
        let guest = Guest::new();
        let table = |len| guest.memory.find(BASE, len).unwrap();
        let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let (kick, call) = (event(), event());
        let driver = Atomic {
            words: Table::new(table(0x3000)).unwrap(),
            rests: Table::new(table(0x1000)).unwrap(),
            features,
            kick: kick.try_clone().unwrap(),
            call: call.try_clone().unwrap(),
            _memory: guest.memory.clone(),
        };
        (0..u64::from(SIZE)).for_each(|slot| guest.write(16 * slot, &BASE.to_le_bytes()));
        let place = Driver::new(SIZE, features).place();
        let base = if features.packed { 0x8000_8000 } else { 0 };
        let ring = Ring::new(&guest.memory, &place, features, Direction::Transmit, base).unwrap();
        let queue = Queue::new().unwrap();
        queue.start(Running::new(ring, Features::empty(), Some(kick), Some(call))).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&queue));
            for number in 0..COUNT {
                if let Some(oldest) = number.checked_sub(SIZE) {
                    driver.wait(oldest);
                }
                driver.offer(number);
                // From time to time all buffers are waited for, so that the device sleeps.
                if number % 5 == 0 {
                    driver.wait(number);
                }
            }
            driver.wait(COUNT - 1);
        });
    }
}
