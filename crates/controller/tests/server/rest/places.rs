//! Any number of unidentified connections does not lock others out.

use tapswitch_controller::{Config, RestConfig};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::client::{get, with_rest};
use super::live::Events;
use crate::running::{Running, until};
use crate::script::Script;

/// A server with this limit for client connections and for switch connections.
fn narrow(max_connections: usize) -> Config {
    let base = with_rest();
    let rest = RestConfig { max_connections, ..base.rest.unwrap() };
    Config { rest: Some(rest), max_connections, ..base }
}

/// Value of a metric for clients or switches.
pub(super) async fn metric(server: &Running, name: &str, of: &str) -> u64 {
    let text = get(server, "/metrics").await.text;
    let start = format!("tapswitch_controller_connections{name}{{of=\"{of}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start}: {text}")).parse().unwrap()
}

#[tokio::test]
async fn connections_that_say_nothing_make_room() {
    let server = Running::start(narrow(4)).await;
    let mut events = Events::open(&server, &[]).await;
    let mut idle = Vec::new();
    for _ in 0..9 {
        idle.push(TcpStream::connect(server.rest()).await.unwrap());
    }
    assert_eq!(get(&server, "/api/v1/me").await.status, 200);
    assert_eq!(idle[0].read(&mut [0]).await.unwrap(), 0, "the oldest one is closed");
    assert!(metric(&server, "_evicted_total", "rest").await >= 6);
    assert_eq!(metric(&server, "_refused_total", "rest").await, 0);
    let _switch = Script::connect(1, server.address).await;
    assert_eq!(events.next_of("switch").await["switch"], "0x1", "who was let in stays");
}

#[tokio::test]
async fn where_all_are_known_one_more_is_turned_away() {
    let server = Running::start(narrow(2)).await;
    let _first = Events::open(&server, &[]).await;
    let second = Events::open(&server, &[]).await;
    let mut third = TcpStream::connect(server.rest()).await.unwrap();
    assert_eq!(third.read(&mut [0]).await.unwrap(), 0);
    drop(second);
    until(async || {
        let mut next = TcpStream::connect(server.rest()).await.unwrap();
        let wait = std::time::Duration::from_millis(50);
        tokio::time::timeout(wait, next.read(&mut [0])).await.is_err()
    })
    .await;
    assert!(metric(&server, "_refused_total", "rest").await >= 1);
}

#[tokio::test]
async fn who_connects_and_is_no_switch_makes_room_for_switches() {
    let server = Running::start(narrow(2)).await;
    let first = Script::connect(1, server.address).await;
    server.wait_for_ports(1).await;
    let mut idle = Vec::new();
    for _ in 0..9 {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    let _second = Script::connect(2, server.address).await;
    server.wait_for_ports(2).await;
    let mut hello = Vec::new();
    idle[0].read_to_end(&mut hello).await.unwrap();
    assert!(!first.is_closed());
    assert_eq!(metric(&server, "_evicted_total", "switches").await, 9);
    assert_eq!(metric(&server, "", "switches").await, 2);
}
