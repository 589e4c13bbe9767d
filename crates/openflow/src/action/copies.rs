//! Our own actions on copies: delivery contracts and shapes.

use super::Action;
use crate::{Delivery, EXPERIMENTER, Shape};

impl Delivery {
    /// The action for this contract.
    pub fn action(self) -> Action {
        Action::Experimenter { experimenter: EXPERIMENTER, data: self.to_data() }
    }

    /// The contract in `action`, if it is a well-formed contract action.
    pub fn of(action: &Action) -> Option<Self> {
        data(action).and_then(Self::from_data)
    }
}

impl Shape {
    /// The action for this shape.
    pub fn action(self) -> Action {
        Action::Experimenter { experimenter: EXPERIMENTER, data: self.to_data() }
    }

    /// The shape in `action`, if it is a well-formed shape action.
    pub fn of(action: &Action) -> Option<Self> {
        data(action).and_then(Self::from_data)
    }
}

/// Data after our experimenter id; `None` for other actions.
fn data(action: &Action) -> Option<&[u8]> {
    match action {
        Action::Experimenter { experimenter: EXPERIMENTER, data } => Some(data),
        _ => None,
    }
}
