//! Filters in the syntax of tcpdump (pcap-filter(7), libpcap 1.10), as sets of frames.
//!
//! ```text
//!  text ─ lexer ─▶ tokens ─ parser ─▶ Expr ─ compile ─▶ Frames: regions without others
//! ```
//!
//! **Same as in tcpdump.** `host`, `net`, `port`, `portrange`, `proto`, with `src` and `dst` in all
//! combinations; `ether`, `ip`, `ip6`, `arp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6` and others by
//! name; `vlan`, `broadcast`, `multicast`; types and codes of ICMP as in `icmp[icmptype] =
//! icmp-echo`. `and` and `or` have equal precedence and associate to the left, `not` binds tighter;
//! `port 80 or 443` and `port (80 or 443)` repeat the qualifiers before the number.
//!
//! **Different**, because of what OpenFlow matches:
//! - Types, addresses and ports are those after all tags, as tcpdump sees frames on interfaces that
//!   deliver the tag out of band. `tcp` also matches tagged frames; write `tcp and not vlan` to
//!   exclude them.
//! - `vlan` matches the outermost tag, at any position in the expression. A conjunction with a
//!   second one is rejected: OpenFlow 1.3 matches no inner tag.
//! - `host` and `net` match IPv4, ARP and IPv6, but not RARP.
//! - Upper-layer protocols of IPv6 are found after extension headers.
//!
//! What OpenFlow 1.3 cannot match is rejected with position and remedy: lengths, TCP flags, other
//! bytes by offset, hosts by name.

use std::fmt;
use std::str::FromStr;

mod compile;
mod error;
mod lexer;
mod parser;
mod syntax;
mod words;

pub use error::FilterError;

use crate::region::{Frames, TooMany};
use syntax::Expr;

pub(crate) use parser::MAX_LEN as MAX_FILTER_LEN;

/// A parsed filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    expr: Expr,
}

impl Filter {
    /// Whether a frame, starting at its destination address, passes. This evaluates the expression
    /// itself, independently of its translation to rules.
    pub fn matches(&self, frame: &[u8]) -> bool {
        tapswitch_wire::parse(frame).is_ok_and(|parsed| self.expr.contains(&parsed.key))
    }

    /// Number of regions, each of which takes one rule, or one for each host that its frames may go
    /// to.
    ///
    /// # Errors
    /// The filter needs more regions than one policy may have.
    pub fn region_count(&self) -> Result<usize, FilterError> {
        self.frames().map(|frames| frames.size())
    }

    /// Frames that pass.
    pub(crate) fn frames(&self) -> Result<Frames, FilterError> {
        let frames = self.expr.frames()?;
        match frames.is_empty() {
            true => Err(FilterError::nothing()),
            false => Ok(frames),
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expr = parser::parse(text)?;
        Ok(Self { text: text.to_owned(), expr })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<TooMany> for FilterError {
    fn from(too_many: TooMany) -> Self {
        Self::too_many(0, too_many)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn read(text: &str) -> Filter {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Matches of the rules, with exceptions after `!`.
    fn regions(text: &str) -> Vec<String> {
        let frames = read(text).frames().unwrap_or_else(|error| panic!("{text}: {error}"));
        let terms = frames.terms().iter().flat_map(|term| {
            let except = term.except.iter().map(|region| format!("!{}", region.matching()));
            std::iter::once(term.region.matching().to_string()).chain(except)
        });
        terms.collect()
    }

    fn refusal(text: &str) -> FilterError {
        match text.parse::<Filter>().and_then(|filter| filter.frames()) {
            Ok(_) => panic!("{text} is taken"),
            Err(error) => error,
        }
    }

    #[test]
    fn primitives_become_matches() {
        let (v4, v6) = ("dl_type=0x0800", "dl_type=0x86dd");
        for (text, expected) in [
            ("ip", vec![v4.to_owned()]),
            ("tcp", vec![format!("{v4},nw_proto=6"), format!("{v6},nw_proto=6")]),
            ("icmp6", vec![format!("{v6},nw_proto=58")]),
            ("igmp", vec![format!("{v4},nw_proto=2")]),
            ("ip proto 89", vec![format!("{v4},nw_proto=89")]),
            ("ip6 proto \\udp", vec![format!("{v6},nw_proto=17")]),
            ("src host ::1", vec![format!("{v6},ipv6_src=::1")]),
            ("ip dst net 10", vec![format!("{v4},nw_dst=10.0.0.0/8")]),
            ("arp src host 10.0.0.1", vec!["dl_type=0x0806,arp_spa=10.0.0.1".to_owned()]),
            (
                "ip src and dst net 10.0.0.0 mask 255.255.0.0",
                vec![format!("{v4},nw_src=10.0.0.0/16,nw_dst=10.0.0.0/16")],
            ),
            ("ether proto 0x88cc", vec!["dl_type=0x88cc".to_owned()]),
            ("ether dst 02:00:00:00:00:01", vec!["dl_dst=02:00:00:00:00:01".to_owned()]),
            ("multicast", vec!["dl_dst=01:00:00:00:00:00/01:00:00:00:00:00".to_owned()]),
            ("broadcast", vec!["dl_dst=ff:ff:ff:ff:ff:ff".to_owned()]),
            ("ip6 multicast", vec![format!("{v6},ipv6_dst=ff00::/8")]),
            ("vlan", vec!["vlan_vid=0x1000/0x1000".to_owned()]),
            ("vlan 100 and ip", vec![format!("{v4},dl_vlan=100")]),
            ("icmp[icmptype] = icmp-echo", vec![format!("{v4},nw_proto=1,icmp_type=8")]),
            ("icmp6[1] == 4", vec![format!("{v6},nw_proto=58,icmpv6_code=4")]),
            ("ip and tcp dst port http", vec![format!("{v4},nw_proto=6,tcp_dst=80")]),
        ] {
            assert_eq!(regions(text), expected, "{text}");
        }
        assert_eq!(regions("port 53").len(), 12, "three protocols, two families, two ways");
    }

    #[test]
    fn exceptions_become_exceptions() {
        let v4 = "dl_type=0x0800";
        assert_eq!(
            regions("ip and not dst port 22"),
            [
                v4.to_owned(),
                format!("!{v4},nw_proto=6,tcp_dst=22"),
                format!("!{v4},nw_proto=17,udp_dst=22"),
                format!("!{v4},nw_proto=132,sctp_dst=22"),
            ]
        );
        assert_eq!(regions("not (ip or ip6)"), ["", "!dl_type=0x0800", "!dl_type=0x86dd"]);
        assert_eq!(regions("not not arp"), ["dl_type=0x0806"]);
        assert_eq!(regions("icmp[icmptype] != 8").len(), 2);
        // A range that leaves out a thousand ports is expressed by those.
        assert_eq!(regions("ip and tcp dst portrange 1024-65535").len(), 1 + 1024);
    }

    #[test]
    fn and_and_or_group_to_the_left() {
        for (text, same) in [
            ("ip or arp and vlan 5", "(ip or arp) and vlan 5"),
            ("not ip or arp", "(not ip) or arp"),
            ("port 80 or 443", "port 80 or port 443"),
            ("tcp dst port (80 or 443)", "tcp dst port 80 or tcp dst port 443"),
            ("host not 10.0.0.1", "not host 10.0.0.1"),
            ("src or dst port 80", "port 80"),
            ("src 10.0.0.1", "src host 10.0.0.1"),
            ("ip && !udp || arp", "ip and not udp or arp"),
            ("portrange 80-81", "port 80 or 81"),
            ("ether src 2:0:0:0:0:1", "ether src host 02-00-00-00-00-01"),
            ("ether host 0200.0000.0001", "ether host 02:00:00:00:00:01"),
        ] {
            assert_eq!(read(text).frames(), read(same).frames(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_has_a_place_and_a_remedy() {
        for (text, at, told) in [
            ("", 0, "leave the filter out"),
            ("tcp prot 80", 4, "`prot`"),
            ("tcp port", 8, "ends"),
            ("(tcp", 4, "`)`"),
            ("tcp)", 3, "`)`"),
            ("port 80 or tcp 80", 15, "`80`"),
            ("port 65536", 5, "65535"),
            ("portrange 9-8", 10, "8-9"),
            ("host example.org", 5, "address"),
            ("host 10.1", 5, "net 10.1"),
            ("net 10.0.0.1/8", 4, "10.0.0.0/8"),
            ("net 10.0.0.0 mask 255.0.255.0", 18, "mask"),
            ("ip6 host 10.0.0.1", 9, "IPv6"),
            ("tcp host 10.0.0.1", 4, "and host"),
            ("ip port 80", 3, "port"),
            ("tcp[tcpflags] & tcp-syn != 0", 3, "OpenFlow 1.3"),
            ("udp[8:4] = 1", 3, "OpenFlow 1.3"),
            ("len > 100", 0, "length"),
            ("greater 100", 0, "length"),
            ("ip broadcast", 3, "broadcast"),
            ("vlan 5 and tcp and vlan 6", 19, "inner VLAN tag"),
            ("vlan 4096", 5, "4095"),
            ("mpls", 0, "0x8847"),
            ("rarp host 10.0.0.1", 5, "rarp"),
            ("ether proto 100", 12, "0x600"),
            ("ether host 1.2.3.4", 11, "MAC"),
            ("icmp[4] = 1", 4, "OpenFlow 1.3"),
            ("icmp[icmptype] = 256", 17, "255"),
            ("icmp[icmptype] > 3", 15, "`=`"),
            ("gateway x", 0, "gateway"),
            ("10.0.0.1", 0, "host 10.0.0.1"),
            ("tcp & udp", 4, "`&`"),
            ("tcp \u{e9}", 4, "expected"),
            ("ip proto 256", 9, "255"),
            ("port 0x", 5, "number"),
            ("portrange 1-60000", 10, "rules"),
            ("tcp and udp", 0, "no frame"),
        ] {
            let error = refusal(text);
            assert_eq!(error.at(), at, "{text}: {error}");
            assert!(error.to_string().contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        assert!(refusal(&"(".repeat(5000)).to_string().contains("4096"));
        assert!(refusal(&"not ".repeat(100)).to_string().contains("deep"));
        assert!(refusal(&format!("{}ip{}", "(".repeat(65), ")".repeat(65))).at() == 64);
        let both = refusal("src portrange 1-200 and (arp or not dst portrange 1-200)");
        assert!(both.to_string().contains("rules"), "{both}");
    }

    proptest! {
        /// Any sequence of words is a filter or an error with a position, and never panics.
        #[test]
        fn any_words_are_read_or_refused(
            words in vec(select(SOUP.to_vec()), 0..16), space in select(vec!["", " "]),
        ) {
            let text = words.join(space);
            if let Err(error) = text.parse::<Filter>().and_then(|filter| filter.region_count()) {
                prop_assert!(text.is_char_boundary(error.at()), "{}: {}", text, error);
            }
        }
    }

    const SOUP: &[&str] = &[
        "tcp",
        "ip",
        "ether",
        "icmp",
        "vlan",
        "src",
        "dst",
        "host",
        "net",
        "port",
        "portrange",
        "proto",
        "mask",
        "and",
        "or",
        "not",
        "(",
        ")",
        "[",
        "]",
        "0",
        "80",
        "1-2",
        "65536",
        "0x",
        "10.0.0.1",
        "10.0.0.0/8",
        "255.0.0.0",
        "::1",
        "2:0:0:0:0:1",
        "icmptype",
        "=",
        "!=",
        "&",
        "multicast",
        "broadcast",
        "\\tcp",
        "\u{e9}",
        "len",
        "arp",
        "rarp",
        "/",
        "-",
        "::1/129",
    ];

    #[test]
    fn frames_are_read_directly() {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 5, 0x88, 0xcc];
        frame.extend([0; 46]);
        assert!(read("vlan 5 and ether proto 0x88cc").matches(&frame));
        assert!(!read("vlan 6 or ip").matches(&frame));
        assert!(!read("not ip").matches(&frame[..5]), "too short to be a frame");
        assert_eq!(read(" tcp  port 80").to_string(), " tcp  port 80");
    }
}
