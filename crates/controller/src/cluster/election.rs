//! Standing for election, leading while the lease is renewed, following otherwise.
//!
//! A follower looks at the leader's key; when it is gone, it asks for a lease and writes the key
//! with it, unless somebody was faster. etcd ends a lease up to half a second after it has run out,
//! so a follower that has seen that it has ends it at once.
//!
//! A leader renews its lease four times in its life, on a thread of its own: while it takes a
//! fabric over, it may plan for longer than a lease lasts. It ends its term when etcd says that the
//! lease has ended, and when etcd has said nothing for so long that this is no election of etcd's
//! own, which takes about two seconds and keeps leases alive; and when its planner is stuck. A
//! follower that sees far more of the fabric ends it as well (`view`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::term::STUCK;
use super::view::View;
use super::{EtcdConfig, Keys, Leader, Term};
use crate::etcd::{Client, Compare, EtcdError, KeyValue, Op, Way};
use crate::hub::Blueprint;
use crate::keeper::Keeper;
use crate::news::Input;
use crate::store::{Kept, KeptPolicy, MAX_TOGETHER, StoreError};

/// Who the elector says is to lead.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// This controller, with these policies.
    Lead { generation: u64, kept: Kept },
    /// Another one, or nobody that is known.
    Follow { leader: Option<Leader> },
}

/// Stands for election as long as the controller runs.
#[derive(Debug)]
pub(crate) struct Elector {
    client: Client,
    keys: Keys,
    ttl: Duration,
    me: Leader,
    term: Term,
    to_hub: mpsc::Sender<Input>,
    /// The lease of the term, or of a campaign.
    lease: Option<i64>,
    /// Whom the hub was told to follow.
    told: Option<Leader>,
    /// How many switches this leader has told to have.
    told_count: Option<usize>,
    /// Whether etcd did not answer when it was asked last.
    is_cut_off: bool,
}

impl Elector {
    pub(crate) fn new(
        (config, way): (&EtcdConfig, Way),
        me: Leader,
        to_hub: mpsc::Sender<Input>,
    ) -> Self {
        Self {
            client: Client::new(way, config.ttl / 2),
            keys: Keys::new(&config.prefix),
            ttl: config.ttl,
            me,
            term: Term::new(config.ttl * 2 + ETCD_ELECTION),
            to_hub,
            lease: None,
            told: None,
            told_count: None,
            is_cut_off: false,
        }
    }

    /// How long the term of this controller goes on.
    pub(crate) fn term(&self) -> Term {
        self.term.clone()
    }

    /// Stands until `ended`, then makes room at once.
    pub(crate) async fn run(
        mut self,
        configured: (Arc<Keeper>, Blueprint),
        mut ended: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.stand(&configured) => {}
            // An error means that the sender is gone, which is an end as well.
            _ = ended.wait_for(|ended| *ended) => {}
        }
        self.resign().await;
    }

    async fn stand(&mut self, configured: &(Arc<Keeper>, Blueprint)) {
        loop {
            self.follow().await;
            let asked_at = Instant::now();
            match self.campaign().await {
                Ok(Some(generation)) => self.lead(configured, generation, asked_at).await,
                Ok(None) => {}
                Err(error) => _ = self.note::<()>(Err(error)),
            }
            // A lease is for one term.
            self.resign().await;
            // Who cannot lead leaves it to those who look meanwhile.
            tokio::time::sleep(POLL * 2).await;
        }
    }

    /// Follows until nobody leads, or this controller should.
    async fn follow(&mut self) {
        let (mut last_second, mut view) = (None, View::default());
        let (key, end) = (self.keys.leader(), self.keys.end_of_leader());
        loop {
            let found = self.client.range(&key, Some(&end), 2).await;
            let mut pause = POLL;
            match self.note(found) {
                Some(found) => match found.kvs.iter().find(|found| found.key == key) {
                    None => return,
                    Some(leader) => {
                        self.handle_leader(leader).await;
                        if self.takes_over(leader, &found.kvs, &mut view).await {
                            return;
                        }
                        self.look_at_lease(leader.lease, &mut last_second).await;
                        pause = if last_second.is_some() { CLOSE_POLL } else { POLL };
                    }
                },
                // A member that did not answer has cost time enough.
                None => tokio::task::yield_now().await,
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Ends the leader's lease when this controller sees far more of the fabric.
    async fn takes_over(&mut self, leader: &KeyValue, found: &[KeyValue], view: &mut View) -> bool {
        let theirs = found.iter().find(|found| found.key == self.keys.seen());
        let theirs = theirs.and_then(|seen| seen.value.parse().ok());
        let ours = self.term.switch_count();
        if !view.is_better(leader.lease, (theirs, ours), Instant::now()) {
            return false;
        }
        let theirs = theirs.unwrap_or_default();
        tracing::warn!(
            "{ours} switches are connected here, and only {theirs} to the leader: taking over"
        );
        self.client.revoke(leader.lease).await.is_ok()
    }

    /// Ends the leader's lease when it has run out: when a second has passed since less than that
    /// was left, all the time.
    async fn look_at_lease(&mut self, lease: i64, last_second: &mut Option<LastSecond>) {
        // Whoever does not answer is asked again; a lease that has ended took its key with it.
        let Ok(left) = self.client.time_to_live(lease).await else { return };
        let now = Instant::now();
        let since = |seen: &LastSecond| now.saturating_duration_since(seen.looked_at);
        // Who did not look for so long may have missed a renewal.
        let before = last_second.filter(|seen| seen.lease == lease && since(seen) < SECOND / 2);
        let began_at = before.map_or(now, |seen| seen.began_at);
        *last_second = (left <= 0).then_some(LastSecond { lease, began_at, looked_at: now });
        if left <= 0 && now.saturating_duration_since(began_at) > SECOND {
            let _ = self.client.revoke(lease).await;
        }
    }

    async fn handle_leader(&mut self, found: &KeyValue) {
        let leader = read_leader(found);
        if leader.id == self.me.id {
            // What was given up by us as unanswered was done.
            self.lease = Some(found.lease);
            self.resign().await;
        } else if self.told.as_ref() != Some(&leader) {
            self.told = Some(leader.clone());
            self.tell(Verdict::Follow { leader: Some(leader) }).await;
        }
    }

    /// Tries to become leader; returns the generation.
    async fn campaign(&mut self) -> Result<Option<u64>, EtcdError> {
        let lease = self.client.grant(self.ttl).await?;
        self.lease = Some(lease);
        let key = self.keys.leader();
        let value = serde_json::to_string(&self.me).unwrap_or_default();
        let nobody_leads = Compare::Created { key: key.clone(), revision: 0 };
        let put = Op::Put { key, value, lease: Some(lease) };
        let answer = self.client.txn(&[nobody_leads], &[put], &[]).await?;
        Ok(answer.succeeded.then(|| answer.revision().cast_unsigned()))
    }

    /// Leads as long as the lease can be renewed. That policies of the configuration are in force
    /// is written down before any switch hears of them.
    async fn lead(
        &mut self,
        configured: &(Arc<Keeper>, Blueprint),
        generation: u64,
        mut asked_at: Instant,
    ) {
        let kept = match self.read_policies(&mut asked_at).await {
            Ok(kept) => kept,
            Err(error) => {
                self.note::<()>(Err(error));
                return;
            }
        };
        if let Err(error) = self.record_configured(configured, &mut asked_at).await {
            return tracing::error!("cannot become leader: {error}");
        }
        (self.told, self.told_count) = (None, None);
        self.term.begin(asked_at);
        self.tell(Verdict::Lead { generation, kept }).await;
        let why = self.renew(generation).await;
        tracing::warn!("leadership of generation {generation} ends: {why}");
        self.term.end();
        self.tell(Verdict::Follow { leader: None }).await;
    }

    /// Renews the lease until that is over; says why.
    async fn renew(&mut self, generation: u64) -> String {
        let mut pause = self.ttl / RENEWALS;
        loop {
            tokio::time::sleep(pause).await;
            pause = self.ttl / RENEWALS;
            let asked_at = Instant::now();
            if !self.term.goes_on(asked_at) {
                return "it was given up, or etcd has not answered for too long".to_owned();
            }
            if self.term.is_stuck(asked_at) {
                return format!("this controller was busy with a single task for {STUCK:?}");
            }
            let Some(lease) = self.lease else { return "there is no lease".to_owned() };
            match self.client.keep_alive(lease).await {
                Ok(true) => {
                    self.note(Ok(()));
                    if !self.term.renew(asked_at) {
                        return "this controller was suspended for too long".to_owned();
                    }
                    self.tell_switch_count(generation, lease).await;
                }
                Ok(false) => return "the lease has ended".to_owned(),
                Err(error @ EtcdError::NotFound(_)) => return error.to_string(),
                Err(error) => {
                    // A member that did not answer has cost half of the lease: the next one is
                    // asked at once.
                    if matches!(error, EtcdError::Unreachable(_)) {
                        pause = POLL;
                    }
                    self.note::<()>(Err(error));
                }
            }
        }
    }

    /// Tells the others how many switches are connected here, when that has changed.
    async fn tell_switch_count(&mut self, generation: u64, lease: i64) {
        let count = self.term.switch_count();
        if self.told_count == Some(count) {
            return;
        }
        let ours = Compare::Created { key: self.keys.leader(), revision: generation.cast_signed() };
        let (key, value) = (self.keys.seen(), count.to_string());
        let put = Op::Put { key, value, lease: Some(lease) };
        // What could not be told is, when the lease is renewed next.
        let told = self.client.txn(&[ours], &[put], &[]).await;
        self.told_count = told.is_ok_and(|answer| answer.succeeded).then_some(count);
    }

    /// Writes that the policies of the configuration are about to be in force, some at a time.
    async fn record_configured(
        &mut self,
        (keeper, blueprint): &(Arc<Keeper>, Blueprint),
        asked_at: &mut Instant,
    ) -> Result<(), StoreError> {
        for some in blueprint.configured().chunks(MAX_TOGETHER) {
            keeper.record_configured(some).await?;
            self.keep_lease(asked_at).await.map_err(|error| {
                StoreError::new("too slow", &error).with_remedy("it will be tried again")
            })?;
        }
        Ok(())
    }

    /// All policies, as they are now that nobody else changes them.
    async fn read_policies(&mut self, asked_at: &mut Instant) -> Result<Kept, EtcdError> {
        let (mut start, end) = self.keys.policies();
        let prefix_len = start.len();
        let mut kept = Kept::default();
        loop {
            let page = self.client.range(&start, Some(&end), PAGE_COUNT).await?;
            let is_last = page.kvs.len() < PAGE_COUNT;
            for entry in page.kvs {
                match serde_json::from_str::<KeptPolicy>(&entry.value) {
                    Ok(policy) => kept.policies.push(policy),
                    Err(error) => {
                        let name = entry.key.get(prefix_len..).unwrap_or_default().to_owned();
                        kept.unreadable.push((name, error.to_string()));
                    }
                }
                start = format!("{}\0", entry.key);
            }
            if is_last {
                kept.policies.sort_by(|a, b| a.origin.created_at.cmp(&b.origin.created_at));
                return Ok(kept);
            }
            self.keep_lease(asked_at).await?;
        }
    }

    /// Renews the lease before the term begins, when it is time.
    async fn keep_lease(&mut self, asked_at: &mut Instant) -> Result<(), EtcdError> {
        if asked_at.elapsed() > self.ttl / RENEWALS
            && let Some(lease) = self.lease
        {
            let now = Instant::now();
            if !self.client.keep_alive(lease).await? {
                return Err(EtcdError::NotFound("the lease has run out".to_owned()));
            }
            *asked_at = now;
        }
        Ok(())
    }

    /// Ends the lease, if there is one, and the term with it.
    async fn resign(&mut self) {
        if let Some(lease) = self.lease.take() {
            // When etcd does not answer, the lease ends by itself.
            let _ = self.client.revoke(lease).await;
        }
    }

    async fn tell(&self, verdict: Verdict) {
        // Without a hub the controller stops.
        let _ = self.to_hub.send(Input::Verdict(verdict)).await;
    }

    /// Says so when etcd begins not to answer, and when it answers again.
    fn note<T>(&mut self, result: Result<T, EtcdError>) -> Option<T> {
        let was_cut_off = std::mem::replace(&mut self.is_cut_off, result.is_err());
        match &result {
            Err(error) if !was_cut_off => tracing::warn!("etcd: {error}; trying again"),
            Ok(_) if was_cut_off => tracing::info!("etcd answers again"),
            _ => {}
        }
        result.ok()
    }
}

/// What a follower knows of a lease that has less than a second left.
#[derive(Clone, Copy, Debug)]
struct LastSecond {
    lease: i64,
    /// When that was seen first.
    began_at: Instant,
    /// When that was seen last.
    looked_at: Instant,
}

/// Who leads, by the value of the key, and since when, by when it was made.
fn read_leader(found: &KeyValue) -> Leader {
    let unknown = || Leader { id: "unknown".to_owned(), rest: None, generation: 0 };
    let leader = serde_json::from_str(&found.value).unwrap_or_else(|_| unknown());
    Leader { generation: found.create_revision.cast_unsigned(), ..leader }
}

/// How often a follower looks who leads.
const POLL: Duration = Duration::from_millis(100);
/// The same while the leader has missed a renewal, as far as its lease says.
const CLOSE_POLL: Duration = Duration::from_millis(20);
/// What etcd counts the time of leases in.
const SECOND: Duration = Duration::from_secs(1);
/// Times that a lease is renewed in its life.
const RENEWALS: u32 = 4;
/// What an election among etcd's members takes at most, with its default timeouts, beyond the time
/// of our own lease.
const ETCD_ELECTION: Duration = Duration::from_secs(1);
/// Policies that are read at once.
const PAGE_COUNT: usize = 1000;

#[cfg(test)]
mod tests;
