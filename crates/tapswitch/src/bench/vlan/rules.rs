//! The rules of a stage: tags are pushed towards the other switch and popped where they come out.

use tapswitch_openflow::{
    Action, FlowMod, FlowModCommand, Instruction, Masked, Match, Oxm, PortNo, VID_PRESENT,
};
use tapswitch_wire::EtherType;

/// The port of a switch that its host is behind.
pub(super) const HOST: PortNo = PortNo(1);
/// The port of a switch that the other switch is behind.
pub(super) const LINK: PortNo = PortNo(2);

/// Rules for either switch, with `tags` tags on the link.
pub(super) fn rules(tags: usize) -> Vec<FlowMod> {
    let push = TAGS[..tags].iter().flat_map(|&(tpid, vid)| {
        let vid = Oxm::VlanVid(Masked::exact(VID_PRESENT | vid));
        [Action::PushVlan(tpid), Action::SetField(vid)]
    });
    let pop = std::iter::repeat_n(Action::PopVlan, tags);
    let push = push.chain([Action::output(LINK)]).collect();
    vec![rule(HOST, push), rule(LINK, pop.chain([Action::output(HOST)]).collect())]
}

fn rule(in_port: PortNo, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        match_fields: Match::new().with(Oxm::InPort(in_port)),
        instructions: vec![Instruction::ApplyActions(actions)],
        ..FlowMod::new(FlowModCommand::Add)
    }
}

/// A customer's tag, a provider's around it, and that of a provider's provider.
const TAGS: [(EtherType, u16); MAX_TAGS] =
    [(EtherType::VLAN, 10), (EtherType::SERVICE_VLAN, 100), (EtherType::SERVICE_VLAN, 200)];
/// Most tags that are measured.
pub(super) const MAX_TAGS: usize = 3;
