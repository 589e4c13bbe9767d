//! Comparison with Linux's software segmentation.
//!
//! Two taps are ports of a bridge in a network namespace. A train written into the first leaves
//! through the second, which has no offloads, so the kernel must segment it. The result must be
//! identical to that of [`Segments`](tapswitch_offload::Segments). The namespace and its devices
//! disappear with the thread that created it.
//!
//! Intended differences (Linux 6.18):
//! - The kernel loses a TCP train whose payload just fits one packet: its check of the metadata
//!   counts options (and more, without a partial checksum) as payload and accepts the train, and
//!   segmentation then refuses it. We pass it on. In a tunnel, the kernel damages a train of one
//!   packet of any size.
//! - Later kernels (7.3) segment TCP trains with a `gso_size` below 8 as if it were 8. We use the
//!   given one.
//! - Without the ECN bit the kernel clears CWR on all packets except the first, unless the train is
//!   marked as AccECN's (`SKB_GSO_TCP_ACCECN`), which `virtio_net_hdr` cannot express. We repeat
//!   it: a sender of RFC 3168 §6.1.2 sets the bit (RFC 9768 §3.2.2).
//! - The kernel does not parse tags of type 0x9100, and at most 7 tags; we do.
//! - IPv6 fragments after extension headers: the kernel counts these in the offset, so a receiver
//!   finds gaps. We count only the payload (RFC 8200 §4.5).
//! - The kernel accepts trains in UDP tunnels from a tap, in other tunnels only from its own
//!   devices.
//! - The kernel repeats fragment fields and removes jumbo options; we refuse both.
//! - Bridge netfilter would trim a frame to the IP length before segmentation; it is disabled here.
//!
//! Needs root, `/dev/net/tun`, `ip` and [`KERNEL`](netns::KERNEL) or newer: older kernels refuse
//! and segment differently. Without them the tests print `SKIP:` and pass.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;
#[path = "common/netns.rs"]
mod netns;

use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant};

use common::{
    ACK, C_TAG, Encapsulation, Ip, LEGACY_TAG, S_TAG, Train, Tunnel, Upper, cut, cut_with, trains,
    with_zero_checksum,
};
use netns::{PATIENCE, Tap, ip};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tapswitch_guest::{Rig, Series};
use tapswitch_offload::{ChecksumRule, IdRule, Segments, SplitOptions, complete_checksum};
use tapswitch_wire::{GsoType, LongNetHeader, NetHeader, NetHeaderFlags, ipv6, read_u32, tcp};

const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(&["tun", "bridge"]).programs(&["ip"]);

#[test]
fn trains_of_every_kind() {
    in_namespace(|path| {
        for train in every_kind_of_train().filter(|train| !is_rounded(train)) {
            path.compare(&train);
        }
    });
}

#[test]
fn flags_of_tcp() {
    in_namespace(|path| {
        let flags = [
            ACK | tcp::FIN | tcp::PSH,
            ACK | tcp::CWR,
            ACK | tcp::CWR | tcp::PSH | tcp::FIN,
            0xff,
            0,
        ];
        for flags in flags {
            for bits in [0, GsoType::ECN] {
                for train in [Train::tcp_v4(), Train::tcp_v6().tagged(&[S_TAG, C_TAG])] {
                    let train = train.flags(flags).gso_bits(bits);
                    if !repeats_cwr(&train) {
                        path.compare(&train);
                    }
                }
            }
        }
    });
}

#[test]
fn headers_of_every_length() {
    in_namespace(|path| {
        for words in 0..=10 {
            let mut train = Train::tcp_v4();
            train.ip =
                Ip::V4 { options: words, dont_fragment: words % 2 == 0, identification: 0xfffe };
            path.compare(&train);
            train.upper =
                Upper::Tcp { options: words, flags: ACK, sequence: u32::MAX - 1, gso_bits: 0 };
            path.compare(&train);
        }
        let chains: [&[u8]; 4] = [
            &[ipv6::HOP_BY_HOP],
            &[ipv6::ROUTING],
            &[ipv6::DESTINATION_OPTIONS; 8],
            &[ipv6::HOP_BY_HOP, ipv6::ROUTING, ipv6::DESTINATION_OPTIONS],
        ];
        for chain in chains {
            for mut train in [Train::tcp_v6(), Train::udp_v6()] {
                train.ip = Ip::V6 { extensions: chain.to_vec() };
                path.compare(&train);
            }
        }
    });
}

#[test]
fn trains_that_fit_one_packet() {
    in_namespace(|path| {
        for payload_len in [0, 1, 99, 1436] {
            for train in [Train::tcp_v4(), Train::tcp_v6(), Train::udp_v4()] {
                path.compare(&train.sized(payload_len, 1448).flags(0xff));
            }
        }
    });
}

#[test]
fn checksums_from_nothing_and_from_nonsense() {
    in_namespace(|path| {
        for mut train in [Train::tcp_v4(), Train::tcp_v6().tagged(&[C_TAG])] {
            train.is_partial = false;
            path.compare(&train);
        }
        for train in [Train::tcp_v4(), Train::udp_v4(), Train::udp_v6()] {
            let at = train.upper_at() + usize::from(train.meta().csum_offset);
            for partial in [[0, 0], [0xff, 0xff], [0x12, 0x34]] {
                let mut frame = train.frame();
                frame[at..at + 2].copy_from_slice(&partial);
                path.compare_frame(&train, &frame);
            }
            path.compare_frame(&train, &with_zero_checksum(&train));
        }
    });
}

#[test]
fn lengths_that_lie() {
    in_namespace(|path| {
        for train in [Train::tcp_v4(), Train::udp_v4()] {
            for length in [[0, 0], [0, 1], [0xff, 0xff]] {
                let mut frame = train.frame();
                frame[16..18].copy_from_slice(&length);
                path.compare_frame(&train, &frame);
            }
        }
        for train in [Train::tcp_v6(), Train::udp_v6()] {
            let mut padded = train.frame();
            padded.extend([0; 5]);
            path.compare_frame(&train, &padded);
            padded[18..20].copy_from_slice(&[0, 0]);
            path.compare_frame(&train, &padded);
        }
        let train = Train::udp_v6();
        let mut frame = train.frame();
        frame[58..60].copy_from_slice(&[0, 9]);
        path.compare_frame(&train, &frame);
        path.compare(&Train::tcp_v4().sized(65_495, 1448));
    });
}

#[test]
fn random_trains() {
    in_namespace(|path| {
        let path = RefCell::new(path);
        let config = Config { cases: 500, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&trains().prop_map(without_legacy_tags), |train| {
                if is_for_the_kernel(&train) {
                    path.borrow_mut().compare(&train);
                }
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn datagrams_cut_into_fragments() {
    in_namespace(|path| {
        for (payload_len, gso_size) in UFO_SIZES {
            for kind in [Train::ufo_v4(), Train::ufo_v6()] {
                for tags in [&[][..], &[S_TAG], &[S_TAG, C_TAG]] {
                    path.compare(&kind.clone().tagged(tags).sized(payload_len, gso_size));
                }
            }
        }
        for options in [0, 3, 10] {
            let mut train = Train::ufo_v4();
            train.ip = Ip::V4 { options, dont_fragment: false, identification: 0xffff };
            path.compare(&train);
            train.is_partial = false;
            path.compare(&train);
            path.compare_frame(&train, &with_zero_checksum(&train));
        }
    });
}

#[test]
fn trains_in_tunnels() {
    in_namespace(|path| {
        let outers = [
            Ip::V4 { options: 0, dont_fragment: true, identification: 0xfffe },
            Ip::V4 { options: 2, dont_fragment: false, identification: 7 },
            Ip::V6 { extensions: vec![] },
        ];
        for train in every_kind_of_train().filter(|train| train.payload_len > 100) {
            for ip in &outers {
                for encapsulation in udp_tunnels() {
                    let inner = train.ip.clone();
                    let tunnel = Tunnel { ip: ip.clone(), encapsulation, inner };
                    path.compare(&train.clone().sized(4001, 1001).inside(tunnel));
                }
            }
        }
    });
}

#[test]
fn random_datagrams_and_tunnels() {
    in_namespace(|path| {
        let path = RefCell::new(path);
        let config = Config { cases: 500, failure_persistence: None, ..Config::default() };
        let trains = prop_oneof![common::datagrams(), common::tunnelled_trains()];
        let trains = trains.prop_map(without_legacy_tags);
        TestRunner::new(config)
            .run(&trains, |train| {
                if is_for_the_kernel(&train) {
                    path.borrow_mut().compare(&train);
                }
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn what_the_kernel_refuses_we_refuse() {
    in_namespace(|path| {
        let mut cases = Vec::new();
        let train = Train::tcp_v4();
        let meta = train.meta();
        let wrong_metas = [
            gso(meta, GsoType::TCPV6),
            gso(meta, GsoType::UDP_L4),
            gso(meta, GsoType(GsoType::UDP_L4.0 | GsoType::ECN)),
            gso(meta, GsoType(2)),
            NetHeader { gso_size: 0, ..meta },
            NetHeader { csum_start: 38, ..meta },
            NetHeader { csum_offset: 6, ..meta },
        ];
        cases.extend(wrong_metas.map(|meta| (meta, train.frame())));
        let udp = Train::udp_v4();
        let with_ecn = gso(udp.meta(), GsoType(GsoType::UDP_L4.0 | GsoType::ECN));
        cases.push((with_ecn, udp.frame()));
        for extension in [ipv6::FRAGMENT, 51, 135] {
            let mut train = Train::tcp_v6();
            train.ip = Ip::V6 { extensions: vec![extension] };
            cases.push((train.meta(), train.frame()));
        }
        let mut no_checksum = Train::udp_v6();
        no_checksum.is_partial = false;
        cases.push((no_checksum.meta(), no_checksum.frame()));
        for (meta, frame) in cases {
            let kernels = path.forward(&meta.into(), &frame).unwrap_or_default();
            assert!(kernels.is_empty(), "the kernel cuts {meta:?}");
            assert!(Segments::new(&meta, &frame, &[]).is_err(), "{meta:?}");
        }
    });
}

#[test]
fn checksums_of_plain_frames() {
    in_namespace(|path| {
        for train in [Train::tcp_v4(), Train::udp_v4(), Train::tcp_v6(), Train::udp_v6()] {
            for payload_len in [0, 1, 2, 1447] {
                let train = train.clone().sized(payload_len, 0).tagged(&[C_TAG]);
                let mut meta = gso(train.meta(), GsoType::NONE);
                let mut frame = train.frame();
                let kernels = path.forward(&meta.into(), &frame).unwrap();
                complete_checksum(&mut meta, &mut frame, &[]).unwrap();
                assert_eq!(kernels, [frame], "{train:?}");
            }
        }
    });
}

#[test]
fn all_this_holds_on_linux_7_3() {
    LINUX_7_3.test_all();
}

/// A path through the kernel: frames written into `from` leave through `to`.
struct Path {
    from: Tap,
    to: Tap,
    /// Number of markers sent.
    markers: u16,
}

impl Path {
    fn new() -> io::Result<Self> {
        let mut path = Self { from: Tap::new("from")?, to: Tap::new("to")?, markers: 0 };
        ip("link add name bridge mtu 9000 type bridge mcast_snooping 0")?;
        for name in ["from", "to"] {
            ip(&format!("link set dev {name} master bridge mtu 9000 up"))?;
        }
        ip("link set dev bridge up")?;
        path.wait_until_it_forwards();
        Ok(path)
    }

    fn compare(&mut self, train: &Train) {
        self.compare_frame(train, &train.frame());
    }

    /// Segments `frame`, a variant of the frame of `train`, by both.
    fn compare_frame(&mut self, train: &Train, frame: &[u8]) {
        let kernels = self
            .forward(&train.long_meta(), frame)
            .unwrap_or_else(|error| panic!("the kernel refuses {train:?}: {error}"));
        let options = SplitOptions { fragment_seed: seed_of(train, frame, &kernels), ..DEFAULT };
        let ours = cut_with(&train.long_meta(), &options, frame, &[])
            .unwrap_or_else(|error| panic!("we refuse {train:?}: {error}"));
        let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(&ours), lengths(&kernels), "{train:?}");
        for (index, (ours, kernels)) in ours.iter().zip(&kernels).enumerate() {
            let differs = ours.iter().zip(kernels).position(|(a, b)| a != b);
            assert_eq!(differs, None, "offset in packet {index} of {train:?}");
        }
    }

    /// Sends a frame and returns all frames that arrive before the marker sent after it.
    fn forward(&mut self, meta: &LongNetHeader, frame: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.from.write(meta, frame)?;
        let marker = self.send_marker();
        let deadline = Instant::now() + PATIENCE;
        let mut frames = Vec::new();
        loop {
            let (meta, frame) = self.to.read(deadline).expect("the marker gets lost");
            if frame == marker {
                return Ok(frames);
            }
            // The kernel marks the checksum of fragments as valid.
            let mut undone = meta;
            undone.base.flags &= !NetHeaderFlags::DATA_VALID;
            assert_eq!(undone, NetHeader::PLAIN.into(), "nothing is left undone");
            frames.push(frame);
        }
    }

    /// Links come up asynchronously: sends markers until one arrives.
    fn wait_until_it_forwards(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let marker = self.send_marker();
            let soon = Instant::now() + Duration::from_millis(20);
            while let Some((_, frame)) = self.to.read(soon) {
                if frame == marker {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "the bridge never forwards");
        }
    }

    /// A frame with an EtherType for local experiments, different each time.
    fn send_marker(&mut self) -> Vec<u8> {
        self.markers += 1;
        let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x88, 0xb5];
        frame.extend(self.markers.to_be_bytes());
        frame.resize(60, 0);
        // The interface may still be down when the first ones are sent.
        let _ = self.from.write(&NetHeader::PLAIN.into(), &frame);
        frame
    }
}

/// Runs `test` with a path through the kernel, in a network namespace of its own.
fn in_namespace(test: impl FnOnce(&mut Path) + Send + 'static) {
    netns::run("cutting trains in the kernel", || test(&mut Path::new().unwrap()));
}

fn gso(meta: NetHeader, gso_type: GsoType) -> NetHeader {
    NetHeader { gso_type, ..meta }
}

/// All combinations of tag stacks, kinds and sizes.
fn every_kind_of_train() -> impl Iterator<Item = Train> {
    let stacks: [&[u32]; 6] =
        [&[], &[C_TAG], &[S_TAG], &[S_TAG, C_TAG], &[C_TAG, C_TAG], &[S_TAG, S_TAG, C_TAG]];
    let kinds = [Train::tcp_v4(), Train::tcp_v6(), Train::udp_v4(), Train::udp_v6()];
    stacks.into_iter().flat_map(move |tags| {
        kinds.clone().into_iter().flat_map(move |kind| {
            SIZES.map(|(payload_len, gso_size)| {
                kind.clone().tagged(tags).sized(payload_len, gso_size)
            })
        })
    })
}

/// UDP tunnels, the only ones that a tap accepts.
fn udp_tunnels() -> [Encapsulation; 5] {
    let (has_checksum, tags) = (true, vec![]);
    [
        Encapsulation::Vxlan { has_checksum, tags: tags.clone() },
        Encapsulation::Vxlan { has_checksum: false, tags: vec![C_TAG] },
        Encapsulation::Geneve { options: 0, has_checksum, tags: Some(tags.clone()) },
        Encapsulation::Geneve { options: 63, has_checksum: false, tags: None },
        Encapsulation::Geneve { options: 3, has_checksum, tags: None },
    ]
}

/// The seed that gives our fragments of `frame` the identification that the kernel chose.
fn seed_of(train: &Train, frame: &[u8], kernels: &[Vec<u8>]) -> u32 {
    let (Ip::V6 { extensions }, Upper::Ufo) = (&train.ip, &train.upper) else {
        return 0;
    };
    let at = train.network_at() + 40 + 8 * extensions.len() + 4;
    let ours = cut(&train.meta(), frame, &[]).unwrap_or_default();
    let identification = |frames: &[Vec<u8>]| frames.first().map_or(0, |frame| read_u32(frame, at));
    identification(kernels).wrapping_sub(identification(&ours))
}

/// The same with tags that the kernel parses.
fn without_legacy_tags(mut train: Train) -> Train {
    for tag in &mut train.tags {
        *tag = if *tag == LEGACY_TAG { C_TAG } else { *tag };
    }
    train
}

/// False for the differences listed above, and for USO trains of more than 128 datagrams, which the
/// kernel does not accept.
fn is_for_the_kernel(train: &Train) -> bool {
    let size = usize::from(train.gso_size);
    let is_ufo = matches!(train.upper, Upper::Ufo);
    let carried = train.payload_len + if is_ufo { 8 } else { 0 };
    let is_tunnelled = train.tunnel.is_some();
    let is_lost =
        carried <= size && (is_tunnelled || train.payload_len + train.headers_len() > size);
    let has_extensions = matches!(&train.ip, Ip::V6 { extensions } if !extensions.is_empty());
    let is_miscounted = is_ufo && has_extensions;
    let packets_max = match train.upper {
        Upper::Tcp { .. } | Upper::Ufo => usize::MAX,
        Upper::Udp => 128,
    };
    let is_known = train.tunnel.as_ref().is_none_or(|tunnel| tunnel.bits_and_flags().0 != 0);
    let is_short = train.payload_len.div_ceil(size) <= packets_max;
    let is_odd = is_lost || is_miscounted || is_rounded(train) || repeats_cwr(train);
    is_known && is_short && !is_odd
}

/// Whether we repeat CWR in a train of several packets.
fn repeats_cwr(train: &Train) -> bool {
    let Upper::Tcp { flags, gso_bits, .. } = train.upper else { return false };
    let has_cwr = flags & tcp::CWR != 0 && gso_bits & GsoType::ECN == 0;
    has_cwr && train.payload_len > usize::from(train.gso_size)
}

/// Whether later kernels segment a TCP train into longer packets.
fn is_rounded(train: &Train) -> bool {
    let is_tcp = matches!(train.upper, Upper::Tcp { .. });
    is_tcp && train.gso_size < 8 && netns::kernel_version() > netns::KERNEL
}

/// Payload and packet sizes: exact multiples, odd ones, one byte too many, a full train.
const SIZES: [(usize, u16); 8] = [
    (5068, 1448),
    (2896, 1448),
    (1449, 1448),
    (4001, 1001),
    (999, 333),
    (7, 3),
    (100, 1),
    (65_000, 1447),
];

/// The same for datagrams to be fragmented.
const UFO_SIZES: [(usize, u16); 5] =
    [(5068, 1448), (2888, 1448), (1441, 1448), (65_000, 1440), (4001, 1000)];
const DEFAULT: SplitOptions = SplitOptions {
    id: IdRule::Increment,
    outer_id: IdRule::Increment,
    fragment_seed: 0,
    checksum: ChecksumRule::Complete,
};
