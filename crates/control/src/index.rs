//! Indices: by a key, all that it concerns; keys that concern nothing are left out.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// What a key concerns.
pub(crate) type Index<K, T> = HashMap<K, BTreeSet<T>>;

/// The key concerns this.
pub(crate) fn note<K: Copy + Eq + Hash, T: Ord>(index: &mut Index<K, T>, key: &K, value: T) {
    index.entry(*key).or_default().insert(value);
}

/// It does not any more.
pub(crate) fn forget<K: Eq + Hash, T: Ord>(index: &mut Index<K, T>, key: &K, value: &T) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
