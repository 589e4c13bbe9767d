//! The map of a selective QinQ port: C-VLANs to S-VLANs, and back.

use std::fmt;

use super::Vid;

/// One entry of the map: the C-VLANs `first` to `last` belong to the S-VLAN `service`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// First C-VLAN, by the customer's identifier.
    pub first: Vid,
    /// Last C-VLAN.
    pub last: Vid,
    /// The S-VLAN around it.
    pub service: Vid,
    /// Identifier of a single C-VLAN behind the S-tag; the customer's if `None`.
    pub inner: Option<Vid>,
}

impl MapEntry {
    /// First identifier behind the S-tag.
    fn inner_first(&self) -> u16 {
        self.inner.unwrap_or(self.first).number()
    }

    /// Last identifier behind the S-tag.
    fn inner_last(&self) -> u16 {
        self.inner_first() + self.span()
    }

    fn span(&self) -> u16 {
        self.last.number() - self.first.number()
    }
}

/// `10:100`, `20-29:200` or `30:300/31`.
impl fmt::Display for MapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.first != self.last {
            write!(f, "-{}", self.last)?;
        }
        write!(f, ":{}", self.service)?;
        self.inner.map_or(Ok(()), |inner| write!(f, "/{inner}"))
    }
}

/// A reversible map of C-VLANs to S-VLANs. A lookup is a binary search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceMap {
    /// Ordered by the customer's identifier.
    entries: Box<[MapEntry]>,
    /// Indices into `entries`, ordered by S-VLAN and identifier behind its tag.
    by_service: Box<[usize]>,
}

impl ServiceMap {
    /// The map with these entries, in any order.
    ///
    /// # Errors
    /// [`MapError`] if two entries would apply to the same frame, in either direction.
    pub fn new(mut entries: Vec<MapEntry>) -> Result<Self, MapError> {
        if let Some(wrong) = entries.iter().find(|it| it.first > it.last) {
            return Err(MapError::Backwards(*wrong));
        }
        if let Some(wrong) = entries.iter().find(|it| it.inner.is_some() && it.span() > 0) {
            return Err(MapError::RangeTranslated(*wrong));
        }
        entries.sort_by_key(|entry| entry.first);
        if let Some([a, b]) = neighbours(&entries, |a, b| a.last >= b.first) {
            return Err(MapError::Overlap(a, b));
        }
        let key = |entry: &MapEntry| (entry.service, entry.inner_first());
        let mut by_service: Box<[usize]> = (0..entries.len()).collect();
        by_service.sort_by_key(|&at| key(&entries[at]));
        let sorted: Vec<_> = by_service.iter().map(|&at| entries[at]).collect();
        let meet = |a: &MapEntry, b: &MapEntry| {
            a.service == b.service && a.inner_last() >= b.inner_first()
        };
        if let Some([a, b]) = neighbours(&sorted, meet) {
            return Err(MapError::NoWayBack(a, b));
        }
        Ok(Self { entries: entries.into(), by_service })
    }

    /// The S-VLAN of a customer's C-VLAN, and the identifier of the C-VLAN behind its tag.
    #[inline]
    pub fn inward(&self, customer: u16) -> Option<(Vid, u16)> {
        let at = self.entries.partition_point(|entry| entry.first.number() <= customer);
        let entry = self.entries.get(at.checked_sub(1)?)?;
        let is_in = customer <= entry.last.number();
        is_in.then(|| (entry.service, entry.inner_first() + (customer - entry.first.number())))
    }

    /// The customer's identifier of the C-VLAN `inner` behind the tag of `service`.
    #[inline]
    pub fn outward(&self, service: u16, inner: u16) -> Option<u16> {
        let key = |&at: &usize| {
            let entry = &self.entries[at];
            (entry.service.number(), entry.inner_first())
        };
        let at = self.by_service.partition_point(|at| key(at) <= (service, inner));
        let entry = &self.entries[*self.by_service.get(at.checked_sub(1)?)?];
        let is_in = entry.service.number() == service && inner <= entry.inner_last();
        is_in.then(|| entry.first.number() + (inner - entry.inner_first()))
    }

    /// Its entries, ordered by the customer's identifier.
    pub fn entries(&self) -> &[MapEntry] {
        &self.entries
    }
}

/// The first two neighbours for which `wrong` is true.
fn neighbours(
    entries: &[MapEntry],
    wrong: impl Fn(&MapEntry, &MapEntry) -> bool,
) -> Option<[MapEntry; 2]> {
    entries.windows(2).find(|pair| wrong(&pair[0], &pair[1])).map(|pair| [pair[0], pair[1]])
}

/// What is wrong with a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A range that ends before it starts.
    #[error("{0} ends before it starts")]
    Backwards(MapEntry),
    /// A translation of several C-VLANs into one.
    #[error(
        "{0} would translate several C-VLANs to the same identifier; translate them one by one"
    )]
    RangeTranslated(MapEntry),
    /// Two entries for the same C-VLAN.
    #[error("{0} and {1} overlap; a C-VLAN belongs to one S-VLAN")]
    Overlap(MapEntry, MapEntry),
    /// Two C-VLANs that are the same inside.
    #[error(
        "{0} and {1} have the same tags on the S-VLAN side, so the reverse translation is ambiguous"
    )]
    NoWayBack(MapEntry, MapEntry),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vid(number: u16) -> Vid {
        Vid::new(number).unwrap()
    }

    fn entry(first: u16, last: u16, service: u16, inner: Option<u16>) -> MapEntry {
        MapEntry {
            first: vid(first),
            last: vid(last),
            service: vid(service),
            inner: inner.map(vid),
        }
    }

    #[test]
    fn the_map_goes_both_ways() {
        let entries =
            vec![entry(30, 30, 300, Some(31)), entry(10, 10, 100, None), entry(20, 29, 200, None)];
        let map = ServiceMap::new(entries).unwrap();
        for (customer, service, inner) in
            [(10, 100, 10), (20, 200, 20), (29, 200, 29), (30, 300, 31)]
        {
            assert_eq!(map.inward(customer), Some((vid(service), inner)));
            assert_eq!(map.outward(service, inner), Some(customer));
        }
        for customer in [0, 9, 11, 19, 31, 4095] {
            assert_eq!(map.inward(customer), None, "{customer}");
        }
        for (service, inner) in [(100, 11), (200, 19), (200, 30), (300, 30), (99, 10), (301, 31)] {
            assert_eq!(map.outward(service, inner), None, "{service} {inner}");
        }
        let lines: Vec<_> = map.entries().iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["10:100", "20-29:200", "30:300/31"]);
    }

    #[test]
    fn maps_that_are_not_clear_are_refused() {
        let error = |a, b| ServiceMap::new(vec![a, b]).unwrap_err().to_string();
        let ten = entry(10, 20, 100, None);
        assert!(error(ten, entry(20, 20, 200, None)).starts_with("10-20:100 and 20:200 overlap"));
        assert!(
            error(ten, entry(30, 30, 100, Some(15))).contains("reverse translation is ambiguous")
        );
        assert!(error(ten, entry(40, 30, 100, None)).starts_with("40-30:100 ends before"));
        assert!(error(ten, entry(30, 40, 100, Some(1))).contains("one by one"));
        assert!(ServiceMap::new(vec![ten, entry(30, 30, 101, Some(15))]).is_ok());
    }
}
