//! This project's crate with its engines: frames in bursts, trains whole.

use std::os::fd::{AsFd, BorrowedFd};

use tapswitch_tap::{Burst, Engine, EngineKind, NetHeader, Queue, Sent};

use crate::bench::echo::measure::Mover;
use crate::bench::echo::swap::{Layer, Tally, swap_addresses};

use super::{BURST_COUNT, Failure};

/// Returns the frames of one queue.
pub(super) struct Echo {
    engine: Engine,
    layer: Layer,
    burst: Burst,
}

impl Echo {
    pub(super) fn new(queue: Queue, kind: EngineKind, layer: Layer) -> Result<Self, Failure> {
        let engine = Engine::open(queue, kind)?;
        let burst = Burst::new(engine.burst_size());
        Ok(Self { engine, layer, burst })
    }
}

impl Mover for Echo {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.engine.as_fd()]
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        let Self { engine, layer, burst } = self;
        let mut moved = 0;
        while engine.recv(burst)? > 0 {
            for mut frame in &mut *burst {
                swap_addresses(*layer, frame.bytes_mut());
            }
            let may_have_more = settle(engine.send(&*burst), burst, *layer, tally);
            moved += burst.len();
            if moved >= BURST_COUNT || !may_have_more {
                return Ok(true);
            }
        }
        engine.flush()?;
        Ok(moved > 0)
    }
}

/// Forwards the frames of two queues.
pub(super) struct Forwarder {
    engines: [Engine; 2],
    burst: Burst,
}

impl Forwarder {
    pub(super) fn new([a, b]: [Queue; 2], kind: EngineKind) -> Result<Self, Failure> {
        let engines = [Engine::open(a, kind)?, Engine::open(b, kind)?];
        let burst = Burst::new(engines[0].burst_size());
        Ok(Self { engines, burst })
    }

    fn pass(&mut self, from: usize, tally: &mut Tally) -> Result<bool, Failure> {
        let Self { engines, burst } = self;
        let mut moved = 0;
        while engines[from].recv(burst)? > 0 {
            let sent = engines[1 - from].send(&*burst);
            let may_have_more = settle(sent, burst, Layer::Tun, tally);
            moved += burst.len();
            if moved >= BURST_COUNT || !may_have_more {
                return Ok(true);
            }
        }
        engines[1 - from].flush()?;
        Ok(moved > 0)
    }
}

impl Mover for Forwarder {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.engines.iter().map(AsFd::as_fd).collect()
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        Ok(self.pass(0, tally)? | self.pass(1, tally)?)
    }
}

/// Counts the frames of a burst by their outcome. Returns whether it ends with a train: otherwise
/// the queue was empty or the burst is full.
fn settle(sent: Sent<'_>, burst: &Burst, layer: Layer, tally: &mut Tally) -> bool {
    let end = sent.stopped.map_or(burst.len(), |stopped| stopped.index);
    let mut refused = sent.refused.iter().map(|refused| refused.index).peekable();
    let mut size = 0;
    for (index, frame) in burst.iter().enumerate() {
        let is_sent = refused.next_if_eq(&index).is_none() && index < end;
        size = gso_size(&frame.header());
        tally.settle(is_sent, layer, size, frame.bytes());
    }
    size > 0
}

/// Payload per packet of a train; zero for other frames.
fn gso_size(header: &NetHeader) -> u16 {
    if header.is_train() { header.gso_size } else { 0 }
}

#[cfg(test)]
mod tests {
    use tapswitch_tap::{Refused, SendError};

    use super::*;

    #[test]
    fn only_what_was_sent_counts_as_returned() {
        let mut burst = Burst::default();
        for len in 1..=5 {
            assert!(burst.push(&NetHeader::PLAIN, &[&[0; 8][..len]]));
        }
        let refused = [0, 2].map(|index| Refused { index, error: SendError::Down });
        let stopped = Some(Refused { index: 4, error: SendError::Full });
        let mut tally = Tally::default();
        settle(Sent { count: 2, refused: &refused, stopped }, &burst, Layer::Tun, &mut tally);
        let wanted = Tally { frames: 2, packets: 2, bytes: 2 + 4, lost: 3, ..Tally::default() };
        assert_eq!(tally, wanted);
    }
}
