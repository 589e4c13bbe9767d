//! Links by which a switch may still flood, though it shall not any more.
//!
//! A switch floods by what it was told last only when it has confirmed that. Until then, and while
//! nobody can tell it anything, it may flood by what it had before, too.

use std::collections::BTreeMap;

use tapswitch_openflow::PortNo;
use tapswitch_openflow::multipart::FlowStats;

use super::check::id_of;
use super::{Link, Switch};
use crate::Ticket;
use crate::rule::Cookie;
use crate::translate::{Wiring, is_about_floods, read_cable, read_flooding};

/// Ports by which floods may still leave or come in, each until this barrier is reached.
pub(super) type Fading = BTreeMap<PortNo, Option<Ticket>>;

impl Switch {
    /// Whether floods may leave by a port, or be taken there.
    pub(crate) fn may_flood(&self, port: PortNo) -> bool {
        let is_told = self.is_taken_over() && self.wiring.lets_floods(port);
        self.ports.find(port).is_some() && (is_told || self.fading.contains_key(&port))
    }

    /// Whether it has been told, in this connection, what it shall hold.
    fn is_taken_over(&self) -> bool {
        match &self.link {
            Link::Up => true,
            Link::Reading(read) | Link::Read(read) => !read.is_first,
            Link::Down => false,
        }
    }

    /// Ports that are down and were no edges: each comes up shut, for a switch may be there still.
    pub(crate) fn shut_while_down(&self) -> impl Iterator<Item = PortNo> {
        let down = self.ports.iter().filter(|(_, port)| !port.is_up).map(|(number, _)| number);
        let Wiring { links, closed, .. } = &*self.wiring;
        let no_edges = [links, closed, &self.remembered_cables];
        down.filter(move |port| no_edges.iter().any(|ports| ports.contains(port)))
    }

    /// Its ports were for something else before.
    pub(super) fn note_shut(&mut self, before: &Wiring) {
        if self.is_taken_over() {
            let shut = |port: &PortNo| before.lets_floods(*port) && !self.wiring.lets_floods(*port);
            let shut = self.ports.iter().map(|(port, _)| port).filter(shut);
            self.fading.extend(shut.map(|port| (port, None)));
        }
    }

    /// Everything that its ports are for was sent by now.
    pub(super) fn await_floods(&mut self, barrier: Ticket) {
        self.fading.retain(|port, _| !self.wiring.lets_floods(*port));
        self.fading.values_mut().for_each(|at| _ = at.get_or_insert(barrier));
    }

    /// What was sent before the barrier is done, or was refused.
    pub(super) fn confirm_floods(&mut self, barrier: Ticket) {
        let before = self.fading.len();
        let refused = &self.refused;
        self.fading.retain(|port, at| {
            let is_reached = at.is_some_and(|at| at <= barrier);
            let is_refused = is_reached && refused.ids().any(|id| is_about_floods(id, *port));
            if is_refused {
                // It is sent again.
                *at = None;
            }
            is_refused || !is_reached
        });
        self.signals.shut |= self.fading.len() < before;
    }

    /// The connection is about to be lost: what it has done of what it was told is not known.
    pub(super) fn distrust_floods(&mut self) {
        if self.is_taken_over() {
            let told = self.ports.iter().filter(|(port, _)| self.wiring.lets_floods(*port));
            self.fading.extend(told.map(|(port, _)| (port, None)));
        }
        self.fading.values_mut().for_each(|at| *at = None);
    }

    /// It floods by these rules until it is told otherwise.
    pub(super) fn remember_floods(&mut self, rules: &[FlowStats]) {
        let ours: Vec<_> = rules
            .iter()
            .filter(|rule| Cookie(rule.cookie).is_ours())
            .map(|rule| (id_of(rule), rule.instructions.as_slice()))
            .collect();
        self.remembered_cables = ours.iter().filter_map(|(id, _)| read_cable(id)).collect();
        let is_open = read_flooding(&ours);
        let open = self.ports.iter().map(|(port, _)| port).filter(|port| is_open(*port));
        self.fading = open.map(|port| (port, None)).collect();
    }
}
