//! Copy-on-write values for trials of changes: a copy shares everything that neither side has
//! changed since.
//!
//! [`Shared`] is for values that are copied as a whole on the first change, [`Forked`] and
//! [`Branched`] for maps too large for that: their changes are kept beside the shared base. Without
//! a copy, as in the control plane outside of trials, the overhead is minimal.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::sync::{Arc, Weak};

mod branched;

pub(crate) use branched::Branched;

/// A value that is copied on change if it is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared<T>(Arc<T>);

/// Identifies the state of a [`Shared`] value, to detect later changes. It keeps only the
/// allocation, not the value, so that no other value gets the same address.
#[derive(Clone, Debug)]
pub(crate) struct Seen<T>(Weak<T>);

impl<T> Seen<T> {
    /// Whether both identify the same state.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl<T> Shared<T> {
    /// Identifies the current state.
    pub(crate) fn seen(&self) -> Seen<T> {
        Seen(Arc::downgrade(&self.0))
    }

    /// Whether the value is unchanged since then. An unchanged copy counts as the same value.
    pub(crate) fn is_as(&self, seen: &Seen<T>) -> bool {
        // `Arc::make_mut` moves a value to another address if there is a `Weak` to it.
        std::ptr::eq(Arc::as_ptr(&self.0), seen.0.as_ptr())
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(value.into())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

/// An ordered map that copies only the changed entries while it is shared.
#[derive(Clone, Debug)]
pub(crate) struct Forked<K, V> {
    base: Arc<BTreeMap<K, V>>,
    /// Entries that differ from `base`; `None` for removed ones. Empty unless `base` is shared.
    changes: BTreeMap<K, Option<V>>,
    /// Number of entries.
    len: usize,
}

impl<K, V> Default for Forked<K, V> {
    fn default() -> Self {
        Self { base: Arc::default(), changes: BTreeMap::new(), len: 0 }
    }
}

impl<K: Clone + Ord, V: Clone> Forked<K, V> {
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        if self.changes.is_empty() {
            return self.base.get_key_value(key);
        }
        match self.changes.get_key_value(key) {
            Some((key, value)) => Some((key, value.as_ref()?)),
            None => self.base.get_key_value(key),
        }
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        if self.is_own() {
            return self.own().get_mut(key);
        }
        if !self.changes.contains_key(key) {
            let (key, value) = self.base.get_key_value(key)?;
            self.changes.insert(key.clone(), Some(value.clone()));
        }
        self.changes.get_mut(key)?.as_mut()
    }

    /// The value of the key, inserted if absent.
    pub(crate) fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        if self.is_own() {
            let len = &mut self.len;
            let entry = Self::merge(&mut self.base, &mut self.changes).entry(key);
            return entry.or_insert_with(|| counted(len, value()));
        }
        let change = self.changes.entry(key);
        let change = change.or_insert_with_key(|key| self.base.get(key).cloned());
        change.get_or_insert_with(|| counted(&mut self.len, value()))
    }

    /// Returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = match self.is_own() {
            true => self.own().insert(key, value),
            false => self.change(key, Some(value)),
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// Returns the previous value.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let before = match self.is_own() {
            true => self.own().remove(key),
            false => {
                let key = self.get_key_value(key)?.0.clone();
                self.change(key, None)
            }
        };
        self.len -= usize::from(before.is_some());
        before
    }

    /// All entries in key order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.range(..)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Entries in a range of keys, in key order.
    pub(crate) fn range<R: RangeBounds<K> + Clone>(
        &self,
        range: R,
    ) -> impl Iterator<Item = (&K, &V)> {
        let is_as_before = self.changes.is_empty();
        let old = self.base.range(range.clone());
        let mut old =
            old.filter(move |(key, _)| is_as_before || !self.changes.contains_key(*key)).peekable();
        let new = self.changes.range(range);
        let mut new = new.filter_map(|(key, value)| Some((key, value.as_ref()?))).peekable();
        std::iter::from_fn(move || match (old.peek(), new.peek()) {
            (Some((old_key, _)), Some((new_key, _))) if new_key < old_key => new.next(),
            (Some(_), _) => old.next(),
            (None, _) => new.next(),
        })
    }

    /// Merges changes into the base, if no other copy shares it any more.
    pub(crate) fn join(&mut self) {
        if self.is_own() {
            self.own();
        }
    }

    /// As [`Self::own_entries`], by value.
    pub(crate) fn into_own_entries(self) -> impl Iterator<Item = (K, V)> {
        self.changes.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }

    /// Entries added or changed while the map was shared.
    pub(crate) fn own_entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.changes.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)))
    }

    /// All entries, mutable: all are copied if the map is shared.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.own().iter_mut()
    }

    /// As [`Self::iter_mut`].
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.own().values_mut()
    }

    /// Whether the base is not shared any more.
    fn is_own(&mut self) -> bool {
        Arc::get_mut(&mut self.base).is_some()
    }

    /// Merges the changes into an unshared base.
    fn own(&mut self) -> &mut BTreeMap<K, V> {
        Self::merge(&mut self.base, &mut self.changes)
    }

    fn merge<'a>(
        base: &'a mut Arc<BTreeMap<K, V>>,
        changes: &mut BTreeMap<K, Option<V>>,
    ) -> &'a mut BTreeMap<K, V> {
        let base = Arc::make_mut(base);
        for (key, value) in std::mem::take(changes) {
            match value {
                Some(value) => _ = base.insert(key, value),
                None => _ = base.remove(&key),
            }
        }
        base
    }

    fn change(&mut self, key: K, value: Option<V>) -> Option<V> {
        match self.changes.entry(key) {
            Entry::Occupied(mut change) => change.insert(value),
            Entry::Vacant(change) => {
                let before = self.base.get(change.key()).cloned();
                change.insert(value);
                before
            }
        }
    }
}

/// Counts an added entry.
const fn counted<V>(len: &mut usize, value: V) -> V {
    *len += 1;
    value
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Applies an operation to both, which must agree.
    fn change(map: &mut Forked<u8, u8>, model: &mut BTreeMap<u8, u8>, (what, key): (u8, u8)) {
        match what % 5 {
            0 | 1 => assert_eq!(map.insert(key, what), model.insert(key, what)),
            2 => assert_eq!(map.remove(&key), model.remove(&key)),
            3 => {
                let (value, modelled) = (map.get_mut(&key), model.get_mut(&key));
                assert_eq!(value, modelled);
                value.into_iter().chain(modelled).for_each(|value| *value = what);
            }
            _ => {
                *map.get_or_insert_with(key, || 7) |= what;
                *model.entry(key).or_insert(7) |= what;
            }
        }
    }

    fn check(map: &Forked<u8, u8>, model: &BTreeMap<u8, u8>) {
        assert!(map.iter().eq(model.iter()), "{map:?} is not {model:?}");
        assert!(map.range(3..9).eq(model.range(3..9)), "{map:?} is not {model:?}");
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        (0..16).for_each(|key| assert_eq!(map.get(&key), model.get(&key)));
    }

    proptest! {
        /// Whatever is copied, changed and dropped, each map behaves as an independent one.
        #[test]
        fn copies_do_not_see_each_others_changes(
            steps in vec((0..4_usize, any::<u8>(), 0..16_u8), 0..60),
        ) {
            let mut maps = vec![(Forked::<u8, u8>::default(), BTreeMap::<u8, u8>::new())];
            for (at, what, key) in steps {
                let at = at % maps.len();
                match what {
                    0..40 => maps.push(maps[at].clone()),
                    40..60 if maps.len() > 1 => _ = maps.swap_remove(at),
                    70..75 => maps[at].0.join(),
                    60..70 => {
                        let (map, model) = &mut maps[at];
                        map.values_mut().chain(model.values_mut()).for_each(|value| *value = key);
                    }
                    _ => {
                        let (map, model) = &mut maps[at];
                        change(map, model, (what, key));
                    }
                }
                maps.iter().for_each(|(map, model)| check(map, model));
            }
        }
    }

    #[test]
    fn a_value_that_changed_is_not_as_it_was_seen() {
        let mut first = Shared::from(vec![1]);
        let seen = first.seen();
        let mut second = first.clone();
        assert!(first.is_as(&seen) && second.is_as(&seen));
        second.push(2);
        assert!(first.is_as(&seen) && !second.is_as(&seen));
        // The only owner: the change is detected nevertheless.
        drop(second);
        first.push(2);
        assert!(!first.is_as(&seen));
        first.pop();
        assert!(!first.is_as(&seen), "not found out: what is seen is a time, not a value");
    }

    #[test]
    fn what_is_shared_is_copied_when_it_is_changed() {
        let mut first = Shared::from(vec![1]);
        let second = first.clone();
        first.push(2);
        assert_eq!((&*first, &*second), (&vec![1, 2], &vec![1]));
    }
}
