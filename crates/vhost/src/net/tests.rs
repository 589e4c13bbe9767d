//! Tests of frames into and out of the buffers of a simple driver.

use std::iter;

use super::*;
use crate::chain::Chains;
use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest};
use crate::{Direction, Ring};

struct Setup {
    guest: Guest,
    driver: Driver,
    running: Running,
}

fn setup(features: Features, direction: Direction) -> Setup {
    setup_of(8, features, direction)
}

/// A setup with a ring of `size`.
fn setup_of(size: u16, features: Features, direction: Direction) -> Setup {
    let (guest, ring) = (Guest::new(), features.ring());
    let driver = Driver::new(size, ring);
    let ring = Ring::new(&guest.memory, &driver.place(), ring, direction, driver.base()).unwrap();
    Setup { guest, driver, running: Running::new(ring, features, None, None) }
}

fn kinds() -> [Features; 3] {
    let modern = Features::VERSION_1 | Features::MRG_RXBUF | Features::EVENT_IDX;
    [Features::empty(), modern, modern | Features::RING_PACKED]
}

fn header(gso_size: u8) -> [u8; NET_HEADER_LEN] {
    [1, 1, 54, 0, gso_size, 0, 34, 0, 16, 0, 0, 0]
}

#[test]
fn a_guests_frame_is_its_headers_and_the_rest() {
    for features in kinds() {
        let mut s = setup(features, Direction::Transmit);
        let header_len = features.header_len();
        let frame: Vec<u8> = (0..=255).collect();
        let bytes = [&header(9)[..header_len], &frame].concat();
        s.guest.write(BUFFERS, &bytes);
        let at = BASE + BUFFERS;
        // Pieces with arbitrary ends.
        let pieces = vec![(at, 5), (at + 5, 100), (at + 105, bytes.len() as u32 - 105)];
        s.driver.offer(&s.guest, &Buffer { pieces, writable: false, indirect: false }).unwrap();
        assert_eq!(s.running.fetch(8), Ok(1));
        let chain = s.running.peek(0).unwrap();
        let mut head = [0; 60];
        let (read, len) = s.running.read_frame(&chain, &mut head).unwrap();
        let read = <[u8; NET_HEADER_LEN]>::from(read);
        assert_eq!((&read[..10], len), (&header(9)[..10], 256));
        assert_eq!(head, frame[..60]);
        let mut rest = Vec::new();
        for part in s.running.frame_from(&chain, 60) {
            let Part::Guest(bytes) = part else { panic!("not the guest's") };
            let mut copy = vec![0; bytes.len()];
            bytes.read(&mut copy);
            rest.extend(copy);
        }
        assert_eq!(rest, frame[60..]);
    }
}

#[test]
fn a_buffer_without_a_header_is_no_frame() {
    let mut s = setup(Features::VERSION_1, Direction::Transmit);
    s.driver.offer(&s.guest, &Buffer::to_read(BASE + BUFFERS, 11)).unwrap();
    assert_eq!(s.running.fetch(8), Ok(1));
    let chain = s.running.peek(0).unwrap();
    assert!(s.running.read_frame(&chain, &mut [0; 60]).is_none());
}

fn offer(s: &mut Setup, count: u64, len: u32) {
    for index in 0..count {
        let at = BASE + BUFFERS + index * 0x1000;
        let pieces = vec![(at, len / 3), (at + 0x800, len - len / 3)];
        s.driver.offer(&s.guest, &Buffer { pieces, writable: true, indirect: false }).unwrap();
    }
}

/// The bytes that the guest finds in its buffers.
fn received(s: &mut Setup, len: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, (_, written)) in s.driver.reap(&s.guest).into_iter().enumerate() {
        let at = BUFFERS + 0x1000 * index as u64;
        let first: [u8; 0x800] = s.guest.read(at);
        let second: [u8; 0x800] = s.guest.read(at + 0x800);
        let here = [&first[..len as usize / 3], &second[..(len - len / 3) as usize]].concat();
        out.extend_from_slice(&here[..written as usize]);
    }
    out
}

#[test]
fn a_frame_lies_in_as_many_buffers_as_it_takes() {
    for features in &kinds()[1..] {
        let mut s = setup(*features, Direction::Receive);
        offer(&mut s, 4, 100);
        let frame: Vec<u8> = (0..=255).collect();
        let parts = [Part::Ours(&frame[..7]), Part::Ours(&frame[7..])];
        s.running.deliver(header(3), 256, parts.into_iter()).unwrap();
        s.running.publish();
        let got = received(&mut s, 100);
        let expected = [&header(3)[..10], &[3, 0], &frame].concat();
        assert_eq!(got, expected);
        assert_eq!(s.running.deliver(header(3), 89, [].into_iter()), Err(Undelivered::Full));
        assert_eq!(s.running.deliver(header(3), 88, [].into_iter()), Ok(()), "one was left");
    }
}

#[test]
fn without_mergeable_buffers_one_must_do() {
    let mut s = setup(Features::VERSION_1, Direction::Receive);
    offer(&mut s, 4, 100);
    let frame = [7; 89];
    let deliver = |s: &mut Setup, len: usize| {
        s.running.deliver(header(0), len, [Part::Ours(&frame[..len])].into_iter())
    };
    assert_eq!(deliver(&mut s, 89), Err(Undelivered::TooLong));
    assert_eq!(deliver(&mut s, 88), Ok(()));
    s.running.publish();
    assert_eq!(s.driver.reap(&s.guest)[0].1, 100);
}

fn offer_plain(s: &mut Setup, count: u64, len: u32) {
    for index in 0..count {
        let pieces = vec![(BASE + BUFFERS + index * 0x1000, len)];
        s.driver.offer(&s.guest, &Buffer { pieces, writable: true, indirect: false }).unwrap();
    }
}

fn deliver(s: &mut Setup, len: usize) -> Result<(), Undelivered> {
    let frame = vec![7; len];
    s.running.deliver(header(0), len, [Part::Ours(&frame)].into_iter())
}

/// Such a frame would wait for ever, and block all behind it.
#[test]
fn a_frame_that_all_buffers_of_a_ring_cannot_hold_is_too_long() {
    for features in &kinds()[1..] {
        let mut s = setup_of(16, *features, Direction::Receive);
        offer_plain(&mut s, 16, 2048);
        assert_eq!(deliver(&mut s, 60 << 10), Err(Undelivered::TooLong));
        assert_eq!(deliver(&mut s, 16 * 2048 - 12 + 1), Err(Undelivered::TooLong));
        assert_eq!(deliver(&mut s, 16 * 2048 - 12), Ok(()));
        let mut s = setup_of(4, *features, Direction::Receive);
        offer_plain(&mut s, 4, 100);
        assert_eq!(deliver(&mut s, 1500), Err(Undelivered::TooLong));
        assert_eq!(deliver(&mut s, 60), Ok(()), "the next one arrives");
        s.running.publish();
        assert_eq!(s.driver.reap(&s.guest)[0].1, 72);
        assert_eq!(deliver(&mut s, 1500), Err(Undelivered::Full), "one may be added");
        let mut s = setup_of(8, *features, Direction::Receive);
        offer(&mut s, 3, 100);
        assert_eq!(deliver(&mut s, 1500), Err(Undelivered::Full));
        offer_plain(&mut s, 1, 100);
        assert_eq!(deliver(&mut s, 1500), Err(Undelivered::Full));
        offer_plain(&mut s, 1, 100);
        assert_eq!(deliver(&mut s, 1500), Err(Undelivered::TooLong));
    }
}

/// Buffers that are used but not published occupy descriptors, but only for a burst.
#[test]
fn a_ring_that_is_not_filled_yet_is_full_for_now() {
    for features in &kinds()[1..] {
        let mut s = setup_of(16, *features, Direction::Receive);
        assert_eq!(deliver(&mut s, 60), Err(Undelivered::Unready));
        offer_plain(&mut s, 15, 2048);
        assert_eq!(deliver(&mut s, 60 << 10), Err(Undelivered::Full));
        offer_plain(&mut s, 1, 2048);
        assert_eq!(deliver(&mut s, 20_000), Ok(()));
        assert_eq!(deliver(&mut s, 20_000), Err(Undelivered::Full), "ten are used");
        s.running.publish();
        assert_eq!(s.driver.reap(&s.guest).len(), 10);
        assert_eq!(deliver(&mut s, 20_000), Err(Undelivered::Full));
        offer_plain(&mut s, 10, 2048);
        assert_eq!(deliver(&mut s, 20_000), Ok(()));
    }
}

/// Buffers of two descriptors never fill a ring of odd size.
#[test]
fn a_ring_is_taken_up_when_no_buffer_more_fits() {
    let mut s = setup_of(7, kinds()[2], Direction::Receive);
    offer(&mut s, 2, 100);
    assert_eq!(deliver(&mut s, 1500), Err(Undelivered::Full));
    offer(&mut s, 1, 100);
    assert_eq!(deliver(&mut s, 1500), Err(Undelivered::TooLong));
    assert_eq!(deliver(&mut s, 200), Ok(()));
}

#[test]
fn a_buffer_without_room_for_a_header_is_refused() {
    for features in &kinds()[1..] {
        let mut s = setup(*features, Direction::Receive);
        offer(&mut s, 1, 100);
        offer(&mut s, 1, 11);
        let deliver = |s: &mut Setup, len| s.running.deliver(header(0), len, [].into_iter());
        assert_eq!(deliver(&mut s, 88), Ok(()));
        assert_eq!(deliver(&mut s, 88), Err(Undelivered::Ring(RingError::Runt(11))));
    }
}

/// Offers buffers of 1000 bytes in 4 pieces each, by an indirect table or not.
fn offer_in_pieces(s: &mut Setup, count: u64, indirect: bool) {
    for _ in 0..count {
        let pieces = (0..4).map(|piece| (BASE + BUFFERS + 0x100 * piece, 250)).collect();
        let buffer = Buffer { pieces, writable: true, indirect };
        s.driver.offer(&s.guest, &buffer).expect("room in the ring");
    }
}

/// Offers buffers of sixteen pieces of one byte.
fn offer_in_bytes(s: &mut Setup, count: u16) {
    let pieces: Vec<_> = (0..16).map(|piece| (BASE + BUFFERS + 2 * piece, 1)).collect();
    for _ in 0..count {
        let buffer = Buffer { pieces: pieces.clone(), writable: true, indirect: true };
        s.driver.offer(&s.guest, &buffer).expect("room in the ring");
    }
}

/// A ring with as many buffers as the test guest has memory for.
fn setup_in_bytes(features: Features) -> Setup {
    let mut s = setup_of(256, features | Features::INDIRECT_DESC, Direction::Receive);
    offer_in_bytes(&mut s, 256);
    s
}

/// Each piece is looked up and copied separately, while other ports wait.
#[test]
fn a_frame_in_very_many_pieces_is_too_long() {
    for features in &kinds()[1..] {
        let mut s = setup_in_bytes(*features);
        assert_eq!(deliver(&mut s, 1024 - 12 + 1), Err(Undelivered::TooLong), "{features:?}");
        assert_eq!(deliver(&mut s, 1024 - 12), Ok(()), "{features:?}");
        s.running.publish();
        assert_eq!(s.driver.reap(&s.guest).len(), 64);
    }
}

/// The time for which others wait is bounded, whatever the number of frames.
#[test]
fn a_burst_has_room_for_so_many_pieces() {
    for features in &kinds()[1..] {
        let mut s = setup_in_bytes(*features);
        for _ in 0..3 {
            let burst = (0..).take_while(|_| deliver(&mut s, 60) == Ok(())).count();
            assert_eq!(burst, 26, "frames in five buffers each: {features:?}");
            assert_eq!(deliver(&mut s, 60), Err(Undelivered::Full));
            s.running.publish();
            assert_eq!(s.driver.reap(&s.guest).len(), 26 * 5);
            offer_in_bytes(&mut s, 26 * 5);
        }
    }
}

/// Each frame uses two of three buffers, so one is always left over at the next fetch.
#[test]
fn what_was_used_is_forgotten_though_a_buffer_is_always_left_over() {
    for features in &kinds()[1..] {
        for indirect in [false, true] {
            let features = *features | Features::INDIRECT_DESC;
            let mut s = setup_of(16, features, Direction::Receive);
            offer_in_pieces(&mut s, 3, indirect);
            for turn in 0..10_000u32 {
                let frame = [turn as u8; 1500];
                s.running.deliver(header(0), 1500, [Part::Ours(&frame)].into_iter()).unwrap();
                s.running.publish();
                let written: Vec<u32> =
                    s.driver.reap(&s.guest).into_iter().map(|(_, written)| written).collect();
                assert_eq!(written, [1000, 512], "turn {turn}");
                assert_eq!(s.guest.read::<100>(BUFFERS), [turn as u8; 100], "turn {turn}");
                offer_in_pieces(&mut s, 2, indirect);
                let (pieces, room) = s.running.chains().pieces_and_room();
                assert!(s.running.chains().len() <= 16 + 32, "turn {turn}");
                assert!(pieces <= 4 * (16 + 32) && room <= 4096, "turn {turn}: {room}");
            }
        }
    }
}

/// Memory for a single large fetch is not kept.
#[test]
fn absurd_room_is_given_back() {
    let mut chains = Chains::default();
    let s = setup(Features::VERSION_1, Direction::Receive);
    let piece = s.guest.memory.find(BASE + BUFFERS, 1).unwrap();
    chains.prepare(&s.guest.memory);
    for id in 0..32 {
        let mut begun = chains.begin();
        (0..1024).for_each(|_| assert!(chains.push(&mut begun, piece)));
        assert!(chains.end(&begun, id, 1));
    }
    chains.forget_first(30);
    let left = chains.get(0).unwrap();
    assert_eq!((chains.len(), left.id, chains.pieces(&left).count()), (2, 30, 1024));
    assert_eq!(chains.pieces_and_room(), (2048, 4096));
    chains.forget_first(3);
    assert_eq!((chains.len(), chains.pieces_and_room()), (0, (0, 4096)));
}

#[test]
fn from_guest_to_guest_it_is_one_copy() {
    let mut from = setup(kinds()[1], Direction::Transmit);
    let mut to = setup(kinds()[2], Direction::Receive);
    let frame: Vec<u8> = (0..=255).collect();
    from.guest.write(BUFFERS, &[&header(0)[..], &frame].concat());
    from.driver.offer(&from.guest, &Buffer::to_read(BASE + BUFFERS, 268)).unwrap();
    from.running.fetch(1).unwrap();
    offer(&mut to, 4, 300);
    let chain = from.running.peek(0).unwrap();
    let mut head = [0; 64];
    let (header, len) = from.running.read_frame(&chain, &mut head).unwrap();
    let parts = iter::once(Part::Ours(&head)).chain(from.running.frame_from(&chain, 64));
    to.running.deliver(header, len, parts).unwrap();
    to.running.publish();
    assert_eq!(received(&mut to, 300)[12..], frame);
}
