//! Audit records that are still to be written.
//!
//! Records of autonomous events are queued here and written soon. Records that could not be written
//! are kept in order until the store works again. The queue is bounded: records beyond it are
//! counted, and are in the process log.

use std::collections::BTreeMap;

use crate::Caller;
use crate::audit::{Draft, What};

/// Queued records in order.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    records: BTreeMap<u64, Record>,
    last: u64,
    /// Number of records without room.
    left_out: u64,
}

#[derive(Clone, Debug)]
struct Record {
    draft: Draft,
    /// It belongs to a change that is still to be written, and is meaningless without it.
    is_of_change: bool,
}

/// Records being written.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    records: BTreeMap<u64, Record>,
    left_out: u64,
}

impl Owed {
    /// Queues a record of something that has happened.
    pub(crate) fn push(&mut self, draft: Draft) {
        self.add(draft, false);
    }

    /// Queues a record of a change that is still to be written itself.
    pub(crate) fn push_of_change(&mut self, draft: Draft) {
        self.add(draft, true);
    }

    fn add(&mut self, draft: Draft, is_of_change: bool) {
        if self.records.len() >= MAX_OWED {
            tracing::error!("not written to the audit log, too many records are waiting: {draft}");
            return self.leave_out();
        }
        self.last += 1;
        self.records.insert(self.last, Record { draft, is_of_change });
    }

    /// Counts a record without room.
    pub(crate) const fn leave_out(&mut self) {
        self.left_out += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.left_out == 0
    }

    /// Whether there are records that do not depend on a change.
    pub(crate) fn has_own(&self) -> bool {
        self.left_out > 0 || self.records.values().any(|record| !record.is_of_change)
    }

    /// Takes the first `max` records; those of changes only `with_changes`.
    pub(crate) fn take(&mut self, max: usize, with_changes: bool) -> Taken {
        let is_wanted =
            if with_changes { |_: &Record| true } else { |it: &Record| !it.is_of_change };
        let records = self.extract(max, is_wanted);
        // The number of missing records comes after all others.
        let is_all = records.len() < max;
        let left_out = if is_all { std::mem::take(&mut self.left_out) } else { 0 };
        Taken { records, left_out }
    }

    /// The records could not be written.
    pub(crate) fn put_back(&mut self, taken: Taken) {
        self.records.extend(taken.records);
        self.left_out += taken.left_out;
    }

    /// Drops records of changes that this controller will not write any more.
    pub(crate) fn drop_of_changes(&mut self) {
        report(&self.extract(usize::MAX, |record| record.is_of_change));
    }

    fn extract(&mut self, max: usize, is_wanted: fn(&Record) -> bool) -> BTreeMap<u64, Record> {
        let wanted = self.records.iter().filter(|(_, record)| is_wanted(record));
        let wanted: Vec<_> = wanted.map(|(number, _)| *number).take(max).collect();
        wanted.into_iter().filter_map(|number| self.records.remove_entry(&number)).collect()
    }
}

/// The process log has records that are not written any more.
fn report(dropped: &BTreeMap<u64, Record>) {
    for Record { draft, .. } in dropped.values() {
        tracing::error!("not written to the audit log: {draft}");
    }
}

impl Taken {
    /// The records that do not depend on a change, as changes of their term are not written any
    /// more.
    pub(crate) fn without_changes(self) -> Self {
        let is_of_change = |record: &Record| record.is_of_change;
        let (dropped, records) = self.records.into_iter().partition(|(_, it)| is_of_change(it));
        report(&dropped);
        Self { records, ..self }
    }

    /// The records to write.
    pub(crate) fn drafts(&self) -> impl Iterator<Item = Draft> {
        let left_out = (self.left_out > 0).then(|| {
            let result = format!(
                "{} more records were left out, as there were too many; they are in the log of the \
                 process",
                self.left_out
            );
            Draft::new(&Caller::controller(), What::RecordsLeftOut, result)
        });
        self.records.values().map(|record| record.draft.clone()).chain(left_out)
    }
}

/// Maximum queued records: a store that is away for long must not exhaust memory.
const MAX_OWED: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(text: &str) -> Draft {
        Draft::new(&Caller::unix("ann"), What::PolicyAdd, text)
    }

    fn results(taken: &Taken) -> Vec<String> {
        taken.drafts().map(|draft| draft.result().to_owned()).collect()
    }

    #[test]
    fn they_keep_their_order_whatever_fails() {
        let mut owed = Owed::default();
        ["1", "2"].into_iter().for_each(|text| owed.push(draft(text)));
        owed.push_of_change(draft("3"));
        owed.push(draft("4"));
        let [first, second] = [owed.take(2, true), owed.take(9, false)];
        assert_eq!(
            (results(&first), results(&second)),
            (vec!["1".into(), "2".into()], vec!["4".into()])
        );
        owed.put_back(second);
        owed.put_back(first);
        assert_eq!(results(&owed.take(9, true)), ["1", "2", "3", "4"]);
        assert!(owed.is_empty());
    }

    #[test]
    fn there_is_an_end_and_what_is_beyond_is_counted() {
        let mut owed = Owed::default();
        (0..MAX_OWED + 3).for_each(|_| owed.push(draft("x")));
        let taken = owed.take(usize::MAX, false);
        let told = results(&taken);
        assert!(told.len() == MAX_OWED + 1 && told[MAX_OWED].starts_with("3 more"), "{told:?}");
        owed.put_back(taken);
        assert_eq!(results(&owed.take(MAX_OWED, false)).len(), MAX_OWED);
        assert!(owed.has_own(), "the count is still to be written");
    }

    #[test]
    fn what_tells_of_a_change_goes_with_it() {
        let mut owed = Owed::default();
        owed.push_of_change(draft("refused"));
        assert!(!owed.has_own() && results(&owed.take(9, false)).is_empty());
        owed.drop_of_changes();
        assert!(owed.is_empty());
    }
}
