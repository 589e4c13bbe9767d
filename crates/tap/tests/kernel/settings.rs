//! Settings of an existing device.

use std::num::NonZeroU32;

use tapswitch_tap::{ByteOrder, Device, LinkType, MacAddr, SettingError};

use crate::common::raw;
use crate::common::{Host, can_tap, config, is_udp_to, receive_any, without_privilege};

#[test]
fn the_mac_address_is_set_without_privilege_while_the_interface_is_up() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    let mac = MacAddr([2, 0x74, 0x61, 0x70, 0, 1]);
    host.inside(|| {
        without_privilege();
        device.set_mac(mac).unwrap();
    });
    assert_eq!(device.mac().unwrap(), mac);
    assert_eq!(host.netlink.link("tap0").unwrap().mac, Some(mac.0));
    let error = device.set_mac(MacAddr([1, 0, 0, 0, 0, 1])).unwrap_err();
    assert!(error.to_string().contains("unicast"), "{error}");
}

/// Quirk 28.
#[test]
fn a_carrier_needs_a_queue() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let mut device = host.create_up(&config("tap0").multi_queue(true));
    for on in [false, true] {
        device.set_carrier(on).unwrap();
        assert_eq!(host.netlink.link("tap0").unwrap().lower_up, on);
    }
    device.detach_queue(0).unwrap();
    let has_carrier = |host: &mut Host| host.netlink.link("tap0").unwrap().lower_up;
    assert!(has_carrier(&mut host), "one that is on stays");
    let error = device.set_carrier(true).unwrap_err();
    assert!(matches!(error, SettingError::NoQueue { .. }), "{error}");
    assert!(!error.to_string().contains("there is no carrier"), "{error}");
    device.set_carrier(false).unwrap();
    assert!(device.set_carrier(true).is_err());
    device.attach_queue(0).unwrap();
    assert!(!has_carrier(&mut host), "attaching does not bring it back");
    device.set_carrier(true).unwrap();
}

/// Quirk 28.
#[test]
fn the_link_type_changes_while_the_interface_is_down() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    assert_eq!(device.link_type().unwrap(), LinkType::ETHERNET);
    let error = device.set_link_type(LinkType::PPP).unwrap_err();
    assert!(error.to_string().contains("ip link set tap0 down"), "{error}");
    host.netlink.set_down("tap0").unwrap();
    device.set_link_type(LinkType::PPP).unwrap();
    assert_eq!(device.link_type().unwrap(), LinkType::PPP);
    assert_eq!(host.netlink.link("tap0").unwrap().link_type, LinkType::PPP.0);
}

#[test]
fn owner_group_and_persistence_can_change() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create(&config("tap0"));
    device.set_owner(1000).unwrap();
    device.set_group(1001).unwrap();
    device.set_persistent(true).unwrap();
    let info = host.netlink.link("tap0").unwrap().tun.unwrap();
    assert_eq!((info.owner, info.group, info.persistent), (Some(1000), Some(1001), true));
    device.set_persistent(false).unwrap();
    for outcome in [device.set_owner(u32::MAX), device.set_group(u32::MAX)] {
        assert!(matches!(outcome, Err(SettingError::Refused { .. })), "{outcome:?}");
    }
    drop(device);
    host.wait_until_gone("tap0");
}

/// Quirk 22: only an unlimited buffer has the fast path, so that is the default of each file.
#[test]
fn the_send_buffer_is_unlimited_unless_told_otherwise() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let device = host.create(&config("tap0"));
    let unlimited = i32::MAX.unsigned_abs();
    assert_eq!(device.send_buffer_len().unwrap(), unlimited);
    device.set_send_buffer_len(NonZeroU32::new(1 << 20)).unwrap();
    assert_eq!(device.send_buffer_len().unwrap(), 1 << 20);
    let mut seen = 0;
    raw::int(&device.queues()[0], raw::TUNGETSNDBUF, &mut seen).unwrap();
    assert_eq!(seen, 1 << 20);
    device.set_send_buffer_len(None).unwrap();
    assert_eq!(device.send_buffer_len().unwrap(), unlimited);
    let small = NonZeroU32::new(4096).unwrap();
    let limited = host.create(&config("tap1").send_buffer_len(small));
    assert_eq!(limited.send_buffer_len().unwrap(), 4096);
}

#[test]
fn the_byte_order_can_be_chosen() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    assert_eq!(device.byte_order().unwrap(), ByteOrder::Native);
    device.set_byte_order(ByteOrder::Little).unwrap();
    assert_eq!(device.byte_order().unwrap(), ByteOrder::Little);
    host.udp(7).send_to(b"x", "10.0.0.2:9").unwrap();
    let (header, _) = receive_any(&device.queues()[0], |frame| is_udp_to(frame, 9));
    assert_eq!(header[6..8], 34_u16.to_le_bytes(), "where the checksum starts");
    match device.set_byte_order(ByteOrder::Big) {
        Ok(()) => {
            assert_eq!(device.byte_order().unwrap(), ByteOrder::Big);
            host.udp(8).send_to(b"x", "10.0.0.2:10").unwrap();
            let (header, _) = receive_any(&device.queues()[0], |frame| is_udp_to(frame, 10));
            assert_eq!(header[6..8], 34_u16.to_be_bytes());
        }
        Err(error) => assert!(error.to_string().contains("CROSS_LE"), "{error}"),
    }
    device.set_byte_order(ByteOrder::Native).unwrap();
    assert_eq!(device.byte_order().unwrap(), ByteOrder::Native);
}

/// Quirk 23: a deleted device is distinguished from every other error.
#[test]
fn every_setting_of_a_deleted_device_says_so() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let mut device = host.create(&config("tap0").multi_queue(true));
    host.netlink.delete("tap0").unwrap();
    let outcomes = every_setting(&mut device);
    for (at, outcome) in outcomes.into_iter().enumerate() {
        assert!(matches!(outcome, Err(SettingError::Gone { .. })), "{at}: {outcome:?}");
    }
}

fn every_setting(device: &mut Device) -> Vec<Result<(), SettingError>> {
    vec![
        device.flags().map(|_| ()),
        device.mac().map(|_| ()),
        device.current_name().map(|_| ()),
        device.link().map(|_| ()),
        device.namespace().map(|_| ()),
        device.foreign_queues().map(|_| ()),
        device.link_type().map(|_| ()),
        device.send_buffer_len().map(|_| ()),
        device.byte_order().map(|_| ()),
        device.is_attached(0).map(|_| ()),
        device.detach_queue(0),
        device.attach_queue(0),
        device.set_mac(MacAddr([2, 0, 0, 0, 0, 1])),
        device.set_link_type(LinkType::PPP),
        device.set_carrier(true),
        device.set_persistent(true),
        device.set_owner(1),
        device.set_group(1),
        device.set_send_buffer_len(None),
        device.set_byte_order(ByteOrder::Little),
        device.set_steering(None),
        device.set_filter(None),
        device.set_tx_filter(None),
        device.set_offloads(tapswitch_tap::Offloads::empty()).map(|_| ()),
        device.detach_classic_filter(),
        device.classic_filter_len().map(|_| ()),
    ]
}
