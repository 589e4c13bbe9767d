//! When received packets are made into trains.
//!
//! Coalescing wants batches of many frames and looks at each of them; both pay only when trains
//! come of it. Where the kernel's end of a port makes trains itself (TSO, USO), or where hardly two
//! packets in a row belong to one flow, neither does. So a queue is tried, and left alone for twice
//! as long after each trial in vain (`docs/adr/0011-coalescing-at-the-ingress.md`).

use std::fmt;
use std::str::FromStr;

/// Whether received packets become trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gro {
    /// They do while it pays.
    #[default]
    Auto,
    /// They do.
    On,
    /// They stay as they are.
    Off,
}

impl Gro {
    /// What can be set, in words.
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

/// A text does not say when to make trains.
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
    /// What to wait for after the next trial in vain.
    next_wait: u32,
    /// Batches in a row of which no trains came.
    in_vain: u32,
}

impl GroTrial {
    pub(crate) fn new(gro: Gro) -> Self {
        let (is_on, is_auto) = (gro == Gro::On, gro == Gro::Auto);
        Self { is_on, is_auto, wait: 0, next_wait: 1, in_vain: 0 }
    }

    /// True when the next batch is to be coalesced.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes a batch of `count` frames, not coalesced, that was not ended by an empty queue. One of
    /// several frames is promising: a train fills a batch by itself.
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

    /// Notes a batch of `count` frames that became `units`.
    pub(crate) fn note_coalesced(&mut self, count: usize, units: usize) {
        if !self.is_auto {
            return;
        }
        // A quarter of the frames less to be handled and sent pays for looking at all of them.
        if (count - units.min(count)) * 4 >= count {
            (self.in_vain, self.next_wait) = (0, 1);
            return;
        }
        self.in_vain += 1;
        // A batch of few frames says little: the queue was nearly empty.
        let limit = if count < PROMISING_COUNT { LONELY_LIMIT } else { IN_VAIN_LIMIT };
        if self.in_vain >= limit {
            (self.is_on, self.in_vain) = (false, 0);
            self.wait = self.next_wait;
            self.next_wait = (self.next_wait * 2).min(WAIT_MAX);
        }
    }
}

/// Frames that are read together where they are coalesced.
pub(crate) const BATCH_COUNT: usize = 64;
/// Bytes behind which no further frame of such a batch is read: 45 frames of 1,514 bytes with their
/// headroom, which make the longest train that there is.
pub(crate) const BATCH_LEN: usize = 45 * 1600;
/// Frames of a batch from which trains may be hoped for.
const PROMISING_COUNT: usize = 4;
/// Batches without trains after which a trial ends.
const IN_VAIN_LIMIT: u32 = 2;
/// The same for batches of few frames.
const LONELY_LIMIT: u32 = 64;
/// Longest wait in promising batches, half a second of small frames.
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
    fn a_few_frames_now_and_then_end_it_later() {
        let mut trial = GroTrial::new(Gro::Auto);
        promising(&mut trial);
        (1..LONELY_LIMIT).for_each(|_| trial.note_coalesced(1, 1));
        assert!(trial.is_on());
        trial.note_coalesced(1, 1);
        assert!(!trial.is_on());
    }
}
