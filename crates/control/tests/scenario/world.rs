//! A controller and its switches, connected by OpenFlow bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tapswitch_control::*;
use tapswitch_openflow::{Body, DatapathId, Message, MessageType};

use crate::frames;
use crate::model::Model;

/// A controller and its switches.
pub(crate) struct World {
    pub(crate) control: Control,
    limits: Limits,
    pub(crate) switches: BTreeMap<DatapathId, Model>,
    connected: BTreeSet<DatapathId>,
    /// The controller's ticket for each transaction id.
    tickets: BTreeMap<(DatapathId, u32), Ticket>,
    last_xid: u32,
    pub(crate) now: Millis,
    pub(crate) events: Vec<Event>,
    /// Cables between ports, in both directions.
    pub(crate) cables: BTreeMap<(u64, u32), (u64, u32)>,
    /// Number of host frames over each cable, by the end where they entered.
    pub(crate) crossed: BTreeMap<(u64, u32), usize>,
    /// Ports from which probes were sent.
    pub(crate) probed: BTreeSet<(u64, u32)>,
    /// Frames sent to hosts by packet-out.
    pub(crate) questions: Arrivals,
    /// The controller processes nothing: messages from switches are queued.
    pub(crate) is_stopped: bool,
    /// Delay of messages from switches to the controller.
    pub(crate) slow: Millis,
    under_way: VecDeque<(Millis, DatapathId, Message)>,
}

/// Frames at the edges: switch, port, frame.
pub(crate) type Arrivals = Vec<(u64, u32, Vec<u8>)>;

impl World {
    /// A world without switches.
    pub(crate) fn empty(limits: Limits) -> Self {
        Self {
            control: Control::new(limits.clone()),
            limits,
            switches: BTreeMap::new(),
            connected: BTreeSet::new(),
            tickets: BTreeMap::new(),
            last_xid: 0,
            now: Millis(10_000),
            events: Vec::new(),
            cables: BTreeMap::new(),
            crossed: BTreeMap::new(),
            probed: BTreeSet::new(),
            questions: Arrivals::new(),
            is_stopped: false,
            slow: Millis(0),
            under_way: VecDeque::new(),
        }
    }

    /// One connected switch 0x1 with ports p1 to p`ports`.
    pub(crate) fn new(ports: u32) -> Self {
        Self::with_limits(ports, Limits::default())
    }

    pub(crate) fn with_limits(ports: u32, limits: Limits) -> Self {
        let mut world = Self::empty(limits);
        world.add_switch(1, ports);
        world
    }

    /// The same with a foreign switch.
    pub(crate) fn foreign(ports: u32) -> Self {
        let mut world = Self::new(ports);
        world.disconnect(1);
        world.switch().is_foreign = true;
        world.connect(1);
        world
    }

    pub(crate) fn add_switch(&mut self, id: u64, ports: u32) {
        self.switches.insert(DatapathId(id), Model::new(id, ports));
        self.connect(id);
    }

    pub(crate) fn connect(&mut self, id: u64) {
        self.connect_under(id, &mut |_| {});
    }

    /// Connects a switch while `traffic` is called after each message to it.
    pub(crate) fn connect_under(&mut self, id: u64, traffic: &mut dyn FnMut(&mut Model)) {
        let features = self.model(id).features();
        self.model(id).said.clear();
        self.model(id).starts_suffice = false;
        self.under_way.retain(|(_, switch, _)| *switch != DatapathId(id));
        self.connected.insert(DatapathId(id));
        self.control.handle_connected(&features, self.now);
        self.run_and_watch(traffic);
    }

    /// The connection fails, which the controller has not noticed yet.
    pub(crate) fn cut_off(&mut self, id: u64) {
        self.connected.remove(&DatapathId(id));
    }

    pub(crate) fn disconnect(&mut self, id: u64) {
        self.connected.remove(&DatapathId(id));
        self.tickets.retain(|(switch, _), _| *switch != DatapathId(id));
        self.control.handle_disconnected(DatapathId(id));
        self.run();
    }

    /// Restarts the controller while `traffic` is called after each message to the switch.
    pub(crate) fn restart_controller_under(
        &mut self,
        policies: &[TapPolicy],
        traffic: &mut dyn FnMut(&mut Model),
    ) {
        self.control = Control::new(self.limits.clone());
        self.tickets.clear();
        for policy in policies {
            self.control.add_policy(policy.clone(), WhenMissing::Wait).unwrap();
        }
        self.control.handle_connected(&self.switches[&DatapathId(1)].features(), self.now);
        self.run_and_watch(traffic);
    }

    /// A new controller without any state except its configured policies.
    pub(crate) fn restart_controller(&mut self, policies: &[TapPolicy]) {
        self.restart_controller_slowly(policies, &mut |_| {});
    }

    /// The same; the switches connect one by one, and `between` is called after each.
    pub(crate) fn restart_controller_slowly(
        &mut self,
        policies: &[TapPolicy],
        between: &mut dyn FnMut(&mut Self),
    ) {
        self.control = Control::new(self.limits.clone());
        self.tickets.clear();
        for policy in policies {
            self.control.add_policy(policy.clone(), WhenMissing::Wait).unwrap();
        }
        for id in std::mem::take(&mut self.connected) {
            self.model(id.0).changes.clear();
            self.connect(id.0);
            between(self);
        }
    }

    pub(crate) fn model(&mut self, id: u64) -> &mut Model {
        self.switches.get_mut(&DatapathId(id)).unwrap()
    }

    /// The only switch.
    pub(crate) fn switch(&mut self) -> &mut Model {
        self.model(1)
    }

    /// Delivers messages until none are left.
    pub(crate) fn run(&mut self) {
        self.run_and_watch(&mut |_| {});
    }

    /// Delivers messages until none are left, and calls `watch` after each.
    pub(crate) fn run_and_watch(&mut self, watch: &mut dyn FnMut(&mut Model)) {
        if self.is_stopped {
            return;
        }
        while self.carry_to_switches(watch) | self.carry_emitted() | self.carry_to_controller() {}
        while let Some(event) = self.control.poll_event() {
            self.events.push(event);
        }
    }

    /// Advances time at the switches, then at the controller.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Millis(ms));
        self.switches.values_mut().for_each(|model| model.pass(ms));
        self.run();
        self.control.handle_timeout(self.now);
        self.run();
    }

    /// A frame arrives at the only switch and is processed by the controller, too. Returns the
    /// output ports; the frame must be unchanged.
    pub(crate) fn send(&mut self, port: u32, frame: &[u8]) -> Vec<u32> {
        let sent = self.switch().receive(port, frame);
        assert!(sent.iter().all(|(_, copy)| copy == frame), "every copy is the frame itself");
        self.run();
        sent.into_iter().map(|(port, _)| port).collect()
    }

    /// A frame from a host arrives, and crosses all cables until it has left the fabric. Then the
    /// controller processes its input.
    pub(crate) fn inject(&mut self, switch: u64, port: u32, frame: &[u8]) -> Arrivals {
        let mut arrivals = Arrivals::new();
        let mut under_way = vec![(switch, port, frame.to_vec())];
        let mut hops = 0;
        while let Some((switch, port, frame)) = under_way.pop() {
            hops += 1;
            assert!(hops < 2000, "a frame loops");
            for (out, frame) in self.model(switch).receive(port, &frame) {
                match self.cables.get(&(switch, out)) {
                    Some(&(peer, at)) => {
                        *self.crossed.entry((switch, out)).or_default() += 1;
                        under_way.push((peer, at, frame));
                    }
                    None => arrivals.push((switch, out, frame)),
                }
            }
        }
        self.run();
        arrivals.sort();
        arrivals
    }

    /// Carries frames sent by packet-out over the cables.
    pub(crate) fn carry_emitted(&mut self) -> bool {
        let emitted = self.switches.values_mut().flat_map(|model| {
            std::mem::take(&mut model.emitted)
                .into_iter()
                .map(|(port, frame)| (model.id, port, frame))
        });
        let emitted: Vec<_> = emitted.collect();
        let carried = !emitted.is_empty();
        for (switch, port, frame) in emitted {
            let is_probe = frame.get(12..14) == Some(&[0x88, 0xcc]);
            self.probed.extend(is_probe.then_some((switch, port)));
            if let Some(&(peer, at)) = self.cables.get(&(switch, port)) {
                let sent = self.model(peer).receive(at, &frame);
                assert_eq!(sent, [], "frames by which links are found stay on their link");
            } else if !is_probe {
                self.questions.push((switch, port, frame));
            }
        }
        carried
    }

    /// Hosts 1 to `hosts` send, each from the port of its number.
    pub(crate) fn learn(&mut self, hosts: u8) {
        for host in 1..=hosts {
            self.send(host.into(), &frames::arp_request(host, 99, None));
        }
    }

    /// Adds a policy, which must become active.
    pub(crate) fn tap(&mut self, policy: TapPolicy) {
        let name = policy.name.clone();
        self.events.clear();
        self.control.add_policy(policy, WhenMissing::Refuse).unwrap();
        self.run();
        // That of a host is reported with its location.
        self.events.retain(|event| !matches!(event, Event::PolicyMoved { .. }));
        assert_eq!(self.events, [Event::PolicyActive { name }]);
        self.events.clear();
    }

    /// Adds a policy, which must be proved.
    pub(crate) fn plan_and_tap(&mut self, policy: TapPolicy) {
        let before: Vec<_> = self.switches.values().map(Model::state).collect();
        let plan = self.control.plan_policy(policy.clone()).unwrap();
        assert!(plan.proof.is_proved && plan.proof.checked > 0, "{:?}", plan.proof);
        assert!(plan.changes.iter().any(|change| !change.add.is_empty()), "{plan:?}");
        self.run();
        let after: Vec<_> = self.switches.values().map(Model::state).collect();
        assert_eq!(before, after, "a plan changes nothing");
        self.tap(policy);
    }

    /// Deletes a policy, and checks that it is gone.
    pub(crate) fn untap(&mut self, name: &str) -> PolicyReport {
        self.events.clear();
        self.control.delete_policy(name).unwrap();
        self.run();
        let last = self.events.pop();
        // Another policy may be applied at more switches now.
        let is_other =
            |event: &Event| matches!(event, Event::PolicyActive { name: other } if other != name);
        match last {
            Some(Event::PolicyDeleted(report)) if self.events.iter().all(is_other) => *report,
            last => panic!("{last:?} after {:?}", self.events),
        }
    }

    /// The state of a policy.
    pub(crate) fn state(&self, name: &str) -> PolicyState {
        self.control.policy(name).unwrap().state
    }

    /// Report with current counters.
    pub(crate) fn ledger(&mut self, name: &str) -> PolicyReport {
        let token = self.control.request_stats();
        self.run();
        assert!(self.events.contains(&Event::StatsReady(token)));
        self.control.policy(name).unwrap()
    }

    /// Report with current counters, while `traffic` and `look` are called after each message.
    pub(crate) fn ledger_under(
        &mut self,
        name: &str,
        traffic: &mut dyn FnMut(&mut Self),
        look: &mut dyn FnMut(&PolicyReport),
    ) -> PolicyReport {
        let token = self.control.request_stats();
        while !self.events.contains(&Event::StatsReady(token)) {
            assert!(self.carry_one(), "an answer is missing");
            traffic(self);
            look(&self.control.policy(name).unwrap());
            self.events.extend(self.control.poll_event());
        }
        self.control.policy(name).unwrap()
    }

    /// Delivers one message, if there is one.
    fn carry_one(&mut self) -> bool {
        if let Some(transmit) = self.control.poll_transmit() {
            self.carry(transmit);
            return true;
        }
        let Some(model) = self.switches.values_mut().find(|model| !model.said.is_empty()) else {
            return false;
        };
        let (id, message) = (DatapathId(model.id), model.said.remove(0));
        self.deliver(id, over_the_wire(&message));
        true
    }

    /// Advances time; `look` is called after each message, while nothing else is delivered.
    pub(crate) fn pass_and_look(&mut self, ms: u64, look: &mut dyn FnMut(&mut Self)) {
        for _ in 0..ms.div_ceil(50) {
            self.is_stopped = true;
            self.pass(50);
            while self.carry_one() {
                look(self);
            }
            self.is_stopped = false;
            self.run();
        }
    }

    /// Changes received by the switch since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Body> {
        std::mem::take(&mut self.switch().changes)
    }

    pub(crate) fn carry_to_switches(&mut self, watch: &mut dyn FnMut(&mut Model)) -> bool {
        let mut carried = false;
        while let Some(transmit) = self.control.poll_transmit() {
            carried = true;
            let switch = transmit.switch;
            if self.carry(transmit) {
                watch(self.model(switch.0));
            }
        }
        carried
    }

    /// Returns whether the switch exists.
    pub(crate) fn carry(&mut self, Transmit { switch, ticket, body }: Transmit) -> bool {
        let is_there = self.connected.contains(&switch);
        if is_there {
            self.last_xid += 1;
            self.tickets.insert((switch, self.last_xid), ticket);
            let message = over_the_wire(&Message { xid: self.last_xid, body });
            self.model(switch.0).handle(message);
        }
        is_there
    }

    fn carry_to_controller(&mut self) -> bool {
        let arrival = self.now.plus(self.slow);
        for id in self.connected.clone() {
            let said = std::mem::take(&mut self.model(id.0).said).into_iter();
            self.under_way.extend(said.map(|message| (arrival, id, message)));
        }
        let mut carried = false;
        while self.under_way.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((_, id, message)) = self.under_way.pop_front() else { break };
            carried = true;
            self.deliver(id, over_the_wire(&message));
        }
        carried
    }

    /// The controller processes the oldest message of a switch.
    pub(crate) fn hear_one(&mut self, id: DatapathId) {
        let said = &mut self.model(id.0).said;
        let message = (!said.is_empty()).then(|| said.remove(0));
        if let Some(message) = message.filter(|_| self.connected.contains(&id)) {
            self.deliver(id, over_the_wire(&message));
        }
    }

    fn deliver(&mut self, id: DatapathId, message: Message) {
        let Message { xid, body } = message;
        let ticket = self.tickets.get(&(id, xid)).copied();
        match (&body, ticket) {
            (Body::Error(error), Some(ticket)) => {
                self.control.handle_error(id, ticket, error.kind, self.now);
            }
            (body, Some(ticket)) if body.message_type() != MessageType::PacketIn => {
                self.control.handle_reply(id, ticket, body, self.now);
            }
            (body, _) => self.control.handle_message(id, body, self.now),
        }
    }
}

/// The message as decoded by the other end; long multiparts are split.
fn over_the_wire(message: &Message) -> Message {
    let Body::MultipartReply(reply) = &message.body else {
        return one_over_the_wire(message);
    };
    let parts = reply.clone().split().into_iter().map(|part| {
        let part = Message { xid: message.xid, body: Body::MultipartReply(part) };
        one_over_the_wire(&part)
    });
    parts.reduce(join).unwrap()
}

fn one_over_the_wire(message: &Message) -> Message {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    Message::decode(&bytes).unwrap()
}

fn join(mut joined: Message, part: Message) -> Message {
    match (&mut joined.body, part.body) {
        (Body::MultipartReply(joined), Body::MultipartReply(part)) => joined.append(part).unwrap(),
        other => panic!("{other:?}"),
    }
    joined
}

/// A policy without any field.
pub(crate) fn policy(name: &str, monitor: &str) -> TapPolicy {
    let direction = Some(Direction::Forward);
    TapPolicy { direction, ..TapPolicy::new(name, monitor.parse().unwrap()) }
}
