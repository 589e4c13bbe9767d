//! Outputs, as a program holds them: everything about a port that each frame needs, in one place.
//!
//! A program belongs to an epoch, and a port does not change within one, so what the port allows is
//! determined when the program is made.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tapswitch_openflow::PortNo;
use tapswitch_wire::EtherType;

use crate::counters::{Millis, WorkerIndex};
use crate::group::GroupBucket;
use crate::port::{Oversize, Port, Ports};
use crate::tally::Tally;
use crate::vlan::{Edit, PortMode};
use crate::{DropReason, Frame};

/// A port to send to.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) number: PortNo,
    mtu: u32,
    /// Maximum number of tags of a frame.
    max_tags: u16,
    /// Maximum of payload and tags together in bytes, without an outermost C-tag.
    room: usize,
    refusal: Option<DropReason>,
    /// Open, and without a mode: one test for what is true of nearly all ports.
    is_plain: bool,
    /// True if its number is in [`Outlets::used`].
    is_used: Cell<bool>,
    pub(crate) port: Arc<Port>,
    /// Frames that left here.
    pub(crate) sent: Tally,
}

impl Outlet {
    pub(crate) fn new(port: &Arc<Port>) -> Self {
        Self {
            number: port.number,
            mtu: port.mtu,
            max_tags: port.envelope / TAG_LEN,
            room: port.room as usize,
            refusal: port.egress_refusal(),
            is_plain: port.mode.is_none() && port.egress_refusal().is_none(),
            is_used: Cell::new(false),
            port: port.clone(),
            sent: Tally::default(),
        }
    }

    /// True if frames may leave here.
    fn is_open(&self) -> bool {
        self.refusal.is_none()
    }

    /// True if frames leave here unchanged, provided that they fit.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// True if floods leave here: the port is open and a member of the frame's VLAN.
    pub(crate) fn is_flooded(&self, frame: &Frame<'_>) -> bool {
        let emits = |mode: &PortMode| mode.emit(frame.outer_tag(), frame.tag(1)).is_some();
        self.is_plain || self.is_open() && self.port.mode.as_deref().is_none_or(emits)
    }

    /// Gives `frame` its outer tags. Returns the edit that undoes this. Link-local frames of the
    /// controller are in no VLAN, and leave unchanged.
    ///
    /// # Errors
    /// Why the frame may not leave here.
    #[inline(never)]
    pub(crate) fn dress(
        &self,
        frame: &mut Frame<'_>,
        is_controllers: bool,
    ) -> Result<Edit, DropReason> {
        if let Some(reason) = self.refusal {
            return Err(reason);
        }
        let Some(mode) = &self.port.mode else { return Ok(Edit::NONE) };
        let (outer, inner) = (frame.outer_tag(), frame.tag(1));
        if is_controllers && outer.is_none() && frame.destination().is_bridge_reserved() {
            return Ok(Edit::NONE);
        }
        let edit = mode.emit(outer, inner).ok_or(DropReason::VlanNotMember)?;
        if !edit.apply(frame) {
            return Err(DropReason::BadAction);
        }
        Ok(edit.undo(outer, inner))
    }

    /// Undoes [`Self::dress`], so that the next output sees the inner form again.
    #[inline(never)]
    pub(crate) fn undress(undo: Edit, frame: &mut Frame<'_>) {
        // The popped tags have left the room for it.
        let is_whole = undo.apply(frame);
        debug_assert!(is_whole, "the headroom was there before");
    }

    /// True if the payload fits the MTU, the tags fit the envelope, and both fit the device behind
    /// the port.
    #[expect(clippy::inline_always, reason = "a call costs more than what it does for a packet")]
    #[inline(always)]
    pub(crate) fn fits(&self, frame: &Frame<'_>) -> bool {
        self.takes(frame, frame.network_len())
    }

    /// As [`Self::fits`], for the first `snaplen` bytes of each packet.
    pub(crate) fn fits_part(&self, frame: &Frame<'_>, snaplen: usize) -> bool {
        let most = snaplen.saturating_sub(frame.link_len());
        self.takes(frame, frame.network_len().min(most))
    }

    #[inline]
    fn takes(&self, frame: &Frame<'_>, payload: usize) -> bool {
        let tags = frame.layout().tags;
        payload <= self.mtu as usize
            && (tags == 0
                || tags <= self.max_tags && self.has_room(frame, payload, usize::from(tags)))
    }

    /// A packet socket, and the other end of a veth, accept a C-tag on top of a full-size packet.
    #[inline]
    fn has_room(&self, frame: &Frame<'_>, payload: usize, tags: usize) -> bool {
        let behind_outermost = payload + (tags - 1) * usize::from(TAG_LEN);
        let is_c_tag = || frame.outer_tag().is_some_and(|tag| tag.tpid() == EtherType::VLAN);
        behind_outermost + usize::from(TAG_LEN) <= self.room
            || behind_outermost <= self.room && is_c_tag()
    }

    /// Records the size of `frame`, if it was too large for the port or for the device behind it.
    #[cold]
    pub(crate) fn note(&self, frame: &Frame<'_>, reason: DropReason) {
        if reason != DropReason::Oversize {
            return;
        }
        let (payload, tags) = (frame.network_len(), usize::from(frame.layout().tags * TAG_LEN));
        self.port.counters.note_oversize(Oversize { payload, tags });
    }

    /// Adds the tally to the counters of the port, and of the bucket that it belongs to.
    pub(crate) fn flush(&self, worker: WorkerIndex, now: Millis, bucket: Option<&GroupBucket>) {
        if self.sent.is_empty() {
            return;
        }
        let sent = self.sent.take();
        self.port.counters.add_tx(worker, sent);
        if let Some(bucket) = bucket {
            bucket.delivered.add(worker, sent, now);
        }
    }
}

/// All outputs, for steps that find their port for each frame. A worker's programs share them as
/// long as the ports stay the same.
#[derive(Debug)]
pub(crate) struct Outlets {
    ports: Arc<Ports>,
    by_place: Box<[Place]>,
    /// Outputs used since the last flush.
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

    /// True if these are the outputs of `ports`.
    pub(crate) fn are_of(&self, ports: &Arc<Ports>) -> bool {
        Arc::ptr_eq(&self.ports, ports)
    }

    /// The output with this number, to be used.
    #[inline]
    pub(crate) fn find(&self, number: PortNo) -> Option<&Outlet> {
        let outlet = self.by_place.get(Ports::place(number))?.0.as_ref()?;
        if !outlet.is_used.replace(true) {
            self.used.borrow_mut().push(number);
        }
        Some(outlet)
    }

    /// The outputs of ALL and FLOOD except `in_port`; open or not.
    pub(crate) fn flooded(&self, in_port: PortNo) -> impl Iterator<Item = &Outlet> {
        let others = self.ports.flooded().iter().filter(move |&&number| number != in_port);
        others.filter_map(|&number| self.find(number))
    }

    /// Adds the tallies to the counters of the ports.
    pub(crate) fn flush(&self, worker: WorkerIndex, now: Millis) {
        for number in self.used.borrow_mut().drain(..) {
            if let Some(Place(Some(outlet))) = self.by_place.get(Ports::place(number)) {
                outlet.is_used.set(false);
                outlet.flush(worker, now, None);
            }
        }
    }
}

/// Length of a tag in bytes.
const TAG_LEN: u16 = 4;
