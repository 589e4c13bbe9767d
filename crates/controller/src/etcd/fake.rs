//! An in-memory fake of etcd's gateway for tests. It can lose responses, execute transactions late,
//! and be full. Leases do not expire.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A member that runs as long as the test's runtime.
#[derive(Clone, Debug)]
pub(crate) struct FakeEtcd {
    pub(crate) endpoint: String,
    state: Arc<Mutex<Data>>,
}

#[derive(Debug, Default)]
struct Data {
    revision: i64,
    keys: BTreeMap<String, Entry>,
    /// Number of next transactions executed without a response.
    unanswered: usize,
    /// The next transaction is executed late: before this request after it.
    delay: Option<usize>,
    /// A delayed transaction, and the number of requests to answer before it is executed.
    late: Option<(usize, Value)>,
    /// Transactions are rejected.
    is_full: bool,
    /// Writes by another client after the next unanswered transaction.
    then: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: String,
    created: i64,
    written: i64,
}

impl FakeEtcd {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(Data::default()));
        let router = Router::new()
            .route(
                "/v3/kv/range",
                post(async |State(data): State<Shared>, Json(ask)| {
                    let mut data = data.lock().unwrap();
                    data.execute_late();
                    Json(data.range(&ask))
                }),
            )
            .route("/v3/kv/txn", post(txn))
            .route("/v3/lease/grant", post(async || Json(json!({ "ID": "7", "TTL": "2" }))))
            .route("/v3/lease/keepalive", post(async || Json(json!({ "result": { "TTL": "2" } }))))
            .route("/v3/lease/revoke", post(async || Json(json!({}))))
            .with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { endpoint, state }
    }

    /// Writes a key; returns the revision.
    pub(crate) fn put(&self, key: &str, value: &str) -> i64 {
        let mut data = self.state.lock().unwrap();
        data.revision += 1;
        data.put(key.to_owned(), value.to_owned());
        data.revision
    }

    pub(crate) fn delete(&self, key: &str) {
        let mut data = self.state.lock().unwrap();
        data.revision += 1;
        data.keys.remove(key);
    }

    /// Sorted keys with this prefix.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let data = self.state.lock().unwrap();
        data.keys.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.state.lock().unwrap().keys.get(key).map(|entry| entry.value.clone())
    }

    /// Disables or enables writes.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.state.lock().unwrap().is_full = is_full;
    }

    /// The next transaction is executed without a response; then another client writes `then`.
    pub(crate) fn lose_answer(&self, then: Vec<(String, String)>) {
        let mut data = self.state.lock().unwrap();
        (data.unanswered, data.then) = (1, then);
    }

    /// The next transaction is not answered, and executed just before the request number `before`
    /// after it.
    pub(crate) fn delay(&self, before: usize) {
        self.state.lock().unwrap().delay = Some(before);
    }

    /// Whether a delayed transaction is still to be executed.
    pub(crate) fn is_late(&self) -> bool {
        self.state.lock().unwrap().late.is_some()
    }
}

type Shared = Arc<Mutex<Data>>;

async fn txn(State(data): State<Shared>, Json(ask): Json<Value>) -> (StatusCode, Json<Value>) {
    let lists = ["compare", "success", "failure"].map(|list| ask[list].as_array().unwrap());
    if lists.into_iter().any(|list| list.len() > MAX_OPS) {
        let error =
            json!({ "message": "etcdserver: too many operations in txn request", "code": 3 });
        return (StatusCode::BAD_REQUEST, Json(error));
    }
    let mut data = data.lock().unwrap();
    if data.is_full {
        let error = json!({ "message": "etcdserver: mvcc: database space exceeded", "code": 8 });
        return (StatusCode::TOO_MANY_REQUESTS, Json(error));
    }
    data.execute_late();
    if let Some(before) = data.delay.take() {
        data.late = Some((before, ask));
        return timed_out();
    }
    let answer = data.txn(&ask);
    if data.unanswered == 0 || answer["succeeded"] == false {
        return (StatusCode::OK, Json(answer));
    }
    data.unanswered -= 1;
    for (key, value) in std::mem::take(&mut data.then) {
        data.revision += 1;
        data.put(key, value);
    }
    timed_out()
}

fn timed_out() -> (StatusCode, Json<Value>) {
    let error = json!({ "message": "etcdserver: request timed out", "code": 14 });
    (StatusCode::SERVICE_UNAVAILABLE, Json(error))
}

impl Data {
    /// There is another request: a delayed transaction may be due.
    fn execute_late(&mut self) {
        let Some((before, ask)) = self.late.take() else { return };
        match before {
            0 | 1 => _ = self.txn(&ask),
            before => self.late = Some((before - 1, ask)),
        }
    }

    fn txn(&mut self, ask: &Value) -> Value {
        let holds = ask["compare"].as_array().unwrap().iter().all(|compare| self.holds(compare));
        let ops = ask[if holds { "success" } else { "failure" }].as_array().unwrap();
        if ops.iter().any(|op| op.get("request_range").is_none()) {
            self.revision += 1;
        }
        let responses: Vec<_> = ops.iter().map(|op| self.carry_out(op)).collect();
        let header = json!({ "revision": self.revision.to_string() });
        json!({ "header": header, "succeeded": holds, "responses": responses })
    }

    fn holds(&self, compare: &Value) -> bool {
        let entry = self.keys.get(&text(&compare["key"]));
        let (actual, wanted) = match compare["target"].as_str().unwrap() {
            "CREATE" => (entry.map(|entry| entry.created), &compare["create_revision"]),
            _ => (entry.map(|entry| entry.written), &compare["mod_revision"]),
        };
        actual.unwrap_or_default().to_string() == wanted.as_str().unwrap()
    }

    fn carry_out(&mut self, op: &Value) -> Value {
        if let Some(put) = op.get("request_put") {
            self.put(text(&put["key"]), text(&put["value"]));
        }
        if let Some(delete) = op.get("request_delete_range") {
            self.keys.remove(&text(&delete["key"]));
        }
        let found = op.get("request_range").map(|ask| self.range(ask));
        json!({ "response_range": found.unwrap_or_else(|| json!({})) })
    }

    fn put(&mut self, key: String, value: String) {
        let revision = self.revision;
        let entry = self.keys.entry(key).or_insert_with(|| Entry {
            value: String::new(),
            created: revision,
            written: revision,
        });
        (entry.value, entry.written) = (value, revision);
    }

    fn range(&self, ask: &Value) -> Value {
        let start = text(&ask["key"]);
        let end = ask.get("range_end").map_or_else(|| format!("{start}\0"), text);
        let limit = ask["limit"].as_str().map_or(usize::MAX, |limit| limit.parse().unwrap());
        let mut found: Vec<_> = self.keys.range(start..end).collect();
        let count = found.len().to_string();
        if ask["sort_order"] == "DESCEND" {
            found.reverse();
        }
        let kvs = found.into_iter().take(limit).map(|(key, entry)| {
            json!({
                "key": STANDARD.encode(key),
                "value": STANDARD.encode(&entry.value),
                "create_revision": entry.created.to_string(),
                "mod_revision": entry.written.to_string(),
            })
        });
        json!({ "kvs": kvs.collect::<Vec<_>>(), "count": count })
    }
}

fn text(value: &Value) -> String {
    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
}

/// Maximum operations of each kind in a transaction, etcd's default (`--max-txn-ops`).
const MAX_OPS: usize = 128;
