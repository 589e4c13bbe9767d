//! One-line summary of a policy for logs, lists and the audit log.

use std::fmt::{self, Write as _};

use super::Point;
use crate::TapPolicy;
use crate::word::{Direction, Vlan};
use tapswitch_openflow::Delivery;

impl TapPolicy {
    /// The traffic it selects: its match fields as typed.
    pub fn traffic(&self) -> String {
        let mut text = String::new();
        let mut field = |name: &str, value: Option<&dyn fmt::Display>| {
            if let Some(value) = value {
                let space = if text.is_empty() { "" } else { " " };
                // Writing to a string does not fail.
                let _ = write!(text, "{space}{name}={value}");
            }
        };
        field("src-mac", self.src_mac.as_ref().map(|mac| mac as _));
        field("dst-mac", self.dst_mac.as_ref().map(|mac| mac as _));
        field("vlan", (self.vlan != Vlan::Any).then_some(&self.vlan as _));
        field("eth-type", self.eth_type.as_ref().map(|eth_type| eth_type as _));
        field("src-ip", self.src_ip.as_ref().map(|ip| ip as _));
        field("dst-ip", self.dst_ip.as_ref().map(|ip| ip as _));
        field("ip-proto", self.ip_proto.as_ref().map(|proto| proto as _));
        field("src-port", self.src_port.as_ref().map(|ports| ports as _));
        field("dst-port", self.dst_port.as_ref().map(|ports| ports as _));
        if let Some(filter) = &self.filter {
            text.push_str(if text.is_empty() { "" } else { " " });
            text.push_str(filter.trim());
        }
        if text.is_empty() {
            return "everything".to_owned();
        }
        if self.ways() == Direction::Both {
            text.push_str(", both directions");
        }
        text
    }

    /// The whole policy: traffic, monitors, form, lifetime, owner and reason.
    pub fn summary(&self) -> String {
        let mut parts = vec![format!("{}: {} to {}", self.name, self.traffic(), self.monitor)];
        let mut part = |word: &str, value: Option<String>| {
            parts.extend(value.map(|value| format!("{word}{value}")));
        };
        let contract = (self.delivery != Delivery::BestEffort).then(|| self.delivery.to_string());
        part("", contract);
        part("", self.sample.map(|sample| format!("{sample} of the frames")));
        part("", self.snaplen.map(|len| format!("{len} bytes of each packet")));
        part("", (!self.tags.is_keep()).then(|| "without VLAN tags".to_owned()));
        let is_after = self.observed_at() == Point::Egress;
        part("", is_after.then(|| "after rewrites".to_owned()));
        part("", (!self.transport.is_svlan()).then(|| format!("by {}", self.transport)));
        part("priority ", (self.priority != 0).then(|| self.priority.to_string()));
        part("", self.schedule.as_ref().map(|schedule| format!("{schedule} UTC")));
        part("until ", self.expires.map(|at| at.to_string()));
        part("by ", self.owner.clone());
        part("for ", self.reason.clone());
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_reads_in_one_line() {
        let all = TapPolicy::new("all", "3".parse().unwrap());
        assert_eq!(all.summary(), "all: everything to 3");
        let text = r#"
            name = "web"
            monitor = "watch0"
            src-ip = "10.0.0.1"
            dst-port = "8000-8010"
            vlan = 100
            filter = " tcp and not host 10.0.0.9 "
            direction = "both"
            delivery = "lossless:20"
            sample = "1/10"
            snaplen = 128
            priority = 9
            schedule = "Mon-Fri 08:00-18:00"
            expires = "30m"
            owner = "ops"
            reason = "slow checkout, ticket 42"
        "#;
        let web: TapPolicy = toml::from_str(text).unwrap();
        assert_eq!(
            web.summary(),
            "web: vlan=100 src-ip=10.0.0.1 dst-port=8000-8010 tcp and not host 10.0.0.9, both \
             directions to watch0, lossless:20, 1/10 of the frames, 128 bytes of each packet, \
             priority 9, Mon-Fri 08:00-18:00 UTC, until 30m, by ops, for slow checkout, ticket 42"
        );
        let again: TapPolicy = toml::from_str(&toml::to_string(&web).unwrap()).unwrap();
        assert_eq!(again, web);
    }
}
