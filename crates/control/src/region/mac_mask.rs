//! Masked MAC addresses.

use std::fmt;

use tapswitch_openflow::Masked;
use tapswitch_wire::MacAddr;

/// All addresses that agree in the bits of a mask. The other bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MacMask {
    value: MacAddr,
    mask: MacAddr,
}

impl MacMask {
    /// Group addresses, including broadcast (IEEE 802-2014 §8.2.2: the first bit).
    pub(crate) const GROUPS: Self = Self { value: GROUP_BIT, mask: GROUP_BIT };

    /// A single address.
    pub(crate) const fn one(value: MacAddr) -> Self {
        Self { value, mask: MacAddr::BROADCAST }
    }

    /// The intersection.
    pub(crate) fn intersect(self, other: Self) -> Option<Self> {
        let do_agree = self.under(other.mask) == other.under(self.mask);
        let or = |a: MacAddr, b: MacAddr| zip(a, b, |a, b| a | b);
        do_agree
            .then(|| Self { value: or(self.value, other.value), mask: or(self.mask, other.mask) })
    }

    /// The address, if there is only one.
    pub(crate) fn exact(self) -> Option<MacAddr> {
        (self.mask == MacAddr::BROADCAST).then_some(self.value)
    }

    /// Whether the address is in the set.
    pub(crate) fn contains(self, mac: MacAddr) -> bool {
        and(mac, self.mask) == self.value
    }

    /// Whether all of them are group addresses.
    pub(crate) fn is_of_groups(self) -> bool {
        and(self.value, GROUP_BIT) == GROUP_BIT
    }

    fn under(self, mask: MacAddr) -> MacAddr {
        and(self.value, mask)
    }
}

impl From<MacAddr> for MacMask {
    fn from(mac: MacAddr) -> Self {
        Self::one(mac)
    }
}

impl From<MacMask> for Masked<MacAddr> {
    fn from(MacMask { value, mask }: MacMask) -> Self {
        match mask == MacAddr::BROADCAST {
            true => value.into(),
            false => Self::with_mask(value, mask),
        }
    }
}

impl fmt::Display for MacMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::GROUPS => f.write_str("groups"),
            Self { value, mask: MacAddr::BROADCAST } => value.fmt(f),
            Self { value, mask } => write!(f, "{value}/{mask}"),
        }
    }
}

fn and(a: MacAddr, b: MacAddr) -> MacAddr {
    zip(a, b, |a, b| a & b)
}

fn zip(MacAddr(a): MacAddr, MacAddr(b): MacAddr, with: impl Fn(u8, u8) -> u8) -> MacAddr {
    let mut bytes = a;
    bytes.iter_mut().zip(b).for_each(|(a, b)| *a = with(*a, b));
    MacAddr(bytes)
}

const GROUP_BIT: MacAddr = MacAddr([1, 0, 0, 0, 0, 0]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_meet_where_they_agree() {
        let group = MacMask::one(MacAddr([0x33, 0x33, 0, 0, 0, 1]));
        let host = MacMask::one(MacAddr([2, 0, 0, 0, 0, 1]));
        assert_eq!(MacMask::GROUPS.intersect(group), Some(group));
        assert_eq!(group.intersect(MacMask::GROUPS), Some(group));
        assert_eq!((MacMask::GROUPS.intersect(host), host.intersect(group)), (None, None));
        assert!(MacMask::GROUPS.contains(MacAddr::BROADCAST) && group.is_of_groups());
        assert!(host.contains(MacAddr([2, 0, 0, 0, 0, 1])) && !host.is_of_groups());
    }
}
