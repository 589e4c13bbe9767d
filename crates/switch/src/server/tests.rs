//! The server by itself: a look at the interfaces afresh.

use std::io::{self, Write};

use tapswitch_channel::Roles;
use tapswitch_netlink::{Namespace, OwnedNamespace};
use tapswitch_openflow::{BufferId, DatapathId, Match, Oxm, PortState, TableId};

use super::*;
use crate::agent::Identity;

/// A server without workers and connections.
fn server(specs: &[String]) -> Server {
    let identity = Identity { datapath_id: DatapathId(1), name: "br0".into() };
    let agent = Agent::new(identity, crate::Learning::Outer, 0, clock::coarse());
    let snapshot = agent.pipeline().snapshot().clone();
    let (shared, reports) = Shared::new(snapshot, agent.macs().table().clone(), 0);
    let ((_, peers), (_, queries)) = (mpsc::channel(1), mpsc::channel(1));
    let (ports, news) = Ports::new(1);
    let mut server = Server {
        agent,
        shared,
        workers: Vec::new(),
        ports,
        fail_mode: FailMode::Secure,
        controllers: Vec::new(),
        peers: HashMap::new(),
        roles: Roles::new(),
        barriers: Barriers::default(),
        inputs: Inputs { peers, reports, news, queries },
    };
    specs.iter().for_each(|spec| server.add_port(&spec.parse().unwrap()).unwrap());
    server
}

/// When messages of the kernel were lost, the interface may have gone with them.
#[test]
fn a_fresh_look_finds_what_has_gone() {
    if !rustix::process::geteuid().is_root() {
        let _ = io::stdout().write_all(b"\nSKIP: needs root to make network namespaces\n");
        return;
    }
    let name = format!("swsrv-{}", std::process::id());
    let namespace = OwnedNamespace::create(&name).unwrap();
    let here: &Namespace = &namespace;
    let mut netlink = Netlink::open(here).unwrap();
    for (one, other) in [("p1", "e1"), ("p2", "e2")] {
        netlink.create_veth(one, other, here).unwrap();
        netlink.set_up(one).unwrap();
        netlink.set_up(other).unwrap();
    }
    let spec = |number| format!("{number}=netdev:p{number},netns={name}");
    let mut server = server(&[spec(1), spec(2)]);
    let resync = || LinkNews { namespace: 0, event: LinkEvent::Resync };
    let states = |server: &Server| {
        let ports = &server.agent.pipeline().snapshot().ports;
        ports.iter().map(|port| port.state).collect::<Vec<_>>()
    };
    let (live, down) = (PortState::LIVE, PortState::LINK_DOWN);
    server.handle_link(resync());
    assert_eq!(states(&server), [live, live]);
    netlink.set_down("p1").unwrap();
    netlink.delete("p2").unwrap();
    server.handle_link(resync());
    assert_eq!(states(&server), [down, down]);
    netlink.set_up("p1").unwrap();
    server.handle_link(resync());
    assert_eq!(states(&server), [live, down]);
}

/// A frame is one, however many controllers there are.
#[test]
fn a_packet_in_is_lost_when_no_controller_takes_it_and_once() {
    let mut server = server(&[]);
    let mac = tapswitch_wire::MacAddr::ZERO;
    server.agent.handle_port(Port::new(PortNo(1), "p1".to_owned(), mac, 1500, 1));
    let packet_in = PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 60,
        reason: PacketInReason::ACTION,
        table_id: TableId(0),
        cookie: 0,
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        data: vec![0; 60],
    };
    let _inboxes = [1, 2].map(|number| {
        let (orders, inbox) = Orders::channel();
        let (controller, held) = (None, VecDeque::new());
        let role = ControllerRole::Equal;
        let peer = PeerState { orders, controller, is_ready: true, listens: true, role, held };
        server.peers.insert(ConnectionId(number), peer);
        inbox
    });
    let fill = |server: &Server, number| {
        let body = || Body::PacketIn(packet_in.clone());
        let orders = &server.peers[&ConnectionId(number)].orders;
        while orders.send(ToPeer::PacketIn(body(), None)) {}
    };
    let lost = |server: &Server| {
        let port = server.agent.pipeline().snapshot().ports.find(PortNo(1)).unwrap();
        port.counters.drops().count(DropReason::ControllerQueueFull)
    };
    fill(&server, 1);
    server.notify_packet_in(&packet_in);
    assert_eq!(lost(&server), 0, "the other one has it");
    fill(&server, 2);
    server.notify_packet_in(&packet_in);
    assert_eq!(lost(&server), 1);
    let reason = PacketInReason::INVALID_TTL;
    server.notify_packet_in(&PacketIn { reason, ..packet_in.clone() });
    assert_eq!(lost(&server), 1, "it was dropped already");
}
