//! Copies whose only path uses a disconnected switch, which may still forward them or not.

use tapswitch_control::*;

use crate::fabric::Fabric;
use crate::frames::{mac, tcp};
use crate::world::policy;

/// A policy for all frames, and one for a single host, applied only at its switch.
fn tap_both(fabric: &mut Fabric) {
    let narrow = TapPolicy { src_mac: Some(mac(1)), ..policy("narrow", "0x3/2") };
    fabric.world.tap(policy("wide", "0x3/2"));
    fabric.world.tap(narrow);
    let near = TapPolicy { src_mac: Some(mac(3)), ..policy("near", "0x3/2") };
    fabric.world.tap(near);
}

#[test]
fn copies_whose_only_way_is_a_switch_that_went_may_not_arrive_and_that_is_said() {
    for max_places in [0, 100_000] {
        let limits = Limits { max_places, ..Limits::default() };
        let mut fabric = Fabric::with(3, &[(1, 2), (2, 3)], &limits);
        fabric.learn();
        tap_both(&mut fabric);
        fabric.world.disconnect(2);
        fabric.wait(100);
        for name in ["wide", "narrow"] {
            let PolicyState::Partial { reason } = fabric.world.state(name) else {
                panic!("{name}: {:?}", fabric.world.state(name))
            };
            let expected = "copies from 0x1 for monitor 0x3/2 can only go through switch 0x2";
            assert!(reason.starts_with(expected), "{reason}");
        }
        assert_eq!(fabric.world.state("near"), PolicyState::Active, "its copies go nowhere else");
        assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)], "they may arrive");
        fabric.world.connect(2);
        fabric.wait(1000);
        for name in ["wide", "narrow", "near"] {
            assert_eq!(fabric.world.state(name), PolicyState::Active, "{name}");
        }
    }
}

#[test]
fn copies_that_have_another_way_take_it_when_a_switch_goes() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    let narrow = TapPolicy { src_mac: Some(mac(1)), ..policy("narrow", "0x3/2") };
    fabric.world.tap(narrow);
    for gone in [2, 4] {
        fabric.world.disconnect(gone);
        fabric.wait(500);
        assert_eq!(fabric.world.state("narrow"), PolicyState::Active, "{gone} went");
        assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
        fabric.world.connect(gone);
        fabric.wait(1000);
    }
    fabric.world.disconnect(2);
    fabric.world.disconnect(4);
    fabric.wait(500);
    assert!(matches!(fabric.world.state("narrow"), PolicyState::Partial { .. }), "both went");
}
