//! Two switches with the same ports: Open vSwitch and ours. What goes into one goes into the other.

mod meters;

use std::io::IoSlice;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN};
use tapswitch_openflow::multipart::{FlowStats, FlowStatsRequest, GroupDesc};
use tapswitch_openflow::{
    Action, Body, ErrorKind, FlowMod, FlowModCommand, GroupId, GroupMod, GroupModCommand,
    GroupType, Instruction, METER_ALL, Masked, Match, MultipartReplyBody, MultipartRequestBody,
    Oxm, PortNo, TableId,
};
use tapswitch_wire::{EtherType, MacAddr, NetHeader};

use crate::case::{Case, Observed};
use crate::common::{Host, Running, can_run, config, until};
use crate::frames::Frame;
use crate::messages::Sent;
use crate::ovs::Ovs;
use crate::peer::Peer;
use crate::pipeline::{GROUP_COUNT, TABLES};
use crate::{known, text};

/// Open vSwitch first. The fields go in this order.
pub(crate) struct Pair {
    pub(crate) sides: [Side; 2],
    ovs: Ovs,
    _tapswitch: Running,
    _rooms: [Host; 2],
}

impl Pair {
    /// `None`, and a line that says so, when they cannot run here.
    pub(crate) fn start() -> Option<Self> {
        if !can_run() || !Ovs::is_there() {
            return None;
        }
        let mut rooms = [1, 2].map(Host::new);
        rooms[0].netlink.set_up("lo").unwrap();
        let [theirs, ours] = ["o", "t"].map(|letter| ends(letter, &mut rooms));
        let interfaces: Vec<_> = (1..=PORTS).map(|port| format!("o{port}")).collect();
        let ovs = Ovs::start(&rooms[0].namespace, &interfaces);
        let tapswitch = tapswitch(rooms[0].name());
        let theirs = Side::new(ovs.connect(), theirs);
        let ours = Side::new(TcpStream::connect(tapswitch.address()).unwrap(), ours);
        Some(Self { sides: [theirs, ours], ovs, _tapswitch: tapswitch, _rooms: rooms })
    }

    /// What both make of a case.
    pub(crate) fn observe(&mut self, case: &Case) -> [Observed; 2] {
        let mut observed = self.sides.each_mut().map(|side| side.set_up(&case.messages));
        for frame in &case.frames {
            for side in &self.sides {
                side.end(frame.port).send(&frame.bytes);
            }
            for (side, observed) in self.sides.iter_mut().zip(&mut observed) {
                let passed = side.passed(frame, &mut observed.removed);
                observed.frames.push(passed);
            }
        }
        self.ovs.settle();
        for (side, observed) in self.sides.iter_mut().zip(&mut observed) {
            side.tear_down(observed);
        }
        self.collect_removed(&mut observed);
        if !known::count_bytes_alike(&case.messages) {
            observed.iter_mut().for_each(Observed::forget_bytes);
        }
        observed
    }

    /// What is told of rules that went. Open vSwitch does so a while after it has answered the
    /// barrier behind.
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
    /// Frames that were sent to see what was there before them.
    fences: u32,
}

impl Side {
    fn new(stream: TcpStream, ends: Vec<End>) -> Self {
        Self { peer: Peer::new(stream), ends, fences: 0 }
    }

    /// Makes a pipeline.
    fn set_up(&mut self, messages: &[Body]) -> Observed {
        self.clear();
        let sent: Vec<_> = messages.iter().map(|body| self.peer.send(body.clone())).collect();
        let errors = self.peer.barrier();
        let refused = |xid: &u32| errors.iter().find(|(of, _)| of == xid).map(|(_, kind)| *kind);
        let errors: Vec<Option<ErrorKind>> = sent.iter().map(refused).collect();
        let events = self.peer.events();
        let removed = events.iter().filter_map(text::removed).collect();
        let stats = self.rules();
        for miss in known::misses(&stats, 1..TABLES, FENCE_COOKIE) {
            self.peer.send(Body::FlowMod(miss));
        }
        let (rules, groups) = (text::rules(stats).rules, text::groups(&self.groups()));
        self.peer.send(Body::FlowMod(fence_rule()));
        assert_eq!(self.peer.barrier(), []);
        Observed { errors, rules, groups, removed, ..Observed::default() }
    }

    /// Asks what was counted, and takes all away.
    fn tear_down(&mut self, observed: &mut Observed) {
        let mut rules = self.rules();
        rules.retain(|rule| rule.cookie != FENCE_COOKIE);
        observed.counters = text::rules(rules).counters;
        observed.counters.extend(self.group_counters());
        self.clear();
    }

    /// No rules, and all groups but the first.
    pub(crate) fn begin(&mut self) {
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

    /// Sends a message; answers why it is refused.
    pub(crate) fn ask(&mut self, sent: &Sent) -> Option<ErrorKind> {
        let refused = self.peer.ask(sent.message_type, &sent.body);
        self.peer.events();
        refused
    }

    /// Takes all rules, groups and meters away.
    pub(crate) fn clear(&mut self) {
        let every = FlowMod { table_id: TableId::ALL, ..FlowMod::new(FlowModCommand::Delete) };
        self.peer.send(Body::FlowMod(every));
        self.peer.send(Body::GroupMod(GroupMod {
            command: GroupModCommand::Delete,
            group_type: GroupType::All,
            group_id: GroupId::ALL,
            buckets: Vec::new(),
        }));
        self.peer.send(meters::delete_meters(METER_ALL));
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

    fn group_counters(&mut self) -> Vec<String> {
        let described = self.groups();
        match self.peer.statistics(MultipartRequestBody::Group(GroupId::ALL)) {
            MultipartReplyBody::Group(groups) => text::group_counters(&groups, &described),
            other => panic!("{other:?}"),
        }
    }

    /// What has come out for a frame that went in, each with the port, and what the controller was
    /// told. Two frames behind it say that all is there: what comes in together may go out in
    /// another order.
    fn passed(&mut self, frame: &Frame, removed: &mut Vec<String>) -> Vec<String> {
        let mut seen = Vec::new();
        for _ in 0..2 {
            self.fences += 1;
            let fence = fence(self.fences);
            self.end(frame.port).send(&fence);
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
        let mut passed: Vec<_> = seen.iter().map(|bytes| text::frame(FENCE_PORT, bytes)).collect();
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
        // A port that is down takes nothing.
        self.0.send(&NetHeader::default(), &[IoSlice::new(frame)]).unwrap();
    }

    fn receive(&self) -> Vec<Vec<u8>> {
        let mut buf = vec![0; RECV_BUF_LEN];
        let mut next = || {
            let received = self.0.recv(&mut buf, HEADROOM_MIN).ok()??;
            Some(buf[received.frame].to_vec())
        };
        std::iter::from_fn(&mut next).collect()
    }

    /// Waits for a frame, for a tenth of a second at most.
    fn wait(&self) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut fds, Some(&timeout)).unwrap();
    }
}

/// Cables from ports inside, the first room, to their ends outside; one of them has no carrier.
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

/// With room for more tags than frames have.
fn tapswitch(room: &str) -> Running {
    let ports = (1..=PORTS).map(|port| format!("{port}=netdev:t{port},netns={room},envelope=16"));
    Running::start(config(&ports.collect::<Vec<_>>()))
}

/// A rule above all others that lets fences pass.
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

/// How long one switch may tell later of rules that went than the other.
const REMOVED_WAIT: Duration = Duration::from_secs(2);
/// Ports are 1 to this one.
const PORTS: u32 = 5;
/// The one without carrier.
const PORT_DOWN: u32 = 4;
/// Where fences leave.
const FENCE_PORT: u32 = 5;
const FENCE_COOKIE: u64 = 0xfe;
const FENCE_DST: MacAddr = MacAddr([2, 0xfe, 0, 0, 0, 0]);
/// IEEE 802 local experimental.
const FENCE_TYPE: EtherType = EtherType(0x88b6);
