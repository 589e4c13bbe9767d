//! Replaced policies, and proofs of changes.

use serde_json::{Value, json};
use tapswitch_controller::{Config, StoreConfig};

use super::client::{Answer, ask_with, get, post, with_rest};
use super::store::restart;
use crate::running::{Running, until};
use crate::script::{Script, arp};

async fn put(server: &Running, path: &str, document: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    ask_with(server, ("PUT", path), &headers, document.to_string().into_bytes()).await
}

async fn with_policy(policy: &Value) -> (Running, Script) {
    let server = Running::start(with_rest()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    assert_eq!(post(&server, "/api/v1/policies", policy).await.status, 201);
    (server, switch)
}

#[tokio::test]
async fn a_policy_takes_the_place_of_another() {
    let (server, switch) = with_policy(&json!({"name": "web", "monitor": "3"})).await;
    let path = "/api/v1/policies/web";
    let other = json!({
        "name": "web",
        "monitor": "0x1/4",
        "dst-port": 80,
        "direction": "forward",
        "point": "ingress",
        "reason": "ticket 7",
    });
    let answer = put(&server, path, &other).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let report = answer.json();
    assert_eq!((&report["policy"], &report["state"]["is"]), (&other, &json!("active")));
    assert_eq!(report["proof"]["is_proved"], true, "{report}");
    assert_eq!(get(&server, path).await.json()["monitors"][0]["port"], 4);
    assert_eq!(get(&server, "/api/v1/policies").await.json()["total"], 1);
    assert_eq!(switch.tap_count(), 4, "TCP and UDP over IPv4 and IPv6, and nothing of the old one");
    let record = &get(&server, "/api/v1/audit?limit=1").await.json()["items"][0];
    assert_eq!(
        (&record["what"], &record["result"], &record["reason"]),
        (&json!("policy.replace"), &json!("accepted"), &json!("ticket 7")),
    );
}

/// A change that was never accepted has no other record.
#[tokio::test]
async fn what_is_refused_at_once_has_one_record() {
    let (server, _switch) = with_policy(&json!({"name": "web", "monitor": "3"})).await;
    let new = |policy: Value| ("POST", "/api/v1/policies", policy);
    let past = json!({"name": "b", "monitor": "3", "expires": "2020-01-01T00:00:00Z"});
    let cases = [
        (new(json!({"name": "b", "monitor": "9"})), "unknown-monitor"),
        (new(json!({"name": "b", "monitor": "0x7/1"})), "unknown-switch"),
        (new(json!({"name": "b", "monitor": ["3", "10.0.0.9"]})), "unknown-monitor"),
        (new(past), "expires-in-the-past"),
        (
            ("PUT", "/api/v1/policies/web", json!({"name": "web", "monitor": "9"})),
            "unknown-monitor",
        ),
    ];
    let total = async || get(&server, "/api/v1/audit").await.json()["total"].as_u64().unwrap();
    for ((method, path, policy), code) in cases {
        let before = total().await;
        let headers = [("content-type", "application/json")];
        let body = policy.to_string().into_bytes();
        let answer = ask_with(&server, (method, path), &headers, body).await;
        assert_eq!(answer.refusal(), (422, code.to_owned()), "{policy}: {}", answer.text);
        assert_eq!(total().await, before + 1, "{policy}");
        let record = get(&server, "/api/v1/audit?limit=1").await.json()["items"][0].clone();
        assert!(record["result"].as_str().unwrap().starts_with("refused: "), "{record}");
    }
}

#[tokio::test]
async fn what_is_refused_leaves_the_policy_as_it_was() {
    let (direction, point) = ("both", "ingress");
    let old = json!({"name": "web", "monitor": "0x1/3", "direction": direction, "point": point});
    let (server, switch) = with_policy(&old).await;
    let rules = switch.tap_count();
    let cases = [
        ("web", json!({"name": "other", "monitor": "3"}), 422, "other-name"),
        ("none", json!({"name": "none", "monitor": "3"}), 404, "unknown-policy"),
        ("web", json!({"name": "web", "monitor": "9"}), 422, "unknown-monitor"),
        ("web", json!({"name": "web", "monitor": "3", "vlan": 4095}), 422, "vlan-range"),
        ("web", json!({"name": "web"}), 400, "malformed"),
    ];
    for (name, policy, status, code) in cases {
        let answer = put(&server, &format!("/api/v1/policies/{name}"), &policy).await;
        assert_eq!(answer.refusal(), (status, code.to_owned()), "{policy}: {}", answer.text);
    }
    // Frames that match both versions have rules above those of either.
    switch.state.lock().unwrap().refused_priority = Some(1016);
    let path = "/api/v1/policies/web";
    let answer = put(&server, path, &json!({"name": "web", "monitor": "4", "vlan": 5})).await;
    assert_eq!(answer.refusal(), (422, "not-installed".to_owned()), "{}", answer.text);
    let report = get(&server, path).await.json();
    assert_eq!((&report["policy"], &report["owner"]), (&old, &json!("local")));
    assert_eq!(switch.tap_count(), rules);
}

#[tokio::test]
async fn a_dry_run_of_a_change_changes_nothing() {
    let (server, switch) = with_policy(&json!({"name": "web", "monitor": "3"})).await;
    // Frames to a host are copied by a bucket; floods reach the monitor anyway.
    switch.say(arp(1, 1));
    until(async || switch.tap_count() == 2).await;
    let before = switch.state.lock().unwrap().changes;
    let other = json!({"name": "web", "monitor": "4"});
    let plan = put(&server, "/api/v1/policies/web?dry_run=true", &other).await.json();
    assert_eq!(plan["proof"]["is_proved"], true, "{plan}");
    let [added, removed] = ["add", "remove"].map(|what| plan["changes"][0][what].to_string());
    assert!(added.contains("output:4") && !added.contains("output:3"), "{added}");
    assert_ne!(removed, "[]");
    let deletion = ("DELETE", "/api/v1/policies/web?dry_run=true");
    let plan = ask_with(&server, deletion, &[], vec![]).await.json();
    assert_eq!(plan["changes"][0]["switch"], "0x1", "{plan}");
    assert_eq!(switch.state.lock().unwrap().changes, before);
}

#[tokio::test]
async fn what_was_answered_survives_and_what_was_refused_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig::File(directory.path().join("controller.redb"));
    let config = || Config { store: store.clone(), ..with_rest() };
    let server = Running::start(config()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let path = "/api/v1/policies/web";
    let said = json!({"name": "web", "direction": "both", "point": "ingress"});
    let policy = |monitor: &str| {
        let mut policy = said.clone();
        policy["monitor"] = json!(monitor);
        policy
    };
    assert_eq!(post(&server, "/api/v1/policies", &policy("3")).await.status, 201);
    assert_eq!(put(&server, path, &policy("4")).await.status, 200);
    // Frames that match both versions have rules above those of either.
    switch.state.lock().unwrap().refused_priority = Some(1016);
    let refused = json!({"name": "web", "monitor": "2", "vlan": 5});
    assert_eq!(put(&server, path, &refused).await.status, 422);
    server.stop().await;
    let again = restart(config()).await;
    // With its switch, as another one with such a port may connect first.
    assert_eq!(get(&again, path).await.json()["policy"], policy("0x1/4"));
}

#[tokio::test]
async fn policies_of_the_configuration_are_changed_there() {
    let policy = tapswitch_control::TapPolicy::new("web", "3".parse().unwrap());
    let server = Running::start(Config { policies: vec![policy], ..with_rest() }).await;
    let _switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let other = json!({"name": "web", "monitor": "4"});
    for query in ["", "?dry_run=true"] {
        let path = format!("/api/v1/policies/web{query}");
        let delete = ask_with(&server, ("DELETE", &path), &[], vec![]).await;
        for answer in [put(&server, &path, &other).await, delete] {
            assert_eq!(answer.refusal(), (409, "policy-configured".to_owned()), "{}", answer.text);
        }
    }
}

#[tokio::test]
async fn whoever_changes_a_policy_is_told_beside_who_added_it() {
    let (server, _switch) = with_policy(&json!({"name": "web", "monitor": "3"})).await;
    let path = "/api/v1/policies/web";
    let added = get(&server, path).await.json();
    assert!(added["created_at"].is_string() && added.get("changed_at").is_none(), "{added}");
    let other = json!({"name": "web", "monitor": "4"});
    assert_eq!(put(&server, path, &other).await.status, 200);
    let changed = get(&server, path).await.json();
    assert_eq!(
        (&changed["created_at"], &changed["owner"]),
        (&added["created_at"], &added["owner"])
    );
    assert!(changed["changed_at"].is_string(), "{changed}");
    assert_eq!(changed["changed_by"], added["owner"]);
}

#[tokio::test]
async fn whoever_adds_is_told_of_the_proof() {
    let (server, _switch) = with_policy(&json!({"name": "web", "monitor": "3"})).await;
    let policy = json!({"name": "all", "monitor": "4"});
    let report = post(&server, "/api/v1/policies", &policy).await.json();
    assert_eq!(report["proof"]["is_proved"], true, "{report}");
    assert!(report["proof"]["checked"].as_u64() > Some(0) && report["unproved"].is_null());
    // Hundreds of rules for disjoint frames.
    let way = json!({"monitor": "4", "direction": "forward"});
    let wide = |name: &str, ports: &str| {
        let mut policy = way.clone();
        (policy["name"], policy["dst-port"]) = (json!(name), json!(ports));
        policy
    };
    post(&server, "/api/v1/policies", &wide("wide", "1-100")).await;
    let report = post(&server, "/api/v1/policies", &wide("wider", "101-200")).await.json();
    assert_eq!(report["proof"]["is_proved"], true, "{report}");
    assert!(report["proof"]["checked"].as_u64() >= Some(100), "{report}");
    let forced = json!({"name": "forced", "monitor": "4"});
    assert_eq!(post(&server, "/api/v1/policies?force=true", &forced).await.status, 201);
    let record = &get(&server, "/api/v1/audit?limit=1").await.json()["items"][0];
    assert_eq!(record["result"], "accepted, by force");
    let gone =
        ask_with(&server, ("DELETE", "/api/v1/policies/forced?force=true"), &[], vec![]).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    let record = &get(&server, "/api/v1/audit?limit=1").await.json()["items"][0];
    assert_eq!(record["what"], "policy.delete");
    assert_eq!(record["result"], "accepted, by force");
}

/// The rules of its host are rejected, so nothing is known about its frames.
#[tokio::test]
async fn what_cannot_be_proved_needs_force_and_is_told_to_everybody() {
    let server = Running::start(with_rest()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    switch.state.lock().unwrap().refused_priority = Some(100);
    switch.say(arp(1, 1));
    let refusals = async || get(&server, "/api/v1/switches").await.json()["items"][0].clone();
    until(async || refusals().await["refusals"] == 2).await;
    let policy = json!({"name": "all", "monitor": "3"});
    let answer = post(&server, "/api/v1/policies", &policy).await;
    assert_eq!(answer.refusal(), (409, "not-proved".to_owned()), "{}", answer.text);
    let told = "switch 0x1 refused a rule that its frames match";
    let said = format!("cannot determine where its frames would go: {told}");
    assert!(answer.text.contains(&said) && answer.text.contains("--force"), "{}", answer.text);

    let report = post(&server, "/api/v1/policies?force=true", &policy).await.json();
    assert!(report["proof"].is_null(), "{report}");
    assert!(report["unproved"].as_str().unwrap().starts_with(told), "{report}");
    let path = "/api/v1/policies/all";
    let notes = get(&server, path).await.json()["notes"].to_string();
    assert!(notes.contains("not everything could be proved") && notes.contains(told), "{notes}");
    assert!(get(&server, "/api/v1/events/log").await.text.contains("\"unproved\":"));
    // A deletion does not need force.
    assert_eq!(ask_with(&server, ("DELETE", path), &[], vec![]).await.status, 200);
    let records = get(&server, "/api/v1/audit?limit=9").await.json()["items"].clone();
    let made = format!("applied, not fully proved: {told}");
    for what in ["policy.add", "policy.delete"] {
        let is_it = |record: &&Value| {
            record["what"] == what && record["result"].as_str().unwrap().starts_with(&made)
        };
        assert_eq!(records.as_array().unwrap().iter().filter(is_it).count(), 1, "{records}");
    }
}

/// Discovery probes belong to the controller, so there are no copies of them.
#[tokio::test]
async fn what_would_go_wrong_is_refused_with_a_frame_unless_it_is_forced() {
    let (server, switch) =
        with_policy(&json!({"name": "web", "monitor": "3", "dst-port": 80})).await;
    let before = switch.state.lock().unwrap().changes;
    let links = json!({
        "name": "links",
        "monitor": "0x1/4",
        "eth-type": "lldp",
        "dst-mac": "01:80:c2:00:00:0e",
        "direction": "forward",
        "point": "ingress",
    });
    let plan = post(&server, "/api/v1/policies?dry_run=true", &links).await.json();
    assert_eq!(plan["proof"]["is_proved"], false, "{plan}");
    let answer = post(&server, "/api/v1/policies", &links).await;
    assert_eq!(answer.refusal(), (409, "not-proved".to_owned()), "{}", answer.text);
    let problem = plan["proof"]["problems"][0].as_str().unwrap();
    assert!(problem.contains("to 01:80:c2:00:00:0e (lldp) that enters at 0x1/"), "{problem}");
    assert!(problem.ends_with("would arrive nowhere, not at 0x1/4 x1"), "{problem}");
    let said = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(said.contains(problem) && said.contains("--force"), "{said}");
    assert_eq!(get(&server, "/api/v1/policies/links").await.status, 404);
    let record = &get(&server, "/api/v1/audit?limit=1").await.json()["items"][0];
    assert_eq!((&record["what"], &record["policy"]), (&json!("policy.add"), &links));
    assert!(record["result"].as_str().unwrap().starts_with("refused"), "{record}");
    // A replacement is checked, too.
    let change = json!({
        "name": "web",
        "monitor": "4",
        "eth-type": "lldp",
        "dst-mac": "01:80:c2:00:00:0e",
    });
    let answer = put(&server, "/api/v1/policies/web", &change).await;
    assert_eq!(answer.refusal(), (409, "not-proved".to_owned()), "{}", answer.text);
    assert_eq!(switch.state.lock().unwrap().changes, before, "no switch heard of it");

    let answer = post(&server, "/api/v1/policies?force=true", &links).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.json()["proof"]["problems"][0], problem);
    let record = &get(&server, "/api/v1/audit?limit=1").await.json()["items"][0];
    assert_eq!(record["result"], "accepted, by force");
}
