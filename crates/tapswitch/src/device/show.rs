//! `tapswitch device show`: state of one device, with explanations.

use tapswitch_tap::Flags;
use tapswitch_tap::inspect::Inspected;

use super::args::DeviceNameArgs;
use super::list::state;
use super::machine::Machine;
use super::view::{Backpressure, DeviceView, OffloadState, OffloadView, drop_causes};
use super::{Failure, find, warn_unseen};
use crate::table::{counted, grouped, print_json};
use crate::text::printable;
use crate::users::{Group, User};

pub(super) fn main(args: &DeviceNameArgs) -> Result<(), Failure> {
    let (device, unseen) = find(&args.name, &args.place)?;
    let machine = Machine::here();
    let view = DeviceView::new(&device, &machine);
    if args.json {
        print_json(&view);
    } else {
        let title = format!("{}  {} device in {}", view.name, view.kind, place(&view.namespace));
        say!("{}", printable(&title));
        for (key, value) in lines(&view, &device, &machine) {
            say!(" {key:<13} {}", printable(&value));
        }
    }
    warn_unseen(&unseen);
    Ok(())
}

fn place(namespace: &str) -> String {
    match namespace {
        "(current)" => "this namespace".to_owned(),
        other => format!("namespace {other}"),
    }
}

fn lines(view: &DeviceView, device: &Inspected, machine: &Machine) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("state", state(view)),
        ("flags", list(&view.flags)),
        ("queues", queues(view)),
        ("held by", view.holders_text()),
        ("open to", open_to(view, machine.opens_to_all(device))),
        ("mac", view.mac.clone().unwrap_or_else(|| "none".to_owned())),
        ("mtu", format!("{} bytes", view.mtu)),
        ("addresses", list(&view.addresses)),
    ];
    lines.extend(view.port_of.iter().map(|bridge| ("port of", bridge.clone())));
    lines.extend([
        ("offloads", offloads(&view.offloads)),
        ("header", header(view)),
        ("queue length", counted(view.queue_length.into(), "frame") + " in each queue's ring"),
        ("qdisc", qdisc(view)),
        ("backpressure", backpressure(view.backpressure).to_owned()),
        ("to program", to_program(view, device)),
        ("from program", from_program(view)),
        ("gro", gro(view, device)),
    ]);
    lines
}

fn list(words: &[impl AsRef<str>]) -> String {
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(" ") }
}

fn queues(view: &DeviceView) -> String {
    match (view.queues, view.detached_queues) {
        (attached, 0) => format!("{attached} attached"),
        (attached, detached) => format!("{attached} attached, {detached} detached"),
    }
}

/// Who may open it without privilege.
fn open_to(view: &DeviceView, is_open_to_all: bool) -> String {
    match (view.owner, view.group) {
        (Some(owner), Some(group)) => {
            format!("user {} in group {}", User(owner).text(), Group(group).text())
        }
        (Some(owner), None) => format!("user {}", User(owner).text()),
        (None, Some(group)) => format!("group {}", Group(group).text()),
        (None, None) if is_open_to_all => "every user who may open /dev/net/tun".to_owned(),
        (None, None) => "users with CAP_NET_ADMIN".to_owned(),
    }
}

fn offloads(views: &[OffloadView]) -> String {
    if views.is_empty() {
        return "could not be read".to_owned();
    }
    let names = |state| {
        let those = views.iter().filter(|view| view.state == state);
        those.map(|view| view.name).collect::<Vec<_>>().join(" ")
    };
    let mut parts = Vec::new();
    for (state, what) in [
        (OffloadState::On, "on"),
        (OffloadState::NotAskedFor, "never requested by a program"),
        (OffloadState::Off, "off (not requested, or switched off by ethtool)"),
        (OffloadState::Unavailable, "not in this kernel"),
    ] {
        let names = names(state);
        if !names.is_empty() {
            parts.push(format!("{what}: {names}"));
        }
    }
    parts.join("; ")
}

fn header(view: &DeviceView) -> String {
    let has = view.flags.contains(&"net-header");
    let len = view.holders.iter().find_map(|holder| holder.header_len);
    match (has, len) {
        (false, _) => "none".to_owned(),
        (true, Some(len)) => format!("{len} bytes"),
        (true, None) => {
            "yes; its length is known only once it is opened, as `tapswitch device doctor NAME` \
             does"
                .to_owned()
        }
    }
}

fn qdisc(view: &DeviceView) -> String {
    let Some(qdisc) = &view.qdisc else {
        let text = if view.state == "down" { "none until it is switched on" } else { "not read" };
        return text.to_owned();
    };
    format!(
        "{}, {} dropped, {} waiting, {} put back",
        qdisc.kind,
        grouped(qdisc.dropped),
        grouped(qdisc.waiting.into()),
        grouped(qdisc.requeued.into())
    )
}

fn backpressure(state: Backpressure) -> &'static str {
    match state {
        Backpressure::InForce => "in force: when the ring is full, packets wait in the qdisc",
        Backpressure::NoQueueing => "without effect: there is no qdisc in which packets could wait",
        Backpressure::WhenUp => "in force when the interface is switched on and gets its qdisc",
        Backpressure::Off => "off: what does not fit into the ring is dropped",
        Backpressure::Unavailable => {
            "not in this kernel (Linux 7.3 has it): what does not fit into the ring is dropped"
        }
        Backpressure::Unknown => "unknown: the flags could not be read",
    }
}

fn to_program(view: &DeviceView, device: &Inspected) -> String {
    let count = view.to_program;
    let why = if count.dropped > 0 { format!(": {}", drop_causes(device)) } else { String::new() };
    format!(
        "{}, {}, {} dropped{why}",
        counted(count.frames, "frame"),
        counted(count.bytes, "byte"),
        grouped(count.dropped)
    )
}

fn from_program(view: &DeviceView) -> String {
    let count = view.from_program;
    let why = if count.dropped > 0 { ": the interface was down, or memory was short" } else { "" };
    format!(
        "{}, {}, {} dropped{why}",
        counted(count.frames, "frame"),
        counted(count.bytes, "byte"),
        grouped(count.dropped)
    )
}

/// Whether the kernel coalesces frames that the program writes.
fn gro(view: &DeviceView, device: &Inspected) -> String {
    let timeout = view.gro_flush_timeout_ns;
    let settings = match (timeout, view.napi_defer_hard_irqs) {
        (Some(ns), Some(irqs)) => format!("gro_flush_timeout {ns} ns, napi_defer_hard_irqs {irqs}"),
        _ => "its settings could not be read".to_owned(),
    };
    let forwarding = if view.udp_gro_forwarding == Some(true) { "; UDP is joined too" } else { "" };
    match (device.flags, timeout) {
        (Some(flags), _) if !flags.contains(Flags::NAPI) => {
            format!("off: the device does not use NAPI ({settings})")
        }
        (Some(_), Some(1..)) => format!("on: {settings}{forwarding}"),
        (Some(_), Some(0)) => {
            format!("without effect: it does not wait for packets to join ({settings})")
        }
        _ => settings,
    }
}
