//! A tap device with NAPI in a network namespace.

use std::cell::RefCell;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tapswitch_netdev::{HEADROOM_MIN, PacketPort, RECV_BUF_LEN};
use tapswitch_netlink::{Netlink, OwnedNamespace, Sysfs};
use tapswitch_tap as tap;
use tapswitch_wire::{NetHeader, NetHeaderFlags, parse};

use crate::packets::around::Around;
use crate::packets::{C_TAG, Frame, Packet, coalesce, frames, wire_packets};

/// Passes packets into the kernel, and captures what its stack receives.
pub(crate) struct Kernel {
    queue: tap::Queue,
    far_end: PacketPort,
    knows_udp_trains: bool,
    namespace: OwnedNamespace,
}

impl Kernel {
    /// `None`, with a message, if it cannot be created.
    pub(crate) fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
            skip("needs root and /dev/net/tun");
            return None;
        }
        let name = format!("gro-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let namespace = OwnedNamespace::create(&name).unwrap();
        let make = || {
            fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
            tap::Device::create(&tap::Config::new("t0".parse().unwrap()).napi(true)).unwrap()
        };
        let device = namespace.enter(make).unwrap();
        let mut netlink = Netlink::open(&namespace).unwrap();
        // A switch, like a router, receives datagrams that are not for its host.
        netlink.set_feature_by_name("t0", "rx-udp-gro-forwarding", true).unwrap();
        Sysfs::open(&namespace).unwrap().write("t0", "gro_flush_timeout", FLUSH_NS).unwrap();
        netlink.set_up("t0").unwrap();
        let config = tapswitch_netdev::Config::default();
        let far_end = namespace.enter(|| PacketPort::open("t0", &config).unwrap()).unwrap();
        let knows_udp_trains = device.capabilities().send.contains(tap::Offloads::USO);
        let queue = device.into_queues().remove(0);
        Some(Self { queue, far_end, knows_udp_trains, namespace })
    }

    /// Kinds that can be compared: before Linux 6.2, metadata does not describe UDP trains.
    pub(crate) fn kinds(&self) -> Vec<Packet> {
        let mut kinds = Packet::of_every_kind().to_vec();
        kinds.truncate(if self.knows_udp_trains { 4 } else { 2 });
        kinds
    }

    /// Creates the devices that open the kernel's ports and load its modules for tunnels.
    /// [`Self::sees_inside`] shows which are missing.
    pub(crate) fn make_tunnels(&self) {
        for (name, kind) in TUNNELS {
            let add = format!("link add {name} type {kind} external");
            for arguments in [add, format!("link set {name} up")] {
                let run = || Command::new("ip").args(arguments.split(' ')).output();
                let _ = self.namespace.enter(run);
            }
        }
    }

    /// Whether trains are formed inside such a tunnel.
    pub(crate) fn sees_inside(&self, around: &Around) -> bool {
        self.joins(&Packet::tcp_v4().inside(around))
    }

    /// Whether trains are formed after a tag.
    pub(crate) fn sees_through_tags(&self) -> bool {
        self.joins(&Packet::tcp_v4().tagged(&[C_TAG]))
    }

    /// Whether `packet` and the next one form a train of their innermost flow.
    fn joins(&self, packet: &Packet) -> bool {
        let packets = packet.stream(2);
        (0..ATTEMPTS).any(|_| {
            let seen = self.forward(&frames(&packets));
            seen.len() == 1 && usize::from(seen[0].0.csum_start) == packet.upper_at()
        })
    }

    /// Compares the kernel's result for `packets` with ours.
    pub(crate) fn compare(&self, packets: &[Packet]) {
        let sent = frames(packets);
        let ours = coalesce(&sent).into_iter().map(|made| (made.meta, made.bytes));
        let ours = normal(ours.collect());
        let theirs = RefCell::new(Vec::new());
        let agree = || {
            *theirs.borrow_mut() = normal(self.forward(&sent));
            *theirs.borrow() == ours
        };
        self.until_untouched(agree, || {
            let (shown, kernels) = (shapes(&ours), shapes(&theirs.borrow()));
            let first = first_difference(&ours, &theirs.borrow());
            let around = packets.iter().map(|packet| &packet.around).collect::<Vec<_>>();
            format!("ours {shown:?}\nthe kernel's {kernels:?}\nat {first:?}\nin {around:?}")
        });
    }

    /// Repeats a comparison, as a tick of the kernel's clock may disturb it.
    pub(crate) fn until_untouched(
        &self,
        mut holds: impl FnMut() -> bool,
        why: impl FnOnce() -> String,
    ) {
        if !(0..ATTEMPTS).any(|_| holds()) {
            panic!("{}", why());
        }
    }

    /// Sends packets and returns what the stack receives.
    pub(crate) fn forward(&self, sent: &[Frame]) -> Vec<Frame> {
        let whole: Vec<_> =
            sent.iter().map(|(meta, bytes)| [&meta.encode()[..], bytes].concat()).collect();
        whole.iter().for_each(|bytes| self.queue.send(bytes).unwrap());
        let (mut seen, mut count) = (Vec::new(), 0);
        let deadline = Instant::now() + PATIENCE;
        let mut buf = vec![0; RECV_BUF_LEN];
        while count < sent.len() {
            let Some(received) = self.far_end.recv(&mut buf, HEADROOM_MIN).unwrap() else {
                assert!(Instant::now() < deadline, "{count} of {} packets", sent.len());
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let frame = (received.header, buf[received.frame].to_vec());
            count += wire_packets(&frame).len();
            seen.push(frame);
        }
        seen
    }
}

/// Sorts by flow, because the order of flows differs, and removes hints, marks of verified
/// checksums, and descriptions of tunnels, which packet sockets do not report.
fn normal(mut frames: Vec<Frame>) -> Vec<Frame> {
    frames.sort_by_key(|(_, bytes)| {
        let key = parse(bytes).unwrap().key;
        (key.ip_src, key.ip_proto, key.l4_src)
    });
    for (meta, _) in &mut frames {
        meta.hdr_len = 0;
        meta.flags &= !(NetHeaderFlags::DATA_VALID | NetHeaderFlags::UDP_TUNNEL_CSUM);
        meta.gso_type = meta.gso_type.inner();
    }
    frames
}

/// Index of the first frame that differs, and of its first such byte.
fn first_difference(ours: &[Frame], theirs: &[Frame]) -> Option<(usize, Option<usize>)> {
    let at = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs)?;
    let bytes = ours[at].1.iter().zip(&theirs[at].1);
    Some((at, bytes.into_iter().position(|(ours, theirs)| ours != theirs)))
}

/// Length and metadata of each frame.
fn shapes(frames: &[Frame]) -> Vec<(usize, NetHeader)> {
    frames.iter().map(|(meta, bytes)| (bytes.len(), *meta)).collect()
}

/// Prints that something is not compared.
pub(crate) fn skip(reason: &str) {
    tapswitch_helpers::skip(&format!("the kernel's GRO: {reason}"));
}

/// Names and kinds of devices that enable GRO inside tunnels.
const TUNNELS: [(&str, &str); 4] =
    [("v0", "vxlan dstport 4789"), ("g0", "geneve"), ("e0", "gretap"), ("e1", "ip6gretap")];
/// How long packets wait for others, in nanoseconds.
const FLUSH_NS: &str = "10000000";
/// Maximum attempts of a comparison.
const ATTEMPTS: u32 = 200;
const PATIENCE: Duration = Duration::from_secs(30);
