//! Frames that the kernel drops before they reach a queue.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use tapswitch_tap::{
    ClassicInstruction, Device, Flags, Kind, MacAddr, NET_HEADER_LEN, RECV_BUF_LEN, SettingError,
    TxFilter,
};

use crate::common::raw;
use crate::common::{Host, PEER, can_tap, config, eventually, is_udp_to, skip};

/// Quirk 28: the broadcast address passes only if it is listed.
#[test]
fn only_frames_for_named_addresses_pass() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = quiet(&mut host);
    let passes = |to: &str| passes(&host, &device, to);
    assert_eq!((passes("10.0.0.2"), passes("10.0.0.255")), (true, true));
    device.set_tx_filter(Some(&TxFilter::new([PEER]))).unwrap();
    assert_eq!((passes("10.0.0.2"), passes("10.0.0.255")), (true, false));
    device.set_tx_filter(Some(&TxFilter::new([OTHER]).all_multicast(true))).unwrap();
    assert_eq!((passes("10.0.0.2"), passes("10.0.0.255")), (false, true));
    device.set_tx_filter(None).unwrap();
    assert_eq!((passes("10.0.0.2"), passes("10.0.0.255")), (true, true));
}

/// Quirk 28: a ninth unicast address would disable the filter, and Linux reports success.
#[test]
fn a_filter_that_linux_cannot_have_is_refused() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = quiet(&mut host);
    let unicast = |count: u8| (0..count).map(|last| MacAddr([6, 0, 0, 0, 0, last]));
    device.set_tx_filter(Some(&TxFilter::new(unicast(8)))).unwrap();
    assert!(!passes(&host, &device, "10.0.0.2"));
    let error = device.set_tx_filter(Some(&TxFilter::new(unicast(9)))).unwrap_err();
    let expected = MacAddr([6, 0, 0, 0, 0, 8]);
    assert!(
        matches!(error, SettingError::TooManyAddresses { address, .. } if address == expected),
        "{error}"
    );
    assert!(!passes(&host, &device, "10.0.0.2"), "the former filter stands");
    let error = device.set_tx_filter(Some(&TxFilter::default())).unwrap_err();
    assert!(error.to_string().contains("an empty list would mean no filter"), "{error}");
    let group = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddr([1, 0, a, b, c, d])
    };
    device.set_tx_filter(Some(&TxFilter::new((0..65_535).map(group)))).unwrap();
    let error = device.set_tx_filter(Some(&TxFilter::new((0..65_536).map(group)))).unwrap_err();
    assert!(error.to_string().contains("at most 65535 addresses"), "{error}");
    assert!(error.to_string().contains("all_multicast(true)"), "{error}");

    let groups = (0..100).map(|last| MacAddr([1, 0, 0x5e, 0, 0, last]));
    device.set_tx_filter(Some(&TxFilter::new(groups.chain([PEER])))).unwrap();
    assert!(passes(&host, &device, "10.0.0.2"), "unicast addresses are put first");
}

#[test]
fn a_classic_filter_drops_what_it_says() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let mut device = quiet(&mut host);
    assert_eq!(device.classic_filter_len().unwrap(), 0);
    // Everything except UDP to port 9.
    let program = [
        ClassicInstruction::load_u16(36),
        ClassicInstruction::if_equal(9, 0, 1),
        ClassicInstruction::keep(0),
        ClassicInstruction::keep(u32::MAX),
    ];
    device.attach_classic_filter(&program).unwrap();
    assert_eq!(device.classic_filter_len().unwrap(), 4);
    assert!(!passes(&host, &device, "10.0.0.2"));
    device.detach_classic_filter().unwrap();
    assert!(passes(&host, &device, "10.0.0.2"));
    let invalid = [ClassicInstruction::load_u16(36)];
    let error = device.attach_classic_filter(&invalid).unwrap_err();
    assert!(error.to_string().contains("BPF_RET"), "{error}");
}

/// Quirk 13: `IFF_NOFILTER` is `IFF_NO_PI`, so queues that attach later would be lost.
#[test]
fn classic_filters_are_refused_where_they_break_things() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let keep = [ClassicInstruction::keep(u32::MAX)];
    let mut shared = host.create(&config("tap0").multi_queue(true));
    let mut persistent = host.create(&config("tap1").persistent(true));
    for (device, why) in [(&mut shared, "multi-queue"), (&mut persistent, "persistent")] {
        let error = device.attach_classic_filter(&keep).unwrap_err();
        assert!(matches!(error, SettingError::FilterUnsafe { what, .. } if what == why), "{error}");
        assert!(error.to_string().contains("set_filter"), "{error}");
    }
    let mut single = host.create(&config("tap2"));
    single.attach_classic_filter(&keep).unwrap();
    let error = single.set_persistent(true).unwrap_err();
    assert!(matches!(error, SettingError::FilterUnsafe { .. }), "{error}");
    single.detach_classic_filter().unwrap();
    single.set_persistent(true).unwrap();
}

/// Quirk 13: `IFF_NO_PI` in the result of `TUNGETIFF` means that there is no classic filter.
#[test]
fn the_flag_of_protocol_information_is_not_believed() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let mut device = host.create(&config("tap0").packet_info(true));
    assert!(device.flags().unwrap().contains(Flags::NO_PI), "though there is information");
    assert!(device.prefix().packet_info);
    assert!(host.netlink.link("tap0").unwrap().tun.unwrap().packet_info);
    device.attach_classic_filter(&[ClassicInstruction::keep(u32::MAX)]).unwrap();
    assert!(!device.flags().unwrap().contains(Flags::NO_PI));
}

/// Quirk 18: programs stay attached to the device until they are replaced or removed.
#[test]
fn an_ebpf_filter_drops_until_it_is_taken_off() {
    if !can_tap() {
        return;
    }
    let Some(drop_all) = raw::bpf_return(0) else {
        skip("needs bpf(2)");
        return;
    };
    let mut host = Host::new();
    let device = quiet(&mut host);
    device.set_filter(Some(drop_all.as_fd())).unwrap();
    drop(drop_all);
    assert!(!passes(&host, &device, "10.0.0.2"));
    device.set_filter(None).unwrap();
    assert!(passes(&host, &device, "10.0.0.2"));
    for outcome in [
        device.set_filter(Some(device.queues()[0].as_fd())),
        device.set_steering(Some(device.queues()[0].as_fd())),
    ] {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("type socket filter"), "{error}");
    }
}

#[test]
fn filters_by_address_are_for_tap_devices() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let mut tun = host.create(&config("tun0").kind(Kind::Tun));
    let keep = [ClassicInstruction::keep(u32::MAX)];
    for outcome in [
        tun.set_tx_filter(None),
        tun.set_tx_filter(Some(&TxFilter::new([PEER]))),
        tun.attach_classic_filter(&keep),
        tun.detach_classic_filter(),
        tun.classic_filter_len().map(|_| ()),
        tun.set_mac(PEER),
    ] {
        assert!(matches!(outcome, Err(SettingError::NotATap { .. })), "{outcome:?}");
    }
}

/// A device on which only the test's frames are sent.
fn quiet(host: &mut Host) -> Device {
    host.silence();
    host.create_up(&config("tap0"))
}

/// True if a datagram to `to` reaches the queue, false if the interface counts it as dropped.
fn passes(host: &Host, device: &Device, to: &str) -> bool {
    let drops = || device.link().unwrap().stats.tx_dropped;
    let before = drops();
    let socket = host.inside(|| UdpSocket::bind(("10.0.0.1", 0)).unwrap());
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"x", (to, 9)).unwrap();
    let mut buf = vec![0; RECV_BUF_LEN];
    eventually("a frame or a drop", || match device.queues()[0].recv(&mut buf).unwrap() {
        Some(len) => is_udp_to(&buf[NET_HEADER_LEN..len], 9).then_some(true),
        None => (drops() > before).then_some(false),
    })
}

const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
