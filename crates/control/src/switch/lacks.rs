//! Rules that a switch is known to lack; used when frames are traced.

use super::{Link, Switch};
use crate::rule::FlowId;
use crate::text::switch_name;

impl Switch {
    /// Whether it is up: neither being taken over nor read again.
    pub(crate) const fn is_settled(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Rules of ours that it is known to lack.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = &FlowId> {
        self.refused.ids().chain(&self.removed)
    }

    /// Why it lacks a rule of ours: it rejected it, or others deleted it.
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
