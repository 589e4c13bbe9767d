//! Active queue management by marking: [`Codel`] (RFC 8289) decides when, [`mark_ce`] marks.
//!
//! A queue in front of an egress absorbs jitter while it is short; a *standing* queue is only
//! delay. Senders that understand ECN (RFC 3168) are told before it is full: the codepoint
//! "congestion experienced" slows a TCP flow as a loss would, without a retransmission.
//!
//! [`Codel`] uses one input: how long a frame has waited when it leaves (its sojourn time). A frame
//! that waited for less than the target shows that the queue does not stand. If none did for a
//! whole interval, a mark is due, and from then on further ones at decreasing distance, by the
//! square root of their number (§5.3, the control law), until a frame waits for less than the
//! target.
//!
//! Differences from the drop-tail of RFC 8289 §5:
//! - It never drops. A mark that falls on a frame that is not ECN-capable is spent, as a drop would
//!   be: kept for the next capable frame, it would make ECN flows pay for all others.
//! - A frame takes one mark; further marks that are due go to the following frames (as in Linux,
//!   `include/net/codel_impl.h`).

use tapswitch_wire::ecn::{self, Marking};

/// When to mark the frames of one queue: the state of `CoDel` (RFC 8289 §5.1, §5.3).
///
/// Time is an argument, in nanoseconds of any monotonic clock.
#[derive(Clone, Debug)]
pub struct Codel {
    target_ns: u64,
    interval_ns: u64,
    /// When the queue will have stood for an interval; `None` while it does not stand.
    first_above_ns: Option<u64>,
    /// True while marks are being made.
    is_marking: bool,
    /// When the next mark is due, or the last one was planned for.
    mark_next_ns: u64,
    /// Marks since marking began; determines their distance.
    count: u32,
    /// Initial value of `count`.
    last_count: u32,
}

impl Codel {
    /// Acceptable standing delay: 5 ms (RFC 8289 §4.3).
    pub const TARGET_NS: u64 = 5_000_000;
    /// How long a queue must stand before it is marked: 100 ms, of the order of the longest usual
    /// round trip (RFC 8289 §4.2).
    pub const INTERVAL_NS: u64 = 100_000_000;

    /// Marks a queue if, for `interval_ns`, each frame waited for `target_ns` or longer.
    ///
    /// [`Self::TARGET_NS`] and [`Self::INTERVAL_NS`] suit the internet. An interval of more than
    /// 4.2 s counts as 4.2 s.
    pub const fn new(target_ns: u64, interval_ns: u64) -> Self {
        let longest = u32::MAX as u64; // its square must fit, see `distance_ns`
        let interval_ns = if interval_ns > longest { longest } else { interval_ns };
        Self {
            target_ns,
            interval_ns,
            first_above_ns: None,
            is_marking: false,
            mark_next_ns: 0,
            count: 0,
            last_count: 0,
        }
    }

    /// Called when a frame leaves the queue at `now_ns` after `sojourn_ns` in it, with
    /// `backlog_len` bytes left behind it. Returns true if the frame is to be marked.
    ///
    /// Must be called for each frame that leaves, also for those that did not wait: they end
    /// marking.
    #[must_use]
    pub fn dequeued(&mut self, now_ns: u64, sojourn_ns: u64, backlog_len: usize) -> bool {
        let stands = self.has_stood(now_ns, sojourn_ns, backlog_len);
        if !self.is_marking {
            return stands && self.begin(now_ns);
        }
        self.is_marking = stands;
        let is_due = stands && now_ns >= self.mark_next_ns;
        if is_due {
            self.count = self.count.saturating_add(1);
            self.mark_next_ns = self.mark_next_ns.saturating_add(self.distance_ns());
        }
        is_due
    }

    /// Called when the queue was found empty: it does not stand, however long the last frame has
    /// waited (RFC 8289 §5.6, `dodequeue` without a packet). The rate of marks is remembered as
    /// after a frame that left in time.
    pub fn emptied(&mut self) {
        (self.first_above_ns, self.is_marking) = (None, false);
    }

    /// True if the queue has stood for an interval (RFC 8289 §5.6, `dodequeue`).
    fn has_stood(&mut self, now_ns: u64, sojourn_ns: u64, backlog_len: usize) -> bool {
        if sojourn_ns < self.target_ns || backlog_len <= BACKLOG_LEN_MIN {
            self.first_above_ns = None;
            return false;
        }
        now_ns >= *self.first_above_ns.get_or_insert(now_ns.saturating_add(self.interval_ns))
    }

    /// Makes the first mark. Soon after the previous ones it resumes at the rate that had helped
    /// then (RFC 8289 §5.5, `deque`).
    fn begin(&mut self, now_ns: u64) -> bool {
        let recent =
            now_ns.saturating_sub(self.mark_next_ns) < REMEMBERED_INTERVALS * self.interval_ns;
        let grown = self.count.saturating_sub(self.last_count);
        self.count = if recent && grown > 1 { grown } else { 1 };
        self.last_count = self.count;
        self.mark_next_ns = now_ns.saturating_add(self.distance_ns());
        self.is_marking = true;
        true
    }

    /// The control law: interval / sqrt(count), without loss of precision.
    fn distance_ns(&self) -> u64 {
        (self.interval_ns * self.interval_ns / u64::from(self.count.max(1))).isqrt()
    }
}

impl Default for Codel {
    /// With the constants of RFC 8289.
    fn default() -> Self {
        Self::new(Self::TARGET_NS, Self::INTERVAL_NS)
    }
}

/// Sets "congestion experienced" in the outermost IP header of an Ethernet `frame`, as
/// [`ecn::mark`] does. A train has one header, so all packets that it is cut into are marked.
///
/// Returns true if the frame was marked; `false`, without changing a bit, if it is marked already,
/// not ECN-capable, not IP, or cut short.
pub fn mark_ce(frame: &mut [u8]) -> bool {
    ecn::mark(frame) == Marking::Marked
}

/// One packet of the usual size behind a frame is not a standing queue (RFC 8289 §4.4; Linux adds
/// the Ethernet header to the MTU, too).
const BACKLOG_LEN_MIN: usize = 1514;

/// For how many intervals after a mark its rate is remembered (RFC 8289 §5.5).
const REMEMBERED_INTERVALS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Times in ms of the marks in a flow of one frame per millisecond, each of which waited
    /// `sojourn_ms`.
    fn marks(codel: &mut Codel, from_ms: u64, to_ms: u64, sojourn_ms: u64) -> Vec<u64> {
        let is_marked = |now: &u64| codel.dequeued(now * MS, sojourn_ms * MS, 100_000);
        (from_ms..to_ms).filter(is_marked).collect()
    }

    #[test]
    fn a_queue_below_the_target_is_never_marked() {
        assert_eq!(marks(&mut Codel::default(), 0, 10_000, 4), []);
    }

    #[test]
    fn a_single_packet_left_is_no_standing_queue() {
        let mut codel = Codel::default();
        assert!((0..10_000).all(|ms| !codel.dequeued(ms * MS, 50 * MS, 1514)));
    }

    #[test]
    fn marks_come_closer_by_the_square_root_of_their_number() {
        // The first after an interval, then 100, 100/sqrt(2), 100/sqrt(3) ... ms apart.
        let times = marks(&mut Codel::default(), 0, 600, 20);
        assert_eq!(times, [100, 200, 271, 329, 379, 424, 464, 502, 538, 571]);
    }

    #[test]
    fn one_frame_in_time_ends_it_and_its_rate_is_remembered_for_a_while() {
        let mut codel = Codel::default();
        assert_eq!(marks(&mut codel, 0, 600, 20).len(), 10);
        assert_eq!(marks(&mut codel, 600, 601, 4), []);
        // A whole interval again, but then the distances of the ninth and the tenth mark.
        assert_eq!(marks(&mut codel, 601, 770, 20), [701, 735, 766]);
        // Much later it starts anew.
        assert_eq!(marks(&mut codel, 5_000, 5_001, 4), []);
        assert_eq!(marks(&mut codel, 5_001, 5_210, 20), [5_101, 5_201]);
    }

    #[test]
    fn a_queue_that_was_empty_does_not_stand() {
        let mut codel = Codel::default();
        assert_eq!(marks(&mut codel, 0, 250, 20), [100, 200]);
        codel.emptied();
        // The mark that was due at 271 is not made up for.
        assert_eq!(marks(&mut codel, 1_000, 1_210, 20), [1_100, 1_200]);
        for burst in 2..10 {
            codel.emptied();
            assert_eq!(marks(&mut codel, burst * 1_000, burst * 1_000 + 99, 20), []);
        }
    }

    #[test]
    fn marks_that_fell_due_while_nothing_left_are_made_one_a_frame() {
        let mut codel = Codel::default();
        assert_eq!(marks(&mut codel, 0, 101, 20), [100]);
        // 200, 271, 329 and 379 have passed.
        assert_eq!(marks(&mut codel, 390, 396, 20), [390, 391, 392, 393]);
    }

    #[test]
    fn hostile_parameters_and_clocks_are_survived() {
        for (target, interval) in [(0, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (0, 1)] {
            let mut codel = Codel::new(target, interval);
            for now in [0, 1, 5, 4, u64::MAX, 0, u64::MAX] {
                let _ = codel.dequeued(now, u64::MAX, usize::MAX);
            }
        }
    }
}
