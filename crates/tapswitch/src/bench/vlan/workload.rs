//! The workloads, and their order.

use clap::ValueEnum;
use serde::Serialize;

/// A type of traffic, with a number of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) traffic: Traffic,
    pub(super) flows: usize,
}

impl Workload {
    /// All workloads.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let traffic = Traffic::value_variants().iter().copied();
        traffic.flat_map(|traffic| FLOWS.map(|flows| Self { traffic, flows }))
    }

    pub(super) fn name(self) -> String {
        let plural = if self.flows == 1 { "flow" } else { "flows" };
        format!("{}, {} {plural}", self.traffic.name(), self.flows)
    }
}

/// A type of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Traffic {
    /// Bulk by TCP.
    Tcp,
    /// Datagrams of 1472 bytes, which fill an MTU of 1500, each sent individually.
    #[value(name = "udp-1472")]
    #[serde(rename = "udp-1472")]
    LargeUdp,
    /// The same, 44 of them per train.
    UdpTrains,
    /// Datagrams of 18 bytes, which fill a minimum-size Ethernet frame.
    #[value(name = "udp-18")]
    #[serde(rename = "udp-18")]
    SmallUdp,
}

impl Traffic {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::LargeUdp => "UDP, 1472 bytes",
            Self::UdpTrains => "UDP, 1472 bytes, trains",
            Self::SmallUdp => "UDP, 18 bytes",
        }
    }

    /// Payload of a datagram in bytes; `None` for TCP.
    pub(super) fn datagram_len(self) -> Option<usize> {
        match self {
            Self::Tcp => None,
            Self::LargeUdp | Self::UdpTrains => Some(1472),
            Self::SmallUdp => Some(18),
        }
    }

    /// Number of datagrams passed to the kernel at once.
    pub(super) fn train_count(self) -> usize {
        if self == Self::UdpTrains { TRAIN_COUNT } else { 1 }
    }

    pub(super) fn unit(self) -> &'static str {
        if self == Self::SmallUdp { "kpps" } else { "Gb/s" }
    }

    /// Converts a payload rate to the unit of this traffic.
    #[expect(clippy::cast_precision_loss, reason = "rates are shown with four digits")]
    pub(super) fn rate(self, bytes: u64, seconds: f64) -> f64 {
        let per_second = bytes as f64 / seconds;
        match self.datagram_len() {
            Some(len) if self == Self::SmallUdp => per_second / len as f64 / 1e3,
            _ => per_second * 8.0 / 1e9,
        }
    }

    /// Goal of the rate of tagged frames, relative to untagged ones.
    pub(super) fn goal(self) -> f64 {
        if self == Self::Tcp { 0.98 } else { 0.95 }
    }
}

/// Numbers of flows to measure.
pub(super) const FLOWS: [usize; 2] = [1, 100];
/// Maximum number of datagrams of 1472 bytes in an IPv4 packet.
const TRAIN_COUNT: usize = 44;
