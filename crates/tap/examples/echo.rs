//! A device that returns frames: a packet to any address behind it comes back from there. Blocking,
//! on one thread.
//!
//! ```text
//! # cargo run --release --example echo &
//! # ping 10.99.0.2
//! ```
//!
//! The device exists as long as this program runs.

mod common;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use common::{Options, finish, set_up, turn_round};
use tapswitch_netlink::Namespace;
use tapswitch_tap::{Burst, Config, Device, Engine, EngineKind, RecvError};

fn main() -> ExitCode {
    finish(echo())
}

fn echo() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args("echo [DEVICE [drain|uring|vhost]]")?;
    let kind = match options.name(1, "drain") {
        "drain" => EngineKind::Drain,
        "uring" => EngineKind::Uring,
        "vhost" => EngineKind::Vhost,
        other => return Err(format!("{other}: no such engine; drain, uring or vhost").into()),
    };
    // Accepts a persistent device.
    let config = Config::new(options.name(0, "echo0").parse()?).exclusive(false);
    let tap = Device::create(&config)?;
    set_up(&Namespace::current()?, tap.name().as_str(), "10.99.0.1", "10.99.0.2")?;
    let name = tap.name().clone();
    let mut engine = Engine::open(tap.into_queues().remove(0), kind)?;
    println!("{name} is up: try `ping 10.99.0.2`");

    let mut burst = Burst::new(engine.burst_size());
    let (mut frames, mut bursts) = (0, 0);
    while !options.is_over() {
        match engine.wait(Some(options.patience())) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        loop {
            match engine.recv(&mut burst) {
                Ok(0) => break,
                Ok(_) => {}
                Err(RecvError::Gone) => return Err(RecvError::Gone.into()),
                Err(error) => eprintln!("{error}"),
            }
            // Trains and partial checksums are returned unchanged, with their metadata.
            burst.retain(|frame| turn_round(frame.bytes_mut()));
            let sent = engine.send(&burst);
            for refused in sent.refused {
                eprintln!("frame {}: {}", refused.index, refused.error);
            }
            frames += sent.count;
            bursts += 1;
        }
        engine.flush()?;
    }
    println!("{frames} frames in {bursts} bursts");
    Ok(())
}
