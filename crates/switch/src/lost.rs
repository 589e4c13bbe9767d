//! Interfaces behind ports that were deleted, or moved to another namespace.
//!
//! A port does not follow its interface to another namespace. It would have to watch that one, and
//! the watch would keep it alive when its container ends ([`crate::names`]). The log says where the
//! interface is, and how to attach it there.

use tapswitch_netlink::{Link, Moved, Namespace, Netlink};

use crate::PortSpec;
use crate::command::shell_word;
use crate::device::Device;
use crate::interface::Interface;
use crate::server::Server;

impl Server {
    /// An interface was deleted, or moved.
    pub(crate) fn handle_loss(&mut self, namespace: usize, index: u32, moved: Option<Moved>) {
        let device = self.find_device(namespace, index);
        let goal = device.zip(moved).map(|(device, moved)| {
            let goal = Goal::of(device, moved);
            device.leave_to(moved);
            goal
        });
        self.lose_interface(namespace, index, goal.as_ref());
    }

    /// Marks the interface as gone: its sockets are useless, even if an interface with the same
    /// name appears.
    pub(crate) fn lose_interface(&mut self, namespace: usize, index: u32, goal: Option<&Goal>) {
        let Some(device) = self.find_device(namespace, index) else { return };
        let spec = device.spec.clone();
        // A list may have shown that it is gone, before the event says where it is.
        let is_news = |it: &&mut Interface| !it.is_gone || goal.is_some();
        let Some(interface) = device.interface_mut().filter(is_news) else { return };
        interface.is_gone = true;
        interface.link = without_link(&interface.link);
        tracing::warn!("port {spec}: {}", loss(&spec, goal));
        self.update_port(spec.number);
    }
}

/// Where an interface was moved to.
#[derive(Debug)]
pub(crate) enum Goal {
    /// The port that it would be there.
    Known(Box<PortSpec>),
    /// A namespace without a name or a process, or one that may not be entered.
    Unknown,
}

impl Goal {
    fn of(device: &Device, moved: Moved) -> Self {
        let place = device.interface().and_then(|interface| place_of(interface, moved));
        let spec = |(netns, name)| device.spec.at(netns, name);
        place.map_or(Self::Unknown, |place| Self::Known(Box::new(spec(place))))
    }
}

/// The namespace of an interface that was moved, for `netns=`, and its name there.
fn place_of(interface: &Interface, moved: Moved) -> Option<(Option<String>, String)> {
    let there = Netlink::open(&interface.namespace).ok()?.find_namespace(moved.namespace_id)?;
    let link = Netlink::open(&there).ok()?.link_by_index(moved.index).ok()?;
    let is_ours = Namespace::current().and_then(|ours| ours.is_same(&there)).ok()?;
    Some(((!is_ours).then(|| there.label().to_owned()), link.name))
}

/// The link of an interface that is gone.
fn without_link(link: &Link) -> Link {
    let mut gone = link.clone();
    (gone.up, gone.lower_up) = (false, false);
    gone
}

/// What has happened, and the remedy.
fn loss(spec: &PortSpec, goal: Option<&Goal>) -> String {
    let number = spec.number;
    let add = |spec: &PortSpec| {
        let word = shell_word(&spec.to_string()).into_owned();
        format!("`tapswitch port remove {number}`, then `tapswitch port add {word}`")
    };
    match goal {
        None => {
            format!("the interface is gone; when it exists again, attach it: {}", add(spec))
        }
        Some(Goal::Known(there)) => format!(
            "the interface was moved to another namespace, and the port does not follow it; to \
             have the port there: {}{}",
            add(there),
            if spec.kind.is_device() { NEW_DEVICE } else { "" }
        ),
        Some(Goal::Unknown) => format!(
            "the interface was moved to another namespace, and the port does not follow it; to \
             have the port there, remove it (`tapswitch port remove {number}`), and add it again \
             with netns= and that namespace{}",
            if spec.kind.is_device() { NEW_DEVICE } else { "" }
        ),
    }
}

const NEW_DEVICE: &str = ", whose device is a new one, without addresses, unless it is persistent";
