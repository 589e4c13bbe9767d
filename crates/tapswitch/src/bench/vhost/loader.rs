//! The guests: one `dpdk-testpmd` on one core is sender, receiver and monitor.
//!
//! Each guest is a `net_virtio_user` device. Frames **circulate**: frames at a receiver are sent
//! again by its sender (`io` forwarding between the two), so a frame costs the guests' core one
//! receive and one transmit, and no payload is written there. The alternative, a `net_pcap` device
//! that feeds senders forever, copies each frame, which at 1518 bytes costs that core more than the
//! switch's own work, so that the switch would not be the bottleneck. Half as many frames are in
//! flight as a ring holds: the sender's ring stays filled until the switch is faster than the
//! guests, and nothing overflows by design. Frames that a switch loses nevertheless are missing
//! from then on, which the ledger shows. A `net_null` device discards the monitors' frames.

mod trains;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::dpdk;
use super::layout::{Layout, Sockets};
use super::telemetry::{PortCounts, Telemetry};

pub(super) use trains::TRAIN_LEN;

type Failure = Box<dyn std::error::Error>;

/// Configuration of the guests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guests {
    pub(super) layout: Layout,
    pub(super) rings: Rings,
    /// Number of flows: 1, or 256 by the source address.
    pub(super) flows: usize,
    pub(super) load: Load,
    /// Core of all guests.
    pub(super) core: usize,
}

/// Type of the guests' rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rings {
    /// Split rings with mergeable buffers, as in Linux guests.
    Split,
    /// Packed rings driven by vector instructions: the cheapest for the guests' core.
    Packed,
}

/// Type of the circulating traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    /// Frames of a length that each measurement sets, with the guests' cheapest drivers.
    Frames,
    /// TCP trains, see [`trains`].
    Trains,
}

/// The running guests, ended on drop.
#[derive(Debug)]
pub(super) struct Loader {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    telemetry: Telemetry,
    layout: Layout,
    load: Load,
}

/// Guests that wait for their switch to connect.
#[derive(Debug)]
pub(super) struct Waiting {
    child: Child,
    layout: Layout,
    load: Load,
    runtime: PathBuf,
}

impl Guests {
    /// Starts them.
    pub(super) fn start(self, sockets: &Sockets) -> Result<Waiting, Failure> {
        let mut args = dpdk::environment(PREFIX, MEGABYTES);
        // Drivers use AVX-512 only if permitted explicitly.
        args.extend([dpdk::on_core(self.core), "--force-max-simd-bitwidth=512".to_owned()]);
        args.extend(self.devices(sockets));
        args.extend(match self.load {
            Load::Frames => None,
            Load::Trains => Some(trains::source(sockets.directory())?),
        });
        args.extend(OPTIONS.map(str::to_owned));
        args.extend(match self.load {
            Load::Frames => FRAME_OPTIONS.map(str::to_owned).to_vec(),
            Load::Trains => trains::options().to_vec(),
        });
        args.extend((self.flows > 1).then(|| "--txonly-multi-flow".to_owned()));
        let child = dpdk::testpmd(self.core, &args, sockets.directory())?;
        let runtime = dpdk::runtime(sockets.directory(), PREFIX);
        Ok(Waiting { child, layout: self.layout, load: self.load, runtime })
    }

    /// Devices in the order of their numbers: pairs, then the monitor and the one that discards its
    /// frames.
    fn devices(&self, sockets: &Sockets) -> Vec<String> {
        let rings = self.rings.options(self.load);
        let guest = |guest: u8| {
            let path = sockets.path(guest);
            format!(
                "--vdev=net_virtio_user{guest},path={},server=1,queue_size={RING_LEN},{rings}",
                path.display()
            )
        };
        let mut devices: Vec<_> = self.layout.guests().map(guest).collect();
        devices.extend(self.layout.monitor.map(|_| match self.load {
            Load::Frames => "--vdev=net_null0,no-rx=1".to_owned(),
            Load::Trains => trains::drain(sockets.directory()),
        }));
        devices
    }
}

impl Rings {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Packed => "packed",
        }
    }

    /// Vector instructions cannot be used with trains.
    fn options(self, load: Load) -> &'static str {
        match (self, load) {
            (Self::Split, Load::Frames) => "packed_vq=0,mrg_rxbuf=1,in_order=1",
            (Self::Split, Load::Trains) => "packed_vq=0,mrg_rxbuf=1,in_order=0",
            (Self::Packed, Load::Frames) => "packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1",
            (Self::Packed, Load::Trains) => "packed_vq=1,mrg_rxbuf=1,in_order=0",
        }
    }
}

impl Waiting {
    /// Waits until the switch has connected to all guests.
    pub(super) async fn ready(self) -> Result<Loader, Failure> {
        let Self { mut child, layout, load, runtime } = self;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        let output = BufReader::new(output).lines();
        let telemetry = Telemetry::connect(&runtime, CONNECT_LIMIT).await.map_err(|error| {
            format!("the guests did not connect to a switch within {CONNECT_LIMIT:?}: {error}")
        })?;
        let mut loader = Loader { child, input, output, telemetry, layout, load };
        match load {
            Load::Frames => loader.say("set fwd io", "Set io packet forwarding mode").await?,
            Load::Trains => loader.prepare_trains().await?,
        }
        Ok(loader)
    }
}

impl Loader {
    /// Starts circulation: each sender begins with `UNDER_WAY` frames of `len` bytes, without the
    /// frame check sequence, which rings do not carry. Trains have a fixed length.
    pub(super) async fn start(&mut self, len: usize) -> Result<(), Failure> {
        if self.load == Load::Trains {
            return self.start_trains().await;
        }
        self.say("set fwd io", "Set io packet forwarding mode").await?;
        self.write(&format!("set txpkts {len}")).await?;
        let first = format!("start tx_first {}", UNDER_WAY / BURST_COUNT);
        self.say(&first, "packet forwarding - ports=").await
    }

    /// Starts without frames: guests only forward what they get.
    pub(super) async fn start_empty(&mut self) -> Result<(), Failure> {
        self.say("set fwd io", "Set io packet forwarding mode").await?;
        self.say("start", "packet forwarding - ports=").await
    }

    /// Stops circulation, and waits for frames in flight: all that were sent since `before`, with
    /// `copies` of each, or until none arrived for a while.
    pub(super) async fn stop(&mut self, before: &Passage, copies: u64) -> Result<(), Failure> {
        self.say("stop", "Done.").await?;
        self.say("set fwd rxonly", "Set rxonly packet forwarding mode").await?;
        self.say("start", "packet forwarding - ports=").await?;
        let mut last = self.passage()?;
        while last.missing(before, copies) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = self.passage()?;
            if (now.received, now.copied) != (last.received, last.copied) {
                last = now;
            } else if now.at - last.at > QUIET {
                break;
            }
        }
        self.say("stop", "Done.").await
    }

    /// Frames sent and received by the guests so far.
    pub(super) fn passage(&self) -> Result<Passage, Failure> {
        let mut passage = Passage { at: Instant::now(), sent: 0, received: 0, copied: 0 };
        for pair in 0..self.layout.pairs.len() {
            passage.sent += self.counts(2 * pair)?.sent;
            passage.received += self.counts(2 * pair + 1)?.received;
        }
        if self.layout.monitor.is_some() {
            passage.copied = self.counts(2 * self.layout.pairs.len())?.received;
        }
        Ok(passage)
    }

    /// Number of devices that are guests; they have the lowest numbers.
    pub(super) fn guest_count(&self) -> usize {
        self.layout.guests().count()
    }

    /// Number of devices that are guests, or discard the monitors' frames.
    pub(super) fn device_count(&self) -> usize {
        self.guest_count() + usize::from(self.layout.monitor.is_some())
    }

    fn counts(&self, device: usize) -> Result<PortCounts, Failure> {
        self.telemetry.counts(device)
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a command and waits for the output that completes it.
    pub(super) async fn say(&mut self, command: &str, done: &str) -> Result<(), Failure> {
        self.write(command).await?;
        let heard = async {
            while let Some(line) = self.output.next_line().await? {
                if line.contains(done) {
                    return Ok(());
                }
            }
            Err(Failure::from(format!("{} has ended", dpdk::TESTPMD)))
        };
        let heard = tokio::time::timeout(ANSWER_LIMIT, heard).await;
        heard.map_err(|_| format!("{} does not answer to '{command}'", dpdk::TESTPMD))?
    }

    pub(super) async fn write(&mut self, command: &str) -> Result<(), Failure> {
        Ok(self.input.write_all(format!("{command}\n").as_bytes()).await?)
    }
}

/// Running totals of all guests, in frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    pub(super) at: Instant,
    /// By senders.
    pub(super) sent: u64,
    /// By receivers.
    pub(super) received: u64,
    /// By the monitor.
    pub(super) copied: u64,
}

impl Passage {
    /// Frames and copies that were sent since `before` and have not arrived.
    fn missing(&self, before: &Self, copies: u64) -> u64 {
        let expected = (self.sent - before.sent) * (1 + copies);
        let came = self.received + self.copied - before.received - before.copied;
        expected.saturating_sub(came)
    }
}

const PREFIX: &str = "guests";
const MEGABYTES: usize = 512;
/// The maximum of vhost-user, and what QEMU's manual recommends for such loads.
const RING_LEN: usize = 1024;
/// Frames of a pair in flight. With as many as a ring holds, a ring that is not quite empty at the
/// start would lose some at once.
const UNDER_WAY: usize = RING_LEN / 2;
const BURST_COUNT: usize = 32;
const OPTIONS: [&str; 6] = [
    "--",
    "-i",
    "--port-topology=paired",
    "--burst=32",
    // Otherwise it would discard the contents of the rings at every start.
    "--no-flush-rx",
    "--total-num-mbufs=16384",
];
/// The senders' and the receivers' address, in every frame.
const FRAME_OPTIONS: [&str; 1] = ["--tx-ip=198.18.0.1,198.18.0.2"];
/// Switches retry every second.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Time without frames after which none is in flight; generous for a busy machine.
const QUIET: Duration = Duration::from_millis(300);
