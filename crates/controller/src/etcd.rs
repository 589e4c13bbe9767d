//! A client of etcd, by the JSON gateway that each of its members serves beside gRPC.
//!
//! One connection at a time, to one member; when that does not answer in time, or says that it
//! cannot, the next one is asked. So a member that is gone, or cut off from the others, costs one
//! timeout. A request that was given up may have been carried out: who changes something must be
//! able to tell.
//!
//! <https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/>

#[cfg(test)]
pub(crate) mod fake;
mod message;
mod way;

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) use message::{Compare, KeyValue, Op, RangeResponse, TxnResponse};
use message::{Fault, GrantResponse, KeepAliveResponse, SignInResponse, range_request};
pub(crate) use way::Way;

/// Asks etcd. Each user has one of their own, so that nobody waits for another's timeout.
#[derive(Debug)]
pub(crate) struct Client {
    way: Way,
    /// The member that is asked.
    current: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
    signed_in: SignedIn,
    /// How long a member may take to answer.
    timeout: Duration,
}

/// Who a client is to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SignedIn {
    NotYet,
    /// It has no users, as far as is known, or we have no login.
    AsNobody,
    /// By this token.
    As(String),
}

impl Client {
    /// Asks these members.
    pub(crate) const fn new(way: Way, timeout: Duration) -> Self {
        Self { way, current: 0, connection: None, signed_in: SignedIn::NotYet, timeout }
    }

    /// Carries out `success` when all of `compare` hold, else `failure`, as one step.
    pub(crate) async fn txn(
        &mut self,
        compare: &[Compare],
        success: &[Op],
        failure: &[Op],
    ) -> Result<TxnResponse, EtcdError> {
        let body = json!({ "compare": compare, "success": success, "failure": failure });
        self.call("/v3/kv/txn", &body).await
    }

    /// The keys from `key` up to `end`, or `key` alone; at most `limit`.
    pub(crate) async fn range(
        &mut self,
        key: &str,
        end: Option<&str>,
        limit: usize,
    ) -> Result<RangeResponse, EtcdError> {
        self.call("/v3/kv/range", &range_request(key, end, limit, false)).await
    }

    /// The same from the last one on backwards.
    pub(crate) async fn range_backwards(
        &mut self,
        key: &str,
        end: &str,
        limit: usize,
    ) -> Result<RangeResponse, EtcdError> {
        self.call("/v3/kv/range", &range_request(key, Some(end), limit, true)).await
    }

    /// A lease that ends by itself unless it is renewed; its number.
    pub(crate) async fn grant(&mut self, ttl: Duration) -> Result<i64, EtcdError> {
        let seconds = ttl.as_secs().max(1).to_string();
        let granted: GrantResponse =
            self.call("/v3/lease/grant", &json!({ "TTL": seconds, "ID": "0" })).await?;
        Ok(granted.id)
    }

    /// Renews a lease; `false` when there is none of this number any more.
    pub(crate) async fn keep_alive(&mut self, lease: i64) -> Result<bool, EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let renewed: KeepAliveResponse = self.call("/v3/lease/keepalive", &body).await?;
        Ok(renewed.result.ttl > 0)
    }

    /// Whole seconds that are left of a lease. One that has run out has none, until etcd gets to
    /// ending it.
    pub(crate) async fn time_to_live(&mut self, lease: i64) -> Result<i64, EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let left: GrantResponse = self.call("/v3/lease/timetolive", &body).await?;
        Ok(left.ttl)
    }

    /// Ends a lease, and what was written with it.
    pub(crate) async fn revoke(&mut self, lease: i64) -> Result<(), EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let _: Value = self.call("/v3/lease/revoke", &body).await?;
        Ok(())
    }

    /// One request to the member that is asked at the moment. After a failure it is the next one.
    async fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let started = Instant::now();
        let answered = tokio::time::timeout(self.timeout, self.send(path, body)).await;
        let answer = answered.unwrap_or_else(|_| {
            let after = started.elapsed().as_millis();
            Err(EtcdError::Unreachable(format!("no answer within {after} ms")))
        });
        answer.map_err(|error| {
            let member = self.member();
            self.connection = None;
            self.current = (self.current + 1) % self.way.members().len().max(1);
            error.of(&member)
        })
    }

    /// The one that is asked at the moment.
    fn member(&self) -> String {
        self.way.members().get(self.current).cloned().unwrap_or_default()
    }

    /// Asks, as whom we are to be. What is refused since nobody knows us any more, and so not done,
    /// is asked once again.
    async fn send<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let was_signed_in = self.signed_in != SignedIn::NotYet;
        self.sign_in().await?;
        let answer = self.post(path, body).await;
        let is_unknown = match &answer {
            Err(EtcdError::SignedOut(_)) => true,
            // Whoever says no name has that of the certificate of etcd's gateway.
            Err(EtcdError::Refused(text)) => {
                self.signed_in == SignedIn::AsNobody && text.contains(DENIED)
            }
            _ => false,
        };
        if !(is_unknown && was_signed_in && self.way.has_login()) {
            return answer;
        }
        self.signed_in = SignedIn::NotYet;
        self.sign_in().await?;
        self.post(path, body).await
    }

    /// Gets a token, if there is a login.
    async fn sign_in(&mut self) -> Result<(), EtcdError> {
        if self.signed_in != SignedIn::NotYet {
            return Ok(());
        }
        self.signed_in = match self.way.login()? {
            None => SignedIn::AsNobody,
            Some(login) => match self.post("/v3/auth/authenticate", &login).await {
                Ok(SignInResponse { token }) => SignedIn::As(token),
                // It can be turned on later without a restart of controllers.
                Err(EtcdError::NoUsers(text)) => {
                    tracing::warn!("etcd: {text}: anyone who can reach it can write there");
                    SignedIn::AsNobody
                }
                Err(error) => return Err(error),
            },
        };
        Ok(())
    }

    async fn post<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let member = self.member();
        // A connection that is given up in the middle is of no more use: it is put back whole.
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => self.way.connect(&member).await?,
        };
        connection.ready().await.map_err(unreachable)?;
        let mut request =
            Request::post(path).header(HOST, &member).header(CONTENT_TYPE, "application/json");
        if let SignedIn::As(token) = &self.signed_in {
            request = request.header(AUTHORIZATION, token);
        }
        let request =
            request.body(Full::new(Bytes::from(body.to_string()))).map_err(unreachable)?;
        let response = connection.send_request(request).await;
        let response = response.map_err(|error| self.way.explain_lost(&error))?;
        let status = response.status();
        let bytes = Limited::new(response.into_body(), MAX_ANSWER_LEN).collect().await;
        let bytes = bytes.map_err(unreachable)?.to_bytes();
        self.connection = Some(connection);
        read_answer(status, &bytes)
    }
}

fn read_answer<T: DeserializeOwned>(status: StatusCode, bytes: &[u8]) -> Result<T, EtcdError> {
    if status == StatusCode::OK {
        return serde_json::from_slice(bytes)
            .map_err(|error| EtcdError::Refused(format!("cannot parse its answer: {error}")));
    }
    let fault: Fault = serde_json::from_slice(bytes).unwrap_or_default();
    let text = match fault.message.is_empty() {
        true => way::explain_status(status, bytes),
        false => fault.message,
    };
    Err(match fault.code {
        NOT_FOUND => EtcdError::NotFound(text),
        UNAVAILABLE | DEADLINE_EXCEEDED => EtcdError::Unreachable(text),
        UNAUTHENTICATED => EtcdError::SignedOut(text),
        // Codes alone do not tell these apart.
        _ if text.contains(NO_NAME) || text.contains(OLD_TOKEN) => EtcdError::SignedOut(text),
        FAILED_PRECONDITION if text.contains(NO_USERS) => EtcdError::NoUsers(text),
        _ => EtcdError::Refused(text),
    })
}

fn unreachable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EtcdError {
    EtcdError::Unreachable(way::explain_error(&*error.into()))
}

/// Why etcd did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EtcdError {
    /// No answer; perhaps it was done. Another member may answer.
    #[error("{0}")]
    Unreachable(String),
    /// What it is about is not there, such as a lease that has ended.
    #[error("{0}")]
    NotFound(String),
    /// It does not know who asks, or not any more; it was not done.
    #[error("{0}{SIGN_IN}")]
    SignedOut(String),
    /// It has no users that one could sign in as.
    #[error("{0}")]
    NoUsers(String),
    /// It will not do it.
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Refused(String),
}

/// What mends a refusal.
fn remedy(text: &str) -> &'static str {
    match text {
        _ if text.contains(DENIED) => {
            "; --store-login names a file with USER:PASSWORD of a user whose role may write below \
             the prefix (etcdctl role grant-permission ROLE readwrite --prefix=true PREFIX/)"
        }
        _ if text.contains(NO_SPACE) => {
            "; compact and defragment it and clear the alarm (etcdctl compaction REVISION; etcdctl \
             defrag; etcdctl alarm disarm), or raise its --quota-backend-bytes"
        }
        _ if text.contains("authentication failed") => "; check the file of --store-login",
        _ => "",
    }
}

impl EtcdError {
    fn of(self, member: &str) -> Self {
        let named = |text: String| format!("{member}: {text}");
        match self {
            Self::Unreachable(text) => Self::Unreachable(named(text)),
            Self::NotFound(text) => Self::NotFound(named(text)),
            Self::SignedOut(text) => Self::SignedOut(named(text)),
            Self::NoUsers(text) => Self::NoUsers(named(text)),
            Self::Refused(text) => Self::Refused(named(text)),
        }
    }
}

/// Codes of gRPC: <https://grpc.io/docs/guides/status-codes/>
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const FAILED_PRECONDITION: u32 = 9;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;
/// What etcd says when it wants to know who asks, when users have changed since it gave a token,
/// when a user may not, and when there are none (`etcdserver/api/v3rpc/rpctypes/error.go`).
const NO_NAME: &str = "user name is empty";
const OLD_TOKEN: &str = "revision of auth store is old";
const DENIED: &str = "permission denied";
const NO_USERS: &str = "authentication is not enabled";
/// The same when it has used up its quota (`--quota-backend-bytes`).
const NO_SPACE: &str = "database space exceeded";
const SIGN_IN: &str =
    "; etcd requires authentication: --store-login names a file with USER:PASSWORD";
/// Far more than a page of policies has.
const MAX_ANSWER_LEN: usize = 64 << 20;

#[cfg(test)]
mod tests;
