//! Pseudorandom numbers for samples, so that no pattern in the traffic decides. They are the same
//! at each start, and not secret.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts with `seed`.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_mul(GOLDEN)))
    }

    /// Continues from a [`Self::state`].
    pub(crate) fn at(state: u64) -> Self {
        Self(state)
    }

    /// The current state.
    pub(crate) fn state(&self) -> u64 {
        self.0
    }

    /// The next number less than `bound`; zero if `bound` is.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(GOLDEN);
        // The upper half of the product is uniform except for 1 in 2^32 / bound.
        let product = (mix(self.0) >> 32) * u64::from(bound);
        u32::try_from(product >> 32).unwrap_or(0)
    }
}

/// The output function.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// 2^64 divided by the golden ratio, odd: the increment.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        let mut random = Random::new(7);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }
}
