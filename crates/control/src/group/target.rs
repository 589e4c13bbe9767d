//! Destination of copies: one monitor, or one of several that share flows.

use tapswitch_openflow::PortNo;

use crate::exit::Exit;
use crate::overlap::Member;

/// Destination of a bucket's copies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// A single exit.
    One(Exit),
    /// One of these exits, in the order of monitors that share flows.
    OneOf(Vec<Exit>),
}

impl Target {
    /// The target of members that share flows.
    pub(super) fn of(aims: &[Member]) -> Self {
        match aims {
            [member] => Self::One(member.aim.exit),
            _ => Self::OneOf(aims.iter().map(|member| member.aim.exit).collect()),
        }
    }

    pub(super) fn exits(&self) -> &[Exit] {
        match self {
            Self::One(exit) => std::slice::from_ref(exit),
            Self::OneOf(exits) => exits,
        }
    }

    /// Whether a frame that leaves by `original` reaches the target, or one of several.
    pub(super) fn is_reached_by(&self, original: Exit) -> bool {
        self.exits().iter().any(|monitor| monitor.is_reached_by(original))
    }

    /// The exit of a single monitor that shares no flows.
    pub(super) fn alone(&self) -> Option<Exit> {
        match self {
            Self::One(exit) if exit.spread.is_none() => Some(*exit),
            _ => None,
        }
    }

    /// Whether it is the controller, which has no port.
    pub(super) fn is_controller(&self) -> bool {
        self.alone().is_some_and(|exit| exit.port == PortNo::CONTROLLER)
    }

    /// Whether several monitors share flows, here or elsewhere.
    pub(super) fn is_shared(&self) -> bool {
        self.alone().is_none()
    }

    /// Whether a group of its own chooses one.
    pub(super) fn is_several(&self) -> bool {
        match self {
            Self::One(exit) => exit.spread_here().is_some(),
            Self::OneOf(_) => true,
        }
    }
}

/// Of members that share flows, the one at `exit`.
pub(super) fn served(aims: &[Member], exit: Exit) -> Option<Member> {
    aims.iter().find(|member| member.aim.exit.is_reached_by(exit)).copied()
}
