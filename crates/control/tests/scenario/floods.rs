//! Floods never loop, whatever links, switches and controllers change, and in whatever order
//! switches apply their messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tapswitch_control::*;
use tapswitch_openflow::{Body, DatapathId};

use crate::fabric::Fabric;
use crate::frames::{BROADCAST, udp};
use crate::world::{World, policy};

/// Messages in transit; each switch applies them in its own time.
struct Scramble {
    seed: u64,
    /// Bit set of switches that do nothing while others have messages.
    slow: usize,
    under_way: BTreeMap<DatapathId, VecDeque<Transmit>>,
}

impl Scramble {
    const fn new(seed: u64) -> Self {
        Self { seed, slow: 0, under_way: BTreeMap::new() }
    }

    /// A pseudo-random number below `end` (Knuth's MMIX generator).
    fn pick(&mut self, end: usize) -> usize {
        let next = self.seed.wrapping_mul(6_364_136_223_846_793_005);
        self.seed = next.wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % end
    }

    /// Delivers up to `count` messages, in order for each switch and direction, else in any order.
    /// Returns whether there were that many.
    fn carry(&mut self, world: &mut World, count: usize) -> bool {
        for _ in 0..count {
            while let Some(transmit) = world.control.poll_transmit() {
                self.under_way.entry(transmit.switch).or_default().push_back(transmit);
            }
            world.carry_emitted();
            let sent = self.under_way.iter().filter(|(_, sent)| !sent.is_empty());
            let sent = sent.map(|(id, _)| (true, *id));
            let said = world.switches.iter().filter(|(_, model)| !model.said.is_empty());
            let turns: Vec<_> = sent.chain(said.map(|(id, _)| (false, *id))).collect();
            if turns.is_empty() {
                return false;
            }
            if self.pick(20) == 0 {
                self.slow = self.pick(1 << 20);
            }
            let quick = turns.iter().filter(|(_, id)| self.slow >> id.0 & 1 == 0);
            let quick: Vec<_> = quick.copied().collect();
            let turns = if quick.is_empty() { turns } else { quick };
            let (is_sent, id) = turns[self.pick(turns.len())];
            match is_sent {
                true => self.carry_to(world, id),
                false => world.hear_one(id),
            }
        }
        true
    }

    fn carry_to(&mut self, world: &mut World, id: DatapathId) {
        let Some(transmit) = self.under_way.get_mut(&id).and_then(VecDeque::pop_front) else {
            return;
        };
        let change = match &transmit.body {
            Body::FlowMod(change) => Some(change.to_string()),
            _ => None,
        };
        let was_there = world.carry(transmit);
        if let Some(change) = change.filter(|_| was_there) {
            assert_eq!(circle(world), None, "after {change} at {id}");
        }
    }

    /// Advances time.
    fn pass(&mut self, world: &mut World, ms: u64) {
        for _ in 0..ms.div_ceil(25) {
            world.now = world.now.plus(Millis(25));
            world.switches.values_mut().for_each(|model| model.pass(25));
            world.control.handle_timeout(world.now);
            while self.carry(world, 1000) {}
        }
    }
}

/// A switch whose host's floods loop.
fn circle(world: &mut World) -> Option<u64> {
    let said: Vec<_> =
        world.switches.values_mut().map(|model| std::mem::take(&mut model.said)).collect();
    let ids: Vec<_> = world.switches.keys().map(|id| id.0).collect();
    let found = ids.iter().copied().find(|id| goes_round(world, *id));
    for (model, said) in world.switches.values_mut().zip(said) {
        model.said = said;
    }
    found
}

fn goes_round(world: &mut World, from: u64) -> bool {
    let frame = udp(from as u8, BROADCAST).bytes();
    let mut seen = BTreeSet::new();
    let mut under_way = vec![(from, 1, frame)];
    while let Some((switch, port, frame)) = under_way.pop() {
        if !seen.insert((switch, port, frame.clone())) {
            return true;
        }
        let sent = world.model(switch).receive(port, &frame);
        let ends = sent.into_iter().map(|(out, frame)| (world.cables.get(&(switch, out)), frame));
        under_way.extend(ends.filter_map(|(end, frame)| end.map(|end| (end.0, end.1, frame))));
    }
    false
}

fn set_link(world: &mut World, ends: [(u64, u32); 2], is_up: bool) {
    ends.iter().for_each(|(switch, port)| world.model(*switch).set_link(*port, is_up));
}

fn cable(world: &World, a: u64, b: u64) -> [(u64, u32); 2] {
    let mut cables = world.cables.iter();
    cables.find(|(at, to)| (at.0, to.0) == (a, b)).map(|(at, to)| [*at, *to]).unwrap()
}

/// A ring of eight, and a link across it that shortens other paths: links without a common switch
/// join and leave the tree.
fn crossed_ring() -> Fabric {
    let ring = (1..=8).map(|at| (at, at % 8 + 1));
    let mut fabric = Fabric::new(8, &ring.chain([(1, 5)]).collect::<Vec<_>>());
    let across = cable(&fabric.world, 1, 5);
    set_link(&mut fabric.world, across, false);
    fabric.wait(500);
    fabric.learn();
    fabric
}

#[test]
fn a_tree_becomes_another_one_without_a_circle() {
    for seed in 0..20 {
        let mut fabric = crossed_ring();
        let across = cable(&fabric.world, 1, 5);
        let mut scramble = Scramble::new(seed);
        for is_up in [true, false] {
            set_link(&mut fabric.world, across, is_up);
            scramble.pass(&mut fabric.world, 200);
            let links = fabric.world.control.links();
            let on_tree = links.iter().filter(|link| link.is_tree).count();
            assert_eq!((links.len(), on_tree), (8 + usize::from(is_up), 7), "seed {seed}");
        }
        fabric.check_production();
    }
}

#[test]
fn switches_that_are_away_are_not_closed_to_a_circle() {
    for seed in 0..10 {
        let mut fabric = Fabric::ring(6);
        fabric.learn();
        let mut scramble = Scramble::new(seed);
        for away in [2, 3] {
            fabric.world.is_stopped = true;
            fabric.world.disconnect(away);
            fabric.world.is_stopped = false;
            scramble.pass(&mut fabric.world, 100);
            assert_eq!(circle(&mut fabric.world), None, "seed {seed}");
            fabric.check_production();
        }
        for away in [2, 3] {
            scramble.reconnect(&mut fabric.world, away);
            scramble.pass(&mut fabric.world, 500);
        }
        fabric.check_production();
    }
}

impl Scramble {
    fn disconnect(&mut self, world: &mut World, id: u64) {
        self.under_way.remove(&DatapathId(id));
        world.is_stopped = true;
        world.disconnect(id);
        world.is_stopped = false;
    }

    fn reconnect(&mut self, world: &mut World, id: u64) {
        self.under_way.remove(&DatapathId(id));
        world.is_stopped = true;
        world.connect(id);
        world.is_stopped = false;
    }

    /// Another controller takes over, whatever the former one had sent.
    fn restart(&mut self, world: &mut World, policies: &[TapPolicy]) {
        self.under_way.clear();
        world.is_stopped = true;
        world.restart_controller(policies);
        world.is_stopped = false;
    }

    /// A random disturbance, while messages are in transit.
    fn disturb(&mut self, world: &mut World, policies: &[TapPolicy]) {
        let cables: Vec<_> = world.cables.iter().map(|(at, to)| [*at, *to]).collect();
        let count = world.switches.len();
        let id = self.pick(count) as u64 + 1;
        match self.pick(8) {
            0 => self.restart(world, policies),
            1 => self.disconnect(world, id),
            2 => self.reconnect(world, id),
            what => {
                let ends = cables[self.pick(cables.len())];
                set_link(world, ends, what % 2 == 0);
            }
        }
        let count = self.pick(300);
        self.carry(world, count);
    }
}

/// Whatever happens at whatever time: no loop, and in the end every frame arrives once.
#[test]
fn what_overtakes_what_makes_no_circle() {
    let cables = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 1), (1, 4), (2, 5), (3, 6), (2, 3)];
    let policies = [policy("all", "0x3/2")];
    for seed in 0..30 {
        let mut fabric = Fabric::new(6, &cables);
        fabric.learn();
        fabric.world.tap(policies[0].clone());
        let mut scramble = Scramble::new(seed);
        for _ in 0..12 {
            scramble.disturb(&mut fabric.world, &policies);
            let ms = scramble.pick(4) as u64 * 100;
            scramble.pass(&mut fabric.world, ms);
        }
        let cables: Vec<_> = fabric.world.cables.iter().map(|(at, to)| [*at, *to]).collect();
        cables.into_iter().for_each(|ends| set_link(&mut fabric.world, ends, true));
        (1..=6).for_each(|id| scramble.reconnect(&mut fabric.world, id));
        scramble.pass(&mut fabric.world, 4000);
        fabric.world.control.delete_policy("all").unwrap();
        scramble.pass(&mut fabric.world, 100);
        fabric.learn();
        fabric.check_production();
    }
}

#[test]
fn a_port_of_a_host_that_comes_up_while_the_controller_is_away_forwards() {
    let mut fabric = Fabric::line(1);
    fabric.learn();
    fabric.world.model(1).set_link(1, false);
    fabric.wait(500);
    fabric.world.disconnect(1);
    fabric.world.model(1).set_link(1, true);
    assert_eq!(fabric.send(1, &udp(1, BROADCAST).bytes()), [(1, 2)]);
}

/// Both ends of the failed link are closed when it returns.
#[test]
fn a_port_of_a_link_that_comes_up_again_takes_nothing_until_it_is_known() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    let ends = cable(&fabric.world, 1, 2);
    set_link(&mut fabric.world, ends, false);
    fabric.wait(500);
    fabric.world.is_stopped = true;
    set_link(&mut fabric.world, ends, true);
    for (switch, port) in ends {
        let frame = udp(77, BROADCAST).bytes();
        assert_eq!(fabric.world.model(switch).receive(port, &frame), []);
    }
}

/// The switch goes on flooding by the rules that it has. Its links seem to be gone, long before its
/// connection is given up.
#[test]
fn no_loop_goes_through_a_switch_whose_connection_fails_unnoticed() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    for seconds in [0, 4, 10, 30] {
        let flood = |fabric: &mut Fabric| {
            for _ in 0..60 {
                fabric.wait(500);
                for from in [1, 3] {
                    let arrivals = fabric.send(from, &udp(from, BROADCAST).bytes());
                    let distinct: BTreeSet<_> = arrivals.iter().collect();
                    assert_eq!(distinct.len(), arrivals.len(), "from {from}: {arrivals:?}");
                }
            }
        };
        fabric.world.cut_off(3);
        fabric.wait(1000 * seconds);
        if seconds == 30 {
            flood(&mut fabric);
        }
        fabric.world.disconnect(3);
        flood(&mut fabric);
        assert_eq!(fabric.send(1, &udp(1, 3).bytes()), [(3, 1)], "after {seconds} s");
        fabric.world.connect(3);
        fabric.wait(15_000);
        fabric.check_production();
    }
}
