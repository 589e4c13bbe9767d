//! The tables of the paper about `IFF_BACKPRESSURE`: TCP between two hosts that are connected by a
//! tunnel over a long link slower than them, by round-trip time and by the length of the ring
//! between the sender's kernel and the program that reads it.
//!
//! ```text
//!  host ── tap ── switch ── tunnel ── rate ─┐ bridge ┌─ delay ── tunnel ── switch ── tap ── host
//! ```
//! The paper's programs read packets. So the hosts' offloads are off in one half of each table, and
//! a slot of the ring holds a packet; in the other half it holds a train of up to 64 KiB.
//!
//! Each direction is rate-limited (tc-tbf(8)) where the tunnel's end sends, so that its socket
//! fills up, and delayed (tc-netem(8)) after that.
//!
//! Each case is measured without any means against a full ring, as the paper's programs are by
//! default: they read when they can send, and the kernel drops what finds the ring full. Then with
//! what the switch does on any kernel, and with the kernel's backpressure, in Linux 7.3; by
//! round-trip time also with the ring length that the switch chooses then.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_tap::Capabilities;

use crate::hosts::{self, Host};
use crate::process;
use crate::table::{grouped, print, table};

use super::results::{Judged, Results, Sample, Summary, ms};
use super::stage::{Losses, Switch, delay, has_netem, join, limit_rate, tap_host};
use super::traffic::{self, Load, Window};
use super::wireguard::{End, WireGuard};
use super::{Failure, LosslessArgs};

/// Connection between the two switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Middle {
    /// A VXLAN tunnel between them.
    Vxlan,
    /// The link itself, by packet sockets.
    Wire,
}

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Table {
    /// By round-trip time, with a ring of 500.
    RoundTrip,
    /// By ring length, with a round-trip time of 120 ms.
    Ring,
    /// By ring length, on a short link.
    Tap,
}

/// What connects the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum By {
    Tapswitch,
    WireguardGo,
}

/// What is done about a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Against {
    /// Nothing.
    Nothing,
    /// The switch reads ahead what it cannot send yet, up to its default budget.
    ReadAhead,
    /// `IFF_BACKPRESSURE`.
    Backpressure,
    /// What the switch does by default: `IFF_BACKPRESSURE`, and a short ring.
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    by: By,
    table: Table,
    round_trip_ms: u64,
    queue: u32,
    trains: bool,
    against: Against,
}

/// Results of one case.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    table: Table,
    by: By,
    middle: Middle,
    round_trip_ms: u64,
    queue: u32,
    /// The hosts send trains.
    trains: bool,
    against: Against,
    #[serde(flatten)]
    summary: Summary,
    /// Ratio to the same with nothing done about a full ring.
    to_nothing: Option<Judged>,
    /// Ratio to the longest ring of this table, with the same done about it.
    to_longest: Option<Judged>,
}

pub(super) async fn measure(args: &LosslessArgs) -> Result<Vec<Row>, Failure> {
    if !has_netem().await? {
        tell!("SKIP: this kernel cannot delay a link (no netem): {IN_A_GUEST}");
        return Ok(Vec::new());
    }
    let has_backpressure = Capabilities::probe()?.has_backpressure();
    if !has_backpressure {
        tell!(
            "SKIP: this kernel has no IFF_BACKPRESSURE, so a third of the tables is not measured: \
             {IN_A_GUEST}"
        );
    }
    let wireguard = wireguard(args);
    if wireguard.is_none() {
        tell!("SKIP: wireguard-go was not found: {WIREGUARD_REMEDY}");
    }
    let cases = cases(args, has_backpressure, wireguard.is_some());
    let mut results = Results::new(cases.len());
    for round in 1..=args.rounds {
        let program = wireguard.as_deref();
        results.round(async |index| take(args, cases[index], program, round).await).await?;
    }
    let find = |wanted: Case| cases.iter().position(|case| *case == wanted);
    let row = |(index, &case): (usize, &Case)| {
        let judged = |other: Option<usize>, goal| {
            let other = other.filter(|other| *other != index)?;
            Some(Judged::new(results.ratio(index, other), goal))
        };
        let nothing = find(Case { against: Against::Nothing, ..case });
        let longest = find(Case { queue: case.longest(&cases), ..case });
        let Case { by, table, round_trip_ms, queue, trains, against } = case;
        let [to_nothing, to_longest] = case.goals();
        Row {
            table,
            by,
            middle: args.middle,
            round_trip_ms,
            queue,
            trains,
            against,
            summary: results.summary(index),
            to_nothing: judged(nothing, to_nothing),
            to_longest: judged(longest, to_longest),
        }
    };
    Ok(cases.iter().enumerate().map(row).collect())
}

fn cases(args: &LosslessArgs, has_backpressure: bool, has_wireguard: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |table, round_trip_ms, queue| {
        for trains in args.trains.iter().map(|switch| switch.is_on()) {
            for &against in Against::value_variants() {
                let by = By::Tapswitch;
                cases.push(Case { by, table, round_trip_ms, queue, trains, against });
            }
        }
        // It always uses trains.
        let (by, trains, against) = (By::WireguardGo, true, Against::Nothing);
        cases.push(Case { by, table, round_trip_ms, queue, trains, against });
    };
    for &ms in &ROUND_TRIPS_MS {
        add(Table::RoundTrip, ms, USUAL_QUEUE);
    }
    for &queue in args.queues(&QUEUES) {
        add(Table::Ring, LONGEST_MS, queue);
    }
    for &queue in args.queues(&TAP_QUEUES) {
        add(Table::Tap, 0, queue);
    }
    let is_wanted = |case: &Case| {
        is_selected(&args.table, &case.table)
            && is_selected(&args.by, &case.by)
            && is_selected(&args.against, &case.against)
            // The rings of the other tables are given.
            && (case.table == Table::RoundTrip || case.against != Against::Default)
    };
    cases.retain(|case| {
        let is_there = has_wireguard || case.by != By::WireguardGo;
        is_wanted(case) && is_there && (has_backpressure || !case.against.needs_backpressure())
    });
    cases
}

/// True if a value is among the selected ones, or if none is selected.
fn is_selected<T: PartialEq>(selected: &[T], value: &T) -> bool {
    selected.is_empty() || selected.contains(value)
}

/// The given program, or the installed one.
fn wireguard(args: &LosslessArgs) -> Option<PathBuf> {
    let installed = || process::is_installed(WIREGUARD).then(|| WIREGUARD.into());
    args.wireguard.clone().or_else(installed)
}

impl Case {
    fn longest(self, cases: &[Self]) -> u32 {
        let same = cases.iter().filter(|case| case.table == self.table);
        same.map(|case| case.queue).max().unwrap_or(self.queue)
    }

    /// Goals of the ratios to the same with nothing done about a full ring, and to the longest
    /// ring.
    fn goals(self) -> [Option<f64>; 2] {
        let Self { table, round_trip_ms, queue, trains, against, .. } = self;
        let backpressure = against.needs_backpressure();
        let is_usual = round_trip_ms == LONGEST_MS && queue == USUAL_QUEUE && !trains;
        let is_shortest = table == Table::Tap && queue == 1;
        [(backpressure && is_usual).then_some(2.5), (backpressure && is_shortest).then_some(0.95)]
    }

    /// Nothing is measured before a flow has reached its rate.
    fn window(self, args: &LosslessArgs) -> Window {
        let Window { warm_up, length } = args.window();
        Window { warm_up: warm_up + Duration::from_millis(self.round_trip_ms) * 20, length }
    }

    fn title(self) -> String {
        let (trains, against) = (word(self.trains), self.against.name());
        let (by, ms, queue) = (self.by.name(), self.round_trip_ms, self.against.ring(self.queue));
        format!("{by}, {ms} ms, ring of {queue}, trains {trains}, {against}")
    }

    fn options(self) -> String {
        let (trains, queue) = (word(self.trains), self.queue);
        let against = match self.against {
            Against::Nothing => "backpressure=off,drain-ahead=off",
            Against::ReadAhead => "backpressure=off",
            Against::Backpressure => "backpressure=on",
            Against::Default => return format!("mtu={MTU},offload={trains}"),
        };
        format!("mtu={MTU},txqueuelen={queue},offload={trains},{against}")
    }
}

async fn take(
    args: &LosslessArgs,
    case: Case,
    wireguard: Option<&Path>,
    round: u64,
) -> Result<Sample, Failure> {
    let mbps = args.rate.unwrap_or(RATE_MBPS);
    let scene = Scene::set_up(args.middle, wireguard, case, mbps).await?;
    let Scene { sender, receiver, .. } = &scene;
    traffic::wait_for_path(sender, receiver)?;
    let before = scene.losses()?;
    let passed = traffic::pass(sender, receiver, Load::Tcp, case.window(args)).await?;
    let losses = scene.losses()?.since(&before);
    tell!("round {round}: {}: {:.2} Mb/s", case.title(), passed.mbps);
    Ok(Sample { passed, losses, ..Sample::default() })
}

/// Everything between two hosts, and the hosts, in the order of dropping.
struct Scene {
    between: Between,
    sender: Host,
    receiver: Host,
    rooms: [OwnedNamespace; 3],
}

/// The ends of the tunnel.
enum Between {
    Switches([Switch; 2]),
    WireGuard([WireGuard; 2]),
}

impl Scene {
    async fn set_up(
        middle: Middle,
        wireguard: Option<&Path>,
        case: Case,
        mbps: f64,
    ) -> Result<Self, Failure> {
        let rooms = [
            hosts::quiet_namespace("west")?,
            hosts::quiet_namespace("east")?,
            hosts::quiet_namespace("bridge")?,
        ];
        let one_way = Duration::from_millis(case.round_trip_ms) / 2;
        link(&rooms, one_way, mbps).await?;
        let (sender, first) = tap_host(1, "sender", &case.options())?;
        let (receiver, second) = tap_host(2, "receiver", &case.options())?;
        let between = match wireguard.filter(|_| case.by == By::WireguardGo) {
            Some(program) => {
                let end = |room, host, remote| End {
                    program,
                    room,
                    host,
                    remote,
                    queue: case.queue,
                    mtu: MTU,
                };
                let west = end(&rooms[0], &sender, EAST).start().await?;
                Between::WireGuard([west, end(&rooms[1], &receiver, WEST).start().await?])
            }
            None => {
                let west = Switch::start(&[first, middle.port(2, &rooms[0])], "").await?;
                let east = Switch::start(&[second, middle.port(1, &rooms[1])], "").await?;
                sender.configure()?;
                receiver.configure()?;
                Between::Switches([west, east])
            }
        };
        Ok(Self { between, sender, receiver, rooms })
    }

    /// Losses on both sides.
    fn losses(&self) -> Result<Losses, Failure> {
        let [mut sum, other] = match &self.between {
            Between::Switches([west, east]) => [west.losses()?, east.losses()?],
            Between::WireGuard([west, east]) => {
                let [west_room, east_room, _] = &self.rooms;
                [west.losses(west_room)?, east.losses(east_room)?]
            }
        };
        sum.add(&other);
        Ok(sum)
    }
}

/// A link from `up` in the first namespace to `up` in the second, through the third.
async fn link(rooms: &[OwnedNamespace; 3], one_way: Duration, mbps: f64) -> Result<(), Failure> {
    let [west, east, bridge] = rooms;
    let mut netlink = Netlink::open(bridge)?;
    netlink.create_bridge("bridge")?;
    netlink.set_up("bridge")?;
    for (room, port, address) in [(west, "west", WEST), (east, "east", EAST)] {
        join(room, "up", bridge, port)?;
        netlink.set_bridge(port, "bridge")?;
        Netlink::open(room)?.add_address("up", IpAddr::V4(address), 24)?;
        limit_rate(room, "up", mbps).await?;
        if !one_way.is_zero() {
            delay(bridge, port, one_way).await?;
        }
    }
    Ok(())
}

impl Against {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::ReadAhead => "read ahead",
            Self::Backpressure => "backpressure",
            Self::Default => "default",
        }
    }

    fn needs_backpressure(self) -> bool {
        matches!(self, Self::Backpressure | Self::Default)
    }

    /// The ring, if `queue` is the length of those that have the table's.
    fn ring(self, queue: u32) -> String {
        if self == Self::Default { "default length".to_owned() } else { queue.to_string() }
    }
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Tapswitch => "tapswitch",
            Self::WireguardGo => "wireguard-go",
        }
    }
}

impl Middle {
    /// The port with this number, which connects to the other switch.
    fn port(self, number: u8, room: &Namespace) -> String {
        let (name, remote) = (room.label(), if number == 2 { EAST } else { WEST });
        match self {
            Self::Wire => format!("{number}=netdev:up,netns={name}"),
            Self::Vxlan => format!("{number}=vxlan:remote={remote},vni=7,netns={name}"),
        }
    }
}

impl Table {
    fn title(self) -> &'static str {
        match self {
            Self::RoundTrip => "By round trip",
            Self::Ring => "By ring length, long round trip",
            Self::Tap => "By ring length, short round trip",
        }
    }
}

pub(super) fn print_rows(rows: &[Row]) {
    for same in rows.chunk_by(|a, b| a.table == b.table) {
        let Some(first) = same.first() else { continue };
        say!("\n{}: one TCP flow between two hosts through a tunnel", first.table.title());
        let mut shown = table(&[
            "ROUND TRIP, ms ",
            "RING ",
            "BY",
            "TRAINS",
            "AGAINST LOSS",
            "MB/S ",
            "TO NOTHING ",
            "GOAL ",
            "",
            "TO LONGEST ",
            "GOAL ",
            "",
            "SENT AGAIN ",
            "RING FULL ",
            "QDISC ",
            "IN SWITCH ",
            "99 %, ms ",
        ]);
        for row in same {
            shown.add_row(row.cells());
        }
        print(&shown, "");
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let Summary { losses, .. } = &self.summary;
        let mut cells = vec![
            self.round_trip_ms.to_string(),
            self.against.ring(self.queue),
            self.by.name().to_owned(),
            word(self.trains).to_owned(),
            self.against.name().to_owned(),
            format!("{:.2}", self.summary.mbps),
        ];
        cells.extend(Judged::cells(self.to_nothing.as_ref()));
        cells.extend(Judged::cells(self.to_longest.as_ref()));
        let counts =
            [self.summary.retransmits, losses.ring_full(), losses.shed, losses.in_switch()];
        cells.extend(counts.map(grouped));
        cells.push(ms(self.summary.p99_ms));
        cells
    }
}

fn word(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Remedy for missing kernel features.
const IN_A_GUEST: &str = "`make bench-guest` measures this in a guest with Linux 7.3";
const WIREGUARD: &str = "wireguard-go";
const WIREGUARD_REMEDY: &str =
    "`go install golang.zx2c4.com/wireguard@latest`, then --wireguard FILE";
const ROUND_TRIPS_MS: [u64; 5] = [10, 20, 40, 80, 120];
const LONGEST_MS: u64 = 120;
const QUEUES: [u32; 6] = [5000, 1000, 500, 100, 50, 10];
const TAP_QUEUES: [u32; 4] = [1000, 100, 10, 1];
/// Default ring length of a tun device.
const USUAL_QUEUE: u32 = 500;
/// MTU inside a tunnel over a link of 1500 bytes.
const MTU: u32 = 1400;
/// Default rate of the link, as in the paper.
const RATE_MBPS: f64 = 200.0;
const WEST: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 1);
const EAST: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_those_of_the_paper_with_and_without() {
        let args = LosslessArgs::for_tests();
        let all = cases(&args, true, false);
        let count = |table| all.iter().filter(|case| case.table == table).count();
        assert_eq!([Table::RoundTrip, Table::Ring, Table::Tap].map(count), [40, 36, 24]);
        assert_eq!(cases(&args, false, false).len(), 60);
        assert_eq!(cases(&args, false, true).len(), 75, "one more by wireguard-go");
    }

    #[test]
    fn goals_are_set_where_the_paper_found_the_most() {
        let goals = |table, queue, trains, against| {
            let round_trip_ms = if table == Table::Tap { 0 } else { 120 };
            Case { by: By::Tapswitch, table, round_trip_ms, queue, trains, against }.goals()
        };
        let backpressure = Against::Backpressure;
        assert_eq!(goals(Table::Ring, 500, false, backpressure), [Some(2.5), None]);
        assert_eq!(goals(Table::Ring, 500, true, backpressure), [None, None]);
        assert_eq!(goals(Table::Ring, 500, false, Against::ReadAhead), [None, None]);
        assert_eq!(goals(Table::Tap, 1, true, backpressure), [None, Some(0.95)]);
    }
}
