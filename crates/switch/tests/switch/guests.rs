//! Tests of guests: frames from memory to memory, and guests that start, stop and misbehave.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a panic fails a test; test data"
)]

use std::fs;
use std::io::Read;
use std::num::NonZeroUsize;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::pressure::tcp_train;
use crate::vm::*;
use rustix::fs::{FallocateFlags, fallocate};
use tapswitch_offload::complete_checksum;
use tapswitch_openflow::{Action, Body, GroupModCommand, Oxm, PortNo};
use tapswitch_vhost::Features;
use tapswitch_wire::{EtherType, MacAddr, NetHeader};
use vhost::VhostBackend;
use vhost::vhost_user::Frontend;

/// A frame of `len` bytes whose last byte is `mark`.
fn marked(len: usize, mark: u8) -> Vec<u8> {
    let mut bytes = frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]), &[], len);
    *bytes.last_mut().unwrap() = mark;
    bytes
}

fn copies(monitor: u32) -> Vec<Body> {
    let buckets = vec![vec![output(2)], vec![output(monitor)]];
    let group = group_all(GroupModCommand::Add, 1, buckets);
    vec![group, Body::FlowMod(rule(1, in_port(1), vec![to_group(1)]))]
}

#[test]
fn frames_and_copies_go_from_guest_to_guest() {
    for features in [split(), split() | Features::RING_PACKED] {
        let room = Room::new(3, "");
        assert_eq!(room.switch.port(1).state, "no-link");
        let mut guests: Vec<_> = (1..=3).map(|number| room.guest(number, features)).collect();
        let [sender, receiver, monitor] = &mut guests[..] else { panic!() };
        room.switch.controller().apply(copies(3));
        for mark in 0..50 {
            // Small ones, and ones whose end stays in the sender's memory until it is copied.
            let sent = marked(if mark % 2 == 0 { 60 } else { 1514 }, mark);
            sender.send(&sent);
            assert!(receiver.receive() == sent && monitor.receive() == sent);
        }
        room.switch.controller().barrier();
        let ports: Vec<_> = (1..=3).map(|number| room.switch.port(number)).collect();
        assert_eq!((ports[0].rx.frames, ports[1].tx.frames, ports[2].tx.frames), (50, 50, 50));
        assert_eq!(room.report(2).queues, 1);
        drop(guests);
        (1..=3).for_each(|number| {
            until("the port is down", || room.switch.port(number).state == "no-link");
        });
    }
}

/// Only those that it negotiated: a guest without them would take a partial checksum for a wrong
/// one.
#[test]
fn packets_of_a_train_have_the_checksums_that_a_guest_takes() {
    let sending = split() | Features::CSUM | Features::HOST_TSO4;
    let packets = |features| {
        let room = Room::new(2, "");
        room.switch.controller().apply(join(1, 2));
        let (mut from, mut to) = (room.guest(1, sending), room.guest(2, features));
        let (header, bytes) = tcp_train(3500, 1000);
        let len = from.write_first(&header, &bytes);
        assert!(from.try_send_first(len));
        let mut packets = Vec::new();
        until("four packets", || {
            packets.extend(to.try_receive_with());
            packets.len() == 4
        });
        packets
    };
    let complete = packets(split());
    assert!(complete.iter().all(|(header, _)| *header == NetHeader::PLAIN));
    let partial = packets(split() | Features::GUEST_CSUM);
    for ((mut header, mut packet), (_, complete)) in partial.into_iter().zip(complete) {
        assert!(header.needs_checksum() && !header.is_train(), "{header:?}");
        complete_checksum(&mut header, &mut packet, &[]).unwrap();
        assert!(packet == complete, "other bytes");
    }
}

/// Most guests use only the first of their queue pairs.
#[test]
fn guests_with_several_queues_take_turns_at_the_workers() {
    let room = Room::with(3, ",queues=2", |config| config.workers = NonZeroUsize::new(2));
    let queues: Vec<_> = room.switch.workers().into_iter().map(|worker| worker.queues).collect();
    assert_eq!(queues, [["1/0", "2/1", "3/0"], ["1/1", "2/0", "3/1"]]);
}

#[test]
fn a_flow_goes_to_one_of_the_pairs_that_a_guest_runs() {
    let room = Room::with(2, ",queues=2", |config| config.workers = NonZeroUsize::new(1));
    let (mut sender, mut receiver) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(join(1, 2));
    let mut second = receiver.start_second_pair();
    let mut counts = [0, 0];
    for station in 0..8 {
        let of_flow =
            frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 1, 0, station]), &[], 60);
        let mut flow = [0, 0];
        for _ in 0..2 {
            sender.send(&of_flow);
            until("it is taken", || {
                sender.taken() == 2 * u64::from(station) + flow[0] + flow[1] + 1
            });
            until("it arrives", || {
                let here = [receiver.try_receive().len(), second.try_receive().len()];
                flow.iter_mut().zip(here).for_each(|(flow, here)| *flow += here as u64);
                here != [0, 0]
            });
        }
        assert!(flow == [2, 0] || flow == [0, 2], "{flow:?}");
        counts.iter_mut().zip(flow).for_each(|(count, flow)| *count += flow);
    }
    assert!(counts.iter().all(|count| *count >= 2), "{counts:?}");
}

#[test]
fn a_sleeping_worker_is_woken_each_time() {
    let room = Room::new(2, "");
    let (mut one, mut other) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(join(1, 2));
    for mark in 0..100 {
        let (from, to) =
            if mark % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        // Longer than any worker polls.
        std::thread::sleep(std::time::Duration::from_millis(1));
        from.send(&marked(60, mark));
        assert!(to.receive() == marked(60, mark));
    }
}

#[test]
fn a_guest_that_misbehaves_is_cut_off_and_nobody_else_notices() {
    let room = Room::new(3, "");
    let (mut sender, mut receiver) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(copies(3));
    for attempt in 1..=3 {
        // Its buffers are outside of its memory.
        let mut hostile = Vm::connect(&room.socket(3), split());
        hostile.start_rings();
        hostile.offer(1 << 40);
        until("the port is up", || room.switch.port(3).state == "up");
        sender.send(&marked(60, attempt));
        assert!(receiver.receive() == marked(60, attempt));
        until("the guest is cut off", || room.report(3).resets == u64::from(attempt));
        let why = room.report(3).last_reset.unwrap();
        assert!(why.contains("outside the shared memory"), "{why}");
        sender.send(&marked(60, 100));
        assert!(receiver.receive() == marked(60, 100));
    }
    assert_eq!((room.report(1).resets, room.report(2).resets), (0, 0));
}

#[test]
fn a_guest_that_harms_itself_harms_itself_alone() {
    let room = Room::new(2, "");
    let mut hostile = Vm::connect(&room.socket(1), split());
    hostile.start_rings();
    hostile.offer(1 << 40);
    until("the port is up", || room.switch.port(1).state == "up");
    let back = Body::FlowMod(rule(1, in_port(1), vec![Action::output(PortNo::IN_PORT)]));
    room.switch.controller().apply(vec![back]);
    hostile.send(&marked(60, 1));
    until("the guest is cut off", || room.report(1).resets == 1);
    let mut good = room.guest(1, split());
    good.send(&marked(60, 2));
    assert!(good.receive() == marked(60, 2));
}

#[test]
fn headers_may_be_longer_than_what_is_fetched_at_first() {
    let room = Room::new(2, "");
    let (mut sender, mut receiver) = (room.guest(1, split()), room.guest(2, split()));
    let fields = in_port(1).with(Oxm::EthType(EtherType::IPV6)).with(Oxm::IpProto(17));
    room.switch.controller().apply(vec![Body::FlowMod(rule(1, fields, vec![output(2)]))]);
    // IPv6 with so many options that UDP is behind the first 256 bytes.
    let mut long = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 1, 0xb8, 60, 64]].concat();
    long.extend([[0xfd; 16], [0xfc; 16]].concat());
    long.extend([17, 31, 1, 4, 0, 0, 0, 0]);
    long.extend([0; 248]);
    long.extend([0, 80, 0, 81, 0, 184, 0, 0]);
    long.extend([7; 176]);
    sender.send(&long);
    assert!(receiver.receive() == long);
}

#[test]
fn frames_of_a_queue_that_is_disabled_are_taken_and_dropped() {
    let room = Room::new(2, "");
    let (mut sender, mut receiver) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(join(1, 2));
    sender.send(&marked(60, 1));
    assert!(receiver.receive() == marked(60, 1));
    sender.enable(false);
    until("the port is down", || room.switch.port(1).state != "up");
    // More than its ring holds.
    for mark in 0..40 {
        until("room in the ring", || sender.try_send(&marked(60, mark)));
    }
    until("all are taken", || sender.taken() == 41);
    until("all are counted", || room.switch.drops(1, "queue_disabled") == 40);
    sender.enable(true);
    until("the port is up", || room.switch.port(1).state == "up");
    sender.send(&marked(60, 2));
    assert!(receiver.receive() == marked(60, 2));
    assert_eq!(room.switch.port(1).rx.frames, 42);
}

#[test]
fn a_second_monitor_is_turned_away_and_the_first_served_on() {
    let room = Room::new(2, "");
    let (mut sender, mut receiver) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(copies(2));
    let mut other = UnixStream::connect(room.socket(1)).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(other.read(&mut [0; 16]).unwrap(), 0, "it is closed");
    sender.send(&marked(60, 1));
    assert!(receiver.receive() == marked(60, 1));
    assert_eq!(room.report(1).sessions, 1);
    // A VMM that connects as the first one disconnects is served.
    drop(sender);
    let mut next = room.guest(1, split());
    next.send(&marked(60, 2));
    while receiver.receive() != marked(60, 2) {}
}

#[test]
fn a_socket_is_open_to_whom_it_was_given() {
    if !can_run() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("tapswitch-given-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let (given, kept) = (path("a.sock"), path("b.sock"));
    let options = "owner=65534,group=65534,permissions=0600";
    let ports = [format!("1=vhost:{given},{options}"), format!("2=vhost:{kept},permissions=700")];
    let switch = Running::start(config(&ports));
    let file = fs::metadata(&given).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (65_534, 65_534, 0o600));
    let (is_given, is_kept) = thread::spawn(move || {
        let nobody = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        (UnixStream::connect(given).is_ok(), UnixStream::connect(kept).is_ok())
    })
    .join()
    .unwrap();
    assert!(is_given && !is_kept);
    drop(switch);
    fs::remove_dir(&directory).unwrap();
}

/// Removes a port. If that hangs, the room is leaked, as dropping it would hang, too.
fn remove(room: Room, number: u32) -> Room {
    let handle = room.switch.handle();
    let removal =
        async { tokio::time::timeout(PATIENCE, handle.remove_port(PortNo(number))).await };
    if runtime().block_on(removal).is_ok_and(|removed| removed.is_ok()) {
        return room;
    }
    std::mem::forget(room);
    panic!("port {number} does not go");
}

#[test]
fn a_guest_that_changes_all_the_time_holds_up_nobody() {
    let room = Room::new(3, "");
    let restless = [1, 3].map(|number| (room.guest(number, split()), Arc::default()));
    let counts: [Arc<AtomicUsize>; 2] = restless.each_ref().map(|(_, count)| Arc::clone(count));
    let toggle = |(mut vm, count): (Vm, Arc<AtomicUsize>)| {
        while vm.toggle() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut togglers: Vec<_> =
        restless.into_iter().map(|guest| thread::spawn(move || toggle(guest))).collect();
    // As many as the server handles at once.
    until("both have changed much", || {
        counts.iter().all(|count| count.load(Ordering::Relaxed) >= 128)
    });
    let room = remove(room, 1);
    togglers.remove(0).join().unwrap();
    let mut quiet = room.guest(2, split());
    room.switch.controller().apply(vec![Body::FlowMod(rule(1, in_port(2), vec![back()]))]);
    quiet.send(&marked(60, 1));
    assert!(quiet.receive() == marked(60, 1));
    let room = remove(room, 3);
    togglers.remove(0).join().unwrap();
    // The number and the socket are free again.
    let spec = format!("1=vhost:{}", room.socket(1).display());
    let added = runtime().block_on(room.switch.handle().add_port(spec.parse().unwrap()));
    added.unwrap();
    room.guest(1, split());
}

fn back() -> Action {
    Action::output(PortNo::IN_PORT)
}

/// A socket at `path` with room for `waiting` pending connections.
fn listen_at(path: &Path, waiting: i32) -> UnixListener {
    let elsewhere = path.with_extension("new");
    let listener = UnixListener::bind(&elsewhere).unwrap();
    rustix::net::listen(&listener, waiting).unwrap();
    listener
}

fn show(path: &Path) {
    fs::rename(path.with_extension("new"), path).unwrap();
}

#[test]
fn a_monitor_that_accepts_nobody_holds_up_nobody() {
    let room = Room::new(1, ",client");
    let path = room.socket(1);
    let listener = listen_at(&path, 0);
    let _waits = UnixStream::connect(path.with_extension("new")).unwrap();
    show(&path);
    // Looking up the listener updates the file's atime, once after a rename (relatime).
    until("the switch tries to connect", || {
        let file = fs::metadata(&path).unwrap();
        (file.atime(), file.atime_nsec()) > (file.ctime(), file.ctime_nsec())
    });
    let room = remove(room, 1);
    assert!(room.switch.ports().is_empty());
    drop(listener);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_port_says_for_whom_it_waits() {
    let room = Room::new(1, ",client");
    let path = room.socket(1);
    let warning = || room.report(1).warning.unwrap_or_default();
    until("nobody is there", || warning().contains("the socket does not exist yet"));
    drop(listen_at(&path, 8));
    show(&path);
    until("nobody listens", || warning().contains("no process listens on it"));
    fs::remove_file(&path).unwrap();
    let listener = listen_at(&path, 8);
    show(&path);
    let monitor = listener.accept().unwrap();
    until("the monitor is met", || warning().is_empty());
    drop((monitor, listener));
    fs::remove_file(&path).unwrap();
}

/// By a cleanup script, for example.
#[test]
fn a_socket_whose_file_was_deleted_is_made_again() {
    let room = Room::new(1, "");
    fs::remove_file(room.socket(1)).unwrap();
    until("the socket is there again", || room.socket(1).exists());
    drop(room.guest(1, split()));
}

#[test]
fn a_monitor_that_lets_go_of_all_that_come_is_met_now_and_then() {
    let room = Room::new(1, ",client");
    let path = room.socket(1);
    let listener = listen_at(&path, 8);
    let begin = Instant::now();
    show(&path);
    for _ in 0..6 {
        drop(listener.accept().unwrap());
    }
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    drop(listener);
    fs::remove_file(&path).unwrap();
}

/// QEMU does this if its machine has more queue pairs than the port.
#[test]
fn a_monitor_that_comes_again_and_again_and_never_runs_is_given_time() {
    let room = Room::new(1, "");
    let (path, begin) = (room.socket(1), Instant::now());
    while begin.elapsed() < Duration::from_secs(1) {
        let Ok(stream) = UnixStream::connect(&path) else { continue };
        let frontend = Frontend::from_stream(stream, 4);
        // There is no answer while it is not served.
        let _ = frontend.set_owner().and_then(|()| frontend.get_features());
    }
    let sessions = room.report(1).sessions;
    assert!((2..=6).contains(&sessions), "{sessions} in a second");
    drop(room.guest(1, split()));
}

/// A VMM changes its guest's memory repeatedly, as with hotplug, while frames arrive.
#[test]
fn frames_wait_while_a_guests_memory_changes() {
    nothing_is_lost_while(5000, |_, receiver, send| {
        send();
        receiver.share_again();
    });
}

/// VMMs exchange regions one by one: the region with the ring is removed before it comes back. The
/// guest must not be reported as gone meanwhile, as frames for it would be dropped.
#[test]
fn frames_wait_while_a_guests_memory_is_exchanged_piece_by_piece() {
    nothing_is_lost_while(2000, |room, receiver, send| {
        receiver.take_memory();
        send();
        assert_eq!(room.switch.port(2).state, "up");
        receiver.give_memory();
    });
}

/// Changes the receiver repeatedly, and sends as much at some point of each change as there is room
/// for, until that is more than `least` frames.
fn nothing_is_lost_while(least: usize, mut change: impl FnMut(&Room, &mut Vm, &mut dyn FnMut())) {
    let room = Room::new(2, ",stall=10000");
    let [mut sender, mut receiver] = [1, 2].map(|number| room.guest(number, split()));
    room.switch.controller().apply(vec![wire(1, 2)]);
    let (mut sent, mut arrived) = (0, 0);
    until("many changes", || {
        change(&room, &mut receiver, &mut || {
            while sender.try_send(&marked(60, 1)) {
                sent += 1;
            }
        });
        arrived += receiver.try_receive().len();
        sent > least
    });
    until("all is there", || {
        arrived += receiver.try_receive().len();
        arrived == sent || has_dropped(&room.switch.ports())
    });
    assert!(!has_dropped(&room.switch.ports()), "{:?}", room.switch.port(2));
}

/// The state of a guest's driver while it boots: its rings run, and it has provided no buffers yet.
#[test]
fn nobody_waits_for_a_guest_whose_interface_is_not_up() {
    let room = Room::new(3, ",stall=10000");
    let (mut sender, mut other) = (room.guest(1, split()), room.guest(3, split()));
    let mut booting = Vm::connect(&room.socket(2), split());
    booting.start_rings();
    until("the port is up", || room.switch.port(2).state == "up");
    room.switch.controller().apply(copies(3));
    for mark in 0..40 {
        sender.send(&marked(60, mark));
        assert!(other.receive() == marked(60, mark));
    }
    room.switch.controller().barrier();
    let port = room.switch.port(2);
    assert_eq!(port.drops, [("port_down".to_owned(), 40)].into());
    assert!(port.pressure.holds_up.is_empty() && port.pressure.stalls == 0, "{port:?}");
    let drops = runtime().block_on(room.switch.handle().drops()).unwrap();
    let remedy = drops[0].remedy.as_deref().unwrap();
    assert!(remedy.contains("its interface was not up"), "{remedy}");
    // It has not written to its memory either, which is told as well.
    let tells = |what| room.report(2).warning.is_some_and(|warning| warning.contains(what));
    assert!(tells("no receive buffers, and frames for it are dropped"));
    booting.set_up();
    for mark in 0..40 {
        sender.send(&marked(60, mark));
        assert!(booting.receive() == marked(60, mark) && other.receive() == marked(60, mark));
    }
    assert!(!tells("receive buffers"));
    // From here on it is a guest that may be slow.
    room.switch.controller().apply(vec![wire(1, 2)]);
    for mark in 0..40 {
        until("room in the ring", || sender.try_send(&marked(60, mark)));
    }
    until("the sender waits", || !room.switch.port(2).pressure.holds_up.is_empty());
    assert_eq!(room.switch.drops(2, "port_down"), 40);
    until("it is told", || tells("no receive buffers, or too few, and frames wait for it"));
    until("it takes what waits", || {
        booting.try_receive();
        room.switch.port(2).pressure.queued.frames == 0
    });
    until("it is not told any more", || !tells("receive buffers"));
}

/// After a migration the VMM announces the guest, and frames for it go to its new port, also with
/// VLANs.
#[test]
fn a_guest_that_was_moved_is_announced_to_the_others() {
    for options in ["", ",mode=access,vlan=5"] {
        let room = Room::new(3, options);
        room.switch.controller().apply(vec![Body::FlowMod(all_to(PortNo::NORMAL))]);
        let mut guests = room.guests();
        guests[0].send(&frame(MacAddr([0xff; 6]), STATION, &[], 60));
        let mut marks = 0..;
        let mut takers = |guests: &mut [Vm]| takers(&room, guests, marks.next().unwrap());
        until("the station is known", || takers(&mut guests) == [true, false]);
        guests[1].announce(STATION);
        for guest in [0, 2] {
            let is_rarp = |frame: &Vec<u8>| frame[6..14] == [2, 0, 0, 0, 0, 9, 0x80, 0x35];
            eventually("its announcement", || {
                guests[guest].try_receive().iter().any(is_rarp).then_some(())
            });
        }
        until("the station is where it was moved to", || takers(&mut guests) == [false, true]);
        room.switch.check_books();
    }
}

/// Which of the first two guests receives a frame from the third one to the station.
fn takers(room: &Room, guests: &mut [Vm], mark: u8) -> [bool; 2] {
    let mut sent = frame(STATION, MacAddr([2, 0, 0, 0, 0, 3]), &[], 60);
    *sent.last_mut().unwrap() = mark;
    guests[2].send(&sent);
    let mut has = [false; 2];
    let mut look = |guests: &mut [Vm]| {
        for (has, guest) in has.iter_mut().zip(guests) {
            *has |= guest.try_receive().contains(&sent);
        }
        has
    };
    eventually("the frame", || look(guests).contains(&true).then_some(()));
    // After this, the burst that delivered it is complete.
    room.switch.controller().barrier();
    look(guests)
}

const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// As with a balloon. The removed pages read as zeroes, including rings, and the next access
/// allocates new pages.
#[test]
fn holes_in_a_guests_memory_are_the_matter_of_its_own_port() {
    let room = Room::with(4, ",stall=20", |config| config.workers = NonZeroUsize::new(1));
    let mut guests = room.guests();
    let [sender, holey, one, other] = &mut guests[..] else { panic!() };
    room.switch.controller().apply(vec![wire(1, 2), wire(2, 1), wire(3, 4), wire(4, 3)]);
    let (files, stop) = (holey.files(), AtomicBool::new(false));
    let punch = |from: u64| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        files.iter().for_each(|file| fallocate(file, flags, from, LEN - from).unwrap());
    };
    // First the pages of frames, of a guest that does not look; then its rings as well.
    for (from, resets) in [(BUFFERS, 0), (0, 1)] {
        thread::scope(|scope| {
            stop.store(false, Ordering::Relaxed);
            let puncher = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    punch(from);
                }
            });
            for mark in 0..200 {
                let _ = sender.try_send(&marked(1514, mark));
                if resets == 0 {
                    let _ = (holey.try_receive(), holey.try_send(&marked(1514, mark)));
                    sender.try_receive();
                }
                one.send(&marked(1514, mark));
                assert!(other.receive() == marked(1514, mark));
                other.send(&marked(60, mark));
                assert!(one.receive() == marked(60, mark));
            }
            stop.store(true, Ordering::Relaxed);
            puncher.join().unwrap();
        });
        until("it is cut off, or is not", || room.report(2).resets == resets);
    }
    for number in [1, 3, 4] {
        assert_eq!(room.report(number).resets, 0, "port {number}");
    }
    // The next guest of this port is served normally.
    let mut next = room.guest(2, split());
    until("a frame arrives", || {
        let _ = sender.try_send(&marked(60, 7));
        next.try_receive().contains(&marked(60, 7))
    });
    room.switch.check_books();
}
