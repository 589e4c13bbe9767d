//! Attacks with invalid messages, with too many of them, or with unexpected descriptors.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use tapswitch_vhost::{Features, SessionEnd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::test_guest::{BASE, BUFFERS, Buffer, LEN};
use crate::vmm::{RECEIVE, TRANSMIT, Vmm, both_rings, mem_table, modern, pair, request, send_part};
use crate::{attack, open_count, refused, reset};

/// Sends one message to a session whose ring runs. Returns why it was refused.
fn told(request: u32, payload: &[u8], fds: usize) -> String {
    refused(|| {
        let mut vmm = Vmm::start(modern(), TRANSMIT);
        let fds = vec![vmm.kick.as_raw_fd(); fds];
        vmm.send(request, payload, &fds);
        vmm.ended()
    })
}

// CVE-2019-14818, CVE-2022-0669: each message leaked its descriptors.
#[test]
fn the_same_messages_again_and_again() {
    let end = attack(|| {
        let mut vmm = Vmm::start(modern(), TRANSMIT);
        let (kick, file) = (vmm.kick.as_raw_fd(), vmm.guest.file().as_raw_fd());
        let index = u64::from(TRANSMIT).to_le_bytes();
        let region: Vec<u8> =
            [0, 8 * BASE, 0x1000, 8 * BASE, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        vmm.settle();
        let before = open_count();
        for _ in 0..300 {
            vmm.share(&[[BASE, LEN, 2 * BASE, 0]]);
            vmm.send(request::SET_VRING_KICK, &index, &[kick]);
            vmm.send(request::SET_VRING_CALL, &index, &[kick]);
            vmm.send(request::SET_VRING_ERR, &index, &[kick]);
            vmm.send(request::ADD_MEM_REG, &region, &[file]);
            vmm.send(request::REM_MEM_REG, &region, &[file]);
            vmm.send(request::SET_VRING_ENABLE, &pair(TRANSMIT, 1), &[]);
        }
        vmm.settle();
        assert_eq!(open_count(), before, "as many as after the first time");
        vmm.transmit(1);
        assert_eq!(vmm.work(), [[1; 60]]);
        vmm.end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

/// Rings of a queue pair that are started and stopped repeatedly.
#[test]
fn a_ring_that_is_started_and_stopped_again_and_again() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            let before = open_count();
            for turn in 0..100 {
                vmm.transmit(turn);
                assert_eq!(vmm.work(), [[turn; 60]]);
                let base = vmm.ask(request::GET_VRING_BASE, &pair(TRANSMIT, 0));
                vmm.send(request::SET_VRING_BASE, &base, &[]);
                let index = u64::from(TRANSMIT).to_le_bytes();
                let (call, kick) = (vmm.call.as_raw_fd(), vmm.kick.as_raw_fd());
                vmm.send(request::SET_VRING_CALL, &index, &[call]);
                vmm.send(request::SET_VRING_KICK, &index, &[kick]);
                vmm.settle();
                assert_eq!(vmm.driver.reap(&vmm.guest).len(), 1);
            }
            assert_eq!(open_count(), before);
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

// CVE-2019-14818: unexpected descriptors, too many of them, and too few.
#[test]
fn descriptors_that_nobody_asked_for() {
    let index = u64::from(TRANSMIT).to_le_bytes();
    assert_eq!(told(request::GET_FEATURES, &[], 1), "invalid message");
    assert_eq!(told(request::SET_VRING_NUM, &pair(TRANSMIT, 8), 3), "invalid message");
    for request in [request::SET_VRING_KICK, request::SET_VRING_CALL, request::SET_VRING_ERR] {
        assert_eq!(told(request, &index, 0), "invalid message");
        assert_eq!(told(request, &index, 2), "invalid message");
        let without = (u64::from(TRANSMIT) | 0x100).to_le_bytes();
        assert_eq!(told(request, &without, 1), "invalid message");
    }
    let region = [[BASE, LEN, 2 * BASE, 0]; 2];
    for fds in [0, 1, 3, 32] {
        assert_eq!(told(request::SET_MEM_TABLE, &mem_table(&region), fds), "invalid message");
    }
    assert_eq!(told(request::ADD_MEM_REG, &[0; 40], 0), "invalid parameters");
    assert_eq!(told(request::ADD_MEM_REG, &[0; 40], 2), "invalid parameters");
}

#[test]
fn more_descriptors_than_any_message_has() {
    for fds in [33, 64, 253] {
        let end = attack(|| {
            let mut vmm = Vmm::start(modern(), TRANSMIT);
            let fds: Vec<RawFd> = vec![vmm.kick.as_raw_fd(); fds];
            vmm.send(request::SET_MEM_TABLE, &mem_table(&[[BASE, LEN, 2 * BASE, 0]]), &fds);
            vmm.end()
        });
        // The message's header was lost with them, so its payload is read as the next message.
        assert!(matches!(end, SessionEnd::Refused(_) | SessionEnd::Closed), "{end:?}");
    }
}

#[test]
fn descriptors_with_the_second_half_of_a_message() {
    let end = attack(|| {
        let vmm = Vmm::start(modern(), TRANSMIT);
        let header = [request::SET_VRING_KICK, 1, 8].map(u32::to_le_bytes).concat();
        let fds = [vmm.kick.as_raw_fd(); 5];
        vmm.stream.send_with_fds(&[&header[..4]], &fds).unwrap();
        vmm.stream.send_with_fds(&[&header[4..]], &fds).unwrap();
        let _ = vmm.stream.send_with_fds(&[&[0u8; 8][..]], &fds);
        vmm.end()
    });
    assert!(matches!(end, SessionEnd::Refused(_)), "{end:?}");
}

// CVE-2020-10723, CVE-2020-10726: a queue that the device does not have.
#[test]
fn messages_on_a_queue_that_there_is_not() {
    for index in [2u32, 0xff, 0x8000_0000, u32::MAX] {
        for request in [
            request::SET_VRING_NUM,
            request::SET_VRING_BASE,
            request::GET_VRING_BASE,
            request::SET_VRING_ENABLE,
        ] {
            let why = told(request, &pair(index, 1), 0);
            assert!(why.starts_with(&format!("queue {index}: the port has 2 queues,")), "{why}");
        }
        let addresses = [pair(index, 0), vec![0; 32]].concat();
        let why = told(request::SET_VRING_ADDR, &addresses, 0);
        assert!(why.starts_with(&format!("queue {index}: the port has 2 queues,")), "{why}");
    }
    for request in [request::SET_VRING_KICK, request::SET_VRING_CALL] {
        let why = told(request, &200u64.to_le_bytes(), 1);
        assert!(
            why.starts_with("queue 200: the port has 2 queues,") && why.contains("queues="),
            "{why}"
        );
    }
}

#[test]
fn rings_of_sizes_that_there_are_not() {
    for size in [0u32, 3, 0x8001, 0xffff] {
        let why = refused(|| {
            let mut vmm = Vmm::start(modern(), TRANSMIT);
            vmm.send(request::SET_VRING_NUM, &pair(TRANSMIT, size), &[]);
            // A running ring keeps the size it was started with; the next one has this.
            vmm.transmit(1);
            assert_eq!(vmm.work(), [[1; 60]]);
            vmm.send(request::SET_VRING_BASE, &pair(TRANSMIT, 1), &[]);
            vmm.ended()
        });
        assert!(why.starts_with(&format!("queue 1: a ring of {size} descriptors;")), "{why}");
    }
    for size in [0x1_0000u32, u32::MAX] {
        let why = told(request::SET_VRING_NUM, &pair(TRANSMIT, size), 0);
        assert_eq!(why, format!("queue 1: {size} descriptors; at most 32768 are allowed"));
    }
}

#[test]
fn rings_that_lie_nowhere_or_askew() {
    let (start, end) = (2 * BASE, 2 * BASE + LEN);
    let good = [start, start + 0x2000, start + 0x1000];
    for (part, address) in [
        (0, end - 16),
        (0, end),
        (0, 0),
        (0, !15),
        (1, end - 4),
        (1, !3),
        (2, end - 2),
        (2, !1),
        (2, start - 2),
    ] {
        let mut addresses = good;
        addresses[part] = address;
        let why = refused(|| {
            let mut vmm = Vmm::start(modern(), TRANSMIT);
            vmm.set_addresses(TRANSMIT, addresses);
            vmm.ended()
        });
        assert!(why.starts_with("queue 1: the ring is outside"), "{address:#x}: {why}");
    }
    for (part, address) in [(0, start + 8), (1, start + 0x2002), (2, start + 0x1001)] {
        let mut addresses = good;
        addresses[part] = address;
        let why = refused(|| {
            let mut vmm = Vmm::start(modern(), TRANSMIT);
            vmm.set_addresses(TRANSMIT, addresses);
            vmm.ended()
        });
        assert_eq!(why, "invalid message", "{address:#x}");
    }
}

/// Packed rings' event suppression must be aligned to four bytes, which front ends' libraries do
/// not check.
#[test]
fn a_packed_ring_that_lies_askew() {
    let start = 2 * BASE;
    let why = refused(|| {
        let mut vmm = Vmm::start(both_rings()[1], TRANSMIT);
        vmm.set_addresses(TRANSMIT, [start, start + 0x2000, start + 0x1002]);
        vmm.ended()
    });
    assert!(why.starts_with("queue 1: the ring is outside"), "{why}");
}

#[test]
fn a_packed_ring_that_goes_on_behind_its_end() {
    for base in [8u32, 0x7fff, 0xffff] {
        let why = refused(|| {
            let mut vmm = Vmm::start(both_rings()[1], TRANSMIT);
            vmm.send(request::SET_VRING_BASE, &pair(TRANSMIT, base), &[]);
            vmm.ended()
        });
        assert!(why.ends_with("which is beyond its end"), "{why}");
    }
}

// CVE-2020-10722, CVE-2020-10725: counts and lengths that are believed.
/// The ring is then not the subject of a message, but still does not wait.
#[test]
fn a_packed_ring_that_gets_shorter_than_where_it_stands() {
    let why = refused(|| {
        let mut vmm = Vmm::start(modern() | Features::RING_PACKED, TRANSMIT);
        for byte in 0..5 {
            vmm.transmit(byte);
            assert_eq!(vmm.work(), [[byte; 60]]);
            vmm.driver.reap(&vmm.guest);
        }
        vmm.send(request::SET_VRING_NUM, &pair(TRANSMIT, 4), &[]);
        vmm.share(&[[BASE, LEN, 2 * BASE, 0]]);
        vmm.ended()
    });
    assert_eq!(why, "queue 1: the ring should continue at descriptor 5, which is beyond its end");
}

/// Its end is not a violation: it may have died before it read an answer.
#[test]
fn a_vmm_that_ends_before_anything_is_agreed_on() {
    let end = attack(|| {
        let mut vmm = Vmm::silent();
        vmm.send(request::GET_FEATURES, &[], &[]);
        vmm.wait_for_answer();
        vmm.end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

#[test]
fn messages_that_are_longer_or_shorter_than_they_say() {
    let table = mem_table(&[[BASE, LEN, 2 * BASE, 0]]);
    let with_count = |count: u32| [&count.to_le_bytes(), &table[4..]].concat();
    for count in [0, 2, 33, 0x1000_0000, u32::MAX] {
        assert_eq!(told(request::SET_MEM_TABLE, &with_count(count), 1), "invalid message");
    }
    assert_eq!(told(request::SET_MEM_TABLE, &table[..7], 1), "invalid message");
    assert_eq!(told(request::SET_VRING_NUM, &[0; 7], 0), "invalid message");
    assert_eq!(told(request::SET_VRING_NUM, &[0; 9], 0), "invalid message");
    assert_eq!(told(request::SET_VRING_ADDR, &[0; 4096], 0), "invalid message");
    assert_eq!(told(request::SET_VRING_KICK, &[0; 4], 1), "invalid message");
    assert_eq!(told(request::GET_FEATURES, &[0; 8], 0), "invalid message");
    assert_eq!(told(0, &[], 0), "invalid message");
    assert_eq!(told(0xffff_ffff, &[], 0), "invalid message");
}

#[test]
fn a_message_of_four_gigabytes() {
    let why = refused(|| {
        let vmm = Vmm::start(modern(), TRANSMIT);
        let header = [request::SET_MEM_TABLE, 1, u32::MAX].map(u32::to_le_bytes).concat();
        vmm.stream.send_with_fds(&[&header[..]], &[]).unwrap();
        vmm.ended()
    });
    assert_eq!(why, "invalid message");
}

#[test]
fn half_a_message() {
    for len in 1..20 {
        let end = attack(|| {
            let mut vmm = Vmm::start(modern(), TRANSMIT);
            send_part(&mut vmm.stream, len);
            vmm.end()
        });
        let is_whole_header = len >= 12;
        assert_eq!(matches!(end, SessionEnd::Refused(_)), is_whole_header, "{len} bytes: {end:?}");
    }
}

// CVE-2020-10724, CVE-2020-10725, CVE-2021-3839: buffers in flight.
#[test]
fn requests_that_were_not_agreed_on() {
    let inflight = [0u64, 0, u64::MAX].map(u64::to_le_bytes).concat();
    for (request, fds) in [(request::GET_INFLIGHT_FD, 0), (request::SET_INFLIGHT_FD, 1)] {
        assert!(told(request, &inflight, fds).starts_with("inactive protocol operation"));
    }
}

// CVE-2019-14835: dirty bitmaps that are shorter than what is logged in them.
#[test]
fn maps_of_pages_that_cannot_be() {
    let told_of = |words: [u64; 2], file: &dyn Fn(&Vmm) -> RawFd| {
        refused(|| {
            let mut vmm = Vmm::start(modern(), TRANSMIT);
            let file = file(&vmm);
            vmm.send(request::SET_LOG_BASE, &words.map(u64::to_le_bytes).concat(), &[file]);
            vmm.ended()
        })
    };
    let memory = |vmm: &Vmm| vmm.guest.file().as_raw_fd();
    assert_eq!(told_of([u64::MAX, 1], &memory), "invalid message");
    assert_eq!(told_of([0, 1], &memory), "invalid message");
    let why = told_of([1 << 40, 0], &memory);
    assert!(why.contains("1099511627776 bytes; expected 1 to 1073741824"), "{why}");
    let why = told_of([LEN, 1], &memory);
    assert!(why.contains("its file has 1048576 bytes, the region ends at 1048577"), "{why}");
    let why = told_of([1, 0], &|vmm| vmm.kick.as_raw_fd());
    assert!(why.contains("neither a memfd nor on tmpfs"), "{why}");
}

#[test]
fn a_map_of_pages_that_is_short_and_gets_shorter() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::connect(features);
            vmm.share(&[[BASE, LEN, 2 * BASE, 0]]);
            vmm.send(
                request::SET_FEATURES,
                &(features | Features::LOG_ALL).bits().to_le_bytes(),
                &[],
            );
            vmm.start_ring(RECEIVE);
            assert!(vmm.queue(RECEIVE).lock().is_none(), "there is no map yet");
            // A part of the guest's pages: most are beyond its end.
            let map =
                rustix::fs::memfd_create("guest-map", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&map, 40).unwrap();
            let words = [40u64, 0].map(u64::to_le_bytes).concat();
            vmm.send(request::SET_LOG_BASE, &words, &[map.as_raw_fd()]);
            vmm.stream.read_exact(&mut [0; 28]).unwrap();
            let room = Buffer { writable: true, ..Buffer::to_read(BASE + BUFFERS, 1000) };
            while vmm.driver.offer(&vmm.guest, &room).is_some() {}
            assert_eq!(vmm.deliver(&[1; 60]), Ok(()));
            rustix::fs::ftruncate(&map, 0).unwrap();
            assert_eq!(vmm.deliver(&[2; 60]), Ok(()));
            assert_eq!(vmm.driver.reap(&vmm.guest).len(), 2);
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

#[test]
fn features_that_were_not_offered() {
    let why = told(request::SET_FEATURES, &(1u64 << 60).to_le_bytes(), 0);
    assert!(why.contains("some of them were not offered"), "{why}");
}

/// A file, whose file system may block any access; an epoll instance, which may contain such a
/// file; and others that are not eventfds.
const NO_EVENTFDS: [&str; 5] = ["a file", "a pipe", "epoll", "a timer", "/dev/null"];

/// One of them, created on demand, as open files are counted during an attack.
fn no_eventfd(kind: &str) -> OwnedFd {
    let cloexec = rustix::fs::MemfdFlags::CLOEXEC;
    match kind {
        "a file" => rustix::fs::memfd_create("file", cloexec).unwrap(),
        "a pipe" => std::io::pipe().unwrap().1.into(),
        "epoll" => epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
        "a timer" => timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap(),
        _ => std::fs::File::options().read(true).write(true).open(kind).unwrap().into(),
    }
}

#[test]
fn what_is_no_eventfd_neither_wakes_nor_is_written_to() {
    for (request, name) in [(request::SET_VRING_KICK, "kick"), (request::SET_VRING_CALL, "call")] {
        for kind in NO_EVENTFDS {
            let why = refused(|| {
                let mut vmm = Vmm::start(modern(), TRANSMIT);
                let file = no_eventfd(kind);
                vmm.send(request, &u64::from(TRANSMIT).to_le_bytes(), &[file.as_raw_fd()]);
                vmm.ended()
            });
            let expected = format!("queue 1: its {name} descriptor is not an eventfd, ");
            assert!(why.starts_with(&expected), "{kind}: {why}");
        }
    }
}

/// Rings are never polled continuously instead of using notifications.
#[test]
fn a_ring_that_is_to_be_polled() {
    let without = (u64::from(TRANSMIT) | 0x100).to_le_bytes();
    let why = told(request::SET_VRING_KICK, &without, 0);
    assert!(
        why.starts_with("queue 1: its kick descriptor is missing, ") && why.contains("=on"),
        "{why}"
    );
    let end = attack(|| {
        let mut vmm = Vmm::start(modern(), TRANSMIT);
        vmm.send(request::SET_VRING_CALL, &without, &[]);
        vmm.settle();
        vmm.transmit(1);
        assert_eq!(vmm.work(), [[1; 60]], "a driver may look by itself");
        vmm.end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

/// We wait for the driver's notifications, and write to the call descriptor: a full counter, which
/// would block a writer, blocks no one, whatever the VMM does to the shared file.
#[test]
fn a_notification_that_nobody_takes() {
    let end = attack(|| {
        let mut vmm = Vmm::start(modern(), TRANSMIT);
        let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let index = u64::from(TRANSMIT).to_le_bytes();
        vmm.send(request::SET_VRING_CALL, &index, &[full.as_raw_fd()]);
        vmm.settle();
        rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::empty()).unwrap();
        for turn in 0..20u16 {
            // The event index advances with the index, so each burst causes a notification.
            vmm.guest.write_u16(0x1014, turn);
            vmm.transmit(1);
            assert_eq!(vmm.work().len(), 1);
            vmm.driver.reap(&vmm.guest);
        }
        assert!(vmm.queue(TRANSMIT).lock().as_ref().unwrap().calls() >= 20);
        vmm.end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

/// A VMM that sends requests and reads no answers blocks only the session's thread; the device can
/// still be reset.
#[test]
fn a_vmm_that_does_not_listen() {
    let why = reset(|| {
        let mut vmm = Vmm::start(modern(), TRANSMIT);
        vmm.stream.set_nonblocking(true).unwrap();
        let question = [request::GET_FEATURES, 1, 0].map(u32::to_le_bytes).concat();
        let mut refusals = 0;
        // Full in both directions, and still full a while later.
        while refusals < 20 {
            if vmm.stream.send_with_fds(&[&question[..]], &[]).is_err() {
                refusals += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        vmm.transmit(1);
        assert_eq!(vmm.work(), [[1; 60]]);
        vmm.device.reset(vmm.device.session(), "enough");
        vmm.ended()
    });
    assert_eq!(why, "enough");
}
