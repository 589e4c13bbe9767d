//! What a switch is known not to hold though it shall, for whoever follows frames.

use super::{Link, Switch};
use crate::rule::FlowId;
use crate::text::switch_name;

impl Switch {
    /// Whether it is connected, and told what it shall hold: neither is it being taken over nor
    /// read anew.
    pub(crate) const fn is_settled(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// The rules of ours that it does not hold, as far as that is known.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = &FlowId> {
        self.refused.ids().chain(&self.removed)
    }

    /// That it does not hold a rule of ours, if it refused it, or somebody else deleted it.
    pub(crate) fn lacks(&self, id: &FlowId) -> Option<String> {
        let name = || switch_name(self.id);
        let refused = (!self.refused.is_empty()).then(|| self.refused.find(id)).flatten();
        if let Some(kind) = refused {
            return Some(format!(
                "switch {} refused a rule that its frames match ({id}): {kind}; free space in its \
                 tables",
                name()
            ));
        }
        self.removed.contains(id).then(|| {
            format!(
                "a rule that its frames match was deleted at switch {} by another program ({id}); \
                 it will be restored soon",
                name()
            )
        })
    }
}
