//! What outlives the server.

use serde_json::json;
use tapswitch_controller::{Config, Server, StoreConfig};

use super::client::{ask_with, get, post, with_rest};
use crate::running::{Running, until};
use crate::script::Script;

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
    assert_eq!(get(&server, "/api/v1/audit").await.json()["total"], 4);
    assert_eq!(get(&server, "/api/v1/config").await.json()["store"], "disk");
}

#[tokio::test]
async fn a_policy_of_the_configuration_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig::File(directory.path().join("c"));
    let policies = vec![tapswitch_control::TapPolicy::new("p", "3".parse().unwrap())];
    let config = Config { store: store.clone(), policies, ..with_rest() };
    let server = Running::start(config).await;
    let told = get(&server, "/api/v1/policies/p").await.json();
    assert_eq!(told["owner"], "configuration");
    server.stop().await;
    let server = restart(Config { store, ..with_rest() }).await;
    assert_eq!(get(&server, "/api/v1/policies").await.json()["total"], 0);
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

/// The file of a server that ended is closed by a thread of its own.
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
