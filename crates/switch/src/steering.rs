//! Which queue of a tap device a flow's frames come by.
//!
//! Left alone, the kernel moves a flow to the queue on which its frames were last written, so that
//! both directions of a flow depend on who wrote what when. A steering program instead picks the
//! queue by the innermost addresses and ports, alike for both directions: flows behind any number
//! of tags spread over the queues, and so over the workers, as untagged ones do. See
//! [`tapswitch_tap::steering`].

use std::num::NonZeroU16;
use std::sync::Arc;

use tapswitch_tap::{FlowHash, Queue, Steering};

use crate::{PortKind, PortSpec};

/// A steering program at work. It is taken off when this is dropped: the device may stay.
#[derive(Debug)]
pub(crate) struct Steered {
    steering: Steering,
    queue: Arc<Queue>,
}

impl Steered {
    /// Starts to steer the device with these queues. Nothing with a single queue, or where the
    /// kernel takes no such program: it picks queues by itself then.
    pub(crate) fn start(spec: &PortSpec, queues: &[Arc<Queue>]) -> Option<Self> {
        let count = NonZeroU16::new(u16::try_from(queues.len()).ok()?)?;
        let hash = match spec.kind {
            PortKind::Tun { .. } => FlowHash::IP,
            _ => FlowHash::ETHERNET,
        };
        let queue = queues.first().filter(|_| count.get() > 1)?.clone();
        let steering = Steering::load(hash, count).inspect_err(|error| warn(spec, error)).ok()?;
        steering.attach(&*queue).inspect_err(|error| warn(spec, error)).ok()?;
        Some(Self { steering, queue })
    }

    /// Frames that were led to each of `queues`.
    pub(crate) fn frames(&self, queues: NonZeroU16) -> Vec<u64> {
        let count = |index| self.steering.counters(index).map_or(0, |counters| counters.frames);
        (0..queues.get()).map(count).collect()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        // A device that is gone needs no queue picked.
        let _ = Steering::detach(&*self.queue);
    }
}

fn warn(spec: &PortSpec, error: &dyn std::error::Error) {
    tracing::warn!("port {spec}: the kernel's default selects the queue of each flow: {error}");
}
