//! Each rule detects its problem, and reports nothing about a healthy device.

mod backpressure;
mod selection;

use tapswitch_netlink::{FeatureState, Link, Qdisc, TunKind};
use tapswitch_switch::report::PortReport;
use tapswitch_tap::Flags;
use tapswitch_tap::inspect::{Holder, Inspected, QueueState};

use super::finding::{Finding, Severity};
use super::switches::{SwitchPort, oversize};
use super::{examine, summary};
use crate::device::machine::Machine;
use crate::device::view::{TUNNEL, drop_causes};

#[test]
fn a_device_as_it_should_be_has_no_findings() {
    assert_eq!(findings(&healthy(), &machine()), []);
}

#[test]
fn no_checksum_is_named_with_what_it_costs_on_this_kernel() {
    let mut device = healthy();
    device.features.retain(|feature| !feature.name.contains("seg"));
    switch(&mut device, "tx-checksum-ip-generic", false);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("no-checksum", Severity::Warning));
    let on = "tapswitch device set tap0 --feature tx-checksum-ip-generic=on";
    assert_eq!(mend(&found), on, "in force only if its program has asked for it");
    assert!(found.text.contains("qemu (7)"), "{found}");
    let old = Machine { kernel: (6, 10), ..machine() };
    assert!(only(&device, &old).text.contains("UDP_SEGMENT get EIO"));

    device.tun.net_header = false;
    let headless = only(&device, &machine());
    assert_eq!((headless.severity, headless.mend), (Severity::Hint, None), "nothing is broken");
    assert!(headless.text.contains("vnet_hdr=on"));
    assert_eq!(only(&device, &old).severity, Severity::Warning, "somebody gets EIO");

    assert_eq!(findings(&unheld(device), &machine()), [], "who opens it asks for what it wants");
}

#[test]
fn what_mends_one_thing_brings_up_no_opposite() {
    for (is_held, net_header, is_on) in
        (0..8).map(|case| (case & 1 != 0, case & 2 != 0, case & 4 != 0))
    {
        let mut device = if is_held { healthy() } else { unheld(healthy()) };
        device.tun.net_header = net_header;
        set_offloads(&mut device, is_on);
        let mends = |device: &Inspected, words: &str| {
            let found = findings(device, &machine());
            found.iter().filter_map(|it| it.mend.as_ref()).any(|mend| mend.contains(words))
        };
        for (to, words, opposite) in [
            (true, "--offloads all", "--offloads none"),
            (false, "--offloads none", "--offloads all"),
        ] {
            if mends(&device, words) {
                let mut mended = device.clone();
                set_offloads(&mut mended, to);
                assert!(!mends(&mended, opposite), "{is_held} {net_header} {is_on}");
                assert!(!mends(&mended, words), "{is_held} {net_header} {is_on}");
            }
        }
    }
}

#[test]
fn trains_that_are_not_accepted_are_named() {
    for off in ["tx-tcp-segmentation", "tx-tcp6-segmentation"] {
        let mut device = healthy();
        switch(&mut device, off, false);
        let found = only(&device, &machine());
        assert_eq!((found.rule, found.severity), ("no-trains", Severity::Warning));
    }
    let mut device = healthy();
    switch(&mut device, "tx-udp-segmentation", false);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("no-udp-trains", Severity::Hint));
    let old = Machine { kernel: (6, 1), ..machine() };
    assert_eq!(findings(&device, &old), [], "it has none");
}

/// A requested but inactive feature is one that the program has not enabled, and nobody else may.
#[test]
fn what_a_program_has_not_asked_for_is_for_it_to_ask() {
    let device = healthy();
    for (name, rule) in [
        ("tx-checksum-ip-generic", "no-checksum"),
        ("tx-tcp6-segmentation", "no-trains"),
        ("tx-udp-segmentation", "no-udp-trains"),
    ] {
        let mut device = device.clone();
        switch(&mut device, name, false);
        device.features.iter_mut().filter(|it| it.name == name).for_each(|it| it.requested = true);
        let found = only(&device, &machine());
        assert_eq!((found.rule, found.mend.as_ref()), (rule, None));
        assert!(found.text.contains("qemu (7)"), "{found}");
    }
}

#[test]
fn features_that_could_not_be_read_are_no_findings() {
    let mut device = healthy();
    device.features.clear();
    assert_eq!(findings(&device, &machine()), []);
}

#[test]
fn stale_offloads_are_worse_where_they_break_something() {
    let mut device = healthy();
    device.tun.net_header = false;
    let held = only(&device, &machine());
    assert_eq!((held.rule, held.severity), ("stale-offloads", Severity::Error));
    assert_eq!(mend(&held), "tapswitch device set tap0 --offloads none");
    let left = only(&unheld(device.clone()), &machine());
    assert_eq!((left.rule, left.severity), ("stale-offloads", Severity::Warning));
    device.tun.net_header = true;
    let ready = only(&unheld(device), &machine());
    assert_eq!((ready.rule, ready.severity), ("stale-offloads", Severity::Hint));
    assert!(ready.text.contains("(csum tso4 tso6 ecn uso)"), "{ready}");
    assert!(!ready.text.contains("program has asked"), "nobody knows who did: {ready}");
}

#[test]
fn trains_in_tunnels_need_a_long_header() {
    let mut device = healthy();
    switch(&mut device, "tx-udp_tnl-segmentation", true);
    let found = only(&device, &machine());
    assert_eq!(found.rule, "short-tunnel-header");
    let others = "tapswitch device set tap0 --offloads csum,tso4,tso6,ecn,uso";
    assert_eq!(mend(&found), others, "no more than are on");
    let mut headless = device.clone();
    headless.tun.net_header = false;
    let rules = findings(&headless, &machine());
    assert!(rules.iter().all(|found| found.rule != "short-tunnel-header"), "{rules:?}");
    set_queue(&mut device, |queue| queue.header_len = 24);
    assert_eq!(findings(&device, &machine()), []);
}

#[test]
fn a_header_that_is_none_is_an_error() {
    let mut device = healthy();
    for len in [16, 100_000] {
        set_queue(&mut device, |queue| queue.header_len = len);
        let found = only(&device, &machine());
        assert_eq!((found.rule, found.severity), ("odd-header", Severity::Error));
        assert!(found.text.contains(&format!("set to {len} bytes")), "{found}");
        assert!(found.text.contains("qemu (7) must set 10, 12, 20 or 24"), "{found}");
    }
    for len in [10, 12, 20, 24] {
        set_queue(&mut device, |queue| queue.header_len = len);
        assert_eq!(findings(&device, &machine()), []);
    }
}

/// A file opened for the inspection reports the same about a device without holders.
#[test]
fn a_header_that_a_former_program_has_left_is_a_warning() {
    let mut device = unheld(healthy());
    set_offloads(&mut device, false);
    assert_eq!(findings(&device, &machine()), [], "not seen");
    let header = |header_len| Some(QueueState { header_len, ..QueueState::default() });
    device.unheld = header(10);
    assert_eq!(findings(&device, &machine()), []);
    device.unheld = header(100_000);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("odd-header", Severity::Warning));
    assert_eq!(mend(&found), "tapswitch device set tap0 --vnet-hdr 10");
    device.unheld = header(12);
    switch(&mut device, "tx-udp_tnl-segmentation", true);
    let [found, _] = findings(&device, &machine()).try_into().unwrap();
    assert_eq!((found.rule, found.severity), ("short-tunnel-header", Severity::Warning));
}

#[test]
fn a_classic_filter_keeps_the_next_program_out() {
    let mut device = healthy();
    set_queue(&mut device, |queue| queue.flags = Flags::TAP | Flags::VNET_HDR);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("classic-filter", Severity::Warning));
    assert!(found.text.contains("qemu (7) must detach it"), "{found}");
    device.tun.persistent = false;
    assert_eq!(findings(&device, &machine()), [], "nobody can open it next");
    (device.tun.multi_queue, device.tun.queues) = (true, Some(1));
    assert_eq!(only(&device, &machine()).rule, "classic-filter");
}

#[test]
fn identifiers_that_are_not_mangled_are_a_hint() {
    let mut device = healthy();
    switch(&mut device, "tx-tcp-mangleid-segmentation", false);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("mangle-id-off", Severity::Hint));
    assert_eq!(mend(&found), "tapswitch device set tap0 --feature tx-tcp-mangleid-segmentation=on");
}

#[test]
fn joining_datagrams_is_a_hazard_where_gro_works() {
    let mut device = healthy();
    switch(&mut device, "rx-udp-gro-forwarding", true);
    assert_eq!(only(&device, &machine()).severity, Severity::Hint);
    add_flag(&mut device, Flags::NAPI);
    (device.gro_flush_timeout_ns, device.napi_defer_hard_irqs) = (Some(1000), Some(1));
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("udp-gro-forwarding", Severity::Warning));
    assert_eq!(mend(&found), "tapswitch device set tap0 --feature rx-udp-gro-forwarding=off");
}

#[test]
fn napi_without_gathering_is_named() {
    let mut device = healthy();
    add_flag(&mut device, Flags::NAPI);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("napi-without-gro", Severity::Warning));
    assert_eq!(mend(&found), "tapswitch device set tap0 --gro-flush-timeout 20000");
    device.gro_flush_timeout_ns = Some(20_000);
    assert_eq!(findings(&device, &machine()), [], "that is enough");
    device.gro_flush_timeout_ns = None;
    assert_eq!(findings(&device, &machine()), [], "not seen");
}

#[test]
fn a_ring_without_room_is_an_error() {
    let mut device = healthy();
    device.link.txqueuelen = 0;
    device.link.stats.tx_dropped = 9;
    // Backpressure cannot help a ring without room.
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("no-queue-length", Severity::Error));
    assert_eq!(mend(&found), "tapswitch device set tap0 --txqueuelen 1000");
    device.tun.kind = TunKind::Tun;
    assert_eq!(mend(&only(&device, &machine())), "tapswitch device set tap0 --txqueuelen 500");
}

#[test]
fn drops_are_held_against_the_length_of_the_queue() {
    let mut device = without_backpressure();
    device.link.stats.tx_dropped = 1234;
    device.link.txqueuelen = 10;
    let old = Machine { backpressure: Some(false), kernel: (6, 18), ..machine() };
    let [short, kernel] = findings(&device, &old).try_into().unwrap();
    assert_eq!((short.rule, short.severity), ("short-queue", Severity::Warning));
    assert!(short.text.contains("1_234 frames"), "{short}");
    assert!(short.text.contains("it may be too short"), "{short}");
    assert_eq!(mend(&short), "tapswitch device set tap0 --txqueuelen 1000");
    assert_eq!((kernel.rule, kernel.severity), ("no-backpressure", Severity::Hint));
    assert!(kernel.text.contains("6.18"), "{kernel}");

    device.link.txqueuelen = 1000;
    let [long, _] = findings(&device, &old).try_into().unwrap();
    assert_eq!((long.rule, long.severity), ("frames-dropped", Severity::Hint));
    assert_eq!(mend(&long), "tapswitch device set tap0 --txqueuelen 2000");
    device.link.txqueuelen = 2000;
    let [longer, _] = findings(&device, &old).try_into().unwrap();
    assert_eq!((longer.rule, longer.mend), ("frames-dropped", None), "the counter never falls");
}

#[test]
fn frames_that_nobody_was_there_to_read_say_nothing_of_the_ring() {
    let mut device = unheld(healthy());
    set_offloads(&mut device, false);
    device.link.stats.tx_dropped = 9;
    let old = Machine { backpressure: Some(false), ..machine() };
    assert_eq!(findings(&device, &old), []);
}

/// The kernel has one counter for all causes; impossible ones are omitted.
#[test]
fn causes_of_drops_that_cannot_be_are_left_out() {
    let mut device = healthy();
    assert!(drop_causes(&device).starts_with("no program held it at the time, its ring was full"));
    device.tun.persistent = false;
    let alone = "its ring was full, or a filter of its program refused them";
    assert_eq!(drop_causes(&device), alone, "its program was always there");
    (device.tun.multi_queue, device.tun.queues) = (true, Some(1));
    assert!(drop_causes(&device).starts_with("a queue was detached at the time, "));
    (device.tun.queues, device.tun.disabled_queues) = (Some(0), Some(1));
    assert!(drop_causes(&device).starts_with("all its queues are detached, "));
    let mut device = unheld(healthy());
    device.link.txqueuelen = 0;
    let none = "no program holds it, its ring has no room";
    assert!(drop_causes(&device).starts_with(none));
}

#[test]
fn back_pressure_makes_drops_no_news() {
    let mut device = healthy();
    device.link.stats.tx_dropped = 1234;
    device.link.txqueuelen = 10;
    assert_eq!(findings(&device, &machine()), []);
}

#[test]
fn one_queue_is_a_hint_where_there_are_more_cores() {
    let cores = Machine { cores: 8, ..machine() };
    let found = only(&healthy(), &cores);
    assert_eq!((found.rule, found.severity), ("one-queue", Severity::Hint));
    assert!(found.text.contains("8 cores"));
    assert_eq!(found.mend, None, "it would end the program and lose what is set");
    assert!(
        found.text.contains("created as multi-queue") && found.text.contains("qemu (7)"),
        "{found}"
    );
    let mut device = healthy();
    (device.tun.multi_queue, device.tun.queues) = (true, Some(1));
    assert_eq!(only(&device, &cores).mend, None, "its program may attach more");
    assert_eq!(findings(&unheld(healthy()), &cores).len(), 1, "the offloads alone");
}

#[test]
fn several_queues_need_a_steering_program() {
    let mut device = healthy();
    (device.tun.multi_queue, device.tun.queues) = (true, Some(4));
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("default-steering", Severity::Hint));
    assert!(found.text.starts_with("4 queues"));
}

#[test]
fn ports_of_switches_are_told_what_switches_can_do() {
    let mut device = healthy();
    (device.tun.multi_queue, device.tun.queues) = (true, Some(4));
    let mut port = of_br0(port(1500, 8, 0));
    let rules = |device: &Inspected, port: &SwitchPort| {
        let machine = Machine { cores: 4, ..machine() };
        examine(std::slice::from_ref(device), &machine, |_| Some(port))
    };
    assert_eq!(rules(&device, &port)[0].rule, "default-steering", "it does not steer");
    port.port.steered = vec![0; 4];
    assert_eq!(rules(&device, &port), []);
    device.tun.queues = Some(1);
    let [found] = rules(&device, &port).try_into().unwrap();
    assert!(found.text.ends_with("configure port 2 of switch br0 with queues=4 to get more"));
    device.tun.net_header = false;
    set_offloads(&mut device, false);
    let [found, _] = rules(&device, &port).try_into().unwrap();
    assert_eq!(found.rule, "no-checksum");
    let remedy = "port 2 of switch br0 has offload=off: remove that option from its configuration";
    assert!(found.text.ends_with(remedy), "{found}");
}

#[test]
fn a_device_is_the_port_of_its_name_and_namespace() {
    let mut device = healthy_here();
    let mut it = of_br0(port(1500, 8, 0));
    assert!(it.is_device(&device));
    it.port.netns = Some("there-is-no-such".to_owned());
    assert!(!it.is_device(&device));
    it.port.netns = None;
    it.port.kind = "netdev".to_owned();
    assert!(!it.is_device(&device));
    it.port.kind = "tun".to_owned();
    device.namespace_id = (0, 0);
    assert!(!it.is_device(&device));
}

#[test]
fn back_pressure_without_a_qdisc_has_no_effect() {
    let mut device = healthy();
    device.link.qdisc = Some("noqueue".to_owned());
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("no-qdisc", Severity::Warning));
    assert_eq!(mend(&found), "tapswitch device set tap0 --qdisc pfifo_fast");
}

#[test]
fn back_pressure_that_is_there_and_not_used_is_a_hint() {
    let held = only(&without_backpressure(), &machine());
    assert_eq!((held.rule, held.severity, held.mend), ("no-backpressure", Severity::Hint, None));
    let [_, unheld] = findings(&unheld(without_backpressure()), &machine()).try_into().unwrap();
    assert_eq!(mend(&unheld), "tapswitch device set tap0 --backpressure on");
}

#[test]
fn an_interface_that_is_down_is_named_if_somebody_holds_it() {
    let mut device = healthy();
    (device.link.up, device.link.carrier) = (false, Some(true));
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("down", Severity::Warning));
    assert_eq!(mend(&found), "tapswitch device set tap0 --up");
    let rules: Vec<_> =
        findings(&unheld(device), &machine()).iter().map(|found| found.rule).collect();
    assert_eq!(rules, ["stale-offloads"]);
}

#[test]
fn a_program_without_a_carrier_is_named() {
    let mut device = healthy();
    device.link.carrier = Some(false);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("no-carrier", Severity::Warning));
    assert_eq!(mend(&found), "tapswitch device set tap0 --carrier on");
}

#[test]
fn a_device_that_nobody_reads_is_a_hint() {
    let mut device = unheld(healthy());
    device.link.up = true;
    let rules: Vec<_> = findings(&device, &machine()).iter().map(|found| found.rule).collect();
    assert_eq!(rules, ["stale-offloads", "unread"]);
    device.hides_holders = true;
    assert_eq!(findings(&device, &machine()), [], "somebody may hold it");
    device.tun.queues = Some(0);
    assert_eq!(findings(&device, &machine()).len(), 2, "the kernel says that nobody does");
    let mend = |device: &Inspected| {
        let found = findings(device, &Machine { kernel: (7, 3), ..machine() });
        found.into_iter().find(|found| found.rule == "unread").unwrap().mend
    };
    assert_eq!(mend(&device), None, "it is prepared for its owner");
    (device.tun.owner, device.tun.group) = (None, Some(0));
    assert_eq!(mend(&device), None, "or for a group");
    device.tun.group = None;
    assert_eq!(mend(&device).unwrap(), "tapswitch device set tap0 --down");
}

#[test]
fn a_foreign_queue_is_told_by_its_programs() {
    let mut device = healthy();
    let mut other = Holder { pid: 8, started: 50, file: Some(2), ..device.holders[0].clone() };
    (other.uid, other.arguments) = (Some(4_294_967_000), "nc -u ::1".to_owned());
    device.holders.insert(0, other.clone());
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("foreign-queue", Severity::Warning));
    assert_eq!(found.mend, None, "the newest may be the one that belongs there");
    assert!(found.text.contains("8 of user 4294967000 (nc -u ::1), 7 of user"), "{found}");
    assert!(found.text.contains("8 does not run as the user who owns the device"), "{found}");
    device.tun.owner = Some(1);
    assert!(!only(&device, &machine()).text.contains("does not run as"), "it may be either");
    device.tun.owner = Some(0);
    device.holders[0].file = device.holders[1].file;
    assert_eq!(findings(&device, &machine()), [], "it was handed on");
    device.holders[0] = Holder { pid: 7, ..other };
    assert_eq!(findings(&device, &machine()), [], "the same program");
}

#[test]
fn a_program_may_share_out_its_queues() {
    let mut device = healthy();
    let child =
        Holder { pid: 8, parent: Some(7), started: 50, file: Some(2), ..device.holders[0].clone() };
    device.holders.push(child);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity, &found.mend), ("foreign-queue", Severity::Hint, &None));
    assert!(found.text.ends_with("the first has started the others, so this may be intended"));
    for change in [
        |child: &mut Holder| child.uid = Some(1000),
        |child: &mut Holder| child.uid = None,
        |child: &mut Holder| child.parent = Some(1),
    ] {
        let mut device = device.clone();
        change(&mut device.holders[1]);
        let found = only(&device, &machine());
        assert_eq!((found.rule, found.severity), ("foreign-queue", Severity::Warning));
        assert!(found.text.ends_with("stop the one that does not belong there"), "{found}");
    }
}

#[test]
fn detached_queues_are_a_hint() {
    let mut device = healthy();
    device.tun.disabled_queues = Some(2);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("detached-queues", Severity::Hint));
    assert!(found.text.starts_with("2 queues are open and detached"), "{found}");
    // No ring is long enough for that.
    (device.tun.queues, device.link.stats.tx_dropped) = (Some(0), 9);
    device.link.carrier = Some(false);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("detached-queues", Severity::Warning));
    assert!(found.text.contains("dropped until qemu (7) attaches one"), "{found}");
}

#[test]
fn the_mtu_must_leave_room_for_all_tags_but_one() {
    let mut device = healthy();
    let mut upper = Link::default();
    (upper.name, upper.mtu) = ("q".to_owned(), 1500);
    device.uppers = vec![(upper.clone(), 1)];
    assert_eq!(findings(&device, &machine()), []);
    device.uppers.push((upper, 3));
    assert_eq!(findings(&device, &machine()), [], "nobody looks at their length");
    device.controller = Some("br0".to_owned());
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("tag-mtu", Severity::Warning));
    assert_eq!(mend(&found), "tapswitch device set tap0 --mtu 1508");
}

#[test]
fn a_limited_send_buffer_is_a_hint() {
    let mut device = healthy();
    set_queue(&mut device, |queue| queue.send_buffer_len = 1 << 20);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity, found.mend), ("send-buffer", Severity::Hint, None));
    device.tun.kind = TunKind::Tun;
    assert_eq!(findings(&device, &machine()), [], "each frame is copied so anyway");
}

#[test]
fn a_persistent_device_without_an_owner_is_everybodys() {
    let mut device = healthy();
    device.tun.owner = None;
    assert_eq!(findings(&device, &machine()), [], "Linux 7.3 asks for privilege");
    let before = Machine { kernel: (7, 2), ..machine() };
    let found = only(&device, &before);
    assert_eq!((found.rule, found.severity), ("open-to-all", Severity::Hint));
    let command = |user| Some(format!("tapswitch device set tap0 --owner {user}"));
    assert_eq!(found.mend, command(0), "root holds it");
    for (uid, wanted) in [(Some(1000), command(1000)), (None, None)] {
        let mut device = device.clone();
        device.holders[0].uid = uid;
        assert_eq!(only(&device, &before).mend, wanted, "its program may open it again");
    }
    let mut shared = device.clone();
    shared.holders.push(Holder { uid: Some(1000), ..shared.holders[0].clone() });
    assert_eq!(only(&shared, &before).mend, None);
    device.tun.group = Some(0);
    assert_eq!(findings(&device, &before), []);
    (device.tun.group, device.tun.persistent) = (None, false);
    assert_eq!(findings(&device, &before), [], "it goes with its program");
}

/// A queue can be attached even while a program holds the device.
#[test]
fn a_multi_queue_device_without_an_owner_may_be_joined_by_everybody() {
    let before = Machine { kernel: (7, 2), ..machine() };
    for persistent in [true, false] {
        let mut device = healthy();
        (device.tun.multi_queue, device.tun.queues) = (true, Some(1));
        (device.tun.owner, device.tun.persistent) = (None, persistent);
        assert_eq!(findings(&device, &machine()), [], "Linux 7.3 asks for privilege");
        let found = only(&device, &before);
        assert_eq!((found.rule, found.severity), ("open-to-all", Severity::Warning));
        assert!(found.text.contains("can attach a queue at any time"), "{found}");
        assert_eq!(mend(&found), "tapswitch device set tap0 --owner 0");
        device.tun.owner = Some(0);
        assert_eq!(findings(&device, &before), []);
    }
}

#[test]
fn commands_say_where_the_device_is_if_that_can_be_said() {
    let mut device = healthy();
    (device.link.up, device.namespace) = (false, "blue".to_owned());
    assert_eq!(mend(&only(&device, &machine())), "tapswitch device set tap0 --netns blue --up");
    device.namespace = "of tap0 of process 7".to_owned();
    let found = only(&device, &machine());
    assert_eq!(found.mend, None);
    let line = found.to_string();
    assert!(line.starts_with("warning  tap0 in namespace of tap0 of process 7  down: "), "{line}");
}

/// A user with a user namespace can choose any device name, and root runs the printed commands.
#[test]
fn a_name_is_one_word_of_a_command_whatever_it_is() {
    let mut device = healthy();
    device.link.up = false;
    let mut said = |name: &str, namespace: &str| {
        (device.link.name, device.namespace) = (name.to_owned(), namespace.to_owned());
        only(&device, &machine()).mend
    };
    let command = said(";reboot;#", "$(id)").unwrap();
    assert_eq!(command, "tapswitch device set ';reboot;#' --netns '$(id)' --up");
    assert_eq!(said("-x", "(current)").unwrap(), "tapswitch device set --up -- -x");
    assert_eq!(said("t", "-n").unwrap(), "tapswitch device set t --netns=-n --up");
    assert_eq!(said("a\u{1b}[2J", "(current)"), None, "it cannot be shown");
}

#[test]
fn the_worst_is_said_first_and_all_are_counted() {
    let mut device = healthy();
    device.link.txqueuelen = 0;
    set_queue(&mut device, |queue| queue.send_buffer_len = 1 << 20);
    let found = findings(&device, &machine());
    let severities: Vec<_> = found.iter().map(|found| found.severity).collect();
    assert_eq!(severities, [Severity::Error, Severity::Hint]);
    assert_eq!(summary(1, &found), "1 device: 1 error, 0 warnings, 1 hint");
    let line = found[0].to_string();
    assert!(line.starts_with("error    tap0  no-queue-length: the queue length is 0"), "{line}");
    assert!(line.ends_with("; fix: tapswitch device set tap0 --txqueuelen 1000"), "{line}");
}

/// [`healthy`] in this namespace, held by this process.
fn healthy_here() -> Inspected {
    let mut device = healthy();
    device.namespace_id = tapswitch_netlink::Namespace::current().unwrap().identity().unwrap();
    device.holders[0].pid = std::process::id();
    device
}

/// A device without findings on [`machine`].
fn healthy() -> Inspected {
    let mut device = Inspected::default();
    device.namespace = "(current)".to_owned();
    let link = &mut device.link;
    (link.name, link.mtu, link.txqueuelen) = ("tap0".to_owned(), 1500, 1000);
    (link.up, link.carrier, link.qdisc) = (true, Some(true), Some("pfifo_fast".to_owned()));
    let tun = &mut device.tun;
    (tun.net_header, tun.persistent, tun.owner) = (true, true, Some(0));
    device.flags = Some(Flags::TAP | Flags::NO_PI | Flags::VNET_HDR | Flags::BACKPRESSURE);
    let on = [
        "tx-checksum-ip-generic",
        "tx-tcp-segmentation",
        "tx-tcp6-segmentation",
        "tx-tcp-ecn-segmentation",
        "tx-udp-segmentation",
        "tx-tcp-mangleid-segmentation",
    ];
    let off = ["tx-udp_tnl-segmentation", "rx-udp-gro-forwarding", "rx-gro-list"];
    device.features.extend(on.map(|name| feature(name, true)));
    device.features.extend(off.map(|name| feature(name, false)));
    device.qdiscs = vec![Qdisc::default()];
    (device.gro_flush_timeout_ns, device.napi_defer_hard_irqs) = (Some(0), Some(0));
    let queue = QueueState {
        flags: Flags::NO_PI,
        header_len: 12,
        send_buffer_len: 0x7fff_ffff,
        ..QueueState::default()
    };
    let mut holder = Holder::default();
    (holder.pid, holder.command, holder.started) = (7, "qemu".to_owned(), 40);
    (holder.queue, holder.file, holder.uid) = (Some(queue), Some(1), Some(0));
    device.holders = vec![holder];
    device
}

#[test]
fn what_a_switch_dropped_as_oversize_is_told_with_what_to_set() {
    let text = |payload, tags| oversize(&of_br0(port(payload, tags, 17))).unwrap().text;
    assert!(text(1500, 12).contains("dropped 17 frames"), "{}", text(1500, 12));
    assert!(text(1500, 12).ends_with("give the port envelope=12"), "{}", text(1500, 12));
    assert!(text(9000, 8).ends_with("give the port mtu=9000"), "{}", text(9000, 8));
    assert!(text(9000, 12).ends_with("give the port mtu=9000,envelope=12"));
    assert!(text(1500, 8).contains("set the interface's MTU to 1508"), "{}", text(1500, 8));
    assert_eq!(oversize(&of_br0(port(1500, 8, 0))), None);
}

/// A port of switch br0, which does not say what namespace it runs in.
fn of_br0(port: PortReport) -> SwitchPort {
    SwitchPort { switch: "br0".to_owned(), home: None, port }
}

/// Port 2, which dropped `count` frames as too long.
fn port(payload: usize, tags: usize, count: u64) -> PortReport {
    use tapswitch_switch::report::{OversizeReport, PressureReport, TrafficReport};
    PortReport {
        port: "2".to_owned(),
        name: "tap0".to_owned(),
        kind: "tap".to_owned(),
        netns: None,
        mac: String::new(),
        state: "up".to_owned(),
        mtu: 1500,
        envelope: 8,
        mode: None,
        oversize: Some(OversizeReport {
            payload,
            tags,
            over_mtu: payload > 1500,
            over_envelope: tags > 8,
        }),
        steered: Vec::new(),
        queues: 1,
        guest: None,
        ring: None,
        queueing: None,
        tunnel: None,
        file: None,
        offloads: String::new(),
        rx: TrafficReport::default(),
        tx: TrafficReport::default(),
        drops: [("oversize".to_owned(), count)].into(),
        consumed: 0,
        pressure: PressureReport::default(),
    }
}

/// A kernel with all features, and one core, which needs one queue.
fn machine() -> Machine {
    Machine { kernel: (7, 3), cores: 1, backpressure: Some(true) }
}

/// The device without its program, and down.
fn unheld(mut device: Inspected) -> Inspected {
    device.holders.clear();
    (device.link.up, device.link.carrier) = (false, Some(false));
    device
}

fn without_backpressure() -> Inspected {
    let mut device = healthy();
    device.flags = device.flags.map(|flags| flags.difference(Flags::BACKPRESSURE));
    device
}

fn add_flag(device: &mut Inspected, flag: Flags) {
    device.flags = device.flags.map(|flags| flags | flag);
}

fn set_queue(device: &mut Inspected, change: impl Fn(&mut QueueState)) {
    device.holders.iter_mut().filter_map(|holder| holder.queue.as_mut()).for_each(change);
}

fn feature(name: &str, active: bool) -> FeatureState {
    let mut feature = FeatureState::default();
    (feature.name, feature.available) = (name.to_owned(), true);
    (feature.requested, feature.active) = (active, active);
    feature
}

fn switch(device: &mut Inspected, name: &str, on: bool) {
    let found = device.features.iter_mut().find(|feature| feature.name == name);
    *found.unwrap() = feature(name, on);
}

/// Enables or disables all offloads.
fn set_offloads(device: &mut Inspected, on: bool) {
    let mut features = std::mem::take(&mut device.features);
    for it in features.iter_mut().filter(|it| it.name.starts_with("tx-") && it.name != TUNNEL) {
        *it = feature(&it.name, on);
    }
    device.features = features;
}

fn findings(device: &Inspected, machine: &Machine) -> Vec<Finding> {
    let found = examine(std::slice::from_ref(device), machine, |_| None);
    for it in &found {
        assert!(described_rules().contains(&it.rule), "{} is not in docs/doctor.md", it.rule);
    }
    found
}

/// The rules in `docs/doctor.md`.
fn described_rules() -> Vec<&'static str> {
    let rows = include_str!("../../../../../docs/doctor.md").split("## Rules").nth(1).unwrap();
    let rows = rows.split("## Why").next().unwrap().lines();
    rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect()
}

/// [`findings`] checks the other direction: each rule that a test triggers is described.
#[test]
fn no_rule_is_described_that_there_is_not() {
    let sources = [
        include_str!("mod.rs"),
        include_str!("finding.rs"),
        include_str!("switches.rs"),
        include_str!("offload.rs"),
        include_str!("flow.rs"),
        include_str!("health.rs"),
    ];
    let rules = described_rules();
    assert!(rules.len() > 25, "{rules:?}");
    for rule in rules {
        let name = format!("\"{rule}\"");
        assert!(sources.iter().any(|source| source.contains(&name)), "{rule}");
    }
}

/// The only finding.
fn only(device: &Inspected, machine: &Machine) -> Finding {
    let [found] = findings(device, machine).try_into().unwrap();
    found
}

fn mend(finding: &Finding) -> &str {
    finding.mend.as_deref().unwrap()
}
