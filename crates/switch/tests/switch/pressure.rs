//! Tests of full ports: which senders wait, which do not, and that no frame is lost without a name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a panic fails a test; test data"
)]

use std::time::{Duration, Instant};

use crate::common::*;
use crate::vm::*;
use tapswitch_openflow::{Body, Delivery, GroupModCommand, PortNo};
use tapswitch_switch::RemovePortError;
use tapswitch_switch::report::PressureReport;
use tapswitch_vhost::Features;
use tapswitch_wire::{GsoType, MacAddr, NetHeader, NetHeaderFlags};

/// The frame with this number.
fn numbered(number: u32) -> Vec<u8> {
    let len = if number.is_multiple_of(3) { 1514 } else { 60 };
    let mut bytes = frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]), &[], len);
    bytes[20..24].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[20..24].try_into().unwrap())
}

/// A TCP train with this much payload, in packets of `size`.
pub(crate) fn tcp_train(payload_len: u16, size: u16) -> (NetHeader, Vec<u8>) {
    let total_len = (40 + payload_len).to_be_bytes();
    let mut bytes = frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]), &[], 14);
    bytes[12..].copy_from_slice(&[8, 0]);
    bytes.extend([0x45, 0, total_len[0], total_len[1], 0, 1, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0]);
    bytes.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    bytes.resize(54 + usize::from(payload_len), 7);
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 54,
        gso_size: size,
        csum_start: 34,
        csum_offset: 16,
    };
    (meta, bytes)
}

/// Sends the remaining frames, as far as the switch takes them.
fn send_more(guest: &mut Vm, next: &mut u32, count: u32) {
    while *next < count && guest.try_send(&numbered(*next)) {
        *next += 1;
    }
}

/// Sends until the switch takes no more.
fn send_until_it_waits(room: &Room, guest: &mut Vm, number: u32) -> u32 {
    let mut next = 0;
    until("the sender waits", || {
        send_more(guest, &mut next, u32::MAX);
        waits(room, number) > 0
    });
    send_more(guest, &mut next, u32::MAX);
    next
}

/// Paused queues of a port.
fn waits(room: &Room, port: u32) -> u32 {
    pressure(room, port).waits_for.iter().map(|pause| pause.now).sum()
}

fn pressure(room: &Room, port: u32) -> PressureReport {
    room.switch.port(port).pressure
}

/// A switch whose ports make senders wait as long as a test may take.
fn patient(count: u32) -> Room {
    Room::new(count, ",stall=10000")
}

#[test]
fn a_slow_guest_gets_every_frame_and_its_sender_waits() {
    for features in [split(), split() | Features::RING_PACKED] {
        let room = patient(2);
        let (mut sender, mut receiver) = (room.guest(1, features), room.guest(2, features));
        room.switch.controller().apply(join(1, 2));
        let (mut sent, mut received) = (0, 0);
        while received < 2000 {
            send_more(&mut sender, &mut sent, 2000);
            if received < 500 {
                std::thread::sleep(Duration::from_micros(200));
            }
            for frame in receiver.try_receive() {
                assert!(frame == numbered(received), "{} for {received}", number_of(&frame));
                received += 1;
            }
        }
        room.switch.controller().barrier();
        let ports = [1, 2].map(|number| room.switch.port(number));
        assert!(!has_dropped(&ports), "{ports:?}");
        let [sender, receiver] = ports.map(|port| port.pressure);
        assert!(sender.waits_for[0].port == "2" && sender.waits_for[0].count > 0, "{sender:?}");
        assert!(receiver.holds_up[0].port == "1" && receiver.stalls == 0, "{receiver:?}");
    }
}

#[test]
fn others_go_on_while_one_waits() {
    let room = patient(4);
    let mut guests = room.guests();
    room.switch.controller().apply([join(1, 2), join(3, 4)].concat());
    let [sender, receiver, third, fourth] = &mut guests[..] else { panic!() };
    let sent = send_until_it_waits(&room, sender, 1);
    for number in 0..500 {
        third.send(&numbered(number));
        assert!(fourth.receive() == numbered(number));
    }
    assert!(waits(&room, 1) == 1 && waits(&room, 3) == 0);
    assert!(sender.taken() < u64::from(sent), "its ring is left full");
    (0..sent).for_each(|number| assert!(receiver.receive() == numbered(number)));
}

#[test]
fn who_takes_nothing_for_long_is_named_and_holds_nobody_up() {
    let room = Room::new(3, ",stall=20");
    let mut guests = room.guests();
    let [sender, stopped, other] = &mut guests[..] else { panic!() };
    // Every frame to both.
    let both = Body::FlowMod(rule(1, in_port(1), vec![output(2), output(3)]));
    room.switch.controller().apply(vec![both]);
    for number in 0..2000 {
        until("room in the ring", || sender.try_send(&numbered(number)));
        assert!(other.receive() == numbered(number));
    }
    let port = room.switch.port(2);
    assert_eq!(port.pressure.stalls, 1, "{port:?}");
    let dropped = room.switch.drops(2, "egress_stalled");
    assert_eq!(dropped + port.tx.frames + port.pressure.queued.frames, 2000, "{port:?}");
    assert!(!has_dropped(&[room.switch.port(3)]));
    // It gets the queued frames, and then new ones.
    let waiting = 2000 - dropped;
    (0..waiting as u32).for_each(|number| assert!(stopped.receive() == numbered(number)));
    until("it is empty", || pressure(&room, 2).queued.frames == 0);
    sender.send(&numbered(7));
    assert!(stopped.receive() == numbered(7) && other.receive() == numbered(7));
}

/// `pause=off`: frames that a full port does not take are dropped there, as by any switch.
#[test]
fn a_port_that_never_waits_loses_what_others_do_not_take() {
    let room = Room::new(3, ",stall=10000,pause=off");
    let mut guests = room.guests();
    let [sender, stopped, other] = &mut guests[..] else { panic!() };
    let both = Body::FlowMod(rule(1, in_port(1), vec![output(2), output(3)]));
    room.switch.controller().apply(vec![both]);
    for number in 0..3000 {
        until("room in the ring", || sender.try_send(&numbered(number)));
        assert!(other.receive() == numbered(number));
    }
    room.switch.controller().barrier();
    let (port, dropped) = (room.switch.port(2), room.switch.drops(2, "egress_full"));
    assert!(dropped > 0 && port.pressure.queued.bytes <= 512 * 1024, "{port:?}");
    assert_eq!(dropped + port.tx.frames + port.pressure.queued.frames, 3000, "{port:?}");
    assert!(pressure(&room, 1).waits_for.is_empty() && port.pressure.stalls == 0, "{port:?}");
    assert!(!has_dropped(&[1, 3].map(|number| room.switch.port(number))));
    let kept = 3000 - dropped;
    (0..kept as u32).for_each(|number| assert!(stopped.receive() == numbered(number)));
}

#[test]
fn a_guest_that_stops_for_ten_seconds_is_the_only_one_to_lose() {
    let room = Room::new(4, "");
    let mut guests = room.guests();
    let [sender, stopped, third, fourth] = &mut guests[..] else { panic!() };
    room.switch.controller().apply([vec![wire(1, 2)], join(3, 4)].concat());
    let (mut sent, mut others, start) = (0, 0, Instant::now());
    while start.elapsed() < Duration::from_secs(10) {
        sent += u32::from(sender.try_send(&numbered(sent)));
        third.send(&numbered(others));
        assert!(fourth.receive() == numbered(others));
        others += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(pressure(&room, 2).stalls, 1);
    until("all is taken", || sender.taken() == u64::from(sent));
    let mut numbers = Vec::new();
    until("what waits is there", || {
        numbers.extend(stopped.try_receive().iter().map(|frame| number_of(frame)));
        pressure(&room, 2).queued.frames == 0 && waits(&room, 1) == 0
    });
    numbers.extend(stopped.try_receive().iter().map(|frame| number_of(frame)));
    assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once: {numbers:?}");
    let dropped = room.switch.drops(2, "egress_stalled");
    assert_eq!(numbers.len() as u64 + dropped, u64::from(sent));
    for number in sent..sent + 100 {
        sender.send(&numbered(number));
        assert!(stopped.receive() == numbered(number));
    }
    assert_eq!(room.switch.drops(2, "egress_stalled"), dropped, "lost afterwards");
    assert!(!has_dropped(&[1, 3, 4].map(|number| room.switch.port(number))));
}

#[test]
fn two_that_are_full_of_each_other_do_not_wait_for_ever() {
    let room = patient(2);
    let mut guests = [1, 2].map(|number| room.guest(number, split()));
    room.switch.controller().apply(join(1, 2));
    let sent =
        [1, 2].map(|number| send_until_it_waits(&room, &mut guests[number - 1], number as u32));
    assert!(waits(&room, 1) == 1 && waits(&room, 2) == 1);
    for (guest, sent) in guests.iter_mut().rev().zip(sent) {
        (0..sent).for_each(|number| assert!(guest.receive() == numbered(number)));
    }
    until("nobody waits", || waits(&room, 1) + waits(&room, 2) == 0);
    assert!(!has_dropped(&room.switch.ports()));
}

#[test]
fn those_who_wait_get_their_turns() {
    let room = patient(4);
    let mut guests = room.guests();
    let wires = (1..=3).map(|number| wire(number, 4)).collect();
    room.switch.controller().apply(wires);
    let (senders, receiver) = guests.split_at_mut(3);
    let (mut next, mut seen) = ([0; 3], [0; 3]);
    while seen.iter().sum::<u32>() < 3000 {
        for (index, sender) in senders.iter_mut().enumerate() {
            while sender.try_send(&[&[0; 20][..], &[index as u8; 40]].concat()) {
                next[index] += 1;
            }
        }
        for frame in receiver[0].try_receive() {
            seen[usize::from(frame[30])] += 1;
        }
    }
    assert!(seen.iter().all(|&count| count > 500), "{seen:?} of {next:?}");
    (0..3).for_each(|number| assert_eq!(pressure(&room, number + 1).stalls, 0));
    until("the rest", || {
        receiver[0].try_receive();
        pressure(&room, 4).queued.frames == 0 && (1..=3).all(|number| waits(&room, number) == 0)
    });
}

/// Sends frames from port 1 to port 2, with copies to port 3.
fn tapped(delivery: Delivery) -> Vec<Body> {
    tapped_from(1, delivery)
}

/// Sends frames from this port to the next one, with copies to port 3.
fn tapped_from(number: u32, delivery: Delivery) -> Vec<Body> {
    let buckets = vec![vec![output(number + 1)], vec![delivery.action(), output(3)]];
    let group = group_all(GroupModCommand::Add, number, buckets);
    vec![group, Body::FlowMod(rule(1, in_port(number), vec![to_group(number)]))]
}

#[test]
fn nobody_waits_for_a_monitor_that_has_stopped() {
    for (delivery, reason) in
        [(Delivery::BestEffort, "egress_full"), (Delivery::SampleOnPressure, "sampled_out")]
    {
        let room = patient(3);
        let mut guests = room.guests();
        let [sender, receiver, monitor] = &mut guests[..] else { panic!() };
        room.switch.controller().apply(tapped(delivery));
        for number in 0..5000 {
            until("room in the ring", || sender.try_send(&numbered(number)));
            assert!(receiver.receive() == numbered(number));
        }
        room.switch.controller().barrier();
        assert!(pressure(&room, 1).waits_for.is_empty(), "{delivery:?}");
        let tap = room.switch.taps().remove(0);
        let copies = &tap.copies[0];
        assert!(tap.adds_up && tap.matched.frames == 5000 && copies.drops[reason] > 0, "{tap:?}");
        let dropped: u64 = copies.drops.values().sum();
        let (delivered, queued) = (copies.delivered.frames, copies.queued.frames);
        assert_eq!(delivered + dropped + queued, 5000, "{tap:?}");
        (0..delivered + queued).for_each(|_| drop(monitor.receive()));
    }
}

/// For a while copies are sampled although nothing is queued any more: the path through the same
/// port must not wait because of that.
#[test]
fn nobody_waits_for_a_monitor_that_has_caught_up() {
    let room = patient(4);
    let mut guests = room.guests();
    let [sender, receiver, monitor, fourth] = &mut guests[..] else { panic!() };
    room.switch.controller().apply([tapped(Delivery::SampleOnPressure), vec![wire(4, 3)]].concat());
    for number in 0..5000 {
        until("room in the ring", || sender.try_send(&numbered(number)));
        assert!(receiver.receive() == numbered(number));
    }
    while pressure(&room, 3).queued.frames > 0 {
        monitor.try_receive();
    }
    for number in 0..20 {
        fourth.send(&numbered(number));
        until("it is there", || monitor.try_receive().contains(&numbered(number)));
    }
    assert!(pressure(&room, 4).waits_for.is_empty(), "{:?}", pressure(&room, 4));
}

/// Every frame goes to a guest that has stopped, and to one with room for a frame now and then:
/// waiting for the latter alone would fill up the memory for the former.
#[test]
fn whoever_sends_to_several_full_ports_waits_for_each_of_them() {
    let room = patient(3);
    let mut guests = room.guests();
    let [sender, stopped, slow] = &mut guests[..] else { panic!() };
    let both = Body::FlowMod(rule(1, in_port(1), vec![output(2), output(3)]));
    room.switch.controller().apply(vec![both]);
    let mut sent = send_until_it_waits(&room, sender, 1);
    let mut taken = slow.reap() as u32;
    let mut goes_on = true;
    while goes_on && taken < 20_000 {
        slow.offer(RECEIVE);
        let since = Instant::now();
        let before = taken;
        while taken == before && since.elapsed() < Duration::from_millis(50) {
            taken += slow.reap() as u32;
            send_more(sender, &mut sent, 20_000);
        }
        goes_on = taken > before;
    }
    assert!(!has_dropped(&[room.switch.port(2)]), "{:?}", room.switch.port(2));
    assert!(pressure(&room, 2).queued.frames < 40, "{:?}", room.switch.port(2));
    assert_eq!(waits(&room, 1), 1);
    // One buffer was provided before.
    (1..RING_SIZE).for_each(|_| slow.offer(RECEIVE));
    let mut received = 0;
    until("both have all", || {
        send_more(sender, &mut sent, 1000);
        for frame in stopped.try_receive() {
            assert!(frame == numbered(received), "{} for {received}", number_of(&frame));
            received += 1;
        }
        let more = slow.reap() as u32;
        (0..more).for_each(|_| slow.offer(RECEIVE));
        taken += more;
        (received, taken) == (sent, sent) && sent >= 1000
    });
    assert!(!has_dropped(&room.switch.ports()));
}

/// Their bounds expire at the same time, each for good.
#[test]
fn several_that_have_stopped_hold_up_a_sender_no_longer_than_one() {
    let room = Room::new(4, ",stall=1000");
    let mut guests = room.guests();
    let [sender, _, _, other] = &mut guests[..] else { panic!() };
    let all = Body::FlowMod(rule(1, in_port(1), vec![output(2), output(3), output(4)]));
    room.switch.controller().apply(vec![all]);
    let mut sent = send_until_it_waits(&room, sender, 1);
    let mut received = 0;
    until("the last of 1000", || {
        send_more(sender, &mut sent, 1000);
        for frame in other.try_receive() {
            assert!(frame == numbered(received), "{} for {received}", number_of(&frame));
            received += 1;
        }
        received == 1000
    });
    let waits = pressure(&room, 1).waits_for;
    let waited: u64 = waits.iter().filter(|it| it.port != "4").map(|it| it.total_us).sum();
    assert!((500_000..1_800_000).contains(&waited), "{waits:?}");
    for stopped in [2, 3] {
        let port = room.switch.port(stopped);
        let dropped = room.switch.drops(stopped, "egress_stalled");
        assert_eq!(port.pressure.stalls, 1, "{port:?}");
        assert_eq!(dropped + port.tx.frames + port.pressure.queued.frames, 1000, "{port:?}");
    }
}

/// Two flows are copied to a monitor that has stopped, one with a bound of 20 ms and one of ten
/// seconds.
#[test]
fn whoever_waits_for_a_monitor_waits_by_its_own_contract() {
    let room = patient(5);
    let mut guests = room.guests();
    let [hasty, receiver, monitor, patient, other] = &mut guests[..] else { panic!() };
    let of = |number, stall_ms| tapped_from(number, Delivery::Lossless { stall_ms });
    room.switch.controller().apply([of(1, 20), of(4, 10_000)].concat());
    let mut sent = 0;
    until("the patient one waits", || {
        send_more(patient, &mut sent, u32::MAX);
        other.try_receive();
        waits(&room, 4) == 1
    });
    let start = Instant::now();
    for number in 0..2000 {
        until("room in the ring", || hasty.try_send(&numbered(number)));
        assert!(receiver.receive() == numbered(number));
    }
    assert!(start.elapsed() < Duration::from_secs(5), "as long as the patient one");
    let copies = |index: usize| room.switch.taps().remove(index).copies.remove(0);
    assert!(copies(0).drops["egress_stalled"] > 0, "{:?}", copies(0));
    assert_eq!((waits(&room, 1), waits(&room, 4)), (0, 1), "the patient one still waits");
    until("the monitor has all", || {
        monitor.try_receive();
        other.try_receive();
        pressure(&room, 3).queued.frames == 0 && waits(&room, 4) == 0
    });
    room.switch.controller().barrier();
    assert!(copies(1).drops.is_empty(), "{:?}", copies(1));
    let dropped = copies(0).drops.clone();
    hasty.send(&numbered(7));
    assert!(receiver.receive() == numbered(7));
    until("the monitor has it", || monitor.try_receive().contains(&numbered(7)));
    assert_eq!(copies(0).drops, dropped, "it is there again");
}

/// Copies that a blocked controller does not receive must not count as delivered.
#[test]
fn copies_for_a_controller_that_does_not_read_are_not_delivered() {
    let room = patient(2);
    let mut guests = room.guests();
    let [sender, receiver] = &mut guests[..] else { panic!() };
    let mut controller = room.switch.controller();
    controller.configure();
    let copy = vec![Delivery::BestEffort.action(), output(PortNo::CONTROLLER.0)];
    let group = group_all(GroupModCommand::Add, 1, vec![vec![output(2)], copy]);
    controller.apply(vec![group, Body::FlowMod(rule(1, in_port(1), vec![to_group(1)]))]);
    let copies = || room.switch.taps().remove(0).copies.remove(0);
    let mut sent = 0;
    // The buffers in between hold about ten thousand. A peer that does not answer for long is
    // dropped.
    until("copies are lost", || {
        // Every third one is long.
        while sender.try_send(&numbered(sent * 3)) {
            sent += 1;
        }
        receiver.try_receive();
        !copies().drops.is_empty()
    });
    until("none is under way", || {
        receiver.try_receive();
        let copies = copies();
        copies.count.frames == u64::from(sent) && copies.queued.frames == 0
    });
    let copies = copies();
    let lost: u64 = copies.drops.values().sum();
    assert_eq!(copies.delivered.frames + lost, copies.count.frames, "{copies:?}");
    assert_eq!(room.switch.port(1).drops, copies.drops);
    assert_eq!(room.switch.port(1).consumed, copies.delivered.frames);
}

/// A train of three packets, the second of which fits no buffer, must not affect the next queued
/// frame.
#[test]
fn what_left_of_a_refused_train_is_not_left_out_of_another_frame() {
    let room = patient(2);
    let mut sender = room.guest(1, split() | Features::CSUM | Features::HOST_TSO4);
    let plain = Features::VERSION_1 | Features::PROTOCOL_FEATURES | Features::EVENT_IDX;
    let mut receiver = Vm::connect(&room.socket(2), plain);
    receiver.start_rings();
    until("the port is up", || room.switch.port(2).state == "up");
    room.switch.controller().apply(vec![wire(1, 2)]);
    [1000, 200].iter().for_each(|&len| receiver.offer_len(RECEIVE, len));
    let (meta, train) = tcp_train(1800, 600);
    assert!(sender.try_send_with(&meta, &train));
    until("it is refused", || room.switch.drops(2, "egress_rejected") == 1);
    // The first takes the last buffer.
    (1..=2).for_each(|number| sender.send(&numbered(number)));
    until("the second waits", || pressure(&room, 2).queued.frames == 1);
    (0..4).for_each(|_| receiver.offer_len(RECEIVE, 1000));
    let mut used = 0;
    until("all but the train are there", || {
        used += receiver.reap();
        used == 3
    });
    until("it is counted", || room.switch.port(2).tx.frames == 2);
    assert_eq!(room.switch.port(2).tx.packets, 3, "the first one of the train went out");
    assert_eq!(room.switch.drops(2, "cannot_segment"), 0);
}

#[test]
fn whoever_sends_what_is_copied_without_loss_waits_for_the_monitor() {
    let room = patient(3);
    let mut guests = room.guests();
    let [sender, receiver, monitor] = &mut guests[..] else { panic!() };
    room.switch.controller().apply(tapped(Delivery::Lossless { stall_ms: 0 }));
    let (mut sent, mut received, mut copied) = (0, 0, 0);
    for turn in 0.. {
        if copied == 2000 {
            break;
        }
        send_more(sender, &mut sent, 2000);
        for frame in receiver.try_receive() {
            assert!(frame == numbered(received));
            received += 1;
        }
        if turn % 8 == 0 {
            for frame in monitor.try_receive() {
                assert!(frame == numbered(copied), "{} for {copied}", number_of(&frame));
                copied += 1;
            }
        }
    }
    room.switch.controller().barrier();
    let tap = room.switch.taps().remove(0);
    assert!(tap.adds_up && tap.copies[0].delivered.frames == 2000, "{tap:?}");
    assert!(pressure(&room, 1).waits_for.iter().any(|pause| pause.port == "3"));
}

#[test]
fn a_contract_may_have_less_patience_than_the_port() {
    let room = patient(3);
    let mut guests = room.guests();
    let [sender, receiver, _monitor] = &mut guests[..] else { panic!() };
    room.switch.controller().apply(tapped(Delivery::Lossless { stall_ms: 5 }));
    for number in 0..1000 {
        until("room in the ring", || sender.try_send(&numbered(number)));
        assert!(receiver.receive() == numbered(number));
    }
    assert_eq!(pressure(&room, 3).stalls, 1);
    assert!(room.switch.taps()[0].copies[0].drops["egress_stalled"] > 0);
}

#[test]
fn a_port_goes_with_what_waits_for_it() {
    let room = patient(3);
    let (mut sender, _full) = (room.guest(1, split()), room.guest(2, split()));
    room.switch.controller().apply(vec![wire(1, 2)]);
    let sent = send_until_it_waits(&room, &mut sender, 1);
    let handle = room.switch.handle();
    let removed = runtime().block_on(handle.remove_port(PortNo(2)));
    assert_eq!(removed, Ok::<_, RemovePortError>(()));
    until("its sender goes on", || waits(&room, 1) == 0);
    until("all is taken", || sender.taken() == u64::from(sent));
    let mut third = room.guest(3, split());
    room.switch.controller().apply(vec![wire(1, 3)]);
    sender.send(&numbered(1));
    assert!(third.receive() == numbered(1));
    room.switch.check_books();
    let books = room.switch.report().books;
    assert!(books.queued == 0 && books.received == u64::from(sent) + 1, "{books:?}");
}

#[test]
fn a_sender_goes_while_it_waits() {
    let room = patient(3);
    let (mut sender, mut full) = (room.guest(1, split()), room.guest(2, split()));
    let mut third = room.guest(3, split());
    room.switch.controller().apply(vec![wire(1, 2), wire(3, 2)]);
    send_until_it_waits(&room, &mut sender, 1);
    runtime().block_on(room.switch.handle().remove_port(PortNo(1))).unwrap();
    until("what waits is there", || {
        full.try_receive();
        pressure(&room, 2).queued.frames == 0
    });
    third.send(&numbered(9));
    until("its frame", || full.try_receive().contains(&numbered(9)));
}
