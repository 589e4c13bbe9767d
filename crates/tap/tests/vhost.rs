//! The vhost-net engine moves the same frames as the default one, loses no frame and no wake-up,
//! and leaves nothing behind. Needs `/dev/vhost-net`, so most of it runs on Linux 7.3 in a guest.
#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails fails the test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::io::IoSlice;
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_guest::{Rig, Series};
use tapswitch_netdev::{HEADROOM_MIN, PacketPort};
use tapswitch_tap::{
    Burst, BurstSize, Device, Engine, EngineError, EngineKind, GsoType, HeaderLen, Kind, NetHeader,
    NetHeaderFlags, Outgoing, Queue, RecvError, SendError, Vhost, VhostConfig, VhostError,
};
use tapswitch_wire::MacAddr;
use tapswitch_wire::checksum::Sum;

mod common;
use common::{Host, PATIENCE, can_tap, config, eventually, knows_udp_trains, skip};

/// The newest kernel, whose worker is a thread of the process, and an older one.
const KERNELS: [Series; 2] = [Series::V7_3, Series::V6_1];

#[test]
fn on_the_host_too() {
    if !is_host() {
        return;
    }
    if !Path::new("/dev/vhost-net").exists() {
        skip("no /dev/vhost-net on the host: the vhost-net engine is tested in a guest alone");
        return;
    }
    both_engines_receive_the_same();
    both_engines_send_the_same();
}

#[test]
fn without_the_module_the_error_says_so_and_the_queue_is_unharmed() {
    if !is_host() {
        return;
    }
    if Path::new("/dev/vhost-net").exists() {
        skip("there is a /dev/vhost-net");
        return;
    }
    let mut line = Line::new();
    let error = Engine::open(line.queue(), EngineKind::Vhost).unwrap_err();
    let EngineError::Vhost(VhostError::Missing { .. }) = error.source else {
        panic!("{error}");
    };
    assert!(error.to_string().contains("modprobe vhost_net"), "{error}");
    let mut drain = Engine::open(error.queue, EngineKind::Drain).unwrap();
    line.send(&frames()[..1]);
    assert_eq!(line.receive(&mut drain, 1), frames()[..1]);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    if !is_host() {
        return;
    }
    let size = VhostConfig::DEFAULT;
    for wrong in [
        size.receive_buffers(32),
        size.receive_buffers(1000),
        size.send_frames(0),
        size.send_bytes(65_536),
        size.send_bytes(1 << 30),
    ] {
        let error = Vhost::open(Line::new().queue(), wrong).unwrap_err();
        assert!(matches!(error.source, EngineError::Vhost(VhostError::Config { .. })), "{error}");
    }
}

#[test]
fn a_queue_with_another_header_is_refused_unharmed() {
    if !is_host() {
        return;
    }
    let tunnel = config("tap0").net_header(HeaderLen::Tunnel);
    let with_info = config("tap0").packet_info(true);
    for config in [tunnel, with_info] {
        let queue = Host::new().create(&config).into_queues().remove(0);
        let error = Vhost::open(queue, VhostConfig::DEFAULT).unwrap_err();
        assert!(matches!(error.source, EngineError::Vhost(VhostError::Layout { .. })), "{error}");
        assert_eq!(error.queue.send(&[0; 100]), Err(SendError::Down), "it works");
    }
}

#[test]
fn both_engines_receive_the_same_frames() {
    in_guests(both_engines_receive_the_same);
}

fn both_engines_receive_the_same() {
    let received = [EngineKind::Drain, EngineKind::Vhost].map(|kind| {
        let mut line = Line::new();
        let mut engine = Engine::open(line.queue(), kind).unwrap();
        line.send(&frames());
        line.receive(&mut engine, frames().len())
    });
    assert_same(&received[1], &received[0]);
    assert_same(&received[1], &frames());
}

#[test]
fn both_engines_send_the_same_frames() {
    in_guests(both_engines_send_the_same);
}

fn both_engines_send_the_same() {
    let arrived = [EngineKind::Drain, EngineKind::Vhost].map(|kind| {
        let mut line = Line::new();
        let mut engine = Engine::open(line.queue(), kind).unwrap();
        send_all(&mut engine, &frames());
        line.arrived(frames().len())
    });
    assert_same(&arrived[1], &arrived[0]);
    assert_same(&arrived[1], &frames());
}

#[test]
fn far_more_frames_than_the_rings_hold_arrive_in_order() {
    in_guests(|| {
        let mut line = Line::new();
        let small = VhostConfig::DEFAULT.receive_buffers(64).send_frames(4).send_bytes(128 << 10);
        let mut engine = Engine::Vhost(Vhost::open(line.queue(), small).unwrap());
        for round in 0..20 {
            let frames = (0..200).map(|index| numbered(round * 200 + index)).collect::<Vec<_>>();
            line.send(&frames);
            assert_same(&line.receive(&mut engine, 200), &frames);
            send_all(&mut engine, &frames);
            assert_same(&line.arrived(200), &frames);
        }
    });
}

#[test]
fn frames_in_pieces_and_frames_of_a_burst_are_sent_alike() {
    in_guests(|| {
        let mut line = Line::new();
        let mut engine = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
        line.send(&frames());
        let mut burst = Burst::default();
        let mut count = 0;
        while count < frames().len() {
            line.wait(&mut engine);
            engine.recv(&mut burst).unwrap();
            count += burst.len();
            assert!(engine.send(&burst).is_complete());
        }
        assert_same(&line.arrived(frames().len()), &frames());
    });
}

#[test]
fn no_wake_up_is_lost() {
    in_guests(|| {
        for by_descriptor in [false, true] {
            let mut line = Line::new();
            let engine = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| echo(engine, by_descriptor, 500));
                for number in 0..500 {
                    let frame = numbered(number);
                    line.send(std::slice::from_ref(&frame));
                    assert_same(&line.arrived(1), &[frame]);
                }
            });
        }
    });
}

#[test]
fn a_loop_that_never_sleeps_gets_everything_too() {
    in_guests(|| {
        let mut line = Line::new();
        let mut engine = Vhost::open(line.queue(), VhostConfig::DEFAULT).unwrap();
        engine.set_polling(true);
        let frames = (0..200).map(numbered).collect::<Vec<_>>();
        line.send(&frames);
        let mut burst = Burst::default();
        let mut received = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while received.len() < frames.len() {
            assert!(Instant::now() < deadline, "{} frames in time", received.len());
            engine.recv(&mut burst).unwrap();
            received.extend(ours(&burst));
        }
        assert_same(&received, &frames);
        // It sleeps again when permitted.
        engine.set_polling(false);
        assert_eq!(engine.recv(&mut burst), Ok(0));
        line.send(&frames[..1]);
        assert!(engine.wait(Some(PATIENCE)).unwrap());
    });
}

#[test]
fn what_cannot_be_true_is_refused_and_the_rest_is_sent() {
    in_guests(|| {
        let mut line = Line::new();
        let mut engine = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
        let (good, bytes) = numbered(1);
        let csum = NetHeader { flags: NetHeaderFlags::NEEDS_CSUM, ..good };
        let wrong = [
            (NetHeader { csum_start: 2000, ..csum }, &bytes[..]),
            (NetHeader { csum_start: u16::MAX, csum_offset: u16::MAX, ..csum }, &bytes[..]),
            (NetHeader { hdr_len: 2000, ..good }, &bytes[..]),
            (NetHeader { gso_type: GsoType::TCPV4, ..good }, &bytes[..]),
            (NetHeader { gso_type: GsoType(2), gso_size: 50, ..good }, &bytes[..]),
            (good, &bytes[..13]),
            (good, &[]),
        ];
        let pieces = wrong.map(|(header, bytes)| (header, [IoSlice::new(bytes)]));
        let sent = engine.send(pieces.iter().map(|(header, parts)| Outgoing::new(*header, parts)));
        assert_eq!((sent.count, sent.refused.len(), sent.stopped), (0, wrong.len(), None));
        for (refused, [bytes]) in sent.refused.iter().zip(pieces.iter().map(|(_, bytes)| bytes)) {
            let too_short = SendError::TooShort { len: 12 + bytes.len(), least: 12 + 14 };
            let wanted = if bytes.len() < 14 { too_short } else { SendError::Rejected };
            assert_eq!(refused.error, wanted);
        }
        send_all(&mut engine, &[numbered(2)]);
        assert_same(&line.arrived(1), &[numbered(2)]);
    });
}

#[test]
fn a_frame_that_is_longer_than_the_burst_allows_is_lost_and_told() {
    in_guests(|| {
        let mut line = Line::new();
        let mut engine = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
        let frames = [numbered(1), tcp_train(5000), numbered(2)];
        line.send(&frames);
        let mut burst = Burst::new(BurstSize::DEFAULT.max_frame_len(2000));
        let mut outcomes = Vec::new();
        while outcomes.len() < 3 {
            line.wait(&mut engine);
            match engine.recv(&mut burst) {
                Ok(_) => outcomes.extend(ours(&burst).map(Ok)),
                Err(error) => outcomes.push(Err(error)),
            }
        }
        let lost = RecvError::Lost { errno: libc::EMSGSIZE };
        let [first, _, last] = frames;
        assert!(outcomes == [Ok(first), Err(lost), Ok(last)]);
    });
}

#[test]
fn a_device_that_was_down_works_on() {
    in_guests(|| {
        let mut line = Line::new();
        let mut engine = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
        for number in 0..3 {
            line.host.netlink.set_down("tap0").unwrap();
            let before = line.host.netlink.link("tap0").unwrap().stats;
            send_all(&mut engine, &[numbered(1000), tcp_train(50_000)]);
            let Engine::Vhost(vhost) = &mut engine else { unreachable!() };
            eventually("the kernel thread to be done", || (vhost.unsent() == Ok(0)).then_some(()));
            // The batches of small frames ignore the interface's state. Two are dropped: the train
            // by the device, and the frame because of its unknown protocol.
            let after = line.host.netlink.link("tap0").unwrap().stats;
            let packets = after.rx_packets - before.rx_packets;
            assert_eq!((packets, after.rx_dropped - before.rx_dropped), (1, 2));
            line.host.netlink.set_up("tap0").unwrap();
            line.reopen();
            let frame = numbered(number);
            line.send(std::slice::from_ref(&frame));
            assert_same(&line.receive(&mut engine, 1), std::slice::from_ref(&frame));
            send_all(&mut engine, std::slice::from_ref(&frame));
            assert_same(&line.arrived(1), &[frame]);
        }
    });
}

#[test]
fn a_device_that_is_deleted_wakes_who_sleeps_and_is_gone() {
    in_guests(|| {
        let mut line = Line::new();
        let mut engine = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
        let mut burst = Burst::default();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let deadline = Instant::now() + PATIENCE;
                loop {
                    assert!(engine.wait(Some(PATIENCE)).unwrap(), "not woken");
                    assert!(Instant::now() < deadline, "woken, but not told");
                    match engine.recv(&mut burst) {
                        Ok(_) => {}
                        Err(error) => return error,
                    }
                }
            });
            line.host.netlink.delete("tap0").unwrap();
            assert_eq!(sleeper.join().unwrap(), RecvError::Gone);
        });
        assert_eq!(engine.recv(&mut burst), Err(RecvError::Gone), "for good");
    });
}

#[test]
fn the_queue_is_given_back_and_nothing_is_left_behind() {
    in_guests(|| {
        let mut line = Line::new();
        let mut queue = line.queue();
        let before = traces();
        for kernel_thread in [false, true] {
            let config = VhostConfig::DEFAULT.kernel_thread(kernel_thread);
            let config = config.busy_poll(Duration::from_micros(50));
            let mut engine = Engine::Vhost(Vhost::open(queue, config).unwrap());
            line.send(&[numbered(1)]);
            assert_same(&line.receive(&mut engine, 1), &[numbered(1)]);
            assert_ne!(traces(), before, "the engine is there");
            queue = engine.into_queue();
            eventually("all traces to be gone", || (traces() == before).then_some(()));
        }
        let mut drain = Engine::open(queue, EngineKind::Drain).unwrap();
        line.send(&[numbered(2)]);
        assert_same(&line.receive(&mut drain, 1), &[numbered(2)]);
    });
}

#[test]
fn the_worker_is_a_thread_of_the_kernel_if_that_is_wanted() {
    in_guests(|| {
        let has_thread = |kernel_thread| {
            let config = VhostConfig::DEFAULT.kernel_thread(kernel_thread);
            let _engine = Vhost::open(Line::new().queue(), config).unwrap();
            vhost_threads("/proc/self/task") > 0
        };
        assert!(!has_thread(true));
        // Before Linux 6.4 there was only this kind.
        let is_old = tapswitch_guest::inside().unwrap().starts_with("6.1.");
        assert_eq!(has_thread(false), !is_old);
    });
}

#[test]
fn each_queue_can_have_an_engine_of_its_own() {
    in_guests(|| {
        let host = Host::new();
        let two = NonZeroU16::new(2).unwrap();
        let mut line = Line::on(host, |host| host.create_up(&config("tap0").queues(two)));
        let mut first = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
        let mut second = Engine::open(line.queue(), EngineKind::Vhost).unwrap();
        for engine in [&mut first, &mut second] {
            send_all(engine, &frames());
            assert_same(&line.arrived(frames().len()), &frames());
        }
    });
}

/// The limit that prevents packets from being treated as Ethernet frames belongs to the device, so
/// an engine that ends leaves it for the others.
#[test]
fn each_queue_of_a_tun_device_can_have_an_engine_of_its_own() {
    in_guests(|| {
        let mut host = Host::new();
        let two = NonZeroU16::new(2).unwrap();
        let mut queues = host.create_up(&config("tun0").kind(Kind::Tun).queues(two)).into_queues();
        let mut second = Engine::open(queues.remove(1), EngineKind::Vhost).unwrap();
        let first = Engine::open(queues.remove(0), EngineKind::Vhost).unwrap();
        let socket = host.udp(7);
        let packet = udp_packet(b"still here");
        let receive = |engine: &mut Engine| {
            send_all(engine, &[(NetHeader::PLAIN, packet.clone())]);
            let mut payload = [0; 100];
            let (len, from) = socket.recv_from(&mut payload).unwrap();
            assert_eq!((&payload[..len], from.to_string()), (&b"still here"[..], PEER.into()));
        };
        receive(&mut second);
        let _queue = first.into_queue();
        receive(&mut second);
    });
}

#[test]
fn packets_of_a_tun_device_pass_unharmed() {
    in_guests(|| {
        let mut host = Host::new();
        let device = host.create(&config("tun0").kind(Kind::Tun));
        host.netlink.set_up("tun0").unwrap();
        host.netlink.add_address("tun0", "10.0.0.1".parse().unwrap(), 24).unwrap();
        let queue = device.into_queues().remove(0);
        let mut engine = Engine::open(queue, EngineKind::Vhost).unwrap();
        let socket = host.udp(7);
        let mut burst = Burst::default();
        for len in [1, 18, 100, 1400, 1472] {
            let payload = vec![u8::try_from(len % 251).unwrap(); len];
            socket.send_to(&payload, PEER).unwrap();
            let mut count = 0;
            while count == 0 {
                assert!(engine.wait(Some(PATIENCE)).unwrap(), "no packet in time");
                engine.recv(&mut burst).unwrap();
                // The kernel also sends IPv6.
                burst.retain(|frame| frame.bytes()[0] == 0x45);
                burst.iter_mut().for_each(|mut frame| swap_ipv4(frame.bytes_mut()));
                assert!(engine.send(&burst).is_complete());
                count += burst.len();
            }
            let mut answer = [0; 2000];
            let (answer_len, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!((answer[..answer_len].to_vec(), from.to_string()), (payload, PEER.into()));
        }
    });
}

#[test]
fn nothing_is_allocated_per_frame() {
    in_guests(|| {
        let mut line = Line::new();
        let mut engine = Vhost::open(line.queue(), VhostConfig::DEFAULT).unwrap();
        let frames = (0..50).map(numbered).collect::<Vec<_>>();
        let parts = frames.iter().map(|(_, bytes)| [IoSlice::new(bytes)]).collect::<Vec<_>>();
        let mut burst = Burst::default();
        let mut round = || {
            line.send(&frames);
            let mut count = 0;
            while count < frames.len() {
                assert!(engine.wait(Some(PATIENCE)).unwrap(), "no frame in time");
                while engine.recv(&mut burst).unwrap() > 0 {
                    count += burst.iter().filter(|frame| is_ours(frame.bytes())).count();
                    assert!(engine.send(&burst).is_complete());
                }
            }
            let outgoing = parts.iter().map(|parts| Outgoing::new(NetHeader::PLAIN, parts));
            assert!(engine.send(outgoing).is_complete());
            eventually("the kernel thread", || (engine.unsent() == Ok(0)).then_some(()));
        };
        (0..5).for_each(|_| round());
        let before = ALLOCATIONS.get();
        (0..20).for_each(|_| round());
        assert_eq!(ALLOCATIONS.get() - before, 0, "in 3000 frames");
    });
}

/// True on the host, if it may create devices.
fn is_host() -> bool {
    tapswitch_guest::inside().is_none() && can_tap()
}

/// Runs `body` on each of [`KERNELS`], while no other test of this file runs there: some count
/// resources of the process.
fn in_guests<F: FnOnce() + Copy>(body: F) {
    static ALONE: Mutex<()> = Mutex::new(());
    for series in KERNELS {
        Rig::new(series).modules(&["tun", "vhost_net"]).test(|| {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            body();
        });
    }
}

/// A frame and its metadata.
type Packet = (NetHeader, Vec<u8>);

/// A tap device in its own namespace, and a packet socket on its kernel side: frames sent by one
/// are received by the other.
struct Line {
    host: Host,
    queues: Vec<Queue>,
    port: PacketPort,
}

impl Line {
    fn new() -> Self {
        Self::on(Host::new(), |host| host.create_up(&config("tap0")))
    }

    fn on(mut host: Host, create: impl FnOnce(&mut Host) -> Device) -> Self {
        let queues = create(&mut host).into_queues();
        let port = open_port(&host);
        Self { host, queues, port }
    }

    fn queue(&mut self) -> Queue {
        self.queues.pop().unwrap()
    }

    /// A packet socket is told once that its interface went down: opens a new one.
    fn reopen(&mut self) {
        self.port = open_port(&self.host);
    }

    fn send(&self, packets: &[Packet]) {
        for (header, bytes) in packets {
            self.port.send(header, &[IoSlice::new(bytes)]).unwrap();
        }
    }

    /// The next `count` frames of the test from the device.
    fn receive(&self, engine: &mut Engine, count: usize) -> Vec<Packet> {
        let mut burst = Burst::default();
        let mut received = Vec::new();
        while received.len() < count {
            self.wait(engine);
            while engine.recv(&mut burst).unwrap() > 0 {
                received.extend(ours(&burst));
            }
        }
        received
    }

    fn wait(&self, engine: &mut Engine) {
        assert!(engine.wait(Some(PATIENCE)).unwrap(), "no frame in time");
    }

    /// The next `count` frames of the test on the kernel side.
    fn arrived(&self, count: usize) -> Vec<Packet> {
        let mut buf = vec![0; tapswitch_netdev::RECV_BUF_LEN];
        let mut arrived = Vec::new();
        while arrived.len() < count {
            let Some(received) = self.port.recv(&mut buf, HEADROOM_MIN).unwrap() else {
                assert!(sleep_until_readable(&self.port), "{} of {count}", arrived.len());
                continue;
            };
            let bytes = buf[received.frame].to_vec();
            if is_ours(&bytes) {
                arrived.push((received.header, bytes));
            }
        }
        arrived
    }
}

fn open_port(host: &Host) -> PacketPort {
    let config = tapswitch_netdev::Config::default();
    host.namespace.enter(|| PacketPort::open("tap0", &config).unwrap()).unwrap()
}

fn sleep_until_readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::try_from(PATIENCE).unwrap())).unwrap() > 0
}

/// Sends all of them, waiting for room if necessary.
fn send_all(engine: &mut Engine, packets: &[Packet]) {
    let mut rest = packets;
    while !rest.is_empty() {
        let parts = rest.iter().map(|(_, bytes)| [IoSlice::new(bytes)]).collect::<Vec<_>>();
        let frames = rest.iter().zip(&parts);
        let sent = engine.send(frames.map(|((header, _), parts)| Outgoing::new(*header, parts)));
        assert_eq!(sent.refused, []);
        let (count, stopped) = (sent.count, sent.stopped);
        rest = &rest[count..];
        if let Some(stopped) = stopped {
            assert_eq!((stopped.index, stopped.error), (count, SendError::Full));
            assert!(engine.wait(Some(PATIENCE)).unwrap(), "no room in time");
            let mut burst = Burst::default();
            while engine.recv(&mut burst).unwrap() > 0 {}
        }
    }
}

/// Returns `count` frames of the test, sleeping before each.
fn echo(mut engine: Engine, by_descriptor: bool, count: usize) {
    let mut burst = Burst::default();
    let mut echoed = 0;
    while echoed < count {
        if by_descriptor {
            assert!(sleep_until_readable(&engine), "a wake-up was lost");
        } else {
            assert!(engine.wait(Some(PATIENCE)).unwrap(), "a wake-up was lost");
        }
        while engine.recv(&mut burst).unwrap() > 0 {
            burst.retain(|frame| is_ours(frame.bytes()));
            echoed += burst.len();
            assert!(engine.send(&burst).is_complete());
        }
    }
    let Engine::Vhost(vhost) = &mut engine else { panic!("another engine") };
    eventually("the kernel thread to be done", || (vhost.unsent() == Ok(0)).then_some(()));
}

/// Frames of many types, to an address that is not the kernel's, so that it does not answer.
fn frames() -> Vec<Packet> {
    let mut frames = Vec::new();
    for number in 0..100 {
        frames.push(numbered(number));
        match number % 10 {
            // The kernel segments longer ones before a device gets them.
            0 => frames.push(tcp_train(65_535 - 34)),
            2 => frames.push(tcp_train(3000)),
            4 if has_udp_trains() => frames.push(udp_train(50_000)),
            6 if has_udp_trains() => frames.push(udp_train(2010)),
            8 => frames.push(udp(1400)),
            _ => {}
        }
    }
    frames
}

/// Checks once, as the check may print a message.
fn has_udp_trains() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(knows_udp_trains)
}

/// A frame of an experimental protocol, of varying length.
fn numbered(number: u32) -> Packet {
    let len = 60 + usize::try_from(number * 37).unwrap() % 1400;
    let mut bytes = ethernet([0x88, 0xb5]);
    bytes.extend(number.to_be_bytes());
    bytes.resize(len, u8::try_from(number % 251).unwrap());
    (NetHeader::PLAIN, bytes)
}

/// A TCP train with `len` bytes after the IP header.
fn tcp_train(len: usize) -> Packet {
    let mut tcp = vec![0; 20];
    tcp[..4].copy_from_slice(&[0, 9, 0, 7]);
    tcp[12..14].copy_from_slice(&[0x50, 0x10]);
    let header = NetHeader { gso_type: GsoType::TCPV4, gso_size: 1448, ..partial(16, 54) };
    (header, ipv4(6, tcp, len))
}

/// A UDP train with `len` bytes after the IP header.
fn udp_train(len: usize) -> Packet {
    let (header, bytes) = udp(len);
    (NetHeader { gso_type: GsoType::UDP_L4, gso_size: 1000, ..header }, bytes)
}

/// A datagram with `len` bytes after the IP header and a partial checksum.
fn udp(len: usize) -> Packet {
    let [high, low] = u16::try_from(len).unwrap().to_be_bytes();
    (partial(6, 42), ipv4(17, vec![0, 9, 0, 7, high, low, 0, 0], len))
}

fn partial(csum_offset: u16, hdr_len: u16) -> NetHeader {
    let flags = NetHeaderFlags::NEEDS_CSUM;
    NetHeader { flags, csum_start: 34, csum_offset, hdr_len, ..NetHeader::PLAIN }
}

fn ipv4(protocol: u8, transport: Vec<u8>, len: usize) -> Vec<u8> {
    let mut bytes = ethernet([8, 0]);
    let [high, low] = u16::try_from(20 + len).unwrap().to_be_bytes();
    bytes.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    bytes.extend([10, 0, 0, 3, 10, 0, 0, 4]);
    bytes.extend(transport);
    let end = 34 + len;
    bytes.extend((bytes.len()..end).map(|at| u8::try_from(at % 253).unwrap()));
    bytes
}

fn ethernet(ether_type: [u8; 2]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 9], &OURS.0[..], &ether_type].concat()
}

/// The frames of the test in `burst`.
fn ours(burst: &Burst) -> impl Iterator<Item = Packet> {
    let frames = burst.iter().filter(|frame| is_ours(frame.bytes()));
    frames.map(|frame| (frame.header(), frame.bytes().to_vec()))
}

/// Frames of the kernel have other addresses.
fn is_ours(frame: &[u8]) -> bool {
    frame.get(6..12) == Some(&OURS.0)
}

/// The same frames in the same order. `hdr_len` in the metadata is a hint that the kernel
/// recomputes from its buffer layout.
fn assert_same(left: &[Packet], right: &[Packet]) {
    assert_eq!(left.len(), right.len());
    for (index, ((left, left_bytes), (right, right_bytes))) in left.iter().zip(right).enumerate() {
        assert_eq!(
            NetHeader { hdr_len: 0, ..*left },
            NetHeader { hdr_len: 0, ..*right },
            "{index}"
        );
        assert!(left_bytes == right_bytes, "frame {index}: {} bytes", left_bytes.len());
    }
}

/// Open files, threads with the worker's name, and mappings of the rings.
fn traces() -> (usize, usize, usize) {
    let count = |path: &str| fs::read_dir(path).unwrap().count();
    let threads = vhost_threads("/proc/self/task") + vhost_threads("/proc");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains("tapswitch-vhost")).count();
    (count("/proc/self/fd"), threads, rings)
}

/// Number of kernel threads that serve rings, among those in a directory of procfs.
fn vhost_threads(folder: &str) -> usize {
    let names = fs::read_dir(folder).unwrap().filter_map(|entry| {
        // Others may end meanwhile.
        fs::read_to_string(entry.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| name.starts_with("vhost-")).count()
}

/// Turns an IPv4 packet with UDP round. Its checksums stay what they are.
/// A datagram from the peer to port 7 of the kernel's end, without a checksum of its own.
fn udp_packet(payload: &[u8]) -> Vec<u8> {
    let udp_len = u16::try_from(8 + payload.len()).unwrap();
    let [total, udp] = [20 + udp_len, udp_len].map(u16::to_be_bytes);
    let mut packet = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend([10, 0, 0, 2, 10, 0, 0, 1]);
    let checksum = Sum::of(&packet).checksum().to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
    packet.extend([0, 7, 0, 7, udp[0], udp[1], 0, 0]);
    packet.extend(payload);
    packet
}

fn swap_ipv4(packet: &mut [u8]) {
    let (from, to) = packet[12..20].split_at_mut(4);
    from.swap_with_slice(to);
    let (from, to) = packet[20..24].split_at_mut(2);
    from.swap_with_slice(to);
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counter;

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

/// The station that replies.
const PEER: &str = "10.0.0.2:7";
const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x77]);
