//! Tests of the receive ring, for any use of its buffers by the device.

use proptest::prelude::*;
use tapswitch_helpers::cases;

use super::super::device::{Device, pattern};
use super::*;

#[test]
fn the_longest_frame_fits_the_smallest_ring() {
    let (mut receiver, mut device) = pair(MIN_BUFFERS, 0);
    let packet = packet(NET_HEADER_LEN + MAX_FRAME_LEN, 1);
    for _ in 0..5 {
        let heads = device.receive(&packet).expect("room");
        device.give(&heads);
        assert_eq!(received(&mut receiver), Some(packet.clone()));
        receiver.release();
    }
    assert!(Receiver::new(MIN_BUFFERS / 2, 0).is_err());
}

#[test]
fn buffers_of_frames_that_are_lent_are_not_offered() {
    let (mut receiver, mut device) = pair(64, 0);
    let first = packet(100, 1);
    let heads = device.receive(&first).unwrap();
    device.give(&heads);
    let frame = receiver.next().unwrap().unwrap();
    let available = std::iter::from_fn(|| device.next()).count();
    assert_eq!((available, &frame[12..]), (63, &first[12..]));
    receiver.release();
    assert_eq!(std::iter::from_fn(|| device.next()).count(), 1);
}

#[test]
fn a_device_that_lies_about_lengths_is_found_out() {
    let given = |count: u16, lens: &[u32]| {
        let (mut receiver, mut device) = pair(64, 0);
        let mut short = packet(NET_HEADER_LEN, 0);
        let heads = device.receive(&short).unwrap();
        device.undo(1);
        short[10..12].copy_from_slice(&count.to_ne_bytes());
        let mut chains = Vec::new();
        for (index, &len) in lens.iter().enumerate() {
            let (head, buffers) = device.next().unwrap();
            if index == 0 {
                assert_eq!(head, heads[0].0);
                super::super::device::poke(buffers[0].0, &short);
            }
            chains.push((head, len));
        }
        device.give(&chains);
        receiver.next().map(|frame| frame.map(|frame| frame.len()))
    };
    assert_eq!(given(1, &[12]), Ok(Some(12)));
    assert_eq!(given(2, &[2048, 5]), Ok(Some(2053)));
    assert_eq!(given(1, &[2049]), Err(Broken::Length { len: 2049 }));
    assert_eq!(given(1, &[u32::MAX]), Err(Broken::Length { len: u32::MAX }));
    assert_eq!(given(1, &[11]), Err(Broken::Length { len: 11 }), "no header");
    assert_eq!(given(2, &[2047, 5]), Err(Broken::Length { len: 5 }), "a hole");
    assert_eq!(given(2, &[2048]), Err(Broken::Incomplete));
    assert_eq!(given(0, &[12]), Err(Broken::Count { count: 0 }));
    assert_eq!(given(34, &[12]), Err(Broken::Count { count: 34 }));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(usize),
    Batch,
    Receive(usize),
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![
        NET_HEADER_LEN..200,
        2040..2060_usize,
        NET_HEADER_LEN..=NET_HEADER_LEN + MAX_FRAME_LEN
    ];
    let step = prop_oneof![
        4 => len.prop_map(Step::Deliver),
        1 => Just(Step::Batch),
        2 => (1..5_usize).prop_map(Step::Receive),
        2 => Just(Step::Release),
    ];
    prop::collection::vec(step, 0..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// Frames arrive whole, once and in order, for any lengths, any batching by the device, and any
    /// wrap of the ring and its indices.
    #[test]
    fn frames_arrive_whole_and_in_order(
        base in prop_oneof![Just(0), 65_500..=u16::MAX], steps in steps(),
    ) {
        let (mut receiver, mut device) = pair(64, base);
        let mut expected = std::collections::VecDeque::new();
        let (mut finished, mut batch, mut count) = (0, Vec::new(), 0_u8);
        for step in steps {
            match step {
                Step::Deliver(len) => {
                    count = count.wrapping_add(1);
                    let packet = packet(len, count);
                    if let Some(heads) = device.receive(&packet) {
                        batch.extend(heads);
                        expected.push_back(packet);
                    }
                }
                Step::Batch => {
                    device.give(&std::mem::take(&mut batch));
                    finished = expected.len();
                }
                Step::Receive(frames) => for _ in 0..frames {
                    let packet = received(&mut receiver);
                    prop_assert_eq!(packet.is_some(), finished > 0);
                    let Some(packet) = packet else { break };
                    prop_assert_eq!(Some(packet), expected.pop_front());
                    finished -= 1;
                },
                Step::Release => {
                    receiver.release();
                }
            }
        }
    }
}

fn pair(size: u16, base: u16) -> (Receiver, Device) {
    let mut receiver = Receiver::new(size, base).unwrap();
    receiver.release();
    let device = Device::new(receiver.ring().addresses(), size, base);
    (receiver, device)
}

/// `len` bytes that differ from packet to packet. `num_buffers` is zero.
fn packet(len: usize, seed: u8) -> Vec<u8> {
    let mut packet = pattern(len, seed);
    packet[10..12].fill(0);
    packet
}

fn received(receiver: &mut Receiver) -> Option<Vec<u8>> {
    receiver.next().unwrap().map(|packet| packet.to_vec())
}
