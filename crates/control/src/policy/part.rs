//! What part of the traffic a monitor gets.

use std::num::NonZeroU32;

use tapswitch_openflow::{Action, Shape};

use super::Sample;

/// Which frames are copied, and how much of each. All of all by default, with their tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Part {
    /// Bytes of each packet.
    pub(crate) snaplen: Option<u16>,
    /// One frame of so many.
    pub(crate) sample: Option<Sample>,
    /// Tags that are taken away, as far as there are any.
    pub(crate) pops: u8,
}

impl Part {
    /// What a monitor gets of which two policies want parts: there is one copy of each frame, so
    /// neither misses anything.
    #[must_use]
    pub(crate) fn or_more(self, other: Self) -> Self {
        let snaplen = self.snaplen.zip(other.snaplen).map(|(a, b)| a.max(b));
        let sample = most(self.sample, other.sample);
        Self { snaplen, sample, pops: self.pops.min(other.pops) }
    }

    /// What of it a switch can do that knows no more than OpenFlow: there a bucket is a set of
    /// actions, one of each kind (OpenFlow 1.3.5 §5.10).
    #[must_use]
    pub(crate) fn plain(self) -> Self {
        Self { pops: self.pops.min(1), ..Self::default() }
    }

    /// The actions that say so, for copies with a tag of so many bytes in front of what is kept.
    pub(crate) fn actions(self, tag_len: u16) -> impl Iterator<Item = Action> {
        let truncate = self.snaplen.map(|len| Shape::Truncate { len: len.saturating_add(tag_len) });
        let sample = self.sample.map(|Sample(every)| Shape::Sample { every: every.get() });
        let shape = [truncate, sample].into_iter().flatten().map(Shape::action);
        shape.chain(std::iter::repeat_n(Action::PopVlan, self.pops.into()))
    }
}

/// The greater share of two; none is all.
///
/// By plain numbers, where 0 is all, and not by `zip` and `min`: of these LLVM 22 (rustc 1.95)
/// makes `umin` with 0 for none as well, leaves the claim on it that the result is never 0, and
/// every comparison with what has no sample becomes false. It does so where `zip` is not inlined,
/// which changes with whatever else is in the crate.
fn most(one: Option<Sample>, other: Option<Sample>) -> Option<Sample> {
    let number = |sample: Option<Sample>| sample.map_or(0, |Sample(every)| every.get());
    NonZeroU32::new(number(one).min(number(other))).map(Sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_of_two_policies_misses_anything() {
        let part = |snaplen, every: Option<&str>| Part {
            snaplen,
            sample: every.map(|text| text.parse().unwrap()),
            pops: 0,
        };
        let (headers, some) = (part(Some(64), None), part(Some(128), Some("1/10")));
        assert_eq!(headers.or_more(some), part(Some(128), None));
        assert_eq!(some.or_more(part(None, Some("1/5"))), part(None, Some("1/5")));
        assert_eq!(some.or_more(Part::default()), Part::default());
        let texts: Vec<_> = some.actions(4).map(|action| action.to_string()).collect();
        assert_eq!(texts, ["truncate:132", "sample:1/10"]);
    }

    #[test]
    fn who_keeps_tags_misses_none() {
        let strip = Part { pops: 2, snaplen: Some(64), ..Part::default() };
        assert_eq!(strip.or_more(strip), strip);
        assert_eq!(strip.or_more(Part::default()), Part::default());
        let actions = |part: Part| part.actions(0).map(|action| action.to_string());
        assert_eq!(actions(strip).collect::<Vec<_>>(), ["truncate:64", "pop_vlan", "pop_vlan"]);
        assert_eq!(actions(strip.plain()).collect::<Vec<_>>(), ["pop_vlan"]);
    }
}
