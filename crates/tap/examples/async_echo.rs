//! The example `echo` on tokio: the device is one of several event sources of a program.
//!
//! ```text
//! # cargo run --release --example async_echo &
//! # ping 10.99.0.2
//! ```

mod common;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use common::{Options, finish, set_up, turn_round};
use tapswitch_netlink::Namespace;
use tapswitch_tap::{Burst, Config, Device, Engine, EngineKind, RecvError};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    finish(echo().await)
}

async fn echo() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args("async_echo [DEVICE]")?;
    // Accepts a persistent device.
    let config = Config::new(options.name(0, "echo0").parse()?).exclusive(false);
    let tap = Device::create(&config)?;
    set_up(&Namespace::current()?, tap.name().as_str(), "10.99.0.1", "10.99.0.2")?;
    println!("{} is up: try `ping 10.99.0.2`", tap.name());

    let engine = Engine::open(tap.into_queues().remove(0), EngineKind::Auto)?;
    let mut echo = Echo::new(engine)?;
    tokio::select! {
        outcome = echo.run() => outcome?,
        () = end(&options) => {}
    }
    println!("{} frames in {} bursts", echo.frames, echo.bursts);
    Ok(())
}

/// The device, and counters of returned frames.
struct Echo {
    engine: AsyncFd<Engine>,
    burst: Burst,
    frames: usize,
    bursts: usize,
}

impl Echo {
    fn new(engine: Engine) -> Result<Self, Box<dyn Error>> {
        let burst = Burst::new(engine.burst_size());
        // SAFETY: the engine owns its descriptor, which stays open and unchanged until the engine
        // is dropped, with the `AsyncFd`. It is not replaced anywhere here.
        let engine = unsafe { AsyncFd::register_with_interest(engine, Interest::READABLE) }?;
        Ok(Self { engine, burst, frames: 0, bursts: 0 })
    }

    /// Returns frames until the device is deleted.
    async fn run(&mut self) -> Result<(), Box<dyn Error>> {
        loop {
            let mut ready = self.engine.readable_mut().await?;
            let engine = ready.get_inner_mut();
            match engine.recv(&mut self.burst) {
                // Not before: tokio only reports the next frame after a read that found none.
                Ok(0) => ready.clear_ready(),
                Ok(_) => {
                    self.burst.retain(|frame| turn_round(frame.bytes_mut()));
                    self.frames += engine.send(&self.burst).count;
                    self.bursts += 1;
                    engine.flush()?;
                    // Lets other tasks run between two bursts.
                    tokio::task::yield_now().await;
                }
                Err(RecvError::Gone) => return Err(RecvError::Gone.into()),
                Err(error) => eprintln!("{error}"),
            }
        }
    }
}

/// Returns when the time is over, or Ctrl-C was pressed.
async fn end(options: &Options) {
    while !options.is_over() {
        tokio::time::sleep(options.patience().max(Duration::from_millis(1))).await;
    }
}
