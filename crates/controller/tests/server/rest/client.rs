//! A strict client: a response with anything that the OpenAPI document does not describe fails the
//! test.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tapswitch_controller::{Config, NewToken, RestConfig, Role};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::running::{Running, config};

/// A response: status and content.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Status and code of a refusal.
    pub(crate) fn refusal(&self) -> (u16, String) {
        (self.status, self.json()["error"]["code"].as_str().unwrap().to_owned())
    }

    pub(crate) fn cookie(&self) -> String {
        let cookie = self.headers["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }
}

/// Configuration with REST on a port of its own.
pub(crate) fn with_rest() -> Config {
    let listen = "127.0.0.1:0".parse().unwrap();
    Config { rest: Some(RestConfig { listen, ..RestConfig::default() }), ..config() }
}

/// A file with a token for each role, and the tokens.
pub(crate) struct TokenFile {
    _directory: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) viewer: String,
    pub(crate) operator: String,
    pub(crate) admin: String,
}

impl TokenFile {
    pub(crate) fn make() -> Self {
        let roles = [Role::Viewer, Role::Operator, Role::Admin];
        let made = roles.map(|role| NewToken::make(&role.to_string(), role).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let text: String = made.iter().map(|token| format!("{}\n", token.entry)).collect();
        std::fs::write(&path, text).unwrap();
        chmod(&path, 0o600);
        let [viewer, operator, admin] = made.map(|token| token.secret);
        Self { _directory: directory, path, viewer, operator, admin }
    }

    /// Configuration that requires these tokens.
    pub(crate) fn config(&self) -> Config {
        let base = with_rest();
        let rest = base.rest.clone().unwrap();
        Config { rest: Some(RestConfig { tokens: Some(self.path.clone()), ..rest }), ..base }
    }
}

pub(crate) fn chmod(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Sends a request with these headers and this body.
pub(crate) async fn ask_with(
    server: &Running,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    let stream = TcpStream::connect(server.rest()).await.unwrap();
    let answer = exchange(stream, server.rest(), (method, path), headers, body).await;
    check(method, path, &answer);
    answer
}

/// Sends a request without a body.
pub(crate) async fn get(server: &Running, path: &str) -> Answer {
    ask_with(server, ("GET", path), &[], vec![]).await
}

/// Sends a request with a token.
pub(crate) async fn ask_as(server: &Running, token: &str, request: (&str, &str)) -> Answer {
    let bearer = format!("Bearer {token}");
    ask_with(server, request, &[("authorization", &bearer)], vec![]).await
}

/// Posts a document.
pub(crate) async fn post(server: &Running, path: &str, document: &Value) -> Answer {
    let headers = [(CONTENT_TYPE.as_str(), "application/json")];
    ask_with(server, ("POST", path), &headers, document.to_string().into_bytes()).await
}

/// One request on a connection of its own.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: SocketAddr,
    request: (&str, &str),
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    let response = start(stream, host, request, headers, body).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Answer { status: parts.status.as_u16(), headers: parts.headers, text }
}

/// The same up to the head of the response.
pub(crate) async fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: SocketAddr,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Response<Incoming> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    // It ends with the stream; if the server closes it, the wait for the response fails.
    tokio::spawn(async move { _ = connection.await });
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == HOST.as_str()) {
        request = request.header(HOST, host.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    sender.send_request(request).await.unwrap()
}

/// Validates a response against the document, which only describes the API.
fn check(method: &str, path: &str, answer: &Answer) {
    let path = path.split('?').next().unwrap();
    let Some(path) = path.strip_prefix("/api/v1") else { return };
    let Some(operation) = operation(method, path) else {
        assert!([404, 405].contains(&answer.status), "{method} {path} is not in the document");
        return;
    };
    let mut response = &operation["responses"][answer.status.to_string()];
    if let Some(name) = response["$ref"].as_str() {
        response = DOCUMENT.pointer(name.trim_start_matches('#')).unwrap();
    }
    let status = answer.status;
    assert!(response.is_object(), "{method} {path}: {status} is not told: {}", answer.text);
    let Some((kind, content)) = response["content"].as_object().and_then(|all| all.iter().next())
    else {
        assert_eq!(answer.text, "", "{method} {path}: {status} has no body");
        return;
    };
    let given = answer.headers["content-type"].to_str().unwrap();
    assert_eq!(given.split(';').next(), Some(kind.as_str()), "{method} {path}: {status}");
    if kind == "application/json" {
        validate(&content["schema"], &answer.json());
    }
}

/// The document's operation for a path, given literally or by its template.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let is_it = |template: &str| {
        let (mut wanted, mut given) = (template.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return true,
                (Some(wanted), Some(given)) if wanted.starts_with('{') || wanted == given => {}
                _ => return false,
            }
        }
    };
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let exact = paths.get(path).or_else(|| {
        let found = paths.iter().find(|(template, _)| is_it(template));
        found.map(|(_, operations)| operations)
    });
    exact?.get(method.to_lowercase())
}

/// Fails unless the value satisfies the schema and has only members named in it.
pub(crate) fn validate(schema: &Value, value: &Value) {
    let schema = json!({ "allOf": [schema], "components": DOCUMENT["components"] });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
}

/// The document, with all other members forbidden.
pub(crate) fn document() -> &'static Value {
    &DOCUMENT
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../src/rest/openapi.json");
    let mut document = serde_json::from_str(text).unwrap();
    close(&mut document);
    document
});

/// Clients must tolerate unknown members; here every member must be documented.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            if members.contains_key("properties") && members.contains_key("required") {
                members.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}
