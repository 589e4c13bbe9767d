//! Namespaces and processes for one measurement, and plausibility checks of the results.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};

use crate::bench::cores;
use crate::hosts::quiet_namespace;

use super::cell::Cell;
use super::forward::{self, Forward};
use super::means::Means;
use super::measure::{Sample, Window};
use super::reflect::{HERE, Reflect, Reflected, THERE};
use super::task::{Part, Task};
use super::traffic::{PORT, Received, Send, Sent, Sink, Traffic};
use super::turns::Share;
use super::write_cost::{QueueChoice, WriteCost, Written};

type Failure = Box<dyn std::error::Error>;

/// Assignment of cores, fixed so that measurements are comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cores {
    /// Cores that move frames.
    pub(super) movers: Vec<usize>,
    pub(super) sender: usize,
    /// The same as the sender's, with less than three cores.
    pub(super) receiver: usize,
}

impl Cores {
    /// Assigns the cores that this process may use.
    pub(super) fn look() -> Result<Self, Failure> {
        Self::share(&cores::ours()?).ok_or_else(|| {
            "at least two cores are needed, one for the echo and one for the sender".into()
        })
    }

    fn share(cores: &[usize]) -> Option<Self> {
        Some(match *cores {
            [] | [_] => return None,
            [mover, rest] => Self { movers: vec![mover], sender: rest, receiver: rest },
            [ref movers @ .., receiver, sender] => {
                Self { movers: movers.to_vec(), sender, receiver }
            }
        })
    }
}

/// Results of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Packets per second on the wire.
    pub(super) packets: f64,
    pub(super) trains: f64,
    pub(super) frames: f64,
    /// Bits per second on the wire.
    pub(super) bits: f64,
    /// Number of cores that the threads were busy on.
    pub(super) processor: f64,
    /// Number of cores that they had.
    pub(super) cores: f64,
    /// Packets that were echoed before, during and after the measurement.
    pub(super) echoed: u64,
    /// Frames that the echo read and the kernel refused, in the same time.
    pub(super) lost: u64,
    /// Datagrams that the sender sent.
    pub(super) sent: u64,
    /// The sender could not send trains.
    pub(super) singly: bool,
}

/// Results of a forwarder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Throughput {
    /// Bits of payload per second at the receiver.
    pub(super) bits: f64,
    /// Number of cores that the forwarding thread was busy on.
    pub(super) processor: f64,
}

/// Namespaces for consecutive measurements.
#[derive(Debug)]
pub(super) struct Stage {
    /// The namespace in which the kernel communicates with itself.
    namespace: OwnedNamespace,
    /// The namespaces that forwarders connect.
    sides: [OwnedNamespace; 2],
    cores: Cores,
    window: Window,
}

impl Stage {
    /// Creates them.
    pub(super) fn new(cores: Cores, length: Duration) -> Result<Self, Failure> {
        let namespace = quiet_namespace("echo")?;
        let sides = [quiet_namespace("left")?, quiet_namespace("right")?];
        Ok(Self { namespace, sides, cores, window: Window::of(length) })
    }

    /// Measures one cell.
    pub(super) async fn echo(&self, cell: Cell) -> Result<Rates, Failure> {
        Ok(self.reflected(cell, &[cell.means]).await?.0)
    }

    /// Measures several means by turns on one device: what each did. On a busy machine a sender may
    /// not run at all for a while, so this is tried again.
    pub(super) async fn turns(&self, cell: Cell, means: &[Means]) -> Result<Vec<Share>, Failure> {
        for _ in 0..TURNS_ATTEMPTS {
            let shares = self.reflected(cell, means).await?.1;
            if shares.iter().all(|share| share.tally.packets > 0) {
                return Ok(shares);
            }
        }
        Err("the machine is too busy: a candidate had no frame in any of its turns; try again, or \
             with more --seconds"
            .into())
    }

    async fn reflected(&self, cell: Cell, means: &[Means]) -> Result<(Rates, Vec<Share>), Failure> {
        let before = UdpCounters::of(&self.namespace)?;
        let echo = Part::start_ready(&self.namespace, &self.reflect(cell, means)).await?;
        let at = SocketAddr::from((HERE, PORT));
        let sink = self.sink(cell.traffic, cell.flows(), at);
        let sink = Part::start_ready(&self.namespace, &sink).await?;
        let to = SocketAddr::from((THERE, PORT));
        let sender = Part::start(&self.namespace, &self.send(cell.traffic, cell.flows(), to))?;
        let limit = self.window.limit();
        let reflected: Reflected = echo.outcome(limit).await?;
        let sent: Sent = sender.outcome(limit).await?;
        if cell.traffic == Traffic::Tcp {
            let received: Received = sink.outcome(limit).await?;
            believe(received.bytes <= sent.bytes, "more was received than sent")?;
        } else {
            drop(sink);
            let counters = UdpCounters::of(&self.namespace)?;
            believe(counters.strays == before.strays, "datagrams were corrupted")?;
        }
        let cores = self.cores.movers.len().min(cell.queues.into());
        let rates = Rates::of(&reflected, &sent, cores).believed(cell.traffic)?;
        Ok((rates, reflected.shares))
    }

    /// Measures TCP from one side to the other, through a forwarder or a veth pair.
    pub(super) async fn forward(&self, means: Option<Means>) -> Result<Throughput, Failure> {
        let Some(means) = means else { return self.veth().await };
        let between = self.sides.each_ref().map(|side| side.label().to_owned());
        let (core, window) = (self.cores.movers[0], self.window);
        let task = Task::Forward(Forward { means, between, core, window });
        let forwarder = Part::start_ready(&self.sides[0], &task).await?;
        let bits = self.across().await?;
        let sample: Sample = forwarder.outcome(window.limit()).await?;
        believe_lossless(sample.whole.lost)?;
        Ok(Throughput { bits, processor: sample.processor / sample.seconds })
    }

    async fn veth(&self) -> Result<Throughput, Failure> {
        let [left, right] = &self.sides;
        let mut netlink = Netlink::open(left)?;
        netlink.create_veth(forward::INTERFACE, forward::INTERFACE, right)?;
        for (side, address) in self.sides.iter().zip(forward::ADDRESSES) {
            let mut netlink = Netlink::open(side)?;
            netlink.add_address(forward::INTERFACE, address.into(), 24)?;
            netlink.set_up(forward::INTERFACE)?;
        }
        let bits = self.across().await;
        netlink.delete(forward::INTERFACE)?;
        Ok(Throughput { bits: bits?, processor: 0.0 })
    }

    /// Bits of payload per second from left to right.
    #[expect(clippy::cast_precision_loss, reason = "rates are shown with four digits")]
    async fn across(&self) -> Result<f64, Failure> {
        let [left, right] = &self.sides;
        let at = SocketAddr::from((forward::ADDRESSES[1], PORT));
        let sink = Part::start_ready(right, &self.sink(Traffic::Tcp, 1, at)).await?;
        let sender = Part::start(left, &self.send(Traffic::Tcp, 1, at))?;
        let sent: Sent = sender.outcome(self.window.limit()).await?;
        let received: Received = sink.outcome(self.window.limit()).await?;
        believe(received.bytes <= sent.bytes, "more was received than sent")?;
        believe(received.seconds > 0.0, "the receiver did not finish")?;
        Ok(received.window_bytes as f64 * 8.0 / received.seconds)
    }

    /// Measures the cost of a write.
    pub(super) async fn write(&self, choice: QueueChoice) -> Result<Written, Failure> {
        let (core, length_ms) = (self.cores.movers[0], self.window.length_ms);
        let task = Task::WriteCost(WriteCost { choice, core, length_ms });
        Part::start(&self.namespace, &task)?.outcome(self.window.limit()).await
    }

    fn reflect(&self, cell: Cell, means: &[Means]) -> Task {
        let Cell { layer, queues, offloads, .. } = cell;
        let (means, cores, window) = (means.to_vec(), self.cores.movers.clone(), self.window);
        Task::Reflect(Reflect { layer, means, offloads, queues, cores, window })
    }

    fn sink(&self, traffic: Traffic, flows: usize, at: SocketAddr) -> Task {
        let (core, window) = (self.cores.receiver, self.window);
        Task::Sink(Sink { traffic, at, flows, core, window })
    }

    fn send(&self, traffic: Traffic, flows: usize, to: SocketAddr) -> Task {
        let length_ms = self.window.sending_ms();
        Task::Send(Send { traffic, to, flows, core: self.cores.sender, length_ms })
    }
}

impl Window {
    fn of(length: Duration) -> Self {
        let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self { warm_up_ms: WARM_UP_MS, length_ms }
    }

    /// How long the sender sends, to cover the window.
    fn sending_ms(self) -> u64 {
        3 * self.warm_up_ms + self.length_ms
    }

    /// Time limit of a measurement.
    fn limit(self) -> Duration {
        Duration::from_millis(self.sending_ms()) + GRACE
    }
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "rates are shown with four digits")]
    fn of(reflected: &Reflected, sent: &Sent, cores: usize) -> Self {
        let start = Self {
            cores: cores as f64,
            sent: sent.datagrams,
            singly: sent.singly,
            ..Self::default()
        };
        reflected.threads.iter().fold(start, |rates, sample| {
            let per_second = |count: u64| count as f64 / sample.seconds;
            Self {
                packets: rates.packets + per_second(sample.tally.packets),
                trains: rates.trains + per_second(sample.tally.trains),
                frames: rates.frames + per_second(sample.tally.frames),
                bits: rates.bits + per_second(sample.tally.bytes) * 8.0,
                processor: rates.processor + sample.processor / sample.seconds,
                echoed: rates.echoed + sample.whole.packets,
                lost: rates.lost + sample.whole.lost,
                ..rates
            }
        })
    }

    /// Returns the results if they are plausible and from an echo that returned everything.
    fn believed(self, traffic: Traffic) -> Result<Self, Failure> {
        believe_lossless(self.lost)?;
        let is_possible = traffic == Traffic::Tcp || self.echoed <= self.sent;
        believe(is_possible, "more was echoed than sent")?;
        Ok(self)
    }
}

/// The kernel's counters of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UdpCounters {
    /// Datagrams without a receiver, or with a wrong checksum: the addresses were not exchanged
    /// correctly.
    strays: u64,
}

impl UdpCounters {
    fn of(namespace: &Namespace) -> Result<Self, Failure> {
        let text = namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
        Self::parse(&text).ok_or_else(|| "/proc/net/snmp has no UDP counters".into())
    }

    /// Two lines, one with names and one with numbers (proc(5)).
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let value = |wanted: &str| {
            let mut pairs = names.split(' ').zip(numbers.split(' '));
            pairs.find(|(name, _)| *name == wanted)?.1.parse::<u64>().ok()
        };
        Some(Self { strays: value("NoPorts")? + value("InCsumErrors")? })
    }
}

fn believe(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("the measurement is invalid: {otherwise}").into()) }
}

/// A candidate that loses frames does less work, and is not comparable.
fn believe_lossless(lost: u64) -> Result<(), Failure> {
    believe(lost == 0, &format!("the kernel did not accept {lost} of the frames"))
}

const WARM_UP_MS: u64 = 200;
const TURNS_ATTEMPTS: usize = 3;
/// Time that a measurement may take beyond its length.
const GRACE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::echo::swap::Tally;

    #[test]
    fn cores_are_shared_out() {
        assert_eq!(Cores::share(&[3]), None);
        let two = Cores::share(&[0, 1]).unwrap();
        assert_eq!((two.movers, two.sender, two.receiver), (vec![0], 1, 1));
        let four = Cores::share(&[0, 2, 4, 6]).unwrap();
        assert_eq!((four.movers, four.sender, four.receiver), (vec![0, 2], 6, 4));
    }

    #[test]
    fn an_echo_that_loses_frames_is_not_believed() {
        for (traffic, lost) in [(Traffic::Tcp, 0), (Traffic::Tcp, 1), (Traffic::Udp, 3)] {
            let whole = Tally { frames: 9, packets: 9, lost, ..Tally::default() };
            let sample = Sample { tally: whole, seconds: 1.0, processor: 1.0, whole };
            let reflected = Reflected { threads: vec![sample], shares: Vec::new() };
            let sent = Sent { datagrams: 99, ..Sent::default() };
            let rates = Rates::of(&reflected, &sent, 1).believed(traffic);
            match rates {
                Ok(_) => assert_eq!(lost, 0),
                Err(error) => assert!(error.to_string().contains(&format!("{lost} of the"))),
            }
        }
    }

    #[test]
    fn datagrams_that_went_astray_are_found() {
        let text = "Ip: a\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
                    SndbufErrors InCsumErrors IgnoredMulti MemErrors\nUdp: 9 1 7 9 7 0 2 0 0\n";
        assert_eq!(UdpCounters::parse(text), Some(UdpCounters { strays: 3 }));
        assert_eq!(UdpCounters::parse("Ip: a\n"), None);
    }
}
