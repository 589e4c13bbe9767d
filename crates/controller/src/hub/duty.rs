//! Leading and following: what changes in the hub when the controllers that share a store elect
//! another leader.
//!
//! A new leader starts like a restarted controller: it requests the master role from each switch,
//! and when the switch accepts, reads its tables and changes what differs. A follower stays
//! connected and only requests its role. So a change of leaders changes no rules.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use tapswitch_control::{Control, Expiry, Limits, Millis, TapPolicy, WhenMissing};
use tapswitch_openflow::{ControllerRole, DatapathId, ErrorKind, RoleMessage};
use tokio::sync::watch;

use super::{Changes, History, Hub, Known, Name};
use crate::Caller;
use crate::audit::{Draft, What};
use crate::caller::CONFIGURATION;
use crate::clock::unix_time;
use crate::cluster::{Leader, Standing};
use crate::election::{Term, Verdict};
use crate::error::BindError;
use crate::news::Order;
use crate::store::{Kept, KeptPolicy, Origin};

/// Parts of every new control plane.
#[derive(Clone, Debug)]
pub(crate) struct Blueprint {
    /// Including the key for link discovery.
    pub(crate) limits: Limits,
    /// Policies of the configuration.
    pub(crate) policies: Vec<TapPolicy>,
    /// Start of the controller, from which their durations count.
    pub(crate) start: Instant,
    /// Switches that connected in earlier runs.
    pub(crate) met: BTreeSet<DatapathId>,
}

impl Blueprint {
    /// Policies of the configuration without expired ones, which each term would put in force and
    /// end once more.
    pub(crate) fn configured(&self) -> Vec<TapPolicy> {
        let (passed, time) = (self.start.elapsed().as_secs(), unix_time());
        let goes_on = |policy: &TapPolicy| {
            let expires = match policy.expires {
                Some(Expiry::At(at)) if at <= time => return None,
                Some(Expiry::After(span)) if span <= passed => return None,
                Some(Expiry::After(span)) => Some(Expiry::After(span - passed)),
                other => other,
            };
            Some(TapPolicy { expires, ..policy.clone().with_defaults_said() })
        };
        self.policies.iter().filter_map(goes_on).collect()
    }

    /// Builds a control plane with the policies of the configuration and the store, and returns all
    /// its policies. Monitors of the former are where they were found before. A stored policy that
    /// is invalid, perhaps because the configuration has its name, is left out and reported, as the
    /// others are needed.
    pub(crate) fn build(
        &self,
        kept: Kept,
        now: Millis,
    ) -> Result<(Control, Vec<KeptPolicy>), BindError> {
        let mut control = Control::new(self.limits.clone());
        // Durations count from now, not from the start of this process.
        control.handle_timeout(now);
        let mut all = Vec::new();
        let is_pinned = |kept: &KeptPolicy| kept.origin.owner == CONFIGURATION;
        let (pinned, stored): (Vec<_>, Vec<_>) = kept.policies.into_iter().partition(is_pinned);
        let pinned = pinned.into_iter().map(|kept| (kept.policy.name, kept.policy.monitor));
        let pinned: HashMap<_, _> = pinned.collect();
        let configured = self.configured();
        let over_count = self.policies.len() - configured.len();
        if over_count > 0 {
            tracing::info!(
                "{over_count} policies of the configuration have expired and are skipped"
            );
        }
        for mut policy in configured {
            if let Some(before) = pinned.get(&policy.name) {
                policy.monitor = policy.monitor.with_switches_of(before);
            }
            let added = control.add_policy(policy.clone(), WhenMissing::Wait);
            added.map_err(|error| BindError::Policy { name: policy.name.clone(), error })?;
            all.push(KeptPolicy { policy, origin: Origin::now(CONFIGURATION) });
        }
        for (name, error) in kept.unreadable {
            tracing::error!("policy {name} of the store is skipped: it cannot be parsed: {error}");
        }
        for kept in stored {
            let name = kept.policy.name.clone();
            match control.add_policy(kept.policy.clone(), WhenMissing::Wait) {
                Ok(()) => all.push(kept),
                Err(error) => tracing::error!("policy {name} of the store is skipped: {error}"),
            }
        }
        Ok((control, all))
    }
}

/// The position of a controller among those that share its store.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Whether it leads, published to all who need it.
    pub(crate) standing: watch::Sender<Standing>,
    /// Its term; `None` if it is alone.
    pub(crate) term: Option<Term>,
    /// Number of role changes: replies to messages before the last one are ignored.
    session: u64,
    /// The highest known generation; zero if there was none.
    generation: u64,
}

impl Seat {
    pub(crate) const fn new(standing: watch::Sender<Standing>, term: Option<Term>) -> Self {
        Self { standing, term, session: 0, generation: 0 }
    }

    /// Whether this controller controls the switches.
    pub(super) fn acts(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Alone | Standing::Leader { .. })
    }

    pub(super) fn is_alone(&self) -> bool {
        *self.standing.borrow() == Standing::Alone
    }

    /// Records since when the hub is busy, or `None` while it waits.
    pub(super) fn set_busy(&self, since: Option<Instant>) {
        if let Some(term) = &self.term {
            term.set_busy(since);
        }
    }

    /// Publishes the number of connected switches.
    pub(super) fn set_switch_count(&self, count: usize) {
        if let Some(term) = &self.term {
            term.set_switch_count(count);
        }
    }

    /// Ends the term, so that another controller can lead.
    fn give_up(&self) {
        if let Some(term) = &self.term {
            term.end();
        }
    }

    /// Whether this controller led last, and none has since.
    pub(super) fn remembers(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Follower { remembers: true, .. })
    }

    /// Whether replies of this session are current.
    pub(super) const fn is_current(&self, session: u64) -> bool {
        self.session == session
    }

    /// The role request for a switch; `None` if the controller is alone.
    fn role_order(&self) -> Option<Order> {
        let role = match self.acts() {
            _ if self.is_alone() || self.generation == 0 => return None,
            true => ControllerRole::Master,
            false => ControllerRole::Slave,
        };
        let request = RoleMessage { role, generation_id: self.generation };
        Some(Order::Role { session: self.session, request })
    }
}

impl Hub {
    pub(super) fn handle_verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Lead { generation, kept } => self.lead(generation, kept),
            Verdict::Follow { leader } => self.follow(leader),
        }
    }

    /// Steps down when the term has ended: this process may have been stopped for a while.
    pub(super) fn check_term(&mut self) {
        let has_ended = self.seat.term.as_ref().is_some_and(|term| !term.goes_on(Instant::now()));
        if has_ended && self.seat.acts() {
            self.follow(None);
        }
    }

    fn lead(&mut self, generation: u64, mut kept: Kept) {
        let now = self.tick();
        let met = std::mem::take(&mut kept.switches);
        match self.blueprint.build(kept, now) {
            Ok((control, policies)) => {
                let what = format!("generation {generation}, {} policies", policies.len());
                tracing::info!("leading, {what}");
                self.journal.begin();
                self.known = Known::of(&control, Instant::now()).and(&met);
                self.control = control;
                self.history = History::new(Instant::now());
                self.keeper.begin(policies);
                self.keeper.note(Draft::new(&Caller::controller(), What::ControllerLead, what));
            }
            // Policies of the configuration were validated before.
            Err(error) => {
                tracing::error!("cannot lead: {error}");
                return self.seat.give_up();
            }
        }
        self.seat.generation = generation;
        self.begin_session(Standing::Leader { generation });
        self.handle_timeout();
    }

    fn follow(&mut self, leader: Option<Leader>) {
        if leader.is_none() && !self.seat.acts() {
            // Known before, or detected by the clock.
            return;
        }
        let remembers = leader.is_none();
        let has_led = self.seat.acts().then_some(self.seat.generation);
        match &leader {
            Some(Leader { id, rest, generation }) => {
                let rest = rest.as_deref().unwrap_or("none");
                tracing::info!("following {id} (REST: {rest}), generation {generation}");
                self.seat.generation = self.seat.generation.max(*generation);
            }
            None => tracing::warn!("stepping down; the switches keep their rules"),
        }
        if !remembers {
            self.control = Control::new(self.blueprint.limits.clone());
        }
        self.keeper.end();
        if let Some(generation) = has_led {
            let what =
                format!("no longer leads, generation {generation}; switches keep their rules");
            self.keeper.note(Draft::new(&Caller::controller(), What::ControllerFollow, what));
        }
        self.begin_session(Standing::Follower { leader, remembers });
    }

    /// Starts a new session: pending requests fail, and all switches are asked for the role.
    fn begin_session(&mut self, standing: Standing) {
        self.changes = Changes::new(Instant::now());
        self.waiting_for_stats.clear();
        self.seat.standing.send_replace(standing);
        self.seat.session += 1;
        let ids: Vec<_> = self.switches.keys().copied().collect();
        ids.into_iter().for_each(|id| self.ask_for_role(id));
    }

    /// Requests this controller's role from a switch; not needed if it is alone.
    pub(super) fn ask_for_role(&mut self, id: DatapathId) {
        let Some(switch) = self.switches.get_mut(&id) else { return };
        switch.is_ours = false;
        match self.seat.role_order() {
            Some(order) => self.order(id, order),
            None if self.seat.acts() => self.take_over(id),
            None => {}
        }
    }

    /// A switch accepted or rejected the requested role.
    pub(super) fn handle_role(&mut self, id: DatapathId, result: Result<(), ErrorKind>) {
        let name = Name(id);
        match result {
            Ok(()) if self.seat.acts() => self.take_over(id),
            Ok(()) => {}
            Err(kind) if self.seat.acts() => tracing::error!(
                "{name} refuses this controller as master: {kind}; if no other controller leads \
                 it, it remembers a later generation than etcd: restart the switch"
            ),
            Err(kind) => {
                tracing::debug!("{name} refuses the slave role: {kind}");
            }
        }
    }

    fn take_over(&mut self, id: DatapathId) {
        let Some(switch) = self.switches.get_mut(&id) else { return };
        switch.is_ours = true;
        let features = switch.features.clone();
        let now = self.tick();
        self.control.handle_connected(&features, now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tapswitch_control::{Event, UnixTime};

    use super::*;
    use crate::StoreConfig;
    use crate::hub::Inputs;
    use crate::journal::Journal;
    use crate::keeper::Keeper;
    use crate::store::Store;

    #[test]
    fn who_cannot_lead_gives_the_term_up() {
        let journal = Arc::new(Journal::new(1));
        let (store, _) = Store::open(&StoreConfig::None, Arc::clone(&journal)).unwrap();
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        let (policies, start) = (vec![policy.clone(), policy], Instant::now());
        let met = BTreeSet::new();
        let blueprint = Blueprint { limits: Limits::default(), policies, start, met };
        let term = Term::new(Duration::from_secs(60));
        let nobody = Standing::Follower { leader: None, remembers: false };
        let seat = Seat::new(watch::channel(nobody).0, Some(term.clone()));
        let (control, kept) = (Control::new(Limits::default()), (Keeper::new(store, []), journal));
        let inputs = Inputs::new().1;
        let mut hub = Hub::new(control, (blueprint, seat), inputs, kept, Duration::ZERO);
        term.begin(Instant::now());
        hub.handle_verdict(Verdict::Lead { generation: 7, kept: Kept::default() });
        assert!(!hub.seat.acts() && !term.goes_on(Instant::now()));
    }

    fn blueprint(expires: Expiry, since: Duration) -> Blueprint {
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        let policies = vec![TapPolicy { expires: Some(expires), ..policy }];
        let start = Instant::now().checked_sub(since).unwrap();
        Blueprint { limits: Limits::default(), policies, start, met: BTreeSet::new() }
    }

    #[test]
    fn monitors_of_the_configuration_stay_at_their_switch() {
        let policies = ["3", "4", "0x1/5"]
            .map(|monitor: &str| TapPolicy::new(format!("to {monitor}"), monitor.parse().unwrap()));
        let start = Instant::now();
        let (limits, policies, met) = (Limits::default(), policies.to_vec(), BTreeSet::new());
        let blueprint = Blueprint { limits, policies, start, met };
        let found = [("to 3", "0x1/3"), ("to 4", "0x1/3"), ("gone", "0x1/6")];
        let found = found.map(|(name, monitor)| {
            let policy = TapPolicy::new(name, monitor.parse().unwrap());
            KeptPolicy { policy, origin: Origin::now(CONFIGURATION) }
        });
        let kept = Kept { policies: found.into(), ..Kept::default() };
        let (_, all) = blueprint.build(kept, Millis(0)).unwrap();
        let all = all.iter().map(|kept| (&*kept.policy.name, kept.policy.monitor.to_string()));
        let all: Vec<_> = all.collect();
        let expected = [("to 3", "0x1/3"), ("to 4", "4"), ("to 0x1/5", "0x1/5")];
        assert_eq!(all, expected.map(|(name, monitor)| (name, monitor.to_owned())));
    }

    #[test]
    fn a_policy_of_the_configuration_ends_once() {
        let (hour, day) = (Duration::from_secs(3600), Expiry::After(86_400));
        let over = [Expiry::After(1800), Expiry::At(UnixTime(1))];
        for expires in over {
            let (_, all) = blueprint(expires, hour).build(Kept::default(), Millis(0)).unwrap();
            assert_eq!(all, [], "whoever leads next does not end it again");
        }
        let blueprint = blueprint(day, hour);
        let begun = blueprint.configured().remove(0).expires;
        let rest = 86_400 - 3600;
        assert!([rest, rest - 1].map(|rest| Some(Expiry::After(rest))).contains(&begun));
        // The term begins when the controller has run for a while.
        let now = Millis(200_000_000);
        let (mut control, _) = blueprint.build(Kept::default(), now).unwrap();
        control.handle_clock(unix_time(), now);
        control.handle_timeout(now.plus(Millis(1000)));
        let events: Vec<_> = std::iter::from_fn(|| control.poll_event()).collect();
        let is_end = |event: &Event| matches!(event, Event::PolicyExpired { .. });
        assert!(!events.iter().any(is_end), "{events:?}");
    }
}
