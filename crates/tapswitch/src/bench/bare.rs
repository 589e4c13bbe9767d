//! The upper bound of this design: two tap devices, and only read(2) and write(2) between them.
//!
//! The same flags, header size and offloads as the switch's ports, one thread, one buffer. Devices
//! after the second get a copy of every frame. Nothing is parsed or counted.

use std::os::fd::AsFd;

use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_tap::{Config, Device, Queue, RECV_BUF_LEN};

type Failure = Box<dyn std::error::Error>;

#[derive(Args, Clone, Debug)]
pub(crate) struct BareForwarderArgs {
    /// Tap device to create, as NAME,NETNS; the first two are connected, all others get copies.
    #[arg(long, value_name = "NAME,NETNS")]
    pub(crate) tap: Vec<String>,
}

/// Creates the devices and forwards until killed.
pub(crate) fn main(args: &BareForwarderArgs) -> Result<(), Failure> {
    let queues = args.tap.iter().map(|tap| open(tap)).collect::<Result<Vec<_>, _>>()?;
    match queues.as_slice() {
        [a, b, monitors @ ..] => forward(&[a, b], monitors),
        _ => Err("the bare forwarder needs at least two --tap options".into()),
    }
}

fn open(text: &str) -> Result<Queue, Failure> {
    let (name, netns) = text.split_once(',').ok_or("expected --tap NAME,NETNS")?;
    let namespace = Namespace::open(netns)?;
    let config = Config::new(name.parse()?).multi_queue(true);
    let mut queues = namespace.enter(|| Device::create(&config))??.into_queues();
    Netlink::open(&namespace)?.set_up(name)?;
    queues.pop().ok_or_else(|| "a tap device without a queue".into())
}

fn forward(pair: &[&Queue; 2], monitors: &[Queue]) -> Result<(), Failure> {
    let mut buf = vec![0; RECV_BUF_LEN];
    loop {
        let mut fds = pair.map(|queue| PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::IN));
        poll(&mut fds, None)?;
        for (index, fd) in fds.iter().enumerate() {
            if !fd.revents().is_empty() {
                drain(pair[index], pair[1 - index], monitors, &mut buf)?;
            }
        }
    }
}

/// Moves the queued frames, at most a burst, so that the other direction gets its turn.
fn drain(from: &Queue, to: &Queue, monitors: &[Queue], buf: &mut [u8]) -> Result<(), Failure> {
    for _ in 0..BURST_COUNT {
        let Some(len) = from.recv(buf)? else { break };
        // A frame that the other side refuses is lost, as on a wire.
        let _ = to.send(&buf[..len]);
        for monitor in monitors {
            let _ = monitor.send(&buf[..len]);
        }
    }
    Ok(())
}

const BURST_COUNT: usize = 128;
