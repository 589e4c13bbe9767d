//! Effects of a switch's input that its owner has to process.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tapswitch_openflow::PortNo;

use crate::hosts::HostKey;
use crate::overlap::PolicyId;
use crate::{Event, StatsToken};

/// All effects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Ports or the connection changed: monitors may have moved.
    pub(crate) ports_moved: bool,
    pub(crate) hosts: HostSignals,
    /// Identifiers whose copies are carried now, or rejected by the switch.
    pub(crate) opened: BTreeSet<u16>,
    /// Identifiers whose copies were carried before they were known.
    pub(crate) begun: BTreeSet<u16>,
    /// Policies whose state may have changed.
    pub(crate) news: BTreeSet<PolicyId>,
    /// It has confirmed that a port no longer floods.
    pub(crate) shut: bool,
    /// It has sent all probes before the sweep, or will send none.
    pub(crate) swept: bool,
    /// Counter requests that were answered, or will not be.
    pub(crate) answered: Vec<StatsToken>,
    /// Events.
    pub(crate) events: Vec<Event>,
}

/// Effects on hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSignals {
    /// Hosts that were added, removed or moved.
    pub(crate) moved: BTreeSet<HostKey>,
    /// A host of the switch, and another one to which it sends.
    pub(crate) talks: BTreeSet<(HostKey, HostKey)>,
    /// Hosts to which the switch had routes when it connected.
    pub(crate) known: BTreeSet<HostKey>,
    /// Hosts known only from a rule that the switch had when it connected.
    pub(crate) remembered: BTreeSet<HostKey>,
    /// Addresses that were added, removed or moved.
    pub(crate) renamed: BTreeSet<IpAddr>,
    /// Probed hosts whose frames are now sent to the controller.
    pub(crate) asked: Vec<(HostKey, PortNo)>,
}
