//! Devices of every configuration carry frames: tun and tap, with and without protocol information,
//! with headers of every length.

use std::num::NonZeroU32;

use tapswitch_tap::{
    Config, CreateError, Device, EtherType, Flags, HeaderLen, Kind, LinkType, LongNetHeader,
    NetHeader, Offloads, PacketInfo, Prefix, Wish,
};

use crate::common::{
    Host, can_tap, config, is_udp_packet_to, is_udp_to, receive_any, skip, wait_readable,
    without_privilege,
};

#[test]
fn every_prefix_is_where_it_is_said_to_be() {
    if !can_tap() {
        return;
    }
    for kind in [Kind::Tap, Kind::Tun] {
        for packet_info in [false, true] {
            for net_header in HeaderLen::ALL {
                let wanted = config("any0").kind(kind).packet_info(packet_info);
                frames_pass(&wanted.net_header(net_header));
            }
        }
    }
}

/// One datagram in each direction through a device with this configuration.
fn frames_pass(config: &Config) {
    let mut host = Host::new();
    let device = host.create_up(config);
    let (queue, prefix) = (&device.queues()[0], device.prefix());
    assert_eq!((queue.kind(), queue.prefix()), (device.kind(), prefix));
    let socket = host.udp(7);
    socket.send_to(b"out", "10.0.0.2:9").unwrap();
    let link_len = if device.kind() == Kind::Tap { 14 } else { 0 };
    let (before, frame) = receive_any(queue, |frame| match link_len {
        0 => is_udp_packet_to(frame, 9),
        _ => is_udp_to(frame, 9),
    });
    assert!(frame.ends_with(b"out"), "{config:?}");
    if prefix.packet_info {
        let info = PacketInfo::decode(before.first_chunk().unwrap());
        assert_eq!(info, PacketInfo { cut: false, protocol: EtherType::IPV4 });
    }
    let header = LongNetHeader::decode(&before[prefix.net_header_offset()..]);
    assert_eq!(header.is_some(), prefix.net_header != HeaderLen::None);
    let undone = header.is_some_and(|header| header.base.needs_checksum());
    assert_eq!(undone, device.capabilities().receive.contains(Offloads::CSUM), "{config:?}");

    // The same datagram, sent back: addresses and ports are exchanged, so its checksums stay
    // correct.
    let mut frame = frame;
    let ip = link_len;
    let swap = |frame: &mut Vec<u8>, a: usize, b: usize, len: usize| {
        (0..len).for_each(|at| frame.swap(a + at, b + at));
    };
    swap(&mut frame, ip + 12, ip + 16, 4);
    swap(&mut frame, ip + 20, ip + 22, 2);
    if link_len > 0 {
        swap(&mut frame, 0, 6, 6);
    }
    queue.send(&[before, frame].concat()).unwrap();
    // It goes to port 7 and comes from port 9.
    let mut buf = [0; 16];
    let (len, from) = socket.recv_from(&mut buf).unwrap();
    assert_eq!((&buf[..len], from.to_string().as_str()), (&b"out"[..], "10.0.0.2:9"));
}

/// Quirk 24: without protocol information a truncated frame is not recognisable.
#[test]
fn protocol_information_tells_that_a_buffer_was_too_short() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0").packet_info(true));
    let queue = &device.queues()[0];
    host.udp(7).send_to(&[0; 500], "10.0.0.2:9").unwrap();
    let mut buf = vec![0; queue.prefix().len() + 60];
    loop {
        wait_readable(&[queue]);
        let len = queue.recv(&mut buf).unwrap().unwrap();
        if is_udp_to(&buf[queue.prefix().len()..len], 9) {
            break;
        }
    }
    assert!(PacketInfo::decode(buf.first_chunk().unwrap()).cut);
}

#[test]
fn a_tun_device_takes_other_protocols_by_their_information_alone() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tun = host.create_up(&config("tun0").kind(Kind::Tun).packet_info(true));
    let info = PacketInfo { cut: false, protocol: EtherType(0x88b5) };
    let packet = [&info.encode()[..], &NetHeader::PLAIN.encode(), &[0; 40]].concat();
    tun.queues()[0].send(&packet).unwrap();
    let bare = host.create_up(&config("tun1").kind(Kind::Tun));
    let refused = bare.queues()[0].send(&packet[PacketInfo::LEN..]);
    assert_eq!(refused, Err(tapswitch_tap::SendError::NotIp), "neither IPv4 nor IPv6");
}

#[test]
fn the_kernel_completes_names() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let numbered = |pattern: &str| Config::numbered(pattern.parse().unwrap());
    let devices = [(); 3].map(|()| host.create(&numbered("vm%d")));
    let names = devices.each_ref().map(|device| device.name().as_str());
    assert_eq!(names, ["vm0", "vm1", "vm2"]);
    let queues = std::num::NonZeroU16::new(3).unwrap();
    let many = host.create(&numbered("many%d").queues(queues));
    assert_eq!((many.name().as_str(), many.queues().len()), ("many0", 3));
    assert_eq!(many.foreign_queues().unwrap(), 0, "all queues are of one device");
}

/// Quirk 28: the index must be set before the device is created.
#[test]
fn an_index_can_be_chosen() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let index = NonZeroU32::new(4242).unwrap();
    let device = host.create(&config("tap0").index(index));
    assert_eq!((device.index(), host.netlink.link("tap0").unwrap().index), (4242, 4242));
    let error = host.try_create(&config("tap1").index(index)).unwrap_err();
    assert!(matches!(error, CreateError::IndexTaken { index: 4242, .. }), "{error}");
    let error = host.try_create(&config("tap0").index(index)).unwrap_err();
    assert!(matches!(error, CreateError::NameTaken { .. }), "{error}");
}

/// Quirk 31: Linux ignores unknown flags, so the features are queried.
#[test]
fn back_pressure_is_had_or_refused_but_never_silently_missing() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let wished = host.create(&config("tap0").backpressure(Wish::IfAvailable));
    let has = wished.capabilities().has_backpressure();
    assert_eq!(wished.flags().unwrap().contains(Flags::BACKPRESSURE), has);
    let off = host.create(&config("tap1"));
    assert!(!off.flags().unwrap().contains(Flags::BACKPRESSURE));
    match host.try_create(&config("tap2").backpressure(Wish::Required)) {
        Ok(device) => {
            assert!(has && device.flags().unwrap().contains(Flags::BACKPRESSURE));
        }
        Err(error) => {
            assert!(!has && error.to_string().contains("needs Linux 7.3"), "{error}");
        }
    }
}

#[test]
fn napi_and_a_missing_carrier_are_set() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create(&config("tap0").napi(true).carrier(false));
    host.netlink.set_up("tap0").unwrap();
    let flags = device.flags().unwrap();
    assert!(flags.contains(Flags::NAPI), "{flags:?}");
    assert!(!host.netlink.link("tap0").unwrap().lower_up);
    device.set_carrier(true).unwrap();
    assert!(host.netlink.link("tap0").unwrap().lower_up);
}

/// Quirk 21: fragments need full privileges, and a tap device with NAPI.
#[test]
fn napi_fragments_are_had_with_privilege_and_refused_without() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let fragments = config("tap0").napi(true).napi_fragments(true);
    let device = host.create_up(&fragments);
    assert!(device.flags().unwrap().contains(Flags::NAPI | Flags::NAPI_FRAGS));
    drop(device);
    for contradiction in [
        config("tap0").napi_fragments(true),
        config("tun0").kind(Kind::Tun).napi(true).napi_fragments(true),
    ] {
        let error = host.try_create(&contradiction).unwrap_err();
        assert!(matches!(error, CreateError::Contradiction { .. }), "{error}");
    }
    let error = host.inside(|| {
        without_privilege();
        Device::create(&fragments).unwrap_err()
    });
    assert!(matches!(error, CreateError::FragmentsNotPermitted { .. }), "{error}");
    assert!(error.to_string().contains("napi_fragments(true) needs CAP_NET_ADMIN"), "{error}");
}

#[test]
fn what_a_device_is_made_as_can_be_read_back() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create(
        &config("tap0").owner(1234).group(4321).persistent(true).link_type(LinkType::IEEE80211),
    );
    let info = host.netlink.link("tap0").unwrap().tun.unwrap();
    assert_eq!((info.owner, info.group, info.persistent), (Some(1234), Some(4321), true));
    assert!(!info.packet_info && info.net_header && !info.multi_queue);
    assert_eq!(device.link_type().unwrap(), LinkType::IEEE80211);
    assert!(device.flags().unwrap().contains(Flags::PERSIST));
    drop(device);
    // It stays.
    host.wait_until_unheld("tap0");
    drop(host.create(&config("tap0").exclusive(false).persistent(false)));
    host.wait_until_gone("tap0");
}

/// Quirk 12: no frame is longer than 65535 bytes after the Ethernet header.
#[test]
fn the_longest_packet_fits_the_buffer() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0").net_header(HeaderLen::Tunnel).packet_info(true));
    host.netlink.set_mtu("tap0", 65_521).unwrap();
    assert!(host.netlink.set_mtu("tap0", 65_522).is_err());
    let longest = vec![7; 65_521 - 28];
    host.udp(7).send_to(&longest, "10.0.0.2:9").unwrap();
    let (before, frame) = receive_any(&device.queues()[0], |frame| is_udp_to(frame, 9));
    assert_eq!(frame[42..], longest);
    assert!(before.len() + frame.len() < tapswitch_tap::RECV_BUF_LEN);
}

/// Quirk 12: longer trains ("BIG TCP") cannot be configured.
#[test]
fn trains_are_no_longer_than_a_packet() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let _device = host.create_up(&config("tap0"));
    assert_eq!(host.netlink.link("tap0").unwrap().gso_max_size, Some(65_536));
    let set = |size| {
        let arguments = ["link", "set", "tap0", "gso_max_size", size];
        host.namespace.command("ip").args(arguments).output().is_ok_and(|out| out.status.success())
    };
    if !set("65536") {
        skip("no ip program that sets gso_max_size");
        return;
    }
    assert!(!set("65537"), "the driver has tso_max_size 65536");
}

#[test]
fn without_a_header_nothing_is_left_undone() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let device = host.create(&config("tap0").net_header(HeaderLen::None));
    let capabilities = device.capabilities();
    assert_eq!((capabilities.receive, capabilities.send), Default::default());
    let prefix = Prefix { packet_info: false, net_header: HeaderLen::None };
    assert_eq!(device.prefix(), prefix);
}
