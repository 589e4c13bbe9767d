//! Writes the seeds of all targets to `fuzz/corpus/`: one meaningful input for each kind of frame,
//! train and message. Run it from anywhere with `cargo run -p tapswitch-fuzz --example seeds`.
#![allow(clippy::cast_possible_truncation, reason = "the seeds are small")]

#[path = "../../crates/offload/tests/common/mod.rs"]
mod common;
#[path = "../../crates/offload/tests/packets/mod.rs"]
mod packets;
#[path = "seeds/vhost.rs"]
mod vhost;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use common::{ACK, C_TAG, Encapsulation, Ip, LEGACY_TAG, S_TAG, Train, Tunnel, Upper, cut};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ipv6, tcp};

fn main() -> io::Result<()> {
    write_filters()?;
    for (name, train) in trains() {
        let (meta, frame) = (train.meta(), train.frame());
        let headers_len = train.headers_len();
        write("split", name, &input(&meta, headers_len, &frame))?;
        write("split", &format!("{name}_contiguous"), &input(&meta, frame.len(), &frame))?;
        let plain = NetHeader { gso_type: GsoType::NONE, gso_size: 0, ..meta };
        let odd = headers_len + 1;
        write("complete_checksum", name, &input(&plain, odd, &frame[..frame.len().min(200)]))?;
        write("frame_parser", name, &frame[..headers_len + 8])?;
        if let Some(packet) = cut(&meta, &frame, &[]).unwrap_or_default().first() {
            write("verify", name, &[&[headers_len as u8], &packet[..]].concat())?;
        }
    }
    for (name, meta, frame) in sctp_checksums() {
        write("complete_checksum", name, &input(&meta, 46, &frame))?;
    }
    for (name, train) in long_trains() {
        let (meta, frame, at) = (train.long_meta(), train.frame(), train.headers_len() as u8);
        write("split", name, &input(&train.meta(), at.into(), &frame))?;
        write("split_long", name, &[&meta.encode()[..], &[0, at], &frame].concat())?;
        let fixed = [&meta.encode()[..], &[3, 0xff], &frame].concat();
        write("split_long", &format!("{name}_fixed"), &fixed)?;
    }
    for (name, frame) in in_tunnels() {
        let datagram = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &frame].concat();
        write("vxlan", name, &[&[0, 0, 42, 0x05, 0xaa][..], &datagram].concat())?;
        let narrow = [&[0, 0, 42, 0, 200][..], &datagram].concat();
        write("vxlan", &format!("{name}_narrow"), &narrow)?;
    }
    write(
        "vxlan",
        "wrong_vni",
        &[&[0, 0, 42, 0, 200, 8, 0, 0, 0, 0, 0, 43, 0][..], &[0; 20]].concat(),
    )?;
    write(
        "vxlan",
        "no_flag",
        &[&[0, 0, 42, 0, 200, 0, 0, 0, 0, 0, 0, 42, 0][..], &[0; 20]].concat(),
    )?;
    write("vxlan", "runt", &[&[0, 0, 42, 0, 200, 8, 0, 0, 0, 0, 0, 42, 0][..], &[0; 13]].concat())?;
    for (name, kind, header) in gre_headers() {
        let packet = [&header[..], &[0x5a; 20]].concat();
        write("gre", name, &[&[kind, 0, 0, 0, 42][..], &packet].concat())?;
        write(
            "gre",
            &format!("{name}_short"),
            &[&[kind, 0, 0, 0, 42][..], &packet[..12]].concat(),
        )?;
    }
    for (name, steps, frame) in stacks() {
        let count = steps.len() as u8;
        write("tags", name, &[&[20, count], steps.concat().as_slice(), &frame].concat())?;
    }
    for (name, meta, frame) in lies() {
        write("split", name, &input(&meta, frame.len(), &frame))?;
    }
    for (name, frame) in other_frames() {
        write("frame_parser", name, &frame)?;
    }
    for (name, frames) in batches() {
        let input: Vec<_> = frames.iter().flat_map(|(meta, f)| input(meta, f.len(), f)).collect();
        write("coalesce", name, &input)?;
    }
    for (target, name, input) in vhost::inputs() {
        write(target, name, &input)?;
    }
    openflow_messages()
}

/// Each filter with the headers of a frame.
fn write_filters() -> io::Result<()> {
    for (name, filter) in FILTERS {
        for (kind, train) in trains().into_iter().take(1) {
            let headers = &train.frame()[..train.headers_len()];
            let input = [filter.as_bytes(), &[0], headers].concat();
            write("filter", &format!("{name}_{kind}"), &input)?;
        }
    }
    Ok(())
}

/// Batches that become trains, and some that do not.
fn batches() -> Vec<(&'static str, Vec<packets::Frame>)> {
    use packets::around::{Around, Kind};
    use packets::{Checksum, Packet};
    let stream = |packet: &Packet| packets::frames(&packet.clone().sized(40).stream(4));
    let [tcp_v4, tcp_v6, udp_v4, udp_v6] = Packet::of_every_kind();
    let mut short = stream(&tcp_v4.clone().tagged(&[packets::S_TAG, packets::C_TAG]));
    short.truncate(3);
    let partial = stream(&udp_v4.clone().with(Checksum::Partial));
    let partial_tcp = tcp_v4.clone().with(Checksum::Partial);
    let vouched = stream(&tcp_v6.clone().with(Checksum::Vouched));
    let train = Packet { gso_size: 10, ..tcp_v4.clone().sized(40).with(Checksum::Partial) };
    let trains = packets::frames(&[train.clone(), train.next()]);
    let interleaved = std::iter::zip(stream(&tcp_v4), stream(&udp_v6)).flat_map(|(a, b)| [a, b]);
    let mut odd = stream(&tcp_v4);
    odd[1].1[20] ^= 0x20;
    odd[3].1[50] ^= 1;
    let inside = |packet: &Packet, around: &Around| stream(&packet.clone().inside(around));
    let geneve = Kind::Geneve { options: 1, ethernet: true };
    let gre = |key, ethernet| Kind::Gre { key, ethernet };
    vec![
        ("vxlan", inside(&tcp_v4, &Around::v4(Kind::Vxlan))),
        ("vxlan_without_checksum", inside(&tcp_v6, &Around::v6(Kind::Vxlan).without_checksum())),
        ("vxlan_partial", inside(&partial_tcp, &Around::v4(Kind::Vxlan))),
        ("geneve", inside(&udp_v4, &Around::v4(geneve))),
        ("gre", inside(&tcp_v4, &Around::v4(gre(false, false)))),
        ("nvgre", inside(&tcp_v6, &Around::v6(gre(true, true)).without_checksum())),
        ("ip_in_ip", inside(&udp_v6, &Around::v4(Kind::Ip))),
        ("tcp_v4", stream(&tcp_v4)),
        ("tcp_v6", stream(&tcp_v6)),
        ("udp_v4", stream(&udp_v4)),
        ("udp_v6", stream(&udp_v6)),
        ("tags", short),
        ("partial", partial),
        ("vouched", vouched),
        ("trains", trains),
        ("interleaved", interleaved.collect()),
        ("odd", odd),
        ("routed_on", packets::routed_on()),
    ]
}

/// Frames with partial checksums, as a sender on the same host leaves them.
fn in_tunnels() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |train: Train| small(train).frame();
    let mut deep = Train::tcp_v6().tagged(&[S_TAG, LEGACY_TAG, C_TAG]);
    deep.ip = Ip::V6 { extensions: vec![ipv6::HOP_BY_HOP, ipv6::DESTINATION_OPTIONS] };
    vec![
        ("tcp_v4", frame(Train::tcp_v4())),
        ("tcp_v6", frame(Train::tcp_v6())),
        ("udp_v4", frame(Train::udp_v4())),
        ("tagged", frame(Train::tcp_v4().tagged(&[C_TAG]))),
        ("deep", frame(deep)),
    ]
}

/// An input of `split` and `complete_checksum`, in the format that `fuzz/src/lib.rs` reads.
fn input(meta: &NetHeader, at: usize, frame: &[u8]) -> Vec<u8> {
    [&meta.encode()[..], &(at as u16).to_be_bytes(), frame].concat()
}

fn trains() -> Vec<(&'static str, Train)> {
    let mut options = small(Train::tcp_v4().flags(0xff).gso_bits(GsoType::ECN));
    options.ip = Ip::V4 { options: 3, dont_fragment: false, identification: 0xffff };
    let mut extensions = small(Train::udp_v6());
    extensions.ip =
        Ip::V6 { extensions: vec![ipv6::HOP_BY_HOP, ipv6::ROUTING, ipv6::DESTINATION_OPTIONS] };
    let mut not_partial = small(Train::tcp_v6());
    not_partial.is_partial = false;
    let mut bare = small(Train::tcp_v4().flags(ACK | tcp::FIN | tcp::PSH));
    bare.upper = Upper::Tcp { options: 0, flags: ACK, sequence: u32::MAX, gso_bits: 0 };
    vec![
        ("tcp_v4", small(Train::tcp_v4())),
        ("tcp_v6", small(Train::tcp_v6())),
        ("udp_v4", small(Train::udp_v4())),
        ("udp_v6", small(Train::udp_v6())),
        ("tcp_v4_bare", bare),
        ("tcp_v4_options", options),
        ("tcp_v4_tagged", small(Train::tcp_v4().tagged(&[S_TAG, C_TAG]))),
        ("udp_v6_five_tags", small(Train::udp_v6().tagged(&[LEGACY_TAG; 5]))),
        ("udp_v6_extensions", extensions),
        ("tcp_v6_not_partial", not_partial),
        ("tcp_v4_one_packet", Train::tcp_v4().sized(33, 1448)),
        ("udp_v4_one_byte_each", Train::udp_v4().sized(9, 1)),
    ]
}

/// Trains in tunnels, and datagrams that become fragments.
fn long_trains() -> Vec<(&'static str, Train)> {
    let inside = |train: Train, ip: Ip, encapsulation: Encapsulation| {
        let inner = train.ip.clone();
        small(train).inside(Tunnel { ip, encapsulation, inner })
    };
    let v4 = || Ip::V4 { options: 1, dont_fragment: true, identification: 0xffff };
    let v6 = || Ip::V6 { extensions: vec![ipv6::DESTINATION_OPTIONS] };
    let vxlan = |has_checksum| Encapsulation::Vxlan { has_checksum, tags: vec![C_TAG] };
    let (has_key, has_checksum) = (true, true);
    let ethernet = Encapsulation::Gre { has_key, has_checksum, tags: Some(vec![]) };
    let bare = Encapsulation::Gre { has_key, has_checksum: false, tags: None };
    let geneve = Encapsulation::Geneve { options: 2, has_checksum, tags: Some(vec![]) };
    let bare_geneve = Encapsulation::Geneve { options: 0, has_checksum: false, tags: None };
    let mut routed = Train::ufo_v6().sized(351, 104);
    routed.ip = Ip::V6 { extensions: vec![ipv6::ROUTING, ipv6::DESTINATION_OPTIONS] };
    vec![
        ("vxlan_v4", inside(Train::tcp_v4(), v4(), vxlan(false)).tagged(&[S_TAG])),
        ("vxlan_v6", inside(Train::udp_v4(), v6(), vxlan(true))),
        ("gre_ethernet", inside(Train::tcp_v6(), v4(), ethernet)),
        ("gre_ip", inside(Train::tcp_v4(), v6(), bare)),
        ("geneve_ethernet", inside(Train::udp_v6(), v4(), geneve)),
        ("geneve_ip", inside(Train::tcp_v4(), v4(), bare_geneve)),
        ("ip_in_ip", inside(Train::tcp_v6(), v4(), Encapsulation::Ip)),
        ("ufo_v4", Train::ufo_v4().sized(351, 104)),
        ("ufo_v6", Train::ufo_v6().sized(351, 104).tagged(&[S_TAG, C_TAG])),
        ("ufo_v6_routed", routed),
    ]
}

/// An operation on a stack of tags: kind, position, a TCI.
type Step = [u8; 4];

/// Frames, and operations on their tags.
fn stacks() -> Vec<(&'static str, Vec<Step>, Vec<u8>)> {
    let frame = |tags: &[u32]| small(Train::udp_v4()).tagged(tags).frame()[..60].to_vec();
    let push = [[0, 0, 0x20, 0x64], [0, 1, 0xff, 0xff], [0, 2, 0, 1]];
    let inside = [[2, 3, 0, 7], [2, 7, 0, 8], [3, 3, 0, 0], [4, 4, 0x60, 9], [5, 0, 0, 10]];
    let pop = [[1, 0, 0, 0]; 3];
    vec![
        ("push_and_pop", [&push[..], &pop].concat(), frame(&[])),
        ("inside", [&push[..], &inside].concat(), frame(&[S_TAG, C_TAG])),
        ("more_than_there_is", [&pop[..], &inside, &[[0; 4]; 6]].concat(), frame(&[LEGACY_TAG])),
        ("cut_short", push.to_vec(), frame(&[S_TAG, C_TAG])[..19].to_vec()),
    ]
}

/// An SCTP packet over IPv4 that consists of a header only.
fn sctp_frame() -> Vec<u8> {
    vec![
        2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 132, 0, 0,
        10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0,
    ]
}

/// SCTP packets with checksums to complete: one, one with Ethernet's padding, one whose metadata
/// puts the checksum elsewhere.
fn sctp_checksums() -> [(&'static str, NetHeader, Vec<u8>); 3] {
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        csum_start: 34,
        csum_offset: 8,
        ..NetHeader::PLAIN
    };
    let padded = [sctp_frame(), vec![0xee; 14]].concat();
    let elsewhere = NetHeader { csum_start: 30, ..meta };
    [
        ("sctp", meta, sctp_frame()),
        ("sctp_padded", meta, padded.clone()),
        ("sctp_elsewhere", elsewhere, padded),
    ]
}

/// Trains that are refused, each for a different reason.
fn lies() -> Vec<(&'static str, NetHeader, Vec<u8>)> {
    let train = small(Train::tcp_v4());
    let (meta, frame) = (train.meta(), train.frame());
    let mut fragment = frame.clone();
    fragment[20] |= 0x20;
    let mut mobile = small(Train::udp_v6());
    mobile.ip = Ip::V6 { extensions: vec![135] };
    let cut_short = frame[..50].to_vec();
    vec![
        ("lie_size", NetHeader { gso_size: 0, ..meta }, frame.clone()),
        ("lie_kind", NetHeader { gso_type: GsoType(2), ..meta }, frame.clone()),
        ("lie_protocol", NetHeader { gso_type: GsoType::TCPV6, ..meta }, frame.clone()),
        ("lie_ufo", NetHeader { gso_type: GsoType::UDP, ..meta }, frame.clone()),
        ("lie_place", NetHeader { csum_offset: 6, ..meta }, frame),
        ("lie_fragment", meta, fragment),
        ("lie_extension", mobile.meta(), mobile.frame()),
        ("lie_cut_short", NetHeader { flags: 0, ..meta }, cut_short),
    ]
}

/// A train of 3 1/2 packets that fits a seed.
fn small(train: Train) -> Train {
    train.sized(351, 101)
}

/// Frames that are not trains.
fn other_frames() -> Vec<(&'static str, Vec<u8>)> {
    let behind = |bytes: &[u8]| [&[2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa], bytes].concat();
    let arp = [
        8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0xa, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0,
        2,
    ];
    let icmp_v4 = [
        8, 0, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 1, 0x66, 0xdd, 10, 0, 0, 1, 10, 0, 0, 2, 8, 0, 0xf7,
        0xfd, 0, 1, 0, 1,
    ];
    let mut solicitation = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255];
    solicitation.extend([0xfe; 32]);
    solicitation.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    solicitation.extend([0xfe; 16]);
    solicitation.extend([1, 1, 2, 0, 0, 0, 0, 0xa]);
    let mut fragment = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 44, 64];
    fragment.extend([0xfd; 32]);
    fragment.extend([17, 0, 0, 1, 0, 0, 0, 1, 0, 53, 0, 53, 0, 8, 0, 0]);
    let snap = [&[0, 36, 0xaa, 0xaa, 3, 0, 0, 0], &arp[..]].concat();
    vec![
        ("arp", behind(&arp)),
        ("icmp_v4", behind(&icmp_v4)),
        ("neighbor_solicitation", behind(&solicitation)),
        ("fragment_v6", behind(&fragment)),
        ("snap", behind(&snap)),
        ("llc", behind(&[0, 3, 0x42, 0x42, 3])),
        ("sctp", sctp_frame()),
        ("lldp", behind(&[0x88, 0xcc, 2, 7, 4, 2, 0, 0, 0, 0, 1, 0, 0])),
        ("macsec", behind(&[0x88, 0xe5, 0x20, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0xa, 0, 1, 8, 0])),
        ("truncated_tag", behind(&[0x81, 0, 0])),
    ]
}

/// The golden messages of crates/openflow.
fn openflow_messages() -> io::Result<()> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/openflow/tests/golden");
    for entry in fs::read_dir(golden)? {
        let path = entry?.path();
        let (Some("hex"), Some(stem)) = (extension(&path), path.file_stem()) else {
            continue;
        };
        let text = fs::read_to_string(&path)?;
        let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
        let bytes: Vec<u8> = digits
            .chunks(2)
            .filter_map(|pair| u8::from_str_radix(&String::from_iter(pair), 16).ok())
            .collect();
        write("openflow_decode", &stem.to_string_lossy(), &bytes)?;
    }
    Ok(())
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

fn write(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "corpus", target].iter().collect();
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

/// Tunnel headers with key or session 42: a name, the target's number of the kind, bytes.
fn gre_headers() -> Vec<(&'static str, u8, Vec<u8>)> {
    vec![
        ("key", 0, vec![0x20, 0, 0x65, 0x58, 0, 0, 0, 42]),
        ("other_key", 0, vec![0x20, 0, 0x65, 0x58, 0, 0, 0, 43]),
        ("sequence", 0, vec![0x30, 0, 0x65, 0x58, 0, 0, 0, 42, 0, 0, 0, 1]),
        ("checksum", 0, vec![0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 42]),
        ("routing", 0, vec![0x60, 0, 0x65, 0x58, 0, 0, 0, 42]),
        ("no_key", 3, vec![0, 0, 0x65, 0x58]),
        ("erspan_2", 1, vec![0x10, 0, 0x88, 0xbe, 0, 0, 0, 5, 0x10, 0x64, 0xb8, 0x2a, 0, 0, 0, 0]),
        (
            "erspan_3_platform",
            2,
            vec![
                0x10, 0, 0x22, 0xeb, 0, 0, 0, 5, 0x20, 0x64, 0xa0, 0x2a, 1, 2, 3, 4, 0, 0, 0x80, 3,
                0, 0, 0, 0, 0, 0, 0, 0,
            ],
        ),
    ]
}

/// Filters of each kind.
const FILTERS: [(&str, &str); 12] = [
    ("ports", "tcp dst port (80 or 443 or http) or udp portrange 5000-5003"),
    ("hosts", "src host 10.0.0.1 and not dst net 10.0.0.0/8 || ip6 host 2001:db8::1"),
    ("mask", "net 10.1 mask 255.255.0.0 or net 192.168"),
    ("ether", "ether src 02:00:00:00:00:01 or ether proto 0x88cc or ether host 0200.0000.0002"),
    ("vlan", "vlan 100 and (tcp or not icmp[icmptype] = icmp-echo)"),
    ("groups", "multicast and !broadcast and not ip6 multicast"),
    ("proto", "ip proto \\tcp or ip6 proto 17 or proto 89 or icmp6[icmp6code] != 1"),
    ("not", "not (not ip or (tcp and not (port 22 or 23)))"),
    ("repeat", "host 10.0.0.1 or 10.0.0.2 and port 80 or 443"),
    ("flags", "tcp[tcpflags] & tcp-syn != 0"),
    ("stack", "vlan 5 and vlan 6"),
    ("wide", "tcp src portrange 1024-65535 and not dst port 1"),
];
