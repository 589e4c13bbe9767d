//! The rules of a stage: tags are pushed towards the other switch and popped on arrival.

use tapswitch_openflow::{
    Action, FlowMod, FlowModCommand, Instruction, Masked, Match, Oxm, PortNo, VID_PRESENT,
};
use tapswitch_wire::EtherType;

/// Port of a switch to its host.
pub(super) const HOST: PortNo = PortNo(1);
/// Port of a switch to the other switch.
pub(super) const LINK: PortNo = PortNo(2);

/// Rules for either switch, with `tags` tags on the link.
pub(super) fn rules(tags: usize) -> Vec<FlowMod> {
    let tags = &TAGS[..tags];
    let push = |&(tpid, vid)| [Action::PushVlan(tpid), Action::SetField(is(vid))];
    let push = tags.iter().flat_map(push).chain([Action::output(LINK)]);
    let pop = tags.iter().map(|_| Action::PopVlan).chain([Action::output(HOST)]);
    // A popped tag must be matched.
    let outermost = tags.last().map(|&(_, vid)| is(vid));
    let from_link = outermost.into_iter().fold(from(LINK), Match::with);
    vec![rule(from(HOST), push.collect()), rule(from_link, pop.collect())]
}

fn from(port: PortNo) -> Match {
    Match::new().with(Oxm::InPort(port))
}

fn is(vid: u16) -> Oxm {
    Oxm::VlanVid(Masked::exact(VID_PRESENT | vid))
}

fn rule(match_fields: Match, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        match_fields,
        instructions: vec![Instruction::ApplyActions(actions)],
        ..FlowMod::new(FlowModCommand::Add)
    }
}

/// A customer's tag, a provider's around it, and that of a provider's provider.
const TAGS: [(EtherType, u16); MAX_TAGS] =
    [(EtherType::VLAN, 10), (EtherType::SERVICE_VLAN, 100), (EtherType::SERVICE_VLAN, 200)];
/// Maximum number of tags that is measured.
pub(super) const MAX_TAGS: usize = 3;
