//! The ports as one worker sends to them: ports by number, rings held for a burst, and ports with
//! queued frames.

use std::time::{Duration, Instant};

use tapswitch_datapath::{Claim, DropReason, Frame, MAX_PORT, Millis, Sent};
use tapswitch_openflow::{Delivery, PortNo};

use super::guest::Fault;
use super::lanes::Lanes;
use super::queue::{Admission, EgressQueue, room_for};
use super::{GuestTx, TxDevice, TxPort};
use crate::beyond::Beyond;
use crate::store::Pool;

/// The ports as one worker sends to them.
#[derive(Debug, Default)]
pub(crate) struct TxPorts {
    /// By number; [`PortNo::LOCAL`] has index 0.
    by_number: Vec<Option<TxPort>>,
    /// Indices of guests whose rings are held, and of files whose buffers are.
    held: Vec<usize>,
    /// Violations by guests that are not yet cut off.
    faults: Vec<Fault>,
    /// Indices of ports with a queue.
    queued: Vec<usize>,
    /// What the receive queue of the last frames has to wait for.
    pressure: Vec<Wait>,
    /// The receive queue of the current frames does not wait for full ports.
    is_passing: bool,
    /// A frame of this burst was a link probe, so a bridge is behind the port.
    has_bridge: bool,
    /// When the current burst began.
    now: Millis,
    pool: Pool,
    /// Receive queues of the worker, all of which may have to wait for one port.
    queue_count: usize,
    retry: Retry,
}

/// What a receive queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Index of the full port.
    pub(crate) place: usize,
    /// Its full lane.
    lane: usize,
    /// How long the lane may take nothing.
    pub(crate) bound: Duration,
}

/// When full ports are retried.
#[derive(Debug, Default)]
struct Retry {
    due: Option<Instant>,
    interval: Duration,
}

impl TxPorts {
    pub(crate) fn insert(&mut self, number: PortNo, port: TxPort) {
        let index = index(number);
        if index > MAX_PORT as usize {
            return;
        }
        if self.by_number.len() <= index {
            self.by_number.resize_with(index + 1, || None);
        }
        self.by_number[index] = Some(port);
    }

    /// Removes all ports, and drops the frames queued for them.
    pub(crate) fn clear(&mut self) {
        for index in 0..self.by_number.len() {
            self.remove(self::number(index));
        }
    }

    /// Removes a port. Frames queued for it are dropped.
    pub(crate) fn remove(&mut self, number: PortNo) {
        let index = index(number);
        let port = self.by_number.get_mut(index).and_then(Option::take);
        self.queued.retain(|&queued| queued != index);
        let Some(mut lanes) = port.and_then(|port| port.lanes) else { return };
        let now = Instant::now();
        for queue in lanes.queues() {
            while let Some(waiting) = queue.pop(&mut self.pool, now) {
                waiting.receipt.dropped(DropReason::PortRemoved);
            }
        }
    }

    /// Sends `frame`, whose remaining bytes are `beyond`, to the port with this number. Queues it
    /// if the port is full or has queued frames.
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        number: PortNo,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        let index = index(number);
        let Some(port) = self.ready(index)? else {
            return self.send_later(index, frame, beyond, claim);
        };
        match port.send(frame, beyond) {
            Ok(()) => {
                port.note_sent(frame.len());
                Ok(Sent::Now)
            }
            Err(reason) => self.not_sent(index, frame, beyond, claim, reason),
        }
    }

    /// As [`Self::send`], but only the first `snaplen` bytes of each packet.
    #[inline(never)]
    pub(crate) fn send_part(
        &mut self,
        number: PortNo,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
        claim: &Claim<'_>,
        snaplen: usize,
    ) -> Result<Sent, DropReason> {
        let index = index(number);
        let Some(port) = self.ready(index)? else {
            return self.send_later(index, frame, beyond, claim);
        };
        match port.send_part(frame, beyond, snaplen, 0) {
            Ok(()) => {
                port.note_sent(frame.len().min(snaplen));
                Ok(Sent::Now)
            }
            Err(reason) => self.not_sent(index, frame, beyond, claim, reason),
        }
    }

    /// The port at this index, unless it has queued frames or is a file or a tun device. The send
    /// is not passed in as a closure: unless the compiler inlines it, that adds a call and a return
    /// between two system calls.
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn ready(&mut self, index: usize) -> Result<Option<&mut TxPort>, DropReason> {
        let port = self.find(index)?;
        if port.lanes.is_some() {
            return Ok(None);
        }
        if port.device.wants_more() && self.hold(index) != Held::Ring {
            return Ok(None);
        }
        self.find(index).map(Some)
    }

    /// Sends to a port that is not [ready](Self::ready): puts a frame into a file's buffer, lets a
    /// tun device check it, or queues it behind others in its lane.
    #[inline(never)]
    fn send_later(
        &mut self,
        index: usize,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        let now = self.now;
        let port = self.find(index)?;
        if let TxDevice::Tun(tun) = &port.device
            && !tun.link.admit(frame, now)?
        {
            claim.consumed(frame, now);
            return Ok(Sent::Later);
        }
        if port.lanes.is_some() {
            if port.is_in_line(port.lane_of(frame, claim.snaplen()), claim.delivery()) {
                return self.keep(index, frame, beyond, claim);
            }
            if port.device.wants_more() {
                self.hold(index);
            }
        }
        let port = self.find(index)?;
        let (done, sent) = match port.device.is_file() {
            true => (Sent::Later, port.record(frame, beyond, claim)),
            false => (Sent::Now, port.send_claimed(frame, beyond, claim)),
        };
        match sent {
            Ok(()) => {
                port.note_sent(frame.len().min(claim.snaplen().unwrap_or(usize::MAX)));
                Ok(done)
            }
            Err(reason) => self.not_sent(index, frame, beyond, claim, reason),
        }
    }

    /// Queues the part of a frame that a full port has not taken. Any other error drops it.
    #[cold]
    fn not_sent(
        &mut self,
        index: usize,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        claim: &Claim<'_>,
        reason: DropReason,
    ) -> Result<Sent, DropReason> {
        let reason = match reason {
            DropReason::EgressFull => match self.keep(index, frame, beyond, claim) {
                Ok(sent) => return Ok(sent),
                Err(reason) => reason,
            },
            reason => reason,
        };
        let port = self.find(index)?;
        match port.take_cut_done() {
            0 => Err(reason),
            sent => Ok(Sent::InPart(port.loss(claim.traffic(frame), sent, reason))),
        }
    }

    /// Queues a frame, or the rest of it, if its delivery allows.
    #[cold]
    fn keep(
        &mut self,
        index: usize,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        let now = Instant::now();
        let port = self.by_number.get_mut(index).and_then(Option::as_mut);
        let port = port.ok_or(DropReason::NoSuchPort)?;
        port.is_in_doubt = false;
        let lane = port.lane_of(frame, claim.snaplen());
        if port.lanes.is_none() {
            self.queued.push(index);
        }
        if !port.is_full(lane) {
            port.note_full(now);
            self.retry.begin(now);
        }
        let (delivery, stall) = match self.is_passing {
            false => (claim.delivery(), port.stall),
            true => (
                claim.delivery().filter(|it| !matches!(it, Delivery::Lossless { .. })),
                Duration::ZERO,
            ),
        };
        let room = room_for(self.queue_count);
        let (device, pacing) = (&port.device, &port.pacing);
        let lanes = port.lanes.get_or_insert_with(|| Box::new(Lanes::new(device.ring_count())));
        let queue =
            lanes.open(lane, || EgressQueue::new(pacing.clone(), device.ring_at(lane), now));
        let was_held = queue.is_held();
        let admission = queue.admit(delivery, frame.len(), stall, room, now)?;
        let done = std::mem::take(&mut port.cut_done);
        if done > 0 && !port.device.is_file() {
            claim.sent(done, self.now);
        }
        queue.push(admission, &mut self.pool, frame, beyond, done, claim);
        if let Admission::Held(bound) = admission {
            let wait = Wait { place: index, lane, bound };
            if !self.pressure.contains(&wait) {
                self.pressure.push(wait);
            }
            if !was_held {
                // While no sender waited, the port was retried rarely.
                self.retry.begin(now);
            }
        }
        Ok(Sent::Later)
    }

    /// Sets the number of receive queues that the worker reads.
    pub(crate) fn set_queue_count(&mut self, count: usize) {
        self.queue_count = count;
    }

    /// The memory pool for queued frames, here and elsewhere.
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Begins a burst of a receive queue that `waits` for full ports or does not.
    #[inline]
    pub(crate) fn begin_burst(&mut self, waits: bool, now: Millis) {
        (self.is_passing, self.has_bridge, self.now) = (!waits, false, now);
    }

    /// Notes that a frame of this burst was a link probe.
    #[cold]
    pub(crate) fn note_bridge(&mut self) {
        self.has_bridge = true;
    }

    /// Whether a frame of this burst was a link probe.
    #[inline]
    pub(crate) fn has_bridge(&self) -> bool {
        self.has_bridge
    }

    /// True if the receive queue of the last frames has to wait.
    #[inline]
    pub(crate) fn has_pressure(&self) -> bool {
        !self.pressure.is_empty()
    }

    /// Takes what the receive queue of the last frames has to wait for.
    pub(crate) fn take_pressure(&mut self) -> Vec<Wait> {
        std::mem::take(&mut self.pressure)
    }

    /// Lets the receive queue of the last frames wait for nothing.
    pub(crate) fn forgive_pressure(&mut self) {
        self.pressure.clear();
    }

    /// True while this wait lasts.
    pub(crate) fn holds(&self, Wait { place, lane, bound }: Wait) -> bool {
        let port = self.by_number.get(place).and_then(Option::as_ref);
        let queue = port.and_then(|port| port.lanes.as_ref()?.queue(lane));
        queue.is_some_and(|queue| queue.is_held_for(bound))
    }

    /// Maximum length of the batches of a queue that waits for this.
    pub(crate) fn batch_len(&self, wait: Wait) -> usize {
        let port = self.by_number.get(wait.place).and_then(Option::as_ref);
        port.map_or(usize::MAX, |port| port.pacing.batch_len())
    }

    /// True while frames are queued.
    #[inline]
    pub(crate) fn has_queues(&self) -> bool {
        !self.queued.is_empty()
    }

    /// The longest time to sleep while frames are queued.
    pub(crate) fn time_to_retry(&self) -> Option<Duration> {
        let due = self.retry.due.filter(|_| self.has_queues())?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Sends queued frames as far as the ports take them, if a retry is due. Returns the ports that
    /// have stalled. The caller ends the burst.
    pub(crate) fn retry(&mut self, at: Millis) -> Vec<PortNo> {
        let now = Instant::now();
        if self.retry.due.is_some_and(|due| now < due) {
            return Vec::new();
        }
        let (mut stalled, mut has_moved, mut is_held) = (Vec::new(), false, false);
        for position in (0..self.queued.len()).rev() {
            let index = self.queued[position];
            has_moved |= self.drain(index, now, at);
            let Some(port) = self.by_number[index].as_mut() else { continue };
            let Some(lanes) = port.lanes.as_mut() else { continue };
            let change = lanes.follow(now);
            has_moved |= change.has_moved;
            is_held |= change.is_held;
            if change.has_stalled {
                stalled.push(number(index));
            }
            if lanes.is_over() {
                port.lanes = None;
                self.queued.swap_remove(position);
            }
        }
        self.retry.go_on(now, has_moved, is_held);
        stalled
    }

    /// Sends frames queued for one port, as far as it takes them. Returns whether it took any.
    fn drain(&mut self, index: usize, now: Instant, at: Millis) -> bool {
        let Ok(port) = self.find(index) else { return false };
        let Some(mut lanes) = port.lanes.take() else { return false };
        if !lanes.is_empty() && port.device.wants_more() {
            self.hold(index);
        }
        let mut has_moved = false;
        if let Some(port) = self.by_number.get_mut(index).and_then(Option::as_mut) {
            for queue in lanes.queues() {
                has_moved |= port.drain(queue, &mut self.pool, now, at);
            }
            port.lanes = Some(lanes);
        }
        has_moved
    }

    /// Ends a burst: notifies guests of their frames, and releases their rings.
    #[inline]
    pub(crate) fn end_burst(&mut self) {
        while let Some(index) = self.held.pop() {
            let port = self.by_number.get_mut(index).and_then(Option::as_mut);
            match port.map(|port| &mut port.device) {
                Some(TxDevice::Guest(guest)) => self.faults.extend(guest.end_burst()),
                Some(TxDevice::File(file)) => file.end_burst(),
                _ => {}
            }
        }
    }

    /// Ends the sessions of guests that violated the protocol. The caller holds no ring.
    #[inline]
    pub(crate) fn cut_off_faulty(&mut self) {
        self.faults.drain(..).for_each(Fault::cut_off);
    }

    #[inline]
    pub(super) fn find(&mut self, index: usize) -> Result<&mut TxPort, DropReason> {
        let port = self.by_number.get_mut(index).and_then(Option::as_mut);
        port.ok_or(DropReason::NoSuchPort)
    }

    /// Takes a guest's ring for the rest of the burst. If the ring is not free, the rings held are
    /// released before waiting for it. A file's buffer is the worker's own, and a tun device has
    /// nothing to hold.
    #[inline(never)]
    fn hold(&mut self, index: usize) -> Held {
        let port = self.by_number.get_mut(index).and_then(Option::as_mut);
        match port.map(|port| &mut port.device) {
            Some(TxDevice::File(file)) => {
                if !file.is_held() {
                    file.hold();
                    self.held.push(index);
                }
                return Held::Buffer;
            }
            Some(TxDevice::Tun(_)) => return Held::Nothing,
            _ => {}
        }
        if !self.guest(index).is_some_and(GuestTx::try_hold) {
            self.end_burst();
            if let Some(guest) = self.guest(index) {
                guest.hold();
            }
        }
        self.held.push(index);
        Held::Ring
    }

    fn guest(&mut self, index: usize) -> Option<&mut GuestTx> {
        match &mut self.by_number.get_mut(index)?.as_mut()?.device {
            TxDevice::Guest(guest) => Some(guest),
            _ => None,
        }
    }
}

/// What is held for a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// A guest's ring.
    Ring,
    /// A file's buffer.
    Buffer,
    Nothing,
}

impl Retry {
    /// A port has become full: schedules the first retry.
    fn begin(&mut self, now: Instant) {
        self.interval = RETRY_MIN;
        self.due = Some(now + self.interval);
    }

    /// Schedules the next retry: less often the longer no port takes anything, and if no sender
    /// waits.
    fn go_on(&mut self, now: Instant, has_moved: bool, is_held: bool) {
        let longest = if is_held { RETRY_MAX_HELD } else { RETRY_MAX };
        self.interval = match has_moved {
            true => RETRY_MIN,
            false => (self.interval * 2).min(longest),
        };
        self.due = Some(now + self.interval);
    }
}

#[inline]
pub(super) fn index(number: PortNo) -> usize {
    if number == PortNo::LOCAL { 0 } else { number.0 as usize }
}

/// The port number of an index.
#[expect(clippy::cast_possible_truncation, reason = "at most MAX_PORT")]
pub(crate) fn number(index: usize) -> PortNo {
    if index == 0 { PortNo::LOCAL } else { PortNo(index as u32) }
}

/// Approximate time in which a port makes room again; the kernel's timers are no finer.
const RETRY_MIN: Duration = Duration::from_micros(50);
/// Longest interval while senders wait.
const RETRY_MAX_HELD: Duration = Duration::from_millis(1);
/// Longest interval while only copies wait, or the port has stalled: the cost is negligible.
const RETRY_MAX: Duration = Duration::from_millis(10);
