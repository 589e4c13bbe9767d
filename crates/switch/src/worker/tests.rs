//! Tests of a worker without its thread.

use std::io::Write;
use std::time::{Duration, Instant};

use tapswitch_datapath::Port;
use tapswitch_netdev::{Config, PacketPort};
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_tunnel::{self as tunnel, OpenError, Refused, Vni, VxlanPort};
use tapswitch_wire::MacAddr;

use super::*;
use crate::agent::{Agent, Identity};
use crate::rx::{RxDevice, VxlanRx};
use crate::test_frames::tcp_train;
use crate::tx::TxDevice;

fn agent() -> Agent {
    let identity = Identity { datapath_id: tapswitch_openflow::DatapathId(1), name: "br0".into() };
    Agent::new(identity, crate::Learning::Outer, 1, clock::coarse())
}

fn port(number: u32) -> Port {
    Port::new(PortNo(number), format!("p{number}"), MacAddr::ZERO, 1500, 2)
}

fn shared(agent: &Agent) -> Arc<Shared> {
    let snapshot = agent.pipeline().snapshot().clone();
    Shared::new(snapshot, agent.macs().table().clone(), 1).0
}

fn worker(shared: &Arc<Shared>) -> Worker {
    let setup = WorkerSetup { index: WorkerIndex(0), core: None, shared: shared.clone() };
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    Worker::new(setup, poll, wake, crossbeam_channel::never())
}

/// Both errands are ready when the worker looks, so nothing is published between them. The packet
/// is dropped once, at its ingress port, as its egress port does not exist.
#[test]
fn what_was_injected_last_is_in_the_books() {
    let mut agent = agent();
    agent.handle_port(port(1));
    let shared = shared(&agent);
    let setup = WorkerSetup { index: WorkerIndex(0), core: None, shared: shared.clone() };
    let worker = setup.start().unwrap();
    let actions = vec![Action::output(PortNo(9))];
    let buf = vec![0; HEADROOM + 60];
    let errand = Errand::PacketOut { in_port: PortNo(1), buf, actions, room: None };
    worker.errands.send(errand).unwrap();
    drop(worker);
    assert_eq!(shared.workers[0].injected.load(Ordering::Relaxed), 1);
}

/// Tables are published before the errands are sent: in between, the port is in neither.
#[test]
fn a_port_that_is_gone_from_the_tables_is_not_read() {
    if !rustix::process::geteuid().is_root() {
        let _ = io::stdout().write_all(b"\nSKIP: needs root to make network namespaces\n");
        return;
    }
    let (_namespace, near, far) = veth();
    let mut agent = agent();
    let shared = shared(&agent);
    let mut worker = worker(&shared);
    let queue = RxQueue::new(PortNo(1), None, 0, RxDevice::Netdev(Arc::new(near)));
    let tx = TxPort::new(TxDevice::Netdev(Arc::new(far)), crate::tx::Takes::EVERYTHING);
    worker.add_port(PortNo(1), tx, vec![queue]);
    // A frame sent to the peer has been received when the call returns.
    let frame = [&[2; 12][..], &[0x88, 0xb5], &[0; 46]].concat();
    let mut buf = [vec![0; HEADROOM], frame].concat();
    let actions = [Action::output(PortNo(1))];
    agent.handle_port(port(1));
    shared.snapshot.store(agent.pipeline().snapshot().clone());
    worker.packet_out(PortNo::CONTROLLER, &mut buf, &actions);
    let with_port = agent.pipeline().snapshot().clone();
    agent.handle_port_removed(PortNo(1));
    shared.snapshot.store(agent.pipeline().snapshot().clone());
    worker.burst(0);
    assert_eq!(worker.frames, 0, "read, and counted nowhere");
    shared.snapshot.store(with_port);
    let deadline = Instant::now() + Duration::from_secs(30);
    while worker.frames == 0 {
        assert!(Instant::now() < deadline, "nothing came in");
        worker.burst(0);
    }
}

/// Datagrams of a train arrive together, and a queue that is paused has room for few of them.
#[test]
fn datagrams_that_a_tunnel_holds_are_dropped_by_name_with_its_port() {
    let (near, far) = tunnel_ends();
    let receiver = Box::new(tunnel::Receiver::new(far.clone()));
    let rx = VxlanRx { receiver, mtu: 1500, booked: Refused::default() };
    let queue = RxQueue::new(PortNo(1), None, 0, RxDevice::Vxlan(rx));
    let tx = TxPort::new(TxDevice::Vxlan(far), crate::tx::Takes::NOTHING);
    let mut agent = agent();
    agent.handle_port(port(1));
    let mut worker = worker(&shared(&agent));
    worker.add_port(PortNo(1), tx, vec![queue]);
    let frame = [&[2; 60][..], &[], &[]].map(io::IoSlice::new);
    near.send_packets(1, &[frame; 8]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !matches!(worker.queues[0].recv(&mut worker.buf, Room::ONE), Received::Frame { .. }) {
        assert!(Instant::now() < deadline, "nothing came in");
    }
    assert_eq!(worker.queues[0].pending(), 7);
    let counters = agent.pipeline().snapshot().ports.find(PortNo(1)).unwrap().counters.clone();
    worker.remove_port(PortNo(1), Some(&counters));
    assert_eq!(counters.drops().by_reason().collect::<Vec<_>>(), [(DropReason::PortRemoved, 7)]);
    assert_eq!(counters.rx().frames, 7, "also received");
}

/// The ends of a VXLAN tunnel over the loopback interface, on a UDP port that was free.
fn tunnel_ends() -> (Arc<VxlanPort>, Arc<VxlanPort>) {
    let open = |port, local: u8, remote: u8| {
        let config = tunnel::Config::new([127, 0, 0, remote].into(), Vni::new(7).unwrap());
        VxlanPort::open(&config.port(port).local(Some([127, 0, 0, local].into())))
    };
    loop {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        match (open(free, 2, 3), open(free, 3, 2)) {
            (Ok(near), Ok(far)) => return (Arc::new(near), Arc::new(far)),
            (Err(OpenError::InUse { .. }), _) | (_, Err(OpenError::InUse { .. })) => {}
            failed => panic!("{failed:?}"),
        }
    }
}

/// Each queue is read once, and brings two trains of maximum length: twice the room reserved for
/// senders that cannot be paused.
#[test]
fn there_is_room_for_a_batch_of_each_queue() {
    if !rustix::process::geteuid().is_root() {
        let _ = io::stdout().write_all(b"\nSKIP: needs root to make network namespaces\n");
        return;
    }
    let (_sending, near, far) = veth();
    let (stopped, out, _nobody) = veth();
    // One frame every second or two; the others stay in the socket's buffer, which is then full.
    let mut tc = stopped.command("tc");
    tc.args("qdisc replace dev near root tbf rate 8kbit burst 1600 limit 10000000".split(' '));
    if !tc.status().is_ok_and(|status| status.success()) {
        let _ = io::stdout().write_all(b"\nSKIP: no tc program, or a kernel without tbf\n");
        return;
    }
    let mut agent = agent();
    for number in 1..=2 {
        agent.handle_port(port(number));
    }
    agent.set_standalone(true);
    let mut worker = worker(&shared(&agent));
    let (near, out) = (Arc::new(near), TxDevice::Netdev(Arc::new(out)));
    let queue = |_| {
        let device = RxDevice::Netdev(near.clone());
        RxQueue::new(PortNo(1), None, 0, device).with_gro(gro::Gro::On)
    };
    let to = |device| TxPort::new(device, crate::tx::Takes::EVERYTHING);
    let queues = (0..QUEUES).map(queue).collect();
    worker.add_port(PortNo(1), to(TxDevice::Netdev(near.clone())), queues);
    let out = to(out);
    out.begin();
    worker.add_port(PortNo(2), out, Vec::new());
    let (meta, train) = tcp_train(65_400, 1400);
    for index in 0..QUEUES {
        for _ in 0..2 {
            far.send(&meta, &[io::IoSlice::new(&train)]).unwrap();
        }
        worker.burst(index);
    }
    let snapshot = agent.pipeline().snapshot();
    let counters = &snapshot.ports.find(PortNo(2)).unwrap().counters;
    assert_eq!(counters.drops().by_reason().collect::<Vec<_>>(), []);
    assert!(worker.paused.len() > QUEUES - 4, "{} wait", worker.paused.len());
}

const QUEUES: usize = 130;

/// Two ends of a veth pair.
fn veth() -> (OwnedNamespace, PacketPort, PacketPort) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("swwrk-{}-{count}", std::process::id());
    let namespace = OwnedNamespace::create(&name).unwrap();
    let here: &Namespace = &namespace;
    let mut netlink = Netlink::open(here).unwrap();
    netlink.create_veth("near", "far", here).unwrap();
    netlink.set_up("near").unwrap();
    netlink.set_up("far").unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !["near", "far"].iter().all(|name| netlink.link(name).unwrap().running) {
        assert!(Instant::now() < deadline, "no carrier");
    }
    let open = |name| namespace.enter(|| PacketPort::open(name, &Config::default()).unwrap());
    let (near, far) = (open("near").unwrap(), open("far").unwrap());
    (namespace, near, far)
}

/// Regression: this used to end the thread.
#[test]
fn a_core_that_cannot_be_is_left_out() {
    let shared = shared(&agent());
    let core = Some(CORE_COUNT_MAX);
    let setup = WorkerSetup { index: WorkerIndex(0), core, shared: shared.clone() };
    let worker = setup.start().unwrap();
    worker.send(Errand::Sync(1));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !shared.is_synced(1) {
        assert!(Instant::now() < deadline, "the worker does nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_thread_that_panics_says_farewell() {
    let shared = shared(&agent());
    let farewell = Farewell(shared.clone());
    let thread = std::thread::spawn(move || {
        let _farewell = farewell;
        panic!("so that the thread ends");
    });
    assert!(thread.join().is_err());
    shared.worker_ended.notified().await;
}
