//! Audit records of policies that change by themselves: that copying begins, stops or moves, and
//! why.
//!
//! That a policy is in force is on record from its addition; from then on each change of its state
//! is recorded. When a controller starts, its switches connect one by one with the tables that they
//! had: states are recorded only once this has settled. Ports and hosts that change all the time
//! must not fill the log either: beyond a rate limit, records are delayed, and only the latest
//! state is recorded.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tapswitch_control::{MonitorPort, MonitorSpec, PolicyState, TapPolicy};

use super::Hub;
use crate::Caller;
use crate::audit::{Draft, What};

/// Recorded and pending states.
#[derive(Debug)]
pub(super) struct History {
    /// Recorded state by number; in force if there is none.
    said: HashMap<u64, PolicyState>,
    /// Policies whose state is not recorded yet.
    unsaid: BTreeMap<u64, (TapPolicy, PolicyState)>,
    /// No records before this time, after a start.
    settles_at: Instant,
    /// Tokens for records left at `counted_at`.
    left: u32,
    counted_at: Instant,
}

impl History {
    /// A history that starts to settle now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            said: HashMap::new(),
            unsaid: BTreeMap::new(),
            settles_at: now + SETTLING,
            left: BURST,
            counted_at: now,
        }
    }

    /// Notes a new state. Returns its record if it is due now.
    pub(super) fn note(
        &mut self,
        number: u64,
        (policy, state): (&TapPolicy, &PolicyState),
        now: Instant,
    ) -> Option<Draft> {
        self.unsaid.remove(&number);
        if !self.is_news(number, state) {
            return None;
        }
        if now < self.settles_at || !self.take(now) {
            self.unsaid.insert(number, (policy.clone(), state.clone()));
            return None;
        }
        Some(self.say(number, policy, state))
    }

    /// Notes a state without a record, as it was requested by a caller and is on record.
    pub(super) fn assume(&mut self, number: u64, state: PolicyState) {
        self.unsaid.remove(&number);
        self.said.insert(number, state);
    }

    /// The policy is gone.
    pub(super) fn forget(&mut self, number: u64) {
        self.unsaid.remove(&number);
        self.said.remove(&number);
    }

    /// Copies for one of its monitors move. `None`: there are too many records.
    pub(super) fn note_move(
        &mut self,
        policy: &TapPolicy,
        (monitor, reason): (&MonitorSpec, &str),
        (from, to): (&[MonitorPort], &[MonitorPort]),
        now: Instant,
    ) -> Option<Draft> {
        let texts = |ports: &[MonitorPort]| ports.iter().map(MonitorPort::to_string).collect();
        let (mut went, go): (Vec<_>, Vec<_>) = (texts(from), texts(to));
        // Of several ports that share flows, some may stay.
        went.retain(|port| !go.contains(port));
        let (went, go) = (went.join(", "), go.join(", "));
        let before = if went.is_empty() { String::new() } else { format!(", no longer to {went}") };
        let result = format!("copies for {monitor} go to {go}{before}: {reason}");
        let draft = Draft::new(&Caller::controller(), What::PolicyMove, result).about(policy);
        if self.take(now) {
            return Some(draft);
        }
        tracing::error!("not written to the audit log, too many records at once: {draft}");
        None
    }

    /// When [`Self::say_more`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let at = self.settles_at.max(self.counted_at + PAUSE);
        (!self.unsaid.is_empty()).then_some(at)
    }

    /// Returns pending records that are due.
    pub(super) fn say_more(&mut self, now: Instant) -> Vec<Draft> {
        let mut drafts = Vec::new();
        while now >= self.settles_at
            && !self.unsaid.is_empty()
            && self.take(now)
            && let Some((number, (policy, state))) = self.unsaid.pop_first()
        {
            if let PolicyState::Pending { reason } = &state {
                tracing::info!("policy {} is still pending: {reason}", policy.name);
            }
            drafts.push(self.say(number, &policy, &state));
        }
        drafts
    }

    fn say(&mut self, number: u64, policy: &TapPolicy, state: &PolicyState) -> Draft {
        self.said.insert(number, state.clone());
        let result = match state {
            PolicyState::Pending { reason }
            | PolicyState::Resting { reason }
            | PolicyState::Partial { reason }
            | PolicyState::Failed { reason } => format!("{}: {reason}", state.name()),
            _ => state.name().to_owned(),
        };
        Draft::new(&Caller::controller(), What::PolicyState, result).about(policy)
    }

    /// Whether the recorded state differs. For a policy without copies the reason may be reworded
    /// without a record; for a partial one the reason matters.
    fn is_news(&self, number: u64, state: &PolicyState) -> bool {
        let before = self.said.get(&number).unwrap_or(&PolicyState::Active);
        match state {
            PolicyState::Partial { .. } => before != state,
            _ => before.name() != state.name(),
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let pauses = now.saturating_duration_since(self.counted_at).as_millis() / PAUSE.as_millis();
        if pauses > 0 {
            let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(pauses).min(BURST);
            self.counted_at = now;
        }
        let has_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_left
    }
}

impl Hub {
    /// Records a new state of a policy, unless the policy is gone.
    pub(super) fn record_state(&mut self, name: &str, state: &PolicyState) {
        let Some(number) = self.control.policy_number(name) else { return };
        let Some(policy) = self.control.policy_asked(name) else { return };
        let draft = self.history.note(number, (policy, state), Instant::now());
        draft.into_iter().for_each(|draft| self.keeper.note(draft));
    }

    /// A policy was replaced, which its caller was told.
    pub(super) fn record_replaced(&mut self, name: &str) {
        if let Ok(report) = self.control.policy(name) {
            self.history.assume(report.number, report.state);
        }
    }

    /// Records that copies of a policy move.
    pub(super) fn record_move(
        &mut self,
        name: &str,
        why: (&MonitorSpec, &str),
        ports: (&[MonitorPort], &[MonitorPort]),
    ) {
        let Some(policy) = self.control.policy_asked(name) else { return };
        match self.history.note_move(policy, why, ports, Instant::now()) {
            Some(draft) => self.keeper.note(draft),
            None => self.keeper.leave_out(),
        }
    }

    /// Writes pending records.
    pub(super) fn record_states(&mut self) {
        let drafts = self.history.say_more(Instant::now());
        drafts.into_iter().for_each(|draft| self.keeper.note(draft));
    }
}

/// Settling time after a start.
const SETTLING: Duration = Duration::from_secs(30);
/// Records allowed at once, and the interval for each further one.
const BURST: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use tapswitch_control::WhenMissing;
    use tapswitch_helpers::Log;
    use tapswitch_openflow::DatapathId;

    use super::*;
    use crate::hub::awaited::Known;
    use crate::hub::tests::hub;
    use crate::store::Wanted;

    fn policy() -> TapPolicy {
        TapPolicy::new("a", "10.0.0.9".parse().unwrap())
    }

    fn failed(reason: &str) -> PolicyState {
        PolicyState::Failed { reason: reason.to_owned() }
    }

    fn partial(reason: &str) -> PolicyState {
        PolicyState::Partial { reason: reason.to_owned() }
    }

    /// A settled history, and the time.
    fn settled() -> (History, Instant) {
        let start = Instant::now();
        (History::new(start), start + SETTLING)
    }

    fn note(
        history: &mut History,
        number: u64,
        state: &PolicyState,
        now: Instant,
    ) -> Option<String> {
        let draft = history.note(number, (&policy(), state), now);
        draft.map(|draft| draft.result().to_owned())
    }

    #[test]
    fn each_stop_and_each_beginning_is_told_once() {
        let (mut history, now) = settled();
        let mut note = |state| note(&mut history, 1, &state, now);
        assert_eq!(note(PolicyState::Active), None, "the record of its addition said so");
        assert_eq!(note(failed("no room")).as_deref(), Some("failed: no room"));
        assert_eq!(note(failed("no room at all")), None);
        assert_eq!(note(PolicyState::Active).as_deref(), Some("active"));
        assert_eq!(note(partial("one is missing")).as_deref(), Some("partial: one is missing"));
        assert_eq!(note(partial("two are")).as_deref(), Some("partial: two are"));
        assert_eq!(note(partial("two are")), None);
    }

    #[test]
    fn what_passes_while_all_begins_is_not_told() {
        let start = Instant::now();
        let mut history = History::new(start);
        let waits = PolicyState::Pending { reason: "no switch".to_owned() };
        for number in [1, 2] {
            assert_eq!(note(&mut history, number, &waits, start), None);
        }
        assert_eq!(note(&mut history, 1, &PolicyState::Active, start), None);
        assert_eq!(history.due(), Some(start + SETTLING));
        assert!(history.say_more(start).is_empty());
        let told = history.say_more(start + SETTLING);
        let told: Vec<_> = told.iter().map(Draft::result).collect();
        assert_eq!(told, ["pending: no switch"]);
        assert_eq!(history.due(), None);
    }

    #[test]
    fn what_flaps_does_not_fill_the_log_and_ends_right() {
        let (mut history, now) = settled();
        let states = [failed("x"), PolicyState::Active];
        let told = (0..BURST * 2 + 1)
            .filter_map(|number| note(&mut history, 1, &states[number as usize % 2], now));
        assert_eq!(told.count(), BURST as usize);
        let later = history.due().unwrap();
        assert_eq!(later, now + PAUSE);
        let told = history.say_more(later);
        assert_eq!(told.iter().map(Draft::result).collect::<Vec<_>>(), ["failed: x"]);
        history.forget(1);
        assert_eq!(note(&mut history, 1, &PolicyState::Active, later), None);
    }

    #[tokio::test]
    async fn what_a_policy_does_by_itself_is_written() {
        let (mut hub, keeper) = hub();
        hub.history.settles_at = Instant::now();
        hub.control.add_policy(policy(), WhenMissing::Wait).unwrap();
        hub.handle_events();
        keeper.pay().await.unwrap();
        let lines = keeper.records(Wanted::After(0), 9).await.unwrap().lines;
        let record: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(
            (&record["what"], &record["who"]),
            (&"policy.state".into(), &"controller".into())
        );
        assert!(record["result"].as_str().unwrap().starts_with("pending: "), "{record}");
        assert_eq!((&record["policy"]["name"], lines.len()), (&"a".into(), 1));
    }

    /// A new leader's switches connect one by one.
    #[tokio::test]
    async fn what_is_about_to_come_is_not_logged_as_missing_until_it_did_not() {
        let (mut hub, _keeper) = hub();
        let (log, _logging) = Log::start();
        hub.known = Known::of(&hub.control, Instant::now()).and(&[DatapathId(1)].into());
        hub.control.add_policy(policy(), WhenMissing::Wait).unwrap();
        hub.handle_events();
        assert_eq!(log.lines_with("is pending"), Vec::<String>::new());
        hub.history.settles_at = Instant::now();
        hub.record_states();
        let told = "policy a is still pending: monitor 10.0.0.9: no switch is connected; point one \
                    at this controller";
        assert_eq!(log.lines_with("pending"), [told]);
        hub.known = Known::of(&hub.control, Instant::now());
        hub.control
            .add_policy(TapPolicy { name: "b".to_owned(), ..policy() }, WhenMissing::Wait)
            .unwrap();
        hub.handle_events();
        assert!(log.lines_with("policy b is pending: ").len() == 1, "nobody is expected");
    }

    #[test]
    fn to_whom_copies_go_is_told() {
        let (mut history, now) = settled();
        let port = |port| MonitorPort { switch: DatapathId(1), port, name: String::new() };
        let monitor = "10.0.0.9".parse().unwrap();
        let why = (&monitor, "02:00:00:00:00:09 was seen there");
        let mut told = |from: &[_], to: &[_]| {
            let draft = history.note_move(&policy(), why, (from, to), now).unwrap();
            draft.result().to_owned()
        };
        assert_eq!(
            told(&[port(3)], &[port(4)]),
            "copies for 10.0.0.9 go to 0x1/4, no longer to 0x1/3: 02:00:00:00:00:09 was seen there"
        );
        let first = "copies for 10.0.0.9 go to 0x1/4: 02:00:00:00:00:09 was seen there";
        assert_eq!(told(&[], &[port(4)]), first);
        let fewer = "copies for 10.0.0.9 go to 0x1/4, no longer to 0x1/3: ";
        assert!(told(&[port(3), port(4)], &[port(4)]).starts_with(fewer));
        let more = "copies for 10.0.0.9 go to 0x1/3, 0x1/4: ";
        assert!(told(&[port(4)], &[port(3), port(4)]).starts_with(more));
    }
}
