//! What the kernel means when it refuses to open a device.

use rustix::io::Errno;
use tapswitch_netlink::{Link, TunInfo, TunKind};

use super::open::{look, refused};
use crate::config::NameWish;
use crate::{Config, CreateError, Flags, Kind, Mismatch};

/// Why this kernel cannot do what is wanted, by the flags that it lacks.
pub(super) fn unsupported(name: &str, lacking: Flags) -> Option<CreateError> {
    let (_, feature, since, remedy) = FLAGS.into_iter().find(|row| lacking.contains(row.0))?;
    Some(CreateError::Unsupported { name: name.to_owned(), feature, since, remedy })
}

/// What a refused `TUNSETIFF` means. `EINVAL` says nothing, so the interface is looked at.
pub(super) fn attach_error(config: &Config, kind: Kind, flags: Flags, errno: Errno) -> CreateError {
    let name = config.name.to_string();
    let there = match &config.name {
        NameWish::Fixed(name) => look(name.as_str()).ok(),
        NameWish::Numbered(_) => None,
    };
    match (errno, config.index) {
        (Errno::PERM | Errno::ACCESS, _) => not_permitted(name, kind, there.as_ref()),
        (Errno::BUSY, Some(index)) if there.is_none() => {
            CreateError::IndexTaken { name, index: index.get() }
        }
        (Errno::BUSY, _) => CreateError::NameTaken { name },
        (Errno::INVAL, _) => {
            let multi_queue = flags.contains(Flags::MULTI_QUEUE);
            let known = there.as_ref().and_then(|link| mismatch(link, flags));
            let what = known.unwrap_or(Mismatch::Unknown { kind, multi_queue });
            CreateError::Mismatch { name, what }
        }
        (Errno::TOOBIG, _) => CreateError::TooManyQueues { name, queues: config.queues.get() },
        _ => refused(&name, "TUNSETIFF")(errno),
    }
}

/// What a refused `TUNSETLINK` means.
pub(super) fn link_type_error(name: &str, errno: Errno) -> CreateError {
    match errno {
        Errno::BUSY => {
            let what = "its link type can change only while it is down: `ip link set NAME down`";
            CreateError::Contradiction { name: name.to_owned(), what }
        }
        _ => refused(name, "TUNSETLINK")(errno),
    }
}

/// How `link` differs from what `flags` ask for.
fn mismatch(link: &Link, flags: Flags) -> Option<Mismatch> {
    let Some(info) = &link.tun else {
        return Some(Mismatch::OtherDriver { kind: link.kind.clone() });
    };
    let is = kind_of(info);
    if !flags.contains(is.flag()) {
        return Some(Mismatch::OtherKind { is });
    }
    match (info.multi_queue, flags.contains(Flags::MULTI_QUEUE)) {
        (true, false) => Some(Mismatch::IsMultiQueue),
        (false, true) => Some(Mismatch::IsSingleQueue),
        _ => None,
    }
}

fn not_permitted(name: String, kind: Kind, there: Option<&Link>) -> CreateError {
    let info = there.and_then(|link| link.tun).unwrap_or_default();
    let allowed = match (info.owner, info.group) {
        (Some(user), Some(group)) => format!("user {user} in group {group}"),
        (Some(user), None) => format!("user {user}"),
        (None, Some(group)) => format!("group {group}"),
        (None, None) => return CreateError::NotPermitted { name, kind },
    };
    CreateError::NotOwner { name, allowed }
}

pub(super) fn kind_of(info: &TunInfo) -> Kind {
    match info.kind {
        TunKind::Tap => Kind::Tap,
        TunKind::Tun => Kind::Tun,
    }
}

/// Flags that not every kernel knows: name, first release, and what to do without.
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
}
