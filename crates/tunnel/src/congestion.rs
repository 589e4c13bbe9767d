//! Marks of routers between the ends of a tunnel (RFC 6040).

use tapswitch_wire::ecn::{Marking, mark};

/// Marks the frame of a datagram that routers have marked. Returns `false` for one whose sender
/// would not understand the mark, which is to be dropped, as routers drop what they cannot mark
/// (RFC 6040 §4.2). What is not IP passes, as it does with Linux (`IP_ECN_decapsulate` in
/// `include/net/inet_ecn.h`).
#[cold]
pub(crate) fn pass_mark(frame: &mut [u8]) -> bool {
    mark(frame) != Marking::NotCapable
}
