//! Intersections of policies, computed from the policies independently of the closure that the
//! rules are built from (`overlap.rs`), so that a proof detects what the closure lacks.

use crate::control::Control;
use crate::control::roster::PolicyEntry;
use crate::hash::Set;
use crate::region::Region;

/// Intersections of cells of some policies with those of others, one of each.
pub(super) struct Overlaps {
    pub(super) regions: Vec<Region>,
    /// There are more.
    is_cut: bool,
}

impl Overlaps {
    /// The note that there are more, if so.
    pub(super) fn left_out(&self) -> Option<String> {
        self.is_cut.then(|| {
            format!(
                "it has more overlaps with other policies than are examined ({} combinations)",
                self.regions.len()
            )
        })
    }
}

impl Control {
    /// Intersections of these policies with one or more others, up to `most` regions, without the
    /// policies' own regions.
    pub(super) fn overlaps(&self, abouts: &[&PolicyEntry], most: usize) -> Overlaps {
        let own: Vec<_> = abouts.iter().flat_map(|about| about.cells.regions()).collect();
        let (mut found, mut known) = (own.clone(), own.iter().copied().collect::<Set<_>>());
        let is_about = |entry: &PolicyEntry| abouts.iter().any(|about| about.id == entry.id);
        let near = self.policies.near_any(own.iter().copied()).filter(|entry| !is_about(entry));
        let (mut compared, mut is_cut) = (0, false);
        for entry in near {
            compared += found.len() * entry.cells.regions().count();
            let cells = entry.cells.regions();
            let common =
                cells.flat_map(|cell| found.iter().filter_map(move |r| r.intersect(&cell)));
            let common: Vec<_> = common.filter(|region| known.insert(*region)).collect();
            found.extend(common);
            is_cut = found.len() > own.len() + most || compared > MOST_COMPARED;
            if is_cut {
                break;
            }
        }
        let regions = found.into_iter().skip(own.len()).take(most);
        Overlaps { regions: regions.filter(Region::has_sender).collect(), is_cut }
    }
}

/// Maximum intersections while others wait, and in a plan.
pub(super) const SOME_OVERLAPS: usize = 1024;
pub(super) const MOST_OVERLAPS: usize = 4096;
/// Maximum pairs of regions compared: some tens of nanoseconds each.
const MOST_COMPARED: usize = 200_000;
