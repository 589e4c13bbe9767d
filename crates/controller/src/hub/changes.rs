//! Changes of policies: each is proved, then made, and told of when switches confirmed it.
//!
//! A proof makes the change on a copy of the control plane first. Most of what that takes is the
//! copy, so changes that come at once share one. When one of them is found to do harm, or all
//! together are too much to look at, half of them are looked at, and so on, down to the one that it
//! is about; the others go on.
//!
//! What would do harm is made by force alone, and so is what nothing can be told of. Where only a
//! part cannot be told, it is made, and whoever asked is told so, as are the log, the stream of
//! events, the audit log and whoever looks at the policy.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tapswitch_control::{Change, Judged, PolicyReport, PolicyState, TapPolicy, Verdict};
use tokio::sync::oneshot;

use super::Hub;
use super::processors::on_all_processors;
use crate::RequestError;
use crate::change::{Applied, How};
use crate::cluster::TermId;
use crate::journal::Kind;
use crate::keeper::Origin;

/// Hears how a change went.
pub(crate) type AppliedReply = oneshot::Sender<Result<Applied, RequestError>>;

/// A change that somebody waits for.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) change: PolicyChange,
    /// The term in which it was decided on, and written to the store.
    pub(crate) term: TermId,
    pub(crate) reply: AppliedReply,
}

/// What is to be changed.
#[derive(Debug)]
pub(crate) enum PolicyChange {
    /// A policy comes.
    Apply { policy: Box<TapPolicy>, how: How },
    /// The one of this name goes, also when it was found that frames would go astray.
    Delete { name: String, by_force: bool },
}

/// The changes that somebody waits for, and policies that end by themselves.
#[derive(Debug)]
pub(super) struct Changes {
    /// Not begun.
    waiting: VecDeque<Wish>,
    /// How many of them are proved together.
    together: usize,
    /// When the next ones are, at the earliest, while others are under way.
    rests_until: Instant,
    adding: HashMap<String, (Verdict, AppliedReply)>,
    replacing: HashMap<String, (Verdict, AppliedReply)>,
    /// By number, as below: the name is free at once, for one that may be deleted before this one
    /// has told its last counts.
    deleting: HashMap<u64, (Verdict, AppliedReply)>,
    /// Policies that reached their end and are going, and where they came from.
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

    /// When the next ones are begun, if some wait. After a proof there is as much time for all
    /// else, and for more changes to come, unless nobody waits for anything but these.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let are_coming = [&self.adding, &self.replacing].iter().any(|changes| !changes.is_empty());
        let are_alone = !are_coming && self.deleting.is_empty();
        let at = if are_alone { now } else { self.rests_until.max(now) };
        (!self.waiting.is_empty()).then_some(at)
    }

    /// Whether no more should be asked for just now.
    pub(super) fn are_many(&self) -> bool {
        self.waiting.len() >= MOST_WAITING
    }

    pub(super) fn expire(&mut self, number: u64, origin: Option<Origin>) {
        self.expired.insert(number, origin);
    }

    /// Somebody waits for a change to be done; `number` is that of the policy before it.
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

    /// Those that are proved next.
    fn next(&mut self) -> Vec<Wish> {
        let count = self.waiting.len().min(self.together);
        self.waiting.drain(..count).collect()
    }

    /// They cannot be proved together.
    fn part(&mut self, wishes: Vec<Wish>) {
        self.together = wishes.len() / 2;
        wishes.into_iter().rev().for_each(|wish| self.waiting.push_front(wish));
    }

    /// So many were proved in this time.
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

    /// Why it is not made, unless by force: something would go wrong, or it cannot be told what
    /// would. Whoever ends copies does not wait until that can be told, and what is for switches
    /// that are not there yet is made when they are.
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
    /// Somebody wants a change. One of an earlier term is not made: what there is now comes from
    /// the store, and so did that change, unless somebody else made another one since.
    pub(super) fn ask_for(&mut self, wish: Wish) {
        match wish.term == self.seat.standing.borrow().term() {
            true => self.changes.ask(wish),
            // Who does not wait any more does not want to hear it.
            false => _ = wish.reply.send(Err(RequestError::NoLeader)),
        }
    }

    /// Begins some of the changes that wait.
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
        // Of a policy that comes there is none yet.
        let number = self.control.policy_number(change.name()).unwrap_or_default();
        let judged = judged.map_err(|error| self.awaited().excuse(error));
        match judged.and_then(|verdict| self.make(&change, verdict)) {
            Err(error) => _ = reply.send(Err(error)),
            Ok(verdict) => self.changes.await_done(&change, number, (verdict, reply)),
        }
    }

    /// Makes a change, unless it would do harm, or nothing can be told of it.
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

    /// Deletes a policy again that somebody waits for, for this reason, or as it came too early.
    pub(super) fn take_back(&mut self, name: &str, early: Option<RequestError>, reason: &str) {
        if let Some((_, reply)) = self.changes.adding.remove(name) {
            // It is there, so it can be deleted.
            let _ = self.control.delete_policy(name);
            let (name, reason) = (name.to_owned(), reason.to_owned());
            let _ = reply.send(Err(early.unwrap_or(RequestError::NotInstalled { name, reason })));
        }
    }

    pub(super) fn answer_deleted(&mut self, report: PolicyReport) {
        let name = report.policy.name.clone();
        let (matched, is_complete) = (report.matched.packets, report.is_complete);
        let note = if is_complete { "" } else { ", perhaps more" };
        tracing::info!("policy {name} is deleted; it matched {matched} packets{note}");
        // Its name was free at once, and its last counters took a while: what is there, or waited
        // for, under that name by now is another one.
        if !self.control.has_policy(&name) {
            self.tell_policy(&name, &PolicyState::Deleted);
            self.answer_ended(&name);
        }
        if let Some(origin) = self.changes.expired.remove(&report.number) {
            // It is written while the hub goes on.
            let (keeper, policy) = (Arc::clone(&self.keeper), report.policy.clone());
            tokio::spawn(async move { keeper.expire(&policy, origin).await });
        }
        if let Some((verdict, reply)) = self.changes.deleting.remove(&report.number) {
            let _ = reply.send(Ok(Applied { report, verdict }));
        }
    }

    /// A policy came to its end before it, or the one in its place, was in force.
    fn answer_ended(&mut self, name: &str) {
        let reason = || "it ended in the meantime".to_owned();
        self.answer_not_replaced(name.to_owned(), reason());
        if let Some((_, reply)) = self.changes.adding.remove(name) {
            let name = name.to_owned();
            let _ = reply.send(Err(RequestError::NotInstalled { name, reason: reason() }));
        }
    }
}

/// Changes that are proved together, at most: each changes some switches, and more of them hardly
/// change the same ones.
const MOST_TOGETHER: usize = 256;
/// Changes that wait to be begun; with more, nothing else is asked for either.
const MOST_WAITING: usize = 1024;
/// For how long others should wait for a proof, at most, where that can be helped.
const LONG: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use tapswitch_control::{Control, Limits};
    use tokio::sync::watch;

    use super::*;
    use crate::StoreConfig;
    use crate::cluster::Standing;
    use crate::hub::{Blueprint, Inputs, Seat};
    use crate::journal::Journal;
    use crate::keeper::Keeper;
    use crate::store::Store;

    fn hub(standing: Standing) -> Hub {
        let journal = Arc::new(Journal::new(16));
        let (store, _) = Store::open(&StoreConfig::None, Arc::clone(&journal)).unwrap();
        let start = Instant::now();
        let blueprint = Blueprint { limits: Limits::default(), policies: Vec::new(), start };
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
        // Of few it is not known how long many take.
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
