//! TAP policies: which traffic is copied, and to which monitor.
//!
//! A policy is what an operator writes, in TOML or JSON. [`TapPolicy::check`] refuses what no frame
//! could ever match; [`TapPolicy::regions`] says in OpenFlow's terms what it matches. One policy
//! may be several regions: OpenFlow cannot say "TCP or UDP", "IPv4 or IPv6", "this way or back".

use serde::{Deserialize, Serialize};
use tapswitch_openflow::Delivery;
use tapswitch_wire::MacAddr;

mod word;

pub use word::{Direction, IpProto, Vlan};

use crate::region::{Family, Region};
use crate::text::{as_optional_text, as_text};
use crate::{IpPrefix, MonitorSpec, PolicyError};

/// One TAP: copies of the traffic that has all of these fields go to the monitor. A field that is
/// left out matches anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TapPolicy {
    /// What people call it. No two policies share a name.
    pub name: String,
    /// Source MAC address.
    #[serde(default, with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub src_mac: Option<MacAddr>,
    /// Destination MAC address.
    #[serde(default, with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub dst_mac: Option<MacAddr>,
    /// Source IP addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_ip: Option<IpPrefix>,
    /// Destination IP addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_ip: Option<IpPrefix>,
    /// IP protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_proto: Option<IpProto>,
    /// VLAN of the outermost tag.
    #[serde(default, skip_serializing_if = "Vlan::is_any")]
    pub vlan: Vlan,
    /// TCP, UDP or SCTP source port; TCP and UDP when `ip_proto` is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_port: Option<u16>,
    /// TCP, UDP or SCTP destination port; TCP and UDP when `ip_proto` is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<u16>,
    /// Which way.
    #[serde(default, skip_serializing_if = "Direction::is_forward")]
    pub direction: Direction,
    /// What the copies are owed while the monitor cannot take them. Where another policy copies the
    /// same frames to the same monitor, there is one copy of each, and the stronger contract counts
    /// ([`Delivery::or_stronger`]).
    #[serde(default, with = "as_text", skip_serializing_if = "is_best_effort")]
    pub delivery: Delivery,
    /// Where the copies go.
    pub monitor: MonitorSpec,
}

impl TapPolicy {
    /// A policy that copies all traffic to `monitor`.
    pub fn new(name: impl Into<String>, monitor: MonitorSpec) -> Self {
        Self {
            name: name.into(),
            src_mac: None,
            dst_mac: None,
            src_ip: None,
            dst_ip: None,
            ip_proto: None,
            vlan: Vlan::Any,
            src_port: None,
            dst_port: None,
            direction: Direction::Forward,
            delivery: Delivery::BestEffort,
            monitor,
        }
    }

    /// Whether some frame could match.
    ///
    /// # Errors
    /// The contradiction, the fields it lies in, and what to do.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.check_name()?;
        self.check_macs()?;
        self.check_addresses()?;
        self.check_ports()?;
        match self.vlan {
            Vlan::Id(id) if !(1..=MAX_VLAN_ID).contains(&id) => Err(PolicyError::VlanRange { id }),
            _ => Ok(()),
        }
    }

    /// The regions whose union it matches, each once. The policy must have passed [`Self::check`].
    pub(crate) fn regions(&self) -> Vec<Region> {
        let mut regions = Vec::new();
        for family in self.families() {
            for proto in self.protocols() {
                let region = self.region(family, proto);
                regions.push(region);
                if self.direction == Direction::Both {
                    regions.push(region.reversed());
                }
            }
        }
        regions.sort_unstable();
        regions.dedup();
        regions
    }

    fn check_name(&self) -> Result<(), PolicyError> {
        let len = self.name.chars().count();
        if self.name.trim().is_empty() {
            Err(PolicyError::NameEmpty)
        } else if len > MAX_NAME_LEN {
            Err(PolicyError::NameTooLong { len })
        } else if self.name.chars().any(char::is_control) {
            Err(PolicyError::NameControl { name: self.name.clone() })
        } else {
            Ok(())
        }
    }

    fn check_macs(&self) -> Result<(), PolicyError> {
        let never_source = |mac: &MacAddr| !mac.is_unicast();
        if let Some(mac) = self.src_mac.filter(never_source) {
            return Err(PolicyError::NeverSource { mac });
        }
        match self.dst_mac.filter(never_source) {
            Some(mac) if self.direction == Direction::Both => {
                Err(PolicyError::NeverAnswers { mac })
            }
            Some(MacAddr::ZERO) => Err(PolicyError::NoDestination),
            _ => Ok(()),
        }
    }

    fn check_addresses(&self) -> Result<(), PolicyError> {
        if let (Some(src), Some(dst)) = (self.src_ip, self.dst_ip)
            && src.is_ipv4() != dst.is_ipv4()
        {
            return Err(PolicyError::MixedFamilies { src, dst });
        }
        let prefixes = [("src-ip", self.src_ip), ("dst-ip", self.dst_ip)];
        for (field, prefix) in prefixes {
            let Some(prefix) = prefix else { continue };
            match (self.ip_proto, prefix.is_ipv4()) {
                (Some(IpProto::ICMP), false) => {
                    return Err(PolicyError::IcmpOverIpv6 { field, prefix });
                }
                (Some(IpProto::ICMPV6), true) => {
                    return Err(PolicyError::Icmpv6OverIpv4 { field, prefix });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_ports(&self) -> Result<(), PolicyError> {
        let ports = [("src-port", self.src_port), ("dst-port", self.dst_port)];
        for (field, port) in ports {
            match (port, self.ip_proto) {
                (Some(port), Some(proto)) if !proto.has_ports() => {
                    return Err(PolicyError::NoPorts { field, port, proto });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The IP families to match, or `None` for frames of any type.
    fn families(&self) -> Vec<Option<Family>> {
        let family = |is_ipv4| if is_ipv4 { Family::Ipv4 } else { Family::Ipv6 };
        let has_ports = self.src_port.is_some() || self.dst_port.is_some();
        match (self.src_ip.or(self.dst_ip), self.ip_proto) {
            (Some(prefix), _) => vec![Some(family(prefix.is_ipv4()))],
            (None, Some(IpProto::ICMP)) => vec![Some(Family::Ipv4)],
            (None, Some(IpProto::ICMPV6)) => vec![Some(Family::Ipv6)],
            (None, None) if !has_ports => vec![None],
            _ => vec![Some(Family::Ipv4), Some(Family::Ipv6)],
        }
    }

    /// The IP protocols to match, or `None` for any.
    fn protocols(&self) -> Vec<Option<u8>> {
        let has_ports = self.src_port.is_some() || self.dst_port.is_some();
        match self.ip_proto {
            None if has_ports => vec![Some(IpProto::TCP.0), Some(IpProto::UDP.0)],
            proto => vec![proto.map(|proto| proto.0)],
        }
    }

    fn region(&self, family: Option<Family>, proto: Option<u8>) -> Region {
        let counts = |prefix: &IpPrefix| !prefix.is_all();
        Region {
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            vlan: self.vlan,
            family,
            src_ip: self.src_ip.filter(counts),
            dst_ip: self.dst_ip.filter(counts),
            proto,
            src_port: self.src_port,
            dst_port: self.dst_port,
        }
    }
}

fn is_best_effort(delivery: &Delivery) -> bool {
    *delivery == Delivery::BestEffort
}

/// Characters of a policy's name; what still fits a table on a terminal.
pub(crate) const MAX_NAME_LEN: usize = 64;
/// Highest VLAN identifier (IEEE 802.1Q-2022 §9.6: 4095 is reserved).
pub(crate) const MAX_VLAN_ID: u16 = 4094;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::PortNo;

    fn policy() -> TapPolicy {
        TapPolicy::new("p", MonitorSpec::Port { switch: None, port: PortNo(3) })
    }

    fn ip(text: &str) -> Option<IpPrefix> {
        Some(text.parse().unwrap())
    }

    fn refusal(policy: &TapPolicy) -> String {
        policy.check().unwrap_err().to_string()
    }

    #[test]
    fn toml_and_json_are_read_alike() {
        let toml = r#"
            name = "web"
            src-mac = "02:00:00:00:00:01"
            dst-mac = "02:00:00:00:00:02"
            src-ip = "10.0.0.0/24"
            dst-ip = "10.0.1.7"
            ip-proto = "tcp"
            vlan = 100
            src-port = 40000
            dst-port = 80
            direction = "both"
            delivery = "lossless:20"
            monitor = "0x1/3"
        "#;
        let from_toml: TapPolicy = toml::from_str(toml).unwrap();
        assert_eq!(from_toml.check(), Ok(()));
        assert_eq!(from_toml.vlan, Vlan::Id(100));
        assert_eq!(from_toml.delivery, Delivery::Lossless { stall_ms: 20 });
        let json = serde_json::to_string(&from_toml).unwrap();
        assert_eq!(serde_json::from_str::<TapPolicy>(&json).unwrap(), from_toml);
        assert!(json.contains(r#""src-ip":"10.0.0.0/24""#), "{json}");
    }

    #[test]
    fn only_name_and_monitor_are_needed() {
        let least: TapPolicy = toml::from_str("name = 'p'\nmonitor = 3\n").unwrap();
        assert_eq!(least, policy());
        let json = serde_json::to_string(&least).unwrap();
        assert_eq!(json, r#"{"name":"p","monitor":"3"}"#);
        assert!(toml::from_str::<TapPolicy>("name = 'p'").is_err());
    }

    #[test]
    fn unknown_keys_and_malformed_values_are_refused() {
        for (line, told) in [
            ("dst-prot = 80", "unknown field"),
            ("dst-port = 65536", "65536"),
            ("src-ip = '10.0.0.1/24'", "zeros behind the prefix"),
            ("src-mac = '1'", "six hexadecimal bytes"),
            ("ip-proto = 'tpc'", "an IP protocol"),
            ("vlan = 'one'", "a VLAN id"),
            ("vlan = -1", "a VLAN id"),
            ("direction = 'back'", "unknown variant"),
            ("delivery = 'lossless:0'", "expected a contract"),
        ] {
            let text = format!("name = 'p'\nmonitor = 3\n{line}\n");
            let error = toml::from_str::<TapPolicy>(&text).unwrap_err().to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
    }

    #[test]
    fn contradictions_name_fields_and_remedy() {
        let group = Some(MacAddr([1, 0, 0x5e, 0, 0, 1]));
        let cases = [
            (TapPolicy { name: " ".into(), ..policy() }, "name: it is empty"),
            (TapPolicy { name: "x".repeat(65), ..policy() }, "name: 65 characters"),
            (TapPolicy { name: "a\nb".into(), ..policy() }, "control character"),
            (
                TapPolicy { src_ip: ip("10.0.0.1"), dst_ip: ip("::1"), ..policy() },
                "src-ip 10.0.0.1",
            ),
            (
                TapPolicy { src_ip: ip("::1"), ip_proto: Some(IpProto::ICMP), ..policy() },
                "use icmpv6",
            ),
            (
                TapPolicy { dst_ip: ip("10.0.0.1"), ip_proto: Some(IpProto::ICMPV6), ..policy() },
                "use icmp",
            ),
            (
                TapPolicy { dst_port: Some(80), ip_proto: Some(IpProto::ICMP), ..policy() },
                "dst-port 80: icmp has no ports",
            ),
            (TapPolicy { vlan: Vlan::Id(4095), ..policy() }, "vlan 4095"),
            (TapPolicy { vlan: Vlan::Id(0), ..policy() }, "vlan 0"),
            (TapPolicy { src_mac: group, ..policy() }, "src-mac 01:00:5e:00:00:01"),
            (
                TapPolicy { dst_mac: group, direction: Direction::Both, ..policy() },
                "dst-mac 01:00:5e:00:00:01",
            ),
            (TapPolicy { dst_mac: Some(MacAddr::ZERO), ..policy() }, "dst-mac"),
        ];
        for (policy, told) in cases {
            let text = refusal(&policy);
            assert!(text.contains(told), "{text}");
        }
        assert_eq!(TapPolicy { dst_mac: group, ..policy() }.check(), Ok(()));
    }

    #[test]
    fn what_openflow_cannot_say_at_once_becomes_several_regions() {
        let count = |policy: &TapPolicy| policy.regions().len();
        assert_eq!(count(&policy()), 1);
        assert_eq!(count(&TapPolicy { direction: Direction::Both, ..policy() }), 1);
        assert_eq!(count(&TapPolicy { ip_proto: Some(IpProto::TCP), ..policy() }), 2);
        assert_eq!(count(&TapPolicy { ip_proto: Some(IpProto::ICMP), ..policy() }), 1);
        let dns = TapPolicy { dst_port: Some(53), ..policy() };
        assert_eq!(count(&dns), 4, "TCP and UDP over IPv4 and IPv6");
        assert_eq!(count(&TapPolicy { direction: Direction::Both, ..dns.clone() }), 8);
        assert_eq!(count(&TapPolicy { src_ip: ip("10.0.0.0/8"), ..dns }), 2);
        let all_v4 = TapPolicy { src_ip: ip("0.0.0.0/0"), ..policy() }.regions();
        assert_eq!((all_v4[0].family, all_v4[0].src_ip), (Some(Family::Ipv4), None));
    }
}
