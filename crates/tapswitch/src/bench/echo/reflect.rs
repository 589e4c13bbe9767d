//! The echo: a device, and one thread per queue that returns each frame with exchanged addresses.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Namespace, Netlink};

use crate::bench::cores::stay_on;

use super::means::{self, Means};
use super::measure::{Mover, Sample, Window, measure};
use super::ready::announce;
use super::swap::Layer;
use super::turns::{Share, Turns};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What to return, how, and for how long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reflect {
    pub(super) layer: Layer,
    /// Several take turns on the same device.
    pub(super) means: Vec<Means>,
    pub(super) offloads: bool,
    pub(super) queues: u16,
    /// Cores for the threads of the queues, in turn.
    pub(super) cores: Vec<usize>,
    pub(super) window: Window,
}

/// Results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reflected {
    pub(super) threads: Vec<Sample>,
    /// By means, what all threads did; nothing if there is only one.
    pub(super) shares: Vec<Share>,
}

impl Reflect {
    /// Returns frames until the measurement is over and no more arrive.
    pub(super) fn run(&self) -> Result<Reflected, Failure> {
        let movers = means::echoes(&self.means, INTERFACE, self.layer, self.offloads, self.queues)?;
        configure(self.layer).map_err(|error| error.to_string())?;
        announce();
        let start = OnceLock::new();
        let turns = |movers| Turns::new(movers, &start, self.window);
        let mut queues: Vec<_> = movers.into_iter().map(turns).collect();
        let threads = self.run_all(&mut queues, &start)?;
        let mut shares = vec![Share::default(); self.means.len()];
        for queue in &queues {
            for (sum, share) in shares.iter_mut().zip(queue.shares()) {
                *sum = sum.plus(*share);
            }
        }
        Ok(Reflected { threads, shares })
    }

    /// A single queue is served by this thread, so that the process has no other.
    fn run_all(
        &self,
        movers: &mut [Turns<'_>],
        start: &OnceLock<Instant>,
    ) -> Result<Vec<Sample>, Failure> {
        let core = |index: usize| self.cores[index % self.cores.len()];
        let run = |index, mover: &mut dyn Mover| {
            stay_on(core(index)).map_err(|error| error.to_string())?;
            measure(mover, start, self.window)
        };
        if let [only] = movers {
            return Ok(vec![run(0, only)?]);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = movers
                .iter_mut()
                .enumerate()
                .map(|(index, mover)| scope.spawn(move || run(index, mover)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread failed")?)
                .collect()
        })
    }
}

/// Assigns an address to the interface, and another one to the echo.
fn configure(layer: Layer) -> Result<(), Box<dyn std::error::Error>> {
    let mut netlink = Netlink::open(&Namespace::current()?)?;
    netlink.add_address(INTERFACE, IpAddr::V4(HERE), 24)?;
    netlink.set_up(INTERFACE)?;
    if layer == Layer::Tap {
        netlink.set_neighbour(INTERFACE, IpAddr::V4(THERE), [2, 0, 0, 0, 0, 2])?;
    }
    Ok(())
}

/// The device, in its own namespace.
pub(super) const INTERFACE: &str = "echo0";
/// Address of the kernel.
pub(super) const HERE: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 1);
/// Address at which the kernel reaches itself.
pub(super) const THERE: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 2);
