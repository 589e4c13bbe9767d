//! Tests with packets whose headers are inconsistent. A switch forwards frames: their content
//! behind the addresses does not matter, unless the frame has to be cut or completed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a panic fails a test; test data"
)]

use crate::common::*;
use crate::vm::*;
use tapswitch_openflow::{Body, GroupModCommand};
use tapswitch_switch::Gro;
use tapswitch_vhost::Features;
use tapswitch_wire::checksum::{Sum, pseudo_header_v4};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, write_u16, write_u32};

/// Offset of the headers.
const IP: usize = 14;
const UPPER: usize = IP + 20;

/// A guest behind port 1 that sends to one behind port 2, and a monitor behind port 3.
struct Scene {
    room: Room,
    guests: Vec<Vm>,
}

impl Scene {
    /// The sender may use offloads; the receivers take only complete packets.
    fn new() -> Self {
        let room = Room::new(3, ",stall=10000");
        let sends = split() | Features::CSUM | Features::HOST_TSO4;
        let guests = [(1, sends), (2, split()), (3, split())];
        let guests = guests.map(|(number, features)| room.guest(number, features)).into();
        let buckets = vec![vec![output(2)], vec![output(3)]];
        let group = group_all(GroupModCommand::Add, 1, buckets);
        let tapped = Body::FlowMod(rule(1, in_port(1), vec![to_group(1)]));
        room.switch.controller().apply(vec![group, tapped]);
        Self { room, guests }
    }

    /// Sends a frame when there is room for it.
    fn send(&mut self, header: &NetHeader, frame: &[u8]) {
        let sender = &mut self.guests[0];
        until("room in the ring", || sender.try_send_with(header, frame));
    }

    /// The next frame, which must be the same at both receivers.
    fn receive(&mut self) -> Vec<u8> {
        let [_, receiver, monitor] = &mut self.guests[..] else { panic!() };
        let frame = receiver.receive();
        assert!(monitor.receive() == frame, "the copy is another");
        frame
    }
}

#[test]
fn packets_that_contradict_themselves_are_forwarded_as_they_came() {
    let mut scene = Scene::new();
    let mut frames = Vec::new();
    for protocol in [6, 17] {
        let sound = packet(protocol, 400);
        for broken in contradictions(&sound).into_iter().chain(fragments(&sound)) {
            frames.extend([sound.clone(), broken, sound.clone()]);
        }
    }
    frames.extend(ipv6_contradictions());
    for frame in &frames {
        scene.send(&NetHeader::PLAIN, frame);
        assert!(scene.receive() == *frame, "not as it came: {frame:02x?}");
    }
    // And in bursts, so that the next ones are there when one is processed.
    for burst in frames.chunks(BURST) {
        burst.iter().for_each(|frame| scene.send(&NetHeader::PLAIN, frame));
        burst.iter().for_each(|frame| assert!(scene.receive() == *frame, "{frame:02x?}"));
    }
    assert!(!has_dropped(&scene.room.switch.ports()));
}

/// The same between valid packets that are coalesced, and cut again for receivers without offloads.
#[test]
fn packets_that_contradict_themselves_are_in_no_train() {
    if !can_run() {
        return;
    }
    let lab = Lab::with(2, |config| {
        config.ports[0].gro = Gro::On;
        (config.ports[1].offload, config.ports[1].gro) = (false, Gro::Off);
    });
    lab.switch.controller().apply(join(1, 2));
    let [from, to] = [1, 2].map(|host| Capture::open(lab.host(host)));
    let coalesced = || lab.switch.workers().iter().map(|worker| worker.coalesced).sum::<u64>();
    for protocol in [6, 17] {
        let (sound, frames) = stream_with_contradictions(protocol);
        let (before, mut expected) = (coalesced(), frames.clone());
        expected.sort();
        until("some were joined", || {
            frames.iter().for_each(|frame| from.send(&NetHeader::PLAIN, frame));
            let receive = |_| to.receive(|frame| frame.starts_with(&sound[0][..12]));
            let received: Vec<_> = (0..frames.len()).map(receive).collect();
            assert!(received.iter().all(|(header, _)| *header == NetHeader::PLAIN));
            let mut received: Vec<_> = received.into_iter().map(|(_, frame)| frame).collect();
            let in_order: Vec<_> = received.iter().filter(|frame| sound.contains(frame)).collect();
            assert!(in_order.into_iter().eq(&sound), "the stream is in order");
            received.sort();
            assert!(received == expected, "not as they came");
            coalesced() > before
        });
    }
    assert!(!has_dropped(&lab.switch.ports()));
}

/// A stream of valid packets, any two of which could be joined; and the same with an inconsistent
/// packet after every third of them.
fn stream_with_contradictions(protocol: u8) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut sound, mut frames) = (Vec::new(), Vec::new());
    let first = finished(protocol, 0);
    let broken = contradictions(&first).into_iter().chain(fragments(&first));
    // Some modifications change nothing.
    for broken in broken.filter(|broken| *broken != first) {
        let next = sound.len() as u16;
        let packets = [0, 1, 2].map(|index| finished(protocol, next + index));
        frames.extend(packets.iter().cloned().chain([broken]));
        sound.extend(packets);
    }
    (sound, frames)
}

/// The packet of a stream at `index`, with checksums.
fn finished(protocol: u8, index: u16) -> Vec<u8> {
    const LEN: usize = 400;
    let mut frame = packet(protocol, LEN);
    write_u16(&mut frame, IP + 4, index);
    let sum = Sum::of(&frame[IP..UPPER]).checksum();
    write_u16(&mut frame, IP + 10, sum);
    let field = match protocol {
        6 => {
            write_u32(&mut frame, UPPER + 4, u32::from(index) * LEN as u32);
            UPPER + 16
        }
        _ => UPPER + 6,
    };
    let len = (frame.len() - UPPER) as u16;
    let pseudo_header = pseudo_header_v4(&frame[26..30], &frame[30..34], protocol, len);
    let sum = pseudo_header.add_bytes(&frame[UPPER..]).checksum();
    write_u16(&mut frame, field, sum);
    frame
}

/// Neither receiver takes trains, so they are cut; those that cannot be are dropped by name.
#[test]
fn trains_that_contradict_themselves_are_cut_or_dropped_by_name() {
    let mut scene = Scene::new();
    let train = packet(6, 2000 - UPPER - 20);
    let header = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: UPPER as u16 + 20,
        gso_size: 600,
        csum_start: UPPER as u16,
        csum_offset: 16,
    };
    // Lengths in a train's headers are replaced by those of each packet.
    for length in [0_u16, 19, 40, 1500, u16::MAX] {
        let mut frame = train.clone();
        frame[IP + 2..IP + 4].copy_from_slice(&length.to_be_bytes());
        scene.send(&header, &frame);
        let payload: Vec<u8> = (0..4).flat_map(|_| checked(&scene.receive()).to_vec()).collect();
        assert!(payload == train[UPPER + 20..], "other bytes arrived");
    }
    let mut broken: Vec<Vec<u8>> = fragments(&train);
    broken.extend([(IP, 0x44), (IP, 0x65), (IP + 9, 17), (UPPER + 12, 0x40)].map(|change| {
        let mut frame = train.clone();
        frame[change.0] = change.1;
        frame
    }));
    let mut count = 0;
    for frame in &broken {
        scene.send(&header, frame);
        count += 1;
    }
    // Partial checksums at invalid offsets.
    for (csum_start, csum_offset) in [(34, 2000), (2000, 16), (u16::MAX, u16::MAX)] {
        let flags = NetHeaderFlags::NEEDS_CSUM;
        let lie = NetHeader { flags, csum_start, csum_offset, ..NetHeader::default() };
        scene.send(&lie, &packet(6, 400));
        count += 1;
    }
    let sound = packet(17, 100);
    scene.send(&NetHeader::PLAIN, &sound);
    assert!(scene.receive() == sound, "one of those before it has arrived");
    until("each is dropped under a name", || {
        let switch = &scene.room.switch;
        let at = |port| switch.drops(port, "cannot_segment") + switch.drops(1, "bad_metadata");
        at(2) == count && at(3) == count
    });
}

/// An IPv4 packet with TCP or UDP of this length, without checksums.
fn packet(protocol: u8, len: usize) -> Vec<u8> {
    let upper_len = if protocol == 6 { 20 } else { 8 };
    let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &[0x45, 0]].concat();
    frame.extend(((20 + upper_len + len) as u16).to_be_bytes());
    frame.extend([0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0]);
    match protocol {
        6 => frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]),
        _ => frame.extend([((8 + len) as u16).to_be_bytes(), [0, 0]].concat()),
    }
    frame.extend((0..len).map(|index| (index % 251) as u8));
    frame
}

/// Invalid versions, lengths and offsets.
fn contradictions(sound: &[u8]) -> Vec<Vec<u8>> {
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = sound.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut frames: Vec<_> = [0x40, 0x44, 0x4f, 0x55, 0x65].map(|byte| with(IP, &[byte])).into();
    for length in [0_u16, 10, 19, 20, 27, 60, 2000, u16::MAX] {
        frames.push(with(IP + 2, &length.to_be_bytes()));
        // In UDP the length, in TCP a part of the sequence number.
        frames.push(with(UPPER + 4, &length.to_be_bytes()));
    }
    // TCP header lengths below the minimum, or beyond the packet; in UDP, payload.
    frames.extend([0x00, 0x40, 0xf0].map(|byte| with(UPPER + 12, &[byte])));
    // Truncated anywhere in the headers.
    frames.extend((IP..UPPER + 20).map(|len| sound[..len].to_vec()));
    frames
}

/// Fragments that overlap, that end beyond the longest packet, and whose first is too short for the
/// header it begins.
fn fragments(sound: &[u8]) -> Vec<Vec<u8>> {
    let more = 0x2000;
    let fields = [more, more | 1, more | 2, 1, 2, 3, 0x1fff, more | 0x1fff, 0x8000 | more, 0xffff];
    let fragment = |field: u16| {
        let mut frame = sound.to_vec();
        frame[IP + 6..IP + 8].copy_from_slice(&field.to_be_bytes());
        frame
    };
    let mut frames: Vec<_> = fields.into_iter().map(fragment).collect();
    frames.push(fragment(more)[..UPPER + 8].to_vec());
    frames
}

/// The same for IPv6: lengths, and extension headers that lead nowhere.
fn ipv6_contradictions() -> Vec<Vec<u8>> {
    let frame = |length: u16, next: u8, rest: &[u8]| {
        let head = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0][..]].concat();
        let fixed = [&length.to_be_bytes()[..], &[next, 64], &[0xfd; 16], &[0xfe; 16]].concat();
        [&head[..], &fixed, rest].concat()
    };
    let udp = [0x10, 0, 0x20, 0, 0, 60, 0, 0];
    let body = [&udp[..], &[7; 52]].concat();
    let mut frames: Vec<_> =
        [0_u16, 7, 59, 61, u16::MAX].map(|length| frame(length, 17, &body)).into();
    // Hop-by-hop, routing, destination options and authentication, longer than the packet.
    frames.extend([0, 43, 60, 51].map(|next| frame(60, next, &[&[17, 255], &body[2..]].concat())));
    // Fragments: the first, two that overlap it, and the last possible one.
    for field in [0x0001_u16, 0x0009, 0x0008, 0xfff8] {
        let header = [&[17, 0][..], &field.to_be_bytes(), &[0, 0, 0, 9]].concat();
        frames.push(frame(68, 44, &[&header[..], &body].concat()));
    }
    frames
}

/// The payload of a TCP packet, whose lengths and header checksum are checked.
fn checked(frame: &[u8]) -> &[u8] {
    let length = u16::from_be_bytes(frame[IP + 2..IP + 4].try_into().unwrap());
    assert_eq!(usize::from(length), frame.len() - IP, "{frame:02x?}");
    let sum = tapswitch_wire::checksum::Sum::of(&frame[IP..UPPER]);
    assert!(sum.is_valid(), "{frame:02x?}");
    &frame[UPPER + 20..]
}

/// Frames that are sent at once: fewer than a ring holds.
const BURST: usize = 8;
