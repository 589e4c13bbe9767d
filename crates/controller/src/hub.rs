//! The task that owns the control plane. It processes inputs one by one and never waits. Among
//! several controllers only the leader's hub is active: see `duty`.

mod awaited;
mod changes;
mod contest;
mod duty;
mod history;
mod inputs;
mod listened;
mod processors;
mod relayed;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use tapswitch_control::{
    Control, Event, HostReport, LinkReport, Millis, Monitors, PathReport, Plan, PolicyReport,
    PolicyState, PortLoad, StatsToken, SwitchDetails, SwitchReport, TapPolicy, Transmit, UnixTime,
    counted,
};
use tapswitch_openflow::{DatapathId, ErrorKind, FeaturesReply};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use crate::RequestError;
use crate::blueprint::Blueprint;
use crate::cluster::Access;
use crate::journal::{Journal, Kind};
use crate::keeper::Keeper;
use crate::news::{ConnectionId, Input, News, Order, Orders};
use crate::rehearsals::Turn;
use crate::told::Chatter;
pub(crate) use awaited::Awaited;
use awaited::Known;
use changes::Changes;
pub(crate) use changes::{PolicyChange, Wish};
use contest::Contest;
pub(crate) use duty::Seat;
use history::History;
pub(crate) use inputs::{Inputs, ToHub};
use listened::Listened;

/// A request. The caller may have stopped waiting.
#[derive(Debug)]
pub(crate) enum Request {
    /// Answered when switches have confirmed it.
    Change(Wish),
    Policy {
        name: String,
        reply: PolicyReply,
    },
    Policies(oneshot::Sender<Vec<PolicyReport>>),
    Switches(oneshot::Sender<Vec<SwitchReport>>),
    /// Asks for the switches that have not reported their ports yet.
    Awaited(oneshot::Sender<Awaited>),
    Hosts(oneshot::Sender<Vec<HostReport>>),
    Links(oneshot::Sender<Vec<LinkReport>>),
    Paths {
        name: String,
        reply: oneshot::Sender<Result<Vec<PathReport>, RequestError>>,
    },
    /// Checks that the monitors are available, and qualifies them by switch where unambiguous.
    Monitors {
        policy: Box<TapPolicy>,
        reply: oneshot::Sender<Result<Monitors, RequestError>>,
    },
    /// Plans a change.
    Plan {
        change: PolicyChange,
        turn: Turn,
        reply: PlanReply,
    },
    /// Answered when counters have been read.
    Stats(oneshot::Sender<()>),
    /// Answered when the switch has reported its tables.
    Details {
        switch: DatapathId,
        reply: oneshot::Sender<Option<SwitchDetails>>,
    },
    /// Answered when the counters of all ports have been read: bytes per second, by switch and
    /// port.
    Loads(oneshot::Sender<Loads>),
}

impl Request {
    /// Whether it can be answered without switches, and changes nothing.
    fn is_for_memory(&self) -> bool {
        self.access() == Access::Read && !matches!(self, Self::Details { .. })
    }

    /// Whether it is for a change.
    pub(crate) const fn access(&self) -> Access {
        match self {
            Self::Change(_) | Self::Monitors { .. } | Self::Plan { .. } => Access::Write,
            _ => Access::Read,
        }
    }
}

/// Load of ports, by switch and port number.
pub(crate) type Loads = HashMap<(DatapathId, u32), PortLoad>;

/// A caller that waits for counters.
enum StatsReply {
    Any(oneshot::Sender<()>),
    Details(DatapathId, oneshot::Sender<Option<SwitchDetails>>),
    Loads(oneshot::Sender<Loads>),
}

type PlanReply = oneshot::Sender<Result<Plan, RequestError>>;
type PolicyReply = oneshot::Sender<Result<PolicyReport, RequestError>>;

/// What woke the hub.
enum WokenBy {
    Input(Input),
    Request(Request),
    Time,
    /// There are changes to begin.
    Changes,
}

/// The owner of the control plane.
pub(crate) struct Hub {
    control: Control,
    /// What a new control plane is built from if this controller becomes leader.
    blueprint: Blueprint,
    seat: Seat,
    inputs: Inputs,
    journal: Arc<Journal>,
    keeper: Arc<Keeper>,
    switches: HashMap<DatapathId, Connected>,
    /// Switches known before they connected.
    known: Known,
    /// Newer connections of connected switches.
    contests: HashMap<DatapathId, Contest>,
    takeover_after: Duration,
    start: Instant,
    listened: Listened,
    /// Time up to which the control plane has processed its timers.
    told: Millis,
    changes: Changes,
    /// Several callers may share a round.
    waiting_for_stats: HashMap<StatsToken, Vec<StatsReply>>,
    chatter: Chatter,
    history: History,
}

/// A connected switch.
struct Connected {
    connection: ConnectionId,
    features: FeaturesReply,
    peer: SocketAddr,
    since: Instant,
    orders: Orders,
    /// Whether the control plane was told of the connection. Followers never do that, leaders once
    /// the switch has accepted them as master.
    is_ours: bool,
    /// The controller that relays it, if it is not connected itself.
    through: Option<Arc<str>>,
    /// When a second switch with this datapath id was last reported.
    contested: Option<Instant>,
}

impl Hub {
    pub(crate) fn new(
        control: Control,
        (blueprint, seat): (Blueprint, Seat),
        inputs: Inputs,
        (keeper, journal): (Arc<Keeper>, Arc<Journal>),
        takeover_after: Duration,
    ) -> Self {
        Self {
            known: Known::of(&control, Instant::now()).and(&blueprint.met),
            control,
            blueprint,
            seat,
            inputs,
            journal,
            keeper,
            switches: HashMap::new(),
            contests: HashMap::new(),
            takeover_after,
            start: Instant::now(),
            listened: Listened::new(),
            told: Millis(0),
            changes: Changes::new(Instant::now()),
            waiting_for_stats: HashMap::new(),
            chatter: Chatter::new(Instant::now()),
            history: History::new(Instant::now()),
        }
    }

    /// Runs until `shutdown` is done, then closes all connections.
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        self.handle_timeout();
        loop {
            self.check_term();
            self.transmit();
            // Events may have consequences, such as a policy that is taken back.
            while self.handle_events() {
                self.transmit();
            }
            let timeout = self.control.poll_timeout().filter(|_| self.seat.acts());
            let at = timeout.map(|at| self.start + Duration::from_millis(at.0));
            let since = Instant::now();
            let own = [self.changes.due(since), self.contest_due(), self.history.due()];
            let own_at = own.into_iter().flatten().min();
            self.seat.set_busy(None);
            let woken_by = tokio::select! {
                biased;
                () = &mut shutdown => return,
                Some(input) = self.inputs.news.recv() => WokenBy::Input(input),
                Some(request) = self.inputs.requests.recv() => WokenBy::Request(request),
                // Lets other tasks run first, which read further input.
                () = sleep_until(own_at) => WokenBy::Changes,
                () = sleep_until(at) => {
                    tokio::task::yield_now().await;
                    WokenBy::Time
                }
            };
            self.seat.set_busy(Some(Instant::now()));
            self.listened.add(since, at.filter(|_| matches!(woken_by, WokenBy::Time)));
            match woken_by {
                WokenBy::Input(input) => self.handle(input),
                WokenBy::Request(request) => self.handle_request(request),
                WokenBy::Time | WokenBy::Changes => {}
            }
            // Input that is available is processed before it is evaluated.
            self.handle_waiting();
            self.end_contests();
            self.begin_changes();
            self.record_states();
            self.handle_due(at);
        }
    }

    /// Input from switches comes before requests, which may be many and slow: probes that wait
    /// behind them would make links seem dead. Both are bounded, so neither starves the other.
    fn handle_waiting(&mut self) {
        for _ in 0..COLLECT_COUNT {
            let Ok(input) = self.inputs.news.try_recv() else { break };
            self.handle(input);
        }
        let start = Instant::now();
        while start.elapsed() < ANSWERING
            && !self.changes.are_many()
            && let Ok(request) = self.inputs.requests.try_recv()
        {
            self.handle_request(request);
        }
    }

    /// Processes timers if no input is waiting, or if they are very late.
    fn handle_due(&mut self, at: Option<Instant>) {
        let late = at.and_then(|at| Instant::now().checked_duration_since(at));
        let is_behind = !self.inputs.news.is_empty();
        if late.is_some_and(|late| !is_behind || late >= LATE) {
            self.handle_timeout();
        }
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Verdict(verdict) => self.handle_verdict(verdict),
            Input::Relay { switch, relay } => self.relay(switch, relay),
            Input::News {
                connection,
                switch,
                news: News::Ready { features, peer, orders },
                ..
            } => {
                let connected = Connected {
                    connection,
                    features,
                    peer,
                    since: Instant::now(),
                    orders,
                    is_ours: false,
                    through: None,
                    contested: None,
                };
                self.handle_ready(switch, connected);
            }
            Input::News { connection, session, switch, news } => {
                let current = self.switches.get(&switch);
                let Some(current) = current.filter(|it| it.connection == connection) else {
                    return self.handle_contender(switch, connection, &news);
                };
                let is_heard = current.is_ours && self.seat.is_current(session);
                self.handle_news(switch, news, session, is_heard);
            }
        }
    }

    /// `is_heard`: whether the news is for the current control plane.
    fn handle_news(&mut self, switch: DatapathId, news: News, session: u64, is_heard: bool) {
        let now = self.tick();
        match news {
            News::Closed { reason } => self.disconnect(switch, &reason),
            News::Alive => self.refuse_newer(switch),
            News::Relayed { by } => self.handle_relayed(switch, by),
            News::Role(result) if self.seat.is_current(session) => self.handle_role(switch, result),
            _ if !is_heard => {}
            News::Error { kind: ErrorKind::OFPBRC_IS_SLAVE, .. } => {
                self.disconnect(switch, "another controller is its master now");
            }
            News::Reply { ticket, body } => self.control.handle_reply(switch, ticket, &body, now),
            News::Error { ticket, kind } => self.control.handle_error(switch, ticket, kind, now),
            News::Message(body) => self.control.handle_message(switch, &body, now),
            News::Ready { .. } | News::Role(_) => {}
        }
    }

    fn handle_request(&mut self, request: Request) {
        match request {
            request if self.seat.acts() => {
                // Timeouts start at the control plane's time, which may be that of an old input;
                // they would then expire before they start.
                if self.tick() != self.told {
                    self.handle_timeout();
                }
                self.answer(request);
            }
            // No counters will arrive.
            Request::Stats(reply) if self.seat.remembers() => _ = reply.send(()),
            Request::Loads(reply) if self.seat.remembers() => {
                self.answer_one(StatsReply::Loads(reply));
            }
            request if self.seat.remembers() && request.is_for_memory() => self.answer(request),
            // Dropping the reply tells the caller that there is none; the standing says why.
            _ => {}
        }
    }

    fn answer(&mut self, request: Request) {
        // A failed send means that the caller no longer waits.
        match request {
            Request::Change(wish) => self.ask_for(wish),
            Request::Policy { name, reply } => {
                let _ = reply.send(self.control.policy(&name).map_err(RequestError::from));
            }
            Request::Policies(reply) => _ = reply.send(self.control.policies()),
            Request::Switches(reply) => _ = reply.send(self.report_switches()),
            Request::Awaited(reply) => _ = reply.send(self.awaited()),
            Request::Hosts(reply) => _ = reply.send(self.control.hosts()),
            Request::Links(reply) => _ = reply.send(self.control.links()),
            Request::Paths { name, reply } => {
                let _ = reply.send(self.control.policy_paths(&name).map_err(RequestError::from));
            }
            Request::Monitors { policy, reply } => {
                let policy = self.control.with_switches_said(*policy);
                let checked = self.control.check_monitors(&policy);
                let checked = checked.map_err(|error| self.awaited().excuse(error));
                let _ = reply.send(checked.map(|()| policy.monitor));
            }
            Request::Plan { change, turn, reply } => self.rehearse(change, turn, reply),
            Request::Stats(reply) => {
                let token = self.control.request_stats();
                self.await_stats(token, StatsReply::Any(reply));
            }
            Request::Details { switch, reply } => match self.control.request_details(switch) {
                Some(token) => {
                    self.await_stats(token, StatsReply::Details(switch, reply));
                }
                None => _ = reply.send(None),
            },
            Request::Loads(reply) => {
                let token = self.control.request_ports();
                self.await_stats(token, StatsReply::Loads(reply));
            }
        }
    }

    /// Plans a change on a copy that shares unchanged state, while the hub continues. Skipped if
    /// the caller no longer waits.
    fn rehearse(&self, change: PolicyChange, turn: Turn, reply: PlanReply) {
        if reply.is_closed() {
            return;
        }
        let (control, awaited) = (self.control.clone(), self.awaited());
        tokio::task::spawn_blocking(move || {
            let plan = control.plan_change(change.as_told());
            let plan = plan.map_err(|error| awaited.excuse(error));
            // Frees the copy before the next one is made.
            drop(control);
            drop(turn);
            let _ = reply.send(plan);
        });
    }

    fn await_stats(&mut self, token: StatsToken, reply: StatsReply) {
        self.waiting_for_stats.entry(token).or_default().push(reply);
    }

    fn answer_stats(&mut self, token: StatsToken) {
        let waiting = self.waiting_for_stats.remove(&token).unwrap_or_default();
        waiting.into_iter().for_each(|reply| self.answer_one(reply));
    }

    fn answer_one(&mut self, reply: StatsReply) {
        // A failed send means that the caller no longer waits.
        match reply {
            StatsReply::Any(reply) => _ = reply.send(()),
            StatsReply::Details(switch, reply) => {
                let _ = reply.send(self.control.take_details(switch));
            }
            StatsReply::Loads(reply) => {
                let loads = self.control.loads().map(|(switch, port, load)| ((switch, port), load));
                let _ = reply.send(loads.collect());
            }
        }
    }

    /// Hands messages to the connections.
    fn transmit(&mut self) {
        while self.seat.acts()
            && let Some(Transmit { switch, ticket, body }) = self.control.poll_transmit()
        {
            // A switch about to be taken over gets everything again afterwards.
            if self.switches.get(&switch).is_some_and(|switch| switch.is_ours) {
                self.order(switch, Order::Send(ticket, body));
            }
        }
    }

    fn order(&mut self, switch: DatapathId, order: Order) {
        let Some(connected) = self.switches.get(&switch) else { return };
        match connected.orders.messages.try_send(order) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.disconnect(switch, "it does not read from the connection");
            }
            Err(TrySendError::Closed(_)) => self.disconnect(switch, "the connection ended"),
        }
    }

    /// Returns whether there were any events.
    fn handle_events(&mut self) -> bool {
        let mut count = 0;
        while self.seat.acts()
            && let Some(event) = self.control.poll_event()
        {
            count += 1;
            match event {
                Event::Copy(copy) => self.journal.copies().publish(*copy),
                Event::SwitchUp { switch } => {
                    tracing::info!("{} is up", Name(switch));
                    self.tell_switch(switch, true, None);
                    self.meet(switch);
                }
                Event::SwitchMisbehaved { switch, reason } => self.disconnect(switch, &reason),
                Event::RuleRefused { switch, reason }
                | Event::Drifted { switch, reason }
                | Event::CountersMissing { switch, reason }
                | Event::PortClosed { switch, reason }
                | Event::LinkHeld { switch, reason }
                | Event::Crowded { switch, reason }
                | Event::Contested { switch, reason } => {
                    self.tell_alarm(switch, &reason);
                }
                Event::CountersBack { switch } => {
                    tracing::info!("{} reports its counters again", Name(switch));
                }
                Event::StatsReady(token) => self.answer_stats(token),
                other => self.handle_policy_event(other),
            }
        }
        count > 0
    }

    /// Processes an event about a policy; all others concern hosts, links and ports.
    fn handle_policy_event(&mut self, event: Event) {
        match event {
            Event::PolicyActive { name } => self.handle_in_force(&name, &PolicyState::Active),
            Event::PolicyPartial { name, reason } => {
                self.handle_in_force(&name, &PolicyState::Partial { reason });
            }
            Event::PolicyResting { name, reason } => {
                self.handle_in_force(&name, &PolicyState::Resting { reason });
            }
            Event::PolicyMoved { name, monitor, from, to, reason } => {
                tracing::info!(
                    "policy {name}: copies for {monitor} have a new destination: {reason}"
                );
                self.record_move(&name, (&monitor, &reason), (&from, &to));
            }
            Event::PolicyExpired { name, number } => {
                tracing::info!("policy {name} has expired");
                // A replacement has the name by now, and the place in the store.
                let is_replaced = self.control.has_policy(&name);
                let origin = self.keeper.origin(&name).filter(|_| !is_replaced);
                self.changes.expire(number, origin);
            }
            Event::PolicyPending { name, reason } => {
                match self.is_taking_over() {
                    // If it still is when all has settled, that is logged.
                    true => tracing::debug!("policy {name} is pending at first: {reason}"),
                    false => tracing::info!("policy {name} is pending: {reason}"),
                }
                self.handle_out_of_force(&name, &PolicyState::Pending { reason });
            }
            Event::PolicyFailed { name, reason } => {
                tracing::warn!("policy {name} failed: {reason}");
                self.handle_out_of_force(&name, &PolicyState::Failed { reason });
            }
            Event::PolicyPinned(policy) => self.pin(policy.name),
            Event::PolicyReplaced { name } => {
                self.answer_replaced(&name);
                self.record_replaced(&name);
            }
            Event::PolicyNotReplaced { name, reason } => {
                tracing::warn!("policy {name} is unchanged: {reason}");
                self.answer_not_replaced(name, reason);
            }
            Event::PolicySuperseded(report) => {
                self.journal.copies().end(report.number);
                self.history.forget(report.number);
                let name = &report.policy.name;
                let matched = counted(report.matched.packets, "packet");
                tracing::info!("policy {name}: {matched} matched before it was replaced");
            }
            Event::PolicyDeleted(report) => {
                self.journal.copies().end(report.number);
                self.history.forget(report.number);
                self.answer_deleted(*report);
            }
            other => self.chatter.tell(&self.journal, &other, Instant::now()),
        }
    }

    /// The monitors of this policy, or of one that replaces it, were found: writes the one in force
    /// to the store while the hub continues.
    fn pin(&self, name: String) {
        let Some(requests) = self.inputs.own.upgrade() else { return };
        let (keeper, asked) = (Arc::clone(&self.keeper), name.clone());
        let current = async move {
            let (reply, answer) = oneshot::channel();
            requests.send(Request::Policy { name: asked, reply }).await.ok()?;
            Some(answer.await.ok()?.ok()?.policy)
        };
        tokio::spawn(keeper.pin(name, current));
    }

    /// A policy is in force as far as is possible now.
    fn handle_in_force(&mut self, name: &str, state: &PolicyState) {
        match state {
            PolicyState::Partial { reason } => {
                tracing::warn!("policy {name} is partly active: {reason}");
            }
            PolicyState::Resting { reason } => tracing::info!("policy {name} is resting: {reason}"),
            _ => tracing::info!("policy {name} is active"),
        }
        self.tell_policy(name, state);
        self.answer_added(name);
        self.record_state(name, state);
    }

    /// Nothing is copied for a policy. If a caller waits for it, it has failed.
    fn handle_out_of_force(&mut self, name: &str, state: &PolicyState) {
        self.tell_policy(name, state);
        match state {
            PolicyState::Pending { reason } => {
                let early = self.unlinked().check_all().err();
                self.take_back(name, early, reason);
            }
            PolicyState::Failed { reason } => self.take_back(name, None, reason),
            _ => {}
        }
        self.record_state(name, state);
    }

    /// The connection to a switch has ended, or is closed now.
    fn disconnect(&mut self, switch: DatapathId, reason: &str) {
        if let Some(connected) = self.switches.remove(&switch) {
            self.seat.note_switch(switch, false);
            tracing::info!("{} at {} disconnected: {reason}", Name(switch), connected.peer);
            // The connection may have ended by itself.
            let _ = connected.orders.close.send(reason.to_owned());
            if connected.is_ours && self.seat.acts() {
                self.tell_switch(switch, false, Some(reason));
                self.control.handle_disconnected(switch);
            }
        }
    }

    fn handle_timeout(&mut self) {
        if self.seat.acts() {
            let now = self.tick();
            self.told = now;
            self.tell_time(now);
            self.control.handle_timeout(now);
        }
    }

    /// Sets the time of day: this machine's clock may change at any time.
    fn tell_time(&mut self, now: Millis) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = UnixTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        self.control.handle_clock(time, now);
    }

    /// Sets the control plane's clock, and returns the time used for most inputs.
    fn tick(&mut self) -> Millis {
        let elapsed = self.start.elapsed();
        let now_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.control.set_clock(now_ns, millis(self.listened.total(Instant::now())));
        millis(elapsed)
    }

    fn tell_switch(&self, switch: DatapathId, is_connected: bool, reason: Option<&str>) {
        let switch = format!("{:#x}", switch.0);
        let data = json!({ "switch": switch, "is_connected": is_connected, "reason": reason });
        self.journal.publish(Kind::Switch, data);
    }

    fn tell_alarm(&self, switch: DatapathId, reason: &str) {
        tracing::warn!("{}: {reason}", Name(switch));
        let switch = format!("{:#x}", switch.0);
        self.journal.publish(Kind::Alarm, json!({ "switch": switch, "text": reason }));
    }

    fn tell_policy(&self, name: &str, state: &PolicyState) {
        self.journal.publish(Kind::Policy, json!({ "name": name, "state": state }));
    }
}

/// Displays a switch as policies name it.
#[derive(Clone, Copy)]
struct Name(DatapathId);

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "switch {:#x}", self.0.0)
    }
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Maximum delay of timers while inputs are waiting.
const LATE: Duration = Duration::from_millis(100);
/// Maximum inputs processed in a row.
const COLLECT_COUNT: usize = 256;
/// Maximum time for answering requests in a row.
const ANSWERING: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
