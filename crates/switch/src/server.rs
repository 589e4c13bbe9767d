//! The task that owns the agent: it processes all events, one after the other.
//!
//! Changes are published to the workers as new versions of the tables before any answer is sent.
//! Changes without an answer (mostly rules) are collected while more messages are pending, so that
//! a thousand consecutive rules make one new version.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tapswitch_channel::{CloseReason, ConnectionId, Roles, SwitchEvent, changes_state, only_asks};
use tapswitch_datapath::{DropReason, HEADROOM, Millis, Port};
use tapswitch_netlink::{Link, LinkEvent, Netlink};
use tapswitch_openflow::{
    Body, ControllerRole, ErrorKind, Message, MultipartRequest, MultipartRequestBody, PacketIn,
    PacketOut, PortNo, RoleMessage,
};
use tapswitch_wire::MacAddr;
use tokio::sync::{mpsc, oneshot};

use crate::agent::{self, Agent, Gone, Outcome, in_standard_words};
use crate::announcement::rarp;
use crate::clock;
use crate::device::Device;
use crate::fate::PacketFate;
use crate::guest::GuestNews;
use crate::handle::Query;
use crate::interface::Interface;
use crate::links::LinkNews;
use crate::peer::{FromPeer, Orders, Origin, PacketOutRoom, ToPeer};
use crate::ports::{News, PortChange, Ports, RemovePortError};
use crate::shared::{Report, Shared};
use crate::worker::{Errand, WorkerHandle};
use crate::{Endpoint, FailMode};

/// The owner of the agent and of everything that the agent changes.
pub(crate) struct Server {
    /// First, so that it is dropped first: the threads that watch interfaces then do not wait for a
    /// receiver.
    pub(crate) inputs: Inputs,
    pub(crate) agent: Agent,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: Vec<WorkerHandle>,
    pub(crate) ports: Ports,
    pub(crate) fail_mode: FailMode,
    pub(crate) controllers: Vec<Endpoint>,
    pub(crate) peers: HashMap<ConnectionId, PeerState>,
    pub(crate) roles: Roles,
    pub(crate) barriers: Barriers,
}

/// The sources of events.
pub(crate) struct Inputs {
    pub(crate) peers: mpsc::Receiver<(ConnectionId, FromPeer)>,
    pub(crate) reports: mpsc::Receiver<Report>,
    pub(crate) news: News,
    pub(crate) queries: mpsc::Receiver<Query>,
}

/// A connection as the server sees it.
#[derive(Debug)]
pub(crate) struct PeerState {
    orders: Orders,
    pub(crate) controller: Option<Endpoint>,
    pub(crate) is_ready: bool,
    /// True while its controller, which closed the last connection at once, neither stays nor
    /// changes anything: until then it does not end standalone mode.
    is_on_trial: bool,
    /// True while its connects and disconnects, which repeat, are not logged.
    is_quiet: bool,
    /// True while packet-ins are wanted there.
    listens: bool,
    /// True if the start of each packet suffices there (`StartsSuffice`).
    only_looks: bool,
    role: ControllerRole,
    /// Requests behind an unfinished barrier, with the space of packet-outs among them.
    held: VecDeque<(SwitchEvent, Option<PacketOutRoom>)>,
}

impl PeerState {
    fn new(orders: Orders, origin: Origin) -> Self {
        let (controller, is_on_trial) = match origin {
            Origin::Controller { endpoint, is_on_trial } => (Some(endpoint), is_on_trial),
            Origin::Accepted => (None, false),
        };
        Self {
            orders,
            controller,
            is_ready: false,
            is_on_trial,
            is_quiet: is_on_trial,
            listens: false,
            only_looks: false,
            role: ControllerRole::Equal,
            held: VecDeque::new(),
        }
    }

    /// Whether this is a controller whose rules the switch follows.
    fn leads(&self) -> bool {
        self.is_ready && !self.is_on_trial && self.controller.is_some()
    }
}

/// Actions that wait for the workers to catch up.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    number: u64,
    waiting: VecDeque<(u64, Waiting)>,
    /// Rules removed since the workers were last synchronised.
    gone: Vec<Gone>,
}

impl Barriers {
    /// The devices of ports that are being removed: workers may still use them.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &Device> {
        self.waiting.iter().filter_map(|(_, what)| match what {
            Waiting::Removed(device, _) => Some(&**device),
            _ => None,
        })
    }
}

#[derive(Debug)]
pub(crate) enum Waiting {
    /// The answer to a barrier request.
    Barrier(ConnectionId, u32),
    /// Notification of removed rules, whose counters are then final.
    Gone(Vec<Gone>),
    /// A request that reads counters, which lag by the workers' current bursts.
    Counters(ConnectionId, Message),
    /// A query of the management socket; most of them read counters.
    Query(Query),
    /// Closing the device of a removed port, and answering the request.
    Removed(Box<Device>, oneshot::Sender<Result<(), RemovePortError>>),
    /// Closing a device whose port stays.
    LetGo(Box<Device>),
    /// Adding a port in place of one that is being removed.
    Change(PortChange),
}

enum Input {
    Peer(ConnectionId, FromPeer),
    Report(Report),
    Link(Box<LinkNews>),
    Guest(GuestNews),
    File(PortNo),
    Query(Query),
    Synced,
    Timeout,
    WorkerEnded,
    End,
}

impl Server {
    /// Runs until `shutdown` completes, or a worker has ended.
    pub(crate) async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), WorkerEnded> {
        let mut shutdown = std::pin::pin!(shutdown);
        self.update_fail_mode();
        self.publish();
        loop {
            let input = self.next(shutdown.as_mut()).await;
            if matches!(input, Input::End | Input::WorkerEnded) {
                self.end();
                let by_itself = matches!(input, Input::WorkerEnded);
                return if by_itself { Err(WorkerEnded) } else { Ok(()) };
            }
            self.handle(input);
            // Pending events are handled before a new version is published to the workers.
            for _ in 0..COLLECT_COUNT {
                match self.try_next() {
                    Some(input) => self.handle(input),
                    None => break,
                }
            }
            // One query per round, however busy the connections are.
            if let Ok(query) = self.inputs.queries.try_recv() {
                self.handle(Input::Query(query));
            }
            self.handle_due();
            self.finish_barriers();
            self.publish();
            self.follow_gone();
            // Lets the connections run, however busy the server is.
            tokio::task::yield_now().await;
        }
    }

    /// Stops the workers and checks the counters, when no frame is in progress.
    fn end(mut self) {
        let before = self.removed_with_ports();
        self.workers.clear();
        self.ports.end_files();
        for ((port, before), (_, after)) in before.into_iter().zip(self.removed_with_ports()) {
            if after > before {
                let count = after - before;
                tracing::warn!(
                    "port {port}: frames that waited for it, or were read ahead from it, are \
                     dropped as {}: {count}",
                    DropReason::PortRemoved.name()
                );
            }
        }
        let books = self.books();
        if books.unaccounted() != 0 {
            tracing::error!("frames are not accounted for: {} of {books:?}", books.unaccounted());
        }
    }

    /// The frames dropped because their port was removed, by port.
    fn removed_with_ports(&self) -> Vec<(PortNo, u64)> {
        let ports = self.agent.pipeline().snapshot().ports.iter();
        let dropped = |port: &Port| port.counters.drops().count(DropReason::PortRemoved);
        ports.map(|port| (port.number, dropped(port))).collect()
    }

    async fn next(&mut self, shutdown: std::pin::Pin<&mut impl Future<Output = ()>>) -> Input {
        let look_at = self.ports.look_at;
        let timeout = self.agent.poll_timeout().into_iter().chain(look_at).min();
        let inputs = &mut self.inputs;
        tokio::select! {
            biased;
            () = shutdown => Input::End,
            () = self.shared.worker_ended.notified() => Input::WorkerEnded,
            Some(news) = inputs.news.links.recv() => Input::Link(Box::new(news)),
            Some(news) = inputs.news.guests.recv() => Input::Guest(news),
            Some(port) = inputs.news.files.recv() => Input::File(port),
            Some((id, news)) = inputs.peers.recv() => Input::Peer(id, news),
            Some(query) = inputs.queries.recv() => Input::Query(query),
            () = self.shared.synced.notified(), if !self.barriers.waiting.is_empty() => {
                Input::Synced
            }
            Some(report) = inputs.reports.recv() => Input::Report(report),
            () = sleep_until(timeout), if timeout.is_some() => Input::Timeout,
        }
    }

    fn try_next(&mut self) -> Option<Input> {
        let inputs = &mut self.inputs;
        let peer = inputs.peers.try_recv().map(|(id, news)| Input::Peer(id, news));
        peer.or_else(|_| inputs.reports.try_recv().map(Input::Report)).ok()
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Peer(id, news) => self.handle_peer(id, news),
            Input::Report(Report::PacketIn { origin, total_len, data, is_start, fate }) => {
                let packet_in = agent::packet_in(&origin, total_len, data);
                self.notify_packet_in(&packet_in, is_start, &fate);
            }
            Input::Report(Report::Stalled(port)) => self.ports.note_stall(port),
            Input::Report(Report::Sighting(sighting, _credit)) => {
                self.agent.handle_sighting(sighting, clock::coarse());
                self.tell_restless();
            }
            Input::Link(news) => self.handle_link(*news),
            Input::Guest(news) => self.handle_guest(news),
            Input::File(port) => self.update_port(port),
            Input::Query(Query::Change(change)) => self.change_ports(change),
            Input::Query(query) => self.wait_for_workers(Waiting::Query(query)),
            // Timeouts and synchronised workers are handled after each round.
            Input::Synced | Input::Timeout | Input::WorkerEnded | Input::End => {}
        }
    }

    /// Does what is due; an endless stream of events must not delay it.
    fn handle_due(&mut self) {
        let now = clock::coarse();
        if self.agent.poll_timeout().is_some_and(|due| due <= now) {
            let gone = self.agent.handle_timeout(now);
            self.barriers.gone.extend(gone);
        }
        if self.ports.look_at.is_some_and(|due| due <= now) {
            self.look();
        }
    }

    fn handle_peer(&mut self, id: ConnectionId, news: FromPeer) {
        match news {
            FromPeer::Opened { orders, origin } => {
                self.peers.insert(id, PeerState::new(orders, origin));
            }
            FromPeer::Lasts => self.handle_lasting(id),
            FromPeer::Event(event) => self.take(id, event, None),
            FromPeer::PacketOut(event, room) => self.take(id, event, Some(room)),
            FromPeer::Listens(listens) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.listens = listens;
                }
                self.update_fail_mode();
            }
            FromPeer::Gone => self.handle_gone(id),
        }
    }

    /// The peer no longer receives answers, but its state changes were sent and are executed, in
    /// the controller's current role, which may have been reduced meanwhile.
    fn handle_gone(&mut self, id: ConnectionId) {
        let held = self.peers.get_mut(&id).map(|peer| std::mem::take(&mut peer.held));
        for (event, room) in held.into_iter().flatten().filter(|(event, _)| !is_question(event)) {
            self.handle_event(id, event, room);
        }
        self.peers.remove(&id);
        self.roles.handle_closed(id);
        self.update_fail_mode();
    }

    /// Handles an event of a connection. A request is held until earlier ones are done.
    fn take(&mut self, id: ConnectionId, event: SwitchEvent, room: Option<PacketOutRoom>) {
        let asks = matches!(event, SwitchEvent::Request(_) | SwitchEvent::RoleRequest { .. });
        if !(asks && self.waits(id)) {
            self.handle_event(id, event, room);
        } else if let Some(peer) = self.peers.get_mut(&id) {
            peer.held.push_back((event, room));
        }
    }

    fn handle_event(&mut self, id: ConnectionId, event: SwitchEvent, room: Option<PacketOutRoom>) {
        match event {
            SwitchEvent::Ready => self.handle_ready(id),
            SwitchEvent::Request(message) if reads_counters(&message) => {
                self.wait_for_workers(Waiting::Counters(id, message));
            }
            SwitchEvent::Request(message) => self.handle_request(id, message, room),
            SwitchEvent::RoleRequest { xid, request } => self.handle_role(id, xid, request),
            SwitchEvent::Error { error, .. } => {
                tracing::warn!(
                    "{}: the peer rejected a message: {:?}",
                    self.name_of(id),
                    error.kind
                );
            }
            SwitchEvent::Refused(refusal) => {
                tracing::debug!("{}: refused: {}", self.name_of(id), refusal.text);
            }
            SwitchEvent::Closed(reason) => {
                // A tool that disconnects is no news, and a failed controller connection is logged
                // once, by the connector.
                let leads = self.peers.get(&id).is_some_and(PeerState::leads);
                let is_news = reason != CloseReason::Eof || leads;
                if is_news && !self.is_quiet(id) {
                    tracing::info!("{}: disconnected: {reason}", self.name_of(id));
                } else {
                    tracing::debug!("{}: disconnected: {reason}", self.name_of(id));
                }
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.is_ready = false;
                }
                self.update_fail_mode();
            }
            _ => {}
        }
    }

    fn handle_ready(&mut self, id: ConnectionId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.is_ready = true;
        }
        if self.is_controller(id) && !self.is_quiet(id) {
            tracing::info!("{}: connected", self.name_of(id));
        }
        self.update_fail_mode();
    }

    /// The connection has lasted this time.
    fn handle_lasting(&mut self, id: ConnectionId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.is_on_trial = false;
        if std::mem::take(&mut peer.is_quiet) && peer.is_ready {
            tracing::info!("{}: connected", self.name_of(id));
        }
        self.update_fail_mode();
    }

    /// Ends the trial of a controller that changes state or sends a barrier.
    fn end_trial(&mut self, id: ConnectionId, body: &Body) {
        if (changes_state(body) || *body == Body::BarrierRequest)
            && let Some(peer) = self.peers.get_mut(&id)
            && std::mem::take(&mut peer.is_on_trial)
        {
            self.update_fail_mode();
        }
    }

    fn handle_request(&mut self, id: ConnectionId, message: Message, room: Option<PacketOutRoom>) {
        // The request arrived before another controller became master, and is handled after: the
        // new master has already been told the state of the switch.
        let is_slave = self.peers.get(&id).is_some_and(|peer| peer.role == ControllerRole::Slave);
        if is_slave && changes_state(&message.body) {
            self.order(id, ToPeer::Refuse(message, ErrorKind::OFPBRC_IS_SLAVE));
            return;
        }
        self.end_trial(id, &message.body);
        match self.agent.handle_message(&message, clock::coarse()) {
            Ok(outcome) => {
                if matches!(message.body, Body::Experimenter(_)) {
                    self.note_onlooker(id);
                }
                self.carry_out(id, message, outcome, room);
            }
            Err(refusal) => {
                tracing::debug!("{}: refused: {}", self.name_of(id), refusal.text);
                self.order(id, ToPeer::Refuse(message, refusal.kind));
            }
        }
    }

    /// The controller has said that the start of each packet suffices.
    fn note_onlooker(&mut self, id: ConnectionId) {
        self.peers.entry(id).and_modify(|peer| peer.only_looks = true);
        self.update_fail_mode();
    }

    fn carry_out(
        &mut self,
        id: ConnectionId,
        message: Message,
        outcome: Outcome,
        room: Option<PacketOutRoom>,
    ) {
        let Outcome { replies, events, gone, packet_out, barrier, error } = outcome;
        self.barriers.gone.extend(gone);
        let xid = message.xid;
        if !replies.is_empty() || packet_out.is_some() || barrier {
            self.publish();
        }
        events.iter().for_each(|event| self.notify(event));
        // A peer that connects here is a tool, usually `ovs-ofctl`, which rejects replies with
        // extensions.
        let is_tool = !self.is_controller(id);
        for body in replies {
            let body = if is_tool { in_standard_words(body) } else { body };
            self.order(id, ToPeer::Reply(xid, body));
        }
        if let Some(packet) = packet_out {
            self.send_packet(packet, room);
        }
        if barrier {
            self.start_barrier(id, xid);
        }
        if let Some(kind) = error {
            self.order(id, ToPeer::Refuse(message, kind));
        }
    }

    /// Sends a packet to the worker that reads the packet's ingress port, so that it stays in order
    /// with that port's frames.
    fn send_packet(&self, packet: PacketOut, room: Option<PacketOutRoom>) {
        let PacketOut { in_port, actions, data, .. } = packet;
        let buf = behind_headroom(&data);
        self.send_to_reader(in_port, Errand::PacketOut { in_port, buf, actions, room });
    }

    /// Announces a station that was migrated here and does not announce itself, with a frame as if
    /// it came from there.
    fn announce(&self, in_port: PortNo, station: MacAddr) {
        // The rings' new state may still be unpublished.
        self.publish();
        let buf = behind_headroom(&rarp(station));
        self.send_to_reader(in_port, Errand::Frame { in_port, buf });
    }

    /// Sends an errand to the worker that reads a port, or to the first one if none does.
    fn send_to_reader(&self, port: PortNo, errand: Errand) {
        let label = format!("{port}/0");
        let reader = self.ports.worker_queues.iter().position(|queues| queues.contains(&label));
        if let Some(worker) = self.workers.get(reader.unwrap_or_default()) {
            worker.send(errand);
        }
    }

    /// Starts a barrier, which is answered when each worker has done all earlier errands and uses
    /// the current tables (OpenFlow 1.3.5 §7.3.8).
    fn start_barrier(&mut self, id: ConnectionId, xid: u32) {
        self.follow_gone();
        self.wait_for_workers(Waiting::Barrier(id, xid));
    }

    /// Schedules the notification of removed rules for when no worker uses them any more. The
    /// tables without them must be published.
    fn follow_gone(&mut self) {
        if !self.barriers.gone.is_empty() {
            let gone = std::mem::take(&mut self.barriers.gone);
            self.wait_for_workers(Waiting::Gone(gone));
        }
    }

    pub(crate) fn wait_for_workers(&mut self, what: Waiting) {
        self.barriers.number += 1;
        let number = self.barriers.number;
        self.barriers.waiting.push_back((number, what));
        self.workers.iter().for_each(|worker| worker.send(Errand::Sync(number)));
    }

    /// Completes what the workers have caught up with, up to one long answer: a dump of all rules
    /// takes a while, and other events are handled between two of them.
    fn finish_barriers(&mut self) {
        // The last worker to synchronise wakes this task.
        let shared = self.shared.clone();
        let is_done = |(number, _): &(u64, Waiting)| shared.is_synced(*number);
        while self.barriers.waiting.front().is_some_and(is_done)
            && let Some((_, what)) = self.barriers.waiting.pop_front()
        {
            let is_long = self.is_long(&what);
            self.finish(what);
            if is_long {
                return shared.synced.notify_one();
            }
        }
    }

    fn finish(&mut self, what: Waiting) {
        match what {
            Waiting::Barrier(id, xid) => {
                self.order(id, ToPeer::Reply(xid, Body::BarrierReply));
                self.release(id);
            }
            Waiting::Gone(gone) => gone.iter().for_each(|gone| self.notify(&gone.message())),
            // A peer that has disconnected gets no answer.
            Waiting::Counters(id, _) if !self.peers.contains_key(&id) => {}
            Waiting::Counters(id, message) => {
                self.handle_request(id, message, None);
                self.release(id);
            }
            Waiting::Query(query) => self.answer(query),
            Waiting::Removed(device, answer) => {
                let number = device.spec.number;
                // A file settles its buffered packets here.
                drop(device);
                self.ports.retire(number);
                self.shared.pauses.forget(number);
                // A receiver that is gone is ignored.
                let _ = answer.send(Ok(()));
            }
            Waiting::LetGo(device) => drop(device),
            Waiting::Change(change) => self.change_ports(change),
        }
    }

    /// Whether this may take long: an answer with the counters of all rules.
    fn is_long(&self, what: &Waiting) -> bool {
        match what {
            Waiting::Counters(id, _) => self.peers.contains_key(id),
            Waiting::Query(_) => true,
            Waiting::Barrier(..)
            | Waiting::Gone(_)
            | Waiting::Removed(..)
            | Waiting::LetGo(_)
            | Waiting::Change(_) => false,
        }
    }

    /// Whether a request of this connection is unfinished.
    fn waits(&self, id: ConnectionId) -> bool {
        let is_its = |what: &Waiting| match what {
            Waiting::Barrier(whose, _) | Waiting::Counters(whose, _) => *whose == id,
            Waiting::Gone(_)
            | Waiting::Query(_)
            | Waiting::Removed(..)
            | Waiting::LetGo(_)
            | Waiting::Change(_) => false,
        };
        self.barriers.waiting.iter().any(|(_, what)| is_its(what))
    }

    /// Handles held requests, up to one that has to wait again.
    fn release(&mut self, id: ConnectionId) {
        while !self.waits(id)
            && let Some(held) = self.peers.get_mut(&id).and_then(|peer| peer.held.pop_front())
        {
            let (event, room) = held;
            self.handle_event(id, event, room);
        }
    }

    fn handle_role(&mut self, id: ConnectionId, xid: u32, request: RoleMessage) {
        let Some(current) = self.peers.get(&id).map(|peer| peer.role) else { return };
        let answer = self.roles.handle_request(id, current, request);
        if let Ok(change) = answer {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.role = change.reply.role;
            }
            if let Some(demoted) = change.demoted {
                if let Some(peer) = self.peers.get_mut(&demoted) {
                    peer.role = ControllerRole::Slave;
                }
                self.order(demoted, ToPeer::Demote);
            }
        }
        self.order(id, ToPeer::AnswerRole(xid, request, answer));
    }

    /// Handles a change of an interface behind a port.
    fn handle_link(&mut self, news: LinkNews) {
        self.ports.look_soon(news.namespace);
        match news.event {
            LinkEvent::Changed(link) => self.handle_change(news.namespace, link),
            LinkEvent::Deleted { index, moved, .. } => {
                self.handle_loss(news.namespace, index, moved);
            }
            LinkEvent::Resync => self.resync(news.namespace),
            _ => {}
        }
    }

    fn handle_change(&mut self, namespace: usize, link: Link) {
        let Some(device) = self.find_device(namespace, link.index) else { return };
        if let Some(interface) = device.interface_mut() {
            interface.note(link);
        }
        let number = device.spec.number;
        self.update_port(number);
    }

    /// Handles a change of a guest or its VMM.
    fn handle_guest(&mut self, news: GuestNews) {
        let port = news.port;
        let guest = self.ports.find_mut(port).and_then(Device::guest_mut);
        let announced = guest.and_then(|guest| guest.note(news));
        self.update_port(port);
        if let Some(station) = announced {
            self.announce(port, station);
        }
    }

    /// Updates the port in the datapath, and notifies the controllers if it has changed.
    pub(crate) fn update_port(&mut self, number: PortNo) {
        let device = self.ports.find_mut(number);
        let now = device.map(|device| (device.mtu(), device.room(), device.state()));
        let Some((mtu, room, state)) = now else { return };
        let snapshot = self.agent.pipeline().snapshot();
        let Some(port) = snapshot.ports.find(number) else { return };
        if (port.mtu, port.room, port.state) == (mtu, room, state) {
            return;
        }
        let event = self.agent.handle_port(Port { mtu, room, state, ..Port::clone(port) });
        self.notify(&event);
    }

    fn resync(&mut self, namespace: usize) {
        let interfaces = self.ports.devices.iter().filter_map(Device::interface);
        let here: Vec<_> = interfaces.filter(|it| it.namespace_index == namespace).collect();
        let Some(first) = here.first() else { return };
        let links = Netlink::open(&first.namespace).and_then(|mut netlink| netlink.links());
        let links = match links {
            Ok(links) => links,
            Err(error) => return tracing::warn!("cannot list the interfaces: {error}"),
        };
        let is_gone = |it: &&&Interface| !links.iter().any(|link| link.index == it.index);
        let gone: Vec<_> = here.iter().filter(is_gone).map(|it| it.index).collect();
        links.into_iter().for_each(|link| self.handle_change(namespace, link));
        gone.into_iter().for_each(|index| self.lose_interface(namespace, index, None));
    }

    /// The device with this interface.
    pub(crate) fn find_device(&mut self, namespace: usize, index: u32) -> Option<&mut Device> {
        let is_it = |device: &&mut Device| {
            let interface = device.interface();
            interface.is_some_and(|it| (it.namespace_index, it.index) == (namespace, index))
        };
        self.ports.devices.iter_mut().find(is_it)
    }

    /// A standalone switch ignores its rules while no controller is connected.
    fn update_fail_mode(&mut self) {
        let is_connected = self.peers.values().any(PeerState::leads);
        let is_alone = !self.controllers.is_empty() && !is_connected;
        self.agent.set_standalone(is_alone && self.fail_mode == FailMode::Standalone);
        let mut listeners = self.peers.values().filter(|peer| peer.is_ready && peer.listens);
        let has_listener = listeners.clone().next().is_some();
        self.shared.starts_suffice.store(listeners.all(|peer| peer.only_looks), Ordering::Relaxed);
        self.shared.has_controller.store(has_listener, Ordering::Relaxed);
    }

    /// Publishes the current tables to the workers.
    pub(crate) fn publish(&self) {
        let snapshot = self.agent.pipeline().snapshot();
        if self.shared.snapshot.load().epoch != snapshot.epoch {
            self.shared.snapshot.store(snapshot.clone());
        }
        let macs = self.agent.macs().table();
        if !Arc::ptr_eq(&self.shared.macs.load(), macs) {
            self.shared.macs.store(macs.clone());
        }
    }

    pub(crate) fn notify(&self, body: &Body) {
        for peer in self.peers.values().filter(|peer| peer.is_ready) {
            peer.orders.send(ToPeer::Notify(body.clone()));
        }
    }

    /// Sends a packet-in to all controllers. A start of a packet from before one came that wants
    /// whole packets is not for that one.
    fn notify_packet_in(&self, packet_in: &PacketIn, is_start: bool, fate: &Arc<PacketFate>) {
        let takes = |peer: &&PeerState| peer.is_ready && (peer.only_looks || !is_start);
        for peer in self.peers.values().filter(takes) {
            let own = peer.listens.then(|| fate.clone());
            let order = ToPeer::PacketIn(packet_in.clone(), own);
            if !peer.orders.send(order) && peer.listens {
                fate.refused();
            }
        }
    }

    fn order(&self, id: ConnectionId, order: ToPeer) {
        if let Some(peer) = self.peers.get(&id) {
            peer.orders.send(order);
        }
    }

    fn is_controller(&self, id: ConnectionId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.controller.is_some())
    }

    fn is_quiet(&self, id: ConnectionId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.is_quiet)
    }

    fn name_of(&self, id: ConnectionId) -> String {
        match self.peers.get(&id).and_then(|peer| peer.controller) {
            Some(controller) => format!("controller {controller}"),
            None => format!("connection {}", id.0),
        }
    }
}

/// A worker's thread has ended unexpectedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a worker thread has exited and its queues are no longer read, so the switch stops; the log \
     has the cause"
)]
pub struct WorkerEnded;

/// Whether the event only asks for an answer.
fn is_question(event: &SwitchEvent) -> bool {
    matches!(event, SwitchEvent::Request(message) if only_asks(&message.body))
}

/// Whether the answer contains the workers' counters.
fn reads_counters(message: &Message) -> bool {
    use MultipartRequestBody::{Aggregate, Flow, Group, Meter, PortStats, Table};
    let Body::MultipartRequest(MultipartRequest { body, .. }) = &message.body else { return false };
    matches!(body, Flow(_) | Aggregate(_) | Table | PortStats(_) | Group(_) | Meter(_))
}

/// The packet after headroom for tags and headers.
fn behind_headroom(packet: &[u8]) -> Vec<u8> {
    [&[0; HEADROOM][..], packet].concat()
}

/// Waits until the coarse clock has passed `deadline`.
async fn sleep_until(deadline: Option<Millis>) {
    if let Some(deadline) = deadline {
        let left = deadline.since(clock::coarse());
        tokio::time::sleep(Duration::from_millis(left.0) + CLOCK_TICK).await;
    }
}

/// The coarse clock lags by at most this much (a tick at 100 Hz).
const CLOCK_TICK: Duration = Duration::from_millis(10);
/// Events handled before a new version is published in any case.
const COLLECT_COUNT: usize = 1024;

#[cfg(test)]
mod tests;
