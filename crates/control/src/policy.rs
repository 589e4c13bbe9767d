//! TAP policies: which traffic is copied, and to which monitor.
//!
//! An operator writes policies in TOML or JSON. [`TapPolicy::check`] rejects those that no frame
//! could match; [`TapPolicy::cells`] translates their fields to OpenFlow matches. One policy may
//! need many matches (regions), as OpenFlow cannot express "TCP or UDP", "IPv4 or IPv6", "both
//! directions", "ports 8000 to 8010" or "not ARP".

use serde::{Deserialize, Serialize};
use tapswitch_openflow::Delivery;
use tapswitch_wire::MacAddr;

pub(crate) mod bounds;
mod check;
mod form;
mod part;
mod sample;
mod schedule;
mod summary;

pub use check::cut_text;
pub use form::{Point, Tagging, Transport};
pub(crate) use part::Part;
pub use sample::Sample;
pub use schedule::Schedule;

use crate::expiry::Expiry;
use crate::family::Family;
use crate::filter::Filter;
use crate::port_range::PortRange;
use crate::region::{Cells, Frames, MacMask, Region, TooMany, ports_within};
use crate::text::{as_optional_text, as_text};
use crate::word::{Direction, EthType, IpProto, Vlan};
use crate::{IpPrefix, MonitorSpec, Monitors, PolicyError};

/// One TAP: traffic that has all of these fields is copied to the monitor. An omitted field matches
/// anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TapPolicy {
    /// Name, unique among policies.
    pub name: String,
    /// An expression in the syntax of tcpdump ([`Filter`]), in addition to the other fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Source MAC address.
    #[serde(default, with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub src_mac: Option<MacAddr>,
    /// Destination MAC address.
    #[serde(default, with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub dst_mac: Option<MacAddr>,
    /// EtherType after all tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eth_type: Option<EthType>,
    /// Source IP addresses; the sender address in ARP if `eth_type` is ARP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_ip: Option<IpPrefix>,
    /// Destination IP addresses; the target address in ARP if `eth_type` is ARP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_ip: Option<IpPrefix>,
    /// IP protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_proto: Option<IpProto>,
    /// VLAN of the outermost tag.
    #[serde(default, skip_serializing_if = "Vlan::is_any")]
    pub vlan: Vlan,
    /// TCP, UDP or SCTP source ports; TCP and UDP if `ip_proto` is omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_port: Option<PortRange>,
    /// TCP, UDP or SCTP destination ports; TCP and UDP if `ip_proto` is omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<PortRange>,
    /// Direction; by default both, where such frames can have answers ([`Self::ways`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Delivery contract of the copies. If another policy copies the same frames to the same
    /// monitor, one copy serves both, and the stronger contract counts ([`Delivery::or_stronger`]).
    #[serde(default, with = "as_text", skip_serializing_if = "is_best_effort")]
    pub delivery: Delivery,
    /// Bytes of each packet to keep, counted from its Ethernet header; all by default. If another
    /// policy copies the same frames to the same monitor, the larger value counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u16>,
    /// Sampling ratio; every frame by default. For shared copies the larger share counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// Handling of VLAN tags in copies. For shared copies, keeping them wins.
    #[serde(default, skip_serializing_if = "Tagging::is_keep")]
    pub tags: Tagging,
    /// Where frames are copied; by default at the ingress, with [`Transport::Rewrite`] at the
    /// egress ([`Self::observed_at`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// How copies travel to a monitor at another switch.
    #[serde(default, skip_serializing_if = "Transport::is_svlan")]
    pub transport: Transport,
    /// Precedence if a switch has no room for all policies: the lower one yields, among equals the
    /// newer one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u8,
    /// When the policy is deleted automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Expiry>,
    /// When copies are made; always by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Who is responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Destination of the copies.
    pub monitor: Monitors,
}

impl TapPolicy {
    /// A policy that copies all traffic to `monitor`.
    pub fn new(name: impl Into<String>, monitor: MonitorSpec) -> Self {
        Self::to_several(name, monitor.into())
    }

    /// A policy that copies all traffic to each of `monitors`.
    pub fn to_several(name: impl Into<String>, monitors: Monitors) -> Self {
        Self {
            name: name.into(),
            filter: None,
            src_mac: None,
            dst_mac: None,
            eth_type: None,
            src_ip: None,
            dst_ip: None,
            ip_proto: None,
            vlan: Vlan::Any,
            src_port: None,
            dst_port: None,
            direction: None,
            delivery: Delivery::BestEffort,
            snaplen: None,
            sample: None,
            tags: Tagging::Keep,
            point: None,
            transport: Transport::Svlan,
            priority: 0,
            expires: None,
            schedule: None,
            owner: None,
            reason: None,
            monitor: monitors,
        }
    }

    /// Validates the policy: some frame can match, and the other fields are consistent.
    ///
    /// # Errors
    /// The contradiction, the fields involved, and the remedy.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.check_fields()?;
        self.cells().map(|_| ())
    }

    /// Where frames are copied.
    pub fn observed_at(&self) -> Point {
        let is_readdressed = self.transport == Transport::Rewrite;
        self.point.unwrap_or(if is_readdressed { Point::Egress } else { Point::Ingress })
    }

    /// The direction in force. By default it is one-way if the destination is a group address,
    /// which sends no answers, or if frames are copied at the host's switch, where answers do not
    /// leave.
    pub fn ways(&self) -> Direction {
        let to_group = self.dst_mac.is_some_and(|mac| !mac.is_unicast());
        let is_one = to_group || self.observed_at() == Point::Egress;
        self.direction.unwrap_or(if is_one { Direction::Forward } else { Direction::Both })
    }

    /// The policy with its effective direction and point filled in, for display. The direction of
    /// an invalid policy is unchanged.
    #[must_use]
    pub fn with_defaults_said(mut self) -> Self {
        self.point = Some(self.observed_at());
        if self.direction.is_none() && self.check_fields().is_ok() {
            let answers = self.one_way().and_then(|there| Ok(there.reversed()?));
            let is_answered = answers.is_ok_and(|answers| !answers.is_empty());
            self.direction = Some(if is_answered { self.ways() } else { Direction::Forward });
        }
        self
    }

    /// Whether a frame, starting at its destination address, is copied. An invalid policy matches
    /// nothing.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let cells = self.cells().unwrap_or_default();
        tapswitch_wire::parse(frame).is_ok_and(|parsed| cells.contains(&parsed.key))
    }

    /// Which part of the matched traffic is copied.
    pub(crate) fn part(&self) -> Part {
        let pops = if self.tags == Tagging::Strip { STRIPPED } else { 0 };
        Part { snaplen: self.snaplen, sample: self.sample, pops }
    }

    /// The destination host, if frames are copied at its switch.
    pub(crate) fn awaited_by(&self) -> Option<MacAddr> {
        self.dst_mac.filter(|_| self.observed_at() == Point::Egress)
    }

    /// The destination host, if copies travel with another address, which is then restored at the
    /// end.
    pub(crate) fn rewritten(&self) -> Option<MacAddr> {
        self.dst_mac.filter(|_| self.transport == Transport::Rewrite)
    }

    /// Number of regions, which is the number of rules in a switch that knows none of the hosts.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn region_count(&self) -> Result<usize, PolicyError> {
        self.check_fields()?;
        self.cells().map(|cells| cells.regions().count())
    }

    /// Readable description of the match: one line for each set of frames.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn words(&self) -> Result<Vec<String>, PolicyError> {
        self.check_fields()?;
        Ok(self.frames()?.terms().iter().map(ToString::to_string).collect())
    }

    /// The match in layers. The fields must have passed [`Self::check`].
    pub(crate) fn cells(&self) -> Result<Cells, PolicyError> {
        Ok(Cells::new(&self.frames()?)?)
    }

    fn frames(&self) -> Result<Frames, PolicyError> {
        let there = self.one_way()?;
        if self.ways() == Direction::Forward {
            return Ok(there);
        }
        let back = there.reversed()?;
        match back.is_empty() {
            true if self.direction.is_some() => Err(PolicyError::NoAnswers),
            true => Ok(there),
            false => Ok(there.union(back)?),
        }
    }

    /// Frames from source to destination.
    fn one_way(&self) -> Result<Frames, PolicyError> {
        let fields = self.fields()?;
        let there = match &self.filter {
            None => fields,
            Some(filter) => fields.intersect(&filter.parse::<Filter>()?.frames()?)?,
        };
        match there.is_empty() {
            true => Err(PolicyError::NothingLeft),
            false => Ok(there),
        }
    }

    /// Frames that have all fields except the filter, in one direction.
    fn fields(&self) -> Result<Frames, PolicyError> {
        let protocols = self.protocols();
        let families = self.families().into_iter();
        let bases = families
            .flat_map(|family| protocols.iter().map(move |proto| self.region(family, *proto)));
        let bases: Vec<_> = bases.collect();
        let ends: [(Option<PortRange>, SetPort); 2] = [
            (self.src_port, |region, port| Region { src_port: Some(port), ..region }),
            (self.dst_port, |region, port| Region { dst_port: Some(port), ..region }),
        ];
        let mut frames = Frames::of(bases.iter().copied())?;
        for (ports, set) in ends {
            if let Some(ports) = ports {
                frames = frames.intersect(&ports_within(&bases, ports, set)?)?;
            }
        }
        Ok(frames)
    }

    /// Families to match; `None` for any.
    fn families(&self) -> Vec<Option<Family>> {
        let family = |is_ipv4| if is_ipv4 { Family::Ipv4 } else { Family::Ipv6 };
        let has_ports = self.src_port.is_some() || self.dst_port.is_some();
        match (self.eth_type, self.src_ip.or(self.dst_ip), self.ip_proto) {
            (Some(eth_type), ..) => vec![Some(eth_type.family())],
            (None, Some(prefix), _) => vec![Some(family(prefix.is_ipv4()))],
            (None, None, Some(IpProto::ICMP)) => vec![Some(Family::Ipv4)],
            (None, None, Some(IpProto::ICMPV6)) => vec![Some(Family::Ipv6)],
            (None, None, None) if !has_ports => vec![None],
            _ => vec![Some(Family::Ipv4), Some(Family::Ipv6)],
        }
    }

    /// IP protocols to match; `None` for any.
    fn protocols(&self) -> Vec<Option<u8>> {
        let has_ports = self.src_port.is_some() || self.dst_port.is_some();
        match self.ip_proto {
            None if has_ports => vec![Some(IpProto::TCP.0), Some(IpProto::UDP.0)],
            proto => vec![proto.map(|proto| proto.0)],
        }
    }

    /// The region of one family and protocol, for all ports.
    fn region(&self, family: Option<Family>, proto: Option<u8>) -> Region {
        let counts = |prefix: &IpPrefix| !prefix.is_all();
        Region {
            src_mac: self.src_mac.map(MacMask::one),
            dst_mac: self.dst_mac.map(MacMask::one),
            vlan: self.vlan,
            family,
            src_ip: self.src_ip.filter(counts),
            dst_ip: self.dst_ip.filter(counts),
            proto,
            src_port: None,
            dst_port: None,
        }
    }
}

impl From<TooMany> for PolicyError {
    fn from(too_many: TooMany) -> Self {
        match too_many {
            TooMany::Regions { needed } => Self::TooManyRegions { needed },
            TooMany::Pairs => Self::TooInvolved,
        }
    }
}

type SetPort = fn(Region, u16) -> Region;

fn is_best_effort(delivery: &Delivery) -> bool {
    *delivery == Delivery::BestEffort
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(priority: &u8) -> bool {
    *priority == 0
}

/// Number of tags stripped from copies: those of QinQ.
const STRIPPED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::bounds::{MAX_MONITORS, MAX_NAME_LEN, MAX_TEXT_LEN};
    use super::*;
    use tapswitch_openflow::PortNo;

    fn policy() -> TapPolicy {
        let monitor = MonitorSpec::Port { switch: None, port: PortNo(3) };
        TapPolicy { direction: Some(Direction::Forward), ..TapPolicy::new("p", monitor) }
    }

    #[test]
    fn what_is_told_of_a_refused_policy_has_an_end() {
        let long = Some("é".repeat(60_000));
        let (filter, owner, reason) = (long.clone(), long.clone(), long);
        let monitors = Monitors::new(vec!["3".parse().unwrap(); 5000]);
        let plain = TapPolicy::to_several("n".repeat(60_000), monitors);
        let cut = TapPolicy { filter, owner, reason, ..plain }.cut_to_limits();
        assert_eq!(cut.name, "n".repeat(MAX_NAME_LEN) + "…");
        assert_eq!(cut.reason, Some("é".repeat(MAX_TEXT_LEN) + "…"));
        assert_eq!(cut.filter, Some("é".repeat(2048) + "…"));
        assert_eq!(cut.monitor.count(), MAX_MONITORS);
        let sound = TapPolicy { filter: Some("tcp".to_owned()), ..cut };
        let sound =
            TapPolicy { name: "a".repeat(MAX_NAME_LEN), owner: None, reason: None, ..sound };
        assert_eq!(sound.clone().cut_to_limits(), sound);
    }

    #[test]
    fn both_ways_are_meant_where_there_are_answers() {
        let said = |text: &str| {
            let policy: TapPolicy =
                toml::from_str(&format!("name = 'p'\nmonitor = '3'\n{text}")).unwrap();
            assert_eq!(policy.check(), Ok(()), "{text}");
            let said = policy.clone().with_defaults_said();
            assert_eq!(said.cells(), policy.cells(), "{text}");
            assert_eq!(said.clone().with_defaults_said(), said);
            assert_eq!(said.point, Some(policy.observed_at()));
            said.direction
        };
        let (forward, both) = (Some(Direction::Forward), Some(Direction::Both));
        assert_eq!(said(""), both);
        assert_eq!(said("src-ip = '10.0.0.1'\ndst-port = 80"), both);
        assert_eq!(said("filter = 'src host 10.0.0.1'"), both);
        assert_eq!(said("filter = 'tcp or multicast'"), both);
        assert_eq!(said("direction = 'forward'"), forward);
        assert_eq!(said("filter = 'multicast'"), forward);
        assert_eq!(said("dst-mac = '33:33:00:00:00:01'"), forward);
        let rewritten = "dst-mac = '02:00:00:00:00:02'\ntransport = 'rewrite'";
        assert_eq!(said(rewritten), forward);
        assert_eq!(said("dst-mac = '02:00:00:00:00:02'\npoint = 'egress'"), forward);
        let wrong = TapPolicy {
            vlan: Vlan::Id(4095),
            point: Some(Point::Ingress),
            ..TapPolicy::new("p", policy().monitor.iter().next().unwrap().clone())
        };
        assert_eq!(wrong.clone().with_defaults_said(), wrong);
    }

    fn ip(text: &str) -> Option<IpPrefix> {
        Some(text.parse().unwrap())
    }

    fn check_refusals<const N: usize>(cases: [(TapPolicy, &str, &str); N]) {
        for (policy, field, told) in cases {
            let error = policy.check().unwrap_err();
            assert_eq!(error.field(), Some(field), "{error}");
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    fn port(text: &str) -> Option<PortRange> {
        Some(text.parse().unwrap())
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
            tags = "strip"
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
        assert_eq!(least, TapPolicy { direction: None, ..policy() });
        let json = serde_json::to_string(&least).unwrap();
        assert_eq!(json, r#"{"name":"p","monitor":"3"}"#);
        assert!(toml::from_str::<TapPolicy>("name = 'p'").is_err());
    }

    #[test]
    fn unknown_keys_and_malformed_values_are_refused() {
        for (line, told) in [
            ("dst-prot = 80", "unknown field"),
            ("dst-port = 65536", "a port up to 65535"),
            ("src-ip = '10.0.0.1/24'", "zeros after the prefix"),
            ("src-mac = '1'", "six hexadecimal bytes"),
            ("ip-proto = 'tpc'", "an IP protocol"),
            ("vlan = 'one'", "a VLAN ID"),
            ("vlan = -1", "a VLAN ID"),
            ("vlan = '100.7'", "OpenFlow 1.3 matches no other"),
            ("src-port = '9-8'", "a range of ports"),
            ("eth-type = 'atm'", "an EtherType"),
            ("sample = '0'", "a sampling ratio"),
            ("expires = 'soon'", "a duration as in 30m"),
            ("schedule = 'weekends'", "days and hours"),
            ("snaplen = 70000", "70000"),
            ("tags = 'pop'", "unknown variant"),
            ("transport = 'gre'", "unknown variant"),
            ("priority = 256", "256"),
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
        let text = |text: &str| Some(text.to_owned());
        let cases = [
            (TapPolicy { name: " ".into(), ..policy() }, "name", "name: empty"),
            (TapPolicy { name: "x".repeat(65), ..policy() }, "name", "name: 65 characters"),
            (TapPolicy { name: "a\nb".into(), ..policy() }, "name", "control character"),
            (TapPolicy { owner: text(" "), ..policy() }, "owner", "leave owner out"),
            (TapPolicy { reason: text(&"x".repeat(257)), ..policy() }, "reason", "257 characters"),
            (TapPolicy { reason: text("\u{1b}[2J"), ..policy() }, "reason", "control character"),
            (
                TapPolicy { src_ip: ip("10.0.0.1"), dst_ip: ip("::1"), ..policy() },
                "src-ip",
                "src-ip 10.0.0.1",
            ),
            (
                TapPolicy { src_ip: ip("::1"), ip_proto: Some(IpProto::ICMP), ..policy() },
                "src-ip",
                "use icmpv6",
            ),
            (
                TapPolicy { dst_ip: ip("10.0.0.1"), ip_proto: Some(IpProto::ICMPV6), ..policy() },
                "dst-ip",
                "use icmp",
            ),
            (
                TapPolicy { dst_port: port("80"), ip_proto: Some(IpProto::ICMP), ..policy() },
                "dst-port",
                "dst-port 80: icmp has no ports",
            ),
            (
                TapPolicy { src_port: port("1-60000"), dst_port: port("5-6"), ..policy() },
                "src-port",
                "src-port 1-60000: OpenFlow 1.3 matches one port at a time, so this takes 44296",
            ),
        ];
        check_refusals(cases);
        let group = Some(MacAddr([1, 0, 0x5e, 0, 0, 1]));
        assert_eq!(TapPolicy { dst_mac: group, ..policy() }.check(), Ok(()));
    }

    #[test]
    fn impossible_frames_name_field_and_remedy() {
        let group = Some(MacAddr([1, 0, 0x5e, 0, 0, 1]));
        let both = TapPolicy { direction: Some(Direction::Both), ..policy() };
        let text = |text: &str| Some(text.to_owned());
        let cases = [
            (TapPolicy { vlan: Vlan::Id(4095), ..policy() }, "vlan", "vlan 4095"),
            (TapPolicy { vlan: Vlan::Id(0), ..policy() }, "vlan", "vlan 0"),
            (TapPolicy { src_mac: group, ..policy() }, "src-mac", "src-mac 01:00:5e:00:00:01"),
            (TapPolicy { dst_mac: group, ..both.clone() }, "dst-mac", "dst-mac 01:00:5e:00:00:01"),
            (TapPolicy { dst_mac: Some(MacAddr::ZERO), ..policy() }, "dst-mac", "dst-mac"),
            (TapPolicy { eth_type: Some(EthType(0x88a8)), ..policy() }, "eth-type", "use vlan"),
            (TapPolicy { eth_type: Some(EthType(100)), ..policy() }, "eth-type", "below 0x0600"),
            (
                TapPolicy { eth_type: Some(EthType(0x88cc)), src_ip: ip("::1"), ..policy() },
                "src-ip",
                "leave src-ip or eth-type out",
            ),
            (
                TapPolicy { eth_type: Some(EthType(0x806)), dst_port: port("80"), ..policy() },
                "dst-port",
                "frames of type arp have none",
            ),
            (
                TapPolicy { eth_type: Some(EthType(0x806)), dst_ip: ip("::1"), ..policy() },
                "dst-ip",
                "no such addresses",
            ),
            (
                TapPolicy {
                    eth_type: Some(EthType(0x800)),
                    ip_proto: Some(IpProto::ICMPV6),
                    ..policy()
                },
                "ip-proto",
                "the other version of ICMP",
            ),
            (TapPolicy { snaplen: Some(13), ..policy() }, "snaplen", "at least 14"),
            (TapPolicy { filter: text("tcp prot 80"), ..policy() }, "filter", "filter: at byte 4"),
            (
                TapPolicy { filter: text("arp"), dst_port: port("80"), ..policy() },
                "filter",
                "leave one of them out",
            ),
            (TapPolicy { filter: text("multicast"), ..both }, "direction", "never answered"),
        ];
        check_refusals(cases);
    }

    #[test]
    fn what_goes_out_goes_to_one_host() {
        let [host, group] =
            [[2, 0, 0, 0, 0, 2], [1, 0, 0x5e, 0, 0, 1]].map(|mac| Some(MacAddr(mac)));
        let egress = || TapPolicy { point: Some(Point::Egress), ..policy() };
        let rewrite = || TapPolicy { transport: Transport::Rewrite, ..policy() };
        let (point, direction) = (Some(Point::Ingress), Some(Direction::Both));
        check_refusals([
            (egress(), "dst-mac", "point egress copies at the switch of the destination host"),
            (
                rewrite(),
                "dst-mac",
                "transport rewrite copies at the switch of the destination host",
            ),
            (TapPolicy { dst_mac: group, ..egress() }, "dst-mac", "01:00:5e:00:00:01 is a group"),
            (TapPolicy { dst_mac: group, ..rewrite() }, "dst-mac", "01:00:5e:00:00:01 is a group"),
            (
                TapPolicy { dst_mac: host, direction, ..egress() },
                "direction",
                "a policy for each direction",
            ),
            (
                TapPolicy { dst_mac: host, direction, ..rewrite() },
                "direction",
                "a policy for each direction",
            ),
            (TapPolicy { dst_mac: host, point, ..rewrite() }, "point", "leave point or transport"),
        ]);
        for policy in [egress(), rewrite()] {
            assert_eq!(TapPolicy { dst_mac: host, ..policy }.check(), Ok(()));
        }
    }

    #[test]
    fn together_there_may_be_too_much() {
        let filter = Some("tcp and src portrange 1-500 and not dst port 22".to_owned());
        let wide = TapPolicy { filter, dst_port: port("100-110"), ..policy() };
        let error = wide.check().unwrap_err();
        assert!(matches!(error, PolicyError::TooManyRegions { .. }), "{error}");
        assert!(error.to_string().contains("4096"), "{error}");
    }

    /// Each `and` intersects all regions with all others: without a bound, this short text occupies
    /// the controller for minutes.
    #[test]
    fn a_short_filter_that_takes_long_is_refused() {
        let both = "(src portrange 1-24 and dst portrange 1-24)";
        let filter = vec![both; 20].join(" and ");
        assert!(filter.len() < 1000);
        let wide = TapPolicy { filter: Some(filter), ..policy() };
        let error = wide.check().unwrap_err();
        assert!(matches!(error, PolicyError::Filter(_)), "{error}");
        assert!(error.to_string().contains("several policies"), "{error}");
        let once = TapPolicy { filter: Some(both.to_owned()), ..policy() };
        assert_eq!(once.check(), Ok(()));
    }

    #[test]
    fn long_lists_are_no_work() {
        let hosts: Vec<_> = (0..150).map(|host| format!("10.0.0.{host}")).collect();
        let list = TapPolicy { filter: Some(format!("host {}", hosts.join(" or "))), ..policy() };
        assert_eq!(list.region_count(), Ok(600));
    }

    #[test]
    fn what_openflow_cannot_say_at_once_becomes_several_regions() {
        let count = |policy: &TapPolicy| policy.region_count().unwrap();
        assert_eq!(count(&policy()), 1);
        assert_eq!(count(&TapPolicy { direction: Some(Direction::Both), ..policy() }), 1);
        assert_eq!(count(&TapPolicy { ip_proto: Some(IpProto::TCP), ..policy() }), 2);
        assert_eq!(count(&TapPolicy { ip_proto: Some(IpProto::ICMP), ..policy() }), 1);
        let dns = TapPolicy { dst_port: port("53"), ..policy() };
        assert_eq!(count(&dns), 4, "TCP and UDP over IPv4 and IPv6");
        assert_eq!(count(&TapPolicy { direction: Some(Direction::Both), ..dns.clone() }), 8);
        assert_eq!(count(&TapPolicy { src_ip: ip("10.0.0.0/8"), ..dns.clone() }), 2);
        assert_eq!(count(&TapPolicy { dst_port: port("8000-8010"), ..dns.clone() }), 44);
        assert_eq!(count(&TapPolicy { src_port: port("1-3"), ..dns.clone() }), 12);
        let high = TapPolicy { ip_proto: Some(IpProto::TCP), dst_port: port("1024-65535"), ..dns };
        assert_eq!(count(&high), 2 * (1 + 1024), "all but the low ones");
        let all_v4 = TapPolicy { src_ip: ip("0.0.0.0/0"), ..policy() }.cells().unwrap();
        let region = all_v4.regions().next().unwrap();
        assert_eq!((region.family, region.src_ip), (Some(Family::Ipv4), None));
        let arp = TapPolicy { eth_type: Some(EthType(0x806)), src_ip: ip("10.0.0.1"), ..policy() };
        let matching = arp.cells().unwrap().regions().next().unwrap().matching();
        assert_eq!(matching.to_string(), "dl_type=0x0806,arp_spa=10.0.0.1");
    }

    #[test]
    fn a_filter_and_fields_must_both_hold() {
        let web = TapPolicy {
            filter: Some("tcp port 80 or arp".into()),
            vlan: Vlan::Id(100),
            direction: Some(Direction::Both),
            ..policy()
        };
        let regions: Vec<_> =
            web.cells().unwrap().regions().map(|region| region.matching().to_string()).collect();
        assert_eq!(
            regions,
            [
                "dl_type=0x0800,dl_vlan=100,nw_proto=6,tcp_dst=80",
                "dl_type=0x0800,dl_vlan=100,nw_proto=6,tcp_src=80",
                "dl_type=0x86dd,dl_vlan=100,nw_proto=6,tcp_dst=80",
                "dl_type=0x86dd,dl_vlan=100,nw_proto=6,tcp_src=80",
                "dl_type=0x0806,dl_vlan=100",
            ]
        );
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 100, 8, 6];
        frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend([0; 20]);
        assert!(web.matches(&frame));
        frame[15] = 101;
        assert!(!web.matches(&frame));
    }
}
