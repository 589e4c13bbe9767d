//! What the switch tells about itself: plain data, for tables and for scripts.
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

/// Drops by the name of their reason.
pub type DropsReport = BTreeMap<String, u64>;

/// Datapath ids as controllers and policies have them: `0x1`.
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
    /// Unique number of the datapath; in JSON hexadecimal, as in `0x1`.
    #[serde(with = "as_datapath_name")]
    pub datapath_id: DatapathId,
    /// `standalone` or `secure`.
    pub fail_mode: String,
    /// True while it does without its rules, because no controller answers.
    pub standalone: bool,
    /// Its controllers.
    pub controllers: Vec<ControllerReport>,
    /// Stations that the reserved port NORMAL has learnt.
    pub stations: usize,
    /// What became of all frames.
    pub books: BooksReport,
}

/// One controller of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerReport {
    /// Where it is.
    pub endpoint: String,
    /// True while it answers.
    pub connected: bool,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Number, or `LOCAL`.
    pub port: String,
    /// Name of the interface.
    pub name: String,
    /// What is behind it: `tap`, `tun`, `netdev`, `vhost`, `vxlan`, `gre`, `erspan` or
    /// `pcapng`.
    pub kind: String,
    /// Namespace of the interface, when it is not the switch's own.
    pub netns: Option<String>,
    /// MAC address.
    pub mac: String,
    /// `up`, `no-link` (of a tunnel, when no way leads to the other end), `gone` when its interface
    /// was deleted, or `disabled` by configuration.
    pub state: String,
    /// Largest payload in bytes.
    pub mtu: u32,
    /// Most bytes of tags on top of it. Shorter frames may bear more where that is less than the
    /// port was told, since its interface, or its tunnel's path, has no room.
    pub envelope: u16,
    /// The port's mode as the options that make it; none when it is a member of all VLANs.
    pub mode: Option<String>,
    /// How large the frames were that did not fit, if any did not.
    pub oversize: Option<OversizeReport>,
    /// Frames that a steering program led to each queue; empty without one.
    pub steered: Vec<u64>,
    /// Number of queues.
    pub queues: u16,
    /// Offloads that the port takes from the kernel and gives to it; of a guest, what it takes.
    pub offloads: String,
    /// What is known of the guest; none when an interface is behind the port.
    pub guest: Option<GuestReport>,
    /// Where frames wait for the switch; none when no tap device is behind the port.
    pub ring: Option<RingReport>,
    /// What is lost in front of the interface, or of the one by which a tunnel's packets leave;
    /// none when the switch made it, or there is none.
    pub queueing: Option<QueueingReport>,
    /// What is known of the tunnel; none when something else is behind the port.
    pub tunnel: Option<TunnelReport>,
    /// What is known of the file; none when something else is behind the port.
    pub file: Option<FileReport>,
    /// What came in.
    pub rx: TrafficReport,
    /// What went out.
    pub tx: TrafficReport,
    /// What was dropped at this port, by reason.
    pub drops: DropsReport,
    /// Frames that the switch took: that came in here, for its controllers, and questions that were
    /// to go out, which the port answered itself.
    pub consumed: u64,
    /// Who waits for it, and for whom it waits.
    pub pressure: PressureReport,
}

impl PortReport {
    /// What to set, so that frames fit that did not; none while all do.
    pub fn oversize_remedy(&self) -> Option<String> {
        self.oversize.map(|oversize| oversize.remedy(self))
    }
}

/// A guest behind a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestReport {
    /// `waiting` for a monitor, `connected` to one whose guest does not run its device (yet), or
    /// `running`.
    pub state: String,
    /// Path of the socket by which its monitor is met.
    pub socket: String,
    /// Pairs of queues that run; zero while no guest is there.
    pub queues: u16,
    /// `split` or `packed`; none while no guest is there.
    pub rings: Option<String>,
    /// Features that were negotiated, as a hexadecimal number.
    pub features: String,
    /// Their names, in virtio's words.
    pub feature_names: Vec<String>,
    /// What stands in the way of the guest, and what can be done about it.
    pub warning: Option<String>,
    /// Sessions with a monitor so far.
    pub sessions: u64,
    /// Sessions that were ended because of what the guest or its monitor did.
    pub resets: u64,
    /// Why the last of those was ended.
    pub last_reset: Option<String>,
}

/// A tunnel behind a port. Counters are datagrams, or GRE packets, each of which carries a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelReport {
    /// Address of the other end.
    pub remote: String,
    /// Where its datagrams are taken: address, and UDP port where there is one.
    pub local: String,
    /// The VNI of VXLAN, the key of GRE if it has one, the session of ERSPAN.
    pub id: Option<u32>,
    /// MTU of the path in bytes, as far as the kernel knows; zero while there is none.
    pub path_mtu: u32,
    /// Why there is none, and what can be done about it.
    pub warning: Option<String>,
    /// Bytes of each of its packets that are the tunnel's own: headers from IP on, and Ethernet's.
    pub overhead: u32,
    /// Length of the socket's receive buffer in bytes, as the kernel granted it.
    pub receive_buffer: usize,
    /// System calls that sent datagrams.
    pub send_calls: u64,
    /// Datagrams that they sent.
    pub sent: u64,
    /// System calls that brought datagrams.
    pub receive_calls: u64,
    /// Datagrams that they brought, those refused included.
    pub received: u64,
    /// Datagrams that were refused, by reason: `runt` (too short for the tunnel's headers and an
    /// Ethernet header), `no_vni`, or `malformed` for GRE, and `wrong_vni`, `wrong_key` or
    /// `wrong_session` (of another tunnel), and `outer_congested` (marked, with a packet in it
    /// whose sender is not ECN-capable).
    pub refused: DropsReport,
    /// Errors that the path told: nobody listens there, or nobody is there.
    pub unreachable: u64,
}

impl TunnelReport {
    /// Bytes that a frame with a payload of `mtu` may have beside it; `None` without a path.
    pub(crate) fn room_beside(&self, mtu: u32) -> Option<u32> {
        (self.path_mtu > 0).then(|| self.path_mtu.saturating_sub(self.overhead + mtu))
    }
}

/// A file behind a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    /// The file that is written to.
    pub path: String,
    /// `writing`, `stopped` until the disk has room or works again, or `finished` by a limit.
    pub state: String,
    /// Why it is not written to.
    pub reason: Option<String>,
    /// Files that were finished since the port was opened.
    pub files: u64,
    /// Packets that were written since then.
    pub packets: u64,
    /// Bytes that were written since then.
    pub bytes: u64,
    /// Packets that the port took and that are in no file: they are among the drops.
    pub lost: u64,
    /// Bytes of the buffer that are in use.
    pub buffered: usize,
    /// Bytes of the buffer.
    pub buffer: usize,
}

/// How large the frames were that did not fit a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OversizeReport {
    /// The longest payload in bytes.
    pub payload: usize,
    /// The most bytes of tags.
    pub tags: usize,
    /// Whether that payload is longer than the port was told to take.
    pub over_mtu: bool,
    /// Whether these tags are more than it was told to take. When neither is true, what is too
    /// small is the interface.
    pub over_envelope: bool,
}

impl OversizeReport {
    /// What was noted at `port`, which is as `spec` says, if anything was.
    pub(crate) fn of(port: &Port, spec: &PortSpec) -> Option<Self> {
        let noted = port.counters.oversize();
        (noted.payload > 0).then(|| Self::judge(noted, port, spec))
    }

    fn judge(Oversize { payload, tags }: Oversize<usize>, port: &Port, spec: &PortSpec) -> Self {
        // A port that does not say goes by its interface, which grows for one that does.
        let (mtu, envelope) =
            (spec.mtu.unwrap_or(port.mtu), spec.envelope.unwrap_or(port.full_size_envelope()));
        let (over_mtu, over_envelope) = (payload > mtu as usize, tags > usize::from(envelope));
        Self { payload, tags, over_mtu, over_envelope }
    }

    /// What to set, so that frames like these fit `port`.
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

    /// What helps where no option does, as no port may be told to take so much.
    fn beyond_all_ports(&self) -> Option<String> {
        let is_beyond = self.payload > MAX_MTU as usize || self.tags > usize::from(MAX_ENVELOPE);
        is_beyond.then(|| {
            format!(
                "a port allows at most {MAX_MTU} and {MAX_ENVELOPE}: lower the MTU of the sender"
            )
        })
    }

    /// The same where it is the path of a tunnel that is too narrow: no option of the port widens
    /// it.
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

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Table.
    pub table: u8,
    /// Higher wins.
    pub priority: u16,
    /// Cookie, hexadecimal.
    pub cookie: String,
    /// Which frames.
    #[serde(rename = "match")]
    pub matching: String,
    /// What happens to them.
    pub actions: String,
    /// Seconds without a frame until it goes; 0 for never.
    pub idle_timeout: u16,
    /// Seconds until it goes; 0 for never.
    pub hard_timeout: u16,
    /// Its options, in the words of `ovs-ofctl`.
    pub flags: Vec<String>,
    /// What matched.
    pub count: CountReport,
    /// Seconds since the rule was added.
    pub age_s: u64,
    /// Seconds since it matched last, if it ever did.
    pub idle_s: Option<u64>,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Number.
    pub group: u32,
    /// `all`, `select`, `indirect` or `fast-failover`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What reached it.
    pub count: CountReport,
    /// Its buckets in order.
    pub buckets: Vec<BucketReport>,
}

/// One bucket of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketReport {
    /// All of it in the words of `ovs-ofctl`: what decides whether it is taken, and its actions.
    pub bucket: String,
    /// Share of the flows; for select groups only, else 0.
    pub weight: u16,
    /// Port whose state makes it live, if it watches one.
    pub watch_port: Option<String>,
    /// Group whose state makes it live, if it watches one.
    pub watch_group: Option<u32>,
    /// What it does.
    pub actions: String,
    /// Copies that it made.
    pub count: CountReport,
    /// Copies that a port took; a file, when they are written.
    pub delivered: CountReport,
    /// Copies that no port took, by reason.
    pub drops: DropsReport,
    /// Their packets on the wire, but for those that a port took of a train.
    pub packet_drops: DropsReport,
    /// Copies that wait for their port.
    pub queued: CountReport,
}

/// The ledger of a group that copies: what a TAP matched, delivered and dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapReport {
    /// Group.
    pub group: u32,
    /// Cookies of the rules that lead to it, hexadecimal.
    pub cookies: Vec<String>,
    /// Frames that reached the group.
    pub matched: CountReport,
    /// The original path: the first bucket.
    pub original: BucketReport,
    /// The copies: the other buckets.
    pub copies: Vec<BucketReport>,
    /// True when each copy is delivered or dropped under a name, but for those under way.
    pub adds_up: bool,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Number.
    pub worker: usize,
    /// Queues that it reads, as `port/queue`.
    pub queues: Vec<String>,
    /// Frames that it handled.
    pub frames: u64,
    /// Bursts in which it read them.
    pub bursts: u64,
    /// Times that it asked the kernel what is ready, asleep until something was.
    pub wakeups: u64,
    /// Received frames that were made into trains.
    pub coalesced: u64,
    /// Trains that were made of them.
    pub trains: u64,
    /// Programs found by exact key.
    pub exact_hits: u64,
    /// Programs found by masked key.
    pub masked_hits: u64,
    /// Walks through the tables.
    pub walks: u64,
    /// Programs remembered by masked key.
    pub cached: u64,
}

/// One kind of drop at one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropReport {
    /// Number, or `LOCAL`.
    pub port: String,
    /// Name of the interface.
    pub name: String,
    /// Why.
    pub reason: String,
    /// Frames.
    pub count: u64,
    /// What can be done about it; none where the switch is another version, say.
    pub remedy: Option<String>,
}

pub(crate) fn drops(counters: &DropCounters) -> DropsReport {
    counters.by_reason().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}

/// How a port is, in a word.
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

/// The groups that copy: type ALL with a path of its own and at least one copy.
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

/// Whether a bucket's copies are all accounted for. Counters run on while they are read: what came
/// out or waits cannot be more than what had gone in by the end of reading, nor less than what had
/// gone in at its start but for the burst that each worker has under way and counts at its end. A
/// copy that leaves the queue meanwhile must count on one side only, so that is read twice.
fn adds_up(bucket: &GroupBucket, workers: usize) -> bool {
    if outputs(&bucket.spec.actions) != Some(1) {
        // One that floods makes as many copies as there are ports.
        return true;
    }
    let before = bucket.counters.totals().frames;
    let waited = bucket.queued.frames();
    let out = bucket.delivered.totals().frames + bucket.drops.total();
    let waits = bucket.queued.frames();
    let after = bucket.counters.totals().frames;
    before <= out + waited + (workers * BURST_COUNT) as u64 && out + waits <= after
}

/// Number of ports that a list of actions sends to, if it is known beforehand.
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
