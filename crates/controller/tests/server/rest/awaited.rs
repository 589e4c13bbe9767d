//! A restarted controller knows switches before they connect.

use serde_json::json;
use tapswitch_controller::{Config, StoreConfig};

use super::client::{Answer, get, post, with_rest};
use super::store::restart;
use crate::etcd::Etcd;
use crate::running::{Running, until};
use crate::script::Script;

/// Checks that the request is too early, and that the response names a time to retry.
fn is_early(answer: &Answer) {
    assert_eq!(answer.refusal(), (503, "switch-awaited".to_owned()), "{}", answer.text);
    assert_eq!(answer.headers["retry-after"], "1");
    assert!(answer.text.contains("switch 0x1"), "{}", answer.text);
}

#[tokio::test]
async fn what_is_asked_of_switches_that_are_still_to_come_is_early_and_not_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig::File(directory.path().join("c"));
    switches_are_awaited(Config { store, ..with_rest() }, async || {}).await;
}

#[tokio::test]
async fn a_leader_awaits_the_switches_of_the_last_one() {
    let Some(etcd) = Etcd::start().await else { return };
    let are_kept = async || until(async || etcd.count("/t/switches/").await == 2).await;
    switches_are_awaited(Config { store: etcd.store(), ..with_rest() }, are_kept).await;
}

/// Waits until a controller, which may share its store, answers.
async fn leads(server: &Running) {
    until(async || get(server, "/api/v1/cluster").await.json()["role"] != "follower").await;
}

/// Restarts a controller to which two switches were connected; `are_kept` waits until both are in
/// its store.
async fn switches_are_awaited(config: Config, are_kept: impl AsyncFnOnce()) {
    let server = Running::start(config.clone()).await;
    leads(&server).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let kept = json!({"name": "kept", "monitor": "0x1/3"});
    assert_eq!(post(&server, "/api/v1/policies", &kept).await.status, 201);
    // A switch without policies, which may be linked to the first one.
    let other = Script::connect(2, server.address).await;
    server.wait_for_ports(2).await;
    are_kept().await;
    server.stop().await;
    let (state, _) = (switch.disconnect().await, other.disconnect().await);

    let server = restart(config).await;
    leads(&server).await;
    let policies = "/api/v1/policies";
    let new = |monitor: &str| json!({"name": "new", "monitor": monitor, "dst-port": 80});
    for monitor in ["0x1/4", "4", "p4", "02:00:00:00:00:09", "10.0.0.9"] {
        is_early(&post(&server, policies, &new(monitor)).await);
        is_early(&post(&server, "/api/v1/policies?dry_run=true", &new(monitor)).await);
    }
    for path in ["/api/v1/switches/0x1", "/api/v1/switches/0x1/ports"] {
        is_early(&get(&server, path).await);
    }
    let early = (503, "switch-awaited".to_owned());
    assert_eq!(post(&server, policies, &new("0x2/3")).await.refusal(), early);
    assert_eq!(get(&server, "/api/v1/switches/0x2").await.refusal(), early);
    // An unknown switch remains an error.
    let unknown = (422, "unknown-switch".to_owned());
    assert_eq!(post(&server, policies, &new("0x7/1")).await.refusal(), unknown);
    assert_eq!(get(&server, "/api/v1/switches/0x7").await.status, 404);

    let _switch = Script::connect_again(1, server.address, state).await;
    until(async || {
        let added = post(&server, policies, &new("0x1/4")).await;
        match added.status {
            201 => true,
            _ => {
                is_early(&added);
                false
            }
        }
    })
    .await;
    let unknown = (422, "unknown-monitor".to_owned());
    let other = json!({"name": "other", "monitor": "0x1/9"});
    assert_eq!(post(&server, policies, &other).await.refusal(), unknown);
}
