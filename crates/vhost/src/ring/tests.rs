//! Tests of rings with a simple driver, honest and hostile.

use std::collections::VecDeque;

use proptest::prelude::*;
use tapswitch_helpers::cases;

use super::*;
use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest};

fn all_features() -> impl Iterator<Item = RingFeatures> {
    (0..8u8).map(|bits| RingFeatures {
        packed: bits & 1 != 0,
        event_index: bits & 2 != 0,
        indirect: bits & 4 != 0,
    })
}

struct Setup {
    guest: Guest,
    driver: Driver,
    ring: Ring,
    chains: Chains,
}

fn setup(size: u16, features: RingFeatures, direction: Direction) -> Setup {
    let (guest, driver) = (Guest::new(), Driver::new(size, features));
    let ring =
        Ring::new(&guest.memory, &driver.place(), features, direction, driver.base()).unwrap();
    Setup { guest, driver, ring, chains: Chains::default() }
}

/// The bytes that the driver writes into the buffer at `address`.
fn pattern(address: u64, len: u32) -> Vec<u8> {
    (0..u64::from(len)).map(|at| ((address + at) * 31 + 7) as u8).collect()
}

#[test]
fn a_guests_bytes_arrive_and_the_buffer_goes_back() {
    for features in all_features() {
        let mut s = setup(8, features, Direction::Transmit);
        for turn in 0..40u64 {
            let at = BUFFERS + turn * 100;
            s.guest.write(at, &pattern(BASE + at, 60));
            let pieces = vec![(BASE + at, 10), (BASE + at + 10, 50)];
            let buffer = Buffer { pieces, writable: false, indirect: features.indirect };
            let id = s.driver.offer(&s.guest, &buffer).unwrap();
            s.chains.clear();
            assert_eq!(s.ring.fetch(4, &mut s.chains), Ok(1), "{features:?} turn {turn}");
            let chain = s.chains.get(0).unwrap();
            let mut out = [0; 60];
            assert_eq!((chain.len(), s.chains.read(&chain, 0, &mut out)), (60, 60));
            assert_eq!(out.to_vec(), pattern(BASE + at, 60));
            assert_eq!(s.chains.read(&chain, 7, &mut out), 53);
            assert_eq!(out[..53], pattern(BASE + at, 60)[7..]);
            s.ring.complete(&chain, 0);
            assert!(s.driver.reap(&s.guest).is_empty(), "nobody was told yet");
            s.ring.publish();
            assert_eq!(s.driver.reap(&s.guest), [(id, 0)]);
        }
    }
}

/// Others wait while a guest's chains are fetched.
#[test]
fn chains_of_very_many_pieces_are_fetched_a_few_at_a_time() {
    for features in all_features().filter(|features| features.indirect) {
        let mut s = setup(64, features, Direction::Transmit);
        let pieces: Vec<_> = (0..16).map(|at| (BASE + BUFFERS + at, 1)).collect();
        let buffer = Buffer { pieces, writable: false, indirect: true };
        while s.driver.offer(&s.guest, &buffer).is_some() {}
        for _ in 0..2 {
            s.chains.clear();
            assert_eq!(s.ring.fetch(64, &mut s.chains), Ok(32), "{features:?}");
            assert_eq!(s.chains.piece_count(), 512);
        }
        assert_eq!(s.ring.fetch(64, &mut s.chains), Ok(0));
    }
}

/// Memory in which the part behind [`BUFFERS`] consists of 60 regions of one page.
fn scattered(guest: &Guest) -> Arc<GuestMemory> {
    let pages = (0..60).map(|page| Guest::region(guest.file(), BUFFERS + 0x1000 * page, 0x1000));
    let regions: Vec<_> =
        std::iter::once(Guest::region(guest.file(), 0, BUFFERS)).chain(pages).collect();
    GuestMemory::new(&regions).unwrap()
}

/// Each descriptor of a table may extend through all regions of the guest's memory.
#[test]
fn a_chain_in_very_many_pieces_is_no_chain() {
    for features in all_features().filter(|features| features.indirect) {
        let (guest, mut driver) = (Guest::new(), Driver::new(8, features));
        let memory = scattered(&guest);
        let mut ring =
            Ring::new(&memory, &driver.place(), features, Direction::Receive, driver.base())
                .unwrap();
        let mut chains = Chains::default();
        let mut fetch = |pieces| {
            let buffer = Buffer { pieces, writable: true, indirect: true };
            driver.offer(&guest, &buffer).unwrap();
            ring.fetch(1, &mut chains).map(|_| chains.piece_count())
        };
        let (whole, rest) = ((BASE + BUFFERS, 60 * 0x1000), (BASE + BUFFERS, 4 * 0x1000));
        let most = [vec![whole; 17], vec![rest]].concat();
        assert_eq!(fetch(most.clone()), Ok(1024), "{features:?}");
        assert_eq!(fetch(most.clone()), Ok(2048), "each chain counts for itself");
        let more = [most, vec![(BASE + BUFFERS, 1)]].concat();
        assert_eq!(fetch(more), Err(RingError::Pieces), "{features:?}");
    }
}

#[test]
fn chains_that_were_not_needed_come_again() {
    for features in all_features() {
        let mut s = setup(8, features, Direction::Receive);
        let mut offer = |at: u64| {
            let pieces = vec![(BASE + BUFFERS + at, 100), (BASE + BUFFERS + at + 200, 100)];
            let buffer = Buffer { pieces, writable: true, indirect: features.indirect };
            s.driver.offer(&s.guest, &buffer).unwrap()
        };
        let ids = [offer(0), offer(1000), offer(2000)];
        assert_eq!(s.ring.fetch(8, &mut s.chains), Ok(3));
        for index in [2, 1] {
            let chain = s.chains.get(index).unwrap();
            s.ring.undo(&chain);
        }
        let first = s.chains.get(0).unwrap();
        let written: usize = s.chains.pieces(&first).map(|piece| piece.write(&[7; 150])).sum();
        assert_eq!(written, 200);
        s.ring.complete(&first, 150);
        s.ring.publish();
        assert_eq!(s.driver.reap(&s.guest), [(ids[0], 150)]);
        assert_eq!(s.guest.read::<100>(BUFFERS), [7; 100]);
        s.chains.clear();
        assert_eq!(s.ring.fetch(8, &mut s.chains), Ok(2), "{features:?}");
        for index in 0..2 {
            let chain = s.chains.get(index).unwrap();
            s.ring.complete(&chain, 1);
        }
        s.ring.publish();
        assert_eq!(s.driver.reap(&s.guest), [(ids[1], 1), (ids[2], 1)]);
    }
}

#[test]
fn a_ring_goes_on_where_it_stopped() {
    for features in all_features() {
        let mut s = setup(8, features, Direction::Transmit);
        for turn in 0..21u64 {
            s.driver.offer(&s.guest, &Buffer::to_read(BASE + BUFFERS + turn, 1)).unwrap();
            s.chains.clear();
            s.ring.fetch(8, &mut s.chains).unwrap();
            let chain = s.chains.get(0).unwrap();
            s.ring.complete(&chain, 0);
            s.ring.publish();
            assert_eq!(s.driver.reap(&s.guest).len(), 1, "{features:?} turn {turn}");
            let base = s.ring.base();
            let (memory, place) = (&s.guest.memory, s.driver.place());
            s.ring = Ring::new(memory, &place, features, Direction::Transmit, base).unwrap();
        }
    }
}

#[test]
fn a_packed_ring_starts_where_half_a_base_says() {
    let features = RingFeatures { packed: true, ..RingFeatures::default() };
    let mut s = setup(8, features, Direction::Transmit);
    let (memory, place) = (&s.guest.memory, s.driver.place());
    s.ring = Ring::new(memory, &place, features, Direction::Transmit, 0x8000).unwrap();
    let id = s.driver.offer(&s.guest, &Buffer::to_read(BASE + BUFFERS, 1)).unwrap();
    assert_eq!(s.ring.fetch(8, &mut s.chains), Ok(1));
    let chain = s.chains.get(0).unwrap();
    s.ring.complete(&chain, 0);
    s.ring.publish();
    assert_eq!(s.driver.reap(&s.guest), [(id, 0)]);
    assert_eq!(s.ring.base(), 0x8001_8001);
}

#[test]
fn whoever_sleeps_is_woken_and_whoever_polls_is_not() {
    for features in all_features() {
        let mut s = setup(8, features, Direction::Transmit);
        s.ring.disarm();
        assert!(s.ring.arm(), "nothing is there: sleep");
        s.driver.offer(&s.guest, &Buffer::to_read(BASE + BUFFERS, 1)).unwrap();
        assert!(!s.ring.arm(), "{features:?}: there is something: do not sleep");
        s.ring.fetch(8, &mut s.chains).unwrap();
        assert!(s.ring.arm(), "{features:?}");
        let chain = s.chains.get(0).unwrap();
        s.ring.complete(&chain, 0);
        assert!(s.ring.publish(), "{features:?}: a driver that said nothing wants to know");
        assert!(!s.ring.publish(), "nothing new");
    }
}

#[test]
fn a_driver_that_polls_is_left_alone() {
    // The driver's event index has the same offset in both kinds: 0x1000, the driver's part of the
    // ring.
    for features in all_features() {
        let mut s = setup(8, features, Direction::Transmit);
        match (features.packed, features.event_index) {
            (true, _) => s.guest.write_u16(0x1002, 1),      // disable
            (false, false) => s.guest.write_u16(0x1000, 1), // no interrupt
            (false, true) => s.guest.write_u16(0x1014, 0x8000), // far away
        }
        s.driver.offer(&s.guest, &Buffer::to_read(BASE + BUFFERS, 1)).unwrap();
        s.ring.fetch(8, &mut s.chains).unwrap();
        let chain = s.chains.get(0).unwrap();
        s.ring.complete(&chain, 0);
        assert!(!s.ring.publish(), "{features:?}");
    }
}

#[test]
fn a_wish_is_met_when_it_is_passed() {
    for packed in [false, true] {
        let features = RingFeatures { packed, event_index: true, indirect: false };
        // The driver wants a notification for the third of every four buffers, over several turns.
        let mut s = setup(4, features, Direction::Transmit);
        for turn in 0..6u16 {
            let wrap = if turn % 2 == 0 { 0x8000 } else { 0 };
            if packed {
                s.guest.write_u16(0x1000, 2 | wrap);
                s.guest.write_u16(0x1002, 2);
            } else {
                s.guest.write_u16(0x100c, turn * 4 + 2);
            }
            let mut told = Vec::new();
            for _ in 0..4 {
                s.driver.offer(&s.guest, &Buffer::to_read(BASE + BUFFERS, 1)).unwrap();
                s.chains.clear();
                s.ring.fetch(1, &mut s.chains).unwrap();
                let chain = s.chains.get(0).unwrap();
                s.ring.complete(&chain, 0);
                told.push(s.ring.publish());
                s.driver.reap(&s.guest);
            }
            assert_eq!(told, [false, false, true, false], "packed {packed} turn {turn}");
        }
    }
}

fn refused(features: RingFeatures, spoil: impl Fn(&mut Setup)) -> RingError {
    let mut s = setup(8, features, Direction::Transmit);
    spoil(&mut s);
    let outcome = s.ring.fetch(16, &mut s.chains);
    assert!(s.chains.is_empty(), "{features:?}");
    outcome.unwrap_err()
}

fn both() -> [RingFeatures; 2] {
    [false, true].map(|packed| RingFeatures { packed, indirect: true, event_index: true })
}

#[test]
fn what_cannot_be_true_is_refused() {
    for features in both() {
        let offer = |address: u64, len: u32, writable: bool| {
            move |s: &mut Setup| {
                let buffer = Buffer { pieces: vec![(address, len)], writable, indirect: false };
                s.driver.offer(&s.guest, &buffer).unwrap();
            }
        };
        let end = BASE + (1 << 20);
        assert_eq!(refused(features, offer(BASE - 1, 10, false)), RingError::Address);
        assert_eq!(refused(features, offer(end - 9, 10, false)), RingError::Address);
        assert_eq!(refused(features, offer(u64::MAX - 4, 10, false)), RingError::Address);
        assert_eq!(refused(features, offer(BASE, u32::MAX, false)), RingError::Address);
        assert_eq!(refused(features, offer(BASE, 10, true)), RingError::Direction);
    }
}

#[test]
fn chains_without_end_are_refused() {
    for features in both() {
        let error = refused(features, |s| {
            s.driver.offer(&s.guest, &Buffer::to_read(BASE, 1)).unwrap();
            for index in 0..8u64 {
                let (flags, next) = if features.packed { (0, 0x81) } else { (1, 0) };
                s.guest.write(16 * index, &BASE.to_le_bytes());
                s.guest.write(16 * index + 8, &1u32.to_le_bytes());
                s.guest.write_u16(16 * index + 12, flags);
                s.guest.write_u16(16 * index + 14, next);
            }
        });
        assert_eq!(error, RingError::Endless);
    }
}

#[test]
fn tables_that_are_none_are_refused() {
    let table = |features: RingFeatures, len: u32, more: u16| {
        refused(features, move |s| {
            s.driver.offer(&s.guest, &Buffer::to_read(BASE + 0x4000, len)).unwrap();
            let at = if features.packed { 14 } else { 12 };
            let flags = s.guest.read_u16(at);
            s.guest.write_u16(at, flags | 4 | more);
        })
    };
    for features in both() {
        assert_eq!(table(features, 0, 0), RingError::Table);
        assert_eq!(table(features, 15, 0), RingError::Table);
        assert_eq!(table(features, 16 * 1025, 0), RingError::Table);
        assert_eq!(table(features, 16, 1), RingError::Table, "a table ends its chain");
        let without = RingFeatures { indirect: false, ..features };
        assert_eq!(table(without, 16, 0), RingError::Table);
    }
}

#[test]
fn an_index_that_runs_ahead_is_refused() {
    let split = RingFeatures::default();
    let error = refused(split, |s| s.guest.write_u16(0x1002, 9));
    assert_eq!(error, RingError::Index);
    let error = refused(split, |s| {
        s.guest.write_u16(0x1002, 1);
        s.guest.write_u16(0x1004, 8);
    });
    assert_eq!(error, RingError::Descriptor(8));
    // Eight were fetched and none given back; the driver claims that there are more.
    for features in both() {
        let mut s = setup(8, features, Direction::Transmit);
        for _ in 0..8 {
            s.driver.offer(&s.guest, &Buffer::to_read(BASE, 1)).unwrap();
        }
        assert_eq!(s.ring.fetch(8, &mut s.chains), Ok(8));
        if features.packed {
            s.guest.write_u16(14, 1 << 15);
        } else {
            s.guest.write_u16(0x1002, 9);
        }
        assert_eq!(s.ring.fetch(8, &mut s.chains), Err(RingError::Index));
        assert_eq!(s.chains.len(), 8);
    }
}

#[test]
fn rings_that_lie_nowhere_are_refused() {
    for features in both() {
        let (guest, driver) = (Guest::new(), Driver::new(8, features));
        let good = driver.place();
        let make = |place: RingPlace| {
            Ring::new(&guest.memory, &place, features, Direction::Transmit, driver.base())
                .map(|_| ())
        };
        assert_eq!(make(good), Ok(()));
        let size = |size| RingPlace { size, ..good };
        assert_eq!(make(size(0)), Err(RingError::Size(0)));
        assert_eq!(make(size(32_769)), Err(RingError::Size(32_769)));
        assert_eq!(make(size(32_768)), Ok(()), "half a megabyte of descriptors fits");
        if !features.packed {
            assert_eq!(make(size(12)), Err(RingError::Size(12)));
        }
        let end = 2 * BASE + (1 << 20);
        for place in [
            RingPlace { descriptors: 0, ..good },
            RingPlace { descriptors: end - 64, ..good },
            RingPlace { descriptors: good.descriptors + 1, ..good },
            RingPlace { driver: end - 2, ..good },
            RingPlace { driver: good.driver + 1, ..good },
            RingPlace { device: u64::MAX, ..good },
            RingPlace { device: good.device + 2, ..good },
        ] {
            assert_eq!(make(place), Err(RingError::Place), "{place:?}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer {
        pieces: usize,
        indirect: bool,
    },
    Fetch(usize),
    /// Give back the buffer at this index among those fetched.
    Complete(usize),
    Undo,
    Publish,
    Reap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..4usize, any::<bool>())
            .prop_map(|(pieces, indirect)| Step::Offer { pieces, indirect }),
        3 => (1..5usize).prop_map(Step::Fetch),
        4 => (0..8usize).prop_map(Step::Complete),
        1 => Just(Step::Undo),
        2 => Just(Step::Publish),
        2 => Just(Step::Reap),
    ];
    proptest::collection::vec(step, 1..300)
}

/// A fetched buffer.
struct Held {
    id: u16,
    pieces: Vec<(u64, u32)>,
    chain: Chain,
    /// Number of buffers fetched before.
    number: usize,
}

/// The expected state of the buffers.
#[derive(Default)]
struct Model {
    /// Offered but not fetched: identifier, pieces.
    waiting: VecDeque<(u16, Vec<(u64, u32)>)>,
    held: Vec<Held>,
    /// Buffers fetched so far, without undone ones.
    fetched: usize,
    staged: VecDeque<(u16, u32)>,
    published: VecDeque<(u16, u32)>,
}

impl Model {
    fn step(&mut self, s: &mut Setup, step: &Step, serial: u32) {
        match *step {
            Step::Offer { pieces, indirect } => {
                let piece = |at| (BASE + BUFFERS + 64 * at as u64, 1 + (serial + at as u32) % 60);
                let pieces: Vec<_> = (0..pieces).map(piece).collect();
                let buffer = Buffer { pieces: pieces.clone(), writable: false, indirect };
                if let Some(id) = s.driver.offer(&s.guest, &buffer) {
                    self.waiting.push_back((id, pieces));
                }
            }
            Step::Fetch(limit) => {
                s.chains.clear();
                let count = s.ring.fetch(limit, &mut s.chains).unwrap();
                assert_eq!(count, limit.min(self.waiting.len()));
                for index in 0..count {
                    let (id, pieces) = self.waiting.pop_front().unwrap();
                    let chain = s.chains.get(index).unwrap();
                    let lens: Vec<_> = s.chains.pieces(&chain).map(|p| p.len() as u32).collect();
                    let expected: Vec<_> = pieces.iter().map(|&(_, len)| len).collect();
                    assert_eq!((chain.id, lens), (id, expected));
                    self.held.push(Held { id, pieces, chain, number: self.fetched });
                    self.fetched += 1;
                }
            }
            Step::Complete(index) if !self.held.is_empty() => {
                let Held { id, chain, .. } = self.held.remove(index % self.held.len());
                s.ring.complete(&chain, serial);
                self.staged.push_back((id, serial));
            }
            // Only the last one can be undone.
            Step::Undo => {
                let fetched = self.fetched;
                let last = self.held.pop_if(|held| held.number + 1 == fetched);
                if let Some(Held { id, pieces, chain, .. }) = last {
                    s.ring.undo(&chain);
                    self.waiting.push_front((id, pieces));
                    self.fetched -= 1;
                }
            }
            Step::Publish => {
                s.ring.publish();
                self.published.append(&mut self.staged);
            }
            Step::Reap => {
                assert_eq!(s.driver.reap(&s.guest), Vec::from(std::mem::take(&mut self.published)));
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn every_buffer_comes_once_and_goes_back_once(
        steps in steps(),
        size in prop_oneof![Just(4u16), Just(8), Just(16)],
        packed: bool,
        event_index: bool,
    ) {
        let features = RingFeatures { packed, event_index, indirect: true };
        let mut s = setup(size, features, Direction::Transmit);
        let mut model = Model::default();
        for (step, serial) in steps.iter().zip(0..) {
            model.step(&mut s, step, serial);
        }
    }

    #[test]
    fn whatever_the_memory_holds_nothing_breaks(
        bytes in proptest::collection::vec(any::<u8>(), 0x3000),
        packed: bool,
        indirect: bool,
        base: u32,
    ) {
        let features = RingFeatures { packed, event_index: true, indirect };
        let guest = Guest::new();
        guest.write(0, &bytes);
        let place = Driver::new(16, features).place();
        let Ok(mut ring) = Ring::new(&guest.memory, &place, features, Direction::Transmit, base)
        else { return Ok(()) };
        let mut chains = Chains::default();
        for _ in 0..4 {
            chains.clear();
            let fetched = ring.fetch(64, &mut chains);
            for index in 0..chains.len() {
                let chain = chains.get(index).unwrap();
                let mut out = [0; 100];
                chains.read(&chain, 0, &mut out);
                ring.complete(&chain, 0);
            }
            ring.publish();
            if fetched.is_err() { break }
        }
    }
}
