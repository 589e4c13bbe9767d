//! As the example `echo`, but with several queues and a thread for each.
//!
//! ```text
//! # cargo run --release --example multi_queue -- echo0 4 &
//! # ping 10.99.0.2
//! ```

mod common;

use std::error::Error;
use std::num::NonZeroU16;
use std::thread;

use common::{Options, set_up, turn_round};
use tapswitch_netlink::Namespace;
use tapswitch_tap::{Burst, Config, Device, Engine, EngineKind, Queue, RecvError};

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args("multi_queue [DEVICE [QUEUES]]")?;
    let queues = options.name(1, "4").parse::<NonZeroU16>()?;
    let tap = Device::create(&Config::new(options.name(0, "echo0").parse()?).queues(queues))?;
    set_up(&Namespace::current()?, tap.name().as_str(), "10.99.0.1", "10.99.0.2")?;
    println!("{} is up with {queues} queues: try `ping 10.99.0.2`", tap.name());

    let workers = tap.into_queues().into_iter().map(|queue| {
        let options = options.clone();
        thread::spawn(move || echo(queue, &options).map_err(|error| error.to_string()))
    });
    let workers = workers.collect::<Vec<_>>();
    for (index, worker) in workers.into_iter().enumerate() {
        let frames = worker.join().map_err(|_| "a worker panicked")??;
        println!("queue {index}: {frames} frames");
    }
    Ok(())
}

/// Returns the frames of one queue; answers how many.
fn echo(queue: Queue, options: &Options) -> Result<usize, Box<dyn Error>> {
    let mut engine = Engine::open(queue, EngineKind::Auto)?;
    let mut burst = Burst::new(engine.burst_size());
    let mut frames = 0;
    while !options.is_over() {
        engine.wait(Some(options.patience()))?;
        loop {
            match engine.recv(&mut burst) {
                Ok(0) => break,
                Ok(_) => {}
                Err(RecvError::Gone) => return Err(RecvError::Gone.into()),
                Err(error) => eprintln!("{error}"),
            }
            burst.retain(|frame| turn_round(frame.bytes_mut()));
            frames += engine.send(&burst).count;
        }
        engine.flush()?;
    }
    Ok(frames)
}
