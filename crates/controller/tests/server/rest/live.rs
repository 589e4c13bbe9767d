//! Event streams.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tapswitch_controller::{Config, RestConfig};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use super::client::{TokenFile, ask_as, get, post, start, with_rest};
use crate::running::{Running, until};
use crate::script::Script;

/// An open event stream.
pub(super) struct Events {
    body: Incoming,
    text: String,
    last_id: String,
}

impl Events {
    pub(super) async fn open(server: &Running, headers: &[(&str, &str)]) -> Self {
        Self::open_at(server, "/api/v1/events", headers).await
    }

    /// Opens another stream than that of all events.
    pub(super) async fn open_at(server: &Running, path: &str, headers: &[(&str, &str)]) -> Self {
        let stream = tokio::net::TcpStream::connect(server.rest()).await.unwrap();
        let response = start(stream, server.rest(), ("GET", path), headers, vec![]).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new(), last_id: String::new() }
    }

    /// Id of the last event that had one.
    pub(super) fn last_id(&self) -> &str {
        &self.last_id
    }

    /// The next event: its name and its data. `None` at the end.
    pub(super) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let id = event.lines().find_map(|line| line.strip_prefix("id: "));
                self.last_id = id.unwrap_or(&self.last_id).to_owned();
                let event = parse(event);
                self.text = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let frame = tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await;
            let bytes = frame.expect("no event came")?.ok()?.into_data().ok()?;
            self.text += std::str::from_utf8(&bytes).unwrap();
        }
    }

    /// The next event of this name.
    pub(super) async fn next_of(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().await.expect("the stream ended");
            if name == wanted {
                return data;
            }
        }
    }
}

fn parse(text: &str) -> Option<(String, Value)> {
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Some((field("event")?.to_owned(), serde_json::from_str(field("data")?).unwrap()))
}

#[tokio::test]
async fn what_happens_is_told_as_it_happens() {
    let server = Running::start(with_rest()).await;
    let mut events = Events::open(&server, &[]).await;
    let switch = Script::connect(1, server.address).await;
    let data = events.next_of("switch").await;
    assert_eq!((&data["switch"], &data["is_connected"]), (&json!("0x1"), &json!(true)));
    post(&server, "/api/v1/policies", &json!({"name": "a", "monitor": "3"})).await;
    assert_eq!(events.next_of("audit").await["record"]["policy"]["name"], "a");
    let data = events.next_of("policy").await;
    assert_eq!((&data["name"], &data["state"]["is"]), (&json!("a"), &json!("active")));
    let tick = events.next_of("tick").await;
    assert_eq!((&tick["switches_connected"], &tick["policies"]), (&json!(1), &json!(1)));
    switch.disconnect().await;
    let data = events.next_of("switch").await;
    assert_eq!(data["is_connected"], false);
    let log = get(&server, "/api/v1/events/log").await.json();
    assert!(log["items"][0]["id"].as_u64() >= data["id"].as_u64());
}

#[tokio::test]
async fn who_comes_back_gets_what_it_missed_or_is_told_of_the_gap() {
    let server = Running::start(Config { max_events: 4, ..with_rest() }).await;
    let _one = Script::connect(1, server.address).await;
    let (name, seen) = Events::open(&server, &[]).await.next().await.unwrap();
    assert!(["switch", "tick"].contains(&name.as_str()));
    until(async || !log(&server).await.is_empty()).await;
    let first = log(&server).await[0]["id"].clone();
    let _two = Script::connect(2, server.address).await;
    let mut back = Events::open(&server, &[("last-event-id", &first.to_string())]).await;
    assert_eq!(back.next_of("switch").await["switch"], "0x2");

    for number in 3..9 {
        let switch = Script::connect(number, server.address).await;
        server.wait_for_ports(number).await;
        switch.disconnect().await;
    }
    let mut late = Events::open(&server, &[("last-event-id", &first.to_string())]).await;
    assert_eq!(late.next().await.unwrap().0, "reset");
    assert!(seen["id"].is_u64());
}

/// No event occurred between the start of a stream and the loss of its connection.
#[tokio::test]
async fn who_comes_back_before_anything_happened_misses_nothing() {
    let server = Running::start(with_rest()).await;
    let mut events = Events::open(&server, &[]).await;
    events.next_of("tick").await;
    let seen = events.last_id().to_owned();
    drop(events);
    let _switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let mut back = Events::open(&server, &[("last-event-id", &seen)]).await;
    assert_eq!(back.next_of("switch").await["switch"], "0x1");
    // A new client is told to read all lists, and can reconnect from there.
    let mut lost = Events::open(&server, &[("last-event-id", "1")]).await;
    assert_eq!(lost.next().await.unwrap().0, "reset");
    let seen = lost.last_id().to_owned();
    let mut back = Events::open(&server, &[("last-event-id", &seen)]).await;
    assert_eq!(back.next_of("switch").await["switch"], "0x1", "what was behind that");
    let mut fresh = Events::open(&server, &[("last-event-id", "")]).await;
    assert_ne!(fresh.next().await.unwrap().0, "reset");
}

async fn log(server: &Running) -> Vec<Value> {
    let page = get(server, "/api/v1/events/log").await.json();
    page["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn records_are_told_to_admins_alone() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let bearer = format!("Bearer {}", tokens.viewer);
    let mut events = Events::open(&server, &[("authorization", &bearer)]).await;
    ask_as(&server, "wrong", ("GET", "/api/v1/me")).await;
    let _switch = Script::connect(1, server.address).await;
    loop {
        match events.next().await.unwrap().0.as_str() {
            "tick" => {}
            other => break assert_eq!(other, "switch", "the record came before"),
        }
    }
    let kinds = |answer: super::client::Answer| {
        let page = answer.json();
        let items = page["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let log =
        async |token: &str| kinds(ask_as(&server, token, ("GET", "/api/v1/events/log")).await);
    assert_eq!(log(&tokens.viewer).await, ["switch"]);
    assert_eq!(log(&tokens.admin).await, ["switch", "audit"]);
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let bearer = format!("Bearer {}", tokens.viewer);
    let mut events = Events::open(&server, &[("authorization", &bearer)]).await;
    events.next_of("tick").await;
    std::fs::write(&tokens.path, "").unwrap();
    server.reloader.reload();
    while events.next().await.is_some() {}
}

#[tokio::test]
async fn a_stream_says_that_the_controller_stops() {
    let server = Running::start(with_rest()).await;
    let mut events = Events::open(&server, &[]).await;
    events.next_of("tick").await;
    server.stop().await;
    assert_eq!(events.next_of("end").await["code"], "stopped");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn who_does_not_read_loses_the_connection_and_costs_nobody_else() {
    let base = with_rest();
    let rest = base.rest.clone().unwrap();
    let rest = RestConfig { write_timeout: Duration::from_millis(200), ..rest };
    let server = Running::start(Config { rest: Some(rest), max_events: 64, ..base }).await;
    let mut other = Events::open(&server, &[]).await;
    // It sends a request and does not read the response.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    let mut deaf = socket.connect(server.rest()).await.unwrap();
    let request = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    deaf.write_all(request).await.unwrap();
    // Fills socket buffers sooner.
    let reason = "x".repeat(256);
    for number in 0.. {
        let policy = json!({"name": number.to_string(), "monitor": "9", "reason": reason});
        post(&server, "/api/v1/policies", &policy).await;
        other.next_of("audit").await;
        // A connection that is closed with unread data is reset, which a write detects.
        if deaf.write_all(b"\r\n").await.is_err() {
            break;
        }
        assert!(number < 100_000, "it is not cut off");
    }
    other.next_of("tick").await;
}
