//! Keywords of filters: protocols, types, ports, and unsupported words.

use tapswitch_wire::EtherType;

use crate::family::Family;

/// A word that names a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtoWord {
    /// `ether`, and its other names.
    Ether,
    /// An EtherType.
    Type(Family),
    /// An IP protocol; of both families, unless it belongs to one.
    Ip(Option<Family>, u8),
}

/// Protocol named by a word (libpcap's `gencode.c`: `gen_proto_abbrev`).
pub(super) fn proto_word(word: &str) -> Option<ProtoWord> {
    let v4 = Some(Family::Ipv4);
    Some(match word {
        "ether" | "link" => ProtoWord::Ether,
        "ip" => ProtoWord::Type(Family::Ipv4),
        "ip6" => ProtoWord::Type(Family::Ipv6),
        "arp" => ProtoWord::Type(Family::Arp),
        "rarp" => ProtoWord::Type(RARP),
        "icmp" => ProtoWord::Ip(v4, 1),
        "igmp" => ProtoWord::Ip(v4, 2),
        "tcp" => ProtoWord::Ip(None, 6),
        "igrp" => ProtoWord::Ip(v4, 9),
        "udp" => ProtoWord::Ip(None, 17),
        "esp" => ProtoWord::Ip(None, 50),
        "ah" => ProtoWord::Ip(None, 51),
        "icmp6" => ProtoWord::Ip(Some(Family::Ipv6), 58),
        "pim" => ProtoWord::Ip(None, 103),
        "vrrp" | "carp" => ProtoWord::Ip(v4, 112),
        "sctp" => ProtoWord::Ip(None, 132),
        _ => return None,
    })
}

/// An IP protocol by name, for `proto`.
pub(super) fn ip_proto(word: &str) -> Option<u8> {
    match proto_word(word)? {
        ProtoWord::Ip(_, proto) => Some(proto),
        _ => None,
    }
}

/// An EtherType by name, for `ether proto`.
pub(super) fn ether_type(word: &str) -> Option<Family> {
    match (word, proto_word(word)) {
        ("atalk", _) => Some(Family::Other(0x809b)),
        ("aarp", _) => Some(Family::Other(0x80f3)),
        (_, Some(ProtoWord::Type(family))) => Some(family),
        _ => None,
    }
}

/// A port by name: the common ones of `/etc/services`.
pub(super) fn port(word: &str) -> Option<u16> {
    PORTS.iter().find(|(name, _)| *name == word).map(|(_, port)| *port)
}

/// An ICMP type or header offset by name (pcap-filter(7)).
pub(super) fn icmp_name(word: &str) -> Option<u8> {
    ICMP_NAMES.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

/// Keywords of pcap-filter that OpenFlow cannot match: subject and remedy.
pub(super) fn without_match(word: &str) -> Option<(&'static str, &'static str)> {
    let words = |list: &'static [&str]| list.contains(&word);
    Some(match word {
        "len" | "less" | "greater" => ("the length of frames", "leave it out"),
        "mpls" => ("headers after MPLS labels", "all of MPLS is `ether proto 0x8847`"),
        "pppoes" => ("the contents of PPPoE", "all sessions are `ether proto 0x8864`"),
        "pppoed" => ("PPPoE by name", "discovery is `ether proto 0x8863`"),
        "geneve" => ("the contents of Geneve", "all of it is `udp dst port 6081`"),
        "vxlan" => ("the contents of VXLAN", "all of it is `udp dst port 4789`"),
        "gateway" => ("a gateway", "write `ether host MAC and not host IP`"),
        "protochain" => ("chains of headers", "`proto` finds the protocol behind all of them"),
        "inbound" | "outbound" | "ifindex" => {
            ("interfaces in a filter", "leave it out; a policy applies to all ports of the switch")
        }
        _ if words(PF) => ("what a firewall did", "leave it out"),
        _ if words(WLAN) => ("fields of other networks than Ethernet", "leave it out"),
        _ if words(LLC) => ("frames without a type", "leave it out"),
        _ => return None,
    })
}

/// Reverse ARP (RFC 903); OpenFlow does not match its addresses.
pub(super) const RARP: Family = Family::Other(0x8035);

/// Smallest EtherType; lower values are lengths (IEEE 802.3-2022 §3.2.6).
pub(super) const MIN_TYPE: u16 = tapswitch_wire::ethernet::MIN_ETHER_TYPE;

/// Whether an EtherType is that of a tag, which OpenFlow skips.
pub(super) const fn is_tag(eth_type: u16) -> bool {
    EtherType(eth_type).is_tag()
}

const PF: &[&str] = &[
    "ifname",
    "on",
    "rnr",
    "rulenum",
    "reason",
    "rset",
    "ruleset",
    "srnr",
    "subrulenum",
    "action",
];
const WLAN: &[&str] =
    &["wlan", "fddi", "tr", "ppp", "slip", "type", "subtype", "addr1", "ra", "ta", "radio", "vpi"];
const LLC: &[&str] =
    &["llc", "iso", "clnp", "isis", "esis", "stp", "ipx", "netbeui", "decnet", "lat", "sca"];

const PORTS: [(&str, u16); 28] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("ntp", 123),
    ("imap2", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("isakmp", 500),
    ("syslog", 514),
    ("ldaps", 636),
    ("imaps", 993),
    ("pop3s", 995),
    ("nfs", 2049),
    ("mysql", 3306),
    ("postgresql", 5432),
];

const ICMP_NAMES: [(&str, u8); 27] = [
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
];
