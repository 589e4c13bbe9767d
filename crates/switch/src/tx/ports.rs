//! The ports as one worker sends to them: which has which number, which rings are held for a
//! burst, and which ports others wait for.

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
    /// By number; [`PortNo::LOCAL`] in the place of number 0.
    by_number: Vec<Option<TxPort>>,
    /// Guests whose rings are held, and files whose buffers are, by their places above.
    held: Vec<usize>,
    /// What guests did that they must not, since they were last cut off.
    faults: Vec<Fault>,
    /// Ports with a queue, by their places.
    queued: Vec<usize>,
    /// What whoever brought the last frames is to wait for, all of it.
    pressure: Vec<Wait>,
    /// Whoever brings the frames under way waits for nobody.
    is_passing: bool,
    /// A bridge has told of itself by one of them.
    has_bridge: bool,
    /// When the burst under way began.
    now: Millis,
    pool: Pool,
    /// Receive queues of the worker, which may all have to wait for one port.
    queue_count: usize,
    retry: Retry,
}

/// What whoever brings frames waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The place of the port that is full.
    pub(crate) place: usize,
    /// Which of its lanes is.
    lane: usize,
    /// How long that may take nothing.
    pub(crate) bound: Duration,
}

/// When ports that were full are tried again.
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

    /// Takes all ports away, and drops what waits for them.
    pub(crate) fn clear(&mut self) {
        for index in 0..self.by_number.len() {
            self.remove(self::number(index));
        }
    }

    /// Takes a port away. What waits for it is dropped.
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

    /// Sends `frame`, the end of which is `beyond`, out of the port of this number; keeps it where
    /// the port is full, or others wait for it.
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

    /// As [`Self::send`], of each packet the first `snaplen` bytes.
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

    /// The port at this place, unless others wait for it or it is a file or a tun device. It takes
    /// no way to send, as that would be a closure, which returns between two system calls unless
    /// the compiler likes to inline it.
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

    /// Sends to a port that is not [ready](Self::ready): puts a frame into the buffer of a file,
    /// has a tun device look at it, or keeps it where others wait in its lane.
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

    /// Keeps what a port that is full has not taken of a frame. What another one has not is lost.
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

    /// Keeps a frame for later, or what the port has not taken of it, if it is one that is kept.
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
                // While nobody waited, the port was asked seldom.
                self.retry.begin(now);
            }
        }
        Ok(Sent::Later)
    }

    /// The worker reads so many receive queues from now on.
    pub(crate) fn set_queue_count(&mut self, count: usize) {
        self.queue_count = count;
    }

    /// Room for what waits, here and elsewhere.
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// A burst begins, of a queue that `waits` for full ports, or does not.
    #[inline]
    pub(crate) fn begin_burst(&mut self, waits: bool, now: Millis) {
        (self.is_passing, self.has_bridge, self.now) = (!waits, false, now);
    }

    /// A bridge has told of itself by a frame under way.
    #[cold]
    pub(crate) fn note_bridge(&mut self) {
        self.has_bridge = true;
    }

    /// Whether a bridge has told of itself since the burst began.
    #[inline]
    pub(crate) fn has_bridge(&self) -> bool {
        self.has_bridge
    }

    /// True when whoever brought the last frames is to wait.
    #[inline]
    pub(crate) fn has_pressure(&self) -> bool {
        !self.pressure.is_empty()
    }

    /// What whoever brought the last frames is to wait for.
    pub(crate) fn take_pressure(&mut self) -> Vec<Wait> {
        std::mem::take(&mut self.pressure)
    }

    /// Whoever brought the last frames waits for nothing.
    pub(crate) fn forgive_pressure(&mut self) {
        self.pressure.clear();
    }

    /// True while this wait goes on.
    pub(crate) fn holds(&self, Wait { place, lane, bound }: Wait) -> bool {
        let port = self.by_number.get(place).and_then(Option::as_ref);
        let queue = port.and_then(|port| port.lanes.as_ref()?.queue(lane));
        queue.is_some_and(|queue| queue.is_held_for(bound))
    }

    /// True while something waits.
    #[inline]
    pub(crate) fn has_queues(&self) -> bool {
        !self.queued.is_empty()
    }

    /// How long to sleep at most, when something waits.
    pub(crate) fn time_to_retry(&self) -> Option<Duration> {
        let due = self.retry.due.filter(|_| self.has_queues())?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Sends what waits as far as its ports take it, if it is time to. Returns the ports that have
    /// stalled by now. The caller ends the burst.
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

    /// Sends what waits for one port, as far as it takes it. Returns whether it took anything.
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

    /// Ends a burst: frames that went to guests are told of, and rings let go.
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

    /// Cuts off guests that did what they must not. The caller holds no ring any more.
    #[inline]
    pub(crate) fn cut_off_faulty(&mut self) {
        self.faults.drain(..).for_each(Fault::cut_off);
    }

    #[inline]
    pub(super) fn find(&mut self, index: usize) -> Result<&mut TxPort, DropReason> {
        let port = self.by_number.get_mut(index).and_then(Option::as_mut);
        port.ok_or(DropReason::NoSuchPort)
    }

    /// Takes a guest's ring for the rest of the burst. Who has others does not wait for it. A
    /// file's buffer is the worker's own, and of a tun device there is nothing to take.
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

/// What was taken for a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// A guest's ring.
    Ring,
    /// A file's buffer.
    Buffer,
    /// Nothing.
    Nothing,
}

impl Retry {
    /// A port is full that was not.
    fn begin(&mut self, now: Instant) {
        self.interval = RETRY_MIN;
        self.due = Some(now + self.interval);
    }

    /// Less often the longer nothing moves, and when nobody waits but the frames.
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

/// The number of the port at a place.
#[expect(clippy::cast_possible_truncation, reason = "at most MAX_PORT")]
pub(crate) fn number(index: usize) -> PortNo {
    if index == 0 { PortNo::LOCAL } else { PortNo(index as u32) }
}

/// About what it takes a port to make room again. The kernel wakes no sleeper sooner.
const RETRY_MIN: Duration = Duration::from_micros(50);
/// While senders wait.
const RETRY_MAX_HELD: Duration = Duration::from_millis(1);
/// While only copies wait, or the port has stalled: it costs next to nothing.
const RETRY_MAX: Duration = Duration::from_millis(10);
