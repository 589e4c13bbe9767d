//! Congestion that routers between the ends of a tunnel tell of, both ways (RFC 6040).

use std::net::IpAddr;

use tapswitch_wire::ecn::{self, Marking};

use crate::socket::{self, CONTROL_LEN};

/// The control messages that have datagrams say outside what the frames in them say: the ECN field,
/// copied (RFC 6040 §4.1, normal mode), and a DSCP of zero. One for each field but zero, which is
/// what sockets say by themselves.
#[derive(Debug)]
pub(crate) struct Marks([[u8; CONTROL_LEN]; 3]);

impl Marks {
    /// For sockets of the IP version of `remote`.
    pub(crate) fn new(remote: IpAddr) -> Self {
        Self([1, 2, 3].map(|field| socket::class_control(remote, field)))
    }

    /// For a frame that begins with `head`. Nothing for one whose sender is not ECN-capable, and
    /// for what is not IP.
    #[inline]
    pub(crate) fn of(&self, head: &[u8]) -> &[u8] {
        let field = usize::from(ecn::of(head));
        field.checked_sub(1).and_then(|at| self.0.get(at)).map_or(&[], |control| control)
    }
}

/// Has the frame of a datagram say what routers have said outside ([`ecn::pass_on`]). Returns
/// `false` for one that is to be dropped. What is not IP passes, as it does with Linux
/// (`IP_ECN_decapsulate` in `include/net/inet_ecn.h`).
#[inline]
pub(crate) fn pass_on(frame: &mut [u8], outer: u8) -> bool {
    !ecn::is_passed_on(outer) || passes(frame, outer)
}

#[cold]
fn passes(frame: &mut [u8], outer: u8) -> bool {
    ecn::pass_on(frame, outer) != Marking::NotCapable
}
