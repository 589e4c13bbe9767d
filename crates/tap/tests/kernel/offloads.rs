//! Offloads are negotiated with the kernel, and never exceed those of the kernel, the header and
//! the caller.

use tapswitch_netlink::Feature;
use tapswitch_tap::{
    Capabilities, Flags, GsoType, HeaderLen, Kind, LongNetHeader, NetHeader, Offloads, RecvError,
    SendError, SendFallback,
};
use tapswitch_wire::{MacAddr, parse};

use crate::common::raw;
use crate::common::{
    Host, PEER, can_tap, config, is_udp_to, knows_udp_trains, receive, receive_any,
    set_udp_segment, skip, udp_datagram, wait_readable,
};

/// Quirks 1 and 2: no cap makes the kernel refuse, because invalid combinations are omitted.
#[test]
fn every_cap_ends_in_a_set_that_the_kernel_takes() {
    if !can_tap() || !knows_tunnels() {
        return;
    }
    let host = Host::new();
    let mut device = host.create(&config("tap0").net_header(HeaderLen::Tunnel));
    for bits in 0..=Offloads::all().bits() {
        let cap = Offloads::from_bits_truncate(bits);
        let agreed = device.set_offloads(cap).unwrap();
        assert!(cap.contains(agreed), "{cap:?}: {agreed:?}");
        assert_eq!(device.capabilities().receive, agreed);
        let plain = Offloads::CSUM | Offloads::TSO | Offloads::USO;
        assert_eq!(agreed.contains(plain), cap.contains(plain), "{cap:?}: {agreed:?}");
    }
}

/// Quirk 1: the kernel's refusals, to prove that the ladder is needed.
#[test]
fn the_kernel_refuses_what_the_ladder_leaves_out() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let host = Host::new();
    let device = host.create(&config("tap0"));
    let queue = &device.queues()[0];
    let set = |bits: u32| raw::number(queue, raw::TUNSETOFFLOAD, bits.into());
    for orphan in [
        Offloads::TSO,
        Offloads::USO,
        Offloads::CSUM | Offloads::TSO_ECN,
        Offloads::CSUM | Offloads::USO4,
        Offloads::CSUM | Offloads::UDP_TUNNEL,
        Offloads::CSUM | Offloads::TSO | Offloads::UDP_TUNNEL_CSUM,
        Offloads::from_bits_retain(0x1000_0001),
    ] {
        let refused = set(orphan.bits()).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::EINVAL)), "{orphan:?}");
    }
    set((Offloads::CSUM | Offloads::UFO).bits()).unwrap();
    let with_ufo = host.create(&config("tap1").offloads(Offloads::CSUM | Offloads::UFO));
    assert_eq!(with_ufo.capabilities().receive, Offloads::CSUM, "taken, and without effect");
}

/// Quirk 3: offloads belong to the device, whoever sets them.
#[test]
fn offloads_concern_the_queues_of_others_too() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let shared = config("tap0").multi_queue(true);
    let mut first = host.create_up(&shared);
    let second = host.create(&shared.clone().exclusive(false));
    first.detach_queue(0).unwrap();
    let queue = &second.queues()[0];
    let socket = host.udp(7);
    socket.send_to(b"x", "10.0.0.2:9").unwrap();
    assert!(receive(queue, |_, frame| is_udp_to(frame, 9)).0.needs_checksum());
    first.set_offloads(Offloads::empty()).unwrap();
    socket.send_to(b"x", "10.0.0.2:10").unwrap();
    assert!(!receive(queue, |_, frame| is_udp_to(frame, 10)).0.needs_checksum());
}

/// Quirk 3: opening a device that another program uses neither passes it frames that it has not
/// enabled, nor disables any.
#[test]
fn opening_a_device_in_use_leaves_its_offloads_alone() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let is_on = |host: &mut Host, feature| host.netlink.feature("tap0", feature).unwrap();
    for theirs in [Offloads::empty(), Offloads::CSUM | Offloads::TSO] {
        let shared = config("tap0").multi_queue(true);
        let first = host.create(&shared.clone().offloads(theirs));
        for ours in [Offloads::empty(), Offloads::DEFAULT] {
            let second = host.create(&shared.clone().exclusive(false).offloads(ours));
            let upper = Offloads::DEFAULT.within(HeaderLen::V1);
            assert_eq!(second.capabilities().receive, upper, "not known, so all is possible");
            for (feature, offload) in
                [(Feature::TxChecksum, Offloads::CSUM), (Feature::Tso, Offloads::TSO)]
            {
                assert_eq!(is_on(&mut host, feature), theirs.contains(offload), "{ours:?}");
            }
        }
        drop(first);
    }
}

/// Quirk 4.
#[test]
fn the_probe_tells_what_the_kernel_understands() {
    if !can_tap() {
        return;
    }
    let kernel = Capabilities::probe().unwrap();
    assert_eq!(Capabilities::probe().unwrap(), kernel, "asked once");
    assert!(kernel.features.contains(Flags::TAP | Flags::TUN | Flags::VNET_HDR), "{kernel:?}");
    assert!(kernel.send.contains(Offloads::CSUM | Offloads::TSO | Offloads::TSO_ECN));
    assert!(kernel.has_multi_queue() && kernel.has_napi());
    let host = Host::new();
    for len in HeaderLen::ALL {
        let device = host.create(&config("tap0").net_header(len));
        let capabilities = device.capabilities();
        assert_eq!(capabilities.features, kernel.features);
        assert_eq!(capabilities.send, kernel.send.within(len), "{len:?}");
        assert_eq!(capabilities.receive, kernel.receive.within(len), "{len:?}");
    }
}

/// Quirk 4: whether deferred work may be sent depends neither on the type of device nor on its
/// settings.
#[test]
fn a_tun_device_takes_trains_too() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    let tun = host.create_up(&config("tun0").kind(Kind::Tun).offloads(Offloads::empty()));
    let socket = host.udp(9);
    let (header, frame) = udp_train(9, 3, 1000);
    let moved =
        NetHeader { csum_start: header.csum_start - 14, hdr_len: header.hdr_len - 14, ..header };
    tun.queues()[0].send(&[&moved.encode(), &frame[14..]].concat()).unwrap();
    let mut buf = [0; 2000];
    for _ in 0..3 {
        assert_eq!(socket.recv(&mut buf).unwrap(), 1000);
    }
}

/// Quirk 5: tunnelled trains are never enabled with a short header, because Linux would then lose
/// every frame.
#[test]
fn trains_in_tunnels_need_the_long_header() {
    if !can_tap() || !knows_tunnels() {
        return;
    }
    let mut host = Host::new();
    let mut device = host.create_up(&config("tap0").offloads(Offloads::all()));
    assert_eq!(device.capabilities().receive, Offloads::PLAIN);
    assert_eq!(device.capabilities().send, Offloads::PLAIN);
    assert_eq!(device.set_offloads(Offloads::all()).unwrap(), Offloads::PLAIN);
    let socket = host.udp(7);
    socket.send_to(b"x", "10.0.0.2:9").unwrap();
    let queue = &device.queues()[0];
    receive(queue, |_, frame| is_udp_to(frame, 9));

    // Otherwise the frame is lost, and the call reports that there was one.
    raw::number(queue, raw::TUNSETOFFLOAD, Offloads::DEFAULT.bits().into()).unwrap();
    socket.send_to(b"x", "10.0.0.2:9").unwrap();
    let lost = loop {
        wait_readable(&[queue]);
        match queue.recv(&mut [0; 2000]) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    // Linux 6.17 and 6.18 return EFAULT; later releases may refuse the set instead.
    assert!(matches!(lost, RecvError::Lost { .. }), "{lost}");
}

/// Quirk 5: with the long header, plain frames and tunnelled trains arrive as such.
#[test]
fn a_train_in_a_tunnel_arrives_as_one() {
    if !can_tap() || !knows_tunnels() {
        return;
    }
    let mut host = Host::new();
    let long = config("tap0").net_header(HeaderLen::Tunnel);
    let device = host.create_up(&long);
    assert_eq!(device.capabilities().receive, Offloads::DEFAULT);
    if !host.add_vxlan() {
        return;
    }
    let socket = host.inside(|| std::net::UdpSocket::bind(("192.168.7.1", 0)).unwrap());
    set_udp_segment(&socket, 1000);
    socket.send_to(&[7; 5000], "192.168.7.2:9").unwrap();
    let (header, frame) = receive_any(&device.queues()[0], |frame| is_udp_to(frame, 4789));
    let header = LongNetHeader::decode(&header).unwrap();
    assert_eq!(header.check(frame.len()), Ok(()), "{header:?}");
    assert_eq!(header.base.gso_type, GsoType(GsoType::UDP_L4.0 | GsoType::UDP_TUNNEL_IPV4));
    assert_eq!(
        (header.base.gso_size, header.outer_transport, header.inner_network),
        (1000, 34, 64)
    );
    assert!(frame.ends_with(&[7; 5000]));

    // It may be sent unchanged, and only with a header that can describe it.
    let packet = [&header.encode()[..], &frame].concat();
    assert_eq!(device.queues()[0].send(&packet), Ok(()));
    let short = host.create(&config("tap1"));
    let packet = [&header.encode()[..12], &frame].concat();
    assert_eq!(short.queues()[0].send(&packet), Err(SendError::Rejected));
}

/// Quirk 7: a refused type is disabled separately, and tried again.
#[test]
fn a_train_that_the_kernel_refuses_costs_its_type_alone_and_not_for_ever() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    let queue = &device.queues()[0];
    let mut fallback = SendFallback::new(device.capabilities().send);
    let send = |fallback: &mut SendFallback, header: &NetHeader, frame: &[u8]| {
        if !fallback.permits(header) {
            return None;
        }
        let outcome = queue.send(&[&header.encode(), frame].concat());
        match outcome {
            Err(SendError::Rejected) => fallback.refused(header),
            _ => fallback.accepted(header),
        }
        Some(outcome)
    };
    // Linux accepts at most 128 datagrams in one train; the metadata is nevertheless valid.
    let (odd, odd_frame) = udp_train(9, 200, 100);
    assert_eq!(odd.check(odd_frame.len()), Ok(()));
    assert_eq!(send(&mut fallback, &odd, &odd_frame), Some(Err(SendError::Rejected)));
    assert!(fallback.is_degraded());
    assert_eq!(fallback.current(), Offloads::PLAIN - Offloads::USO);
    let (good, good_frame) = udp_train(9, 3, 100);
    let mut cut = 0;
    while send(&mut fallback, &good, &good_frame).is_none() {
        cut += 1;
    }
    assert_eq!((cut, fallback.is_degraded()), (64, false));
    assert_eq!(fallback.current(), Offloads::PLAIN);
}

/// Quirk 8: requirements of the kernel for metadata.
#[test]
fn metadata_must_fit_the_frame() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    let (good, frame) = udp_train(9, 3, 100);
    let send =
        |header: NetHeader| device.queues()[0].send(&[&header.encode(), &frame[..]].concat());
    assert_eq!(send(good), Ok(()));
    assert_eq!(send(NetHeader { hdr_len: 0, ..good }), Ok(()), "no hint is as good");
    for bad in [
        NetHeader { flags: 0, ..good },
        NetHeader { csum_offset: 16, ..good },
        NetHeader { gso_size: 0, ..good },
        NetHeader { hdr_len: 5000, ..good },
        NetHeader { gso_type: GsoType::TCPV4, ..good },
    ] {
        assert_eq!(send(bad), Err(SendError::Rejected), "{bad:?}");
    }
}

/// Quirk 9: before Linux 6.11, programs that send UDP trains through a device without checksum
/// offload get `EIO`. With the default offloads they do not.
#[test]
fn others_may_send_udp_trains_through_a_device_with_default_offloads() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    assert!(host.netlink.feature("tap0", Feature::TxChecksum).unwrap());
    let socket = host.udp(7);
    set_udp_segment(&socket, 1000);
    socket.send_to(&[0; 2500], "10.0.0.2:9").unwrap();
    receive(&device.queues()[0], |_, frame| is_udp_to(frame, 9));
}

/// Quirk 29: trains arrive with their tag in the frame, and `csum_start` accounts for it.
#[test]
fn a_train_with_a_tag_says_where_its_checksum_is() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    let device = host.create_up(&config("tap0"));
    if let Err(error) = host.netlink.create_vlan("vlan7", "tap0", 7) {
        skip(&format!("no 802.1Q interfaces here: {error}"));
        return;
    }
    host.netlink.add_address("vlan7", "192.168.7.1".parse().unwrap(), 24).unwrap();
    host.netlink.set_up("vlan7").unwrap();
    host.netlink.set_neighbour("vlan7", "192.168.7.2".parse().unwrap(), PEER.0).unwrap();
    let socket = host.inside(|| std::net::UdpSocket::bind(("192.168.7.1", 0)).unwrap());
    set_udp_segment(&socket, 1000);
    socket.send_to(&[7; 3000], "192.168.7.2:9").unwrap();
    let (header, frame) = receive(&device.queues()[0], |_, frame| is_udp_to(frame, 9));
    assert_eq!((header.gso_type, header.gso_size), (GsoType::UDP_L4, 1000));
    assert_eq!((&frame[12..16], header.csum_start), (&[0x81, 0, 0, 7][..], 38));
    assert_eq!(parse(&frame).unwrap().layout.network, 18);
}

/// Three headers and `count` datagrams of `len` bytes for 10.0.0.1:`port`, as one train.
fn udp_train(port: u16, count: usize, len: u16) -> (NetHeader, Vec<u8>) {
    let payload = vec![0xff; count * usize::from(len)];
    let (header, frame) = udp_datagram([MacAddr([0xff; 6]); 2], [7, port], &payload);
    (NetHeader { gso_type: GsoType::UDP_L4, gso_size: len, ..header }, frame)
}

fn knows_tunnels() -> bool {
    let tunnels = Capabilities::probe().unwrap().longest_header == HeaderLen::Tunnel;
    tunnels || skip("trains in tunnels need Linux 6.17")
}

impl Host {
    /// Runs ip(8) inside; returns false with a message if it is missing or does not support that.
    fn ip(&self, arguments: &str) -> bool {
        let outcome = self.namespace.command("ip").args(arguments.split(' ')).output();
        match outcome {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                skip(&format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
            }
            Err(error) => skip(&format!("ip: {error}")),
        }
    }

    /// A VXLAN tunnel over tap0 to 10.0.0.2, and a station 192.168.7.2 in it.
    fn add_vxlan(&self) -> bool {
        self.ip(
            "link add vxlan0 type vxlan id 7 local 10.0.0.1 remote 10.0.0.2 dstport 4789 dev tap0",
        ) && self.ip("addr add 192.168.7.1/24 dev vxlan0")
            && self.ip("link set vxlan0 up")
            && self.ip("neigh add 192.168.7.2 lladdr 02:00:00:00:00:07 dev vxlan0")
    }
}
