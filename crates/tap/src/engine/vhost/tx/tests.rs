//! Tests of the send ring, and of what a device finds in it.

use std::collections::VecDeque;

use proptest::prelude::*;
use tapswitch_helpers::cases;

use super::super::device::{Device, pattern};
use super::*;

#[test]
fn a_full_ring_takes_no_more_until_the_device_is_done() {
    let (mut sender, mut device) = pair(4, 0, 4096);
    for seed in 0..4 {
        assert!(push(&mut sender, 100, seed));
    }
    assert!(!push(&mut sender, 100, 4), "no descriptor");
    sender.publish();
    assert_eq!(sender.pending(), Ok(4));
    let (head, _) = device.transmit().unwrap();
    assert!(!push(&mut sender, 100, 4), "seen, but not yet given back");
    device.give(&[(head, 0)]);
    assert_eq!(sender.pending(), Ok(3));
    assert!(push(&mut sender, 100, 4));

    let (mut sender, mut device) = pair(64, 0, 4096);
    assert!(push(&mut sender, 4000, 0));
    assert!(!push(&mut sender, 65, 1), "no bytes");
    assert!(push(&mut sender, 64, 1));
    sender.publish();
    let heads = [(device.transmit().unwrap().0, 0), (device.transmit().unwrap().0, 0)];
    device.give(&heads);
    assert!(push(&mut sender, 4096, 2));
    assert!(!push(&mut sender, 4097, 2), "never");
}

#[test]
fn nothing_is_sent_before_it_is_published() {
    let (mut sender, mut device) = pair(4, 65_534, 4096);
    assert!(device.sleep());
    push(&mut sender, 100, 1);
    assert!(device.transmit().is_none());
    assert!(sender.publish(), "the device sleeps");
    assert_eq!(device.transmit().unwrap().1, pattern(100, 1));
    assert!(device.transmit().is_none());
}

#[test]
fn a_full_ring_signals_when_it_is_half_empty() {
    let (mut sender, mut device) = pair(8, 0, 4096);
    for seed in 0..8 {
        push(&mut sender, 10, seed);
    }
    sender.publish();
    assert_eq!(sender.arm(), Ok(true));
    let signals = [(); 8].map(|()| {
        let (head, _) = device.transmit().unwrap();
        device.give(&[(head, 0)])
    });
    assert_eq!(signals.iter().position(|&signalled| signalled), Some(3));
    assert_eq!(signals.iter().filter(|&&signalled| signalled).count(), 1);
    assert_eq!(sender.arm(), Ok(false));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize),
    Publish,
    DeviceSees(usize),
    DeviceReads(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![12..200_usize, 12..=8192_usize];
    let step = prop_oneof![
        3 => len.prop_map(Step::Push),
        1 => Just(Step::Publish),
        1 => (1..5_usize).prop_map(Step::DeviceSees),
        1 => (1..5_usize).prop_map(Step::DeviceReads),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(128)))]

    /// The device finds each frame as it was sent, in order, even if it reads it just before
    /// returning it: nothing that it owns is overwritten. A frame is refused only if there is no
    /// room.
    #[test]
    fn frames_are_sent_whole_and_in_order(
        base in prop_oneof![Just(0), 65_500..=u16::MAX], steps in steps(),
    ) {
        let (mut sender, mut device) = pair(16, base, 8192);
        let (mut queued, mut seen) = (VecDeque::new(), 0);
        let (mut sent, mut seed) = (0, 0_u8);
        for step in steps {
            match step {
                Step::Push(len) => {
                    seed = seed.wrapping_add(1);
                    let bytes = queued.iter().map(rounded_len).sum::<usize>();
                    let has_room = queued.len() < 16 && bytes + len.next_multiple_of(64) <= 8192;
                    prop_assert_eq!(push(&mut sender, len, seed), has_room);
                    if has_room {
                        queued.push_back(pattern(len, seed));
                    }
                }
                Step::Publish => {
                    sender.publish();
                    sent = queued.len();
                }
                Step::DeviceSees(count) => for _ in 0..count {
                    prop_assert_eq!(device.next().is_some(), seen < sent);
                    seen = (seen + 1).min(sent);
                },
                Step::DeviceReads(count) => for _ in 0..count.min(seen) {
                    device.undo(u16::try_from(seen).unwrap());
                    let (head, packet) = device.transmit().unwrap();
                    for _ in 1..seen {
                        device.next().unwrap();
                    }
                    device.give(&[(head, 0)]);
                    prop_assert_eq!(Some(packet), queued.pop_front());
                    (seen, sent) = (seen - 1, sent - 1);
                },
            }
        }
    }
}

#[expect(clippy::ptr_arg, reason = "what an iterator gives")]
fn rounded_len(packet: &Vec<u8>) -> usize {
    packet.len().next_multiple_of(64)
}

fn pair(size: u16, base: u16, capacity: usize) -> (Transmitter, Device) {
    let sender = Transmitter::new(size, base, capacity).unwrap();
    let device = Device::new(sender.ring().addresses(), size, base);
    (sender, device)
}

fn push(sender: &mut Transmitter, len: usize, seed: u8) -> bool {
    sender.push(len, |room| room.copy_from_slice(&pattern(len, seed))).unwrap()
}
