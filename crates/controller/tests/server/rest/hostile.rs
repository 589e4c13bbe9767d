//! Malformed requests: each gets a documented response, and never an internal error.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Map, Value, json};

use super::client::{ask_with, document, start, with_rest};
use crate::running::Running;
use crate::script::Script;

/// A request.
#[derive(Clone, Debug)]
struct Ask {
    /// The operation.
    operation: prop::sample::Index,
    /// Encoded path parameters.
    segments: [String; 2],
    query: Vec<(prop::sample::Index, String)>,
    kind: &'static str,
    body: Vec<u8>,
}

/// Problematic words, and some valid ones.
const WORDS: &[&str] = &[
    "",
    "a",
    "0x1",
    "1",
    "-1",
    "0",
    "true",
    "1e309",
    "18446744073709551616",
    "0xffffffffffffffffff",
    "..",
    "../../etc/passwd",
    "\u{0}",
    "\u{202e}\u{feff}",
    "' or 1=1 --",
    "{\"$ref\": \"#\"}",
    "tcp and (port 80 or",
    "((((((((((((((((((((((((((((((tcp",
    "not not not not not tcp",
    "tcp portrange 0-65535",
    "10.0.0.1/33",
    "lossless:0",
    "1/0",
    "9999999999d",
    "Mon-Mon 24:00-00:00",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(WORDS).prop_map(str::to_owned),
        2 => any::<String>(),
        1 => "[ -~]{0,40}",
        1 => (1..6000usize).prop_map(|len| "x".repeat(len)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((word(), inner), 0..6).prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// A policy with some unknown or invalid fields.
fn policy() -> impl Strategy<Value = Value> {
    const FIELDS: &[&str] = &[
        "name",
        "monitor",
        "filter",
        "src-mac",
        "dst-mac",
        "eth-type",
        "src-ip",
        "dst-ip",
        "ip-proto",
        "vlan",
        "src-port",
        "dst-port",
        "direction",
        "delivery",
        "snaplen",
        "sample",
        "priority",
        "expires",
        "schedule",
        "owner",
        "reason",
    ];
    vec((prop::sample::select(FIELDS), value()), 0..4).prop_map(|fields| {
        let mut policy = json!({"name": "a", "monitor": "3"});
        for (name, value) in fields {
            policy[name] = value;
        }
        policy
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |value: Value| value.to_string().into_bytes();
    prop_oneof![
        4 => policy().prop_map(bytes),
        2 => policy().prop_map(move |policy| bytes(json!({ "policy": policy }))),
        1 => word().prop_map(move |filter| bytes(json!({ "filter": filter }))),
        2 => value().prop_map(bytes),
        1 => vec(any::<u8>(), 0..200),
        1 => Just(b"[".repeat(60_000)),
    ]
}

/// A path segment; one variant is not UTF-8.
fn segment() -> impl Strategy<Value = String> {
    prop_oneof![9 => word().prop_map(|word| encoded(&word)), 1 => Just("%FF%00%2F".to_owned())]
}

fn ask() -> impl Strategy<Value = Ask> {
    let query = vec((any::<prop::sample::Index>(), word()), 0..4);
    let kind = prop_oneof![6 => Just(KINDS[0]), 1 => prop::sample::select(KINDS)];
    (any::<prop::sample::Index>(), [segment(), segment()], query, kind, body()).prop_map(
        |(operation, segments, query, kind, body)| Ask { operation, segments, query, kind, body },
    )
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Method and path of each operation.
fn operations() -> Vec<(String, String)> {
    let paths = document()["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, operations)| {
        let methods = operations.as_object().unwrap().keys();
        methods.map(move |method| (method.to_uppercase(), path.clone()))
    });
    all.collect()
}

/// Content types, the right one first.
const KINDS: &[&str] = &["application/json", "application/json; charset=utf-8", "text/plain", ""];
/// Parameter names.
const NAMES: &[&str] =
    &["limit", "cursor", "q", "switch", "table", "dry_run", "force", "max_nodes", "download", "x"];

fn path_of(ask: &Ask, template: &str) -> String {
    let mut segments = ask.segments.iter();
    let parts = template.split('/').map(|part| match part.starts_with('{') {
        true => segments.next().cloned().unwrap_or_default(),
        false => part.to_owned(),
    });
    let path = parts.collect::<Vec<_>>().join("/");
    let query = ask
        .query
        .iter()
        .map(|(name, value)| format!("{}={}", NAMES[name.index(NAMES.len())], encoded(value)));
    let query: Vec<_> = query.collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("/api/v1{path}{mark}{}", query.join("&"))
}

async fn put_up_with(server: &Running, ask: &Ask, operations: &[(String, String)]) -> u16 {
    let (method, template) = &operations[ask.operation.index(operations.len())];
    let path = path_of(ask, template);
    let headers = [("content-type", ask.kind)];
    let headers = if ask.kind.is_empty() { &[][..] } else { &headers[..] };
    // Streams do not end: only their heads are checked.
    if template.ends_with("/events") || template.ends_with("/packets") {
        let stream = tokio::net::TcpStream::connect(server.rest()).await.unwrap();
        let request = (method.as_str(), path.as_str());
        let response = start(stream, server.rest(), request, headers, Vec::new()).await;
        return response.status().as_u16();
    }
    let answer = ask_with(server, (method, &path), headers, ask.body.clone()).await;
    if answer.status >= 400 {
        answer.refusal();
    }
    answer.status
}

#[test]
fn whatever_is_asked_is_answered_as_the_document_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, _switch) = runtime.block_on(async {
        let server = Running::start(with_rest()).await;
        let switch = Script::connect(1, server.address).await;
        server.wait_for_ports(1).await;
        (server, switch)
    });
    let operations = operations();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let result = runner.run(&vec(ask(), 1..4), |asks| {
        for ask in asks {
            let status = runtime.block_on(put_up_with(&server, &ask, &operations));
            if status >= 500 {
                return Err(TestCaseError::fail(format!("{status}")));
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
