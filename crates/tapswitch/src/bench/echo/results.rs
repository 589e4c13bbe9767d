//! Results round by round, and derived values: medians over rounds, of rates and of the ratios
//! within a round.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::paired::{Ratio, Verdict};
use crate::bench::statistics::median;

use super::cell::Cell;
use super::means::Means;
use super::stage::{Rates, Throughput};
use super::write_cost::{QueueChoice, Written};

/// Results of each cell, round by round.
#[derive(Debug, Default)]
pub(super) struct Results(BTreeMap<Cell, Vec<Rates>>);

impl Results {
    pub(super) fn add(&mut self, cell: Cell, rates: Rates) {
        self.0.entry(cell).or_default().push(rates);
    }

    /// One row per cell.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.0.iter().map(|(cell, rounds)| self.row(*cell, rounds)).collect()
    }

    fn row(&self, cell: Cell, rounds: &[Rates]) -> Row {
        let of = |value: fn(&Rates) -> f64| median(rounds.iter().map(value));
        Row {
            cell,
            packets_per_second: of(|rates| rates.packets),
            trains_per_second: of(|rates| rates.trains),
            frames_per_second: of(|rates| rates.frames),
            gbps: of(|rates| rates.bits) / 1e9,
            processor_percent: of(|rates| rates.processor) * 100.0,
            nanoseconds_per_packet: of(|rates| rates.processor / rates.packets) * 1e9,
            saturated: of(|rates| rates.processor / rates.cores) >= SATURATED,
            to_bare: self.ratio(cell, cell.by(Means::Bare)),
            to_tun_rs: self.ratio(cell, cell.by(Means::TunRs)),
            to_no_offloads: self.ratio(cell, cell.without_offloads()),
            rounds: rounds.iter().map(|rates| rates.packets).collect(),
            echoed: rounds.iter().map(|rates| rates.echoed).sum(),
            sent: rounds.iter().map(|rates| rates.sent).sum(),
            singly: rounds.iter().any(|rates| rates.singly),
        }
    }

    fn ratio(&self, over: Cell, under: Cell) -> Option<Ratio> {
        ratio(&self.0, &over, &under, |rates| rates.packets)
    }
}

/// One measurement of one candidate, medians over rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) cell: Cell,
    /// Packets that the echo returned, counted as on a wire with an MTU of 1500.
    pub(super) packets_per_second: f64,
    /// Trains among the frames.
    pub(super) trains_per_second: f64,
    /// Frames that were read, trains and others.
    pub(super) frames_per_second: f64,
    pub(super) gbps: f64,
    /// CPU time of all threads of the echo, in percent of one core.
    pub(super) processor_percent: f64,
    /// CPU time of the echo per packet, which hardly depends on other load.
    pub(super) nanoseconds_per_packet: f64,
    /// The echo used at least 95 % of its cores: it is the bottleneck.
    pub(super) saturated: bool,
    /// Ratio of packets per second to the bare loop doing the same.
    pub(super) to_bare: Option<Ratio>,
    /// Ratio to tun-rs.
    pub(super) to_tun_rs: Option<Ratio>,
    /// Ratio to the same candidate without offloads.
    pub(super) to_no_offloads: Option<Ratio>,
    /// Packets per second of each round.
    pub(super) rounds: Vec<f64>,
    /// Packets that were echoed in all rounds, including those outside of the measured time.
    pub(super) echoed: u64,
    /// Datagrams that were sent in all rounds; zero for TCP.
    pub(super) sent: u64,
    /// The kernel sends no trains through this device: the sender sent single datagrams.
    pub(super) singly: bool,
}

/// Processor time per packet in ns by turns on one device, round by round.
#[derive(Debug, Default)]
pub(super) struct TurnResults(BTreeMap<Cell, Vec<f64>>);

impl TurnResults {
    pub(super) fn add(&mut self, cell: Cell, nanoseconds: f64) {
        self.0.entry(cell).or_default().push(nanoseconds);
    }

    /// One row per cell, except those of the bare loop.
    pub(super) fn rows(&self) -> Vec<TurnRow> {
        let row = |(&cell, rounds): (&Cell, &Vec<f64>)| {
            let bare = cell.by(Means::Bare);
            let to_bare = ratio(&self.0, &bare, &cell, |nanoseconds| *nanoseconds)?;
            Some(TurnRow {
                cell,
                bare_nanoseconds: median(self.0.get(&bare)?.iter().copied()),
                nanoseconds: median(rounds.iter().copied()),
                verdict: to_bare.verdict(TO_BARE_GOAL),
                to_bare,
            })
        };
        self.0.iter().filter_map(row).collect()
    }
}

/// One candidate that took turns with the bare loop, medians over rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TurnRow {
    #[serde(flatten)]
    pub(super) cell: Cell,
    /// Processor time of the bare loop per packet.
    pub(super) bare_nanoseconds: f64,
    /// That of the candidate.
    pub(super) nanoseconds: f64,
    /// Ratio of the first to the second: above one, the candidate is faster.
    pub(super) to_bare: Ratio,
    pub(super) verdict: Verdict,
}

/// Results of forwarders, round by round; without a forwarder, a veth pair.
#[derive(Debug, Default)]
pub(super) struct ForwardResults(BTreeMap<Option<Means>, Vec<Throughput>>);

impl ForwardResults {
    pub(super) fn add(&mut self, means: Option<Means>, throughput: Throughput) {
        self.0.entry(means).or_default().push(throughput);
    }

    /// One row per forwarder.
    pub(super) fn rows(&self) -> Vec<ForwardRow> {
        let row = |(&means, rounds): (&Option<Means>, &Vec<Throughput>)| {
            let of = |value: fn(&Throughput) -> f64| median(rounds.iter().map(value));
            ForwardRow {
                means,
                gbps: of(|round| round.bits) / 1e9,
                processor_percent: means.map(|_| of(|round| round.processor) * 100.0),
                to_bare: self.ratio(means, Some(Means::Bare)),
                to_tun_rs: self.ratio(means, Some(Means::TunRs)),
                to_veth: self.ratio(means, None),
            }
        };
        self.0.iter().map(row).collect()
    }

    fn ratio(&self, over: Option<Means>, under: Option<Means>) -> Option<Ratio> {
        ratio(&self.0, &over, &under, |round| round.bits)
    }
}

/// One forwarder between two tun devices, TCP bulk.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ForwardRow {
    /// `None`: a veth pair between the namespaces, the limit of the end hosts themselves.
    pub(super) means: Option<Means>,
    /// Payload at the receiver.
    pub(super) gbps: f64,
    /// CPU time of the forwarding thread, in percent of a core.
    pub(super) processor_percent: Option<f64>,
    pub(super) to_bare: Option<Ratio>,
    pub(super) to_tun_rs: Option<Ratio>,
    pub(super) to_veth: Option<Ratio>,
}

/// Costs of writes, round by round.
#[derive(Debug, Default)]
pub(super) struct WriteResults(BTreeMap<QueueChoice, Vec<Written>>);

impl WriteResults {
    pub(super) fn add(&mut self, choice: QueueChoice, written: Written) {
        self.0.entry(choice).or_default().push(written);
    }

    /// One row per selection of the queue.
    pub(super) fn rows(&self) -> Vec<WriteRow> {
        let row = |(&choice, rounds): (&QueueChoice, &Vec<Written>)| WriteRow {
            choice,
            nanoseconds: median(rounds.iter().map(|round| round.nanoseconds)),
            to_kernel: ratio(&self.0, &choice, &QueueChoice::Kernel, |round| round.nanoseconds),
        };
        self.0.iter().map(row).collect()
    }
}

/// One selection of the queue.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WriteRow {
    pub(super) choice: QueueChoice,
    /// Time per write(2) of a 60-byte frame that the stack drops.
    pub(super) nanoseconds: f64,
    /// Ratio to the kernel's own selection.
    pub(super) to_kernel: Option<Ratio>,
}

/// The ratio of `value`, round by round; `None` for a candidate and itself.
fn ratio<K: Ord, T>(
    rounds: &BTreeMap<K, Vec<T>>,
    over: &K,
    under: &K,
    value: impl Fn(&T) -> f64,
) -> Option<Ratio> {
    if over == under {
        return None;
    }
    let (over, under) = (rounds.get(over)?, rounds.get(under)?);
    let ratios = over.iter().zip(under).map(|(over, under)| value(over) / value(under));
    Some(Ratio::of(ratios.collect()))
}

/// Least ratio of an engine to the bare loop.
const TO_BARE_GOAL: f64 = 0.97;
/// CPU usage from which on the echo counts as saturated.
const SATURATED: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::echo::swap::Layer;
    use crate::bench::echo::traffic::Traffic;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut results = Results::default();
        for (bare, ours) in [(100.0, 90.0), (10.0, 11.0), (50.0, 50.0)] {
            results.add(cell(Means::Bare, false), rates(bare));
            results.add(cell(Means::Drain, false), rates(ours));
        }
        let rows = results.rows();
        assert_eq!((rows[0].packets_per_second, rows[1].packets_per_second), (50.0, 50.0));
        assert_eq!([rows[0].to_bare, rows[1].to_bare].map(middle), [None, Some(1.0)]);
        assert_eq!(rows[1].to_tun_rs, None, "it was not measured");
        assert_eq!(rows[1].rounds, [90.0, 11.0, 50.0]);
        assert_eq!((rows[1].echoed, rows[1].sent), (30, 60), "of all rounds");
    }

    #[test]
    fn offloads_are_compared_with_none() {
        let mut results = Results::default();
        results.add(cell(Means::Drain, false), rates(5.0));
        results.add(cell(Means::Drain, true), rates(60.0));
        let [off, on] = &results.rows()[..] else { panic!() };
        assert_eq!([off.to_no_offloads, on.to_no_offloads].map(middle), [None, Some(12.0)]);
    }

    #[test]
    fn whoever_has_time_to_spare_is_told_apart() {
        let mut results = Results::default();
        for (means, processor) in [(Means::Bare, 1.95), (Means::Drain, 1.8)] {
            results.add(cell(means, true), Rates { processor, cores: 2.0, ..rates(1.0) });
        }
        let saturated: Vec<_> = results.rows().iter().map(|row| row.saturated).collect();
        assert_eq!(saturated, [true, false]);
        let row = &results.rows()[0];
        assert_eq!((row.processor_percent, row.nanoseconds_per_packet), (195.0, 1.95e9));
    }

    #[test]
    fn by_turns_less_time_is_a_larger_ratio() {
        let mut results = TurnResults::default();
        for (bare, ours) in [(100.0, 101.0), (200.0, 160.0), (150.0, 151.0)] {
            results.add(cell(Means::Bare, true), bare);
            results.add(cell(Means::Drain, true), ours);
        }
        results.add(cell(Means::Drain, false), 7.0);
        let [row] = &results.rows()[..] else { panic!("only what was compared is shown") };
        assert_eq!((row.bare_nanoseconds, row.nanoseconds), (150.0, 151.0));
        assert!((row.to_bare.median - 150.0 / 151.0).abs() < 1e-9);
        assert_eq!(row.verdict, Verdict::Met);
    }

    #[test]
    fn forwarders_are_compared_with_a_wire() {
        let mut results = ForwardResults::default();
        for (means, bits) in [(None, 40e9), (Some(Means::Drain), 30e9), (Some(Means::TunRs), 10e9)]
        {
            results.add(means, Throughput { bits, processor: 0.5 });
        }
        let rows = results.rows();
        assert_eq!((rows[0].gbps, rows[0].processor_percent), (40.0, None));
        assert_eq!([rows[1].to_veth, rows[1].to_tun_rs].map(middle), [Some(0.75), Some(3.0)]);
        assert_eq!(rows[1].processor_percent, Some(50.0));
    }

    #[test]
    fn writes_are_compared_with_the_kernels_choice() {
        let mut results = WriteResults::default();
        for (choice, nanoseconds) in [(QueueChoice::Kernel, 800.0), (QueueChoice::Single, 600.0)] {
            results.add(choice, Written { frames: 1, nanoseconds });
        }
        let ratios: Vec<_> = results.rows().iter().map(|row| middle(row.to_kernel)).collect();
        assert_eq!(ratios, [Some(0.75), None]);
    }

    fn middle(ratio: Option<Ratio>) -> Option<f64> {
        ratio.map(|ratio| ratio.median)
    }

    fn cell(means: Means, offloads: bool) -> Cell {
        Cell { layer: Layer::Tap, traffic: Traffic::Udp, queues: 1, offloads, means }
    }

    fn rates(packets: f64) -> Rates {
        Rates { packets, cores: 1.0, echoed: 10, sent: 20, ..Rates::default() }
    }
}
