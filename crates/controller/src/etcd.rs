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

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpStream;

pub(crate) use message::{Compare, KeyValue, Op, RangeResponse, TxnResponse};
use message::{Fault, GrantResponse, KeepAliveResponse, range_request};

/// Asks etcd. Each user has one of their own, so that nobody waits for another's timeout.
#[derive(Debug)]
pub(crate) struct Client {
    endpoints: Arc<[String]>,
    /// The member that is asked.
    current: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// How long a member may take to answer.
    timeout: Duration,
}

impl Client {
    /// Asks these members, each as `host:port`; there is one at least.
    pub(crate) fn new(endpoints: &[String], timeout: Duration) -> Self {
        Self { endpoints: endpoints.into(), current: 0, connection: None, timeout }
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
            let member = self.endpoints.get(self.current).cloned().unwrap_or_default();
            self.connection = None;
            self.current = (self.current + 1) % self.endpoints.len().max(1);
            error.of(&member)
        })
    }

    async fn send<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let member = self.endpoints.get(self.current).cloned().unwrap_or_default();
        // A connection that is given up in the middle is of no more use: it is put back whole.
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => connect(&member).await?,
        };
        connection.ready().await.map_err(unreachable)?;
        let request = Request::post(path)
            .header(HOST, &member)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(unreachable)?;
        let response = connection.send_request(request).await.map_err(unreachable)?;
        let status = response.status();
        let bytes = Limited::new(response.into_body(), MAX_ANSWER_LEN).collect().await;
        let bytes = bytes.map_err(unreachable)?.to_bytes();
        self.connection = Some(connection);
        read_answer(status, &bytes)
    }
}

async fn connect(member: &str) -> Result<SendRequest<Full<Bytes>>, EtcdError> {
    let stream = TcpStream::connect(member).await.map_err(unreachable)?;
    // Requests are small, and waited for.
    let _ = stream.set_nodelay(true);
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    // It ends with its sender; why it ended, the sender says.
    tokio::spawn(async move { _ = connection.await });
    Ok(sender)
}

fn read_answer<T: DeserializeOwned>(status: StatusCode, bytes: &[u8]) -> Result<T, EtcdError> {
    if status == StatusCode::OK {
        return serde_json::from_slice(bytes)
            .map_err(|error| EtcdError::Refused(format!("its answer is not understood: {error}")));
    }
    let fault: Fault = serde_json::from_slice(bytes).unwrap_or_default();
    let text = match fault.message.is_empty() {
        true => format!("HTTP status {status}"),
        false => fault.message,
    };
    Err(match fault.code {
        NOT_FOUND => EtcdError::NotFound(text),
        UNAVAILABLE | DEADLINE_EXCEEDED => EtcdError::Unreachable(text),
        _ => EtcdError::Refused(text),
    })
}

fn unreachable(error: impl std::fmt::Display) -> EtcdError {
    EtcdError::Unreachable(error.to_string())
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
    /// It will not do it.
    #[error("{0}")]
    Refused(String),
}

impl EtcdError {
    fn of(self, member: &str) -> Self {
        let named = |text: String| format!("{member}: {text}");
        match self {
            Self::Unreachable(text) => Self::Unreachable(named(text)),
            Self::NotFound(text) => Self::NotFound(named(text)),
            Self::Refused(text) => Self::Refused(named(text)),
        }
    }
}

/// Codes of gRPC: <https://grpc.io/docs/guides/status-codes/>
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const UNAVAILABLE: u32 = 14;
/// Far more than a page of policies has.
const MAX_ANSWER_LEN: usize = 64 << 20;

#[cfg(test)]
mod tests;
