//! Cost of a write: 60-byte frames that the kernel's stack drops at once, because they have another
//! station's address; with one queue, and with several and the kernel's steering or ours.
//!
//! On a device with several queues and no steering program, the kernel hashes each written frame,
//! to record the queue of its flow (`tun_flow_update`, Linux `drivers/net/tun.c`). A program avoids
//! that.

use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use rustix::io::write;
use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_tap::{FlowHash, Queue, Steering};

use crate::bench::cores::stay_on;

use super::means;
use super::swap::Layer;

type Failure = Box<dyn std::error::Error>;

/// Selection of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum QueueChoice {
    /// There is only one.
    Single,
    /// The kernel's default.
    Kernel,
    /// The eBPF program of this project's crate.
    Program,
}

impl QueueChoice {
    pub(super) const ALL: [Self; 3] = [Self::Single, Self::Kernel, Self::Program];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single => "one queue",
            Self::Kernel => "two queues, the kernel's choice",
            Self::Program => "two queues, our program's choice",
        }
    }
}

/// What to write to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WriteCost {
    pub(super) choice: QueueChoice,
    pub(super) core: usize,
    pub(super) length_ms: u64,
}

/// Result.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) frames: u64,
    /// Time per write(2).
    pub(super) nanoseconds: f64,
}

impl WriteCost {
    /// Writes, in this process.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds are shown with four digits")]
    pub(super) fn run(&self) -> Result<Written, Failure> {
        stay_on(self.core)?;
        let count = if self.choice == QueueChoice::Single { 1 } else { 2 };
        let queues = means::open(INTERFACE, Layer::Tap, true, count);
        let queues = queues.map_err(|error| error.to_string())?;
        self.steer(&queues)?;
        Netlink::open(&Namespace::current()?)?.set_up(INTERFACE)?;
        let packet = packet();
        let burst = || -> Result<(), Failure> {
            for _ in 0..BURST_COUNT {
                write(&queues[0], &packet)?;
            }
            Ok(())
        };
        let length = Duration::from_millis(self.length_ms);
        let warm = Instant::now() + length / 10;
        while Instant::now() < warm {
            burst()?;
        }
        let (start, mut frames) = (Instant::now(), 0);
        while start.elapsed() < length {
            burst()?;
            frames += BURST_COUNT;
        }
        let nanoseconds = start.elapsed().as_nanos() as f64 / frames as f64;
        let taken = Netlink::open(&Namespace::current()?)?.link(INTERFACE)?.stats.rx_packets;
        match taken >= frames {
            true => Ok(Written { frames, nanoseconds }),
            false => Err(format!("{frames} frames were written, {taken} arrived").into()),
        }
    }
}

impl WriteCost {
    /// Attaches the program, which stays with the device.
    fn steer(&self, queues: &[Queue]) -> Result<(), Failure> {
        if self.choice != QueueChoice::Program {
            return Ok(());
        }
        let count = u16::try_from(queues.len()).ok().and_then(NonZeroU16::new);
        let steering = Steering::load(FlowHash::ETHERNET, count.ok_or("how many queues?")?)?;
        Ok(steering.attach(&queues[0])?)
    }
}

/// A plain header, and an IPv4 datagram between two other stations.
fn packet() -> [u8; 12 + FRAME_LEN] {
    let mut packet = [0; 12 + FRAME_LEN];
    let frame = &mut packet[12..];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x77, 2, 0, 0, 0, 0, 0x78]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 32, 0, 1, 10, 32, 0, 2,
    ]);
    frame[34..42].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, 0, 26, 0, 0]);
    packet
}

const INTERFACE: &str = "write0";
/// 64 with the frame check sequence.
const FRAME_LEN: usize = 60;
/// Frames between two reads of the clock.
const BURST_COUNT: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_one_that_flows_can_be_told_by() {
        let packet = packet();
        let parsed = etherparse::SlicedPacket::from_ethernet(&packet[12..]).unwrap();
        let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else { panic!() };
        assert_eq!((udp.source_port(), udp.destination_port()), (0x1234, 0x5678));
    }
}
