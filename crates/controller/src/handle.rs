//! Asking the server.

use std::sync::Arc;
use std::time::Duration;

use tapswitch_control::{
    Expiry, HostReport, LinkReport, PathReport, Plan, PolicyError, PolicyReport, SwitchReport,
    TapPolicy,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::audit::{Draft, What};
use crate::clock::unix_time;
use crate::cluster::{Access, ClusterReport, Leader, Standing};
use crate::hub::{Input, Request};
use crate::journal::Journal;
use crate::keeper::{Claim, Keeper, Origin, refused};
use crate::reload::Reloader;
use crate::store::{Records, StoreError, Wanted};
use crate::{Caller, RequestError};

/// Asks a running [`crate::Server`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    hub: mpsc::Sender<Input>,
    keeper: Arc<Keeper>,
    journal: Arc<Journal>,
    request_timeout: Duration,
    stats_timeout: Duration,
    standing: watch::Receiver<Standing>,
    /// How the others know this controller, if there are such.
    me: Option<Leader>,
    files: Reloader,
}

impl Handle {
    pub(crate) fn new(
        hub: mpsc::Sender<Input>,
        (keeper, journal): (Arc<Keeper>, Arc<Journal>),
        (request_timeout, stats_timeout): (Duration, Duration),
        ((standing, me), files): ((watch::Receiver<Standing>, Option<Leader>), Reloader),
    ) -> Self {
        Self { hub, keeper, journal, request_timeout, stats_timeout, standing, me, files }
    }

    /// What this controller is to those that share its store.
    pub fn cluster(&self) -> ClusterReport {
        self.standing.borrow().report(self.me.as_ref())
    }

    /// Whether what is asked for is to be had here; else why not, and where.
    fn check(&self, access: Access) -> Result<(), RequestError> {
        self.standing.borrow().check(access)
    }

    /// Reads tokens and certificates again. Connections that are there go on.
    pub fn reload(&self) {
        self.files.reload();
    }

    /// Whether there are tokens or certificates to read again.
    pub const fn has_files(&self) -> bool {
        self.files.has_files()
    }

    /// Adds a policy. Returns when it is in the store and the switch confirmed its rules. Who
    /// stops waiting changes nothing: it goes on to its end.
    ///
    /// # Errors
    /// Why it is not in force. Except when the switch did not answer in time, nothing of it stays.
    pub async fn add_policy(
        &self,
        caller: &Caller,
        mut policy: TapPolicy,
    ) -> Result<PolicyReport, RequestError> {
        self.check(Access::Write)?;
        let (this, caller) = (self.clone(), caller.clone());
        // A span begins now, and not again when the controller starts again.
        policy.expires = policy.expires.map(|expiry| Expiry::At(expiry.time(unix_time())));
        to_its_end(async move {
            let result = this.start_adding(&policy).await;
            match result {
                Ok(claim) => this.add(&caller, &claim, policy).await,
                Err(error) => Err(this.refuse(&caller, What::PolicyAdd, &policy, error).await),
            }
        })
        .await
    }

    /// Deletes a policy. Returns its last counts, when the switch told them. Who stops waiting
    /// changes nothing: it goes on to its end.
    ///
    /// # Errors
    /// There is no such policy, the store cannot be written, or the switch did not answer in time.
    pub async fn delete_policy(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<PolicyReport, RequestError> {
        self.check(Access::Write)?;
        let (this, caller, name) = (self.clone(), caller.clone(), name.to_owned());
        to_its_end(async move {
            let claim = this.keeper.claim(&name)?;
            let policy = this.known_policy(&name).await?.policy;
            claim.delete(&caller, &policy).await?;
            let asked = name.clone();
            this.ask_in_time(name, |reply| Request::Delete { name: asked, reply }).await?
        })
        .await
    }

    /// All policies in the order in which they were added, with counters as they are now.
    ///
    /// # Errors
    /// The server has stopped.
    pub async fn policies(&self) -> Result<Vec<PolicyReport>, RequestError> {
        self.refresh().await?;
        self.known_policies().await
    }

    /// One policy, with counters as they are now.
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

    /// The ways that the copies of a policy take.
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

    /// What adding a policy would do, and whether it is proved that all frames go where they
    /// should. Nothing is changed.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub async fn plan_policy(&self, policy: TapPolicy) -> Result<Plan, RequestError> {
        let policy = Box::new(policy);
        Ok(self.ask(|reply| Request::Plan { policy, reply }).await??)
    }

    /// At most `max` records of the audit log behind record `after`, each a line of JSON.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn audit(&self, after: u64, max: usize) -> Result<Vec<String>, RequestError> {
        Ok(self.records(Wanted::After(after), max).await?.lines)
    }

    pub(crate) async fn records(&self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        self.keeper.records(wanted, max).await
    }

    /// Writes to the audit log. When that fails, the log of the process has it.
    pub(crate) async fn record(&self, draft: Draft) {
        // The store has said so itself.
        let _ = self.keeper.record(draft).await;
    }

    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// By the counters that came last.
    pub(crate) async fn known_policies(&self) -> Result<Vec<PolicyReport>, RequestError> {
        self.ask(Request::Policies).await
    }

    async fn known_policy(&self, name: &str) -> Result<PolicyReport, RequestError> {
        let name = name.to_owned();
        self.ask(|reply| Request::Policy { name, reply }).await?
    }

    /// Asks for counters, and waits for them as long as is worth it.
    pub(crate) async fn refresh(&self) -> Result<(), RequestError> {
        let came = self.ask(Request::Stats);
        match tokio::time::timeout(self.stats_timeout, came).await {
            Ok(result) => result,
            Err(_) => Ok(()),
        }
    }

    /// What can be said before anything is written.
    async fn start_adding(&self, policy: &TapPolicy) -> Result<Claim, RequestError> {
        policy.check()?;
        let claim = self.keeper.claim(&policy.name)?;
        match self.known_policy(&policy.name).await {
            Ok(_) => Err(PolicyError::Duplicate { name: policy.name.clone() }.into()),
            Err(RequestError::Policy(PolicyError::Unknown { .. })) => Ok(claim),
            Err(error) => Err(error),
        }
    }

    async fn add(
        &self,
        caller: &Caller,
        claim: &Claim,
        policy: TapPolicy,
    ) -> Result<PolicyReport, RequestError> {
        claim.put(caller, &policy).await?;
        let (name, asked) = (policy.name.clone(), Box::new(policy.clone()));
        let answer = self.ask_in_time(name, |reply| Request::Add { policy: asked, reply }).await;
        let result = answer.and_then(|result| result);
        match &result {
            Ok(_) | Err(RequestError::TimedOut { .. } | RequestError::Stopped) => {}
            // It is in the store, so whoever leads now puts it in force.
            Err(RequestError::NotLeader { .. } | RequestError::NoLeader) => {}
            Err(error) => claim.take_back(caller, &policy, error).await,
        }
        result
    }

    /// Writes down what somebody tried, and passes on why it was refused.
    async fn refuse(
        &self,
        caller: &Caller,
        what: What,
        policy: &TapPolicy,
        error: RequestError,
    ) -> RequestError {
        self.record(Draft::new(caller, what, refused(&error)).about(policy)).await;
        error
    }

    async fn ask_in_time<T>(
        &self,
        name: String,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, RequestError> {
        let after = self.request_timeout;
        let answer = tokio::time::timeout(after, self.ask(request)).await;
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
        let sent = self.hub.send(Input::Request(request)).await;
        sent.map_err(|_| RequestError::Stopped)?;
        // Who steps down while somebody waits, drops the answer.
        answer.await.map_err(|_| self.check(access).err().unwrap_or(RequestError::Stopped))
    }
}

/// Does the work in a task of its own, which whoever waits for it does not end by going away.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, RequestError>> + Send + 'static,
) -> Result<T, RequestError> {
    tokio::spawn(work).await.unwrap_or(Err(RequestError::Stopped))
}
