//! What happens, for who drives a [`crate::Control`].

use tapswitch_openflow::DatapathId;
use tapswitch_wire::MacAddr;

use crate::{MonitorPort, MonitorSpec, PolicyReport, TapPolicy};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A switch told what it holds, and is controlled from now on.
    SwitchUp {
        /// Which one.
        switch: DatapathId,
    },
    /// A switch is not connected any more. It forwards on by the rules that it has.
    SwitchDown {
        /// Which one.
        switch: DatapathId,
    },
    /// A switch does not do what OpenFlow says; its connection should be closed.
    SwitchMisbehaved {
        /// Which one.
        switch: DatapathId,
        /// What it did.
        reason: String,
    },
    /// A copy for the controller itself.
    Copy(Box<ShownCopy>),
    /// A switch refused a rule that has nothing to do with policies.
    RuleRefused {
        /// Which one.
        switch: DatapathId,
        /// The rule, and why.
        reason: String,
    },
    /// A switch did not hold what it was told, for somebody else changed it. It is put right.
    Drifted {
        /// Which one.
        switch: DatapathId,
        /// What was different.
        reason: String,
    },
    /// A switch does not tell its counters: those of the others count without them.
    CountersMissing {
        /// Which one.
        switch: DatapathId,
        /// Since when, and what that means.
        reason: String,
    },
    /// A switch tells its counters again.
    CountersBack {
        /// Which one.
        switch: DatapathId,
    },
    /// A port is closed for what was heard there: what is sent to find links came back, from a loop
    /// or from a host that wants to be taken for a switch; or several switches are on its cable.
    PortClosed {
        /// Whose port it is.
        switch: DatapathId,
        /// Which one, and what to look for.
        reason: String,
    },
    /// A link came and went again and again: it is not used for a while.
    LinkHeld {
        /// The switch at one end.
        switch: DatapathId,
        /// Which link, for how long, and what to look for.
        reason: String,
    },
    /// New hosts come at a port faster than they are taken: others are forwarded by flooding. It is
    /// told once, until they come slower again.
    Crowded {
        /// Whose port it is.
        switch: DatapathId,
        /// Which one, and what to look for.
        reason: String,
    },
    /// Somebody says to be a host that is elsewhere: one to which copies go, and which is or may be
    /// where it was, or one that moves again and again. It stays.
    Contested {
        /// Where that was seen.
        switch: DatapathId,
        /// The host, both places, and what to look for.
        reason: String,
    },
    /// A policy's rules are in force: the switch confirmed them.
    PolicyActive {
        /// Its name.
        name: String,
    },
    /// Copies are made, but not for all monitors of a policy, or not at all switches where its
    /// frames come in.
    PolicyPartial {
        /// Its name.
        name: String,
        /// How many are reached, what is missing, and what to do.
        reason: String,
    },
    /// A policy waits for its monitor. If it was active before, its rules are gone.
    PolicyPending {
        /// Its name.
        name: String,
        /// What is missing, and what to do.
        reason: String,
    },
    /// A policy cannot be applied. None of its rules is in force.
    PolicyFailed {
        /// Its name.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A policy makes no copies now, by its schedule. If it was active before, its rules are gone.
    PolicyResting {
        /// Its name.
        name: String,
        /// Until when.
        reason: String,
    },
    /// The switch of a policy's monitor, which names none, was found after the policy was added. It
    /// is to be kept: after a restart, another switch with such a port may connect first.
    PolicyPinned(Box<TapPolicy>),
    /// Copies for a monitor of a policy go elsewhere than before: it was found there. It is told
    /// when that is decided, which is before any copy goes there.
    PolicyMoved {
        /// The policy's name.
        name: String,
        /// Which one of its monitors.
        monitor: MonitorSpec,
        /// Where copies went before; nowhere, when it was not known where it is.
        from: Vec<MonitorPort>,
        /// Where they go from now on.
        to: Vec<MonitorPort>,
        /// Why.
        reason: String,
    },
    /// A policy has reached its end, and is being deleted: [`Self::PolicyDeleted`] tells its last
    /// counts.
    PolicyExpired {
        /// Its name.
        name: String,
        /// As in [`PolicyReport::number`].
        number: u64,
    },
    /// A policy has taken the place of the one of its name.
    PolicyReplaced {
        /// Its name.
        name: String,
    },
    /// A policy cannot take the place of the one of its name, which stays.
    PolicyNotReplaced {
        /// Its name.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The last counts of a policy in whose place another one is.
    PolicySuperseded(Box<PolicyReport>),
    /// A policy is gone, and so are its rules.
    PolicyDeleted(Box<PolicyReport>),
    /// A host was seen that was not known.
    HostSeen {
        /// Its MAC address.
        mac: MacAddr,
        /// Identifier of its outermost VLAN tag, if it has one.
        vlan: Option<u16>,
        /// The port behind which it is.
        at: MonitorPort,
    },
    /// A host is behind another port, perhaps of another switch.
    HostMoved {
        /// Its MAC address.
        mac: MacAddr,
        /// Identifier of its outermost VLAN tag, if it has one.
        vlan: Option<u16>,
        /// The port behind which it was.
        from: MonitorPort,
        /// The port behind which it is.
        at: MonitorPort,
    },
    /// A host was silent for long, or its port is down: it is forgotten.
    HostGone {
        /// Its MAC address.
        mac: MacAddr,
        /// Identifier of its outermost VLAN tag, if it has one.
        vlan: Option<u16>,
        /// The port behind which it was.
        at: MonitorPort,
    },
    /// Two switches are linked.
    LinkUp {
        /// One end.
        a: MonitorPort,
        /// The other end.
        b: MonitorPort,
    },
    /// Two switches are not linked any more.
    LinkDown {
        /// One end.
        a: MonitorPort,
        /// The other end.
        b: MonitorPort,
    },
    /// A port carries frames, or does not any more.
    PortChanged {
        /// Which one.
        at: MonitorPort,
        /// Whether it does.
        is_up: bool,
    },
    /// The counters that were asked for came, as far as switches answered.
    StatsReady(StatsToken),
}

/// One request for counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatsToken(pub(crate) u64);

/// A copy that came to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownCopy {
    /// The policies that want it there, by [`PolicyReport::number`]: another one may have the name
    /// of one that is gone.
    pub policies: Vec<u64>,
    /// The switch that made it.
    pub switch: DatapathId,
    /// The port where the frame came in.
    pub port: u32,
    /// Bytes of the whole frame.
    pub len: u16,
    /// Its first bytes.
    pub start: Vec<u8>,
}
