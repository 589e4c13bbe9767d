//! Which switches are linked, as links are added one by one.

use std::collections::BTreeMap;

use tapswitch_openflow::DatapathId;

use crate::place::Place;

/// Switches in disjoint sets (union-find).
#[derive(Debug, Default)]
pub(crate) struct Parts(BTreeMap<DatapathId, DatapathId>);

impl Parts {
    /// Adds a link. Returns whether its ends were not linked yet: else it closes a circle.
    pub(crate) fn join(&mut self, (a, b): (Place, Place)) -> bool {
        let (a, b) = (self.find(a.switch), self.find(b.switch));
        let is_new = a != b;
        if is_new {
            self.0.insert(a, b);
        }
        is_new
    }

    /// Whether the ends of a link are not linked.
    pub(crate) fn are_apart(&mut self, (a, b): (Place, Place)) -> bool {
        self.find(a.switch) != self.find(b.switch)
    }

    /// The switch that stands for all of its part.
    fn find(&mut self, mut at: DatapathId) -> DatapathId {
        while let Some(&next) = self.0.get(&at) {
            if let Some(&after) = self.0.get(&next) {
                // Whoever looks next has half the way.
                self.0.insert(at, after);
            }
            at = next;
        }
        at
    }
}
