//! A flapping link: one failure has no effect, and continued failures little.

use tapswitch_control::*;
use tapswitch_openflow::Body;

use crate::fabric::Fabric;
use crate::frames::{tcp, udp};
use crate::world::policy;

impl Fabric {
    /// Number of messages that change switches, since the last call.
    fn changes(&mut self) -> usize {
        let changes = (1..=u64::from(self.hosts))
            .flat_map(|id| std::mem::take(&mut self.world.model(id).changes))
            .collect::<Vec<_>>();
        changes.iter().filter(|it| matches!(it, Body::FlowMod(_) | Body::GroupMod(_))).count()
    }

    /// The link between the first two switches fails `times` times, and is used again `wait`
    /// milliseconds after each; there are `links` links.
    fn flap_and_use(&mut self, times: usize, wait: u64, links: usize) {
        for _ in 0..times {
            self.flap(1, 2);
            self.wait(wait);
            self.assert_used(links);
        }
    }

    /// The link between the first two switches is used, and none of `links` links is held.
    fn assert_used(&mut self, links: usize) {
        assert_eq!(self.held(), [] as [u64; 0]);
        assert_eq!(self.world.control.links().len(), links);
        assert_eq!(self.send(1, &udp(1, 2).bytes()), [(2, 1)]);
    }

    fn held(&self) -> Vec<u64> {
        self.world.control.links().into_iter().filter_map(|link| link.held_ms).collect()
    }
}

#[test]
fn a_link_that_flaps_is_held_and_changes_nothing_any_more() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    let _ = fabric.changes();
    let mut costs = Vec::new();
    for _ in 0..20 {
        fabric.flap(1, 2);
        fabric.wait(500);
        costs.push(fabric.changes());
    }
    assert!(costs[0] > 0, "the ways change: {costs:?}");
    let of_held: Vec<_> = costs[4..].to_vec();
    assert!(of_held.iter().all(|count| *count == 0), "{costs:?}");
    let held = fabric.held();
    assert!(matches!(held[..], [ms] if (20_000..=30_000).contains(&ms)), "{held:?}");
    let told = fabric.world.events.iter().filter(|it| matches!(it, Event::LinkHeld { .. }));
    assert_eq!(told.count(), 1, "it is told once");
    // Traffic continues by the other path.
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    assert_eq!(fabric.world.state("all"), PolicyState::Active);
    // And over the link once it has been stable.
    fabric.wait(30_500);
    assert_eq!(fabric.held(), [] as [u64; 0]);
    assert_eq!(fabric.world.control.links().len(), 4);
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
}

#[test]
fn a_link_that_flaps_is_used_all_the_same_where_there_is_no_other() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.flap_and_use(8, 250, 2);
    let told = fabric.world.events.iter().filter_map(|it| match it {
        Event::LinkHeld { reason, .. } => Some(reason.contains("still used")),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [true]);
}

#[test]
fn a_link_that_is_held_is_used_when_the_last_other_way_goes() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    for _ in 0..4 {
        fabric.flap(1, 2);
        fabric.wait(250);
    }
    assert_eq!(fabric.held().len(), 1);
    fabric.cut(3, 4, false);
    fabric.wait(250);
    fabric.assert_used(3);
}

#[test]
fn a_link_that_failed_once_or_twice_is_used_at_once() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    fabric.flap_and_use(2, 150, 1);
}

/// Also while host ports keep changing, which delays the handling of links.
#[test]
fn the_first_cut_is_acted_on_at_once_in_fabrics_of_any_size() {
    for (size, is_busy) in [4, 40].into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let mut fabric = Fabric::ring(size);
        fabric.learn();
        fabric.wait(1000);
        for at in 0..if is_busy { 30 } else { 0 } {
            fabric.world.pass(8);
            fabric.world.model(3).set_link(2, at % 2 == 1);
            fabric.world.run();
        }
        fabric.world.events.clear();
        fabric.cut(1, 2, false);
        let told = fabric.world.events.iter().filter(|it| matches!(it, Event::LinkDown { .. }));
        assert_eq!(told.count(), 1, "{size} {is_busy}");
        assert_eq!(fabric.send(1, &udp(1, 2).bytes()), [(2, 1)], "{size} {is_busy}");
    }
}
