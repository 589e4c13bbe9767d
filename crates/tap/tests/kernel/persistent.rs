//! A persistent device is opened as configured, whatever its former user left behind; and if it
//! cannot be, the error says what it is and which setting to change.

use std::num::NonZeroU16;
use std::os::fd::AsRawFd;

use tapswitch_netlink::{Feature, Namespace, Sysfs};
use tapswitch_tap::{
    ByteOrder, CreateError, Device, Flags, HeaderLen, Kind, LinkType, Mismatch, NET_HEADER_LEN,
    Offloads, Prefix, SendError, SettingError, Wish,
};

use crate::common::raw::{self, MULTI_QUEUE, NO_PI, TAP, TUN, VNET_HDR};
use crate::common::{
    Host, can_tap, config, is_udp_to, kernel_version, receive_any, without_privilege,
};

/// Quirks 6 and 18.
#[test]
fn what_the_former_user_set_is_forgotten() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI | VNET_HDR, |fd| {
        raw::int(fd, raw::TUNSETVNETHDRSZ, &mut 100_000).unwrap();
        raw::int(fd, raw::TUNSETVNETLE, &mut 1).unwrap();
        raw::int(fd, raw::TUNSETSNDBUF, &mut 1000).unwrap();
        raw::number(fd, raw::TUNSETOFFLOAD, 0x0f).unwrap();
        raw::int(fd, raw::TUNSETCARRIER, &mut 0).unwrap();
        if let Some(drop_all) = raw::bpf_return(0) {
            raw::int(fd, raw::TUNSETFILTEREBPF, &mut drop_all.as_raw_fd()).unwrap();
        }
    });
    let device = host.create_up(&config("tap0").exclusive(false).offloads(Offloads::CSUM));
    assert_eq!(device.byte_order().unwrap(), ByteOrder::Native);
    assert_eq!(device.send_buffer_len().unwrap(), i32::MAX.unsigned_abs());
    let link = host.netlink.link("tap0").unwrap();
    assert!(link.lower_up && link.tun.unwrap().persistent, "a carrier, and still persistent");
    assert!(!host.netlink.feature("tap0", Feature::Tso).unwrap());
    assert!(host.netlink.feature("tap0", Feature::TxChecksum).unwrap());
    host.udp(7).send_to(b"hello", "10.0.0.2:9").unwrap();
    let (header, _) = receive_any(&device.queues()[0], |frame| is_udp_to(frame, 9));
    assert_eq!(header.len(), 12);
}

/// Quirk 18: a program that selects queues stays attached to the device, and is not visible.
#[test]
fn what_the_former_user_let_through_and_where_is_forgotten() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI | VNET_HDR | MULTI_QUEUE, |fd| {
        raw::set_tx_filter(fd, [2, 0, 0, 0, 0, 99]);
        if let Some(always_first) = raw::bpf_return(0) {
            raw::int(fd, raw::TUNSETSTEERINGEBPF, &mut always_first.as_raw_fd()).unwrap();
        }
    });
    let two = config("tap0").queues(NonZeroU16::new(2).unwrap()).exclusive(false);
    let device = host.create_up(&two);
    for port in 0..64 {
        host.udp(7000 + port).send_to(b"x", "10.0.0.2:9").unwrap();
    }
    for queue in device.queues() {
        receive_any(queue, |frame| is_udp_to(frame, 9));
    }
}

/// Quirk 6: without a header, the offloads of the former user would cause frames that are too long.
#[test]
fn offloads_end_where_there_is_no_header() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI | VNET_HDR, |fd| {
        raw::number(fd, raw::TUNSETOFFLOAD, 0x0f).unwrap();
    });
    let bare = config("tap0").exclusive(false).net_header(HeaderLen::None);
    let device = host.create_up(&bare);
    assert!(!host.netlink.feature("tap0", Feature::Tso).unwrap());
    assert!(!host.netlink.feature("tap0", Feature::TxChecksum).unwrap());
    host.udp(7).send_to(&[0; 3000], "10.0.0.2:9").unwrap();
    let (_, fragment) = receive_any(&device.queues()[0], |frame| frame[12..14] == [8, 0]);
    assert!(fragment.len() <= 1514, "{} bytes", fragment.len());
}

/// Quirk 13: Linux reports success for a file that it does not attach because of a classic filter
/// on the device. That is detected, and the filter removed.
#[test]
fn a_classic_filter_that_was_left_does_not_give_a_dead_file() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI, |fd| raw::attach_classic_filter(fd).unwrap());
    let dead = host.inside(|| raw::open("tap0", TAP));
    let state = raw::int(&dead, raw::TUNGETSNDBUF, &mut 0).unwrap_err();
    assert_eq!(state.raw_os_error(), Some(libc::EBADFD), "this is what must not happen to us");
    drop(dead);
    let device = host.create_up(&config("tap0").exclusive(false).packet_info(true));
    host.udp(7).send_to(b"hello", "10.0.0.2:9").unwrap();
    receive_any(&device.queues()[0], |frame| is_udp_to(frame, 9));
}

#[test]
fn a_device_of_an_administrator_survives_its_user() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI, |fd| raw::number(fd, raw::TUNSETOWNER, 0).unwrap());
    let opened = host.inside(|| {
        without_privilege();
        Device::create(&config("tap0").exclusive(false))
    });
    assert_eq!(opened.unwrap().prefix().len(), 12);
    let info = host.netlink.link("tap0").unwrap().tun.unwrap();
    assert_eq!((info.persistent, info.owner), (true, Some(0)));
    drop(host.create(&config("tap0").exclusive(false).persistent(false)));
    host.wait_until_gone("tap0");
}

/// Quirk 14: `EINVAL` has many causes, so the device is queried.
#[test]
fn a_mismatch_is_named_with_what_to_write_instead() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.netlink.create_bridge("br0").unwrap();
    host.leave_behind("many0", TAP | NO_PI | MULTI_QUEUE, |_| ());
    host.leave_behind("one0", TAP | NO_PI, |_| ());
    host.leave_behind("tun0", TUN | NO_PI, |_| ());
    let bridge = Mismatch::OtherDriver { kind: Some("bridge".to_owned()) };
    let (tun, two) = (Mismatch::OtherKind { is: Kind::Tun }, NonZeroU16::new(2).unwrap());
    for (config, expected, remedy) in [
        (config("br0"), bridge, "choose another name"),
        (config("many0"), Mismatch::IsMultiQueue, "queues >= 1 and multi_queue(true)"),
        (config("one0").queues(two), Mismatch::IsSingleQueue, "queues = 1 and multi_queue(false)"),
        (config("tun0"), tun, "kind(Kind::Tun)"),
    ] {
        let error = host.try_create(&config.exclusive(false)).unwrap_err();
        assert!(error.to_string().contains(remedy), "{error}");
        assert!(
            matches!(&error, CreateError::Mismatch { what, .. } if *what == expected),
            "{error}"
        );
    }
}

/// Quirk 14: the open is tried again with the opposite flag, if requested.
#[test]
fn a_device_that_is_there_can_be_followed() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    host.leave_behind("many0", TAP | NO_PI | MULTI_QUEUE, |_| ());
    host.leave_behind("one0", TAP | NO_PI, |_| ());
    let many = host.create(&config("many0").follow_existing(true));
    let one = host.create(&config("one0").multi_queue(true).follow_existing(true));
    let new = host.create(&config("new0").multi_queue(true).follow_existing(true));
    let is_multi_queue = [many, one, new].map(|device| device.is_multi_queue());
    assert_eq!(is_multi_queue, [true, false, true]);
    let two = config("one0").queues(NonZeroU16::new(2).unwrap()).follow_existing(true);
    let error = host.try_create(&two).unwrap_err();
    assert!(matches!(error, CreateError::Mismatch { .. }), "{error}");
}

#[test]
fn a_device_of_somebody_else_is_refused_with_its_owner() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI, |fd| raw::number(fd, raw::TUNSETOWNER, 4711).unwrap());
    let error = host.inside(|| {
        without_privilege();
        Device::create(&config("tap0").exclusive(false)).unwrap_err()
    });
    assert!(error.to_string().contains("only user 4711"), "{error}");
    let remedy = "`ip link del tap0; ip tuntap add tap0 mode tap user USER`";
    assert!(error.to_string().contains(remedy), "{error}");
}

/// A device with owner and group requires both.
#[test]
fn a_device_with_owner_and_group_asks_for_both() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    for (name, owner, group) in [("user0", 0, 4711), ("group0", 4711, 0), ("both0", 0, 0)] {
        host.leave_behind(name, TAP | NO_PI, |fd| {
            raw::number(fd, raw::TUNSETOWNER, owner).unwrap();
            raw::number(fd, raw::TUNSETGROUP, group).unwrap();
        });
        let opened = host.inside(|| {
            without_privilege();
            Device::create(&config(name).exclusive(false)).map(drop)
        });
        match opened {
            Ok(()) => assert_eq!((owner, group), (0, 0), "{name}"),
            Err(error) => {
                assert!(matches!(error, CreateError::NotOwner { .. }), "{error}");
                assert_ne!((owner, group), (0, 0), "{error}");
            }
        }
    }
}

/// Until Linux 7.3, any user could open a device without owner and group.
#[test]
fn a_device_of_nobody_is_for_all_or_refused_with_what_makes_an_owner() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    for (name, more, words) in [("one0", 0, ""), ("many0", MULTI_QUEUE, " multi_queue")] {
        host.leave_behind(name, TAP | NO_PI | more, |_| ());
        let wanted = config(name).exclusive(false).multi_queue(more != 0);
        let opened = host.inside(|| {
            without_privilege();
            Device::create(&wanted)
        });
        let Err(error) = opened else {
            assert!(kernel_version() < (7, 3), "Linux 7.3 does not allow it");
            continue;
        };
        assert!(matches!(error, CreateError::NoOwner { .. }), "{error}");
        let remedy = format!("ip tuntap add {name} mode tap user USER{words}`");
        assert!(error.to_string().contains(&remedy), "{error}");
    }
}

#[test]
fn joining_takes_the_device_as_it_is() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("tap0", TAP | VNET_HDR, |fd| {
        raw::int(fd, raw::TUNSETVNETHDRSZ, &mut 20).unwrap();
    });
    let device = host.inside(|| Device::join(&config("tap0"))).unwrap();
    let prefix = Prefix { packet_info: true, net_header: HeaderLen::Hash };
    assert_eq!((device.prefix(), device.queue_order()), (prefix, None));
    assert_eq!(device.index(), host.netlink.link("tap0").unwrap().index);
    drop(device);

    host.leave_behind("tun0", TUN | NO_PI | MULTI_QUEUE, |_| ());
    let device = host.inside(|| Device::join(&config("tun0"))).unwrap();
    assert_eq!((device.kind(), device.is_multi_queue()), (Kind::Tun, true));
    assert_eq!(device.prefix().len(), 0);
}

/// Quirk 16: the first opener of a persistent device sets all its flags.
#[test]
fn joining_leaves_the_flags_alone() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let known = tapswitch_tap::inspect::known_flags().unwrap();
    let unseen = (Flags::NAPI | Flags::BACKPRESSURE) & known;
    let sysfs = Sysfs::open(&host.namespace).unwrap();
    for more in [0, MULTI_QUEUE] {
        host.leave_behind("tap0", TAP | NO_PI | more | unseen.bits(), |_| ());
        let before = sysfs.tun_flags("tap0").unwrap();
        assert_eq!(before & u32::from(unseen.bits()), u32::from(unseen.bits()));
        let joined = host.inside(|| Device::join(&config("tap0"))).unwrap();
        assert_eq!(sysfs.tun_flags("tap0").unwrap(), before);
        drop(joined);
        host.wait_until_unheld("tap0");
        assert_eq!(sysfs.tun_flags("tap0").unwrap(), before);
        drop(host.create(&config("tap0").follow_existing(true).persistent(false)));
    }
}

/// The device determines the flags, not the joining program.
#[test]
fn joining_sets_no_flags_that_the_device_has_not() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let sysfs = Sysfs::open(&host.namespace).unwrap();
    host.leave_behind("tap0", TAP | NO_PI, |_| ());
    let before = sysfs.tun_flags("tap0").unwrap();
    let wanted = config("tap0").napi(true).napi_fragments(true).backpressure(Wish::IfAvailable);
    let _joined = host.inside(|| Device::join(&wanted)).unwrap();
    assert_eq!(sysfs.tun_flags("tap0").unwrap(), before);
}

/// The flag belongs to the device, but each file uses its own; one with NAPI cannot send while it
/// is detached.
#[test]
fn who_joins_a_device_with_napi_has_it_too() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    for napi in [false, true] {
        let shared = config("tap0").multi_queue(true).napi(napi);
        let _first = host.create(&shared);
        host.netlink.set_up("tap0").unwrap();
        let mut joined = host.inside(|| Device::join(&config("tap0"))).unwrap();
        joined.detach_queue(0).unwrap();
        let frame = [0; NET_HEADER_LEN + 60];
        let wanted = if napi { Err(SendError::Detached) } else { Ok(()) };
        assert_eq!(joined.queues()[0].send(&frame), wanted);
    }
}

#[test]
fn flags_that_cannot_be_read_are_not_overwritten() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    // With an owner, as Linux 7.3 permits only administrators to open a device without one.
    let flags = TAP | NO_PI | MULTI_QUEUE;
    host.leave_behind("tap0", flags, |fd| raw::number(fd, raw::TUNSETOWNER, 0).unwrap());
    let join = || {
        host.inside(|| {
            without_privilege();
            Device::join(&config("tap0"))
        })
    };
    let error = join().unwrap_err();
    assert!(matches!(error, CreateError::UnknownFlags { .. }), "{error}");
    assert!(error.to_string().contains("Device::create"), "{error}");
    let _first = host.create(&config("tap0").multi_queue(true).exclusive(false));
    let further = join();
    assert!(further.is_ok(), "a further file overwrites nothing: {further:?}");
}

#[test]
fn a_name_that_is_taken_is_explained_by_who_has_it() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    host.leave_behind("mine0", TAP | NO_PI, |fd| raw::number(fd, raw::TUNSETOWNER, 0).unwrap());
    let _held = host.create(&config("held0"));
    let us = format!("({}) has open", std::process::id());
    for (name, by, remedy) in [
        ("mine0", "no program holds", "exclusive(false)"),
        ("held0", us.as_str(), "end that program"),
        ("lo", "not a tun/tap device", "another name"),
    ] {
        let error = host.try_create(&config(name)).unwrap_err().to_string();
        assert!(error.contains(by) && error.contains(remedy), "{error}");
        assert_eq!(error.contains("ip link del"), name != "lo", "{error}");
    }
    let unprivileged = host.inside(|| {
        without_privilege();
        Device::create(&config("mine0")).unwrap_err().to_string()
    });
    assert!(unprivileged.contains("exclusive(false)"), "{unprivileged}");
    let two = config("mine0").queues(NonZeroU16::new(2).unwrap());
    let error = host.inside(|| Device::join(&two)).unwrap_err();
    let single = Mismatch::IsSingleQueue;
    assert!(matches!(&error, CreateError::Mismatch { what, .. } if *what == single), "{error}");
}

/// The flags of the first attached file set the carrier; a joining program does not change it.
#[test]
fn joining_leaves_the_carrier_alone() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let first = host.create_up(&config("tap0").multi_queue(true));
    for on in [false, true] {
        first.set_carrier(on).unwrap();
        let joined = host.inside(|| Device::join(&config("tap0"))).unwrap();
        assert_eq!(host.netlink.link("tap0").unwrap().lower_up, on);
        drop(joined);
    }
    host.leave_behind("tap1", TAP | NO_PI, |_| ());
    host.netlink.set_up("tap1").unwrap();
    let _joined = host.inside(|| Device::join(&config("tap1").carrier(false))).unwrap();
    assert!(host.netlink.link("tap1").unwrap().lower_up, "whatever the configuration says");
}

#[test]
fn joining_makes_nothing() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.netlink.create_bridge("br0").unwrap();
    let join = |name: &str| host.inside(|| Device::join(&config(name))).unwrap_err();
    let (missing, bridge) = (join("tap0"), join("br0"));
    assert!(matches!(missing, CreateError::NotFound { .. }), "{missing}");
    assert!(matches!(bridge, CreateError::Mismatch { .. }), "{bridge}");
    host.wait_until_gone("tap0");
}

/// Quirk 6: Linux accepts any header length from 10 on; the layout of unknown ones is undefined.
#[test]
fn a_header_of_an_odd_length_is_not_joined() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI | VNET_HDR, |fd| {
        raw::int(fd, raw::TUNSETVNETHDRSZ, &mut 16).unwrap();
    });
    let error = host.inside(|| Device::join(&config("tap0"))).unwrap_err();
    assert!(error.to_string().contains("10, 12, 20 or 24 bytes"), "{error}");
}

/// Quirk 6: a device with another link type has neither ARP nor a MAC address.
#[test]
fn what_the_former_user_claimed_the_device_to_be_is_forgotten() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    for (name, kind, flag, usual) in
        [("tap0", Kind::Tap, TAP, LinkType::ETHERNET), ("tun0", Kind::Tun, TUN, LinkType::NONE)]
    {
        host.leave_behind(name, flag | NO_PI, |fd| {
            raw::number(fd, raw::TUNSETLINK, LinkType::PPP.0.into()).unwrap();
        });
        let wanted = config(name).kind(kind).exclusive(false);
        host.netlink.set_up(name).unwrap();
        let error = host.try_create(&wanted).unwrap_err();
        assert!(error.to_string().contains("link_type(LinkType(512))"), "{error}");
        let kept = wanted.clone().link_type(LinkType::PPP);
        assert_eq!(host.create(&kept).link_type().unwrap(), LinkType::PPP);
        host.netlink.set_down(name).unwrap();
        assert_eq!(host.create(&wanted).link_type().unwrap(), usual);
    }
}

/// Quirk 28: the link type can only change while the interface is down.
#[test]
fn the_link_type_waits_for_the_interface_to_be_down() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("tap0", TAP | NO_PI, |_| ());
    host.netlink.set_up("tap0").unwrap();
    let typed = config("tap0").exclusive(false).link_type(LinkType::IEEE80211);
    let error = host.try_create(&typed).unwrap_err();
    assert!(error.to_string().contains("`ip link set tap0 down`"), "{error}");
    host.netlink.set_down("tap0").unwrap();
    assert_eq!(host.create(&typed).link_type().unwrap(), LinkType::IEEE80211);
}

#[test]
fn a_device_tells_where_it_is_and_where_it_came_from() {
    if !can_tap() {
        return;
    }
    let (mut here, there) = (Host::new(), Host::new());
    let device = here.create(&config("tap0"));
    let same = |a: &Namespace, b: &Namespace| a.is_same(b).unwrap();
    assert!(same(&device.namespace().unwrap(), &here.namespace));
    here.netlink.move_to_namespace("tap0", &there.namespace).unwrap();
    assert!(same(&device.namespace().unwrap(), &there.namespace));
    assert!(same(&device.origin_namespace().unwrap(), &here.namespace));
    assert_eq!(device.link().unwrap().name, "tap0", "it is found where it is now");
}

#[test]
fn another_device_of_the_same_name_is_not_taken_for_it() {
    if !can_tap() {
        return;
    }
    let (mut here, there) = (Host::new(), Host::new());
    for kind in [Kind::Tap, Kind::Tun] {
        let shared = config("any0").kind(kind).multi_queue(true);
        let device = here.create(&shared);
        let look = |host: &Host| {
            host.inside(|| {
                without_privilege();
                device.link().map(|link| link.index)
            })
        };
        assert_eq!(look(&here).unwrap(), device.index());
        here.netlink.move_to_namespace("any0", &there.namespace).unwrap();
        let _other = here.create(&shared.queues(NonZeroU16::new(2).unwrap()));
        let error = look(&here).unwrap_err();
        assert!(matches!(error, SettingError::Link { .. }), "{error}");
        assert!(error.to_string().contains("another interface"), "{error}");
    }
}
