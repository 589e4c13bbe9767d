//! Connections that come, go, and misbehave.

use std::sync::Arc;
use std::time::Duration;

use tapswitch_control::{Direction, IpPrefix, TapPolicy};
use tapswitch_controller::{BindError, Config, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::running::{Running, config, me, until};
use crate::script::{Deaf, Script, arp, port_status};

fn policy(name: &str, monitor: &str) -> TapPolicy {
    TapPolicy::new(name, monitor.parse().unwrap())
}

#[tokio::test]
async fn an_address_in_use_is_said_to_be() {
    let server = Running::start(config()).await;
    let address = server.address;
    let again = Server::bind(Config { listen: vec![address], ..config() }).await.unwrap_err();
    let told = "is already in use, perhaps by another controller; choose another with --listen";
    assert_eq!(again.to_string(), format!("{address} {told}"));
    let elsewhere = vec!["192.0.2.1:0".parse().unwrap()];
    let error = Server::bind(Config { listen: elsewhere, ..config() }).await.unwrap_err();
    assert!(matches!(error, BindError::NotHere { .. }), "{error}");
    let error = Server::bind(Config { listen: vec![], ..config() }).await.unwrap_err();
    assert!(matches!(error, BindError::Nowhere), "{error}");
}

#[tokio::test]
async fn a_configured_policy_that_cannot_be_is_told_by_name() {
    let twice = vec![policy("p", "3"), policy("p", "4")];
    let error = Server::bind(Config { policies: twice, ..config() }).await.unwrap_err();
    assert!(error.to_string().starts_with("policy p: name p: there is a policy"), "{error}");
}

#[tokio::test]
async fn a_switch_that_comes_back_is_left_alone() {
    let server = Running::start(config()).await;
    let switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    server.handle.add_policy(&me(), policy("all", "3")).await.unwrap();
    let state = switch.disconnect().await;
    until(async || !server.handle.switches().await.unwrap()[0].is_connected).await;
    state.lock().unwrap().changes = 0;
    let switch = Script::connect_again(1, server.address, state).await;
    server.wait_for_ports(1).await;
    // The changes caused by this later message are the only ones.
    switch.say(arp(1, 2));
    until(async || switch.state.lock().unwrap().changes > 0).await;
    until(async || switch.state.lock().unwrap().rules.len() == 9 + 3).await;
    assert_eq!(switch.state.lock().unwrap().changes, 3 + 1, "those of the host, and one group");
}

#[tokio::test]
async fn a_newer_connection_of_a_switch_takes_over() {
    let server = Running::start(config()).await;
    let old = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let new = Script::connect_again(1, server.address, Arc::clone(&old.state)).await;
    old.closed().await;
    server.wait_for_ports(1).await;
    server.handle.add_policy(&me(), policy("all", "3")).await.unwrap();
    assert_eq!(new.tap_count(), 1);
}

#[tokio::test]
async fn a_switch_that_connects_again_does_not_wait_for_its_silent_connection() {
    let config = Config { takeover_after: Duration::from_millis(100), ..config() };
    let server = Running::start(config).await;
    let _silent = Deaf::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let new = Script::connect(1, server.address).await;
    // The deaf switch has no rules to read back.
    until(async || !new.state.lock().unwrap().rules.is_empty()).await;
    server.handle.add_policy(&me(), policy("all", "3")).await.unwrap();
    assert_eq!(new.tap_count(), 1);
}

#[tokio::test]
async fn two_switches_with_one_name_do_not_throw_each_other_out() {
    let config = Config { takeover_after: Duration::from_secs(3600), ..config() };
    let server = Running::start(config).await;
    let first = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    // It reconnects repeatedly, as switches do.
    for _ in 0..3 {
        Script::connect(1, server.address).await.closed().await;
        assert!(!first.is_closed());
    }
    server.handle.add_policy(&me(), policy("all", "3")).await.unwrap();
    assert_eq!(first.tap_count(), 1);
}

#[tokio::test]
async fn what_is_no_switch_does_no_harm() {
    let server = Running::start(config()).await;
    let mut browser = TcpStream::connect(server.address).await.unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    // A hello, then the end; possibly a reset, as not everything was read.
    let _ = browser.read_to_end(&mut rest).await;
    let _switch = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
}

#[tokio::test]
async fn a_switch_that_does_not_read_holds_up_nobody_and_is_disconnected() {
    let channel = tapswitch_channel::Config {
        max_unsent_len: 64 << 10,
        // The connection must not end because of silence.
        echo_interval: Duration::from_secs(3600),
        ..tapswitch_channel::Config::default()
    };
    let policies = (0..400u16).map(|number| TapPolicy {
        src_ip: Some(IpPrefix::host([10, 1, (number >> 8) as u8, number as u8])),
        // Otherwise all of them overlap.
        direction: Some(Direction::Forward),
        ..policy(&format!("p{number}"), "0x1/3")
    });
    let policies = policies.collect();
    let config = Config { channel, policies, max_waiting: 4000, ..config() };
    let server = Running::start(config).await;
    let mut deaf = Deaf::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let other = Script::connect(2, server.address).await;
    server.wait_for_ports(2).await;

    // The monitor's link goes up and down, and with it the rules, which the switch does not read.
    let mut is_up = false;
    until(async || {
        let is_heard = deaf.say(port_status(3, is_up)).await;
        is_up = !is_up;
        let switches = server.handle.switches().await.unwrap();
        !is_heard || !switches[0].is_connected
    })
    .await;
    server.handle.add_policy(&me(), policy("other", "0x2/3")).await.unwrap();
    assert_eq!(other.tap_count(), 1);
}
