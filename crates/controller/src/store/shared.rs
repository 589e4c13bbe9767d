//! The store in etcd, shared by several controllers.
//!
//! Every change is one transaction of policies, audit records and the head of the log. It is
//! guarded by the head, so that there is one log for all controllers, and, if it changes policies
//! or notes a switch that connected, by the leader's term (`crate::cluster`).
//!
//! A transaction whose response was lost may have been executed. Before a retry the log is read: if
//! it contains our record, the transaction was executed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::{
    Change, Identity, Job, Met, Records, StoreError, Waiting, Wanted, collect, disk, key_of, tell,
};
use crate::audit::Head;
use crate::clock::unix_time;
use crate::cluster::{Keys, Standing, TermId};
use crate::etcd::{Client, Compare, EtcdConfig, EtcdError, KeyValue, Op, TxnResponse, Way};
use crate::journal::Journal;

/// State of the task.
pub(super) struct SharedClerk {
    client: Client,
    keys: Keys,
    place: String,
    /// Head of the log, with the revision that wrote it; `None` if unknown.
    head: Option<(Head, i64)>,
    standing: watch::Receiver<Standing>,
    journal: Arc<Journal>,
}

impl SharedClerk {
    /// Reads the common identity, or creates it.
    pub(super) async fn open(
        (config, way): (&EtcdConfig, Way),
        standing: watch::Receiver<Standing>,
        journal: Arc<Journal>,
    ) -> Result<(Self, Identity), StoreError> {
        let client = Client::new(way, TIMEOUT);
        let keys = Keys::new(&config.prefix);
        let place = config.place();
        let mut clerk = Self { client, keys, place, head: None, standing, journal };
        let identity = clerk.read_identity().await.map_err(|error| clerk.failed(&error));
        identity.map(|identity| (clerk, identity))
    }

    /// Runs until all senders are gone.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut next = jobs.recv().await;
        while let Some(job) = next.take() {
            match job {
                Job::Records { wanted, max, reply } => {
                    let records = self.records(wanted, max).await;
                    // The caller may be gone, here and below.
                    let _ = reply.send(records.map_err(|error| self.failed(&error)));
                }
                Job::Look => {}
                Job::Commit(first) => {
                    let mut batch = vec![first];
                    next = collect(&mut batch, &mut jobs, MAX_BATCH);
                    let (guarded, open): (Vec<_>, Vec<_>) = batch
                        .into_iter()
                        .partition(|waiting| waiting.changes.iter().any(is_guarded));
                    let term = self.standing.borrow().term();
                    let (current, late) = guarded.into_iter().partition(|of| of.term == term);
                    self.refuse(late);
                    self.commit(current, term).await;
                    self.commit(open, term).await;
                }
            }
            if next.is_none() {
                next = jobs.recv().await;
            }
        }
    }

    /// Rejects changes from an earlier term: later leaders did not know of them, even if that was
    /// this controller.
    fn refuse(&self, batch: Vec<Waiting>) {
        for waiting in batch {
            let error = self.deposed();
            log_failure(&error, waiting.changes.iter());
            let _ = waiting.reply.send(Err(error));
        }
    }

    async fn commit(&mut self, batch: Vec<Waiting>, term: TermId) {
        if batch.is_empty() {
            return;
        }
        let changes: Vec<_> = batch.iter().flat_map(|waiting| &waiting.changes).collect();
        let result = self.commit_all(&changes, term).await;
        match &result {
            Ok(lines) => lines.iter().for_each(|line| tell(&self.journal, line)),
            Err(error) => log_failure(error, changes.iter().copied()),
        }
        for waiting in batch {
            let _ = waiting.reply.send(result.clone().map(drop));
        }
    }

    /// Commits the changes atomically; returns the new records.
    async fn commit_all(
        &mut self,
        changes: &[&Change],
        term: TermId,
    ) -> Result<Vec<String>, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        let mut written: Option<Vec<String>> = None;
        loop {
            let attempt = self.attempt((changes, term), &mut written).await;
            match attempt {
                Ok(Attempt::Done(lines)) => return Ok(lines),
                Ok(Attempt::Deposed) => return self.end(written).await,
                Ok(Attempt::Again) => {}
                Err(error @ EtcdError::Unreachable(_)) if Instant::now() < deadline => {
                    tracing::debug!("{}: {error}; trying again", self.place);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error @ EtcdError::Unreachable(_)) if written.is_some() => {
                    return Err(self.failed(&error).with_remedy(PERHAPS_WRITTEN));
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// One attempt. `written` are the records of an earlier one that may have been executed.
    async fn attempt(
        &mut self,
        (changes, term): (&[&Change], TermId),
        written: &mut Option<Vec<String>>,
    ) -> Result<Attempt, EtcdError> {
        let (head, revision) = match self.head.clone() {
            Some(known) => known,
            None => self.read_head().await?,
        };
        // After the head was read: if it is executed later, the guard fails.
        if let Some(lines) = written
            && self.is_written(lines).await?
        {
            return Ok(Attempt::Done(std::mem::take(lines)));
        }
        let Some(mut compare) = self.guard(changes, term) else { return Ok(Attempt::Deposed) };
        compare.push(Compare::Written { key: self.keys.head(), revision });
        let (new_head, lines, ops) = self.plan((changes, term), head)?;
        // If the response is lost, the head is unknown.
        self.head = None;
        let before = written.replace(lines.clone());
        let look = [self.keys.leader(), self.keys.head()].map(|key| Op::Get { key });
        let answer = self.client.txn(&compare, &ops, &look).await?;
        if answer.succeeded {
            // Changes without a record do not change the head.
            let revision = if lines.is_empty() { revision } else { answer.revision() };
            self.head = Some((new_head, revision));
            return Ok(Attempt::Done(lines));
        }
        *written = before;
        Ok(self.handle_refusal(&answer, &compare))
    }

    /// This controller does not lead any more; `written` are as above.
    async fn end(&mut self, written: Option<Vec<String>>) -> Result<Vec<String>, StoreError> {
        let Some(lines) = written else { return Err(self.deposed()) };
        match self.is_written(&lines).await {
            Ok(true) => Ok(lines),
            // It may still be under way.
            _ => Err(self.deposed().with_remedy(PERHAPS_BY_THE_LEADER)),
        }
    }

    /// The guard failed: the leader or the head of the log is not as assumed.
    fn handle_refusal(&mut self, answer: &TxnResponse, compare: &[Compare]) -> Attempt {
        let leader = answer.found(0).map_or(0, |found| found.create_revision);
        let is_deposed = compare
            .iter()
            .any(|one| matches!(one, Compare::Created { revision, .. } if *revision != leader));
        if is_deposed {
            return Attempt::Deposed;
        }
        self.head = read_head(answer.found(1)).ok();
        Attempt::Again
    }

    /// Conditions for the changes; `None` if this controller may not make them.
    fn guard(&self, changes: &[&Change], term: TermId) -> Option<Vec<Compare>> {
        if !changes.iter().copied().any(is_guarded) {
            return Some(Vec::new());
        }
        match *self.standing.borrow() {
            // Another term may have begun since the first attempt.
            Standing::Leader { generation } if term == TermId::of(generation) => {
                let revision = generation.cast_signed();
                Some(vec![Compare::Created { key: self.keys.leader(), revision }])
            }
            _ => None,
        }
    }

    /// Operations to execute: the last change of each key, as a transaction writes each key at most
    /// once.
    fn plan(
        &self,
        (changes, term): (&[&Change], TermId),
        mut head: Head,
    ) -> Result<(Head, Vec<String>, Vec<Op>), EtcdError> {
        let unwritable = |error: serde_json::Error| EtcdError::Refused(error.to_string());
        let put = |key, value| Op::Put { key, value, lease: None };
        let mut ops = BTreeMap::new();
        let mut lines = Vec::new();
        for change in changes {
            match change {
                Change::Put(kept) => {
                    let key = self.keys.policy(&kept.key());
                    let value = serde_json::to_string(kept).map_err(unwritable)?;
                    ops.insert(key.clone(), put(key, value));
                }
                Change::Delete(name) => {
                    let key = self.keys.policy(name);
                    ops.insert(key.clone(), Op::Delete { key });
                }
                Change::Record(draft) => {
                    let line = head.append(draft).map_err(unwritable)?;
                    let key = self.keys.record(head.seq);
                    ops.insert(key.clone(), put(key, line.clone()));
                    ops.insert(self.keys.head(), put(self.keys.head(), line.clone()));
                    lines.push(line);
                }
                Change::Meet(switch) => {
                    let key = self.keys.switch(&key_of(*switch));
                    let met = Met { generation: term.generation(), at_ms: unix_time().0 };
                    let value = serde_json::to_string(&met).map_err(unwritable)?;
                    ops.insert(key.clone(), put(key, value));
                }
            }
        }
        Ok((head, lines, ops.into_values().collect()))
    }

    /// Whether the log contains these records, so that their transaction was executed.
    async fn is_written(&mut self, lines: &[String]) -> Result<bool, EtcdError> {
        let Some(line) = lines.last() else { return Ok(false) };
        let Some(head) = Head::of(line) else { return Ok(false) };
        let found = self.client.range(&self.keys.record(head.seq), None, 1).await?;
        Ok(found.kvs.first().is_some_and(|entry| entry.value == *line))
    }

    async fn read_head(&mut self) -> Result<(Head, i64), EtcdError> {
        let found = self.client.range(&self.keys.head(), None, 1).await?;
        read_head(found.kvs.first())
    }

    async fn read_identity(&mut self) -> Result<Identity, EtcdError> {
        let key = self.keys.identity();
        let refused = |error: &dyn std::fmt::Display| EtcdError::Refused(error.to_string());
        let ours = disk::new_identity().map_err(|error| refused(&error))?;
        let value = serde_json::to_string(&ours).map_err(|error| refused(&error))?;
        let absent = [Compare::Created { key: key.clone(), revision: 0 }];
        let put = [Op::Put { key: key.clone(), value, lease: None }];
        let deadline = Instant::now() + START_PATIENCE;
        let answer = loop {
            match self.client.txn(&absent, &put, &[Op::Get { key: key.clone() }]).await {
                Err(EtcdError::Unreachable(_)) if Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => break answer?,
            }
        };
        match answer.found(0) {
            Some(theirs) => serde_json::from_str(&theirs.value).map_err(|error| refused(&error)),
            None => Ok(ours),
        }
    }

    async fn records(&mut self, wanted: Wanted, max: usize) -> Result<Records, EtcdError> {
        let (first, end) = (self.keys.record(0), self.keys.end_of_records());
        let total = self.client.range(&first, Some(&end), 1).await?.count;
        let found = match wanted {
            Wanted::After(seq) => {
                let start = self.keys.record(seq.saturating_add(1));
                self.client.range(&start, Some(&end), max).await?
            }
            Wanted::Before(seq) => {
                self.client.range_backwards(&first, &self.keys.record(seq), max).await?
            }
        };
        let lines = found.kvs.into_iter().map(|entry| entry.value).collect();
        Ok(Records { lines, total: u64::try_from(total).unwrap_or_default() })
    }

    fn failed(&self, error: &EtcdError) -> StoreError {
        let remedy = match error {
            EtcdError::Unreachable(_) => UNTIL_IT_ANSWERS,
            _ => UNTIL_IT_DOES,
        };
        let error = StoreError::new("the request to etcd failed", error).with_remedy(remedy);
        error.at_place(&self.place)
    }

    fn deposed(&self) -> StoreError {
        let error = StoreError::new("not written", &NOT_LEADING);
        error.with_remedy("send the request to the leader").at_place(&self.place)
    }
}

/// Logs why changes were not made.
fn log_failure<'a>(error: &StoreError, changes: impl IntoIterator<Item = &'a Change>) {
    match is_of_no_matter(error, changes) {
        true => tracing::debug!("{error}"),
        false => tracing::error!("{error}"),
    }
}

/// Whether it is only that a switch which has just connected was not noted because the term is
/// over: the next leader will.
fn is_of_no_matter<'a>(error: &StoreError, changes: impl IntoIterator<Item = &'a Change>) -> bool {
    let is_meeting = |change: &Change| matches!(change, Change::Meet(_));
    error.cause == NOT_LEADING && changes.into_iter().all(is_meeting)
}

/// Result of an attempt.
enum Attempt {
    /// Executed, with these new records.
    Done(Vec<String>),
    /// Another controller leads.
    Deposed,
    /// Others have written records meanwhile.
    Again,
}

/// Whether only the leader may make it.
const fn is_guarded(change: &Change) -> bool {
    matches!(change, Change::Put(_) | Change::Delete(_) | Change::Meet(_))
}

/// Head of the log from its last record.
fn read_head(found: Option<&KeyValue>) -> Result<(Head, i64), EtcdError> {
    let Some(found) = found else { return Ok((Head::empty(), 0)) };
    let head = Head::of(&found.value).ok_or_else(|| EtcdError::Refused(NO_RECORD.to_owned()))?;
    Ok((head, found.mod_revision))
}

/// Maximum changes written at once: etcd takes 128 keys in a transaction by default, one of which
/// is the head of the log.
const MAX_BATCH: usize = 127;
/// Timeout of one member.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time for a change, over all members.
const PATIENCE: Duration = Duration::from_secs(4);
/// The same at the start, possibly together with etcd.
const START_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
const NOT_LEADING: &str = "this controller does not lead any longer";
const NO_RECORD: &str = "the head of the audit log is no record";
const UNTIL_IT_ANSWERS: &str = "policies cannot be changed until it answers; check that most of \
     its members run; active policies stay in effect";
/// For errors whose text names the remedy.
const UNTIL_IT_DOES: &str =
    "policies cannot be changed until that is remedied; active policies stay in effect";
const PERHAPS_BY_THE_LEADER: &str =
    "an earlier attempt may still be: check with the leader, and send the request to it if needed";
const PERHAPS_WRITTEN: &str = "the change may have been written: check when etcd answers again; \
     until then policies cannot be changed; check that most of its members run; active policies \
     stay in effect";

#[cfg(test)]
mod tests;
