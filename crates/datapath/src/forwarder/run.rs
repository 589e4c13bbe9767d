//! Execution of a frame's program, step by step, with its counters.
//!
//! [`super`] explains how the program is found, and why most of this is inlined.

use std::sync::Arc;

use tapswitch_openflow::{METER_CONTROLLER, PortNo};

use super::View;
use crate::claim::{Claim, Loss, PacketInClaim, Sent};
use crate::counters::WorkerIndex;
use crate::group::BucketRef;
use crate::learning::{Sighting, Station};
use crate::meter::{Meter, Verdict};
use crate::outlet::{Outlet, Outlets};
use crate::port::Port;
use crate::program::{Gate, Op, Program, TagMoves, pick_arm};
use crate::traffic::Traffic;
use crate::vlan::Edit;
use crate::{DropReason, Egress, Frame, PacketInOrigin, rewrite};

/// One execution of a program for one frame.
pub(super) struct Run<'a, E> {
    worker: WorkerIndex,
    view: &'a View<'a>,
    in_port: PortNo,
    /// The ingress port, if it exists.
    pub(super) arrival: Option<&'a Arc<Port>>,
    /// The same for both directions of the flow; zero if the program does not need it.
    pub(super) flow_hash: u32,
    /// Packets that the frame makes on the wire; no step changes it.
    pub(super) packets: u32,
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
    pub(super) fn new(
        worker: WorkerIndex,
        view: &'a View<'a>,
        in_port: PortNo,
        scratch: &'a mut Vec<Vec<u8>>,
        egress: &'a mut E,
    ) -> Self {
        let (arrival, bucket, flow_hash, packets, ends) = (None, None, 0, 1, 0);
        Self { worker, view, in_port, arrival, flow_hash, packets, scratch, bucket, ends, egress }
    }

    /// Runs the steps in order. What nearly all programs consist of is done here, so that their
    /// system calls are made in the caller's own function: see [`super::Forwarder::handle`].
    #[expect(clippy::inline_always, reason = "a call here costs a fifth of the packet rate")]
    #[inline(always)]
    pub(super) fn ops(&mut self, ops: &'a [Op], frame: &mut Frame<'_>) {
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
    pub(super) fn finish(&mut self) -> u32 {
        if self.ends == 0 {
            self.drop(DropReason::NoOutput);
        }
        self.ends
    }

    /// [`Self::ops`] for steps within a step.
    #[inline(never)]
    pub(super) fn nested(&mut self, ops: &'a [Op], frame: &mut Frame<'_>) {
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
            Op::Tables { tags, program } => {
                program.run.add(tags.len_before(frame.len()), self.packets);
                self.on_copy(&program.ops, frame);
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
                let tag = rewrite::pushed_tag(*tpid, frame.outer_tag());
                if !frame.push_tag(tag) {
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
            Op::ByDscp { tags, arms } => return self.go_on(*tags, arms, frame),
            Op::Drop(reason) => self.drop(*reason),
        }
        Some(tail)
    }

    /// The steps for the current DSCP of the frame; no steps follow the tables. A malformed header
    /// has no DSCP, and for tables it has the one that an action set. No meter remarks that, so it
    /// is the lowest, which is the first.
    fn go_on(
        &self,
        tags: TagMoves,
        arms: &'a [(u8, Program)],
        frame: &Frame<'_>,
    ) -> Option<&'a [Op]> {
        let dscp = rewrite::dscp(frame);
        let own = arms.iter().find(|(other, _)| dscp == Some(*other));
        let (_, program) = own.or(arms.first())?;
        program.run.add(tags.len_before(frame.len()), self.packets);
        Some(&program.ops)
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
            self.on_copy(body, frame);
        } else {
            self.nested(body, frame);
        }
        self.bucket = outer;
    }

    /// Runs steps on a copy with headers of its own.
    #[inline]
    fn on_copy(&mut self, ops: &'a [Op], frame: &Frame<'_>) {
        let mut headers = self.scratch.pop().unwrap_or_default();
        self.nested(ops, &mut frame.fork(&mut headers));
        self.scratch.push(headers);
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
        let View { macs, now, .. } = *self.view;
        let vlan = macs.vlan(frame);
        if dst.is_bridge_reserved() {
            self.drop(DropReason::BridgeReserved);
            return None;
        }
        let from = Station { vlan, mac: src };
        if learns && src.is_unicast() && !macs.refresh(from, self.in_port, now) {
            self.egress.learn(Sighting { station: from, port: self.in_port });
        }
        // The table learns of a sender a moment later, but it is here.
        let is_to_itself = learns && src == dst && src.is_unicast();
        match macs.port(Station { vlan, mac: dst }) {
            _ if is_to_itself => self.drop(DropReason::InputPort),
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

    /// Sends the frame to the controllers that want such frames, and drops it (OpenFlow 1.3.5
    /// §5.12, §7.4.1).
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
