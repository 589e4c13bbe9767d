//! Leading and following: what changes in the hub when the controllers that share a store elect
//! another leader.
//!
//! A new leader starts like a restarted controller: it requests the master role from each switch,
//! and when the switch accepts, reads its tables and changes what differs. A follower stays
//! connected and only requests its role. So a change of leaders changes no rules.

use std::time::Instant;

use tapswitch_control::{Control, counted};
use tapswitch_openflow::{ControllerRole, DatapathId, ErrorKind, RoleMessage};
use tokio::sync::watch;

use super::{Changes, History, Hub, Known, Name};
use crate::Caller;
use crate::audit::{Draft, What};
use crate::blueprint::Built;
use crate::cluster::{Leader, Standing};
use crate::election::Term;
use crate::keeper::Configured;
use crate::news::{Order, Verdict};
use crate::store::Kept;

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

    /// Publishes whether a switch is connected.
    pub(super) fn note_switch(&self, switch: DatapathId, is_connected: bool) {
        if let Some(term) = &self.term {
            term.note_switch(switch, is_connected);
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
        let configured = match self.blueprint.build(kept, now) {
            Ok(mut built) => {
                let configured = Configured::take(&mut built, &self.blueprint);
                let Built { control, policies, .. } = built;
                let count = counted(policies.len(), "policy");
                let what = format!("generation {generation}, {count}");
                tracing::info!("leading, {what}");
                self.journal.begin();
                self.known = Known::of(&control, Instant::now()).and(&met);
                self.control = control;
                self.history = History::new(Instant::now());
                self.keeper.begin(policies);
                self.keeper.note(Draft::new(&Caller::controller(), What::ControllerLead, what));
                configured
            }
            // Policies of the configuration were validated before.
            Err(error) => {
                tracing::error!("cannot lead: {error}");
                return self.seat.give_up();
            }
        };
        self.seat.generation = generation;
        self.begin_session(Standing::Leader { generation });
        // The store reports an error itself; the next leader finds the same difference.
        tokio::spawn(self.keeper.keep_configured(configured));
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
            Some(Leader { id, rest, generation, .. }) => {
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
    pub(super) fn begin_session(&mut self, standing: Standing) {
        self.changes = Changes::new(Instant::now());
        self.waiting_for_stats.clear();
        self.seat.standing.send_replace(standing);
        self.seat.session += 1;
        if !self.seat.acts() {
            self.give_back_relayed();
        }
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
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use tapswitch_control::{Limits, TapPolicy};

    use super::*;
    use crate::StoreConfig;
    use crate::blueprint::Blueprint;
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
}
