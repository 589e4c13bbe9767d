//! Requests and refusals.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{ask_with, get, post, with_rest};
use crate::running::{Running, until};
use crate::script::{Script, arp, ipv4};

async fn with_switch() -> (Running, Script) {
    let server = Running::start(with_rest()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    (server, switch)
}

async fn delete(server: &Running, path: &str) -> super::client::Answer {
    ask_with(server, ("DELETE", path), &[], vec![]).await
}

#[tokio::test]
async fn everything_that_can_be_looked_at_is_as_the_document_says() {
    let (server, switch) = with_switch().await;
    switch.say(arp(1, 2));
    until(async || !server.handle.hosts().await.unwrap().is_empty()).await;
    post(&server, "/api/v1/policies", &json!({"name": "a", "monitor": "3"})).await;
    for path in [
        "/openapi.json",
        "/me",
        "/config",
        "/cluster",
        "/topology",
        "/topology?max_nodes=1",
        "/switches",
        "/switches/0x1",
        "/hosts",
        "/hosts?switch=0x1&q=10.0.0.1",
        "/policies",
        "/policies/a",
        "/policies/a/series",
        "/events/log",
        "/audit",
        "/audit/export",
    ] {
        let answer = get(&server, &format!("/api/v1{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    let hosts = get(&server, "/api/v1/hosts?switch=0x1").await.json();
    assert_eq!(hosts["items"][0]["addresses"], json!(["10.0.0.1"]));
    assert_eq!(hosts["items"][0]["unproven_addresses"], Value::Null);
    assert_eq!(get(&server, "/api/v1/hosts?switch=0x2").await.json()["total"], 0);
    assert_eq!(get(&server, "/healthz").await.text, "ok\n");
    let metrics = get(&server, "/metrics").await.text;
    for line in [
        "tapswitch_controller_switch_connected{switch=\"0x1\"} 1",
        "tapswitch_policy_active{policy=\"a\"} 1",
        "tapswitch_controller_audit_records 2",
        "tapswitch_controller_leads 1",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn no_two_samples_are_of_the_same() {
    let (server, _switch) = with_switch().await;
    let policy = json!({"name": "a", "monitor": ["0x1/3", "0x1/p3", "4"]});
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 201);
    let metrics = get(&server, "/metrics").await.text;
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let mut keys: Vec<_> = samples.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "{metrics}");
}

/// Filters are checked on the only blocking thread, which is busy here.
#[test]
fn who_has_a_filter_looked_at_keeps_nobody_waiting() {
    // The control plane has another one.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(2).build().unwrap();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    runtime.spawn_blocking(move || ended.recv());
    runtime.block_on(async {
        let server = Running::start(with_rest()).await;
        let (filter, path) = (json!({"filter": "tcp port 80"}), "/api/v1/filters/check");
        let mut check = std::pin::pin!(post(&server, path, &filter));
        for _ in 0..20 {
            tokio::select! {
                biased;
                answer = &mut check => panic!("who looked at it? {}", answer.text),
                me = get(&server, "/api/v1/me") => assert_eq!(me.status, 200),
            }
        }
        end.send(()).unwrap();
        assert_eq!(check.await.json()["ok"], true);
    });
}

#[tokio::test]
async fn a_policy_comes_and_goes() {
    let (server, switch) = with_switch().await;
    let mut policy = json!({"name": "web of ours", "monitor": "p3", "dst-port": 80});
    let added = post(&server, "/api/v1/policies", &policy).await;
    policy["monitor"] = json!("0x1/p3");
    policy["direction"] = json!("both");
    policy["point"] = json!("ingress");
    assert_eq!(added.status, 201, "{}", added.text);
    assert_eq!(added.headers["location"], "/api/v1/policies/web%20of%20ours");
    let report = added.json();
    assert_eq!((&report["policy"], &report["state"]["is"]), (&policy, &json!("active")));
    assert_eq!(report["owner"], "local");
    assert_eq!(switch.tap_count(), 8, "TCP and UDP over IPv4 and IPv6, there and back");

    switch.state.lock().unwrap().counted = 7;
    let path = added.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(get(&server, &path).await.json()["matched"]["packets"], 56);
    let deleted = delete(&server, &path).await;
    assert_eq!((deleted.status, &deleted.json()["state"]["is"]), (200, &json!("deleted")));
    assert_eq!(switch.tap_count(), 0);
    assert_eq!(delete(&server, &path).await.refusal(), (404, "unknown-policy".to_owned()));
}

#[tokio::test]
async fn a_dry_run_tells_what_would_happen_and_does_nothing() {
    let (server, switch) = with_switch().await;
    let policy = json!({"name": "a", "monitor": "3"});
    let answer = post(&server, "/api/v1/policies?dry_run=true", &policy).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let plan = answer.json();
    assert_eq!(plan["proof"]["is_proved"], true, "{plan}");
    assert_eq!(plan["changes"][0]["switch"], "0x1");
    assert!(!plan["changes"][0]["add"].as_array().unwrap().is_empty());
    assert_eq!((switch.tap_count(), switch.state.lock().unwrap().groups.len()), (0, 0));
    assert_eq!(get(&server, "/api/v1/policies").await.json()["total"], 0);
    assert_eq!(get(&server, "/api/v1/audit").await.json()["total"], 0);
    let impossible = json!({"name": "a", "monitor": "9"});
    let answer = post(&server, "/api/v1/policies?dry_run=true", &impossible).await;
    assert_eq!(answer.refusal(), (422, "unknown-monitor".to_owned()));
}

#[tokio::test]
async fn what_is_wrong_has_a_status_a_code_and_a_field() {
    let (server, _switch) = with_switch().await;
    post(&server, "/api/v1/policies", &json!({"name": "a", "monitor": "3"})).await;
    let cases = [
        (json!({"name": "a", "monitor": "3"}), 409, "duplicate-policy", json!("name")),
        (json!({"name": "b", "monitor": "9"}), 422, "unknown-monitor", json!("monitor")),
        (json!({"name": "b", "monitor": "0x7/1"}), 422, "unknown-switch", json!("monitor")),
        (json!({"name": "b", "monitor": "3", "vlan": 4095}), 422, "vlan-range", json!("vlan")),
        (
            json!({"name": "b", "monitor": "3", "dst-port": "x"}),
            400,
            "malformed",
            json!("dst-port"),
        ),
        (json!({"name": "b"}), 400, "malformed", json!("monitor")),
        (json!({"name": "b", "monitor": "3", "colour": 1}), 400, "malformed", json!("colour")),
        (json!([]), 400, "malformed", Value::Null),
    ];
    for (policy, status, code, field) in cases {
        let answer = post(&server, "/api/v1/policies", &policy).await;
        assert_eq!(answer.refusal(), (status, code.to_owned()), "{policy}: {}", answer.text);
        assert_eq!(answer.json()["error"]["field"], field, "{policy}: {}", answer.text);
    }
    assert_eq!(get(&server, "/api/v1/policies").await.json()["total"], 1);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let (server, _switch) = with_switch().await;
    let refusal = async |path: &str| get(&server, path).await.refusal();
    assert_eq!(refusal("/api/v1/nothing").await, (404, "unknown-path".to_owned()));
    assert_eq!(refusal("/api/v1/switches/0x9").await, (404, "unknown-switch".to_owned()));
    assert_eq!(refusal("/api/v1/policies/%FF").await, (400, "malformed".to_owned()));
    for query in ["limit=0", "limit=1001", "limit=x", "colour=1"] {
        let path = format!("/api/v1/policies?{query}");
        assert_eq!(refusal(&path).await, (400, "malformed".to_owned()), "{query}");
    }
    assert_eq!(refusal("/api/v1/audit?cursor=x").await, (400, "malformed".to_owned()));
    let patch = ask_with(&server, ("PATCH", "/api/v1/policies"), &[], vec![]).await;
    assert_eq!(patch.refusal(), (405, "unknown-method".to_owned()));
    let text = [("content-type", "text/plain")];
    let form = ask_with(&server, ("POST", "/api/v1/policies"), &text, b"{}".to_vec()).await;
    assert_eq!(form.refusal(), (415, "not-json".to_owned()));
    let json = [("content-type", "application/json")];
    let large = vec![b' '; (64 << 10) + 1];
    let large = ask_with(&server, ("POST", "/api/v1/policies"), &json, large).await;
    assert_eq!(large.refusal(), (413, "too-large".to_owned()));
    let bytes = ask_with(&server, ("POST", "/api/v1/policies"), &json, vec![0xff; 9]).await;
    assert_eq!(bytes.refusal(), (400, "malformed".to_owned()));
}

#[tokio::test]
async fn who_says_that_a_body_is_too_large_need_not_send_it() {
    let (server, _switch) = with_switch().await;
    let mut stream = tokio::net::TcpStream::connect(server.rest()).await.unwrap();
    let head = "POST /api/v1/policies HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\
                Content-Type: application/json\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("too-large"), "{answer}");
}

/// Data after a document, such as a second one, would be lost.
#[tokio::test]
async fn a_body_is_one_document_and_an_object() {
    let (server, _switch) = with_switch().await;
    let json = [("content-type", "application/json")];
    let policy = r#"{"name": "a", "monitor": "3"}"#;
    let bodies = [("", " {}"), ("", " garbage"), ("", "]"), ("[", "]")];
    let bodies = bodies.map(|(before, behind)| format!("{before}{policy}{behind}"));
    for body in bodies.iter().map(String::as_str).chain(["[1]", "7", "\"a\"", "null"]) {
        for request in [("POST", "/api/v1/policies"), ("PUT", "/api/v1/policies/a")] {
            let answer = ask_with(&server, request, &json, body.into()).await;
            assert_eq!(answer.refusal(), (400, "malformed".to_owned()), "{body}: {}", answer.text);
            assert_eq!(answer.json()["error"]["field"], Value::Null, "{body}: {}", answer.text);
        }
    }
    for (path, body) in [
        ("/api/v1/filters/check", r#"{"filter": "tcp"} {}"#),
        ("/api/v1/session", r#"{"token": "a"} {}"#),
    ] {
        let answer = ask_with(&server, ("POST", path), &json, body.into()).await;
        assert_eq!(answer.refusal(), (400, "malformed".to_owned()), "{path}: {}", answer.text);
    }
    let whole = ask_with(
        &server,
        ("POST", "/api/v1/policies"),
        &json,
        b" {\"name\": \"a\", \"monitor\": \"3\"}\r\n".to_vec(),
    );
    assert_eq!(whole.await.status, 201);
}

#[tokio::test]
async fn what_is_out_of_range_is_said_in_words() {
    let (server, _switch) = with_switch().await;
    for (field, value, told) in [
        ("priority", json!(300), "a number from 0 to 255"),
        ("snaplen", json!(70_000), "a number from 0 to 65535"),
        ("priority", json!("high"), "a number from 0 to 255"),
        ("name", json!(7), "write it in quotes"),
    ] {
        let mut policy = json!({"name": "a", "monitor": "3"});
        policy[field] = value;
        let error = post(&server, "/api/v1/policies", &policy).await.json()["error"].clone();
        assert_eq!((&error["code"], &error["field"]), (&json!("malformed"), &json!(field)));
        assert!(error["message"].as_str().unwrap().contains(told), "{error}");
    }
}

/// An ignored filter would make all items look like the matching ones.
#[tokio::test]
async fn lists_refuse_what_they_cannot_be_asked_for() {
    let (server, switch) = with_switch().await;
    switch.say(arp(1, 2));
    until(async || !server.handle.hosts().await.unwrap().is_empty()).await;
    for (path, field) in [
        ("/policies?state=active,gone", json!("state")),
        ("/policies?state=", json!("state")),
        ("/policies?ledger=lost", json!("ledger")),
        ("/policies?has_problem=1", json!("has_problem")),
        ("/audit?switch=0x1", json!("switch")),
        ("/policies?switch=0x99", json!("switch")),
        ("/switches?switch=0x1", json!("switch")),
        ("/events/log?switch=0x1", json!("switch")),
        ("/switches/0x1/ports?switch=0x1", json!("switch")),
        ("/switches/0x1/rules?switch=0x1", json!("switch")),
        ("/switches/0x1/groups?switch=0x1", json!("switch")),
        ("/switches/0x1/rules?table=x", json!("table")),
        ("/policies?limit=x", json!("limit")),
        ("/hosts?switch=1", json!("switch")),
        ("/hosts?switch=0xzz", json!("switch")),
    ] {
        let answer = get(&server, &format!("/api/v1{path}")).await;
        assert_eq!(answer.refusal(), (400, "malformed".to_owned()), "{path}: {}", answer.text);
        assert_eq!(answer.json()["error"]["field"], field, "{path}: {}", answer.text);
    }
    for name in ["0x1", "0x0000000000000001", "0000000000000001", "0X1"] {
        let hosts = get(&server, &format!("/api/v1/hosts?switch={name}")).await.json();
        assert_eq!(hosts["total"], 1, "{name}");
    }
}

#[tokio::test]
async fn what_has_no_query_refuses_one_and_does_nothing() {
    let (server, _switch) = with_switch().await;
    post(&server, "/api/v1/policies", &json!({"name": "a", "monitor": "3"})).await;
    for request in [
        ("GET", "/openapi.json"),
        ("DELETE", "/session"),
        ("GET", "/me"),
        ("GET", "/config"),
        ("GET", "/cluster"),
        ("GET", "/switches/0x1"),
        ("GET", "/policies/a"),
        ("GET", "/policies/a/series"),
        ("GET", "/events"),
        ("GET", "/audit/export"),
    ] {
        let (method, path) = request;
        let path = format!("/api/v1{path}?after=7");
        let answer = ask_with(&server, (method, &path), &[], vec![]).await;
        assert_eq!(answer.refusal(), (400, "malformed".to_owned()), "{path}: {}", answer.text);
        assert_eq!(answer.json()["error"]["field"], "after", "{path}: {}", answer.text);
    }
    let filter = json!({"filter": "tcp"});
    let checked = post(&server, "/api/v1/filters/check?after=7", &filter).await;
    assert_eq!(checked.refusal(), (400, "malformed".to_owned()));
    assert_eq!(get(&server, "/api/v1/me?").await.status, 200, "an empty one asks for nothing");
    assert_eq!(get(&server, "/api/v1/audit").await.json()["total"], 1, "nothing was exported");
}

#[tokio::test]
async fn lists_come_in_pages() {
    let (server, _switch) = with_switch().await;
    for number in 0..7 {
        let policy = json!({"name": format!("p{number}"), "monitor": "3", "src-port": number});
        assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 201);
    }
    let (mut names, mut path) = (Vec::new(), "/api/v1/policies?limit=3".to_owned());
    loop {
        let page = get(&server, &path).await.json();
        assert_eq!(page["total"], 7);
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|item| item["policy"]["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/policies?limit=3&cursor={next}");
    }
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
    assert_eq!(get(&server, "/api/v1/policies?q=P5").await.json()["total"], 1);

    let newest = get(&server, "/api/v1/audit?limit=2").await.json();
    assert_eq!((&newest["items"][0]["seq"], &newest["next"]), (&json!(7), &json!("6")));
    let older = get(&server, "/api/v1/audit?limit=100&cursor=6").await.json();
    assert_eq!((older["items"].as_array().unwrap().len(), &older["next"]), (5, &Value::Null));
}

#[tokio::test]
async fn policies_are_found_by_what_they_are_doing() {
    let (server, _switch) = with_switch().await;
    for (name, policy) in [
        ("now", json!({"monitor": "3", "src-port": 1})),
        ("later", json!({"monitor": "3", "src-port": 2, "schedule": "sun 00:00-00:01"})),
    ] {
        let mut policy = policy;
        policy["name"] = json!(name);
        let answer = post(&server, "/api/v1/policies", &policy).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    let names = async |query: &str| -> Vec<String> {
        let page = get(&server, &format!("/api/v1/policies?{query}")).await.json();
        let items = page["items"].as_array().unwrap().iter();
        let names: Vec<_> =
            items.map(|item| item["policy"]["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(page["total"], names.len(), "{query}");
        names
    };
    assert_eq!(names("state=active").await, ["now"]);
    assert_eq!(names("state=resting,active").await, ["later", "now"]);
    assert_eq!(names("state=failed").await, [""; 0]);
    assert_eq!(names("has_problem=true").await, [""; 0]);
    assert_eq!(names("has_problem=false&q=now").await, ["now"]);
    assert_eq!(names("ledger=adds-up").await, ["later", "now"]);
    assert_eq!(names("ledger=does-not-add-up").await, [""; 0]);
}

#[tokio::test]
async fn the_audit_log_is_searched() {
    let (server, _switch) = with_switch().await;
    for number in 0..5 {
        let policy = json!({"name": format!("p{number}"), "monitor": "3", "src-port": number});
        assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 201);
    }
    let ask = async |query: &str| get(&server, &format!("/api/v1/audit?{query}")).await.json();
    let found = ask("q=P3").await;
    assert_eq!((&found["total"], &found["items"][0]["seq"]), (&json!(1), &json!(4)), "{found}");
    assert_eq!(found["next"], Value::Null);
    let hash = found["items"][0]["hash"].as_str().unwrap();
    let by_hash = ask(&format!("q={}", &hash[..12])).await;
    assert_eq!(by_hash["total"], 1, "{by_hash}");
    assert_eq!(ask(&format!("q={}", &hash[3..])).await["total"], 0);
    let (first, total) = (ask("q=policy.add&limit=2").await, json!(5));
    assert_eq!((&first["total"], &first["next"]), (&total, &json!("4")), "{first}");
    let second = ask("q=policy.add&limit=2&cursor=4").await;
    assert_eq!((&second["items"][0]["seq"], &second["next"]), (&json!(3), &json!("2")));
    let last = ask("q=policy.add&limit=2&cursor=2").await;
    assert_eq!((&last["items"][0]["seq"], &last["next"]), (&json!(1), &Value::Null));
    assert_eq!(ask("q=").await["total"], 5);
}

#[tokio::test]
async fn a_host_that_sends_no_arp_is_a_monitor_by_the_source_of_its_packet() {
    let (server, switch) = with_switch().await;
    let monitor = async |name: &str, address: &str| {
        let policy = json!({"name": name, "monitor": address});
        post(&server, "/api/v1/policies", &policy).await
    };
    // A router's packet, a host's, and the same host's address from another one.
    let packets = [ipv4(8, 7, 63, 2), ipv4(1, 1, 64, 3), ipv4(9, 1, 64, 4)];
    packets.into_iter().for_each(|packet| switch.say(packet));
    until(async || server.handle.hosts().await.unwrap().len() == 3).await;
    let hosts = get(&server, "/api/v1/hosts").await.json();
    let told = |last: usize| {
        let host = &hosts["items"][last];
        (host["addresses"].clone(), host["unproven_addresses"].clone())
    };
    assert_eq!(told(0), (json!(["10.0.0.1"]), json!(["10.0.0.1"])), "{hosts}");
    assert_eq!([told(1), told(2)], [(json!([]), Value::Null), (json!([]), Value::Null)]);
    let refused = monitor("router", "10.0.0.7").await.refusal();
    assert_eq!(refused, (422, "unknown-monitor".to_owned()));
    let added = monitor("host", "10.0.0.1").await;
    assert_eq!(
        (added.status, &added.json()["monitor"]["port"]),
        (201, &json!(3)),
        "{}",
        added.text
    );
}
