//! Compares filters with libpcap: tcpdump reads a file of random frames with the same expression.
//!
//! libpcap compares the EtherType at its fixed offset, we compare the one after all tags. So frames
//! have no tag, or the expression contains `vlan`, which shifts libpcap's offsets.
#![allow(clippy::cast_possible_truncation, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tapswitch_control::{Direction, Filter, PolicyError, TapPolicy};
use tapswitch_helpers::cases;

/// For each frame, whether tcpdump passes it. The filter is not optimized: libpcap 1.10.3 optimizes
/// `src and dst net 2001:db8::/126 and (arp or net 2001:db8::/126)` to one that rejects everything.
fn tcpdump(filter: &str, frames: &[Vec<u8>]) -> Vec<bool> {
    let mut child = Command::new("tcpdump")
        .args(["-O", "-r", "-", "-w", "-", "-Z", "root", filter])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It fits the pipe buffer, so the write does not block; tcpdump leaves it unread if it rejects
    // the filter.
    let _ = child.stdin.take().unwrap().write_all(&pcap(frames));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("rejects all packets") {
        return vec![false; frames.len()];
    }
    assert!(output.status.success(), "{filter}: {said}");
    let passed = numbers(&output.stdout);
    (0..frames.len()).map(|number| passed.contains(&number)).collect()
}

/// A pcap file of frames, with their indices as timestamps.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1u32];
    let mut bytes: Vec<_> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (number, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        bytes.extend([number as u32, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(frame);
    }
    bytes
}

/// Indices of the frames in a file.
fn numbers(file: &[u8]) -> Vec<usize> {
    let (mut rest, mut numbers) = (&file[24..], Vec::new());
    while let [a, b, c, d, _, _, _, _, e, f, g, h, ..] = *rest {
        numbers.push(u32::from_le_bytes([a, b, c, d]) as usize);
        rest = &rest[16 + u32::from_le_bytes([e, f, g, h]) as usize..];
    }
    numbers
}

fn has_tcpdump() -> bool {
    let has = Command::new("tcpdump").arg("--version").output().is_ok();
    if !has {
        println!("SKIP: no tcpdump here; `apt install tcpdump` to compare filters with libpcap");
    }
    has
}

fn mac() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![
        4 => (1..4u8).prop_map(|host| [2, 0, 0, 0, 0, host]),
        1 => Just([0xff; 6]),
        1 => Just([1, 0, 0x5e, 0, 0, 5]),
    ]
}

fn ip_packet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let upper = vec(0..4u8, 20);
    let proto = select(vec![6, 17, 132, 1, 58, 2, 89]);
    (any::<bool>(), proto, 1..4u8, 1..5u8, upper, 0..8u8).prop_map(
        |(is_ipv6, proto, src, dst, mut upper, fragment)| {
            // Bytes that resemble ports, or type and code.
            upper[0] &= 1;
            upper[2] &= 1;
            match proto {
                6 => upper[12] = 0x50,
                17 => upper[4..6].copy_from_slice(&[0, 20]),
                _ => {}
            }
            let mut packet = Vec::new();
            if is_ipv6 {
                packet.extend([0x60, 0, 0, 0, 0, 20, proto, 64]);
                packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, src]);
                let first = if dst == 4 { 0xff } else { 0x20 };
                packet.extend([first, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, dst]);
            } else {
                let offset = u8::from(fragment == 0 && matches!(proto, 6 | 17));
                packet.extend([0x45, 0, 0, 40, 0, 0, 0, offset, 64, proto, 0, 0, 10, 0, 0, src]);
                let first = if dst == 4 { 224 } else { 10 };
                packet.extend([first, 0, 0, dst]);
            }
            packet.extend(upper);
            (if is_ipv6 { 0x86dd } else { 0x0800 }, packet)
        },
    )
}

/// An Ethernet frame, possibly with a tag.
fn frame(tag: impl Strategy<Value = Option<(u16, u16)>>) -> impl Strategy<Value = Vec<u8>> {
    let arp = (1..4u8, 1..4u8).prop_map(|(src, dst)| {
        let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, src, 10, 0, 0, src];
        packet.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, dst]);
        (0x0806, packet)
    });
    let other = Just((0x88cc, vec![0; 46]));
    let content = prop_oneof![6 => ip_packet(), 1 => arp, 1 => other];
    (mac(), 1..4u8, tag, content).prop_map(
        |(dst, src, tag, (eth_type, packet)): (_, _, _, (u16, _))| {
            let mut frame = [dst, [2, 0, 0, 0, 0, src]].concat();
            if let Some((tpid, vid)) = tag {
                frame.extend([tpid.to_be_bytes(), vid.to_be_bytes()].concat());
            }
            frame.extend(eth_type.to_be_bytes());
            frame.extend(packet);
            frame.resize(frame.len().max(64), 0);
            frame
        },
    )
}

fn primitive() -> impl Strategy<Value = String> {
    let way = || select(vec!["", "src ", "dst ", "src or dst ", "src and dst ", "dst or src "]);
    let ip = || select(vec!["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"]);
    let net = select(vec![
        "10.0.0.0/30",
        "10.0.0.2/31",
        "10",
        "10.0.0.0 mask 255.255.255.252",
        "2001:db8::/126",
        "224.0.0.0/4",
    ]);
    let port = || select(vec!["1", "2", "257", "0x101"]);
    let upper = || select(vec!["", "tcp ", "udp ", "sctp "]);
    let word = select(vec![
        "ip",
        "ip6",
        "arp",
        "rarp",
        "tcp",
        "udp",
        "sctp",
        "icmp",
        "icmp6",
        "igmp",
        "broadcast",
        "multicast",
        "ether multicast",
        "ether broadcast",
        "ip multicast",
        "ip6 multicast",
        "proto 89",
        "ip proto \\tcp",
        "ip6 proto 17",
        "proto 6",
        "ether proto 0x88cc",
        "ether proto \\arp",
        "icmp[icmptype] = 1",
        "icmp[1] != 2",
        "icmp6[icmp6type] == 0",
        "icmp6[icmp6code] != 1",
        "icmp[icmptype] = icmp-echoreply",
        "ah",
        "pim",
        "ip src host 10.0.0.1",
        "ip6 host 2001:db8::2",
        "arp dst host 10.0.0.2",
        "vrrp",
        "igrp",
    ]);
    let mac = (select(vec!["", "src ", "dst "]), 1..4u8)
        .prop_map(|(way, host)| format!("ether {way}host 02:00:00:00:00:0{host}"));
    prop_oneof![
        3 => word.prop_map(str::to_owned),
        2 => (way(), ip()).prop_map(|(way, ip)| format!("{way}host {ip}")),
        1 => (ip(), ip()).prop_map(|(a, b)| format!("host {a} or {b}")),
        1 => (ip(), ip()).prop_map(|(a, b)| format!("src host ({a} or {b})")),
        1 => (way(), net).prop_map(|(way, net)| format!("{way}net {net}")),
        2 => (upper(), way(), port()).prop_map(|(upper, way, p)| format!("{upper}{way}port {p}")),
        1 => (upper(), port(), port()).prop_map(|(upper, a, b)| format!("{upper}port {a} or {b}")),
        1 => (upper(), way(), port(), port())
            .prop_map(|(upper, way, a, b)| format!("{upper}{way}port ({a} or {b})")),
        1 => (upper(), way(), 1..3u16, 0..3u16)
            .prop_map(|(upper, way, a, len)| format!("{upper}{way}portrange {a}-{}", a + len)),
        1 => mac,
    ]
}

/// The operator between two words, and a negation of the second.
type Link = (&'static str, &'static str);

/// Expressions: flat ones, which depend on precedence, and some with parentheses.
fn expression() -> impl Strategy<Value = String> {
    let link =
        || (select(vec![" and ", " or ", " && ", " || "]), select(vec!["", "", "not ", "!"]));
    let flat = (primitive(), vec((link(), primitive()), 0..3));
    let text = |(first, rest): (String, Vec<(Link, String)>)| {
        rest.into_iter().fold(first, |text, ((link, not), next)| format!("{text}{link}{not}{next}"))
    };
    flat.prop_map(text).prop_recursive(2, 6, 3, move |inner| {
        let group = inner.prop_map(|inner| format!("({inner})"));
        (group.clone(), vec((link(), prop_oneof![primitive(), group]), 0..3)).prop_map(text)
    })
}

/// A filter evaluated directly, and by its regions.
struct Both {
    filter: Filter,
    policy: TapPolicy,
}

fn read(text: &str) -> Result<Both, TestCaseError> {
    let filter = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
    let policy = TapPolicy {
        filter: Some(text.into()),
        direction: Some(Direction::Forward),
        ..TapPolicy::new("p", "1".parse().unwrap())
    };
    match policy.check() {
        Err(PolicyError::TooManyRegions { .. }) => Err(TestCaseError::reject("too large")),
        Err(PolicyError::Filter(error)) if error.to_string().contains("rules") => {
            Err(TestCaseError::reject("too large"))
        }
        // Filters that no frame can match are rejected as such.
        Err(error) if !error.to_string().contains("no frame") => {
            Err(TestCaseError::fail(format!("{text}: {error}")))
        }
        _ => Ok(Both { filter, policy }),
    }
}

impl Both {
    fn passes(&self, frame: &[u8]) -> Result<bool, TestCaseError> {
        let passes = self.filter.matches(frame);
        prop_assert_eq!(passes, self.policy.matches(frame), "{}: {:02x?}", self.filter, frame);
        Ok(passes)
    }
}

fn config() -> ProptestConfig {
    ProptestConfig::with_cases(if has_tcpdump() { cases(96) } else { 0 })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn filters_pass_what_libpcap_passes(
        filter in expression(), frames in vec(frame(Just(None)), 40),
    ) {
        let expected = tcpdump(&filter, &frames);
        let ours = read(&filter)?;
        for (frame, expected) in frames.iter().zip(expected) {
            prop_assert_eq!(ours.passes(frame)?, expected, "{:?}: {:02x?}", filter, frame);
            // The result is the same with a tag.
            let tagged = [&frame[..12], &[0x88, 0xa8, 0, 7], &frame[12..]].concat();
            prop_assert_eq!(ours.passes(&tagged)?, expected, "{:?}: {:02x?}", filter, tagged);
        }
    }

    #[test]
    fn tagged_frames_pass_as_with_libpcap(
        filter in expression(),
        vid in select(vec!["", " 5", " 6"]),
        frames in vec(
            frame(proptest::option::weighted(0.8, (select(vec![0x8100, 0x88a8]), 5..7u16))), 40,
        ),
    ) {
        let filter = format!("vlan{vid} and ({filter})");
        let expected = tcpdump(&filter, &frames);
        let ours = read(&filter)?;
        for (frame, expected) in frames.iter().zip(expected) {
            prop_assert_eq!(ours.passes(frame)?, expected, "{:?}: {:02x?}", filter, frame);
        }
    }
}
