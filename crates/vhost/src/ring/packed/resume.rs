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
//! Everything read here may be a lie. It costs one turn around the ring for each place that is
//! tried, and the worst that comes of it is a ring that does not go on.

use super::{NEXT, Place, Tables};

/// Where the ring goes on: at `told`, unless it clearly stands elsewhere.
pub(super) fn place(tables: &Tables, size: u16, told: Place) -> Place {
    let ring = Flags { tables, size };
    if ring.fits(told, Leavings::None) {
        return told;
    }
    let is_start = told == Place::new(0, true);
    match ring.find() {
        Some(found) if is_start || !ring.fits(told, Leavings::Some) => found,
        _ => told,
    }
}

/// True when chains wait at `place` and what is behind them was given back: but for the first
/// buffers, a frame was when we were killed.
pub(super) fn is_cut(tables: &Tables, size: u16, place: Place) -> bool {
    let ring = Flags { tables, size };
    let (behind, left) = ring.skip_waiting(place, size);
    left < size && behind.is_used(ring.at(behind))
}

/// The flags of a ring's descriptors.
#[derive(Clone, Copy)]
struct Flags<'a> {
    tables: &'a Tables,
    size: u16,
}

/// Whether what was used in the turn before may look available.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leavings {
    None,
    Some,
}

impl Flags<'_> {
    fn at(self, place: Place) -> u16 {
        self.tables.descriptor(place.index()).fourth()
    }

    /// True when all flags are as they are when the device is at `place`.
    fn fits(self, place: Place, leavings: Leavings) -> bool {
        let (mut at, mut left) = self.skip_waiting(place, self.size);
        // We were killed while we gave back the buffers of one frame, the first one last.
        if left < self.size {
            while left > 0 && at.is_used(self.at(at)) {
                (at, left) = (at.forward(1, self.size), left - 1);
            }
            (at, left) = self.skip_waiting(at, left);
        }
        (0..left).all(|count| {
            let before = at.forward(count, self.size).turn_before();
            let flags = self.at(before);
            before.is_used(flags) || leavings == Leavings::Some && before.is_available(flags)
        })
    }

    /// From `at` on, behind the chains that wait, of `left` places.
    fn skip_waiting(self, mut at: Place, mut left: u16) -> (Place, u16) {
        while left > 0 && at.is_available(self.at(at)) {
            let mut slots = 1;
            while slots < left && self.at(at.forward(slots - 1, self.size)) & NEXT != 0 {
                slots += 1;
            }
            (at, left) = (at.forward(slots, self.size), left - slots);
        }
        (at, left)
    }

    /// A place that fits.
    fn find(self) -> Option<Place> {
        let all = [true, false]
            .into_iter()
            .flat_map(|wrap| (0..self.size).map(move |index| Place::new(index, wrap)));
        let borders = all.filter(|place| self.may_begin(*place));
        borders.take(TRIES_MAX).find(|place| self.fits(*place, Leavings::None))
    }

    /// True when the device may be at `place`: it is done with the descriptor before, or may be,
    /// and not with this one.
    fn may_begin(self, place: Place) -> bool {
        let before = place.back(1, self.size);
        let is_border = self.is_ahead(place) && !self.is_ahead(before);
        // The descriptor before may be the end of a chain of which we gave back all but the first.
        is_border || place.is_available(self.at(place)) && !before.is_available(self.at(before))
    }

    /// True when the descriptor at `place` may be one that the device has not come to in this turn.
    fn is_ahead(self, place: Place) -> bool {
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

#[cfg(test)]
mod tests;
