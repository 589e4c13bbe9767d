//! Trains of Linux's own tunnel devices, segmented by Linux and by us.
//!
//! A train is written into one tap and leaves through another, inside a tunnel: bridged if the
//! tunnel carries Ethernet, routed if it carries IP. The second tap has no offloads, so the kernel
//! must segment the train. We put the outer headers of its first packet around the train and
//! segment that; the packets must be identical to the kernel's. UDP tunnels are also tested in
//! another way: with tunnel offloads, the second tap returns trains with the kernel's own metadata.
//!
//! Same requirements as `kernel.rs`. Devices that the kernel lacks are reported as skipped; a guest
//! with Linux 7.3 has all of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on lengths that they chose"
)]

mod common;
#[path = "common/netns.rs"]
mod netns;

use std::fs;
use std::io;
use std::time::Instant;

use common::{C_TAG, Ip, Train, cut, cut_with};
use netns::{PATIENCE, Tap, ip};
use tapswitch_guest::{Rig, Series};
use tapswitch_offload::{SplitOptions, Verdict, verify};
use tapswitch_wire::{GsoType, LongNetHeader, NetHeader, NetHeaderFlags, read_u16, write_u16};

const LINUX_7_3: Rig = Rig::new(Series::V7_3)
    .modules(&[
        "tun",
        "bridge",
        "vxlan",
        "geneve",
        "ip_gre",
        "ip6_gre",
        "ipip",
        "sit",
        "ip6_tunnel",
    ])
    .programs(&["ip"]);

#[test]
fn tunnels_that_carry_ethernet() {
    let others = [
        Device::new("Geneve over IPv6", "geneve id 5 remote FAR udp6zerocsumtx", Outer::V6),
        Device::new("GRE with Ethernet", "gretap REMOTE ttl 64", Outer::V4),
        Device::new("NVGRE", "gretap REMOTE ttl 64 key 5", Outer::V4),
        Device::new("GRE with a checksum", "gretap REMOTE ttl 64 key 5 ocsum", Outer::V4),
        Device::new("GRE over IPv6", "ip6gretap REMOTE ocsum", Outer::V6),
    ];
    for device in udp_tunnels().into_iter().chain(others) {
        device.test(|path| {
            for train in all_trains() {
                path.compare(&train);
                // The kernel segments tagged trains before Geneve encapsulates them.
                if !path.device.name.contains("Geneve") {
                    path.compare(&train.tagged(&[C_TAG]));
                }
            }
        });
    }
}

#[test]
fn tunnels_that_carry_ip() {
    for device in [
        Device::new("GRE", "gre REMOTE ttl 64", Outer::V4).routed(),
        Device::new("GRE with key and checksum", "gre REMOTE ttl 64 key 5 ocsum", Outer::V4)
            .routed(),
        Device::new("GRE over IPv6", "ip6gre REMOTE", Outer::V6).routed(),
        Device::new("IPv4 in IPv4", "ipip REMOTE ttl 64", Outer::V4).routed().carrying(&[4]),
        Device::new("IPv6 in IPv4", "sit REMOTE ttl 64", Outer::V4).routed().carrying(&[6]),
        Device::new("IP in IPv6", "ip6tnl REMOTE mode any encaplimit none", Outer::V6).routed(),
    ] {
        let carried = device.carried;
        device.test(|path| {
            for train in all_trains() {
                let version = if matches!(train.ip, Ip::V4 { .. }) { 4 } else { 6 };
                if carried.contains(&version) {
                    path.compare(&train);
                }
            }
        });
    }
}

#[test]
fn metadata_of_the_kernels_own_making() {
    let geneve_v6 = Device::new("Geneve over IPv6", "geneve id 5 remote FAR", Outer::V6);
    for device in udp_tunnels().into_iter().chain([geneve_v6]) {
        let has_checksum = !device.specification.contains("noudpcsum");
        device.test(move |path| {
            for train in all_trains() {
                path.compare_metadata(&train, has_checksum);
                // The kernel segments trains with more tags before Geneve and VXLAN encapsulate
                // them.
                if path.device.name.contains("VXLAN") {
                    path.compare_metadata(&train.tagged(&[C_TAG]), has_checksum);
                }
            }
        });
    }
}

/// UDP tunnels, which are tested in both ways.
fn udp_tunnels() -> [Device; 4] {
    [
        Device::new("VXLAN", "vxlan id 5 dstport 4789 REMOTE udpcsum", Outer::V4),
        Device::new(
            "VXLAN without checksum",
            "vxlan id 5 dstport 4789 REMOTE noudpcsum",
            Outer::V4,
        ),
        Device::new("VXLAN over IPv6", "vxlan id 5 dstport 4789 REMOTE", Outer::V6),
        Device::new("Geneve", "geneve id 5 remote FAR udpcsum", Outer::V4),
    ]
}

#[test]
fn all_this_holds_on_linux_7_3() {
    LINUX_7_3.test_all();
}

fn all_trains() -> impl Iterator<Item = Train> {
    let kinds = [Train::tcp_v4(), Train::tcp_v6(), Train::udp_v4(), Train::udp_v6()];
    kinds.into_iter().flat_map(|train| [train.clone(), train.sized(4001, 1001)])
}

/// A tunnel device.
#[derive(Clone, Copy, Debug)]
struct Device {
    name: &'static str,
    /// Arguments of `ip link add … type`: REMOTE stands for both addresses, FAR for the other one.
    specification: &'static str,
    outer: Outer,
    is_routed: bool,
    /// IP versions that it carries.
    carried: &'static [u8],
}

/// IP version of the outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    V4,
    V6,
}

impl Device {
    const fn new(name: &'static str, specification: &'static str, outer: Outer) -> Self {
        Self { name, specification, outer, is_routed: false, carried: &[4, 6] }
    }

    /// For a device that carries IP.
    const fn routed(self) -> Self {
        Self { is_routed: true, ..self }
    }

    const fn carrying(self, carried: &'static [u8]) -> Self {
        Self { carried, ..self }
    }

    /// Runs `test` with a path through the device, in a network namespace of its own.
    fn test(self, test: impl FnOnce(&Path) + Send + 'static) {
        let what = format!("trains in {}", self.name);
        let told = what.clone();
        netns::run(&what, move || match Path::new(self) {
            Ok(path) => test(&path),
            Err(error) if error.to_string().contains("Unknown device type") => {
                netns::skip(&format!("{told}: the kernel has no such device"));
            }
            Err(error) => panic!("{told}: {error}"),
        });
    }
}

/// A path on which frames written into `from` leave through `to` inside a tunnel.
struct Path {
    from: Tap,
    to: Tap,
    device: Device,
}

impl Path {
    fn new(device: Device) -> io::Result<Self> {
        let path = Self { from: Tap::new("from")?, to: Tap::new("to")?, device };
        for (switch, value) in SWITCHES {
            fs::write(switch, value)?;
        }
        let (near, far, prefix) = match device.outer {
            Outer::V4 => ("10.9.0.1", "10.9.0.2", "24"),
            Outer::V6 => ("fd09::1", "fd09::2", "64 nodad"),
        };
        ip("link set dev to mtu 9000 up")?;
        ip(&format!("addr add {near}/{prefix} dev to"))?;
        ip(&format!("neigh add {far} lladdr 02:00:00:00:00:99 dev to nud permanent"))?;
        let remote = format!("remote {far} local {near}");
        let specification = device.specification.replace("REMOTE", &remote).replace("FAR", far);
        ip(&format!("link add name tunnel mtu 8000 type {specification}"))?;
        if device.is_routed {
            path.route()?;
        } else {
            path.bridge()?;
        }
        path.wait_until_it_forwards();
        Ok(path)
    }

    fn bridge(&self) -> io::Result<()> {
        ip("link add name bridge mtu 8000 type bridge mcast_snooping 0")?;
        for name in ["from", "tunnel"] {
            ip(&format!("link set dev {name} master bridge mtu 8000 up"))?;
        }
        ip("link set dev bridge up")
    }

    /// Trains go from 10.0.0.1 to 10.0.0.2, or from fd00::1 to fd00::2.
    fn route(&self) -> io::Result<()> {
        ip("link set dev from address 02:00:00:00:00:0b mtu 8000 up")?;
        ip("link set dev tunnel up")?;
        for route in ["10.0.0.0/24", "fd00::/64"] {
            // A device for one IP version rejects routes of the other.
            let _ = ip(&format!("route add {route} dev tunnel"));
        }
        fs::write("/proc/sys/net/ipv4/conf/from/rp_filter", "0")
    }

    /// Segments `train` by the kernel, and with the kernel's outer headers by us.
    fn compare(&self, train: &Train) {
        let kernels = self.numbered_packets(train);
        let first_len = train.headers_len() - train.upper_at()
            + train.payload_len.min(usize::from(train.gso_size));
        let upper_at = kernels[0].len() - first_len;
        let frame = [&kernels[0][..upper_at], &train.frame()[train.upper_at()..]].concat();
        let meta = NetHeader { csum_start: upper_at as u16, ..train.meta() };
        let ours = cut(&meta, &frame, &[])
            .unwrap_or_else(|error| panic!("{}: {error}: {train:?}", self.device.name));
        self.assert_same(train, &ours, &kernels);
    }

    /// Segments `train` by us with the kernel's metadata, and by the kernel.
    fn compare_metadata(&self, train: &Train, has_checksum: bool) {
        self.to.offload(ALL_OFFLOADS).unwrap();
        let (meta, frame) = self.forward(train);
        let tunnel = match self.device.outer {
            Outer::V4 => GsoType::UDP_TUNNEL_IPV4,
            Outer::V6 => GsoType::UDP_TUNNEL_IPV6,
        };
        assert_eq!(meta.base.gso_type.tunnel(), tunnel, "{train:?}");
        let flag = meta.base.flags & NetHeaderFlags::UDP_TUNNEL_CSUM != 0;
        assert_eq!(flag, has_checksum, "{train:?}");
        let ours = cut_with(&meta, &SplitOptions::default(), &frame, &[]).unwrap();
        assert_eq!(cut(&meta.base, &frame, &[]).unwrap(), ours, "the port says the tunnel, too");
        self.to.offload(0).unwrap();
        let kernels = self.packets(train);
        self.assert_same(train, &self.without_ids(ours), &self.without_ids(kernels));
    }

    fn assert_same(&self, train: &Train, ours: &[Vec<u8>], kernels: &[Vec<u8>]) {
        let what = self.device.name;
        assert_eq!(ours.len(), kernels.len(), "{what}: {train:?}");
        for (index, (ours, kernels)) in ours.iter().zip(kernels).enumerate() {
            assert_eq!(ours.len(), kernels.len(), "{what}: packet {index} of {train:?}");
            let differs = ours.iter().zip(kernels).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: offset in packet {index} of {train:?}");
        }
    }

    /// The packets with outer identifications 0, 1 and so on, as each train starts with another
    /// one.
    fn without_ids(&self, mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if self.device.outer == Outer::V6 {
            return packets;
        }
        let start = read_u16(&packets[0], 18);
        for packet in &mut packets {
            assert_eq!(verify(packet, &[]).network, Verdict::Valid);
            let id = read_u16(packet, 18).wrapping_sub(start);
            write_u16(packet, 18, id);
            write_u16(packet, 24, 0);
        }
        packets
    }

    /// The packets into which the kernel segments `train`, with consecutive or equal outer
    /// identifications. A train that is segmented before the tunnel is numbered packet by packet,
    /// and the kernel skips some numbers after a clock tick (`ip_idents_reserve`): then it is
    /// repeated.
    fn numbered_packets(&self, train: &Train) -> Vec<Vec<u8>> {
        let mut tries = (1..TRIES).map(|_| self.packets(train));
        let is_numbered = |packets: &Vec<Vec<u8>>| {
            let steps = packets
                .windows(2)
                .map(|pair| read_u16(&pair[1], 18).wrapping_sub(read_u16(&pair[0], 18)));
            self.device.outer == Outer::V6
                || steps.clone().all(|step| step == 1)
                || steps.clone().all(|step| step == 0)
        };
        tries.find(is_numbered).unwrap_or_else(|| self.packets(train))
    }

    /// The packets into which the kernel segments `train`.
    fn packets(&self, train: &Train) -> Vec<Vec<u8>> {
        let count = train.payload_len.div_ceil(usize::from(train.gso_size));
        let first = self.forward(train);
        let rest = (1..count).map(|_| self.next());
        let packets = [first].into_iter().chain(rest);
        packets
            .map(|(meta, frame)| {
                assert_eq!(meta, LongNetHeader::default(), "nothing is left undone");
                frame
            })
            .collect()
    }

    fn forward(&self, train: &Train) -> (LongNetHeader, Vec<u8>) {
        self.from.write(&train.long_meta(), &train.frame()).unwrap();
        self.next()
    }

    fn next(&self) -> (LongNetHeader, Vec<u8>) {
        let packet = self.next_before(Instant::now() + PATIENCE);
        packet.unwrap_or_else(|| panic!("{}: the packet gets lost", self.device.name))
    }

    /// The next packet of a train, without others such as IPv6 neighbour discovery.
    fn next_before(&self, deadline: Instant) -> Option<(LongNetHeader, Vec<u8>)> {
        loop {
            let (meta, frame) = self.to.read(deadline)?;
            if frame.windows(PORTS.len()).take(HEADERS_LEN_MAX).any(|four| four == PORTS) {
                return Some((meta, frame));
            }
        }
    }

    /// Links come up asynchronously: sends frames until one arrives, and discards the others.
    fn wait_until_it_forwards(&self) {
        let deadline = Instant::now() + PATIENCE;
        let soon = || Instant::now() + PATIENCE / 100;
        let version = self.device.carried[0];
        let train = if version == 4 { Train::udp_v4() } else { Train::udp_v6() };
        let frame = train.sized(100, 0).frame();
        loop {
            // The interface may still be down when the first ones are sent.
            let _ = self.from.write(&NetHeader::PLAIN.into(), &frame);
            if self.next_before(soon()).is_some() {
                while self.next_before(soon()).is_some() {}
                return;
            }
            assert!(Instant::now() < deadline, "{}: nothing gets through", self.device.name);
        }
    }
}

/// Both ports of all trains, which no other packet has.
const PORTS: [u8; 4] = [0x9c, 0x40, 0x01, 0xbb];
/// Maximum bytes before the ports in any of these tunnels.
const HEADERS_LEN_MAX: usize = 200;
/// Checksum, TSO for both IP versions, USO for both, UDP tunnels and their checksum (`TUN_F_*`).
const ALL_OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x20 | 0x40 | 0x80 | 0x100;
/// IPv6 is otherwise off; routes packets from any sender.
const SWITCHES: [(&str, &str); 6] = [
    ("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0"),
    ("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0"),
    ("/proc/sys/net/ipv6/conf/all/forwarding", "1"),
    ("/proc/sys/net/ipv4/ip_forward", "1"),
    ("/proc/sys/net/ipv4/conf/all/rp_filter", "0"),
    ("/proc/sys/net/ipv4/conf/default/rp_filter", "0"),
];

/// Maximum attempts until the kernel has numbered the packets of a train consecutively.
const TRIES: usize = 10;
