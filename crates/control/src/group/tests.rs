//! Tests of buckets, of what they count, and of nested groups.

use tapswitch_openflow::DatapathId;

use super::ids::RANGE_START;
use super::*;
use crate::overlap::{Aim, PolicyId, Slot};
use crate::place::Place;

fn aim(port: u32) -> Aim {
    Aim { slot: Slot::only(0), exit: Exit::here(PortNo(port)), tag: 0, is_sink: false }
}

fn key(path: Path, monitors: &[u32]) -> GroupKey {
    let member = |(policy, monitor): (u64, &u32)| Member {
        policy: PolicyId(policy),
        aim: aim(*monitor),
        delivery: None,
        part: Part::default(),
    };
    GroupKey { members: (1..).zip(monitors).map(member).collect(), path }
}

fn to(port: u32) -> Path {
    Path::To(Exit::here(PortNo(port)).into())
}

fn texts(key: &GroupKey) -> Vec<String> {
    key.buckets(&[]).iter().map(ToString::to_string).collect()
}

#[test]
fn copies_for_elsewhere_are_tagged_and_lose_the_tag_there() {
    let beyond = Some(Place { switch: DatapathId(9), port: PortNo(3) });
    let far = Aim {
        slot: Slot::only(1),
        exit: Exit { port: PortNo(7), beyond, spread: None },
        tag: 3072,
        is_sink: false,
    };
    let member = |aim| Member { policy: PolicyId(1), aim, delivery: None, part: Part::default() };
    let ingress = GroupKey { members: [member(aim(4)), member(far)].into(), path: to(2) };
    assert_eq!(
        texts(&ingress),
        [
            "actions=output:2",
            "actions=output:4",
            "actions=push_vlan:0x88a8,set_field:0x1c00->vlan_vid,output:7",
        ]
    );
    assert_eq!(buckets(&ingress), [1, 2]);
    let to_monitor_itself = GroupKey { path: Path::To(far.exit.into()), ..ingress };
    assert_eq!(buckets(&to_monitor_itself), [1, 0], "the original goes there");
    let carry = |exit| Path::Carry(Carry { tag: 3072, exit, rewritten: None, delivery: None });
    assert_eq!(texts(&key(carry(far.exit), &[])), ["actions=output:7"]);
    assert_eq!(texts(&key(carry(aim(3).exit), &[])), ["actions=pop_vlan,output:3"]);
}

#[test]
fn copies_for_elsewhere_are_for_another_address_and_get_theirs_back() {
    let beyond = Some(Place { switch: DatapathId(9), port: PortNo(3) });
    let exit = Exit { port: PortNo(7), beyond, spread: None };
    let far = Aim { slot: Slot::only(1), exit, tag: 0x1234, is_sink: false };
    let part = Part { snaplen: Some(64), ..Part::default() };
    let member = |aim| Member { policy: PolicyId(1), aim, delivery: None, part };
    let egress = GroupKey { members: [member(aim(4)), member(far)].into(), path: to(2) };
    let near = "actions=truncate:64,output:4";
    let set = "actions=truncate:64,set_field:72:74:70:00:12:34->dl_dst";
    assert_eq!(texts(&egress), ["actions=output:2", near, &format!("{set},output:7")]);
    let back = |from| {
        let back = Back { to: Exit::here(PortNo(2)), from: PortNo(from) };
        GroupKey { path: Path::Back(back), ..egress.clone() }
    };
    let returned = format!("{set},{}", PortNo::IN_PORT);
    assert_eq!(texts(&back(7)), ["actions=output:2", near, &returned]);
    assert_eq!(texts(&back(8)), texts(&egress));
    assert_eq!(buckets(&back(7)), buckets(&egress));
    assert_eq!(back(7).add(GroupId(RANGE_START), &[]).check(), Ok(()));
    let rewritten = Some(MacAddr([2, 0, 0, 0, 0, 2]));
    let carry = |exit| Path::Carry(Carry { tag: 0x1234, exit, rewritten, delivery: None });
    assert_eq!(texts(&key(carry(exit), &[])), ["actions=output:7"]);
    assert_eq!(
        texts(&key(carry(aim(3).exit), &[])),
        ["actions=set_field:02:00:00:00:00:02->dl_dst,output:3"]
    );
}

fn ports(key: &GroupKey) -> Vec<String> {
    key.buckets(&[]).iter().map(|bucket| bucket.actions[0].to_string()).collect()
}

fn buckets(key: &GroupKey) -> Vec<usize> {
    key.bucket_of_each().iter().map(|(.., bucket)| *bucket).collect()
}

#[test]
fn each_monitor_gets_one_copy() {
    let to_2 = key(to(2), &[4, 3, 4]);
    assert_eq!(ports(&to_2), ["output:2", "output:3", "output:4"]);
    assert_eq!(buckets(&to_2), [2, 1, 2]);

    let to_monitor = key(to(3), &[3, 4]);
    assert_eq!(ports(&to_monitor), ["output:3", "output:4"]);
    assert_eq!(buckets(&to_monitor), [0, 1]);

    let flooded = key(Path::Flood(Flood::All), &[3, 4]);
    assert_eq!(ports(&flooded), ["FLOOD"]);
    assert_eq!(buckets(&flooded), [0, 0]);
}

#[test]
fn what_is_flooded_has_buckets_for_monitors_that_floods_do_not_reach() {
    let member = |policy, aim| Member {
        policy: PolicyId(policy),
        aim,
        delivery: Some(Delivery::BestEffort),
        part: Part::default(),
    };
    let sink = |port| Aim { is_sink: true, ..aim(port) };
    let members = [member(1, sink(4)), member(2, aim(3)), member(3, sink(4))];
    let flooded = GroupKey { members: members.into(), path: Path::Flood(Flood::All) };
    assert_eq!(texts(&flooded), ["actions=FLOOD", "actions=deliver:best-effort,output:4"]);
    assert_eq!(buckets(&flooded), [1, 0, 1]);
}

#[test]
fn a_shared_bucket_has_the_strongest_contract_and_the_path_has_none() {
    let member = |policy, monitor, delivery| Member {
        policy: PolicyId(policy),
        aim: aim(monitor),
        delivery: Some(delivery),
        part: Part::default(),
    };
    let lossless = |stall_ms| Delivery::Lossless { stall_ms };
    let members = [
        member(1, 3, Delivery::BestEffort),
        member(2, 3, lossless(20)),
        member(3, 3, lossless(10)),
        member(4, 4, Delivery::SampleOnPressure),
        member(5, 2, lossless(9)),
        member(6, 5, Delivery::BestEffort),
    ];
    let to_2 = GroupKey { members: members.into(), path: to(2) };
    assert_eq!(
        texts(&to_2),
        [
            "actions=output:2",
            "actions=deliver:lossless(20 ms),output:3",
            "actions=deliver:sample-on-pressure,output:4",
            "actions=deliver:best-effort,output:5",
        ]
    );
    let flooded = GroupKey { path: Path::Flood(Flood::All), ..to_2.clone() };
    assert_eq!(texts(&flooded), ["actions=FLOOD"]);
    assert_eq!(to_2.add(GroupId(RANGE_START), &[]).check(), Ok(()));
}

#[test]
fn a_shared_bucket_has_the_larger_part_and_room_for_the_tag() {
    let member = |policy, aim, snaplen, every: &str| Member {
        policy: PolicyId(policy),
        aim,
        delivery: None,
        part: Part { snaplen: Some(snaplen), sample: every.parse().ok(), ..Part::default() },
    };
    let beyond = Some(Place { switch: DatapathId(9), port: PortNo(3) });
    let far = Aim {
        slot: Slot::only(0),
        exit: Exit { port: PortNo(7), beyond, spread: None },
        tag: 3072,
        is_sink: false,
    };
    let members =
        [member(1, aim(3), 64, "1/10"), member(2, aim(3), 128, "1/5"), member(3, far, 64, "all")];
    let key = GroupKey { members: members.into(), path: to(2) };
    assert_eq!(
        texts(&key),
        [
            "actions=output:2",
            "actions=truncate:128,sample:1/5,output:3",
            "actions=truncate:68,push_vlan:0x88a8,set_field:0x1c00->vlan_vid,output:7",
        ]
    );
    assert_eq!(key.add(GroupId(RANGE_START), &[]).check(), Ok(()));
}

#[test]
fn the_path_forks_in_a_group_of_its_own() {
    let beyond = Some(Place { switch: DatapathId(9), port: PortNo(3) });
    let exit = Exit { port: PortNo(7), beyond, spread: None };
    let fork = Fork { kind: ForkKind::Balance, ports: [PortNo(7), PortNo(8)].into() };
    let route = Route { exit, fork: Some(fork.clone()) };
    let copying = key(Path::To(route.clone()), &[4]);
    let forking = copying.next().remove(0);
    assert_eq!((forking.next(), key(Path::To(route.single()), &[4]).next()), (vec![], vec![]));
    let (first, second) = (GroupId(RANGE_START), GroupId(RANGE_START | 1));
    let start = format!("add group_id={first},type");
    assert_eq!(
        forking.add(first, &[]).to_string(),
        format!(
            "{start}=select,bucket=weight:1,watch_port:7,actions=output:7,\
             bucket=weight:1,watch_port:8,actions=output:8"
        )
    );
    let detour = GroupKey::forking(Fork { kind: ForkKind::FailOver, ..fork });
    assert_eq!(
        detour.add(first, &[]).to_string(),
        format!(
            "{start}=fast_failover,bucket=watch_port:7,actions=output:7,\
             bucket=watch_port:8,actions=output:8"
        )
    );
    assert_eq!(
        copying.add(second, &[first]).to_string(),
        format!(
            "add group_id={second},type=all,bucket=actions=group:{first},\
             bucket=actions=output:4"
        )
    );
    assert_eq!((forking.bucket_count(), copying.bucket_count()), (2, 2));
    for change in [forking.add(first, &[]), detour.add(first, &[])] {
        assert_eq!(change.check(), Ok(()));
    }
}

#[test]
fn what_is_flooded_leaves_by_a_bucket_for_each_port() {
    let ports = Flood::Ports([PortNo(1), PortNo(3), PortNo(4)].into());
    let member = Member { policy: PolicyId(7), aim: aim(3), delivery: None, part: Part::default() };
    let flooded = GroupKey { members: [member].into(), path: Path::Flood(ports.clone()) };
    let outputs = ["actions=output:1", "actions=output:3", "actions=output:4"];
    assert_eq!(texts(&flooded), outputs);
    let of_each = flooded.bucket_of_each();
    assert!(matches!(of_each[..], [(_, _, 1)]), "the bucket of the monitor's port: {of_each:?}");
    let asked = GroupKey { path: Path::Ask(ports), ..flooded };
    let to_controller = "actions=CONTROLLER:256";
    assert_eq!(texts(&asked), [&[to_controller][..], &outputs, &outputs[1..2]].concat());
    assert!(matches!(asked.bucket_of_each()[..], [(_, _, 4)]));
    assert_eq!((asked.bucket_count(), asked.original_count()), (5, 4));
}

#[test]
fn monitors_that_share_flows_are_a_group_of_their_own() {
    let spread = Spread::new(&[PortNo(3), PortNo(4)]);
    let exit = Exit::here(PortNo(3)).spread(spread);
    let member = |policy, exit, delivery| Member {
        policy: PolicyId(policy),
        aim: Aim { slot: Slot::only(0), exit, tag: 0, is_sink: false },
        delivery: Some(delivery),
        part: Part::default(),
    };
    let lossless = Delivery::Lossless { stall_ms: 9 };
    let members = [
        member(1, exit, Delivery::BestEffort),
        member(2, exit, lossless),
        member(3, aim(5).exit, Delivery::BestEffort),
    ];
    let copying = GroupKey { members: members.into(), path: to(2) };
    let [sharing] = &copying.next()[..] else { panic!() };
    let group = GroupId(RANGE_START);
    let copies: Vec<_> = copying.buckets(&[group]).iter().map(ToString::to_string).collect();
    let own = "actions=deliver:best-effort,output:5";
    // In the order of their exits.
    assert_eq!(copies, ["actions=output:2", &format!("actions=group:{group}"), own]);
    assert_eq!(
        texts(sharing),
        [
            "weight:1,watch_port:3,actions=deliver:lossless(9 ms),output:3",
            "weight:1,watch_port:4,actions=deliver:lossless(9 ms),output:4",
        ]
    );
    assert_eq!(
        (sharing.group_type(), sharing.add(group, &[]).check()),
        (GroupType::Select, Ok(()))
    );
    let counted = |key: &GroupKey| {
        let each = key.bucket_of_each().into_iter();
        each.map(|(of, exit, bucket)| (of.policy.0, exit.port.0, bucket)).collect::<Vec<_>>()
    };
    assert_eq!(counted(&copying), [(3, 5, 2)]);
    assert_eq!(counted(sharing), [(1, 3, 0), (1, 4, 1), (2, 3, 0), (2, 4, 1)]);
    let to_one_of_them = GroupKey { path: to(4), ..copying.clone() };
    assert_eq!(to_one_of_them.next(), [], "they have the original");
    let flooded = GroupKey { path: Path::Flood(Flood::All), ..copying };
    assert_eq!((flooded.next(), flooded.bucket_count()), (vec![], 1));
    let carry = Path::Carry(Carry { tag: 3072, exit, rewritten: None, delivery: None });
    assert_eq!(
        texts(&key(carry.clone(), &[])),
        [
            "weight:1,watch_port:3,actions=pop_vlan,output:3",
            "weight:1,watch_port:4,actions=pop_vlan,output:4",
        ]
    );
    assert_eq!(key(carry, &[]).group_type(), GroupType::Select);
}

#[test]
fn monitors_at_several_switches_share_flows_where_copies_are_made() {
    let beyond = |port| Some(Place { switch: DatapathId(9), port: PortNo(port) });
    let far = |port| Exit { port: PortNo(7), beyond: beyond(port), spread: None };
    let member = |policy, (monitor, share), exit, tag| Member {
        policy: PolicyId(policy),
        aim: Aim { slot: Slot { monitor, share }, exit, tag, is_sink: false },
        delivery: None,
        part: Part::default(),
    };
    // Another policy copies to another one only.
    let members = [
        member(1, (0, 0), far(5), 3072),
        member(2, (0, 1), far(3), 3073),
        member(2, (0, 2), aim(4).exit, 0),
    ];
    let copying = GroupKey { members: members.into(), path: to(2) };
    let [sharing] = &copying.next()[..] else { panic!() };
    let group = GroupId(RANGE_START);
    let tag = |vid| format!("push_vlan:0x88a8,set_field:{:#06x}->vlan_vid", 0x1000 | vid);
    let copies: Vec<_> = copying.buckets(&[group]).iter().map(ToString::to_string).collect();
    let alone = format!("actions={},output:7", tag(3072));
    assert_eq!(copies, ["actions=output:2", &alone, &format!("actions=group:{group}")]);
    let first = |out: &str| format!("weight:1,watch_port:7,actions={},{out}", tag(3073));
    let second = "weight:1,watch_port:4,actions=output:4";
    assert_eq!(texts(sharing), [&first("output:7"), second]);
    let counted = |key: &GroupKey| {
        let each = key.bucket_of_each().into_iter();
        each.map(|(of, exit, bucket)| (of.policy.0, key.tag_of(exit), bucket)).collect::<Vec<_>>()
    };
    assert_eq!(counted(&copying), [(1, Some(3072), 1)]);
    assert_eq!(counted(sharing), [(2, Some(3073), 0), (2, None, 1)]);
    assert_eq!((sharing.group_type(), sharing.bucket_count()), (GroupType::Select, 2));
    assert_eq!(sharing.add(group, &[]).check(), Ok(()));

    let mut members = members;
    (members[0].aim.exit, members[1].part.snaplen) = (far(3), Some(64));
    let served = GroupKey { members: members.into(), ..copying.clone() };
    assert_eq!((served.next(), served.bucket_count()), (vec![], 2), "one of them has a copy");
    assert_eq!(texts(&served), ["actions=output:2", &alone]);
    assert_eq!(counted(&served), [(1, Some(3072), 1), (2, Some(3072), 1)]);
    members[0].part.snaplen = Some(60);
    let served = GroupKey { members: members.into(), ..copying.clone() };
    let cut = alone.replace("actions=", "actions=truncate:68,");
    assert_eq!(texts(&served), ["actions=output:2", &cut], "as much as one of both wants");

    let to_one_of_them = GroupKey { path: to(4), ..copying.clone() };
    assert_eq!(to_one_of_them.next(), [], "it has the original");
    let [_, (member, exit, 0)] = to_one_of_them.bucket_of_each()[..] else { panic!() };
    assert_eq!((member.aim.slot.share, exit), (2, aim(4).exit));
    let flooded = GroupKey { path: Path::Flood(Flood::All), ..copying.clone() };
    assert_eq!((flooded.next(), buckets(&flooded)), (vec![], vec![0, 0]));
    let back = Back { to: Exit::here(PortNo(2)), from: PortNo(7) };
    let returned = GroupKey { path: Path::Back(back), ..copying }.next().remove(0);
    assert_eq!(texts(&returned), [&first(&PortNo::IN_PORT.to_string()), second]);
}

#[test]
fn groups_are_ones_that_switches_take() {
    assert_eq!(key(Path::Flood(Flood::All), &[3]).add(GroupId(RANGE_START), &[]).check(), Ok(()));
    assert_eq!(delete(GroupId(RANGE_START)).check(), Ok(()));
}
