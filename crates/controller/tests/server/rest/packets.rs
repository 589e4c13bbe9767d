//! Packets of a policy whose copies go to the controller.

use std::time::Duration;

use serde_json::{Value, json};
use tapswitch_openflow::*;
use tokio::net::TcpStream;

use super::client::{TokenFile, ask_as, ask_with, get, post, start, with_rest};
use super::live::Events;
use crate::running::Running;
use crate::script::Script;

const PACKETS: &str = "/api/v1/policies/web/packets";

#[tokio::test]
async fn who_comes_back_to_packets_gets_those_after_the_last_one() {
    let server = Running::start(with_rest()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let answer = post(&server, "/api/v1/policies", &watched()).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let mut stream = Events::open_at(&server, PACKETS, &[]).await;
    (0..3).for_each(|number| switch.say(copy(&switch, number)));
    assert_eq!(last_byte(&stream.next_of("packet").await), "00");
    let seen = stream.last_id().to_owned();
    assert_eq!(last_byte(&stream.next_of("packet").await), "01");
    let mut back = Events::open_at(&server, PACKETS, &[("last-event-id", &seen)]).await;
    assert_eq!(last_byte(&back.next_of("packet").await), "01", "what was seen comes again");
    assert_eq!(last_byte(&back.next_of("packet").await), "02");
    // An id of another run, or an empty one, skips no packet.
    for id in ["1-99", ""] {
        let mut other = Events::open_at(&server, PACKETS, &[("last-event-id", id)]).await;
        assert_eq!(last_byte(&other.next_of("packet").await), "00");
    }
    for (path, id) in [(PACKETS, "7"), (PACKETS, "x"), ("/api/v1/events", "7-1")] {
        let answer = ask_with(&server, ("GET", path), &[("last-event-id", id)], Vec::new()).await;
        assert_eq!(answer.refusal(), (400, "malformed".to_owned()), "{id}: {}", answer.text);
        assert!(answer.text.contains("omit it to start anew"), "{}", answer.text);
    }
}

#[tokio::test]
async fn packets_are_of_one_policy_not_of_the_next_one_of_its_name() {
    let server = Running::start(with_rest()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let change = async |method: &str, path: &str, policy: &Value| {
        let (headers, body) = ([("content-type", "application/json")], policy.to_string());
        let answer = ask_with(&server, (method, path), &headers, body.into_bytes()).await;
        assert!(answer.status < 300, "{}", answer.text);
    };
    let path = "/api/v1/policies/web";
    change("POST", "/api/v1/policies", &watched()).await;
    let mut deleted = Events::open_at(&server, PACKETS, &[]).await;
    switch.say(copy(&switch, 0));
    assert_eq!(last_byte(&deleted.next_of("packet").await), "00");
    change("DELETE", path, &json!({})).await;
    assert_eq!(deleted.next_of("end").await["code"], "policy-gone");
    assert_eq!(deleted.next().await, None, "the stream ends with its policy");

    change("POST", "/api/v1/policies", &watched()).await;
    let mut replaced = Events::open_at(&server, PACKETS, &[]).await;
    switch.say(copy(&switch, 1));
    assert_eq!(last_byte(&replaced.next_of("packet").await), "01", "not one of the first policy");
    let other = json!({"name": "web", "monitor": "controller", "dst-port": 81});
    change("PUT", path, &other).await;
    assert_eq!(replaced.next_of("end").await["code"], "policy-gone");
    assert_eq!(replaced.next().await, None, "what comes is of another policy");

    let mut last = Events::open_at(&server, PACKETS, &[]).await;
    switch.say(copy(&switch, 2));
    assert_eq!(last_byte(&last.next_of("packet").await), "02");
}

#[tokio::test]
async fn a_stream_without_packets_ends_with_its_token() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let _switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let bearer = format!("Bearer {}", tokens.operator);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = watched().to_string().into_bytes();
    ask_with(&server, ("POST", "/api/v1/policies"), &headers, body).await;
    let mut stream = Events::open_at(&server, PACKETS, &headers[..1]).await;
    std::fs::write(&tokens.path, "").unwrap();
    let end = tokio::time::timeout(Duration::from_secs(5), stream.next_of("end")).await.unwrap();
    assert_eq!(end["code"], "token-revoked");
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_stream_ends_with_its_session() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let token = json!({"token": tokens.viewer});
    let [cookie, other] = [(); 2].map(|()| post(&server, "/api/v1/session", &token));
    let (cookie, other) = (cookie.await.cookie(), other.await.cookie());
    let open = async |cookie: &str| Events::open(&server, &[("cookie", cookie)]).await;
    let (mut stream, mut goes_on) = (open(&cookie).await, open(&other).await);
    let headers = [("cookie", cookie.as_str())];
    let gone = ask_with(&server, ("DELETE", "/api/v1/session"), &headers, vec![]).await;
    assert_eq!(gone.status, 204);
    let end = tokio::time::timeout(Duration::from_secs(5), stream.next_of("end")).await.unwrap();
    assert_eq!(end["code"], "session-ended");
    assert_eq!(stream.next().await, None);
    goes_on.next_of("tick").await;
}

/// Without packets a client would assume that there is no traffic, and the log would record that it
/// watched.
#[tokio::test]
async fn packets_that_do_not_come_here_are_refused_and_nobody_has_seen_them() {
    let server = Running::start(with_rest()).await;
    let _switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let policy = json!({"name": "web", "monitor": ["0x1/3", "0x1/4"]});
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 201);
    for path in [PACKETS, &format!("{PACKETS}?download=pcapng")] {
        let answer = get(&server, path).await;
        assert_eq!(answer.refusal(), (409, "not-watched".to_owned()), "{}", answer.text);
    }
    assert_eq!(get(&server, "/api/v1/audit").await.json()["total"], 1, "its addition");
}

#[tokio::test]
async fn who_looks_at_packets_is_on_record() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let _switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let bearer = |token: &str| format!("Bearer {token}");
    let (operator, admin) = (bearer(&tokens.operator), bearer(&tokens.admin));
    let json = ("content-type", "application/json");
    let headers = [("authorization", operator.as_str()), json];
    let body = watched().to_string().into_bytes();
    let answer = ask_with(&server, ("POST", "/api/v1/policies"), &headers, body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    // Three times, as for an unstable stream.
    for _ in 0..3 {
        Events::open_at(&server, PACKETS, &headers[..1]).await;
    }
    Events::open_at(&server, PACKETS, &[("authorization", &admin)]).await;
    let file = format!("{PACKETS}?download=pcapng");
    for _ in 0..2 {
        let stream = TcpStream::connect(server.rest()).await.unwrap();
        let answer = start(stream, server.rest(), ("GET", &file), &headers[..1], vec![]).await;
        assert_eq!(answer.status(), 200);
    }
    let refused = ask_as(&server, &tokens.viewer, ("GET", PACKETS)).await;
    assert_eq!(refused.status, 403);
    let log = ask_as(&server, &tokens.admin, ("GET", "/api/v1/audit")).await.json();
    let records = log["items"].as_array().unwrap();
    let told: Vec<_> = records
        .iter()
        .rev()
        .map(|record| (record["what"].as_str().unwrap(), record["who"].as_str().unwrap()))
        .collect();
    let expected = [
        ("policy.add", "operator"),
        ("packets.watch", "operator"),
        ("packets.watch", "admin"),
        ("packets.download", "operator"),
        ("packets.download", "operator"),
        ("role.refused", "viewer"),
    ];
    assert_eq!(told, expected);
    let watch = &records[4];
    assert_eq!((&watch["policy"]["name"], &watch["from"]), (&json!("web"), &json!("127.0.0.1")));
    assert_eq!(watch["result"], "accepted");
}

/// A policy that cannot work is refused at once.
#[tokio::test]
async fn what_nobody_can_copy_is_refused_by_one_record() {
    let server = Running::start(with_rest()).await;
    let answer = post(&server, "/api/v1/policies", &watched()).await;
    assert_eq!(answer.refusal(), (422, "unknown-switch".to_owned()), "{}", answer.text);
    assert!(answer.text.contains("no switch is connected"), "{}", answer.text);
    let records = get(&server, "/api/v1/audit").await.json();
    let result = records["items"][0]["result"].as_str().unwrap();
    assert!(records["total"] == 1 && result.starts_with("refused: "), "{records}");
}

fn watched() -> Value {
    json!({"name": "web", "monitor": "controller", "dst-port": 80})
}

/// A copy of a packet that ends with this byte.
fn copy(switch: &Script, number: u8) -> Body {
    let mut data = [[2; 6], [4; 6]].concat();
    data.extend([0x88, 0xb5, number]);
    Body::PacketIn(PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 15,
        reason: PacketInReason::ACTION,
        table_id: TableId(1),
        cookie: switch.tap_cookie(),
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        data,
    })
}

fn last_byte(packet: &Value) -> String {
    let hex = packet["bytes_hex"].as_str().unwrap();
    hex[hex.len() - 2..].to_owned()
}
