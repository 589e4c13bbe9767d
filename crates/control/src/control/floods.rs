//! Floods make no circle, also while the tree on which they go becomes another one.
//!
//! Each switch does in its own time what it is told, and some are away. So a link comes to those by
//! which floods go only when it closes no circle with any by which they may still go: one that left
//! the tree counts until one of its ends has confirmed that floods neither leave nor come in there.
//! Where nothing left that matters, nobody waits. See ADR 30.
//!
//! A link both of whose ends are away cannot leave: the tree is built around those.

use std::collections::BTreeSet;

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::fabric::{Graph, Parts};
use crate::place::Place;

/// The links by which floods go.
#[derive(Clone, Debug, Default)]
pub(super) struct Floods {
    /// Those by which they may go, by what switches were told and by what they may still hold.
    open: BTreeSet<Cable>,
    /// Those of them that are not on the tree.
    fading: BTreeSet<Cable>,
    /// Ends of links that are on the tree, and would close a circle with those that fade.
    barred: BTreeSet<Place>,
    /// Switches that confirmed something since this was looked at.
    news: BTreeSet<DatapathId>,
    /// Whether links faded since those that wait for that were looked at.
    has_faded: bool,
}

/// A link, the lower end first.
type Cable = (Place, Place);

impl Floods {
    /// Whether floods must not take this end of a link yet, though it is on the tree.
    pub(super) fn is_barred(&self, end: Place) -> bool {
        self.barred.contains(&end)
    }
}

impl Control {
    /// The tree to flood on: that of the graph, but with those links by which floods go for as long
    /// as the switches at both ends are away.
    pub(super) fn find_tree(&self, graph: &Graph) -> BTreeSet<Place> {
        let (tree, cables, open) = (graph.tree(), self.cables(), self.open_cables());
        let is_away = |end: Place| self.fabric.as_ref().is_some_and(|it| it.is_frozen(end.switch));
        let stuck = open.iter().filter(|(a, b)| is_away(*a) && is_away(*b));
        let wanted = cables.iter().filter(|(a, _)| tree.contains(a));
        let mut parts = Parts::default();
        let joined = stuck.chain(wanted).filter(|cable| parts.join(**cable));
        joined.filter(|cable| cables.contains(cable)).flat_map(|(a, b)| [*a, *b]).collect()
    }

    /// Finds out by which links of the tree floods may go now.
    pub(super) fn open_links(&mut self) {
        let (mut open, mut cables) = (self.open_cables(), self.cables());
        cables.retain(|(a, _)| self.tree.contains(a));
        let mut parts = Parts::default();
        open.iter().for_each(|cable| _ = parts.join(*cable));
        let fading = &open - &cables;
        let (new, barred): (Vec<_>, Vec<_>) =
            (&cables - &open).into_iter().partition(|cable| parts.join(*cable));
        open.extend(new);
        let barred = barred.into_iter().flat_map(|(a, b)| [a, b]).collect();
        *self.floods = Floods { open, fading, barred, ..Floods::default() };
    }

    /// A switch confirmed that floods do not go by some port any more.
    pub(super) fn note_shut(&mut self, switch: DatapathId) {
        if !self.floods.barred.is_empty() {
            self.floods.news.insert(switch);
        }
    }

    /// Opens links of the tree when those have faded that they wait for: all at once if none is
    /// left, else no more often than links are looked at.
    pub(super) fn open_faded(&mut self) {
        self.note_faded();
        let floods = &self.floods;
        if !floods.has_faded || !floods.fading.is_empty() && self.now < self.rewire_at {
            return;
        }
        let before = floods.barred.clone();
        self.open_links();
        if !self.floods.fading.is_empty() {
            self.rewire_at = self.now.plus(self.rewire_pause);
        }
        let changed = before.symmetric_difference(&self.floods.barred);
        let switches: BTreeSet<_> = changed.map(|end| end.switch).collect();
        switches.into_iter().for_each(|id| self.wire(id));
    }

    fn note_faded(&mut self) {
        if self.floods.news.is_empty() {
            return;
        }
        let news = std::mem::take(&mut self.floods.news);
        let is_told_of = |(a, b): &Cable| news.contains(&a.switch) || news.contains(&b.switch);
        let told_of = self.floods.fading.iter().filter(|cable| is_told_of(cable));
        let faded: Vec<_> = told_of.filter(|cable| !self.is_open(**cable)).copied().collect();
        self.floods.has_faded |= !faded.is_empty();
        faded.iter().for_each(|cable| _ = self.floods.fading.remove(cable));
    }

    /// This is a trial: floods go as they do now until it is over.
    pub(super) fn wait_for_no_links(&mut self) {
        if !self.floods.barred.is_empty() {
            self.floods.barred.clear();
        }
    }

    /// The links by which floods may go now.
    fn open_cables(&self) -> BTreeSet<Cable> {
        let mut open = &self.floods.open | &self.cables();
        open.retain(|cable| self.is_open(*cable));
        open
    }

    /// Whether floods may go by a link: at both ends, for all that is known of switches that are
    /// not remembered.
    fn is_open(&self, (a, b): Cable) -> bool {
        [a, b].iter().all(|end| {
            self.switches.get(&end.switch).is_none_or(|switch| switch.may_flood(end.port))
        })
    }

    /// All links between two switches.
    fn cables(&self) -> BTreeSet<Cable> {
        let links = self.fabric.iter().flat_map(|fabric| fabric.links());
        links.filter(|(a, b, _)| a.switch != b.switch).map(|(a, b, _)| (a, b)).collect()
    }
}
