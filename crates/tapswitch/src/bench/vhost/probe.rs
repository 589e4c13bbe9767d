//! Round trips: a frame enters a switch at an interface, reaches a guest, returns from another, and
//! leaves at the interface.
//!
//! ```text
//!  prober ── tap device ── switch ── guest 1 ─┐ one program
//!            PROBE_PORT           ── guest 2 ─┘ passes it on
//! ```
//! The device belongs to the prober: it holds the file, and the switch attaches the interface (our
//! switch by `netdev:`, Open vSwitch by DPDK's `net_af_packet`, so that its polling thread reads
//! it). The prober runs on the guests' core, which they never yield, so it has a real-time priority
//! (chrt(1)) and sleeps while it waits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_tap::{Config, Device, Offloads, Queue, RECV_BUF_LEN};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::process;

use super::Failure;

/// The prober as a separate process.
#[derive(Debug)]
pub(super) struct Prober {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// Results of a series of round trips.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Series {
    /// Median, microseconds.
    pub(super) p50_us: f64,
    /// 99th percentile, microseconds.
    pub(super) p99_us: f64,
    /// Frames that did not return in time.
    pub(super) lost: usize,
}

impl Prober {
    /// Starts it; the interface exists and is up when this returns.
    pub(super) async fn start(namespace: &Namespace, core: usize) -> Result<Self, Failure> {
        let (program, core) = (std::env::current_exe()?, core.to_string());
        let program = program.to_string_lossy();
        let args = ["-f", "1", "taskset", "-c", &core, &program, "bench", "vhost-probe"];
        let args = [&args[..], &["--netns", namespace.label()]].concat();
        let mut command = process::command(&Namespace::current()?, "chrt", &args);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        let output = BufReader::new(output).lines();
        let mut prober = Self { _child: child, input, output };
        prober.hear().await?;
        Ok(prober)
    }

    /// One series.
    pub(super) async fn series(&mut self) -> Result<Series, Failure> {
        self.input.write_all(b"go\n").await?;
        Ok(serde_json::from_str(&self.hear().await?)?)
    }

    async fn hear(&mut self) -> Result<String, Failure> {
        let line = tokio::time::timeout(SERIES_LIMIT, self.output.next_line()).await??;
        line.ok_or_else(|| "the prober exited".into())
    }
}

/// Location of the prober.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProbeArgs {
    /// Namespace of the interface.
    #[arg(long, value_name = "NS")]
    netns: String,
}

/// Creates the device, then runs a series for each line of input.
pub(crate) fn main(args: &ProbeArgs) -> Result<(), Failure> {
    let namespace = Namespace::open(&args.netns)?;
    let config = Config::new(PROBE_INTERFACE.parse()?).offloads(Offloads::empty());
    let queue = namespace.enter(|| Device::create(&config))??.into_queues().pop();
    let queue = queue.ok_or("a tap device without a queue")?;
    Netlink::open(&namespace)?.set_up(PROBE_INTERFACE)?;
    say!("ready");
    for line in std::io::stdin().lines() {
        line?;
        say!("{}", serde_json::to_string(&series(&queue)?)?);
    }
    Ok(())
}

fn series(queue: &Queue) -> Result<Series, Failure> {
    wait_for_path(queue)?;
    let mut times = Vec::with_capacity(COUNT);
    for number in 0..COUNT {
        std::thread::sleep(PAUSE);
        times.extend(round_trip(queue, number)?);
    }
    times.sort_unstable();
    let lost = COUNT - times.len();
    let [p50_us, p99_us] = [50, 99].map(|percent| microseconds(&times, percent));
    Ok(Series { p50_us, p99_us, lost })
}

/// Waits for a first frame to return: on a busy machine a switch may not have connected all ports
/// yet, and a series of lost frames has no median.
fn wait_for_path(queue: &Queue) -> Result<(), Failure> {
    let start = Instant::now();
    while round_trip(queue, COUNT)?.is_none() {
        if start.elapsed() > PATH_LIMIT {
            return Err("no frame has returned from the guests; is the machine overloaded?".into());
        }
    }
    Ok(())
}

/// Round-trip time of a frame, or `None` if it was lost.
fn round_trip(queue: &Queue, number: usize) -> Result<Option<Duration>, Failure> {
    let prefix = queue.prefix().len();
    let frame = frame(number);
    let mut buf = vec![0; RECV_BUF_LEN];
    // Late frames, and frames of others.
    while queue.recv(&mut buf)?.is_some() {}
    let start = Instant::now();
    queue.send(&[&vec![0; prefix][..], &frame].concat())?;
    while start.elapsed() < LOST_AFTER {
        let mut fds = [PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::IN)];
        retry_on_intr(|| poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })))?;
        let arrived = start.elapsed();
        while let Some(len) = queue.recv(&mut buf)? {
            if buf[..len].get(prefix..) == Some(&frame[..]) {
                return Ok(Some(arrived));
            }
        }
    }
    Ok(None)
}

/// A 64-byte frame without its check sequence: a datagram with a number in it.
fn frame(number: usize) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    // IPv4 and UDP from 198.18.0.1 to 198.18.0.2, without a UDP checksum.
    let headers = [
        0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0xee, 0x97, 198, 18, 0, 1, 198, 18, 0, 2,
        0, 9, 0, 9, 0, 26, 0, 0,
    ];
    frame[12..42].copy_from_slice(&headers);
    frame[42..50].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The `percent`th percentile of `sorted`.
fn microseconds(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// The tap device.
pub(super) const PROBE_INTERFACE: &str = "probe0";
/// Its port at the switch.
pub(super) const PROBE_PORT: u8 = 9;
/// Limit of the time until the first frame returns.
const PATH_LIMIT: Duration = Duration::from_secs(10);
/// Round trips per series.
const COUNT: usize = 200;
/// Pause between two of them, long enough for a switch to sleep.
const PAUSE: Duration = Duration::from_millis(2);
const LOST_AFTER: Duration = Duration::from_millis(200);
const SERIES_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times: Vec<_> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(microseconds(&times, 50), 100.0);
        assert_eq!(microseconds(&times, 99), 198.0);
        assert_eq!(microseconds(&times[..1], 99), 1.0);
        assert!(microseconds(&[], 50).is_nan());
    }

    #[test]
    fn the_frame_is_a_datagram_with_a_right_header() {
        let sum: u32 =
            frame(7)[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_ne!(frame(7), frame(8));
    }
}
