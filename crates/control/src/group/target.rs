//! Where copies go: to one monitor, or to one of several that share flows.

use tapswitch_openflow::PortNo;

use crate::exit::Exit;
use crate::overlap::Member;

/// Where the copies of one bucket go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// There.
    One(Exit),
    /// One of these ways, in the order of monitors that share flows.
    OneOf(Vec<Exit>),
}

impl Target {
    /// Of the members whose monitors share flows.
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

    /// Whether what leaves by `original` reaches it, or one of them.
    pub(super) fn is_reached_by(&self, original: Exit) -> bool {
        self.exits().iter().any(|monitor| monitor.is_reached_by(original))
    }

    /// The way to one monitor that shares with no other.
    pub(super) fn alone(&self) -> Option<Exit> {
        match self {
            Self::One(exit) if exit.spread.is_none() => Some(*exit),
            _ => None,
        }
    }

    /// Whether it is the controller, which is behind no port.
    pub(super) fn is_controller(&self) -> bool {
        self.alone().is_some_and(|exit| exit.port == PortNo::CONTROLLER)
    }

    /// Whether it is several monitors, here or elsewhere.
    pub(super) fn is_shared(&self) -> bool {
        self.alone().is_none()
    }

    /// Whether a group of its own picks one.
    pub(super) fn is_several(&self) -> bool {
        match self {
            Self::One(exit) => exit.spread_here().is_some(),
            Self::OneOf(_) => true,
        }
    }
}

/// The member of those that share flows whose monitor is at `exit`.
pub(super) fn served(aims: &[Member], exit: Exit) -> Option<Member> {
    aims.iter().find(|member| member.aim.exit.is_reached_by(exit)).copied()
}
