//! Detects fields that contradict each other or the format of frames.

use std::collections::HashSet;

use tapswitch_wire::{EtherType, MacAddr};

use super::bounds::{MAX_MONITORS, MAX_NAME_LEN, MAX_TEXT_LEN, MAX_VLAN_ID, MIN_SNAPLEN};
use super::{Point, Transport};
use crate::family::Family;
use crate::filter::MAX_FILTER_LEN;
use crate::port_range::PortRange;
use crate::region::MAX_SIZE;
use crate::word::{Direction, IpProto, Vlan};
use crate::{Monitors, PolicyError, TapPolicy};

impl TapPolicy {
    /// Shortens the texts of the policy to the allowed lengths, to report a rejected one, whose
    /// texts may have any length. A valid policy is unchanged.
    #[must_use]
    pub fn cut_to_limits(mut self) -> Self {
        cut_text(&mut self.name, MAX_NAME_LEN);
        for text in [&mut self.owner, &mut self.reason].into_iter().flatten() {
            cut_text(text, MAX_TEXT_LEN);
        }
        if let Some(filter) = self.filter.as_mut().filter(|filter| filter.len() > MAX_FILTER_LEN) {
            // Limited in bytes, unlike the others.
            end_at(filter, (0..=MAX_FILTER_LEN).rfind(|at| filter.is_char_boundary(*at)));
        }
        if self.monitor.count() > MAX_MONITORS {
            self.monitor = Monitors::new(self.monitor.iter().take(MAX_MONITORS).cloned().collect());
        }
        self
    }

    /// Checks everything except the filter.
    pub(crate) fn check_fields(&self) -> Result<(), PolicyError> {
        self.check_name()?;
        self.check_monitors()?;
        check_text("owner", self.owner.as_deref())?;
        check_text("reason", self.reason.as_deref())?;
        self.check_macs()?;
        self.check_point()?;
        self.check_type()?;
        self.check_addresses()?;
        self.check_ports()?;
        self.check_ranges()?;
        match (self.vlan, self.snaplen) {
            (Vlan::Id(id), _) if !(1..=MAX_VLAN_ID).contains(&id) => {
                Err(PolicyError::VlanRange { id })
            }
            (_, Some(len)) if len < MIN_SNAPLEN => Err(PolicyError::SnaplenRange { len }),
            _ => Ok(()),
        }
    }

    fn check_name(&self) -> Result<(), PolicyError> {
        let len = self.name.chars().count();
        if self.name.trim().is_empty() {
            Err(PolicyError::NameEmpty)
        } else if len > MAX_NAME_LEN {
            Err(PolicyError::NameTooLong { len })
        } else if self.name.chars().any(is_unseen) {
            Err(PolicyError::NameUnseen { name: self.name.clone() })
        } else if self.name.trim() != self.name {
            Err(PolicyError::NameBlank { name: self.name.clone() })
        } else if [".", ".."].contains(&&*self.name) {
            Err(PolicyError::NameStep { name: self.name.clone() })
        } else {
            Ok(())
        }
    }

    fn check_monitors(&self) -> Result<(), PolicyError> {
        let count = self.monitor.count();
        if count == 0 {
            return Err(PolicyError::NoMonitor);
        }
        if count > MAX_MONITORS {
            return Err(PolicyError::TooManyMonitors { count });
        }
        let mut seen = HashSet::new();
        match self.monitor.iter().find(|monitor| !seen.insert(*monitor)) {
            Some(twice) => Err(PolicyError::MonitorTwice { monitor: twice.clone() }),
            None => Ok(()),
        }
    }

    fn check_macs(&self) -> Result<(), PolicyError> {
        let never_source = |mac: &MacAddr| !mac.is_unicast();
        if let Some(mac) = self.src_mac.filter(never_source) {
            return Err(PolicyError::NeverSource { mac });
        }
        match self.dst_mac.filter(never_source) {
            Some(mac) if self.ways() == Direction::Both => Err(PolicyError::NeverAnswers { mac }),
            Some(MacAddr::ZERO) => Err(PolicyError::NoDestination),
            _ => Ok(()),
        }
    }

    /// At the egress, and for the restoring of addresses, the destination must be one host.
    fn check_point(&self) -> Result<(), PolicyError> {
        let by = match (self.transport, self.observed_at()) {
            (Transport::Svlan, Point::Ingress) => return Ok(()),
            (Transport::Rewrite, Point::Ingress) => return Err(PolicyError::RewriteAtIngress),
            (Transport::Rewrite, Point::Egress) => "transport rewrite",
            (Transport::Svlan, Point::Egress) => "point egress",
        };
        match self.dst_mac {
            None => Err(PolicyError::NoOneDestination { by }),
            Some(mac) if !mac.is_unicast() => Err(PolicyError::GroupAtEgress { by, mac }),
            Some(_) if self.ways() == Direction::Both => Err(PolicyError::BothAtEgress { by }),
            Some(_) => Ok(()),
        }
    }

    /// Checks the fields that an EtherType excludes.
    fn check_type(&self) -> Result<(), PolicyError> {
        let Some(eth_type) = self.eth_type else { return Ok(()) };
        if EtherType(eth_type.0).is_tag() {
            return Err(PolicyError::TagType { eth_type });
        }
        if eth_type.0 < tapswitch_wire::ethernet::MIN_ETHER_TYPE {
            return Err(PolicyError::NoType { eth_type });
        }
        let family = eth_type.family();
        let is_ip = matches!(family, Family::Ipv4 | Family::Ipv6);
        let has_addresses = is_ip || family == Family::Arp;
        let beside = [
            ("src-ip", self.src_ip.is_some() && !has_addresses),
            ("dst-ip", self.dst_ip.is_some() && !has_addresses),
            ("ip-proto", self.ip_proto.is_some() && !is_ip),
            ("src-port", self.src_port.is_some() && !is_ip),
            ("dst-port", self.dst_port.is_some() && !is_ip),
        ];
        match beside.iter().find(|(_, is_wrong)| *is_wrong) {
            Some((field, _)) => Err(PolicyError::NotOfType { field, eth_type }),
            None => self.check_family(family),
        }
    }

    /// Checks that addresses and protocol belong to the family of the EtherType.
    fn check_family(&self, family: Family) -> Result<(), PolicyError> {
        let Some(eth_type) = self.eth_type else { return Ok(()) };
        let is_ipv4 = family != Family::Ipv6;
        for (field, prefix) in [("src-ip", self.src_ip), ("dst-ip", self.dst_ip)] {
            if let Some(prefix) = prefix.filter(|prefix| prefix.is_ipv4() != is_ipv4) {
                return Err(PolicyError::WrongFamily { field, prefix, eth_type });
            }
        }
        let other = if is_ipv4 { IpProto::ICMPV6 } else { IpProto::ICMP };
        match self.ip_proto {
            Some(proto) if proto == other => Err(PolicyError::WrongIcmp { proto, eth_type }),
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
        for (field, ports) in ports {
            match (ports, self.ip_proto) {
                (Some(ports), Some(proto)) if !proto.has_ports() => {
                    return Err(PolicyError::NoPorts { field, ports, proto });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Bounds the port ranges, as each port takes a rule.
    fn check_ranges(&self) -> Result<(), PolicyError> {
        let [src, dst] =
            [self.src_port, self.dst_port].map(|ports| ports.map_or(1, PortRange::region_count));
        let ways = if self.ways() == Direction::Both { 2 } else { 1 };
        let rules = self.families().len() * self.protocols().len() * src * dst * ways;
        let (field, ports) = match (self.src_port, self.dst_port) {
            (None, None) => return Ok(()),
            (None, Some(ports)) => ("dst-port", ports),
            (Some(_), Some(ports)) if dst >= src => ("dst-port", ports),
            (Some(ports), _) => ("src-port", ports),
        };
        match rules > MAX_SIZE {
            true => Err(PolicyError::RangeTooWide { field, ports, rules }),
            false => Ok(()),
        }
    }
}

/// Cuts a text to at most `max_count` characters, the last being `…` if any were removed.
pub fn cut_text(text: &mut String, max_count: usize) {
    end_at(text, text.char_indices().nth(max_count).map(|(end, _)| end));
}

/// Cuts a text at this byte, if any, and appends `…`.
fn end_at(text: &mut String, end: Option<usize>) {
    if let Some(end) = end {
        text.truncate(end);
        text.push('…');
    }
}

/// Whether a character is invisible or changes how others are displayed, so that two different
/// names may look the same: control characters, format characters (Cf in Unicode 17), and line or
/// paragraph separators.
fn is_unseen(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}'
            | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}' | '\u{e0020}'..='\u{e007f}'
        )
}

fn check_text(field: &'static str, text: Option<&str>) -> Result<(), PolicyError> {
    let Some(text) = text else { return Ok(()) };
    let len = text.chars().count();
    if text.trim().is_empty() {
        Err(PolicyError::TextEmpty { field })
    } else if len > MAX_TEXT_LEN {
        Err(PolicyError::TextTooLong { field, len })
    } else if text.chars().any(|char| is_unseen(char) && !JOINERS.contains(&char)) {
        Err(PolicyError::TextUnseen { field })
    } else {
        Ok(())
    }
}

/// Needed in some scripts and in emoji.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

#[cfg(test)]
mod tests {
    use super::*;

    /// The text cannot change how the rest of an audit record is displayed.
    #[test]
    fn texts_do_not_turn_around_what_stands_behind_them() {
        let policy = |reason: &str| TapPolicy {
            reason: Some(reason.to_owned()),
            ..TapPolicy::new("web", "3".parse().unwrap())
        };
        for reason in ["caf\u{e9}", "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}"] {
            assert_eq!(policy(reason).check(), Ok(()), "{reason}");
        }
        for reason in ["a\u{202e}b", "a\u{2066}b", "a\u{2028}b", "a\tb"] {
            let refused = policy(reason).check().unwrap_err();
            assert_eq!(refused, PolicyError::TextUnseen { field: "reason" });
        }
    }

    fn check_name(name: &str) -> Result<(), PolicyError> {
        TapPolicy::new(name, "3".parse().unwrap()).check()
    }

    /// Clients shorten `/policies/..` to `/`, and invisible characters make names look alike.
    #[test]
    fn names_can_be_addressed_and_told_apart() {
        for name in ["web", "a b", "...", ".web", "web.", "ü/%2e", "網"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let named = |name: &str| name.to_owned();
        for name in [".", ".."] {
            assert_eq!(check_name(name), Err(PolicyError::NameStep { name: named(name) }));
        }
        for name in [" web", "web ", "web\u{a0}", "\u{3000}web"] {
            assert_eq!(check_name(name), Err(PolicyError::NameBlank { name: named(name) }));
        }
        let unseen =
            ["we\u{200b}b", "\u{202e}bew", "web\u{feff}", "w\u{2028}b", "w\u{e0061}b", "w\tb"];
        for name in unseen {
            let refused = check_name(name).unwrap_err();
            assert_eq!(refused, PolicyError::NameUnseen { name: named(name) });
            assert_eq!(refused.field(), Some("name"));
            assert!(!refused.to_string().contains(is_unseen), "{refused}");
        }
        assert_eq!(check_name(" \u{3000}"), Err(PolicyError::NameEmpty));
    }
}
