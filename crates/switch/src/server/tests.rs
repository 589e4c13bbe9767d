//! Tests of the server without workers and connections.

use std::io::{self, Write};

use tapswitch_channel::Roles;
use tapswitch_datapath::{PacketInClaim, Traffic, WorkerIndex};
use tapswitch_netlink::{LinkMonitor, Namespace, OwnedNamespace};
use tapswitch_openflow::multipart::FlowStatsRequest;
use tapswitch_openflow::{
    Action, BufferId, DatapathId, FlowMod, FlowModCommand, Match, Oxm, PacketInReason, PortState,
    StartsSuffice, TableId,
};
use tokio::sync::Semaphore;

use super::*;
use crate::agent::Identity;
use crate::fate::FrameFate;
use crate::peer::Inbox;

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);
const C: ConnectionId = ConnectionId(3);

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

/// Opens a connection. Returns the requests that it receives.
fn join(server: &mut Server, id: ConnectionId) -> Inbox {
    let (orders, inbox) = Orders::channel();
    server.handle_peer(id, FromPeer::Opened { orders, origin: Origin::Accepted });
    server.handle_peer(id, FromPeer::Event(SwitchEvent::Ready));
    inbox
}

/// Opens a controller's connection, on trial or not.
fn join_as_controller(server: &mut Server, id: ConnectionId, is_on_trial: bool) -> Inbox {
    let (orders, inbox) = Orders::channel();
    let origin = Origin::Controller { endpoint: "tcp:[::1]:6653".parse().unwrap(), is_on_trial };
    server.handle_peer(id, FromPeer::Opened { orders, origin });
    server.handle_peer(id, FromPeer::Event(SwitchEvent::Ready));
    inbox
}

/// A packet-in of port 1.
fn packet_in() -> PacketIn {
    PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 60,
        reason: PacketInReason::ACTION,
        table_id: TableId(0),
        cookie: 0,
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        data: vec![0; 60],
    }
}

/// Sends a request from the controller.
fn ask(server: &mut Server, id: ConnectionId, xid: u32, body: Body) {
    server.handle_peer(id, FromPeer::Event(SwitchEvent::Request(Message { xid, body })));
}

fn ask_to_lead(server: &mut Server, id: ConnectionId, generation_id: u64) {
    let request = RoleMessage { role: ControllerRole::Master, generation_id };
    let event = SwitchEvent::RoleRequest { xid: 1, request };
    server.handle_peer(id, FromPeer::Event(event));
}

/// Ids of the requests that were answered since the last call.
fn answered(inbox: &mut Inbox) -> Vec<u32> {
    let orders = std::iter::from_fn(|| inbox.try_recv());
    let xid = |order| match order {
        ToPeer::Reply(xid, _) => Some(xid),
        _ => None,
    };
    orders.filter_map(xid).collect()
}

fn add_rule() -> Body {
    Body::FlowMod(FlowMod::new(FlowModCommand::Add))
}

fn all_rules() -> Body {
    let body = MultipartRequestBody::Flow(FlowStatsRequest::default());
    Body::MultipartRequest(MultipartRequest::new(body))
}

fn count_rules(server: &Server) -> usize {
    let tables = server.agent.pipeline().snapshot().tables(TableId::ALL);
    tables.map(|(_, table)| table.count()).sum()
}

/// The late requests of a replaced master must not undo those of the new one.
#[test]
fn what_a_demoted_controller_left_behind_a_barrier_is_not_done() {
    let mut server = server(&[]);
    let _inboxes = [A, B].map(|id| join(&mut server, id));
    ask_to_lead(&mut server, A, 1);
    ask(&mut server, A, 2, Body::BarrierRequest);
    ask(&mut server, A, 3, add_rule());
    ask_to_lead(&mut server, B, 2);
    server.handle_peer(A, FromPeer::Gone);
    server.finish_barriers();
    assert_eq!(count_rules(&server), 0);
}

#[test]
fn what_a_controller_left_behind_a_barrier_is_done() {
    let mut server = server(&[]);
    let _inbox = join(&mut server, A);
    ask(&mut server, A, 2, Body::BarrierRequest);
    ask(&mut server, A, 3, add_rule());
    assert_eq!(count_rules(&server), 0, "the barrier is not done");
    server.handle_peer(A, FromPeer::Gone);
    assert_eq!(count_rules(&server), 1);
}

#[test]
fn questions_of_one_who_is_gone_keep_nobody_waiting() {
    let mut server = server(&[]);
    let [_, mut b, mut c] = [A, B, C].map(|id| join(&mut server, id));
    for xid in 0..100 {
        ask(&mut server, A, xid, all_rules());
    }
    server.handle_peer(A, FromPeer::Gone);
    ask(&mut server, B, 7, all_rules());
    ask(&mut server, C, 8, Body::BarrierRequest);
    server.finish_barriers();
    assert_eq!((answered(&mut b), answered(&mut c)), (vec![7], vec![]));
    server.finish_barriers();
    assert_eq!((answered(&mut b), answered(&mut c)), (vec![], vec![8]));
}

/// Dumps take long; other requests are handled between two of them.
#[tokio::test]
async fn long_answers_are_given_one_at_a_time() {
    let mut server = server(&[]);
    let mut inboxes = [A, B].map(|id| join(&mut server, id));
    ask(&mut server, A, 1, all_rules());
    ask(&mut server, B, 2, all_rules());
    let mut look = || inboxes.each_mut().map(answered);
    server.finish_barriers();
    assert_eq!(look(), [vec![1], vec![]]);
    // There is more to do, without another report from the workers.
    server.shared.synced.notified().await;
    server.finish_barriers();
    assert_eq!(look(), [vec![], vec![2]]);
}

/// Names change, and an interface may have several.
#[test]
fn an_interface_is_the_same_whatever_it_is_called() {
    let Some(here) = namespace("same") else { return };
    let mut netlink = Netlink::open(&here).unwrap();
    netlink.create_veth("p1", "e1", &here).unwrap();
    let spec = |text: &str| format!("{text},netns={}", here.label());
    let mut server = server(&[spec("1=netdev:p1"), spec("2=tap:t1")]);
    let add = |server: &mut Server, text| server.add_port(&spec(text).parse().unwrap());
    let refuses = |server: &mut Server, text| {
        let error = add(server, text).unwrap_err().to_string();
        assert!(error.contains("are the same interface"), "{text}: {error}");
    };
    let altname = ["link", "property", "add", "dev", "p1", "altname", "port-one"];
    match here.command("ip").args(altname).status() {
        Ok(status) if status.success() => refuses(&mut server, "3=netdev:port-one"),
        _ => skip("no ip, or none that gives an interface another name"),
    }
    netlink.set_down("t1").unwrap();
    netlink.rename("p1", "p9").unwrap();
    netlink.rename("t1", "t9").unwrap();
    refuses(&mut server, "3=netdev:p9");
    refuses(&mut server, "3=netdev:t9");
    assert_eq!(netlink.link("p9").unwrap().mtu, 1508, "what is refused changes nothing");
    let index = netlink.link("p9").unwrap().index;
    let event = LinkEvent::Deleted { index, name: "p9".to_owned(), moved: None };
    server.handle_link(LinkNews { namespace: 0, event });
    refuses(&mut server, "3=netdev:p9"); // A deleted interface may return; its port restores it.
    add(&mut server, "3=tap:t1").unwrap();
    add(&mut server, "4=tap:p1").unwrap();
}

/// A resync of all interfaces misses it before its move is reported.
#[test]
fn an_interface_that_was_missed_gets_its_mtu_back_where_it_went() {
    let (Some(here), Some(there)) = (namespace("from"), namespace("to")) else { return };
    let mut netlink = Netlink::open(&here).unwrap();
    netlink.create_veth("p1", "e1", &here).unwrap();
    let mut server = server(&[format!("1=netdev:p1,netns={}", here.label())]);
    let mut monitor = LinkMonitor::open(&here).unwrap();
    netlink.move_to_namespace("p1", &there).unwrap();
    let mut far = Netlink::open(&there).unwrap();
    assert_eq!(far.link("p1").unwrap().mtu, 1508);
    server.resync(0);
    let is_move = |event: &LinkEvent| matches!(event, LinkEvent::Deleted { moved: Some(_), .. });
    let event = std::iter::from_fn(|| monitor.poll_event().unwrap()).find(is_move).unwrap();
    server.handle_link(LinkNews { namespace: 0, event });
    let link = far.link("p1").unwrap();
    assert_eq!((link.mtu, link.alias), (1500, None));
}

fn skip(why: &str) {
    let _ = io::stdout().write_all(format!("\nSKIP: {why}\n").as_bytes());
}

/// A namespace for one test.
fn namespace(name: &str) -> Option<OwnedNamespace> {
    if !rustix::process::geteuid().is_root() {
        skip("needs root to make network namespaces");
        return None;
    }
    Some(OwnedNamespace::create(&format!("swsrv-{name}-{}", std::process::id())).unwrap())
}

/// If kernel messages were lost, the interface's deletion may have been among them.
#[test]
fn a_fresh_look_finds_what_has_gone() {
    let Some(namespace) = namespace("fresh") else { return };
    let here: &Namespace = &namespace;
    let name = here.label().to_owned();
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

/// It would get the workers' last counts for the old port, and lose its own when that is retired.
#[test]
fn a_port_comes_when_the_one_whose_place_it_takes_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = |number, name| format!("{number}=pcapng:{}/{name}", folder.path().display());
    let mut server = server(&[file(1, "a"), file(2, "b")]);
    let add = |server: &mut Server, spec: String| {
        let (answer, outcome) = oneshot::channel();
        server.change_ports(PortChange::Add(Box::new(spec.parse().unwrap()), answer));
        outcome
    };
    let (answer, mut removed) = oneshot::channel();
    server.change_ports(PortChange::Remove(PortNo(1), answer));
    let mut same_number = add(&mut server, file(1, "c"));
    let mut same_file = add(&mut server, file(3, "a"));
    let mut neither = add(&mut server, file(4, "d"));
    assert!(neither.try_recv().unwrap().is_ok(), "others do not wait");
    assert!(same_number.try_recv().is_err() && same_file.try_recv().is_err());
    assert!(server.agent.pipeline().snapshot().ports.find(PortNo(1)).is_none());
    server.finish_barriers();
    assert_eq!(removed.try_recv().unwrap(), Ok(()));
    assert!(same_number.try_recv().unwrap().is_ok() && same_file.try_recv().unwrap().is_ok());
    assert!(add(&mut server, file(1, "e")).try_recv().unwrap().is_err(), "it is taken now");
}

#[test]
fn a_port_that_stalls_again_and_again_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(&[format!("1=pcapng:{}/a", folder.path().display())]);
    let told = |server: &mut Server| {
        server.handle(Input::Report(Report::Stalled(PortNo(1))));
        server.handle(Input::Report(Report::Stalled(PortNo(2))));
        server.ports.find_mut(PortNo(1)).unwrap().stalls.was_last()
    };
    assert_eq!([(); 3].map(|()| told(&mut server)), [false, true, false]);
}

/// Whole packets are sent while one of them wants these.
#[test]
fn starts_of_packets_suffice_while_nobody_wants_more() {
    let mut server = server(&[]);
    let suffice = |server: &Server| {
        let shared = &server.shared;
        assert!(shared.has_controller.load(Ordering::Relaxed));
        shared.starts_suffice.load(Ordering::Relaxed)
    };
    let only_looks = || Body::Experimenter(StartsSuffice.experimenter());
    let mut inboxes = [A, B].map(|id| {
        let inbox = join(&mut server, id);
        server.handle_peer(id, FromPeer::Listens(true));
        inbox
    });
    assert!(!suffice(&server));
    ask(&mut server, A, 5, only_looks());
    assert!(!suffice(&server), "the other one has not said so");
    ask(&mut server, B, 5, only_looks());
    assert!(suffice(&server));
    assert!(inboxes.iter_mut().all(|inbox| inbox.try_recv().is_none()), "nothing is answered");
    let _third = join(&mut server, C);
    assert!(suffice(&server), "it does not listen");
    server.handle_peer(C, FromPeer::Listens(true));
    assert!(!suffice(&server));
    server.handle_peer(C, FromPeer::Gone);
    assert!(suffice(&server));
}

/// It was cut when nobody wanted more: the one that came since would send the start back.
#[test]
fn a_start_is_not_sent_to_who_wants_whole_packets() {
    let mut server = server(&[]);
    let mut inboxes = [A, B].map(|id| {
        let inbox = join(&mut server, id);
        server.handle_peer(id, FromPeer::Listens(true));
        inbox
    });
    ask(&mut server, A, 5, Body::Experimenter(StartsSuffice.experimenter()));
    let mut tell = |is_start| {
        let credit = server.shared.credits.take(PortNo(1), &[], 1).unwrap();
        let fate = PacketFate::new(&FrameFate::new(None), credit);
        server.notify_packet_in(&packet_in(), is_start, &fate);
        inboxes.each_mut().map(|inbox| inbox.try_recv().is_some())
    };
    assert_eq!((tell(true), tell(false)), ([true, false], [true, true]));
}

/// A frame counts once, however many controllers there are.
#[test]
fn a_packet_in_is_lost_when_no_controller_takes_it_and_once() {
    let mut server = server(&[]);
    let mac = tapswitch_wire::MacAddr::ZERO;
    server.agent.handle_port(Port::new(PortNo(1), "p1".to_owned(), mac, 1500, 1));
    let packet_in = packet_in();
    let inboxes = [1, 2].map(|number| {
        let inbox = join(&mut server, ConnectionId(number));
        server.handle_peer(ConnectionId(number), FromPeer::Listens(true));
        inbox
    });
    let fill = |server: &Server, number| {
        let orders = &server.peers[&ConnectionId(number)].orders;
        while orders.send(ToPeer::PacketIn(packet_in.clone(), None)) {}
    };
    let port = server.agent.pipeline().snapshot().ports.find(PortNo(1)).unwrap().clone();
    let frame = || {
        let traffic = Traffic::frame(60, 1);
        FrameFate::new(Some(PacketInClaim::new(WorkerIndex::NONE, &port, traffic).wait()))
    };
    let notify = |server: &Server, frame: Arc<FrameFate>| {
        let credit = server.shared.credits.take(PortNo(1), &[], 1).unwrap();
        server.notify_packet_in(&packet_in, false, &PacketFate::new(&frame, credit));
    };
    let dropped = |reason| port.counters.drops().count(reason);
    let lost = || dropped(DropReason::ControllerQueueFull);
    fill(&server, 1);
    notify(&server, frame());
    assert_eq!(lost(), 0, "the other one has it");
    fill(&server, 2);
    notify(&server, frame());
    assert_eq!(lost(), 1);
    let train = frame();
    (0..3).for_each(|_| notify(&server, train.clone()));
    assert_eq!(lost(), 2, "a train is one frame");
    drop(train);
    notify(&server, FrameFate::new(None));
    assert_eq!((lost(), port.counters.consumed()), (2, 1), "it was dropped already");
    drop(inboxes);
    assert_eq!((lost(), port.counters.consumed()), (3, 0), "the connection has ended with it");
    [1, 2].into_iter().for_each(|id| server.handle_peer(ConnectionId(id), FromPeer::Gone));
    let mut other = join(&mut server, ConnectionId(3));
    server.handle_peer(ConnectionId(3), FromPeer::Listens(true));
    notify(&server, frame());
    let Some(ToPeer::PacketIn(_, Some(fate))) = other.try_recv() else { panic!() };
    fate.arrived();
    drop(fate);
    drop(other);
    notify(&server, frame());
    let gone = dropped(DropReason::NoController);
    assert_eq!((lost(), gone, port.counters.consumed()), (3, 1, 1), "one has arrived");
}

/// Otherwise frames would be lost at each of its hellos.
#[test]
fn a_controller_that_hung_up_at_once_leads_when_it_does_something_or_stays() {
    let mut server = server(&[]);
    server.fail_mode = FailMode::Standalone;
    server.controllers = vec!["tcp:[::1]:6653".parse().unwrap()];
    let stands_alone = |server: &Server| server.agent.pipeline().snapshot().standalone;
    let _a = join_as_controller(&mut server, A, false);
    assert!(!stands_alone(&server), "the first time it leads at once");
    server.handle_peer(A, FromPeer::Gone);
    let begins: [fn(&mut Server); 3] = [
        |server| server.handle_peer(B, FromPeer::Lasts),
        |server| ask(server, B, 2, add_rule()),
        |server| ask(server, B, 2, Body::BarrierRequest),
    ];
    for begin in begins {
        let _b = join_as_controller(&mut server, B, true);
        ask(&mut server, B, 1, all_rules());
        server.finish_barriers();
        assert!(stands_alone(&server), "it has only asked");
        begin(&mut server);
        assert!(!stands_alone(&server));
        server.handle_peer(B, FromPeer::Gone);
        assert!(stands_alone(&server));
    }
}

/// A switch that forwards nothing must not appear to be running.
#[tokio::test]
async fn a_worker_that_ends_ends_the_switch() {
    let server = server(&[]);
    server.shared.worker_ended.notify_one();
    assert_eq!(server.run(std::future::pending()).await, Err(WorkerEnded));
}

/// A held request uses space like one that a worker executes.
#[test]
fn a_packet_out_behind_a_barrier_keeps_its_room() {
    let mut server = server(&[]);
    let _inbox = join(&mut server, A);
    let room = Arc::new(Semaphore::new(1));
    let taken = room.clone().try_acquire_owned().unwrap();
    ask(&mut server, A, 2, Body::BarrierRequest);
    let packet = PacketOut::new(vec![0; 60], vec![Action::output(PortNo(1))]);
    let event = SwitchEvent::Request(Message { xid: 3, body: Body::PacketOut(packet) });
    server.handle_peer(A, FromPeer::PacketOut(event, taken));
    assert_eq!(room.available_permits(), 0, "it is held");
    server.finish_barriers();
    assert_eq!(room.available_permits(), 1, "there is no worker that has it");
}

#[tokio::test]
async fn questions_are_answered_however_much_controllers_send() {
    let mut server = server(&[]);
    let _inbox = join(&mut server, A);
    let ((to_server, peers), (ask, queries)) = (mpsc::channel(64), mpsc::channel(1));
    (server.inputs.peers, server.inputs.queries) = (peers, queries);
    let request = || FromPeer::Event(SwitchEvent::Request(Message { xid: 1, body: add_rule() }));
    tokio::spawn(async move { while to_server.send((A, request())).await.is_ok() {} });
    let (answer, answered) = oneshot::channel();
    tokio::task::yield_now().await;
    ask.send(Query::Switch(answer)).await.unwrap();
    tokio::select! {
        ended = server.run(std::future::pending()) => panic!("{ended:?}"),
        answer = tokio::time::timeout(PATIENCE, answered) => assert!(answer.is_ok()),
    }
}

/// Far longer than an answer takes on any machine.
const PATIENCE: Duration = Duration::from_secs(30);
