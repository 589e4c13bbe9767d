//! The events of a case: received frames, packet-outs, changes of rules, and link changes.

use std::fmt;

use tapswitch_openflow::{Body, PacketOut, PortConfig};

use crate::frames::Frame;
use crate::known::{self, Frames};
use crate::random::Random;
use crate::text::hex;

#[derive(Clone)]
pub(crate) enum Step {
    Frame(Frame),
    /// A packet-out.
    Packet(PacketOut),
    /// A change of rules or groups.
    Change(Body),
    /// The cable of a port is unplugged or plugged in.
    Cable {
        port: u32,
        is_in: bool,
    },
    /// A port is configured to pass nothing, or everything.
    Port {
        port: u32,
        config: PortConfig,
    },
}

impl Step {
    /// The controller's message in the step that is the same for both switches.
    pub(crate) fn body(&self) -> Option<Body> {
        match self {
            Self::Packet(packet) => Some(Body::PacketOut(packet.clone())),
            Self::Change(body) => Some(body.clone()),
            Self::Frame(_) | Self::Cable { .. } | Self::Port { .. } => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(Frame { port, bytes }) => {
                write!(f, "frame into port {port}: {}", hex(bytes))
            }
            Self::Packet(packet) => body(&Body::PacketOut(packet.clone())).fmt(f),
            Self::Change(change) => body(change).fmt(f),
            Self::Cable { port, is_in: true } => write!(f, "port {port} has a link"),
            Self::Cable { port, is_in: false } => write!(f, "port {port} has no link"),
            Self::Port { port, config } => write!(f, "port {port} is told {config:?}"),
        }
    }
}

/// A message in the syntax of `ovs-ofctl`, if it has one.
pub(crate) fn body(body: &Body) -> String {
    match body {
        Body::FlowMod(flow_mod) => format!("flow {flow_mod}"),
        Body::GroupMod(group_mod) => format!("group {group_mod}"),
        Body::PacketOut(PacketOut { in_port, actions, data, .. }) => {
            let actions: Vec<_> = actions.iter().map(ToString::to_string).collect();
            format!("packet-out in_port={in_port} actions={} {}", actions.join(","), hex(data))
        }
        other => format!("{other:?}"),
    }
}

/// Frames interleaved with these messages and with changes of ports.
pub(crate) fn weave(random: &mut Random, frames: Frames, messages: Vec<Body>) -> Vec<Step> {
    let mut steps: Vec<_> =
        (0..FRAMES).map(|_| Step::Frame(Frame::random(random, frames))).collect();
    let ports = if random.chance(30) { random.pick(&[1, 2, 3]) } else { 0 };
    let ports: Vec<_> = (0..ports).map(|_| of_port(random)).collect();
    let messages = messages.into_iter().map(|body| match body {
        Body::PacketOut(packet) => {
            let Frame { bytes, .. } = Frame::random(random, frames);
            let in_port = known::entry(packet.in_port, &ports);
            Step::Packet(PacketOut { in_port, data: bytes, ..packet })
        }
        body => Step::Change(body),
    });
    for step in messages.collect::<Vec<_>>().into_iter().chain(ports.clone()) {
        let at = random.below(steps.len() + 1);
        steps.insert(at, step);
    }
    steps
}

/// The first port is not changed, nor the one where fences leave.
fn of_port(random: &mut Random) -> Step {
    if random.chance(40) {
        return Step::Cable { port: CABLE, is_in: random.chance(30) };
    }
    let none = PortConfig::empty();
    let config = random.pick(&[
        none,
        PortConfig::PORT_DOWN,
        PortConfig::NO_FWD,
        PortConfig::NO_RECV,
        PortConfig::NO_FWD | PortConfig::NO_RECV,
    ]);
    Step::Port { port: random.pick(&[2, 3]), config }
}

/// Frames per pipeline.
const FRAMES: usize = 16;
/// The port whose cable is unplugged.
pub(crate) const CABLE: u32 = 3;
