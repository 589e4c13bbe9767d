//! Which forks a switch supports, according to its group features.
//!
//! It is assumed to support all until it reports otherwise. Without support, or without room for
//! more groups, frames take one of the paths, and the controller reroutes.

use tapswitch_openflow::multipart::{GroupCapabilities, GroupFeatures};
use tapswitch_openflow::{ErrorKind, GroupType};

use super::Switch;
use crate::Event;
use crate::exit::{ForkKind, Route};
use crate::group::GroupKey;

/// Support for forks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forking {
    /// Maximum number of forks of each kind.
    max_balance: usize,
    max_fail_over: usize,
    /// Whether a fork was left out, and this was reported.
    is_told: bool,
}

impl Default for Forking {
    fn default() -> Self {
        Self { max_balance: usize::MAX, max_fail_over: usize::MAX, is_told: false }
    }
}

impl Forking {
    /// Support according to the switch's group features.
    pub(super) fn of_features(features: &GroupFeatures) -> Self {
        let can = |capability| features.capabilities.contains(capability);
        let max = |group_type: GroupType| {
            let index = group_type as usize;
            let is_known = features.types & 1 << index != 0 && can(GroupCapabilities::CHAINING);
            let max = features.max_groups.get(index).copied().filter(|_| is_known);
            usize::try_from(max.unwrap_or_default()).unwrap_or(usize::MAX)
        };
        let balances = can(GroupCapabilities::SELECT_LIVENESS);
        Self {
            max_balance: if balances { max(GroupType::Select) } else { 0 },
            max_fail_over: max(GroupType::FastFailover),
            is_told: false,
        }
    }

    /// It supports no groups, or does not report its features.
    pub(super) const NONE: Self = Self { max_balance: 0, max_fail_over: 0, is_told: false };

    /// Whether it supports none.
    pub(super) const fn is_none(self) -> bool {
        self.max_balance == 0 && self.max_fail_over == 0
    }

    const fn max(self, kind: ForkKind) -> usize {
        match kind {
            ForkKind::Balance => self.max_balance,
            ForkKind::FailOver => self.max_fail_over,
        }
    }
}

impl Switch {
    /// The route with the alternatives that the switch supports.
    pub(super) fn allowed(&mut self, route: Route) -> Route {
        let Some(fork) = route.fork.clone() else { return route };
        let max = self.forking.max(fork.kind);
        if self.desired.fork_count() < max || max > 0 && self.desired.uses(&GroupKey::forking(fork))
        {
            return route;
        }
        if !self.forking.is_told {
            self.forking.is_told = true;
            let remedy = "frames to hosts on other switches use one of several paths, and after a \
                          link failure wait for the controller";
            let reason =
                format!("a group that selects one of several paths (room for {max}): {remedy}");
            self.signals.events.push(Event::RuleRefused { switch: self.id(), reason });
        }
        route.single()
    }

    /// The switch rejected a fork, so it gets none any more.
    pub(super) fn give_up_forks(&mut self, kind: ErrorKind) {
        let reason = format!(
            "a group that selects one of several paths: {kind}; frames to hosts on other switches \
             use one of them"
        );
        self.signals.events.push(Event::RuleRefused { switch: self.id(), reason });
        self.forking = Forking { is_told: true, ..Forking::NONE };
        for (key, route) in self.ways.iter().collect::<Vec<_>>() {
            if route.fork.is_some() {
                self.set_way(key, Some(route));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_switch_cannot_do_is_not_asked_for() {
        let all = GroupCapabilities::all();
        let features =
            GroupFeatures { types: 0b1111, capabilities: all, max_groups: [9; 4], actions: [0; 4] };
        let max = |features: GroupFeatures| {
            let forking = Forking::of_features(&features);
            (forking.max(ForkKind::Balance), forking.max(ForkKind::FailOver))
        };
        assert_eq!(max(features), (9, 9));
        assert_eq!(max(GroupFeatures { types: 0b0011, ..features }), (9, 0));
        let without = |capability| GroupFeatures { capabilities: all - capability, ..features };
        assert_eq!(max(without(GroupCapabilities::CHAINING)), (0, 0));
        assert_eq!(max(without(GroupCapabilities::SELECT_LIVENESS)), (0, 9));
        assert_eq!(max(GroupFeatures::default()), (0, 0));
    }
}
