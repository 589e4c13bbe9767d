//! Client of etcd by the JSON gateway that each member serves beside gRPC.
//!
//! It has one connection at a time, to one member; if that does not answer in time, or reports an
//! error, the next member is tried. So a member that is down or partitioned costs one timeout. A
//! request that timed out may have been executed: callers that change something must be able to
//! find out.
//!
//! <https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/>

mod config;
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

pub use config::{EtcdConfig, EtcdTls, ParseEtcdError};
pub(crate) use message::{Compare, KeyValue, Op, RangeResponse, TxnResponse};
use message::{Fault, GrantResponse, KeepAliveResponse, SignInResponse, range_request};
pub(crate) use way::{Misfit, Way};

/// A client. Each user has one of its own, so that none waits for another's timeout.
#[derive(Debug)]
pub(crate) struct Client {
    way: Way,
    /// Index of the current member.
    current: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
    signed_in: SignedIn,
    /// Timeout of a request.
    timeout: Duration,
}

/// Authentication of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SignedIn {
    NotYet,
    /// etcd has no authentication, as far as known, or we have no login.
    AsNobody,
    /// With this token.
    As(String),
}

impl Client {
    /// A client of these members.
    pub(crate) const fn new(way: Way, timeout: Duration) -> Self {
        Self { way, current: 0, connection: None, signed_in: SignedIn::NotYet, timeout }
    }

    /// Atomically executes `success` if all of `compare` hold, else `failure`.
    pub(crate) async fn txn(
        &mut self,
        compare: &[Compare],
        success: &[Op],
        failure: &[Op],
    ) -> Result<TxnResponse, EtcdError> {
        let body = json!({ "compare": compare, "success": success, "failure": failure });
        self.call("/v3/kv/txn", &body).await
    }

    /// Keys from `key` to `end`, or only `key`; at most `limit`.
    pub(crate) async fn range(
        &mut self,
        key: &str,
        end: Option<&str>,
        limit: usize,
    ) -> Result<RangeResponse, EtcdError> {
        self.call("/v3/kv/range", &range_request(key, end, limit, false)).await
    }

    /// The same in descending order.
    pub(crate) async fn range_backwards(
        &mut self,
        key: &str,
        end: &str,
        limit: usize,
    ) -> Result<RangeResponse, EtcdError> {
        self.call("/v3/kv/range", &range_request(key, Some(end), limit, true)).await
    }

    /// Grants a lease with this time to live; returns its id.
    pub(crate) async fn grant(&mut self, ttl: Duration) -> Result<i64, EtcdError> {
        let seconds = ttl.as_secs().max(1).to_string();
        let granted: GrantResponse =
            self.call("/v3/lease/grant", &json!({ "TTL": seconds, "ID": "0" })).await?;
        Ok(granted.id)
    }

    /// Renews a lease; `false` if it no longer exists.
    pub(crate) async fn keep_alive(&mut self, lease: i64) -> Result<bool, EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let renewed: KeepAliveResponse = self.call("/v3/lease/keepalive", &body).await?;
        Ok(renewed.result.ttl > 0)
    }

    /// Remaining whole seconds of a lease; zero for one that has run out, until etcd revokes it.
    pub(crate) async fn time_to_live(&mut self, lease: i64) -> Result<i64, EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let left: GrantResponse = self.call("/v3/lease/timetolive", &body).await?;
        Ok(left.ttl)
    }

    /// Revokes a lease, which deletes its keys.
    pub(crate) async fn revoke(&mut self, lease: i64) -> Result<(), EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let _: Value = self.call("/v3/lease/revoke", &body).await?;
        Ok(())
    }

    /// Sends a request to the current member. After a failure the next one is current.
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

    /// The current member.
    fn member(&self) -> String {
        self.way.members().get(self.current).cloned().unwrap_or_default()
    }

    /// Sends a request with authentication. If it was rejected, and so not executed, because the
    /// token is no longer valid, it is sent once more.
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
            // Without a token, etcd uses the identity in the certificate of its gateway.
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
                // It can be enabled later without restarting controllers.
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
        // A connection is only kept after a complete exchange; one that was interrupted is dropped.
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
        // The codes alone do not distinguish these.
        _ if text.contains(NO_NAME) || text.contains(OLD_TOKEN) => EtcdError::SignedOut(text),
        FAILED_PRECONDITION if text.contains(NO_USERS) => EtcdError::NoUsers(text),
        _ => EtcdError::Refused(text),
    })
}

fn unreachable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EtcdError {
    EtcdError::Unreachable(way::explain_error(&*error.into()))
}

/// Errors of etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EtcdError {
    /// No answer; the request may have been executed. Another member may answer.
    #[error("{0}")]
    Unreachable(String),
    /// The subject does not exist, such as an expired lease.
    #[error("{0}")]
    NotFound(String),
    /// Missing or expired authentication; not executed.
    #[error("{0}{SIGN_IN}")]
    SignedOut(String),
    /// Authentication is disabled.
    #[error("{0}")]
    NoUsers(String),
    /// Rejected.
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Refused(String),
}

/// Remedy for a rejection.
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

/// gRPC codes: <https://grpc.io/docs/guides/status-codes/>
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const FAILED_PRECONDITION: u32 = 9;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;
/// Texts of etcd for: no user given, users changed since the token was issued, permission denied,
/// and authentication disabled (`etcdserver/api/v3rpc/rpctypes/error.go`).
const NO_NAME: &str = "user name is empty";
const OLD_TOKEN: &str = "revision of auth store is old";
const DENIED: &str = "permission denied";
const NO_USERS: &str = "authentication is not enabled";
/// The text for an exhausted quota (`--quota-backend-bytes`).
const NO_SPACE: &str = "database space exceeded";
const SIGN_IN: &str =
    "; etcd requires authentication: --store-login names a file with USER:PASSWORD";
/// Maximum length of a response; far more than a page of policies.
const MAX_ANSWER_LEN: usize = 64 << 20;

#[cfg(test)]
mod tests;
