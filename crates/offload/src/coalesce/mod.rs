//! Coalescing of a batch of received packets into trains (GRO), the reverse of [`Segments`].
//!
//! A [`Coalescer`] takes the frames of one batch in the order of arrival, and returns [`Unit`]s:
//! trains and single frames. A train consists of the first packet's frame with its headers
//! rewritten in place, and a list of the positions of the other payloads; nothing is copied. No
//! state is kept between batches, so no packet waits for later ones.
//!
//! **Contract.** [`Segments`] splits each train into the packets that it was made of, byte for
//! byte, except that partial checksums become complete. The order of packets within a flow is kept;
//! flows are ordered by their first packets. Nothing panics or reads beyond a frame, whatever its
//! bytes and metadata. After [`Coalescer::new`] nothing is allocated unless a batch exceeds the
//! announced length.
//!
//! # Rules
//!
//! They are those of Linux's GRO; `tests/kernel_gro/` compares the two.
//!
//! | field | a packet joins a train if it is | Linux |
//! |---|---|---|
//! | Ethernet, tags with PCP and DEI | equal | `gro_list_prepare`, `vlan_gro_receive` |
//! | IPv4 options, fragments | both absent | `inet_gro_receive` |
//! | lengths of IP and UDP | those of the frame, no padding | same, `udp_gro_receive_segment` |
//! | addresses, protocol | equal | same |
//! | flow label, extension headers | equal | `ipv6_gro_receive` |
//! | ports | equal | `tcp_gro_lookup`, `udp_gro_receive_segment` |
//! | ToS or traffic class | equal | `inet_gro_flush`, `ipv6_gro_flush` |
//! | TTL or hop limit | equal | same |
//! | "don't fragment" | equal | same |
//! | IPv4 identification | incremented by 1 per packet | `inet_gro_flush` |
//! | TCP sequence number | the next one | `tcp_gro_receive` |
//! | TCP acknowledgement, window, options | equal | same |
//! | TCP flags | equal, except FIN and PSH | same |
//! | CWR | equal, a bit of a counter (RFC 9768) | same, in 7.3 |
//! | PSH, FIN | set on the last packet, which ends the train | same |
//! | URG, SYN, RST | never set | same |
//! | payload | as long as the first; a shorter one ends the train | same |
//! | UDP checksum | present | `udp_gro_receive_segment` |
//! | checksums | verified here or by metadata | `skb_gro_checksum_validate` |
//! | train | at most 65,535 bytes without Ethernet | `skb_gro_receive` |
//! | UDP train | at most 64 packets | `UDP_GRO_CNT_MAX` |
//! | received train | TCP with the same packet size, no ECN bit | `tcp_gro_receive` |
//!
//! Intended differences from Linux:
//!
//! | Linux | here | reason |
//! |---|---|---|
//! | a fixed identification forms a train, too | not joined | segmentation would increment it |
//! | the urgent pointer is ignored | must be equal | it would be lost |
//! | a partial checksum counts as valid | verified | segmentation would repair a wrong one |
//! | a checksum of `0xffff` may be valid (not UDP) | not joined | segmentation writes zero |
//! | a source route forms a train, too | not joined before its end | checksums are the end's |
//! | a packet of unknown validity overtakes its flow's train | ends it | order |
//! | 8 flows in each of 8 buckets | as many as packets in the batch | the batch bounds them |
//! | UDP on request (`rx-udp-gro-forwarding`) | always | a switch forwards |
//! | tags of type 0x9100 are not parsed | parsed | they are tags here |
//! | trains from user space are not joined | joined | the metadata is checked here |
//! | CWR on the first packet only forms a train, in 6.18 | not joined | see CWR above |
//! | TCP trains of any number of packets | at most 4096 | `NetHeader::PACKETS_MAX` |
//! | headers of any length | at most 256 bytes | bounded |
//! | headers of any layout | 12 layouts; one more ends all trains | bounded |
//!
//! Of unknown validity are: a bad checksum or, over UDP, none; a fragment; IPv4 options; an IPv6
//! routing header with segments left; UDP with padding or without payload.
//!
//! # Tunnels
//!
//! [On request](Coalescer::with_tunnels), packets inside one tunnel are joined: VXLAN and Geneve on
//! their known ports, GRE and NVGRE, IP in IP. The rules above apply to the inner headers; these
//! apply to the outer ones:
//!
//! | field | a packet joins a train if it is | Linux |
//! |---|---|---|
//! | outer IP header | as the inner one | `gro_receive_network_flush` |
//! | outer ports | equal | `udp_gro_receive` |
//! | outer UDP checksum | in all packets and valid, or in none | same |
//! | VXLAN | equal | `vxlan_gro_prepare_receive` |
//! | Geneve with its options | equal | `geneve_gro_receive` |
//! | GRE | without sequence numbers; flags, protocol and key equal | `gre_gro_receive` |
//! | GRE checksum | valid | same |
//! | inner Ethernet, tags | equal | `eth_gro_receive` |
//!
//! Intended differences from Linux:
//!
//! | Linux | here | reason |
//! |---|---|---|
//! | needs a device or socket of the tunnel | identified by the port | a switch forwards |
//! | a fixed outer identification forms a train, too | not joined | segmentation would increment it
//! |
//! | a partial outer checksum counts as valid | not joined | metadata describes one checksum |
//! | `DATA_VALID` may mean the inner checksum | the inner one is summed | metadata has no level |
//! | GRE with checksum and key: compares the checksum as key | compares the key | correct |
//!
//! The outer headers of packets of equal length differ only in identification and IPv4 checksum:
//! with a valid inner checksum, the sum of the tunnel's payload is constant. So they are predicted
//! and compared like the inner ones, and not summed.
//!
//! Read RFC 9293 §3.1, RFC 768, RFC 6864 (identification), RFC 3168 §6.1.2 and RFC 9768 §3.2.2
//! (CWR) first.
//!
//! Out of scope: nested tunnels, received trains in tunnels.
//!
//! [`Segments`]: crate::Segments

mod around;
mod flow;
mod headers;
mod next;
mod run;
mod template;

use std::ops::Range;

use headers::{Found, Headers};
use next::Nexts;
use run::Run;
use tapswitch_wire::{FlowKey, LongNetHeader, NetHeader, ip_proto};
use template::Template;

use crate::encapsulation;
use crate::layers::Outer;

/// Tunnels inside which packets are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// None: the outer headers define the flow.
    #[default]
    None,
    /// VXLAN and Geneve: a network header of 24 bytes describes their trains ([`Unit::long_meta`]).
    Udp,
    /// Also GRE, NVGRE and IP in IP. No network header describes these trains: only
    /// [`Segments`](crate::Segments) can split them.
    All,
}

impl Tunnels {
    /// Whether a packet with the outer headers `key` may be in one of these.
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
    /// Metadata from the device.
    pub meta: NetHeader,
    /// Start.
    pub start: usize,
    /// End.
    pub end: usize,
}

/// A train, or a single frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Index in the batch of its first frame, whose bytes come first.
    pub first: usize,
    /// Its metadata; for a single frame that of the frame.
    pub meta: NetHeader,
    /// Offset of the outer UDP header of a train in a UDP tunnel, otherwise 0.
    pub outer_transport: u16,
    /// Offset of the inner IP header of a train in a UDP tunnel, otherwise 0.
    pub inner_network: u16,
    /// Payloads that follow the first frame, in order, as ranges of the batch's buffer. All follow
    /// that frame in the buffer if the batch is in order there. Empty for a single frame.
    pub parts: &'a [Range<usize>],
}

impl Unit<'_> {
    /// Number of frames of the batch in it.
    #[inline]
    pub fn frames(&self) -> usize {
        1 + self.parts.len()
    }

    /// Its metadata as a network header of 24 bytes.
    pub fn long_meta(&self) -> LongNetHeader {
        LongNetHeader {
            outer_transport: self.outer_transport,
            inner_network: self.inner_network,
            ..self.meta.into()
        }
    }
}

/// Joins the packets of a batch into trains. See the [module](self).
#[derive(Debug)]
pub struct Coalescer {
    /// In the order of their first frames.
    runs: Vec<Run>,
    /// Predictions for the next packets of runs.
    nexts: Nexts,
    /// For each frame of the batch, the next one of its run.
    next: Vec<u32>,
    /// Payloads after the first frames, grouped by run.
    parts: Vec<Range<usize>>,
    /// Youngest run by hash of the flow; older ones are linked from it.
    buckets: [u32; BUCKETS],
    /// Run of the last frame.
    last: u32,
    /// The run that is tried first for the next frame.
    expected: u32,
    /// Comparison masks, one for each recent layout of headers.
    templates: Vec<Template>,
    tunnels: Tunnels,
}

impl Coalescer {
    /// Creates one for batches of at most `frames` frames; a longer batch makes it grow. It does
    /// not join inside tunnels.
    pub fn new(frames: usize) -> Self {
        Self::with_tunnels(frames, Tunnels::None)
    }

    /// As [`new`](Self::new), but joins inside `tunnels`.
    pub fn with_tunnels(frames: usize, tunnels: Tunnels) -> Self {
        Self {
            runs: Vec::with_capacity(frames),
            nexts: Nexts::new(frames / 2),
            next: Vec::with_capacity(frames),
            parts: Vec::with_capacity(frames),
            buckets: [NONE; BUCKETS],
            last: NONE,
            expected: NONE,
            templates: Vec::with_capacity(SHAPES_MAX),
            tunnels,
        }
    }

    /// Joins the frames of `batch`, which do not overlap in `buf`. The headers of each train's
    /// first frame are rewritten; all other bytes are unchanged.
    ///
    /// A frame that is not within `buf` is not joined. The result for overlapping frames is
    /// unspecified, but nothing panics.
    pub fn coalesce<'a>(
        &'a mut self,
        buf: &mut [u8],
        batch: &[Place],
    ) -> impl ExactSizeIterator<Item = Unit<'a>> + use<'a> {
        // 1. The packet continues the expected run with a segment of the same length: its numbers
        //    are the predicted ones, and one masked comparison finds the rest of its headers equal
        //    to those of the run's first packet. While there is one flow, in a loop of its own.
        // 2. It continues another run, found by a hash of addresses and ports, in the same way, or
        //    field by field if it is the second packet, shorter or slightly different.
        // 3. It starts a run: one masked comparison if the last frame had the same layout,
        //    otherwise it is parsed.
        //
        // Checksums are verified only if the packet fits a run otherwise. Unless its metadata marks
        // it as valid, that costs one more pass over the payload.
        self.runs.clear();
        self.nexts.clear();
        self.next.clear();
        self.next.resize(batch.len(), NONE);
        self.parts.clear();
        self.forget();
        let mut index = 0;
        while let Some(rest @ [place, ..]) = batch.get(index..) {
            let joined = self.extend(buf, rest, to_u32(index));
            if joined == 0 {
                self.take(buf, place, to_u32(index));
            }
            index += joined.max(1);
        }
        self.gather(buf, batch);
        let (runs, parts) = (&self.runs, &self.parts);
        runs.iter().map(|run| run.unit(parts))
    }

    /// Ends all runs.
    fn forget(&mut self) {
        self.buckets = [NONE; BUCKETS];
        (self.last, self.expected) = (NONE, NONE);
    }

    /// Adds the frames of `batch`, from `index` on, to the expected run while it predicts each of
    /// them. Returns their number.
    #[inline(never)]
    fn extend(&mut self, buf: &[u8], batch: &[Place], index: u32) -> usize {
        let at = self.expected;
        let Some(run) = self.runs.get_mut(at as usize) else {
            return 0;
        };
        let Some(next) = self.nexts.get_mut(run.next) else {
            return 0;
        };
        let is_alone = at == self.last && at == run.follower;
        let max = if is_alone { batch.len() } else { 1 };
        let mut joined = 0;
        while let Some(place) = batch.get(joined)
            && joined < max
            && let Some(frame) = buf.get(place.start..place.end)
            && run.join_next(next, &place.meta, frame)
        {
            let index = index.wrapping_add(to_u32(joined));
            self.next[run.tail as usize] = index;
            run.tail = index;
            joined += 1;
        }
        if joined > 0 && !is_alone {
            self.follow(at);
        }
        joined
    }

    /// Adds the frame at `index` of the batch to its run, or to a new one.
    #[inline(never)]
    fn take(&mut self, buf: &mut [u8], place: &Place, index: u32) {
        if buf.get(place.start..place.end).is_none() {
            return self.runs.push(Run::alone(place, index));
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

    /// Bucket of a frame, if its headers have the same layout as the last frame's.
    #[inline]
    fn foretell_bucket(&self, frame: &[u8]) -> Option<usize> {
        let headers = self.runs.get(self.last as usize)?.headers;
        (frame.len() >= usize::from(headers.end)).then(|| bucket(&headers, frame))
    }

    /// Adds the frame at `index` to the run at `at`, if it fits.
    fn append(&mut self, at: u32, buf: &[u8], place: &Place, index: u32) -> bool {
        let Some(run) = self.runs.get_mut(at as usize) else {
            return false;
        };
        let Some(template) = self.templates.get(run.template) else {
            return false;
        };
        if !run.join(&mut self.nexts, template, buf, &place.meta, &buf[place.start..place.end]) {
            return false;
        }
        self.next[run.tail as usize] = index;
        run.tail = index;
        if at != self.last || at != self.expected {
            self.follow(at);
        }
        true
    }

    /// Handles a frame that continues no run of the bucket `tried`.
    fn parse(&mut self, tried: Option<usize>, buf: &mut [u8], place: &Place, index: u32) {
        let frame = &buf[place.start..place.end];
        let template = match self.shape_of(frame) {
            Some(template) => template,
            None => match Headers::find(frame, self.tunnels) {
                Found::Flow(headers, outer) => self.template_of(headers, outer, frame),
                Found::Unclear => {
                    self.forget();
                    return self.runs.push(Run::alone(place, index));
                }
                Found::Foreign => return self.runs.push(Run::alone(place, index)),
            },
        };
        let bucket = bucket(&self.templates[template].headers, frame);
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
        let mut run = Run::alone(place, index);
        (run.older, run.follower) = (older, at);
        self.runs.push(run);
        if let Some(run) = self.runs.last_mut() {
            run.start(&buf[place.start..place.end], &self.templates[template], template);
        }
    }

    /// Index of the template of the last frame, if `frame` has headers of the same layout. That
    /// saves parsing it.
    #[inline]
    fn shape_of(&self, frame: &[u8]) -> Option<usize> {
        let index = self.runs.get(self.last as usize)?.template;
        let template = self.templates.get(index)?;
        let is_inside = || self.tunnels != Tunnels::None && template.headers.is_of_tunnel(frame);
        (template.is_shape_of(frame) && !is_inside()).then_some(index)
    }

    /// Index of the template for `headers` and `outer`. If there are too many, all are dropped and
    /// all runs end.
    fn template_of(&mut self, headers: Headers, outer: Option<Outer>, frame: &[u8]) -> usize {
        let is_own = |known: &Template| known.headers == headers && known.outer == outer;
        if let Some(index) = self.templates.iter().position(is_own) {
            return index;
        }
        if self.templates.len() == SHAPES_MAX {
            self.templates.clear();
            self.forget();
        }
        self.templates.push(Template::new(headers, outer, frame));
        self.templates.len() - 1
    }

    /// Writes the trains' headers, and lists their payloads.
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

/// Bucket of a frame with these headers.
#[inline]
fn bucket(headers: &Headers, frame: &[u8]) -> usize {
    headers.hash(frame) as usize % BUCKETS
}

/// Narrows an index of a batch; too large ones become [`NONE`].
#[inline]
fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

/// No run or frame.
const NONE: u32 = u32::MAX;
/// Number of hash buckets; usually more than the flows of a batch.
const BUCKETS: usize = 64;
/// Maximum number of header layouts at a time: IPv4 and IPv6, TCP with and without timestamps and
/// UDP, at two depths of tags or in two kinds of tunnels.
const SHAPES_MAX: usize = 12;
