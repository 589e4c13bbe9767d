//! Steering programs: which queue of a tap device receives a flow's frames.
//!
//! By default the kernel moves a flow to the queue on which its frames were last written, so the
//! queue depends on the timing of both directions. A steering program instead selects the queue by
//! the innermost addresses and ports, equally for both directions: tagged flows are spread over the
//! queues, and so over the workers, like untagged ones. See [`tapswitch_tap::steering`].

use std::num::NonZeroU16;
use std::sync::Arc;

use tapswitch_tap::{FlowHash, Queue, Steering};

use crate::{PortKind, PortSpec};

/// An attached steering program. Dropping this detaches it, as the device may persist.
#[derive(Debug)]
pub(crate) struct Steered {
    steering: Steering,
    queue: Arc<Queue>,
}

impl Steered {
    /// Attaches a steering program to the device with these queues. `None` with a single queue, or
    /// if the kernel refuses the program: it then selects queues by itself.
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

    /// Frames that were sent to each of `queues`.
    pub(crate) fn frames(&self, queues: NonZeroU16) -> Vec<u64> {
        let count = |index| self.steering.counters(index).map_or(0, |counters| counters.frames);
        (0..queues.get()).map(count).collect()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        // A device that is gone needs no detaching.
        let _ = Steering::detach(&*self.queue);
    }
}

fn warn(spec: &PortSpec, error: &dyn std::error::Error) {
    tracing::warn!("port {spec}: the kernel's default selects the queue of each flow: {error}");
}
