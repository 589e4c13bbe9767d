//! What is told of one switch in detail: what it shall hold, what it holds, and what that counted.

use serde::{Deserialize, Serialize};

use crate::{Counts, PortReport};

/// A switch in detail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchDetails {
    /// Its ports.
    pub ports: Vec<PortDetail>,
    /// Rules that it shall have, and those that it has.
    pub rules: Vec<RuleReport>,
    /// Groups that it shall have, and those that it has.
    pub groups: Vec<GroupReport>,
}

/// A port, and what it counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDetail {
    /// What is known of it.
    #[serde(flatten)]
    pub port: PortReport,
    /// As the switch told last; none before it did.
    pub counters: Option<PortCounters>,
    /// What passes; none before the switch told its counters twice.
    pub load: Option<PortLoad>,
}

/// What a port counted since the switch made it; none for what the switch does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Frames that came in.
    pub rx_packets: Option<u64>,
    /// Their bytes.
    pub rx_bytes: Option<u64>,
    /// Frames that came in and were dropped.
    pub rx_dropped: Option<u64>,
    /// Frames that came in broken.
    pub rx_errors: Option<u64>,
    /// Frames that left.
    pub tx_packets: Option<u64>,
    /// Their bytes.
    pub tx_bytes: Option<u64>,
    /// Frames that should have left and were dropped.
    pub tx_dropped: Option<u64>,
    /// Frames that could not be sent.
    pub tx_errors: Option<u64>,
}

/// Bytes per second, between the last two times that the switch told its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLoad {
    /// In.
    pub rx: u64,
    /// Out.
    pub tx: u64,
}

/// A rule that a switch shall have, or has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Which frames it is for, as `ovs-ofctl` says it; empty for all.
    pub matches: String,
    /// What it does, as `ovs-ofctl` says it.
    pub actions: String,
    /// What it is for.
    pub purpose: Purpose,
    /// The policies that it serves.
    pub policies: Vec<String>,
    /// Whether the switch has it.
    pub standing: Standing,
    /// What it matched, as the switch told; none where it did not.
    pub counts: Option<Counts>,
    /// How long it has been there, in seconds.
    pub age_s: Option<u32>,
}

/// A group that a switch shall have, or has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its number.
    pub group: u32,
    /// How it picks buckets: `all` for each.
    pub kind: String,
    /// Its buckets.
    pub buckets: Vec<BucketReport>,
    /// The policies that it serves.
    pub policies: Vec<String>,
    /// Whether the switch has it.
    pub standing: Standing,
    /// Rules that lead to it.
    pub rules: Option<u32>,
    /// What came to it.
    pub counts: Option<Counts>,
}

/// A bucket of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketReport {
    /// What it does, as `ovs-ofctl` says it.
    pub actions: String,
    /// What came to it.
    pub counts: Option<Counts>,
}

/// What a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Purpose {
    /// Every switch has it.
    Base,
    /// A host at its place.
    Host,
    /// The way to a host.
    Way,
    /// A port that leads to another switch, or nowhere yet.
    Port,
    /// Copies on their way through, or at their end.
    Carry,
    /// Copies are made.
    Copies,
    /// Somebody else's.
    Foreign,
}

/// Whether a switch has what it shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It is there as it shall be.
    InPlace,
    /// It shall be there, and is not: it is on its way, or the switch refused it.
    Missing,
    /// It is there, and shall do something else.
    Other,
    /// It is ours, and not to be there any more.
    Surplus,
    /// It is not ours, and left alone.
    Foreign,
    /// It shall be there; the switch did not tell what is.
    Unread,
}
