//! Back-pressure: a worker stops reading queues that bring frames for full ports.
//!
//! ```text
//! a batch contains a frame that had to be queued (see `tx::queue`)
//!   └ its receive queue is paused: the guest's ring is not polled, the device not watched
//!       └ a device whose kernel would drop is read ahead, into bounded memory (see `ahead`)
//! each full port has sent all queued frames, or has stalled
//!   └ paused queues get one turn each, in the order in which they were paused
//! ```
//! While no port is full, this costs one test per batch.

use std::time::{Duration, Instant};

use rustix::event::epoll;
use tapswitch_datapath::{Arrival, DropReason, PortCounters, Snapshot, Traffic, View};
use tapswitch_tunnel::Room;

use super::turn::{self, Turn};
use super::{BURST_COUNT, Worker};
use crate::clock;
use crate::egress::WorkerEgress;
use crate::rx::{Pause, Received};
use crate::shared::Report;
use crate::tx::{Wait, port_number};

impl Worker {
    /// The longest time to sleep while frames or queues wait.
    pub(super) fn time_to_retry(&self) -> Option<Duration> {
        let has_turn = |index: &usize| self.queues[*index].intake.pause.is_none();
        match self.paused.iter().any(has_turn) {
            true => Some(Duration::ZERO),
            false => self.ports.time_to_retry(),
        }
    }

    /// Pauses a queue until all full ports that its frames need are free again. If it resumed at
    /// the first one, it would bring more frames for the others.
    #[cold]
    pub(super) fn pause(&mut self, index: usize) {
        let mut waits = self.ports.take_pressure();
        if self.queues[index].intake.pause.is_some() {
            return;
        }
        waits.sort_by_key(|wait| wait.bound);
        let Some(pause) = self.begin_pause(index, waits) else { return };
        if let Some(&wait) = pause.waits.last() {
            self.trials[index].limit(self.ports.batch_len(wait), clock::coarse());
        }
        let queue = &mut self.queues[index];
        queue.intake.pause = Some(pause);
        let reads_ahead = queue.intake.ahead.is_some();
        self.line_up(index);
        if !reads_ahead {
            self.unwatch(index);
        }
    }

    /// Pauses a queue from which frames have just been forwarded.
    #[cold]
    pub(super) fn pause_reading(&mut self, index: usize) {
        if let Some(ahead) = &mut self.queues[index].intake.ahead {
            ahead.note_passed();
        }
        self.pause(index);
    }

    /// Appends a queue to those that wait for their turn.
    fn line_up(&mut self, index: usize) {
        if !self.paused.contains(&index) {
            self.paused.push_back(index);
        }
    }

    /// Tries to send queued frames, and resumes the queues that waited for that.
    #[inline]
    pub(super) fn follow_queues(&mut self) {
        if self.ports.has_queues() || !self.paused.is_empty() {
            self.follow_full_ports();
        }
    }

    #[cold]
    fn follow_full_ports(&mut self) {
        for port in self.ports.retry(clock::coarse()) {
            self.shared.pauses.stalled(port);
            // The stall is counted even if the report is lost.
            let _ = self.shared.report(Report::Stalled(port));
        }
        self.ports.end_burst();
        self.ports.cut_off_faulty();
        self.give_turns();
    }

    /// Resumes queues whose pause is over. Queues that are still paused stay ahead of those that
    /// are paused again by this turn.
    fn give_turns(&mut self) {
        for _ in 0..self.paused.len() {
            let Some(index) = self.paused.pop_front() else { break };
            match self.queues[index].intake.pause.take() {
                Some(pause) => match self.follow_pause(index, pause) {
                    None => self.go_on(index),
                    pause => {
                        self.queues[index].intake.pause = pause;
                        self.waiting.push_back(index);
                    }
                },
                None => self.burst(index),
            }
        }
        self.waiting.append(&mut self.paused);
        std::mem::swap(&mut self.waiting, &mut self.paused);
    }

    /// Continues a pause, possibly for the next port; `None` when it is over.
    fn follow_pause(&self, index: usize, mut pause: Pause) -> Option<Pause> {
        let goes_on = pause.waits.last().is_some_and(|wait| self.ports.holds(*wait));
        if !goes_on {
            self.end_pause(index, &pause);
        }
        pause.waits.retain(|wait| self.ports.holds(*wait));
        if goes_on { Some(pause) } else { self.begin_pause(index, pause.waits) }
    }

    /// Starts a pause for the last of `waits`; `None` if there is none.
    fn begin_pause(&self, index: usize, waits: Vec<Wait>) -> Option<Pause> {
        let (full, since) = (port_number(waits.last()?.place), Instant::now());
        self.shared.pauses.begin(full, self.queues[index].port(), since);
        Some(Pause { waits, since })
    }

    /// Reads a queue again, and gives it its turn.
    fn go_on(&mut self, index: usize) {
        if self.queues[index].guest().is_some() {
            self.patience.wake();
            self.read_guest(index);
            return;
        }
        self.watch(index);
        self.burst(index);
    }

    fn end_pause(&self, index: usize, pause: &Pause) {
        if let Some(wait) = pause.waits.last() {
            let (full, sender) = (port_number(wait.place), self.queues[index].port());
            self.shared.pauses.end(full, sender, pause.since);
        }
    }

    /// Stores frames from a paused queue while there is room.
    #[cold]
    pub(super) fn read_ahead(&mut self, index: usize, snapshot: &Snapshot) {
        let Some(mut ahead) = self.queues[index].intake.ahead.take() else { return };
        let (mut is_open, mut count, mut bytes, now) = (true, 0, 0, Instant::now());
        for _ in 0..BURST_COUNT {
            if ahead.is_full() {
                is_open = false;
                break;
            }
            match self.queues[index].recv(&mut self.buf, Room::ONE) {
                Received::Frame { meta, start, end } => {
                    ahead.push(self.ports.pool(), meta, &self.buf[..end], start, now);
                    count += 1;
                    bytes += (end - start) as u64;
                }
                Received::Empty => break,
                Received::Gone => {
                    self.queues[index].intake.is_gone = true;
                    is_open = false;
                    break;
                }
                Received::Dropped(reason) => {
                    self.count_drop(index, snapshot, reason);
                }
            }
        }
        self.book_refused(index, snapshot);
        let queue = &mut self.queues[index];
        queue.intake.ahead = Some(ahead);
        if let Some(port) = snapshot.ports.find(queue.port()) {
            port.counters.ahead().add(self.index, traffic(count, bytes));
        }
        if !is_open {
            self.unwatch(index);
        }
    }

    /// Processes frames that were read ahead, at most one burst. Returns `true` when none is left
    /// and nothing is under pressure.
    #[cold]
    pub(super) fn replay(&mut self, index: usize, view: View<'_>) -> bool {
        let Some(mut ahead) = self.queues[index].intake.ahead.take() else { return true };
        let (now, marked) = (Instant::now(), ahead.marked());
        let (mut count, mut bytes, mut turn) = (0, 0, Turn::new());
        while !turn.is_over() {
            let queue = &self.queues[index];
            let Some((meta, buf, start)) = ahead.front(now) else { break };
            self.frames += 1;
            count += 1;
            bytes += (buf.len() - start) as u64;
            turn.note(1, turn::weight(&meta, buf.len()));
            let arrival = Arrival { in_port: queue.port(), meta, buf, start, beyond_len: 0 };
            let inner = match queue.mode() {
                None => Some(arrival),
                Some(mode) => self.forwarder.admit(view, mode, arrival, None),
            };
            if let Some(arrival) = inner {
                let mut egress = WorkerEgress::new(&mut self.ports, &self.shared);
                self.forwarder.handle_coalesced(view, arrival, None, &mut egress);
            }
            ahead.pop(self.ports.pool(), now);
            if self.ports.has_pressure() {
                break;
            }
        }
        let waits = self.ports.has_pressure();
        let (is_done, marked) = (ahead.is_empty() && !waits, ahead.marked() - marked);
        self.queues[index].intake.ahead = Some(ahead);
        if let Some(port) = view.snapshot.ports.find(self.queues[index].port()) {
            port.counters.ahead().sub(self.index, traffic(count, bytes));
        }
        if marked > 0 {
            self.shared.pauses.marked(self.queues[index].port(), marked);
        }
        if waits {
            self.pause(index);
        }
        is_done
    }

    /// Schedules another turn for a queue that is not paused and still has frames read ahead.
    pub(super) fn line_up_for_more(&mut self, index: usize) {
        let intake = &self.queues[index].intake;
        if intake.pause.is_none() && intake.is_behind() {
            self.line_up(index);
        }
    }

    /// Drops, by name, all frames that wait for ports or were read ahead: the switch stops.
    pub(super) fn settle_all(&mut self) {
        let snapshot = self.shared.snapshot.load_full();
        while let Some(queue) = self.queues.last() {
            let counters = snapshot.ports.find(queue.port()).map(|port| &*port.counters);
            self.settle(self.queues.len() - 1, counters);
            self.queues.pop();
        }
        self.ports.clear();
    }

    /// Watches a queue's device, for the first time or again.
    pub(super) fn watch(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        if queue.intake.is_watched || queue.intake.is_gone {
            return;
        }
        let data = epoll::EventData::new_u64(index as u64);
        match epoll::add(&self.poll, &*queue, data, epoll::EventFlags::IN) {
            Ok(()) => queue.intake.is_watched = true,
            Err(error) => {
                tracing::error!("worker {}: cannot wait for a queue: {error}", self.index.0);
            }
        }
    }

    /// Stops watching a queue's device. For a guest there is nothing to do: its few notifications
    /// are harmless.
    fn unwatch(&mut self, index: usize) {
        if self.queues[index].guest().is_none() && self.queues[index].intake.is_watched {
            self.forget(index);
        }
    }

    /// Ends the pauses of a queue before it is removed; afterwards `index` is invalid, and the last
    /// queue takes its place. Frames that were read ahead, or that a tunnel has in its buffer, are
    /// counted in `counters` as received and dropped.
    pub(super) fn settle(&mut self, index: usize, counters: Option<&PortCounters>) {
        if let Some(pause) = self.queues[index].intake.pause.take() {
            self.end_pause(index, &pause);
        }
        if let Some(mut ahead) = self.queues[index].intake.ahead.take() {
            let now = Instant::now();
            while let Some((_, buf, start)) = ahead.front(now) {
                if let Some(counters) = counters {
                    let traffic = traffic(1, (buf.len() - start) as u64);
                    counters.ahead().sub(self.index, traffic);
                    counters.refuse(self.index, traffic, DropReason::PortRemoved);
                }
                ahead.pop(self.ports.pool(), now);
            }
        }
        let pending = self.queues[index].pending() as u64;
        if let Some(counters) = counters.filter(|_| pending > 0) {
            counters.refuse(self.index, traffic(pending, 0), DropReason::PortRemoved);
        }
        let last = self.queues.len() - 1;
        self.paused.retain(|&paused| paused != index);
        self.paused.iter_mut().filter(|paused| **paused == last).for_each(|paused| *paused = index);
    }
}

fn traffic(frames: u64, bytes: u64) -> Traffic {
    Traffic { frames, packets: frames, bytes }
}
