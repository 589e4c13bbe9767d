//! Rules about queues: number, length, and behaviour when full.

use tapswitch_tap::{Kind, lossless_ring_length};

use super::finding::{Finding, Severity};
use super::subject::{Rule, Subject};
use super::switches::SwitchPort;
use crate::device::view::{Backpressure, backpressure, drop_causes};
use crate::table::counted;

pub(super) const RULES: &[Rule] = &[
    no_queue_length,
    drops,
    one_queue,
    default_steering,
    no_qdisc,
    qdisc_sheds,
    lossy_length,
    backpressure_unused,
    no_backpressure,
];

/// A ring without room drops every frame.
fn no_queue_length(it: &Subject<'_>) -> Option<Finding> {
    if it.device.link.txqueuelen > 0 {
        return None;
    }
    let text = "the queue length is 0: the ring holds nothing, and every frame to the program is \
                dropped";
    let mend = it.set(&format!("--txqueuelen {}", default_length(it)));
    Some(it.finding(Severity::Error, "no-queue-length", text, mend))
}

/// Frames were lost, and the ring is shorter than the default: a longer one helps. Otherwise the
/// program is too slow, and only backpressure helps.
fn drops(it: &Subject<'_>) -> Option<Finding> {
    let (stats, length) = (it.device.link.stats, it.device.link.txqueuelen);
    let is_in_force = backpressure(it.device, it.machine) == Backpressure::InForce;
    // Without an attached queue everything is dropped, which is another finding.
    let is_read = it.device.queue_count() > 0;
    if stats.tx_dropped == 0 || !is_read || length == 0 || is_in_force {
        return None;
    }
    let were = if stats.tx_dropped == 1 { "was" } else { "were" };
    let dropped = format!("{} to the program {were}", counted(stats.tx_dropped, "frame"));
    let (usual, causes) = (default_length(it), drop_causes(it.device));
    if length < usual {
        let text = format!(
            "{dropped} dropped, and the ring holds {length}, fewer than the usual {usual}: it may \
             be too short (the count includes all drops: {causes})"
        );
        let mend = it.set(&format!("--txqueuelen {usual}"));
        return Some(it.finding(Severity::Warning, "short-queue", text, mend));
    }
    let text = format!(
        "{dropped} dropped since the device was created, with a ring of {length}: {causes}"
    );
    // The counter never decreases, so a ring that is already longer is no reason for an even longer
    // one.
    let longer = usual.saturating_mul(2);
    let mend = if length < longer { it.set(&format!("--txqueuelen {longer}")) } else { None };
    Some(it.finding(Severity::Hint, "frames-dropped", text, mend))
}

/// The driver's default for a new device.
fn default_length(it: &Subject<'_>) -> u32 {
    match it.device.kind() {
        Kind::Tap => 1000,
        Kind::Tun => 500,
    }
}

/// One queue is read by one core at a time.
fn one_queue(it: &Subject<'_>) -> Option<Finding> {
    let cores = it.machine.cores;
    if !it.is_held() || it.device.queue_count() != 1 || cores < 2 {
        return None;
    }
    let text = format!("one queue on a machine with {cores} cores: one core reads all frames");
    if it.device.tun.multi_queue {
        let who = match it.port {
            Some(SwitchPort { switch, port, .. }) => format!(
                "configure port {} of switch {switch} with queues={cores} to get more",
                port.port
            ),
            None => format!("{} may attach more queues", it.holders()),
        };
        let text = format!("{text}; {who}");
        return Some(it.finding(Severity::Hint, "one-queue", text, None));
    }
    // No command: it would end the program, and lose other settings of the device.
    let text = format!(
        "{text}; only a device that is created as multi-queue can have more: {} must request that, \
         or whoever prepared the device",
        it.holders()
    );
    Some(it.finding(Severity::Hint, "one-queue", text, None))
}

/// A steering program cannot be detected, so this may be a false alarm; but a switch reports its
/// own.
fn default_steering(it: &Subject<'_>) -> Option<Finding> {
    let queues = it.device.queue_count();
    let is_steered = it.port.is_some_and(|it| !it.port.steered.is_empty());
    if queues < 2 || is_steered {
        return None;
    }
    let text = format!(
        "{queues} queues: without a steering program (TUNSETSTEERINGEBPF; the kernel does not tell \
         whether there is one) a flow moves to the queue on which it was last written, and each \
         write costs a hash of its headers"
    );
    Some(it.finding(Severity::Hint, "default-steering", text, None))
}

/// Backpressure stops a queueing discipline, so it has no effect without one.
fn no_qdisc(it: &Subject<'_>) -> Option<Finding> {
    if backpressure(it.device, it.machine) != Backpressure::NoQueueing {
        return None;
    }
    let text = "IFF_BACKPRESSURE has no effect: there is no qdisc in which packets could wait";
    Some(it.finding(Severity::Warning, "no-qdisc", text, it.set("--qdisc pfifo_fast")))
}

/// With backpressure the discipline drops, as configured.
fn qdisc_sheds(it: &Subject<'_>) -> Option<Finding> {
    let root = it.device.qdiscs.iter().find(|qdisc| qdisc.is_root())?;
    if root.drops == 0 || backpressure(it.device, it.machine) != Backpressure::InForce {
        return None;
    }
    let (kind, packets) = (&root.kind, counted(root.drops, "packet"));
    let text = format!(
        "the qdisc ({kind}) in front of the ring has dropped {packets}: for some time more was \
         sent than the program reads, and the drops slow the senders down; a longer ring or qdisc \
         would delay packets, not deliver more of them"
    );
    Some(it.finding(Severity::Hint, "qdisc-sheds", text, None))
}

/// With this length the kernel may let the discipline go on while the ring is full.
fn lossy_length(it: &Subject<'_>) -> Option<Finding> {
    let length = it.device.link.txqueuelen;
    let better = lossless_ring_length(length);
    if better == length || backpressure(it.device, it.machine) != Backpressure::InForce {
        return None;
    }
    let text = format!(
        "with rings of {length}, Linux sometimes lets the qdisc go on while a ring is full, and a \
         frame is lost despite IFF_BACKPRESSURE"
    );
    let mend = it.set(&format!("--txqueuelen {better}"));
    Some(it.finding(Severity::Hint, "lossy-length", text, mend))
}

/// The kernel supports it, the device does not use it.
fn backpressure_unused(it: &Subject<'_>) -> Option<Finding> {
    let is_off = backpressure(it.device, it.machine) == Backpressure::Off;
    if !is_off || it.machine.backpressure != Some(true) {
        return None;
    }
    let text = "backpressure is off: what does not fit into the ring is dropped instead of waiting \
                in the qdisc";
    if it.is_held() {
        let text =
            format!("{text}; {} may ask for IFF_BACKPRESSURE when it opens it", it.holders());
        return Some(it.finding(Severity::Hint, "no-backpressure", text, None));
    }
    let mend = it.set("--backpressure on");
    Some(it.finding(Severity::Hint, "no-backpressure", text, mend))
}

/// Only reported if it would help: a ring that nobody reads overflows anyway.
fn no_backpressure(it: &Subject<'_>) -> Option<Finding> {
    let has_dropped = it.device.link.stats.tx_dropped > 0 && it.device.queue_count() > 0;
    if it.machine.backpressure != Some(false) || !has_dropped {
        return None;
    }
    let (major, minor) = it.machine.kernel;
    let text = format!(
        "this kernel ({major}.{minor}) has no IFF_BACKPRESSURE: what does not fit into the ring is \
         dropped; with Linux 7.3 or newer it can wait"
    );
    Some(it.finding(Severity::Hint, "no-backpressure", text, None))
}
