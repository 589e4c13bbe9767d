//! Explains why the kernel refused to open a device.

use rustix::io::Errno;
use tapswitch_netlink::{Link, LinkError, Namespace};

use super::existing::{look, queue_count};
use crate::config::NameWish;
use crate::{Config, CreateError, Flags, Kind, Mismatch, Taken, inspect};

/// Returns why this kernel does not support the configuration, from the flags that it lacks.
pub(super) fn unsupported(name: &str, lacking: Flags) -> Option<CreateError> {
    let (_, feature, since, remedy) = FLAGS.into_iter().find(|row| lacking.contains(row.0))?;
    Some(CreateError::Unsupported { name: name.to_owned(), feature, since, remedy })
}

/// Explains a failed `TUNSETIFF`. `EINVAL` has many causes, so the interface is queried.
pub(super) fn attach_error(config: &Config, kind: Kind, flags: Flags, errno: Errno) -> CreateError {
    let name = config.name.to_string();
    let (there, is_certain) = match &config.name {
        NameWish::Fixed(name) => match look(name.as_str()) {
            Ok(link) => (Some(link), true),
            Err(error) => (None, matches!(error, LinkError::NotFound { .. })),
        },
        NameWish::Numbered(_) => (None, true),
    };
    match (errno, config.index) {
        (Errno::PERM, _) if flags.contains(Flags::NAPI_FRAGS) => {
            CreateError::FragmentsNotPermitted { name }
        }
        (Errno::PERM | Errno::ACCESS, _) => match &config.name {
            NameWish::Fixed(_) => not_permitted(name, kind, flags, there.as_ref()),
            NameWish::Numbered(_) => numbered_not_permitted(name, kind, flags),
        },
        (Errno::BUSY, Some(index)) if there.is_none() => {
            CreateError::IndexTaken { name, index: index.get() }
        }
        (Errno::BUSY, _) => {
            let by = there.map_or(Taken::Unknown, |link| taken(&link));
            CreateError::NameTaken { name, by }
        }
        // No existing interface can differ, so the name or the flags are refused.
        (Errno::INVAL, _) if there.is_none() && is_certain => {
            CreateError::refused(&name, "TUNSETIFF")(errno)
        }
        (Errno::INVAL, _) => {
            let multi_queue = flags.contains(Flags::MULTI_QUEUE);
            let known = there.as_ref().and_then(|link| mismatch(link, flags));
            let what = known.unwrap_or(Mismatch::Unknown { kind, multi_queue });
            CreateError::Mismatch { name, what }
        }
        (Errno::TOOBIG, _) => CreateError::TooManyQueues { name, queues: config.queues.get() },
        _ => CreateError::refused(&name, "TUNSETIFF")(errno),
    }
}

/// Explains a failed `TUNSETLINK` on a device with the link type `is`.
pub(super) fn link_type_error(name: &str, is: u16, errno: Errno) -> CreateError {
    match errno {
        Errno::BUSY => CreateError::InterfaceUp { name: name.to_owned(), is },
        _ => CreateError::refused(name, "TUNSETLINK")(errno),
    }
}

/// Explains a failed `TUNSETOWNER` or `TUNSETGROUP`.
pub(super) fn owner_error(
    name: &str,
    whom: &'static str,
    number: u32,
    errno: Errno,
) -> CreateError {
    match errno {
        Errno::INVAL => CreateError::Unmapped { name: name.to_owned(), whom, number },
        _ => CreateError::refused(name, "TUNSETOWNER, TUNSETGROUP")(errno),
    }
}

/// Determines what uses the name of `link`. For a single-queue device only the carrier shows that a
/// program holds it, and the carrier may be off, so the holders are searched as well.
fn taken(link: &Link) -> Taken {
    let Some(info) = &link.tun else {
        return Taken::OtherDriver { kind: link.kind.clone() };
    };
    let here = Namespace::current().and_then(|here| here.identity());
    let holders = here.map(|here| inspect::holders_of(&link.name, here)).unwrap_or_default();
    let is_held = !holders.is_empty()
        || !info.persistent
        || queue_count(info) > 0
        || !info.multi_queue && link.carrier == Some(true);
    if is_held { Taken::Held { holders } } else { Taken::Unheld }
}

/// Returns how `link` differs from `flags`.
fn mismatch(link: &Link, flags: Flags) -> Option<Mismatch> {
    let Some(info) = &link.tun else {
        return Some(Mismatch::OtherDriver { kind: link.kind.clone() });
    };
    let is = Kind::of(info);
    if !flags.contains(is.flag()) {
        return Some(Mismatch::OtherKind { is });
    }
    match (info.multi_queue, flags.contains(Flags::MULTI_QUEUE)) {
        (true, false) => Some(Mismatch::IsMultiQueue),
        (false, true) => Some(Mismatch::IsSingleQueue),
        _ => None,
    }
}

/// Explains a missing permission by the ownership of the existing device.
fn not_permitted(name: String, kind: Kind, flags: Flags, there: Option<&Link>) -> CreateError {
    let is_multi_queue = flags.contains(Flags::MULTI_QUEUE);
    let Some(info) = there.and_then(|link| link.tun) else {
        let command = command(&name, kind, is_multi_queue);
        return CreateError::NotPermitted { name, kind, command };
    };
    let command = command(&name, Kind::of(&info), info.multi_queue);
    let allowed = match (info.owner, info.group) {
        (Some(user), Some(group)) => format!("user {user} in group {group}"),
        (Some(user), None) => format!("user {user}"),
        (None, Some(group)) => format!("group {group}"),
        (None, None) => return CreateError::NoOwner { name, command },
    };
    CreateError::NotOwner { name, allowed, command }
}

/// A numbered name always means a new device, which nobody can prepare.
fn numbered_not_permitted(pattern: String, kind: Kind, flags: Flags) -> CreateError {
    let name = pattern.replace("%d", "0");
    let command = command(&name, kind, flags.contains(Flags::MULTI_QUEUE));
    CreateError::NumberedNotPermitted { pattern, kind, name, command }
}

/// The command that creates such a device for a user. ip(8) cannot change the owner afterwards.
fn command(name: &str, kind: Kind, is_multi_queue: bool) -> String {
    let more = if is_multi_queue { " multi_queue" } else { "" };
    format!("ip tuntap add {name} mode {kind} user USER{more}")
}

/// Flags that not every kernel knows: name, first release, and alternative.
const FLAGS: [(Flags, &str, &str, &str); 6] = [
    (
        Flags::BACKPRESSURE,
        "IFF_BACKPRESSURE",
        "7.3",
        "ask for Wish::IfAvailable, or use a newer kernel",
    ),
    (Flags::NO_CARRIER, "IFF_NO_CARRIER", "6.1", "leave carrier(false) out, or use a newer kernel"),
    (Flags::NAPI, "IFF_NAPI", "4.15", "leave napi(true) out, or use a newer kernel"),
    (Flags::NAPI_FRAGS, "IFF_NAPI_FRAGS", "4.15", "leave napi_fragments(true) out"),
    (Flags::MULTI_QUEUE, "IFF_MULTI_QUEUE", "3.8", "use one queue and multi_queue(false)"),
    (Flags::VNET_HDR, "IFF_VNET_HDR", "2.6.27", "use net_header(HeaderLen::None)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lacking_flag_is_named_with_the_kernel_that_has_it() {
        let error = unsupported("tap0", Flags::BACKPRESSURE).unwrap().to_string();
        assert!(error.contains("tap0: this kernel has no IFF_BACKPRESSURE"), "{error}");
        assert!(error.contains("Linux 7.3"), "{error}");
        assert!(unsupported("tap0", Flags::empty()).is_none());
    }

    #[test]
    fn an_owner_whom_the_user_namespace_lacks_is_named() {
        let error = owner_error("tap0", "user", 1000, Errno::INVAL).to_string();
        assert!(error.contains("tap0: this user namespace has no user 1000"), "{error}");
        let other = owner_error("tap0", "group", 1000, Errno::BADFD).to_string();
        assert!(other.contains("TUNSETGROUP"), "{other}");
    }
}
