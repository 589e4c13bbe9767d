//! Details of one switch: desired and actual tables, with counters.

use serde::{Deserialize, Serialize};

use crate::{Counts, PortReport};

/// Details of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchDetails {
    /// Its ports.
    pub ports: Vec<PortDetail>,
    /// Rules, desired and actual.
    pub rules: Vec<RuleReport>,
    /// Groups, desired and actual.
    pub groups: Vec<GroupReport>,
}

/// A port with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDetail {
    /// State of the port.
    #[serde(flatten)]
    pub port: PortReport,
    /// Last counters; `None` if not read yet.
    pub counters: Option<PortCounters>,
    /// Current load; `None` until counters have been read twice.
    pub load: Option<PortLoad>,
}

/// Counters of a port since it was created; `None` for what the switch does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Frames received.
    pub rx_packets: Option<u64>,
    /// Their bytes.
    pub rx_bytes: Option<u64>,
    /// Received frames that were dropped.
    pub rx_dropped: Option<u64>,
    /// Receive errors.
    pub rx_errors: Option<u64>,
    /// Frames sent.
    pub tx_packets: Option<u64>,
    /// Their bytes.
    pub tx_bytes: Option<u64>,
    /// Frames dropped at egress.
    pub tx_dropped: Option<u64>,
    /// Send errors.
    pub tx_errors: Option<u64>,
}

/// Bytes per second between the last two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLoad {
    /// Received.
    pub rx: u64,
    /// Sent.
    pub tx: u64,
}

/// A rule, desired or actual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Match in the syntax of `ovs-ofctl`; empty for all frames.
    pub matches: String,
    /// Actions in the syntax of `ovs-ofctl`.
    pub actions: String,
    /// Its purpose.
    pub purpose: Purpose,
    /// The policies that it serves.
    pub policies: Vec<String>,
    /// Whether the switch has it.
    pub standing: Standing,
    /// Matched frames; `None` if not reported.
    pub counts: Option<Counts>,
    /// Age in seconds.
    pub age_s: Option<u32>,
}

/// A group, desired or actual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its id.
    pub group: u32,
    /// Its type, such as `all`.
    pub kind: String,
    /// Its buckets.
    pub buckets: Vec<BucketReport>,
    /// The policies that it serves.
    pub policies: Vec<String>,
    /// Whether the switch has it.
    pub standing: Standing,
    /// Number of rules that use it.
    pub rules: Option<u32>,
    /// Frames processed.
    pub counts: Option<Counts>,
}

/// A bucket of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketReport {
    /// Actions in the syntax of `ovs-ofctl`.
    pub actions: String,
    /// Frames processed.
    pub counts: Option<Counts>,
}

/// Purpose of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Purpose {
    /// Present on every switch.
    Base,
    /// Recognises a host at its port.
    Host,
    /// Forwards to a host.
    Way,
    /// For a port with a link, or a closed one.
    Port,
    /// Copies in transit or at their last switch.
    Carry,
    /// Makes copies.
    Copies,
    /// Of another owner.
    Foreign,
}

/// Comparison of desired and actual state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Present as desired.
    InPlace,
    /// Missing: not sent yet, or rejected.
    Missing,
    /// Present with other content.
    Other,
    /// Ours, and to be deleted.
    Surplus,
    /// Of another owner, and left alone.
    Foreign,
    /// Desired; the actual state was not read.
    Unread,
}
