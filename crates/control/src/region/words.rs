//! Readable description of regions.

use std::fmt::{self, Display};

use super::Region;
use super::frames::Term;
use crate::family::Family;
use crate::{EthType, IpProto, Vlan};

impl Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind())?;
        let has_ports = self.proto.is_some_and(|proto| IpProto(proto).has_ports());
        let ends = [
            ("from", self.src_mac, self.src_ip, self.src_port),
            ("to", self.dst_mac, self.dst_ip, self.dst_port),
        ];
        for (word, mac, ip, port) in ends {
            let mac = mac.map(|mac| mac.to_string());
            let port = port.filter(|_| has_ports).map(|port| format!("port {port}"));
            let parts: Vec<_> =
                mac.into_iter().chain(ip.map(|ip| ip.to_string())).chain(port).collect();
            if !parts.is_empty() {
                write!(f, " {word} {}", parts.join(" "))?;
            }
        }
        if !has_ports {
            let numbers = [("type", self.src_port), ("code", self.dst_port)];
            for (word, number) in numbers {
                number.map_or(Ok(()), |number| write!(f, " {word} {number}"))?;
            }
        }
        match self.vlan {
            Vlan::Any => Ok(()),
            Vlan::Id(id) => write!(f, ", VLAN {id}"),
            Vlan::Tagged | Vlan::Untagged => write!(f, ", {}", self.vlan),
        }
    }
}

impl Region {
    /// The kind of frames.
    fn kind(&self) -> String {
        let family = match self.family {
            None => return "all frames".to_owned(),
            Some(Family::Ipv4) => "IPv4".to_owned(),
            Some(Family::Ipv6) => "IPv6".to_owned(),
            Some(Family::Arp) => "ARP".to_owned(),
            Some(Family::Other(kind)) => format!("frames of type {}", EthType(kind)),
        };
        match self.proto.map(IpProto) {
            None => family,
            Some(proto @ (IpProto::TCP | IpProto::UDP | IpProto::SCTP | IpProto::ICMP)) => {
                format!("{} over {family}", proto.to_string().to_uppercase())
            }
            Some(IpProto::ICMPV6) => "ICMPv6".to_owned(),
            Some(proto) => format!("{family} protocol {proto}"),
        }
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(f)?;
        for (index, except) in self.except.iter().enumerate() {
            let word = if index == 0 { "but not" } else { "nor" };
            // An exception that differs only in its tag is described by the tag.
            match (Region { vlan: self.region.vlan, ..*except } == self.region, except.vlan) {
                (true, Vlan::Id(id)) => write!(f, "; {word} VLAN {id}")?,
                (true, vlan) => write!(f, "; {word} {vlan}")?,
                (false, _) => write!(f, "; {word} {except}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Direction, TapPolicy};

    fn words(filter: &str) -> Vec<String> {
        let filter = Some(filter.to_owned());
        let direction = Some(Direction::Forward);
        let policy = TapPolicy { filter, direction, ..TapPolicy::new("p", "3".parse().unwrap()) };
        policy.words().unwrap()
    }

    #[test]
    fn filters_are_told_in_words() {
        for (filter, told) in [
            ("ip and src net 10.0.0.0/24", &["IPv4 from 10.0.0.0/24"][..]),
            ("ip and tcp dst port 80 and vlan 5", &["TCP over IPv4 to port 80, VLAN 5"]),
            (
                "ip and udp src port 53 and src host 10.0.0.1",
                &["UDP over IPv4 from 10.0.0.1 port 53"],
            ),
            ("icmp[icmptype] = icmp-echo", &["ICMP over IPv4 type 8"]),
            (
                "ether src 02:00:00:00:00:03 and not vlan",
                &["all frames from 02:00:00:00:00:03; but not tagged"],
            ),
            ("ip and not udp", &["IPv4; but not UDP over IPv4"]),
            ("multicast", &["all frames to groups"]),
            ("arp or icmp6", &["ARP", "ICMPv6"]),
        ] {
            let mut words = words(filter);
            words.sort();
            assert_eq!(words, told, "{filter}");
        }
    }
}
