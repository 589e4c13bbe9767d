//! A device as data, the same for every command: printed by `--json` and in tables.

use serde::Serialize;
use tapswitch_netlink::Qdisc;
use tapswitch_tap::inspect::{Certainty, Holder, Inspected};
use tapswitch_tap::{Flags, MacAddr};

use super::machine::Machine;

/// One device. Absent fields are unknown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceView {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) index: u32,
    pub(super) kind: &'static str,
    pub(super) flags: Vec<&'static str>,
    pub(super) queues: u32,
    pub(super) detached_queues: u32,
    pub(super) owner: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) state: &'static str,
    pub(super) carrier: Option<bool>,
    pub(super) mac: Option<String>,
    pub(super) mtu: u32,
    pub(super) addresses: Vec<String>,
    pub(super) port_of: Option<String>,
    pub(super) queue_length: u32,
    pub(super) from_program: CountView,
    pub(super) to_program: CountView,
    pub(super) qdisc: Option<QdiscView>,
    pub(super) backpressure: Backpressure,
    pub(super) offloads: Vec<OffloadView>,
    pub(super) mangle_id: Option<bool>,
    pub(super) udp_gro_forwarding: Option<bool>,
    pub(super) gro_flush_timeout_ns: Option<u64>,
    pub(super) napi_defer_hard_irqs: Option<u64>,
    pub(super) rx_frames: Option<u32>,
    pub(super) holders: Vec<HolderView>,
    /// False if hidden programs may hold it as well.
    #[serde(skip)]
    is_seen: bool,
}

/// Frames in one direction; a train counts as one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CountView {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct QdiscView {
    pub(super) kind: String,
    pub(super) dropped: u64,
    pub(super) waiting: u32,
    pub(super) requeued: u32,
}

/// Whether packets wait instead of being dropped when the ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Backpressure {
    /// The flag is set, the kernel supports it, and there is a queueing discipline.
    InForce,
    /// The flag is set, but there is no queueing discipline in which packets can wait.
    NoQueueing,
    /// The flag is set, and the interface gets its queueing discipline when it is set up.
    WhenUp,
    /// The kernel supports it; the device does not use it.
    Off,
    /// The kernel does not support it.
    Unavailable,
    /// The flags could not be read.
    Unknown,
}

/// State of an offload for frames that the program reads.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OffloadView {
    pub(super) name: &'static str,
    pub(super) state: OffloadState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OffloadState {
    On,
    /// No program has ever enabled any offload.
    NotAskedFor,
    /// The program has not enabled it, or an administrator has disabled it (`ethtool -K`); the
    /// kernel does not report which.
    Off,
    /// The kernel does not have it.
    Unavailable,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct HolderView {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) fd: i32,
    /// False if only the name matches, and the file might belong to another namespace's device.
    pub(super) certain: bool,
    pub(super) header_len: Option<usize>,
    pub(super) send_buffer_len: Option<u32>,
}

impl DeviceView {
    pub(super) fn new(device: &Inspected, machine: &Machine) -> Self {
        let (link, tun) = (&device.link, &device.tun);
        let stats = link.stats;
        Self {
            name: link.name.clone(),
            namespace: device.namespace.clone(),
            index: link.index,
            kind: device.kind().as_str(),
            flags: flags(device),
            queues: device.queue_count(),
            detached_queues: tun.disabled_queues.unwrap_or(0),
            owner: tun.owner,
            group: tun.group,
            state: if link.up { "up" } else { "down" },
            carrier: link.carrier,
            mac: link.mac.map(|mac| MacAddr(mac).to_string()),
            mtu: link.mtu,
            addresses: device.addresses.iter().map(ToString::to_string).collect(),
            port_of: device.controller.clone(),
            queue_length: link.txqueuelen,
            from_program: CountView {
                frames: stats.rx_packets,
                bytes: stats.rx_bytes,
                dropped: stats.rx_dropped,
            },
            to_program: CountView {
                frames: stats.tx_packets,
                bytes: stats.tx_bytes,
                dropped: stats.tx_dropped,
            },
            qdisc: qdisc(device),
            backpressure: backpressure(device, machine),
            offloads: offloads(device),
            mangle_id: active(device, MANGLE_ID),
            udp_gro_forwarding: active(device, UDP_GRO_FORWARDING),
            gro_flush_timeout_ns: device.gro_flush_timeout_ns,
            napi_defer_hard_irqs: device.napi_defer_hard_irqs,
            rx_frames: device.rx_frames,
            holders: device.holders.iter().map(HolderView::new).collect(),
            is_seen: device.is_held() || device.is_free(),
        }
    }

    /// The programs, each once, as a table cell.
    pub(super) fn holders_text(&self) -> String {
        let mut texts: Vec<String> = Vec::new();
        for HolderView { pid, command, certain, .. } in &self.holders {
            let doubt = if *certain { "" } else { "?" };
            let text = format!("{command}({pid}){doubt}");
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        match texts.is_empty() {
            true if self.queues > 0 || !self.is_seen => "not seen".to_owned(),
            true => "-".to_owned(),
            false => texts.join(" "),
        }
    }
}

impl HolderView {
    fn new(holder: &Holder) -> Self {
        Self {
            pid: holder.pid,
            command: holder.command.clone(),
            fd: holder.fd,
            certain: holder.certainty != Certainty::Ambiguous,
            header_len: holder.queue.map(|queue| queue.header_len),
            send_buffer_len: holder.queue.map(|queue| queue.send_buffer_len),
        }
    }
}

/// The flags in words.
fn flags(device: &Inspected) -> Vec<&'static str> {
    let tun = &device.tun;
    let all = [
        (tun.net_header, "net-header"),
        (tun.packet_info, "packet-info"),
        (tun.multi_queue, "multi-queue"),
        (tun.persistent, "persistent"),
        (device.has_flag(Flags::NAPI), "napi"),
        (device.has_flag(Flags::NAPI_FRAGS), "napi-frags"),
        (device.has_flag(Flags::NO_CARRIER), "no-carrier"),
        (device.has_flag(Flags::BACKPRESSURE), "backpressure"),
    ];
    all.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
}

/// The root qdisc, with the drops and backlog of its children: `mq` reports their sums itself.
fn qdisc(device: &Inspected) -> Option<QdiscView> {
    let root = device.qdiscs.iter().find(|qdisc| qdisc.is_root())?;
    let Qdisc { kind, drops, qlen, requeues, .. } = root.clone();
    Some(QdiscView { kind, dropped: drops, waiting: qlen, requeued: requeues })
}

pub(super) fn backpressure(device: &Inspected, machine: &Machine) -> Backpressure {
    if machine.backpressure == Some(false) {
        return Backpressure::Unavailable;
    }
    match (device.flags, device.has_queueing()) {
        (None, _) => Backpressure::Unknown,
        (Some(flags), _) if !flags.contains(Flags::BACKPRESSURE) => Backpressure::Off,
        (Some(_), Some(false)) => Backpressure::NoQueueing,
        (Some(_), Some(true)) => Backpressure::InForce,
        (Some(_), None) => Backpressure::WhenUp,
    }
}

/// Possible causes of frames dropped on the way to the program, in words. The kernel has one
/// counter for all, so impossible ones are omitted: a non-persistent single-queue device always had
/// its program, and a queue of several may have been detached.
pub(super) fn drop_causes(device: &Inspected) -> String {
    let tun = &device.tun;
    let ring = if device.link.txqueuelen == 0 {
        "its ring has no room (the queue length is 0)"
    } else {
        "its ring was full"
    };
    let absence = match (device.queue_count(), tun.disabled_queues.unwrap_or(0)) {
        (0, 1..) => Some("all its queues are detached"),
        (0, 0) if device.is_free() => Some("no program holds it"),
        _ if tun.persistent => Some("no program held it at the time"),
        _ if tun.multi_queue => Some("a queue was detached at the time"),
        _ => None,
    };
    match absence {
        Some(absence) => format!("{absence}, {ring}, or a filter of its program refused them"),
        None => format!("{ring}, or a filter of its program refused them"),
    }
}

fn offloads(device: &Inspected) -> Vec<OffloadView> {
    if device.features.is_empty() {
        return Vec::new();
    }
    let view = |&(name, feature): &(&'static str, &str)| {
        let state = match device.feature(feature) {
            Some(feature) if feature.active => OffloadState::On,
            Some(feature) if feature.is_fixed() => OffloadState::Unavailable,
            Some(feature) if feature.requested => OffloadState::NotAskedFor,
            Some(_) => OffloadState::Off,
            None => OffloadState::Unavailable,
        };
        OffloadView { name, state }
    };
    OFFLOADS.iter().map(view).collect()
}

/// Names of the active offloads.
pub(super) fn active_offloads(device: &Inspected) -> Vec<&'static str> {
    let on = offloads(device).into_iter().filter(|view| view.state == OffloadState::On);
    on.map(|view| view.name).collect()
}

fn active(device: &Inspected, feature: &str) -> Option<bool> {
    device.feature(feature).map(|feature| feature.active)
}

/// Our names of offloads, and the kernel's.
const OFFLOADS: [(&str, &str); 7] = [
    ("csum", CSUM),
    ("tso4", TSO4),
    ("tso6", TSO6),
    ("ecn", "tx-tcp-ecn-segmentation"),
    ("uso", USO),
    ("tunnel", TUNNEL),
    ("tunnel-csum", TUNNEL_CSUM),
];

/// Names of features, as in `ethtool -k`.
pub(super) const CSUM: &str = "tx-checksum-ip-generic";
pub(super) const TSO4: &str = "tx-tcp-segmentation";
pub(super) const TSO6: &str = "tx-tcp6-segmentation";
pub(super) const USO: &str = "tx-udp-segmentation";
pub(super) const TUNNEL: &str = "tx-udp_tnl-segmentation";
pub(super) const TUNNEL_CSUM: &str = "tx-udp_tnl-csum-segmentation";
pub(super) const MANGLE_ID: &str = "tx-tcp-mangleid-segmentation";
pub(super) const UDP_GRO_FORWARDING: &str = "rx-udp-gro-forwarding";
pub(super) const GRO_LIST: &str = "rx-gro-list";
/// Length of `struct virtio_net_hdr_v1_hash_tunnel` in bytes, required for tunnelled trains.
pub(super) const TUNNEL_HEADER_LEN: usize = 24;
