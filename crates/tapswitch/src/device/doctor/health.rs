//! Rules about the state of a device and its programs.

use tapswitch_netlink::Link;
use tapswitch_tap::inspect::Holder;

use super::finding::{Finding, Rule, Severity, Subject};
use crate::device::users::User;

pub(super) const RULES: &[Rule] =
    &[down, no_carrier, unread, foreign_queue, detached_queues, tag_mtu, send_buffer, open_to_all];

/// A program that writes to an interface that is down gets `EIO`.
fn down(it: &Subject<'_>) -> Option<Finding> {
    if it.device.link.up || !it.is_held() {
        return None;
    }
    let who = it.holders();
    let text = format!("the interface is down: {who} gets EIO for each write and reads nothing");
    Some(it.finding(Severity::Warning, "down", text, it.set("--up")))
}

/// A program is there, but says that it is not (`IFF_NO_CARRIER`, `TUNSETCARRIER`).
fn no_carrier(it: &Subject<'_>) -> Option<Finding> {
    let link = &it.device.link;
    if !link.up || link.carrier != Some(false) || it.device.queue_count() == 0 {
        return None;
    }
    let who = it.holders();
    let text = format!("{who} holds it, but it has no carrier: nothing is sent to it");
    Some(it.finding(Severity::Warning, "no-carrier", text, it.set("--carrier on")))
}

/// Up, and nobody there.
fn unread(it: &Subject<'_>) -> Option<Finding> {
    if !it.device.link.up || !it.is_free() {
        return None;
    }
    let text = "it is up, but no program holds it: what is sent to it is dropped";
    Some(it.finding(Severity::Hint, "unread", text, it.set("--down")))
}

/// A multi-queue device can be joined by anybody who may open it, and whoever joins gets a share
/// of the frames. Who is the stranger cannot be told: programs start in another order than they
/// open devices. So none is to be ended by a command.
fn foreign_queue(it: &Subject<'_>) -> Option<Finding> {
    let owners = it.device.owners();
    let [_, _, ..] = owners.as_slice() else { return None };
    let told: Vec<_> = owners.iter().map(|owner| described(owner)).collect();
    let is_other = |owner: &&&Holder| {
        it.device.tun.owner.zip(owner.uid).is_some_and(|(owner, uid)| owner != uid)
    };
    let suspect = match owners.iter().filter(is_other).collect::<Vec<_>>().as_slice() {
        [one] => format!("; {} is not of the user who owns the device", one.pid),
        _ => String::new(),
    };
    let text = format!(
        "several programs have opened queues of it, and each gets a share of the frames: \
         {}{suspect}; end the one that does not belong there",
        told.join(", ")
    );
    Some(it.finding(Severity::Warning, "foreign-queue", text, None))
}

/// A program by its number, its user, and how it was started.
fn described(holder: &Holder) -> String {
    let user = holder.uid.map_or_else(|| "unknown".to_owned(), |uid| User(uid).text());
    let started = if holder.arguments.is_empty() { &holder.command } else { &holder.arguments };
    format!("{} of user {user} ({started})", holder.pid)
}

/// A detached queue reads nothing, but may write. When all are, there is no carrier either.
fn detached_queues(it: &Subject<'_>) -> Option<Finding> {
    let detached = it.device.tun.disabled_queues.filter(|&count| count > 0)?;
    let who = it.holders();
    if it.device.queue_count() == 0 {
        let text = format!(
            "all its queues are detached (TUNSETQUEUE): whatever is sent to it is dropped until \
             {who} attaches one again"
        );
        return Some(it.finding(Severity::Warning, "detached-queues", text, None));
    }
    let (queues, reads) = match detached {
        1 => ("1 queue is".to_owned(), "it reads nothing"),
        _ => (format!("{detached} queues are"), "they read nothing"),
    };
    let text = format!(
        "{queues} open and detached (TUNSETQUEUE): {reads} until {who} attaches more again"
    );
    Some(it.finding(Severity::Hint, "detached-queues", text, None))
}

/// The MTU leaves room for one tag; frames with more are too long for bridges and forwarding
/// (`is_skb_forwardable` in the kernel's `net/core/dev.c`).
fn tag_mtu(it: &Subject<'_>) -> Option<Finding> {
    let need = |(upper, tags): &(Link, u32)| {
        (upper.mtu.saturating_add(TAG_LEN * tags.saturating_sub(1)), upper.name.clone(), *tags)
    };
    let (need, upper, tags) = it.device.uppers.iter().map(need).max()?;
    let mtu = it.device.link.mtu;
    if mtu >= need {
        return None;
    }
    let text = format!(
        "full-size frames of {upper} bear {tags} tags and need an MTU of {need} here, which is \
         {mtu}: bridges drop them"
    );
    Some(it.finding(Severity::Warning, "tag-mtu", text, it.set(&format!("--mtu {need}"))))
}

/// With a limit of its send buffer, a program pays for each frame that it writes.
fn send_buffer(it: &Subject<'_>) -> Option<Finding> {
    let limited = it
        .device
        .holders
        .iter()
        .find(|holder| holder.queue.is_some_and(|queue| queue.send_buffer_len < UNLIMITED))?;
    let len = limited.queue?.send_buffer_len;
    let text = format!(
        "{} ({}) has a send buffer of {len} bytes (TUNSETSNDBUF): each frame that it writes is \
         copied into memory of its own, 10 to 14 % dearer",
        limited.command, limited.pid
    );
    Some(it.finding(Severity::Hint, "send-buffer", text, None))
}

/// Up to Linux 7.2 nobody needs privilege where neither an owner nor a group was set.
fn open_to_all(it: &Subject<'_>) -> Option<Finding> {
    let tun = &it.device.tun;
    let is_nobodys = tun.persistent && tun.owner.is_none() && tun.group.is_none();
    if !is_nobodys || !it.machine.opens_to_all() {
        return None;
    }
    let text = "it is persistent without owner and group: every user may open it";
    Some(it.finding(Severity::Hint, "open-to-all", text, it.set("--owner 0")))
}

/// Length of a tag in bytes.
const TAG_LEN: u32 = 4;
/// What Linux takes as no limit (`INT_MAX`).
const UNLIMITED: u32 = i32::MAX.unsigned_abs();
