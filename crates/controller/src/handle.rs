//! Asking the server.

use std::time::Duration;

use tapswitch_control::{HostReport, PolicyReport, SwitchReport, TapPolicy};
use tokio::sync::{mpsc, oneshot};

use crate::RequestError;
use crate::hub::{Input, Request};

/// Asks a running [`crate::Server`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    hub: mpsc::Sender<Input>,
    request_timeout: Duration,
    stats_timeout: Duration,
}

impl Handle {
    pub(crate) const fn new(
        hub: mpsc::Sender<Input>,
        request_timeout: Duration,
        stats_timeout: Duration,
    ) -> Self {
        Self { hub, request_timeout, stats_timeout }
    }

    /// Adds a policy. Returns when the switch confirmed its rules.
    ///
    /// # Errors
    /// Why it is not in force. Except when the switch did not answer in time, nothing of it stays.
    pub async fn add_policy(&self, policy: TapPolicy) -> Result<PolicyReport, RequestError> {
        let name = policy.name.clone();
        self.ask_in_time(name, |reply| Request::Add { policy: Box::new(policy), reply }).await?
    }

    /// Deletes a policy. Returns its last counts, when the switch told them.
    ///
    /// # Errors
    /// There is no such policy, or the switch did not answer in time.
    pub async fn delete_policy(&self, name: &str) -> Result<PolicyReport, RequestError> {
        let owned = name.to_owned();
        let name = owned.clone();
        self.ask_in_time(owned, |reply| Request::Delete { name, reply }).await?
    }

    /// All policies in the order in which they were added, with counters as they are now.
    ///
    /// # Errors
    /// The server has stopped.
    pub async fn policies(&self) -> Result<Vec<PolicyReport>, RequestError> {
        self.refresh().await?;
        self.ask(Request::Policies).await
    }

    /// One policy, with counters as they are now.
    ///
    /// # Errors
    /// There is no such policy.
    pub async fn policy(&self, name: &str) -> Result<PolicyReport, RequestError> {
        self.refresh().await?;
        let name = name.to_owned();
        self.ask(|reply| Request::Policy { name, reply }).await?
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

    /// Asks for counters, and waits for them as long as is worth it.
    async fn refresh(&self) -> Result<(), RequestError> {
        let came = self.ask(Request::Stats);
        match tokio::time::timeout(self.stats_timeout, came).await {
            Ok(result) => result,
            Err(_) => Ok(()),
        }
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
        let sent = self.hub.send(Input::Request(request(reply))).await;
        sent.map_err(|_| RequestError::Stopped)?;
        answer.await.map_err(|_| RequestError::Stopped)
    }
}
