//! A switch between its guests, and one measurement there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use tapswitch_netlink::OwnedNamespace;

use crate::hosts;

use super::Failure;
use super::cases::{Entry, Task, add_groups};
use super::layout::{Layout, Sockets};
use super::loader::{Guests, Load, Loader, Passage, Rings};
use super::probe::{PROBE_INTERFACE, PROBE_PORT, Prober};
use super::setup::Setup;
use super::switches::{Candidate, Switch, processor_times};

/// Assignment of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Cores {
    /// Core of all guests, and of the threads of a switch that do not forward.
    pub(super) guests: usize,
    /// Core of the forwarding thread.
    pub(super) switch: usize,
    /// Core of a second one, if requested; the guests' core if there are only two.
    pub(super) second: usize,
}

impl Cores {
    /// Assigns `ours`.
    pub(super) fn share(ours: &[usize]) -> Option<Self> {
        match *ours {
            [] | [_] => None,
            [guests, switch] => Some(Self { guests, switch, second: guests }),
            [guests, switch, second, ..] => Some(Self { guests, switch, second }),
        }
    }
}

/// A switch between its guests.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) candidate: Candidate,
    pub(super) plan: Plan,
    /// Dropped before its guests.
    pub(super) switch: Switch,
    pub(super) loader: Loader,
    /// The prober at an interface, if planned.
    pub(super) prober: Option<Prober>,
    _namespace: OwnedNamespace,
    _sockets: Sockets,
}

/// Configuration of a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    pub(super) rings: Rings,
    pub(super) flows: usize,
    pub(super) load: Load,
    /// Number of forwarding threads, one or two.
    pub(super) workers: usize,
    /// Whether the switch also has an interface with a prober.
    pub(super) probed: bool,
}

impl Stage {
    /// Starts it, paused. Open vSwitch sometimes fails to send; then it is restarted.
    pub(super) async fn set_up(
        candidate: Candidate,
        plan: Plan,
        cores: Cores,
    ) -> Result<Self, Failure> {
        for _ in 1..ATTEMPTS {
            match Self::try_set_up(candidate, plan, cores).await {
                Err(error) => tell!("trying again: {error}"),
                stage => return stage,
            }
        }
        Self::try_set_up(candidate, plan, cores).await
    }

    async fn try_set_up(candidate: Candidate, plan: Plan, cores: Cores) -> Result<Self, Failure> {
        let sockets = Sockets::create()?;
        let namespace = hosts::quiet_namespace(&sockets.name())?;
        let Plan { layout, rings, flows, load, workers, probed } = plan;
        let guests = Guests { layout, rings, flows, load, core: cores.guests };
        let waiting = guests.start(&sockets)?;
        let prober =
            if probed { Some(Prober::start(&namespace, cores.guests).await?) } else { None };
        let setup = Setup {
            sockets: &sockets,
            guests: layout.ports().collect(),
            cores: [cores.switch, cores.second][..workers].to_vec(),
            rest: cores.guests,
            namespace: &namespace,
            load,
            interface: probed.then_some((PROBE_PORT, PROBE_INTERFACE)),
        };
        let switch = Switch::start(candidate, &setup).await?;
        let loader =
            waiting.ready().await.map_err(|error| format!("{}: {error}", candidate.name()))?;
        if candidate != Candidate::Bare {
            add_groups(&switch, layout).await?;
        }
        let (_namespace, _sockets) = (namespace, sockets);
        let mut stage = Self { candidate, plan, switch, loader, prober, _namespace, _sockets };
        stage.wait_for_frames().await?;
        stage.switch.pause()?;
        Ok(stage)
    }

    /// Waits until frames circulate: a switch may be connected long before it sends.
    async fn wait_for_frames(&mut self) -> Result<(), Failure> {
        let entry = Entry { candidate: self.candidate, task: Task::Plain };
        entry.prepare(&self.switch, self.plan.layout).await?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let before = self.loader.passage()?;
            self.loader.start(64 - CHECK_SEQUENCE_LEN).await?;
            tokio::time::sleep(FIRST_FRAMES).await;
            self.loader.stop(&before, 0).await?;
            let after = self.loader.passage()?;
            if after.received - before.received > circulates(self.plan.load) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let name = self.candidate.name();
                return Err(
                    format!("{name}: no frames were forwarded within {START_LIMIT:?}").into()
                );
            }
        }
    }

    /// Measures once, with frames of `size` bytes. The switch is paused before and after.
    pub(super) async fn take(
        &mut self,
        entry: Entry,
        size: usize,
        window: Window,
    ) -> Result<Measured, Failure> {
        self.switch.resume()?;
        entry.prepare(&self.switch, self.plan.layout).await?;
        let (before, dropped) = (self.loader.passage()?, self.switch.dropped().await?);
        self.loader.start(size - CHECK_SEQUENCE_LEN).await?;
        tokio::time::sleep(window.warm_up).await;
        let (first, threads) = (self.loader.passage()?, self.threads()?);
        tokio::time::sleep(window.length).await;
        let (last, threads_then) = (self.loader.passage()?, self.threads()?);
        self.loader.stop(&before, entry.task.copies()).await?;
        let (after, dropped_then) = (self.loader.passage()?, self.switch.dropped().await?);
        self.switch.pause()?;
        let seconds = (last.at - first.at).as_secs_f64();
        Ok(Measured {
            rate: per_second(last.received - first.received, seconds),
            cores: std::array::from_fn(|of| {
                busiest(&threads[of], &threads_then[of]).as_secs_f64() / seconds
            }),
            ledger: Ledger::new(&before, &after, dropped_then - dropped),
        })
    }

    /// CPU times of the threads of the switch and of the guests.
    fn threads(&self) -> Result<[Threads; 2], Failure> {
        let guests = self.loader.id().ok_or("the guests exited")?;
        Ok([processor_times(self.switch.id()?)?, processor_times(guests)?])
    }
}

/// Number of received frames that proves circulation.
const fn circulates(load: Load) -> u64 {
    match load {
        Load::Frames => 2048,
        Load::Trains => 64,
    }
}

type Threads = BTreeMap<OsString, Duration>;

/// CPU time of the busiest thread in between.
fn busiest(before: &Threads, after: &Threads) -> Duration {
    let used = |(thread, time): (&OsString, &Duration)| {
        time.saturating_sub(before.get(thread).copied().unwrap_or_default())
    };
    after.iter().map(used).max().unwrap_or_default()
}

/// Times of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
}

/// Results of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Frames per second at receivers.
    pub(super) rate: f64,
    /// Shares of their cores that the switch's busiest thread and the guests got.
    pub(super) cores: [f64; 2],
    pub(super) ledger: Ledger,
}

/// Outcome of all frames of a measurement, from the first to the last that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Ledger {
    /// Sent by senders.
    pub(super) sent: u64,
    /// Received by receivers.
    pub(super) received: u64,
    /// Received by the monitor.
    pub(super) copied: u64,
    /// Frames that the switch reports as dropped.
    pub(super) dropped: u64,
}

impl Ledger {
    fn new(before: &Passage, after: &Passage, dropped: u64) -> Self {
        Self {
            sent: after.sent - before.sent,
            received: after.received - before.received,
            copied: after.copied - before.copied,
            dropped,
        }
    }

    /// True if every frame and its `copies` arrived, or the switch counted the loss.
    pub(super) fn adds_up(&self, copies: u64) -> bool {
        self.sent * (1 + copies) == self.received + self.copied + self.dropped
    }
}

impl std::ops::AddAssign for Ledger {
    fn add_assign(&mut self, more: Self) {
        self.sent += more.sent;
        self.received += more.received;
        self.copied += more.copied;
        self.dropped += more.dropped;
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

const ATTEMPTS: usize = 4;
/// Time limit for the first frame.
const START_LIMIT: Duration = Duration::from_secs(10);
const FIRST_FRAMES: Duration = Duration::from_millis(200);
/// Not carried by rings.
pub(super) const CHECK_SEQUENCE_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_and_the_switch_are_apart() {
        assert_eq!(Cores::share(&[0]), None);
        assert_eq!(Cores::share(&[2, 5]), Some(Cores { guests: 2, switch: 5, second: 2 }));
        assert_eq!(Cores::share(&[0, 1, 2, 3]), Some(Cores { guests: 0, switch: 1, second: 2 }));
    }

    #[test]
    fn a_ledger_adds_up_when_each_frame_and_copy_is_somewhere() {
        let ledger = Ledger { sent: 10, received: 10, copied: 10, dropped: 0 };
        assert!(ledger.adds_up(1) && !ledger.adds_up(0));
        let lost = Ledger { copied: 7, ..ledger };
        assert!(!lost.adds_up(1));
        assert!(Ledger { dropped: 3, ..lost }.adds_up(1), "the switch says so");
    }
}
