//! A counter as it is read from time to time.

use super::Span;
use crate::report::Counts;

/// A counter of a switch, read from time to time. It may have counted before we came, and start
/// from zero when the switch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// What it showed when we came.
    base: Counts,
    /// What it showed last.
    last: Counts,
    /// What it had counted when it started again.
    before: Counts,
    /// Packets that were counted since `last` was first read, or while it was read.
    slack: u64,
    /// Packets that may have been counted before the other counter showed what it had when we came.
    doubt: u64,
}

impl Reading {
    /// A counter that shows `base` before anything counts for us.
    pub(crate) const fn from_base(base: Counts) -> Self {
        Self { base, last: base, before: Counts::ZERO, slack: 0, doubt: 0 }
    }

    /// The same, when it showed this many packets behind the other counter, which was read between.
    pub(crate) const fn doubted(self, later: u64) -> Self {
        Self { doubt: later.saturating_sub(self.base.packets), ..self }
    }

    /// The same counter for somebody else, for whom nothing counted yet.
    pub(crate) const fn continued(&self) -> Self {
        Self::from_base(self.last)
    }

    /// The counter shows this now.
    pub(crate) fn handle_value(&mut self, value: Counts) {
        if self.is_beyond(value) {
            self.restart();
        }
        (self.last, self.slack) = (value, 0);
    }

    /// The counter shows this now; what it has counted since it was read before may, or may not, be
    /// in another one that was read between.
    pub(crate) fn handle_later_value(&mut self, value: Counts) {
        let before = self.total().packets;
        self.handle_value(value);
        self.slack = self.total().packets - before;
    }

    /// Packets that it counted for us when the other one was read.
    pub(crate) fn span(&self) -> Span {
        let most = self.total().packets;
        Span { least: most.saturating_sub(self.slack.saturating_add(self.doubt)), most }
    }

    /// The counter counts from zero again.
    pub(crate) fn restart(&mut self) {
        let (zero, before) = (Counts::ZERO, self.total());
        *self = Self { base: zero, last: zero, before, slack: 0, doubt: self.doubt };
    }

    /// Whether it showed more than `value` already: then it has started again.
    pub(crate) const fn is_beyond(&self, value: Counts) -> bool {
        value.packets < self.last.packets
    }

    /// What it counted for us.
    pub(crate) fn total(&self) -> Counts {
        self.before + (self.last - self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(packets: u64) -> Counts {
        Counts { packets, bytes: packets * 100 }
    }

    #[test]
    fn a_counter_counts_from_its_base_and_over_a_restart() {
        let mut reading = Reading::from_base(counts(10));
        assert_eq!(reading.total(), Counts::ZERO);
        reading.handle_value(counts(15));
        assert_eq!(reading.total(), counts(5));
        reading.handle_value(counts(3));
        assert_eq!(reading.total(), counts(8));
        reading.handle_value(counts(4));
        assert_eq!(reading.total(), counts(9));
    }

    #[test]
    fn what_passed_when_we_came_stays_in_doubt() {
        let mut reading = Reading::from_base(counts(10)).doubted(12);
        assert_eq!(reading.span(), Span { least: 0, most: 0 });
        for (value, most) in [(15, 5), (3, 8)] {
            reading.handle_value(counts(value));
            assert_eq!(reading.span(), Span { least: most - 2, most });
        }
        assert_eq!(reading.continued().doubt, 0);
    }
}
