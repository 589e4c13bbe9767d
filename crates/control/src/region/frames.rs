//! Sets of frames: unions of regions with exceptions.
//!
//! OpenFlow has no "not": an exception becomes a rule of a higher priority (`cells.rs`). So sets
//! are represented as `⋃ (region ∖ ⋃ exceptions)`, which is closed under union, intersection and
//! complement. Complements of unions multiply; sets larger than [`MAX_SIZE`] are rejected. A small
//! result may still be expensive, as each `and` and `or` compares all pairs of regions. So pairs
//! are counted over all steps, and more than [`MAX_PAIRS`] are rejected, too.

use crate::PortRange;
use crate::region::Region;

/// A set of frames.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    /// Sorted; none is empty or inside another.
    terms: Vec<Term>,
    /// Comparisons in all steps so far.
    work: Work,
}

/// Number of pairs of regions compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pairs: usize,
}

/// A region with exceptions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term {
    pub(crate) region: Region,
    /// Sorted, inside the region, none inside another.
    pub(crate) except: Vec<Region>,
}

/// The set is too large, or too expensive to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// It needs more regions than [`MAX_SIZE`].
    Regions {
        /// At least this many.
        needed: usize,
    },
    /// More than [`MAX_PAIRS`] would have to be compared.
    Pairs,
}

impl Frames {
    /// No frame.
    pub(crate) const fn none() -> Self {
        Self { terms: Vec::new(), work: Work { pairs: 0 } }
    }

    /// The union of these regions.
    pub(crate) fn of(regions: impl IntoIterator<Item = Region>) -> Result<Self, TooMany> {
        let terms = regions.into_iter().map(|region| Term { region, except: Vec::new() });
        Self::collect(terms.collect(), Work::default())
    }

    /// A region without others.
    pub(crate) fn without(
        region: Region,
        except: impl IntoIterator<Item = Region>,
    ) -> Result<Self, TooMany> {
        let except: Vec<_> = except.into_iter().collect();
        let work = Work::default().plus(except.len().saturating_pow(2))?;
        Self::collect(Term::new(region, except).into_iter().collect(), work)
    }

    /// The union.
    pub(crate) fn union(mut self, mut other: Self) -> Result<Self, TooMany> {
        let work = self.work.and(other.work)?;
        let work = work.plus(self.size().saturating_mul(other.size()).saturating_mul(2))?;
        // No term is inside another one of its own set.
        self.terms.retain(|term| !term.is_inside(&other.terms));
        other.terms.retain(|term| !term.is_inside(&self.terms));
        let mut terms = self.terms;
        terms.append(&mut other.terms);
        terms.sort_unstable();
        terms.dedup();
        Self { terms, work }.bounded()
    }

    /// The intersection.
    pub(crate) fn intersect(&self, other: &Self) -> Result<Self, TooMany> {
        let mut work = self.work.and(other.work)?;
        let (mut terms, mut size) = (Vec::new(), 0);
        for a in &self.terms {
            let pairs = other.terms.iter().map(|b| 1 + a.except.len() + b.except.len());
            work = work.plus(pairs.sum())?;
            let mut nested = 0;
            let both = other.terms.iter().filter_map(|b| a.intersect(b));
            terms.extend(both.inspect(|term| {
                size += term.size();
                nested += term.except.len() * term.except.len();
            }));
            if size > MAX_WORK {
                return Err(TooMany::Regions { needed: size });
            }
            work = work.plus(nested)?;
        }
        Self::collect(terms, work)
    }

    /// The complement.
    pub(crate) fn complement(&self) -> Result<Self, TooMany> {
        let regions = || self.terms.iter().map(|term| term.region);
        if self.terms.iter().all(|term| term.except.is_empty()) {
            return Self::without(Region::default(), regions())?.after(self.work);
        }
        let mut others = Self::of([Region::default()])?.after(self.work)?;
        for Term { region, except } in &self.terms {
            let outside = Self::without(Region::default(), [*region])?;
            others = others.intersect(&outside.union(Self::of(except.iter().copied())?)?)?;
        }
        Ok(others)
    }

    /// The answers to these frames, as far as hosts can send them.
    pub(crate) fn reversed(&self) -> Result<Self, TooMany> {
        let turned = self.terms.iter().map(|Term { region, except }| Term {
            region: region.reversed(),
            except: except.iter().map(|region| region.reversed()).collect(),
        });
        let sent = turned.filter(|term| term.region.has_sender());
        let terms = sent.filter_map(|term| Term::new(term.region, term.except)).collect();
        Self::collect(terms, self.work)
    }

    /// Whether the set is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Number of regions, including exceptions.
    pub(crate) fn size(&self) -> usize {
        self.terms.iter().map(Term::size).sum()
    }

    /// The terms of the union.
    pub(crate) fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Sorts terms and removes those inside others.
    fn collect(mut terms: Vec<Term>, work: Work) -> Result<Self, TooMany> {
        terms.sort_unstable();
        terms.dedup();
        let size: usize = terms.iter().map(Term::size).sum();
        let work = work.plus(size.saturating_pow(2)).map_err(|too_many| match size {
            ..=MAX_SIZE => too_many,
            // Hardly this many are inside others.
            needed => TooMany::Regions { needed },
        })?;
        let kept = terms.iter().filter(|term| !term.is_inside(&terms)).cloned().collect();
        Self { terms: kept, work }.bounded()
    }

    /// The same set with the work of an earlier step added.
    fn after(self, work: Work) -> Result<Self, TooMany> {
        Ok(Self { work: self.work.and(work)?, ..self })
    }

    fn bounded(self) -> Result<Self, TooMany> {
        match self.size() {
            needed if needed > MAX_SIZE => Err(TooMany::Regions { needed }),
            _ => Ok(self),
        }
    }
}

/// Compares the sets, not the work.
impl PartialEq for Frames {
    fn eq(&self, other: &Self) -> bool {
        self.terms == other.terms
    }
}

impl Eq for Frames {}

impl Work {
    /// Adds comparisons.
    pub(crate) const fn plus(self, pairs: usize) -> Result<Self, TooMany> {
        let pairs = self.pairs.saturating_add(pairs);
        if pairs > MAX_PAIRS { Err(TooMany::Pairs) } else { Ok(Self { pairs }) }
    }

    /// The sum.
    const fn and(self, other: Self) -> Result<Self, TooMany> {
        self.plus(other.pairs)
    }
}

impl Term {
    /// A region with exceptions; `None` if nothing is left.
    fn new(region: Region, except: impl IntoIterator<Item = Region>) -> Option<Self> {
        let mut inside: Vec<_> =
            except.into_iter().filter_map(|other| region.intersect(&other)).collect();
        if inside.contains(&region) {
            return None;
        }
        inside.sort_unstable();
        inside.dedup();
        let is_inner = |a: &Region| inside.iter().any(|b| b != a && b.covers(a));
        let except = inside.iter().filter(|a| !is_inner(a)).copied().collect();
        Some(Self { region, except })
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        let region = self.region.intersect(&other.region)?;
        Self::new(region, self.except.iter().chain(&other.except).copied())
    }

    /// Whether the term contains each frame of `other`, as far as comparing single regions can
    /// decide.
    fn covers(&self, other: &Self) -> bool {
        let is_left_out = |except: &Region| match except.intersect(&other.region) {
            Some(both) => other.except.iter().any(|theirs| theirs.covers(&both)),
            None => true,
        };
        self.region.covers(&other.region) && self.except.iter().all(is_left_out)
    }

    /// Whether another one of these terms covers it.
    fn is_inside(&self, terms: &[Self]) -> bool {
        terms.iter().any(|other| other.covers(self) && other != self)
    }

    const fn size(&self) -> usize {
        1 + self.except.len()
    }
}

/// Frames with ports in ranges, in the fewest regions.
pub(crate) fn ports_within(
    bases: &[Region],
    ports: PortRange,
    set: fn(Region, u16) -> Region,
) -> Result<Frames, TooMany> {
    let sets = bases.len() * ports.region_count();
    if sets > MAX_SIZE {
        return Err(TooMany::Regions { needed: sets });
    }
    if !ports.is_most() {
        return Frames::of(bases.iter().flat_map(|base| ports.iter().map(|port| set(*base, port))));
    }
    bases.iter().try_fold(Frames::none(), |frames, base| {
        frames.union(Frames::without(*base, ports.others().map(|port| set(*base, port)))?)
    })
}

/// Maximum regions of one policy: as many as a switch may have for all policies.
pub(crate) const MAX_SIZE: usize = 4096;
/// Maximum intermediate regions.
const MAX_WORK: usize = 8 * MAX_SIZE;
/// Maximum pairs of regions compared: a few times those of the largest set. The controller does
/// nothing else in that time.
const MAX_PAIRS: usize = 8 * MAX_SIZE * MAX_SIZE;

#[cfg(test)]
pub(crate) mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;
    use tapswitch_wire::FlowKey;

    use super::*;
    use crate::family::Family;

    /// Regions of four fields with few values, and keys for all their combinations.
    pub(crate) fn region() -> impl Strategy<Value = Region> {
        let prefix = || select(vec!["0.0.0.0/0", "10.0.0.0/31", "10.0.0.0", "10.0.0.1"]);
        let ip = move || option::weighted(0.4, prefix().prop_map(|text| text.parse().unwrap()));
        let port = || option::weighted(0.3, 1..3u16);
        (ip(), ip(), port(), port()).prop_map(|(src_ip, dst_ip, src_port, dst_port)| {
            let is_one = |ip: &crate::IpPrefix| !ip.is_all();
            Region {
                family: Some(Family::Ipv4),
                proto: Some(6),
                src_ip: src_ip.filter(is_one),
                dst_ip: dst_ip.filter(is_one),
                src_port,
                dst_port,
                ..Region::default()
            }
        })
    }

    pub(crate) fn keys() -> impl Iterator<Item = FlowKey> {
        (0..3u8.pow(4)).map(|number| {
            let digit = |at: u32| number / 3u8.pow(at) % 3;
            let mut key = FlowKey { eth_type: [8, 0], ip_proto: 6, ..FlowKey::default() };
            key.ip_src[..4].copy_from_slice(&[10, 0, 0, digit(0)]);
            key.ip_dst[..4].copy_from_slice(&[10, 0, 0, digit(1)]);
            (key.l4_src[1], key.l4_dst[1]) = (digit(2), digit(3));
            key
        })
    }

    pub(crate) fn contains(frames: &Frames, key: &FlowKey) -> bool {
        let is_in = |term: &Term| {
            term.region.contains(key) && !term.except.iter().any(|except| except.contains(key))
        };
        frames.terms().iter().any(is_in)
    }

    /// A set, and whether it contains each key.
    #[derive(Clone, Debug)]
    pub(crate) enum Expr {
        Regions(Vec<Region>),
        Not(Box<Self>),
        And(Box<Self>, Box<Self>),
        Or(Box<Self>, Box<Self>),
    }

    pub(crate) fn expr() -> impl Strategy<Value = Expr> {
        let leaf = vec(region(), 1..3).prop_map(Expr::Regions);
        leaf.prop_recursive(3, 8, 2, |inner| {
            let two = (inner.clone(), inner.clone());
            prop_oneof![
                2 => inner.prop_map(|a| Expr::Not(Box::new(a))),
                1 => two.clone().prop_map(|(a, b)| Expr::And(Box::new(a), Box::new(b))),
                1 => two.prop_map(|(a, b)| Expr::Or(Box::new(a), Box::new(b))),
            ]
        })
    }

    impl Expr {
        pub(crate) fn frames(&self) -> Result<Frames, TooMany> {
            match self {
                Self::Regions(regions) => Frames::of(regions.iter().copied()),
                Self::Not(a) => a.frames()?.complement(),
                Self::And(a, b) => a.frames()?.intersect(&b.frames()?),
                Self::Or(a, b) => a.frames()?.union(b.frames()?),
            }
        }

        pub(crate) fn contains(&self, key: &FlowKey) -> bool {
            match self {
                Self::Regions(regions) => regions.iter().any(|region| region.contains(key)),
                Self::Not(a) => !a.contains(key),
                Self::And(a, b) => a.contains(key) && b.contains(key),
                Self::Or(a, b) => a.contains(key) || b.contains(key),
            }
        }
    }

    proptest! {
        #[test]
        fn sets_have_the_frames_that_logic_says(expr in expr()) {
            let Ok(frames) = expr.frames() else { return Ok(()) };
            for key in keys() {
                prop_assert_eq!(contains(&frames, &key), expr.contains(&key), "{:?}", frames);
            }
            let turned = frames.reversed().unwrap();
            for key in keys() {
                let back = FlowKey {
                    ip_src: key.ip_dst,
                    ip_dst: key.ip_src,
                    l4_src: key.l4_dst,
                    l4_dst: key.l4_src,
                    ..key
                };
                prop_assert_eq!(contains(&turned, &back), contains(&frames, &key));
            }
        }
    }

    #[test]
    fn what_is_said_twice_is_kept_once() {
        let tcp = Region { family: Some(Family::Ipv4), proto: Some(6), ..Region::default() };
        let ip = Region { proto: None, ..tcp };
        let web = Region { dst_port: Some(80), ..tcp };
        assert_eq!(Frames::of([tcp, ip, web, tcp]), Frames::of([ip]));
        let some = Frames::without(ip, [tcp, web]).unwrap();
        assert_eq!((some.size(), some.terms()[0].except.as_slice()), (2, &[tcp][..]));
        assert_eq!(some.clone().union(Frames::of([tcp]).unwrap()).unwrap().terms().len(), 2);
        assert_eq!(some.intersect(&Frames::of([web]).unwrap()), Ok(Frames::none()));
        assert_eq!(some.complement().unwrap().complement().unwrap(), some);
        let none = Frames::of([tcp]).unwrap().complement().unwrap();
        assert!(none.intersect(&Frames::of([web]).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn what_becomes_too_large_is_refused() {
        let tcp = Region { family: Some(Family::Ipv4), proto: Some(6), ..Region::default() };
        let dst = |port| Region { dst_port: Some(port), ..tcp };
        let src = |port| Region { src_port: Some(port), ..tcp };
        let max = u16::try_from(MAX_SIZE).unwrap();
        assert_eq!(Frames::of((0..max).map(dst)).unwrap().size(), MAX_SIZE);
        assert_eq!(Frames::of((0..=max).map(dst)), Err(TooMany::Regions { needed: MAX_SIZE + 1 }));
        let (a, b) = (Frames::of((0..80).map(dst)).unwrap(), Frames::of((0..80).map(src)).unwrap());
        assert_eq!(a.intersect(&b), Err(TooMany::Regions { needed: 6400 }));
    }
}
