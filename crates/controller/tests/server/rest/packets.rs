//! Packets of a policy that come to the controller.

use serde_json::{Value, json};
use tapswitch_openflow::*;

use super::client::{post, with_rest};
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
    // An id of another run, or of nobody, hides nothing.
    for id in ["1-99", "x"] {
        let mut other = Events::open_at(&server, PACKETS, &[("last-event-id", id)]).await;
        assert_eq!(last_byte(&other.next_of("packet").await), "00");
    }
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
