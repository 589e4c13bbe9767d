//! Rules about the state of a device and its programs.

use tapswitch_netlink::Link;
use tapswitch_tap::inspect::Holder;
use tapswitch_tap::{Flags, Kind};

use super::finding::{Finding, Severity};
use super::subject::{Rule, Subject};
use crate::users::User;

pub(super) const RULES: &[Rule] = &[
    down,
    no_carrier,
    unread,
    foreign_queue,
    detached_queues,
    classic_filter,
    tag_mtu,
    send_buffer,
    open_to_all,
];

/// A program that writes to an interface that is down gets `EIO`.
fn down(it: &Subject<'_>) -> Option<Finding> {
    if it.device.link.up || !it.is_held() {
        return None;
    }
    let who = it.holders();
    let text = format!("the interface is down: {who} gets EIO for each write and reads nothing");
    Some(it.finding(Severity::Warning, "down", text, it.set("--up")))
}

/// A program holds the device, but has switched its carrier off (`IFF_NO_CARRIER`,
/// `TUNSETCARRIER`).
fn no_carrier(it: &Subject<'_>) -> Option<Finding> {
    let link = &it.device.link;
    if !link.up || link.carrier != Some(false) || it.device.queue_count() == 0 {
        return None;
    }
    let who = it.holders();
    let text = format!("{who} holds it, but it has no carrier: nothing is sent to it");
    Some(it.finding(Severity::Warning, "no-carrier", text, it.set("--carrier on")))
}

/// The device is up, and no program holds it.
fn unread(it: &Subject<'_>) -> Option<Finding> {
    if !it.device.link.up || !it.is_free() {
        return None;
    }
    let text = "it is up, but no program holds it: what is sent to it is dropped";
    // A device prepared for a user or group is up because they could not set it up.
    let is_prepared = it.device.tun.owner.is_some() || it.device.tun.group.is_some();
    let mend = if is_prepared { None } else { it.set("--down") };
    Some(it.finding(Severity::Hint, "unread", text, mend))
}

/// Any program with permission can join a multi-queue device, and then gets a share of its frames.
/// The intruder cannot be determined, because programs start in a different order than they open
/// devices. So no command ends one.
fn foreign_queue(it: &Subject<'_>) -> Option<Finding> {
    let owners = it.device.owners();
    let [_, _, ..] = owners.as_slice() else { return None };
    let told: Vec<_> = owners.iter().map(|owner| described(owner)).collect();
    let is_other = |owner: &&&Holder| {
        it.device.tun.owner.zip(owner.uid).is_some_and(|(owner, uid)| owner != uid)
    };
    let told = format!(
        "several programs hold queues of it, and each gets a share of the frames: {}",
        told.join(", ")
    );
    if is_family(&owners) {
        let text = format!("{told}; the first has started the others, so this may be intended");
        return Some(it.finding(Severity::Hint, "foreign-queue", text, None));
    }
    let suspect = match owners.iter().filter(is_other).collect::<Vec<_>>().as_slice() {
        [one] => format!("; {} does not run as the user who owns the device", one.pid),
        _ => String::new(),
    };
    let text = format!("{told}{suspect}; stop the one that does not belong there");
    Some(it.finding(Severity::Warning, "foreign-queue", text, None))
}

/// True if the first process has started all others, directly or indirectly, as the same user: that
/// is how a program that shares its queues looks. The oldest comes first.
fn is_family(owners: &[&Holder]) -> bool {
    let is_of = |child: &Holder, parent: &Holder| {
        child.parent == Some(parent.pid) && child.uid.is_some() && child.uid == parent.uid
    };
    owners.iter().skip(1).all(|child| owners.iter().any(|parent| is_of(child, parent)))
}

/// A program by its ID, its user, and its command line.
fn described(holder: &Holder) -> String {
    let user = holder.uid.map_or_else(|| "unknown".to_owned(), |uid| User(uid).text());
    let started = if holder.arguments.is_empty() { &holder.command } else { &holder.arguments };
    format!("{} of user {user} ({started})", holder.pid)
}

/// A detached queue reads nothing, but may write. Detaching all queues does not change the carrier.
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

/// When a file attaches, Linux looks for a classic filter again, in that program's memory, and then
/// reports success without making the file a queue. That happens, and is visible, only with
/// protocol information: otherwise `IFF_NO_PI` is set, the same bit as "no filter".
fn classic_filter(it: &Subject<'_>) -> Option<Finding> {
    let tun = &it.device.tun;
    if !tun.persistent && !tun.multi_queue {
        return None;
    }
    let has_filter =
        |holder: &&Holder| holder.queue.is_some_and(|queue| !queue.flags.contains(Flags::NO_PI));
    let Holder { command, pid, .. } = it.device.holders.iter().find(has_filter)?;
    let text = format!(
        "a classic filter is attached to it (TUNATTACHFILTER): the next program that opens it may \
         be told that it has a queue without having one; {command} ({pid}) must detach it \
         (TUNDETACHFILTER) and use an eBPF filter"
    );
    Some(it.finding(Severity::Warning, "classic-filter", text, None))
}

/// The MTU has room for one tag; bridges drop longer frames (`is_skb_forwardable` in the kernel's
/// `net/core/dev.c`). On a device that is not a bridge port the length is not checked.
fn tag_mtu(it: &Subject<'_>) -> Option<Finding> {
    let need = |(upper, tags): &(Link, u32)| {
        (upper.mtu.saturating_add(TAG_LEN * tags.saturating_sub(1)), upper.name.clone(), *tags)
    };
    let (need, upper, tags) = it.device.uppers.iter().map(need).max()?;
    let mtu = it.device.link.mtu;
    let controller = it.device.controller.as_deref()?;
    if mtu >= need {
        return None;
    }
    let text = format!(
        "full-size frames of {upper} have {tags} VLAN tags and need an MTU of {need} here, but it \
         is {mtu}: {controller} drops them if it is a bridge"
    );
    Some(it.finding(Severity::Warning, "tag-mtu", text, it.set(&format!("--mtu {need}"))))
}

/// A limited send buffer makes each write to a tap device more expensive; tun devices have no fast
/// path anyway (`tun_can_build_skb`).
fn send_buffer(it: &Subject<'_>) -> Option<Finding> {
    if it.device.kind() != Kind::Tap {
        return None;
    }
    let limited = it
        .device
        .holders
        .iter()
        .find(|holder| holder.queue.is_some_and(|queue| queue.send_buffer_len < UNLIMITED))?;
    let len = limited.queue?.send_buffer_len;
    let text = format!(
        "{} ({}) has a send buffer of {len} bytes (TUNSETSNDBUF): each frame that it writes is \
         copied into a separate buffer, which costs 10 to 14 % more",
        limited.command, limited.pid
    );
    Some(it.finding(Severity::Hint, "send-buffer", text, None))
}

/// Up to Linux 7.2 no privilege is needed if neither an owner nor a group is set. A single-queue
/// device is exclusive at least while its program holds it.
fn open_to_all(it: &Subject<'_>) -> Option<Finding> {
    if !it.machine.opens_to_all(it.device) {
        return None;
    }
    let mend = user_of(it).and_then(|user| it.set(&format!("--owner {user}")));
    if it.device.tun.multi_queue {
        let text = "it is multi-queue and has neither owner nor group: any user who may open \
                    /dev/net/tun can attach a queue at any time, receive a share of the frames, \
                    and write into the network behind it";
        return Some(it.finding(Severity::Warning, "open-to-all", text, mend));
    }
    let text = "it is persistent and has neither owner nor group: any user who may open \
                /dev/net/tun can open it while no program holds it";
    Some(it.finding(Severity::Hint, "open-to-all", text, mend))
}

/// The user who may own the device without taking it from its program: the one who holds it, or
/// root if nobody does. `None` if that is unknown, or there are several.
fn user_of(it: &Subject<'_>) -> Option<u32> {
    let mut users: Vec<_> = it.device.holders.iter().map(|holder| holder.uid).collect();
    users.dedup();
    match users.as_slice() {
        [] => it.is_free().then_some(0),
        [one] => *one,
        _ => None,
    }
}

/// Length of a tag in bytes.
const TAG_LEN: u32 = 4;
/// Value that means no limit (`INT_MAX`).
const UNLIMITED: u32 = i32::MAX.unsigned_abs();
