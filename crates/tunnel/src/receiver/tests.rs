//! Frames over the loopback interface, with the kernel's own segmentation and coalescing.

use std::io::IoSlice;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_helpers::cases;

use super::*;
use crate::segments::SINGLY_COUNT;
use crate::{Config, OpenError, SendError, Vni, header};

/// Two ends on 127/8, which need no privilege.
struct Pair {
    port: u16,
    near: Arc<VxlanPort>,
    far: Receiver,
}

impl Pair {
    fn new() -> Self {
        Self::with(|config| config)
    }

    fn with(options: impl Fn(Config) -> Config) -> Self {
        let open = |port, local: u8, remote: u8| {
            let config = Config::new([127, 0, 0, remote].into(), vni(7)).port(port);
            VxlanPort::open(&options(config.local(Some([127, 0, 0, local].into()))))
        };
        let (port, [near, far]) = on_free_port(|port| Ok([open(port, 2, 3)?, open(port, 3, 2)?]));
        Self { port, near: Arc::new(near), far: Receiver::new(Arc::new(far)) }
    }

    /// The next `count` frames, taken as a worker does: `limit` in sequence, each of which begins
    /// within `reach` bytes. Each batch is overwritten before the next one.
    fn take(&mut self, count: usize, limit: usize, reach: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut buf = vec![0; reach + HEADROOM + RECV_BUF_LEN];
        while frames.len() < count {
            let mut fds = [PollFd::new(self.far.port(), PollFlags::IN)];
            let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
            assert!(
                self.far.pending() > 0 || poll(&mut fds, Some(&patience)).unwrap() > 0,
                "nothing comes"
            );
            frames.extend(self.batch(&mut buf, limit, reach));
            buf.fill(0xee);
        }
        assert_eq!(frames.len(), count);
        frames
    }

    fn batch(&mut self, buf: &mut [u8], limit: usize, reach: usize) -> Vec<Vec<u8>> {
        let (mut places, mut begin) = (Vec::new(), 0);
        while places.len() < limit && (begin < reach || begin == 0) {
            let room = Room { count: limit - places.len(), reach: reach - begin };
            let Some(frame) = self.far.recv(&mut buf[begin..], HEADROOM, room).unwrap() else {
                break;
            };
            assert!(frame.start >= HEADROOM);
            places.push(begin + frame.start..begin + frame.end);
            begin += frame.end.next_multiple_of(SLOT_ALIGN);
        }
        places.into_iter().map(|place| buf[place].to_vec()).collect()
    }
}

const HEADROOM: usize = 64;

fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

/// Opens something on a free UDP port, and returns the port. If the port is taken between choice
/// and use, or on another address, tries another one.
fn on_free_port<T>(open: impl Fn(u16) -> Result<T, OpenError>) -> (u16, T) {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        drop(socket);
        match open(port) {
            Err(OpenError::InUse { .. }) => {}
            opened => return (port, opened.unwrap()),
        }
    }
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(7) ^ number).to_le_bytes()[0]).collect()
}

fn send_all(port: &VxlanPort, frames: &[Vec<u8>]) -> Result<(), (usize, SendError)> {
    let cut = |frame: &'_ Vec<u8>| -> [(usize, usize); 3] {
        let a = frame.len().min(20);
        let b = (a + frame.len()) / 2;
        [(0, a), (a, b), (b, frame.len())]
    };
    let packets: Vec<_> = frames
        .iter()
        .map(|frame| cut(frame).map(|(from, to)| IoSlice::new(&frame[from..to])))
        .collect();
    port.send_packets(1, &packets)
}

#[test]
fn a_train_crosses_in_one_call_at_each_end_and_nothing_is_copied() {
    let mut pair = Pair::new();
    let train: Vec<_> = (0..44).map(|at| frame(at, if at < 43 { 1450 } else { 99 })).collect();
    send_all(&pair.near, &train).unwrap();
    assert!(pair.take(44, 64, 72_000) == train);
    // The length is now known, so all are received in place.
    pair.far.spill.fill(0);
    send_all(&pair.near, &train).unwrap();
    assert!(pair.take(44, 64, 72_000) == train);
    assert!(pair.far.spill.iter().all(|byte| *byte == 0));
    let (near, far) = (pair.near.counters(), pair.far.port().counters());
    assert_eq!((near.send_calls, near.sent), (2, 88));
    assert_eq!((far.receive_calls, far.received), (2, 88));
}

#[test]
fn without_checksum_datagrams_go_singly() {
    let mut pair = Pair::with(|config| config.checksum(false));
    let train: Vec<_> = (0..40).map(|at| frame(at, 500)).collect();
    send_all(&pair.near, &train).unwrap();
    assert!(pair.take(40, 16, 8192) == train);
    assert!(!pair.near.sends_segments());
    assert_eq!(pair.far.port().counters().receive_calls, 40);
}

/// A route temporarily uses a device without checksums.
#[test]
fn a_kernel_that_refuses_segments_is_asked_again_after_a_while() {
    let mut pair = Pair::new();
    let near = pair.near.clone();
    let set_checksum = |is_on| {
        near.senders().for_each(|fd| socket::set_checksum(fd, is_on).unwrap());
    };
    let pass = |pair: &mut Pair| {
        let train: Vec<_> = (0..4).map(|at| frame(at, 500)).collect();
        send_all(&pair.near, &train).unwrap();
        assert!(pair.take(4, 64, 72_000) == train);
        pair.near.sends_segments()
    };
    set_checksum(false);
    assert!(!pass(&mut pair));
    set_checksum(true);
    let trains = (1..=2 * SINGLY_COUNT).find(|_| pass(&mut pair));
    assert_eq!(trains, Some(SINGLY_COUNT));
    let calls = pair.near.counters().send_calls;
    assert!(pass(&mut pair));
    assert_eq!(pair.near.counters().send_calls, calls + 1);
}

#[test]
fn what_is_not_ours_is_counted_and_left_out() {
    let mut pair = Pair::new();
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    let to = ("127.0.0.3", pair.port);
    let good = frame(1, 60);
    let datagram = |vni| [&header(vni)[..], &good].concat();
    let mut flagless = datagram(vni(7));
    flagless[0] = 0;
    for bytes in [&[][..], &[8; 21], &flagless, &datagram(vni(8)), &datagram(vni(7))] {
        stranger.send_to(bytes, to).unwrap();
    }
    // From another address: the socket is connected to one remote.
    UdpSocket::bind("127.0.0.9:0").unwrap().send_to(&datagram(vni(7)), to).unwrap_or(0);
    assert!(pair.take(1, 4, 4096) == [good]);
    let mut buf = vec![0; HEADROOM + RECV_BUF_LEN];
    assert_eq!(pair.far.recv(&mut buf, HEADROOM, Room::ONE), Ok(None));
    let counters = pair.far.port().counters();
    assert_eq!((counters.runt, counters.malformed, counters.foreign), (2, 1, 1));
    assert_eq!(counters.received, 5);
}

/// An IPv4 packet with this type of service, and a valid checksum.
fn packet(class: u8) -> Vec<u8> {
    let mut frame = frame(3, 200);
    frame[12..34].copy_from_slice(&[
        8, 0, 0x45, class, 0, 186, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    let sum = tapswitch_wire::checksum::Sum::default().add_bytes(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Frames of one length in one call, with this outer class, whatever the inner one is.
fn send_as_routers_do(port: &VxlanPort, frames: &[Vec<u8>], class: u8) {
    let header = header(vni(7));
    let parts: Vec<_> = frames.iter().flat_map(|it| [&header[..], it].map(IoSlice::new)).collect();
    let (stride, control) = (8 + frames[0].len(), socket::class_control(port.remote(), class));
    let stride = u16::try_from(stride).unwrap();
    socket::send_segments(port.sender(1), &parts, stride, &control).unwrap();
}

#[test]
fn what_routers_mark_is_marked_inside() {
    for class in [0, 1, 2, 3] {
        let mut pair = Pair::new();
        let arp = [&packet(0)[..12], &[8, 6][..], &[0; 186]].concat();
        let sent = [packet(0xb8), packet(0xba), arp.clone(), packet(0xbb), packet(0xb9)];
        send_as_routers_do(&pair.near, &sent, class);
        let marked = vec![packet(0xbb), arp.clone(), packet(0xbb), packet(0xbb)];
        let lesser = vec![packet(0xb8), packet(0xb9), arp.clone(), packet(0xbb), packet(0xb9)];
        let expected = match class {
            1 => lesser,
            3 => marked,
            _ => sent.to_vec(),
        };
        assert!(pair.take(expected.len(), 4, 4096) == expected, "{class}");
        assert_eq!(pair.far.port().counters().congested, u64::from(class == 3));
    }
}

#[test]
fn marks_over_ipv6_are_seen() {
    let (port, near) = port_on_ipv6();
    send_as_routers_do(&near, &[packet(0), packet(2)], 3);
    let mut pair = Pair { port, near: near.clone(), far: Receiver::new(near) };
    assert!(pair.take(1, 4, 4096) == [packet(3)]);
    assert_eq!(pair.far.port().counters().congested, 1);
}

/// A port that is its own remote, and its UDP port.
fn port_on_ipv6() -> (u16, Arc<VxlanPort>) {
    let remote = std::net::Ipv6Addr::LOCALHOST.into();
    let (port, opened) =
        on_free_port(|port| VxlanPort::open(&Config::new(remote, vni(7)).port(port)));
    (port, Arc::new(opened))
}

/// The sending and the receiving port.
fn ends(is_v6: bool) -> (Arc<VxlanPort>, Arc<VxlanPort>) {
    if is_v6 {
        let (_, port) = port_on_ipv6();
        return (port.clone(), port);
    }
    let Pair { near, far, .. } = Pair::new();
    (near, far.port().clone())
}

/// The frames of the next `count` datagrams unchanged, and the outer class of each.
fn take_raw(port: &VxlanPort, count: usize) -> Vec<(u8, Vec<u8>)> {
    let (mut taken, mut buf) = (Vec::new(), vec![0; RECV_BUF_LEN]);
    while taken.len() < count {
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        assert!(poll(&mut [PollFd::new(port, PollFlags::IN)], Some(&patience)).unwrap() > 0);
        let message = socket::recv(port, &mut [IoSliceMut::new(&mut buf)]).unwrap();
        let stride = message.stride.unwrap_or(message.len);
        let datagrams = buf[..message.len].chunks(stride);
        taken.extend(datagrams.map(|it| (message.class, it[HEADER_LEN..].to_vec())));
    }
    taken
}

#[test]
fn packets_of_one_ecn_field_go_together() {
    let pair = Pair::new();
    let train = |class, count| vec![packet(class); count];
    send_all(&pair.near, &train(2, 40)).unwrap();
    assert_eq!(pair.near.counters().send_calls, 1);
    let mixed = [train(2, 5), train(3, 1), train(0xb8, 7), train(0, 7)].concat();
    send_all(&pair.near, &mixed).unwrap();
    assert_eq!(pair.near.counters().send_calls, 4, "the DSCP stays inside");
    let arrived = take_raw(pair.far.port(), 60);
    let expected = [train(2, 40), mixed].concat();
    assert!(arrived.into_iter().zip(expected).all(|(it, sent)| it == (sent[15] & 3, sent)));
}

#[test]
fn a_call_of_the_callers_own_gets_what_says_it_outside() {
    for (near, far) in [false, true].map(ends) {
        for class in 0..4 {
            let frame = packet(class);
            near.send_by(1, &frame[..20], |fd, header, control| {
                assert_eq!(control.is_empty(), class == 0);
                socket::send(fd, &[&header[..], &frame].map(IoSlice::new), control)
            })
            .unwrap();
            assert!(take_raw(&far, 1) == [(class, frame)], "{class}");
        }
    }
}

/// Waits until a condition holds.
fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "it takes too long");
        std::thread::yield_now();
    }
}

#[test]
fn each_error_from_afar_is_counted() {
    let Pair { near, far, .. } = Pair::new();
    drop(far);
    let one = frame(1, 100);
    for _ in 0..5 {
        near.send(0, &[IoSlice::new(&one)]).unwrap();
        // So that no call reports it before all errors are queued.
        until(|| {
            rustix::net::sockopt::socket_error(near.senders().next().unwrap()).unwrap().is_err()
        });
    }
    assert_eq!(near.counters().unreachable, 0);
    // The call that an error is returned to reports all of them.
    let mut sent = 5;
    until(|| {
        near.send(0, &[IoSlice::new(&one)]).unwrap();
        sent += 1;
        near.counters().unreachable > 0
    });
    let told = near.counters().unreachable;
    assert!((6..sent).contains(&told), "{told} of {sent}");
}

#[test]
fn ports_with_one_udp_port_are_told_apart_by_their_remotes() {
    let open = |port, local: u8, remote: u8| {
        let config = Config::new([127, 0, 0, remote].into(), vni(7)).port(port);
        VxlanPort::open(&config.local(Some([127, 0, 0, local].into()))).map(Arc::new)
    };
    let (_, (mut hub, spokes)) = on_free_port(|port| {
        let hub: Result<Vec<_>, _> =
            (2..6).map(|remote| Ok(Receiver::new(open(port, 1, remote)?))).collect();
        let spokes: Result<Vec<_>, _> = (2..6).map(|local| open(port, local, 1)).collect();
        Ok((hub?, spokes?))
    });
    let mut buf = vec![0; HEADROOM + RECV_BUF_LEN];
    for (number, spoke) in spokes.iter().enumerate() {
        spoke.send(0, &[IoSlice::new(&frame(number, 100))]).unwrap();
    }
    for (number, receiver) in hub.iter_mut().enumerate() {
        let mut fds = [PollFd::new(receiver.port(), PollFlags::IN)];
        assert!(poll(&mut fds, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap() > 0);
        let place = receiver.recv(&mut buf, HEADROOM, Room::ONE).unwrap().unwrap();
        assert!(buf[place] == frame(number, 100), "remote {number}");
        assert_eq!(receiver.recv(&mut buf, HEADROOM, Room::ONE), Ok(None));
    }
}

#[test]
fn a_remote_where_nobody_listens_is_counted_and_stops_nothing() {
    let mut pair = Pair::new();
    let far = pair.far.port().clone();
    let config = Config::new([127, 0, 0, 2].into(), vni(7)).port(pair.port);
    drop(std::mem::replace(&mut pair.far, Receiver::new(pair.near.clone())));
    drop(far);
    // Each reply usually arrives before the next datagram is sent, and a number of them suffices
    // even if not.
    let one = frame(1, 100);
    for _ in 0..100 {
        match pair.near.send(0, &[IoSlice::new(&one)]) {
            Ok(()) | Err(SendError::Unreachable { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(pair.near.counters().unreachable > 0);
    let far = VxlanPort::open(&config.local(Some([127, 0, 0, 3].into()))).unwrap();
    pair.far = Receiver::new(Arc::new(far));
    pair.near.send(0, &[IoSlice::new(&one)]).unwrap();
    assert!(pair.take(1, 1, 0) == [one]);
}

#[test]
fn a_caller_that_goes_elsewhere_is_told() {
    let mut pair = Pair::new();
    let train: Vec<_> = (0..4).map(|at| frame(at, 1000)).collect();
    send_all(&pair.near, &train).unwrap();
    pair.take(4, 64, 72_000);
    send_all(&pair.near, &train).unwrap();
    let mut buf = vec![0; 72_000 + HEADROOM + RECV_BUF_LEN];
    let room = Room { count: 64, reach: 72_000 };
    assert!(pair.far.recv(&mut buf, HEADROOM, room).unwrap().is_some());
    assert_eq!(pair.far.recv(&mut buf, HEADROOM, room), Err(RecvError::Misplaced));
    send_all(&pair.near, &train).unwrap();
    assert!(pair.take(4, 64, 72_000) == train, "and it goes on");
    assert_eq!(pair.far.recv(&mut buf[..100], HEADROOM, room), Err(RecvError::Misplaced));
}

#[test]
fn errors_of_opening_name_the_remedy() {
    let open = |remote: &str, local: Option<&str>, port| {
        let config = Config::new(remote.parse().unwrap(), vni(1)).port(port);
        let config = config.local(local.map(|local| local.parse().unwrap()));
        VxlanPort::open(&config).unwrap_err().to_string()
    };
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    assert!(open("127.0.0.2", Some("127.0.0.1"), port).contains("set another with port="));
    assert!(open("127.0.0.2", Some("192.0.2.1"), 4789).contains("`ip address` lists"));
    assert!(open("127.0.0.2", Some("::1"), 4789).contains("another IP version"));
    assert!(open("224.0.0.1", None, 4789).contains("address of a host"));
    assert!(open("fe80::1", None, 4789).contains("give a routable one"));
    assert!(open("::ffff:127.0.0.1", None, 4789).contains("write it as IPv4"));
}

#[test]
fn buffers_are_as_large_as_asked_for_where_that_is_allowed() {
    let pair = Pair::new();
    let len = pair.near.receive_buffer_len().unwrap();
    let cap: usize =
        std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    assert!(len >= (2 * cap).min(8 << 20), "{len}");
    let shares = |port: &VxlanPort| {
        let share = |fd| rustix::net::sockopt::socket_send_buffer_size(fd).unwrap();
        port.senders().map(share).collect::<Vec<_>>()
    };
    pair.near.set_send_buffer_len(256 << 10).unwrap();
    assert_eq!(shares(&pair.near), [128 << 10; 4], "together what was asked for, doubled");
    let pair = Pair::with(|config| config.send_buffer_len(512 << 10));
    assert_eq!(shares(&pair.near), [256 << 10; 4]);
    assert_eq!(pair.near.path_mtu().unwrap(), 65_535);
    assert_eq!(pair.near.local().to_string(), format!("127.0.0.2:{}", pair.port));
}

/// A frame after `tags` tags with this class, of IPv4, IPv6 or neither.
fn tagged_packet(kind: usize, tags: usize, class: u8, len: usize) -> Vec<u8> {
    let start: [&[u8]; 3] =
        [&[8, 0, 0x45, class], &[0x86, 0xdd, 0x60 | class >> 4, class << 4], &[8, 6, 0, class]];
    let tag = [0x81, 0, 0, 5].repeat(tags);
    [&[2; 12][..], &tag, start[kind], &vec![7; len]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    /// RFC 6040 §4.1, normal mode, for any frames, single and batched, over both IP versions.
    #[test]
    fn what_frames_say_of_congestion_is_said_outside(
        packets in prop::collection::vec((0..3usize, 0..3usize, any::<u8>(), 40..300usize), 1..40),
        is_v6 in any::<bool>(),
        is_single in any::<bool>(),
    ) {
        let (near, far) = ends(is_v6);
        let fields: Vec<_> =
            packets.iter().map(|it| if it.0 == 2 { 0 } else { it.2 & 3 }).collect();
        let frames: Vec<_> = packets
            .into_iter()
            .map(|(kind, tags, class, len)| tagged_packet(kind, tags, class, len))
            .collect();
        if is_single {
            for frame in &frames {
                near.send(1, &[&frame[..30], &frame[30..]].map(IoSlice::new)).unwrap();
            }
        } else {
            let parts: Vec<_> = frames
                .iter()
                .map(|it| [&it[..30], &it[30..35], &it[35..]].map(IoSlice::new))
                .collect();
            near.send_packets(1, &parts).unwrap();
        }
        let expected: Vec<_> = fields.into_iter().zip(frames).collect();
        prop_assert!(take_raw(&far, expected.len()) == expected);
    }

    /// For any lengths, and any number of frames taken together.
    #[test]
    fn frames_arrive_as_they_were_sent(
        trains in prop::collection::vec((1..50usize, 14..1500usize, 14..1500usize), 1..6),
        limit in 1..70usize,
        reach in 0..80_000usize,
    ) {
        let mut pair = Pair::new();
        let mut number = 0;
        for (count, len, last) in trains {
            let lens = (1..count).map(|_| len).chain([last.min(len)]);
            let train: Vec<_> = lens.map(|len| { number += 1; frame(number, len) }).collect();
            send_all(&pair.near, &train).unwrap();
            prop_assert!(pair.take(train.len(), limit, reach) == train);
        }
    }
}
