//! What arrives behind a tap device when the port takes trains, and when it does not.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tapswitch_datapath::HEADROOM;
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_wire::{EtherType, Tag, parse};

use super::*;
use crate::test_frames::{HEADERS_LEN, checked_payload, tcp_train};

const ALL: TrainKinds = TrainKinds { tcp_v4: true, tcp_v6: true, udp: true };
const NONE: TrainKinds = TrainKinds { tcp_v4: false, tcp_v6: false, udp: false };

/// A tap device whose kernel's end is watched.
struct Wire {
    queue: Arc<tap::Queue>,
    far_end: PacketPort,
    netlink: Netlink,
    _namespace: OwnedNamespace,
}

impl Wire {
    /// `None`, said loudly, when it cannot be made here.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
            let _ = io::stdout().write_all(b"\nSKIP: needs root and /dev/net/tun\n");
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = OwnedNamespace::create(&format!("swtx-{}-{count}", std::process::id()));
        let namespace = namespace.unwrap();
        let quiet = || {
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
            tap::Device::create(&tap::Config::new("eth0".parse().unwrap())).unwrap()
        };
        let tap = namespace.enter(quiet).unwrap();
        let mut netlink = Netlink::open(&namespace).unwrap();
        netlink.set_up("eth0").unwrap();
        let open = || PacketPort::open("eth0", &Config::default()).unwrap();
        let far_end = namespace.enter(open).unwrap();
        let queue = Arc::new(tap.into_queues().remove(0));
        Some(Self { queue, far_end, netlink, _namespace: namespace })
    }

    fn port(&self, whole: TrainKinds) -> TxPort {
        TxPort::new(TxDevice::Tap(self.queue.clone()), whole)
    }

    /// The frames that arrived: the next `count` of them.
    fn received(&self, count: usize) -> Vec<(NetHeader, Vec<u8>)> {
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

/// Lets `action` have the frame behind some headroom.
fn with_frame<R>(
    (meta, bytes): &(NetHeader, Vec<u8>),
    action: impl FnOnce(&mut Frame<'_>) -> R,
) -> R {
    let mut buf = [vec![0; HEADROOM], bytes.clone()].concat();
    let layout = parse(bytes).unwrap().layout;
    action(&mut Frame::new(*meta, layout, &mut buf, HEADROOM, 0))
}

fn send(port: &mut TxPort, sent: &(NetHeader, Vec<u8>)) -> Result<(), DropReason> {
    with_frame(sent, |frame| port.send(frame))
}

#[test]
fn a_train_that_the_port_takes_stays_whole() {
    let Some(wire) = Wire::new() else { return };
    let sent = tcp_train(2500, 1000);
    let mut port = wire.port(ALL);
    assert_eq!(send(&mut port, &sent), Ok(()));
    // A copy with headers of its own goes as two pieces and is the same.
    let copied = with_frame(&sent, |frame| port.send(&mut frame.fork(&mut Vec::new())));
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
    let copied = with_frame(&sent, |frame| port.send(&mut frame.fork(&mut Vec::new())));
    assert_eq!(copied, Ok(()));
    let packets = wire.received(6);
    assert!(packets.iter().all(|(header, _)| *header == NetHeader::PLAIN));
    for packets in packets.chunks(3) {
        let payload: Vec<_> = packets.iter().flat_map(|(_, p)| checked_payload(p)).collect();
        assert!(payload.into_iter().eq(&sent.1[HEADERS_LEN..]), "other bytes");
    }
}

#[test]
fn kinds_of_trains_are_told_apart() {
    let only_v6 = TrainKinds { tcp_v6: true, ..NONE };
    assert!(only_v6.contains(GsoType::TCPV6) && !only_v6.contains(GsoType::TCPV4));
    let with_ecn = GsoType(GsoType::TCPV6.0 | 0x80);
    assert!(only_v6.contains(with_ecn));
    assert!(!ALL.contains(GsoType::UDP), "trains of fragments are nobody's");
    let offloads = tap::Offloads::CSUM | tap::Offloads::TSO4;
    assert_eq!(TrainKinds::from(offloads), TrainKinds { tcp_v4: true, ..NONE });
}

/// Linux refuses this size (`GSO_BY_FRAGS`), as an old one refuses a kind that it does not know.
#[test]
fn a_train_that_the_kernel_refuses_is_cut_and_so_are_those_after_it() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    let refused = tcp_train(2500, u16::MAX);
    assert_eq!(send(&mut port, &refused), Ok(()));
    assert_eq!(port.whole, TrainKinds { tcp_v4: false, ..ALL });
    assert_eq!(send(&mut port, &tcp_train(2500, 1000)), Ok(()));
    let packets = wire.received(4);
    assert_eq!(checked_payload(&packets[0].1), &refused.1[HEADERS_LEN..]);
    assert_eq!(packets[1..].iter().map(|(_, p)| p.len()).collect::<Vec<_>>(), [1054, 1054, 554]);
}

#[test]
fn a_bad_train_says_nothing_about_its_kind() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    // No TCP, whatever the metadata says: neither the kernel nor we can cut it.
    let (meta, mut frame) = tcp_train(2500, u16::MAX);
    frame[23] = 17;
    assert_eq!(send(&mut port, &(meta, frame)), Err(DropReason::CannotSegment));
    assert_eq!(port.whole, ALL);
    assert_eq!(send(&mut port, &tcp_train(2500, 1000)), Ok(()));
    assert_eq!(wire.received(1)[0].1.len(), HEADERS_LEN + 2500);
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
            port.send(frame)
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
    assert_eq!(port.whole, ALL);
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
        assert_eq!(ports.find(PortNo(number)).is_some(), there, "{number}");
    }
    assert!(ports.find(PortNo::LOCAL).is_some() && ports.find(PortNo::ANY).is_none());
}
