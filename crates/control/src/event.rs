//! Events of a [`crate::Control`].

use tapswitch_openflow::DatapathId;
use tapswitch_wire::MacAddr;

use crate::{MonitorPort, MonitorSpec, PolicyReport, TapPolicy};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A switch has been read and is under control.
    SwitchUp {
        /// The switch.
        switch: DatapathId,
    },
    /// A switch has disconnected. It continues to forward by its rules.
    SwitchDown {
        /// The switch.
        switch: DatapathId,
    },
    /// A switch violates OpenFlow; its connection should be closed.
    SwitchMisbehaved {
        /// The switch.
        switch: DatapathId,
        /// The violation.
        reason: String,
    },
    /// A copy for the controller itself.
    Copy(Box<ShownCopy>),
    /// A switch rejected a rule that belongs to no policy.
    RuleRefused {
        /// The switch.
        switch: DatapathId,
        /// The rule, and why.
        reason: String,
    },
    /// The tables of a switch were changed by others, and are being repaired.
    Drifted {
        /// The switch.
        switch: DatapathId,
        /// The differences.
        reason: String,
    },
    /// A switch does not report its counters; rounds end without it.
    CountersMissing {
        /// The switch.
        switch: DatapathId,
        /// Since when, and the consequences.
        reason: String,
    },
    /// A switch reports its counters again.
    CountersBack {
        /// The switch.
        switch: DatapathId,
    },
    /// A port was closed because of the probes received there: its own, because of a loop or a host
    /// that wants to be taken for a switch; or those of several switches.
    PortClosed {
        /// The switch.
        switch: DatapathId,
        /// The port, and what to look for.
        reason: String,
    },
    /// A link failed repeatedly and is held.
    LinkHeld {
        /// The switch at one end.
        switch: DatapathId,
        /// The link, for how long, and what to look for.
        reason: String,
    },
    /// New hosts arrive at a port faster than they are accepted; frames to the others are flooded.
    /// Reported once until the rate has dropped.
    Crowded {
        /// The switch.
        switch: DatapathId,
        /// The port, and what to look for.
        reason: String,
    },
    /// A host is also seen at another location, and stays where it is: it receives copies and is or
    /// may be at its old port, or it moves repeatedly.
    Contested {
        /// The switch at the other location.
        switch: DatapathId,
        /// The host, both locations, and what to look for.
        reason: String,
    },
    /// A policy is in force: the switches have confirmed its rules.
    PolicyActive {
        /// Its name.
        name: String,
    },
    /// Copies are made, but not for all monitors of a policy, or not at all switches where its
    /// frames come in.
    PolicyPartial {
        /// Its name.
        name: String,
        /// How many are reached, what is missing, and the remedy.
        reason: String,
    },
    /// A policy waits for its monitor. If it was active before, its rules have been deleted.
    PolicyPending {
        /// Its name.
        name: String,
        /// What is missing, and the remedy.
        reason: String,
    },
    /// A policy cannot be applied. None of its rules is in force.
    PolicyFailed {
        /// Its name.
        name: String,
        /// Cause and remedy.
        reason: String,
    },
    /// A policy is paused by its schedule. If it was active before, its rules have been deleted.
    PolicyResting {
        /// Its name.
        name: String,
        /// Until when.
        reason: String,
    },
    /// The switch of a monitor that names none was found after the policy was added. The caller
    /// should store it: after a restart, another switch with such a port may connect first.
    PolicyPinned(Box<TapPolicy>),
    /// A policy's monitor was found at another location, to which its copies go from now on.
    /// Reported at the decision, before any copy goes there.
    PolicyMoved {
        /// The policy's name.
        name: String,
        /// The monitor.
        monitor: MonitorSpec,
        /// The former location; empty if it was unknown.
        from: Vec<MonitorPort>,
        /// The new location.
        to: Vec<MonitorPort>,
        /// The cause.
        reason: String,
    },
    /// A policy has expired and is being deleted: [`Self::PolicyDeleted`] reports its last counts.
    PolicyExpired {
        /// Its name.
        name: String,
        /// As in [`PolicyReport::number`].
        number: u64,
    },
    /// A policy has replaced the one of its name.
    PolicyReplaced {
        /// Its name.
        name: String,
    },
    /// A policy cannot replace the one of its name, which stays.
    PolicyNotReplaced {
        /// Its name.
        name: String,
        /// Cause and remedy.
        reason: String,
    },
    /// Last counts of a replaced policy.
    PolicySuperseded(Box<PolicyReport>),
    /// A policy and its rules have been deleted.
    PolicyDeleted(Box<PolicyReport>),
    /// A new host was seen.
    HostSeen {
        /// Its MAC address.
        mac: MacAddr,
        /// VLAN id of its outermost tag, if any.
        vlan: Option<u16>,
        /// Its port.
        at: MonitorPort,
    },
    /// A host has moved to another port, possibly on another switch.
    HostMoved {
        /// Its MAC address.
        mac: MacAddr,
        /// VLAN id of its outermost tag, if any.
        vlan: Option<u16>,
        /// Its former port.
        from: MonitorPort,
        /// Its port.
        at: MonitorPort,
    },
    /// A host was forgotten, after long silence or because its port is down.
    HostGone {
        /// Its MAC address.
        mac: MacAddr,
        /// VLAN id of its outermost tag, if any.
        vlan: Option<u16>,
        /// Its former port.
        at: MonitorPort,
    },
    /// Two switches are linked.
    LinkUp {
        /// One end.
        a: MonitorPort,
        /// The other end.
        b: MonitorPort,
    },
    /// The link between two switches is gone.
    LinkDown {
        /// One end.
        a: MonitorPort,
        /// The other end.
        b: MonitorPort,
    },
    /// A port went up or down.
    PortChanged {
        /// The port.
        at: MonitorPort,
        /// Whether it is up.
        is_up: bool,
    },
    /// Requested counters have been read, from the switches that answered.
    StatsReady(StatsToken),
}

/// Token of a request for counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatsToken(pub(crate) u64);

/// A copy received by the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownCopy {
    /// Policies whose copy it is, by [`PolicyReport::number`], as names may be reused.
    pub policies: Vec<u64>,
    /// The switch that made it.
    pub switch: DatapathId,
    /// Ingress port of the frame.
    pub port: u32,
    /// Length of the whole frame in bytes.
    pub len: u16,
    /// Its first bytes.
    pub start: Vec<u8>,
}
