//! Which part of the traffic a monitor receives.

use std::num::NonZeroU32;

use tapswitch_openflow::{Action, Shape};

use super::Sample;

/// Which frames are copied, and how much of each. By default all of every frame, with its tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Part {
    /// Bytes of each packet to keep.
    pub(crate) snaplen: Option<u16>,
    /// Sampling ratio.
    pub(crate) sample: Option<Sample>,
    /// Tags to remove, as far as present.
    pub(crate) pops: u8,
}

impl Part {
    /// The part that satisfies two policies that share a copy: neither misses anything.
    #[must_use]
    pub(crate) fn or_more(self, other: Self) -> Self {
        let snaplen = self.snaplen.zip(other.snaplen).map(|(a, b)| a.max(b));
        let sample = most(self.sample, other.sample);
        Self { snaplen, sample, pops: self.pops.min(other.pops) }
    }

    /// The part that a plain OpenFlow switch can implement: its buckets are action sets, with one
    /// action of each type (OpenFlow 1.3.5 §5.10).
    #[must_use]
    pub(crate) fn plain(self) -> Self {
        Self { pops: self.pops.min(1), ..Self::default() }
    }

    /// The actions for it, on copies with a tag of `tag_len` bytes in front of what is kept.
    pub(crate) fn actions(self, tag_len: u16) -> impl Iterator<Item = Action> {
        let truncate = self.snaplen.map(|len| Shape::Truncate { len: len.saturating_add(tag_len) });
        let sample = self.sample.map(|Sample(every)| Shape::Sample { every: every.get() });
        let shape = [truncate, sample].into_iter().flatten().map(Shape::action);
        shape.chain(std::iter::repeat_n(Action::PopVlan, self.pops.into()))
    }
}

/// The larger share of two; none means all.
///
/// Uses plain numbers with 0 for all instead of `zip` and `min`: for those, LLVM 22 (rustc 1.95)
/// emits `umin` with 0 for none, but keeps the assumption that the result is never 0, so every
/// comparison with an unsampled policy becomes false. This happens where `zip` is not inlined,
/// which depends on the rest of the crate.
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
