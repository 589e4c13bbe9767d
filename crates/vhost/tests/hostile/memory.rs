//! Memory that is not there, and memory that goes.

use tapswitch_vhost::{RingError, Undelivered};

use crate::test_guest::{BASE, BUFFERS, Buffer, LEN};
use crate::vmm::{RECEIVE, TRANSMIT, Vmm, both_rings, modern, request};
use crate::{refused, reset};

// CVE-2020-10722: sums of what the VMM says that wrap around.
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
            if len > 4 << 40 { "expected 4398046511104 at most" } else { "its file has" };
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

/// A buffer in memory that the guest has and does not share.
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
        assert_eq!(why, "queue 1: memory that was shared has been taken away");
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
            // The first look finds an empty ring in place of what was there.
            vmm.work();
            vmm.work();
            vmm.ended()
        });
        assert_eq!(why, "queue 1: memory that was shared has been taken away");
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
        assert_eq!(why, "queue 0: memory that was shared has been taken away");
    }
}

#[test]
fn memory_that_is_exchanged_for_less_under_a_ring() {
    for features in both_rings() {
        let why = refused(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            vmm.transmit(9);
            // The used ring, or the device's event suppression, is at 0x2000.
            vmm.share(&[[BASE, 0x2000, 2 * BASE, 0]]);
            vmm.ended()
        });
        assert_eq!(
            why,
            "queue 1: the ring lies outside of the memory that is shared, or is not aligned"
        );
    }
}

#[test]
fn a_region_that_is_taken_back_under_a_ring() {
    let why = refused(|| {
        let mut vmm = Vmm::connect(modern());
        let file = std::os::fd::AsRawFd::as_raw_fd(vmm.guest.file());
        let region: Vec<u8> =
            [0, BASE, LEN, 2 * BASE, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        vmm.share(&[[4 * BASE, 0x1000, 4 * BASE, 0]]);
        vmm.send(request::ADD_MEM_REG, &region, &[file]);
        vmm.start_ring(TRANSMIT);
        vmm.transmit(3);
        assert_eq!(vmm.work(), [[3; 60]]);
        vmm.send(request::REM_MEM_REG, &region, &[]);
        vmm.ended()
    });
    assert!(why.starts_with("queue 1: the ring lies outside"), "{why}");
}
