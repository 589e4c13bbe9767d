//! Tests of what arrives behind a tap device that takes trains, and behind one that does not.

mod partial;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tapswitch_datapath::{Claim, MAX_PORT, Millis, Port, Sent, WorkerIndex};
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN};
use tapswitch_netlink::{Feature, Netlink, OwnedNamespace, QdiscSpec};
use tapswitch_openflow::PortNo;
use tapswitch_tap as tap;
use tapswitch_wire::{EtherType, GsoType, MacAddr, Tag, parse};

use super::*;
use crate::test_frames::{
    HEADERS_LEN, OUTER_LEN, checked_payload, tcp_train, udp_train, vxlan_train,
};

pub(super) const ALL: Takes = Takes { hidden: false, ..Takes::EVERYTHING };
/// Partial checksums, but no trains.
pub(super) const NONE: Takes = Takes { checksum: true, ..Takes::NOTHING };

/// A device whose peer is captured.
pub(super) struct Wire {
    device: TxDevice,
    far_end: PacketPort,
    netlink: Netlink,
    namespace: OwnedNamespace,
}

impl Wire {
    /// A tap device. `None`, with a message, if it cannot be created.
    pub(super) fn new() -> Option<Self> {
        let header = tap::HeaderLen::V1;
        Some(Self::over(namespace()?, |name| TxDevice::Tap(tap_queue(name, header))))
    }

    /// A tap device without network headers.
    fn bare() -> Option<Self> {
        let header = tap::HeaderLen::None;
        Some(Self::over(namespace()?, |name| TxDevice::BareTap(BareTap(tap_queue(name, header)))))
    }

    /// An existing interface.
    fn netdev() -> Option<Self> {
        let namespace = namespace()?;
        let mut netlink = Netlink::open(&namespace).unwrap();
        netlink.create_veth("eth0", "near", &namespace).unwrap();
        netlink.set_up("near").unwrap();
        let wire = Self::over(namespace, |_| {
            TxDevice::Netdev(PacketPort::open("near", &Config::default()).unwrap().into())
        });
        // A veth has a carrier a moment after both ends are up.
        let deadline = Instant::now() + Duration::from_secs(30);
        while !netlink.link("near").unwrap().running {
            assert!(Instant::now() < deadline, "no carrier");
        }
        Some(wire)
    }

    /// The device that `open` opens; its peer is `eth0`.
    fn over(namespace: OwnedNamespace, open: impl FnOnce(&str) -> TxDevice + Send) -> Self {
        let quiet = || {
            for scope in ["default", "all"] {
                let file = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
                std::fs::write(file, "1").unwrap();
            }
            open("eth0")
        };
        let device = namespace.enter(quiet).unwrap();
        let mut netlink = Netlink::open(&namespace).unwrap();
        netlink.set_up("eth0").unwrap();
        let open = || PacketPort::open("eth0", &Config::default()).unwrap();
        let far_end = namespace.enter(open).unwrap();
        Self { device, far_end, netlink, namespace }
    }

    pub(super) fn port(&self, takes: Takes) -> TxPort {
        TxPort::new(self.device.clone(), takes)
    }

    /// The next `count` frames that arrived.
    pub(super) fn received(&self, count: usize) -> Vec<(NetHeader, Vec<u8>)> {
        let (mut frames, mut buf) = (Vec::new(), vec![0; RECV_BUF_LEN]);
        let deadline = Instant::now() + Duration::from_secs(30);
        while frames.len() < count {
            match self.far_end.recv(&mut buf, HEADROOM_MIN).unwrap() {
                Some(received) => frames.push((received.header, buf[received.frame].to_vec())),
                None => {
                    assert!(Instant::now() < deadline, "{} of {count} frames", frames.len());
                    std::thread::yield_now();
                }
            }
        }
        frames
    }
}

/// `None`, with a message, if no namespace can be created.
fn namespace() -> Option<OwnedNamespace> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
        let _ = io::stdout().write_all(b"\nSKIP: needs root and /dev/net/tun\n");
        return None;
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Some(OwnedNamespace::create(&format!("swtx-{}-{count}", std::process::id())).unwrap())
}

fn tap_queue(name: &str, header: tap::HeaderLen) -> Arc<tap::Queue> {
    let config = tap::Config::new(name.parse().unwrap()).net_header(header);
    Arc::new(tap::Device::create(&config).unwrap().into_queues().remove(0))
}

/// Calls `action` with the frame behind some headroom.
pub(super) fn with_frame<R>(
    (meta, bytes): &(NetHeader, Vec<u8>),
    action: impl FnOnce(&mut Frame<'_>) -> R,
) -> R {
    let mut buf = [vec![0; HEADROOM], bytes.clone()].concat();
    let layout = parse(bytes).unwrap().layout;
    action(&mut Frame::new(*meta, layout, &mut buf, HEADROOM, 0))
}

fn send(port: &mut TxPort, sent: &(NetHeader, Vec<u8>)) -> Result<(), DropReason> {
    with_frame(sent, |frame| port.send(frame, Beyond::NONE))
}

#[test]
fn a_train_that_the_port_takes_stays_whole() {
    let Some(wire) = Wire::new() else { return };
    let sent = tcp_train(2500, 1000);
    let mut port = wire.port(ALL);
    assert_eq!(send(&mut port, &sent), Ok(()));
    // A copy with headers of its own is sent as two pieces and arrives unchanged.
    let copied =
        with_frame(&sent, |frame| port.send(&mut frame.fork(&mut Vec::new()), Beyond::NONE));
    assert_eq!(copied, Ok(()));
    for (header, received) in wire.received(2) {
        assert!(received == sent.1, "other bytes");
        assert_eq!((header.gso_type, header.gso_size), (GsoType::TCPV4, 1000));
    }
}

#[test]
fn a_train_that_the_port_does_not_take_is_cut() {
    let Some(wire) = Wire::new() else { return };
    let sent = tcp_train(2500, 1000);
    let mut port = wire.port(NONE);
    assert_eq!(send(&mut port, &sent), Ok(()));
    let copied =
        with_frame(&sent, |frame| port.send(&mut frame.fork(&mut Vec::new()), Beyond::NONE));
    assert_eq!(copied, Ok(()));
    let packets = completed(wire.received(6));
    for packets in packets.chunks(3) {
        let payload: Vec<_> = packets.iter().flat_map(|p| checked_payload(p)).collect();
        assert!(payload.into_iter().eq(&sent.1[HEADERS_LEN..]), "other bytes");
    }
}

/// Packets with their partial checksums completed.
fn completed(packets: Vec<(NetHeader, Vec<u8>)>) -> Vec<Vec<u8>> {
    let complete = |(mut header, mut packet): (NetHeader, Vec<u8>)| {
        assert!(header.needs_checksum() && !header.is_train());
        complete_checksum(&mut header, &mut packet, &[]).unwrap();
        packet
    };
    packets.into_iter().map(complete).collect()
}

/// The ports that take no offloads, one for each way of sending.
pub(super) fn finished_ports() -> Vec<(Wire, TxPort)> {
    let wires = [Wire::new(), Wire::bare(), Wire::netdev()];
    wires.into_iter().flatten().map(with_port).collect()
}

fn with_port(wire: Wire) -> (Wire, TxPort) {
    let port = wire.port(Takes::NOTHING);
    (wire, port)
}

#[test]
fn a_port_that_takes_nothing_undone_gets_packets_only() {
    let tag = Tag::new(EtherType::SERVICE_VLAN, 5);
    for (wire, mut port) in finished_ports() {
        for payload_len in [1, 2500, 60_001] {
            let sent = tcp_train(payload_len, 1000);
            let count = payload_len.div_ceil(1000);
            assert_eq!(send(&mut port, &sent), Ok(()));
            let packets = wire.received(count);
            assert!(packets.iter().all(|(header, _)| *header == NetHeader::PLAIN));
            let payload: Vec<_> = packets.iter().flat_map(|(_, p)| checked_payload(p)).collect();
            assert!(payload.into_iter().eq(&sent.1[HEADERS_LEN..]), "other bytes");
            // The same frame as a copy under two tags.
            let outcome = with_frame(&sent, |frame| {
                let mut scratch = Vec::new();
                let mut copy = frame.fork(&mut scratch);
                assert!(copy.push_tag(tag) && copy.push_tag(tag));
                port.send(&mut copy, Beyond::NONE)
            });
            assert_eq!(outcome, Ok(()));
            let tagged = wire.received(count);
            let untag = |p: &[u8]| [&p[..12], &p[20..]].concat();
            assert!(tagged.iter().zip(&packets).all(|((_, t), (_, p))| untag(t) == *p), "tags");
        }
    }
}

#[test]
fn a_checksum_is_completed_for_the_port_that_needs_it_and_for_no_other() {
    let tag = Tag::new(EtherType::VLAN, 7);
    for (wire, mut port) in finished_ports() {
        let sent = tcp_train(1001, 0);
        let outcome = with_frame(&sent, |frame| {
            assert_eq!(port.send(frame, Beyond::NONE), Ok(()));
            assert_eq!((frame.meta, frame.head()), (sent.0, &sent.1[..]), "as it was");
            let mut scratch = Vec::new();
            let mut copy = frame.fork(&mut scratch);
            assert_eq!(port.send(&mut copy, Beyond::NONE), Ok(()));
            assert!(copy.push_tag(tag));
            port.send(&mut copy, Beyond::NONE)
        });
        assert_eq!(outcome, Ok(()));
        let packets = wire.received(3);
        assert!(packets.iter().all(|(header, _)| *header == NetHeader::PLAIN));
        assert_eq!(checked_payload(&packets[0].1), &sent.1[HEADERS_LEN..]);
        assert!(packets[1] == packets[0], "a copy in two pieces");
        let untagged = [&packets[2].1[..12], &packets[2].1[16..]].concat();
        assert!(untagged == packets[0].1, "a copy under a tag");
        let plain = (NetHeader::PLAIN, packets[0].1.clone());
        assert_eq!(send(&mut port, &plain), Ok(()));
        assert!(wire.received(1)[0] == plain, "nothing to be done");
    }
}

#[test]
fn a_checksum_that_cannot_be_completed_is_told() {
    for (_wire, mut port) in finished_ports() {
        for (csum_start, csum_offset) in [(34, 2000), (2000, 16), (u16::MAX, u16::MAX)] {
            let (meta, frame) = tcp_train(300, 0);
            let lie = NetHeader { csum_start, csum_offset, ..meta };
            assert_eq!(send(&mut port, &(lie, frame)), Err(DropReason::CannotSegment));
        }
    }
}

/// The packets of the train are longer than the interface's MTU, except for a shorter last one.
#[test]
fn an_interface_that_is_too_small_for_the_packets_says_so() {
    let Some(wire) = Wire::netdev() else { return };
    let mut port = wire.port(Takes::NOTHING);
    assert_eq!(send(&mut port, &tcp_train(4800, 1600)), Err(DropReason::Oversize));
    assert_eq!(port.take_cut_done(), 0);
    // More than one batch.
    let (meta, train) = tcp_train(38 * 1600 + 200, 1600);
    assert_eq!(send(&mut port, &(meta, train.clone())), Err(DropReason::Oversize));
    assert_eq!(port.take_cut_done(), 1);
    assert_eq!(send(&mut port, &tcp_train(2500, 1000)), Ok(()));
    let packets = wire.received(4);
    assert_eq!(checked_payload(&packets[0].1), &train[train.len() - 200..]);
    assert_eq!(packets.len(), 4);
}

#[test]
fn kinds_of_trains_are_told_apart() {
    let only_v6 = Takes { tcp_v6: true, ..NONE };
    assert!(only_v6.takes_train(GsoType::TCPV6) && !only_v6.takes_train(GsoType::TCPV4));
    let with_ecn = GsoType(GsoType::TCPV6.0 | GsoType::ECN);
    assert!(!only_v6.takes_train(with_ecn));
    assert!(Takes { tcp_ecn: true, ..only_v6 }.takes_train(with_ecn));
    assert!(!ALL.takes_train(GsoType::UDP), "trains of fragments are nobody's");
    let offloads = tap::Offloads::CSUM | tap::Offloads::TSO4;
    let expected = Takes { tcp_v4: true, tcp_ecn: true, cwr_on_all: true, ..NONE };
    assert_eq!(Takes::from(offloads), expected);
    assert_eq!(Takes::from(tap::Offloads::empty()), Takes::NOTHING);
}

/// Linux clears CWR, a bit of AccECN's counter, on all packets but the first when it cuts.
#[test]
fn a_train_with_cwr_on_all_packets_is_cut_before_an_interface() {
    let Some(wire) = Wire::netdev() else { return };
    let TxDevice::Netdev(near) = &wire.device else { panic!("no interface") };
    let mut port = wire.port(near.capabilities().into());
    let (meta, mut frame) = tcp_train(3000, 1000);
    frame[FLAGS] |= tapswitch_wire::tcp::CWR;
    send(&mut port, &(meta, frame.clone())).unwrap();
    for (header, packet) in wire.received(3) {
        assert_eq!((header.is_train(), packet[FLAGS]), (false, frame[FLAGS]));
    }
    // CWR on the first packet alone has a flag in the metadata.
    let marked = NetHeader { gso_type: GsoType(GsoType::TCPV4.0 | GsoType::ECN), ..meta };
    send(&mut port, &(marked, frame)).unwrap();
    assert!(wire.received(1)[0].0.is_train());
}

/// Offset of the TCP flags in [`tcp_train`].
const FLAGS: usize = 47;

/// A device with fragments refuses a piece that is longer than a page, as an old kernel refuses an
/// unknown kind.
#[test]
fn a_train_that_the_kernel_refuses_is_cut_and_so_are_those_of_its_kind() {
    let Some(namespace) = namespace() else { return };
    let config = |name: &str| {
        let config = tap::Config::new(name.parse().unwrap()).net_header(tap::HeaderLen::V1);
        config.napi(true).napi_fragments(true)
    };
    let open = |name: &str| tap::Device::create(&config(name)).unwrap().into_queues().remove(0);
    let wire = Wire::over(namespace, |name| TxDevice::Tap(Arc::new(open(name))));
    let mut port = wire.port(ALL);
    let sent = tcp_train(5000, 1000);
    let copied =
        with_frame(&sent, |frame| port.send(&mut frame.fork(&mut Vec::new()), Beyond::NONE));
    assert_eq!((copied, port.takes), (Ok(()), Takes { tcp_v4: false, ..ALL }));
}

#[test]
fn trains_of_a_kind_that_was_refused_are_cut_to_complete_packets() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    port.cut_kind(GsoType::TCPV4);
    assert_eq!(port.takes, Takes { tcp_v4: false, ..ALL });
    assert_eq!(send(&mut port, &tcp_train(2500, 1000)), Ok(()));
    let packets = wire.received(3);
    // The checksum may be what was refused.
    assert!(packets.iter().all(|(header, _)| *header == NetHeader::PLAIN));
    assert_eq!(packets.iter().map(|(_, p)| p.len()).collect::<Vec<_>>(), [1054, 1054, 554]);
}

/// Linux refuses them, so a guest could have the trains of all others cut.
#[test]
fn trains_that_linux_refuses_for_themselves_are_cut_and_cost_no_other_sender_anything() {
    let (meta, unsummed) = tcp_train(2500, 1000);
    let odd = [
        // `GSO_BY_FRAGS`.
        (tcp_train(1200, u16::MAX), 1),
        (tcp_train(900, 1000), 1),
        (udp_train(129 * 20, 20), 129),
        ((NetHeader { flags: 0, csum_start: 0, csum_offset: 0, ..meta }, unsummed), 3),
    ];
    for wire in [Wire::new(), Wire::netdev()].into_iter().flatten() {
        let mut port = wire.port(ALL);
        for (train, count) in &odd {
            assert_eq!(send(&mut port, train), Ok(()));
            assert_eq!((port.takes, port.is_in_doubt), (ALL, false));
            let packets = wire.received(*count);
            assert!(packets.iter().all(|(header, _)| !header.is_train()), "{:?}", train.0);
        }
        for good in [tcp_train(2500, 1000), udp_train(128 * 20, 20)] {
            assert_eq!(send(&mut port, &good), Ok(()));
            assert_eq!(wire.received(1)[0].1.len(), good.1.len(), "whole");
        }
    }
}

/// Linux before 6.9 takes half as many packets of UDP.
#[test]
fn a_refused_train_of_many_datagrams_says_nothing_about_its_kind() {
    let Some(wire) = Wire::new() else { return };
    for (count, takes) in [(65, ALL), (64, Takes { udp: false, ..ALL })] {
        let mut port = wire.port(ALL);
        with_frame(&udp_train(count * 20, 20), |frame| port.note_refused(frame));
        assert_eq!(port.takes, takes, "{count} packets");
    }
}

#[test]
fn a_kind_that_was_refused_is_tried_again_later() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    port.cut_kind(GsoType::TCPV4);
    assert_ne!(port.takes, ALL);
    port.cut_until = Some(Instant::now());
    let good = tcp_train(2500, 1000);
    assert_eq!(send(&mut port, &good), Ok(()));
    assert_eq!((port.takes, port.cut_until), (ALL, None));
    assert_eq!(wire.received(1)[0].1.len(), good.1.len(), "whole");
}

/// The kernel would take them, and lose them where they are to be cut.
#[test]
fn trains_whose_headers_linux_does_not_find_are_cut() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    let (meta, mut train) = vxlan_train(2500, 1000);
    // Any port may carry a tunnel.
    train[36..38].copy_from_slice(&9999_u16.to_be_bytes());
    assert_eq!(send(&mut port, &(meta, train.clone())), Ok(()));
    let copied = with_frame(&(meta, train.clone()), |frame| {
        port.send(&mut frame.fork(&mut Vec::new()), Beyond::NONE)
    });
    assert_eq!(copied, Ok(()));
    let packets = completed(wire.received(6));
    for packets in packets.chunks(3) {
        let inner = |packet: &Vec<u8>| checked_payload(&packet[OUTER_LEN..]).to_vec();
        let payload: Vec<_> = packets.iter().flat_map(inner).collect();
        assert!(payload == train[OUTER_LEN + HEADERS_LEN..], "other bytes");
    }
    let legacy = Tag::new(EtherType::LEGACY_SERVICE_VLAN, 5);
    let service = Tag::new(EtherType::SERVICE_VLAN, 5);
    for (tag, count, frames) in [(legacy, 1, 3), (service, 7, 1), (service, 8, 3)] {
        let outcome = with_frame(&tcp_train(2500, 1000), |frame| {
            assert!((0..count).all(|_| frame.push_tag(tag)));
            port.send(frame, Beyond::NONE)
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(wire.received(frames).len(), frames, "{count} tags");
    }
}

/// A qdisc takes all trains, and the kernel cuts behind it what the interface does not take. A
/// train it cannot cut is lost there without an error.
#[test]
fn trains_behind_many_tags_are_cut_behind_a_discipline_or_before() {
    let Some(mut wire) = Wire::netdev() else { return };
    wire.netlink.set_qdisc("near", &QdiscSpec::new("pfifo")).unwrap();
    wire.netlink.set_feature("near", Feature::Tso, false).unwrap();
    let tag = Tag::new(EtherType::VLAN, 5);
    for count in [2, 7, 8, 12] {
        let (meta, train) = tcp_train(2500, 1000);
        let outcome = with_frame(&(meta, train.clone()), |frame| {
            assert!((0..count).all(|_| frame.push_tag(tag)));
            wire.port(ALL).send(frame, Beyond::NONE)
        });
        assert_eq!(outcome, Ok(()));
        let payload = |(_, packet): &(_, Vec<u8>)| packet[HEADERS_LEN + 4 * count..].to_vec();
        let payload: Vec<_> = wire.received(3).iter().flat_map(payload).collect();
        assert!(payload == train[HEADERS_LEN..], "{count} tags");
    }
}

/// In a tunnel, and also for a copy with headers of its own.
#[test]
fn a_checksum_in_a_tunnel_is_completed() {
    for (wire, mut port) in finished_ports() {
        let sent = vxlan_train(801, 0);
        let outcome = with_frame(&sent, |frame| {
            assert_eq!(port.send(frame, Beyond::NONE), Ok(()));
            port.send(&mut frame.fork(&mut Vec::new()), Beyond::NONE)
        });
        assert_eq!(outcome, Ok(()));
        for (_, packet) in wire.received(2) {
            assert!(checked_payload(&packet[OUTER_LEN..]) == &sent.1[OUTER_LEN + HEADERS_LEN..]);
        }
    }
}

/// The metadata is that of a veth, which does not mention the CRC.
#[test]
fn the_checksum_of_sctp_is_completed_for_every_port() {
    let Some(wire) = Wire::new() else { return };
    for takes in [ALL, Takes::NOTHING] {
        let (meta, mut frame) = tcp_train(0, 0);
        frame[23] = 132;
        frame[42..46].fill(0);
        let sent = (NetHeader { csum_offset: 8, ..meta }, frame);
        let outcome = with_frame(&sent, |frame| {
            let sent_now = wire.port(takes).send(frame, Beyond::NONE);
            assert_eq!((frame.meta, frame.head()), (sent.0, &sent.1[..]), "as it was");
            sent_now
        });
        assert_eq!(outcome, Ok(()));
        let (header, packet) = wire.received(1).remove(0);
        assert_eq!(header, NetHeader::PLAIN);
        let (mut expected, mut undone) = (sent.1.clone(), sent.0);
        complete_checksum(&mut undone, &mut expected, &[]).unwrap();
        assert!(packet == expected && packet[42..46] != [0; 4]);
    }
}

/// A veth cuts trains itself, and returns the same error for one it cannot cut as when it is full.
#[test]
fn a_train_that_an_interface_cannot_cut_is_no_reason_to_wait() {
    let Some(wire) = Wire::netdev() else { return };
    let mut port = wire.port(ALL);
    let (meta, mut frame) = tcp_train(5000, 1000);
    frame[12] = 0x12;
    let no_ip = (meta, frame);
    assert_eq!(send(&mut port, &no_ip), Err(DropReason::CannotSegment));
    assert_eq!(port.takes, ALL);
    assert_eq!(send(&mut port, &tcp_train(300, 0)), Ok(()));
    assert_eq!(wire.received(1).len(), 1);
}

#[test]
fn a_bad_train_says_nothing_about_its_kind() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    // Not where the checksum of UDP is: neither the kernel nor we can cut it.
    let (meta, frame) = udp_train(2500, 1000);
    let lie = NetHeader { csum_offset: 16, ..meta };
    assert_eq!(send(&mut port, &(lie, frame)), Err(DropReason::CannotSegment));
    assert_eq!(port.takes, ALL);
    let good = udp_train(2500, 1000);
    assert_eq!(send(&mut port, &good), Ok(()));
    assert_eq!(wire.received(1)[0].1.len(), good.1.len(), "whole");
}

#[test]
fn tags_may_use_up_the_headroom() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    let sent = tcp_train(300, 0);
    let tag = Tag::new(EtherType::SERVICE_VLAN, 5);
    for count in [1, 13, 14, 16] {
        let outcome = with_frame(&sent, |frame| {
            assert!((0..count).all(|_| frame.push_tag(tag)));
            port.send(frame, Beyond::NONE)
        });
        assert_eq!(outcome, Ok(()));
        let (header, received) = wire.received(1).remove(0);
        let tags = [tag.tpid, tag.tci].concat().repeat(count);
        let expected = [&sent.1[..12], &tags, &sent.1[12..]].concat();
        assert!(received == expected, "{count} tags");
        assert_eq!(usize::from(header.csum_start), 34 + 4 * count);
    }
}

#[test]
fn a_port_that_is_down_or_gone_says_so() {
    let Some(mut wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    let (packet, train) = (tcp_train(300, 0), tcp_train(2500, 1000));
    wire.netlink.set_down("eth0").unwrap();
    assert_eq!(send(&mut port, &packet), Err(DropReason::PortDown));
    assert_eq!(send(&mut port, &train), Err(DropReason::PortDown));
    assert_eq!(send(&mut wire.port(NONE), &train), Err(DropReason::PortDown));
    assert_eq!(port.takes, ALL);
    wire.netlink.delete("eth0").unwrap();
    assert_eq!(send(&mut port, &packet), Err(DropReason::EgressFailed));
}

#[test]
fn ports_are_found_by_number() {
    let Some(wire) = Wire::new() else { return };
    let mut ports = TxPorts::default();
    for number in [PortNo(1), PortNo::LOCAL, PortNo(MAX_PORT), PortNo(MAX_PORT + 1)] {
        ports.insert(number, wire.port(ALL));
    }
    for (number, there) in [(1, true), (2, false), (MAX_PORT, true), (MAX_PORT + 1, false)] {
        assert_eq!(ports.find(ports::index(PortNo(number))).is_ok(), there, "{number}");
    }
    assert!(
        ports.find(ports::index(PortNo::LOCAL)).is_ok()
            && ports.find(ports::index(PortNo::ANY)).is_err()
    );
}

/// Frames on one of the sockets wait for the neighbour of an address that nobody has.
#[test]
fn a_socket_of_a_tunnel_that_is_full_holds_up_no_other() {
    let Some(namespace) = namespace() else { return };
    let mut netlink = Netlink::open(&namespace).unwrap();
    netlink.create_veth("eth0", "near", &namespace).unwrap();
    netlink.set_up("near").unwrap();
    netlink.add_address("near", [192, 0, 2, 1].into(), 24).unwrap();
    let vni = tunnel::Vni::new(42).unwrap();
    let config = tunnel::Config::new([192, 0, 2, 2].into(), vni).send_buffer_len(0);
    let open = |_: &str| TxDevice::Vxlan(tunnel::VxlanPort::open(&config).unwrap().into());
    let wire = Wire::over(namespace, open);
    let port = Port::new(PortNo(1), "p1".to_owned(), MacAddr::ZERO, 1500, 1).into();
    let claim = Claim::new(WorkerIndex(0), &port);
    let mut ports = TxPorts::default();
    ports.insert(PortNo(1), wire.port(Takes::NOTHING));
    ports.begin_burst(true, Millis(0));
    let mut send = |source: u8| {
        let (_, mut bytes) = tcp_train(1000, 0);
        bytes[35] = source;
        let lane = device::flow(&bytes) as usize % tunnel::SENDERS;
        let sent = with_frame(&(NetHeader::PLAIN, bytes), |frame| {
            ports.send(PortNo(1), frame, Beyond::NONE, &claim)
        });
        (lane, sent)
    };
    let full = send(0).0;
    assert!((0..1000).any(|_| send(0) == (full, Ok(Sent::Later))), "it is full");
    for source in 1..=u8::MAX {
        let (lane, sent) = send(source);
        if lane == full {
            assert_eq!(sent, Ok(Sent::Later));
        } else {
            assert_eq!(sent, Ok(Sent::Now));
            break;
        }
    }
    ports.clear();
}
