//! Length of the kernel's ring: a host on a tap port sends to one behind a slower link, by the
//! length of the ring between its kernel and the switch.
//!
//! The slow link is a rate-limited veth pair (tc-tbf(8)), attached to the switch by a packet
//! socket, like a NIC at the edge of a fast host. The queue before it fills up, the socket accepts
//! no more, and the switch must decide what waits where.

use clap::ValueEnum;
use serde::Serialize;

use crate::hosts::{self, Host};
use crate::table::{grouped, print, table};

use super::results::{Judged, Results, Sample, Summary, ms};
use super::stage::{Switch, link_host, tap_host};
use super::traffic::{self, Load};
use super::{Failure, LosslessArgs};

/// Whether the switch reads ahead of what it can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DrainAhead {
    On,
    Off,
    /// The switch's default.
    Default,
}

/// Traffic of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Sends {
    /// One TCP flow.
    Tcp,
    /// The same with ECN (RFC 3168), which signals a full queue without loss.
    TcpEcn,
    /// Datagrams at nine tenths of the link's rate.
    UdpPaced,
    /// Datagrams at the maximum rate.
    UdpFlood,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    sends: Sends,
    queue: u32,
    drain_ahead: DrainAhead,
}

/// Results of one case.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    sends: Sends,
    /// Length of the ring in frames.
    queue: u32,
    drain_ahead: DrainAhead,
    #[serde(flatten)]
    summary: Summary,
    loss_percent: f64,
    /// Ratio to the same with the longest ring.
    to_longest: Option<Judged>,
}

pub(super) async fn measure(args: &LosslessArgs) -> Result<Vec<Row>, Failure> {
    let cases = cases(args);
    let mut results = Results::new(cases.len());
    for round in 1..=args.rounds {
        results.round(async |index| take(args, cases[index], round).await).await?;
    }
    let longest = |case: Case| {
        let same =
            |other: &Case| (other.sends, other.drain_ahead) == (case.sends, case.drain_ahead);
        (0..cases.len()).filter(|&it| same(&cases[it])).max_by_key(|&it| cases[it].queue)
    };
    let row = |(index, &case): (usize, &Case)| {
        let summary = results.summary(index);
        let longest = longest(case).filter(|&it| it != index);
        Row {
            sends: case.sends,
            queue: case.queue,
            drain_ahead: case.drain_ahead,
            loss_percent: summary.loss_percent(),
            summary,
            to_longest: longest.map(|it| Judged::new(results.ratio(index, it), None)),
        }
    };
    Ok(cases.iter().enumerate().map(row).collect())
}

fn cases(args: &LosslessArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for &sends in Sends::value_variants() {
        for &drain_ahead in &args.drain_ahead {
            let case = |&queue| Case { sends, queue, drain_ahead };
            cases.extend(args.queues(&QUEUES).iter().map(case));
        }
    }
    cases
}

async fn take(args: &LosslessArgs, case: Case, round: u64) -> Result<Sample, Failure> {
    let mbps = args.rate.unwrap_or(RATE_MBPS);
    let room = hosts::quiet_namespace("room")?;
    let (sender, tap) = tap_host(1, "sender", &case.options())?;
    let (receiver, link) = link_host(2, "receiver", &room, Some(mbps)).await?;
    let switch = Switch::start(&[tap, link], "").await?;
    sender.configure()?;
    receiver.configure()?;
    if case.sends == Sends::TcpEcn {
        use_ecn(&sender)?;
    }
    traffic::wait_for_path(&sender, &receiver)?;
    let load = match case.sends {
        Sends::Tcp | Sends::TcpEcn => Load::Tcp,
        Sends::UdpPaced => Load::Paced(mbps * 0.9),
        Sends::UdpFlood => Load::Flood,
    };
    let (before, marked) = (switch.losses()?, switch.marked()?);
    let passed = traffic::pass(&sender, &receiver, load, args.window()).await?;
    let losses = switch.losses()?.since(&before);
    tell!(
        "round {round}: {}, ring of {}: {:.1} Mb/s, 99 % within {} ms",
        case.sends.name(),
        case.queue,
        passed.mbps,
        ms(passed.percentile_ms(0.99))
    );
    Ok(Sample { passed, losses, marked: switch.marked()? - marked })
}

/// Makes the host request ECN when it connects; by default, receivers accept.
fn use_ecn(host: &Host) -> Result<(), Failure> {
    Ok(host.namespace.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1"))??)
}

impl Case {
    /// Packets are not coalesced, so that loss is counted in the same unit as sent packets.
    fn options(self) -> String {
        let ahead = match self.drain_ahead {
            DrainAhead::On => ",drain-ahead=on",
            DrainAhead::Off => ",drain-ahead=off",
            DrainAhead::Default => "",
        };
        format!("gro=off,txqueuelen={}{ahead}", self.queue)
    }
}

impl Sends {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::TcpEcn => "TCP with ECN",
            Self::UdpPaced => "UDP at 90 %",
            Self::UdpFlood => "UDP flood",
        }
    }
}

impl DrainAhead {
    fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Default => "as it is",
        }
    }
}

pub(super) fn print_rows(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    say!("\nA host on a tap port sends over a slower link");
    let mut shown = table(&[
        "SENDS",
        "RING ",
        "DRAIN AHEAD",
        "MB/S ",
        "TO LONGEST ",
        "LOSS % ",
        "RING FULL ",
        "QDISC ",
        "IN SWITCH ",
        "SENT AGAIN ",
        "50 %, ms ",
        "99 %, ms ",
    ]);
    for row in rows {
        let [to_longest, ..] = Judged::cells(row.to_longest.as_ref());
        let Summary { losses, .. } = &row.summary;
        shown.add_row([
            row.sends.name().to_owned(),
            row.queue.to_string(),
            row.drain_ahead.name().to_owned(),
            format!("{:.1}", row.summary.mbps),
            to_longest,
            format!("{:.3}", row.loss_percent),
            grouped(losses.ring_full()),
            grouped(losses.shed),
            grouped(losses.in_switch()),
            grouped(row.summary.marked),
            grouped(row.summary.retransmits),
            ms(row.summary.p50_ms),
            ms(row.summary.p99_ms),
        ]);
    }
    print(&shown, "");
}

const QUEUES: [u32; 4] = [1000, 100, 10, 1];
/// Default rate of the link.
const RATE_MBPS: f64 = 500.0;
