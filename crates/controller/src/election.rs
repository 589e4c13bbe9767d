//! Election: campaigns, leads while the lease is renewed, else follows.
//!
//! A follower polls the leader's key; when it is gone, it requests a lease and writes the key with
//! it, unless another controller was faster. etcd revokes a lease up to half a second after its
//! expiry, so a follower that has observed the expiry revokes it at once.
//!
//! A leader renews its lease four times per lifetime, on a thread of its own, as taking over a
//! fabric may take longer than the lease lasts. It ends its term when etcd reports that the lease
//! has expired; when etcd has not answered for longer than an election among its own members takes,
//! which is about two seconds and keeps leases alive; and when its hub is stuck. A follower that
//! sees far more of the fabric ends the term as well (`view`).

mod term;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapswitch_openflow::DatapathId;
use tokio::sync::{mpsc, watch};

use crate::blueprint::Blueprint;
use crate::clock::unix_time;
use crate::cluster::{Keys, Leader, Listed};
use crate::etcd::{Client, Compare, EtcdConfig, EtcdError, KeyValue, Op, Way};
use crate::keeper::Keeper;
use crate::news::{Input, Verdict};
use crate::store::{
    Kept, KeptPolicy, MAX_TOGETHER, Met, StoreError, expected_of_terms, key_of, switch_of,
};
use term::STUCK;
pub(crate) use term::Term;
use view::View;
pub(crate) use view::sees_far_more;

/// Takes part in elections while the controller runs.
#[derive(Debug)]
pub(crate) struct Elector {
    client: Client,
    keys: Keys,
    ttl: Duration,
    me: Leader,
    term: Term,
    to_hub: mpsc::Sender<Input>,
    /// Lease of the term or campaign.
    lease: Option<i64>,
    /// The leader last reported to the hub.
    told: Option<Leader>,
    /// Switches that this leader has published.
    told_switches: Option<BTreeSet<DatapathId>>,
    /// Whether etcd did not answer the last request.
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
            told_switches: None,
            is_cut_off: false,
        }
    }

    /// The term of this controller.
    pub(crate) fn term(&self) -> Term {
        self.term.clone()
    }

    /// Runs until `ended`, then gives up the lease at once.
    pub(crate) async fn run(
        mut self,
        configured: (Arc<Keeper>, Blueprint),
        mut ended: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.stand(&configured) => {}
            // An error means that the sender is gone, so the server has stopped.
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
            // Each term has its own lease.
            self.resign().await;
            // A controller that cannot lead gives others a chance first.
            tokio::time::sleep(POLL * 2).await;
        }
    }

    /// Follows until there is no leader, or until this controller should lead.
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
                // A member that did not answer has cost enough time.
                None => tokio::task::yield_now().await,
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Revokes the leader's lease if this controller sees far more of the fabric.
    async fn takes_over(&mut self, leader: &KeyValue, found: &[KeyValue], view: &mut View) -> bool {
        let theirs = found.iter().find(|found| found.key == self.keys.seen());
        let theirs = theirs.and_then(|seen| seen.value.parse().ok());
        let ours = self.term.switch_count();
        if !view.is_better(leader.lease, (theirs, ours), Instant::now()) {
            return false;
        }
        let theirs = theirs.unwrap_or_default();
        tracing::warn!(
            "of the switches {ours} are connected here, only {theirs} to the leader: taking over"
        );
        self.client.revoke(leader.lease).await.is_ok()
    }

    /// Revokes the leader's lease if it has expired: when a second has passed in which all
    /// observations showed less than a second left.
    async fn look_at_lease(&mut self, lease: i64, last_second: &mut Option<LastSecond>) {
        // Without an answer it is retried; a lease that is gone took its key with it.
        let Ok(left) = self.client.time_to_live(lease).await else { return };
        let now = Instant::now();
        let since = |seen: &LastSecond| now.saturating_duration_since(seen.looked_at);
        // After a gap between observations a renewal may have been missed.
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
            // A request that timed out here was executed.
            self.lease = Some(found.lease);
            self.resign().await;
        } else if self.told.as_ref() != Some(&leader) {
            self.told = Some(leader.clone());
            self.tell(Verdict::Follow { leader: Some(leader) }).await;
        }
    }

    /// Campaigns; returns the generation on success.
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

    /// Leads while the lease is renewed. The configured policies are recorded before they are sent
    /// to any switch.
    async fn lead(
        &mut self,
        configured: &(Arc<Keeper>, Blueprint),
        generation: u64,
        mut asked_at: Instant,
    ) {
        let kept = match self.read_kept(generation, &mut asked_at).await {
            Ok(kept) => kept,
            Err(error) => {
                self.note::<()>(Err(error));
                return;
            }
        };
        if let Err(error) = self.record_configured(configured, &mut asked_at).await {
            return tracing::error!("cannot become leader: {error}");
        }
        (self.told, self.told_switches) = (None, None);
        self.term.begin(asked_at);
        self.tell(Verdict::Lead { generation, kept }).await;
        if let Some(lease) = self.lease {
            // Followers relay what is missing.
            self.tell_switches(generation, lease).await;
        }
        let why = self.renew(generation).await;
        tracing::warn!("leadership of generation {generation} ends: {why}");
        self.term.end();
        self.tell(Verdict::Follow { leader: None }).await;
    }

    /// Renews the lease until the term ends; returns why.
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
                    self.tell_switches(generation, lease).await;
                }
                Ok(false) => return "the lease has ended".to_owned(),
                Err(error @ EtcdError::NotFound(_)) => return error.to_string(),
                Err(error) => {
                    // A member that did not answer has cost half the lease: the next one is tried
                    // at once.
                    if matches!(error, EtcdError::Unreachable(_)) {
                        pause = POLL;
                    }
                    self.note::<()>(Err(error));
                }
            }
        }
    }

    /// Publishes the connected switches if they have changed, and their number.
    async fn tell_switches(&mut self, generation: u64, lease: i64) {
        let switches = self.term.switches();
        if self.told_switches.as_ref() == Some(&switches) {
            return;
        }
        let ours = Compare::Created { key: self.keys.leader(), revision: generation.cast_signed() };
        let put = |key, value| Op::Put { key, value, lease: Some(lease) };
        let count = put(self.keys.seen(), switches.len().to_string());
        let list = serde_json::to_string(&Listed::new(generation, &switches)).unwrap_or_default();
        let list = put(self.keys.listed(), list);
        // On failure it is published with the next renewal.
        let told = self.client.txn(&[ours], &[count, list], &[]).await;
        self.told_switches = told.is_ok_and(|answer| answer.succeeded).then_some(switches);
    }

    /// Records that the configured policies are about to be in force, in batches.
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

    /// Reads what only a leader changes.
    async fn read_kept(
        &mut self,
        generation: u64,
        asked_at: &mut Instant,
    ) -> Result<Kept, EtcdError> {
        let switches = self.read_switches(generation, asked_at).await?;
        Ok(Kept { switches, ..self.read_policies(asked_at).await? })
    }

    async fn read_policies(&mut self, asked_at: &mut Instant) -> Result<Kept, EtcdError> {
        let range = self.keys.policies();
        let prefix_len = range.0.len();
        let mut kept = Kept::default();
        for entry in self.read_range(range, asked_at).await? {
            match serde_json::from_str::<KeptPolicy>(&entry.value) {
                Ok(policy) => kept.policies.push(policy),
                Err(error) => {
                    let name = entry.key.get(prefix_len..).unwrap_or_default().to_owned();
                    kept.unreadable.push((name, error.to_string()));
                }
            }
        }
        kept.policies.sort_by(|a, b| a.origin.created_at.cmp(&b.origin.created_at));
        Ok(kept)
    }

    /// Reads the switches that are expected, and deletes the others.
    async fn read_switches(
        &mut self,
        generation: u64,
        asked_at: &mut Instant,
    ) -> Result<BTreeSet<DatapathId>, EtcdError> {
        let range = self.keys.switches();
        let prefix_len = range.0.len();
        let found = self.read_range(range, asked_at).await?;
        let met = found.iter().filter_map(|entry| {
            let switch = switch_of(entry.key.get(prefix_len..)?)?;
            Some((switch, serde_json::from_str(&entry.value).unwrap_or_default()))
        });
        let met: Vec<(_, Met)> = met.collect();
        let expected = expected_of_terms(&met, unix_time().0);
        let gone = met.iter().filter(|(switch, _)| !expected.contains(switch));
        let gone: Vec<_> = gone.map(|(switch, _)| self.keys.switch(&key_of(*switch))).collect();
        let ours = Compare::Created { key: self.keys.leader(), revision: generation.cast_signed() };
        for some in gone.chunks(MAX_TOGETHER) {
            let delete = |key: &String| Op::Delete { key: key.clone() };
            let deletions: Vec<_> = some.iter().map(delete).collect();
            self.client.txn(std::slice::from_ref(&ours), &deletions, &[]).await?;
            self.keep_lease(asked_at).await?;
        }
        Ok(expected)
    }

    /// Reads this range page by page; no one else can change it now.
    async fn read_range(
        &mut self,
        (mut start, end): (String, String),
        asked_at: &mut Instant,
    ) -> Result<Vec<KeyValue>, EtcdError> {
        let mut all = Vec::new();
        loop {
            let page = self.client.range(&start, Some(&end), PAGE_COUNT).await?;
            let is_last = page.kvs.len() < PAGE_COUNT;
            all.extend(page.kvs);
            match all.last().filter(|_| !is_last) {
                Some(KeyValue { key, .. }) => start = format!("{key}\0"),
                None => return Ok(all),
            }
            self.keep_lease(asked_at).await?;
        }
    }

    /// Renews the lease before the term begins, if it is time.
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

    /// Revokes the lease, if any, and ends the term.
    async fn resign(&mut self) {
        if let Some(lease) = self.lease.take() {
            // If etcd does not answer, the lease expires by itself.
            let _ = self.client.revoke(lease).await;
        }
    }

    async fn tell(&self, verdict: Verdict) {
        // Without a hub the controller stops.
        let _ = self.to_hub.send(Input::Verdict(verdict)).await;
    }

    /// Reports when etcd stops answering and when it answers again.
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

/// A follower's observation of a lease with less than a second left.
#[derive(Clone, Copy, Debug)]
struct LastSecond {
    lease: i64,
    /// First observation.
    began_at: Instant,
    /// Latest observation.
    looked_at: Instant,
}

/// The leader from the key's value, with the revision that created the key as generation.
fn read_leader(found: &KeyValue) -> Leader {
    let unknown = || Leader { id: "unknown".to_owned(), rest: None, openflow: None, generation: 0 };
    let leader = serde_json::from_str(&found.value).unwrap_or_else(|_| unknown());
    Leader { generation: found.create_revision.cast_unsigned(), ..leader }
}

/// Interval at which a follower polls the leader's key.
const POLL: Duration = Duration::from_millis(100);
/// The same while the leader has missed a renewal, according to its lease.
const CLOSE_POLL: Duration = Duration::from_millis(20);
/// Resolution of lease times in etcd.
const SECOND: Duration = Duration::from_secs(1);
/// Renewals per lifetime of a lease.
const RENEWALS: u32 = 4;
/// Maximum duration of an election among etcd's members with default timeouts, beyond our own
/// lease.
const ETCD_ELECTION: Duration = Duration::from_secs(1);
/// Entries read at once.
const PAGE_COUNT: usize = 1000;

#[cfg(test)]
mod tests;
