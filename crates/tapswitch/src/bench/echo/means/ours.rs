//! This project's own crate.

use std::os::fd::{AsFd, BorrowedFd};

use tapswitch_tap::{NET_HEADER_LEN, NetHeader, Queue, RECV_BUF_LEN};

use crate::bench::echo::reflect::Mover;
use crate::bench::echo::swap::{Layer, Tally, swap_addresses};

use super::{BURST_COUNT, Failure};

/// Returns what comes out of one queue.
pub(super) struct Echo {
    queue: Queue,
    layer: Layer,
    buf: Vec<u8>,
}

impl Echo {
    pub(super) fn new(queue: Queue, layer: Layer) -> Self {
        Self { queue, layer, buf: vec![0; RECV_BUF_LEN] }
    }
}

impl Mover for Echo {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.queue.as_fd()]
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        for index in 0..BURST_COUNT {
            let Some(len) = self.queue.recv(&mut self.buf)? else { return Ok(index > 0) };
            let whole = &mut self.buf[..len];
            let Some((header, frame)) = whole.split_first_chunk_mut::<NET_HEADER_LEN>() else {
                continue;
            };
            let header = NetHeader::decode(header);
            swap_addresses(self.layer, frame);
            tally.count(self.layer, if header.is_train() { header.gso_size } else { 0 }, frame);
            if self.queue.send(whole).is_err() {
                tally.lost += 1;
            }
        }
        Ok(true)
    }
}

/// Hands on what comes out of either of two queues, trains whole.
pub(super) struct Forwarder {
    queues: [Queue; 2],
    buf: Vec<u8>,
}

impl Forwarder {
    pub(super) fn new(queues: [Queue; 2]) -> Self {
        Self { queues, buf: vec![0; RECV_BUF_LEN] }
    }

    fn pass(&mut self, from: usize, tally: &mut Tally) -> Result<bool, Failure> {
        let (from, to) = (&self.queues[from], &self.queues[1 - from]);
        for index in 0..BURST_COUNT {
            let Some(len) = from.recv(&mut self.buf)? else { return Ok(index > 0) };
            let whole = &self.buf[..len];
            let Some((header, packet)) = whole.split_first_chunk::<NET_HEADER_LEN>() else {
                continue;
            };
            let header = NetHeader::decode(header);
            tally.count(Layer::Tun, if header.is_train() { header.gso_size } else { 0 }, packet);
            if to.send(whole).is_err() {
                tally.lost += 1;
            }
        }
        Ok(true)
    }
}

impl Mover for Forwarder {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd).collect()
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        Ok(self.pass(0, tally)? | self.pass(1, tally)?)
    }
}
