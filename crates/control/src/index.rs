//! Indices from a key to a set of values; empty sets are removed.

use std::collections::BTreeSet;

use crate::shared::Forked;

/// Values by key.
pub(crate) type Index<K, T> = Forked<K, BTreeSet<T>>;

/// Adds a value.
pub(crate) fn note<K: Copy + Ord, T: Clone + Ord>(index: &mut Index<K, T>, key: &K, value: T) {
    index.get_or_insert_with(*key, BTreeSet::new).insert(value);
}

/// Removes a value.
pub(crate) fn forget<K: Clone + Ord, T: Clone + Ord>(index: &mut Index<K, T>, key: &K, value: &T) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
