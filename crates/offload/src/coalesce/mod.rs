//! Coalescing a batch of received packets into trains (GRO), the reverse of [`Segments`].
//!
//! A [`Coalescer`] takes the frames of one batch in the order of their arrival and makes [`Unit`]s
//! of them: trains, and frames that stay alone. A train is the first packet's frame, its headers
//! rewritten in place, and a list of where the payloads of the others lie: nothing is copied.
//! Nothing is kept from batch to batch either, so no packet ever waits for one that may not come.
//!
//! **Contract.** [`Segments`] cuts each train into the packets that it was made of, byte for byte
//! (those that came with a partial checksum come out complete). Packets of a flow stay in order;
//! flows among each other go by their first packet. Nothing panics or reads past a frame, whatever
//! bytes and metadata say. After [`Coalescer::new`] nothing allocates unless a batch is longer than
//! announced.
//!
//! # Rules
//!
//! They are those of Linux's GRO, which `tests/kernel_gro/` holds them against.
//!
//! | field | a packet joins a train when it is | Linux |
//! |---|---|---|
//! | Ethernet, tags with PCP and DEI | equal | `gro_list_prepare`, `vlan_gro_receive` |
//! | IPv4 options, fragments | absent, both | `inet_gro_receive` |
//! | lengths of IP and UDP | those of the frame, no padding | same, `udp_gro_receive_segment` |
//! | addresses, protocol | equal | same |
//! | flow label, extension headers | equal | `ipv6_gro_receive` |
//! | ports | equal | `tcp_gro_lookup`, `udp_gro_receive_segment` |
//! | ToS or traffic class | equal | `inet_gro_flush`, `ipv6_gro_flush` |
//! | TTL or hop limit | equal | same |
//! | "don't fragment" | equal | same |
//! | IPv4 identification | one more with each packet | `inet_gro_flush` |
//! | TCP sequence number | the next one | `tcp_gro_receive` |
//! | TCP acknowledgement, window, options | equal | same |
//! | TCP flags | equal, but for FIN, PSH | same |
//! | CWR | equal, a bit of a counter (RFC 9768) | same, in 7.3 |
//! | PSH, FIN | set on the last packet, which ends the train | same |
//! | URG, SYN, RST | never set | same |
//! | payload | as long as the first one, a shorter one ends the train | same |
//! | UDP checksum | there | `udp_gro_receive_segment` |
//! | checksums | right by our own sum, or vouched for | `skb_gro_checksum_validate` |
//! | train | of at most 65,535 bytes without Ethernet | `skb_gro_receive` |
//! | UDP train | of at most 64 packets | `UDP_GRO_CNT_MAX` |
//! | received train | TCP with the same packet size, no ECN bit | `tcp_gro_receive` |
//!
//! Where this differs from Linux on purpose:
//!
//! | Linux | here | why |
//! |---|---|---|
//! | a fixed identification makes a train, too | stays alone | cutting would count on |
//! | the urgent pointer is ignored | it is equal | it would be lost |
//! | a partial checksum is taken as right | it is looked at | cutting would repair a wrong one |
//! | a checksum of `0xffff` may be right (not UDP) | stays alone | cutting writes zero |
//! | a source route makes a train, too | stays alone before its end | sums are the end's |
//! | what cannot be judged overtakes its flow's train | ends it | order |
//! | 8 flows in each of 8 buckets | as many as the batch has packets | the batch bounds them |
//! | UDP for those that ask (`rx-udp-gro-forwarding`) | always | a switch forwards |
//! | nothing is seen behind tags of type 0x9100 | all is | they are tags here |
//! | trains from user space are passed by | they go on | the metadata is checked here |
//! | CWR on the first packet only makes a train, in 6.18 | it stays alone | see CWR above |
//! | TCP trains of any number of packets | of at most 4096 | `NetHeader::PACKETS_MAX` |
//! | headers of any length | of at most 256 bytes | bounded |
//! | headers of any shapes | 12 shapes; one more ends all trains | bounded |
//!
//! What cannot be judged: a bad checksum or, over UDP, none; a fragment; IPv4 options; an IPv6
//! routing header with segments left; UDP with padding or nothing in it.
//!
//! # Tunnels
//!
//! A Coalescer [that is told to](Coalescer::with_tunnels) looks into one tunnel: VXLAN and Geneve
//! on the ports that they are known by, GRE and NVGRE, IP in IP. The rules above hold for what is
//! inside; around it these:
//!
//! | field | a packet joins a train when it is | Linux |
//! |---|---|---|
//! | outer IP header | as the inner one is | `gro_receive_network_flush` |
//! | outer ports | equal | `udp_gro_receive` |
//! | outer UDP checksum | in all packets, and right, or in none | same |
//! | VXLAN | equal | `vxlan_gro_prepare_receive` |
//! | Geneve with its options | equal | `geneve_gro_receive` |
//! | GRE | without sequence numbers; flags, protocol and key equal | `gre_gro_receive` |
//! | GRE checksum | right | same |
//! | inner Ethernet, tags | equal | `eth_gro_receive` |
//!
//! Where this differs from Linux on purpose:
//!
//! | Linux | here | why |
//! |---|---|---|
//! | needs a device or socket of the tunnel | the port tells | a switch forwards |
//! | a fixed outer identification makes a train, too | stays alone | cutting would count on |
//! | a partial outer checksum is taken as right | stays alone | metadata has one place for one |
//! | who vouches may mean the checksum inside | it is summed | metadata has no level |
//! | takes the checksum of GRE for the key, if there are both | takes the key | it is |
//!
//! The outer headers of packets of equal length differ in identification and IPv4 checksum alone:
//! a right checksum inside makes all that is carried sum up to the same. So they are foretold and
//! compared as the inner ones are, and neither is summed.
//!
//! Read RFC 9293 §3.1, RFC 768, RFC 6864 (identification), RFC 3168 §6.1.2 and RFC 9768 §3.2.2
//! (CWR) first.
//!
//! Deliberately absent: tunnels in tunnels, received trains in tunnels.
//!
//! [`Segments`]: crate::Segments

mod around;
mod flow;
mod headers;
mod run;
mod template;

use std::ops::Range;

use headers::{Found, Headers};
use run::Run;
use tapswitch_wire::{FlowKey, LongNetHeader, NetHeader, ip_proto};
use template::Template;

use crate::encapsulation;
use crate::layers::Outer;

/// The tunnels inside of which packets become trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// None: what is around a packet is its flow.
    #[default]
    None,
    /// VXLAN and Geneve: their trains can be described by a network header of 24 bytes
    /// ([`Unit::long_meta`]).
    Udp,
    /// GRE, NVGRE and IP in IP, too. No network header has words for these trains: nobody but
    /// [`Segments`](crate::Segments) understands them.
    All,
}

impl Tunnels {
    /// True for a packet with the outer headers `key` that may be in one of these.
    #[inline]
    fn may_include(self, key: &FlowKey) -> bool {
        self != Self::None && self.include(key)
    }

    fn include(self, key: &FlowKey) -> bool {
        match key.ip_proto {
            ip_proto::UDP => encapsulation::is_known_port(u16::from_be_bytes(key.l4_dst)),
            protocol => self == Self::All && encapsulation::is_alone(protocol),
        }
    }
}

/// A frame of a batch: its metadata, and its bytes `start..end` in the batch's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// What the device says of it.
    pub meta: NetHeader,
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
}

/// A train, or a frame that stays alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Index in the batch of its first frame, whose bytes come first.
    pub first: usize,
    /// Its metadata; the frame's own when it stays alone.
    pub meta: NetHeader,
    /// Where the outer UDP header of a train in a UDP tunnel starts, else zero.
    pub outer_transport: u16,
    /// Where the inner IP header of a train in a UDP tunnel starts, else zero.
    pub inner_network: u16,
    /// Payloads that follow the first frame, as ranges of the batch's buffer, in order. All lie
    /// behind that frame when the batch lies in order. Empty when it stays alone.
    pub parts: &'a [Range<usize>],
}

impl Unit<'_> {
    /// Number of frames of the batch that it is made of.
    #[inline]
    pub fn frames(&self) -> usize {
        1 + self.parts.len()
    }

    /// Its metadata as a network header of 24 bytes has it.
    pub fn long_meta(&self) -> LongNetHeader {
        LongNetHeader {
            outer_transport: self.outer_transport,
            inner_network: self.inner_network,
            ..self.meta.into()
        }
    }
}

/// Makes trains of batches. See the [module](self).
#[derive(Debug)]
pub struct Coalescer {
    /// In the order of their first frames.
    runs: Vec<Run>,
    /// For each frame of the batch, the next one of its run.
    next: Vec<u32>,
    /// Payloads behind the first frames, those of a run together.
    parts: Vec<Range<usize>>,
    /// By hash of the flow, the youngest run; they are chained by age.
    buckets: [u32; BUCKETS],
    /// The run that the last frame went to.
    last: u32,
    /// The run that is tried first for the next frame.
    expected: u32,
    /// What is compared, one for each shape that headers had lately.
    templates: Vec<Template>,
    tunnels: Tunnels,
}

impl Coalescer {
    /// One for batches of at most `frames` frames; a longer one makes it grow. It does not look
    /// into tunnels.
    pub fn new(frames: usize) -> Self {
        Self::with_tunnels(frames, Tunnels::None)
    }

    /// As [`new`](Self::new), for one that looks into `tunnels`.
    pub fn with_tunnels(frames: usize, tunnels: Tunnels) -> Self {
        Self {
            runs: Vec::with_capacity(frames),
            next: Vec::with_capacity(frames),
            parts: Vec::with_capacity(frames),
            buckets: [NONE; BUCKETS],
            last: NONE,
            expected: NONE,
            templates: Vec::with_capacity(SHAPES_MAX),
            tunnels,
        }
    }

    /// Makes units of `batch`, frames that lie in `buf` without overlapping. Of a train, the
    /// headers in its first frame are rewritten; all other bytes stay as they are.
    ///
    /// A frame that does not lie within `buf` stays alone. What of frames that overlap becomes is
    /// not said, but for that nothing panics.
    pub fn coalesce<'a>(
        &'a mut self,
        buf: &mut [u8],
        batch: &[Place],
    ) -> impl ExactSizeIterator<Item = Unit<'a>> + use<'a> {
        // 1. The packet continues the expected run with a segment of the same length: one masked
        //    comparison with the predicted headers, made from those of the run's first packet. A
        //    shorter or slightly different one is compared field by field.
        // 2. It continues another run: found by a hash of addresses and ports.
        // 3. Its headers have another layout, or it starts a run: they are parsed.
        //
        // Checksums are verified only if the packet fits a run otherwise. Unless its metadata marks
        // it as valid, that costs one more pass over the payload.
        self.runs.clear();
        self.next.clear();
        self.next.resize(batch.len(), NONE);
        self.parts.clear();
        self.forget();
        for (place, index) in batch.iter().zip(0..) {
            match buf.get(place.start..place.end) {
                Some(_) => self.take(buf, place, index),
                None => self.runs.push(Run::alone(place.meta, index)),
            }
        }
        self.gather(buf, batch);
        let (runs, parts) = (&self.runs, &self.parts);
        runs.iter().map(|run| run.unit(parts))
    }

    /// Lets no run go on.
    fn forget(&mut self) {
        self.buckets = [NONE; BUCKETS];
        (self.last, self.expected) = (NONE, NONE);
    }

    /// Puts the frame at `index` of the batch into its run, or a new one.
    #[inline]
    fn take(&mut self, buf: &mut [u8], place: &Place, index: u32) {
        if self.append(self.expected, buf, place, index) {
            return;
        }
        let bucket = self.foretell_bucket(&buf[place.start..place.end]);
        let mut at = bucket.map_or(NONE, |bucket| self.buckets[bucket]);
        while let Some(run) = self.runs.get(at as usize) {
            let older = run.older;
            if self.append(at, buf, place, index) {
                return;
            }
            at = older;
        }
        self.parse(bucket, buf, place, index);
    }

    /// Records that the frame joined the run at `at`, and predicts the next one: the run whose
    /// frame followed this run's previous frame. That is right if the frames of all flows
    /// alternate, or if there is only one flow.
    #[inline]
    fn follow(&mut self, at: u32) {
        if let Some(run) = self.runs.get_mut(self.last as usize) {
            run.follower = at;
        }
        self.last = at;
        self.expected = self.runs.get(at as usize).map_or(at, |run| run.follower);
    }

    /// The bucket of a frame whose headers have the shape that the last one's had.
    #[inline]
    fn foretell_bucket(&self, frame: &[u8]) -> Option<usize> {
        let headers = self.runs.get(self.last as usize)?.headers;
        (frame.len() >= usize::from(headers.end)).then(|| bucket(&headers, frame))
    }

    /// Adds the frame at `index` to the run at `at`, if it is fit for it.
    #[inline]
    fn append(&mut self, at: u32, buf: &mut [u8], place: &Place, index: u32) -> bool {
        let Some(run) = self.runs.get_mut(at as usize) else {
            return false;
        };
        let Some(template) = self.templates.get(run.template) else {
            return false;
        };
        let frame = &buf[place.start..place.end];
        if !run.join(template, buf, &place.meta, frame) {
            return false;
        }
        run.foretell(buf);
        self.next[run.tail as usize] = index;
        run.tail = index;
        if at != self.last || at != self.expected {
            self.follow(at);
        }
        true
    }

    /// For a frame that continues no run of the bucket `tried`.
    fn parse(&mut self, tried: Option<usize>, buf: &mut [u8], place: &Place, index: u32) {
        let frame = &buf[place.start..place.end];
        let (headers, outer) = match Headers::find(frame, self.tunnels) {
            Found::Flow(headers, outer) => (headers, outer),
            Found::Unclear => {
                self.forget();
                return self.runs.push(Run::alone(place.meta, index));
            }
            Found::Foreign => return self.runs.push(Run::alone(place.meta, index)),
        };
        let template = self.template_of(headers, outer);
        let bucket = bucket(&headers, frame);
        let mut at = self.buckets[bucket];
        while let Some(run) = self.runs.get(at as usize) {
            let older = run.older;
            if run.has(&self.templates, buf, &buf[place.start..place.end]) {
                if tried != Some(bucket) && self.append(at, buf, place, index) {
                    return;
                }
                self.runs[at as usize].end();
                break;
            }
            at = older;
        }
        let at = to_u32(self.runs.len());
        self.follow(at);
        let older = std::mem::replace(&mut self.buckets[bucket], at);
        let frame = &buf[place.start..place.end];
        let mut run = Run::new(place, frame, headers, outer, index);
        (run.template, run.older, run.follower) = (template, older, at);
        self.runs.push(run);
    }

    /// Index of the template of `headers` with `outer` around them. Where there are too many, all
    /// are forgotten, and with them all runs.
    fn template_of(&mut self, headers: Headers, outer: Option<Outer>) -> usize {
        let is_own = |known: &Template| known.headers == headers && known.outer == outer;
        if let Some(index) = self.templates.iter().position(is_own) {
            return index;
        }
        if self.templates.len() == SHAPES_MAX {
            self.templates.clear();
            self.forget();
        }
        self.templates.push(Template::new(headers, outer));
        self.templates.len() - 1
    }

    /// Writes the trains' headers and lists their payloads.
    fn gather(&mut self, buf: &mut [u8], batch: &[Place]) {
        for run in &mut self.runs {
            run.parts = self.parts.len()..self.parts.len();
            let mut at = self.next[run.first as usize];
            if at == NONE {
                continue;
            }
            while let Some(place) = batch.get(at as usize) {
                self.parts.push(place.start + run.headers_len()..place.end);
                at = self.next[at as usize];
            }
            run.parts.end = self.parts.len();
            run.finish(buf);
        }
    }
}

/// The bucket of a frame that has these headers.
#[inline]
fn bucket(headers: &Headers, frame: &[u8]) -> usize {
    headers.hash(frame) as usize % BUCKETS
}

/// Narrows an index of a batch; what no batch has becomes [`NONE`].
#[inline]
fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

/// No run, no frame.
const NONE: u32 = u32::MAX;
/// Chains of runs; more than a batch has flows as a rule.
const BUCKETS: usize = 64;
/// Shapes of headers that are told apart at a time: IPv4 and IPv6, TCP with timestamps, TCP without
/// and UDP, on two depths of tags or in two kinds of tunnels.
const SHAPES_MAX: usize = 12;
