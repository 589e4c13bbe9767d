//! Room for tags on an interface underneath a port (IEEE 802.3as).
//!
//! A packet socket refuses frames longer than the interface's MTU and an Ethernet header
//! (`packet_snd` in Linux `net/packet/af_packet.c`; 802.1Q tags have four bytes more), and the
//! other end of a veth drops them. Linux has no envelope of its own. So the interface of a
//! `netdev:` port gets an MTU of payload and envelope, while the port keeps to the payload: nothing
//! longer goes out than was asked for, which is the trouble with a larger MTU otherwise.
//!
//! The aim is room, so an MTU is raised and never lowered: devices that are stacked on the interface
//! would go down with it, and would not come back.
//!
//! Only a port that says `mtu=` or `envelope=` changes its interface. What it was before is put
//! back when the port is closed. A port that was killed cannot do that; so the old MTU stands in
//! the interface's alias meanwhile, where people see it (`ip link`), and where the next start finds
//! it. Without that, each start after a kill would raise what the last one has raised.

use tapswitch_datapath::DEFAULT_ENVELOPE;
use tapswitch_netlink::{Link, LinkError, Namespace, Netlink};

use crate::PortSpec;

/// An interface whose MTU was changed. It is put back when this is dropped.
#[derive(Debug)]
pub(crate) struct ChangedMtu {
    namespace: Namespace,
    index: u32,
    mark: Mark,
    /// The mark stands in the alias.
    is_marked: bool,
}

impl ChangedMtu {
    /// Gives the interface of `spec` the MTU that it needs. Nothing when it needs no other.
    pub(crate) fn make(spec: &PortSpec, namespace: &Namespace) -> Result<Option<Self>, MtuError> {
        if spec.mtu.is_none() && spec.envelope.is_none() {
            return Ok(None);
        }
        let mut netlink = Netlink::open(namespace)?;
        let link = netlink.link(spec.name())?;
        let mark = Mark::plan(spec, &link);
        if mark.to == link.mtu && mark.from == link.mtu {
            return Ok(None);
        }
        let is_marked = Mark::may_stand_in(&link);
        if !is_marked && spec.mtu.is_none() {
            return Err(MtuError::AliasTaken { name: link.name, needed: mark.to });
        }
        // Whatever happens from here on is undone.
        let namespace = namespace.clone();
        let mut changed = Self { namespace, index: link.index, mark, is_marked };
        changed.raise(spec, &mut netlink, &link.name)?;
        Ok(Some(changed))
    }

    /// Sets the MTU. Where nobody asked for an envelope, an interface may be too small for the
    /// usual one: it takes frames without, then.
    fn raise(
        &mut self,
        spec: &PortSpec,
        netlink: &mut Netlink,
        name: &str,
    ) -> Result<(), MtuError> {
        let needed = self.mark.to;
        let Err(source) = self.set(netlink, name) else { return Ok(()) };
        let Some(mtu) = spec.mtu.filter(|_| spec.envelope.is_none()) else {
            let (name, envelope) = (name.to_owned(), envelope(spec));
            return Err(MtuError::Refused { name, needed, envelope, source });
        };
        self.mark.to = mtu.max(self.mark.from);
        self.set(netlink, name)?;
        tracing::warn!(
            "port {spec}: {name} takes no MTU of {needed}: frames of {mtu} bytes and tags will be \
             dropped there as oversize ({source}); give a smaller mtu=, or envelope=0"
        );
        Ok(())
    }

    /// Notes the old MTU before the new one is set, so that it is not lost in between.
    fn set(&self, netlink: &mut Netlink, name: &str) -> Result<(), LinkError> {
        if self.is_marked {
            netlink.set_alias(name, &self.mark.text())?;
        }
        netlink.set_mtu(name, self.mark.to)
    }

    fn undo(&self) -> Result<(), LinkError> {
        let mut netlink = Netlink::open(&self.namespace)?;
        let link = netlink.link_by_index(self.index)?;
        // Another MTU is somebody else's.
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
        match self.undo() {
            // It has gone, and its MTU with it.
            Ok(()) | Err(LinkError::NotFound { .. }) => {}
            Err(error) => tracing::warn!("cannot put the MTU back to {}: {error}", self.mark.from),
        }
    }
}

/// The port's MTU, when its interface is as `link` says.
pub(crate) fn port_mtu(spec: &PortSpec, link: &Link, changed: Option<&ChangedMtu>) -> u32 {
    match (spec.mtu, changed) {
        (Some(mtu), _) if spec.kind.is_device() => mtu,
        // Somebody may have made the interface smaller since.
        (Some(mtu), _) => mtu.min(link.mtu),
        (None, Some(_)) => link.mtu.saturating_sub(envelope(spec).into()),
        (None, None) => link.mtu,
    }
}

/// Bytes of tags that the port of `spec` takes.
pub(crate) fn envelope(spec: &PortSpec) -> u16 {
    spec.envelope.unwrap_or(DEFAULT_ENVELOPE)
}

/// What an interface's MTU was, and what it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    from: u32,
    to: u32,
}

impl Mark {
    /// What the interface needs, by what it was before anybody of us changed it.
    fn plan(spec: &PortSpec, link: &Link) -> Self {
        let left_behind = Self::of(link).filter(|mark| mark.to == link.mtu);
        let from = left_behind.map_or(link.mtu, |mark| mark.from);
        let needed = spec.mtu.unwrap_or(from) + u32::from(envelope(spec));
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
    /// The interface cannot be looked at or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Its driver does not take it.
    #[error(
        "{name} takes no MTU of {needed}, which full-size frames with {envelope} bytes of tags \
         need: {source}; give a smaller mtu= or envelope="
    )]
    Refused {
        /// The interface.
        name: String,
        /// MTU that it would need in bytes.
        needed: u32,
        /// How much of that is for tags.
        envelope: u16,
        /// What the kernel said.
        source: LinkError,
    },
    /// There is no place to note the MTU that it had.
    #[error(
        "{name} needs an MTU of {needed}, and there is no place to note what it was before: its \
         alias is in use; say what it shall be by mtu=, or clear the alias by `ip link set {name} \
         alias ''`"
    )]
    AliasTaken {
        /// The interface.
        name: String,
        /// MTU that it would need in bytes.
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
        let Mark { from, to } = Mark::plan(&format!("1=netdev:e{options}").parse().unwrap(), link);
        (from, to)
    }

    #[test]
    fn an_interface_needs_payload_and_tags() {
        let fresh = link(1500, "");
        assert_eq!(plan(",envelope=8", &fresh), (1500, 1508));
        assert_eq!(plan(",mtu=9000", &fresh), (1500, 9008));
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

    #[test]
    fn a_port_follows_its_interface() {
        let spec = |text: &str| -> PortSpec { text.parse().unwrap() };
        let mark = Mark { from: 1500, to: 1508 };
        let namespace = Namespace::current().unwrap();
        let changed = ChangedMtu { namespace, index: u32::MAX, mark, is_marked: false };
        let mtu = |text, at, changed| port_mtu(&spec(text), &link(at, ""), changed);
        assert_eq!(mtu("1=netdev:e", 1400, None), 1400);
        assert_eq!(mtu("1=netdev:e,envelope=8", 1508, Some(&changed)), 1500);
        assert_eq!(mtu("1=netdev:e,envelope=8", 9000, Some(&changed)), 8992);
        assert_eq!(mtu("1=netdev:e,mtu=1500", 1508, Some(&changed)), 1500);
        assert_eq!(mtu("1=netdev:e,mtu=1500", 1400, Some(&changed)), 1400);
        assert_eq!(mtu("1=netdev:e,mtu=1500", 9000, None), 1500);
        assert_eq!(mtu("1=tap:e,mtu=1500", 1400, None), 1500);
    }
}
