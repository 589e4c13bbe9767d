//! An unordered map that shares unchanged entries with its copies.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use crate::hash::Map;

/// Like [`super::Forked`], for hashed keys.
#[derive(Clone, Debug)]
pub(crate) struct Branched<K, V> {
    base: Arc<Map<K, V>>,
    /// Entries that differ from `base`; `None` for removed ones. Empty unless `base` is shared.
    changes: Map<K, Option<V>>,
    /// Number of entries.
    len: usize,
}

impl<K, V> Default for Branched<K, V> {
    fn default() -> Self {
        Self { base: Arc::default(), changes: Map::default(), len: 0 }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Branched<K, V> {
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
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

    pub(crate) fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = match self.own() {
            Some(own) => own.insert(key, value),
            None => match self.changes.entry(key) {
                Entry::Occupied(mut change) => change.insert(Some(value)),
                Entry::Vacant(change) => {
                    let before = self.base.get(change.key()).cloned();
                    change.insert(Some(value));
                    before
                }
            },
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// Inserts a key that is known to be absent, without a lookup in the base.
    pub(crate) fn insert_new(&mut self, key: K, value: V) {
        debug_assert!(!self.contains_key(&key), "there is one already");
        match self.own() {
            Some(own) => _ = own.insert(key, value),
            None => _ = self.changes.insert(key, Some(value)),
        }
        self.len += 1;
    }

    /// Changes or inserts the value of a key. Returns the stored key.
    pub(crate) fn change(&mut self, key: K, change: impl FnOnce(Option<&V>) -> V) -> (K, &V) {
        if self.own().is_none() {
            return self.change_beside(key, change);
        }
        match Arc::make_mut(&mut self.base).entry(key) {
            Entry::Occupied(mut entry) => {
                *entry.get_mut() = change(Some(entry.get()));
                (entry.key().clone(), entry.into_mut())
            }
            Entry::Vacant(entry) => {
                self.len += 1;
                (entry.key().clone(), entry.insert(change(None)))
            }
        }
    }

    fn change_beside(&mut self, key: K, change: impl FnOnce(Option<&V>) -> V) -> (K, &V) {
        let (key, before) = match self.changes.get_key_value(&key) {
            Some((key, value)) => (key.clone(), value.as_ref()),
            None => match self.base.get_key_value(&key) {
                Some((key, value)) => (key.clone(), Some(value)),
                None => (key, None),
            },
        };
        self.len += usize::from(before.is_none());
        let value = change(before);
        let entry = self.changes.entry(key.clone()).or_insert(None);
        (key, entry.insert(value))
    }

    /// Returns the previous value.
    pub(crate) fn remove_entry<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let gone = match self.own() {
            Some(own) => own.remove_entry(key),
            None => {
                let known = self.get_key_value(key);
                let (key, value) = known.map(|(key, value)| (key.clone(), value.clone()))?;
                self.changes.insert(key.clone(), None);
                Some((key, value))
            }
        };
        self.len -= usize::from(gone.is_some());
        gone
    }

    /// Merges changes into the base, if no other copy shares it any more.
    pub(crate) fn join(&mut self) {
        self.own();
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let old = self.base.iter().filter(|(key, _)| !self.changes.contains_key(*key));
        let new = self.changes.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        old.chain(new)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Merges the changes into the base, if that is not shared any more.
    fn own(&mut self) -> Option<&mut Map<K, V>> {
        let base = Arc::get_mut(&mut self.base)?;
        for (key, value) in self.changes.drain() {
            match value {
                Some(value) => _ = base.insert(key, value),
                None => _ = base.remove(&key),
            }
        }
        Some(base)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn check(map: &Branched<u8, u8>, model: &BTreeMap<u8, u8>) {
        assert_eq!(map.iter().collect::<BTreeMap<_, _>>(), model.iter().collect());
        assert_eq!((map.len(), map.keys().count()), (model.len(), model.len()));
        (0..16).for_each(|key| {
            assert_eq!(map.get(&key), model.get(&key));
            assert_eq!(map.contains_key(&key), model.contains_key(&key));
        });
    }

    proptest! {
        /// Whatever is copied, changed and dropped, each map behaves as an independent one.
        #[test]
        fn copies_do_not_see_each_others_changes(
            steps in vec((0..4_usize, any::<u8>(), 0..16_u8), 0..60),
        ) {
            let mut maps = vec![(Branched::<u8, u8>::default(), BTreeMap::<u8, u8>::new())];
            for (at, what, key) in steps {
                let at = at % maps.len();
                match what {
                    0..40 => maps.push(maps[at].clone()),
                    40..60 if maps.len() > 1 => _ = maps.swap_remove(at),
                    120..130 => maps[at].0.join(),
                    130..160 => {
                        let (map, model) = &mut maps[at];
                        let before = model.get(&key).copied();
                        model.insert(key, before.unwrap_or(key) ^ 1);
                        let (_, value) = map.change(key, |seen| {
                            assert_eq!(seen.copied(), before);
                            seen.unwrap_or(&key) ^ 1
                        });
                        prop_assert_eq!(Some(value), model.get(&key));
                    }
                    160..190 => {
                        let (map, model) = &mut maps[at];
                        if model.insert(key, what).is_some() {
                            map.remove_entry(&key);
                        }
                        map.insert_new(key, what);
                    }
                    _ => {
                        let (map, model) = &mut maps[at];
                        let (told, modelled) = match what {
                            60..120 => (map.remove_entry(&key), model.remove_entry(&key)),
                            _ => {
                                let before = (map.insert(key, what), model.insert(key, what));
                                (before.0.map(|old| (key, old)), before.1.map(|old| (key, old)))
                            }
                        };
                        prop_assert_eq!(told, modelled);
                    }
                }
                maps.iter().for_each(|(map, model)| check(map, model));
            }
        }
    }
}
