//! This project's own crate, by its engines: frames in bursts, trains whole.

use std::os::fd::{AsFd, BorrowedFd};

use tapswitch_tap::{Burst, Engine, EngineKind, NetHeader, Queue};

use crate::bench::echo::reflect::Mover;
use crate::bench::echo::swap::{Layer, Tally, swap_addresses};

use super::Failure;

/// Returns what comes out of one queue.
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
        let count = engine.recv(burst)?;
        if count == 0 {
            engine.flush()?;
            return Ok(false);
        }
        for mut frame in &mut *burst {
            swap_addresses(*layer, frame.bytes_mut());
            tally.count(*layer, gso_size(&frame.header()), frame.bytes());
        }
        tally.lost += (count - engine.send(&*burst).count) as u64;
        Ok(true)
    }
}

/// Hands on what comes out of either of two queues.
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
        let count = engines[from].recv(burst)?;
        if count == 0 {
            engines[1 - from].flush()?;
            return Ok(false);
        }
        for frame in burst.iter() {
            tally.count(Layer::Tun, gso_size(&frame.header()), frame.bytes());
        }
        tally.lost += (count - engines[1 - from].send(&*burst).count) as u64;
        Ok(true)
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

/// Payload of each packet of a train; zero for what is no train.
fn gso_size(header: &NetHeader) -> u16 {
    if header.is_train() { header.gso_size } else { 0 }
}
