//! Policies and what is known of them beside what the control plane knows: who added them, when,
//! and whether they are on disk.
//!
//! **In which order.** A policy is written, with its record in the audit log, before any switch is
//! told of it; if it comes to nothing it is taken out again, with a record of that. So there is no
//! copy without a record, and what was answered survives whatever happens next. A policy that is
//! deleted is gone from the disk before it is gone from the switches: a controller that starts
//! again removes what nobody asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapswitch_control::{Expiry, TapPolicy};
use tapswitch_openflow::DatapathId;
use tokio::sync::{Notify, watch};

use crate::audit::{Draft, What};
use crate::caller::{CONFIGURATION, NOBODY};
use crate::change::{How, accepted};
use crate::clock::{now_text, unix_time};
use crate::cluster::TermId;
use crate::owed::{Owed, Taken};
use crate::store::{Change, KeptPolicy, MAX_TOGETHER, Records, Store, StoreError, Wanted};
use crate::{Caller, RequestError};

/// What is known of policies.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Store,
    known: Mutex<Known>,
    /// Tells that a name is free again.
    freed: Notify,
    /// Tells that something is to be written.
    noted: Notify,
}

#[derive(Debug, Default)]
struct Known {
    origins: BTreeMap<String, Origin>,
    /// Names that somebody is changing something about.
    claimed: BTreeSet<String>,
    /// Those of them that a deletion waits for.
    awaited: BTreeSet<String>,
    /// By name: what should have been written to the store when it could not be.
    stale: BTreeMap<String, Change>,
    /// Records that were not written yet.
    owed: Owed,
    /// Counts beginnings and ends: what was to be written before one is not to be written after.
    term: u64,
    /// Whether another controller leads.
    has_ended: bool,
    /// Switches that were met in this run.
    met: BTreeSet<DatapathId>,
}

/// Where a policy comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// When it was added, or the controller started with it; RFC 3339.
    pub created_at: String,
    /// Who added it; `configuration` for those of the configuration file.
    pub owner: String,
    /// When it was changed last, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<String>,
    /// Who did that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
}

impl Origin {
    /// Of a policy that comes now.
    pub(crate) fn now(owner: impl Into<String>) -> Self {
        let (created_at, owner) = (now_text(), owner.into());
        Self { created_at, owner, changed_at: None, changed_by: None }
    }

    /// The same policy, changed now.
    fn changed_by(self, who: &str) -> Self {
        let (changed_at, changed_by) = (Some(now_text()), Some(who.to_owned()));
        Self { changed_at, changed_by, ..self }
    }
}

impl Keeper {
    /// Knows these policies already.
    pub(crate) fn new(store: Store, policies: impl IntoIterator<Item = KeptPolicy>) -> Arc<Self> {
        let known = Known { origins: origins(policies), ..Known::default() };
        let (freed, noted) = (Notify::new(), Notify::new());
        Arc::new(Self { store, known: Mutex::new(known), freed, noted })
    }

    /// Begins anew, with these policies: others may have changed them since.
    pub(crate) fn begin(&self, policies: impl IntoIterator<Item = KeptPolicy>) {
        let mut known = self.lock();
        known.origins = origins(policies);
        known.next_term();
        known.has_ended = false;
    }

    /// Another controller leads: what was to be taken out is its business.
    pub(crate) fn end(&self) {
        let mut known = self.lock();
        known.next_term();
        known.has_ended = true;
    }

    /// Takes the name until the claim is dropped: two changes of one policy do not mix.
    pub(crate) fn claim(self: &Arc<Self>, name: &str) -> Result<Claim, RequestError> {
        let busy = || RequestError::Busy { name: name.to_owned() };
        let is_awaited = self.lock().awaited.contains(name);
        if is_awaited { Err(busy()) } else { self.take(name).ok_or_else(busy) }
    }

    /// The same for a deletion, which comes behind the change that has the name: who wants to end
    /// copies shall not have to try again and again. One that waits is enough.
    pub(crate) async fn claim_last(self: &Arc<Self>, name: &str) -> Result<Claim, RequestError> {
        if !self.lock().awaited.insert(name.to_owned()) {
            return Err(RequestError::Busy { name: name.to_owned() });
        }
        let _waiting = Waiting { keeper: self, name };
        Ok(self.take_when_free(name).await)
    }

    async fn take_when_free(self: &Arc<Self>, name: &str) -> Claim {
        loop {
            let mut freed = pin!(self.freed.notified());
            // What is freed from here on is heard.
            freed.as_mut().enable();
            if let Some(claim) = self.take(name) {
                return claim;
            }
            freed.await;
        }
    }

    fn take(self: &Arc<Self>, name: &str) -> Option<Claim> {
        let mut known = self.lock();
        let is_free = known.claimed.insert(name.to_owned());
        let claim = || {
            let (keeper, name) = (Arc::clone(self), name.to_owned());
            Claim { keeper, name, term: known.term, of: self.store.term() }
        };
        is_free.then(claim)
    }

    /// Where the policy comes from, if there is one.
    pub(crate) fn origin(&self, name: &str) -> Option<Origin> {
        self.lock().origins.get(name).cloned()
    }

    /// Whether a policy may be changed here, if it is known: those of the configuration file are
    /// not.
    pub(crate) fn check_changeable(&self, name: &str) -> Result<(), RequestError> {
        let is_configured = self.origin(name).is_some_and(|origin| origin.owner == CONFIGURATION);
        let configured = || RequestError::Configured { name: name.to_owned() };
        if is_configured { Err(configured()) } else { Ok(()) }
    }

    /// A policy that is there, as the store has it.
    pub(crate) fn kept(&self, policy: TapPolicy) -> Result<KeptPolicy, RequestError> {
        let name = policy.name.clone();
        self.check_changeable(&name)?;
        match self.origin(&name) {
            Some(origin) => Ok(KeptPolicy { policy, origin }),
            // It is going at this moment.
            None => Err(RequestError::Busy { name }),
        }
    }

    /// The same of one that is to go. Nobody else changes it then: where it comes from should be
    /// known, and when it is not, that is no reason to let it copy for ever.
    pub(crate) fn kept_to_delete(&self, policy: TapPolicy) -> Result<KeptPolicy, RequestError> {
        match self.kept(policy.clone()) {
            Err(RequestError::Busy { .. }) => {
                Ok(KeptPolicy { policy, origin: Origin::now(NOBODY) })
            }
            kept => kept,
        }
    }

    /// Takes out a policy that reached its end, unless another one of its name is there by now.
    pub(crate) async fn expire(self: Arc<Self>, policy: &TapPolicy, origin: Option<Origin>) {
        let name = &policy.name;
        let record = Draft::new(&Caller::controller(), What::PolicyExpire, ACCEPTED).about(policy);
        // Whoever changes something about this name at the moment writes what holds then; a
        // deletion that waits finds nothing.
        let claim = self.take(name).filter(|_| self.origin(name) == origin);
        match claim {
            Some(claim) => {
                claim.set_origin(None);
                claim.write_or_owe(Change::Delete(name.clone()), record).await;
            }
            None => self.record_or_owe(record).await,
        }
    }

    /// Keeps a policy, also one of the configuration, with the switches at which its monitors were
    /// found since it was added, unless another one of its name is there by now.
    pub(crate) async fn pin(self: Arc<Self>, policy: TapPolicy, origin: Option<Origin>) {
        let claim = self.take_when_free(&policy.name).await;
        let is_same = |known: &Origin| origin.as_ref() == Some(known);
        let Some(origin) = self.origin(&policy.name).filter(is_same) else { return };
        let kept = Box::new(KeptPolicy { policy, origin });
        // If that fails the store has said so; the switches are found anew after a restart.
        let _ = self.commit(vec![Change::Put(kept)], claim.of).await;
    }

    /// Keeps that a switch is there, once in each run: a controller that starts again expects it.
    pub(crate) async fn meet(self: Arc<Self>, switch: DatapathId) {
        let is_new = {
            let mut known = self.lock();
            known.met.len() < MAX_MET && known.met.insert(switch)
        };
        if is_new {
            // If that fails the store has said so, and the switch is not expected.
            let _ = self.commit(vec![Change::Meet(switch)], self.store.term()).await;
        }
    }

    /// Writes that the policies of the store are in force again, if there are any.
    pub(crate) async fn record_start(self: &Arc<Self>) -> Result<(), StoreError> {
        let is_kept = |origin: &&Origin| origin.owner != CONFIGURATION;
        let count = self.lock().origins.values().filter(is_kept).count();
        if count == 0 {
            return Ok(());
        }
        let what = format!("{count} policies of the store are in force from here on");
        self.record(Draft::new(&Caller::controller(), What::ControllerStart, what)).await
    }

    /// The controller stops, and nobody takes its place: policies go on, if there are any.
    pub(crate) fn note_stop(&self) {
        let count = self.lock().origins.len();
        if count > 0 {
            let what = format!("{count} policies go on by the rules that switches have");
            self.note(Draft::new(&Caller::controller(), What::ControllerStop, what));
        }
    }

    /// Writes that these policies of the configuration are about to be in force. A store that is
    /// shared takes no more than [`MAX_TOGETHER`] of them.
    pub(crate) async fn record_configured(&self, policies: &[TapPolicy]) -> Result<(), StoreError> {
        let records = policies.iter().map(|policy| {
            let expires = policy.expires.map(|expiry| Expiry::At(expiry.time(unix_time())));
            let policy = TapPolicy { expires, ..policy.clone() };
            let draft = Draft::new(&Caller::configuration(), What::PolicyAdd, ACCEPTED);
            Change::Record(draft.about(&policy))
        });
        match records.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            records => self.commit(records, self.store.term()).await,
        }
    }

    /// Writes that somebody did what is no change of a policy, or was refused. Who stops waiting
    /// changes nothing: what waited before goes with it, and would be lost.
    pub(crate) async fn record(self: &Arc<Self>, draft: Draft) -> Result<(), StoreError> {
        let this = Arc::clone(self);
        let of = self.store.term();
        let recording = async move { this.commit(vec![Change::Record(draft)], of).await };
        tokio::spawn(recording).await.unwrap_or_else(|_| Err(StoreError::closed()))
    }

    /// The same of what happened already: when that fails, it is written as soon as it can be.
    pub(crate) async fn record_or_owe(self: &Arc<Self>, draft: Draft) {
        let this = Arc::clone(self);
        let recording = async move {
            if this.record(draft.clone()).await.is_err() {
                // The store has said why itself.
                tracing::error!("not in the audit log yet: {draft}");
                this.note(draft);
            }
        };
        // A panic has been told, and at the end of the process nobody waits.
        let _ = tokio::spawn(recording).await;
    }

    /// The same of what happened by itself, which waits for nobody.
    pub(crate) fn note(&self, draft: Draft) {
        self.lock().owed.push(draft);
        self.noted.notify_one();
    }

    /// The same of what the log of the process alone has.
    pub(crate) fn leave_out(&self) {
        self.lock().owed.leave_out();
        self.noted.notify_one();
    }

    /// Writes what is noted, and tries again what could not be written, until the server has
    /// `ended`; and then once more.
    pub(crate) async fn pay_debts(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        loop {
            // The log of the process has what cannot be written.
            let paid = self.pay().await;
            // An error means that the server is gone, which is an end as well.
            if *ended.borrow() || ended.has_changed().is_err() {
                return;
            }
            let again = async {
                match paid {
                    Ok(()) => _ = tokio::time::timeout(LOOK, self.noted.notified()).await,
                    Err(_) => tokio::time::sleep(TRY_AGAIN).await,
                }
                self.store.look().await;
            };
            tokio::select! {
                () = again => {}
                _ = ended.wait_for(|ended| *ended) => {}
            }
        }
    }

    /// Writes all that is owed.
    pub(crate) async fn pay(&self) -> Result<(), StoreError> {
        loop {
            // The term of the store is over before that of what is owed in it.
            let of = self.store.term();
            let debt = {
                let mut known = self.lock();
                if known.owes_changes() { known.take_debt() } else { known.take_records() }
            };
            if debt.is_empty() {
                return Ok(());
            }
            self.commit_with(debt, Vec::new(), of).await?;
        }
    }

    /// Records of the audit log.
    pub(crate) async fn records(&self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        self.store.records(wanted, max).await
    }

    async fn commit(&self, changes: Vec<Change>, of: TermId) -> Result<(), StoreError> {
        // A record is written whoever leads, and must not depend on what only the leader may write.
        let is_record = |change: &Change| matches!(change, Change::Record(_));
        let debt = match changes.iter().all(is_record) {
            true => self.lock().take_records(),
            false => self.lock().take_debt(),
        };
        self.commit_with(debt, changes, of).await
    }

    async fn commit_with(
        &self,
        debt: Debt,
        mut changes: Vec<Change>,
        of: TermId,
    ) -> Result<(), StoreError> {
        changes.splice(0..0, debt.changes());
        let result = self.store.commit(changes, of).await;
        if result.is_err() {
            self.lock().owe_again(debt);
            self.noted.notify_one();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // What is in there is whole whenever the lock is free.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// What should have been written is somebody else's business.
    fn next_term(&mut self) {
        self.stale.clear();
        self.owed.drop_of_changes();
        self.term += 1;
    }

    fn owes_changes(&self) -> bool {
        !self.stale.is_empty() || !self.owed.is_empty() && !self.owed.has_own()
    }

    /// As much as goes with other changes.
    fn take_debt(&mut self) -> Debt {
        let later = self.stale.keys().nth(MAX_DEBT).cloned();
        let later = later.map(|name| self.stale.split_off(&name)).unwrap_or_default();
        let stale = std::mem::replace(&mut self.stale, later);
        Debt { term: self.term, stale, records: self.owed.take(MAX_DEBT, true) }
    }

    /// The same of records that go with others.
    fn take_records(&mut self) -> Debt {
        let records = self.owed.take(MAX_DEBT, false);
        Debt { term: self.term, stale: BTreeMap::new(), records }
    }

    /// Notes what should have been written in a term, and what tells of it, unless that is over: a
    /// change may fail long after another controller was found to lead.
    fn owe(&mut self, term: u64, name: &str, (change, record): (Change, Draft)) {
        if self.goes_on(term) {
            tracing::error!("not in the audit log yet: {record}");
            self.stale.insert(name.to_owned(), change);
            self.owed.push_of_change(record);
        } else {
            tracing::error!("not in the audit log: {record}");
        }
    }

    fn owe_again(&mut self, Debt { term, stale, records }: Debt) {
        self.owed.put_back(records);
        if self.goes_on(term) {
            self.stale.extend(stale);
        } else {
            self.owed.drop_of_changes();
        }
    }

    const fn goes_on(&self, term: u64) -> bool {
        term == self.term && !self.has_ended
    }
}

/// What could not be written before, and is written with something else.
struct Debt {
    /// Of which term the changes are.
    term: u64,
    stale: BTreeMap<String, Change>,
    records: Taken,
}

impl Debt {
    fn is_empty(&self) -> bool {
        self.stale.is_empty() && self.records.drafts().next().is_none()
    }

    fn changes(&self) -> Vec<Change> {
        let stale = self.stale.values().cloned();
        stale.chain(self.records.drafts().map(Change::Record)).collect()
    }
}

/// A name that one change has for itself.
#[derive(Debug)]
pub(crate) struct Claim {
    keeper: Arc<Keeper>,
    name: String,
    /// When it was taken, as beginnings and ends are counted here.
    term: u64,
    /// The same for all others. What this change is about may be different in a later one.
    of: TermId,
}

impl Claim {
    /// Writes a policy that is to come into force, in the place of what was there `before`.
    pub(crate) async fn put(
        &self,
        caller: &Caller,
        policy: &TapPolicy,
        (how, before): (How, Option<&KeptPolicy>),
    ) -> Result<(), StoreError> {
        let origin = match before {
            Some(kept) => kept.origin.clone().changed_by(&caller.name),
            None => Origin::now(&caller.name),
        };
        let kept = Box::new(KeptPolicy { policy: policy.clone(), origin: origin.clone() });
        let record = Draft::new(caller, how.what(), how.accepted()).about(policy);
        let changes = vec![Change::Put(kept), Change::Record(record)];
        let result = self.keeper.commit(changes, self.of).await;
        let mut known = self.keeper.lock();
        if let Err(error) = &result {
            // A store that is elsewhere may have written it, and not have been heard.
            let delete = || Change::Delete(self.name.clone());
            let change = before.map_or_else(delete, |kept| Change::Put(Box::new(kept.clone())));
            let record = Draft::new(caller, how.what(), refused(error)).about(policy);
            known.owe(self.term, &self.name, (change, record));
            return result;
        }
        if known.term == self.term {
            known.stale.remove(&self.name);
            known.origins.insert(self.name.clone(), origin);
        }
        Ok(())
    }

    /// Takes a policy out again that came to nothing, and puts back what was there `before`. In a
    /// later term it is not taken out: whoever leads then found it in the store, and has put it in
    /// force.
    pub(crate) async fn take_back(&self, before: Option<KeptPolicy>, record: Draft) {
        // One that came to its end meanwhile does not come back.
        let before = before.filter(|kept| !is_over(&kept.policy));
        self.set_origin(before.as_ref());
        let change = match before {
            None => Change::Delete(self.name.clone()),
            Some(kept) => Change::Put(Box::new(kept)),
        };
        self.write_or_owe(change, record).await;
    }

    /// Writes both, now or as soon as that is possible, unless the term is over then.
    async fn write_or_owe(&self, change: Change, record: Draft) {
        let changes = vec![change.clone(), Change::Record(record.clone())];
        if self.keeper.commit(changes, self.of).await.is_err() {
            self.keeper.lock().owe(self.term, &self.name, (change, record));
        }
    }

    /// Takes out a policy that somebody deletes.
    pub(crate) async fn delete(
        &self,
        caller: &Caller,
        kept: &KeptPolicy,
        by_force: bool,
    ) -> Result<(), StoreError> {
        let record = Draft::new(caller, What::PolicyDelete, accepted(by_force)).about(&kept.policy);
        let changes = vec![Change::Delete(self.name.clone()), Change::Record(record)];
        let result = self.keeper.commit(changes, self.of).await;
        let mut known = self.keeper.lock();
        if let Err(error) = &result {
            // As above: it may be gone there, and is in force here.
            let change = Change::Put(Box::new(kept.clone()));
            let record = Draft::new(caller, What::PolicyDelete, refused(error)).about(&kept.policy);
            known.owe(self.term, &self.name, (change, record));
            return result;
        }
        if known.term == self.term {
            known.stale.remove(&self.name);
            known.origins.remove(&self.name);
        }
        Ok(())
    }

    /// The term that the change belongs to.
    pub(crate) const fn term(&self) -> TermId {
        self.of
    }

    /// Where the policy comes from now, unless another term has begun.
    fn set_origin(&self, kept: Option<&KeptPolicy>) {
        let mut known = self.keeper.lock();
        if known.term != self.term {
            return;
        }
        match kept.cloned() {
            None => _ = known.origins.remove(&self.name),
            Some(KeptPolicy { origin, .. }) => {
                known.origins.insert(self.name.clone(), origin);
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.keeper.lock().claimed.remove(&self.name);
        self.keeper.freed.notify_waiters();
    }
}

/// A deletion that waits for a name.
struct Waiting<'a> {
    keeper: &'a Keeper,
    name: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.keeper.lock().awaited.remove(self.name);
    }
}

fn origins(policies: impl IntoIterator<Item = KeptPolicy>) -> BTreeMap<String, Origin> {
    policies.into_iter().map(|KeptPolicy { policy, origin }| (policy.name, origin)).collect()
}

fn is_over(policy: &TapPolicy) -> bool {
    matches!(policy.expires, Some(Expiry::At(at)) if at <= unix_time())
}

/// How the audit log tells of a refusal.
pub(crate) fn refused(why: &impl std::fmt::Display) -> String {
    format!("refused: {why}")
}

const ACCEPTED: &str = "accepted";
/// Changes that are written later, and records, that go with others at most: they share the room of
/// [`MAX_TOGETHER`].
const MAX_DEBT: usize = MAX_TOGETHER / 2;
/// Switches that are kept in one run: ten times as many as a controller has connections for, unless
/// told otherwise.
const MAX_MET: usize = 40_960;
/// When what could not be written is tried again, if nobody changes anything before.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How often it is looked whether the store is where it was, at least.
const LOOK: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
