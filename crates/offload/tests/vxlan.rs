//! Trains that Linux's own VXLAN device makes, cut by Linux and by us.
//!
//! A bridge joins a tap with a VXLAN device, whose packets leave through a second tap. With the
//! offloads for tunnels on, that one hands out trains in tunnels with the metadata of the kernel's
//! own making; with them off it hands out what the kernel cuts them into. Both come from the same
//! train, so both must be the same, but for where the outer identification starts.
//!
//! Needs what `kernel.rs` needs, and the VXLAN device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;
#[path = "common/netns.rs"]
mod netns;

use std::io;
use std::time::Instant;

use common::{C_TAG, Train, cut, cut_with};
use netns::{PATIENCE, Tap, ip};
use tapswitch_offload::{SplitOptions, Verdict, verify};
use tapswitch_wire::{GsoType, LongNetHeader, NetHeader, NetHeaderFlags, read_u16, write_u16};

#[test]
fn trains_of_a_vxlan_device() {
    netns::run("trains of a VXLAN device", || {
        for outer in [Outer::V4, Outer::V6] {
            for has_checksum in [true, false] {
                let path = match Path::new(outer, has_checksum) {
                    Ok(path) => path,
                    Err(error) => {
                        return netns::skip("trains of a VXLAN device", &error.to_string());
                    }
                };
                for train in [Train::tcp_v4(), Train::tcp_v6(), Train::udp_v4(), Train::udp_v6()] {
                    path.compare(&train);
                    path.compare(&train.clone().sized(4001, 1001));
                    path.compare(&train.tagged(&[C_TAG]));
                }
            }
        }
    });
}

/// The IP that a tunnel runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    V4,
    V6,
}

/// What is written into `from` comes out of `to` inside VXLAN.
struct Path {
    from: Tap,
    to: Tap,
    outer: Outer,
    has_checksum: bool,
}

impl Path {
    fn new(outer: Outer, has_checksum: bool) -> io::Result<Self> {
        let path = Self { from: Tap::new("from")?, to: Tap::new("to")?, outer, has_checksum };
        let (local, remote, on, off) = match outer {
            Outer::V4 => ("10.9.0.1", "10.9.0.2", "udpcsum", "noudpcsum"),
            Outer::V6 => ("fd09::1", "fd09::2", "noudp6zerocsumtx", "udp6zerocsumtx"),
        };
        let checksum = if has_checksum { on } else { off };
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/to/disable_ipv6", "0");
        ip("link set dev to mtu 9000 up")?;
        let prefix = if outer == Outer::V4 { "24" } else { "64 nodad" };
        ip(&format!("addr add {local}/{prefix} dev to"))?;
        ip(&format!("neigh add {remote} lladdr 02:00:00:00:00:99 dev to nud permanent"))?;
        ip(&format!(
            "link add name tunnel mtu 8000 type vxlan id 5 dstport 4789 remote {remote} \
             local {local} dev to {checksum}"
        ))?;
        ip("link add name bridge mtu 8000 type bridge mcast_snooping 0")?;
        for name in ["from", "tunnel"] {
            ip(&format!("link set dev {name} master bridge mtu 8000 up"))?;
        }
        ip("link set dev bridge up")?;
        path.wait_until_it_forwards();
        Ok(path)
    }

    fn compare(&self, train: &Train) {
        self.to.offload(ALL_OFFLOADS).unwrap();
        let (meta, frame) = self.forward(train);
        let tunnel = match self.outer {
            Outer::V4 => GsoType::UDP_TUNNEL_IPV4,
            Outer::V6 => GsoType::UDP_TUNNEL_IPV6,
        };
        assert_eq!(meta.base.gso_type.tunnel(), tunnel, "{train:?}");
        let has_checksum = meta.base.flags & NetHeaderFlags::UDP_TUNNEL_CSUM != 0;
        assert_eq!(has_checksum, self.has_checksum);
        let ours = cut_with(&meta, &SplitOptions::default(), &frame, &[]).unwrap();
        assert_eq!(cut(&meta.base, &frame, &[]).unwrap(), ours, "the port says VXLAN, too");
        self.to.offload(0).unwrap();
        let count = ours.len();
        let (_, first) = self.forward(train);
        let rest = (1..count).map(|_| self.next().1);
        let kernels: Vec<_> = [first].into_iter().chain(rest).collect();
        let (ours, kernels) = (self.without_ids(ours), self.without_ids(kernels));
        for (index, (ours, kernels)) in ours.iter().zip(&kernels).enumerate() {
            assert_eq!(ours.len(), kernels.len(), "packet {index} of {train:?}");
            let differs = ours.iter().zip(kernels).position(|(a, b)| a != b);
            assert_eq!(differs, None, "offset in packet {index} of {train:?}");
        }
    }

    /// The packets with outer identifications of 0, 1 and so on.
    fn without_ids(&self, mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if self.outer == Outer::V6 {
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

    fn forward(&self, train: &Train) -> (LongNetHeader, Vec<u8>) {
        self.from.write(&train.long_meta(), &train.frame()).unwrap();
        self.next()
    }

    fn next(&self) -> (LongNetHeader, Vec<u8>) {
        self.next_before(Instant::now() + PATIENCE).expect("the packet gets lost")
    }

    /// The next packet of the tunnel; other things come out, too, such as hellos of IPv6.
    fn next_before(&self, deadline: Instant) -> Option<(LongNetHeader, Vec<u8>)> {
        loop {
            let (meta, frame) = self.to.read(deadline)?;
            let upper = if self.outer == Outer::V4 { 34 } else { 54 };
            if frame.len() > upper + 4 && read_u16(&frame, upper + 2) == 4789 {
                return Some((meta, frame));
            }
        }
    }

    /// Links come up asynchronously: sends frames until one arrives, and lets the others pass.
    fn wait_until_it_forwards(&self) {
        let deadline = Instant::now() + PATIENCE;
        let frame = Train::udp_v4().sized(100, 0).frame();
        let soon = || Instant::now() + PATIENCE / 200;
        loop {
            // The interface may still be down when the first ones are sent.
            let _ = self.from.write(&NetHeader::PLAIN.into(), &frame);
            if self.next_before(soon()).is_some() {
                while self.next_before(soon()).is_some() {}
                return;
            }
            assert!(Instant::now() < deadline, "the tunnel never forwards");
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for name in ["tunnel", "bridge"] {
            let _ = ip(&format!("link delete dev {name}"));
        }
    }
}

/// Checksum, TSO for both IPs, USO for both, UDP tunnels, and their checksum (`TUN_F_*`).
const ALL_OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x20 | 0x40 | 0x80 | 0x100;
