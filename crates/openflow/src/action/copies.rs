//! Our own actions, which are about copies: what they are owed, and how they are shaped.

use super::Action;
use crate::{Delivery, EXPERIMENTER, Shape};

impl Delivery {
    /// The action that says so.
    pub fn action(self) -> Action {
        Action::Experimenter { experimenter: EXPERIMENTER, data: self.to_data() }
    }

    /// What `action` says, if it is such an action and as it should be.
    pub fn of(action: &Action) -> Option<Self> {
        data(action).and_then(Self::from_data)
    }
}

impl Shape {
    /// The action that says so.
    pub fn action(self) -> Action {
        Action::Experimenter { experimenter: EXPERIMENTER, data: self.to_data() }
    }

    /// What `action` says, if it is such an action and as it should be.
    pub fn of(action: &Action) -> Option<Self> {
        data(action).and_then(Self::from_data)
    }
}

/// What follows our number in an action of ours.
fn data(action: &Action) -> Option<&[u8]> {
    match action {
        Action::Experimenter { experimenter: EXPERIMENTER, data } => Some(data),
        _ => None,
    }
}
