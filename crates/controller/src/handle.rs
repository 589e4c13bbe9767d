//! Requests to the server.

use std::sync::Arc;
use std::time::Duration;

use tapswitch_control::{
    Expiry, HostReport, LinkReport, Monitors, PathReport, Plan, PolicyError, PolicyReport,
    SwitchDetails, SwitchReport, TapPolicy, UnixTime,
};
use tapswitch_openflow::DatapathId;
use tokio::sync::{mpsc, oneshot, watch};

use crate::audit::{self, Draft};
use crate::change::{Applied, How};
use crate::clock::unix_time;
use crate::cluster::{Access, ClusterReport, Leader, Standing, TermId};
use crate::hub::{Loads, PolicyChange, Request, Wish};
use crate::journal::Journal;
use crate::keeper::{Claim, Keeper, refused};
use crate::rehearsals::Rehearsals;
use crate::store::{KeptPolicy, Origin, Records, StoreError, Wanted};
use crate::{Caller, RequestError};

/// Sends requests to a running [`crate::Server`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    hub: mpsc::Sender<Request>,
    keeper: Arc<Keeper>,
    journal: Arc<Journal>,
    request_timeout: Duration,
    stats_timeout: Duration,
    standing: watch::Receiver<Standing>,
    /// Identity among other controllers, if there are any.
    me: Option<Leader>,
    rehearsals: Rehearsals,
}

impl Handle {
    pub(crate) fn new(
        hub: mpsc::Sender<Request>,
        (keeper, journal): (Arc<Keeper>, Arc<Journal>),
        (request_timeout, stats_timeout): (Duration, Duration),
        (standing, me): (watch::Receiver<Standing>, Option<Leader>),
        rehearsals: Rehearsals,
    ) -> Self {
        Self { hub, keeper, journal, request_timeout, stats_timeout, standing, me, rehearsals }
    }

    /// The role of this controller among those that share its store.
    pub fn cluster(&self) -> ClusterReport {
        self.standing.borrow().report(self.me.as_ref())
    }

    /// Whether this controller can serve such requests; else why not, and who can.
    pub(crate) fn check(&self, access: Access) -> Result<(), RequestError> {
        check(&self.standing.borrow(), access)
    }

    /// The current term.
    pub(crate) fn term(&self) -> TermId {
        self.standing.borrow().term()
    }

    /// Waits until the term has changed, or events are reported by another controller. An error
    /// means that the server is gone.
    pub(crate) fn ended(
        &self,
        term: TermId,
    ) -> impl Future<Output = Result<(), watch::error::RecvError>> + Send + use<> {
        let mut standing = self.standing.clone();
        let is_over = move |now: &Standing| now.term() != term || check(now, Access::Read).is_err();
        async move { standing.wait_for(is_over).await.map(drop) }
    }

    /// Adds a policy, like [`Self::apply_policy`].
    ///
    /// # Errors
    /// Why it is not in force.
    pub async fn add_policy(
        &self,
        caller: &Caller,
        policy: TapPolicy,
    ) -> Result<PolicyReport, RequestError> {
        Ok(self.apply_policy(caller, policy, How::default()).await?.report)
    }

    /// Adds or replaces a policy. Returns when it is stored and the switches have confirmed its
    /// rules. Dropping the future does not cancel the change.
    ///
    /// # Errors
    /// Why it is not in force. Except after a timeout of a switch, nothing has changed.
    pub async fn apply_policy(
        &self,
        caller: &Caller,
        policy: TapPolicy,
        how: How,
    ) -> Result<Applied, RequestError> {
        self.check(Access::Write)?;
        let (this, caller) = (self.clone(), caller.clone());
        let asked = Asked::new(policy.with_defaults_said(), unix_time());
        to_its_end(async move {
            match this.start_applying(&asked.kept, how).await {
                Ok((claimed, monitors)) => {
                    this.apply(&caller, claimed, asked.with_monitors(monitors), how).await
                }
                Err(error) => Err(this.refuse(&caller, how, &asked.kept, error).await),
            }
        })
        .await
    }

    /// Deletes a policy; with `by_force` even if frames would be misdirected. Returns its last
    /// counts once the switches have reported them. If the policy is being changed, it is deleted
    /// right afterwards. Dropping the future does not cancel the deletion.
    ///
    /// # Errors
    /// There is no such policy, the store cannot be written, frames would be misdirected, or a
    /// switch did not answer in time.
    pub async fn delete_policy(
        &self,
        caller: &Caller,
        name: &str,
        by_force: bool,
    ) -> Result<Applied, RequestError> {
        self.check(Access::Write)?;
        let (this, caller, asked) = (self.clone(), caller.clone(), name.to_owned());
        let deleting = async move {
            match this.start_deleting(&asked).await {
                Ok(started) => this.delete(&caller, started, by_force).await,
                Err(error) => Err(this.refuse_deletion(&caller, &asked, error).await),
            }
        };
        self.in_time(name.to_owned(), deleting).await
    }

    /// All policies in the order in which they were added, with current counters.
    ///
    /// # Errors
    /// The server has stopped.
    pub async fn policies(&self) -> Result<Vec<PolicyReport>, RequestError> {
        self.refresh().await?;
        self.known_policies().await
    }

    /// One policy with current counters.
    ///
    /// # Errors
    /// There is no such policy.
    pub async fn policy(&self, name: &str) -> Result<PolicyReport, RequestError> {
        self.refresh().await?;
        self.known_policy(name).await
    }

    /// Who added a policy, and when.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        self.keeper.origin(name)
    }

    /// The switches, connected or remembered.
    ///
    /// # Errors
    /// The server has stopped.
    pub async fn switches(&self) -> Result<Vec<SwitchReport>, RequestError> {
        self.ask(Request::Switches).await
    }

    /// The hosts of all switches.
    ///
    /// # Errors
    /// The server has stopped.
    pub async fn hosts(&self) -> Result<Vec<HostReport>, RequestError> {
        self.ask(Request::Hosts).await
    }

    /// Whether an unknown switch may be reported as such.
    ///
    /// # Errors
    /// It is expected, and has not reported its ports yet.
    pub(crate) async fn check_heard(&self, switch: DatapathId) -> Result<(), RequestError> {
        self.ask(Request::Awaited).await?.check(switch)
    }

    /// Details of a switch from its tables. `None` for an unknown switch.
    ///
    /// # Errors
    /// It did not report them in time.
    pub async fn switch_details(
        &self,
        switch: DatapathId,
    ) -> Result<Option<SwitchDetails>, RequestError> {
        let after = self.request_timeout;
        let asked = self.ask(|reply| Request::Details { switch, reply });
        let answer = tokio::time::timeout(after, asked).await;
        answer.unwrap_or(Err(RequestError::SwitchSilent { switch, after }))
    }

    /// Loads of all ports since the last call, without switches that did not answer in time.
    pub(crate) async fn loads(&self) -> Result<Option<Loads>, RequestError> {
        let answer = tokio::time::timeout(self.stats_timeout, self.ask(Request::Loads)).await;
        answer.ok().transpose()
    }

    /// Paths of a policy's copies.
    ///
    /// # Errors
    /// There is no such policy.
    pub async fn policy_paths(&self, name: &str) -> Result<Vec<PathReport>, RequestError> {
        let name = name.to_owned();
        self.ask(|reply| Request::Paths { name, reply }).await?
    }

    /// The links between switches.
    ///
    /// # Errors
    /// The server has stopped.
    pub async fn links(&self) -> Result<Vec<LinkReport>, RequestError> {
        self.ask(Request::Links).await
    }

    /// Plans the addition of a policy, with a proof. Nothing is changed.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub async fn plan_policy(&self, policy: TapPolicy) -> Result<Plan, RequestError> {
        self.plan(PolicyChange::Apply { policy: Box::new(policy), how: How::default() }).await
    }

    /// Plans the replacement of the policy with this name.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub async fn plan_replacement(&self, policy: TapPolicy) -> Result<Plan, RequestError> {
        self.check_changeable(&policy.name)?;
        let how = How { replaces: true, ..How::default() };
        self.plan(PolicyChange::Apply { policy: Box::new(policy), how }).await
    }

    /// Plans the deletion of a policy.
    ///
    /// # Errors
    /// There is no such policy.
    pub async fn plan_deletion(&self, name: &str) -> Result<Plan, RequestError> {
        self.check_changeable(name)?;
        self.plan(PolicyChange::Delete { name: name.to_owned(), by_force: false }).await
    }

    /// At most `max` audit records after record `after`, each a line of JSON.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn audit(&self, after: u64, max: usize) -> Result<Vec<String>, RequestError> {
        Ok(self.records(Wanted::After(after), max).await?.lines)
    }

    pub(crate) async fn records(&self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        self.keeper.records(wanted, max).await
    }

    /// Writes an audit record of something that has happened: now, or as soon as the store can be
    /// written.
    pub(crate) async fn record(&self, draft: Draft) {
        self.keeper.record_or_owe(draft).await;
    }

    /// Writes an audit record of something that must not happen without it.
    pub(crate) async fn try_record(&self, draft: Draft) -> Result<(), StoreError> {
        self.keeper.record(draft).await
    }

    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Policies with the counters read last.
    pub(crate) async fn known_policies(&self) -> Result<Vec<PolicyReport>, RequestError> {
        self.ask(Request::Policies).await
    }

    pub(crate) async fn known_policy(&self, name: &str) -> Result<PolicyReport, RequestError> {
        let name = name.to_owned();
        self.ask(|reply| Request::Policy { name, reply }).await?
    }

    /// Requests counters, and waits for them up to the timeout.
    pub(crate) async fn refresh(&self) -> Result<(), RequestError> {
        let came = self.ask(Request::Stats);
        match tokio::time::timeout(self.stats_timeout, came).await {
            Ok(result) => result,
            Err(_) => Ok(()),
        }
    }

    /// Fails if the change would be refused whatever a plan says.
    fn check_changeable(&self, name: &str) -> Result<(), RequestError> {
        self.check(Access::Write)?;
        self.keeper.check_changeable(name)
    }

    async fn plan(&self, change: PolicyChange) -> Result<Plan, RequestError> {
        self.check(Access::Write)?;
        let turn = self.rehearsals.turn().await?;
        self.ask(|reply| Request::Plan { change, turn, reply }).await?
    }

    async fn change(&self, change: PolicyChange, claim: &Claim) -> Result<Applied, RequestError> {
        let term = claim.term();
        self.ask(|reply| Request::Change(Wish { change, term, reply })).await?
    }

    /// Checks before anything is written. Returns the policy to be replaced, and the monitors as
    /// they are stored.
    async fn start_applying(
        &self,
        policy: &TapPolicy,
        how: How,
    ) -> Result<(Claimed, Monitors), RequestError> {
        policy.check()?;
        if let Some(at @ Expiry::At(time)) = policy.expires
            && time <= unix_time()
        {
            return Err(PolicyError::Past { at }.into());
        }
        let claim = self.keeper.claim(&policy.name)?;
        let before = match self.known_policy(&policy.name).await {
            Ok(old) if how.replaces => Some(self.keeper.kept(old.policy)?),
            Ok(_) => return Err(PolicyError::Duplicate { name: policy.name.clone() }.into()),
            Err(RequestError::Policy(PolicyError::Unknown { .. })) if !how.replaces => None,
            Err(error) => return Err(error),
        };
        let policy = Box::new(policy.clone());
        let monitors = self.ask(|reply| Request::Monitors { policy, reply }).await??;
        Ok(((claim, before), monitors))
    }

    async fn apply(
        &self,
        caller: &Caller,
        (claim, before): Claimed,
        Asked { policy, kept }: Asked,
        how: How,
    ) -> Result<Applied, RequestError> {
        claim.put(caller, &kept, (how, before.as_ref())).await?;
        let (this, caller, name) = (self.clone(), caller.clone(), policy.name.clone());
        let applying = async move {
            let change = PolicyChange::Apply { policy: Box::new(policy), how };
            let result = this.change(change, &claim).await;
            match &result {
                Ok(applied) => this.record_unproved(&caller, how.what(), (applied, &kept)).await,
                Err(RequestError::Stopped) => {}
                // It is stored, so the current leader puts it in force.
                Err(RequestError::NotLeader { .. } | RequestError::NoLeader) => {}
                Err(error) => {
                    let record = Draft::new(&caller, how.what(), refused(error)).about(&kept);
                    claim.take_back(before, record).await;
                }
            }
            result
        };
        self.in_time(name, applying).await
    }

    /// Checks before anything is written. Returns the policy to be deleted.
    async fn start_deleting(&self, name: &str) -> Result<(Claim, KeptPolicy), RequestError> {
        let claim = self.keeper.claim_last(name).await?;
        let policy = self.known_policy(name).await?.policy;
        Ok((claim, self.keeper.kept_to_delete(policy)?))
    }

    async fn delete(
        &self,
        caller: &Caller,
        (claim, kept): (Claim, KeptPolicy),
        by_force: bool,
    ) -> Result<Applied, RequestError> {
        let policy = kept.policy.clone();
        claim.delete(caller, &kept, by_force).await?;
        let name = policy.name.clone();
        let result = self.change(PolicyChange::Delete { name, by_force }, &claim).await;
        if let Ok(applied) = &result {
            self.record_unproved(caller, audit::What::PolicyDelete, (applied, &policy)).await;
        }
        if let Err(error @ RequestError::NotProved { .. }) = &result {
            let draft = Draft::new(caller, audit::What::PolicyDelete, refused(error));
            claim.take_back(Some(kept), draft.about(&policy)).await;
        }
        result
    }

    /// Records that a change was made without a complete proof, if so.
    async fn record_unproved(
        &self,
        caller: &Caller,
        what: audit::What,
        (applied, policy): (&Applied, &TapPolicy),
    ) {
        if let Some(reason) = &applied.verdict.unproved {
            let draft = Draft::new(caller, what, format!("applied, not fully proved: {reason}"));
            self.record(draft.about(policy)).await;
        }
    }

    /// Like [`Self::refuse`] for a deletion, possibly of a policy that does not exist.
    async fn refuse_deletion(
        &self,
        caller: &Caller,
        name: &str,
        error: RequestError,
    ) -> RequestError {
        let draft = Draft::new(caller, audit::What::PolicyDelete, refused(&error));
        let known = self.known_policy(name).await;
        let about = known.map(|report| draft.clone().about(&report.policy));
        self.record(about.unwrap_or(draft)).await;
        error
    }

    /// Records a refused change, and returns the error.
    async fn refuse(
        &self,
        caller: &Caller,
        how: How,
        policy: &TapPolicy,
        error: RequestError,
    ) -> RequestError {
        // A refused policy may have any length, and anyone may send many.
        let told = policy.clone().cut_to_limits();
        self.record(Draft::new(caller, how.what(), refused(&error)).about(&told)).await;
        error
    }

    /// Waits for a change up to the timeout. It continues after that: its result is in the store
    /// and the audit log, and nobody else changes the policy before.
    async fn in_time<T: Send + 'static>(
        &self,
        name: String,
        change: impl Future<Output = Result<T, RequestError>> + Send + 'static,
    ) -> Result<T, RequestError> {
        let after = self.request_timeout;
        let answer = tokio::time::timeout(after, to_its_end(change)).await;
        answer.unwrap_or(Err(RequestError::TimedOut { name, after }))
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, RequestError> {
        let (reply, answer) = oneshot::channel();
        let request = request(reply);
        let access = request.access();
        self.check(access)?;
        let sent = self.hub.send(request).await;
        sent.map_err(|_| RequestError::Stopped)?;
        // A reply is dropped when this controller steps down; it may lead again by now.
        let dropped = || match self.check(access) {
            Err(error) => error,
            Ok(()) if self.hub.is_closed() => RequestError::Stopped,
            Ok(()) => RequestError::NoLeader,
        };
        answer.await.map_err(|_| dropped())
    }
}

/// Why such access is not possible for a controller in this role.
fn check(standing: &Standing, access: Access) -> Result<(), RequestError> {
    match standing {
        Standing::Alone | Standing::Leader { .. } => Ok(()),
        Standing::Follower { leader: Some(leader), .. } => {
            Err(RequestError::NotLeader { leader: leader.clone() })
        }
        Standing::Follower { remembers: true, .. } if access == Access::Read => Ok(()),
        Standing::Follower { leader: None, .. } => Err(RequestError::NoLeader),
    }
}

/// A claimed name, and the policy that has it.
type Claimed = (Claim, Option<KeptPolicy>);

/// A policy to be put in force.
struct Asked {
    /// As requested: a duration is measured in monotonic time.
    policy: TapPolicy,
    /// As stored, with an absolute end: a duration must not start again when the controller
    /// restarts.
    kept: TapPolicy,
}

impl Asked {
    fn new(policy: TapPolicy, now: UnixTime) -> Self {
        let expires = policy.expires.map(|expiry| Expiry::At(expiry.time(now)));
        let kept = TapPolicy { expires, ..policy.clone() };
        Self { policy, kept }
    }

    /// The same with other monitors.
    fn with_monitors(self, monitor: Monitors) -> Self {
        let policy = TapPolicy { monitor: monitor.clone(), ..self.policy };
        Self { policy, kept: TapPolicy { monitor, ..self.kept } }
    }
}

/// Runs the work in a task of its own, so that a caller that goes away does not cancel it.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, RequestError>> + Send + 'static,
) -> Result<T, RequestError> {
    tokio::spawn(work).await.unwrap_or(Err(RequestError::Stopped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_kept_as_a_time_and_stays_a_span_until_then() {
        let plain = TapPolicy::new("a", "3".parse().unwrap());
        let policy = TapPolicy { expires: Some(Expiry::After(1800)), ..plain };
        let asked = Asked::new(policy, UnixTime(1_000_000));
        assert_eq!(asked.policy.expires, Some(Expiry::After(1800)));
        assert_eq!(asked.kept.expires, Some(Expiry::At(UnixTime(2_800_000))));
    }

    fn leader() -> Leader {
        Leader {
            id: "b".to_owned(),
            rest: Some("http://b:8653".to_owned()),
            openflow: None,
            generation: 7,
        }
    }

    #[test]
    fn a_follower_names_who_leads() {
        let follower = Standing::Follower { leader: Some(leader()), remembers: true };
        for access in [Access::Read, Access::Write] {
            let refusal = check(&follower, access).unwrap_err().to_string();
            assert!(refusal.contains("http://b:8653"), "{refusal}");
        }
        assert_eq!(follower.report(None).leader, Some(leader()));
    }

    #[test]
    fn who_led_last_can_be_asked_but_changes_nothing() {
        let cut_off = Standing::Follower { leader: None, remembers: true };
        assert_eq!(check(&cut_off, Access::Read), Ok(()));
        assert_eq!(check(&cut_off, Access::Write), Err(RequestError::NoLeader));
        let never = Standing::Follower { leader: None, remembers: false };
        assert_eq!(check(&never, Access::Read), Err(RequestError::NoLeader));
    }
}
