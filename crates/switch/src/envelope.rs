//! Room for tags on the interface behind a port (IEEE 802.3as).
//!
//! A packet socket refuses frames longer than the interface's MTU plus an Ethernet header
//! (`packet_snd` in Linux `net/packet/af_packet.c`; 802.1Q tags may add four bytes), and the peer
//! of a veth drops them. Linux has no separate limit for tags. So the interface of a `netdev:` port
//! gets an MTU of payload plus envelope, while the port itself enforces the payload limit: it never
//! sends longer payloads, which is the usual problem of a larger MTU.
//!
//! An MTU is only raised, never lowered: devices stacked on the interface would be lowered as well,
//! and would not recover.
//!
//! A port with neither `mtu=` nor `envelope=` gets room for the usual tags if that affects nobody
//! else. If the driver refuses the MTU, the alias is in use, or the host's own stack would send
//! longer packets, the interface is left unchanged and a warning is logged. The port then uses the
//! room there is ([`Port::room`]), also for trains, whose segments the kernel does not check.
//!
//! The old MTU is restored when the port is closed, and when the interface moves to another
//! namespace, if that can be found. A switch that is killed cannot do that, so the old MTU is
//! stored in the interface's alias, where users (`ip link`) and the next start find it. Without
//! this, each start after a kill would raise the MTU further.
//!
//! [`Port::room`]: tapswitch_datapath::Port::room

use std::net::IpAddr;

use tapswitch_datapath::DEFAULT_ENVELOPE;
use tapswitch_netlink::{Link, LinkError, Moved, Namespace, Netlink};

use crate::PortSpec;
use crate::command::{ip_command, shell_word};

/// An interface whose MTU was changed. Dropping this restores it.
#[derive(Debug)]
pub(crate) struct ChangedMtu {
    namespace: Namespace,
    index: u32,
    mark: Mark,
    /// The mark is set in the alias.
    is_marked: bool,
}

impl ChangedMtu {
    /// Sets the MTU that the interface of `spec` needs. Returns `None` if it needs no change.
    pub(crate) fn make(spec: &PortSpec, namespace: &Namespace) -> Result<Option<Self>, MtuError> {
        let mut netlink = Netlink::open(namespace)?;
        let link = netlink.link(spec.name())?;
        let obstacle = if asks(spec) { None } else { obstacle(&mut netlink, &link) };
        if let Some(obstacle) = &obstacle {
            tracing::warn!("{}", obstacle.told(spec, &link));
        }
        let envelope = if obstacle.is_some() { 0 } else { envelope(spec) };
        let mark = Mark::plan(spec, envelope, &link);
        if mark.to == link.mtu && mark.from == link.mtu {
            return Ok(None);
        }
        let is_marked = Mark::may_stand_in(&link);
        if !is_marked && spec.mtu.is_none() {
            // For a port without options, an alias in use was reported as an obstacle before.
            let netns = spec.netns.clone();
            return Err(MtuError::AliasTaken { name: link.name, netns, needed: mark.to });
        }
        // From here on, every failure is rolled back.
        let namespace = namespace.clone();
        let mut changed = Self { namespace, index: link.index, mark, is_marked };
        match changed.raise(spec, &mut netlink, &link.name) {
            Ok(()) => Ok(Some(changed)),
            Err(error) if asks(spec) => Err(error),
            Err(error) => {
                tracing::warn!("{}", Obstacle::Refusal(error.to_string()).told(spec, &link));
                Ok(None)
            }
        }
    }

    /// Sets the MTU. If only `mtu=` was given, and the interface cannot have the usual envelope, it
    /// is used without one.
    fn raise(
        &mut self,
        spec: &PortSpec,
        netlink: &mut Netlink,
        name: &str,
    ) -> Result<(), MtuError> {
        let needed = self.mark.to;
        let Err(source) = self.set(netlink, name) else { return Ok(()) };
        let mtu = match (spec.mtu, spec.envelope) {
            (Some(mtu), None) => mtu,
            (None, None) => return Err(source.into()),
            (_, Some(envelope)) => {
                let name = name.to_owned();
                return Err(MtuError::Refused { name, needed, envelope, source });
            }
        };
        self.mark.to = mtu.max(self.mark.from);
        self.set(netlink, name)?;
        tracing::warn!(
            "port {spec}: {name} does not allow an MTU of {needed}: frames with {mtu} bytes of \
             payload and tags will be dropped there as oversize ({source}); give a smaller mtu=, \
             or envelope=0"
        );
        Ok(())
    }

    /// Stores the old MTU before the new one is set, so that it is not lost in between.
    fn set(&self, netlink: &mut Netlink, name: &str) -> Result<(), LinkError> {
        if self.is_marked {
            netlink.set_alias(name, &self.mark.text())?;
        }
        netlink.set_mtu(name, self.mark.to)
    }

    /// The command that restores the MTU where the interface, now called `name`, has moved to.
    pub(crate) fn remedy(&self, name: &str) -> String {
        let Mark { from, to } = self.mark;
        let alias = if self.is_marked { " alias ''" } else { "" };
        format!(
            "its MTU stays {to}, unless the interface comes back before the port is removed: \
             restore it there with `ip link set {} mtu {from}{alias}`",
            shell_word(name)
        )
    }

    /// Restores the MTU where the interface has moved to. Returns `false` if it cannot.
    pub(crate) fn undo_elsewhere(&self, moved: Moved) -> bool {
        let here = Netlink::open(&self.namespace).ok();
        let there = here.and_then(|mut here| here.find_namespace(moved.namespace_id));
        there.is_some_and(|there| self.undo_at(&there, moved.index).is_ok())
    }

    fn undo_at(&self, namespace: &Namespace, index: u32) -> Result<(), LinkError> {
        let mut netlink = Netlink::open(namespace)?;
        let link = netlink.link_by_index(index)?;
        // A different MTU was set by somebody else.
        if link.mtu == self.mark.to {
            netlink.set_mtu(&link.name, self.mark.from)?;
        }
        if self.is_marked && Mark::of(&link).is_some() {
            netlink.set_alias(&link.name, "")?;
        }
        Ok(())
    }
}

impl Drop for ChangedMtu {
    fn drop(&mut self) {
        match self.undo_at(&self.namespace, self.index) {
            // The interface is deleted, or it was moved, and the MTU was restored there or its loss
            // was reported.
            Ok(()) | Err(LinkError::NotFound { .. }) => {}
            Err(error) => tracing::warn!("cannot restore the MTU to {}: {error}", self.mark.from),
        }
    }
}

/// The port's MTU for an interface in the state `link`.
pub(crate) fn port_mtu(spec: &PortSpec, link: &Link, changed: Option<&ChangedMtu>) -> u32 {
    match (spec.mtu, changed) {
        (Some(mtu), _) if spec.kind.is_device() => mtu,
        // The interface may have been given a smaller MTU since.
        (Some(mtu), _) => mtu.min(link.mtu),
        (None, Some(_)) if asks(spec) => link.mtu.saturating_sub(envelope(spec).into()),
        (None, Some(changed)) if link.mtu == changed.mark.to => changed.mark.from,
        // Without an envelope, an MTU set by others is for the payload.
        (None, _) => link.mtu,
    }
}

/// True if the user asks for an MTU or an envelope.
fn asks(spec: &PortSpec) -> bool {
    spec.mtu.is_some() || spec.envelope.is_some()
}

/// Why an interface does not get room for tags although the user did not decline it.
#[derive(Debug)]
enum Obstacle {
    /// Its alias, which would store the original MTU, is in use.
    Alias,
    /// Others would use the larger MTU: who, in words.
    Others(String),
    /// It cannot be done: the error.
    Refusal(String),
}

impl Obstacle {
    /// What the user is told, with what would help.
    fn told(&self, spec: &PortSpec, link: &Link) -> String {
        let name = &link.name;
        let anyway = format!("set envelope={DEFAULT_ENVELOPE}");
        let (why, remedy) = match self {
            Self::Alias => (
                "its alias is in use, which would store the original MTU",
                format!("{anyway} and mtu={} to raise it anyway", link.mtu),
            ),
            Self::Others(who) => (who.as_str(), format!("{anyway} to raise it anyway")),
            Self::Refusal(error) => {
                let left = link.mtu.saturating_sub(DEFAULT_ENVELOPE.into());
                (error.as_str(), format!("set mtu={left}, on the hosts as well, to make room"))
            }
        };
        format!(
            "port {spec}: the MTU of {name} is not raised for VLAN tags: {why}; full-size frames \
             with tags will be dropped there as oversize; {remedy}, or envelope=0 if no tagged \
             frames pass"
        )
    }
}

/// Why `link` should be left unchanged if the user asks for nothing.
fn obstacle(netlink: &mut Netlink, link: &Link) -> Option<Obstacle> {
    if !Mark::may_stand_in(link) {
        return Some(Obstacle::Alias);
    }
    // A bridge follows the MTU of its ports.
    if link.controller.is_some() {
        let who = "it belongs to a bridge, a bond or a similar device";
        return Some(Obstacle::Others(who.to_owned()));
    }
    match netlink.addresses(&link.name) {
        Ok(addresses) => {
            let own = addresses.into_iter().find(|address| !is_link_local(address.ip))?;
            Some(Obstacle::Others(format!("the host itself uses it, with the address {own}")))
        }
        Err(error) => Some(Obstacle::Others(error.to_string())),
    }
}

/// True for an address that the kernel assigns to every interface.
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Bytes of tags that the port of `spec` accepts.
pub(crate) fn envelope(spec: &PortSpec) -> u16 {
    spec.envelope.unwrap_or(DEFAULT_ENVELOPE)
}

/// An interface's old and new MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    from: u32,
    to: u32,
}

impl Mark {
    /// The change that the interface needs, based on the MTU before any switch changed it.
    fn plan(spec: &PortSpec, envelope: u16, link: &Link) -> Self {
        let left_behind = Self::of(link).filter(|mark| mark.to == link.mtu);
        let from = left_behind.map_or(link.mtu, |mark| mark.from);
        let needed = spec.mtu.unwrap_or(from) + u32::from(envelope);
        let to = needed.max(from);
        Self { from, to }
    }

    /// The mark in an interface's alias.
    fn of(link: &Link) -> Option<Self> {
        let (from, to) = link.alias.as_deref()?.strip_prefix(PREFIX)?.split_once(BETWEEN)?;
        Some(Self { from: from.parse().ok()?, to: to.parse().ok()? })
    }

    fn may_stand_in(link: &Link) -> bool {
        link.alias.is_none() || Self::of(link).is_some()
    }

    fn text(self) -> String {
        format!("{PREFIX}{}{BETWEEN}{}", self.from, self.to)
    }
}

/// Why an interface did not get the MTU that a port needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MtuError {
    /// The interface cannot be queried or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The driver refuses the MTU.
    #[error(
        "{name} does not allow an MTU of {needed}, which full-size frames with {envelope} bytes of \
         tags need: {source}; set a smaller mtu= or envelope="
    )]
    Refused {
        /// The interface.
        name: String,
        /// The MTU it would need, in bytes.
        needed: u32,
        /// The part of it that is for tags.
        envelope: u16,
        /// The kernel's error.
        source: LinkError,
    },
    /// There is no place to store the old MTU.
    #[error(
        "{name} needs an MTU of {needed}, and the original MTU cannot be stored, as its alias is \
         in use; set mtu=, or clear the alias with `{}`",
        ip_command(netns.as_deref(), &format!("link set {} alias ''", shell_word(name)))
    )]
    AliasTaken {
        /// The interface.
        name: String,
        /// Its namespace; `None` for the switch's own.
        netns: Option<String>,
        /// The MTU it would need, in bytes.
        needed: u32,
    },
}

const PREFIX: &str = "tapswitch: mtu ";
const BETWEEN: &str = " raised to ";

#[cfg(test)]
mod tests {
    use super::*;

    fn link(mtu: u32, alias: &str) -> Link {
        let mut link = Link::default();
        (link.mtu, link.alias) = (mtu, Some(alias.to_owned()).filter(|it| !it.is_empty()));
        link
    }

    fn plan(options: &str, link: &Link) -> (u32, u32) {
        let spec: PortSpec = format!("1=netdev:e{options}").parse().unwrap();
        let Mark { from, to } = Mark::plan(&spec, envelope(&spec), link);
        (from, to)
    }

    #[test]
    fn an_interface_needs_payload_and_tags() {
        let fresh = link(1500, "");
        assert_eq!(plan(",envelope=8", &fresh), (1500, 1508));
        assert_eq!(plan(",mtu=9000", &fresh), (1500, 9008));
        assert_eq!(plan("", &fresh), (1500, 1508), "room for the usual tags");
        assert_eq!(plan(",envelope=0", &fresh), (1500, 1500));
    }

    #[test]
    fn an_interface_with_more_room_keeps_it() {
        assert_eq!(plan(",mtu=1400,envelope=0", &link(1500, "")), (1500, 1500));
        assert_eq!(plan(",mtu=1500", &link(9000, "")), (9000, 9000));
        let left_behind = link(9008, &Mark { from: 9000, to: 9008 }.text());
        assert_eq!(plan(",mtu=1500", &left_behind), (9000, 9000), "but not what was ours");
    }

    #[test]
    fn what_a_killed_one_has_raised_is_not_raised_again() {
        let mark = Mark { from: 1500, to: 1508 };
        let left_behind = link(1508, &mark.text());
        assert_eq!(plan(",envelope=8", &left_behind), (1500, 1508));
        assert_eq!(plan(",envelope=12", &left_behind), (1500, 1512));
        let changed_since = link(9000, &mark.text());
        assert_eq!(plan(",envelope=8", &changed_since), (9000, 9008));
    }

    #[test]
    fn only_an_alias_of_ours_is_overwritten() {
        assert!(Mark::may_stand_in(&link(1500, "")));
        assert!(Mark::may_stand_in(&link(1508, &Mark { from: 1500, to: 1508 }.text())));
        assert!(!Mark::may_stand_in(&link(1500, "uplink to building 7")));
    }

    /// What is said when the port has no option is true for the port that has it.
    #[test]
    fn what_would_help_depends_on_the_obstacle() {
        let spec: PortSpec = "1=netdev:e".parse().unwrap();
        let mut link = link(1500, "uplink");
        link.name = "e".to_owned();
        let told = |obstacle: Obstacle| obstacle.told(&spec, &link);
        assert!(told(Obstacle::Alias).contains("; set envelope=8 and mtu=1500 to raise it anyway"));
        let others = told(Obstacle::Others("it belongs to a bridge".to_owned()));
        assert!(others.contains("a bridge; ") && others.contains("; set envelope=8 to raise it"));
        let refused = told(Obstacle::Refusal("the kernel refuses".to_owned()));
        assert!(refused.contains("; set mtu=1492, on the hosts as well"), "{refused}");
        assert!(!refused.contains("anyway"), "{refused}");
    }

    #[test]
    fn every_interface_has_a_link_local_address() {
        for (address, expected) in
            [("fe80::1", true), ("fd00::1", false), ("169.254.0.1", false), ("10.0.0.1", false)]
        {
            assert_eq!(is_link_local(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn what_goes_to_another_namespace_is_put_back_there() {
        let (namespace, mark) = (Namespace::current().unwrap(), Mark { from: 1500, to: 1508 });
        let changed = |is_marked| {
            let namespace = namespace.clone();
            ChangedMtu { namespace, index: u32::MAX, mark, is_marked }.remedy("eth1")
        };
        let marked = changed(true);
        assert!(marked.ends_with("`ip link set eth1 mtu 1500 alias ''`"), "{marked}");
        assert!(changed(false).ends_with("`ip link set eth1 mtu 1500`"), "the alias is others'");
    }

    #[test]
    fn an_alias_is_cleared_in_the_namespace_of_the_interface() {
        let (name, netns) = ("eth1".to_owned(), Some("blue".to_owned()));
        let text = MtuError::AliasTaken { name, netns, needed: 1508 }.to_string();
        assert!(text.ends_with("`ip -n blue link set eth1 alias ''`"), "{text}");
    }

    #[test]
    fn a_port_follows_its_interface() {
        let spec = |text: &str| -> PortSpec { text.parse().unwrap() };
        let mark = Mark { from: 1500, to: 1508 };
        let namespace = Namespace::current().unwrap();
        let changed = ChangedMtu { namespace, index: u32::MAX, mark, is_marked: false };
        let mtu = |text, at, changed| port_mtu(&spec(text), &link(at, ""), changed);
        assert_eq!(mtu("1=netdev:e", 1400, None), 1400);
        assert_eq!(mtu("1=netdev:e", 1508, Some(&changed)), 1500);
        assert_eq!(mtu("1=netdev:e", 1500, Some(&changed)), 1500, "others took the room away");
        assert_eq!(mtu("1=netdev:e", 9000, Some(&changed)), 9000);
        assert_eq!(mtu("1=netdev:e,envelope=8", 1508, Some(&changed)), 1500);
        assert_eq!(mtu("1=netdev:e,envelope=8", 9000, Some(&changed)), 8992);
        assert_eq!(mtu("1=netdev:e,mtu=1500", 1508, Some(&changed)), 1500);
        assert_eq!(mtu("1=netdev:e,mtu=1500", 1400, Some(&changed)), 1400);
        assert_eq!(mtu("1=netdev:e,mtu=1500", 9000, None), 1500);
        assert_eq!(mtu("1=tap:e,mtu=1500", 1400, None), 1500);
    }
}
