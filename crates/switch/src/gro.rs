//! When received packets are coalesced into trains.
//!
//! Coalescing needs large batches and inspects every frame; both pay only if trains result. They do
//! not if the kernel's side of a port makes trains itself (TSO, USO), or if adjacent packets rarely
//! belong to one flow. So each queue is tried, and after each failed trial it is left alone for
//! twice as long (`docs/adr/0011-coalescing-at-the-ingress.md`).

use std::fmt;
use std::str::FromStr;

use tapswitch_datapath::Millis;

/// Whether received packets are coalesced into trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gro {
    /// While it pays.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Gro {
    /// The possible values, for error messages.
    pub(crate) const EXPECTED: &str = "on, off or auto";
}

impl FromStr for Gro {
    type Err = ParseGroError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(ParseGroError(text.to_owned())),
        }
    }
}

impl fmt::Display for Gro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// A text that is not a [`Gro`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': expected {expected}", expected = Gro::EXPECTED)]
pub struct ParseGroError(String);

/// Whether the next batch of one queue is coalesced.
#[derive(Clone, Debug)]
pub(crate) struct GroTrial {
    is_on: bool,
    is_auto: bool,
    /// Promising batches before the next trial.
    wait: u32,
    /// The wait after the next failed trial.
    next_wait: u32,
    /// Consecutive batches without trains.
    in_vain: u32,
    /// Limit of a batch in bytes, and when it was set.
    limit: (usize, Millis),
}

impl GroTrial {
    pub(crate) fn new(gro: Gro) -> Self {
        let (is_on, is_auto) = (gro == Gro::On, gro == Gro::Auto);
        Self { is_on, is_auto, wait: 0, next_wait: 1, in_vain: 0, limit: (BATCH_LEN, Millis(0)) }
    }

    /// True if the next batch is to be coalesced.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Frames and bytes of the next batch, if it is to be coalesced.
    #[inline]
    pub(crate) fn batch(&self, now: Millis) -> (usize, usize) {
        let (len, set) = self.limit;
        (BATCH_COUNT, if now.since(set) < LIMIT_TIME { len } else { BATCH_LEN })
    }

    /// Limits the batches for a while: the queue waits for a port whose link is slow.
    pub(crate) fn limit(&mut self, len: usize, now: Millis) {
        self.limit = (len.clamp(BATCH_LEN_MIN, BATCH_LEN), now);
    }

    /// Notes a batch of `count` frames that was not coalesced and not ended by an empty queue. A
    /// batch of several frames is promising, as a train fills a batch by itself.
    #[inline]
    pub(crate) fn note_plain(&mut self, count: usize) {
        if !self.is_auto || count < PROMISING_COUNT {
            return;
        }
        if self.wait > 0 {
            self.wait -= 1;
        } else {
            self.is_on = true;
        }
    }

    /// Notes a batch of `count` frames that became `units` frames and trains.
    pub(crate) fn note_coalesced(&mut self, count: usize, units: usize) {
        if !self.is_auto {
            return;
        }
        // A reduction by a quarter of the frames pays for inspecting all of them.
        if (count - units.min(count)) * 4 >= count {
            (self.in_vain, self.next_wait) = (0, 1);
            return;
        }
        self.in_vain += 1;
        // A small batch is weak evidence: the queue was nearly empty.
        let limit = if count < PROMISING_COUNT { LONELY_LIMIT } else { IN_VAIN_LIMIT };
        if self.in_vain >= limit {
            (self.is_on, self.in_vain) = (false, 0);
            self.wait = self.next_wait;
            self.next_wait = (self.next_wait * 2).min(WAIT_MAX);
        }
    }
}

/// Frames that are read in one batch for coalescing.
pub(crate) const BATCH_COUNT: usize = 64;
/// No further frame is read into such a batch behind this many bytes: room for 45 frames of 1,514
/// bytes with headroom, which make a train of maximum length.
pub(crate) const BATCH_LEN: usize = 45 * 1600;
/// A batch is not limited to less: the first of ten full-size packets begins a train of ten.
const BATCH_LEN_MIN: usize = 9 * 1600;
/// How long a limit is in force after a pause. A queue that waits for a slow link does so each
/// millisecond.
const LIMIT_TIME: Millis = Millis(50);
/// A batch with at least this many frames is promising.
const PROMISING_COUNT: usize = 4;
/// Consecutive batches without trains that end a trial.
const IN_VAIN_LIMIT: u32 = 2;
/// The same for small batches.
const LONELY_LIMIT: u32 = 64;
/// Longest wait in promising batches: half a second of small frames.
const WAIT_MAX: u32 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn promising(trial: &mut GroTrial) -> usize {
        let mut count = 0;
        while !trial.is_on() {
            trial.note_plain(16);
            count += 1;
        }
        count
    }

    #[test]
    fn what_is_set_stays() {
        for (gro, is_on) in [(Gro::On, true), (Gro::Off, false)] {
            let mut trial = GroTrial::new(gro);
            for _ in 0..1000 {
                trial.note_plain(16);
                trial.note_coalesced(64, 64);
                assert_eq!(trial.is_on(), is_on);
            }
            assert_eq!(gro.to_string().parse(), Ok(gro));
        }
        assert!("maybe".parse::<Gro>().is_err());
    }

    #[test]
    fn trains_of_the_kernel_are_no_reason_for_a_trial() {
        let mut trial = GroTrial::new(Gro::Auto);
        (0..1000).for_each(|_| trial.note_plain(1));
        assert!(!trial.is_on());
        assert_eq!(promising(&mut trial), 1);
    }

    #[test]
    fn it_goes_on_while_it_pays() {
        let mut trial = GroTrial::new(Gro::Auto);
        promising(&mut trial);
        for _ in 0..1000 {
            trial.note_coalesced(45, 1);
            trial.note_coalesced(64, 64);
            trial.note_coalesced(8, 6);
            assert!(trial.is_on());
        }
    }

    #[test]
    fn trials_in_vain_become_rare() {
        let mut trial = GroTrial::new(Gro::Auto);
        let mut waits = Vec::new();
        for _ in 0..20 {
            waits.push(promising(&mut trial));
            trial.note_coalesced(64, 60);
            assert!(trial.is_on());
            trial.note_coalesced(64, 64);
            assert!(!trial.is_on());
        }
        assert_eq!(waits[..5], [1, 2, 3, 5, 9]);
        assert_eq!(waits[19], WAIT_MAX as usize + 1);
        promising(&mut trial);
        trial.note_coalesced(64, 10);
        trial.note_coalesced(64, 64);
        trial.note_coalesced(64, 64);
        assert_eq!(promising(&mut trial), 2, "success is remembered");
    }

    #[test]
    fn batches_are_limited_for_a_while_if_that_makes_them_shorter() {
        let (mut trial, now) = (GroTrial::new(Gro::On), Millis(1000));
        assert_eq!(trial.batch(now), (BATCH_COUNT, BATCH_LEN));
        trial.limit(usize::MAX, now);
        assert_eq!(trial.batch(now).1, BATCH_LEN);
        trial.limit(30_000, now);
        assert_eq!(trial.batch(Millis(1049)).1, 30_000);
        trial.limit(10, now);
        assert_eq!(trial.batch(now).1, BATCH_LEN_MIN);
        assert_eq!(trial.batch(Millis(1050)).1, BATCH_LEN, "its time is over");
    }

    #[test]
    fn a_few_frames_now_and_then_end_it_later() {
        let mut trial = GroTrial::new(Gro::Auto);
        promising(&mut trial);
        (1..LONELY_LIMIT).for_each(|_| trial.note_coalesced(1, 1));
        assert!(trial.is_on());
        trial.note_coalesced(1, 1);
        assert!(!trial.is_on());
    }
}
