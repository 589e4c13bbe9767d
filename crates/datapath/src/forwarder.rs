//! Processes frames for one worker: parse, look up, execute.
//!
//! The paths of a frame and their cost, cheapest first:
//!
//! 1. A glance at the headers finds the program of a known flow (`glance`); nothing is parsed.
//!    Nearly all frames.
//! 2. The flow is in the exact cache: parse, one hash and one comparison, then its program. Frames
//!    other than TCP or UDP over plain IPv4 or IPv6.
//! 3. A masked key covers it: one hash per mask in use. The first frame of each new flow.
//! 4. A walk through the tables (`compile`): the first frame of each kind, after each rule change.
//!
//! Paths 1 and 2 allocate nothing, and nothing here locks, logs or makes a system call; [`Egress`]
//! does.
//!
//! Programs tally their frames, and [`Forwarder::end_burst`] adds the tallies to the shared
//! counters. Drops count at once. See `docs/adr/0009-counting-per-burst.md`.
//!
//! From [`Forwarder::handle`] to [`Egress::transmit`] everything that a plain program passes
//! through is inlined into the caller, so that no function returns between two system calls. That
//! is worth a fifth of the packet rate: `docs/adr/0008-one-function-from-read-to-write.md`.

mod run;

use std::rc::Rc;
use std::sync::Arc;

use tapswitch_openflow::{Action, ErrorKind, PortNo};
use tapswitch_wire::{FlowKey, Layout, NetHeader, parse, parse_into};

use self::run::Run;
use crate::cache::FlowCache;
use crate::compile::{compile, compile_actions};
use crate::counters::{Millis, WorkerIndex};
use crate::glance::{Glance, IPV4_WORDS, IPV6_WORDS, Recent};
use crate::hash::hash_words;
use crate::learning::MacTable;
use crate::outlet::Outlets;
use crate::pipeline::Snapshot;
use crate::program::Program;
use crate::traffic::Traffic;
use crate::vlan::{self, PortMode};
use crate::{DropReason, Egress, Frame, Parts, validate};

/// What a worker uses for a whole burst of frames.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Tables, groups and ports.
    pub snapshot: &'a Snapshot,
    /// Learned stations.
    pub macs: &'a MacTable,
    /// Current time.
    pub now: Millis,
}

/// A received frame, as a port hands it over.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Ingress port.
    pub in_port: PortNo,
    /// Its offload metadata.
    pub meta: NetHeader,
    /// Headroom, then the frame: at least all of its headers.
    pub buf: &'a mut [u8],
    /// Where the frame starts in `buf`.
    pub start: usize,
    /// Bytes behind `buf` that only the ports can reach.
    pub beyond_len: usize,
}

/// How programs were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// By exact key, or at a glance.
    pub exact_hits: u64,
    /// By masked key.
    pub masked_hits: u64,
    /// By a walk through the tables.
    pub walks: u64,
    /// Programs in the cache by masked key, void ones included.
    pub masked_count: usize,
    /// Ends of packets of the controller: see [`PortCounters::ends`](crate::PortCounters::ends).
    pub injected: u64,
}

/// One worker's cache and scratch memory.
#[derive(Debug)]
pub struct Forwarder {
    worker: WorkerIndex,
    recent: Recent<IPV4_WORDS>,
    recent_ipv6: Recent<IPV6_WORDS>,
    cache: FlowCache,
    stats: CacheStats,
    scratch: Vec<Vec<u8>>,
    /// Programs with non-empty tallies. The cache may have evicted them since.
    used: Vec<Rc<Program>>,
    outlets: Rc<Outlets>,
}

impl Forwarder {
    /// A forwarder that counts as `worker`.
    pub fn new(worker: WorkerIndex) -> Self {
        Self {
            worker,
            recent: Recent::new(),
            recent_ipv6: Recent::new(),
            cache: FlowCache::new(),
            stats: CacheStats::default(),
            scratch: Vec::new(),
            used: Vec::new(),
            outlets: Rc::new(Outlets::new(&Arc::default())),
        }
    }

    /// Converts a frame from a port with a mode to the inner form, for [`Self::handle`]. `None` if
    /// the port does not accept it: then it is already counted as dropped. Ports without a mode
    /// need not call this.
    pub fn admit<'a>(
        &self,
        view: View<'_>,
        mode: &PortMode,
        arrival: Arrival<'a>,
        more: Option<&Parts<'_>>,
    ) -> Option<Arrival<'a>> {
        let Arrival { in_port, meta, buf, start, beyond_len } = arrival;
        let len = buf.len() - start + beyond_len + more.map_or(0, Parts::len);
        match vlan::admit(mode, buf, start, len, meta) {
            Ok((start, meta)) => Some(Arrival { in_port, meta, buf, start, beyond_len }),
            Err(reason) => {
                self.refuse(view, in_port, len, meta, more, reason);
                None
            }
        }
    }

    /// Processes one frame in the inner form: forwards, copies or drops it. Its counts are visible
    /// to others after [`Self::end_burst`].
    #[expect(clippy::inline_always, reason = "as for the steps")]
    #[inline(always)]
    pub fn handle(&mut self, view: View<'_>, arrival: Arrival<'_>, egress: &mut impl Egress) {
        self.handle_with(view, arrival, None, egress);
    }

    /// As [`Self::handle`], but not inlined. For a coalesced train, the arrival is the first
    /// packet, and `more` are the payloads of the others.
    #[inline(never)]
    pub fn handle_coalesced(
        &mut self,
        view: View<'_>,
        arrival: Arrival<'_>,
        more: Option<&Parts<'_>>,
        egress: &mut impl Egress,
    ) {
        self.handle_with(view, arrival, more, egress);
    }

    #[expect(clippy::inline_always, reason = "as for the steps")]
    #[inline(always)]
    fn handle_with(
        &mut self,
        view: View<'_>,
        arrival: Arrival<'_>,
        more: Option<&Parts<'_>>,
        egress: &mut impl Egress,
    ) {
        let Arrival { in_port, meta, buf, start, beyond_len } = arrival;
        let len = buf.len() - start + beyond_len + more.map_or(0, Parts::len);
        let glance = Glance::of(&buf[start..], in_port);
        let epoch = view.snapshot.epoch;
        let known = glance.as_ref().and_then(|glance| self.recent.find(glance, epoch));
        let found;
        let (layout, program, flow_hash) = match (known, &glance) {
            (Some(program), Some(glance)) => {
                self.stats.exact_hits += 1;
                (glance.layout, program, 0)
            }
            _ => {
                let Some(flow) = self.look_up(view.snapshot, in_port, meta, buf, start) else {
                    let reason = DropReason::Truncated;
                    return self.refuse(view, in_port, len, meta, more, reason);
                };
                found = flow.program;
                (flow.layout, &found, flow.hash)
            }
        };
        if meta.check(len).is_err() || !layout.admits_checksum(&meta) {
            return self.refuse(view, in_port, len, meta, more, DropReason::BadMetadata);
        }
        let mut frame = Frame::new(meta, layout, buf, start, beyond_len).with_more(more);
        if program.run.is_empty() {
            self.used.push(program.clone());
        }
        let packets = frame.wire_packets();
        program.run.add(len, packets);
        let arrival = program.arrival.as_ref();
        let mut run = Run::new(self.worker, &view, in_port, &mut self.scratch, egress);
        (run.arrival, run.flow_hash, run.packets) = (arrival, flow_hash, packets);
        run.ops(&program.ops, &mut frame);
        let ends = run.finish();
        program.ends.set(program.ends.get() + u64::from(ends));
    }

    /// Paths 2 to 4. `None` if the frame ends in its Ethernet header.
    #[inline(never)]
    fn look_up(
        &mut self,
        snapshot: &Snapshot,
        in_port: PortNo,
        meta: NetHeader,
        buf: &mut [u8],
        start: usize,
    ) -> Option<Flow> {
        let epoch = snapshot.epoch;
        let glance = Glance::of_ipv6(&buf[start..], in_port);
        if let Some(glance) = &glance
            && let Some(program) = self.recent_ipv6.find(glance, epoch)
        {
            self.stats.exact_hits += 1;
            return Some(Flow { layout: glance.layout, program: program.clone(), hash: 0 });
        }
        let mut key = FlowKey::default();
        let layout = parse_into(&buf[start..], &mut key).ok()?;
        key.set_in_port(in_port.0);
        let hash = hash_words(key.words());
        let program = match self.cache.find_exact(&key, hash, epoch) {
            Some(program) => {
                self.stats.exact_hits += 1;
                if let Some(glance) = &glance {
                    self.recent_ipv6.insert(glance, epoch, program);
                } else if let Some(glance) = Glance::of(&buf[start..], in_port) {
                    self.recent.insert(&glance, epoch, program);
                }
                program.clone()
            }
            None => {
                // The path of a frame does not depend on anything behind the headers.
                let frame = Frame::new(meta, layout, buf, start, 0);
                self.find_or_walk(snapshot, &key, hash, &frame)
            }
        };
        let hash = if program.wants_hash { key.symmetric_hash() } else { 0 };
        Some(Flow { layout, program, hash })
    }

    /// Ends a burst: afterwards the shared counters are exact.
    pub fn end_burst(&mut self, now: Millis) {
        for program in self.used.drain(..) {
            program.flush(self.worker, now);
        }
    }

    /// Executes the actions of a packet-out on a packet of the controller (OpenFlow 1.3.5 §7.3.7),
    /// as a burst of its own.
    ///
    /// # Errors
    /// The OpenFlow error to send back.
    pub fn handle_packet_out(
        &mut self,
        view: View<'_>,
        arrival: Arrival<'_>,
        actions: &[Action],
        egress: &mut impl Egress,
    ) -> Result<(), ErrorKind> {
        validate::packet_out_actions(actions, &view.snapshot.groups)?;
        let Arrival { in_port, meta, buf, start, beyond_len } = arrival;
        let parsed = parse(&buf[start..]).map_err(|_| ErrorKind::OFPBRC_BAD_PACKET)?;
        let mut frame = Frame::new(meta, parsed.layout, buf, start, beyond_len);
        let key = FlowKey { in_port: in_port.0.to_be_bytes(), ..parsed.key };
        self.renew_outlets(view.snapshot);
        let program = compile_actions(view.snapshot, &self.outlets, actions, &key, &frame).program;
        let packets = frame.wire_packets();
        program.run.add(frame.len(), packets);
        let mut run = Run::new(self.worker, &view, in_port, &mut self.scratch, egress);
        (run.flow_hash, run.packets) = (key.symmetric_hash(), packets);
        run.nested(&program.ops, &mut frame);
        self.stats.injected += u64::from(run.finish());
        program.flush(self.worker, view.now);
        Ok(())
    }

    /// How programs were found so far.
    pub fn cache_stats(&self) -> CacheStats {
        CacheStats { masked_count: self.cache.masked_count(), ..self.stats }
    }

    /// Counts a dropped frame of `len` bytes. The headers of a train are not parsed at this point,
    /// so the number of its packets is taken from its metadata, if that is possible.
    #[cold]
    fn refuse(
        &self,
        view: View<'_>,
        in_port: PortNo,
        len: usize,
        meta: NetHeader,
        more: Option<&Parts<'_>>,
        reason: DropReason,
    ) {
        if let Some(port) = view.snapshot.ports.find(in_port) {
            let packets = match more {
                Some(more) => 1 + more.count() as u64,
                None if meta.check(len).is_ok() => {
                    meta.wire_packets(len.saturating_sub(meta.hdr_len.into())).into()
                }
                None => 1,
            };
            let traffic = Traffic { frames: 1, packets, bytes: len as u64 };
            port.counters.refuse(self.worker, traffic, reason);
        }
    }

    /// Paths 3 and 4.
    #[cold]
    fn find_or_walk(
        &mut self,
        snapshot: &Snapshot,
        key: &FlowKey,
        hash: u64,
        frame: &Frame<'_>,
    ) -> Rc<Program> {
        if let Some(program) = self.cache.find_masked(key, hash, snapshot.epoch) {
            self.stats.masked_hits += 1;
            return program;
        }
        self.stats.walks += 1;
        self.renew_outlets(snapshot);
        let walked = compile(snapshot, &self.outlets, key, frame);
        self.cache.insert(key, hash, snapshot.epoch, walked)
    }

    fn renew_outlets(&mut self, snapshot: &Snapshot) {
        if !self.outlets.are_of(&snapshot.ports) {
            self.outlets = Rc::new(Outlets::new(&snapshot.ports));
        }
    }
}

/// A frame's key, layout and hash.
struct Flow {
    layout: Layout,
    program: Rc<Program>,
    /// The same for both directions; zero if the program does not need it.
    hash: u32,
}
