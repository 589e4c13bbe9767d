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

use std::rc::Rc;
use std::sync::Arc;

use tapswitch_openflow::{Action, ErrorKind, METER_CONTROLLER, PortNo};
use tapswitch_wire::{FlowKey, Layout, NetHeader, ethernet, parse, parse_into};

use crate::cache::FlowCache;
use crate::claim::{Claim, Loss, PacketInClaim, Sent};
use crate::compile::{compile, compile_actions};
use crate::counters::{Millis, WorkerIndex};
use crate::glance::{Glance, IPV4_WORDS, IPV6_WORDS, Recent};
use crate::group::BucketRef;
use crate::hash::hash_words;
use crate::learning::{MacTable, Sighting, Station};
use crate::meter::{Meter, Verdict};
use crate::outlet::{Outlet, Outlets};
use crate::pipeline::Snapshot;
use crate::port::Port;
use crate::program::{Gate, Op, Program, pick_arm};
use crate::traffic::Traffic;
use crate::vlan::{self, Edit, PortMode};
use crate::{DropReason, Egress, Frame, PacketInOrigin, Parts, rewrite, validate};

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
        let run = Run::new(self.worker, view, in_port, &mut self.scratch, egress);
        let mut run = Run { arrival, flow_hash, packets, ..run };
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
        let run = Run::new(self.worker, view, in_port, &mut self.scratch, egress);
        let mut run = Run { flow_hash: key.symmetric_hash(), packets, ..run };
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

/// One execution of a program for one frame.
struct Run<'a, E> {
    worker: WorkerIndex,
    view: View<'a>,
    in_port: PortNo,
    /// The ingress port, if it exists.
    arrival: Option<&'a Arc<Port>>,
    /// The same for both directions of the flow; zero if the program does not need it.
    flow_hash: u32,
    /// Packets that the frame makes on the wire; no step changes it.
    packets: u32,
    /// Header buffers of forks, for reuse.
    scratch: &'a mut Vec<Vec<u8>>,
    /// The bucket in whose ledger the outputs count.
    bucket: Option<&'a BucketRef>,
    /// Ends of the frame so far: see [`PortCounters::ends`](crate::PortCounters::ends).
    ends: u32,
    egress: &'a mut E,
}

impl<'a, E: Egress> Run<'a, E> {
    /// A run for a packet of the controller.
    #[expect(clippy::inline_always, reason = "as for the steps")]
    #[inline(always)]
    fn new(
        worker: WorkerIndex,
        view: View<'a>,
        in_port: PortNo,
        scratch: &'a mut Vec<Vec<u8>>,
        egress: &'a mut E,
    ) -> Self {
        let (arrival, bucket, flow_hash, packets, ends) = (None, None, 0, 1, 0);
        Self { worker, view, in_port, arrival, flow_hash, packets, scratch, bucket, ends, egress }
    }

    /// Runs the steps in order. What nearly all programs consist of is done here, so that their
    /// system calls are made in the caller's own function: see [`Forwarder::handle`].
    #[expect(clippy::inline_always, reason = "a call here costs a fifth of the packet rate")]
    #[inline(always)]
    fn ops(&mut self, ops: &'a [Op], frame: &mut Frame<'_>) {
        let mut rest = ops;
        while let [op, tail @ ..] = rest {
            rest = tail;
            let (bucket, outlet) = match op {
                Op::Output(outlet) => (None, outlet),
                Op::BucketOutput { bucket, outlet } => (Some(bucket), outlet),
                Op::Normal { outlets, learns } if self.bucket.is_none() => {
                    match self.normal(outlets, *learns, frame) {
                        Some(outlet) => (None, outlet),
                        None => continue,
                    }
                }
                Op::Group { reached, .. } => {
                    reached.add(frame.len(), self.packets);
                    continue;
                }
                op => {
                    match self.step(op, tail, frame) {
                        Some(behind) => rest = behind,
                        None => return,
                    }
                    continue;
                }
            };
            match self.send(bucket.or(self.bucket), outlet, frame) {
                Ok(Sent::Now) => {}
                Ok(Sent::Later) => self.kept(bucket, frame.len()),
                Ok(Sent::InPart(loss)) => self.not_sent(bucket, outlet, frame.len(), loss),
                Err(reason) => self.not_sent(bucket, outlet, frame.len(), self.whole(reason)),
            }
        }
    }

    /// Ends of the frame: at least one, if only a drop.
    #[inline]
    fn finish(&mut self) -> u32 {
        if self.ends == 0 {
            self.drop(DropReason::NoOutput);
        }
        self.ends
    }

    /// As [`Self::ops`], for steps within a step.
    #[inline(never)]
    fn nested(&mut self, ops: &'a [Op], frame: &mut Frame<'_>) {
        self.ops(ops, frame);
    }

    /// The frame, or the `len` bytes that are left of it, as counted.
    #[inline]
    fn traffic(&self, len: usize) -> Traffic {
        Traffic::frame(len, self.packets)
    }

    /// Runs one step, which `tail` follows. Returns the remaining steps; `None` if the frame has
    /// ended here.
    #[inline(never)]
    fn step(&mut self, op: &'a Op, tail: &'a [Op], frame: &mut Frame<'_>) -> Option<&'a [Op]> {
        match op {
            Op::Output(_) | Op::BucketOutput { .. } | Op::Group { .. } => {
                self.nested(std::slice::from_ref(op), frame);
            }
            Op::Normal { outlets, learns } => {
                if let Some(outlet) = self.normal(outlets, *learns, frame) {
                    self.send_at_once(outlet, frame);
                }
            }
            Op::Bucket { bucket, isolated, len } => {
                let (body, behind) = tail.split_at(*len);
                self.bucket(bucket, *isolated, body, frame);
                return Some(behind);
            }
            Op::Tables { len } => {
                let (body, behind) = tail.split_at(*len);
                self.nested(body, frame);
                return Some(behind);
            }
            Op::OutputPart(outlet) => self.output_part(outlet, frame),
            Op::Select { arms, shares, len } => {
                if let Some(arm) = pick_arm(arms, *shares, self.flow_hash) {
                    self.nested(&tail[arm.start..arm.end], frame);
                }
                return Some(&tail[*len..]);
            }
            Op::Flood(outlets) => self.flood(outlets, frame),
            Op::Controller(origin) => self.controller(origin, frame),
            Op::SetField(field) => rewrite::set_field(frame, field),
            Op::SetTtl(ttl) => rewrite::set_ttl(frame, *ttl),
            Op::PushTag(tpid) => {
                let tci = frame.outer_tag().map_or(0, ethernet::Tag::tci);
                if !frame.push_tag(ethernet::Tag::new(*tpid, tci)) {
                    return self.end(DropReason::TooDeep);
                }
            }
            Op::PopTag => {
                if !frame.pop_tag() {
                    return self.end(DropReason::BadAction);
                }
            }
            Op::DecrementTtl { origin, gate } => {
                if !rewrite::decrement_ttl(frame) {
                    return self.invalid_ttl(origin, gate, frame);
                }
            }
            Op::Meter { meter, gate } => match self.measure(meter, frame) {
                Verdict::Pass => {}
                Verdict::Remark(levels) => rewrite::raise_drop_precedence(frame, levels),
                Verdict::Drop => {
                    gate.end(frame.len(), self.packets);
                    return self.end(DropReason::Metered);
                }
            },
            Op::Drop(reason) => self.drop(*reason),
        }
        Some(tail)
    }

    fn bucket(
        &mut self,
        bucket: &'a BucketRef,
        isolated: bool,
        body: &'a [Op],
        frame: &mut Frame<'_>,
    ) {
        bucket.bucket().counters.add(self.worker, self.traffic(frame.len()), self.view.now);
        let outer = self.bucket.replace(bucket);
        let sampler = bucket.bucket().sampler.as_ref();
        if sampler.is_some_and(|sampler| !sampler.takes(self.worker)) {
            self.leave_out(body);
        } else if isolated {
            let mut headers = self.scratch.pop().unwrap_or_default();
            self.nested(body, &mut frame.fork(&mut headers));
            self.scratch.push(headers);
        } else {
            self.nested(body, frame);
        }
        self.bucket = outer;
    }

    /// Counts a copy that is not made, at its output port; at the ingress port if its output is not
    /// a particular port.
    #[cold]
    fn leave_out(&mut self, body: &[Op]) {
        self.ends += 1;
        let port = body.iter().find_map(Op::port).or(self.arrival);
        self.drop_at(port.map(|port| &**port), DropReason::SampledOut);
    }

    #[expect(clippy::inline_always, reason = "as for the steps")]
    #[inline(always)]
    fn send(
        &mut self,
        bucket: Option<&BucketRef>,
        outlet: &Outlet,
        frame: &mut Frame<'_>,
    ) -> Result<Sent, DropReason> {
        self.ends += 1;
        let undo = if outlet.is_plain() { Edit::NONE } else { self.dress(outlet, frame)? };
        let sent = self.send_as_is(bucket, outlet, frame);
        if !outlet.is_plain() {
            Outlet::undress(undo, frame);
        }
        sent
    }

    /// See [`Outlet::dress`]. A frame without ingress port is the controller's.
    #[inline]
    fn dress(&self, outlet: &Outlet, frame: &mut Frame<'_>) -> Result<Edit, DropReason> {
        outlet.dress(frame, self.arrival.is_none())
    }

    #[expect(clippy::inline_always, reason = "as for the steps")]
    #[inline(always)]
    fn send_as_is(
        &mut self,
        bucket: Option<&BucketRef>,
        outlet: &Outlet,
        frame: &mut Frame<'_>,
    ) -> Result<Sent, DropReason> {
        let claim =
            Claim { worker: self.worker, port: &outlet.port, bucket, arrival: self.arrival };
        let sent = match outlet.fits(frame) {
            true => self.egress.transmit(outlet.number, frame, &claim),
            false => Err(DropReason::Oversize),
        };
        match sent {
            Ok(Sent::Now) => outlet.sent.add(frame.len(), self.packets),
            Ok(Sent::Later) => {}
            Ok(Sent::InPart(Loss { reason, .. })) | Err(reason) => outlet.note(frame, reason),
        }
        sent
    }

    /// Sends the first bytes of each packet that the bucket keeps, counting in the tally.
    #[cold]
    fn output_part(&mut self, outlet: &Outlet, frame: &mut Frame<'_>) {
        let Some(snaplen) = self.snaplen() else { return self.send_at_once(outlet, frame) };
        match self.send_part(outlet, frame, snaplen) {
            Ok(Sent::Now | Sent::Later) => {}
            Ok(Sent::InPart(loss)) => self.lose(outlet, loss),
            Err(reason) => self.lose(outlet, self.whole(reason)),
        }
    }

    /// Bytes of each packet that the bucket keeps; `None` for all.
    fn snaplen(&self) -> Option<usize> {
        self.bucket.and_then(BucketRef::snaplen)
    }

    /// As [`Self::send`], but only the first bytes of each packet.
    fn send_part(
        &mut self,
        outlet: &Outlet,
        frame: &mut Frame<'_>,
        snaplen: usize,
    ) -> Result<Sent, DropReason> {
        self.ends += 1;
        let undo = self.dress(outlet, frame)?;
        let (worker, bucket, arrival) = (self.worker, self.bucket, self.arrival);
        let claim = Claim { worker, port: &outlet.port, bucket, arrival };
        let sent = match outlet.fits_part(frame, snaplen) {
            true => self.egress.transmit_part(outlet.number, frame, &claim, snaplen),
            false => Err(DropReason::Oversize),
        };
        match sent {
            Ok(Sent::Now) => outlet.sent.add(frame.part_len(snaplen), self.packets),
            Ok(Sent::Later) => {}
            Ok(Sent::InPart(Loss { reason, .. })) | Err(reason) => outlet.note(frame, reason),
        }
        Outlet::undress(undo, frame);
        sent
    }

    /// Counts a frame as processed by `bucket`, if that only sends: the tally does not count frames
    /// that wait.
    #[cold]
    fn kept(&mut self, bucket: Option<&'a BucketRef>, len: usize) {
        if let Some(bucket) = bucket {
            bucket.bucket().counters.add(self.worker, self.traffic(len), self.view.now);
        }
    }

    /// Counts a drop and, instead of the tally, a frame processed by `bucket`, if that only sends.
    #[cold]
    fn not_sent(&mut self, bucket: Option<&'a BucketRef>, outlet: &Outlet, len: usize, loss: Loss) {
        let outer = self.bucket;
        if let Some(bucket) = bucket {
            bucket.bucket().counters.add(self.worker, self.traffic(len), self.view.now);
            self.bucket = Some(bucket);
        }
        self.lose(outlet, loss);
        self.bucket = outer;
    }

    /// The loss of a whole frame.
    fn whole(&self, reason: DropReason) -> Loss {
        Loss { sent: 0, dropped: self.packets, reason }
    }

    /// Counts a frame that was to leave by `outlet` and is dropped, and those of its packets that
    /// were sent.
    #[cold]
    fn lose(&mut self, outlet: &Outlet, loss: Loss) {
        let Loss { sent, dropped, reason } = loss;
        if sent > 0 {
            let (worker, bucket, arrival) = (self.worker, self.bucket, self.arrival);
            Claim { worker, port: &outlet.port, bucket, arrival }.sent(sent, self.view.now);
        }
        self.drop_packets_at(Some(&outlet.port), dropped, reason);
    }

    /// Sends by a shared outlet, whose tally belongs to no bucket: what the bucket delivered counts
    /// at once.
    #[inline(never)]
    fn send_at_once(&mut self, outlet: &Outlet, frame: &mut Frame<'_>) {
        // The length as the rules made it, before the port's mode changes it.
        let (len, sent) = match self.snaplen() {
            Some(snaplen) => (frame.part_len(snaplen), self.send_part(outlet, frame, snaplen)),
            None => (frame.len(), self.send(self.bucket, outlet, frame)),
        };
        match (sent, self.bucket) {
            (Ok(Sent::Now), Some(bucket)) => {
                bucket.bucket().delivered.add(self.worker, self.traffic(len), self.view.now);
            }
            (Ok(Sent::Now | Sent::Later), _) => {}
            (Ok(Sent::InPart(loss)), _) => self.lose(outlet, loss),
            (Err(reason), _) => self.lose(outlet, self.whole(reason)),
        }
    }

    /// Sends out of every port that is open and a member of the VLAN, except the ingress port.
    #[inline(never)]
    fn flood(&mut self, outlets: &Outlets, frame: &mut Frame<'_>) {
        for outlet in outlets.flooded(self.in_port) {
            if outlet.is_flooded(frame) {
                self.send_at_once(outlet, frame);
            }
        }
    }

    /// The reserved port NORMAL: a learning switch (IEEE 802.1Q-2022 §8.6 to §8.8). Returns the
    /// port to send to, or `None` if everything is done.
    #[inline(never)]
    fn normal(
        &mut self,
        outlets: &'a Outlets,
        learns: bool,
        frame: &mut Frame<'_>,
    ) -> Option<&'a Outlet> {
        let (src, dst) = (frame.source(), frame.destination());
        let View { macs, now, .. } = self.view;
        let vlan = macs.vlan(frame);
        if dst.is_bridge_reserved() {
            self.drop(DropReason::BridgeReserved);
            return None;
        }
        let from = Station { vlan, mac: src };
        if learns && src.is_unicast() && !macs.refresh(from, self.in_port, now) {
            self.egress.learn(Sighting { station: from, port: self.in_port });
        }
        match macs.port(Station { vlan, mac: dst }) {
            Some(port) if port == self.in_port => self.drop(DropReason::InputPort),
            Some(port) => {
                let outlet = outlets.find(port);
                if outlet.is_none() {
                    self.drop(DropReason::NoSuchPort);
                }
                return outlet;
            }
            None => self.flood(outlets, frame),
        }
        None
    }

    #[cold]
    fn controller(&mut self, origin: &PacketInOrigin, frame: &Frame<'_>) {
        let port = self.arrival.or_else(|| self.view.snapshot.ports.find(self.in_port));
        let (bucket, traffic) = (self.bucket, self.traffic(frame.len()));
        let claim = PacketInClaim { worker: self.worker, port, bucket, traffic };
        let sent = self.tell(origin, frame, Some(&claim));
        match sent {
            Ok(Sent::Later) => {}
            Ok(Sent::Now | Sent::InPart(_)) => claim.delivered(self.view.now),
            Err(reason) => return self.drop(reason),
        }
        self.ends += u32::from(port.is_some());
    }

    /// Sends to the controller what the meter `OFPM_CONTROLLER` passes (OpenFlow 1.3.5 §7.3.4.4).
    fn tell(
        &mut self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        claim: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason> {
        let meter = self.view.snapshot.meters.find(METER_CONTROLLER);
        match meter.map(|meter| self.measure(meter, frame)) {
            Some(Verdict::Drop) => Err(DropReason::Metered),
            _ => self.egress.packet_in(origin, frame, claim),
        }
    }

    /// The verdict of a meter on the frame.
    fn measure(&self, meter: &Meter, frame: &Frame<'_>) -> Verdict {
        meter.measure(self.worker, frame, self.view.now)
    }

    /// Sends the frame to the controller, if a rule asks for that, and drops it (OpenFlow 1.3.5
    /// §7.4.1).
    #[cold]
    fn invalid_ttl<T>(
        &mut self,
        origin: &PacketInOrigin,
        gate: &Gate,
        frame: &Frame<'_>,
    ) -> Option<T> {
        // There may be no controller; the drop is counted in any case.
        let _ = self.tell(origin, frame, None);
        gate.end(frame.len(), self.packets);
        self.end(DropReason::InvalidTtl)
    }

    /// Drops the frame.
    #[cold]
    fn end<T>(&mut self, reason: DropReason) -> Option<T> {
        self.drop(reason);
        None
    }

    fn drop(&mut self, reason: DropReason) {
        self.ends += 1;
        let port = self.view.snapshot.ports.find(self.in_port);
        self.drop_at(port.map(|port| &**port), reason);
    }

    fn drop_at(&mut self, port: Option<&Port>, reason: DropReason) {
        self.drop_packets_at(port, self.packets, reason);
    }

    /// Drops the frame, of which `packets` packets were not sent.
    fn drop_packets_at(&mut self, port: Option<&Port>, packets: u32, reason: DropReason) {
        let in_port = || self.view.snapshot.ports.find(self.in_port).map(|port| &**port);
        let port = if reason.is_egress() { port } else { in_port() };
        match port {
            Some(port) => port.counters.add_drop(self.worker, reason),
            // A packet-out without ingress port that leaves by no port is not counted at any.
            None if self.arrival.is_none() => self.ends -= 1,
            None => {}
        }
        if let Some(bucket) = self.bucket {
            bucket.bucket().drop(self.worker, Traffic::frame(0, packets), reason);
        }
    }
}
