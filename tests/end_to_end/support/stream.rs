//! Streams of numbered frames with known contents, all different.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use tapswitch_wire::{MacAddr, NetHeader};

use super::{Capture, Host, PATIENCE};

/// UDP datagrams from one host to another.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) from: (MacAddr, IpAddr),
    pub(crate) to: (MacAddr, IpAddr),
    /// EtherType and identifier, outermost first.
    pub(crate) tags: Vec<(u16, u16)>,
    pub(crate) ports: (u16, u16),
    /// Distinguishes the frames of this stream from all others.
    mark: [u8; 4],
}

impl Stream {
    /// IPv4, from port 1000 to port 2000.
    pub(crate) fn new(from: &Host, to: &Host) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0xe2e0_0000);
        let mark = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let [from, to] = [from, to].map(|host| (host.mac(), host.ip()));
        Self { from, to, tags: Vec::new(), ports: (1000, 2000), mark }
    }

    /// The same over IPv6.
    pub(crate) fn new6(from: &Host, to: &Host) -> Self {
        let ipv4 = Self::new(from, to);
        Self { from: (ipv4.from.0, from.ip6()), to: (ipv4.to.0, to.ip6()), ..ipv4 }
    }

    /// In an IEEE 802.1Q VLAN.
    pub(crate) fn vlan(self, id: u16) -> Self {
        Self { tags: vec![(0x8100, id)], ..self }
    }

    /// In a customer's VLAN within a provider's (IEEE 802.1ad).
    pub(crate) fn vlan_in_vlan(self, provider: u16, customer: u16) -> Self {
        Self { tags: vec![(0x88a8, provider), (0x8100, customer)], ..self }
    }

    /// The same frames without their `count` outermost tags.
    pub(crate) fn without_tags(self, count: usize) -> Self {
        Self { tags: self.tags.into_iter().skip(count).collect(), ..self }
    }

    pub(crate) fn ports(self, from: u16, to: u16) -> Self {
        Self { ports: (from, to), ..self }
    }

    /// Frame `number`, complete. Length, contents and hop limit change from one frame to the next,
    /// so that they are never joined to trains.
    pub(crate) fn frame(&self, number: u32) -> Vec<u8> {
        let filler_len = number as usize * 37 % 1400;
        let filler = (0..=250_u8).cycle().skip(number as usize % 251).take(filler_len);
        let payload: Vec<u8> =
            self.mark.into_iter().chain(number.to_be_bytes()).chain(filler).collect();
        let link = PacketBuilder::ethernet2(self.from.0.0, self.to.0.0);
        let hops = if number.is_multiple_of(2) { 64 } else { 63 };
        let ip = match (self.from.1, self.to.1) {
            (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from.octets(), to.octets(), hops),
            (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from.octets(), to.octets(), hops),
            mixed => panic!("{mixed:?}"),
        };
        let mut frame = Vec::with_capacity(1500);
        ip.udp(self.ports.0, self.ports.1).write(&mut frame, &payload).unwrap();
        let tags = self.tags.iter().flat_map(|(kind, id)| [kind.to_be_bytes(), id.to_be_bytes()]);
        frame.splice(12..12, tags.flatten());
        frame
    }

    /// Number of a frame of this stream, `None` for others. The frame must be unchanged.
    pub(crate) fn number(&self, frame: &[u8]) -> Option<u32> {
        let place = self.headers_len();
        let payload = frame.get(place..place + 8).filter(|payload| payload[..4] == self.mark)?;
        let number = u32::from_be_bytes(payload[4..].try_into().unwrap());
        assert_eq!(frame, self.frame(number), "frame {number} was changed on its way");
        Some(number)
    }

    /// Numbers of this stream's frames, in order of arrival.
    pub(crate) fn numbers(&self, frames: &[(NetHeader, Vec<u8>)]) -> Vec<u32> {
        frames.iter().filter_map(|(_, frame)| self.number(frame)).collect()
    }

    fn headers_len(&self) -> usize {
        let tags_len = self.tags.len() * 4;
        let ip_len = if self.from.1.is_ipv4() { 20 } else { 40 };
        14 + tags_len + ip_len + 8
    }
}

/// A stream that runs in the background. Each frame must arrive once, in order, unchanged. Only a
/// few are in flight at a time, so that slowness does not cause losses.
pub(crate) struct Flow {
    thread: JoinHandle<u32>,
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU32>,
    stream: Stream,
}

impl Flow {
    pub(crate) fn start(stream: &Stream, from: &Host, to: &Host) -> Self {
        Self::launch(stream, (from, to), UNDER_WAY_MAX)
    }

    /// One frame at a time, for paths through Open vSwitch. When a rule changes, its userspace
    /// datapath may find a flow for one frame of a batch and none for the next, which it then
    /// handles first; the kernel's handles frames that need no upcall before those that wait for
    /// one.
    pub(crate) fn start_singly(stream: &Stream, from: &Host, to: &Host) -> Self {
        Self::launch(stream, (from, to), 1)
    }

    fn launch(stream: &Stream, (from, to): (&Host, &Host), under_way_max: u32) -> Self {
        let (source, sink) = (Capture::open(from), Capture::open(to));
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicU32::new(0));
        let ends = Ends { stream: stream.clone(), source, sink, under_way_max };
        let (told, count) = (stop.clone(), arrived.clone());
        let thread = thread::spawn(move || ends.run(&told, &count));
        Self { thread, stop, arrived, stream: stream.clone() }
    }

    /// Frames that have arrived so far.
    pub(crate) fn arrived(&self) -> u32 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Waits until `count` more frames have arrived.
    pub(crate) fn go_on(&self, count: u32) {
        let goal = self.arrived() + count;
        super::until("the flow goes on", || self.thread.is_finished() || self.arrived() >= goal);
        assert!(!self.thread.is_finished(), "the flow {:?} has failed", self.stream);
    }

    /// Waits until at least `count` more have arrived, then stops it.
    pub(crate) fn finish_after(self, count: u32) -> u32 {
        self.go_on(count);
        self.finish()
    }

    /// Stops it. All that was sent has arrived; returns its number of frames.
    pub(crate) fn finish(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Ends {
    stream: Stream,
    source: Capture,
    sink: Capture,
    under_way_max: u32,
}

impl Ends {
    fn run(mut self, stop: &AtomicBool, arrived: &AtomicU32) -> u32 {
        let (mut sent, mut received) = (0, 0);
        let mut deadline = Instant::now() + PATIENCE;
        // A test that failed elsewhere does not stop it.
        let end = Instant::now() + PATIENCE * 4;
        while received < sent || !(stop.load(Ordering::Relaxed) || Instant::now() > end) {
            let stops = stop.load(Ordering::Relaxed) || Instant::now() > end;
            if sent - received < self.under_way_max && !stops {
                self.source.send(&self.stream.frame(sent));
                sent += 1;
                // A moderate rate: other tests need the processor too.
                thread::sleep(PAUSE);
            } else {
                self.sink.wait();
            }
            let before = received;
            while let Some((_, frame)) = self.sink.next() {
                let Some(number) = self.stream.number(&frame) else { continue };
                assert_eq!(number, received, "the next frame, of {sent} sent");
                received += 1;
            }
            arrived.store(received, Ordering::Relaxed);
            if received > before || sent == received {
                deadline = Instant::now() + PATIENCE;
            }
            assert!(Instant::now() < deadline, "frame {received} of {sent} did not arrive");
        }
        received
    }
}

/// Maximum number of frames in flight: far less than any queue holds.
const UNDER_WAY_MAX: u32 = 32;
const PAUSE: Duration = Duration::from_micros(200);
