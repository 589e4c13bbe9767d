//! The set-up that every candidate gets.

use tapswitch_netlink::Namespace;

use super::layout::Sockets;
use super::loader::Load;

/// Configuration of a switch.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) sockets: &'a Sockets,
    /// Guests to connect to, each to the port with its number; assigned to the cores in turn.
    pub(super) guests: Vec<u8>,
    /// Cores of its forwarding threads.
    pub(super) cores: Vec<usize>,
    /// Core of its other threads, as far as that can be set.
    pub(super) rest: usize,
    /// Namespace that it runs in.
    pub(super) namespace: &'a Namespace,
    pub(super) load: Load,
    /// An additional interface of that namespace to attach, as the port with this number.
    pub(super) interface: Option<(u8, &'a str)>,
}
