//! Layered sets of frames, as rules of different priorities express them.
//!
//! A cell says whether its frames belong to the set, unless a cell of a higher level says
//! otherwise. Invariant: of all cells that contain a frame, those of the highest level agree, and
//! decide.
//!
//! **Construction.** A set is a union of regions with exceptions ([`Frames`]). Without exceptions
//! the regions are the cells, all of one level. Otherwise the regions and exceptions of different
//! terms are closed under intersection, so that each frame has an innermost one, which decides. A
//! cell inside others with the same verdict is omitted: all cells between it and the innermost
//! remaining one have that verdict. (Two exceptions of one term need no intersection: both
//! exclude.)

use std::collections::HashSet;

use tapswitch_wire::FlowKey;

use crate::region::frames::{Term, Work};
use crate::region::{Frames, MAX_SIZE, Region, TooMany};

/// A layered set of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cells {
    /// Sorted; no two have the same region.
    cells: Vec<Cell>,
}

/// A region that belongs to a set, or does not, unless a cell of a higher level says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    region: Region,
    /// At least 1.
    level: u16,
    is_in: bool,
}

impl Cells {
    /// The layers of a set.
    pub(crate) fn new(frames: &Frames) -> Result<Self, TooMany> {
        let terms = frames.terms();
        if terms.iter().all(|term| term.except.is_empty()) {
            return Ok(Self::union(terms.iter().map(|term| term.region)));
        }
        let regions = close(terms)?;
        // Construction, the verdict of each, and their nesting take this many comparisons for each.
        let work = Work::default().plus(regions.len().max(frames.size()).saturating_pow(2) * 5)?;
        let cells = regions.iter().map(|region| Cell::of(*region, terms));
        let mut cells = needed(&cells.collect::<Vec<_>>(), work)?;
        number(&mut cells);
        cells.sort_unstable();
        Ok(Self { cells })
    }

    /// A union of regions, without those inside others.
    pub(crate) fn union(regions: impl IntoIterator<Item = Region>) -> Self {
        let cell = |region| Cell { region, level: 1, is_in: true };
        Self { cells: regions.into_iter().map(cell).collect() }
    }

    /// Whether it is a union of regions, without exceptions.
    pub(crate) fn is_plain(&self) -> bool {
        self.cells.iter().all(|cell| cell.level == 1 && cell.is_in)
    }

    /// The regions of all cells.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> {
        self.cells.iter().map(|cell| cell.region)
    }

    /// Regions of the cells that include their frames, unless a cell of a higher level excludes
    /// them.
    pub(crate) fn included(&self) -> impl Iterator<Item = Region> {
        self.cells.iter().filter(|cell| cell.is_in).map(|cell| cell.region)
    }

    /// The regions for which `is_kept` holds. The set must be plain: without a region its
    /// exceptions would have no meaning.
    pub(crate) fn only(&self, is_kept: impl Fn(&Region) -> bool) -> Self {
        debug_assert!(self.is_plain(), "{self:?}");
        Self { cells: self.cells.iter().filter(|cell| is_kept(&cell.region)).copied().collect() }
    }

    /// The level of the highest cell that covers a region; 0 if none does.
    pub(crate) fn level_in(&self, region: &Region) -> u16 {
        self.around(region).map(|cell| cell.level).max().unwrap_or(0)
    }

    /// Whether the highest cell that covers a region includes it.
    pub(crate) fn includes(&self, region: &Region) -> bool {
        self.around(region)
            .max_by_key(|cell| (cell.level, cell.is_in))
            .is_some_and(|cell| cell.is_in)
    }

    /// Whether a frame with these headers is in the set.
    pub(crate) fn contains(&self, key: &FlowKey) -> bool {
        self.holds_where(|region| region.contains(key))
    }

    /// Whether the set contains a frame that is in exactly the regions given by `is_inside`.
    pub(crate) fn holds_where(&self, is_inside: impl Fn(&Region) -> bool) -> bool {
        let around = self.cells.iter().filter(|cell| is_inside(&cell.region));
        around.max_by_key(|cell| cell.level).is_some_and(|cell| cell.is_in)
    }

    fn around(&self, region: &Region) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.region.covers(region))
    }
}

impl Cell {
    /// A region of the closure.
    fn of(region: Region, terms: &[Term]) -> Self {
        let mut around = terms.iter().filter(|term| term.region.covers(&region));
        let is_in = around.any(|term| !term.except.iter().any(|except| except.covers(&region)));
        Self { region, level: 1, is_in }
    }
}

/// All intersections of regions of different terms.
fn close(terms: &[Term]) -> Result<Vec<Region>, TooMany> {
    let mut regions: HashSet<Region> = HashSet::new();
    for Term { region, except } in terms {
        let own = [region].into_iter().chain(except);
        let overlaps = own.clone().flat_map(|own| regions.iter().filter_map(|r| own.intersect(r)));
        let overlaps: HashSet<_> = overlaps.collect();
        regions.extend(overlaps.into_iter().chain(own.copied()));
        let needed = regions.len();
        if needed > MAX_SIZE {
            return Err(TooMany::Regions { needed });
        }
    }
    Ok(regions.into_iter().collect())
}

/// The cells whose verdict differs from that of a directly enclosing one. With deep nesting,
/// finding the directly enclosing ones is the most expensive step.
fn needed(cells: &[Cell], mut work: Work) -> Result<Vec<Cell>, TooMany> {
    let mut needed = Vec::new();
    for cell in cells {
        let around: Vec<_> = cells.iter().filter(|other| is_around(other, cell)).collect();
        work = work.plus(around.len().saturating_pow(2))?;
        let is_next = |next: &&&Cell| !around.iter().any(|other| is_around(next, other));
        let mut next = around.iter().filter(is_next);
        let is_needed = match around.is_empty() {
            true => cell.is_in,
            false => next.any(|next| next.is_in != cell.is_in),
        };
        needed.extend(is_needed.then_some(*cell));
    }
    Ok(needed)
}

/// Assigns the lowest levels that put each cell above those around it.
fn number(cells: &mut [Cell]) {
    let all = cells.to_vec();
    // A cell's enclosing cells have fewer enclosing cells themselves.
    let depth = |cell: &Cell| all.iter().filter(|other| is_around(other, cell)).count();
    cells.sort_by_cached_key(depth);
    for at in 0..cells.len() {
        let (before, rest) = cells.split_at_mut(at);
        let Some(cell) = rest.first_mut() else { return };
        let around = before.iter().filter(|other| is_around(other, cell));
        cell.level = 1 + around.map(|other| other.level).max().unwrap_or(0);
    }
}

fn is_around(outer: &Cell, inner: &Cell) -> bool {
    outer.region != inner.region && outer.region.covers(&inner.region)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapswitch_wire::FlowKey;

    use super::*;
    use crate::family::Family;
    use crate::region::frames_for_tests::{expr, keys};

    /// Verdict of the highest cells of a frame, which must agree.
    fn contains(cells: &Cells, key: &FlowKey) -> bool {
        let around: Vec<_> = cells.cells.iter().filter(|cell| cell.region.contains(key)).collect();
        let highest = around.iter().map(|cell| cell.level).max();
        let mut last = around.iter().filter(|cell| Some(cell.level) == highest);
        let is_in = last.next().is_some_and(|cell| cell.is_in);
        assert!(last.all(|cell| cell.is_in == is_in), "{around:?}");
        is_in
    }

    proptest! {
        #[test]
        fn the_highest_cells_of_a_frame_say_what_is_true(expr in expr()) {
            let Ok(frames) = expr.frames() else { return Ok(()) };
            let Ok(cells) = Cells::new(&frames) else { return Ok(()) };
            prop_assert_eq!(&Cells::new(&frames).unwrap(), &cells, "the same each time");
            for key in keys() {
                prop_assert_eq!(contains(&cells, &key), expr.contains(&key), "{:?}", cells);
            }
        }
    }

    #[test]
    fn many_cells_in_many_others_are_refused_in_time() {
        let prefix = |len: u8| Some(format!("0.0.0.0/{len}").parse().unwrap());
        let lens = || (0..=32).flat_map(|src| (0..=32).map(move |dst| (src, dst)));
        let cells: Vec<_> = [None, Some(5)]
            .into_iter()
            .flat_map(|proto| lens().map(move |lens| (proto, lens)))
            .map(|(proto, (src, dst))| {
                let (src_ip, dst_ip) = (prefix(src), prefix(dst));
                let family = Some(Family::Ipv4);
                let region = Region { family, src_ip, dst_ip, proto, ..Region::default() };
                Cell { region, level: 1, is_in: (src + dst) % 2 == 0 }
            })
            .collect();
        assert_eq!(needed(&cells, Work::default()), Err(TooMany::Pairs));
        let few: Vec<_> = cells.into_iter().step_by(16).collect();
        assert!(needed(&few, Work::default()).is_ok());
    }

    #[test]
    fn an_exception_is_one_cell_above() {
        let ip = Region { family: Some(Family::Ipv4), ..Region::default() };
        let tcp = Region { proto: Some(6), ..ip };
        let (to, from) =
            (Region { dst_port: Some(22), ..tcp }, Region { src_port: Some(22), ..tcp });
        let cells = Cells::new(&Frames::without(ip, [to, from]).unwrap()).unwrap();
        let levels: Vec<_> = cells.cells.iter().map(|cell| (cell.level, cell.is_in)).collect();
        assert_eq!(levels, [(1, true), (2, false), (2, false)]);
        assert_eq!((cells.level_in(&tcp), cells.includes(&tcp)), (1, true));
        assert_eq!((cells.level_in(&to), cells.includes(&to)), (2, false));
        assert_eq!(cells.level_in(&Region::default()), 0);
    }
}
