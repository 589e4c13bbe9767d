//! What may be left undone in a frame.

use bitflags::bitflags;

bitflags! {
    /// What may be left undone in a frame, to be done later by whoever needs it done. The bits are
    /// those of `TUNSETOFFLOAD` (`include/uapi/linux/if_tun.h`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Offloads: u32 {
        /// Transport checksums (`TUN_F_CSUM`). All others need it.
        const CSUM = 0x01;
        /// Trains of TCP over IPv4 (`TUN_F_TSO4`).
        const TSO4 = 0x02;
        /// Trains of TCP over IPv6 (`TUN_F_TSO6`).
        const TSO6 = 0x04;
        /// TCP trains with CWR on their first segment only, RFC 3168 (`TUN_F_TSO_ECN`).
        const TSO_ECN = 0x08;
        /// Trains of UDP over IPv4 (`TUN_F_USO4`), Linux 6.2.
        const USO4 = 0x20;
        /// Trains of UDP over IPv6 (`TUN_F_USO6`), Linux 6.2.
        const USO6 = 0x40;
    }
}

impl Offloads {
    /// TCP trains over either IP.
    pub const TSO: Self = Self::TSO4.union(Self::TSO6);
    /// UDP trains over either IP.
    pub const USO: Self = Self::USO4.union(Self::USO6);

    /// The sets worth trying with at most `cap`, best first; the last is empty. The kernel takes
    /// or refuses a set as a whole.
    pub(crate) fn ladder(cap: Self) -> impl Iterator<Item = Self> {
        [
            Self::all(),
            Self::all().difference(Self::USO),
            Self::CSUM.union(Self::TSO),
            Self::CSUM,
            Self::empty(),
        ]
        .into_iter()
        .map(move |rung| rung.intersection(cap).without_orphans())
    }

    /// Takes away what the kernel refuses because something it builds on is not in the set.
    fn without_orphans(self) -> Self {
        let mut set = self;
        if !set.contains(Self::CSUM) {
            return Self::empty();
        }
        if !set.contains(Self::USO) {
            set.remove(Self::USO);
        }
        if !set.intersects(Self::TSO) {
            set.remove(Self::TSO_ECN);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_goes_down_to_nothing() {
        let rungs = Offloads::ladder(Offloads::all()).collect::<Vec<_>>();
        assert_eq!(rungs[0], Offloads::all());
        assert_eq!(rungs[1], Offloads::CSUM | Offloads::TSO | Offloads::TSO_ECN);
        assert_eq!(rungs[2], Offloads::CSUM | Offloads::TSO);
        assert_eq!(rungs[3..], [Offloads::CSUM, Offloads::empty()]);
    }

    #[test]
    fn no_rung_is_one_that_the_kernel_must_refuse() {
        for bits in 0..=Offloads::all().bits() {
            for rung in Offloads::ladder(Offloads::from_bits_truncate(bits)) {
                let orphaned = !rung.is_empty() && !rung.contains(Offloads::CSUM)
                    || rung.contains(Offloads::TSO_ECN) && !rung.intersects(Offloads::TSO)
                    || rung.intersects(Offloads::USO) && !rung.contains(Offloads::USO);
                assert!(!orphaned, "{rung:?}");
                assert!(Offloads::from_bits_truncate(bits).contains(rung));
            }
        }
    }
}
