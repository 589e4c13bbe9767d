//! Handles a kernel that refuses trains although the probe found that it supports them.
//!
//! Some releases (6.6.44 and 6.10.3, fixed by commit 89add40066f9) refuse valid trains of some
//! shapes with `EINVAL`. Disabling all trains would cost most of the speed, and disabling one type
//! permanently would do so because of a single odd frame. So each type is disabled separately, and
//! tried again after a number of trains, which needs no clock.

use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags};

use crate::Offloads;

/// The train types that a sender may currently send whole. Belongs to one sender and one device;
/// clones start in the same state and are independent afterwards.
///
/// ```
/// use tapswitch_tap::{GsoType, NetHeader, Offloads, SendFallback};
///
/// let train = NetHeader { gso_type: GsoType::UDP_L4, gso_size: 1000, ..NetHeader::PLAIN };
/// let mut fallback = SendFallback::new(Offloads::PLAIN);
/// assert!(fallback.permits(&train));
/// // The send was answered `SendError::Rejected`, though the header fits the frame:
/// fallback.refused(&train);
/// assert!(!fallback.permits(&train), "cut it");
/// assert!(fallback.permits(&NetHeader { gso_type: GsoType::TCPV4, ..train }), "others go on");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendFallback {
    send: Offloads,
    /// TCP over IPv4, TCP over IPv6, UDP, and all tunnelled trains.
    states: [State; TYPE_COUNT],
}

/// State of one train type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Trains to segment before one is tried again; zero if the type is enabled.
    cut: u32,
    /// Value of `cut` when the type was last disabled; zero if never.
    last: u32,
}

impl SendFallback {
    /// Starts with all that the kernel supports: `send` of [`Capabilities`](crate::Capabilities).
    #[must_use]
    pub const fn new(send: Offloads) -> Self {
        Self { send, states: [State { cut: 0, last: 0 }; TYPE_COUNT] }
    }

    /// Returns whether a frame with this metadata may be sent as it is; otherwise segment it, or
    /// complete its checksum if it is not a train. Call this once per train: a disabled type is
    /// enabled again after a number of calls.
    #[inline]
    pub fn permits(&mut self, header: &NetHeader) -> bool {
        let Some(needed) = needed(header) else { return false };
        if !self.send.contains(needed) {
            return false;
        }
        !header.is_train() || self.turn(header.gso_type)
    }

    /// Records that a train was [refused](crate::SendError::Rejected), and disables its type: for
    /// 64 trains the first time, and for twice as many each time the retried train is refused as
    /// well, up to a million.
    ///
    /// Call it only if the header fits the frame ([`NetHeader::check`] and the parser agree): every
    /// kernel refuses a frame with wrong metadata.
    #[cold]
    pub fn refused(&mut self, header: &NetHeader) {
        if let Some(state) = self.state(header.gso_type) {
            let cut = (state.last * 2).clamp(FIRST_CUT_COUNT, MAX_CUT_COUNT);
            *state = State { cut, last: cut };
        }
    }

    /// Records that a train was accepted, so that a later refusal counts as the first. Only needed
    /// while [`Self::is_degraded`].
    #[inline]
    pub fn accepted(&mut self, header: &NetHeader) {
        if let Some(state) = self.state(header.gso_type) {
            *state = State::default();
        }
    }

    /// True if a type was refused and no train of it was accepted since.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.states.iter().any(|state| state.last != 0)
    }

    /// The offloads that may be sent now.
    #[must_use]
    pub fn current(&self) -> Offloads {
        let withdrawn = [Offloads::TSO4, Offloads::TSO6, Offloads::USO, Offloads::TUNNEL]
            .into_iter()
            .zip(&self.states)
            .filter(|(_, state)| state.cut != 0)
            .fold(Offloads::empty(), |all, (offloads, _)| all | offloads);
        self.send.difference(withdrawn)
    }

    fn turn(&mut self, gso_type: GsoType) -> bool {
        match self.state(gso_type) {
            Some(State { cut: 0, .. }) => true,
            Some(state) => {
                state.cut -= 1;
                false
            }
            None => false,
        }
    }

    fn state(&mut self, gso_type: GsoType) -> Option<&mut State> {
        let index = match (gso_type.tunnel(), gso_type.inner().kind()) {
            (0, GsoType::TCPV4) => 0,
            (0, GsoType::TCPV6) => 1,
            (0, GsoType::UDP_L4) => 2,
            (0, _) => return None,
            _ => 3,
        };
        self.states.get_mut(index)
    }
}

/// The offloads that a frame with this metadata needs; `None` for a type that no kernel supports.
#[inline]
fn needed(header: &NetHeader) -> Option<Offloads> {
    let gso_type = header.gso_type;
    let mut needed = match gso_type.inner().kind() {
        GsoType::NONE => Offloads::empty(),
        GsoType::TCPV4 => Offloads::TSO4,
        GsoType::TCPV6 => Offloads::TSO6,
        GsoType::UDP_L4 => Offloads::USO,
        _ => return None,
    };
    needed.set(Offloads::CSUM, header.needs_checksum());
    if gso_type.has_ecn() {
        needed |= Offloads::TSO_ECN;
    }
    if gso_type.tunnel() != 0 {
        needed |= Offloads::UDP_TUNNEL;
        let has_outer_checksum = header.flags & NetHeaderFlags::UDP_TUNNEL_CSUM != 0;
        needed.set(Offloads::UDP_TUNNEL_CSUM, has_outer_checksum);
    }
    Some(needed)
}

/// Length of [`SendFallback::states`].
const TYPE_COUNT: usize = 4;
/// Trains to segment after the first refusal: few enough that one odd frame costs little.
const FIRST_CUT_COUNT: u32 = 64;
/// At 64 KiB each, a type that never works costs one failed write per some 64 GB.
const MAX_CUT_COUNT: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn train(gso_type: u8) -> NetHeader {
        NetHeader { gso_type: GsoType(gso_type), gso_size: 1000, ..NetHeader::PLAIN }
    }

    fn cuts_until_permitted(fallback: &mut SendFallback, header: &NetHeader) -> u32 {
        let mut cuts = 0;
        while !fallback.permits(header) {
            cuts += 1;
        }
        cuts
    }

    #[test]
    fn a_refused_type_is_withdrawn_alone() {
        let types = [
            GsoType::TCPV4.0,
            GsoType::TCPV6.0,
            GsoType::UDP_L4.0,
            GsoType::TCPV4.0 | GsoType::UDP_TUNNEL_IPV6,
        ];
        for refused in types {
            let mut fallback = SendFallback::new(Offloads::DEFAULT);
            assert!(!fallback.is_degraded());
            fallback.refused(&train(refused));
            assert!(fallback.is_degraded());
            for gso_type in types {
                assert_eq!(fallback.permits(&train(gso_type)), gso_type != refused);
            }
            assert!(fallback.permits(&NetHeader::PLAIN));
            assert_ne!(fallback.current(), Offloads::DEFAULT);
            assert!(fallback.current().contains(Offloads::CSUM));
        }
    }

    #[test]
    fn it_is_tried_again_after_longer_and_longer() {
        let udp = train(GsoType::UDP_L4.0);
        let mut fallback = SendFallback::new(Offloads::PLAIN);
        let mut waits = Vec::new();
        for _ in 0..16 {
            fallback.refused(&udp);
            waits.push(cuts_until_permitted(&mut fallback, &udp));
        }
        assert_eq!(waits[..4], [64, 128, 256, 512]);
        assert_eq!(waits[14..], [1 << 20, 1 << 20]);
    }

    #[test]
    fn what_is_taken_again_is_forgiven() {
        let udp = train(GsoType::UDP_L4.0);
        let mut fallback = SendFallback::new(Offloads::PLAIN);
        for _ in 0..2 {
            fallback.refused(&udp);
            assert_eq!(cuts_until_permitted(&mut fallback, &udp), 64);
            fallback.accepted(&udp);
            assert!(!fallback.is_degraded());
            assert_eq!(fallback.current(), Offloads::PLAIN);
        }
    }

    #[test]
    fn what_the_kernel_never_understood_is_never_permitted() {
        let tcp_only = Offloads::CSUM | Offloads::TSO;
        let mut fallback = SendFallback::new(tcp_only);
        assert!(fallback.permits(&train(GsoType::TCPV6.0)));
        for gso_type in [
            GsoType::UDP_L4.0,
            GsoType::UDP.0,
            GsoType::TCPV4.0 | GsoType::ECN,
            GsoType::TCPV4.0 | GsoType::UDP_TUNNEL_IPV4,
            2,
        ] {
            assert!(!fallback.permits(&train(gso_type)), "{gso_type:#x}");
        }
        assert_eq!(fallback.current(), tcp_only);
        assert!(!fallback.is_degraded());
        // A device without a network header supports no offload, not even checksums.
        let partial = NetHeader { flags: NetHeaderFlags::NEEDS_CSUM, ..NetHeader::PLAIN };
        let mut headerless = SendFallback::new(Offloads::empty());
        assert!(fallback.permits(&partial) && !headerless.permits(&partial));
        assert!(headerless.permits(&NetHeader::PLAIN));
        let tunnelled = train(GsoType::TCPV4.0 | GsoType::UDP_TUNNEL_IPV4);
        let with_outer = NetHeader { flags: NetHeaderFlags::UDP_TUNNEL_CSUM, ..tunnelled };
        let mut without = SendFallback::new(Offloads::DEFAULT - Offloads::UDP_TUNNEL_CSUM);
        assert!(without.permits(&tunnelled) && !without.permits(&with_outer));
    }
}
