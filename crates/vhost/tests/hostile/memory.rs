//! Attacks with memory that is not there, and memory that is removed.

use tapswitch_vhost::{
    Features, GuestMemory, RegionSpec, RingError, Running, SessionEnd, Undelivered,
};

use crate::test_guest::{BASE, BUFFERS, Buffer, LEN};
use crate::vmm::{RECEIVE, TRANSMIT, Vmm, both_rings, modern, pair, request};
use crate::{attack, refused, reset};

// CVE-2020-10722: sums of the VMM's values that wrap around.
#[test]
fn regions_whose_ends_wrap_around() {
    for region in [
        [u64::MAX, 2, 0, 0],
        [0, 2, u64::MAX, 0],
        [0, 2, 0, u64::MAX],
        [0, u64::MAX, 0x1000, 0x1000],
        [0, 0, 0, 0],
    ] {
        let why = refused(|| {
            let mut vmm = Vmm::connect(modern());
            vmm.share(&[region]);
            vmm.ended()
        });
        assert_eq!(why, "invalid message");
    }
}

#[test]
fn regions_that_are_longer_than_their_file() {
    for [len, offset] in [[LEN + 1, 0], [LEN, 1], [1, LEN], [0x1000, 1 << 62], [1 << 62, 0]] {
        let why = refused(|| {
            let mut vmm = Vmm::connect(modern());
            vmm.share(&[[BASE, len, 2 * BASE, offset]]);
            vmm.ended()
        });
        let expected =
            if len > 4 << 40 { "expected at most 4398046511104" } else { "its file has" };
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn regions_that_overlap() {
    let why = refused(|| {
        let mut vmm = Vmm::connect(modern());
        vmm.share(&[[BASE, 0x2000, 2 * BASE, 0], [BASE + 0x1000, 0x1000, 4 * BASE, 0]]);
        vmm.ended()
    });
    assert_eq!(why, "memory regions overlap at guest address 0x101000");
}

#[test]
fn more_regions_than_a_guest_may_have() {
    let why = refused(|| {
        let mut vmm = Vmm::connect(modern());
        let file = std::os::fd::AsRawFd::as_raw_fd(vmm.guest.file());
        for index in 0..65 {
            let words = [0, BASE + 0x1000 * index, 0x1000, 2 * BASE + 0x1000 * index, 0];
            let region: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            vmm.send(request::ADD_MEM_REG, &region, &[file]);
        }
        vmm.ended()
    });
    assert_eq!(why, "more than 64 memory regions");
}

/// A buffer in memory that the guest has but does not share.
#[test]
fn a_ring_without_memory_does_not_run() {
    for features in both_rings() {
        let why = refused(|| {
            let mut vmm = Vmm::connect(features);
            vmm.start_ring(TRANSMIT);
            assert!(vmm.queue(TRANSMIT).lock().is_none() && vmm.work().is_empty());
            vmm.ended()
        });
        assert!(why.contains("the guest's memory is not shared"), "{why}");
    }
}

#[test]
fn a_file_that_is_cut_short_under_the_guests_frames() {
    for features in both_rings() {
        let why = reset(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            vmm.transmit(9);
            assert_eq!(vmm.queue(TRANSMIT).lock().as_mut().unwrap().fetch(1), Ok(1));
            rustix::fs::ftruncate(vmm.guest.file(), BUFFERS).unwrap();
            let frames = vmm.work();
            assert_eq!(frames, [[0; 60]], "it was fetched already, and its bytes are gone");
            assert!(vmm.work().is_empty());
            vmm.ended()
        });
        assert_eq!(why, "queue 1: shared memory has been removed");
    }
}

#[test]
fn a_file_that_is_cut_short_under_its_rings() {
    for features in both_rings() {
        let why = reset(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            vmm.transmit(9);
            assert_eq!(vmm.work().len(), 1);
            rustix::fs::ftruncate(vmm.guest.file(), 0).unwrap();
            // The first check finds an empty ring in place of the old one.
            vmm.work();
            vmm.work();
            vmm.ended()
        });
        assert_eq!(why, "queue 1: shared memory has been removed");
    }
}

#[test]
fn a_file_that_is_cut_short_under_what_the_guest_receives() {
    for features in both_rings() {
        let why = reset(|| {
            let mut vmm = Vmm::start(features, RECEIVE);
            let room = Buffer { writable: true, ..Buffer::to_read(BASE + BUFFERS, 1000) };
            while vmm.driver.offer(&vmm.guest, &room).is_some() {}
            assert_eq!(vmm.deliver(&[1; 60]), Ok(()));
            rustix::fs::ftruncate(vmm.guest.file(), BUFFERS).unwrap();
            let lost = Err(Undelivered::Ring(RingError::Lost));
            assert!((0..9).any(|_| vmm.deliver(&[2; 60]) == lost));
            vmm.ended()
        });
        assert_eq!(why, "queue 0: shared memory has been removed");
    }
}

/// The number of mappings of a process is limited, and missing pages must not exhaust it.
#[test]
fn a_file_that_is_cut_short_under_more_pages_than_a_process_may_have_mappings() {
    const PAGE_LEN: u64 = 4096;
    /// Every other page is touched: twice the default of `vm.max_map_count`.
    const PAGE_COUNT: u64 = 4 * 65_530;
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let end = attack(|| {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("guest", flags).unwrap();
        let len = PAGE_COUNT * PAGE_LEN;
        rustix::fs::ftruncate(&file, len).unwrap();
        let (guest_address, user_address, offset) = (BASE, BASE, 0);
        let shared = file.try_clone().unwrap();
        let spec = RegionSpec { guest_address, user_address, len, offset, file: shared };
        let memory = GuestMemory::new(&[spec]).unwrap();
        let before = mappings();
        rustix::fs::ftruncate(&file, 0).unwrap();
        for page in (0..PAGE_COUNT).step_by(2) {
            let mut byte = [1];
            memory.find(BASE + page * PAGE_LEN, 1).unwrap().read(&mut byte);
            assert_eq!(byte, [0]);
        }
        assert!(memory.was_lost());
        // Other tests of this process create mappings at times.
        assert!(mappings() < before + 100, "{before} and {}", mappings());
        SessionEnd::Closed
    });
    assert_eq!(end, SessionEnd::Closed);
}

/// The ring is then outside of memory: it waits, and is refused when a message concerns it.
#[test]
fn memory_that_is_exchanged_for_less_under_a_ring() {
    for features in both_rings() {
        let why = refused(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            vmm.transmit(9);
            // The used ring, or the device's event suppression, is at 0x2000.
            vmm.share(&[[BASE, 0x2000, 2 * BASE, 0]]);
            vmm.settle();
            assert!(vmm.queue(TRANSMIT).lock().is_none() && vmm.work().is_empty());
            vmm.share(&[[BASE, LEN, 2 * BASE, 0]]);
            vmm.settle();
            assert_eq!(vmm.work(), [[9; 60]]);
            vmm.share(&[[BASE, 0x2000, 2 * BASE, 0]]);
            vmm.send(request::SET_VRING_ENABLE, &pair(TRANSMIT, 1), &[]);
            vmm.ended()
        });
        assert_eq!(why, "queue 1: the ring is outside the shared memory, or is not aligned");
    }
}

/// The message that adds or removes a region.
fn region(offset: u64, len: u64) -> Vec<u8> {
    let words = [0, BASE + offset, len, 2 * BASE + offset, offset];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

#[test]
fn a_region_that_is_taken_back_under_a_ring() {
    let why = refused(|| {
        let mut vmm = Vmm::connect(modern());
        let file = std::os::fd::AsRawFd::as_raw_fd(vmm.guest.file());
        vmm.share(&[[4 * BASE, 0x1000, 4 * BASE, 0]]);
        vmm.send(request::ADD_MEM_REG, &region(0, LEN), &[file]);
        vmm.start_ring(TRANSMIT);
        vmm.transmit(3);
        assert_eq!(vmm.work(), [[3; 60]]);
        vmm.send(request::REM_MEM_REG, &region(0, LEN), &[]);
        let kick = std::os::fd::AsRawFd::as_raw_fd(&vmm.kick);
        vmm.send(request::SET_VRING_KICK, &u64::from(TRANSMIT).to_le_bytes(), &[kick]);
        vmm.ended()
    });
    assert!(why.starts_with("queue 1: the ring is outside"), "{why}");
}

/// Sends a frame that is a byte of its own, at an address of its own.
fn transmit(vmm: &mut Vmm, byte: u8) {
    let at = BUFFERS + u64::from(byte) * 0x100;
    vmm.guest.write(at, &[byte; 72]);
    vmm.driver.offer(&vmm.guest, &Buffer::to_read(BASE + at, 72)).expect("room in the ring");
    rustix::io::write(&vmm.kick, &1u64.to_ne_bytes()).unwrap();
}

/// QEMU removes all regions that change, and then adds the new ones.
#[test]
fn a_region_that_is_exchanged_for_its_halves_under_a_ring() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::connect(features);
            let file = std::os::fd::AsRawFd::as_raw_fd(vmm.guest.file());
            vmm.send(request::ADD_MEM_REG, &region(BUFFERS, LEN - BUFFERS), &[file]);
            vmm.send(request::ADD_MEM_REG, &region(0, BUFFERS), &[file]);
            vmm.start_ring(TRANSMIT);
            (0..3).for_each(|byte| transmit(&mut vmm, byte));
            if let Some(ring) = vmm.queue(TRANSMIT).lock().as_mut() {
                assert_eq!(ring.fetch(8), Ok(3));
                // The first one is used but not published; the others are fetched.
                ring.complete(0);
            }
            vmm.send(request::REM_MEM_REG, &region(0, BUFFERS), &[]);
            vmm.settle();
            assert!(vmm.queue(TRANSMIT).lock().is_none() && vmm.work().is_empty());
            assert_eq!(vmm.driver.reap(&vmm.guest).len(), 1);
            transmit(&mut vmm, 3);
            // The ring extends over both halves, so one is not sufficient.
            vmm.send(request::ADD_MEM_REG, &region(0x2000, BUFFERS - 0x2000), &[file]);
            let call = std::os::fd::AsRawFd::as_raw_fd(&vmm.call);
            vmm.send(request::SET_VRING_CALL, &u64::from(TRANSMIT).to_le_bytes(), &[call]);
            vmm.settle();
            assert!(vmm.queue(TRANSMIT).lock().is_none() && vmm.work().is_empty());
            vmm.send(request::ADD_MEM_REG, &region(0, 0x2000), &[file]);
            vmm.settle();
            assert_eq!(vmm.work(), [[1; 60], [2; 60], [3; 60]]);
            assert_eq!(vmm.driver.reap(&vmm.guest).len(), 3);
            (4..20).for_each(|byte| {
                transmit(&mut vmm, byte);
                assert_eq!(vmm.work(), [[byte; 60]]);
                assert_eq!(vmm.driver.reap(&vmm.guest).len(), 1);
            });
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

/// Replaces all regions but the ring's by two, and calls `look` before the first of them, between
/// the two, and after both.
fn exchange(vmm: &mut Vmm, index: u32, mut look: impl FnMut(&mut Vmm, usize)) {
    let file = std::os::fd::AsRawFd::as_raw_fd(vmm.guest.file());
    let halves = [(BUFFERS, 0x1000), (BUFFERS + 0x1000, LEN - BUFFERS - 0x1000)];
    vmm.send(request::REM_MEM_REG, &region(BUFFERS, LEN - BUFFERS), &[]);
    vmm.settle();
    look(vmm, 0);
    for (count, (offset, len)) in halves.into_iter().enumerate() {
        vmm.send(request::ADD_MEM_REG, &region(offset, len), &[file]);
        vmm.settle();
        assert!(vmm.queue(index).is_running());
        look(vmm, 1 + count);
    }
}

/// A session whose ring is in one region, and its buffers in another.
fn in_two_regions(features: Features, index: u32) -> Vmm {
    let mut vmm = Vmm::connect(features);
    let file = std::os::fd::AsRawFd::as_raw_fd(vmm.guest.file());
    vmm.send(request::ADD_MEM_REG, &region(0, BUFFERS), &[file]);
    vmm.send(request::ADD_MEM_REG, &region(BUFFERS, LEN - BUFFERS), &[file]);
    vmm.start_ring(index);
    vmm
}

#[test]
fn a_region_that_is_exchanged_under_what_the_guest_sends() {
    for features in both_rings() {
        let why = reset(|| {
            let mut vmm = in_two_regions(features, TRANSMIT);
            // The second one of these is in the second half.
            [1, 20, 2].into_iter().for_each(|byte| transmit(&mut vmm, byte));
            exchange(&mut vmm, TRANSMIT, |vmm, count| {
                let expected = [&[][..], &[[1; 60]], &[[20; 60], [2; 60]]][count];
                assert_eq!(vmm.work(), expected);
                assert_eq!(vmm.driver.reap(&vmm.guest).len(), expected.len());
                let may_sleep = vmm.queue(TRANSMIT).lock().as_mut().map(Running::arm);
                assert_eq!(may_sleep, Some(true), "nothing is to be done meanwhile");
            });
            // All memory is back: other addresses are invalid.
            vmm.driver.offer(&vmm.guest, &Buffer::to_read(BASE + LEN, 72)).unwrap();
            assert!(vmm.work().is_empty());
            vmm.ended()
        });
        assert_eq!(why, "queue 1: a buffer is outside the shared memory");
    }
}

#[test]
fn a_region_that_is_exchanged_under_what_the_guest_receives() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = in_two_regions(features, RECEIVE);
            let room = Buffer { writable: true, ..Buffer::to_read(BASE + BUFFERS, 100) };
            while vmm.driver.offer(&vmm.guest, &room).is_some() {}
            exchange(&mut vmm, RECEIVE, |vmm, count| {
                let expected = if count == 0 { Err(Undelivered::Full) } else { Ok(()) };
                assert_eq!(vmm.deliver(&[count as u8; 60]), expected);
            });
            assert_eq!(vmm.guest.read::<60>(BUFFERS + 12), [2; 60]);
            assert_eq!(vmm.driver.reap(&vmm.guest).len(), 2);
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

/// The position of a waiting ring is known.
#[test]
fn a_ring_that_waits_for_its_memory_is_stopped() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            transmit(&mut vmm, 0);
            assert_eq!(vmm.work(), [[0; 60]]);
            vmm.driver.reap(&vmm.guest);
            vmm.share(&[[BASE, 0x2000, 2 * BASE, 0]]);
            let base = vmm.ask(request::GET_VRING_BASE, &pair(TRANSMIT, 0));
            let at = if features == modern() { 1 } else { 0x8001_8001 };
            assert_eq!(base, pair(TRANSMIT, at));
            vmm.share(&[[BASE, LEN, 2 * BASE, 0]]);
            vmm.settle();
            assert!(vmm.queue(TRANSMIT).lock().is_none(), "it does not start by itself");
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}
