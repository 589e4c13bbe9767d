//! Attaching and detaching queues, and queues of other programs.

use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use tapswitch_tap::{
    Config, CreateError, Device, HeaderLen, Kind, NetHeader, SendError, SettingError,
};

use crate::common::raw::{self, MULTI_QUEUE, NO_PI, TAP, TUN, VNET_HDR};
use crate::common::{Host, can_tap, config, eventually, is_udp_to, receive, receive_any, skip};

fn with_queues(count: u16) -> Config {
    config("tap0").queues(NonZeroU16::new(count).unwrap())
}

/// Quirk 17: detaching moves the last queue to the index of the detached one.
#[test]
fn the_order_follows_every_attach_and_detach() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let mut device = host.create_up(&with_queues(4));
    assert_eq!(device.queue_order(), Some(&[0, 1, 2, 3][..]));
    device.detach_queue(1).unwrap();
    assert_eq!(device.queue_order(), Some(&[0, 3, 2][..]));
    assert!(!device.is_attached(1).unwrap() && device.is_attached(3).unwrap());
    device.detach_queue(0).unwrap();
    assert_eq!(device.queue_order(), Some(&[2, 3][..]));
    device.attach_queue(1).unwrap();
    assert_eq!(device.queue_order(), Some(&[2, 3, 1][..]));
    let Some(program) = raw::bpf_return(0) else {
        skip("needs bpf(2)");
        return;
    };
    // The kernel agrees: a program that returns n selects the nth, modulo their number.
    for answer in 0..5 {
        let picks_it = raw::bpf_return(answer).unwrap();
        device.set_steering(Some(picks_it.as_fd())).unwrap();
        let order = device.queue_order().unwrap();
        let picked = order[usize::try_from(answer).unwrap() % order.len()];
        host.udp(7).send_to(b"x", "10.0.0.2:9").unwrap();
        receive(&device.queues()[picked], |_, frame| is_udp_to(frame, 9));
    }
    drop(program);
}

/// Quirk 17: queued frames are lost, and sending still works.
#[test]
fn a_detached_queue_loses_its_frames_and_may_still_send() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let mut device = host.create_up(&with_queues(1).multi_queue(true));
    host.udp(7).send_to(b"lost", "10.0.0.2:9").unwrap();
    device.detach_queue(0).unwrap();
    assert_eq!(device.queues()[0].recv(&mut [0; 2000]), Ok(None));
    let packet = [&NetHeader::PLAIN.encode(), &[0; 60][..]].concat();
    assert_eq!(device.queues()[0].send(&packet), Ok(()));
    assert_eq!(host.netlink.link("tap0").unwrap().stats.rx_packets, 1);
    device.attach_queue(0).unwrap();
    host.udp(8).send_to(b"again", "10.0.0.2:10").unwrap();
    receive(&device.queues()[0], |_, frame| {
        assert!(!is_udp_to(frame, 9), "it was lost");
        is_udp_to(frame, 10)
    });
}

/// Quirk 17: with NAPI it cannot send.
#[test]
fn a_detached_queue_with_napi_says_that_it_is_detached() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let mut device = host.create_up(&with_queues(2).napi(true));
    device.detach_queue(1).unwrap();
    let packet = [&NetHeader::PLAIN.encode(), &[0; 60][..]].concat();
    assert_eq!(device.queues()[1].send(&packet), Err(SendError::Detached));
    assert_eq!(device.queues()[0].send(&packet), Ok(()));
}

#[test]
fn attaching_in_vain_is_explained() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let mut device = host.create(&with_queues(2));
    let error = device.attach_queue(0).unwrap_err();
    assert!(error.to_string().contains("already attached"), "{error}");
    device.detach_queue(0).unwrap();
    let error = device.detach_queue(0).unwrap_err();
    assert!(error.to_string().contains("already detached"), "{error}");
    let error = device.detach_queue(2).unwrap_err();
    assert!(matches!(error, SettingError::NoSuchQueue { queue: 2, count: 2, .. }), "{error}");
    let mut single = host.create(&config("tap1"));
    let error = single.detach_queue(0).unwrap_err();
    assert!(error.to_string().contains("multi_queue(true)"), "{error}");
}

/// Quirk 13: with a classic filter on the device, Linux reports success and attaches nothing.
#[test]
fn a_queue_that_a_classic_filter_keeps_out_is_not_called_attached() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let mut device = host.create(&with_queues(2));
    device.detach_queue(1).unwrap();
    raw::attach_classic_filter(&device.queues()[0]).unwrap();
    let error = device.attach_queue(1).unwrap_err();
    assert!(error.to_string().contains("classic filter"), "{error}");
    assert_eq!(device.queue_order(), Some(&[0][..]));
}

/// Quirk 15: another program may take a share of the frames, which is detected.
#[test]
fn a_foreign_queue_is_seen() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let mut device = host.create(&with_queues(2));
    assert_eq!(device.foreign_queues().unwrap(), 0);
    let foreign = host.inside(|| raw::open("tap0", TAP | NO_PI | MULTI_QUEUE));
    assert_eq!(device.foreign_queues().unwrap(), 1);
    device.detach_queue(0).unwrap();
    assert_eq!(device.foreign_queues().unwrap(), 1, "detached queues count too");
    drop(foreign);
    eventually("it is gone", || (device.foreign_queues().unwrap() == 0).then_some(()));
    let single = host.create(&config("tap1"));
    assert_eq!(single.foreign_queues().unwrap(), 0);
}

/// Quirk 16: Linux ignores the flags of additional files, so frames would be misread.
#[test]
fn a_device_in_use_is_not_opened_with_another_prefix() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let first = host.create(&with_queues(1).multi_queue(true).net_header(HeaderLen::Tunnel));
    let other = with_queues(1).multi_queue(true).exclusive(false);
    let error = host.try_create(&other).unwrap_err();
    assert!(matches!(error, CreateError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("network header of 24 bytes"), "{error}");
    let same = host.create(&other.clone().net_header(HeaderLen::Tunnel));
    assert_eq!((same.prefix(), same.queue_order()), (first.prefix(), None));
    let joined = host.inside(|| Device::join(&other)).unwrap();
    assert_eq!(joined.prefix(), first.prefix());
    assert_eq!(first.foreign_queues().unwrap(), 2);
}

/// A queue that attaches immediately gets a share of the frames, so the check is made without one.
#[test]
fn what_differs_visibly_is_refused_without_a_queue() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let _first = host.create(&with_queues(1).multi_queue(true));
    let other = with_queues(1).multi_queue(true).exclusive(false);
    for other in [other.clone().packet_info(true), other.net_header(HeaderLen::None)] {
        let error = host.try_create(&other).unwrap_err();
        assert!(matches!(error, CreateError::InUse { .. }), "{error}");
        let without_length = "with no protocol information and a network header in front";
        assert!(error.to_string().contains(without_length), "{error}");
    }
}

#[test]
fn queues_that_were_handed_over_are_understood() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let fds = host.inside(|| {
        let fds = [(); 2].map(|()| raw::open("tap0", TAP | VNET_HDR | MULTI_QUEUE));
        raw::int(&fds[0], raw::TUNSETVNETHDRSZ, &mut 12).unwrap();
        fds
    });
    let device = Device::from_fds(fds.into()).unwrap();
    assert_eq!((device.name().as_str(), device.kind()), ("tap0", Kind::Tap));
    assert!(device.prefix().packet_info && device.is_multi_queue());
    assert_eq!(device.prefix().net_header, HeaderLen::V1);
    assert_eq!(device.index(), host.netlink.link("tap0").unwrap().index);
    assert_eq!((device.foreign_queues().unwrap(), device.queue_order()), (0, None));
    // Quirk 22: the fast path needs non-blocking files; these were blocking.
    for queue in device.queues() {
        let flags = rustix::fs::fcntl_getfl(queue).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
    }
    let told = Device::from_fds_with(fds_of(device), true).unwrap();
    assert_eq!((told.prefix().len(), told.index()), (16, 0));
}

/// Queues of one device may have been opened in several namespaces.
#[test]
fn queues_of_a_device_that_moved_are_of_one_device() {
    if !can_tap() {
        return;
    }
    let (mut here, there) = (Host::new(), Host::new());
    let open = |host: &Host| host.inside(|| raw::open("tun0", TUN | NO_PI | MULTI_QUEUE));
    let first = open(&here);
    here.netlink.move_to_namespace("tun0", &there.namespace).unwrap();
    let device = Device::from_fds(vec![first, open(&there)]).unwrap();
    assert_eq!((device.queues().len(), device.foreign_queues().unwrap()), (2, 0));
}

#[test]
fn what_is_no_queue_is_not_taken() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let (socket, _other) = UnixStream::pair().unwrap();
    let unattached = OwnedFd::from(std::fs::File::open("/dev/net/tun").unwrap());
    for (fds, word) in [
        (vec![], "no file descriptor was given"),
        (vec![socket.into()], "not an open /dev/net/tun"),
        (vec![unattached], "not a queue of a tun/tap device"),
    ] {
        let error = Device::from_fds(fds).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    let two = ["tap0", "tap1"].map(|name| host.inside(|| raw::open(name, TAP | NO_PI)));
    let error = Device::from_fds(two.into()).unwrap_err();
    assert!(matches!(error, CreateError::SeveralDevices { .. }), "{error}");
    // Two tun devices have no MAC addresses to distinguish them.
    let elsewhere = Host::new();
    let two = [&host, &elsewhere].map(|host| host.inside(|| raw::open("tun0", TUN | NO_PI)));
    let error = Device::from_fds(two.into()).unwrap_err();
    assert!(matches!(error, CreateError::SeveralDevices { .. }), "{error}");
    assert!(error.to_string().contains("tun0 of another network namespace"), "{error}");
    let odd = host.inside(|| raw::open("tap2", TAP | NO_PI | VNET_HDR));
    raw::int(&odd, raw::TUNSETVNETHDRSZ, &mut 50).unwrap();
    let error = Device::from_fd(odd).unwrap_err();
    assert!(error.to_string().contains("10, 12, 20 or 24 bytes"), "{error}");
}

/// Quirk 26: a full ring drops silently, and the interface counts it.
#[test]
fn a_full_ring_drops_and_counts() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    host.netlink.set_txqueuelen("tap0", 2).unwrap();
    let socket = host.udp(7);
    let before = host.netlink.link("tap0").unwrap().stats.tx_dropped;
    for _ in 0..10 {
        let _ = socket.send_to(b"x", "10.0.0.2:9");
    }
    let dropped = host.netlink.link("tap0").unwrap().stats.tx_dropped - before;
    assert!(dropped >= 8, "{dropped}");
    let (_, frame) = receive_any(&device.queues()[0], |_| true);
    assert!(!frame.is_empty());
}

fn fds_of(device: Device) -> Vec<OwnedFd> {
    device.into_queues().into_iter().map(OwnedFd::from).collect()
}

#[test]
fn a_queue_gives_its_file_away_and_nothing_else_changes() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let device = host.create(&config("tap0"));
    let number = device.queues()[0].as_raw_fd();
    let fds = fds_of(device);
    assert_eq!(fds[0].as_raw_fd(), number);
    let again = host.inside(|| Device::from_fds(fds)).unwrap();
    assert_eq!(again.prefix().net_header, HeaderLen::V1);
    assert!(!again.prefix().packet_info);
}
