//! Finding the position of a packed ring whose back end was killed.
//!
//! A back end that is killed loses its position in the ring. A split ring has the used index in
//! memory; for a packed ring, QEMU can only report the position at which the ring was started. But
//! the position can be found from the flags: from the device's position on, there are first the
//! available buffers of this turn, and then, up to the same position, the used ones of the turn
//! before:
//!
//! ```text
//! used  used  used  AVAIL AVAIL AVAIL used' used' used'        ' of the turn before
//!                   ^ position
//! ```
//!
//! Only one position fits, as long as the former back end left no descriptors that look available,
//! and ours does not. Others do: they leave the descriptors behind the first of a chain unchanged.
//! So a reported position is accepted if it fits, or if no other one does; and also if it fits
//! except for such remains, unless it is the start of a ring, which front ends report when they do
//! not know.
//!
//! **The driver continues meanwhile**, as a guest does not wait for its back end. So the flags are
//! read until they are stable, as each changes at most once when the driver makes its buffer
//! available; otherwise they would not be a consistent snapshot, and would fit nowhere. And the
//! driver may be in the middle of a chain, whose first descriptor it writes last (§2.8.6): that one
//! looks as in the turn before, those behind it look available.
//!
//! Everything read here may be forged. The cost is bounded by one turn around the ring for each
//! position tried, and by [`LOADS_MAX`] loads if the flags do not settle; the worst result is a
//! ring that does not continue.

use std::sync::atomic::Ordering;

use super::{NEXT, Place, Tables};

/// The position to continue at: `told`, unless the ring is clearly elsewhere.
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

/// True if there are available chains at `place` and used descriptors behind them: we were killed
/// while giving back a frame, before its first buffers.
pub(super) fn is_cut(tables: &Tables, size: u16, place: Place) -> bool {
    let ring = Flags::of(tables, size);
    let (behind, left) = ring.skip_waiting(place, size);
    left < size && behind.is_used(ring.at(behind))
}

/// A snapshot of the flags of a ring's descriptors.
struct Flags {
    flags: Vec<u16>,
    size: u16,
}

/// Permitted deviations from the layout described above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Allowed {
    Nothing,
    /// A chain that the driver is writing. A chain at the end of a full ring, which we were giving
    /// back when we were killed, may look like that, so this is tried second.
    Unfinished,
    /// The same, and descriptors used in the turn before may look available.
    Leavings,
}

impl Flags {
    fn of(tables: &Tables, size: u16) -> Self {
        // Acquire: a reader that sees the flags of a chain's first descriptor sees those behind it.
        Self::settled(size, |index| tables.descriptor(index).load(Ordering::Acquire).fourth)
    }

    /// Reads the flags repeatedly until two readings are equal. A driver changes each of them at
    /// most once while nothing is given back; a forging driver is not waited for.
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

    /// True if the flags are consistent with a device at `place`.
    fn fits(&self, place: Place, allowed: Allowed) -> bool {
        let (mut at, mut left) = self.skip_waiting(place, self.size);
        // We were killed while giving back the buffers of one frame, whose first is written last.
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

    /// Skips the available chains from `at` on, within `left` descriptors.
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

    /// Skips the chain that the driver is writing at `at`, if any.
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

    /// A position that fits.
    fn find(&self, allowed: Allowed) -> Option<Place> {
        let all = [true, false]
            .into_iter()
            .flat_map(|wrap| (0..self.size).map(move |index| Place::new(index, wrap)));
        let borders = all.filter(|place| self.may_begin(*place));
        borders.take(TRIES_MAX).find(|place| self.fits(*place, allowed))
    }

    /// True if the device may be at `place`: the descriptor before may be done, and this one not.
    fn may_begin(&self, place: Place) -> bool {
        let before = place.back(1, self.size);
        let is_border = self.is_ahead(place) && !self.is_ahead(before);
        // The descriptor before may end a chain of which we gave back all but the first descriptor.
        is_border || self.is_waiting(place) && !self.is_waiting(before)
    }

    /// True if the device may not have reached the descriptor at `place` in this turn.
    fn is_ahead(&self, place: Place) -> bool {
        let flags = self.at(place);
        place.is_available(flags) || place.turn_before().is_used(flags)
    }
}

impl Place {
    /// The same position with the wrap counter of the adjacent turn.
    fn turn_before(self) -> Self {
        Self::new(self.index(), !self.wrap())
    }
}

/// Positions that are tried: an honest ring has one, and a frame that was given back in part adds
/// two.
const TRIES_MAX: usize = 8;
/// Limit of descriptors read for a stable snapshot, if the ring changes meanwhile: four million
/// take some milliseconds.
const LOADS_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests;
