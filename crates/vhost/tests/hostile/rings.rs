//! Attacks with invalid rings and buffers.

use tapswitch_vhost::{Features, RingError, SessionEnd, Undelivered};

use crate::test_guest::{BASE, BUFFERS, Buffer, LEN};
use crate::vmm::{RECEIVE, TRANSMIT, Vmm, both_rings, modern};
use crate::{attack, reset};

/// Lets a guest offer one buffer, `spoil` modify it, and a worker process it.
fn offered(features: Features, buffer: &Buffer, spoil: impl Fn(&mut Vmm)) -> SessionEnd {
    let mut vmm = Vmm::start(features, TRANSMIT);
    vmm.driver.offer(&vmm.guest, buffer).unwrap();
    spoil(&mut vmm);
    assert!(vmm.work().is_empty());
    vmm.ended()
}

fn direct(address: u64, len: u32) -> Buffer {
    Buffer::to_read(address, len)
}

/// A table of two pieces, which the driver writes at 0x4000 for the first buffer.
fn table() -> Buffer {
    let pieces = vec![(BASE + BUFFERS, 12), (BASE + BUFFERS, 60)];
    Buffer { pieces, writable: false, indirect: true }
}

const TABLE: u64 = 0x4000;
const FLAGS: [u64; 2] = [12, 14];

/// Offset of the flags in a descriptor.
fn flags_at(features: Features) -> u64 {
    FLAGS[usize::from(features.contains(Features::RING_PACKED))]
}

// CVE-2018-1059, CVE-2020-10722.
#[test]
fn a_buffer_that_is_not_all_in_the_guests_memory() {
    for features in both_rings() {
        for (address, len) in [
            (BASE - 1, 72),
            (BASE + LEN - 71, 72),
            (BASE + LEN, 1),
            (BASE, u32::MAX),
            (u64::MAX - 70, 72),
            (u64::MAX, 1),
            (0, 72),
            // The VMM's address of the same memory.
            (2 * BASE + BUFFERS, 72),
        ] {
            let why = reset(|| offered(features, &direct(address, len), |_| ()));
            assert_eq!(why, "queue 1: a buffer is outside the shared memory");
        }
    }
}

// CVE-2018-1059: if only the start is checked, the end may be in whatever is mapped behind.
#[test]
fn a_buffer_from_one_region_into_what_is_no_region() {
    for features in both_rings() {
        let why = reset(|| {
            let mut vmm = Vmm::connect(features);
            // The guest's addresses from 0x60000 to 0x80000 are not shared, but the file continues.
            let at = |offset, len| [BASE + offset, len, 2 * BASE + offset, offset];
            vmm.share(&[at(0, 0x6_0000), at(0x8_0000, 0x1_0000)]);
            vmm.start_ring(TRANSMIT);
            vmm.driver.offer(&vmm.guest, &direct(BASE + 0x5_fff0, 72)).unwrap();
            assert!(vmm.work().is_empty());
            vmm.ended()
        });
        assert_eq!(why, "queue 1: a buffer is outside the shared memory");
    }
}

#[test]
fn a_buffer_over_the_border_of_two_regions_is_read_from_both() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::connect(features);
            // Regions that are adjacent for the guest, but not in the file.
            let swapped = [BASE + 0x6_0000, 0x1000, 2 * BASE + 0x6_0000, 0x8_0000];
            vmm.share(&[[BASE, 0x6_0000, 2 * BASE, 0], swapped]);
            vmm.start_ring(TRANSMIT);
            vmm.guest.write(0x5_fff0, &[3; 64]);
            vmm.guest.write(0x8_0000, &[4; 64]);
            vmm.driver.offer(&vmm.guest, &direct(BASE + 0x5_ffe4, 72)).unwrap();
            assert_eq!(vmm.work(), [[&[3; 16][..], &[4; 44]].concat()]);
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

// CVE-2020-14377: a length that is used before it is checked.
#[test]
fn a_table_that_is_not_all_in_the_guests_memory() {
    for features in both_rings() {
        for address in [BASE - 16, BASE + LEN - 16, u64::MAX - 15, 0] {
            let spoil = |vmm: &mut Vmm| vmm.guest.write(0, &address.to_le_bytes());
            let why = reset(|| offered(features, &table(), spoil));
            assert_eq!(why, "queue 1: a buffer is outside the shared memory");
        }
        for len in [0u32, 1, 15, 17, 16 * 1025, u32::MAX] {
            let spoil = |vmm: &mut Vmm| vmm.guest.write(8, &len.to_le_bytes());
            let why = reset(|| offered(features, &table(), spoil));
            assert!(why.contains("an indirect descriptor table is not allowed there"), "{why}");
        }
    }
}

#[test]
fn a_table_within_a_table() {
    let spoil = |vmm: &mut Vmm| vmm.guest.write_u16(TABLE + 12, 4);
    let why = reset(|| offered(modern(), &table(), spoil));
    assert!(why.contains("an indirect descriptor table is not allowed there"), "{why}");
}

#[test]
fn a_table_that_was_not_agreed_on() {
    for features in both_rings() {
        let why = reset(|| offered(features - Features::INDIRECT_DESC, &table(), |_| ()));
        assert!(why.contains("an indirect descriptor table is not allowed there"), "{why}");
    }
}

// CVE-2022-2132 and many earlier ones: a walk without an end.
#[test]
fn a_chain_in_a_circle() {
    let why = reset(|| {
        offered(modern(), &direct(BASE + BUFFERS, 72), |vmm| {
            vmm.guest.write_u16(12, 1);
            vmm.guest.write_u16(14, 0);
        })
    });
    assert_eq!(why, "queue 1: a descriptor chain does not end");
    // In a packed ring, a circle is a ring full of descriptors that all continue.
    let why = reset(|| {
        offered(modern() | Features::RING_PACKED, &direct(BASE + BUFFERS, 72), |vmm| {
            for slot in 0..8 {
                vmm.guest.write(16 * slot, &(BASE + BUFFERS).to_le_bytes());
                vmm.guest.write_u16(16 * slot + 14, 0x81);
            }
        })
    });
    assert_eq!(why, "queue 1: a descriptor chain does not end");
}

#[test]
fn a_circle_within_a_table() {
    let spoil = |vmm: &mut Vmm| {
        vmm.guest.write_u16(TABLE + 28, 1);
        vmm.guest.write_u16(TABLE + 30, 0);
    };
    let why = reset(|| offered(modern(), &table(), spoil));
    assert_eq!(why, "queue 1: a descriptor chain does not end");
}

// CVE-2020-10726, CVE-2020-14375: an index that was not checked.
#[test]
fn a_descriptor_behind_the_end_of_the_ring_or_of_a_table() {
    for head in [8, 0x7fff, 0xffff] {
        let spoil = |vmm: &mut Vmm| vmm.guest.write_u16(0x1004, head);
        let why = reset(|| offered(modern(), &direct(BASE + BUFFERS, 72), spoil));
        assert_eq!(why, format!("queue 1: descriptor {head} is beyond the end of the ring"));
    }
    for next in [8, 0x8000, 0xffff] {
        let spoil = |vmm: &mut Vmm| {
            vmm.guest.write_u16(12, 1);
            vmm.guest.write_u16(14, next);
        };
        let why = reset(|| offered(modern(), &direct(BASE + BUFFERS, 72), spoil));
        assert_eq!(why, format!("queue 1: descriptor {next} is beyond the end of the ring"));
        let spoil = |vmm: &mut Vmm| vmm.guest.write_u16(TABLE + 14, next);
        let why = reset(|| offered(modern(), &table(), spoil));
        assert_eq!(why, format!("queue 1: descriptor {next} is beyond the end of the ring"));
    }
}

#[test]
fn an_index_that_runs_ahead_or_back() {
    for index in [9, 0x100, 0x8000, 0xffff] {
        let why = reset(|| {
            let vmm = Vmm::start(modern(), TRANSMIT);
            vmm.guest.write_u16(0x1002, index);
            assert!(vmm.work().is_empty());
            vmm.ended()
        });
        assert!(why.contains("more buffers available than the ring holds"), "{why}");
    }
}

/// Chains that share descriptors: as many chains as a ring has descriptors, each as long as the
/// ring, would make the cost of a burst quadratic.
#[test]
fn buffers_that_share_their_descriptors() {
    let why = reset(|| {
        let vmm = Vmm::start(modern(), TRANSMIT);
        for slot in 0..8u16 {
            let at = 16 * u64::from(slot);
            vmm.guest.write(at, &(BASE + BUFFERS).to_le_bytes());
            vmm.guest.write(at + 8, &12u32.to_le_bytes());
            vmm.guest.write_u16(at + 12, u16::from(slot < 7));
            vmm.guest.write_u16(at + 14, slot + 1);
            vmm.guest.write_u16(0x1004 + 2 * u64::from(slot), 0);
        }
        vmm.guest.write_u16(0x1002, 8);
        assert_eq!(vmm.work().len(), 1, "the first one has them all");
        vmm.ended()
    });
    assert!(why.contains("more buffers available than the ring holds"), "{why}");
}

#[test]
fn a_buffer_to_write_in_the_queue_to_read_from() {
    for features in both_rings() {
        let writable = Buffer { writable: true, ..direct(BASE + BUFFERS, 72) };
        let why = reset(|| offered(features, &writable, |_| ()));
        assert_eq!(why, "queue 1: a buffer has the wrong direction for its queue");
        let why = reset(|| {
            let mut vmm = Vmm::start(features, RECEIVE);
            vmm.driver.offer(&vmm.guest, &direct(BASE + BUFFERS, 72)).unwrap();
            assert_eq!(vmm.deliver(&[1; 60]), Err(Undelivered::Ring(RingError::Direction)));
            assert_eq!(vmm.guest.read::<72>(BUFFERS), [0; 72], "nothing was written");
            vmm.ended()
        });
        assert_eq!(why, "queue 0: a buffer has the wrong direction for its queue");
    }
}

// CVE-2026-86566: a buffer that is shorter than the header.
#[test]
fn buffers_to_receive_into_that_have_no_room_for_a_header() {
    for features in both_rings() {
        for len in [0, 1, 11] {
            let why = reset(|| {
                let mut vmm = Vmm::start(features, RECEIVE);
                let runt = Buffer { writable: true, ..direct(BASE + BUFFERS, len) };
                while vmm.driver.offer(&vmm.guest, &runt).is_some() {}
                assert_eq!(vmm.deliver(&[1; 60]), Err(Undelivered::Ring(RingError::Runt(len))));
                assert_eq!(vmm.guest.read::<72>(BUFFERS), [0; 72], "nothing was written");
                vmm.ended()
            });
            let expected = format!("queue 0: a receive buffer has {len} bytes");
            assert!(why.starts_with(&expected), "{why}");
        }
    }
}

// CVE-2022-2132, CVE-2026-86566: the same when the guest sends. It costs only that frame.
#[test]
fn frames_that_end_before_their_header_does() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            for len in [0, 1, 11, 12] {
                vmm.driver.offer(&vmm.guest, &direct(BASE + BUFFERS, len)).unwrap();
            }
            assert_eq!(vmm.work(), [[0; 0]], "a header alone is a frame without bytes");
            assert_eq!(vmm.driver.reap(&vmm.guest).len(), 4);
            vmm.transmit(5);
            assert_eq!(vmm.work(), [[5; 60]]);
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

// CVE-2022-2132: a header in several descriptors, some of them empty.
#[test]
fn a_header_in_pieces() {
    for features in both_rings() {
        for indirect in [false, true] {
            let end = attack(|| {
                let mut vmm = Vmm::start(features, TRANSMIT);
                vmm.guest.write(BUFFERS, &[6; 72]);
                let at = |offset| BASE + BUFFERS + offset;
                // Addresses of empty pieces are not looked up.
                let pieces = vec![(at(0), 1), (0, 0), (at(1), 10), (u64::MAX, 0), (at(11), 61)];
                let buffer = Buffer { pieces, writable: false, indirect };
                vmm.driver.offer(&vmm.guest, &buffer).unwrap();
                assert_eq!(vmm.work(), [[6; 60]]);
                vmm.end()
            });
            assert_eq!(end, SessionEnd::Closed);
        }
    }
}

/// Empty descriptors cost only the walk along them and leave nothing behind.
#[test]
fn a_ring_full_of_descriptors_without_bytes() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            let empty = Buffer { pieces: vec![(0, 0); 8], writable: false, indirect: false };
            for _ in 0..100 {
                vmm.driver.offer(&vmm.guest, &empty).unwrap();
                assert!(vmm.work().is_empty());
                assert_eq!(vmm.driver.reap(&vmm.guest).len(), 1);
            }
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

/// The device reports the ring's position when it is stopped; the guest must not determine it.
#[test]
fn a_used_index_that_the_guest_writes() {
    let end = attack(|| {
        let mut vmm = Vmm::start(modern(), TRANSMIT);
        vmm.guest.write_u16(0x2002, 0x4321);
        vmm.transmit(7);
        assert_eq!(vmm.work(), [[7; 60]]);
        assert_eq!(vmm.guest.read_u16(0x2002), 1, "we count for ourselves");
        vmm.end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

/// Flags without a meaning in this place are ignored, as they may get one.
#[test]
fn flags_that_nobody_knows() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            vmm.transmit(8);
            let at = flags_at(features);
            let flags = vmm.guest.read_u16(at);
            vmm.guest.write_u16(at, flags | 0x7f78 & !0x80);
            assert_eq!(vmm.work(), [[8; 60]]);
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}
