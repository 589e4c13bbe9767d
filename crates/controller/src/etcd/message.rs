//! Messages of etcd's v3 API in the gateway's JSON form of protocol buffers: 64-bit numbers are
//! strings, keys and values are Base64, and zero or empty values are omitted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

/// A condition on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// It was created in this revision; zero: it does not exist.
    Created { key: String, revision: i64 },
    /// It was last modified in this revision; zero: it does not exist.
    Written { key: String, revision: i64 },
}

impl Serialize for Compare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (target, name, key, revision) = match self {
            Self::Created { key, revision } => ("CREATE", "create_revision", key, revision),
            Self::Written { key, revision } => ("MOD", "mod_revision", key, revision),
        };
        let compare = json!({
            "result": "EQUAL",
            "target": target,
            "key": encode(key),
            name: revision.to_string(),
        });
        compare.serialize(serializer)
    }
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Get { key: String },
    Put { key: String, value: String, lease: Option<i64> },
    Delete { key: String },
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let op = match self {
            Self::Get { key } => json!({ "request_range": { "key": encode(key) } }),
            Self::Put { key, value, lease } => {
                let lease = lease.unwrap_or_default().to_string();
                let put = json!({ "key": encode(key), "value": encode(value), "lease": lease });
                json!({ "request_put": put })
            }
            Self::Delete { key } => json!({ "request_delete_range": { "key": encode(key) } }),
        };
        op.serialize(serializer)
    }
}

pub(super) fn range_request(
    key: &str,
    end: Option<&str>,
    limit: usize,
    is_backwards: bool,
) -> Value {
    let mut request = json!({ "key": encode(key), "limit": limit.to_string() });
    if let (Some(end), Some(members)) = (end, request.as_object_mut()) {
        let order = if is_backwards { "DESCEND" } else { "ASCEND" };
        members.insert("range_end".to_owned(), encode(end).into());
        members.insert("sort_order".to_owned(), order.into());
    }
    request
}

fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

/// An existing key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValue {
    #[serde(deserialize_with = "text")]
    pub(crate) key: String,
    #[serde(deserialize_with = "text")]
    pub(crate) value: String,
    #[serde(deserialize_with = "number")]
    pub(crate) create_revision: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) mod_revision: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) lease: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RangeResponse {
    pub(crate) kvs: Vec<KeyValue>,
    /// Number of keys in the range, regardless of the limit.
    #[serde(deserialize_with = "number")]
    pub(crate) count: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TxnResponse {
    header: Header,
    /// Whether all conditions held.
    pub(crate) succeeded: bool,
    responses: Vec<OpResponse>,
}

impl TxnResponse {
    /// Revision of etcd after the transaction, which is the transaction's own if it wrote
    /// something.
    pub(crate) const fn revision(&self) -> i64 {
        self.header.revision
    }

    /// Result of operation `index`, if that was a `Get` that found something.
    pub(crate) fn found(&self, index: usize) -> Option<&KeyValue> {
        self.responses.get(index)?.response_range.kvs.first()
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    #[serde(deserialize_with = "number")]
    revision: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct OpResponse {
    response_range: RangeResponse,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GrantResponse {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(super) id: i64,
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(super) ttl: i64,
}

/// A response of a stream, which the gateway wraps in a member.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeepAliveResponse {
    pub(super) result: GrantResponse,
}

/// The token for later requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SignInResponse {
    pub(super) token: String,
}

/// An error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fault {
    pub(super) code: u32,
    pub(super) message: String,
}

/// A number, which is a string if it has 64 bits.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(digits) => digits.parse().map_err(de::Error::custom),
        value => {
            value.as_i64().ok_or_else(|| de::Error::custom(format!("{value} is not a number")))
        }
    }
}

/// A text in Base64.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let bytes = STANDARD.decode(String::deserialize(deserializer)?).map_err(de::Error::custom)?;
    String::from_utf8(bytes).map_err(de::Error::custom)
}
