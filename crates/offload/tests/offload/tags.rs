//! Tag operations compared with a simple model: a list of tags.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on lengths that they chose"
)]

use crate::common::{C_TAG, LEGACY_TAG, S_TAG, Train, cut, trains};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tapswitch_offload::tags::{self, Offsets};
use tapswitch_wire::{EtherType, LongNetHeader, NetHeader, Tag, parse};

proptest! {
    #[test]
    fn any_sequence_does_what_it_does_to_a_list(
        train in trains(),
        headroom in 0usize..64,
        steps in vec(steps(), 0..40),
    ) {
        let mut stack = Stack::new(&train, headroom);
        let mut model: Vec<Tag> = train.tags.iter().copied().map(tag).collect();
        for step in &steps {
            let room = stack.start / 4;
            let done = stack.apply(step, model.len());
            prop_assert_eq!(done, apply_to_list(step, &mut model, room));
            stack.check(&model);
        }
        let mut expected = train;
        expected.tags = model.iter().map(|tag| u32::from_be_bytes(bytes(*tag))).collect();
        prop_assert_eq!(stack.frame(), expected.frame());
        prop_assert_eq!(stack.meta.base, expected.meta());
        // A train with changed tags is segmented like one built with them.
        let ours = cut(&stack.meta.base, stack.frame(), &[]).unwrap();
        prop_assert_eq!(ours, cut(&expected.meta(), &expected.frame(), &[]).unwrap());
    }

    #[test]
    fn a_pop_undoes_a_push_and_a_removal_an_insertion(
        train in trains(),
        new in any_tag(),
        index in any::<Index>(),
    ) {
        let before = Stack::new(&train, 4);
        let mut stack = before.clone();
        prop_assert!(tags::push(&mut stack.buf, &mut stack.start, &mut stack.meta, new));
        let popped = tags::pop(&mut stack.buf, &mut stack.start, &mut stack.meta);
        prop_assert_eq!(popped, Some(new));
        prop_assert_eq!((stack.frame(), stack.meta), (before.frame(), before.meta));
        let at = index.index(train.tags.len() + 1);
        prop_assert!(tags::insert(&mut stack.buf, &mut stack.start, &mut stack.meta, at, new));
        let removed = tags::remove(&mut stack.buf, &mut stack.start, &mut stack.meta, at);
        prop_assert_eq!(removed, Some(new));
        prop_assert_eq!((stack.frame(), stack.meta), (before.frame(), before.meta));
    }

    #[test]
    fn no_bytes_make_it_panic_or_touch_what_is_behind(
        bytes in vec(any::<u8>(), 0..80),
        start in 0usize..100,
        steps in vec(steps(), 0..20),
    ) {
        let mut stack = Stack { buf: bytes, start, meta: LongNetHeader::default() };
        for step in &steps {
            let before = stack.clone();
            let stack_len = (0..).take_while(|at| tags::get(before.frame(), *at).is_some()).count();
            if !stack.apply(step, stack_len) {
                prop_assert_eq!(&stack, &before, "what fails changes nothing");
            }
            prop_assert!(stack.start <= start.max(stack.buf.len()));
            let link_len = (12 + 4 * stack_len).min(before.frame().len());
            let rest = &before.frame()[link_len..];
            prop_assert!(stack.buf.ends_with(rest), "nothing behind the tags moves");
        }
    }
}

/// Operations on a stack.
#[derive(Clone, Debug)]
enum Step {
    Push(Tag),
    Pop,
    Insert(Index, Tag),
    Remove(Index),
    Set(Index, Tag),
    Translate(Index, u16),
}

/// A frame with headroom.
#[derive(Clone, Debug, PartialEq)]
struct Stack {
    buf: Vec<u8>,
    start: usize,
    meta: LongNetHeader,
}

impl Stack {
    fn new(train: &Train, headroom: usize) -> Self {
        let buf = [vec![0xee; headroom], train.frame()].concat();
        let meta = LongNetHeader { base: train.meta(), ..LongNetHeader::default() };
        Self { buf, start: headroom, meta }
    }

    fn frame(&self) -> &[u8] {
        self.buf.get(self.start..).unwrap_or_default()
    }

    /// Applies `step` to a stack of `len` tags; also to one beyond the last.
    fn apply(&mut self, step: &Step, len: usize) -> bool {
        let Self { buf, start, meta } = self;
        let from = (*start).min(buf.len());
        match step {
            Step::Push(tag) => tags::push(buf, start, meta, *tag),
            Step::Pop => tags::pop(buf, start, meta).is_some(),
            Step::Insert(at, tag) => tags::insert(buf, start, meta, at.index(len + 2), *tag),
            Step::Remove(at) => tags::remove(buf, start, meta, at.index(len + 1)).is_some(),
            Step::Set(at, tag) => tags::set(&mut buf[from..], at.index(len + 1), *tag).is_some(),
            Step::Translate(at, vid) => {
                tags::translate(&mut buf[from..], at.index(len + 1), *vid).is_some()
            }
        }
    }

    fn check(&self, model: &[Tag]) {
        let parsed = parse(self.frame()).unwrap();
        assert_eq!(tags::count(self.frame()), model.len());
        assert_eq!(usize::from(parsed.layout.tags), model.len());
        for (index, tag) in model.iter().enumerate() {
            assert_eq!(tags::get(self.frame(), index), Some(*tag));
        }
        if self.meta.base.needs_checksum() {
            assert_eq!(Some(self.meta.base.csum_start), parsed.layout.transport);
        }
    }
}

/// Applies `step` to a list, with headroom for `room` more tags. False if it has no effect.
fn apply_to_list(step: &Step, list: &mut Vec<Tag>, room: usize) -> bool {
    let len = list.len();
    match step {
        Step::Push(_) | Step::Insert(..) if room == 0 => return false,
        Step::Push(tag) => list.insert(0, *tag),
        Step::Pop if len > 0 => drop(list.remove(0)),
        Step::Insert(at, tag) if at.index(len + 2) <= len => list.insert(at.index(len + 2), *tag),
        Step::Remove(at) if at.index(len + 1) < len => drop(list.remove(at.index(len + 1))),
        Step::Set(at, tag) if at.index(len + 1) < len => list[at.index(len + 1)] = *tag,
        Step::Translate(at, vid) if at.index(len + 1) < len => {
            let old = list[at.index(len + 1)];
            let tci = old.tci() & 0xf000 | vid & 0x0fff;
            list[at.index(len + 1)] = Tag::new(old.tpid(), tci);
        }
        _ => return false,
    }
    true
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any_tag().prop_map(Step::Push),
        2 => Just(Step::Pop),
        2 => (any::<Index>(), any_tag()).prop_map(|(at, tag)| Step::Insert(at, tag)),
        2 => any::<Index>().prop_map(Step::Remove),
        1 => (any::<Index>(), any_tag()).prop_map(|(at, tag)| Step::Set(at, tag)),
        1 => (any::<Index>(), any::<u16>()).prop_map(|(at, vid)| Step::Translate(at, vid)),
    ]
}

fn any_tag() -> impl Strategy<Value = Tag> {
    let tpids = select(&[C_TAG, S_TAG, LEGACY_TAG][..]).prop_map(|word| tag(word).tpid());
    (tpids, any::<u16>()).prop_map(|(tpid, tci)| Tag::new(tpid, tci))
}

fn tag(word: u32) -> Tag {
    Tag::new(EtherType((word >> 16) as u16), word as u16)
}

fn bytes(tag: Tag) -> [u8; 4] {
    let ([t0, t1], [c0, c1]) = (tag.tpid, tag.tci);
    [t0, t1, c0, c1]
}

#[test]
fn metadata_without_offsets_stays() {
    let mut plain = NetHeader::PLAIN;
    Offsets::shift(&mut plain, 4);
    assert_eq!(plain, NetHeader::PLAIN);
}
