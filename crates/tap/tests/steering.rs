//! Both directions of a flow use one queue, however they are encapsulated, and the user can compute
//! which.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs::File;
use std::num::NonZeroU16;
use std::os::fd::AsFd;

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tapswitch_netlink::Netlink;
use tapswitch_tap::steering::{MAX_QUEUES, QueueCounters, SteeringError, TABLE_LEN, TableError};
use tapswitch_tap::{
    BpfError, Device, FlowHash, Kind, NET_HEADER_LEN, NetHeader, Queue, RECV_BUF_LEN, Steering,
};

mod common;
#[path = "common/packet_socket.rs"]
mod packet_socket;
#[path = "common/programs.rs"]
mod programs;
#[path = "common/recipe.rs"]
mod recipe;
use common::{Host, LINUX_7_3, config, eventually, skip};
use packet_socket::PacketSocket;
use programs::{can_attach, can_load};
use recipe::{Network, Recipe, Transport, frames, packets, recipes, tcp, tcp_v6, vxlan};

#[test]
fn both_directions_have_one_hash() {
    let cases = Cases { cases: 4096, ..Cases::default() };
    let outcome = TestRunner::new(cases).run(&recipes(), |recipe| {
        let [there, back] = [false, true].map(|backwards| recipe.frame(backwards));
        let hash = FlowHash::ETHERNET;
        // For a tunnel that is too deep, or none, only the outer headers count.
        if is_symmetric(&recipe, 0) {
            prop_assert_eq!(hash.hash(&there), hash.hash(&back));
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn the_program_computes_the_hash_that_is_documented() {
    if !can_load() {
        return;
    }
    same_as_the_program(FlowHash::ETHERNET, &frames(), 12_000);
}

#[test]
fn so_does_that_for_packets_without_an_ethernet_header() {
    if !can_load() {
        return;
    }
    same_as_the_program(FlowHash::IP, &packets(), 6000);
}

#[test]
fn so_does_that_which_looks_into_no_tunnel_or_another_port() {
    if !can_load() {
        return;
    }
    same_as_the_program(FlowHash::ETHERNET.vxlan_port(None), &frames(), 2000);
    let port = NonZeroU16::new(443);
    same_as_the_program(FlowHash::ETHERNET.vxlan_port(port), &frames(), 2000);
}

#[test]
fn flows_spread_evenly() {
    let hash = FlowHash::ETHERNET;
    for make in [tcp, tcp_v6, |ports| vxlan(tcp(ports), 1)] {
        let mut shares = [0_u32; 8];
        for port in 0..8000 {
            shares[hash.bucket(&make([20_000 + port, 443]).frame(false)) % 8] += 1;
        }
        assert!(shares.iter().all(|share| (850..1150).contains(share)), "{shares:?}");
    }
}

#[test]
fn both_directions_of_a_flow_meet_on_one_worker_whatever_they_are_wrapped_in() {
    if !can_attach() {
        return;
    }
    let host = quiet_host();
    let [east, west] = ["east", "west"].map(|name| Rig::new(&host, name, 4));
    let steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
    steering.attach(east.queue(0)).unwrap();
    steering.attach(west.queue(0)).unwrap();
    // Fragments have no ports: they are one flow.
    for (wrap, workers) in [
        (plain as fn(u16) -> Recipe, 4),
        (tagged_twice, 4),
        (in_vxlan, 4),
        (tagged_in_tagged_vxlan, 4),
        (fragmented, 1),
    ] {
        let mut used = [0; 4];
        for port in 0..FLOWS {
            let flow = wrap(port);
            let (there, back) = (flow.frame(false), flow.frame(true));
            let worker = usize::from(steering.queue_of(&there));
            east.socket.send(&there);
            west.socket.send(&back);
            assert_eq!(east.receive(1), [(worker, there)]);
            assert_eq!(west.receive(1), [(worker, back)]);
            used[worker] += 1;
        }
        let busy = used.iter().filter(|count| **count > 0).count();
        assert_eq!(busy, workers, "{used:?}");
    }
}

#[test]
fn a_tag_beside_the_frame_changes_nothing_but_the_count_of_bytes() {
    if !can_attach() {
        return;
    }
    let mut host = quiet_host();
    let rig = Rig::new(&host, "tap0", 4);
    let steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
    steering.attach(rig.queue(0)).unwrap();
    let other = host.create(&config("other"));
    host.netlink.create_bridge("br0").unwrap();
    for name in ["tap0", "other"] {
        host.netlink.set_bridge(name, "br0").unwrap();
    }
    for name in ["br0", "other"] {
        host.netlink.set_up(name).unwrap();
    }
    // A bridge sends IGMP on its own, so other frames may arrive as well.
    let mut received = Vec::new();
    // The kernel moves the outermost tag of received frames out of the frame, and the bridge sends
    // it so to the other port.
    for depth in [1, 2, 6, 7, 15, 16, 17] {
        let frame = tcp([40_000, 443]).with_tags(vec![0x8100; depth]).frame(false);
        other.queues()[0].send(&[&NetHeader::PLAIN.encode(), &frame[..]].concat()).unwrap();
        let wanted = (usize::from(steering.queue_of(&frame)), frame);
        eventually("the frame on its queue, and counters that know all", || {
            received.extend(rig.poll());
            let is_there = received.contains(&wanted);
            (is_there && counters(&steering) == tally(&received)).then_some(())
        });
    }
}

#[test]
fn a_tun_device_is_steered_by_the_packet_alone() {
    if !can_attach() {
        return;
    }
    let mut host = quiet_host();
    let tap = host.create(&config("tun0").kind(Kind::Tun).queues(count(4)));
    host.netlink.set_up("tun0").unwrap();
    host.netlink.add_address("tun0", "10.0.0.1".parse().unwrap(), 24).unwrap();
    let rig = Rig { socket: PacketSocket::open(&host.namespace, tap.index()), tap };
    let steering = Steering::load(FlowHash::IP, count(4)).unwrap();
    rig.tap.set_steering(Some(steering.as_fd())).unwrap();
    let mut used = [0; 4];
    for port in 0..FLOWS {
        host.udp(20_000 + port).send_to(b"hello", "10.0.0.2:7").unwrap();
        let [(queue, packet)] = &rig.receive(1)[..] else { panic!("one packet was sent") };
        assert_eq!(*queue, usize::from(steering.queue_of(packet)));
        used[*queue] += 1;
    }
    assert!(used.iter().all(|count| *count > 0), "{used:?}");
}

#[test]
fn counters_are_what_was_read() {
    if !can_attach() {
        return;
    }
    let host = quiet_host();
    let rig = Rig::new(&host, "tap0", 4);
    let steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
    steering.attach(rig.queue(0)).unwrap();
    for port in 0..FLOWS {
        rig.socket.send(&plain(port).frame(false));
        rig.socket.send(&in_vxlan(port).frame(true));
    }
    let received = rig.receive(2 * usize::from(FLOWS));
    assert_eq!(counters(&steering), tally(&received));
    assert_eq!(steering.counters(4).unwrap(), QueueCounters::default());
    assert!(matches!(steering.counters(MAX_QUEUES), Err(BpfError::NoSuchQueue { .. })));
}

#[test]
fn when_queues_come_and_go_flows_stay_where_they_can() {
    if !can_attach() {
        return;
    }
    let host = quiet_host();
    let mut rig = Rig::new(&host, "tap0", 4);
    let mut steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
    steering.attach(rig.queue(0)).unwrap();
    let before = workers_of_flows(&rig);

    // The kernel assigns the index of the detached queue to the last one.
    let index = rig.tap.queue_order().unwrap().iter().position(|queue| *queue == 1).unwrap();
    rig.tap.detach_queue(1).unwrap();
    steering.queue_detached(index.try_into().unwrap(), 3).unwrap();
    assert_eq!(rig.tap.queue_order(), Some(&[0, 3, 2][..]));
    let without = workers_of_flows(&rig);
    for (old, new) in before.iter().zip(&without) {
        assert!(*new != 1 && (old == new || *old == 1), "{old} to {new}");
    }

    rig.tap.attach_queue(1).unwrap();
    steering.queue_attached(count(4)).unwrap();
    assert_eq!(rig.tap.queue_order(), Some(&[0, 3, 2, 1][..]));
    let after = workers_of_flows(&rig);
    for (old, new) in without.iter().zip(&after) {
        assert!(old == new || *new == 1, "{old} to {new}");
    }
    for worker in 0..4 {
        assert!(after.contains(&worker), "nothing for {worker}: {after:?}");
    }
}

#[test]
fn a_table_takes_effect_on_flows_that_run() {
    if !can_attach() {
        return;
    }
    let host = quiet_host();
    let rig = Rig::new(&host, "tap0", 4);
    let mut steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
    steering.attach(rig.queue(0)).unwrap();
    for queue in [2, 0, 3] {
        steering.set_table(&[queue]).unwrap();
        for port in 0..8 {
            let frame = plain(port).frame(false);
            rig.socket.send(&frame);
            assert_eq!(rig.receive(1), [(queue.into(), frame)]);
        }
    }
    steering.set_queues(count(2)).unwrap();
    assert!(workers_of_flows(&rig).iter().all(|queue| *queue < 2));
}

#[test]
fn writing_moves_a_flow_only_while_there_is_no_program() {
    if !can_attach() {
        return;
    }
    let host = quiet_host();
    let rig = Rig::new(&host, "tap0", 4);
    let mut steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
    steering.set_table(&[0]).unwrap();
    let (there, back) = (plain(1).frame(false), plain(1).frame(true));
    let write = |queue: usize| {
        rig.queue(queue).send(&[&NetHeader::PLAIN.encode(), &there[..]].concat()).unwrap();
    };
    steering.attach(rig.queue(0)).unwrap();
    for queue in 0..4 {
        write(queue);
        rig.socket.send(&back);
        assert_eq!(rig.receive(1), [(0, back.clone())], "the table's queue");
    }
    Steering::detach(rig.queue(0)).unwrap();
    for queue in 0..4 {
        write(queue);
        rig.socket.send(&back);
        assert_eq!(rig.receive(1), [(queue, back.clone())], "the last writer's queue");
    }
    assert_eq!(counters(&steering)[0].frames, 4, "nothing is counted any more");
}

#[test]
fn a_program_is_not_given_to_what_it_would_misread() {
    if !can_attach() {
        return;
    }
    let host = quiet_host();
    let tap = host.create(&config("tap0").queues(count(2)));
    let tun = host.create(&config("tun0").kind(Kind::Tun).queues(count(2)));
    let of_ethernet = Steering::load(FlowHash::ETHERNET, count(2)).unwrap();
    let of_ip = Steering::load(FlowHash::IP, count(2)).unwrap();
    of_ethernet.attach(&tap.queues()[0]).unwrap();
    of_ip.attach(&tun.queues()[0]).unwrap();
    for (error, words) in [
        (of_ethernet.attach(&tun.queues()[0]), "tun0 is a tun device"),
        (of_ethernet.attach(&tun.queues()[0]), "FlowHash::IP"),
        (of_ip.attach(&tap.queues()[1]), "FlowHash::ETHERNET"),
        (of_ip.attach(File::open("/dev/null").unwrap()), "is not an open /dev/net/tun"),
        (of_ip.attach(File::open("/dev/net/tun").unwrap()), "is not a queue of a tun/tap device"),
        (Steering::detach(File::open("/dev/null").unwrap()), "is not an open /dev/net/tun"),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = of_ip.counters(MAX_QUEUES).unwrap_err().to_string();
    assert!(error.contains("there is no queue 256"), "{error}");
}

#[test]
fn a_program_stays_with_its_device() {
    if !can_attach() {
        return;
    }
    let host = quiet_host();
    let rig = Rig::new(&host, "tap0", 4);
    let mut steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
    steering.set_table(&[3]).unwrap();
    steering.attach(rig.queue(0)).unwrap();
    drop(steering);
    assert!(workers_of_flows(&rig).iter().all(|queue| *queue == 3));
}

#[test]
fn tables_that_cannot_be_are_refused_and_change_nothing() {
    if !can_load() {
        return;
    }
    let table_error = |outcome: Result<_, SteeringError>| match outcome {
        Err(SteeringError::Table(error)) => error,
        other => panic!("{other:?}"),
    };
    let error = table_error(Steering::load(FlowHash::ETHERNET, count(257)).map(drop));
    assert_eq!(error, TableError::TooManyQueues { queues: 257 });
    let mut steering = Steering::load(FlowHash::ETHERNET, count(3)).unwrap();
    let before = *steering.table();
    let error = table_error(steering.set_table(&[0, 256]));
    assert_eq!(error, TableError::NoSuchQueue { queue: 256 });
    assert_eq!(table_error(steering.set_table(&[])), TableError::Length { len: 0 });
    assert_eq!(*steering.table(), before);
}

#[test]
fn who_may_not_is_told_what_is_missing() {
    if !can_load() {
        return;
    }
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
    if last.trim().parse::<u32>().unwrap() < 39 && !skip("CAP_BPF needs Linux 5.8") {
        return;
    }
    let load_with = |kept: CapabilitySet| {
        let thread = std::thread::spawn(move || {
            let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
            rustix::thread::set_capabilities(None, sets).unwrap();
            Steering::load(FlowHash::ETHERNET, count(2)).map(drop)
        });
        thread.join().unwrap()
    };
    let error = load_with(CapabilitySet::NET_ADMIN).unwrap_err();
    assert!(matches!(error, SteeringError::Bpf(BpfError::NotPermitted { .. })), "{error}");
    assert!(error.to_string().contains("CAP_BPF"), "{error}");
    load_with(CapabilitySet::BPF).unwrap();
}

/// A device with queues, and a socket that sends frames to it from the kernel side.
struct Rig {
    tap: Device,
    socket: PacketSocket,
}

impl Rig {
    fn new(host: &Host, name: &str, queues: u16) -> Self {
        let tap = host.create(&config(name).queues(count(queues)));
        let socket = PacketSocket::open(&host.namespace, tap.index());
        Netlink::open(&host.namespace).unwrap().set_up(name).unwrap();
        Self { tap, socket }
    }

    fn queue(&self, index: usize) -> &Queue {
        &self.tap.queues()[index]
    }

    /// The next `count` frames, and the queue of each. No other frames may arrive.
    fn receive(&self, count: usize) -> Vec<(usize, Vec<u8>)> {
        let mut received = Vec::new();
        eventually("all frames", || {
            received.extend(self.poll());
            (received.len() >= count).then_some(())
        });
        received
    }

    /// The queued frames, and the queue of each.
    fn poll(&self) -> Vec<(usize, Vec<u8>)> {
        let mut received = Vec::new();
        let mut buf = vec![0; RECV_BUF_LEN];
        for (index, queue) in self.tap.queues().iter().enumerate() {
            while let Some(len) = queue.recv(&mut buf).unwrap() {
                received.push((index, buf[NET_HEADER_LEN..len].to_vec()));
            }
        }
        received
    }
}

/// A host without unsolicited traffic.
fn quiet_host() -> Host {
    let host = Host::new();
    host.silence();
    host
}

/// The expected counters for these frames.
fn tally(received: &[(usize, Vec<u8>)]) -> Vec<QueueCounters> {
    let mut counters = vec![QueueCounters::default(); 4];
    for (queue, frame) in received {
        counters[*queue].frames += 1;
        counters[*queue].bytes += frame.len() as u64;
    }
    counters
}

/// The queue of a frame of each of several flows.
fn workers_of_flows(rig: &Rig) -> Vec<usize> {
    let flows = (0..FLOWS).map(|port| {
        rig.socket.send(&plain(port).frame(false));
        rig.receive(1)[0].0
    });
    flows.collect()
}

fn counters(steering: &Steering) -> Vec<QueueCounters> {
    (0..4).map(|queue| steering.counters(queue).unwrap()).collect()
}

fn plain(port: u16) -> Recipe {
    tcp([20_000 + port, 443])
}

fn tagged_twice(port: u16) -> Recipe {
    plain(port).with_tags(vec![0x88a8, 0x8100])
}

fn in_vxlan(port: u16) -> Recipe {
    vxlan(plain(port), 50_000 + port)
}

fn tagged_in_tagged_vxlan(port: u16) -> Recipe {
    vxlan(tagged_twice(port), 50_000 + port).with_tags(vec![0x8100])
}

fn fragmented(port: u16) -> Recipe {
    let mut flow = plain(port);
    if let Network::V4 { fragment, .. } = &mut flow.network {
        // The first fragment, and others.
        *fragment = if port == 0 { 0x2000 } else { 0x2000 + port };
    }
    flow
}

#[test]
fn linux_7_3_agrees() {
    LINUX_7_3.only("linux_7_3").test(|| {
        same_as_the_program(FlowHash::ETHERNET, &frames(), 1000);
        same_as_the_program(FlowHash::IP, &packets(), 500);
        let host = quiet_host();
        let rig = Rig::new(&host, "tap0", 4);
        let steering = Steering::load(FlowHash::ETHERNET, count(4)).unwrap();
        rig.tap.set_steering(Some(steering.as_fd())).unwrap();
        for port in 0..FLOWS {
            let frame = tagged_in_tagged_vxlan(port).frame(false);
            rig.socket.send(&frame);
            assert_eq!(rig.receive(1), [(usize::from(steering.queue_of(&frame)), frame)]);
        }
    });
}

/// Two programs whose queues together are the whole bucket: its lower 8 and its upper 8 of 9 bits.
fn same_as_the_program(hash: FlowHash, frames: &impl Strategy<Value = Vec<u8>>, cases: u32) {
    let bucket_bits = [0, 1].map(|shift| {
        let mut steering = Steering::load(hash, count(1)).unwrap();
        let table = (0..).take(TABLE_LEN).map(|bucket| bucket >> shift & 0xff);
        steering.set_table(&table.collect::<Vec<_>>()).unwrap();
        steering
    });
    let cases = Cases { cases, ..Cases::default() };
    let outcome = TestRunner::new(cases).run(frames, |frame| {
        for steering in &bucket_bits {
            let run = steering.dry_run(&frame, 1).unwrap();
            prop_assert_eq!(run.queue, u32::from(steering.queue_of(&frame)));
        }
        Ok(())
    });
    outcome.unwrap();
}

/// True if the parts that determine the hash are parsed: VXLAN within its limits.
fn is_symmetric(recipe: &Recipe, depth: u8) -> bool {
    let (Network::V4 { transport, .. } | Network::V6 { transport, .. }) = &recipe.network else {
        return true;
    };
    match transport {
        Transport::Vxlan { flags, inner, .. } => {
            flags & 8 != 0 && depth < 2 && is_symmetric(inner, depth + 1)
        }
        Transport::Ports { ports, .. } => !ports.contains(&4789),
        Transport::None { .. } => true,
    }
}

fn count(queues: u16) -> NonZeroU16 {
    NonZeroU16::new(queues).unwrap()
}

/// Number of flows in a test.
const FLOWS: u16 = 64;
