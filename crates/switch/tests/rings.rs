//! Tests of the kernel's rings of tap ports: length, back-pressure, and reports.
//!
//! Back-pressure itself is tested on Linux 7.3 in a guest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod common;

use std::fs;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::*;
use tapswitch_guest::{Rig, Series};
use tapswitch_netlink::QdiscSpec;
use tapswitch_switch::report::{PortReport, RingBackpressure, RingReport};
use tapswitch_switch::{Backpressure, PortKind};
use tapswitch_tap as tap;

#[test]
fn a_ring_is_as_long_as_it_is_told_and_an_interface_has_none() {
    if !can_run() {
        return;
    }
    let (lab, _room) = Lab::netdevs_with(3, &[1, 2], |config| {
        config.ports[1].ring.length = NonZeroU32::new(7);
    });
    let lengths = [1, 2, 3].map(|number| lab.switch.port(number).ring.map(|ring| ring.length));
    // The first is as long as what is read ahead, if the kernel drops what is not read.
    assert!(lengths == [Some(4096), Some(7), None] || lengths == [Some(1000), Some(7), None]);
}

#[test]
fn what_was_lost_before_the_switch_came_is_not_its_loss() {
    if !can_run() {
        return;
    }
    let mut host = Host::new(1);
    let device = prepare(&mut host);
    host.netlink.set_txqueuelen("eth0", 5).unwrap();
    host.netlink.set_up("eth0").unwrap();
    host.add_address();
    host.knows("10.0.0.2".parse().unwrap(), tap::MacAddr([2, 0, 0, 0, 0, 2]));
    flood(&host, 30);
    assert_eq!(host.link().stats.tx_dropped, 25);
    drop(device);

    let switch = Running::start(config(&[format!("1=tap:eth0,netns={}", host.name())]));
    let port = switch.port(1);
    assert_eq!(ring(&port).ring_full, 0);
    assert!(port.drops.is_empty(), "{port:?}");
    assert_eq!(ring(&port).length, 5, "a device that was there keeps its length");
}

/// Before Linux 7.3, any user may open a device without an owner.
#[test]
fn who_joins_a_device_of_the_switch_is_told_of() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(1);
    let owner = lab.host_mut(1).link().tun.unwrap().owner;
    let is_closed = tap::Capabilities::probe().unwrap().has_backpressure();
    assert_eq!(owner, (!is_closed).then(|| rustix::process::geteuid().as_raw()));
    let told = || {
        let ring = ring(&lab.switch.port(1));
        (ring.foreign_queues, ring.joins)
    };
    assert_eq!(told(), (0, 0));
    let join = || {
        let config = tap::Config::new("eth0".parse().unwrap());
        lab.host(1).namespace.enter(|| tap::Device::join(&config).unwrap()).unwrap()
    };
    let first = join();
    until("the first one is noticed", || told() == (1, 1));
    let second = join();
    until("the second one is noticed", || told() == (2, 2));
    drop((first, second));
    until("both have gone", || told() == (0, 2));
}

/// Trains are whole if they come from a network card or were joined by GRO.
#[test]
fn trains_with_one_identifier_pass_a_device_of_the_switch() {
    if !can_run() {
        return;
    }
    let mut whole = Host::new(1);
    let mut plain = Host::new(2);
    let specs = [spec(&whole, "offload=on"), spec(&plain, "offload=off")];
    let _switch = Running::start(config(&specs));
    let is_on = |host: &mut Host| {
        let features = host.netlink.features("eth0").unwrap();
        features.iter().any(|it| it.name == "tx-tcp-mangleid-segmentation" && it.active)
    };
    assert!(is_on(&mut whole) && !is_on(&mut plain));
}

#[test]
fn a_device_that_was_there_is_left_as_it_was_found() {
    if !can_run() {
        return;
    }
    let mut host = Host::new(1);
    let offloads = tap::Offloads::CSUM;
    let config_of = |header| {
        let config = tap::Config::new("eth0".parse().unwrap()).multi_queue(true).persistent(true);
        config.net_header(header).offloads(offloads)
    };
    let made = config_of(tap::HeaderLen::Legacy);
    host.namespace.enter(|| drop(tap::Device::create(&made).unwrap())).unwrap();
    host.netlink.set_mtu("eth0", 1400).unwrap();
    let before = host.link();
    let features = |host: &Host| {
        let features = host.netlink.features("eth0").unwrap().into_iter();
        features.filter(|it| it.active).map(|it| it.name).collect::<Vec<_>>()
    };
    let features_before = features(&host);

    let ports = [spec(&host, "queues=2,mtu=9000,txqueuelen=77")];
    // A process that another test is starting may hold the queue for a moment.
    let mut switch = eventually("it starts", || Running::try_start(config(&ports)).ok());
    let during = host.link();
    assert_eq!((during.mtu, during.txqueuelen, during.up), (9000, 77, true));
    assert_ne!(features(&host), features_before);
    assert_eq!(during.tun.unwrap().owner, None, "it is not the switch's to close");
    switch.stop();

    let after = host.link();
    assert_eq!((after.mtu, after.txqueuelen), (before.mtu, before.txqueuelen));
    assert!(after.up, "with its routes");
    assert_eq!(features(&host), features_before);
    let join = || tap::Device::join(&tap::Config::new("eth0".parse().unwrap())).unwrap();
    let joined = host.namespace.enter(join).unwrap();
    assert_eq!(joined.prefix().net_header, tap::HeaderLen::Legacy);
}

#[test]
fn what_others_set_of_a_device_that_was_there_stays() {
    if !can_run() {
        return;
    }
    let mut host = Host::new(1);
    drop(prepare(&mut host));
    let mut switch = Running::start(config(&[spec(&host, "mtu=9000,txqueuelen=77")]));
    host.netlink.set_mtu("eth0", 8000).unwrap();
    host.netlink.set_txqueuelen("eth0", 50).unwrap();
    switch.stop();
    let after = host.link();
    assert_eq!((after.mtu, after.txqueuelen), (8000, 50));
}

#[test]
fn back_pressure_that_the_kernel_has_not_is_an_error_that_says_since_when() {
    if !can_run() {
        return;
    }
    let host = Host::new(1);
    let start = || Running::try_start(config(&[spec(&host, "backpressure=on")]));
    if tap::Capabilities::probe().unwrap().has_backpressure() {
        assert_eq!(ring(&start().ok().unwrap().port(1)).backpressure, RingBackpressure::InForce);
        return;
    }
    let error = start().err().unwrap().to_string();
    assert!(error.contains("IFF_BACKPRESSURE") && error.contains("Linux 7.3"), "{error}");
    let auto = Running::start(config(&[spec(&host, "backpressure=auto")]));
    assert_eq!(ring(&auto.port(1)).backpressure, RingBackpressure::Unavailable);
}

#[test]
fn a_device_gets_back_pressure_unless_told_otherwise() {
    LINUX_7_3.test(|| {
        let _alone = alone();
        let lab = Lab::with(2, |config| config.ports[1].ring.backpressure = Backpressure::Off);
        let [first, second] = [1, 2].map(|number| ring(&lab.switch.port(number)));
        assert_eq!(first.backpressure, RingBackpressure::InForce);
        assert_eq!(second.backpressure, RingBackpressure::Off);
        assert_eq!(first.length, 16, "what waits, waits in the qdisc");
        assert!(second.length >= 1000, "nothing else holds what waits: {}", second.length);
        assert_eq!(first.qdisc, "mq fq_codel");
    });
}

#[test]
fn a_length_that_loses_despite_back_pressure_is_not_used() {
    LINUX_7_3.test(|| {
        let _alone = alone();
        let lab = Lab::with(2, |config| {
            config.ports.iter_mut().for_each(|port| port.ring.length = NonZeroU32::new(2));
            config.ports[1].ring.backpressure = Backpressure::Off;
        });
        assert_eq!([1, 2].map(|number| ring(&lab.switch.port(number)).length), [4, 2]);
    });
}

#[test]
fn a_device_of_ours_gets_a_qdisc_and_that_of_others_keeps_what_it_has() {
    LINUX_7_3.test(|| {
        let _alone = alone();
        fs::write(DEFAULT_QDISC, "noqueue").unwrap();
        let mut theirs = Host::new(2);
        drop(prepare(&mut theirs));
        theirs.netlink.set_qdisc("eth0", &QdiscSpec::new("noqueue")).unwrap();
        let ours = Host::new(1);
        let ports = [&ours, &theirs].map(|host| spec(host, "backpressure=on"));
        let switch = Running::start(config(&ports));
        fs::write(DEFAULT_QDISC, "fq_codel").unwrap();
        let [ours, theirs] = [1, 2].map(|number| ring(&switch.port(number)));
        assert_eq!((ours.backpressure, &*ours.qdisc), (RingBackpressure::InForce, "fq_codel"));
        assert_eq!(
            (theirs.backpressure, &*theirs.qdisc),
            (RingBackpressure::NoQueueing, "noqueue")
        );
    });
}

/// With a ring of one frame, and more frames sent than are read, no frame is lost in the ring, and
/// all frames are accounted for.
#[test]
fn with_back_pressure_no_frame_is_lost_in_the_ring_of_a_single_one() {
    LINUX_7_3.test(|| {
        let _alone = alone();
        let lab = Lab::with(2, |config| {
            config.ports.iter_mut().for_each(|port| port.ring.length = NonZeroU32::new(1));
        });
        lab.switch.controller().apply(join(1, 2));
        flood(lab.host(1), 5000);
        until("every datagram was read or shed", || {
            let port = lab.switch.port(1);
            port.rx.packets + ring(&port).shed == 5000
        });
        let port = lab.switch.port(1);
        assert_eq!((ring(&port).ring_full, ring(&port).waiting), (0, 0), "{port:?}");
        assert!(!port.drops.contains_key("ring_full"), "{port:?}");
    });
}

#[test]
fn only_taps_take_these_options() {
    let spec: tapswitch_switch::PortSpec = "1=tap:a,txqueuelen=10".parse().unwrap();
    assert!(matches!(spec.kind, PortKind::Tap { .. }));
    for other in ["1=netdev:a", "1=vhost:a"] {
        let error = format!("{other},txqueuelen=10").parse::<tapswitch_switch::PortSpec>();
        assert!(error.unwrap_err().to_string().contains("no option 'txqueuelen'"));
    }
}

fn spec(host: &Host, options: &str) -> String {
    format!("{}=tap:eth0,netns={},{options}", host.number, host.name())
}

fn ring(port: &PortReport) -> RingReport {
    port.ring.clone().unwrap()
}

/// A persistent tap device called `eth0`, as an administrator creates it.
fn prepare(host: &mut Host) -> tap::Device {
    let config = tap::Config::new("eth0".parse().unwrap()).multi_queue(true).persistent(true);
    host.namespace.enter(|| tap::Device::create(&config).unwrap()).unwrap()
}

/// Sends datagrams to the second host as fast as the socket takes them.
fn flood(host: &Host, count: usize) {
    let socket = udp(host, host.ip(), 0);
    (0..count).for_each(|_| assert_eq!(socket.send_to(&[0; 100], "10.0.0.2:9").unwrap(), 100));
}

/// Runs one test at a time in the guest, as the default qdisc is global.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(&["tun", "veth"]);
const DEFAULT_QDISC: &str = "/proc/sys/net/core/default_qdisc";
