//! Forwards between two devices, each in its own network namespace. Trains pass whole: neither end
//! segments a packet or completes a checksum.
//!
//! ```text
//! # cargo run --release --example forward &
//! # ip netns exec left ping 10.99.0.2
//! ```
//!
//! The namespaces `left` and `right`, or the given ones, are created if they do not exist, and then
//! removed at the end.

mod common;

use std::error::Error;
use std::io;
use std::ops::Deref;
use std::process::ExitCode;

use common::{Options, finish};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_tap::{Burst, Config, Device, Engine, EngineKind, RecvError, SendError};

fn main() -> ExitCode {
    finish(forward())
}

fn forward() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args("forward [NAMESPACE NAMESPACE]")?;
    let left = Home::enter(options.name(0, "left"))?;
    let right = Home::enter(options.name(1, "right"))?;
    let mut ends = [end(&left, "10.99.0.1")?, end(&right, "10.99.0.2")?];
    println!("10.99.0.1 in {} and 10.99.0.2 in {} are up", left.label(), right.label());

    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    for (index, engine) in (0..).zip(&ends) {
        epoll::add(&epoll, engine, EventData::new_u64(index), EventFlags::IN)?;
    }
    let mut burst = Burst::new(ends[0].burst_size());
    let mut passed = Passed::default();
    let mut events = Vec::with_capacity(ends.len());
    while !options.is_over() {
        let patience = Timespec::try_from(options.patience())?;
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
            Err(errno) if errno != rustix::io::Errno::INTR => {
                return Err(io::Error::from(errno).into());
            }
            _ => {}
        }
        for event in events.drain(..) {
            let [first, second] = &mut ends;
            match event.data.u64() {
                0 => carry(first, second, &mut burst, &mut passed)?,
                _ => carry(second, first, &mut burst, &mut passed)?,
            }
        }
    }
    let Passed { frames, trains, packets, lost } = passed;
    println!("{frames} frames, {trains} of them trains: {packets} wire packets; {lost} lost");
    Ok(())
}

/// Counters of forwarded frames.
#[derive(Default)]
struct Passed {
    frames: usize,
    trains: usize,
    packets: u64,
    lost: usize,
}

/// Forwards the queued frames. Stops after a few bursts, so that the other direction gets its turn:
/// epoll is level-triggered.
fn carry(
    from: &mut Engine,
    to: &mut Engine,
    burst: &mut Burst,
    passed: &mut Passed,
) -> Result<(), Box<dyn Error>> {
    for _ in 0..16 {
        match from.recv(burst) {
            Ok(0) => break,
            Ok(_) => {}
            Err(RecvError::Gone) => return Err(RecvError::Gone.into()),
            Err(_) => passed.lost += 1,
        }
        for frame in &*burst {
            let header = frame.header();
            passed.trains += usize::from(header.is_train());
            // The header length in the metadata is a hint, good enough for counting packets.
            let payload_len = frame.bytes().len().saturating_sub(header.hdr_len.into());
            passed.packets += u64::from(header.wire_packets(payload_len));
        }
        let sent = to.send(&*burst);
        if let Some(SendError::Gone) = sent.stopped.map(|stopped| stopped.error) {
            return Err(SendError::Gone.into());
        }
        passed.frames += sent.count;
        passed.lost += burst.len() - sent.count;
    }
    Ok(to.flush()?)
}

/// A device that is up, in `namespace`.
fn end(namespace: &Namespace, address: &str) -> Result<Engine, Box<dyn Error>> {
    let config = Config::new("tap0".parse()?).exclusive(false);
    let tap = namespace.enter(|| Device::create(&config))??;
    let mut netlink = Netlink::open(namespace)?;
    netlink.add_address("tap0", address.parse()?, 24)?;
    netlink.set_up("tap0")?;
    Ok(Engine::open(tap.into_queues().remove(0), EngineKind::Auto)?)
}

/// A namespace, which is removed at the end if it was created here.
enum Home {
    Made(OwnedNamespace),
    Found(Namespace),
}

impl Home {
    fn enter(name: &str) -> Result<Self, Box<dyn Error>> {
        match Namespace::exists(name) {
            true => Ok(Self::Found(Namespace::open(name)?)),
            false => Ok(Self::Made(OwnedNamespace::create(name)?)),
        }
    }
}

impl Deref for Home {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        match self {
            Self::Made(namespace) => namespace,
            Self::Found(namespace) => namespace,
        }
    }
}
