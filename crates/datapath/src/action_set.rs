//! The action set that a frame collects on its way through the tables (OpenFlow 1.3.5 §5.10).

use std::mem::discriminant;

use tapswitch_openflow::Action;

/// At most one action of each kind, and one set-field per field.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionSet(Vec<Action>);

impl ActionSet {
    /// Writes actions into the set; each replaces the one of its kind.
    pub(crate) fn merge(&mut self, actions: &[Action]) {
        for action in actions {
            self.0.retain(|present| !same_kind(present, action));
            self.0.push(action.clone());
        }
    }

    /// The actions in the order of execution. A group voids the output.
    pub(crate) fn into_actions(mut self) -> Vec<Action> {
        let has_group = self.0.iter().any(|action| matches!(action, Action::Group(_)));
        self.0.retain(|action| !(has_group && matches!(action, Action::Output { .. })));
        self.0.sort_by_key(rank);
        self.0
    }
}

fn same_kind(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (Action::SetField(a), Action::SetField(b)) => discriminant(a) == discriminant(b),
        _ => discriminant(a) == discriminant(b),
    }
}

/// Position of an action in the order of a set (OpenFlow 1.3.5 §5.10).
pub(crate) fn rank(action: &Action) -> u8 {
    match action {
        Action::CopyTtlIn => 0,
        Action::PopVlan | Action::PopMpls(_) | Action::PopPbb => 1,
        Action::PushMpls(_) => 2,
        Action::PushPbb(_) => 3,
        Action::PushVlan(_) => 4,
        Action::CopyTtlOut => 5,
        Action::DecNwTtl | Action::DecMplsTtl => 6,
        Action::SetField(_) | Action::SetNwTtl(_) | Action::SetMplsTtl(_) => 7,
        Action::SetQueue(_) => 8,
        Action::Group(_) => 9,
        _ => 10,
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_openflow::{GroupId, Oxm, PortNo};
    use tapswitch_wire::{EtherType, MacAddr};

    use super::*;

    fn set(actions: &[&[Action]]) -> Vec<Action> {
        let mut set = ActionSet::default();
        actions.iter().for_each(|actions| set.merge(actions));
        set.into_actions()
    }

    #[test]
    fn the_set_has_its_own_order() {
        let dst = Action::SetField(Oxm::EthDst(MacAddr::ZERO.into()));
        let push = Action::PushVlan(EtherType::VLAN);
        let output = Action::output(PortNo(1));
        assert_eq!(
            set(&[&[output.clone(), dst.clone()], &[push.clone(), Action::PopVlan]]),
            [Action::PopVlan, push, dst, output]
        );
    }

    #[test]
    fn a_later_action_replaces_its_kind_and_fields_count_apart() {
        let field = |last| Action::SetField(Oxm::EthDst(MacAddr([2, 0, 0, 0, 0, last]).into()));
        let src = Action::SetField(Oxm::EthSrc(MacAddr::ZERO.into()));
        assert_eq!(set(&[&[field(1), src.clone()], &[field(2)]]), [src, field(2)]);
    }

    #[test]
    fn a_group_makes_the_output_void() {
        let group = Action::Group(GroupId(1));
        assert_eq!(set(&[&[Action::output(PortNo(1)), group.clone()]]), [group]);
    }
}
