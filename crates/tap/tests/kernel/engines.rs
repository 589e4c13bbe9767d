//! All engines move the same frames, in order, and report the others.

use std::io::IoSlice;
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use tapswitch_tap::{
    Burst, BurstSize, Engine, EngineError, EngineKind, EtherType, HeaderLen, Kind, NetHeader,
    Outgoing, PacketInfo, RecvError, Refused, SendError,
};

use crate::common::cable::{
    Cable, assert_same, frame, is_ours, kinds, numbered, one_queue, plain_frame, udp,
};
use crate::common::{Host, PATIENCE, can_tap, config, forbid, kernel_version, knows_udp_trains};

#[test]
fn every_pair_of_engines_passes_the_same_frames_in_order() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    for send_kind in kinds() {
        for recv_kind in kinds() {
            let mut cable = Cable::new(send_kind, recv_kind);
            for round in 0..40 {
                let sent = (0..50).map(|number| frame(round * 50 + number)).collect::<Vec<_>>();
                cable.send(&sent);
                let received = cable.receive();
                assert_same(&received, &sent, &format!("{send_kind:?} to {recv_kind:?}"));
            }
        }
    }
}

#[test]
fn what_was_received_is_sent_on_without_being_touched() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    for kind in kinds() {
        let (mut first, mut second) = (Cable::new(kind, kind), Cable::new(kind, kind));
        let sent = (0..60).map(frame).collect::<Vec<_>>();
        first.send(&sent);
        let mut burst = Burst::new(first.to.burst_size());
        while first.to.recv(&mut burst).unwrap() > 0 {
            burst.retain(|frame| is_ours(frame.bytes()));
            assert!(second.from.send(&burst).is_complete());
        }
        assert_same(&second.receive(), &sent, &format!("{kind:?}"));
    }
}

/// Each is sent on before the next ones push it out of the cache.
#[test]
fn a_burst_ends_after_a_few_long_frames() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(EngineKind::Drain, kind);
        // Half of what a burst should have, at most.
        let sent: Vec<_> = (0..12).map(|number| udp(number, 20_000, 1400)).collect();
        cable.send(&sent);
        let mut burst = Burst::new(cable.to.burst_size());
        let (mut count, mut longest) = (0, 0);
        while cable.to.recv(&mut burst).unwrap() > 0 {
            let ours = burst.iter().filter(|frame| is_ours(frame.bytes())).count();
            (count, longest) = (count + ours, longest.max(ours));
        }
        // A frame of the kernel's may be in front, and has more asked for at once.
        assert!(count == sent.len() && longest <= 5, "{kind:?}: {longest} of {count} at once");
    }
}

#[test]
fn frames_pass_between_queues_of_all_layouts() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let layouts = [false, true].map(|packet_info| HeaderLen::ALL.map(|len| (packet_info, len)));
    for (index, from) in layouts.into_iter().flatten().enumerate() {
        // Each layout once on either side, so that prefixes are kept and converted.
        let to = layouts.as_flattened()[(index + 3) % 10];
        for kind in kinds() {
            let [a, b] = [("from", from), ("to", to)].map(|(name, (packet_info, len))| {
                (config(name).packet_info(packet_info).net_header(len), kind)
            });
            let mut there = Cable::with([a.clone(), b.clone()]);
            let mut on = Cable::with([a, b]);
            let plain_only = from.1 == HeaderLen::None || to.1 == HeaderLen::None;
            let step = if plain_only { 4 } else { 1 };
            let sent = (0..20).map(|number| frame(number * step)).collect::<Vec<_>>();
            there.send(&sent);
            let mut burst = Burst::new(there.to.burst_size());
            while there.to.recv(&mut burst).unwrap() > 0 {
                burst.retain(|frame| is_ours(frame.bytes()));
                let info = burst.iter().all(|frame| frame.packet_info().is_some() == to.0);
                assert!(info, "{to:?}");
                assert!(on.from.send(&burst).is_complete());
            }
            assert_same(&on.receive(), &sent, &format!("{kind:?}: {from:?} to {to:?}"));
        }
    }
}

#[test]
fn a_queue_without_header_takes_no_frame_that_needs_one() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let headless = config("from").net_header(HeaderLen::None);
        let mut cable = Cable::with([(headless, kind), (config("to"), kind)]);
        let (good, needy) = (numbered(4, 60), frame(1));
        let mut burst = Burst::default();
        burst.push(&NetHeader::PLAIN, &[&good]);
        burst.push(&needy.0, &[&needy.1]);
        burst.push(&NetHeader::PLAIN, &[&good]);
        let refused = Refused { index: 1, error: SendError::Rejected };
        assert_eq!(cable.from.send(&burst).refused, [refused], "{kind:?}");
        assert_eq!(cable.receive().len(), 2, "{kind:?}");
    }
}

/// A tun device that is up and has an address, with an engine and a burst.
fn tun(kind: EngineKind, packet_info: bool, len: HeaderLen) -> (Host, Engine, Burst) {
    let mut host = Host::new();
    let config = config("tun0").kind(Kind::Tun).packet_info(packet_info).net_header(len);
    let queue = one_queue(host.create(&config));
    host.netlink.set_up("tun0").unwrap();
    host.netlink.add_address("tun0", "10.0.0.1".parse().unwrap(), 24).unwrap();
    let engine = Engine::open(queue, kind).unwrap();
    let burst = Burst::new(engine.burst_size());
    (host, engine, burst)
}

#[test]
fn packets_of_a_tun_device_pass_both_ways() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        for (packet_info, len) in [
            (true, HeaderLen::None),
            (false, HeaderLen::None),
            (true, HeaderLen::V1),
            (false, HeaderLen::V1),
        ] {
            let (host, mut engine, mut burst) = tun(kind, packet_info, len);
            let socket = host.udp(7000);
            for in_pieces in [false, true] {
                socket.send_to(b"there and back", "10.0.0.2:7000").unwrap();
                assert!(engine.wait(Some(PATIENCE)).unwrap());
                assert_eq!(engine.recv(&mut burst), Ok(1));
                let mut packet = burst.iter_mut().next().unwrap();
                let info = packet.as_frame().packet_info().map(|info| info.protocol);
                assert_eq!(info, packet_info.then_some(EtherType::IPV4));
                packet.bytes_mut()[12..20].rotate_left(4);
                let pieces = [IoSlice::new(packet.bytes())];
                let outgoing = match in_pieces {
                    true => Outgoing::new(packet.header(), &pieces),
                    false => Outgoing::from(&packet),
                };
                assert!(engine.send([outgoing]).is_complete(), "{kind:?} {packet_info} {len:?}");
                let mut buf = [0; 100];
                let (len, from) = socket.recv_from(&mut buf).unwrap();
                assert_eq!(
                    (&buf[..len], from),
                    (&b"there and back"[..], "10.0.0.2:7000".parse().unwrap())
                );
            }
        }
    }
}

/// A burst that was received from such a queue has its layout, and so do frames that are added to
/// it.
#[test]
fn packets_that_are_added_reach_the_kernel_with_protocol_information() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let (host, mut engine, mut burst) = tun(kind, true, HeaderLen::V1);
        let socket = host.udp(7000);
        socket.send_to(b"there and back", "10.0.0.2:7000").unwrap();
        assert!(engine.wait(Some(PATIENCE)).unwrap());
        assert_eq!(engine.recv(&mut burst), Ok(1));
        let packet = burst.iter_mut().next().unwrap();
        let header = packet.header();
        let mut bytes = packet.bytes().to_vec();
        bytes[12..20].rotate_left(4);
        burst.clear();
        assert!(burst.push(&header, &[&bytes]));
        assert!(engine.send(&burst).is_complete(), "{kind:?}");
        let mut buf = [0; 100];
        assert_eq!(socket.recv_from(&mut buf).unwrap().0, 14, "{kind:?}");
    }
}

/// Linux accepts a packet without a protocol, and loses it.
#[test]
fn a_tun_device_is_sent_nothing_without_a_protocol() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let (_host, mut engine, mut burst) = tun(kind, true, HeaderLen::V1);
        assert_eq!(engine.recv(&mut burst), Ok(0));
        assert!(burst.push(&NetHeader::PLAIN, &[&[0x80; 40]]));
        let refused = Refused { index: 0, error: SendError::NotIp };
        assert_eq!(engine.send(&burst).refused, [refused], "{kind:?}");
        let pieces = [IoSlice::new(&[0x80; 40])];
        let outgoing = Outgoing::new(NetHeader::PLAIN, &pieces);
        assert_eq!(engine.send([outgoing]).refused, [refused], "{kind:?}");

        let protocol = EtherType(0x88b5);
        let named = Outgoing::with_protocol(NetHeader::PLAIN, protocol, &pieces);
        assert!(engine.send([named]).is_complete(), "{kind:?}");
        let info = PacketInfo { cut: false, protocol };
        burst.iter_mut().next().unwrap().set_packet_info(info);
        assert!(engine.send(&burst).is_complete(), "{kind:?}");
    }
}

#[test]
fn a_frame_with_a_tag_pushed_goes_out_with_it() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        let mut burst = Burst::default();
        let (header, bytes) = frame(2);
        burst.push(&header, &[&bytes]);
        let mut tagged = burst.iter_mut().next().unwrap();
        let room = tagged.push_front(4).unwrap();
        room.copy_within(4..16, 0);
        room[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
        let mut header = tagged.header();
        header.shift(4);
        tagged.set_header(&header);
        let wanted = [(header, tagged.bytes().to_vec())];
        assert!(cable.from.send(&burst).is_complete());
        assert_same(&cable.receive(), &wanted, &format!("{kind:?}"));
    }
}

#[test]
fn frames_in_pieces_keep_their_place_among_the_others() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        let sent = (0..50).map(|number| frame(4 * number)).collect::<Vec<_>>();
        let mut burst = Burst::default();
        for (header, bytes) in &sent {
            assert!(burst.push(header, &[bytes]));
        }
        // Every third one in parts: 1, 2, 3, and so on.
        let pieces = sent.iter().enumerate().map(|(index, (_, bytes))| {
            bytes.chunks(bytes.len().div_ceil(index / 3 + 1)).map(IoSlice::new).collect::<Vec<_>>()
        });
        let pieces = pieces.collect::<Vec<_>>();
        let outgoing = burst.iter().enumerate().map(|(index, frame)| match index % 3 {
            0 => Outgoing::new(frame.header(), &pieces[index]),
            _ => frame.into(),
        });
        assert!(cable.from.send(outgoing).is_complete());
        assert_same(&cable.receive(), &sent, &format!("{kind:?}"));
    }
}

#[test]
fn a_frame_may_have_1023_pieces_and_no_more() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        let bytes = plain_frame(1024);
        let pieces = bytes.chunks(1).map(IoSlice::new).collect::<Vec<_>>();
        let [all, most] =
            [&pieces[..], &pieces[1..]].map(|parts| Outgoing::new(NetHeader::PLAIN, parts));
        let first = Refused { index: 0, error: SendError::Other { errno: libc::EMSGSIZE } };
        let sent = cable.from.send([all, most]);
        assert_eq!((sent.count, sent.refused, sent.stopped), (1, &[first][..], None), "{kind:?}");
        assert_eq!(all.frame_len(), 1024);
    }
}

#[test]
fn frames_that_are_refused_are_named_and_the_others_sent() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        // With a limited send buffer, io_uring keeps the order in another way.
        for limited in [false, true] {
            let mut from = config("from");
            if limited {
                from = from.send_buffer_len(NonZeroU32::new(1 << 20).unwrap());
            }
            let mut cable = Cable::with([(from, kind), (config("to"), kind)]);
            let sent = (0..100).map(|number| match number % 7 {
                3 => (NetHeader::PLAIN, vec![0; 13]),
                _ => (NetHeader::PLAIN, numbered(number, 60)),
            });
            let sent = sent.collect::<Vec<_>>();
            let bad = (3..100).step_by(7).collect::<Vec<_>>();
            let refused = cable.send_all(&sent);
            let error = SendError::TooShort { len: 12 + 13, least: 12 + 14 };
            let wanted = bad.iter().map(|&index| Refused { index, error });
            assert_eq!(refused, wanted.collect::<Vec<_>>(), "{kind:?}, {limited}");
            let good =
                sent.iter().filter(|(_, bytes)| bytes.len() > 13).cloned().collect::<Vec<_>>();
            assert_same(&cable.receive(), &good, &format!("{kind:?}, {limited}"));
        }
    }
}

#[test]
fn a_full_ring_drops_what_comes_last_and_counts_it() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        cable.host.netlink.set_txqueuelen("to", 100).unwrap();
        let chatter = cable.receive().len();
        assert_eq!(chatter, 0);
        let before = cable.dropped();
        let sent =
            (0..500).map(|number| (NetHeader::PLAIN, numbered(number, 60))).collect::<Vec<_>>();
        cable.send(&sent);
        let received = cable.receive();
        // Frames of the kernel may have taken a few slots.
        assert!((90..=100).contains(&received.len()), "{kind:?}: {}", received.len());
        assert_same(&received, &sent[..received.len()], &format!("{kind:?}"));
        let lost = u64::try_from(sent.len() - received.len()).unwrap();
        assert!(cable.dropped() - before >= lost, "{kind:?}");
    }
}

#[test]
fn a_frame_that_does_not_fit_is_reported_between_its_neighbours() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        cable.receive();
        let sent = [60, 60, 500, 60, 60].map(|len| (NetHeader::PLAIN, numbered(len, len)));
        cable.send(&sent);
        let mut burst = Burst::new(BurstSize::DEFAULT.bytes(0).max_frame_len(100));
        let mut seen = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while seen.len() < 5 {
            assert!(Instant::now() < deadline, "{kind:?}: {seen:?}");
            match cable.to.recv(&mut burst) {
                Ok(_) => {
                    let ours = burst.iter().filter(|frame| is_ours(frame.bytes()));
                    seen.extend(ours.map(|frame| Ok(frame.bytes().len())));
                }
                Err(error) => seen.push(Err(error)),
            }
        }
        let lost = Err(RecvError::Lost { errno: libc::EMSGSIZE });
        assert_eq!(seen, [Ok(60), Ok(60), lost, Ok(60), Ok(60)], "{kind:?}");
    }
}

#[test]
fn an_engine_on_a_device_that_is_down_neither_gives_nor_takes() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        cable.host.netlink.set_down("from").unwrap();
        let frame = numbered(1, 60);
        let parts = [IoSlice::new(&frame)];
        let sent = cable.from.send([Outgoing::new(NetHeader::PLAIN, &parts); 3]);
        let refused = [0, 1, 2].map(|index| Refused { index, error: SendError::Down });
        assert_eq!((sent.count, sent.refused, sent.stopped), (0, &refused[..], None), "{kind:?}");
        // The bridge has sent its multicast reports meanwhile, or will.
        let mut burst = Burst::default();
        cable.from.recv(&mut burst).unwrap();
        assert!(!burst.iter().any(|frame| is_ours(frame.bytes())), "{kind:?}");
        cable.host.netlink.set_up("from").unwrap();
        assert!(cable.from.send([Outgoing::new(NetHeader::PLAIN, &parts)]).is_complete());
    }
}

#[test]
fn before_linux_6_4_io_uring_is_refused_with_the_reason() {
    if !can_tap() || kernel_version() >= (6, 4) {
        return;
    }
    let host = Host::new();
    let queue = one_queue(host.create(&config("tap0")));
    let error = Engine::open(queue, EngineKind::Uring).unwrap_err();
    assert!(matches!(error.source, EngineError::UringBlocks), "{error}");
}

#[test]
fn a_device_that_is_deleted_wakes_whoever_waits_and_is_gone() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        let mut burst = Burst::new(cable.to.burst_size());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                loop {
                    assert!(cable.to.wait(None).unwrap());
                    match cable.to.recv(&mut burst) {
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                }
            });
            cable.host.netlink.delete("to").unwrap();
            assert_eq!(waiting.join().unwrap(), RecvError::Gone, "{kind:?}");
        });
        assert_eq!(cable.to.recv(&mut burst), Err(RecvError::Gone), "{kind:?}: for good");
        burst.clear();
        burst.push(&NetHeader::PLAIN, &[&numbered(1, 60)]);
        burst.push(&NetHeader::PLAIN, &[&numbered(2, 60)]);
        let sent = cable.to.send(&burst);
        let stopped = Some(Refused { index: 0, error: SendError::Gone });
        assert_eq!((sent.count, sent.refused, sent.stopped), (0, &[][..], stopped), "{kind:?}");
    }
}

#[test]
fn waiting_ends_with_a_frame_or_with_the_time() {
    if !can_tap() {
        return;
    }
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        let deadline = Instant::now() + PATIENCE;
        // Frames of the kernel end at some time.
        while cable.to.wait(Some(Duration::from_millis(200))).unwrap() {
            assert!(Instant::now() < deadline, "{kind:?} never rests");
            cable.receive();
        }
        cable.send(&[(NetHeader::PLAIN, numbered(1, 60))]);
        assert!(cable.to.wait(Some(PATIENCE)).unwrap(), "{kind:?}");
        assert_eq!(cable.receive().len(), 1, "{kind:?}");
    }
}

#[test]
fn without_io_uring_the_queue_comes_back_unharmed_with_the_reason() {
    if !can_tap() {
        return;
    }
    for (errno, wanted) in
        [(libc::EPERM, "kernel.io_uring_disabled"), (libc::ENOSYS, "not available")]
    {
        let host = Host::new();
        let queue = one_queue(host.create(&config("tap0")));
        let refused = thread::scope(|scope| {
            let open = scope.spawn(|| {
                forbid(libc::SYS_io_uring_setup, errno);
                Engine::open(queue, EngineKind::Uring).map(|engine| engine.kind())
            });
            open.join().unwrap().unwrap_err()
        });
        assert!(refused.to_string().contains(wanted), "{refused}");
        let engine = Engine::open(refused.queue, EngineKind::Auto).unwrap();
        assert_eq!(engine.kind(), EngineKind::Drain);
    }
}

#[test]
fn when_io_uring_is_taken_away_frames_pass_all_the_same() {
    if !can_tap() || !kinds().contains(&EngineKind::Uring) {
        return;
    }
    let mut cable = Cable::new(EngineKind::Uring, EngineKind::Uring);
    let sent = (0..300).map(|number| (NetHeader::PLAIN, numbered(number, 60))).collect::<Vec<_>>();
    cable.send(&sent[..100]);
    let mut received = cable.receive();
    thread::scope(|scope| {
        scope.spawn(|| {
            forbid(libc::SYS_io_uring_enter, libc::ENOMEM);
            for some in sent[100..].chunks(40) {
                cable.send(some);
                received.extend(cable.receive());
            }
        });
    });
    assert_same(&received, &sent, "without a ring");
}
