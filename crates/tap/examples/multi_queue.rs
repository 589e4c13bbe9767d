//! The example `echo` with several queues, a thread for each, and a steering program in the kernel
//! that sends both directions of a flow to the same queue.
//!
//! ```text
//! # cargo run --release --example multi_queue -- echo0 4 &
//! # ping 10.99.0.2
//! ```

mod common;

use std::error::Error;
use std::io;
use std::num::NonZeroU16;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use common::{Options, finish, parse, set_up, turn_round};
use tapswitch_netlink::Namespace;
use tapswitch_tap::{Burst, Config, Device, Engine, EngineKind, FlowHash, RecvError, Steering};

fn main() -> ExitCode {
    finish(echo())
}

fn echo() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args("multi_queue [DEVICE [QUEUES]]")?;
    let queues = parse::<NonZeroU16>("QUEUES", options.name(1, "4"))?;
    // Accepts a persistent device, but not one that another program uses, whose steering this would
    // replace.
    let config = Config::new(options.name(0, "echo0").parse()?).queues(queues).exclusive(false);
    let tap = Device::create(&config)?;
    if tap.foreign_queues()? > 0 {
        return Err(format!("{}: another program has opened queues of it", tap.name()).into());
    }
    // Before the interface is up, so that every frame is steered.
    let steering = Arc::new(Steering::load(FlowHash::ETHERNET, queues)?);
    steering.attach(&tap.queues()[0])?;
    set_up(&Namespace::current()?, tap.name().as_str(), "10.99.0.1", "10.99.0.2")?;
    println!("{} is up with {queues} queues: try `ping 10.99.0.2`", tap.name());

    let workers = (0..).zip(tap.into_queues()).map(|(index, queue)| {
        let (options, steering) = (options.clone(), Arc::clone(&steering));
        thread::spawn(move || {
            let mut worker = Worker { index, steering, frames: 0, strays: 0 };
            let mut engine = Engine::open(queue, EngineKind::Auto).map_err(|e| e.to_string())?;
            worker.echo(&mut engine, &options).map_err(|e| e.to_string())?;
            Ok::<_, String>((worker, engine))
        })
    });
    let workers = workers.collect::<Vec<_>>().into_iter();
    // The queues stay open until all workers have ended: when one is closed, the kernel moves the
    // last queue to its index, which changes the steering.
    let ended = workers.map(|worker| worker.join().map_err(|_| "a worker panicked")?);
    let ended = ended.collect::<Result<Vec<_>, String>>()?;
    for (Worker { index, frames, .. }, _) in &ended {
        println!("queue {index}: {frames} frames back, {:?}", steering.counters(*index)?);
    }
    let strays = ended.iter().map(|(worker, _)| worker.strays).sum::<usize>();
    println!("{strays} frames on another queue than their flow's");
    Ok(())
}

/// The worker of a queue.
struct Worker {
    index: u16,
    steering: Arc<Steering>,
    frames: usize,
    strays: usize,
}

impl Worker {
    /// Returns the frames of the queue.
    fn echo(&mut self, engine: &mut Engine, options: &Options) -> Result<(), Box<dyn Error>> {
        let mut burst = Burst::new(engine.burst_size());
        while !options.is_over() {
            match engine.wait(Some(options.patience())) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error.into());
                }
                _ => {}
            }
            loop {
                match engine.recv(&mut burst) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(RecvError::Gone) => return Err(RecvError::Gone.into()),
                    Err(error) => eprintln!("{error}"),
                }
                burst.retain(|frame| self.turn(frame.bytes_mut()));
                self.frames += engine.send(&burst).count;
            }
            engine.flush()?;
        }
        Ok(())
    }

    /// Exchanges the addresses of a frame, and counts the frame if it, or its reply, belongs to
    /// another queue than the one it came from. That never happens.
    fn turn(&mut self, frame: &mut [u8]) -> bool {
        let there = self.steering.queue_of(frame);
        let turned = turn_round(frame);
        let back = self.steering.queue_of(frame);
        self.strays += usize::from((there, back) != (self.index, self.index));
        turned
    }
}
