//! Tests that no wake-up is lost: a sleeping side is woken when there is work.
//!
//! - `model` and `protocols`: all executions of the four protocols on weak memory, and that each of
//!   their fences is needed.
//! - Here: the rings themselves, with driver steps before, between and after each two steps of
//!   ours. This shows that the rings store and compare what the model's device does, at every
//!   position.
//! - `stress`: two real threads that sleep and wake each other.

pub(crate) mod model;
mod protocols;
mod stress;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest};

use protocols::{FENCES, KINDS, protocol};

thread_local! {
    static AT_BARRIER: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Runs a test's action between a store of ours and the load behind it.
pub(super) fn at_barrier() {
    if let Some(action) = AT_BARRIER.take() {
        action();
    }
}

#[test]
fn no_run_of_any_protocol_ends_in_sleep() {
    for kind in KINDS {
        let outcome = protocol(kind, None).explore();
        println!("{kind:?}: {outcome:?}");
        assert_eq!(outcome.stuck, None, "{kind:?}");
        assert!(outcome.slept, "{kind:?}: a model in which nobody sleeps shows nothing");
    }
}

#[test]
fn without_any_of_the_fences_somebody_sleeps_for_good() {
    for kind in KINDS {
        for fence in FENCES {
            let outcome = protocol(kind, Some(fence)).explore();
            assert_ne!(outcome.stuck, None, "{kind:?} without {fence:?}");
        }
    }
}

/// When the driver acts, relative to two steps of ours with a fence between.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Before,
    Between,
    After,
}

const TIMES: [When; 3] = [When::Before, When::Between, When::After];

fn all_features() -> impl Iterator<Item = RingFeatures> {
    [false, true].into_iter().flat_map(|packed| {
        [false, true].map(|event_index| RingFeatures { packed, event_index, indirect: false })
    })
}

/// A guest and its driver, which offers one buffer after the other.
struct Peer {
    guest: Guest,
    driver: Driver,
    features: RingFeatures,
    size: u16,
    offered: u16,
}

/// A ring for such a driver.
fn setup(features: RingFeatures, size: u16) -> (Rc<RefCell<Peer>>, Ring) {
    let (guest, driver) = (Guest::new(), Driver::new(size, features));
    let (place, base) = (driver.place(), driver.base());
    let ring = Ring::new(&guest.memory, &place, features, Direction::Transmit, base).unwrap();
    (Rc::new(RefCell::new(Peer { guest, driver, features, size, offered: 0 })), ring)
}

/// Addresses of the driver's part of a ring and of the device's.
const DRIVER: u64 = 0x1000;
const DEVICE: u64 = 0x2000;

impl Peer {
    /// Offers a buffer. Returns whether the driver then notifies, by a literal reading of the
    /// specification: the buffer is at the event index, or all notifications are wanted.
    fn offer(&mut self) -> bool {
        self.driver.offer(&self.guest, &Buffer::to_read(BASE + BUFFERS, 1)).unwrap();
        let at = self.place(self.offered);
        self.offered = self.offered.wrapping_add(1);
        let word = |offset| self.guest.read_u16(DEVICE + offset);
        match (self.features.packed, self.features.event_index) {
            (false, false) => word(0) == 0,
            (false, true) => word(4 + 8 * u64::from(self.size)) == at,
            (true, _) => match word(2) {
                0 => true,
                2 => word(0) == at,
                _ => false,
            },
        }
    }

    /// Position of buffer `number`: a count, or position bits.
    fn place(&self, number: u16) -> u16 {
        let wrap = if (number / self.size).is_multiple_of(2) { 0x8000 } else { 0 };
        if self.features.packed { (number % self.size) | wrap } else { number }
    }

    /// Asks for an interrupt when buffer `number` is given back. Returns whether the driver then
    /// sleeps, because that has not happened yet.
    fn sleep_until(&mut self, number: u16) -> bool {
        let at = self.place(number);
        match (self.features.packed, self.features.event_index) {
            (false, false) => self.guest.write_u16(DRIVER, 0),
            (false, true) => self.guest.write_u16(DRIVER + 4 + 2 * u64::from(self.size), at),
            (true, false) => self.guest.write_u16(DRIVER + 2, 0),
            (true, true) => {
                self.guest.write_u16(DRIVER, at);
                self.guest.write_u16(DRIVER + 2, 2);
            }
        }
        self.driver.reap(&self.guest).is_empty()
    }

    fn reap(&mut self) {
        self.driver.reap(&self.guest);
    }

    /// Asks for no interrupts; an event index expires by itself.
    fn poll(&mut self) {
        match (self.features.packed, self.features.event_index) {
            (false, false) => self.guest.write_u16(DRIVER, 1),
            (false, true) => {}
            (true, _) => self.guest.write_u16(DRIVER + 2, 1),
        }
    }
}

/// Runs `ours`, and the driver's `theirs` at the given time. Returns both results.
fn interleave<T>(
    when: When,
    peer: &Rc<RefCell<Peer>>,
    theirs: impl Fn(&mut Peer) -> bool + Copy + 'static,
    ours: impl FnOnce() -> T,
) -> (bool, T) {
    let answer = Rc::new(Cell::new(None));
    let action = {
        let (peer, answer) = (peer.clone(), answer.clone());
        move || answer.set(Some(theirs(&mut peer.borrow_mut())))
    };
    match when {
        When::Before => action(),
        When::Between => AT_BARRIER.set(Some(Box::new(action.clone()))),
        When::After => {}
    }
    let outcome = ours();
    if when == When::After {
        action();
    }
    (answer.get().expect("the driver has had its time"), outcome)
}

/// Buffers through each ring: several turns, also for packed rings of odd sizes.
const ROUNDS: u16 = 40;

#[test]
fn a_device_that_sleeps_is_notified_of_the_next_buffer() {
    for features in all_features() {
        for (size, when) in [1, 2, 4].into_iter().flat_map(|size| TIMES.map(|when| (size, when))) {
            let (peer, mut ring) = setup(features, size);
            for round in 0..ROUNDS {
                ring.disarm();
                let (is_notified, sleeps) = interleave(when, &peer, Peer::offer, || ring.arm());
                assert!(is_notified || !sleeps, "{features:?} {size} {when:?} round {round}");
                assert_eq!(sleeps, when == When::After, "nothing was there before");
                assert!(is_notified || when == When::Before, "the wish is there at the fence");
                let mut chains = Chains::default();
                assert_eq!(ring.fetch(4, &mut chains), Ok(1));
                ring.complete(&chains.get(0).unwrap(), 0);
                ring.publish();
                peer.borrow_mut().reap();
            }
        }
    }
}

#[test]
fn a_driver_that_sleeps_is_notified_of_what_comes_back() {
    for features in all_features() {
        for (size, when) in [1, 2, 4].into_iter().flat_map(|size| TIMES.map(|when| (size, when))) {
            let (peer, mut ring) = setup(features, size);
            for round in 0..ROUNDS {
                peer.borrow_mut().poll();
                peer.borrow_mut().offer();
                let mut chains = Chains::default();
                assert_eq!(ring.fetch(4, &mut chains), Ok(1));
                ring.complete(&chains.get(0).unwrap(), 0);
                let theirs = move |peer: &mut Peer| peer.sleep_until(round);
                let (sleeps, notifies) = interleave(when, &peer, theirs, || ring.publish());
                assert!(notifies || !sleeps, "{features:?} {size} {when:?} round {round}");
                assert_eq!(sleeps, when == When::Before, "it is back at the fence");
                assert!(notifies || when == When::After, "the wish is looked at behind the fence");
                peer.borrow_mut().reap();
            }
        }
    }
}
