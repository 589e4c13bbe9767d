//! The reserved port NORMAL: stations are learned and frames for them go to their ports.
//!
//! Both MAC tables outlive a case, so each case has stations of its own.

use tapswitch_openflow::{
    Action, Body, FlowMod, FlowModCommand, Instruction, Masked, Match, Oxm, PortNo,
};
use tapswitch_wire::{EtherType, MacAddr};

use crate::case::Case;
use crate::frames::Frame;
use crate::known::Frames;
use crate::random::Random;
use crate::steps::Step;

/// A case in which each frame goes to NORMAL, some with other tags or also to a port.
pub(crate) fn case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let stations = Stations::new(seed);
    let mut messages = vec![rule(1, Match::new(), vec![normal()])];
    for priority in 2..2 + random.pick(&[0, 0, 1, 2]) {
        messages.push(special(&mut random, priority, &stations));
    }
    let tags_max = Frames::of(&messages).tags_max;
    let steps = (0..FRAMES).map(|_| Step::Frame(frame(&mut random, &stations, tags_max)));
    Case { steps: steps.collect(), messages, filters: Vec::new() }
}

/// The stations of a case.
struct Stations([MacAddr; 4]);

impl Stations {
    fn new(seed: u64) -> Self {
        let [.., a, b, c] = seed.to_be_bytes();
        Self([1, 2, 3, 4].map(|number| MacAddr([2, 0x4e, a, b, c, number])))
    }
}

/// A rule for some frames.
fn special(random: &mut Random, priority: u16, Stations(stations): &Stations) -> Body {
    let matching = match random.below(3) {
        0 => Match::new().with(Oxm::InPort(PortNo(random.pick(&[1, 2])))),
        1 => Match::new().with(Oxm::EthDst(Masked::exact(random.pick(stations)))),
        _ => Match::new().with(Oxm::EthSrc(Masked::exact(random.pick(stations)))),
    };
    let tagged = matching.clone().with(Oxm::VlanVid(Masked::with_mask(PRESENT, PRESENT)));
    let customers = matching.clone().with(Oxm::VlanVid(Masked::exact(PRESENT | 5)));
    let output = Action::output(PortNo(3));
    let vid = |vid| Action::SetField(Oxm::VlanVid(Masked::exact(PRESENT | vid)));
    match random.below(5) {
        0 => {
            let pcp = Action::SetField(Oxm::VlanPcp(0));
            let push = Action::PushVlan(EtherType::VLAN);
            rule(priority, matching, vec![push, vid(5), pcp, normal()])
        }
        1 => rule(priority, tagged, vec![Action::PopVlan, normal()]),
        2 => rule(priority, matching, vec![output, normal()]),
        3 => rule(priority, matching, vec![normal(), normal()]),
        _ => rule(priority, customers, vec![vid(6), normal()]),
    }
}

const fn normal() -> Action {
    Action::output(PortNo::NORMAL)
}

fn rule(priority: u16, match_fields: Match, actions: Vec<Action>) -> Body {
    Body::FlowMod(FlowMod {
        priority,
        match_fields,
        instructions: vec![Instruction::ApplyActions(actions)],
        ..FlowMod::new(FlowModCommand::Add)
    })
}

fn frame(random: &mut Random, Stations(stations): &Stations, tags_max: usize) -> Frame {
    let dst = if random.chance(30) { random.pick(&GROUPS) } else { random.pick(stations) };
    let src = if random.chance(5) { GROUPS[1] } else { random.pick(stations) };
    let mut bytes = [dst.0, src.0].concat();
    let tags = random.pick(&TAGS).chunks(2).take(tags_max).flatten();
    bytes.extend(tags.flat_map(|half| half.to_be_bytes()));
    bytes.extend([0x12, 0x34]);
    bytes.resize(LEN, 0);
    Frame { port: random.pick(&[1, 2, 3]), bytes }
}

/// `OFPVID_PRESENT`.
const PRESENT: u16 = 0x1000;
/// Frames per case.
const FRAMES: usize = 16;
/// Also of those whose tags are gone.
const LEN: usize = 72;
/// Group addresses: for all, any, and those that bridges do not forward (IEEE 802.1Q-2022 §8.6.3),
/// and the first one behind these.
const GROUPS: [MacAddr; 6] = [
    MacAddr([0xff; 6]),
    MacAddr([1, 0, 0x5e, 0, 0, 0xfb]),
    MacAddr([1, 0x80, 0xc2, 0, 0, 0]),
    MacAddr([1, 0x80, 0xc2, 0, 0, 2]),
    MacAddr([1, 0x80, 0xc2, 0, 0, 0xf]),
    MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]),
];
/// Tags in front of the type, the outermost first. For Open vSwitch, VLANs with the same number are
/// the same whatever their tag; ours has separate ones.
const TAGS: [&[u16]; 6] =
    [&[], &[], &[0x8100, 5], &[0x8100, 6], &[0x88a8, 0x6007], &[0x88a8, 7, 0x8100, 5]];
