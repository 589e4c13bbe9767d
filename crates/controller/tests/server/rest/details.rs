//! Details of switches, loads of links, matches of filters, and events of hosts and ports.

use serde_json::{Value, json};

use super::client::{get, post, with_rest};
use super::live::Events;
use crate::running::{Running, until};
use crate::script::{Script, arp, port_status};

async fn with_switch() -> (Running, Script) {
    let server = Running::start(with_rest()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    // The server knows its rules before the switch has them.
    until(async || switch.state.lock().unwrap().rules.len() == 8).await;
    (server, switch)
}

#[tokio::test]
async fn ports_have_counters_and_rates() {
    let (server, switch) = with_switch().await;
    let path = "/api/v1/switches/0x1/ports";
    let ports = get(&server, path).await.json();
    assert_eq!((&ports["total"], &ports["items"][3]["port"]), (&json!(4), &json!("4")));
    assert_eq!(ports["items"][2]["counters"]["rx_bytes"], 0);
    assert_eq!(ports["items"][2]["counters"]["rx_errors"], Value::Null, "it does not count those");
    assert_eq!(ports["items"][2]["load"], Value::Null, "it was asked once");
    switch.state.lock().unwrap().port_bytes = 1_000_000;
    until(async || {
        let port = get(&server, path).await.json()["items"][2].clone();
        port["load"]["rx"].as_u64() > Some(0) && port["counters"]["rx_bytes"] == 1_000_000
    })
    .await;
}

#[tokio::test]
async fn rules_and_groups_are_told_as_they_should_be_and_as_they_are() {
    let (server, switch) = with_switch().await;
    let policy = json!({
        "name": "web",
        "monitor": "3",
        "dst-port": 80,
        "ip-proto": "tcp",
        "direction": "forward",
    });
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 201);
    switch.state.lock().unwrap().counted = 7;
    let rules = get(&server, "/api/v1/switches/0x1/rules?table=1").await.json();
    let items = rules["items"].as_array().unwrap();
    assert!(items.iter().all(|rule| rule["table"] == 1), "{rules}");
    let copies: Vec<_> = items.iter().filter(|rule| rule["purpose"] == "copies").collect();
    assert_eq!(copies.len(), 2, "IPv4 and IPv6");
    for rule in copies {
        assert_eq!((&rule["standing"], &rule["policies"]), (&json!("in-place"), &json!(["web"])));
        assert_eq!(rule["counts"], json!({"packets": 7, "bytes": 700}));
    }
    let groups = get(&server, "/api/v1/switches/0x1/groups").await.json();
    let group = &groups["items"][0];
    assert_eq!((&groups["total"], &group["standing"]), (&json!(1), &json!("in-place")));
    assert_eq!((&group["kind"], &group["policies"]), (&json!("all"), &json!(["web"])));
}

#[tokio::test]
async fn rules_that_somebody_else_took_or_gave_are_told() {
    let (server, switch) = with_switch().await;
    let foreign = {
        let mut state = switch.state.lock().unwrap();
        let rules = &mut state.rules;
        let lost = rules.keys().find(|key| key.starts_with("1/")).unwrap().clone();
        let mut foreign = rules.remove(&lost).unwrap();
        (foreign.cookie, foreign.priority) = (7, 9);
        rules.insert("foreign".to_owned(), foreign.clone());
        foreign
    };
    let rules = get(&server, "/api/v1/switches/0x1/rules?limit=1000").await.json();
    let of = |standing: &str| {
        let items = rules["items"].as_array().unwrap();
        items.iter().filter(|rule| rule["standing"] == standing).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("missing").len(), 1, "{rules}");
    let [told] = &of("foreign")[..] else { panic!("{rules}") };
    assert_eq!(
        (&told["priority"], &told["purpose"]),
        (&json!(foreign.priority), &json!("foreign"))
    );
    let page = get(&server, "/api/v1/switches/0x1/rules?limit=2").await.json();
    let next = page["next"].as_str().unwrap().replace(['/', ',', '='], "%2F");
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert!(!next.is_empty());
}

#[tokio::test]
async fn a_switch_that_is_gone_tells_what_it_should_have() {
    let (server, switch) = with_switch().await;
    switch.disconnect().await;
    until(async || !server.handle.switches().await.unwrap()[0].is_connected).await;
    let rules = get(&server, "/api/v1/switches/0x1/rules").await.json();
    assert_eq!(rules["items"][0]["standing"], "unread", "{rules}");
    for path in ["ports", "rules", "groups"] {
        for id in ["0x9", "1", "0x", "0x+1", "web"] {
            let answer = get(&server, &format!("/api/v1/switches/{id}/{path}")).await;
            assert_eq!(answer.refusal(), (404, "unknown-switch".to_owned()));
        }
    }
}

#[tokio::test]
async fn filters_and_policies_are_told_in_words() {
    let server = Running::start(with_rest()).await;
    let check = async |wanted: Value| post(&server, "/api/v1/filters/check", &wanted).await;
    let told = check(json!({"filter": "ip and tcp dst port 80"})).await.json();
    assert_eq!(
        told,
        json!({"ok": true, "regions": 1, "matches": ["TCP over IPv4 to port 80"], "total": 1}),
    );
    let policy = json!({"name": "p", "monitor": "3", "ip-proto": "icmp", "direction": "both"});
    assert_eq!(check(json!({"policy": policy})).await.json()["matches"][0], "ICMP over IPv4");
    let wide = check(json!({"filter": "tcp dst portrange 1-100"})).await.json();
    assert_eq!((wide["matches"].as_array().unwrap().len(), &wide["total"]), (50, &json!(200)));

    let wrong = check(json!({"filter": "tcp prot 80"})).await;
    assert_eq!(wrong.refusal(), (422, "bad-filter".to_owned()), "{}", wrong.text);
    let error = &wrong.json()["error"];
    assert_eq!((&error["field"], &error["at"]), (&json!("filter"), &json!(4)), "{error}");
    let wrong = check(json!({"policy": {"name": "p", "monitor": "3", "vlan": 4095}})).await;
    assert_eq!(wrong.refusal(), (422, "vlan-range".to_owned()));
    let list = check(json!({"policy": ["p", 7]})).await;
    assert_eq!(list.refusal(), (400, "malformed".to_owned()));
    let error = &list.json()["error"];
    assert_eq!(error["field"], "policy", "as whoever asks wrote it: {error}");
    assert!(error["message"].as_str().unwrap().contains("expected a policy: {"), "{error}");
    let field = check(json!({"policy": {"name": 7, "monitor": "3"}})).await;
    assert_eq!(field.json()["error"]["field"], "policy.name", "{}", field.text);
    let missing = check(json!({"policy": {"name": "p"}})).await;
    assert_eq!(missing.json()["error"]["field"], "policy.monitor", "{}", missing.text);
    for none in [json!({}), json!({"filter": "tcp", "policy": policy}), json!({"colour": 1})] {
        assert_eq!(check(none).await.refusal(), (400, "malformed".to_owned()));
    }
}

#[tokio::test]
async fn hosts_and_ports_are_told_as_they_come_and_go() {
    let (server, switch) = with_switch().await;
    let mut events = Events::open(&server, &[]).await;
    switch.say(arp(1, 2));
    let seen = events.next_of("host").await;
    assert_eq!((&seen["what"], &seen["mac"]), (&json!("seen"), &json!("02:00:00:00:00:01")));
    assert_eq!(seen["at_port"], json!({"switch": "0x1", "port": 2, "name": "p2"}));
    switch.say(arp(1, 3));
    let moved = events.next_of("host").await;
    assert_eq!((&moved["what"], &moved["from"]["port"]), (&json!("moved"), &json!(2)));
    switch.say(port_status(3, false));
    let gone = events.next_of("host").await;
    assert_eq!((&gone["what"], &gone["at_port"]["port"]), (&json!("gone"), &json!(3)));
    let port = events.next_of("port").await;
    assert_eq!((&port["what"], &port["at_port"]["name"]), (&json!("down"), &json!("p3")));
    let log = get(&server, "/api/v1/events/log").await.json();
    let kinds: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|item| item["event"].clone()).collect();
    assert_eq!(kinds[..4], [json!("port"), json!("host"), json!("host"), json!("host")]);
}
