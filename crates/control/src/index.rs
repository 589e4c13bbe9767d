//! Indices: by a key, all that it concerns; keys that concern nothing are left out.

use std::collections::BTreeSet;

use crate::shared::Forked;

/// What a key concerns.
pub(crate) type Index<K, T> = Forked<K, BTreeSet<T>>;

/// The key concerns this.
pub(crate) fn note<K: Copy + Ord, T: Clone + Ord>(index: &mut Index<K, T>, key: &K, value: T) {
    index.get_or_insert_with(*key, BTreeSet::new).insert(value);
}

/// It does not any more.
pub(crate) fn forget<K: Clone + Ord, T: Clone + Ord>(index: &mut Index<K, T>, key: &K, value: &T) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
