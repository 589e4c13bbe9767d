//! A worker's guests: frames from rings, by polling while it pays.
//!
//! ```text
//! asleep ── a guest notifies ──► awake: poll every guest's ring, round after round;
//!   ▲                              │    ask the kernel for the other queues now and then;
//!   └── nothing for a while ───────┘    notifications from guests are disabled
//! ```
//! "A while" is adaptive: it grows when a guest notifies soon after the worker went to sleep, and
//! shrinks when none does ([`Patience`]). So a busy ring costs no notifications, and an idle guest
//! costs no CPU time.
//!
//! **Costs of a small frame.** Its descriptor and the address of its buffer are fetched together
//! with those of [`BATCH_COUNT`] others, and its first bytes are prefetched then. Those of all
//! frames of a batch are copied in one loop, so that the rest of their cache misses overlaps; then
//! each frame is processed. Bytes beyond
//! [`HEAD_LEN`] stay in the guest's memory until they are copied to their destination.

use std::time::{Duration, Instant};

use tapswitch_datapath::{Arrival, DropReason, HEADROOM, View};
use tapswitch_vhost::{self as vhost, Chain, Features, RawHeader, Running};
use tapswitch_wire::{
    EtherType, Layout, NetHeader, NetHeaderFlags, ethernet, ip_proto, parse, read_u16, tags, tcp,
};

use super::turn::{self, Turn};
use super::{BURST_COUNT, Slot, Worker};
use crate::beyond::Beyond;
use crate::clock;
use crate::egress::WorkerEgress;
use crate::rx::GuestRx;

impl Worker {
    /// Recounts the queues and the guests' rings among them after a change. A new guest has not
    /// been asked to notify, so the worker polls its ring first.
    pub(super) fn note_queues(&mut self) {
        self.ports.set_queue_count(self.queues.len());
        let is_guest = |index: &usize| self.queues[*index].guest().is_some();
        self.guests = (0..self.queues.len()).filter(is_guest).collect();
        if !self.guests.is_empty() {
            self.patience.wake();
        }
    }

    /// Polls the guests' rings until it is time to ask the kernel for the other queues.
    #[inline]
    pub(super) fn poll_guests(&mut self) {
        if !self.patience.is_awake() {
            return;
        }
        let (mut left, mut next) = (FRAME_COUNT, self.next_guest);
        for _ in 0..ROUND_COUNT {
            let count = turn::around(&mut next, self.guests.len(), left, |at| {
                self.read_guest(self.guests[at])
            });
            self.next_guest = next;
            if count > 0 {
                self.patience.note_work();
            } else if !self.patience.goes_on() {
                return self.let_guests_notify();
            }
            left = left.saturating_sub(count);
            if left == 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// A guest has notified: disables notifications while the worker is awake.
    pub(super) fn wake_for(&mut self, index: usize) {
        if let Some(guest) = self.queues[index].guest() {
            guest.queue.acknowledge();
        }
        if self.patience.wake() {
            self.let_guests_be();
        }
    }

    /// Disables notifications from all guests.
    fn let_guests_be(&self) {
        for &index in &self.guests {
            let Some(guest) = self.queues[index].guest() else { continue };
            if let Some(ring) = guest.queue.lock().as_mut() {
                ring.disarm();
            }
        }
    }

    /// Enables notifications from all guests. Sleeps unless a frame has arrived meanwhile, in which
    /// case notifications are disabled again.
    #[inline(never)]
    fn let_guests_notify(&mut self) {
        let is_idle = |index: &usize| {
            let Some(guest) = self.queues[*index].guest() else { return true };
            if self.queues[*index].intake.pause.is_some() {
                return true;
            }
            guest.queue.lock().as_mut().is_none_or(Running::arm)
        };
        // All rings are armed, whatever the first ones return.
        let is_busy = self.guests.iter().filter(|index| !is_idle(index)).count() > 0;
        if is_busy {
            self.let_guests_be();
        }
        self.patience.sleep(is_busy);
    }

    /// Reads a guest's queue until it is empty or a burst is full. Returns the number of frames,
    /// converted to small frames.
    pub(super) fn read_guest(&mut self, index: usize) -> usize {
        if self.queues[index].intake.pause.is_some() {
            return 0;
        }
        let Some(GuestRx { device, queue }) = self.queues[index].guest().cloned() else { return 0 };
        let mut held = queue.lock();
        let Some(ring) = held.as_mut() else { return 0 };
        let session = ring.session();
        let (mut total, mut fault, mut turn) = (0, None, Turn::new());
        while !turn.is_over() {
            match ring.fetch(BATCH_COUNT) {
                Ok(0) => break,
                Ok(count) => {
                    let handled = match ring.is_enabled() {
                        true => self.handle_batch(index, ring, count),
                        false => self.discard_batch(index, ring, count),
                    };
                    if handled == 0 {
                        break;
                    }
                    total += handled;
                    let pieces = turn::weight_of_pieces(handled, ring.chains().piece_count());
                    turn.note(handled, self.weight_of(handled) + pieces);
                    if self.ports.has_pressure() {
                        self.pause(index);
                        break;
                    }
                }
                Err(error) => {
                    fault = Some(error.to_string());
                    break;
                }
            }
        }
        if total > 0 && fault.is_none() && ring.memory_was_lost() {
            fault = Some(vhost::MEMORY_LOST.to_owned());
        }
        drop(held);
        fault.into_iter().for_each(|fault| device.reset(session, fault));
        self.ports.cut_off_faulty();
        if total > 0 { total.max(BURST_COUNT - turn.left()) } else { 0 }
    }

    /// Processes the next `count` chains of a guest's ring, up to the first one for which the guest
    /// has to wait, and returns them to the guest. Returns how many: 0 if the port is gone and the
    /// errand that removes the ring is under way.
    fn handle_batch(&mut self, index: usize, ring: &mut Running, count: usize) -> usize {
        let (snapshot, macs) = (self.shared.snapshot.load(), self.shared.macs.load());
        if snapshot.ports.find(self.queues[index].port()).is_none() {
            return 0;
        }
        let view = View { snapshot: &snapshot, macs: &macs, now: clock::coarse() };
        self.ports.begin_burst(self.queues[index].waits(), view.now);
        self.bursts += 1;
        for at in 0..count.min(BATCH_COUNT) {
            if let Some(chain) = ring.peek(at) {
                self.batch[at] = self.fetch_head(ring, &chain, at);
            }
        }
        let mut handled = 0;
        for at in 0..count.min(BATCH_COUNT) {
            if let Some(next) = ring.peek(1) {
                ring.prefetch_frame(&next, HEAD_LEN);
            }
            if let Some(chain) = ring.peek(0) {
                self.handle_guest(index, view, ring, chain, at);
                ring.complete(0);
            }
            handled += 1;
            if self.ports.has_pressure() || turn::is_crowded(&self.batch[at].meta) {
                break;
            }
        }
        // Receivers first: if this process is killed in between, its successor sends the frames
        // again, and none is lost.
        self.ports.end_burst();
        ring.publish();
        self.forwarder.end_burst(view.now);
        handled
    }

    /// Returns the next `count` chains of a disabled ring without processing them, at most a batch:
    /// the driver waits for them. Returns how many: 0 if the port is gone.
    #[cold]
    fn discard_batch(&mut self, index: usize, ring: &mut Running, count: usize) -> usize {
        let snapshot = self.shared.snapshot.load_full();
        if snapshot.ports.find(self.queues[index].port()).is_none() {
            return 0;
        }
        let count = count.min(BATCH_COUNT);
        for at in 0..count {
            self.batch[at] = Slot::default();
            self.count_drop(index, &snapshot, DropReason::QueueDisabled);
            ring.complete(0);
        }
        self.frames += count as u64;
        ring.publish();
        count
    }

    /// Copies the first bytes of a guest's frame to place `at` of the batch. The length is zero if
    /// the chain holds no frame.
    #[inline]
    fn fetch_head(&mut self, ring: &Running, chain: &Chain, at: usize) -> Slot {
        let begin = at * PLACE_LEN;
        let head = &mut self.buf[begin + HEADROOM..begin + PLACE_LEN];
        match ring.read_frame(chain, head) {
            Some((header, len)) => Slot {
                meta: meta_of(header, len, ring.features()),
                begin,
                start: HEADROOM,
                len: HEADROOM + len,
            },
            None => Slot { meta: NetHeader::PLAIN, begin, start: HEADROOM, len: 0 },
        }
    }

    /// Processes the frame in `chain`, whose first bytes are at place `at` of the batch.
    #[inline]
    fn handle_guest(
        &mut self,
        index: usize,
        view: View<'_>,
        ring: &Running,
        chain: Chain,
        at: usize,
    ) {
        self.frames += 1;
        let Slot { meta, mut begin, start, len } = self.batch[at];
        let Some(len) = len.checked_sub(HEADROOM) else {
            return self.count_drop(index, view.snapshot, DropReason::Truncated);
        };
        let mut here = len.min(HEAD_LEN);
        if len > HEAD_LEN {
            if len > tapswitch_tap::MAX_FRAME_LEN {
                return self.count_drop(index, view.snapshot, DropReason::BadMetadata);
            }
            if !shows_checksum(&meta, here)
                || !shows_all_headers(&self.buf[begin + start..begin + start + here])
            {
                begin = BATCH_COUNT * PLACE_LEN;
                here = len;
                read_all(ring, &chain, &mut self.buf[begin + start..begin + start + len]);
            }
        }
        let buf = &mut self.buf[begin..begin + start + here];
        let in_port = self.queues[index].port();
        let arrival = Arrival { in_port, meta, buf, start, beyond_len: len - here };
        let arrival = match self.queues[index].mode() {
            None => arrival,
            Some(mode) => match self.forwarder.admit(view, mode, arrival, None) {
                Some(arrival) => arrival,
                None => return,
            },
        };
        let beyond = if len > here { Beyond::new(ring, chain, here) } else { Beyond::NONE };
        let mut egress = WorkerEgress::new(&mut self.ports, &self.shared).with_beyond(beyond);
        self.forwarder.handle(view, arrival, &mut egress);
    }
}

/// Copies a whole frame; a separate function, because reading the first bytes is part of the loop.
#[inline(never)]
fn read_all(ring: &Running, chain: &Chain, frame: &mut [u8]) {
    ring.read_frame(chain, frame);
}

/// The metadata of a frame of `len` bytes from a guest. A driver cannot report verified checksums
/// (virtio 1.2 §5.1.6.2), and may use other offloads only as negotiated. Its hint `hdr_len` may be
/// wrong; one that exceeds the frame is cleared, as the kernel would refuse the frame.
#[inline]
fn meta_of(header: RawHeader, len: usize, features: Features) -> NetHeader {
    if header.is_plain() || !features.contains(Features::CSUM) {
        return NetHeader::PLAIN;
    }
    let meta = NetHeader::decode(&header.into());
    let hdr_len = if usize::from(meta.hdr_len) <= len { meta.hdr_len } else { 0 };
    NetHeader { flags: meta.flags & NetHeaderFlags::NEEDS_CSUM, hdr_len, ..meta }
}

/// True if the header with the partial checksum, also inside a tunnel, ends within the first `here`
/// bytes.
#[inline]
fn shows_checksum(meta: &NetHeader, here: usize) -> bool {
    !meta.needs_checksum() || usize::from(meta.csum_start) + tcp::MAX_HEADER_LEN <= here
}

/// True if the headers of a frame end within `head`, its first [`HEAD_LEN`] bytes. IPv4 behind tags
/// takes a short check, everything else is parsed. If in doubt, `false`: IPv6 extension headers
/// have no limit, and options of neighbour discovery count as headers.
#[inline]
fn shows_all_headers(head: &[u8]) -> bool {
    let at = ethernet::field::ETHER_TYPE + ethernet::TAG_LEN * tags::count(head);
    if head.get(at..at + 2).is_some_and(|eth_type| eth_type == EtherType::IPV4.0.to_be_bytes()) {
        return at + 2 + LONGEST_IPV4_LEN <= head.len();
    }
    shows_parsed_headers(head)
}

#[inline(never)]
fn shows_parsed_headers(head: &[u8]) -> bool {
    let Ok(parsed) = parse(head) else { return false };
    let Layout { network, transport, end, protocol, .. } = parsed.layout;
    let network = usize::from(network);
    let is_ipv6 = EtherType(read_u16(head, network - 2)) == EtherType::IPV6;
    let is_known = transport.is_some() && protocol != ip_proto::ICMPV6;
    usize::from(end) < head.len() && (!is_ipv6 || is_known)
}

/// How long a worker polls before it sleeps.
#[derive(Debug)]
pub(super) struct Patience {
    /// The current polling time.
    time: Duration,
    /// Start of the idle period; `None` while frames arrive.
    idle_since: Option<Instant>,
    /// When notifications were enabled; `None` while awake.
    asleep_since: Option<Instant>,
}

/// Asleep, without guests.
impl Default for Patience {
    fn default() -> Self {
        Self { time: Duration::ZERO, idle_since: None, asleep_since: Some(Instant::now()) }
    }
}

impl Patience {
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.asleep_since.is_none()
    }

    #[inline]
    fn note_work(&mut self) {
        self.idle_since = None;
    }

    /// Whether to poll again after a round without frames.
    fn goes_on(&mut self) -> bool {
        if self.time.is_zero() {
            return false;
        }
        let now = Instant::now();
        now - *self.idle_since.get_or_insert(now) < self.time
    }

    /// Goes to sleep, unless a guest `is_busy`.
    fn sleep(&mut self, is_busy: bool) {
        self.idle_since = None;
        self.asleep_since = (!is_busy).then(Instant::now);
    }

    /// Wakes up. Returns `false` if it was awake already.
    pub(super) fn wake(&mut self) -> bool {
        let Some(since) = self.asleep_since.take() else { return false };
        // A sleep this short was not worth a notification and the wakeup.
        self.time = match since.elapsed() < PATIENCE_MAX {
            true => (self.time * 2).clamp(PATIENCE_MIN, PATIENCE_MAX),
            false if self.time <= PATIENCE_MIN => Duration::ZERO,
            false => self.time / 2,
        };
        true
    }
}

/// Frames that are fetched in one batch.
const BATCH_COUNT: usize = 32;
/// Bytes of a frame that are copied for the datapath: nearly all small frames completely, and all
/// but the most unusual headers.
const HEAD_LEN: usize = vhost::PREFETCHED_LEN;
/// Distance between two frames of a batch.
const PLACE_LEN: usize = HEADROOM + HEAD_LEN;
const _: () =
    assert!(BATCH_COUNT * PLACE_LEN <= crate::gro::BATCH_LEN && BATCH_COUNT <= BURST_COUNT);
/// The longest headers of IPv4 and TCP.
const LONGEST_IPV4_LEN: usize = 60 + tcp::MAX_HEADER_LEN;
/// Rounds, and frames, before the kernel is asked for other queues and errands: they are served
/// within a few tens of microseconds, and asking costs a few nanoseconds per frame.
const ROUND_COUNT: usize = 16;
const FRAME_COUNT: usize = 256;
/// Approximate cost of a sleep and a wakeup.
const PATIENCE_MIN: Duration = Duration::from_micros(10);
/// Usually as long as a guest polls its own device.
const PATIENCE_MAX: Duration = Duration::from_micros(100);
