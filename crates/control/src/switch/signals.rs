//! What whoever owns a switch should look at, after something came in from it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tapswitch_openflow::PortNo;

use crate::hosts::HostKey;
use crate::overlap::PolicyId;
use crate::{Event, StatsToken};

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Ports, or the connection, changed: monitors may be elsewhere.
    pub(crate) ports_moved: bool,
    pub(crate) hosts: HostSignals,
    /// Copies of others with these identifiers can go their way now, or the switch refused.
    pub(crate) opened: BTreeSet<u16>,
    /// Copies of others with these identifiers were carried before it was known.
    pub(crate) begun: BTreeSet<u16>,
    /// Policies that may be doing otherwise.
    pub(crate) news: BTreeSet<PolicyId>,
    /// It confirmed that no floods leave or come in by some port any more.
    pub(crate) shut: bool,
    /// It has done what it was sent to find links.
    pub(crate) swept: bool,
    /// Requests for counters that were answered, or will not be.
    pub(crate) answered: Vec<StatsToken>,
    /// What happened.
    pub(crate) events: Vec<Event>,
}

/// What is about hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSignals {
    /// Those that came, went or moved.
    pub(crate) moved: BTreeSet<HostKey>,
    /// One of the switch, and another one that it sends to.
    pub(crate) talks: BTreeSet<(HostKey, HostKey)>,
    /// Those that the switch knew the way to before it connected.
    pub(crate) known: BTreeSet<HostKey>,
    /// Those of which nothing but a rule says that they are here, which the switch had when it
    /// connected.
    pub(crate) remembered: BTreeSet<HostKey>,
    /// Addresses that came, went or moved with them.
    pub(crate) renamed: BTreeSet<IpAddr>,
    /// Those that were asked whether they are there, and whose answers are shown.
    pub(crate) asked: Vec<(HostKey, PortNo)>,
}
