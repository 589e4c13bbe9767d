//! State that survives the server.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tapswitch_control::{Expiry, TapPolicy, UnixTime};
use tapswitch_controller::{Config, How, RequestError, Server, StoreConfig};

use super::client::{ask_with, get, post, with_rest};
use crate::running::{Running, me, until};
use crate::script::{Script, arp, port_status};

#[tokio::test]
async fn policies_and_records_outlive_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { store: StoreConfig::File(directory.path().join("c")), ..with_rest() };
    let server = Running::start(config.clone()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    for (name, port) in [("b", 1), ("a", 2), ("gone", 3)] {
        let policy = json!({"name": name, "monitor": "3", "src-port": port});
        assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 201);
    }
    ask_with(&server, ("DELETE", "/api/v1/policies/gone"), &[], vec![]).await;
    let told = async |server: &Running| get(server, "/api/v1/policies").await.json();
    let before = told(&server).await;
    server.stop().await;
    let state = switch.disconnect().await;
    state.lock().unwrap().changes = 0;

    let server = restart(config).await;
    let switch = Script::connect_again(1, server.address, state).await;
    server.wait_for_ports(1).await;
    until(async || told(&server).await["items"][0]["state"]["is"] == "active").await;
    assert_eq!(told(&server).await, before, "with their owners and times");
    assert_eq!(switch.state.lock().unwrap().changes, 0, "and no switch was disturbed");
    let order: Vec<_> = server.handle.policies().await.unwrap();
    assert_eq!(order.iter().map(|report| &report.policy.name).collect::<Vec<_>>(), ["b", "a"]);
    let records = get(&server, "/api/v1/audit?limit=2").await.json();
    let told =
        |index: usize| (&records["items"][index]["what"], &records["items"][index]["result"]);
    let start = json!("2 stored policies take effect again");
    assert_eq!(told(0), (&json!("controller.start"), &start));
    let stop = json!("2 policies stay in effect by the installed rules");
    assert_eq!(told(1), (&json!("controller.stop"), &stop));
    assert_eq!(records["total"], 6);
    assert_eq!(get(&server, "/api/v1/config").await.json()["store"], "disk");
}

#[tokio::test]
async fn a_policy_of_the_configuration_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig::File(directory.path().join("c"));
    let policies = vec![TapPolicy::new("p", "3".parse().unwrap())];
    let config = Config { store: store.clone(), policies, ..with_rest() };
    let server = Running::start(config).await;
    let told = get(&server, "/api/v1/policies/p").await.json();
    assert_eq!(told["owner"], "configuration");
    server.stop().await;
    let server = restart(Config { store, ..with_rest() }).await;
    assert_eq!(get(&server, "/api/v1/policies").await.json()["total"], 0);
}

#[tokio::test]
async fn the_end_of_a_policy_of_the_configuration_is_on_record() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig::File(directory.path().join("c"));
    let named = |name: &str| TapPolicy::new(name, "3".parse().unwrap());
    let over = TapPolicy { expires: Some(Expiry::At(UnixTime(1))), ..named("over") };
    // Each after the last restart: what the configuration has, and what is recorded.
    let left = ("policy.delete", "left", "accepted: no longer in the configuration");
    let expired = ("policy.expire", "over", "accepted");
    let steps = [
        (vec![named("left"), named("over"), named("stays")], vec![]),
        (vec![named("stays"), over.clone()], vec![left, expired]),
        (vec![named("stays"), over], vec![]),
        (vec![named("left"), named("stays")], vec![]),
    ];
    let mut seen = 0;
    for (policies, ends) in steps {
        let added = policies.iter().filter(|policy| policy.expires.is_none()).count();
        let config = Config { store: store.clone(), policies, ..with_rest() };
        let server = restart(config).await;
        let records = get(&server, "/api/v1/audit?limit=100").await.json();
        let by_it = |record: &&Value| record["who"] == "configuration";
        let all: Vec<_> = records["items"].as_array().unwrap().iter().filter(by_it).collect();
        let new = all.iter().rev().skip(seen).map(|record| {
            let policy = &record["policy"]["name"];
            [&record["what"], policy, &record["result"]].map(|text| text.as_str().unwrap())
        });
        let told: Vec<_> = new.collect();
        seen = all.len();
        let (adds, told_ends) = told.split_at(added);
        assert!(adds.iter().all(|[what, ..]| *what == "policy.add"), "{told:?}");
        assert_eq!(told_ends, ends.iter().map(|end| [end.0, end.1, end.2]).collect::<Vec<_>>());
        server.stop().await;
    }
}

/// The day of the week three days from now.
fn another_day() -> &'static str {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    // 1 January 1970 was a Thursday.
    let day = since.as_secs() / 86_400 + 3;
    ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][usize::try_from(day % 7).unwrap()]
}

/// After a restart, another switch with such a port may connect first.
#[tokio::test]
async fn the_switch_of_a_monitor_that_came_later_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let policies = vec![TapPolicy::new("configured", "3".parse().unwrap())];
    let store = StoreConfig::File(directory.path().join("c"));
    let config = Config { store, policies, ..with_rest() };
    let server = Running::start(config.clone()).await;
    // Its monitor is not located.
    let rests = json!({"name": "rests", "monitor": "3", "schedule": another_day()});
    let added = post(&server, "/api/v1/policies", &rests).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let monitors = async |server: &Running| {
        let told = get(server, "/api/v1/policies").await.json();
        let items = told["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["policy"]["monitor"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(monitors(&server).await, ["3", "3"]);
    let switch = Script::connect(1, server.address).await;
    until(async || monitors(&server).await == ["0x1/3", "0x1/3"]).await;
    server.stop().await;
    drop(switch);
    let server = restart(config).await;
    let _other = Script::connect(2, server.address).await;
    server.wait_for_ports(2).await;
    assert_eq!(monitors(&server).await, ["0x1/3", "0x1/3"]);
}

/// The monitor of the old policy is found while switches have not confirmed the new one.
#[tokio::test]
async fn a_policy_that_is_replaced_does_not_come_back_when_its_monitor_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig::File(directory.path().join("c"));
    let config = Config { store, stats_timeout: Duration::from_millis(20), ..with_rest() };
    let server = Running::start(config.clone()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let rests = json!({"name": "a", "monitor": "5", "schedule": another_day()});
    let added = post(&server, "/api/v1/policies", &rests).await;
    assert_eq!(added.status, 201, "{}", added.text);
    switch.state.lock().unwrap().is_mute = true;
    let next = TapPolicy::new("a", "4".parse().unwrap());
    let how = How { replaces: true, ..How::default() };
    let handle = server.handle.clone();
    let replacing = tokio::spawn(async move { handle.apply_policy(&me(), next, how).await });
    until(async || switch.tap_count() > 0).await;
    switch.say(port_status(5, true));
    let monitor = async |server: &Running| {
        get(server, "/api/v1/policies/a").await.json()["policy"]["monitor"].clone()
    };
    until(async || monitor(&server).await == "0x1/5").await;
    switch.state.lock().unwrap().is_mute = false;
    switch.say(arp(1, 2));
    replacing.await.unwrap().unwrap();
    // What was to be written is.
    server.handle.delete_policy(&me(), "another", false).await.unwrap_err();
    server.stop().await;
    let server = restart(config).await;
    assert_eq!(monitor(&server).await, "0x1/4");
}

#[tokio::test]
async fn who_the_controller_is_outlives_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig::File(directory.path().join("c"));
    let identity = async || {
        let server = bind(Config { store: store.clone(), ..with_rest() }).await;
        server.identity().clone()
    };
    let first = identity().await;
    assert_eq!(identity().await, first);
    assert_ne!(first.lldp_key, [0; 32]);
}

/// Retries while the former server's thread closes the file.
async fn bind(config: Config) -> Server {
    loop {
        match Server::bind(config.clone()).await {
            Ok(server) => return server,
            Err(error) if error.to_string().contains("another controller") => {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) async fn restart(config: Config) -> Running {
    Running::run(bind(config).await)
}

#[tokio::test]
async fn a_policy_that_ends_is_gone_for_good_and_on_record() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { store: StoreConfig::File(directory.path().join("c")), ..with_rest() };
    let server = Running::start(config.clone()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let policy = json!({"name": "a", "monitor": "3", "expires": "5s", "reason": "ticket 7"});
    let added = post(&server, "/api/v1/policies", &policy).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let end = added.json()["policy"]["expires"].clone();
    assert!(end.as_str().unwrap().ends_with('Z'), "a time, not a span: {end}");
    until(async || get(&server, "/api/v1/audit").await.json()["total"] == 2).await;
    let record = get(&server, "/api/v1/audit").await.json()["items"][0].clone();
    assert_eq!((&record["what"], &record["who"]), (&json!("policy.expire"), &json!("controller")));
    assert_eq!((&record["reason"], &record["until"]), (&json!("ticket 7"), &end));
    assert_eq!(switch.tap_count(), 0);
    server.stop().await;
    let server = restart(config).await;
    assert_eq!(get(&server, "/api/v1/policies").await.json()["total"], 0);
}

/// A server whose requests time out before its switch confirms anything.
fn impatient(directory: &tempfile::TempDir) -> Config {
    let store = StoreConfig::File(directory.path().join("c"));
    Config { store, request_timeout: Duration::from_millis(50), ..with_rest() }
}

/// Releases the switch's delayed replies.
async fn speak(server: &Running, switch: &Script) {
    switch.state.lock().unwrap().is_mute = false;
    switch.say(arp(1, 2));
    until(async || !server.handle.hosts().await.unwrap().is_empty()).await;
}

/// Result of the newest audit record, once there are `total`.
async fn outcome(server: &Running, total: u64) -> String {
    let told = async || get(server, "/api/v1/audit").await.json();
    until(async || told().await["total"] == total).await;
    told().await["items"][0]["result"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_refused_after_its_time_does_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(impatient(&directory)).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    until(async || switch.state.lock().unwrap().rules.len() == 8).await;
    {
        let mut state = switch.state.lock().unwrap();
        (state.is_mute, state.refuses_copies) = (true, true);
    }
    let policy = json!({"name": "late", "monitor": "3"});
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 503);
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 409, "it goes on");
    speak(&server, &switch).await;
    let outcome = outcome(&server, 3).await;
    assert!(outcome.starts_with("refused") && outcome.contains("TABLE_FULL"), "{outcome}");
    server.stop().await;
    let server = restart(impatient(&directory)).await;
    assert_eq!(get(&server, "/api/v1/policies").await.json()["items"], json!([]));
}

#[tokio::test]
async fn what_cannot_take_the_place_of_another_after_its_time_leaves_that_one_kept() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(impatient(&directory)).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let (old, new) = ("3".parse().unwrap(), "4".parse().unwrap());
    // On a slow machine this may time out.
    let _ = server.handle.add_policy(&me(), TapPolicy::new("p", old)).await;
    let policy = async |server: &Running| get(server, "/api/v1/policies/p").await.json();
    until(async || policy(&server).await["state"]["is"] == "active").await;
    {
        let mut state = switch.state.lock().unwrap();
        (state.is_mute, state.refuses_copies) = (true, true);
    }
    let how = How { replaces: true, ..How::default() };
    let replaced = server.handle.apply_policy(&me(), TapPolicy::new("p", new), how).await;
    assert!(matches!(replaced, Err(RequestError::TimedOut { .. })), "{replaced:?}");
    speak(&server, &switch).await;
    let outcome = outcome(&server, 3).await;
    assert!(outcome.starts_with("refused"), "{outcome}");
    server.stop().await;
    let server = restart(impatient(&directory)).await;
    assert_eq!(policy(&server).await["policy"]["monitor"], json!("0x1/3"));
}

#[tokio::test]
async fn a_deletion_comes_behind_a_change_that_takes_long() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(impatient(&directory)).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    until(async || switch.state.lock().unwrap().rules.len() == 8).await;
    switch.state.lock().unwrap().is_mute = true;
    let policy = json!({"name": "late", "monitor": "3"});
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 503);
    let delete = async || {
        ask_with(&server, ("DELETE", "/api/v1/policies/late"), &[], vec![]).await.refusal()
    };
    assert_eq!(delete().await, (503, "switch-silent".to_owned()), "it goes on");
    // On a slow machine this one may time out, too.
    until(async || delete().await == (409, "policy-busy".to_owned())).await;
    let busy = post(&server, "/api/v1/policies", &policy).await;
    assert_eq!(busy.refusal().1, "policy-busy");
    let message = busy.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("ends when its switches"), "{message}");
    speak(&server, &switch).await;
    let told = async || get(&server, "/api/v1/policies").await.json()["total"].clone();
    until(async || told().await == 0).await;
    // A refused one may have been recorded late.
    let records = get(&server, "/api/v1/audit").await.json();
    let results = records["items"].as_array().unwrap().iter().map(|item| &item["result"]);
    assert_eq!(results.filter(|result| *result == "accepted").count(), 2, "{records}");
    assert!(records["items"][0]["what"] == "policy.delete", "{records}");
    server.stop().await;
    let server = restart(impatient(&directory)).await;
    assert_eq!(get(&server, "/api/v1/policies").await.json()["items"], json!([]));
}

#[tokio::test]
async fn a_name_that_is_free_again_is_not_held_against_the_policy_that_takes_it() {
    let config = Config { stats_timeout: Duration::from_millis(20), ..with_rest() };
    let server = Running::start(config).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    until(async || switch.state.lock().unwrap().rules.len() == 8).await;
    let policy = json!({"name": "a", "monitor": "3", "expires": "5s"});
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 201);
    // It is deleted except for its last counters.
    switch.state.lock().unwrap().holds_counters = true;
    until(async || !switch.state.lock().unwrap().held_counters.is_empty()).await;
    assert_eq!(get(&server, "/api/v1/policies/a").await.status, 404);
    switch.state.lock().unwrap().is_mute = true;
    let records = async || get(&server, "/api/v1/audit").await.json()["total"].clone();
    let next = json!({"name": "a", "monitor": "4", "dst-port": 80});
    let adding = async {
        let added = post(&server, "/api/v1/policies", &next).await;
        assert_eq!(added.status, 201, "{}", added.text);
    };
    let going_on = async {
        until(async || switch.tap_count() > 0).await;
        switch.state.lock().unwrap().holds_counters = false;
        switch.say(arp(1, 2));
        until(async || records().await == 3).await;
        switch.state.lock().unwrap().is_mute = false;
        switch.say(arp(1, 2));
    };
    tokio::join!(adding, going_on);
    assert_eq!(get(&server, "/api/v1/policies/a").await.json()["owner"], "local");
    let gone = ask_with(&server, ("DELETE", "/api/v1/policies/a"), &[], vec![]).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    assert_eq!(switch.tap_count(), 0);
}

#[tokio::test]
async fn who_deletes_a_policy_hears_its_counts_not_those_of_one_before_it() {
    let config = Config { stats_timeout: Duration::from_millis(20), ..with_rest() };
    let server = Running::start(config).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let first = json!({"name": "a", "monitor": "3", "expires": "5s"});
    assert_eq!(post(&server, "/api/v1/policies", &first).await.status, 201);
    let held = || switch.state.lock().unwrap().held_counters.len();
    switch.state.lock().unwrap().holds_counters = true;
    until(async || held() > 0).await;
    let next = json!({"name": "a", "monitor": "4", "dst-port": 80});
    assert_eq!(post(&server, "/api/v1/policies", &next).await.status, 201);
    let before = held();
    let deleting = ask_with(&server, ("DELETE", "/api/v1/policies/a"), &[], vec![]);
    let going_on = async {
        until(async || held() > before).await;
        switch.state.lock().unwrap().holds_counters = false;
        switch.say(arp(1, 2));
    };
    let (gone, ()) = tokio::join!(deleting, going_on);
    assert_eq!(gone.status, 200, "{}", gone.text);
    assert_eq!(gone.json()["policy"]["monitor"], "0x1/4", "{}", gone.text);
    let records = get(&server, "/api/v1/audit").await.json();
    let told = records["items"].as_array().unwrap().iter().map(|record| record["what"].clone());
    let told: Vec<_> = told.collect();
    assert!(told.contains(&json!("policy.expire")), "the first one has its record: {told:?}");
}

#[tokio::test]
async fn a_refused_policy_of_any_length_has_a_short_record() {
    let server = Running::start(with_rest()).await;
    let filter = format!("tcp{}", " or tcp".repeat(60 * 1024 / 7));
    let policy = json!({"name": "long", "monitor": "3", "filter": filter});
    assert_eq!(post(&server, "/api/v1/policies", &policy).await.status, 422);
    let name = json!({"name": "\u{1}".repeat(9000), "monitor": "3"});
    assert_eq!(post(&server, "/api/v1/policies", &name).await.status, 422);
    let records = server.handle.audit(0, 10).await.unwrap();
    let lens: Vec<_> = records.iter().map(String::len).collect();
    assert!(lens.len() == 2 && lens.iter().all(|len| *len < 8 << 10), "{lens:?}");
}
