//! One switch and several controllers: permissions by role, and notifications.

use std::collections::BTreeMap;

use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

/// A switch with its connections and the common role state.
struct Agent {
    pairs: BTreeMap<ConnectionId, Pair>,
    roles: Roles,
}

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);

impl Agent {
    fn new() -> Self {
        let pairs = [A, B].map(|id| (id, Pair::ready(Config::default())));
        Self { pairs: pairs.into(), roles: Roles::new() }
    }

    fn pair(&mut self, id: ConnectionId) -> &mut Pair {
        self.pairs.get_mut(&id).unwrap()
    }

    /// Handles a role request as an agent does; returns the controller's answer.
    fn ask(&mut self, id: ConnectionId, role: ControllerRole, generation_id: u64) -> Body {
        let request = RoleMessage { role, generation_id };
        let pair = self.pairs.get_mut(&id).unwrap();
        let (xid, events) = pair.ask(Body::RoleRequest(request));
        assert_eq!(events, [SwitchEvent::RoleRequest { xid, request }]);
        let answer = self.roles.handle_request(id, pair.switch.role(), request);
        pair.switch.answer_role(xid, request, answer).unwrap();
        if let Ok(RoleChange { demoted: Some(other), .. }) = answer {
            self.pair(other).switch.set_role(ControllerRole::Slave);
        }
        let pair = self.pair(id);
        pair.exchange();
        match pair.take_controller_events().as_slice() {
            [ControllerEvent::Reply { body, .. }] => body.clone(),
            [ControllerEvent::Error { error, .. }] => Body::Error(error.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// Whether the connection's controller receives this.
    fn is_told(&mut self, id: ConnectionId, body: Body) -> bool {
        let pair = self.pair(id);
        let wanted = pair.switch.notify(body).unwrap();
        pair.exchange();
        assert_eq!(pair.take_controller_events().len(), usize::from(wanted));
        wanted
    }
}

fn granted(role: ControllerRole, generation_id: u64) -> Body {
    Body::RoleReply(RoleMessage { role, generation_id })
}

#[test]
fn a_new_master_makes_the_old_one_slave() {
    let mut agent = Agent::new();
    use ControllerRole::{Equal, Master, NoChange, Slave};
    assert_eq!(agent.ask(A, NoChange, 0), granted(Equal, u64::MAX));
    assert_eq!(agent.ask(A, Master, 1), granted(Master, 1));
    assert_eq!(agent.ask(B, Master, 2), granted(Master, 2));
    assert_eq!(agent.ask(A, NoChange, 0), granted(Slave, 2));
    assert_eq!(agent.pair(B).switch.role(), Master);
}

#[test]
fn a_stale_election_is_refused() {
    let mut agent = Agent::new();
    agent.ask(A, ControllerRole::Master, 5);
    let Body::Error(error) = agent.ask(B, ControllerRole::Master, 4) else { panic!("it is stale") };
    assert_eq!(error.kind, ErrorKind::OFPRRFC_STALE);
    assert_eq!(agent.pair(A).switch.role(), ControllerRole::Master);
    assert_eq!(agent.pair(B).switch.role(), ControllerRole::Equal);
}

#[test]
fn a_slave_may_look_but_not_touch() {
    let mut agent = Agent::new();
    agent.ask(A, ControllerRole::Slave, 1);
    let pair = agent.pair(A);
    let table = multipart::TableFeatures::default();
    let set_table = MultipartRequestBody::TableFeatures(vec![table]);
    for body in [
        flow_mod(),
        Body::PacketOut(PacketOut::new(vec![0; 60], vec![])),
        Body::SetConfig(SwitchConfig::default()),
        Body::MultipartRequest(MultipartRequest::new(set_table)),
    ] {
        let (xid, events) = pair.ask(body);
        assert!(matches!(events.as_slice(), [SwitchEvent::Refused(_)]), "{events:?}");
        assert_eq!(errors(&pair.said_by_switch()), [(xid, ErrorKind::OFPBRC_IS_SLAVE)]);
    }
    let look_at_tables = MultipartRequestBody::TableFeatures(vec![]);
    for body in [
        Body::BarrierRequest,
        Body::GetConfigRequest,
        Body::MultipartRequest(MultipartRequest::new(MultipartRequestBody::PortDesc)),
        Body::MultipartRequest(MultipartRequest::new(look_at_tables)),
    ] {
        let (_, events) = pair.ask(body);
        let [SwitchEvent::Request(request)] = events.as_slice() else { panic!("{events:?}") };
        pair.switch.refuse(request, ErrorKind::OFPBRC_EPERM).unwrap();
    }
}

#[test]
fn a_slave_is_told_of_ports_only() {
    let mut agent = Agent::new();
    agent.ask(A, ControllerRole::Slave, 1);
    let no_match = packet_in(PacketInReason::NO_MATCH);
    assert!(!agent.is_told(A, no_match.clone()));
    assert!(!agent.is_told(A, flow_removed()));
    assert!(agent.is_told(B, no_match));
    assert!(agent.is_told(B, flow_removed()));
    assert!(!agent.is_told(B, packet_in(PacketInReason::INVALID_TTL)));
}

#[test]
fn a_controller_picks_what_it_is_told() {
    let mut agent = Agent::new();
    let pair = agent.pair(A);
    let mut config = AsyncConfig::default();
    config.master.packet_in = 1 << PacketInReason::INVALID_TTL.0;
    config.slave.flow_removed = 1 << FlowRemovedReason::DELETE.0;
    let (_, events) = pair.ask(Body::SetAsync(config));
    assert_eq!(events, []);
    assert_eq!(*pair.switch.async_config(), config);
    let xid = pair.controller.send(Body::GetAsyncRequest).unwrap();
    pair.exchange();
    let reply = ControllerEvent::Reply { xid, body: Body::GetAsyncReply(config) };
    assert_eq!(pair.take_controller_events(), [reply]);
    assert!(agent.is_told(A, packet_in(PacketInReason::INVALID_TTL)));
    assert!(!agent.is_told(A, packet_in(PacketInReason::NO_MATCH)));
    agent.ask(A, ControllerRole::Slave, 1);
    assert!(agent.is_told(A, flow_removed()));
    assert!(!agent.is_told(A, packet_in(PacketInReason::INVALID_TTL)));
}
