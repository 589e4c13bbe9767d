//! Meters on the way through the tables against the rules: whatever the cache has learned, a frame
//! is looked up with the DSCP that the meters before have left it with.
//!
//! The clock stands still, so a meter passes as many frames as its burst, and after that remarks or
//! drops each. The evaluation that programs are compared with has no programs, forks or caches: it
//! takes one frame after the other through the tables.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic fails a test"
)]

use crate::common::{Switch, apply, goto, ip, out, tcp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tapswitch_datapath::DropReason;
use tapswitch_helpers::cases;
use tapswitch_openflow::{
    Action, Instruction, MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand, Oxm,
    TableId,
};
use tapswitch_wire::{EtherType, NetHeader};

const TABLES: u8 = 4;
/// Of one class with all its precedences, of another one, and of none; what a malformed header has
/// as far as tables know is among them.
const DSCPS: [u8; 6] = [0, 10, 12, 14, 18, 46];

/// What a rule does, in this order.
#[derive(Clone, Debug)]
struct Rule {
    table: u8,
    /// What it matches; `None` matches all.
    dscp: Option<u8>,
    meter: Option<u32>,
    set: Option<u8>,
    pushes: bool,
    port: Option<u32>,
    goes_on: bool,
}

/// What a meter does beyond its burst.
#[derive(Clone, Copy, Debug)]
struct Limit {
    burst: u32,
    /// `None` drops.
    levels: Option<u8>,
}

#[derive(Clone, Debug)]
struct Packet {
    dscp: u8,
    /// Too short an IPv4 header: nothing in it can be matched, set or remarked.
    is_malformed: bool,
}

fn rule() -> impl Strategy<Value = Rule> {
    let dscp = || option::of(select(&DSCPS[..]));
    let set = prop_oneof![3 => Just(None), 1 => dscp()];
    let fields = (0..TABLES, dscp(), option::of(1..4u32), set, any::<bool>());
    (fields, option::of(2..5u32), prop::bool::weighted(0.8)).prop_map(
        |((table, dscp, meter, set, pushes), port, goes_on)| Rule {
            table,
            dscp,
            meter,
            set,
            pushes,
            port,
            goes_on,
        },
    )
}

fn limit() -> impl Strategy<Value = Limit> {
    let levels = prop_oneof![4 => (1..3u8).prop_map(Some), 1 => Just(None)];
    (1..5u32, levels).prop_map(|(burst, levels)| Limit { burst, levels })
}

fn packet() -> impl Strategy<Value = Packet> {
    (select(&DSCPS[..]), prop::bool::weighted(0.2))
        .prop_map(|(dscp, is_malformed)| Packet { dscp, is_malformed })
}

impl Rule {
    fn add_to(&self, switch: &mut Switch, priority: u16) {
        let mut fields = vec![ip()];
        fields.extend(self.dscp.map(Oxm::IpDscp));
        let mut actions: Vec<_> =
            self.set.map(|dscp| Action::SetField(Oxm::IpDscp(dscp))).into_iter().collect();
        actions.extend(self.pushes.then_some(Action::PushVlan(EtherType::VLAN)));
        actions.extend(self.port.map(out));
        let mut instructions = vec![apply(&actions)];
        instructions.extend(self.meter.map(Instruction::Meter));
        instructions.extend(self.next().map(goto));
        switch.flow(self.table, priority, &fields, &instructions);
    }

    fn next(&self) -> Option<u8> {
        (self.goes_on && self.table + 1 < TABLES).then_some(self.table + 1)
    }
}

impl Limit {
    fn add_to(self, switch: &mut Switch, meter_id: u32) {
        let kind = match self.levels {
            Some(prec_level) => MeterBandKind::DscpRemark { prec_level },
            None => MeterBandKind::Drop,
        };
        let bands = vec![MeterBand { rate: 1, burst_size: self.burst, kind }];
        let flags = MeterFlags::PKTPS | MeterFlags::BURST;
        let change = MeterMod { command: MeterModCommand::Add, flags, meter_id, bands };
        switch.pipeline.handle_meter_mod(&change, switch.now).unwrap();
    }
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let mut frame = tcp().bytes();
        frame[14] = if self.is_malformed { 0x44 } else { 0x45 };
        frame[15] = self.dscp << 2;
        frame
    }
}

/// The rules and meters, and what they have counted.
struct Model {
    rules: Vec<Rule>,
    limits: Vec<Limit>,
    measured: Vec<u32>,
    matched: Vec<(u64, u64)>,
    lookups: [(u64, u64); TABLES as usize],
    missed: u64,
    metered: u64,
}

impl Model {
    fn new(rules: Vec<Rule>, limits: Vec<Limit>) -> Self {
        let (measured, matched) = (vec![0; limits.len()], vec![(0, 0); rules.len()]);
        let lookups = [(0, 0); TABLES as usize];
        Self { rules, limits, measured, matched, lookups, missed: 0, metered: 0 }
    }

    /// The outputs of a frame: the port, the DSCP and the length of each.
    fn handle(&mut self, packet: &Packet) -> Vec<(u32, u8, usize)> {
        let frame = packet.bytes();
        let (mut len, mut sent, mut next) = (frame.len(), Vec::new(), Some(0));
        // What tables match, and what is in the frame.
        let (mut seen, mut real) = (if packet.is_malformed { 0 } else { packet.dscp }, packet.dscp);
        while let Some(table) = next {
            let is_match =
                |rule: &Rule| rule.table == table && rule.dscp.is_none_or(|dscp| dscp == seen);
            let best = self.rules.iter().rposition(is_match);
            let lookups = &mut self.lookups[usize::from(table)];
            *lookups = (lookups.0 + 1, lookups.1 + u64::from(best.is_some()));
            let Some(best) = best else {
                self.missed += 1;
                break;
            };
            let rule = self.rules[best].clone();
            self.matched[best].0 += 1;
            self.matched[best].1 += frame.len() as u64;
            match rule.meter.and_then(|meter| self.measure(meter)) {
                Some(None) => {
                    self.metered += 1;
                    break;
                }
                Some(Some(levels)) if !packet.is_malformed => {
                    real = raised(real, levels);
                    seen = real;
                }
                _ => {}
            }
            if let Some(dscp) = rule.set {
                seen = dscp;
                real = if packet.is_malformed { real } else { dscp };
            }
            len += if rule.pushes { 4 } else { 0 };
            sent.extend(rule.port.map(|port| (port, real, len)));
            next = rule.next();
        }
        sent
    }

    /// What a meter does beyond its burst, if the frame is.
    fn measure(&mut self, meter: u32) -> Option<Option<u8>> {
        let at = meter as usize - 1;
        let Limit { burst, levels } = self.limits[at];
        let is_within = self.measured[at] < burst;
        self.measured[at] += u32::from(is_within);
        (!is_within).then_some(levels)
    }
}

/// RFC 2597 §6: a class is of a value with three of its precedences.
fn raised(dscp: u8, levels: u8) -> u8 {
    match dscp {
        10 | 12 | 14 => (dscp + 2 * levels).min(14),
        18 | 20 | 22 => (dscp + 2 * levels).min(22),
        _ => dscp,
    }
}

/// The DSCP behind all tags.
fn dscp_of(frame: &[u8]) -> u8 {
    let tags = frame[12..].chunks(4).take_while(|word| word.starts_with(&[0x81, 0])).count();
    frame[12 + 4 * tags + 3] >> 2
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(600)))]

    #[test]
    fn each_frame_is_looked_up_as_the_meters_have_left_it(
        rules in vec(rule(), 1..14),
        limits in vec(limit(), 3),
        bursts in vec(vec(packet(), 1..6), 1..6),
    ) {
        let mut switch = Switch::new(4);
        (1..).zip(&limits).for_each(|(id, limit)| limit.add_to(&mut switch, id));
        (0..).zip(&rules).for_each(|(priority, rule)| rule.add_to(&mut switch, priority));
        let mut model = Model::new(rules, limits);
        for burst in &bursts {
            for packet in burst {
                switch.handle(1, &packet.bytes(), NetHeader::PLAIN);
                let seen = |(port, bytes, _): &(u32, Vec<u8>, _)| {
                    (*port, dscp_of(bytes), bytes.len())
                };
                let sent: Vec<_> = switch.out.sent.iter().map(seen).collect();
                prop_assert_eq!(sent, model.handle(packet), "{:?}", packet);
            }
            switch.end_burst();
        }
        let snapshot = switch.pipeline.snapshot().clone();
        for (rule, (priority, expected)) in model.rules.iter().zip((0..).zip(&model.matched)) {
            let mut found = snapshot.table(TableId(rule.table)).unwrap().iter();
            let totals = found.find(|it| it.priority == priority).unwrap().counters.totals();
            prop_assert_eq!((totals.frames, totals.bytes), *expected, "{:?}", rule);
        }
        for (number, expected) in (0..).zip(model.lookups) {
            let table = snapshot.table(TableId(number)).unwrap();
            prop_assert_eq!(table.counters().totals(), expected, "table {}", number);
        }
        let dropped = [DropReason::TableMiss, DropReason::Metered].map(|it| switch.drops(1, it));
        prop_assert_eq!(dropped, [model.missed, model.metered]);
    }
}
