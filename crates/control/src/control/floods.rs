//! Floods form no loop, also while the spanning tree changes.
//!
//! Each switch applies changes in its own time, and some are disconnected. So a link of the new
//! tree is opened only if it closes no cycle with links that may still carry floods: a link that
//! has left the tree counts until one of its ends has confirmed that it neither sends nor accepts
//! floods there. If no such link matters, nothing waits. See ADR 30.
//!
//! A link with both ends disconnected cannot be closed: the tree is built around such links.

use std::collections::BTreeSet;

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::fabric::{Graph, Parts};
use crate::place::Place;

/// Links that carry floods.
#[derive(Clone, Debug, Default)]
pub(super) struct Floods {
    /// Links that may carry floods, by what switches were sent and by what they may still have.
    open: BTreeSet<Cable>,
    /// Of those, the links outside the tree.
    fading: BTreeSet<Cable>,
    /// Ends of tree links that would close a cycle with the fading ones.
    barred: BTreeSet<Place>,
    /// Switches that have confirmed something since the last check.
    news: BTreeSet<DatapathId>,
    /// Whether links have faded since the waiting ones were last checked.
    has_faded: bool,
}

/// A link, lower end first.
type Cable = (Place, Place);

impl Floods {
    /// Whether this end of a tree link may not carry floods yet.
    pub(super) fn is_barred(&self, end: Place) -> bool {
        self.barred.contains(&end)
    }
}

impl Control {
    /// The flood tree: that of the graph, but including open links between switches that are both
    /// disconnected.
    pub(super) fn find_tree(&self, graph: &Graph) -> BTreeSet<Place> {
        let (tree, cables, open) = (graph.tree(), self.cables(), self.open_cables());
        let is_away = |end: Place| self.fabric.as_ref().is_some_and(|it| it.is_frozen(end.switch));
        let stuck = open.iter().filter(|(a, b)| is_away(*a) && is_away(*b));
        let wanted = cables.iter().filter(|(a, _)| tree.contains(a));
        let mut parts = Parts::default();
        let joined = stuck.chain(wanted).filter(|cable| parts.join(**cable));
        joined.filter(|cable| cables.contains(cable)).flat_map(|(a, b)| [*a, *b]).collect()
    }

    /// Determines which tree links may carry floods now.
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

    /// A switch has confirmed that a port no longer carries floods.
    pub(super) fn note_shut(&mut self, switch: DatapathId) {
        if !self.floods.barred.is_empty() {
            self.floods.news.insert(switch);
        }
    }

    /// Opens tree links when the links that they wait for have faded: at once if none is left,
    /// otherwise at most as often as links are handled.
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

    /// In a trial: floods stay as they are.
    pub(super) fn wait_for_no_links(&mut self) {
        if !self.floods.barred.is_empty() {
            self.floods.barred.clear();
        }
    }

    /// Links that may carry floods now.
    fn open_cables(&self) -> BTreeSet<Cable> {
        let mut open = &self.floods.open | &self.cables();
        open.retain(|cable| self.is_open(*cable));
        open
    }

    /// Whether a link may carry floods: at both ends, assuming so for forgotten switches.
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
