//! Port modes, the envelope and learning per VLAN, on a whole switch.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use std::sync::Arc;

use crate::common::{Switch, apply, goto, mac, out, tcp, write};
use proptest::prelude::*;
use tapswitch_datapath::vlan::{
    MapEntry, PortMode, Provider, Selective, ServiceMap, Translations, Trunk, Tunnel, Vid, VidSet,
};
use tapswitch_datapath::{DropReason, MacLearning, Millis, Oversize, Port};
use tapswitch_openflow::{Action, Bucket, GroupType, Oxm, PortConfig, PortNo};
use tapswitch_wire::{EtherType, GsoType, NetHeader, NetHeaderFlags};

const C10: u32 = 0x8100_000a;
const C20: u32 = 0x8100_0014;
const S100: u32 = 0x88a8_0064;

fn vid(number: u16) -> Vid {
    Vid::new(number).unwrap()
}

fn set(numbers: &[u16]) -> VidSet {
    let mut set = VidSet::none();
    numbers.iter().for_each(|&number| set.insert_range(vid(number), vid(number)));
    set
}

fn access(number: u16) -> PortMode {
    PortMode::Access(vid(number))
}

fn trunk(numbers: &[u16]) -> PortMode {
    PortMode::Trunk(Trunk { vlans: set(numbers), native: None })
}

fn native(number: u16) -> PortMode {
    PortMode::Trunk(Trunk { vlans: set(&[]), native: Some(vid(number)) })
}

fn tunnel(service: u16) -> PortMode {
    PortMode::Tunnel(Tunnel { service: vid(service), customers: None })
}

fn provider(numbers: &[u16]) -> PortMode {
    let tpid = EtherType::SERVICE_VLAN;
    let provider = Provider::new(Some(set(numbers)), tpid, Translations::default());
    PortMode::Provider(provider.unwrap())
}

/// A switch with NORMAL for everything, and these modes of ports 1, 2, ...
fn normal(modes: &[Option<PortMode>]) -> Switch {
    let mut switch = with_modes(modes);
    switch.flow(0, 0, &[], &[apply(&[Action::output(PortNo::NORMAL)])]);
    switch
}

fn with_modes(modes: &[Option<PortMode>]) -> Switch {
    let mut switch = Switch::new(modes.len() as u32);
    for (mode, number) in modes.iter().zip(1..) {
        switch.set_port(number, |port| port.mode = mode.clone().map(Arc::new));
    }
    switch
}

fn tagged(tags: &[u32]) -> Vec<u8> {
    let mut packet = tcp();
    packet.tags = tags.to_vec();
    packet.bytes()
}

/// The same from station 2 to station 1.
fn answer(tags: &[u32]) -> Vec<u8> {
    let mut packet = tcp();
    (packet.src, packet.dst, packet.tags) = (2, 1, tags.to_vec());
    packet.bytes()
}

#[test]
fn normal_keeps_vlans_apart_and_each_port_sees_its_own_form() {
    let mut switch = normal(&[
        Some(access(10)),
        Some(access(10)),
        Some(access(20)),
        Some(trunk(&[10, 20])),
        None,
    ]);
    assert_eq!(switch.receive(1, &tagged(&[])), [2, 4, 5], "the flood leaves VLAN 20 out");
    assert_eq!(switch.sent(2), tagged(&[]));
    assert_eq!(switch.sent(4), tagged(&[C10]));
    assert_eq!(switch.sent(5), tagged(&[C10]), "no mode: the inner form");
    assert_eq!(switch.drops(3, DropReason::VlanNotMember), 0, "a membership is no drop");
    assert_eq!(switch.receive(4, &answer(&[C10])), [1], "learnt");
    assert_eq!(switch.sent(1), answer(&[]));
    assert_eq!(switch.receive(4, &answer(&[C20])), [3, 5], "in VLAN 20 nobody was seen");
}

#[test]
fn frames_that_a_mode_does_not_take_are_a_named_drop() {
    let mut switch = normal(&[Some(access(10)), Some(trunk(&[10])), None]);
    assert!(switch.receive(1, &tagged(&[C20])).is_empty());
    assert!(switch.receive(2, &tagged(&[])).is_empty());
    for port in [1, 2] {
        assert_eq!(switch.drops(port, DropReason::VlanFiltered), 1);
        assert_eq!(switch.port(port).counters.rx().frames, 1);
    }
    assert_eq!(switch.macs.table().count(), 0, "nobody is learnt from them");
    assert!(switch.receive(1, &tagged(&[])[..13]).is_empty());
    assert_eq!(switch.drops(1, DropReason::Truncated), 1);
}

#[test]
fn a_priority_is_kept_on_the_way_into_a_vlan() {
    let mut switch = normal(&[Some(access(10)), None]);
    switch.receive(1, &tagged(&[0x8100_a000]));
    assert_eq!(switch.sent(2), tagged(&[0x8100_a00a]));
}

#[test]
fn an_explicit_output_to_a_stranger_is_a_named_drop() {
    let mut switch = with_modes(&[Some(access(10)), Some(access(20)), Some(access(10))]);
    switch.flow(0, 1, &[], &[apply(&[out(2), out(3)])]);
    assert_eq!(switch.receive(1, &tagged(&[])), [3]);
    assert_eq!(switch.drops(2, DropReason::VlanNotMember), 1);
    assert_eq!(switch.port(2).counters.tx().frames, 0);
}

/// [C 10][C 20] in by a trunk would be a frame of VLAN 20 behind an access port of VLAN 10.
#[test]
fn an_access_port_gives_no_frame_that_is_still_tagged() {
    let mut switch = normal(&[Some(access(10)), Some(trunk(&[10, 20])), Some(trunk(&[10]))]);
    switch.receive(1, &answer(&[]));
    assert!(switch.receive(2, &tagged(&[C10, C20])).is_empty(), "the sender is known to be there");
    assert_eq!(switch.drops(1, DropReason::VlanNotMember), 1);
    assert_eq!(switch.receive(2, &tagged(&[C10, 0x8100_a000])), [1]);
    assert_eq!(switch.sent(1), tagged(&[0x8100_a000]), "a priority tag is no other VLAN's");
    switch.receive(2, &tagged(&[C10]));
    assert_eq!(switch.receive(3, &answer(&[C10, S100])), [2], "learnt at the trunk");
    let mut flooding = normal(&[Some(access(10)), Some(trunk(&[10])), Some(trunk(&[10]))]);
    assert_eq!(flooding.receive(2, &tagged(&[C10, C20])), [3], "a flood leaves it out");
    assert_eq!(flooding.drops(1, DropReason::VlanNotMember), 0);
}

#[test]
fn unicast_to_a_port_that_left_the_vlan_is_a_named_drop() {
    let mut switch = normal(&[Some(access(10)), Some(access(10))]);
    switch.receive(2, &answer(&[]));
    assert_eq!(switch.receive(1, &tagged(&[])), [2]);
    switch.set_port(2, |port| port.mode = Some(Arc::new(access(20))));
    assert!(switch.receive(1, &tagged(&[])).is_empty());
    assert_eq!(switch.drops(2, DropReason::VlanNotMember), 1);
}

#[test]
fn a_tunnel_carries_what_the_customer_sends() {
    let mut switch = normal(&[Some(tunnel(100)), Some(tunnel(100)), Some(provider(&[100])), None]);
    for (tags, service) in [
        (&[][..], S100),
        (&[C10], S100),
        (&[0x8100_b00a], 0x88a8_b064),
        (&[S100, C10], S100),
        (&[0x9100_0001, 0x88a8_0002, 0x8100_0003, 0x8100_0004], S100),
    ] {
        assert_eq!(switch.receive(1, &tagged(tags)), [2, 3, 4], "{tags:x?}");
        let wrapped = tagged(&[&[service], tags].concat());
        assert_eq!(switch.sent(2), tagged(tags), "{tags:x?}");
        assert_eq!((switch.sent(3), switch.sent(4)), (&wrapped[..], &wrapped[..]), "{tags:x?}");
    }
}

#[test]
fn a_selective_port_translates_and_later_outputs_see_the_inner_form() {
    let entry = MapEntry { first: vid(10), last: vid(10), service: vid(100), inner: Some(vid(20)) };
    let map = ServiceMap::new(vec![entry]).unwrap();
    let selective = PortMode::Selective(Selective { map, untagged: None });
    let mut switch = with_modes(&[Some(selective.clone()), Some(selective), None]);
    switch.flow(0, 1, &[], &[apply(&[out(3), out(2), out(3)])]);
    assert_eq!(switch.receive(1, &tagged(&[0x8100_700a])), [3, 2, 3]);
    let inner = tagged(&[0x88a8_7064, 0x8100_7014]);
    assert_eq!(switch.out.sent[0].1, inner);
    assert_eq!(switch.out.sent[1].1, tagged(&[0x8100_700a]), "as it came in");
    assert_eq!(switch.out.sent[2].1, inner, "the edit was undone");
    assert_eq!(switch.out.sent[0].2, switch.out.sent[2].2, "so was its metadata");
}

#[test]
fn rules_match_the_inner_form_and_groups_copy_it() {
    let mut switch = with_modes(&[Some(tunnel(100)), Some(tunnel(100)), None, Some(access(10))]);
    let buckets = [2, 3, 4].map(|port| Bucket::new(vec![out(port)])).to_vec();
    switch.group(7, GroupType::All, buckets);
    let group = Action::Group(tapswitch_openflow::GroupId(7));
    switch.flow(0, 1, &[Oxm::VlanVid((0x1000 | 100).into())], &[apply(&[group])]);
    assert_eq!(switch.receive(1, &tagged(&[C10])), [2, 3]);
    assert_eq!(switch.sent(2), tagged(&[C10]));
    assert_eq!(switch.sent(3), tagged(&[S100, C10]), "a monitor without a mode sees all tags");
    assert_eq!(switch.drops(4, DropReason::VlanNotMember), 1, "one that is no member gets nothing");
    let groups = switch.pipeline.snapshot().groups.clone();
    let bucket = &groups.find(tapswitch_openflow::GroupId(7)).unwrap().buckets[2];
    assert_eq!(bucket.drops.count(DropReason::VlanNotMember), 1, "and the ledger says so");
}

#[test]
fn flood_and_all_go_to_members_and_leave_local_out() {
    for port in [PortNo::FLOOD, PortNo::ALL] {
        let mut switch =
            with_modes(&[None, Some(access(10)), Some(access(20)), Some(trunk(&[10]))]);
        switch.flow(0, 1, &[], &[apply(&[Action::output(port)])]);
        assert_eq!(switch.receive(1, &tagged(&[C10])), [2, 4]);
        assert_eq!(switch.receive(1, &tagged(&[])), [0_u32; 0]);
        assert_eq!(switch.drops(2, DropReason::VlanNotMember), 0);
    }
}

#[test]
fn the_local_port_is_a_member_like_any_other() {
    let mut switch = normal(&[Some(access(10)), Some(access(20))]);
    let local = Port::new(PortNo::LOCAL, "br0".to_owned(), mac(9), 1500, 1);
    let mode = Some(Arc::new(access(10)));
    assert!(switch.pipeline.set_port(Port { mode, ..local }));
    assert_eq!(switch.receive(1, &tagged(&[])), [PortNo::LOCAL.0]);
    assert_eq!(switch.sent(PortNo::LOCAL.0), tagged(&[]));
    assert_eq!(switch.receive(2, &tagged(&[])), [0_u32; 0]);
    assert_eq!(switch.receive(PortNo::LOCAL.0, &answer(&[])), [1]);
}

#[test]
fn a_closed_port_is_closed_whatever_its_mode() {
    let mut switch = with_modes(&[None, Some(access(10))]);
    switch.set_port(2, |port| port.config = PortConfig::NO_FWD);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    switch.receive(1, &tagged(&[C10]));
    assert_eq!(switch.drops(2, DropReason::PortNoForward), 1);
}

#[test]
fn packets_of_the_controller_are_in_the_inner_form() {
    let mut switch = with_modes(&[Some(access(10)), Some(tunnel(100))]);
    assert_eq!(switch.packet_out(PortNo::CONTROLLER, &tagged(&[C10]), &[out(1)]), [1]);
    assert_eq!(switch.sent(1), tagged(&[]));
    assert_eq!(switch.packet_out(PortNo(1), &tagged(&[S100, C10]), &[out(2)]), [2]);
    assert_eq!(switch.sent(2), tagged(&[C10]));
    assert!(switch.packet_out(PortNo::CONTROLLER, &tagged(&[]), &[out(1)]).is_empty());
    assert_eq!(switch.drops(1, DropReason::VlanNotMember), 1);
    let ask = Action::Output { port: PortNo::CONTROLLER, max_len: 128 };
    switch.flow(0, 1, &[], &[apply(&[ask])]);
    switch.receive(1, &tagged(&[]));
    assert_eq!(switch.out.packet_ins[0].1, tagged(&[C10]));
}

/// Link-local frames are in no VLAN: they come in unchanged, whatever the mode. A provider's bridge
/// keeps fewer addresses to itself, and forwards customers' spanning trees among others.
#[test]
fn what_is_for_the_link_is_in_no_vlan() {
    let modes = [access(10), trunk(&[10]), native(10), tunnel(100), provider(&[100])];
    let mut switch = with_modes(&modes.map(Some));
    let ask = Action::Output { port: PortNo::CONTROLLER, max_len: 128 };
    switch.flow(0, 1, &[], &[apply(&[ask])]);
    for port in 1..=5 {
        for last in [0x02, 0x0e] {
            switch.receive(port, &for_link(last));
            assert_eq!(switch.out.packet_ins.pop().unwrap().1, for_link(last), "{last} at {port}");
        }
    }
    switch.receive(4, &for_link(0));
    let wrapped = [&for_link(0)[..12], &S100.to_be_bytes(), &for_link(0)[12..]].concat();
    assert_eq!(switch.out.packet_ins.pop().unwrap().1, wrapped, "it is for the customer's bridges");
    switch.receive(5, &for_link(0));
    assert_eq!(switch.drops(5, DropReason::VlanFiltered), 1);
}

/// Only the controller's own frames to these addresses leave without a VLAN: by rules, hosts of two
/// VLANs would reach each other.
#[test]
fn what_is_for_the_link_leaves_a_port_with_a_mode_when_the_controller_sends_it() {
    let modes = [access(10), trunk(&[10]), native(10), tunnel(100), provider(&[100])];
    let mut switch = with_modes(&modes.map(Some));
    for port in 1..=5 {
        assert_eq!(switch.packet_out(PortNo::CONTROLLER, &for_link(0x0e), &[out(port)]), [port]);
        assert_eq!(switch.sent(port), for_link(0x0e));
    }
    let flood = [Action::output(PortNo::FLOOD)];
    assert!(switch.packet_out(PortNo::CONTROLLER, &for_link(0x0e), &flood).is_empty());
    switch.flow(0, 1, &[], &[apply(&[out(2), Action::output(PortNo::FLOOD)])]);
    assert!(switch.receive(1, &for_link(0x0e)).is_empty());
    assert_eq!(switch.drops(2, DropReason::VlanNotMember), 1);
    switch.set_port(5, |port| port.config = PortConfig::NO_FWD);
    assert!(switch.packet_out(PortNo::CONTROLLER, &for_link(0x0e), &[out(5)]).is_empty());
}

/// A frame to one of the addresses that bridges do not forward.
fn for_link(last: u8) -> Vec<u8> {
    let mut frame = tagged(&[]);
    frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, last]);
    frame
}

#[test]
fn trains_change_their_tags_with_their_offsets() {
    let mut switch = normal(&[Some(tunnel(100)), Some(provider(&[100])), Some(tunnel(100))]);
    let mut train = tcp();
    (train.payload, train.tags) = (9000, vec![C10]);
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 58,
        gso_size: 1448,
        csum_start: 38,
        csum_offset: 16,
    };
    assert_eq!(switch.receive_with(1, &train.bytes(), meta), [2, 3]);
    let (_, bytes, sent) = &switch.out.sent[0];
    assert_eq!(bytes.len(), train.bytes().len() + 4);
    assert_eq!((sent.csum_start, sent.hdr_len, sent.gso_size), (42, 62, 1448));
    let (_, bytes, sent) = &switch.out.sent[1];
    assert_eq!((bytes, *sent), (&train.bytes(), meta));
    assert_eq!(switch.port(2).counters.tx().packets, 7);
}

#[test]
fn tags_have_an_envelope_of_their_own() {
    let mut switch = Switch::new(2);
    switch.set_port(2, |port| port.envelope = 8);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    let mut packet = tcp();
    packet.payload = 1460;
    for tags in [&[][..], &[C10], &[S100, C10]] {
        packet.tags = tags.to_vec();
        assert_eq!(switch.receive(1, &packet.bytes()), [2], "1500 bytes and {} tags", tags.len());
    }
    packet.payload = 1461;
    assert!(switch.receive(1, &packet.bytes()).is_empty(), "a byte more");
    assert!(switch.receive(1, &tagged(&[S100, C10, C10])).is_empty(), "short, but too many tags");
    assert_eq!(switch.drops(2, DropReason::Oversize), 2);
    assert_eq!(switch.port(2).counters.oversize(), Oversize { payload: 1501, tags: 12 });
}

#[test]
fn the_envelope_is_judged_by_what_is_outside() {
    let mut switch = with_modes(&[None, Some(tunnel(100)), Some(provider(&[100]))]);
    for port in [2, 3] {
        switch.set_port(port, |port| port.envelope = 8);
    }
    switch.flow(0, 1, &[], &[apply(&[out(2), out(3)])]);
    assert_eq!(switch.receive(1, &tagged(&[S100, C10, C20])), [2], "three inside are two outside");
    assert_eq!(switch.drops(3, DropReason::Oversize), 1);
    switch.flow(0, 1, &[], &[apply(&[out(3), out(2)])]);
    assert_eq!(switch.receive(1, &tagged(&[S100, C10, C20])), [2], "in any order");
}

#[test]
fn trains_are_judged_by_their_packets_and_tags() {
    let mut switch = Switch::new(2);
    switch.set_port(2, |port| port.envelope = 8);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    let train = |gso_size, tags: &[u32]| {
        let mut packet = tcp();
        (packet.payload, packet.tags) = (20_000, tags.to_vec());
        let meta = NetHeader { gso_type: GsoType::TCPV4, gso_size, ..NetHeader::PLAIN };
        (packet.bytes(), meta)
    };
    for (gso_size, tags, fits) in [
        (1460, &[S100, C10][..], true),
        (1461, &[S100, C10], false),
        (1000, &[S100, C10, C10], false),
    ] {
        let (bytes, meta) = train(gso_size, tags);
        assert_eq!(!switch.receive_with(1, &bytes, meta).is_empty(), fits, "{gso_size} {tags:x?}");
    }
}

/// Total length that the interface behind the port accepts: 1500 bytes, plus a C-tag.
#[test]
fn tags_that_have_no_room_behind_a_port_are_oversize_for_trains_as_for_packets() {
    let mut switch = Switch::new(2);
    switch.set_port(2, |port| (port.envelope, port.room) = (8, 1500));
    assert_eq!(switch.port(2).full_size_envelope(), 0);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    for (tags, most) in [
        (&[][..], 1460),
        (&[C10], 1460),
        (&[S100], 1456),
        (&[S100, C10], 1452),
        (&[C10, C20], 1456),
    ] {
        for (payload, fits) in [(100, true), (most, true), (most + 1, false)] {
            let mut packet = tcp();
            (packet.payload, packet.tags) = (payload, tags.to_vec());
            let passed = switch.receive(1, &packet.bytes()) == [2];
            assert_eq!(passed, fits, "{payload} bytes behind {tags:x?}");
            packet.payload = 20_000;
            let gso_size = u16::try_from(payload).unwrap();
            let meta = NetHeader { gso_type: GsoType::TCPV4, gso_size, ..NetHeader::PLAIN };
            let passed = switch.receive_with(1, &packet.bytes(), meta) == [2];
            assert_eq!(passed, fits, "a train of {payload} bytes behind {tags:x?}");
        }
    }
}

#[test]
fn learning_by_the_stack_keeps_customers_apart() {
    let (c10, c20) = ([S100, C10], [S100, C20]);
    for by_stack in [false, true] {
        let mut switch = normal(&[None, None, None]);
        switch.macs = MacLearning::new(Millis(300_000), 1024).by_stack(by_stack);
        switch.receive(1, &tagged(&c10));
        switch.receive(2, &tagged(&c20));
        let to_first = switch.receive(3, &answer(&c10));
        assert_eq!(to_first, if by_stack { [1] } else { [2] }, "the last one seen wins by S-VLAN");
    }
}

#[test]
fn a_c_vlan_and_an_s_vlan_of_one_number_are_two() {
    let mut switch = normal(&[None, None, None]);
    switch.receive(1, &tagged(&[0x8100_0064]));
    assert_eq!(switch.receive(3, &answer(&[S100])), [1, 2], "unknown there");
    assert_eq!(switch.receive(3, &answer(&[0x8100_0064])), [1]);
}

#[test]
fn flows_are_shared_out_by_what_is_innermost() {
    let mut switch = with_modes(&[None, None, None, None, Some(tunnel(100))]);
    let buckets = [2, 3, 4].map(|port| Bucket { weight: 1, ..Bucket::new(vec![out(port)]) });
    switch.group(7, GroupType::Select, buckets.to_vec());
    switch.flow(0, 1, &[], &[apply(&[Action::Group(tapswitch_openflow::GroupId(7))])]);
    let mut shares = [0; 5];
    for src_port in 1000..1100 {
        let mut packet = tcp();
        packet.src_port = src_port;
        let [port] = switch.receive(1, &packet.bytes())[..] else { panic!("one bucket") };
        shares[port as usize] += 1;
        for tags in [&[C10][..], &[S100, C10], &[S100, C20], &[S100, S100, C10, C20, C10]] {
            packet.tags = tags.to_vec();
            assert_eq!(switch.receive(1, &packet.bytes()), [port], "{src_port} {tags:x?}");
            assert_eq!(switch.receive(5, &packet.bytes()), [port], "through a tunnel");
        }
    }
    assert!(shares[2..].iter().all(|&share| share > 15), "{shares:?}");
}

fn any_mode() -> impl Strategy<Value = Option<PortMode>> {
    let entry = MapEntry { first: vid(1), last: vid(20), service: vid(100), inner: None };
    let map = ServiceMap::new(vec![entry]).unwrap();
    let selective = Selective { map, untagged: Some(vid(100)) };
    let native = Trunk { vlans: set(&[10, 20]), native: Some(vid(1)) };
    proptest::sample::select(vec![
        None,
        Some(access(10)),
        Some(trunk(&[10, 20])),
        Some(PortMode::Trunk(native)),
        Some(tunnel(100)),
        Some(PortMode::Selective(selective)),
        Some(provider(&[10, 100])),
    ])
}

/// Bytes that a port could deliver: often a stack of tags, cut anywhere.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just([0x81, 0x00, 0, 10]),
        Just([0x88, 0xa8, 0, 100]),
        Just([0x91, 0x00, 0, 1]),
        Just([0x81, 0x00, 0xe0, 0]),
        Just([0x08, 0x00, 0x45, 0]),
        any::<[u8; 4]>(),
    ];
    let words = proptest::collection::vec(word, 0..30);
    (words, 0..140usize).prop_map(|(words, len)| {
        let mut bytes = [[2; 6], [4; 6]].concat();
        bytes.extend(words.concat());
        bytes.truncate(len);
        bytes
    })
}

fn any_meta() -> impl Strategy<Value = NetHeader> {
    let offset = || prop_oneof![0..60u16, any::<u16>()];
    let types = prop_oneof![Just(GsoType::NONE), Just(GsoType::TCPV4), Just(GsoType(77))];
    (0..4u8, types, offset(), offset(), offset(), offset()).prop_map(
        |(flags, gso_type, hdr_len, gso_size, csum_start, csum_offset)| NetHeader {
            flags,
            gso_type,
            hdr_len,
            gso_size,
            csum_start,
            csum_offset,
        },
    )
}

proptest! {
    /// Every received frame, in any mode, leaves by a port or is dropped under a name.
    #[test]
    fn nothing_is_lost_between_modes(
        modes in [any_mode(), any_mode()],
        bytes in any_bytes(),
        meta in any_meta(),
    ) {
        let mut switch = with_modes(&modes);
        switch.flow(0, 1, &[], &[apply(&[out(2)])]);
        switch.receive_with(1, &bytes, meta);
        let counted = |port| {
            let counters = switch.port(port).counters;
            counters.tx().frames + counters.drops().total()
        };
        prop_assert_eq!(switch.port(1).counters.rx().frames, 1);
        prop_assert_eq!(counted(1) + counted(2), 1);
    }

    /// A bucket that rewrites shares the payload of the frame: tags change in its own headers.
    #[test]
    fn copies_with_headers_of_their_own_pass_modes_too(mode in any_mode(), bytes in any_bytes()) {
        let mut switch = with_modes(&[None, mode, None]);
        let rewrite = Action::SetField(Oxm::EthDst(mac(9).into()));
        let buckets = [vec![rewrite, out(2)], vec![out(3)]].map(Bucket::new).to_vec();
        switch.group(7, GroupType::All, buckets);
        switch.flow(0, 1, &[], &[apply(&[Action::Group(tapswitch_openflow::GroupId(7))])]);
        if switch.receive(1, &bytes).contains(&3) {
            prop_assert_eq!(switch.sent(3), &bytes[..], "the original is as it came");
        }
    }
}

#[test]
fn every_tag_of_a_deep_stack_can_be_reached() {
    let stack = [0x88a8_0001, 0x9100_0002, 0x8100_0003, 0x8100_0004, 0x88a8_0005, 0x8100_0006];
    let mut switch = Switch::new(2);
    let is = |number: u16| Oxm::VlanVid((0x1000 | number).into());
    for depth in 0..6u8 {
        let after = apply(&[Action::PopVlan]);
        switch.flow(depth, 1, &[is(u16::from(depth) + 1)], &[after, goto(depth + 1)]);
    }
    switch.flow(6, 1, &[Oxm::VlanVid(0.into())], &[apply(&[out(2)])]);
    for _ in 0..3 {
        assert_eq!(switch.receive(1, &tagged(&stack)), [2]);
        assert_eq!(switch.sent(2), tagged(&[]));
    }
    let mut other = stack;
    other[5] = 0x8100_0007;
    assert!(switch.receive(1, &tagged(&other)).is_empty(), "the innermost one matters");
    assert_eq!(switch.drops(1, DropReason::TableMiss), 1);
}

#[test]
fn stacks_are_built_tag_by_tag_with_both_tpids() {
    let mut switch = Switch::new(2);
    let vid = |number: u16| Action::SetField(Oxm::VlanVid((0x1000 | number).into()));
    let push = Action::PushVlan;
    let actions = [
        push(EtherType::VLAN),
        vid(10),
        Action::SetField(Oxm::VlanPcp(5)),
        push(EtherType::SERVICE_VLAN),
        vid(100),
        push(EtherType::SERVICE_VLAN),
        vid(200),
        Action::SetField(Oxm::VlanPcp(1)),
        out(2),
    ];
    switch.flow(0, 1, &[], &[apply(&actions)]);
    switch.receive(1, &tagged(&[]));
    assert_eq!(switch.sent(2), tagged(&[0x88a8_20c8, 0x88a8_a064, 0x8100_a00a]));
    let swap = [Action::PopVlan, vid(7), out(2)];
    let is_tagged = Oxm::VlanVid(tapswitch_openflow::Masked { value: 0x1000, mask: Some(0x1000) });
    switch.flow(0, 2, &[is_tagged], &[write(&swap)]);
    switch.receive(1, &tagged(&[S100, C10, C20]));
    assert_eq!(switch.sent(2)[..6], mac(2).0);
    assert_eq!(switch.sent(2), tagged(&[0x8100_0007, C20]), "the tag inside is set after the pop");
}

#[test]
fn an_envelope_holds_as_many_tags_as_it_says_however_many() {
    for (envelope, most) in [(8, 2), (252, 63), (256, 64), (260, 65), (496, 124), (500, 125)] {
        let mut switch = Switch::new(2);
        switch.flow(0, 1, &[], &[apply(&[out(2)])]);
        switch.set_port(2, |port| port.envelope = envelope);
        for count in [most - 1, most, most + 1, 126, 127, 130] {
            let mut frame = tcp().bytes();
            frame.splice(12..12, [0x88, 0xa8, 0, 5].repeat(count));
            let passed = switch.receive(1, &frame);
            assert_eq!(passed == [2], count <= most, "{count} tags, envelope {envelope}");
            if count <= most {
                assert!(switch.sent(2) == frame, "{count} tags");
            }
        }
    }
}
