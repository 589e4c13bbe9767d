//! Two switches with the same ports, Open vSwitch and ours, which receive the same frames.

mod meters;

use std::io::IoSlice;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN, SendError};
use tapswitch_openflow::multipart::{FlowStats, FlowStatsRequest, GroupDesc, PortStats};
use tapswitch_openflow::{
    Action, Body, ErrorKind, FlowMod, FlowModCommand, GroupId, GroupMod, GroupModCommand,
    GroupType, Instruction, METER_ALL, METER_CONTROLLER, Masked, Match, MultipartReplyBody,
    MultipartRequestBody, Oxm, Port, PortConfig, PortFeatures, PortMod, PortNo, PortState, TableId,
};
use tapswitch_wire::{EtherType, MacAddr, NetHeader};

use crate::case::{Case, Observed};
use crate::common::{Host, Running, can_run, config, until};
use crate::messages::Sent;
use crate::ovs::Ovs;
use crate::peer::Peer;
use crate::pipeline::{GROUP_COUNT, TABLES};
use crate::steps::{CABLE, Step};
use crate::{answers, known, text};

/// Open vSwitch first. Fields are dropped in this order.
pub(crate) struct Pair {
    pub(crate) sides: [Side; 2],
    ovs: Ovs,
    _tapswitch: Running,
    /// The namespaces with the ports' inner and outer ends.
    rooms: [Host; 2],
    /// The configuration of each port by its number.
    configs: [PortConfig; PORTS as usize + 1],
    is_cable_in: bool,
}

impl Pair {
    /// `None`, with a message, if they cannot run here.
    pub(crate) fn start() -> Option<Self> {
        if !can_run() || !Ovs::is_there() {
            return None;
        }
        let mut rooms = [1, 2].map(Host::new);
        rooms[0].netlink.set_up("lo").unwrap();
        let [theirs, ours] = LETTERS.map(|letter| ends(letter, &mut rooms));
        let interfaces: Vec<_> = (1..=PORTS).map(|port| format!("o{port}")).collect();
        let ovs = Ovs::start(&rooms[0].namespace, &interfaces);
        let tapswitch = tapswitch(rooms[0].name());
        let theirs = Side::new(ovs.connect(), theirs);
        let ours = Side::new(TcpStream::connect(tapswitch.address()).unwrap(), ours);
        let configs = [PortConfig::empty(); PORTS as usize + 1];
        let sides = [theirs, ours];
        Some(Self { sides, ovs, _tapswitch: tapswitch, rooms, configs, is_cable_in: true })
    }

    /// The behaviour of both in a case.
    pub(crate) fn observe(&mut self, case: &Case) -> [Observed; 2] {
        self.observe_with(case, |_| {})
    }

    /// As [`Self::observe`]; what each step changes in the MAC tables is known at the next.
    pub(crate) fn observe_learning(&mut self, case: &Case) -> [Observed; 2] {
        self.observe_with(case, |pair| pair.ovs.settle())
    }

    fn observe_with(&mut self, case: &Case, behind_step: impl Fn(&mut Self)) -> [Observed; 2] {
        let mut observed = self.sides.each_mut().map(|side| side.set_up(&case.messages));
        let bodies = case.bodies();
        for step in &case.steps {
            self.take(step);
            let (from, keeps_misses) = (self.fence_entry(step), self.keeps_misses(step));
            for (side, observed) in self.sides.iter_mut().zip(&mut observed) {
                let mut passed = side.passed(from, &mut observed.removed);
                if matches!(step, Step::Packet(_)) {
                    known::without_reason(&mut passed);
                }
                if keeps_misses {
                    known::without_misses(&mut passed);
                }
                observed.steps.push(passed);
            }
            let [theirs, ours] = &mut observed;
            if let (Some(theirs), Some(ours)) = (theirs.steps.last_mut(), ours.steps.last()) {
                known::with_misses(theirs, ours, &bodies);
            }
            behind_step(self);
        }
        self.ovs.settle();
        for (side, observed) in self.sides.iter_mut().zip(&mut observed) {
            let answers =
                case.filters.iter().map(|filter| filter.ask(&mut side.peer, FENCE_COOKIE));
            observed.answers = answers.collect();
            side.tear_down(observed);
        }
        self.restore_ports();
        self.collect_removed(&mut observed);
        if !known::count_bytes_alike(&bodies) {
            observed.iter_mut().for_each(Observed::forget_bytes);
        }
        if !known::count_groups_alike(&case.steps) {
            observed.iter_mut().for_each(Observed::forget_groups);
        }
        if !known::count_ports_alike(&case.steps) {
            observed.iter_mut().for_each(Observed::forget_ports);
        }
        if !known::count_alike(&case.steps) {
            observed.iter_mut().for_each(Observed::forget_counts);
        }
        observed
    }

    /// As [`Self::observe`], and waits after the steps until the other rules have timed out and
    /// `left` are left.
    pub(crate) fn observe_until(&mut self, case: &Case, left: usize) -> [Observed; 2] {
        let mut observed = self.sides.each_mut().map(|side| side.set_up(&case.messages));
        for step in &case.steps {
            self.take(step);
        }
        for (side, observed) in self.sides.iter_mut().zip(&mut observed) {
            until("rules time out", || {
                let rules = side.rules();
                rules.iter().filter(|rule| rule.cookie != FENCE_COOKIE).count() == left
            });
            side.tear_down(observed);
        }
        self.collect_removed(&mut observed);
        observed
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Frame(frame) => {
                self.sides.iter().for_each(|side| side.end(frame.port).send(&frame.bytes));
            }
            Step::Packet(packet) => {
                for side in &mut self.sides {
                    side.peer.send(Body::PacketOut(packet.clone()));
                }
            }
            Step::Change(body) => {
                // Earlier frames must be counted for the current rules.
                self.ovs.settle();
                self.sides.iter_mut().for_each(|side| side.change(body));
                self.ovs.settle();
            }
            Step::Cable { is_in, .. } => self.plug(*is_in),
            Step::Port { port, config } => self.configure(*port, *config),
        }
    }

    /// The ingress port of fences behind a step: that of the frame, unless it receives nothing.
    fn fence_entry(&self, step: &Step) -> u32 {
        let closed = PortConfig::PORT_DOWN | PortConfig::NO_RECV;
        match step {
            Step::Frame(frame) if !self.config(frame.port).intersects(closed) => frame.port,
            _ => OPEN_PORT,
        }
    }

    /// Whether a step is a frame from a port with `OFPPC_NO_PACKET_IN`.
    fn keeps_misses(&self, step: &Step) -> bool {
        let keeps = |port| self.config(port).contains(PortConfig::NO_PACKET_IN);
        matches!(step, Step::Frame(frame) if keeps(frame.port))
    }

    fn config(&self, port: u32) -> PortConfig {
        self.configs[usize::try_from(port).unwrap()]
    }

    /// Plugs in or unplugs the cable of [`CABLE`].
    fn plug(&mut self, is_in: bool) {
        if self.is_cable_in == is_in {
            return;
        }
        self.is_cable_in = is_in;
        let outside = &mut self.rooms[1].netlink;
        for letter in LETTERS {
            let name = format!("p{letter}{CABLE}");
            let done = if is_in { outside.set_up(&name) } else { outside.set_down(&name) };
            done.unwrap();
        }
        // The socket reports once that it was down, in place of a frame.
        self.sides.iter().for_each(|side| drop(side.end(CABLE).receive()));
        self.wait_for_ports();
    }

    fn configure(&mut self, port: u32, config: PortConfig) {
        if self.config(port) == config {
            return;
        }
        self.configs[usize::try_from(port).unwrap()] = config;
        for side in &mut self.sides {
            let port_no = PortNo(port);
            let ports = side.ports();
            let hw_addr = ports.iter().find(|it| it.port_no == port_no).unwrap().hw_addr;
            let (mask, advertise) = (PortConfig::all(), PortFeatures::empty());
            side.peer.send(Body::PortMod(PortMod { port_no, hw_addr, config, mask, advertise }));
            assert_eq!(side.peer.barrier(), []);
        }
        self.wait_for_ports();
    }

    /// Waits until both switches know the ports' state, and so does the kernel at the far ends,
    /// which otherwise drops frames. Open vSwitch applies it a moment later: its cache is invalid
    /// after its next turn.
    fn wait_for_ports(&mut self) {
        let (configs, is_cable_in) = (self.configs, self.is_cable_in);
        let is_live = |port: u32, config: PortConfig| {
            let has_link = port != PORT_DOWN && (port != CABLE || is_cable_in);
            has_link && !config.contains(PortConfig::PORT_DOWN)
        };
        for side in &mut self.sides {
            until("the ports are as they are told", || {
                let ports = side.ports();
                let mut known = ports.iter().filter(|port| !known::is_of_bridge(port.port_no));
                known.all(|port| {
                    let config = configs[usize::try_from(port.port_no.0).unwrap()];
                    let is_live = is_live(port.port_no.0, config);
                    port.config == config && port.state.contains(PortState::LIVE) == is_live
                })
            });
        }
        let outside = &mut self.rooms[1].netlink;
        for (port, config) in (1..=PORTS).zip(&configs[1..]) {
            let names = LETTERS.map(|letter| format!("p{letter}{port}"));
            let mut runs = |name: &str| outside.link(name).unwrap().running;
            until("the far ends run", || {
                !is_live(port, *config) || names.iter().all(|name| runs(name))
            });
        }
        self.ovs.settle();
        assert_eq!(self.sides[0].peer.barrier(), []);
        self.ovs.settle();
    }

    fn restore_ports(&mut self) {
        for port in 1..=PORTS {
            self.configure(port, PortConfig::empty());
        }
        self.plug(true);
    }

    /// Collects flow-removed messages. Open vSwitch sends them a while after its barrier reply.
    fn collect_removed(&mut self, observed: &mut [Observed; 2]) {
        let deadline = Instant::now() + REMOVED_WAIT;
        loop {
            for (side, observed) in self.sides.iter_mut().zip(&mut *observed) {
                assert_eq!(side.peer.barrier(), []);
                observed.removed.extend(side.peer.events().iter().filter_map(text::removed));
                observed.removed.sort();
            }
            let [theirs, ours] = &*observed;
            if theirs.removed.len() == ours.removed.len() || Instant::now() > deadline {
                return;
            }
        }
    }
}

/// One of the switches.
pub(crate) struct Side {
    pub(crate) peer: Peer,
    ends: Vec<End>,
    /// The ports' counters when the pipeline was set up.
    passed_before: Vec<PortStats>,
    /// Refusals in the last step.
    refused: Vec<(u32, ErrorKind)>,
    /// Number of fences, which are frames sent to see that earlier ones have been processed.
    fences: u32,
}

impl Side {
    fn new(stream: TcpStream, ends: Vec<End>) -> Self {
        let (refused, passed_before) = (Vec::new(), Vec::new());
        Self { peer: Peer::new(stream), ends, passed_before, refused, fences: 0 }
    }

    /// Sets up a pipeline.
    fn set_up(&mut self, messages: &[Body]) -> Observed {
        self.clear();
        let sent: Vec<_> = messages.iter().map(|body| self.peer.send(body.clone())).collect();
        let errors = self.peer.barrier();
        let refused = |xid: &u32| errors.iter().find(|(of, _)| of == xid).map(|(_, kind)| *kind);
        let errors: Vec<Option<ErrorKind>> = sent.iter().map(refused).collect();
        let events = self.peer.events();
        let removed = events.iter().filter_map(text::removed).collect();
        let rules = text::rules(self.rules()).rules;
        let groups = text::groups(&self.groups());
        self.complete();
        assert_eq!(self.peer.barrier(), []);
        self.passed_before = self.port_counters();
        Observed { errors, rules, groups, removed, ..Observed::default() }
    }

    /// Adds table-miss rules, and rules for fences.
    fn complete(&mut self) {
        for miss in known::misses(&self.rules(), 1..TABLES, FENCE_COOKIE) {
            self.peer.send(Body::FlowMod(miss));
        }
        self.peer.send(Body::FlowMod(fence_rule()));
    }

    /// Changes rules or groups, with any effect on others.
    fn change(&mut self, body: &Body) {
        self.peer.send(body.clone());
        self.refused = self.peer.barrier();
        self.complete();
    }

    /// Queries the counters, and removes everything.
    fn tear_down(&mut self, observed: &mut Observed) {
        let mut rules = self.rules();
        rules.retain(|rule| rule.cookie != FENCE_COOKIE);
        observed.counters = text::rules(rules).counters;
        observed.counters.extend(self.group_counters());
        let passed = self.port_counters();
        let ports = self.passed_before.iter().zip(&passed);
        observed.counters.extend(ports.map(|(before, after)| text::port_counters(before, after)));
        self.clear();
    }

    /// Sets the initial state: no rules, all groups except the first, and the connection's initial
    /// configuration.
    pub(crate) fn begin(&mut self) {
        self.peer.configure();
        self.clear();
        for id in 2..=GROUP_COUNT {
            self.peer.send(Body::GroupMod(GroupMod {
                command: GroupModCommand::Add,
                group_type: GroupType::All,
                group_id: GroupId(id),
                buckets: Vec::new(),
            }));
        }
        assert_eq!(self.peer.barrier(), []);
    }

    /// Sends a message. Returns the replies, or why it is refused.
    pub(crate) fn ask(&mut self, sent: &Sent) -> Result<Vec<String>, ErrorKind> {
        let answers = self.peer.ask(sent.message_type, &sent.body);
        self.peer.events();
        answers.map(|answers| answers.into_iter().flat_map(answers::lines).collect())
    }

    /// Removes all rules, groups and meters.
    pub(crate) fn clear(&mut self) {
        let every = FlowMod { table_id: TableId::ALL, ..FlowMod::new(FlowModCommand::Delete) };
        self.peer.send(Body::FlowMod(every));
        self.peer.send(Body::GroupMod(GroupMod {
            command: GroupModCommand::Delete,
            group_type: GroupType::All,
            group_id: GroupId::ALL,
            buckets: Vec::new(),
        }));
        // Open vSwitch deletes the controller's meter with all others.
        for meter in [METER_ALL, METER_CONTROLLER] {
            self.peer.send(meters::delete_meters(meter));
        }
        assert_eq!(self.peer.barrier(), []);
    }

    pub(crate) fn rules(&mut self) -> Vec<FlowStats> {
        let request = MultipartRequestBody::Flow(FlowStatsRequest::default());
        match self.peer.statistics(request) {
            MultipartReplyBody::Flow(rules) => rules,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn groups(&mut self) -> Vec<GroupDesc> {
        match self.peer.statistics(MultipartRequestBody::GroupDesc) {
            MultipartReplyBody::GroupDesc(groups) => groups,
            other => panic!("{other:?}"),
        }
    }

    /// Counters of the ports that both have, in order.
    fn port_counters(&mut self) -> Vec<PortStats> {
        let all = MultipartRequestBody::PortStats(PortNo::ANY);
        let MultipartReplyBody::PortStats(mut ports) = self.peer.statistics(all) else {
            panic!("another answer");
        };
        ports.retain(|port| !known::is_of_bridge(port.port_no));
        ports.sort_by_key(|port| port.port_no);
        ports
    }

    fn ports(&mut self) -> Vec<Port> {
        match self.peer.statistics(MultipartRequestBody::PortDesc) {
            MultipartReplyBody::PortDesc(ports) => ports,
            other => panic!("{other:?}"),
        }
    }

    fn group_counters(&mut self) -> Vec<String> {
        let described = self.groups();
        match self.peer.statistics(MultipartRequestBody::Group(GroupId::ALL)) {
            MultipartReplyBody::Group(groups) => text::group_counters(&groups, &described),
            other => panic!("{other:?}"),
        }
    }

    /// The frames sent behind a step, each with its port, the refusals, and the messages to the
    /// controller. Two frames sent to `from` mark the end, as frames received together may leave in
    /// another order.
    fn passed(&mut self, from: u32, removed: &mut Vec<String>) -> Vec<String> {
        let mut refused = std::mem::take(&mut self.refused);
        refused.extend(self.peer.barrier());
        let mut seen = Vec::new();
        for _ in 0..2 {
            self.fences += 1;
            let fence = fence(self.fences);
            self.end(from).send(&fence);
            until("the fence comes through", || {
                let frames = self.end(FENCE_PORT).receive();
                let is_there = frames.contains(&fence);
                seen.extend(frames.into_iter().filter(|frame| !is_fence(frame)));
                is_there || {
                    self.end(FENCE_PORT).wait();
                    false
                }
            });
        }
        let mut passed: Vec<_> = refused.iter().map(|(_, kind)| format!("{kind:?}")).collect();
        passed.extend(seen.iter().map(|bytes| text::frame(FENCE_PORT, bytes)));
        for port in (1..=PORTS).filter(|port| *port != FENCE_PORT) {
            let frames = self.end(port).receive();
            passed.extend(frames.iter().map(|bytes| text::frame(port, bytes)));
        }
        assert_eq!(self.peer.barrier(), []);
        let events = self.peer.events();
        passed.extend(events.iter().filter_map(text::packet_in));
        removed.extend(events.iter().filter_map(text::removed));
        passed
    }

    fn end(&self, port: u32) -> &End {
        &self.ends[usize::try_from(port).unwrap() - 1]
    }
}

/// The far end of a port.
struct End(PacketPort);

impl End {
    fn send(&self, frame: &[u8]) {
        match self.0.send(&NetHeader::default(), &[IoSlice::new(frame)]) {
            // A port that is down takes nothing.
            Ok(()) | Err(SendError::Congested) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn receive(&self) -> Vec<Vec<u8>> {
        let mut buf = vec![0; RECV_BUF_LEN];
        let mut next = || {
            let received = self.0.recv(&mut buf, HEADROOM_MIN).ok()??;
            Some(buf[received.frame].to_vec())
        };
        std::iter::from_fn(&mut next).collect()
    }

    /// Waits for a frame, up to a tenth of a second.
    fn wait(&self) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut fds, Some(&timeout)).unwrap();
    }
}

/// Veth pairs from ports in the first namespace to ends in the second; one of them has no carrier.
fn ends(letter: &str, [inside, outside]: &mut [Host; 2]) -> Vec<End> {
    let end = |port| {
        let (name, peer) = (format!("{letter}{port}"), format!("p{letter}{port}"));
        inside.netlink.create_veth(&name, &peer, &outside.namespace).unwrap();
        inside.netlink.set_up(&name).unwrap();
        if port != PORT_DOWN {
            outside.netlink.set_up(&peer).unwrap();
        }
        let open = || PacketPort::open(&peer, &Config::default()).unwrap();
        End(outside.namespace.enter(open).unwrap())
    };
    (1..=PORTS).map(end).collect()
}

/// With room for more tags than the frames have.
fn tapswitch(room: &str) -> Running {
    let ports = (1..=PORTS).map(|port| format!("{port}=netdev:t{port},netns={room},envelope=16"));
    Running::start(config(&ports.collect::<Vec<_>>()))
}

/// A rule above all others that passes fences.
fn fence_rule() -> FlowMod {
    FlowMod {
        cookie: FENCE_COOKIE,
        priority: u16::MAX,
        match_fields: Match::new()
            .with(Oxm::EthDst(Masked::exact(FENCE_DST)))
            .with(Oxm::EthType(FENCE_TYPE)),
        instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(FENCE_PORT))])],
        ..FlowMod::new(FlowModCommand::Add)
    }
}

fn fence(number: u32) -> Vec<u8> {
    let mut frame = [FENCE_DST.0, [2; 6]].concat();
    frame.extend(FENCE_TYPE.0.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn is_fence(frame: &[u8]) -> bool {
    frame.starts_with(&FENCE_DST.0)
}

/// How much later than the other one a switch may report removed rules.
const REMOVED_WAIT: Duration = Duration::from_secs(2);
/// First letters of interface names on each side.
const LETTERS: [&str; 2] = ["o", "t"];
/// The highest port number.
const PORTS: u32 = 5;
/// The port without carrier.
pub(crate) const PORT_DOWN: u32 = 4;
/// A port that always receives.
const OPEN_PORT: u32 = 1;
/// The port where fences leave.
const FENCE_PORT: u32 = 5;
const FENCE_COOKIE: u64 = 0xfe;
const FENCE_DST: MacAddr = MacAddr([2, 0xfe, 0, 0, 0, 0]);
/// IEEE 802 local experimental.
const FENCE_TYPE: EtherType = EtherType(0x88b6);
