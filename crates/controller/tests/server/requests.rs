//! Requests and their results.

use std::time::Duration;

use tapswitch_control::{Counts, PolicyState, TapPolicy};
use tapswitch_controller::{Config, RequestError};

use crate::running::{Running, config, me, until};
use crate::script::{Script, arp, port_status};

fn policy(name: &str, monitor: &str) -> TapPolicy {
    TapPolicy::new(name, monitor.parse().unwrap())
}

async fn with_switch(config: Config) -> (Running, Script) {
    let server = Running::start(config).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    (server, switch)
}

#[tokio::test]
async fn a_switch_gets_its_rules_and_is_reported() {
    let (server, switch) = with_switch(config()).await;
    let report = &server.handle.switches().await.unwrap()[0];
    let ports: Vec<_> = report.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!((report.rules, ports), (8, vec!["p1", "p2", "p3", "p4"]));
    until(async || switch.state.lock().unwrap().rules.len() == 8).await;
}

#[tokio::test]
async fn hosts_are_learned() {
    let (server, switch) = with_switch(config()).await;
    switch.say(arp(1, 2));
    until(async || !server.handle.hosts().await.unwrap().is_empty()).await;
    let host = server.handle.hosts().await.unwrap().remove(0);
    assert_eq!((host.port.as_str(), host.port_name.as_str()), ("2", "p2"));
    assert_eq!(host.addresses, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
}

#[tokio::test]
async fn a_policy_is_in_force_when_it_is_added_and_gone_when_it_is_deleted() {
    let (server, switch) = with_switch(config()).await;
    let report = server.handle.add_policy(&me(), policy("all", "p3")).await.unwrap();
    assert_eq!(report.state, PolicyState::Active);
    assert_eq!(report.monitor.map(|monitor| monitor.port), Some(3));
    assert_eq!(switch.tap_count(), 1);

    switch.state.lock().unwrap().counted = 7;
    let report = server.handle.policy("all").await.unwrap();
    assert_eq!(report.matched, Counts { packets: 7, bytes: 700 });
    assert_eq!(server.handle.policies().await.unwrap(), [report]);

    switch.state.lock().unwrap().counted = 9;
    let report = server.handle.delete_policy(&me(), "all", false).await.unwrap().report;
    assert_eq!((report.matched.packets, report.copied[0].counts.packets), (9, 9));
    assert!(report.is_complete);
    assert_eq!(switch.tap_count(), 0);
    assert_eq!(server.handle.policies().await.unwrap(), []);
}

#[tokio::test]
async fn what_is_wrong_with_a_policy_is_said() {
    let (server, _switch) = with_switch(config()).await;
    let refusal =
        async |policy| server.handle.add_policy(&me(), policy).await.unwrap_err().to_string();
    let unknown = refusal(policy("p", "mon0")).await;
    assert!(unknown.contains("there is no such port; known ports: 1 (p1)"), "{unknown}");
    server.handle.add_policy(&me(), policy("p", "3")).await.unwrap();
    assert!(refusal(policy("p", "3")).await.starts_with("name p: there is a policy"));
    let missing = server.handle.delete_policy(&me(), "q", false).await.unwrap_err().to_string();
    assert_eq!(missing, "there is no policy named q; there are: p");
    assert_eq!(server.handle.policy("q").await.unwrap_err().to_string(), missing);
}

#[tokio::test]
async fn a_policy_that_the_switch_refuses_is_taken_back() {
    let (server, switch) = with_switch(config()).await;
    switch.state.lock().unwrap().refused_priority = Some(1008);
    let error = server.handle.add_policy(&me(), policy("all", "3")).await.unwrap_err();
    assert!(matches!(error, RequestError::NotInstalled { .. }), "{error:?}");
    assert!(error.to_string().contains("OFPFMFC_TABLE_FULL"), "{error}");
    assert_eq!(server.handle.policies().await.unwrap(), []);
    until(async || switch.state.lock().unwrap().groups.is_empty()).await;
}

#[tokio::test]
async fn who_asks_is_not_kept_waiting_for_a_switch_that_does_not_answer() {
    // The switch answers in order, so counters wait behind the unanswered barrier.
    let (request_timeout, stats_timeout) = (Duration::from_millis(50), Duration::from_millis(50));
    let config = Config { request_timeout, stats_timeout, ..config() };
    let (server, switch) = with_switch(config).await;
    until(async || switch.state.lock().unwrap().rules.len() == 8).await;
    switch.state.lock().unwrap().is_mute = true;
    let error = server.handle.add_policy(&me(), policy("all", "3")).await.unwrap_err();
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error:?}");
    let report = server.handle.policy("all").await.unwrap();
    assert_eq!(report.state, PolicyState::Installing);
}

#[tokio::test]
async fn configured_policies_wait_for_their_monitor() {
    let config = Config { policies: vec![policy("all", "10.0.0.9")], ..config() };
    let (server, switch) = with_switch(config).await;
    let state = async || server.handle.policy("all").await.unwrap().state;
    assert!(matches!(state().await, PolicyState::Pending { .. }));
    switch.say(arp(9, 4));
    until(async || state().await == PolicyState::Active).await;
    assert_eq!(switch.tap_count(), 2);
    switch.say(port_status(4, false));
    until(async || matches!(state().await, PolicyState::Pending { .. })).await;
}

#[tokio::test]
async fn a_stopped_server_says_so() {
    let (server, switch) = with_switch(config()).await;
    let handle = server.stop().await;
    assert_eq!(handle.switches().await, Err(RequestError::Stopped));
    switch.closed().await;
}
