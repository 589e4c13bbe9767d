//! The upper bound: a file descriptor, read(2) and write(2), one buffer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, read, write};

use crate::bench::echo::measure::Mover;
use crate::bench::echo::swap::{Layer, Tally, swap_addresses};

use super::{BURST_COUNT, Failure};

/// Returns the frames of one file.
pub(super) struct Echo {
    fd: OwnedFd,
    layer: Layer,
    buf: Vec<u8>,
}

impl Echo {
    pub(super) fn new(fd: OwnedFd, layer: Layer) -> Self {
        Self { fd, layer, buf: vec![0; BUF_LEN] }
    }
}

impl Mover for Echo {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.fd.as_fd()]
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        for index in 0..BURST_COUNT {
            let len = match read(&self.fd, &mut self.buf) {
                Ok(len) => len,
                Err(Errno::AGAIN) => return Ok(index > 0),
                Err(errno) => return Err(errno.into()),
            };
            swap_addresses(self.layer, &mut self.buf[HEADER_LEN..len]);
            let is_sent = write(&self.fd, &self.buf[..len]).is_ok();
            let (header, frame) = self.buf[..len].split_at(HEADER_LEN);
            tally.settle(is_sent, self.layer, gso_size(header), frame);
        }
        Ok(true)
    }
}

/// Forwards the frames of two files.
pub(super) struct Forwarder {
    fds: [OwnedFd; 2],
    buf: Vec<u8>,
}

impl Forwarder {
    pub(super) fn new(fds: [OwnedFd; 2]) -> Self {
        Self { fds, buf: vec![0; BUF_LEN] }
    }

    fn pass(&mut self, from: usize, tally: &mut Tally) -> Result<bool, Failure> {
        let (from, to) = (&self.fds[from], &self.fds[1 - from]);
        for index in 0..BURST_COUNT {
            let len = match read(from, &mut self.buf) {
                Ok(len) => len,
                Err(Errno::AGAIN) => return Ok(index > 0),
                Err(errno) => return Err(errno.into()),
            };
            let is_sent = write(to, &self.buf[..len]).is_ok();
            let (header, packet) = self.buf[..len].split_at(HEADER_LEN);
            tally.settle(is_sent, Layer::Tun, gso_size(header), packet);
        }
        Ok(true)
    }
}

impl Mover for Forwarder {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().map(AsFd::as_fd).collect()
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        Ok(self.pass(0, tally)? | self.pass(1, tally)?)
    }
}

/// Payload per packet of a train, from a virtio header (virtio 1.2 §5.1.6); zero for other frames.
pub(super) fn gso_size(header: &[u8]) -> u16 {
    match header {
        [_, kind, _, _, low, high, ..] if *kind != 0 => u16::from_ne_bytes([*low, *high]),
        _ => 0,
    }
}

const HEADER_LEN: usize = 12;
const BUF_LEN: usize = HEADER_LEN + 14 + 65_536;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn what_the_kernel_does_not_take_back_is_lost_and_nothing_else() {
        for goes_away in [false, true] {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            theirs.send(&[0; HEADER_LEN + 60]).unwrap();
            let theirs = (!goes_away).then_some(theirs);
            let mut tally = Tally::default();
            assert!(Echo::new(ours.into(), Layer::Tap).turn(&mut tally).unwrap());
            let returned = Tally { frames: 1, packets: 1, bytes: 60, ..Tally::default() };
            let lost = Tally { lost: 1, ..Tally::default() };
            assert_eq!(tally, if theirs.is_some() { returned } else { lost });
        }
    }
}
