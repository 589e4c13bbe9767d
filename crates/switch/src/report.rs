//! Reports of the switch's state: plain data, for tables and scripts.
//!
//! Counters are frames (a train is one), wire packets (a train is many) and bytes of the frames.

mod meters;
mod pressure;
mod remedy;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tapswitch_datapath::{
    DropCounters, FlowEntry, Gauge, Group, GroupBucket, Millis, Oversize, Port, Snapshot, Totals,
    Traffic,
};
use tapswitch_openflow::{DatapathId, GroupId, GroupType, PortConfig, PortNo, PortState, TableId};
use tapswitch_wire::ethernet;

use crate::PortSpec;
use crate::port_spec::{MAX_ENVELOPE, MAX_MTU};
pub use crate::ring::{RingBackpressure, RingReport};
pub use crate::shed::QueueingReport;
use crate::worker::BURST_COUNT;
pub(crate) use meters::meters;
pub use meters::{BandReport, MeterReport};
pub use pressure::{BooksReport, PauseReport, PressureReport};
pub(crate) use remedy::{RING_FULL, STALLED};

/// Frames, packets and bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficReport {
    /// Frames; a train is one.
    pub frames: u64,
    /// Packets on the wire; a train is many.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

impl From<Traffic> for TrafficReport {
    fn from(traffic: Traffic) -> Self {
        let Traffic { frames, packets, bytes } = traffic;
        Self { frames, packets, bytes }
    }
}

/// Frames, packets and bytes of a rule, a group or a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountReport {
    /// Frames; a train is one.
    pub frames: u64,
    /// Packets on the wire; a train is many.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

impl From<Totals> for CountReport {
    fn from(totals: Totals) -> Self {
        let Totals { frames, packets, bytes, .. } = totals;
        Self { frames, packets, bytes }
    }
}

impl From<&Gauge> for CountReport {
    fn from(gauge: &Gauge) -> Self {
        Self { frames: gauge.frames(), packets: gauge.packets(), bytes: gauge.bytes() }
    }
}

/// Drops by reason.
pub type DropsReport = BTreeMap<String, u64>;

/// Serialises datapath ids as controllers and policies write them: `0x1`.
mod as_datapath_name {
    use super::DatapathId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &DatapathId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:#x}", id.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DatapathId, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u64::from_str_radix(digits, 16).map(DatapathId).map_err(D::Error::custom)
    }
}

/// The switch as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchReport {
    /// Name of the bridge.
    pub name: String,
    /// Unique id of the datapath; hexadecimal in JSON, as in `0x1`.
    #[serde(with = "as_datapath_name")]
    pub datapath_id: DatapathId,
    /// `standalone` or `secure`.
    pub fail_mode: String,
    /// True while the switch ignores its rules because no controller is connected.
    pub standalone: bool,
    /// Its controllers.
    pub controllers: Vec<ControllerReport>,
    /// Stations that the reserved port NORMAL has learnt.
    pub stations: usize,
    /// The outcome of all frames.
    pub books: BooksReport,
}

/// A controller of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerReport {
    /// Its endpoint.
    pub endpoint: String,
    /// True while it is connected.
    pub connected: bool,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Number, or `LOCAL`.
    pub port: String,
    /// Name of the interface.
    pub name: String,
    /// Kind of port: `tap`, `tun`, `netdev`, `vhost`, `vxlan`, `gre`, `erspan` or `pcapng`.
    pub kind: String,
    /// Namespace of the interface; `None` for the switch's own.
    pub netns: Option<String>,
    /// MAC address.
    pub mac: String,
    /// `up`, `no-link` (for a tunnel: no route to the remote), `gone` if the interface was deleted,
    /// or `disabled` by configuration.
    pub state: String,
    /// Largest payload in bytes.
    pub mtu: u32,
    /// Limit of bytes of tags in addition to the MTU. It is lower than configured if the interface
    /// or the tunnel's path has no room; shorter frames may then carry more tags.
    pub envelope: u16,
    /// The port's mode as the options that set it; `None` for a member of all VLANs.
    pub mode: Option<String>,
    /// Sizes of frames that did not fit, if any.
    pub oversize: Option<OversizeReport>,
    /// Frames that the steering program sent to each queue; empty without one.
    pub steered: Vec<u64>,
    /// Number of queues.
    pub queues: u16,
    /// Offloads that the port takes from the kernel and gives to it; for a guest, those it takes.
    pub offloads: String,
    /// State of the guest; `None` for other kinds.
    pub guest: Option<GuestReport>,
    /// State of the rings; `None` unless it is a tap device.
    pub ring: Option<RingReport>,
    /// Losses in front of the interface, or of a tunnel's egress interface; `None` if the switch
    /// created it, or there is none.
    pub queueing: Option<QueueingReport>,
    /// State of the tunnel; `None` for other kinds.
    pub tunnel: Option<TunnelReport>,
    /// State of the file; `None` for other kinds.
    pub file: Option<FileReport>,
    /// Received traffic.
    pub rx: TrafficReport,
    /// Sent traffic.
    pub tx: TrafficReport,
    /// Drops at this port, by reason.
    pub drops: DropsReport,
    /// Frames consumed by the switch: received here for its controllers, and requests to be sent
    /// here that the port answered itself.
    pub consumed: u64,
    /// Which ports wait for it, and for which ports it waits.
    pub pressure: PressureReport,
}

impl PortReport {
    /// The setting that makes oversize frames fit; `None` if there were none.
    pub fn oversize_remedy(&self) -> Option<String> {
        self.oversize.map(|oversize| oversize.remedy(self))
    }
}

/// A guest behind a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestReport {
    /// `waiting` for a VMM, `connected` to one whose guest does not run its device (yet), or
    /// `running`.
    pub state: String,
    /// Path of the vhost-user socket.
    pub socket: String,
    /// Running queue pairs; 0 without a guest.
    pub queues: u16,
    /// `split` or `packed`; `None` without a guest.
    pub rings: Option<String>,
    /// Negotiated features, as a hexadecimal number.
    pub features: String,
    /// Their names in the virtio specification.
    pub feature_names: Vec<String>,
    /// What prevents the guest from running or receiving, and the remedy.
    pub warning: Option<String>,
    /// Number of sessions with a VMM.
    pub sessions: u64,
    /// Sessions that were ended because of a violation by the guest or its VMM.
    pub resets: u64,
    /// The reason of the last of those.
    pub last_reset: Option<String>,
}

/// A tunnel behind a port. It counts datagrams, or GRE packets, each of which carries a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelReport {
    /// Address of the remote end.
    pub remote: String,
    /// Local address, with the UDP port if there is one.
    pub local: String,
    /// The VNI of VXLAN, the key of GRE if any, the session of ERSPAN.
    pub id: Option<u32>,
    /// MTU of the path in bytes, as known to the kernel; 0 if there is no route.
    pub path_mtu: u32,
    /// Why there is no route, and the remedy.
    pub warning: Option<String>,
    /// Bytes of headers that the tunnel adds to each packet: from IP on, and the inner Ethernet
    /// header.
    pub overhead: u32,
    /// Length of the socket's receive buffer in bytes, as the kernel granted it.
    pub receive_buffer: usize,
    /// System calls that sent datagrams.
    pub send_calls: u64,
    /// Datagrams that they sent.
    pub sent: u64,
    /// System calls that received datagrams.
    pub receive_calls: u64,
    /// Datagrams that they received, including refused ones.
    pub received: u64,
    /// Refused datagrams by reason: `runt` (too short for the tunnel's headers and an Ethernet
    /// header), `no_vni` (VXLAN) or `malformed` (GRE), `wrong_vni`, `wrong_key` or `wrong_session`
    /// (of another tunnel), and `outer_congested` (CE-marked, but the inner sender is not
    /// ECN-capable).
    pub refused: DropsReport,
    /// ICMP errors from the path: port or host unreachable.
    pub unreachable: u64,
}

impl TunnelReport {
    /// Room for tags with a payload of `mtu` bytes; `None` without a path.
    pub(crate) fn room_beside(&self, mtu: u32) -> Option<u32> {
        (self.path_mtu > 0).then(|| self.path_mtu.saturating_sub(self.overhead + mtu))
    }
}

/// A file behind a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    /// Path of the current file.
    pub path: String,
    /// `writing`, `stopped` while the disk is full or fails, or `finished` by a limit.
    pub state: String,
    /// Why it is not written to.
    pub reason: Option<String>,
    /// Files finished since the port was opened.
    pub files: u64,
    /// Packets written since then.
    pub packets: u64,
    /// Bytes written since then.
    pub bytes: u64,
    /// Packets that the port took but that are in no file; they are counted as drops.
    pub lost: u64,
    /// Bytes of the buffer in use.
    pub buffered: usize,
    /// Size of the buffer in bytes.
    pub buffer: usize,
}

/// Sizes of frames that did not fit a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OversizeReport {
    /// The longest payload in bytes.
    pub payload: usize,
    /// The most bytes of tags.
    pub tags: usize,
    /// Whether that payload exceeds the port's configured MTU.
    pub over_mtu: bool,
    /// Whether these tags exceed the configured envelope. If neither is true, the interface is too
    /// small.
    pub over_envelope: bool,
}

impl OversizeReport {
    /// The sizes noted at `port`, which has the specification `spec`, if any.
    pub(crate) fn of(port: &Port, spec: &PortSpec) -> Option<Self> {
        let noted = port.counters.oversize();
        (noted.payload > 0).then(|| Self::judge(noted, port, spec))
    }

    fn judge(Oversize { payload, tags }: Oversize<usize>, port: &Port, spec: &PortSpec) -> Self {
        // Without a setting, the interface decides; with one, it is enlarged.
        let (mtu, envelope) =
            (spec.mtu.unwrap_or(port.mtu), spec.envelope.unwrap_or(port.full_size_envelope()));
        let (over_mtu, over_envelope) = (payload > mtu as usize, tags > usize::from(envelope));
        Self { payload, tags, over_mtu, over_envelope }
    }

    /// The setting that makes such frames fit `port`.
    fn remedy(&self, port: &PortReport) -> String {
        let Self { payload, tags, over_mtu, over_envelope } = *self;
        let found = format!("frames had up to {payload} bytes of payload and {tags} of tags");
        let narrow = || port.tunnel.as_ref().and_then(|tunnel| self.remedy_for(tunnel));
        if let Some(remedy) = self.beyond_all_ports().or_else(narrow) {
            return format!("{found}: {remedy}");
        }
        let mut options = Vec::new();
        if over_mtu {
            options.push(format!("mtu={payload}"));
        }
        if over_envelope {
            options.push(format!("envelope={tags}"));
        }
        match options.as_slice() {
            [] => format!(
                "{found}, which fits the port's options, but not its interface: set the \
                 interface's MTU to {}",
                payload + tags
            ),
            options => format!("{found}: give the port {}", options.join(",")),
        }
    }

    /// The remedy if the frames exceed the limit of every port.
    fn beyond_all_ports(&self) -> Option<String> {
        let is_beyond = self.payload > MAX_MTU as usize || self.tags > usize::from(MAX_ENVELOPE);
        is_beyond.then(|| {
            format!(
                "a port allows at most {MAX_MTU} and {MAX_ENVELOPE}: lower the MTU of the sender"
            )
        })
    }

    /// The remedy if the path of a tunnel is too narrow, which no option of the port changes.
    fn remedy_for(&self, tunnel: &TunnelReport) -> Option<String> {
        let TunnelReport { remote, path_mtu, overhead, .. } = tunnel;
        let (path, overhead) = (*path_mtu as usize, *overhead as usize);
        let wanted = self.payload + self.tags + overhead;
        let fitting = path.saturating_sub(overhead + self.tags);
        let snaplen = path.saturating_sub(overhead) + ethernet::HEADER_LEN;
        (path > 0 && wanted > path).then(|| {
            format!(
                "set the MTU of the hosts to {fitting}, or raise the MTU of the path to {remote} \
                 from {path} to {wanted}; copies fit with `--snaplen {snaplen}`"
            )
        })
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Table id.
    pub table: u8,
    /// Priority; higher wins.
    pub priority: u16,
    /// Cookie in hexadecimal.
    pub cookie: String,
    /// The match.
    #[serde(rename = "match")]
    pub matching: String,
    /// The instructions.
    pub actions: String,
    /// Seconds without a frame until it expires; 0 for never.
    pub idle_timeout: u16,
    /// Seconds until it expires; 0 for never.
    pub hard_timeout: u16,
    /// Its flags, with the names of `ovs-ofctl`.
    pub flags: Vec<String>,
    /// Matched traffic.
    pub count: CountReport,
    /// Seconds since the rule was added.
    pub age_s: u64,
    /// Seconds since the last match, if any.
    pub idle_s: Option<u64>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Group id.
    pub group: u32,
    /// `all`, `select`, `indirect` or `fast-failover`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Traffic that reached the group.
    pub count: CountReport,
    /// Its buckets in order.
    pub buckets: Vec<BucketReport>,
}

/// A bucket of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketReport {
    /// The whole bucket in the syntax of `ovs-ofctl`: liveness conditions and actions.
    pub bucket: String,
    /// Share of the flows in select groups, else 0.
    pub weight: u16,
    /// Port whose state decides its liveness, if any.
    pub watch_port: Option<String>,
    /// Group whose state decides its liveness, if any.
    pub watch_group: Option<u32>,
    /// Its actions.
    pub actions: String,
    /// Copies made.
    pub count: CountReport,
    /// Copies taken by a port; for a file, copies written.
    pub delivered: CountReport,
    /// Copies not taken by any port, by reason.
    pub drops: DropsReport,
    /// Packets of the dropped copies, except those of a train that a port took.
    pub packet_drops: DropsReport,
    /// Copies queued for their port.
    pub queued: CountReport,
}

/// The ledger of a group that copies: matched, delivered and dropped traffic of a TAP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapReport {
    /// Group id.
    pub group: u32,
    /// Cookies in hexadecimal of the rules that refer to it.
    pub cookies: Vec<String>,
    /// Frames that reached the group.
    pub matched: CountReport,
    /// The original path: the first bucket.
    pub original: BucketReport,
    /// The copies: the other buckets.
    pub copies: Vec<BucketReport>,
    /// True if all copies are delivered, queued or dropped by name, except those in progress.
    pub adds_up: bool,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Number.
    pub worker: usize,
    /// The queues that it reads, as `port/queue`.
    pub queues: Vec<String>,
    /// Frames processed.
    pub frames: u64,
    /// Bursts in which they were read.
    pub bursts: u64,
    /// Wakeups: waits in the kernel without a timeout.
    pub wakeups: u64,
    /// Received frames that were coalesced into trains.
    pub coalesced: u64,
    /// Trains made of them.
    pub trains: u64,
    /// Programs found by exact key.
    pub exact_hits: u64,
    /// Programs found by masked key.
    pub masked_hits: u64,
    /// Walks through the tables.
    pub walks: u64,
    /// Programs cached by masked key.
    pub cached: u64,
}

/// Drops for one reason at one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropReport {
    /// Number, or `LOCAL`.
    pub port: String,
    /// Name of the interface.
    pub name: String,
    /// The reason.
    pub reason: String,
    /// Frames.
    pub count: u64,
    /// The remedy; `None` for a reason unknown to this version.
    pub remedy: Option<String>,
}

pub(crate) fn drops(counters: &DropCounters) -> DropsReport {
    counters.by_reason().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}

/// The state of a port in one word.
pub(crate) fn port_state(port: &Port) -> &'static str {
    if port.config.contains(PortConfig::PORT_DOWN) {
        "disabled"
    } else if port.state.contains(PortState::LINK_DOWN) {
        "no-link"
    } else {
        "up"
    }
}

/// All rules, by table and priority.
pub(crate) fn flows(snapshot: &Snapshot, now: Millis) -> Vec<FlowReport> {
    let mut entries: Vec<_> =
        snapshot.tables(TableId::ALL).flat_map(|(_, table)| table.iter()).collect();
    entries.sort_by_key(|entry| (entry.table_id, std::cmp::Reverse(entry.priority), entry.created));
    entries.into_iter().map(|entry| flow(entry, now)).collect()
}

fn flow(entry: &FlowEntry, now: Millis) -> FlowReport {
    let totals = entry.counters.totals();
    let instructions: Vec<_> = entry.instructions.iter().map(ToString::to_string).collect();
    FlowReport {
        table: entry.table_id.0,
        priority: entry.priority,
        cookie: cookie(entry.cookie),
        matching: entry.matching.to_string(),
        actions: if instructions.is_empty() { "drop".into() } else { instructions.join(",") },
        idle_timeout: entry.idle_timeout,
        hard_timeout: entry.hard_timeout,
        flags: entry.flags.words().map(Into::into).collect(),
        count: totals.into(),
        age_s: now.since(entry.created).0 / 1000,
        idle_s: (totals.frames > 0).then(|| now.since(totals.last_used).0 / 1000),
    }
}

/// All groups.
pub(crate) fn groups(snapshot: &Snapshot) -> Vec<GroupReport> {
    snapshot.groups.iter().map(|group| group_report(group)).collect()
}

fn group_report(group: &Group) -> GroupReport {
    let kind = match group.kind {
        GroupType::All => "all",
        GroupType::Select => "select",
        GroupType::Indirect => "indirect",
        GroupType::FastFailover => "fast-failover",
    };
    GroupReport {
        group: group.id.0,
        kind: kind.into(),
        count: group.counters.totals().into(),
        buckets: buckets(group),
    }
}

fn buckets(group: &Group) -> Vec<BucketReport> {
    let report = |bucket: &GroupBucket| BucketReport {
        bucket: bucket.spec.to_string(),
        weight: bucket.spec.weight,
        watch_port: Some(bucket.spec.watch_port)
            .filter(|port| *port != PortNo::ANY)
            .map(|port| port.to_string()),
        watch_group: Some(bucket.spec.watch_group.0).filter(|id| *id != GroupId::ANY.0),
        actions: actions(&bucket.spec.actions),
        count: bucket.counters.totals().into(),
        delivered: bucket.delivered.totals().into(),
        drops: drops(&bucket.drops),
        packet_drops: drops(&bucket.packet_drops),
        queued: (&bucket.queued).into(),
    };
    group.buckets.iter().map(report).collect()
}

fn actions(actions: &[tapswitch_openflow::Action]) -> String {
    let texts: Vec<_> = actions.iter().map(ToString::to_string).collect();
    if texts.is_empty() { "drop".into() } else { texts.join(",") }
}

/// The groups that make copies: type ALL with an original path and at least one copy.
pub(crate) fn taps(snapshot: &Snapshot, workers: usize) -> Vec<TapReport> {
    let copies = |group: &&Arc<Group>| group.kind == GroupType::All && group.buckets.len() > 1;
    snapshot.groups.iter().filter(copies).map(|group| tap(snapshot, group, workers)).collect()
}

fn tap(snapshot: &Snapshot, group: &Group, workers: usize) -> TapReport {
    let adds_up = group.buckets.iter().all(|bucket| adds_up(bucket, workers));
    let rules = snapshot.tables(TableId::ALL).flat_map(|(_, table)| table.iter());
    let mut cookies: Vec<_> =
        rules.filter(|rule| rule.uses_group(group.id)).map(|rule| cookie(rule.cookie)).collect();
    cookies.sort();
    cookies.dedup();
    let mut copies = buckets(group);
    let original = copies.remove(0);
    let matched = group.counters.totals().into();
    TapReport { group: group.id.0, cookies, matched, original, copies, adds_up }
}

/// Whether all copies of a bucket are accounted for. Counters change while they are read. Copies
/// that left or are queued cannot exceed the copies made by the end of reading, nor be less than
/// those made at its start, except for one burst per worker, which is counted at its end. A copy
/// that leaves the queue meanwhile must be counted once, so the queue is read twice.
fn adds_up(bucket: &GroupBucket, workers: usize) -> bool {
    if outputs(&bucket.spec.actions) != Some(1) {
        // A bucket that floods makes as many copies as there are ports.
        return true;
    }
    let before = bucket.counters.totals().frames;
    let waited = bucket.queued.frames();
    let out = bucket.delivered.totals().frames + bucket.drops.total();
    let waits = bucket.queued.frames();
    let after = bucket.counters.totals().frames;
    before <= out + waited + (workers * BURST_COUNT) as u64 && out + waits <= after
}

/// Number of ports to which a list of actions sends, if known in advance.
fn outputs(actions: &[tapswitch_openflow::Action]) -> Option<usize> {
    use tapswitch_openflow::Action;
    let mut count = 0;
    for action in actions {
        match action {
            Action::Output { port: PortNo::FLOOD | PortNo::ALL | PortNo::NORMAL, .. }
            | Action::Group(_) => return None,
            Action::Output { .. } => count += 1,
            _ => {}
        }
    }
    Some(count)
}

fn cookie(value: u64) -> String {
    format!("{value:#x}")
}

#[cfg(test)]
mod tests;
