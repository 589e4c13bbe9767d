//! Work on a frame that can be deferred.

use bitflags::bitflags;

use crate::HeaderLen;

bitflags! {
    /// Work that may be deferred in a frame, and that a later hop does if necessary. The bits are
    /// those of `TUNSETOFFLOAD` (`include/uapi/linux/if_tun.h`).
    ///
    /// Linux accepts or refuses a set as a whole. It refuses trains without [`Self::CSUM`],
    /// [`Self::TSO_ECN`] without TCP trains, one of the two UDP train types without the other,
    /// tunnelled trains without any other trains, and unknown bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Offloads: u32 {
        /// Transport checksums (`TUN_F_CSUM`). Required by all others.
        const CSUM = 0x01;
        /// Trains of TCP over IPv4 (`TUN_F_TSO4`).
        const TSO4 = 0x02;
        /// Trains of TCP over IPv6 (`TUN_F_TSO6`).
        const TSO6 = 0x04;
        /// TCP trains with CWR on their first segment only, RFC 3168 (`TUN_F_TSO_ECN`).
        const TSO_ECN = 0x08;
        /// UDP datagrams to be split into IP fragments (`TUN_F_UFO`). Linux accepts and ignores it
        /// since 4.14, so it is never in [`Capabilities`](crate::Capabilities).
        const UFO = 0x10;
        /// Trains of UDP over IPv4 (`TUN_F_USO4`), Linux 6.2.
        const USO4 = 0x20;
        /// Trains of UDP over IPv6 (`TUN_F_USO6`), Linux 6.2.
        const USO6 = 0x40;
        /// Trains inside UDP tunnels, such as VXLAN and Geneve (`TUN_F_UDP_TUNNEL_GSO`), Linux
        /// 6.17. Needs a header of 24 bytes.
        const UDP_TUNNEL = 0x80;
        /// The same with a checksum in the outer UDP header (`TUN_F_UDP_TUNNEL_GSO_CSUM`), Linux
        /// 6.17.
        const UDP_TUNNEL_CSUM = 0x100;
    }
}

impl Offloads {
    /// TCP trains over IPv4 and IPv6.
    pub const TSO: Self = Self::TSO4.union(Self::TSO6);
    /// UDP trains over IPv4 and IPv6.
    pub const USO: Self = Self::USO4.union(Self::USO6);
    /// Trains inside UDP tunnels, with or without outer checksum.
    pub const TUNNEL: Self = Self::UDP_TUNNEL.union(Self::UDP_TUNNEL_CSUM);
    /// All that a 12-byte header can describe.
    pub const PLAIN: Self = Self::CSUM.union(Self::TSO).union(Self::TSO_ECN).union(Self::USO);
    /// All but [`Self::UFO`]: the default, as far as kernel and header support it.
    pub const DEFAULT: Self = Self::PLAIN.union(Self::TUNNEL);

    /// The subset that a header of that length can describe.
    #[must_use]
    pub const fn within(self, header: HeaderLen) -> Self {
        match header {
            HeaderLen::None => Self::empty(),
            HeaderLen::Legacy | HeaderLen::V1 | HeaderLen::Hash => self.difference(Self::TUNNEL),
            HeaderLen::Tunnel => self,
        }
    }

    /// The sets to try within `cap`, best first; the last is empty. The kernel accepts or refuses a
    /// set as a whole.
    pub(crate) fn ladder(cap: Self) -> impl Iterator<Item = Self> {
        [
            Self::all(),
            Self::all().difference(Self::TUNNEL),
            Self::all().difference(Self::TUNNEL.union(Self::USO)),
            Self::CSUM.union(Self::TSO),
            Self::CSUM,
            Self::empty(),
        ]
        .into_iter()
        .map(move |rung| rung.intersection(cap).without_orphans())
    }

    /// Removes bits whose prerequisites are missing, which the kernel would refuse.
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
        if !set.intersects(Self::TSO.union(Self::USO)) || !set.contains(Self::UDP_TUNNEL) {
            set.remove(Self::TUNNEL);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_goes_down_to_nothing() {
        let rungs = Offloads::ladder(Offloads::DEFAULT).collect::<Vec<_>>();
        assert_eq!(rungs[0], Offloads::PLAIN | Offloads::TUNNEL);
        assert_eq!(rungs[1], Offloads::PLAIN);
        assert_eq!(rungs[2], Offloads::CSUM | Offloads::TSO | Offloads::TSO_ECN);
        assert_eq!(rungs[3], Offloads::CSUM | Offloads::TSO);
        assert_eq!(rungs[4..], [Offloads::CSUM, Offloads::empty()]);
    }

    #[test]
    fn no_rung_is_one_that_the_kernel_must_refuse() {
        for bits in 0..=Offloads::all().bits() {
            for rung in Offloads::ladder(Offloads::from_bits_truncate(bits)) {
                let trains = Offloads::TSO | Offloads::USO;
                let orphaned = !rung.is_empty() && !rung.contains(Offloads::CSUM)
                    || rung.contains(Offloads::TSO_ECN) && !rung.intersects(Offloads::TSO)
                    || rung.intersects(Offloads::USO) && !rung.contains(Offloads::USO)
                    || rung.contains(Offloads::UDP_TUNNEL) && !rung.intersects(trains)
                    || rung.contains(Offloads::UDP_TUNNEL_CSUM)
                        && !rung.contains(Offloads::UDP_TUNNEL);
                assert!(!orphaned, "{rung:?}");
                assert!(Offloads::from_bits_truncate(bits).contains(rung));
            }
        }
    }

    #[test]
    fn a_header_bounds_what_it_can_say() {
        for (header, most) in [
            (HeaderLen::None, Offloads::empty()),
            (HeaderLen::Legacy, Offloads::PLAIN),
            (HeaderLen::V1, Offloads::PLAIN),
            (HeaderLen::Hash, Offloads::PLAIN),
            (HeaderLen::Tunnel, Offloads::DEFAULT),
        ] {
            assert_eq!(Offloads::DEFAULT.within(header), most);
        }
    }
}
