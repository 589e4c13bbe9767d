//! What each mode accepts and sends, and the inner form in between.

use proptest::prelude::*;

use super::super::MapEntry;
use super::*;

const S: EtherType = EtherType::SERVICE_VLAN;
const C: EtherType = EtherType::VLAN;
const LEGACY: EtherType = EtherType::LEGACY_SERVICE_VLAN;

fn vid(number: u16) -> Vid {
    Vid::new(number).unwrap()
}

fn set(ranges: &[(u16, u16)]) -> VidSet {
    let mut set = VidSet::none();
    ranges.iter().for_each(|&(first, last)| set.insert_range(vid(first), vid(last)));
    set
}

/// A tag with priority 5 and drop eligible.
fn tag(tpid: EtherType, number: u16) -> Option<Tag> {
    Some(Tag::new(tpid, 0xb000 | number))
}

fn entry(first: u16, last: u16, service: u16, inner: Option<u16>) -> MapEntry {
    MapEntry { first: vid(first), last: vid(last), service: vid(service), inner: inner.map(vid) }
}

fn access() -> PortMode {
    PortMode::Access(vid(10))
}

fn trunk(native: Option<u16>) -> PortMode {
    PortMode::Trunk(Trunk { vlans: set(&[(10, 10), (20, 30)]), native: native.map(vid) })
}

fn tunnel(customers: Option<VidSet>) -> PortMode {
    PortMode::Tunnel(Tunnel { service: vid(100), customers })
}

fn selective(untagged: Option<u16>) -> PortMode {
    let entries =
        vec![entry(10, 10, 100, None), entry(20, 29, 200, None), entry(30, 30, 300, Some(31))];
    let map = ServiceMap::new(entries).unwrap();
    PortMode::Selective(Selective { map, untagged: untagged.map(vid) })
}

fn provider(tpid: EtherType) -> PortMode {
    let translations = Translations::new(vec![(vid(100), vid(1100))]).unwrap();
    let vlans = set(&[(100, 100), (200, 299)]);
    PortMode::Provider(Provider::new(Some(vlans), tpid, translations).unwrap())
}

/// The tags of a stack after an edit.
fn edited(stack: &[Tag], edit: Edit) -> Vec<Tag> {
    let mut stack = stack.to_vec();
    if edit.pop {
        stack.remove(0);
    }
    if let Some(tag) = edit.set {
        stack[0] = tag;
    }
    edit.push.into_iter().chain(stack).collect()
}

/// The inner form of a stack, if the mode accepts it.
fn inside(mode: &PortMode, stack: &[Tag]) -> Option<Vec<Tag>> {
    Some(edited(stack, mode.admit(stack.first().copied())?))
}

/// How a stack looks outside, if the mode makes the port a member.
fn outside(mode: &PortMode, stack: &[Tag]) -> Option<Vec<Tag>> {
    let edit = mode.emit(stack.first().copied(), stack.get(1).copied())?;
    Some(edited(stack, edit))
}

fn stack(tags: &[Option<Tag>]) -> Vec<Tag> {
    tags.iter().copied().flatten().collect()
}

#[test]
fn access_takes_untagged_frames_and_keeps_their_priority() {
    let mode = access();
    assert_eq!(inside(&mode, &[]), Some(vec![Tag::new(C, 10)]));
    assert_eq!(inside(&mode, &stack(&[tag(C, 0)])), Some(stack(&[tag(C, 10)])));
    for refused in [tag(C, 10), tag(C, 11), tag(S, 0), tag(S, 10), tag(LEGACY, 10)] {
        assert_eq!(mode.admit(refused), None, "{refused:?}");
    }
    assert_eq!(outside(&mode, &stack(&[tag(C, 10)])), Some(vec![]));
    assert_eq!(outside(&mode, &stack(&[tag(C, 10), tag(C, 0)])), Some(stack(&[tag(C, 0)])));
    for hidden in [tag(C, 10), tag(C, 20), tag(S, 0), tag(S, 100), tag(LEGACY, 0)] {
        assert_eq!(mode.emit(tag(C, 10), hidden), None, "{hidden:?} would be outermost outside");
    }
    for foreign in [None, tag(C, 11), tag(S, 10), tag(C, 0)] {
        assert_eq!(mode.emit(foreign, None), None, "{foreign:?}");
    }
}

#[test]
fn trunk_takes_its_vlans_and_untags_the_native_one() {
    let mode = trunk(Some(1));
    for number in [1, 10, 20, 30] {
        assert_eq!(mode.admit(tag(C, number)), Some(Edit::NONE), "{number}");
    }
    assert_eq!(inside(&mode, &[]), Some(vec![Tag::new(C, 1)]));
    assert_eq!(inside(&mode, &stack(&[tag(C, 0)])), Some(stack(&[tag(C, 1)])));
    for refused in [tag(C, 2), tag(C, 4095), tag(S, 10), tag(LEGACY, 10)] {
        assert_eq!(mode.admit(refused), None, "{refused:?}");
    }
    assert_eq!(outside(&mode, &stack(&[tag(C, 20)])), Some(stack(&[tag(C, 20)])));
    assert_eq!(outside(&mode, &stack(&[tag(C, 1)])), Some(vec![]));
    let hopping = stack(&[tag(C, 1), tag(C, 20)]);
    assert_eq!(outside(&mode, &hopping), Some(hopping), "it would be in VLAN 20 outside");
    assert_eq!((mode.emit(tag(C, 2), None), mode.emit(tag(S, 20), None)), (None, None));
    let without = trunk(None);
    assert_eq!((without.admit(None), without.admit(tag(C, 0))), (None, None));
}

#[test]
fn a_tunnel_takes_any_stack_and_copies_the_priority() {
    let mode = tunnel(None);
    assert_eq!(inside(&mode, &[]), Some(vec![Tag::new(S, 100)]));
    for customer in [tag(C, 0), tag(C, 10), tag(S, 10), tag(LEGACY, 7), tag(C, 4095)] {
        let wrapped = stack(&[tag(S, 100), customer]);
        assert_eq!(inside(&mode, &stack(&[customer])), Some(wrapped.clone()));
        assert_eq!(outside(&mode, &wrapped), Some(stack(&[customer])));
    }
    assert_eq!((mode.emit(tag(S, 101), None), mode.emit(tag(C, 100), None)), (None, None));
}

#[test]
fn a_tunnel_with_a_list_takes_only_those_c_vlans() {
    let mode = tunnel(Some(set(&[(10, 20)])));
    assert!(mode.admit(tag(C, 15)).is_some());
    for refused in [None, tag(C, 0), tag(C, 21), tag(S, 15)] {
        assert_eq!(mode.admit(refused), None, "{refused:?}");
        assert_eq!(mode.emit(tag(S, 100), refused), None, "{refused:?}");
    }
    assert_eq!(mode.emit(tag(S, 100), tag(C, 10)), Some(Edit::pop()));
}

#[test]
fn selective_maps_and_translates_both_ways() {
    let mode = selective(Some(400));
    for (customer, service, inner) in [(10, 100, 10), (25, 200, 25), (30, 300, 31)] {
        let wrapped = stack(&[tag(S, service), tag(C, inner)]);
        assert_eq!(inside(&mode, &stack(&[tag(C, customer)])), Some(wrapped.clone()));
        assert_eq!(outside(&mode, &wrapped), Some(stack(&[tag(C, customer)])));
    }
    assert_eq!(inside(&mode, &[]), Some(vec![Tag::new(S, 400)]));
    let priority = stack(&[tag(S, 400), tag(C, 0)]);
    assert_eq!(inside(&mode, &stack(&[tag(C, 0)])), Some(priority.clone()));
    assert_eq!(outside(&mode, &priority), Some(stack(&[tag(C, 0)])));
    assert_eq!(outside(&mode, &stack(&[tag(S, 400)])), Some(vec![]));
    for refused in [tag(C, 11), tag(C, 31), tag(S, 10), tag(LEGACY, 10)] {
        assert_eq!(mode.admit(refused), None, "{refused:?}");
    }
    for (outer, inner) in [(100, 11), (400, 10), (300, 30), (500, 10)] {
        assert_eq!(mode.emit(tag(S, outer), tag(C, inner)), None, "{outer} {inner}");
    }
    assert_eq!(mode.emit(tag(S, 100), None), None, "untagged frames have their own S-VLAN");
    assert_eq!(mode.emit(tag(S, 400), tag(S, 10)), None);
    assert_eq!(selective(None).admit(None), None);
}

#[test]
fn provider_speaks_the_neighbours_language() {
    for tpid in [S, C, LEGACY] {
        let mode = provider(tpid);
        for (theirs, ours) in [(100, 1100), (200, 200), (299, 299)] {
            let inner = tag(C, 5);
            let wire = stack(&[tag(tpid, theirs), inner]);
            assert_eq!(inside(&mode, &wire), Some(stack(&[tag(S, ours), inner])), "{tpid:?}");
            assert_eq!(outside(&mode, &stack(&[tag(S, ours), inner])), Some(wire));
        }
        for refused in [None, tag(tpid, 0), tag(tpid, 1100), tag(tpid, 300)] {
            assert_eq!(mode.admit(refused), None, "{tpid:?} {refused:?}");
        }
        for foreign in [None, tag(S, 100), tag(S, 300), tag(C, 200), tag(LEGACY, 200)] {
            assert_eq!(mode.emit(foreign, None), None, "{tpid:?} {foreign:?}");
        }
    }
    assert_eq!(provider(S).admit(tag(C, 200)), None, "another TPID");
}

#[test]
fn contradictions_of_a_provider_are_refused() {
    let pairs = |pairs: &[(u16, u16)]| {
        Translations::new(pairs.iter().map(|&(a, b)| (vid(a), vid(b))).collect())
    };
    assert!(pairs(&[(1, 2), (1, 3)]).unwrap_err().to_string().contains("1 is given twice outside"));
    assert!(pairs(&[(1, 3), (2, 3)]).unwrap_err().to_string().contains("3 is given twice inside"));
    let provider =
        |vlans, translations: &[(u16, u16)]| Provider::new(vlans, S, pairs(translations).unwrap());
    let listed = Some(set(&[(1, 2)]));
    assert_eq!(provider(listed.clone(), &[(3, 4)]), Err(ProviderError::NotListed(vid(3))));
    assert_eq!(provider(listed.clone(), &[(1, 2)]), Err(ProviderError::Shadowed(vid(2))));
    assert!(provider(listed, &[(1, 2), (2, 1)]).is_ok(), "exchanged");
    let all = provider(None, &[(1, 2)]).unwrap();
    assert!(all.vlans().contains(1) && !all.vlans().contains(2));
}

fn any_mode() -> impl Strategy<Value = PortMode> {
    let modes = [
        access(),
        trunk(None),
        trunk(Some(1)),
        tunnel(None),
        tunnel(Some(set(&[(1, 12)]))),
        selective(None),
        selective(Some(400)),
        provider(S),
        provider(C),
        provider(LEGACY),
    ];
    proptest::sample::select(modes.to_vec())
}

fn any_stack() -> impl Strategy<Value = Vec<Tag>> {
    let number = prop_oneof![0..40u16, 95..105u16, Just(200), Just(1100), Just(4095)];
    let tpid = prop_oneof![Just(C), Just(S), Just(LEGACY)];
    let tag =
        (tpid, number, 0..16u16).prop_map(|(tpid, number, top)| Tag::new(tpid, top << 12 | number));
    proptest::collection::vec(tag, 0..5)
}

proptest! {
    /// A frame that comes in and leaves by the same kind of port looks as it did. Exceptions: a
    /// priority tag is not restored, so the frame is untagged then, or tagged with the native VLAN.
    /// A frame with a tag behind a priority tag does not leave an access port.
    #[test]
    fn what_comes_in_goes_out_alike(mode in any_mode(), stack in any_stack()) {
        if let Some(inner) = inside(&mode, &stack) {
            let is_hidden = inner.get(1).is_some_and(|tag| tag.tpid() != C || tag.vid() != 0);
            if matches!(mode, PortMode::Access(_)) && is_hidden {
                prop_assert_eq!(outside(&mode, &inner), None);
                return Ok(());
            }
            let out = outside(&mode, &inner).expect("a member of the VLAN that it is in");
            let behind = stack.get(1..).unwrap_or_default();
            prop_assert!(out == stack || out == behind || out[1..] == *behind, "{out:?}");
        }
    }

    /// In the inner form the outermost tag is a C-tag or an S-tag with the VLAN.
    #[test]
    fn inside_there_are_c_tags_and_s_tags(mode in any_mode(), stack in any_stack()) {
        if let Some(inner) = inside(&mode, &stack) {
            prop_assert!(matches!(inner[0].tpid(), C | S) && Vid::new(inner[0].vid()).is_some());
        }
    }

    /// The edit of an egress is undone exactly, and never pushes.
    #[test]
    fn an_egress_is_undone(mode in any_mode(), stack in any_stack()) {
        let (outer, inner) = (stack.first().copied(), stack.get(1).copied());
        if let Some(edit) = mode.emit(outer, inner) {
            prop_assert_eq!(edit.push, None);
            prop_assert_eq!(edited(&edited(&stack, edit), edit.undo(outer, inner)), stack);
        }
    }
}
