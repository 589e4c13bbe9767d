//! Hash maps for the hottest lookups. The hasher has a random seed per process and is several times
//! faster than that of the standard library.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

use foldhash::fast::RandomState;

/// An unordered map.
pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;
/// An unordered set.
pub(crate) type Set<T> = HashSet<T, RandomState>;

/// A hash to be stored with a value; equal for equal values.
pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    STATE.hash_one(value)
}
