//! The result does not depend on how the stream is split.

use std::time::Instant;

use proptest::prelude::*;
use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

#[test]
fn byte_by_byte_is_as_good_as_all_at_once() {
    let mut pair = Pair::new(Config::default());
    pair.chunk_len = 1;
    pair.exchange();
    let ready = ControllerEvent::Ready { features: features() };
    assert_eq!(pair.take_controller_events(), [ready]);
    let (xid, events) = pair.ask(Body::BarrierRequest);
    let request = Message { xid, body: Body::BarrierRequest };
    assert_eq!(events, [SwitchEvent::Ready, SwitchEvent::Request(request)]);
    pair.switch.reply(xid, Body::BarrierReply).unwrap();
    pair.exchange();
    let reply = ControllerEvent::Reply { xid, body: Body::BarrierReply };
    assert_eq!(pair.take_controller_events(), [reply]);
}

/// Messages of a controller, valid and invalid.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let part = |more| {
        let body = MultipartRequestBody::TableFeatures(vec![]);
        Body::MultipartRequest(MultipartRequest { more, body })
    };
    let mut bad_prerequisite = FlowMod::new(FlowModCommand::Add);
    bad_prerequisite.match_fields = Match::new().with(Oxm::TcpDst(1));
    let master = RoleMessage { role: ControllerRole::Master, generation_id: 1 };
    let bodies = vec![
        Body::EchoRequest(vec![1, 2, 3]),
        Body::BarrierRequest,
        Body::FeaturesRequest,
        Body::GetAsyncRequest,
        Body::RoleRequest(master),
        Body::BarrierReply,
        flow_mod(),
        Body::FlowMod(bad_prerequisite),
        part(true),
        part(false),
        Body::EchoRequest(vec![0; 5000]),
    ];
    let broken = vec![
        vec![4, 99, 0, 8, 0, 0, 0, 1],
        vec![9, 2, 0, 8, 0, 0, 0, 1],
        vec![4, 14, 0, 9, 0, 0, 0, 1, 0],
    ];
    prop_oneof![
        9 => (0..4u32, prop::sample::select(bodies)).prop_map(|(xid, body)| encode(xid, body)),
        3 => prop::sample::select(broken),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

/// Events and output of a switch for this input.
fn run(chunks: &[&[u8]]) -> (Vec<SwitchEvent>, Vec<u8>) {
    let now = Instant::now();
    let mut switch = SwitchConnection::new(Config::default(), now);
    let mut events = Vec::new();
    for chunk in chunks {
        switch.handle_bytes(chunk, now);
        while let Some(event) = switch.poll_event() {
            events.push(event);
        }
    }
    switch.handle_eof();
    events.extend(std::iter::from_fn(|| switch.poll_event()));
    (events, switch.poll_transmit().to_vec())
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        frames in prop::collection::vec(frame(), 0..20),
        has_hello in prop::bool::weighted(0.9),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let mut stream = match has_hello {
            true => encode(1, Body::Hello(Hello::new())),
            false => Vec::new(),
        };
        stream.extend(frames.concat());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let chunks: Vec<_> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
        let bytes: Vec<_> = stream.chunks(1).collect();
        let whole = run(&[&stream]);
        prop_assert_eq!(&run(&chunks), &whole);
        prop_assert_eq!(&run(&bytes), &whole);
        let ends = whole.0.iter().filter(|event| matches!(event, SwitchEvent::Closed(_)));
        prop_assert_eq!(ends.count(), 1, "it ends once");
    }
}
