//! Where a packed ring goes on when nobody knows.
//!
//! A back end that was killed takes its place in the ring with it. A split ring has the index of
//! used buffers in memory; in a packed ring QEMU can do no better than to say where the ring
//! started. But the flags tell: counted from where the device is, there are first the buffers that
//! wait for it, made available in this turn, and then, up to the same place again, those that it
//! gave back, in the turn before:
//!
//! ```text
//! used  used  used  AVAIL AVAIL AVAIL used' used' used'        ' of the turn before
//!                   ^ here
//! ```
//!
//! That fits one place only, as long as whoever served the ring left nothing behind that looks
//! available, which we do not. Other back ends do: they leave the descriptors behind the first of a
//! chain as they were. So a place that was told is believed if it fits, or if there is no other one
//! that does; and also if it fits but for such leavings, unless it is where every ring starts,
//! which is what one is told who is told nothing.
//!
//! **The driver goes on meanwhile**, as a guest does not wait for a back end that comes back. So
//! the flags are read until they stay as they are, which each of them does once the driver has made
//! its buffer available; else what was read would be of no moment, and would fit nowhere. And the
//! driver may be at a chain, whose first descriptor it writes last (§2.8.6): that one looks as in
//! the turn before, those behind it available.
//!
//! Everything read here may be a lie. It costs one turn around the ring for each place that is
//! tried, and so many loads at most for flags that do not settle; the worst that comes of it is a
//! ring that does not go on.

use std::sync::atomic::Ordering;

use super::{NEXT, Place, Tables};

/// Where the ring goes on: at `told`, unless it clearly stands elsewhere.
pub(super) fn place(tables: &Tables, size: u16, told: Place) -> Place {
    let ring = Flags::of(tables, size);
    let is_believed = told != Place::new(0, true) && ring.fits(told, Allowed::Leavings);
    for allowed in [Allowed::Nothing, Allowed::Unfinished] {
        if ring.fits(told, allowed) {
            return told;
        }
        if let Some(found) = ring.find(allowed).filter(|_| !is_believed) {
            return found;
        }
    }
    told
}

/// True when chains wait at `place` and what is behind them was given back: but for the first
/// buffers, a frame was when we were killed.
pub(super) fn is_cut(tables: &Tables, size: u16, place: Place) -> bool {
    let ring = Flags::of(tables, size);
    let (behind, left) = ring.skip_waiting(place, size);
    left < size && behind.is_used(ring.at(behind))
}

/// The flags of a ring's descriptors, as they were at one moment.
struct Flags {
    flags: Vec<u16>,
    size: u16,
}

/// What may look otherwise than described above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Allowed {
    Nothing,
    /// The chain that the driver is at. A chain at the end of a full ring, which we were giving
    /// back when we were killed, may look like that, so this comes second.
    Unfinished,
    /// The same, and what was used in the turn before may look available.
    Leavings,
}

impl Flags {
    fn of(tables: &Tables, size: u16) -> Self {
        // Acquire: whoever sees the flags of a chain's first descriptor sees those behind it.
        Self::settled(size, |index| tables.descriptor(index).load(Ordering::Acquire).fourth)
    }

    /// What `read` answers for each place, once it answers the same twice. A driver changes each
    /// of them once while nobody gives anything back; one that lies is not waited for.
    fn settled(size: u16, mut read: impl FnMut(u16) -> u16) -> Self {
        let mut flags: Vec<u16> = (0..size).map(&mut read).collect();
        for _ in 0..LOADS_MAX / usize::from(size.max(1)) {
            let mut is_settled = true;
            for (index, flags) in (0..size).zip(&mut flags) {
                let before = std::mem::replace(flags, read(index));
                is_settled &= before == *flags;
            }
            if is_settled {
                break;
            }
        }
        Self { flags, size }
    }

    fn at(&self, place: Place) -> u16 {
        self.flags.get(usize::from(place.index())).copied().unwrap_or_default()
    }

    /// True when all flags are as they are when the device is at `place`.
    fn fits(&self, place: Place, allowed: Allowed) -> bool {
        let (mut at, mut left) = self.skip_waiting(place, self.size);
        // We were killed while we gave back the buffers of one frame, the first one last.
        if left < self.size {
            while left > 0 && at.is_used(self.at(at)) {
                (at, left) = (at.forward(1, self.size), left - 1);
            }
            (at, left) = self.skip_waiting(at, left);
        }
        if allowed >= Allowed::Unfinished {
            (at, left) = self.skip_unfinished(at, left);
        }
        (0..left).all(|count| {
            let before = at.forward(count, self.size).turn_before();
            let flags = self.at(before);
            before.is_used(flags) || allowed == Allowed::Leavings && before.is_available(flags)
        })
    }

    /// From `at` on, behind the chains that wait, of `left` places.
    fn skip_waiting(&self, mut at: Place, mut left: u16) -> (Place, u16) {
        while left > 0 && self.is_waiting(at) {
            let mut slots = 1;
            while slots < left && self.at(at.forward(slots - 1, self.size)) & NEXT != 0 {
                slots += 1;
            }
            (at, left) = (at.forward(slots, self.size), left - slots);
        }
        (at, left)
    }

    /// From `at` on, behind the chain that the driver is at, if it is at one.
    fn skip_unfinished(&self, at: Place, left: u16) -> (Place, u16) {
        if left == 0 || !at.turn_before().is_used(self.at(at)) {
            return (at, left);
        }
        let mut slots = 1;
        while slots < left && self.is_waiting(at.forward(slots, self.size)) {
            slots += 1;
        }
        (at.forward(slots, self.size), left - slots)
    }

    fn is_waiting(&self, place: Place) -> bool {
        place.is_available(self.at(place))
    }

    /// A place that fits.
    fn find(&self, allowed: Allowed) -> Option<Place> {
        let all = [true, false]
            .into_iter()
            .flat_map(|wrap| (0..self.size).map(move |index| Place::new(index, wrap)));
        let borders = all.filter(|place| self.may_begin(*place));
        borders.take(TRIES_MAX).find(|place| self.fits(*place, allowed))
    }

    /// True when the device may be at `place`: it is done with the descriptor before, or may be,
    /// and not with this one.
    fn may_begin(&self, place: Place) -> bool {
        let before = place.back(1, self.size);
        let is_border = self.is_ahead(place) && !self.is_ahead(before);
        // The descriptor before may be the end of a chain of which we gave back all but the first.
        is_border || self.is_waiting(place) && !self.is_waiting(before)
    }

    /// True when the descriptor at `place` may be one that the device has not come to in this turn.
    fn is_ahead(&self, place: Place) -> bool {
        let flags = self.at(place);
        place.is_available(flags) || place.turn_before().is_used(flags)
    }
}

impl Place {
    /// The same place one turn before, or behind.
    fn turn_before(self) -> Self {
        Self::new(self.index(), !self.wrap())
    }
}

/// Places that are tried: there is one in an honest ring, and what was given back in part makes two
/// more.
const TRIES_MAX: usize = 8;
/// Descriptors that are read to find what the ring looked like, once it is known that it changes
/// meanwhile: four million take some milliseconds.
const LOADS_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests;
