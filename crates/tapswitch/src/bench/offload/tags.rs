//! Tag operations on a train, each with its inverse.

use std::hint::black_box;

use tapswitch_wire::{EtherType, NetHeader, Tag, tags};

use super::candidate::{Candidate, Cell, Part};
use super::train::{Kind, Protocol, Train, Version};

/// All candidates.
pub(super) fn candidates() -> Vec<Candidate> {
    let s_tag = Tag::new(EtherType::SERVICE_VLAN, 300);
    let c_tag = Tag::new(EtherType::VLAN, 400);
    vec![
        candidate(0, "push and pop", move |frame| {
            let pushed = frame.push(s_tag);
            (pushed, frame.pop())
        }),
        candidate(2, "push and pop", move |frame| {
            let pushed = frame.push(s_tag);
            (pushed, frame.pop())
        }),
        candidate(2, "insert and remove the innermost", move |frame| frame.insert_remove(2, c_tag)),
        candidate(2, "set the outermost", move |frame| tags::set(frame.bytes(), 0, s_tag)),
        candidate(2, "translate the inner VID", |frame| tags::translate(frame.bytes(), 1, 77)),
    ]
}

fn candidate<T>(
    count: usize,
    way: &str,
    mut work: impl FnMut(&mut Frame) -> T + 'static,
) -> Candidate {
    let mut frame = Frame::new(count);
    let (subject, way) = (format!("{count} tags"), way.to_owned());
    let cell = Cell { part: Part::Tags, subject, way, units: 1, is_baseline: false };
    Candidate::new(cell, move || work(black_box(&mut frame)))
}

/// A train with headroom.
#[derive(Clone, Debug)]
struct Frame {
    buf: Vec<u8>,
    start: usize,
    meta: NetHeader,
}

impl Frame {
    fn new(count: usize) -> Self {
        let kind = Kind { protocol: Protocol::Tcp, version: Version::V4, tags: count };
        let Train { meta, bytes, .. } = kind.train(1000);
        Self { buf: [&[0; HEADROOM], &bytes[..]].concat(), start: HEADROOM, meta }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.buf[self.start..]
    }

    fn push(&mut self, tag: Tag) -> bool {
        tags::push(&mut self.buf, &mut self.start, &mut self.meta, tag)
    }

    fn pop(&mut self) -> Option<Tag> {
        tags::pop(&mut self.buf, &mut self.start, &mut self.meta)
    }

    fn insert_remove(&mut self, index: usize, tag: Tag) -> Option<Tag> {
        let (buf, start, meta) = (&mut self.buf, &mut self.start, &mut self.meta);
        let inserted = tags::insert(buf, start, meta, index, tag);
        inserted.then(|| tags::remove(buf, start, meta, index)).flatten()
    }
}

/// Headroom of the frame.
const HEADROOM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_undone() {
        let before = Frame::new(2);
        let mut frame = before.clone();
        let tag = Tag::new(EtherType::SERVICE_VLAN, 300);
        assert!(frame.push(tag));
        assert_eq!(frame.pop(), Some(tag));
        assert_eq!(frame.insert_remove(2, tag), Some(tag));
        assert_eq!(frame.meta, before.meta);
        assert_eq!(frame.bytes(), before.clone().bytes());
    }
}
