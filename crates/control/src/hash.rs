//! The maps that are asked most. They are hashed by a seed of the process, which nobody outside
//! learns, several times faster than those of the standard library.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

use foldhash::fast::RandomState;

/// A map without an order.
pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;
/// A set without an order.
pub(crate) type Set<T> = HashSet<T, RandomState>;

/// A hash for values that are kept together with it, the same one for equal values.
pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    STATE.hash_one(value)
}
