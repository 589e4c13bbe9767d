//! The compared ways to move frames.

mod bare;
mod ours;
#[cfg(feature = "peers")]
mod tun_rs;

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use tapswitch_netlink::Namespace;
use tapswitch_tap::{Config, Device, EngineKind, Kind, Offloads, Queue};

use super::measure::Mover;
use super::swap::Layer;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A way to move frames.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Means {
    /// read(2) and write(2) in a loop.
    Bare,
    /// This project's crate, read and write.
    Drain,
    /// This project's crate, io_uring.
    Uring,
    /// The crate `tun-rs`.
    TunRs,
}

impl Means {
    /// Those that this binary was built with.
    pub(super) fn available() -> Vec<Self> {
        let mut all = vec![Self::Bare, Self::Drain, Self::Uring];
        if cfg!(feature = "peers") {
            all.push(Self::TunRs);
        }
        all
    }

    /// False for unsupported combinations: `tun-rs` joins packets that start with an IP header. Tun
    /// devices are only included for comparison with it.
    pub(super) fn knows(self, layer: Layer) -> bool {
        match self {
            Self::Bare | Self::Drain => true,
            Self::Uring => layer == Layer::Tap,
            Self::TunRs => layer == Layer::Tun,
        }
    }

    /// False for candidates that create their own device.
    pub(super) fn shares(self) -> bool {
        self != Self::TunRs
    }

    /// The corresponding engine of this project's crate.
    fn engine(self) -> EngineKind {
        if self == Self::Uring { EngineKind::Uring } else { EngineKind::Drain }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare loop",
            Self::Drain => "tapswitch, read/write",
            Self::Uring => "tapswitch, io_uring",
            Self::TunRs => "tun-rs",
        }
    }
}

/// One echo per queue of a new device and means. A device of `tun-rs` is not shared with others.
pub(super) fn echoes(
    means: &[Means],
    name: &str,
    layer: Layer,
    offloads: bool,
    queues: u16,
) -> Result<Vec<Vec<Box<dyn Mover>>>, Failure> {
    if means.contains(&Means::TunRs) {
        let echoes = peer_echoes(name, offloads, queues)?;
        return Ok(echoes.into_iter().map(|echo| vec![echo]).collect());
    }
    let queues = open(name, layer, offloads, queues)?;
    let each = |queue: &Queue| means.iter().map(|means| echo(*means, queue, layer)).collect();
    queues.iter().map(each).collect()
}

/// An echo on a descriptor of its own.
fn echo(means: Means, queue: &Queue, layer: Layer) -> Result<Box<dyn Mover>, Failure> {
    let queue = queue.try_clone()?;
    Ok(match means {
        Means::Bare => Box::new(bare::Echo::new(queue.into(), layer)),
        _ => Box::new(ours::Echo::new(queue, means.engine(), layer)?),
    })
}

/// A forwarder between a new tun device in each namespace.
pub(super) fn forwarder(
    means: Means,
    between: &[Namespace; 2],
    name: &str,
) -> Result<Box<dyn Mover>, Failure> {
    let queue = |namespace: &Namespace| -> Result<Queue, Failure> {
        let mut queues = namespace.enter(|| open(name, Layer::Tun, true, 1))??;
        queues.pop().ok_or_else(|| "a device without a queue".into())
    };
    let pair = || Ok::<_, Failure>([queue(&between[0])?, queue(&between[1])?]);
    Ok(match means {
        Means::Bare => Box::new(bare::Forwarder::new(pair()?.map(Into::into))),
        Means::Drain | Means::Uring => Box::new(ours::Forwarder::new(pair()?, means.engine())?),
        Means::TunRs => peer_forwarder(between, name)?,
    })
}

/// Creates a device, with every offload or none.
pub(super) fn open(
    name: &str,
    layer: Layer,
    offloads: bool,
    queues: u16,
) -> Result<Vec<Queue>, Failure> {
    let queues = NonZeroU16::new(queues).ok_or("a device without a queue")?;
    let kind = if layer == Layer::Tap { Kind::Tap } else { Kind::Tun };
    let at_most = if offloads { Offloads::DEFAULT } else { Offloads::empty() };
    let config = Config::new(name.parse()?).kind(kind).queues(queues).offloads(at_most);
    Ok(Device::create(&config)?.into_queues())
}

#[cfg(feature = "peers")]
fn peer_echoes(name: &str, offloads: bool, queues: u16) -> Result<Vec<Box<dyn Mover>>, Failure> {
    tun_rs::echoes(name, offloads, queues)
}

#[cfg(feature = "peers")]
fn peer_forwarder(between: &[Namespace; 2], name: &str) -> Result<Box<dyn Mover>, Failure> {
    tun_rs::forwarder(between, name)
}

#[cfg(not(feature = "peers"))]
fn peer_echoes(_: &str, _: bool, _: u16) -> Result<Vec<Box<dyn Mover>>, Failure> {
    Err(WITHOUT_PEERS.into())
}

#[cfg(not(feature = "peers"))]
fn peer_forwarder(_: &[Namespace; 2], _: &str) -> Result<Box<dyn Mover>, Failure> {
    Err(WITHOUT_PEERS.into())
}

#[cfg(not(feature = "peers"))]
const WITHOUT_PEERS: &str = "built without tun-rs; build with `--features peers`";

/// Frames that are moved before anything else gets its turn.
const BURST_COUNT: usize = 64;
