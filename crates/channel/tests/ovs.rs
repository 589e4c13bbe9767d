//! The switch's end with an independent controller: `ovs-ofctl`, over a socket.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use tapswitch_channel::*;
use tapswitch_openflow::multipart::*;
use tapswitch_openflow::*;

#[test]
fn ovs_shows_the_switch() {
    let Some((text, _)) = serve(&["show"]) else { return };
    assert!(text.contains("OFPT_FEATURES_REPLY (OF1.3)"), "{text}");
    assert!(text.contains("dpid:0000000000000042"), "{text}");
    assert!(text.contains("1(tap0): addr:02:00:00:00:00:01"), "{text}");
    assert!(text.contains("OFPT_GET_CONFIG_REPLY (OF1.3)"), "{text}");
}

#[test]
fn ovs_joins_what_we_cut() {
    let Some((text, _)) = serve(&["dump-flows"]) else { return };
    let flows = text.lines().filter(|line| line.contains("actions=output:2")).count();
    assert_eq!(flows, FLOWS);
}

#[test]
fn ovs_adds_a_flow() {
    let flow = "table=3,priority=7,tcp,tcp_dst=80,actions=push_vlan:0x88a8,output:2";
    let Some((text, requests)) = serve(&["add-flow", flow]) else { return };
    assert_eq!(text, "");
    let added: Vec<_> = requests
        .iter()
        .filter_map(|request| match &request.body {
            Body::FlowMod(flow_mod) => Some(flow_mod.to_string()),
            _ => None,
        })
        .collect();
    let expected = "add table=3,priority=7,dl_type=0x0800,nw_proto=6,tcp_dst=80 \
                    actions=push_vlan:0x88a8,output:2";
    assert_eq!(added, [expected]);
}

#[test]
fn ovs_hears_why_a_flow_is_refused() {
    let Some((text, requests)) = serve(&["add-flow", "actions=resubmit(,1)"]) else { return };
    assert!(text.contains("OFPBAC_BAD_VENDOR"), "that is BAD_EXPERIMENTER there: {text}");
    let is_flow_mod = |request: &Message| matches!(request.body, Body::FlowMod(_));
    assert!(!requests.iter().any(is_flow_mod));
}

/// Runs `ovs-ofctl` with this command on our switch. Returns its output, and the requests to the
/// switch; `None` if the program is not installed.
fn serve(command: &[&str]) -> Option<(String, Vec<Message>)> {
    if ovs_ofctl(&["--version"]).is_err() {
        println!("SKIP: ovs-ofctl is not there; install openvswitch-common to run this test");
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let target = format!("tcp:{address}");
    let (verb, rest) = command.split_first().expect("a command");
    let arguments = [&["-O", "OpenFlow13", verb, &target], rest].concat();
    let asked = Mutex::new(Vec::new());
    let is_done = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok((stream, _)) = listener.accept() {
                if is_done.load(Ordering::SeqCst) {
                    return;
                }
                scope.spawn(|| {
                    let requests = run_switch(stream);
                    asked.lock().unwrap().extend(requests);
                });
            }
        });
        let output = ovs_ofctl(&arguments).unwrap();
        is_done.store(true, Ordering::SeqCst);
        TcpStream::connect(address).unwrap();
        output
    });
    let text = [output.stdout, output.stderr].concat();
    Some((String::from_utf8(text).unwrap(), asked.into_inner().unwrap()))
}

/// Runs the switch's end until the controller disconnects; returns the requests.
fn run_switch(mut stream: TcpStream) -> Vec<Message> {
    let mut connection = SwitchConnection::new(Config::default(), Instant::now());
    let mut requests = Vec::new();
    let mut buffer = [0; 4096];
    while !connection.is_closed() {
        let bytes = connection.poll_transmit();
        // A controller that has disconnected needs no answer.
        let len = stream.write_all(bytes).map_or(0, |()| bytes.len());
        connection.handle_transmitted(len, Instant::now());
        match stream.read(&mut buffer) {
            Ok(len) if len > 0 => connection.handle_bytes(&buffer[..len], Instant::now()),
            _ => connection.handle_eof(),
        }
        while let Some(event) = connection.poll_event() {
            if let SwitchEvent::Request(request) = event {
                answer(&mut connection, &request);
                requests.push(request);
            }
        }
    }
    requests
}

fn answer(connection: &mut SwitchConnection, message: &Message) {
    let body = match &message.body {
        Body::FeaturesRequest => Body::FeaturesReply(features()),
        Body::GetConfigRequest => Body::GetConfigReply(SwitchConfig::default()),
        Body::BarrierRequest => Body::BarrierReply,
        Body::MultipartRequest(request) => match &request.body {
            MultipartRequestBody::PortDesc => reply(MultipartReplyBody::PortDesc(vec![port()])),
            MultipartRequestBody::TableFeatures(_) => {
                reply(MultipartReplyBody::TableFeatures(vec![table()]))
            }
            MultipartRequestBody::Flow(_) => reply(MultipartReplyBody::Flow(vec![flow(); FLOWS])),
            _ => {
                let kind = ErrorKind::OFPBRC_BAD_MULTIPART;
                return connection.refuse(message, kind).unwrap();
            }
        },
        _ => return,
    };
    connection.reply(message.xid, body).unwrap();
}

fn reply(body: MultipartReplyBody) -> Body {
    Body::MultipartReply(MultipartReply::new(body))
}

fn features() -> FeaturesReply {
    FeaturesReply {
        datapath_id: DatapathId(0x42),
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS,
    }
}

fn port() -> Port {
    Port {
        port_no: PortNo(1),
        hw_addr: "02:00:00:00:00:01".parse().unwrap(),
        name: "tap0".into(),
        config: PortConfig::empty(),
        state: PortState::LIVE,
        curr: PortFeatures::RATE_10GB_FD,
        advertised: PortFeatures::empty(),
        supported: PortFeatures::empty(),
        peer: PortFeatures::empty(),
        curr_speed: 10_000_000,
        max_speed: 10_000_000,
    }
}

/// A table with the properties that Open vSwitch requires.
fn table() -> TableFeatures {
    use TableFeaturesProperty as Property;
    TableFeatures {
        name: "taps".into(),
        max_entries: 1000,
        properties: vec![
            Property::Instructions(vec![]),
            Property::NextTables(vec![]),
            Property::WriteActions(vec![]),
            Property::ApplyActions(vec![]),
            Property::Match(vec![]),
            Property::Wildcards(vec![]),
            Property::WriteSetField(vec![]),
            Property::ApplySetField(vec![]),
        ],
        ..TableFeatures::default()
    }
}

fn flow() -> FlowStats {
    FlowStats {
        table_id: TableId(0),
        duration_sec: 1,
        duration_nsec: 0,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: FlowModFlags::empty(),
        cookie: 0,
        packet_count: 0,
        byte_count: 0,
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(2))])],
    }
}

fn ovs_ofctl(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("ovs-ofctl").args(arguments).output()
}

/// Enough for several messages.
const FLOWS: usize = 3000;
