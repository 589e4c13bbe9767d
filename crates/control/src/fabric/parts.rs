//! Connected parts of the fabric, as links are added one by one.

use std::collections::BTreeMap;

use tapswitch_openflow::DatapathId;

use crate::place::Place;

/// Switches in disjoint sets (union-find).
#[derive(Debug, Default)]
pub(crate) struct Parts(BTreeMap<DatapathId, DatapathId>);

impl Parts {
    /// Adds a link. Returns false if its ends were connected already, so that it closes a cycle.
    pub(crate) fn join(&mut self, (a, b): (Place, Place)) -> bool {
        let (a, b) = (self.find(a.switch), self.find(b.switch));
        let is_new = a != b;
        if is_new {
            self.0.insert(a, b);
        }
        is_new
    }

    /// Whether the ends of a link are not connected.
    pub(crate) fn are_apart(&mut self, (a, b): (Place, Place)) -> bool {
        self.find(a.switch) != self.find(b.switch)
    }

    /// Representative of the switch's part.
    fn find(&mut self, mut at: DatapathId) -> DatapathId {
        while let Some(&next) = self.0.get(&at) {
            if let Some(&after) = self.0.get(&next) {
                // Path halving: shortens the path for the next lookup.
                self.0.insert(at, after);
            }
            at = next;
        }
        at
    }
}
