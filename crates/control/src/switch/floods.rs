//! Ports by which a switch may still flood although they have been closed.
//!
//! A switch is certain to flood by the latest rules only after it has confirmed them. Until then,
//! and while it is unreachable, it may also flood by its former rules.

use std::collections::BTreeMap;

use tapswitch_openflow::PortNo;
use tapswitch_openflow::multipart::FlowStats;

use super::check::id_of;
use super::{Link, Switch};
use crate::Ticket;
use crate::rule::Cookie;
use crate::translate::{Wiring, is_about_floods, read_cable, read_flooding};

/// Ports by which floods may still leave or enter, each until its barrier is answered.
pub(super) type Fading = BTreeMap<PortNo, Option<Ticket>>;

impl Switch {
    /// Whether floods may leave by a port, or be accepted there.
    pub(crate) fn may_flood(&self, port: PortNo) -> bool {
        let is_told = self.is_taken_over() && self.wiring.lets_floods(port);
        self.ports.find(port).is_some() && (is_told || self.fading.contains_key(&port))
    }

    /// Whether it has been sent the desired state in this connection.
    fn is_taken_over(&self) -> bool {
        match &self.link {
            Link::Up => true,
            Link::Reading(read) | Link::Read(read) => !read.is_first,
            Link::Down => false,
        }
    }

    /// Ports that are down and were not edges: they come up closed, as a switch may still be there.
    pub(crate) fn shut_while_down(&self) -> impl Iterator<Item = PortNo> {
        let down = self.ports.iter().filter(|(_, port)| !port.is_up).map(|(number, _)| number);
        let Wiring { links, closed, .. } = &*self.wiring;
        let no_edges = [links, closed, &self.remembered_cables];
        down.filter(move |port| no_edges.iter().any(|ports| ports.contains(port)))
    }

    /// The roles of its ports have changed from `before`.
    pub(super) fn note_shut(&mut self, before: &Wiring) {
        if self.is_taken_over() {
            let shut = |port: &PortNo| before.lets_floods(*port) && !self.wiring.lets_floods(*port);
            let shut = self.ports.iter().map(|(port, _)| port).filter(shut);
            self.fading.extend(shut.map(|port| (port, None)));
        }
    }

    /// All port rules have been sent before this barrier.
    pub(super) fn await_floods(&mut self, barrier: Ticket) {
        self.fading.retain(|port, _| !self.wiring.lets_floods(*port));
        self.fading.values_mut().for_each(|at| _ = at.get_or_insert(barrier));
    }

    /// Everything before the barrier took effect or was rejected.
    pub(super) fn confirm_floods(&mut self, barrier: Ticket) {
        let before = self.fading.len();
        let refused = &self.refused;
        self.fading.retain(|port, at| {
            let is_reached = at.is_some_and(|at| at <= barrier);
            let is_refused = is_reached && refused.ids().any(|id| is_about_floods(id, *port));
            if is_refused {
                // It will be sent again.
                *at = None;
            }
            is_refused || !is_reached
        });
        self.signals.shut |= self.fading.len() < before;
    }

    /// The connection is being lost: it is unknown which messages took effect.
    pub(super) fn distrust_floods(&mut self) {
        if self.is_taken_over() {
            let told = self.ports.iter().filter(|(port, _)| self.wiring.lets_floods(*port));
            self.fading.extend(told.map(|(port, _)| (port, None)));
        }
        self.fading.values_mut().for_each(|at| *at = None);
    }

    /// It floods by these rules until it is sent others.
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
