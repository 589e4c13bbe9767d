//! A filter drops and truncates as configured, and counts it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as Cases, TestRunner};
use tapswitch_tap::filter::{End, FilterCounters, FilterError, MAX_RULES, MIN_SNAP_LEN, Rule};
use tapswitch_tap::{Device, Filter, FilterConfig, GsoType, Kind, MacAddr, NetHeader};

mod common;
#[path = "common/programs.rs"]
mod programs;
#[path = "common/recipe.rs"]
mod recipe;
use common::{
    Host, LINUX_7_3, PEER, config, is_udp_to, knows_udp_trains, receive, set_udp_segment,
};
use programs::{can_attach, can_load};
use recipe::{Recipe, frames, packets, tcp, tcp_v6};

#[test]
fn the_program_decides_as_documented() {
    if !can_load() {
        return;
    }
    same_as_the_program(FilterConfig::ETHERNET, 300, &frames().boxed(), 40);
    same_as_the_program(FilterConfig::IP, 100, &packets().boxed(), 40);
}

#[test]
fn a_rule_asks_for_all_that_it_names() {
    let (v4, v6) = (tcp([40_000, 443]).frame(false), tcp_v6([40_000, 443]).frame(false));
    let of = |text: &str| text.parse::<IpAddr>().unwrap();
    let (source, destination, either) = (End::Source, End::Destination, End::Either);
    for (rule, matches_v4, matches_v6) in [
        (Rule::ANY, true, true),
        (Rule::ANY.ether_type(0x0800), true, false),
        (Rule::ANY.ether_type(0x86dd), false, true),
        (Rule::ANY.mac(source, MacAddr([2, 0, 0, 0, 0, 1])), true, true),
        (Rule::ANY.mac(destination, MacAddr([2, 0, 0, 0, 0, 1])), false, false),
        (Rule::ANY.mac(either, MacAddr([2, 0, 0, 0, 0, 2])), true, true),
        (Rule::ANY.network(source, of("10.0.0.1"), 32), true, false),
        (Rule::ANY.network(destination, of("10.0.0.1"), 32), false, false),
        (Rule::ANY.network(destination, of("10.0.0.1"), 30), true, false),
        (Rule::ANY.network(either, of("11.0.0.0"), 7), true, false),
        (Rule::ANY.network(either, of("0.0.0.0"), 0), true, false),
        (Rule::ANY.network(either, of("::"), 0), false, true),
        (Rule::ANY.network(source, of("fd00::1"), 128), false, true),
        (Rule::ANY.network(source, of("fd00::2"), 127), false, false),
        (Rule::ANY.network(source, of("fd00::2"), 126), false, true),
        (Rule::ANY.protocol(6), true, true),
        (Rule::ANY.protocol(17), false, false),
        (Rule::ANY.ports(source, 40_000..=40_000), true, true),
        (Rule::ANY.ports(destination, 40_000..=40_000), false, false),
        (Rule::ANY.ports(either, 0..=443), true, true),
        (Rule::ANY.ports(either, 444..=39_999), false, false),
        (Rule::ANY.protocol(6).ports(destination, 80..=443).ether_type(0x0800), true, false),
        (Rule::ANY.protocol(17).ports(destination, 80..=443), false, false),
    ] {
        for (frame, matches) in [(&v4, matches_v4), (&v6, matches_v6)] {
            let dropping = FilterConfig::ETHERNET.drop_matching([rule.clone()]);
            let keeping = FilterConfig::ETHERNET.keep_matching([rule.clone()]);
            assert_eq!(dropping.kept_len(frame, false) == 0, matches, "{rule:?}");
            assert_eq!(keeping.kept_len(frame, false) == 0, !matches, "{rule:?}");
        }
    }
}

#[test]
fn a_cut_spares_the_transport_header() {
    let long = |recipe: Recipe| [recipe.frame(false), vec![0; 1000]].concat();
    let config = FilterConfig::ETHERNET.snap_len(64);
    assert_eq!(config.kept_len(&long(tcp([1, 2])), false), 64);
    let tags = vec![0x88a8, 0x8100, 0x8100, 0x8100];
    assert_eq!(config.kept_len(&long(tcp([1, 2]).with_tags(tags)), false), 14 + 16 + 20 + 20);
    assert_eq!(config.kept_len(&long(tcp_v6([1, 2])), false), 14 + 40 + 20);
    assert_eq!(config.kept_len(&tcp([1, 2]).frame(false)[..60], false), 60);
    assert_eq!(config.kept_len(&long(tcp([1, 2])), true), long(tcp([1, 2])).len());
    assert_eq!(config.cut_trains(true).kept_len(&long(tcp([1, 2])), true), 64);
}

#[test]
fn what_cannot_be_is_refused() {
    let load = |config| Filter::load(config).unwrap_err();
    let many = vec![Rule::ANY; MAX_RULES + 1];
    let error = load(FilterConfig::ETHERNET.drop_matching(many));
    assert!(matches!(error, FilterError::TooManyRules { count: 65 }), "{error}");
    let error = load(FilterConfig::ETHERNET.snap_len(MIN_SNAP_LEN - 1));
    assert!(matches!(error, FilterError::SnapLen { snap_len: 63 }), "{error}");
    let rule = Rule::ANY.network(End::Either, Ipv4Addr::LOCALHOST.into(), 33);
    let error = load(FilterConfig::IP.keep_matching([rule]));
    assert_eq!(error.to_string(), "a prefix length of 33; 127.0.0.1 has 32 bits");
    let rule = Rule::ANY.mac(End::Either, MacAddr([2; 6]));
    let error = load(FilterConfig::IP.keep_matching([rule]));
    assert!(matches!(error, FilterError::NoMac), "{error}");
}

#[test]
fn the_longest_list_of_rules_is_loaded_and_its_last_rule_tried() {
    if !can_load() {
        return;
    }
    let address = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7).into();
    let costly = |port| {
        Rule::ANY
            .ether_type(0x86dd)
            .mac(End::Either, MacAddr([2; 6]))
            .network(End::Either, address, 127)
            .protocol(6)
            .ports(End::Either, port..=port)
    };
    let last = Rule::ANY.network(End::Destination, "10.0.0.2".parse().unwrap(), 32);
    let rules = (1..64).map(costly).chain([last]);
    let filter = Filter::load(FilterConfig::ETHERNET.drop_matching(rules)).unwrap();
    assert_eq!(filter.dry_run(&tcp([1, 2]).frame(false), 0, 1).unwrap().kept_len, 0);
    let back = tcp([1, 2]).frame(true);
    assert_eq!(filter.dry_run(&back, 0, 1).unwrap().kept_len, u32::try_from(back.len()).unwrap());
}

#[test]
fn linux_7_3_agrees() {
    LINUX_7_3.only("linux_7_3").test(|| {
        same_as_the_program(FilterConfig::ETHERNET, 50, &frames().boxed(), 40);
        same_as_the_program(FilterConfig::IP, 20, &packets().boxed(), 40);
        let line = Line::new(FilterConfig::ETHERNET.snap_len(128));
        line.send(1000);
        assert_eq!(line.receive().1.len(), 128);
    });
}

#[test]
fn what_matches_is_dropped_and_counted() {
    if !can_attach() {
        return;
    }
    let unwanted = Rule::ANY.protocol(17).ports(End::Destination, 5000..=5999);
    let mut line = Line::new(FilterConfig::ETHERNET.drop_matching([unwanted]));
    for port in [5000, 7, 5999, 5500, 6000] {
        line.socket.send_to(b"hello", ("10.0.0.2", port)).unwrap();
    }
    for port in [7, 6000] {
        assert!(is_udp_to(&line.receive().1, port), "the first that may pass goes to {port}");
    }
    assert_eq!(line.tap.queues()[0].recv(&mut [0; 2000]), Ok(None), "and nothing else");
    let len = 14 + 20 + 8 + 5;
    let expected = FilterCounters {
        frames: 5,
        bytes: 5 * len,
        dropped: 3,
        dropped_bytes: 3 * len,
        ..FilterCounters::default()
    };
    assert_eq!(line.filter.counters().unwrap(), expected);
    assert_eq!(line.host.netlink.link("tap0").unwrap().stats.tx_dropped, 3);

    Filter::detach(&line.tap.queues()[0]).unwrap();
    line.socket.send_to(b"hello", "10.0.0.2:5000").unwrap();
    assert!(is_udp_to(&line.receive().1, 5000));
    assert_eq!(line.filter.counters().unwrap(), expected, "nothing is counted any more");
}

#[test]
fn only_what_matches_is_kept() {
    if !can_attach() {
        return;
    }
    let wanted = Rule::ANY.network(End::Destination, "10.0.0.128".parse().unwrap(), 25);
    let mut line = Line::new(FilterConfig::ETHERNET.keep_matching([wanted]));
    let there = "10.0.0.200".parse().unwrap();
    line.host.netlink.set_neighbour("tap0", there, PEER.0).unwrap();
    line.socket.send_to(b"no", "10.0.0.2:7").unwrap();
    line.socket.send_to(b"yes", "10.0.0.200:7").unwrap();
    assert!(line.receive().1.ends_with(b"yes"));
    assert_eq!(line.filter.counters().unwrap().dropped, 1);
}

#[test]
fn a_frame_is_cut_with_its_checksum_left_in_place() {
    if !can_attach() {
        return;
    }
    let line = Line::new(FilterConfig::ETHERNET.snap_len(64));
    line.send(1000);
    let (header, frame) = line.receive();
    assert_eq!(frame.len(), 64);
    assert!(header.needs_checksum());
    assert!(usize::from(header.csum_start + header.csum_offset) + 2 <= frame.len());
    assert_eq!(frame[16..18], 1028_u16.to_be_bytes(), "the length that the packet had");
    line.send(10);
    assert_eq!(line.receive().1.len(), 52, "a short frame is left alone");
    let expected = FilterCounters {
        frames: 2,
        bytes: 1042 + 52,
        cut: 1,
        cut_bytes: 1042 - 64,
        ..FilterCounters::default()
    };
    assert_eq!(line.filter.counters().unwrap(), expected);
}

#[test]
fn a_train_is_left_whole_unless_told_otherwise() {
    if !can_attach() || !knows_udp_trains() {
        return;
    }
    for cut_trains in [false, true] {
        let line = Line::new(FilterConfig::ETHERNET.snap_len(100).cut_trains(cut_trains));
        set_udp_segment(&line.socket, 500);
        line.send(5000);
        let (header, frame) = line.receive();
        assert_eq!((header.gso_type, header.gso_size), (GsoType::UDP_L4, 500));
        assert_eq!(frame.len(), if cut_trains { 100 } else { 5042 });
        let counters = line.filter.counters().unwrap();
        let (cut, whole_trains) = if cut_trains { (1, 0) } else { (0, 1) };
        assert_eq!((counters.cut, counters.whole_trains), (cut, whole_trains));
    }
}

#[test]
fn a_tag_beside_the_frame_counts_as_a_part_of_it() {
    if !can_attach() {
        return;
    }
    let mut host = Host::new();
    host.silence();
    let [tap, other] = ["tap0", "other"].map(|name| host.create(&config(name)));
    let filter = Filter::load(FilterConfig::ETHERNET.snap_len(64)).unwrap();
    tap.set_filter(Some(filter.as_fd())).unwrap();
    host.netlink.create_bridge("br0").unwrap();
    for name in ["tap0", "other"] {
        host.netlink.set_bridge(name, "br0").unwrap();
    }
    for name in ["tap0", "other", "br0"] {
        host.netlink.set_up(name).unwrap();
    }
    // The kernel moves the outermost tag of received frames out of the frame, and the bridge sends
    // it so to the other port. The headers of the second frame end after the snap length.
    for tags in [1, 5] {
        let recipe = tcp([40_000, 443]).with_tags(vec![0x8100; tags]);
        let frame = [recipe.frame(false), vec![0; 500]].concat();
        other.queues()[0].send(&[&NetHeader::PLAIN.encode(), &frame[..]].concat()).unwrap();
        let is_it = |_: &NetHeader, frame: &[u8]| frame[12..14] == [0x81, 0];
        let (_, cut) = receive(&tap.queues()[0], is_it);
        let kept = filter.config().kept_len(&frame, false);
        assert_eq!(kept, (14 + 4 * tags + 20 + 20).max(64));
        assert_eq!(cut, frame[..kept]);
    }
}

#[test]
fn a_tun_device_is_filtered_by_the_packet_alone() {
    if !can_attach() {
        return;
    }
    let mut host = Host::new();
    host.silence();
    let tun = host.create(&config("tun0").kind(Kind::Tun));
    host.netlink.set_up("tun0").unwrap();
    host.netlink.add_address("tun0", "10.0.0.1".parse().unwrap(), 24).unwrap();
    let unwanted = Rule::ANY.ether_type(0x0800).ports(End::Destination, 5000..=5000);
    let filter = Filter::load(FilterConfig::IP.drop_matching([unwanted]).snap_len(64)).unwrap();
    let of_ethernet = Filter::load(FilterConfig::ETHERNET).unwrap();
    let error = of_ethernet.attach(&tun.queues()[0]).unwrap_err().to_string();
    assert!(
        error.contains("tun0 is a tun device") && error.contains("FilterConfig::IP"),
        "{error}"
    );
    filter.attach(&tun.queues()[0]).unwrap();
    let socket = host.udp(7000);
    for port in [5000, 7] {
        socket.send_to(&[0x55; 1000], ("10.0.0.2", port)).unwrap();
    }
    let (_, packet) = receive(&tun.queues()[0], |_, _| true);
    assert_eq!((packet.len(), &packet[22..24]), (64, &7_u16.to_be_bytes()[..]));
    let counters = filter.counters().unwrap();
    assert_eq!((counters.frames, counters.dropped, counters.cut), (2, 1, 1));
}

/// A device with a filter, and a socket on its kernel side.
struct Line {
    host: Host,
    tap: Device,
    filter: Filter,
    socket: UdpSocket,
}

impl Line {
    fn new(config_of_filter: FilterConfig) -> Self {
        let mut host = Host::new();
        host.silence();
        let tap = host.create_up(&config("tap0"));
        let filter = Filter::load(config_of_filter).unwrap();
        tap.set_filter(Some(filter.as_fd())).unwrap();
        let socket = host.udp(7000);
        Self { host, tap, filter, socket }
    }

    fn send(&self, len: usize) {
        self.socket.send_to(&vec![0x55; len], "10.0.0.2:7").unwrap();
    }

    fn receive(&self) -> (NetHeader, Vec<u8>) {
        receive(&self.tap.queues()[0], |_, _| true)
    }
}

fn same_as_the_program(
    base: FilterConfig,
    configs: u32,
    frames: &BoxedStrategy<Vec<u8>>,
    frames_each: usize,
) {
    let with_mac = base == FilterConfig::ETHERNET;
    let batch = proptest::collection::vec((frames.clone(), select(vec![0, 0, 500])), frames_each);
    let cases = Cases { cases: configs, ..Cases::default() };
    let strategy = (config_on(base, with_mac), batch);
    let outcome = TestRunner::new(cases).run(&strategy, |(config, frames)| {
        let filter = Filter::load(config.clone()).unwrap();
        let mut expected = FilterCounters::default();
        for (frame, gso_size) in frames {
            let kept = config.kept_len(&frame, gso_size > 0);
            let run = filter.dry_run(&frame, gso_size, 1).unwrap();
            prop_assert_eq!(run.kept_len as usize, kept, "{:02x?}", frame);
            tally(&mut expected, &config, &frame, gso_size > 0);
        }
        prop_assert_eq!(filter.counters().unwrap(), expected);
        Ok(())
    });
    outcome.unwrap();
}

/// Adds one frame to the expected counters.
fn tally(counters: &mut FilterCounters, config: &FilterConfig, frame: &[u8], is_train: bool) {
    let as_counted = |len: usize| u64::try_from(len).unwrap();
    let kept = config.kept_len(frame, is_train);
    counters.frames += 1;
    counters.bytes += as_counted(frame.len());
    if kept == 0 {
        counters.dropped += 1;
        counters.dropped_bytes += as_counted(frame.len());
    } else if kept < frame.len() {
        counters.cut += 1;
        counters.cut_bytes += as_counted(frame.len() - kept);
    } else if config.kept_len(frame, false) < frame.len() {
        counters.whole_trains += 1;
    }
}

/// Configurations that are likely to match the frames of the recipes.
fn config_on(base: FilterConfig, with_mac: bool) -> impl Strategy<Value = FilterConfig> {
    let rules = proptest::collection::vec(rule(with_mac), 0..4);
    let snap_len = proptest::option::of(64_u16..120);
    (rules, any::<bool>(), snap_len, any::<bool>()).prop_map(
        move |(rules, keep, snap_len, cut_trains)| {
            let base = base.clone();
            let config = if keep { base.keep_matching(rules) } else { base.drop_matching(rules) };
            let config = snap_len.map_or(config.clone(), |len| config.snap_len(len));
            config.cut_trains(cut_trains)
        },
    )
}

fn rule(with_mac: bool) -> impl Strategy<Value = Rule> {
    let option = |percent| prop::bool::weighted(percent);
    let ether_type = (option(0.3), select(vec![0x0800_u16, 0x86dd, 0x0806, 0x88cc, 0, 0x8100]));
    let mac = (option(0.1), end(), any::<[u8; 6]>());
    let v4 = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(a, len)| (IpAddr::from(a), len.min(3)));
    let v6 = (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(a, len)| (IpAddr::from(a), len.min(3)));
    let network = (option(0.5), end(), prop_oneof![v4, v6]);
    let protocol = (option(0.4), select(vec![6_u8, 17, 132, 58, 44, 0]));
    let ports = (option(0.5), end(), port_range());
    (ether_type, mac, network, protocol, ports).prop_map(
        move |(ether_type, mac, network, protocol, ports)| {
            let mut rule = Rule::ANY;
            if ether_type.0 {
                rule = rule.ether_type(ether_type.1);
            }
            if mac.0 && with_mac {
                rule = rule.mac(mac.1, MacAddr(mac.2));
            }
            if network.0 {
                rule = rule.network(network.1, network.2.0, network.2.1);
            }
            if protocol.0 {
                rule = rule.protocol(protocol.1);
            }
            if ports.0 {
                rule = rule.ports(ports.1, ports.2);
            }
            rule
        },
    )
}

fn port_range() -> impl Strategy<Value = RangeInclusive<u16>> {
    let none = RangeInclusive::new(443, 80);
    select(vec![80..=443, 0..=0, 0..=65_535, 4789..=4789, 40_000..=65_535, none])
}

fn end() -> impl Strategy<Value = End> {
    select(vec![End::Source, End::Destination, End::Either])
}
