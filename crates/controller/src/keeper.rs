//! Metadata of policies in addition to the control plane's: origin, and state of the store.
//!
//! **Order of writes.** A policy is written with its audit record before any switch is changed; if
//! it fails it is deleted again, with a record of that. So there is no copy without a record, and a
//! confirmed change survives any crash. A deleted policy is removed from the store before it is
//! removed from the switches: a restarted controller removes the rules of policies that are not
//! stored.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tapswitch_control::{Expiry, TapPolicy, counted};
use tapswitch_openflow::DatapathId;
use tokio::sync::{Notify, watch};

use crate::audit::{Draft, What};
use crate::blueprint::{Blueprint, Built};
use crate::caller::{CONFIGURATION, NOBODY};
use crate::change::{How, accepted};
use crate::clock::unix_time;
use crate::cluster::TermId;
use crate::owed::{Owed, Taken};
use crate::store::{
    Change, KeptPolicy, MAX_MET, MAX_TOGETHER, Origin, Records, Store, StoreError, Wanted,
    configured_key,
};
use crate::{Caller, RequestError};

/// Metadata of policies.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Store,
    known: Mutex<Known>,
    /// Signals that a name is free again.
    freed: Notify,
    /// Signals that there is something to write.
    noted: Notify,
}

/// Policies of the configuration at the start, or at the beginning of a term.
#[derive(Debug, Default)]
pub(crate) struct Configured {
    /// In force now, and not stored.
    unstored: Vec<KeptPolicy>,
    /// In force before and not any more, with the record of their end.
    gone: Vec<(KeptPolicy, What, &'static str)>,
}

impl Configured {
    /// Takes it from what was built by this blueprint.
    pub(crate) fn take(built: &mut Built, blueprint: &Blueprint) -> Self {
        let unstored = std::mem::take(&mut built.unstored);
        let gone = std::mem::take(&mut built.gone).into_iter().map(|kept| {
            match blueprint.has(&kept.policy.name) {
                true => (kept, What::PolicyExpire, ACCEPTED),
                false => (kept, What::PolicyDelete, LEFT),
            }
        });
        Self { unstored, gone: gone.collect() }
    }
}

#[derive(Debug, Default)]
struct Known {
    origins: BTreeMap<String, Origin>,
    /// Names with a change in progress.
    claimed: BTreeSet<String>,
    /// Of these, names with a waiting deletion.
    awaited: BTreeSet<String>,
    /// By name: changes that could not be written.
    stale: BTreeMap<String, Change>,
    /// Records that are not written yet.
    owed: Owed,
    /// Number of starts and ends of terms: changes pending from an earlier term are not written.
    term: u64,
    /// Whether another controller leads.
    has_ended: bool,
    /// Switches stored in this run or term.
    met: BTreeSet<DatapathId>,
}

impl Keeper {
    /// A keeper that starts with these policies.
    pub(crate) fn new(store: Store, policies: impl IntoIterator<Item = KeptPolicy>) -> Arc<Self> {
        let known = Known { origins: origins(policies), ..Known::default() };
        let (freed, noted) = (Notify::new(), Notify::new());
        Arc::new(Self { store, known: Mutex::new(known), freed, noted })
    }

    /// A term begins with these policies: others may have changed them.
    pub(crate) fn begin(&self, policies: impl IntoIterator<Item = KeptPolicy>) {
        let mut known = self.lock();
        known.origins = origins(policies);
        known.met.clear();
        known.next_term();
        known.has_ended = false;
    }

    /// Another controller leads: pending deletions are its responsibility.
    pub(crate) fn end(&self) {
        let mut known = self.lock();
        known.next_term();
        known.has_ended = true;
    }

    /// Claims a name until the claim is dropped: changes of one policy are not concurrent.
    pub(crate) fn claim(self: &Arc<Self>, name: &str) -> Result<Claim, RequestError> {
        let busy = || RequestError::Busy { name: name.to_owned() };
        let is_awaited = self.lock().awaited.contains(name);
        if is_awaited { Err(busy()) } else { self.take(name).ok_or_else(busy) }
    }

    /// The same for a deletion, which waits for the change in progress, so that callers need not
    /// retry to stop copying. Only one may wait.
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
            // From here on notifications are not missed.
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

    /// Origin of the policy, if there is one.
    pub(crate) fn origin(&self, name: &str) -> Option<Origin> {
        self.lock().origins.get(name).cloned()
    }

    /// Fails for policies of the configuration file, which cannot be changed here.
    pub(crate) fn check_changeable(&self, name: &str) -> Result<(), RequestError> {
        let is_configured = self.origin(name).is_some_and(|origin| origin.owner == CONFIGURATION);
        let configured = || RequestError::Configured { name: name.to_owned() };
        if is_configured { Err(configured()) } else { Ok(()) }
    }

    /// An existing policy in stored form.
    pub(crate) fn kept(&self, policy: TapPolicy) -> Result<KeptPolicy, RequestError> {
        let name = policy.name.clone();
        self.check_changeable(&name)?;
        match self.origin(&name) {
            Some(origin) => Ok(KeptPolicy { policy, origin }),
            // It is being deleted.
            None => Err(RequestError::Busy { name }),
        }
    }

    /// The same for a deletion. Nobody else changes it; a missing origin, which should not happen,
    /// must not prevent the deletion.
    pub(crate) fn kept_to_delete(&self, policy: TapPolicy) -> Result<KeptPolicy, RequestError> {
        match self.kept(policy.clone()) {
            Err(RequestError::Busy { .. }) => {
                Ok(KeptPolicy { policy, origin: Origin::now(NOBODY) })
            }
            kept => kept,
        }
    }

    /// Deletes an expired policy from the store, unless another one of its name exists by now. One
    /// of the configuration has a key of its own: what has its name was added before, and is kept.
    pub(crate) async fn expire(self: Arc<Self>, policy: &TapPolicy, origin: Option<Origin>) {
        let name = &policy.name;
        let record = Draft::new(&Caller::controller(), What::PolicyExpire, ACCEPTED).about(policy);
        // A change in progress for this name writes the final state; a waiting deletion will find
        // nothing.
        let claim = self.take(name).filter(|_| self.origin(name) == origin);
        claim.iter().for_each(|claim| claim.set_origin(None));
        let is_configured = origin.is_some_and(|origin| origin.owner == CONFIGURATION);
        let key = if is_configured { configured_key(name) } else { name.clone() };
        match claim {
            Some(claim) => claim.write_or_owe(Change::Delete(key), record).await,
            None => self.record_or_owe(record).await,
        }
    }

    /// Stores the policy of this name, also one of the configuration, with the switches where its
    /// monitors were found. Waits for the change in progress: only then it is certain which policy
    /// is stored and in force. `current` asks for it.
    pub(crate) async fn pin(
        self: Arc<Self>,
        name: String,
        current: impl Future<Output = Option<TapPolicy>>,
    ) {
        let claim = self.take_when_free(&name).await;
        let Some(policy) = current.await else { return };
        // A policy that is ending has none.
        let Some(origin) = self.origin(&name) else { return };
        let kept = Box::new(KeptPolicy { policy, origin });
        // The store reports an error itself; the switches are located again after a restart.
        let _ = self.commit(vec![Change::Put(kept)], claim.of).await;
    }

    /// Stores a switch, once in each run or term: the controller expects it after a restart, and
    /// so does the next leader.
    pub(crate) async fn meet(self: Arc<Self>, switch: DatapathId) {
        let is_new = {
            let mut known = self.lock();
            known.met.len() < MAX_MET && known.met.insert(switch)
        };
        if is_new && self.commit(vec![Change::Meet(switch)], self.store.term()).await.is_err() {
            // The store reports the error itself. This is tried again when the switch reconnects.
            self.lock().met.remove(&switch);
        }
    }

    /// Records that the stored policies are in force again, if there are any.
    pub(crate) async fn record_start(self: &Arc<Self>) -> Result<(), StoreError> {
        let is_kept = |origin: &&Origin| origin.owner != CONFIGURATION;
        let count = self.lock().origins.values().filter(is_kept).count();
        if count == 0 {
            return Ok(());
        }
        let verb = if count == 1 { "takes" } else { "take" };
        let what = format!("{} {verb} effect again", counted(count, "stored policy"));
        self.record(Draft::new(&Caller::controller(), What::ControllerStart, what)).await
    }

    /// Records that the controller stops without a successor: policies stay in force, if there are
    /// any.
    pub(crate) fn note_stop(&self) {
        let count = self.lock().origins.len();
        if count > 0 {
            let verb = if count == 1 { "stays" } else { "stay" };
            let policies = counted(count, "policy");
            let what = format!("{policies} {verb} in effect by the installed rules");
            self.note(Draft::new(&Caller::controller(), What::ControllerStop, what));
        }
    }

    /// Records that these configured policies are about to be in force. A shared store takes at
    /// most [`MAX_TOGETHER`] of them.
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

    /// Stores which policies of the configuration are in force now, and records the end of those
    /// that were before and are `gone`. From this call on, not from its first poll, whoever
    /// [pins](Self::pin) one of them waits.
    pub(crate) fn keep_configured(
        self: &Arc<Self>,
        configured: Configured,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let Configured { unstored, gone } = configured;
        let claims: Vec<_> =
            unstored.iter().filter_map(|kept| self.take(&kept.policy.name)).collect();
        let ends = gone.into_iter().flat_map(|(kept, what, how)| {
            let record = Draft::new(&Caller::configuration(), what, how).about(&kept.policy);
            [Change::Delete(kept.key().into_owned()), Change::Record(record)]
        });
        let puts = unstored.into_iter().map(|kept| Change::Put(Box::new(kept)));
        let changes: Vec<_> = ends.chain(puts).collect();
        let (keeper, term) = (Arc::clone(self), self.store.term());
        async move {
            let _claims = claims;
            for some in changes.chunks(MAX_DEBT) {
                keeper.commit(some.to_vec(), term).await?;
            }
            Ok(())
        }
    }

    /// Records an action that changes no policy, or was refused. Not cancelled with the caller, as
    /// that would lose queued records written with it.
    pub(crate) async fn record(self: &Arc<Self>, draft: Draft) -> Result<(), StoreError> {
        let this = Arc::clone(self);
        let of = self.store.term();
        let recording = async move { this.commit(vec![Change::Record(draft)], of).await };
        tokio::spawn(recording).await.unwrap_or_else(|_| Err(StoreError::closed()))
    }

    /// The same for something that has happened: if it fails, it is written as soon as possible.
    pub(crate) async fn record_or_owe(self: &Arc<Self>, draft: Draft) {
        let this = Arc::clone(self);
        let recording = async move {
            if this.record(draft.clone()).await.is_err() {
                // The store reports the cause.
                tracing::error!("not written to the audit log yet: {draft}");
                this.note(draft);
            }
        };
        // A panic was reported, and at shutdown nobody waits.
        let _ = tokio::spawn(recording).await;
    }

    /// Queues a record of an autonomous event.
    pub(crate) fn note(&self, draft: Draft) {
        self.lock().owed.push(draft);
        self.noted.notify_one();
    }

    /// Counts a record that only the process log has.
    pub(crate) fn leave_out(&self) {
        self.lock().owed.leave_out();
        self.noted.notify_one();
    }

    /// Writes queued records, and retries failed writes, until the server has `ended`; and then
    /// once more.
    pub(crate) async fn pay_debts(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        loop {
            // The process log has what cannot be written.
            let paid = self.pay().await;
            // An error means that the server is gone.
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

    /// Writes everything queued.
    pub(crate) async fn pay(&self) -> Result<(), StoreError> {
        loop {
            // The store's term is over before that of the queue.
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

    /// Audit records.
    pub(crate) async fn records(&self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        self.store.records(wanted, max).await
    }

    async fn commit(&self, changes: Vec<Change>, of: TermId) -> Result<(), StoreError> {
        // Records may be written whoever leads, so they are separate from changes that only the
        // leader may write.
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

    /// Fails if so many changes could not be written that there is no room for one more.
    fn check_room(&self, name: &str) -> Result<(), StoreError> {
        let known = self.lock();
        match known.stale.len() < MAX_STALE || known.stale.contains_key(name) {
            true => Ok(()),
            false => {
                let error = StoreError::new("too many changes could not be written", &MAX_STALE);
                Err(error.with_remedy(TOO_MANY))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // The content is consistent whenever the lock is free.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Pending changes are another controller's responsibility.
    fn next_term(&mut self) {
        self.stale.clear();
        self.owed.drop_of_changes();
        self.term += 1;
    }

    fn owes_changes(&self) -> bool {
        !self.stale.is_empty() || !self.owed.is_empty() && !self.owed.has_own()
    }

    /// Takes as much as fits beside other changes.
    fn take_debt(&mut self) -> Debt {
        let later = self.stale.keys().nth(MAX_DEBT).cloned();
        let later = later.map(|name| self.stale.split_off(&name)).unwrap_or_default();
        let stale = std::mem::replace(&mut self.stale, later);
        Debt { term: self.term, stale, records: self.owed.take(MAX_DEBT, true) }
    }

    /// Takes records that fit beside others.
    fn take_records(&mut self) -> Debt {
        let records = self.owed.take(MAX_DEBT, false);
        Debt { term: self.term, stale: BTreeMap::new(), records }
    }

    /// Queues a failed change with its record, unless its term is over: a change may fail long
    /// after another controller became leader.
    fn owe(&mut self, term: u64, name: &str, (change, record): (Change, Draft)) {
        if self.goes_on(term) {
            tracing::error!("not written to the audit log yet: {record}");
            self.stale.insert(name.to_owned(), change);
            self.owed.push_of_change(record);
        } else {
            tracing::error!("not written to the audit log: {record}");
        }
    }

    /// What could not be written is queued again; of another term, only the records that do not
    /// depend on a change.
    fn owe_again(&mut self, Debt { term, stale, records }: Debt) {
        if self.goes_on(term) {
            self.owed.put_back(records);
            for (name, change) in stale {
                // A later change of this name counts.
                self.stale.entry(name).or_insert(change);
            }
        } else {
            self.owed.put_back(records.without_changes());
        }
    }

    const fn goes_on(&self, term: u64) -> bool {
        term == self.term && !self.has_ended
    }
}

/// Queued changes and records that are written with others.
struct Debt {
    /// Term of the changes.
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

/// Exclusive right to change the policy of a name.
#[derive(Debug)]
pub(crate) struct Claim {
    keeper: Arc<Keeper>,
    name: String,
    /// Term when it was claimed, in the keeper's count.
    term: u64,
    /// The same as an id for others. In a later term the policy may have changed.
    of: TermId,
}

impl Claim {
    /// Stores a policy before it is put in force, replacing `before`.
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
        if let Err(error) = self.keeper.check_room(&self.name) {
            self.keeper.note(Draft::new(caller, how.what(), refused(&error)).about(policy));
            return Err(error);
        }
        let kept = Box::new(KeptPolicy { policy: policy.clone(), origin: origin.clone() });
        let record = Draft::new(caller, how.what(), how.accepted()).about(policy);
        let changes = vec![Change::Put(kept), Change::Record(record)];
        let result = self.keeper.commit(changes, self.of).await;
        let mut known = self.keeper.lock();
        if let Err(error) = &result {
            // A remote store may have written it although the response was lost.
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

    /// Deletes a failed policy from the store, and restores `before`. Not in a later term: the
    /// current leader has read it from the store and put it in force.
    pub(crate) async fn take_back(&self, before: Option<KeptPolicy>, record: Draft) {
        // An expired one is not restored.
        let before = before.filter(|kept| !is_over(&kept.policy));
        self.set_origin(before.as_ref());
        let change = match before {
            None => Change::Delete(self.name.clone()),
            Some(kept) => Change::Put(Box::new(kept)),
        };
        self.write_or_owe(change, record).await;
    }

    /// Writes both, now or as soon as possible, unless the term is over by then.
    async fn write_or_owe(&self, change: Change, record: Draft) {
        let changes = vec![change.clone(), Change::Record(record.clone())];
        if self.keeper.commit(changes, self.of).await.is_err() {
            self.keeper.lock().owe(self.term, &self.name, (change, record));
        }
    }

    /// Deletes a policy from the store.
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
            // As above: it may be deleted there, and is in force here.
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

    /// Term of the change.
    pub(crate) const fn term(&self) -> TermId {
        self.of
    }

    /// Sets the current origin, unless another term has begun.
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

/// Result of a refusal in the audit log.
pub(crate) fn refused(why: &impl std::fmt::Display) -> String {
    format!("refused: {why}")
}

const ACCEPTED: &str = "accepted";
/// Result in the audit log of the end of a policy that has left the configuration.
const LEFT: &str = "accepted: no longer in the configuration";
/// Maximum delayed changes, and records, written with others: they share [`MAX_TOGETHER`].
const MAX_DEBT: usize = MAX_TOGETHER / 2;
/// Maximum changes that could not be written, beyond which no others are tried: each has its name.
const MAX_STALE: usize = 8192;
const TOO_MANY: &str = "policies can be changed again when these are written, which is tried every \
                        few seconds; active policies stay in effect";
/// Interval of retries, if no other change triggers one before.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Minimum frequency of checking that the store's file is in place.
const LOOK: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
