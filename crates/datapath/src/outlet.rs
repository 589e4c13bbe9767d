//! Ways out, as a program holds them: all that is asked of a port for each frame in one place.
//!
//! A program belongs to an epoch, and a port does not change within one, so what it allows is
//! found out when the program is made.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tapswitch_openflow::PortNo;

use crate::counters::{Millis, WorkerIndex};
use crate::group::GroupBucket;
use crate::port::{Port, Ports};
use crate::tally::Tally;
use crate::{DropReason, Frame};

/// A port to send to.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) number: PortNo,
    mtu: u32,
    refusal: Option<DropReason>,
    /// Its number is in [`Outlets::used`].
    is_used: Cell<bool>,
    pub(crate) port: Arc<Port>,
    /// What left here.
    pub(crate) sent: Tally,
}

impl Outlet {
    pub(crate) fn new(port: &Arc<Port>) -> Self {
        Self {
            number: port.number,
            mtu: port.mtu,
            refusal: port.egress_refusal(),
            is_used: Cell::new(false),
            port: port.clone(),
            sent: Tally::default(),
        }
    }

    /// True when frames may leave here.
    pub(crate) fn is_open(&self) -> bool {
        self.refusal.is_none()
    }

    /// Why `frame` may not leave here, if it may not.
    #[inline]
    pub(crate) fn refusal(&self, frame: &Frame<'_>) -> Option<DropReason> {
        let is_oversize = frame.network_len() > self.mtu as usize;
        self.refusal.or_else(|| is_oversize.then_some(DropReason::Oversize))
    }

    /// Adds what left to the counters of the port, and of the bucket on whose behalf it did.
    pub(crate) fn flush(&self, worker: WorkerIndex, now: Millis, bucket: Option<&GroupBucket>) {
        if self.sent.is_empty() {
            return;
        }
        let sent = self.sent.take();
        self.port.counters.add_tx(worker, sent);
        if let Some(bucket) = bucket {
            bucket.delivered.add_all(worker, sent, now);
        }
    }
}

/// All ports to send to, for steps that find their port for each frame. A worker's programs share
/// them as long as the ports stay as they are.
#[derive(Debug)]
pub(crate) struct Outlets {
    ports: Arc<Ports>,
    by_place: Box<[Place]>,
    /// Those that were asked for since the last flush.
    used: RefCell<Vec<PortNo>>,
}

/// On a cache line of its own, so that a frame touches one.
#[derive(Debug)]
#[repr(align(64))]
struct Place(Option<Outlet>);

impl Outlets {
    pub(crate) fn new(ports: &Arc<Ports>) -> Self {
        let place = |port: &Option<Arc<Port>>| Place(port.as_ref().map(Outlet::new));
        let by_place = ports.places().iter().map(place).collect();
        Self { ports: ports.clone(), by_place, used: RefCell::default() }
    }

    /// True when they are the ways out of `ports`.
    pub(crate) fn are_of(&self, ports: &Arc<Ports>) -> bool {
        Arc::ptr_eq(&self.ports, ports)
    }

    /// The way out of this number, to be used.
    #[inline]
    pub(crate) fn find(&self, number: PortNo) -> Option<&Outlet> {
        let outlet = self.by_place.get(Ports::place(number))?.0.as_ref()?;
        if !outlet.is_used.replace(true) {
            self.used.borrow_mut().push(number);
        }
        Some(outlet)
    }

    /// Where ALL and FLOOD go but for `in_port`: what is open, without [`PortNo::LOCAL`].
    pub(crate) fn flooded(&self, in_port: PortNo) -> impl Iterator<Item = &Outlet> {
        let others = self.ports.numbers().iter().filter(move |&&number| number != in_port);
        others.filter_map(|&number| self.find(number)).filter(|outlet| outlet.is_open())
    }

    /// Adds what left to the counters of the ports.
    pub(crate) fn flush(&self, worker: WorkerIndex, now: Millis) {
        for number in self.used.borrow_mut().drain(..) {
            if let Some(Place(Some(outlet))) = self.by_place.get(Ports::place(number)) {
                outlet.is_used.set(false);
                outlet.flush(worker, now, None);
            }
        }
    }
}
