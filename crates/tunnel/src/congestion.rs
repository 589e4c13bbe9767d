//! Congestion marks between a tunnel's outer and inner headers, in both directions (RFC 6040).

use std::net::IpAddr;

use tapswitch_wire::ecn::{self, Marking};

use crate::socket::{self, CONTROL_LEN};

/// The control messages that copy the ECN field of a frame to the outer header (RFC 6040 §4.1,
/// normal mode), with a DSCP of zero. One for each value except zero, which is the default of
/// sockets.
#[derive(Debug)]
pub(crate) struct Marks([[u8; CONTROL_LEN]; 3]);

impl Marks {
    /// Creates those for the IP version of `remote`.
    pub(crate) fn new(remote: IpAddr) -> Self {
        Self([1, 2, 3].map(|field| socket::class_control(remote, field)))
    }

    /// The control message for a frame that begins with `head`. Empty if its sender is not
    /// ECN-capable, or it is not IP.
    #[inline]
    pub(crate) fn of(&self, head: &[u8]) -> &[u8] {
        let field = usize::from(ecn::of(head));
        field.checked_sub(1).and_then(|at| self.0.get(at)).map_or(&[], |control| control)
    }
}

/// Propagates the outer marks to the frame of a datagram ([`ecn::pass_on`]). Returns `false` if it
/// must be dropped. Frames that are not IP pass, as in Linux (`IP_ECN_decapsulate` in
/// `include/net/inet_ecn.h`).
#[inline]
pub(crate) fn pass_on(frame: &mut [u8], outer: u8) -> bool {
    !ecn::is_passed_on(outer) || passes(frame, outer)
}

#[cold]
fn passes(frame: &mut [u8], outer: u8) -> bool {
    ecn::pass_on(frame, outer) != Marking::NotCapable
}
