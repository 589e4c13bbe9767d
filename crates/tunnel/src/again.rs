//! Retries a send if the kernel's error belongs to an earlier packet.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::counters::Tally;
use crate::error::is_unreachable;
use crate::socket::{self, Unreachable};

/// Calls `send`, which sends on `fd`, and again if the error may belong to an earlier packet.
/// `is_own` distinguishes this tunnel's packets from others, by their first bytes.
#[inline]
pub(crate) fn send_again(
    fd: impl AsFd,
    tally: &Tally,
    is_own: impl Fn(&[u8]) -> bool,
    mut send: impl FnMut() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    match send() {
        Err(errno) if errno == Errno::MSGSIZE || is_unreachable(errno) => {
            let told = socket::drain_errors(&fd, &is_own);
            // The error of the call is one of them, unless the error queue was full, or the host
            // itself has no route.
            let said = errno != Errno::MSGSIZE && told == Unreachable::default();
            tally.note_unreachable(told.own + u64::from(said));
            let second = send();
            if second.is_err() {
                tally.note_unreachable(socket::drain_errors(&fd, &is_own).own);
            }
            note_below(tally, second)
        }
        outcome => note_below(tally, outcome),
    }
}

#[inline]
fn note_below(tally: &Tally, outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
    if outcome == Err(Errno::NOBUFS) {
        tally.note_refused_below();
    }
    outcome
}
