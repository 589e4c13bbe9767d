//! Frames on their way through tables, groups and actions.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::{
    Ip, Switch, apply, assert_checksums, goto, host, ip, mac, out, tcp, udp, write,
};
use tapswitch_datapath::{DropReason, Millis};
use tapswitch_openflow::{
    Action, Bucket, CONTROLLER_MAX_LEN_NO_BUFFER, DEFAULT_MISS_SEND_LEN, ErrorKind, GroupId,
    GroupType, Instruction, Masked, Oxm, PacketInReason, PortConfig, PortNo, PortState, TableId,
};
use tapswitch_wire::{EtherType, GsoType, MacAddr, NetHeader, NetHeaderFlags};

const SERVICE_TAG: u32 = 0x88a8_0064;
const CUSTOMER_TAG: u32 = 0x8100_60c8;

fn to_controller() -> Action {
    Action::Output { port: PortNo::CONTROLLER, max_len: 128 }
}

#[test]
fn the_highest_priority_wins() {
    let mut switch = Switch::new(4);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    switch.flow(0, 10, &[ip()], &[apply(&[out(3)])]);
    switch.flow(0, 5, &[ip(), Oxm::IpProto(6)], &[apply(&[out(4)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3]);
    let mut arp = tcp().bytes();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(switch.receive(1, &arp), [2]);
}

#[test]
fn a_miss_without_a_rule_is_a_named_drop() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[Oxm::InPort(PortNo(2))], &[apply(&[out(1)])]);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::TableMiss), 1);
}

#[test]
fn a_rule_without_output_drops_by_policy() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[], &[]);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::NoOutput), 1);
}

#[test]
fn a_rule_change_works_on_the_next_frame() {
    let mut switch = Switch::new(3);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    switch.flow(0, 1, &[], &[apply(&[out(3)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3]);
    let stats = switch.forwarder.cache_stats();
    assert_eq!((stats.exact_hits, stats.walks), (1, 2));
}

#[test]
fn one_walk_serves_all_frames_that_agree_where_it_looked() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[Oxm::InPort(PortNo(1)), Oxm::EthDst(mac(2).into())], &[apply(&[out(2)])]);
    for src_port in 0..100 {
        let mut packet = tcp();
        packet.src_port = src_port;
        assert_eq!(switch.receive(1, &packet.bytes()), [2]);
    }
    let stats = switch.forwarder.cache_stats();
    assert_eq!((stats.walks, stats.masked_hits, stats.masked_count), (1, 99, 1));
}

#[test]
fn tables_chain_and_the_action_set_runs_last() {
    let mut switch = Switch::new(4);
    let rewrite = Action::SetField(Oxm::EthDst(mac(9).into()));
    switch.flow(0, 1, &[], &[write(&[out(2), rewrite]), goto(5)]);
    switch.flow(5, 1, &[Oxm::EthDst(mac(2).into())], &[apply(&[out(3)]), goto(7)]);
    switch.flow(7, 1, &[], &[]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3, 2]);
    assert_eq!(switch.sent(3)[..6], mac(2).0);
    assert_eq!(switch.sent(2)[..6], mac(9).0);
}

#[test]
fn later_tables_match_what_was_written() {
    let mut switch = Switch::new(3);
    let rewrite = Action::SetField(Oxm::Ipv4Dst(host(77).into()));
    switch.flow(0, 1, &[ip()], &[apply(&[rewrite]), goto(1)]);
    switch.flow(1, 2, &[ip(), Oxm::Ipv4Dst(host(77).into())], &[apply(&[out(2)])]);
    switch.flow(1, 1, &[], &[apply(&[out(3)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    let mut other = tcp();
    other.dst = 3;
    assert_eq!(switch.receive(1, &other.bytes()), [2]);
    assert_eq!(switch.forwarder.cache_stats().walks, 1, "the first address does not matter");
    assert_checksums(switch.sent(2));
}

#[test]
fn metadata_leads_from_table_to_table() {
    let mut switch = Switch::new(3);
    let note = Instruction::WriteMetadata { metadata: 0xab00, mask: 0xff00 };
    switch.flow(0, 1, &[Oxm::InPort(PortNo(1))], &[note, goto(1)]);
    switch.flow(0, 1, &[Oxm::InPort(PortNo(2))], &[goto(1)]);
    let wanted = tapswitch_openflow::Masked { value: 0xab00, mask: Some(0xff00) };
    switch.flow(1, 2, &[Oxm::Metadata(wanted)], &[apply(&[out(3)])]);
    switch.flow(1, 1, &[], &[apply(&[out(1)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3]);
    assert_eq!(switch.receive(2, &tcp().bytes()), [1]);
}

#[test]
fn set_field_keeps_checksums_right() {
    let fields = [
        Oxm::Ipv4Src(host(200).into()),
        Oxm::Ipv4Dst(host(201).into()),
        Oxm::IpDscp(46),
        Oxm::IpEcn(3),
    ];
    let mut switch = Switch::new(2);
    let actions = |extra: &[Oxm]| {
        let all = fields.iter().chain(extra).cloned().map(Action::SetField);
        all.chain([Action::DecNwTtl, out(2)]).collect::<Vec<_>>()
    };
    let tcp_ports = [Oxm::TcpSrc(1), Oxm::TcpDst(2)];
    switch.flow(0, 2, &[ip(), Oxm::IpProto(6)], &[apply(&actions(&tcp_ports))]);
    let udp_ports = [Oxm::UdpSrc(3), Oxm::UdpDst(4)];
    switch.flow(0, 2, &[ip(), Oxm::IpProto(17)], &[apply(&actions(&udp_ports))]);
    for (packet, ports) in [(tcp(), [0, 1, 0, 2]), (udp(), [0, 3, 0, 4])] {
        assert_eq!(switch.receive(1, &packet.bytes()), [2]);
        let sent = switch.sent(2);
        assert_checksums(sent);
        assert_eq!((sent[15], sent[22]), (46 << 2 | 3, 63));
        assert_eq!(sent[34..38], ports);
        assert_eq!(sent[26..34], [10, 0, 0, 200, 10, 0, 0, 201]);
    }
}

#[test]
fn a_partial_checksum_follows_the_addresses_and_not_the_ports() {
    let mut switch = Switch::new(2);
    let actions = [
        Action::SetField(Oxm::Ipv4Dst(host(9).into())),
        Action::SetField(Oxm::TcpDst(8080)),
        out(2),
    ];
    switch.flow(0, 1, &[ip(), Oxm::IpProto(6)], &[apply(&actions)]);
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        csum_start: 34,
        csum_offset: 16,
        ..NetHeader::PLAIN
    };
    let pseudo = |frame: &[u8]| {
        let (src, dst) = (&frame[26..30], &frame[30..34]);
        tapswitch_wire::checksum::pseudo_header_v4(src, dst, 6, frame.len() as u16 - 34).partial()
    };
    let mut frame = tcp().bytes();
    let partial = pseudo(&frame);
    frame[50..52].copy_from_slice(&partial.to_be_bytes());
    assert_eq!(switch.receive_with(1, &frame, meta), [2]);
    let sent = switch.sent(2);
    assert_eq!(sent[50..52], pseudo(sent).to_be_bytes());
    assert_eq!(switch.out.sent[0].2, meta, "the rest is still left for later");
}

#[test]
fn a_udp_checksum_of_zero_stays_none() {
    let mut switch = Switch::new(2);
    let actions = [Action::SetField(Oxm::Ipv4Dst(host(9).into())), out(2)];
    switch.flow(0, 1, &[ip()], &[apply(&actions)]);
    let mut frame = udp().bytes();
    frame[40..42].fill(0);
    switch.receive(1, &frame);
    assert_eq!(switch.sent(2)[40..42], [0, 0]);
}

#[test]
fn tags_are_pushed_popped_and_set() {
    let mut switch = Switch::new(2);
    let vid = |vid: u16| Action::SetField(Oxm::VlanVid((0x1000 | vid).into()));
    let push = [
        Action::PushVlan(EtherType::VLAN),
        vid(200),
        Action::SetField(Oxm::VlanPcp(3)),
        Action::PushVlan(EtherType::SERVICE_VLAN),
        vid(100),
        out(2),
    ];
    switch.flow(0, 1, &[Oxm::InPort(PortNo(1))], &[apply(&push)]);
    let tagged = [Oxm::InPort(PortNo(2)), Oxm::VlanVid(0x1064.into())];
    switch.flow(0, 1, &tagged, &[apply(&[Action::PopVlan, Action::PopVlan, out(1)])]);
    let original = tcp().bytes();
    assert_eq!(switch.receive(1, &original), [2]);
    let doubly = switch.sent(2).to_vec();
    assert_eq!(doubly[12..20], [0x88, 0xa8, 0x60, 0x64, 0x81, 0x00, 0x60, 0xc8]);
    assert_eq!(doubly[20..], original[12..]);
    assert_eq!(switch.receive(2, &doubly), [1]);
    assert_eq!(switch.sent(1), original);
}

/// OpenFlow 1.3.5 §5.12.1.
#[test]
fn a_pushed_tag_copies_identifier_and_priority_and_is_not_drop_eligible() {
    let mut switch = Switch::new(3);
    let push = apply(&[Action::PushVlan(EtherType::SERVICE_VLAN)]);
    switch.flow(0, 0, &[], &[push, goto(1)]);
    switch.flow(1, 0, &[], &[apply(&[out(3)])]);
    switch.flow(1, 1, &[Oxm::VlanVid(0x10c8.into()), Oxm::VlanPcp(3)], &[apply(&[out(2)])]);
    let drop_eligible = Ip { tags: vec![0x8100_70c8], ..tcp() };
    assert_eq!(switch.receive(1, &drop_eligible.bytes()), [2]);
    assert_eq!(switch.sent(2)[12..20], [0x88, 0xa8, 0x60, 0xc8, 0x81, 0x00, 0x70, 0xc8]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3]);
    assert_eq!(switch.sent(3)[12..16], [0x88, 0xa8, 0, 0]);
}

#[test]
fn matching_sees_through_tags_and_inner_tags_appear_when_outer_ones_go() {
    let mut switch = Switch::new(4);
    switch.flow(0, 2, &[ip(), Oxm::VlanVid(0x1064.into())], &[apply(&[Action::PopVlan]), goto(1)]);
    switch.flow(1, 2, &[Oxm::VlanVid(0x10c8.into())], &[apply(&[out(2)])]);
    switch.flow(1, 1, &[], &[apply(&[out(3)])]);
    let mut packet = tcp();
    packet.tags = vec![SERVICE_TAG, CUSTOMER_TAG];
    assert_eq!(switch.receive(1, &packet.bytes()), [2]);
    packet.tags = vec![SERVICE_TAG, CUSTOMER_TAG + 1];
    assert_eq!(switch.receive(1, &packet.bytes()), [3]);
    packet.tags = vec![SERVICE_TAG];
    assert_eq!(switch.receive(1, &packet.bytes()), [3]);
}

/// The key holds the first four tags, which is all that these outcomes depend on.
#[test]
fn frames_with_more_tags_than_the_key_holds_are_walked_once() {
    let tagged =
        |count: u32| Ip { tags: (1..=count).map(|vid| 0x8100_0000 | vid).collect(), ..tcp() };
    let present = Oxm::VlanVid(Masked { value: 0x1000, mask: Some(0x1000) });
    let pops = |count| vec![Action::PopVlan; count];
    let push = vec![Action::PushVlan(EtherType::VLAN)];
    for (actions, walks) in [(pops(1), 1), (pops(4), 1), (push, 1), (pops(5), 10)] {
        let mut switch = Switch::new(2);
        let actions = [&actions[..], &[out(2)]].concat();
        switch.flow(0, 1, std::slice::from_ref(&present), &[apply(&actions)]);
        for _ in 0..10 {
            switch.receive(1, &tagged(7).bytes());
        }
        let stats = switch.forwarder.cache_stats();
        assert_eq!((stats.walks, stats.exact_hits), (walks, 10 - walks), "{actions:?}");
    }
}

/// A tag that comes to the front from behind the key's four is unknown for another frame, even
/// whether it exists.
#[test]
fn a_tag_from_behind_the_key_is_looked_at_for_each_frame() {
    let mut switch = Switch::new(4);
    let present = Oxm::VlanVid(Masked { value: 0x1000, mask: Some(0x1000) });
    let pops = vec![Action::PopVlan; 5];
    switch.flow(0, 1, &[present], &[apply(&pops), goto(1)]);
    switch.flow(1, 1, &[Oxm::VlanVid(0x1006.into())], &[apply(&[out(2)])]);
    switch.flow(1, 1, &[Oxm::VlanVid(0x1007.into())], &[apply(&[out(3)])]);
    switch.flow(1, 1, &[Oxm::VlanVid(0.into())], &[apply(&[out(4)])]);
    let outermost = [1, 2, 3, 4, 5].map(|vid| 0x8100_0000 | vid);
    let sixth = [(Some(6), 2), (Some(7), 3), (None, 4), (Some(6), 2), (None, 4)];
    for (vid, port) in sixth {
        let tags = outermost.into_iter().chain(vid.map(|vid| 0x8100_0000 | vid)).collect();
        assert_eq!(switch.receive(1, &Ip { tags, ..tcp() }.bytes()), [port], "{vid:?}");
    }
}

#[test]
fn six_tags_are_popped_one_by_one() {
    let mut switch = Switch::new(3);
    for table in 0..6 {
        let fields = [Oxm::VlanVid((0x1000 | u16::from(table + 1)).into())];
        switch.flow(table, 1, &fields, &[apply(&[Action::PopVlan]), goto(table + 1)]);
    }
    switch.flow(6, 1, &[Oxm::VlanVid(0.into())], &[apply(&[out(2)])]);
    let mut packet = tcp();
    packet.tags = (1..=6).map(|vid| 0x88a8_0000 | vid).collect();
    for _ in 0..2 {
        assert_eq!(switch.receive(1, &packet.bytes()), [2]);
        assert_eq!(switch.sent(2), tcp().bytes());
    }
    packet.tags[5] = 0x88a8_0007;
    assert!(switch.receive(1, &packet.bytes()).is_empty(), "the last tag is another");
}

/// A group's buckets are executed for frames with tags and without.
#[test]
fn a_pop_leaves_a_frame_without_a_tag_as_it_is() {
    let mut switch = Switch::new(2);
    let actions = vec![Action::PopVlan, Action::PopVlan, out(2)];
    switch.group(1, GroupType::All, vec![Bucket::new(actions)]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    let mut packet = tcp();
    for tags in [vec![], vec![CUSTOMER_TAG], vec![SERVICE_TAG, CUSTOMER_TAG]] {
        packet.tags = tags;
        for _ in 0..2 {
            assert_eq!(switch.receive(1, &packet.bytes()), [2]);
            assert_eq!(switch.sent(2), tcp().bytes());
        }
    }
    packet.tags = vec![SERVICE_TAG, SERVICE_TAG, CUSTOMER_TAG];
    assert_eq!(switch.receive(1, &packet.bytes()), [2]);
    packet.tags = vec![CUSTOMER_TAG];
    assert_eq!(switch.sent(2), packet.bytes());
}

#[test]
fn an_ended_ttl_goes_to_the_controller_and_not_on() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[ip()], &[apply(&[Action::DecNwTtl, out(2)])]);
    let mut packet = tcp();
    packet.ttl = 1;
    assert!(switch.receive(1, &packet.bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::InvalidTtl), 1);
    assert_eq!(switch.out.packet_ins[0].0.reason, PacketInReason::INVALID_TTL);
    for len in [0, 64, CONTROLLER_MAX_LEN_NO_BUFFER] {
        switch.pipeline.set_miss_send_len(len);
        switch.receive(1, &packet.bytes());
    }
    let lens: Vec<_> = switch.out.packet_ins.iter().map(|(origin, _)| origin.max_len).collect();
    assert_eq!(lens, [DEFAULT_MISS_SEND_LEN, 0, 64, CONTROLLER_MAX_LEN_NO_BUFFER]);
}

/// Neither statistics nor idle timeouts of rules that such a frame did not reach count it. An
/// action of a bucket ends the bucket's copy alone.
#[test]
fn an_ended_ttl_counts_for_no_rule_behind() {
    let mut switch = Switch::new(2);
    let push = Action::PushVlan(EtherType::VLAN);
    switch.flow(0, 1, &[ip()], &[apply(&[push, Action::DecNwTtl]), goto(1)]);
    switch.flow(1, 1, &[ip()], &[apply(&[Action::DecNwTtl]), goto(2)]);
    switch.group(1, GroupType::All, vec![Bucket::new(vec![Action::DecNwTtl, out(2)])]);
    switch.flow(2, 1, &[ip()], &[apply(&[Action::Group(GroupId(1))]), goto(3)]);
    for ttl in [1, 2, 3, 4, 64] {
        switch.handle(1, &Ip { ttl, ..tcp() }.bytes(), NetHeader::PLAIN);
    }
    switch.end_burst();
    let len = tcp().bytes().len() as u64;
    let snapshot = switch.pipeline.snapshot().clone();
    let table = |number| snapshot.table(TableId(number)).unwrap();
    for (number, frames) in [(0, 5), (1, 4), (2, 3)] {
        let totals = table(number).iter().next().unwrap().counters.totals();
        let counted = (totals.frames, totals.packets, totals.bytes);
        assert_eq!(counted, (frames, frames, frames * len), "table {number}");
        assert_eq!(table(number).counters().totals(), (frames, frames), "table {number}");
    }
    assert_eq!(table(3).counters().totals(), (3, 0));
    switch.now = Millis(9000);
    switch.receive(1, &Ip { ttl: 1, ..tcp() }.bytes());
    let last_used = |number| table(number).iter().next().unwrap().counters.totals().last_used;
    assert_eq!((last_used(0), last_used(1)), (Millis(9000), Millis(1000)));
}

#[test]
fn the_controller_learns_why_it_gets_a_frame() {
    let mut switch = Switch::new(2);
    switch.flow(0, 0, &[], &[apply(&[to_controller()])]);
    switch.flow(0, 5, &[ip()], &[apply(&[to_controller(), out(2)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    let mut other = tcp().bytes();
    other[12..14].copy_from_slice(&[0x12, 0x34]);
    switch.receive(1, &other);
    let reasons: Vec<_> = switch.out.packet_ins.iter().map(|(o, _)| o.reason).collect();
    assert_eq!(reasons, [PacketInReason::ACTION, PacketInReason::NO_MATCH]);
}

#[test]
fn a_group_of_all_copies_and_keeps_the_original_as_it_was() {
    let mut switch = Switch::new(4);
    let rewriting = vec![
        Action::SetField(Oxm::EthDst(mac(9).into())),
        Action::PushVlan(EtherType::SERVICE_VLAN),
        out(3),
    ];
    let buckets =
        vec![Bucket::new(rewriting), Bucket::new(vec![out(2)]), Bucket::new(vec![out(4)])];
    switch.group(1, GroupType::All, buckets);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    let original = tcp().bytes();
    assert_eq!(switch.receive(1, &original), [3, 2, 4]);
    assert_eq!(switch.sent(2), original);
    assert_eq!(switch.sent(4), original);
    assert_eq!(switch.sent(3)[12..14], [0x88, 0xa8]);
}

#[test]
fn the_frame_goes_on_behind_a_group_as_it_was_before() {
    let mut switch = Switch::new(3);
    let bucket = Bucket::new(vec![Action::SetField(Oxm::EthDst(mac(9).into())), out(2)]);
    switch.group(1, GroupType::All, vec![bucket]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1)), out(3)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3]);
    assert_eq!(switch.sent(3), tcp().bytes());
}

#[test]
fn a_buckets_ledger_adds_up() {
    let mut switch = Switch::new(3);
    let buckets = vec![Bucket::new(vec![out(2)]), Bucket::new(vec![out(3)])];
    switch.group(1, GroupType::All, buckets);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    switch.receive(1, &tcp().bytes());
    switch.out.refuse = Some((3, DropReason::EgressFull));
    assert_eq!(switch.receive(1, &tcp().bytes()), [2], "the original is not held up by a copy");
    let snapshot = switch.pipeline.snapshot().clone();
    let group = snapshot.groups.find(GroupId(1)).unwrap();
    let copy = &group.buckets[1];
    assert_eq!(group.counters.totals().frames, 2);
    assert_eq!(copy.counters.totals().frames, 2);
    assert_eq!(copy.delivered.totals().frames, 1);
    assert_eq!(copy.drops.by_reason().collect::<Vec<_>>(), [(DropReason::EgressFull, 1)]);
    assert_eq!(switch.drops(3, DropReason::EgressFull), 1);
}

#[test]
fn select_keeps_a_flow_together_in_both_directions_and_spreads_flows() {
    let mut switch = Switch::new(4);
    let bucket = |port, weight| Bucket { weight, ..Bucket::new(vec![out(port)]) };
    switch.group(1, GroupType::Select, vec![bucket(2, 1), bucket(3, 3)]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    let mut counts = [0; 5];
    for src_port in 1000..2000 {
        let forward = crate::common::Ip { src_port, ..tcp() };
        let back = crate::common::Ip { src: 2, dst: 1, src_port: 80, dst_port: src_port, ..tcp() };
        let port = switch.receive(1, &forward.bytes());
        assert_eq!(switch.receive(1, &back.bytes()), port);
        counts[port[0] as usize] += 1;
    }
    assert!((150..350).contains(&counts[2]), "a quarter of the weight: {counts:?}");
}

#[test]
fn select_keeps_fragments_and_pings_together() {
    let mut switch = Switch::new(9);
    let bucket = |port| Bucket { weight: 1, ..Bucket::new(vec![out(port)]) };
    switch.group(1, GroupType::Select, (2..10).map(bucket).collect());
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    let ports: std::collections::BTreeSet<_> = (1..100)
        .map(|src| {
            let fragment = |place: [u8; 2]| {
                let mut frame = crate::common::Ip { src, src_port: 1000, ..udp() }.bytes();
                frame[20..22].copy_from_slice(&place);
                frame
            };
            let port = switch.receive(1, &fragment([0x20, 0]));
            assert_eq!(switch.receive(1, &fragment([0x20, 0x10])), port);
            assert_eq!(switch.receive(1, &fragment([0, 0x20])), port);
            let ping = |src, dst, kind| {
                let mut frame = crate::common::Ip { src, dst, ..udp() }.bytes();
                (frame[23], frame[34]) = (1, kind);
                frame
            };
            let port = switch.receive(1, &ping(src, 200, 8));
            assert_eq!(switch.receive(1, &ping(200, src, 0)), port);
            port
        })
        .collect();
    assert!(ports.len() > 4, "{ports:?}");
}

#[test]
fn fast_failover_follows_the_ports() {
    let mut switch = Switch::new(3);
    let bucket = |port| Bucket { watch_port: PortNo(port), ..Bucket::new(vec![out(port)]) };
    switch.group(1, GroupType::FastFailover, vec![bucket(2), bucket(3)]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    let mut port = switch.port(2);
    port.state = PortState::LINK_DOWN;
    switch.pipeline.set_port(port);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3]);
    let mut port = switch.port(3);
    port.state = PortState::LINK_DOWN;
    switch.pipeline.set_port(port);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::NoLiveBucket), 1);
}

#[test]
fn groups_chain_and_loops_are_refused() {
    let mut switch = Switch::new(3);
    switch.group(1, GroupType::Indirect, vec![Bucket::new(vec![out(2)])]);
    let both = vec![Bucket::new(vec![Action::Group(GroupId(1))]), Bucket::new(vec![out(3)])];
    switch.group(2, GroupType::All, both);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(2))])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3]);
    let change = tapswitch_openflow::GroupMod {
        command: tapswitch_openflow::GroupModCommand::Modify,
        group_type: GroupType::Indirect,
        group_id: GroupId(1),
        buckets: vec![Bucket::new(vec![Action::Group(GroupId(2))])],
    };
    let result = switch.pipeline.handle_group_mod(&change, Millis(0));
    assert_eq!(result.unwrap_err(), ErrorKind::OFPGMFC_LOOP);
}

#[test]
fn a_port_that_receives_nothing_receives_nothing_without_rules_either() {
    for standalone in [false, true] {
        for config in [PortConfig::NO_RECV, PortConfig::PORT_DOWN] {
            let mut switch = Switch::new(2);
            switch.flow(0, 0, &[], &[apply(&[Action::output(PortNo::NORMAL)])]);
            switch.pipeline.set_standalone(standalone);
            switch.set_port(1, |port| port.config = config);
            assert!(switch.receive(1, &tcp().bytes()).is_empty(), "{config:?}");
            assert_eq!(switch.drops(1, DropReason::PortNoReceive), 1, "{config:?}");
            switch.set_port(1, |port| port.config = PortConfig::empty());
            assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
        }
    }
}

/// Actions of a packet-out behind the tables get the frame, not what a bucket made of it.
#[test]
fn a_bucket_keeps_its_rewrites_from_what_follows_the_tables() {
    let mut switch = Switch::new(4);
    let set = Action::SetField(Oxm::EthDst(mac(0x77).into()));
    let buckets = vec![Bucket::new(vec![out(2)]), Bucket::new(vec![set, out(3)])];
    switch.group(1, GroupType::All, buckets);
    switch.flow(0, 0, &[], &[write(&[Action::Group(GroupId(1))])]);
    let actions = [Action::output(PortNo::TABLE), out(4)];
    let frame = tcp().bytes();
    assert_eq!(switch.packet_out(PortNo::CONTROLLER, &frame, &actions), [2, 3, 4]);
    assert_eq!((&switch.sent(3)[..6], switch.sent(4)), (&mac(0x77).0[..], &frame[..]));
}

/// Nor what the rules made of it.
#[test]
fn the_tables_get_a_copy_of_a_packet_out() {
    let mut switch = Switch::new(4);
    let set = Action::SetField(Oxm::EthDst(mac(0x77).into()));
    let push = Action::PushVlan(EtherType::VLAN);
    switch.flow(0, 0, &[], &[apply(&[set, push, out(2)])]);
    let (frame, to_tables) = (tcp().bytes(), || Action::output(PortNo::TABLE));
    let actions = [to_tables(), out(3), to_tables(), out(4)];
    assert_eq!(switch.packet_out(PortNo::CONTROLLER, &frame, &actions), [2, 3, 2, 4]);
    assert_eq!((&switch.sent(2)[..6], switch.sent(2).len()), (&mac(0x77).0[..], frame.len() + 4));
    assert_eq!((switch.sent(3), switch.sent(4)), (&frame[..], &frame[..]));
}

/// The action set of a packet is empty when it comes to the tables, whatever another copy has left.
#[test]
fn a_set_that_was_not_executed_is_forgotten() {
    let mut switch = Switch::new(2);
    let [first, second] = [1, 2].map(|last| Oxm::EthDst(mac(last).into()));
    switch.flow(0, 1, std::slice::from_ref(&first), &[write(&[out(2)]), goto(1)]);
    switch.flow(0, 1, std::slice::from_ref(&second), &[goto(1)]);
    switch.flow(1, 1, std::slice::from_ref(&second), &[]);
    let to_tables = || Action::output(PortNo::TABLE);
    let set = |field: &Oxm| Action::SetField(field.clone());
    let actions = [set(&first), to_tables(), set(&second), to_tables()];
    assert!(switch.packet_out(PortNo(1), &tcp().bytes(), &actions).is_empty());
    assert_eq!(switch.drops(1, DropReason::TableMiss), 1);
}

#[test]
fn tags_that_were_pushed_are_not_taken_for_those_of_the_frame() {
    use tapswitch_openflow::{VID_NONE, VID_PRESENT};
    let push = Action::PushVlan(EtherType::VLAN);
    let tags: Vec<_> = (1..=6).map(|vid| CUSTOMER_TAG & !0xfff | vid).collect();
    for (frame_tags, pushes, pops) in [(4, 1, 4), (4, 1, 5), (6, 1, 3), (4, 5, 3), (5, 2, 6)] {
        let mut switch = Switch::new(3);
        let mut actions = vec![push.clone(); pushes];
        actions.extend(vec![Action::PopVlan; pops]);
        let left = (frame_tags + pushes).saturating_sub(pops);
        let outer = match frame_tags.checked_sub(left) {
            _ if left == 0 => VID_NONE,
            Some(taken) => VID_PRESENT | tags[taken] as u16 & 0xfff,
            None => VID_PRESENT | 1,
        };
        switch.flow(0, 0, &[], &[apply(&actions), goto(1)]);
        switch.flow(1, 2, &[Oxm::VlanVid(Masked::exact(outer))], &[apply(&[out(2)])]);
        switch.flow(1, 1, &[], &[apply(&[out(3)])]);
        let frame = crate::common::Ip { tags: tags[..frame_tags].to_vec(), ..tcp() };
        let case = format!("{frame_tags} tags, {pushes} pushes, {pops} pops");
        assert_eq!(switch.receive(1, &frame.bytes()), [2], "{case}");
    }
}

#[test]
fn one_match_is_of_frames_without_a_tag_and_with_one_of_no_vlan() {
    let mut switch = Switch::new(3);
    let no_vlan = Oxm::VlanVid(Masked::with_mask(0, 0xfff));
    switch.flow(0, 2, &[no_vlan], &[apply(&[out(2)])]);
    switch.flow(0, 1, &[], &[apply(&[out(3)])]);
    // Twice: by the tables, and by the cache.
    for _ in 0..2 {
        for (tags, to) in [
            (vec![], 2),
            (vec![0x8100_a000], 2),
            (vec![0x88a8_0000, 0x8100_0005], 2),
            (vec![0x8100_a005], 3),
            (vec![0x8100_0005, 0x8100_0000], 3),
        ] {
            let frame = crate::common::Ip { tags: tags.clone(), ..tcp() };
            assert_eq!(switch.receive(1, &frame.bytes()), [to], "{tags:x?}");
        }
    }
}

/// Prerequisites of a controller's packet are not checked: it may be anything.
#[test]
fn a_field_that_a_packet_does_not_have_is_not_set_for_tables_either() {
    let mut switch = Switch::new(3);
    let set = Action::SetField(Oxm::TcpDst(8080));
    let actions = [set, Action::output(PortNo::TABLE)];
    let port_8080 = [ip(), Oxm::IpProto(17), Oxm::UdpDst(8080)];
    switch.flow(0, 2, &port_8080, &[apply(&[out(2)])]);
    switch.flow(0, 1, &[], &[apply(&[out(3)])]);
    for packet in [tcp(), udp()] {
        let packet = crate::common::Ip { dst_port: 53, ..packet };
        let sent = switch.packet_out(PortNo(1), &packet.bytes(), &actions);
        assert_eq!(sent, [3], "{}", packet.protocol);
    }
}

#[test]
fn a_frame_never_returns_by_chance() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[], &[apply(&[out(1)])]);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::InputPort), 1);
    switch.flow(0, 1, &[], &[apply(&[Action::output(PortNo::IN_PORT)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [1]);
}

#[test]
fn flood_and_all_reach_every_open_port_but_the_own() {
    let mut switch = Switch::new(4);
    let mut closed = switch.port(3);
    closed.config = PortConfig::NO_FWD;
    switch.pipeline.set_port(closed);
    for reserved in [PortNo::FLOOD, PortNo::ALL] {
        switch.flow(0, 1, &[], &[apply(&[Action::output(reserved)])]);
        assert_eq!(switch.receive(1, &tcp().bytes()), [2, 4]);
    }
}

#[test]
fn a_blocked_port_gets_only_what_names_it() {
    let mut switch = Switch::new(4);
    switch.set_port(4, |port| port.state |= PortState::BLOCKED);
    for reserved in [PortNo::FLOOD, PortNo::ALL, PortNo::NORMAL] {
        switch.flow(0, 1, &[], &[apply(&[Action::output(reserved)])]);
        assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3], "{reserved}");
    }
    switch.flow(0, 1, &[], &[apply(&[Action::output(PortNo::FLOOD), out(4)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3, 4]);
}

/// A controller that is a learning switch floods by these.
#[test]
fn all_and_flood_go_to_the_switch_itself_too() {
    for port in [PortNo::ALL, PortNo::FLOOD] {
        let mut switch = Switch::new(2);
        let local = tapswitch_datapath::Port::new(PortNo::LOCAL, "br0".into(), mac(9), 1500, 1);
        assert!(switch.pipeline.set_port(local));
        switch.flow(0, 0, &[], &[apply(&[Action::output(port)])]);
        assert_eq!(switch.receive(1, &tcp().bytes()), [2, PortNo::LOCAL.0], "{port}");
        assert_eq!(switch.receive(PortNo::LOCAL.0, &tcp().bytes()), [1, 2], "{port}");
    }
}

#[test]
fn frames_and_trains_must_fit_the_mtu_packet_by_packet() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    let train = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        gso_size: 1460,
        hdr_len: 54,
        csum_start: 34,
        csum_offset: 16,
    };
    let long = crate::common::Ip { payload: 40_000, ..tcp() }.bytes();
    assert_eq!(switch.receive_with(1, &long, train), [2], "whole, as it came");
    assert_eq!(switch.sent(2).len(), long.len());
    let too_long = NetHeader { gso_size: 1461, ..train };
    assert!(switch.receive_with(1, &long, too_long).is_empty());
    let full = crate::common::Ip { payload: 1460, tags: vec![SERVICE_TAG, CUSTOMER_TAG], ..tcp() };
    assert_eq!(switch.receive(1, &full.bytes()), [2], "tags do not count");
    let over = crate::common::Ip { payload: 1461, ..tcp() };
    assert!(switch.receive(1, &over.bytes()).is_empty());
    assert_eq!(switch.drops(2, DropReason::Oversize), 2);
    let (rx, tx) = (switch.port(1).counters.rx(), switch.port(2).counters.tx());
    assert_eq!((rx.frames, tx.frames), (4, 2));
    assert_eq!(tx.packets, 40_000_u64.div_ceil(1460) + 1);
}

#[test]
fn closed_ports_refuse_by_name() {
    let mut switch = Switch::new(3);
    switch.flow(0, 1, &[], &[apply(&[out(2), out(9)])]);
    let mut down = switch.port(2);
    down.state = PortState::LINK_DOWN;
    switch.pipeline.set_port(down);
    switch.receive(1, &tcp().bytes());
    assert_eq!(switch.drops(2, DropReason::PortDown), 1);
    assert_eq!(switch.drops(1, DropReason::NoSuchPort), 1);
    let mut deaf = switch.port(3);
    deaf.config = PortConfig::NO_RECV;
    switch.pipeline.set_port(deaf);
    switch.receive(3, &tcp().bytes());
    assert_eq!(switch.drops(3, DropReason::PortNoReceive), 1);
}

#[test]
fn what_is_no_frame_is_dropped_by_name() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    assert!(switch.receive(1, &tcp().bytes()[..13]).is_empty());
    let lying =
        NetHeader { flags: NetHeaderFlags::NEEDS_CSUM, csum_start: 9999, ..NetHeader::PLAIN };
    assert!(switch.receive_with(1, &tcp().bytes(), lying).is_empty());
    assert_eq!(switch.drops(1, DropReason::Truncated), 1);
    assert_eq!(switch.drops(1, DropReason::BadMetadata), 1);
    assert_eq!(switch.port(1).counters.rx().frames, 2, "received, then dropped");
}

/// Completing the checksum would write into bytes that rules have matched.
#[test]
fn a_partial_checksum_among_the_fields_is_a_lie() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    let partial = |csum_start, csum_offset| NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        csum_start,
        csum_offset,
        ..NetHeader::PLAIN
    };
    for (start, offset) in [(14, 12), (34, 2), (34, 0), (24, 12)] {
        assert!(switch.receive_with(1, &tcp().bytes(), partial(start, offset)).is_empty());
    }
    assert_eq!(switch.drops(1, DropReason::BadMetadata), 4);
    assert_eq!(switch.receive_with(1, &tcp().bytes(), partial(34, 16)).len(), 1);
}

#[test]
fn a_packet_out_goes_where_it_says_or_through_the_tables() {
    let mut switch = Switch::new(3);
    switch.flow(0, 1, &[], &[apply(&[out(3)])]);
    let frame = tcp().bytes();
    assert_eq!(switch.packet_out(PortNo::CONTROLLER, &frame, &[out(2)]), [2]);
    assert_eq!(switch.packet_out(PortNo(1), &frame, &[Action::output(PortNo::TABLE)]), [3]);
    assert_eq!(switch.packet_out(PortNo(1), &frame, &[Action::output(PortNo::FLOOD)]), [2, 3]);
}

#[test]
fn set_field_reaches_ipv6_arp_and_icmp() {
    let mut switch = Switch::new(2);
    let arp_type = Oxm::EthType(EtherType::ARP);
    let arp = [
        Action::SetField(Oxm::ArpTpa(host(7).into())),
        Action::SetField(Oxm::ArpTha(MacAddr::BROADCAST.into())),
        out(2),
    ];
    switch.flow(0, 1, &[arp_type], &[apply(&arp)]);
    let icmp = [
        Action::SetField(Oxm::Icmpv4Type(0)),
        Action::SetField(Oxm::Ipv4Src(host(7).into())),
        out(2),
    ];
    switch.flow(0, 1, &[ip(), Oxm::IpProto(1)], &[apply(&icmp)]);
    let mut request =
        [vec![0xff; 6], mac(1).0.to_vec(), vec![8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    request.extend(mac(1).0);
    request.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    assert_eq!(switch.receive(1, &request), [2]);
    assert_eq!(switch.sent(2)[32..42], [255, 255, 255, 255, 255, 255, 10, 0, 0, 7]);
    let mut echo = crate::common::Ip { protocol: 1, ..udp() }.bytes();
    echo[34..42].copy_from_slice(&[8, 0, 0, 0, 0, 1, 0, 1]);
    let sum = tapswitch_wire::checksum::Sum::of(&echo[34..]).checksum();
    echo[36..38].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(switch.receive(1, &echo), [2]);
    let sent = switch.sent(2);
    assert_eq!((sent[34], &sent[26..30]), (0, &[10, 0, 0, 7][..]));
    assert_eq!(tapswitch_wire::checksum::Sum::of(&sent[34..]).partial(), 0xffff);
    assert_eq!(tapswitch_wire::checksum::Sum::of(&sent[14..34]).partial(), 0xffff);
}
