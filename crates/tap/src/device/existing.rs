//! What an existing device is: its interface by rtnetlink, its header by a queue.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use tapswitch_netlink::{Link, LinkError, Namespace, Netlink, TunInfo};

use crate::{CreateError, HeaderLen, ioctl};

/// Looks up the interface `name` in the namespace of the calling thread.
pub(super) fn look(name: &str) -> Result<Link, LinkError> {
    Netlink::open(&Namespace::current()?)?.link(name)
}

/// Looks up the interface `name` in `namespace`.
pub(super) fn look_in(namespace: OwnedFd, name: &str) -> Result<Link, LinkError> {
    Netlink::open(&Namespace::from_fd(namespace, LABEL)?)?.link(name)
}

/// As [`look`]; `None` if the interface certainly does not exist.
pub(super) fn look_up(name: &str) -> Result<Option<Link>, CreateError> {
    match look(name) {
        Ok(link) => Ok(Some(link)),
        Err(LinkError::NotFound { .. }) => Ok(None),
        Err(source) => Err(CreateError::Link { name: name.to_owned(), source: Box::new(source) }),
    }
}

/// Number of open queues, attached or not. Only reported for multi-queue devices.
pub(super) fn queue_count(info: &TunInfo) -> u32 {
    info.queues.unwrap_or(0).saturating_add(info.disabled_queues.unwrap_or(0))
}

/// The network header of the device `name`, read from one of its queues if it has one.
pub(super) fn net_header(
    queue: impl AsFd,
    name: &str,
    has_one: bool,
) -> Result<HeaderLen, CreateError> {
    if !has_one {
        return Ok(HeaderLen::None);
    }
    let call = "TUNGETVNETHDRSZ, a header that is not of 10, 12, 20 or 24 bytes";
    // Linux accepts any length; the layout of unknown ones is undefined.
    let known = |len| HeaderLen::from_bytes(len).ok_or(Errno::PROTO);
    ioctl::header_len(queue).and_then(known).map_err(CreateError::refused(name, call))
}

/// Label in messages for a namespace that was obtained from a queue.
pub(super) const LABEL: &str = "(the device's)";
