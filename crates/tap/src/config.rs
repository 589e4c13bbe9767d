//! What a tap device shall be.

use std::num::NonZeroU16;

use crate::{DeviceName, Offloads};

/// What a tap device shall be. Starts from what suits most: one queue, made exclusively, every
/// offload that the kernel has.
///
/// ```
/// use std::num::NonZeroU16;
/// use tapswitch_tap::{Config, Offloads};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fast = Config::new("tap0".parse()?).queues(NonZeroU16::new(4).ok_or("no queue")?);
/// let plain = Config::new("tap1".parse()?).offloads(Offloads::empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) name: DeviceName,
    pub(crate) queues: NonZeroU16,
    pub(crate) exclusive: bool,
    pub(crate) multi_queue: bool,
    pub(crate) offloads: Offloads,
}

impl Config {
    /// A device called `name`.
    #[must_use]
    pub const fn new(name: DeviceName) -> Self {
        Self {
            name,
            queues: NonZeroU16::MIN,
            exclusive: true,
            multi_queue: false,
            offloads: Offloads::all(),
        }
    }

    /// Number of queues, each a file descriptor of its own; Linux takes at most 256. More than one
    /// implies [`Self::multi_queue`]. The kernel spreads what it sends by flow, and follows the
    /// queue on which a flow was last written (Linux 3.8).
    #[must_use]
    pub const fn queues(mut self, queues: NonZeroU16) -> Self {
        self.queues = queues;
        self
    }

    /// Makes the device afresh or fails (`IFF_TUN_EXCL`, the default). When `false`, a persistent
    /// device of that name is opened if there is one: it must have the same [`Self::multi_queue`].
    #[must_use]
    pub const fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Lets the device have several queues (`IFF_MULTI_QUEUE`) though only one is opened now.
    #[must_use]
    pub const fn multi_queue(mut self, multi_queue: bool) -> Self {
        self.multi_queue = multi_queue;
        self
    }

    /// The most that the kernel may leave undone in frames that are received. Fewer mean that it
    /// completes checksums and cuts trains before they are queued.
    #[must_use]
    pub const fn offloads(mut self, at_most: Offloads) -> Self {
        self.offloads = at_most;
        self
    }

    pub(crate) const fn is_multi_queue(&self) -> bool {
        self.multi_queue || self.queues.get() > 1
    }
}
