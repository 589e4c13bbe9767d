//! Sending once more when the kernel's answer belongs to something sent before.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::counters::Tally;
use crate::error::is_unreachable;
use crate::socket::{self, Unreachable};

/// Calls `send`, which sends by `fd`, and once more when the answer may belong to something sent
/// before. `is_own` tells what this tunnel sent from what others did, by its beginning.
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
            // What the call said is one of them, unless the queue had no room for it, or the host
            // itself knows no way.
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
