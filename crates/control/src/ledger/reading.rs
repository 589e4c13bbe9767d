//! A counter that is read repeatedly.

use super::Span;
use crate::report::Counts;

/// A switch's counter that is read repeatedly. It may have started before us, and restarts at zero
/// with the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Value when we came.
    base: Counts,
    /// Last value.
    last: Counts,
    /// Total before the last restart.
    before: Counts,
    /// Packets counted since the previous reading of the same round, which the other counter may
    /// lack.
    slack: u64,
    /// Packets possibly counted before the other counter's starting point was read.
    doubt: u64,
}

impl Reading {
    /// A counter whose current value is the starting point.
    pub(crate) const fn from_base(base: Counts) -> Self {
        Self { base, last: base, before: Counts::ZERO, slack: 0, doubt: 0 }
    }

    /// The same, with a second starting value read after the other counter's.
    pub(crate) const fn doubted(self, later: u64) -> Self {
        Self { doubt: later.saturating_sub(self.base.packets), ..self }
    }

    /// The same counter restarted for another owner.
    pub(crate) const fn continued(&self) -> Self {
        Self::from_base(self.last)
    }

    /// Processes a newly read value.
    pub(crate) fn handle_value(&mut self, value: Counts) {
        if self.is_beyond(value) {
            self.restart();
        }
        (self.last, self.slack) = (value, 0);
    }

    /// Processes a second value of a round; another counter, read between the two, may or may not
    /// include the difference.
    pub(crate) fn handle_later_value(&mut self, value: Counts) {
        let before = self.total().packets;
        self.handle_value(value);
        self.slack = self.total().packets - before;
    }

    /// Bounds of the packets that it had counted for us when the other counter was read.
    pub(crate) fn span(&self) -> Span {
        let most = self.total().packets;
        Span { least: most.saturating_sub(self.slack.saturating_add(self.doubt)), most }
    }

    /// The counter has restarted at zero.
    pub(crate) fn restart(&mut self) {
        let (zero, before) = (Counts::ZERO, self.total());
        *self = Self { base: zero, last: zero, before, slack: 0, doubt: self.doubt };
    }

    /// Whether it was beyond `value` before, so that it must have restarted.
    pub(crate) const fn is_beyond(&self, value: Counts) -> bool {
        value.packets < self.last.packets
    }

    /// Packets counted for us.
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
