//! Tests of rings with a device as in the specification, and of two rings in two threads.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::super::device::Device;
use super::*;

#[test]
fn a_size_is_a_power_of_two() {
    for size in [0, 3, 1000] {
        assert!(Ring::new(size, 0).is_err());
    }
    for size in [1, 2, 1 << 15] {
        assert_eq!(Ring::new(size, 0).unwrap().free(), size);
    }
}

#[test]
fn the_tables_lie_where_the_spec_wants_them() {
    let ring = Ring::new(8, 0).unwrap();
    let [descriptors, avail, used] = ring.addresses();
    assert_eq!((descriptors % 16, avail % 2, used % 4), (0, 0, 0));
    assert!(avail >= descriptors + 16 * 8 && used >= avail + 6 + 2 * 8);
}

#[test]
fn a_device_that_lies_is_found_out() {
    let (mut ring, mut device) = pair(8, 65_530);
    offer(&mut ring, 3);
    ring.publish();
    device.next().unwrap();
    device.give(&[(5, 0)]);
    assert_eq!(ring.take(), Err(Broken::OutOfTurn { id: 5, due: 2 }));

    let (mut ring, mut device) = pair(8, 0);
    offer(&mut ring, 3);
    ring.publish();
    device.lie(4);
    assert_eq!(ring.take(), Err(Broken::TooMany { came_back: 4, out: 3 }));
    assert!(ring.arm(1).is_err());
    device.lie(8);
    assert!(ring.take().is_err());
}

#[test]
fn a_device_is_kicked_when_it_sleeps_and_only_then() {
    let (mut ring, mut device) = pair(8, 65_534);
    offer(&mut ring, 1);
    assert!(device.sleep());
    assert!(ring.publish(), "asleep");
    offer(&mut ring, 1);
    assert!(!ring.publish(), "kicked already");
    assert!(!ring.publish(), "nothing new");
    while let Some((head, _)) = device.next() {
        device.give(&[(head, 0)]);
    }
    offer(&mut ring, 4);
    assert!(!ring.publish(), "awake");
    assert!(!device.sleep(), "there is something to do");
}

#[test]
fn a_signal_comes_for_the_buffer_that_was_asked_for() {
    let (mut ring, mut device) = pair(8, 65_533);
    offer(&mut ring, 8);
    ring.publish();
    assert!(!device.give_next(), "not armed");
    assert_eq!(ring.arm(1), Ok(false), "one is back");
    assert_eq!(ring.take(), Ok(Some(0)));
    assert_eq!(ring.arm(3), Ok(true));
    assert_eq!([device.give_next(), device.give_next(), device.give_next()], [false, false, true]);
    assert!(!device.give_next(), "once");
    assert_eq!(ring.arm(4), Ok(false));
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(model::lost(model::Rules::ALL), 0);
    // The model would find a lost wake-up.
    let rules = model::Rules::ALL;
    assert!(model::lost(model::Rules { our_fence: false, ..rules }) > 0);
    assert!(model::lost(model::Rules { their_fence: false, ..rules }) > 0);
    assert!(model::lost(model::Rules { second_look: false, ..rules }) > 0);
}

/// Both sides sleep whenever they have nothing to do. The result does not depend on time: a lost
/// wake-up waits until the time limit.
#[test]
fn two_threads_wake_each_other() {
    const COUNT: u32 = 200_000;
    let (mut ring, mut device) = pair(16, 65_000);
    let (kick, call) = (event(), event());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut done = 0;
            while done < COUNT {
                while let Some((head, buffers)) = device.next() {
                    if device.give(&[(head, buffers[0].1)]) {
                        signal(&call);
                    }
                    done += 1;
                }
                if done < COUNT && device.sleep() {
                    wait(&kick);
                }
            }
        });
        let (mut sent, mut back) = (0, 0);
        while back < COUNT {
            while ring.free() > 0 && sent < COUNT {
                ring.offer(Buffer { address: 1, len: sent, is_writable: false });
                sent += 1;
            }
            if ring.publish() {
                signal(&kick);
            }
            while let Some(len) = ring.take().unwrap() {
                assert_eq!(len, back);
                back += 1;
            }
            if back < COUNT && ring.free() == 0 && ring.arm(1).unwrap() {
                wait(&call);
            }
        }
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Offer(u16),
    Publish,
    Take(u16),
    DeviceSees(u16),
    DeviceGives(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..9_u16).prop_map(Step::Offer),
        Just(Step::Publish),
        (1..9_u16).prop_map(Step::Take),
        (1..9_u16).prop_map(Step::DeviceSees),
        (1..9_u16).prop_map(Step::DeviceGives),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    /// Compared with a plain queue: an offered buffer is returned once, in order, never before it
    /// was published, for any batch sizes and any wrap of the indices.
    #[test]
    fn buffers_come_back_once_and_in_order(
        order in 0..5_u32, base in prop_oneof![Just(0), 65_400..=u16::MAX], steps in steps(),
    ) {
        let size = 1 << order;
        let (mut ring, mut device) = pair(size, base);
        let (mut offered, mut taken) = (0_u32, 0_u32);
        let (mut unpublished, mut visible, mut held, mut back) = (0, 0, VecDeque::new(), 0);
        for step in steps {
            match step {
                Step::Offer(count) => for _ in 0..count.min(ring.free()) {
                    ring.offer(Buffer { address: 7, len: offered, is_writable: true });
                    offered += 1;
                    unpublished += 1;
                },
                Step::Publish => {
                    ring.publish();
                    visible += std::mem::take(&mut unpublished);
                }
                Step::DeviceSees(count) => for _ in 0..count {
                    let Some((head, buffers)) = device.next() else {
                        prop_assert_eq!(visible, 0);
                        break;
                    };
                    visible -= 1;
                    held.push_back((head, buffers[0].1));
                },
                Step::DeviceGives(count) => {
                    let chains = held.drain(..held.len().min(count.into())).collect::<Vec<_>>();
                    back += chains.len();
                    device.give(&chains);
                }
                Step::Take(count) => for _ in 0..count {
                    match ring.take().unwrap() {
                        Some(len) => {
                            prop_assert_eq!(len, taken);
                            taken += 1;
                            back -= 1;
                        }
                        None => {
                            prop_assert_eq!(back, 0);
                            break;
                        }
                    }
                },
            }
            prop_assert_eq!(u32::from(ring.free()), u32::from(size) - (offered - taken));
        }
    }
}

fn pair(size: u16, base: u16) -> (Ring, Device) {
    let ring = Ring::new(size, base).unwrap();
    let device = Device::new(ring.addresses(), size, base);
    (ring, device)
}

fn offer(ring: &mut Ring, count: u16) {
    for _ in 0..count {
        ring.offer(Buffer { address: 0, len: 0, is_writable: true });
    }
}

impl Device {
    fn give_next(&mut self) -> bool {
        let (head, _) = self.next().unwrap();
        self.give(&[(head, 0)])
    }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn signal(event: &OwnedFd) {
    rustix::io::write(event, &1_u64.to_ne_bytes()).unwrap();
}

/// Waits for a signal; five seconds mean that it was lost.
fn wait(event: &OwnedFd) {
    let patience = Timespec::try_from(Duration::from_secs(5)).unwrap();
    let mut fds = [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1, "a wake-up was lost");
    rustix::io::read(event, &mut [0; 8]).unwrap();
}

/// All interleavings of one side that goes to sleep and one that gives it work, on a machine that
/// may delay each store until the next fence (as x86 and weaker ones do).
///
/// The ring is symmetric: with the names exchanged this is also how the device goes to sleep.
mod model {
    use std::collections::HashSet;

    #[derive(Clone, Copy)]
    pub(super) struct Rules {
        pub(super) our_fence: bool,
        pub(super) their_fence: bool,
        pub(super) second_look: bool,
    }

    impl Rules {
        pub(super) const ALL: Self = Self { our_fence: true, their_fence: true, second_look: true };
    }

    /// Buffers that the device returns, one by one.
    const BUFFERS: u8 = 3;

    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Us {
        Look,
        Wish,
        Fence,
        LookAgain,
        Asleep,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Them {
        Give,
        Fence,
        Consider,
        Done,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    struct State {
        us: Us,
        them: Them,
        /// In memory.
        used: u8,
        wish: u8,
        /// Stored, but not yet visible to the other side.
        used_delayed: Option<u8>,
        wish_delayed: Option<u8>,
        taken: u8,
        given: u8,
        considered: u8,
        is_signalled: bool,
    }

    /// Number of states in which one side waits forever with work to do.
    pub(super) fn lost(rules: Rules) -> usize {
        let start = State {
            us: Us::Look,
            them: Them::Give,
            used: 0,
            wish: u8::MAX,
            used_delayed: None,
            wish_delayed: None,
            taken: 0,
            given: 0,
            considered: 0,
            is_signalled: false,
        };
        let mut known = HashSet::from([start]);
        let mut open = vec![start];
        let mut lost = 0;
        while let Some(state) = open.pop() {
            let next = [
                state.drain_ours(),
                state.drain_theirs(),
                state.step_us(rules),
                state.step_them(rules),
            ];
            if next.iter().all(Option::is_none) && state.taken < BUFFERS {
                lost += 1;
            }
            open.extend(next.into_iter().flatten().filter(|&state| known.insert(state)));
        }
        assert!(known.len() > 100, "a model without states proves nothing");
        lost
    }

    impl State {
        fn drain_ours(self) -> Option<Self> {
            self.wish_delayed.map(|wish| Self { wish, wish_delayed: None, ..self })
        }

        fn drain_theirs(self) -> Option<Self> {
            self.used_delayed.map(|used| Self { used, used_delayed: None, ..self })
        }

        fn step_us(self, rules: Rules) -> Option<Self> {
            let went = |us| Some(Self { us, ..self });
            match self.us {
                Us::Look if self.used != self.taken => Some(Self { taken: self.used, ..self }),
                Us::Look => went(Us::Wish),
                Us::Wish if self.wish_delayed.is_some() => None,
                Us::Wish => Some(Self { wish_delayed: Some(self.taken), us: Us::Fence, ..self }),
                Us::Fence if rules.our_fence && self.wish_delayed.is_some() => None,
                Us::Fence => went(Us::LookAgain),
                Us::LookAgain if rules.second_look && self.used != self.taken => went(Us::Look),
                Us::LookAgain => went(Us::Asleep),
                Us::Asleep if self.is_signalled => {
                    Some(Self { us: Us::Look, is_signalled: false, ..self })
                }
                Us::Asleep => None,
            }
        }

        fn step_them(self, rules: Rules) -> Option<Self> {
            match self.them {
                Them::Give if self.given == BUFFERS => Some(Self { them: Them::Done, ..self }),
                Them::Give if self.used_delayed.is_some() => None,
                Them::Give => {
                    let given = self.given + 1;
                    Some(Self { given, used_delayed: Some(given), them: Them::Fence, ..self })
                }
                Them::Fence if rules.their_fence && self.used_delayed.is_some() => None,
                Them::Fence => Some(Self { them: Them::Consider, ..self }),
                Them::Consider => {
                    let passed = self.considered <= self.wish && self.wish < self.given;
                    Some(Self {
                        is_signalled: self.is_signalled || passed,
                        considered: self.given,
                        them: Them::Give,
                        ..self
                    })
                }
                Them::Done => None,
            }
        }
    }
}
