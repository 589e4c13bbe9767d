//! Changes of policies: each is proved, then applied, and reported when switches have confirmed it.
//!
//! A proof applies the change to a copy of the control plane first. Copying is the most expensive
//! part, so concurrent changes share a copy. If one of them does harm, or all together are too
//! expensive to check, they are split in halves until the culprit is isolated; the others proceed.
//!
//! A harmful change is made only by force, and so is one that cannot be checked at all. If only a
//! part cannot be checked, the change is made, and this is reported to the caller, in the log, the
//! event stream, the audit log and the policy's notes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tapswitch_control::{Change, Judged, PolicyReport, PolicyState, TapPolicy, Verdict, counted};
use tokio::sync::oneshot;

use super::Hub;
use super::processors::on_all_processors;
use crate::RequestError;
use crate::change::{Applied, How};
use crate::cluster::TermId;
use crate::journal::Kind;
use crate::store::Origin;

/// Receives the result of a change.
pub(crate) type AppliedReply = oneshot::Sender<Result<Applied, RequestError>>;

/// A change requested by a caller.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) change: PolicyChange,
    /// The term in which it was decided and written to the store.
    pub(crate) term: TermId,
    pub(crate) reply: AppliedReply,
}

/// A change of a policy.
#[derive(Debug)]
pub(crate) enum PolicyChange {
    /// Adds or replaces a policy.
    Apply { policy: Box<TapPolicy>, how: How },
    /// Deletes the policy of this name; with `by_force` even if frames would be misdirected.
    Delete { name: String, by_force: bool },
}

/// Requested changes, and policies that expire.
#[derive(Debug)]
pub(super) struct Changes {
    /// Not begun yet.
    waiting: VecDeque<Wish>,
    /// Number of changes to prove together.
    together: usize,
    /// Earliest start of the next proof while other changes are in progress.
    rests_until: Instant,
    adding: HashMap<String, (Verdict, AppliedReply)>,
    replacing: HashMap<String, (Verdict, AppliedReply)>,
    /// By number, as below: the name is free at once, and a new policy with it may be deleted
    /// before this one has reported its last counts.
    deleting: HashMap<u64, (Verdict, AppliedReply)>,
    /// Expired policies being deleted, with their origin.
    expired: HashMap<u64, Option<Origin>>,
}

impl Changes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            together: MOST_TOGETHER,
            rests_until: now,
            adding: HashMap::new(),
            replacing: HashMap::new(),
            deleting: HashMap::new(),
            expired: HashMap::new(),
        }
    }

    pub(super) fn ask(&mut self, wish: Wish) {
        self.waiting.push_back(wish);
    }

    /// When the next changes are begun. After a proof as much time is left for other work and for
    /// more changes to arrive, unless no caller waits for other changes.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let are_coming = [&self.adding, &self.replacing].iter().any(|changes| !changes.is_empty());
        let are_alone = !are_coming && self.deleting.is_empty();
        let at = if are_alone { now } else { self.rests_until.max(now) };
        (!self.waiting.is_empty()).then_some(at)
    }

    /// Whether no more requests should be taken for now.
    pub(super) fn are_many(&self) -> bool {
        self.waiting.len() >= MOST_WAITING
    }

    pub(super) fn expire(&mut self, number: u64, origin: Option<Origin>) {
        self.expired.insert(number, origin);
    }

    /// A caller waits for a change to complete; `number` is that of the former policy.
    fn await_done(&mut self, change: &PolicyChange, number: u64, asked: (Verdict, AppliedReply)) {
        let name = change.name().to_owned();
        match change {
            PolicyChange::Apply { how: How { replaces: true, .. }, .. } => {
                self.replacing.insert(name, asked)
            }
            PolicyChange::Apply { .. } => self.adding.insert(name, asked),
            PolicyChange::Delete { .. } => self.deleting.insert(number, asked),
        };
    }

    /// The changes to prove next.
    fn next(&mut self) -> Vec<Wish> {
        let count = self.waiting.len().min(self.together);
        self.waiting.drain(..count).collect()
    }

    /// These cannot be proved together.
    fn part(&mut self, wishes: Vec<Wish>) {
        self.together = wishes.len() / 2;
        wishes.into_iter().rev().for_each(|wish| self.waiting.push_front(wish));
    }

    /// `count` changes were proved in this time.
    fn note_proof(&mut self, count: usize, now: Instant, time: Duration) {
        self.rests_until = now + time;
        if time > LONG {
            self.together = (count / 2).max(1);
        } else if count == self.together && time < LONG / 2 {
            self.together = (count * 2).min(MOST_TOGETHER);
        }
    }
}

impl PolicyChange {
    pub(super) fn as_told(&self) -> Change<'_> {
        match self {
            Self::Apply { policy, how } if how.replaces => Change::Replace(policy),
            Self::Apply { policy, .. } => Change::Add(policy),
            Self::Delete { name, .. } => Change::Delete(name),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Apply { policy, .. } => &policy.name,
            Self::Delete { name, .. } => name,
        }
    }

    /// Why the change is not made without force: it does harm, or cannot be checked. A deletion
    /// does not wait for a check, and a policy for switches that are missing is accepted and
    /// applied later.
    fn objection(&self, verdict: &Verdict) -> Option<String> {
        if let Some(problem) = verdict.counterexample() {
            return Some(problem.to_owned());
        }
        let is_blind =
            verdict.proof.is_none() && !verdict.is_early && !matches!(self, Self::Delete { .. });
        let reason = verdict.unproved.as_ref().filter(|_| is_blind)?;
        Some(format!("cannot determine where its frames would go: {reason}"))
    }

    const fn is_by_force(&self) -> bool {
        match self {
            Self::Apply { how, .. } => how.by_force,
            Self::Delete { by_force, .. } => *by_force,
        }
    }
}

impl Hub {
    /// Queues a change. One from an earlier term is rejected: the current state was read from the
    /// store, which included that change unless another one replaced it.
    pub(super) fn ask_for(&mut self, wish: Wish) {
        match wish.term == self.seat.standing.borrow().term() {
            true => self.changes.ask(wish),
            // A failed send means that the caller no longer waits.
            false => _ = wish.reply.send(Err(RequestError::NoLeader)),
        }
    }

    /// Begins queued changes.
    pub(super) fn begin_changes(&mut self) {
        let start = Instant::now();
        if self.changes.due(start).is_none_or(|due| due > start) {
            return;
        }
        let wishes = self.changes.next();
        let judged = match &wishes[..] {
            [] => return,
            [one] => Some(vec![self.control.judge(one.change.as_told())]),
            many => {
                let changes: Vec<_> = many.iter().map(|wish| wish.change.as_told()).collect();
                self.control.judge_together(&changes, on_all_processors)
            }
        };
        let Some(judged) = judged else { return self.changes.part(wishes) };
        let now = Instant::now();
        self.changes.note_proof(wishes.len(), now, now - start);
        for (wish, judged) in wishes.into_iter().zip(judged) {
            self.begin_change(wish, judged);
        }
    }

    fn begin_change(&mut self, Wish { change, reply, .. }: Wish, judged: Judged) {
        // There is none yet for an added policy.
        let number = self.control.policy_number(change.name()).unwrap_or_default();
        let judged = judged.map_err(|error| self.awaited().excuse(error));
        match judged.and_then(|verdict| self.make(&change, verdict)) {
            Err(error) => _ = reply.send(Err(error)),
            Ok(verdict) => self.changes.await_done(&change, number, (verdict, reply)),
        }
    }

    /// Makes a change, unless it is harmful or cannot be checked.
    fn make(&mut self, change: &PolicyChange, verdict: Verdict) -> Result<Verdict, RequestError> {
        let name = change.name();
        if let Some(problem) = change.objection(&verdict).filter(|_| !change.is_by_force()) {
            return Err(RequestError::NotProved { name: name.to_owned(), problem });
        }
        self.control.make(change.as_told()).map_err(|error| self.awaited().excuse(error))?;
        let reason = verdict.unproved.as_deref();
        self.control.note_unproved(name, reason);
        if let Some(reason) = reason {
            tracing::warn!(
                "policy {name} is changed, and the change is not fully proved: {reason}"
            );
            let state = self.control.policy(name).map(|report| report.state);
            let state = state.unwrap_or(PolicyState::Deleted);
            let data = json!({ "name": name, "state": state, "unproved": reason });
            self.journal.publish(Kind::Policy, data);
        }
        Ok(verdict)
    }

    /// A policy is in force.
    pub(super) fn answer_added(&mut self, name: &str) {
        if let Some((verdict, reply)) = self.changes.adding.remove(name) {
            let report = self.control.policy(name).map_err(RequestError::from);
            let _ = reply.send(report.map(|report| Applied { report, verdict }));
        }
    }

    pub(super) fn answer_replaced(&mut self, name: &str) {
        tracing::info!("policy {name} is replaced");
        let report = self.control.policy(name).map_err(RequestError::from);
        if let Ok(report) = &report {
            self.tell_policy(name, &report.state);
        }
        if let Some((verdict, reply)) = self.changes.replacing.remove(name) {
            let _ = reply.send(report.map(|report| Applied { report, verdict }));
        }
    }

    pub(super) fn answer_not_replaced(&mut self, name: String, reason: String) {
        if let Some((_, reply)) = self.changes.replacing.remove(&name) {
            let _ = reply.send(Err(RequestError::NotInstalled { name, reason }));
        }
    }

    /// Deletes a policy that a caller waits for, for this reason, or because it came too early.
    pub(super) fn take_back(&mut self, name: &str, early: Option<RequestError>, reason: &str) {
        if let Some((_, reply)) = self.changes.adding.remove(name) {
            // It exists, so deletion cannot fail.
            let _ = self.control.delete_policy(name);
            let (name, reason) = (name.to_owned(), reason.to_owned());
            let _ = reply.send(Err(early.unwrap_or(RequestError::NotInstalled { name, reason })));
        }
    }

    pub(super) fn answer_deleted(&mut self, report: PolicyReport) {
        let name = report.policy.name.clone();
        let (matched, is_complete) =
            (counted(report.matched.packets, "packet"), report.is_complete);
        let note = if is_complete { "" } else { ", perhaps more" };
        tracing::info!("policy {name} is deleted; it matched {matched}{note}");
        // Its name was free before its last counters arrived: a current policy of this name, also
        // one being added, is another one.
        if !self.control.has_policy(&name) {
            self.tell_policy(&name, &PolicyState::Deleted);
            self.answer_ended(&name);
        }
        if let Some(origin) = self.changes.expired.remove(&report.number) {
            // Written to the store while the hub continues.
            let (keeper, policy) = (Arc::clone(&self.keeper), report.policy.clone());
            tokio::spawn(async move { keeper.expire(&policy, origin).await });
        }
        if let Some((verdict, reply)) = self.changes.deleting.remove(&report.number) {
            let _ = reply.send(Ok(Applied { report, verdict }));
        }
    }

    /// A policy expired before it, or its replacement, was in force.
    fn answer_ended(&mut self, name: &str) {
        let reason = || "it ended in the meantime".to_owned();
        self.answer_not_replaced(name.to_owned(), reason());
        if let Some((_, reply)) = self.changes.adding.remove(name) {
            let name = name.to_owned();
            let _ = reply.send(Err(RequestError::NotInstalled { name, reason: reason() }));
        }
    }
}

/// Maximum changes proved together: each affects some switches, and many changes rarely affect the
/// same ones.
const MOST_TOGETHER: usize = 256;
/// Maximum queued changes; beyond it no other requests are taken either.
const MOST_WAITING: usize = 1024;
/// Desired maximum delay of other work by a proof.
const LONG: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use tapswitch_control::{Control, Limits};
    use tokio::sync::watch;

    use super::*;
    use crate::StoreConfig;
    use crate::blueprint::Blueprint;
    use crate::cluster::Standing;
    use crate::hub::{Inputs, Seat};
    use crate::journal::Journal;
    use crate::keeper::Keeper;
    use crate::store::Store;

    fn hub(standing: Standing) -> Hub {
        let journal = Arc::new(Journal::new(16));
        let (store, _) = Store::open(&StoreConfig::None, Arc::clone(&journal)).unwrap();
        let start = Instant::now();
        let blueprint = Blueprint {
            limits: Limits::default(),
            policies: Vec::new(),
            start,
            met: std::collections::BTreeSet::new(),
        };
        let seat = Seat::new(watch::channel(standing).0, None);
        let control = Control::new(Limits::default());
        let kept = (Keeper::new(store, []), journal);
        Hub::new(control, (blueprint, seat), Inputs::new().1, kept, Duration::ZERO)
    }

    #[test]
    fn a_change_of_a_term_before_is_not_made() {
        let mut hub = hub(Standing::Leader { generation: 7 });
        for (generation, is_made) in [(6, false), (7, true)] {
            let change = PolicyChange::Delete { name: "a".to_owned(), by_force: false };
            let (reply, mut answer) = oneshot::channel();
            hub.ask_for(Wish { change, term: TermId::of(generation), reply });
            assert_eq!(hub.changes.waiting.len(), usize::from(is_made));
            let is_refused = matches!(answer.try_recv(), Ok(Err(RequestError::NoLeader)));
            assert_eq!(is_refused, !is_made);
        }
    }

    fn changes(count: usize) -> Changes {
        let mut changes = Changes::new(Instant::now());
        for number in 0..count {
            let change = PolicyChange::Delete { name: number.to_string(), by_force: false };
            changes.ask(Wish { change, term: TermId::ALONE, reply: oneshot::channel().0 });
        }
        changes
    }

    #[test]
    fn what_cannot_be_proved_together_is_halved_and_keeps_its_order() {
        let mut changes = changes(10);
        for count in [10, 5, 2] {
            let wishes = changes.next();
            assert_eq!(wishes.len(), count);
            changes.part(wishes);
        }
        let names = std::iter::from_fn(|| {
            let wishes = changes.next();
            changes.note_proof(wishes.len(), Instant::now(), Duration::ZERO);
            let names = wishes.iter().map(|wish| wish.change.name().to_owned());
            (!wishes.is_empty()).then(|| names.collect::<Vec<_>>())
        });
        let names: Vec<_> = names.map(|names| names.join(" ")).collect();
        assert_eq!(names, ["0", "1 2", "3 4 5 6", "7 8 9"]);
    }

    #[test]
    fn others_do_not_wait_long() {
        let (mut changes, now) = (changes(0), Instant::now());
        changes.note_proof(MOST_TOGETHER, now, LONG * 2);
        assert_eq!(changes.together, MOST_TOGETHER / 2);
        // A small number does not allow an estimate for a large one.
        changes.note_proof(3, now, Duration::ZERO);
        assert_eq!(changes.together, MOST_TOGETHER / 2);
        changes.note_proof(1, now, LONG * 2);
        assert_eq!(changes.together, 1);
        (0..20).for_each(|_| changes.note_proof(changes.together, now, Duration::ZERO));
        assert_eq!(changes.together, MOST_TOGETHER);
    }

    #[test]
    fn more_come_together_while_others_are_under_way() {
        let (mut changes, now) = (changes(1), Instant::now());
        changes.note_proof(1, now, LONG);
        assert_eq!(changes.due(now), Some(now));
        let (reply, _) = oneshot::channel();
        changes.adding.insert("a".to_owned(), (Verdict::default(), reply));
        assert_eq!(changes.due(now), Some(now + LONG));
        assert_eq!(changes.due(now + LONG * 2), Some(now + LONG * 2));
        changes.next();
        assert_eq!(changes.due(now), None);
    }
}
