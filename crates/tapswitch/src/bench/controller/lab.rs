//! Many switches on one thread, and the links between them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::switch::{Input, Switch, World};

/// The switches, in their own thread.
pub(super) struct Lab {
    pub(super) switches: u64,
    pub(super) hosts: u32,
    pub(super) world: Arc<World>,
    stop: watch::Sender<()>,
    thread: std::thread::JoinHandle<()>,
    /// Time of the first connection.
    pub(super) start: Instant,
}

impl Lab {
    /// Starts the switches, with this number of hosts behind each leaf.
    pub(super) fn start(switches: u64, hosts: u32, controller: SocketAddr) -> Self {
        let start = Instant::now();
        let mut cables = HashMap::new();
        for leaf in 3..=switches {
            for spine in [1, 2] {
                let up = (leaf, hosts + MONITOR_PORTS + u32::try_from(spine).unwrap_or(0));
                let down = (spine, u32::try_from(leaf - 2).unwrap_or(u32::MAX));
                cables.extend([(up, down), (down, up)]);
            }
        }
        let (inboxes, receivers): (HashMap<_, _>, Vec<_>) = (1..=switches)
            .map(|id| {
                let (sender, receiver) = mpsc::unbounded_channel();
                ((id, sender), (id, receiver))
            })
            .unzip();
        let (changes, rules) = (AtomicU64::new(0), AtomicU64::new(0));
        let world = Arc::new(World { cables, inboxes, changes, rules });
        let (stop, stopped) = watch::channel(());
        let shared = Arc::clone(&world);
        let thread = std::thread::spawn(move || {
            let ports = |id| match id {
                1 | 2 => u32::try_from(switches - 2).unwrap_or(u32::MAX),
                _ => hosts + MONITOR_PORTS + 2,
            };
            let switches = receivers.into_iter().map(|(id, inbox)| Switch {
                id,
                ports: ports(id),
                world: Arc::clone(&shared),
                inbox,
            });
            simulate(switches.collect(), controller, stopped);
        });
        Self { switches, hosts, world, stop, thread, start }
    }

    /// Stops them.
    pub(super) fn stop(self) {
        drop(self.stop);
        // A panic has been reported already.
        let _ = self.thread.join();
    }

    /// Sends an event to a switch.
    pub(super) fn tell(&self, switch: u64, input: Input) {
        if let Some(inbox) = self.world.inboxes.get(&switch) {
            // A switch that has ended is detected elsewhere.
            let _ = inbox.send(input);
        }
    }

    /// Waits until no switch has received changes for a while. Returns the time of the last one.
    pub(super) async fn quiet(&self) -> Instant {
        let (mut last, mut count) = (Instant::now(), self.changes());
        while last.elapsed() < QUIET {
            tokio::time::sleep(Duration::from_millis(2)).await;
            if self.changes() != count {
                (last, count) = (Instant::now(), self.changes());
            }
        }
        last
    }

    /// Number of rules and groups sent to switches so far.
    pub(super) fn changes(&self) -> u64 {
        self.world.changes.load(Ordering::Relaxed)
    }
}

/// Runs the switches until stopped.
fn simulate(switches: Vec<Switch>, controller: SocketAddr, mut stopped: watch::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return tell!("tapswitch: no runtime for the switches") };
    runtime.block_on(async {
        let mut running = JoinSet::new();
        for switch in switches {
            running.spawn(switch.run(controller));
        }
        tokio::select! {
            _ = stopped.changed() => {}
            () = async { while running.join_next().await.is_some() {} } => {}
        }
    });
}

/// Number of ports of a leaf between those of hosts and those of spines.
pub(super) const MONITOR_PORTS: u32 = 1;
/// How long nothing must change until the fabric is considered converged.
const QUIET: Duration = Duration::from_millis(500);
