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

use serde::{Deserialize, Serialize};
use tapswitch_control::{Expiry, TapPolicy};
use tokio::sync::Notify;

use crate::audit::{Draft, What};
use crate::caller::{CONFIGURATION, NOBODY};
use crate::change::{How, accepted};
use crate::clock::{now_text, unix_time};
use crate::cluster::TermId;
use crate::store::{Change, KeptPolicy, MAX_TOGETHER, Records, Store, StoreError, Wanted};
use crate::{Caller, RequestError};

/// What is known of policies.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Store,
    known: Mutex<Known>,
    /// Tells that a name is free again.
    freed: Notify,
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
    /// Counts beginnings and ends: what was to be written before one is not to be written after.
    term: u64,
    /// Whether another controller leads.
    has_ended: bool,
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
        Arc::new(Self { store, known: Mutex::new(known), freed: Notify::new() })
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
        let mut changes = Vec::new();
        // Whoever changes something about this name at the moment writes what holds then; a
        // deletion that waits finds nothing.
        let claim = self.take(name);
        if claim.is_some() && self.origin(name) == origin {
            changes.push(Change::Delete(name.clone()));
            self.lock().origins.remove(name);
        }
        let record = Draft::new(&Caller::controller(), What::PolicyExpire, ACCEPTED);
        changes.push(Change::Record(record.about(policy)));
        // If that fails the store has said so; a policy whose end is past ends again at a restart.
        let _ = self.commit_or_tell(changes, self.store.term()).await;
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

    /// Writes that somebody did what is no change of a policy, or was refused.
    pub(crate) async fn record(&self, draft: Draft) -> Result<(), StoreError> {
        self.commit(vec![Change::Record(draft)], self.store.term()).await
    }

    /// The same of what happened already: when that fails, the log of the process has it.
    pub(crate) async fn record_or_tell(&self, draft: Draft) {
        // The store has said why itself.
        let _ = self.commit_or_tell(vec![Change::Record(draft)], self.store.term()).await;
    }

    /// Records of the audit log.
    pub(crate) async fn records(&self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        self.store.records(wanted, max).await
    }

    async fn commit_or_tell(&self, changes: Vec<Change>, term: TermId) -> Result<(), StoreError> {
        let drafts = changes.iter().filter_map(|change| match change {
            Change::Record(draft) => Some(draft.clone()),
            Change::Put(_) | Change::Delete(_) => None,
        });
        let drafts: Vec<_> = drafts.collect();
        let result = self.commit(changes, term).await;
        if result.is_err() {
            drafts.iter().for_each(|draft| tracing::error!("not in the audit log: {draft}"));
        }
        result
    }

    async fn commit(&self, mut changes: Vec<Change>, of: TermId) -> Result<(), StoreError> {
        // A record is written whoever leads, and must not depend on what only the leader may write.
        let is_record = |change: &Change| matches!(change, Change::Record(_));
        let (stale, term) = match changes.iter().all(is_record) {
            true => (BTreeMap::new(), 0),
            false => self.lock().take_stale(),
        };
        let first = stale.values().cloned();
        changes.splice(0..0, first);
        let result = self.store.commit(changes, of).await;
        if result.is_err() {
            self.lock().owe(term, stale);
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
        self.term += 1;
    }

    /// As many as go with other changes, and of which term they are.
    fn take_stale(&mut self) -> (BTreeMap<String, Change>, u64) {
        let later = self.stale.keys().nth(MAX_TOGETHER).cloned();
        let later = later.map(|name| self.stale.split_off(&name)).unwrap_or_default();
        (std::mem::replace(&mut self.stale, later), self.term)
    }

    /// Notes what should have been written in a term, unless that is over: a change may fail long
    /// after another controller was found to lead.
    fn owe(&mut self, term: u64, changes: impl IntoIterator<Item = (String, Change)>) {
        if term == self.term && !self.has_ended {
            self.stale.extend(changes);
        }
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
        if result.is_err() {
            // A store that is elsewhere may have written it, and not have been heard.
            let delete = || Change::Delete(self.name.clone());
            let change = before.map_or_else(delete, |kept| Change::Put(Box::new(kept.clone())));
            known.owe(self.term, [(self.name.clone(), change)]);
            return result;
        }
        if known.term == self.term {
            known.stale.remove(&self.name);
            known.origins.insert(self.name.clone(), origin);
        }
        Ok(())
    }

    /// Takes a policy out again that came to nothing, and puts back what was there `before`. When
    /// that cannot be written it is with the next change that can. In a later term it is not taken
    /// out: whoever leads then found it in the store, and has put it in force.
    pub(crate) async fn take_back(&self, before: Option<KeptPolicy>, record: Draft) {
        self.set_origin(before.as_ref());
        let change = match before {
            None => Change::Delete(self.name.clone()),
            Some(kept) => Change::Put(Box::new(kept)),
        };
        let changes = vec![change.clone(), Change::Record(record)];
        if self.keeper.commit_or_tell(changes, self.of).await.is_err() {
            self.keeper.lock().owe(self.term, [(self.name.clone(), change)]);
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
        if result.is_err() {
            // As above: it may be gone there, and is in force here.
            let change = Change::Put(Box::new(kept.clone()));
            known.owe(self.term, [(self.name.clone(), change)]);
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

/// How the audit log tells of a refusal.
pub(crate) fn refused(why: &impl std::fmt::Display) -> String {
    format!("refused: {why}")
}

const ACCEPTED: &str = "accepted";

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::cluster::{EtcdConfig, Standing};
    use crate::etcd::Way;
    use crate::etcd::fake::FakeEtcd;
    use crate::journal::Journal;

    /// A controller that leads and shares its store, and by what it comes to follow.
    async fn leader() -> (Arc<Keeper>, watch::Sender<Standing>) {
        leader_at(&FakeEtcd::start().await).await
    }

    async fn leader_at(etcd: &FakeEtcd) -> (Arc<Keeper>, watch::Sender<Standing>) {
        let generation = etcd.put("/t/leader", "{}").cast_unsigned();
        let config: EtcdConfig = format!("etcd://{}/t", etcd.endpoint).parse().unwrap();
        let (standing, receiver) = watch::channel(Standing::Leader { generation });
        let (way, journal) = (Way::open(&config).unwrap(), Arc::new(Journal::new(16)));
        let (store, _) = Store::share((&config, way), receiver, journal).await.unwrap();
        let keeper = Keeper::new(store, []);
        keeper.begin([]);
        (keeper, standing)
    }

    async fn put(claim: &Claim) -> Result<(), StoreError> {
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        claim.put(&Caller::unix("ann"), &policy, (How::default(), None)).await
    }

    #[tokio::test]
    async fn a_deletion_that_was_perhaps_written_is_put_right() {
        let (keeper, standing) = leader().await;
        let claim = keeper.claim("a").unwrap();
        put(&claim).await.unwrap();
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        let kept = keeper.kept(policy).unwrap();
        let leads = standing.send_replace(Standing::Leader { generation: 1 << 40 });
        claim.delete(&Caller::unix("ann"), &kept, false).await.unwrap_err();
        assert!(matches!(keeper.lock().stale.get("a"), Some(Change::Put(_))), "it is in force");
        standing.send_replace(leads);
        claim.delete(&Caller::unix("ann"), &kept, false).await.unwrap();
        assert!(keeper.lock().stale.is_empty());
    }

    #[tokio::test]
    async fn who_changes_a_policy_did_not_add_it() {
        let (keeper, _standing) = leader().await;
        let claim = keeper.claim("a").unwrap();
        put(&claim).await.unwrap();
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        let added = keeper.kept(policy.clone()).unwrap();
        assert_eq!((added.origin.owner.as_str(), &added.origin.changed_by), ("unix:ann", &None));
        let how = How { replaces: true, ..How::default() };
        let bob = Caller::unix("bob");
        claim.put(&bob, &policy, (how, Some(&added))).await.unwrap();
        let changed = keeper.kept(policy).unwrap().origin;
        let (by, at) = (changed.changed_by.clone(), changed.changed_at.clone());
        assert!(by.as_deref() == Some("unix:bob") && at > Some(String::new()), "{changed:?}");
        assert_eq!(Origin { changed_at: None, changed_by: None, ..changed }, added.origin);
        claim.take_back(Some(added.clone()), Draft::new(&bob, how.what(), "refused")).await;
        assert_eq!(keeper.origin("a"), Some(added.origin));
    }

    #[tokio::test]
    async fn where_monitors_were_found_is_kept_unless_the_policy_was_changed_since() {
        let etcd = FakeEtcd::start().await;
        let (keeper, _standing) = leader_at(&etcd).await;
        let claim = keeper.claim("a").unwrap();
        put(&claim).await.unwrap();
        let pinned = |monitor: &str| TapPolicy::new("a", monitor.parse().unwrap());
        let kept = || etcd.value("/t/policies/a").unwrap();
        let late = Arc::clone(&keeper).pin(pinned("0x1/3"), keeper.origin("a"));
        let (late, ()) = tokio::join!(tokio::spawn(late), async {
            tokio::task::yield_now().await;
            assert!(!kept().contains("0x1/3"), "whoever has the name is not disturbed");
            drop(claim);
        });
        late.unwrap();
        assert!(kept().contains("0x1/3"));
        let before = Some(Origin::now("bob"));
        Arc::clone(&keeper).pin(pinned("0x2/3"), before).await;
        assert!(kept().contains("0x1/3"));
    }

    #[tokio::test]
    async fn a_policy_of_the_configuration_is_kept_beside_one_that_was_added() {
        let etcd = FakeEtcd::start().await;
        let (keeper, _standing) = leader_at(&etcd).await;
        put(&keeper.claim("a").unwrap()).await.unwrap();
        let policy = TapPolicy::new("a", "0x1/3".parse().unwrap());
        let origin = Origin::now(CONFIGURATION);
        keeper.begin([KeptPolicy { policy: policy.clone(), origin: origin.clone() }]);
        Arc::clone(&keeper).pin(policy, Some(origin)).await;
        assert_eq!(etcd.keys("/t/policies/"), ["/t/policies/ a", "/t/policies/a"]);
    }

    #[tokio::test]
    async fn a_policy_of_nobody_can_be_deleted() {
        let (keeper, _standing) = leader().await;
        let claim = keeper.claim_last("a").await.unwrap();
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        keeper.kept(policy.clone()).unwrap_err();
        let kept = keeper.kept_to_delete(policy).unwrap();
        claim.delete(&Caller::unix("ann"), &kept, false).await.unwrap();
        assert_eq!(keeper.records(Wanted::After(0), 10).await.unwrap().total, 1);
    }

    async fn record(keeper: &Keeper) -> Result<(), StoreError> {
        keeper.record(Draft::new(&Caller::unix("bob"), What::AuditExport, ACCEPTED)).await
    }

    #[tokio::test]
    async fn who_does_not_lead_any_more_still_writes_records() {
        let (keeper, standing) = leader().await;
        let claim = keeper.claim("a").unwrap();
        standing.send_replace(Standing::Follower { leader: None, remembers: true });
        keeper.end();
        put(&claim).await.unwrap_err();
        let refused = Draft::new(&Caller::unix("ann"), What::PolicyAdd, "refused: it is over");
        claim.take_back(None, refused).await;
        record(&keeper).await.unwrap();
        assert!(keeper.lock().stale.is_empty(), "whoever leads now knows what there is to be");
        assert_eq!(keeper.records(Wanted::After(0), 10).await.unwrap().total, 1);
    }

    #[tokio::test]
    async fn a_change_of_a_term_before_is_neither_made_nor_taken_back() {
        let etcd = FakeEtcd::start().await;
        let (keeper, standing) = leader_at(&etcd).await;
        let late = keeper.claim("a").unwrap();
        put(&late).await.unwrap();
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        let kept = keeper.kept(policy).unwrap();
        // Others led meanwhile, and did not mind.
        keeper.end();
        etcd.delete("/t/leader");
        let generation = etcd.put("/t/leader", "{}").cast_unsigned();
        keeper.begin([kept.clone()]);
        standing.send_replace(Standing::Leader { generation });
        let refused = || Draft::new(&Caller::unix("ann"), What::PolicyAdd, "refused: too late");
        late.take_back(None, refused()).await;
        assert_eq!(etcd.keys("/t/policies/"), ["/t/policies/a"], "it is in force");
        assert_eq!(keeper.origin("a").unwrap(), kept.origin);
        put(&late).await.unwrap_err();
        late.delete(&Caller::unix("ann"), &kept, false).await.unwrap_err();
        assert!(keeper.lock().stale.is_empty());
        assert_eq!(keeper.records(Wanted::After(0), 10).await.unwrap().total, 1);
    }

    #[tokio::test]
    async fn a_deletion_comes_right_behind_the_change_before() {
        let (keeper, _standing) = leader().await;
        let claim = keeper.claim("a").unwrap();
        let waiting = tokio::spawn({
            let keeper = Arc::clone(&keeper);
            async move { keeper.claim_last("a").await.map(|_| ()) }
        });
        while !keeper.lock().awaited.contains("a") {
            tokio::task::yield_now().await;
        }
        keeper.claim_last("a").await.unwrap_err();
        keeper.claim("b").unwrap();
        drop(claim);
        keeper.claim("a").unwrap_err();
        waiting.await.unwrap().unwrap();
        keeper.claim("a").unwrap();
    }

    #[tokio::test]
    async fn who_was_deposed_without_knowing_it_writes_records() {
        let (keeper, standing) = leader().await;
        // As etcd sees it, this is the leader of no term.
        standing.send_replace(Standing::Leader { generation: 1 << 40 });
        let claim = keeper.claim("a").unwrap();
        put(&claim).await.unwrap_err();
        assert!(!keeper.lock().stale.is_empty());
        record(&keeper).await.unwrap();
        keeper.end();
        keeper.begin([]);
        put(&claim).await.unwrap_err();
        assert!(keeper.lock().stale.is_empty(), "that was of a term before");
    }
}
