//! Destination address filter of a tap device.

use std::collections::HashSet;

use tapswitch_wire::MacAddr;

/// Destination addresses that the kernel may send to a tap device; other frames are dropped before
/// they are queued, and counted in `tx_dropped`.
///
/// Linux compares eight addresses exactly. Further multicast addresses are hashed to six bits, so
/// some other multicast addresses pass as well; further unicast addresses are not supported. The
/// broadcast address passes only if it is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxFilter {
    addresses: Vec<MacAddr>,
    all_multicast: bool,
}

impl TxFilter {
    /// Number of addresses that are compared exactly (`FLT_EXACT_COUNT` in `drivers/net/tun.c`).
    pub const EXACT_COUNT: usize = 8;
    /// Maximum number of addresses: `struct tun_filter` counts them in 16 bits.
    pub const COUNT_MAX: usize = u16::MAX as usize;

    /// Passes these addresses.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = MacAddr>) -> Self {
        Self { addresses: addresses.into_iter().collect(), all_multicast: false }
    }

    /// Passes all multicast and broadcast frames as well.
    #[must_use]
    pub fn all_multicast(mut self, on: bool) -> Self {
        self.all_multicast = on;
        self
    }

    /// The addresses in the order that suits the kernel, unicast first; and the flag.
    pub(crate) fn arranged(&self) -> (Vec<MacAddr>, bool) {
        let mut seen = HashSet::new();
        let mut addresses = self.addresses.clone();
        addresses.retain(|address| seen.insert(*address));
        addresses.sort_by_key(|address| address.is_multicast());
        (addresses, self.all_multicast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unicast_addresses_come_first() {
        let unicast = |last| MacAddr([2, 0, 0, 0, 0, last]);
        let multicast = |last| MacAddr([1, 0, 0x5e, 0, 0, last]);
        let filter = TxFilter::new([multicast(1), unicast(1), multicast(2), unicast(2)]);
        let (addresses, all) = filter.all_multicast(true).arranged();
        assert_eq!(addresses, [unicast(1), unicast(2), multicast(1), multicast(2)]);
        assert!(all);
    }

    #[test]
    fn an_address_counts_once_wherever_it_is_repeated() {
        let address = |last| MacAddr([2, 0, 0, 0, 0, last]);
        let (addresses, _) = TxFilter::new([1, 2, 1, 2, 1].map(address)).arranged();
        assert_eq!(addresses, [1, 2].map(address));
    }
}
