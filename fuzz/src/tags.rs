//! Target `tags`: operations on a stack of tags do the same as on a list of them.

use tapswitch_wire::{EtherType, NetHeader, NetHeaderFlags, Tag, tags};

/// Applies operations to the frame at the end of `data`, which has: headroom, number of operations,
/// 4 bytes for each, the frame.
pub fn tags(data: &[u8]) {
    let Some((&[headroom, steps], rest)) = data.split_first_chunk() else {
        return;
    };
    let steps_len = (usize::from(steps) * STEP_LEN).min(rest.len() / STEP_LEN * STEP_LEN);
    let (steps, frame) = rest.split_at(steps_len);
    let mut stack = Stack::new(frame, usize::from(headroom));
    for step in steps.chunks_exact(STEP_LEN) {
        stack.step(step);
    }
    let link = stack.model.iter().flat_map(|tag| [tag.tpid, tag.tci]).flatten();
    let expected: Vec<u8> = stack.addresses.iter().copied().chain(link).collect();
    let frame = &stack.buf[stack.start..];
    assert!(frame.starts_with(&expected));
    assert_eq!(frame[expected.len()..], *stack.behind);
}

/// A frame and its expected tags.
struct Stack<'a> {
    buf: Vec<u8>,
    start: usize,
    meta: NetHeader,
    addresses: &'a [u8],
    model: Vec<Tag>,
    behind: &'a [u8],
}

impl<'a> Stack<'a> {
    fn new(frame: &'a [u8], headroom: usize) -> Self {
        let model: Vec<Tag> = (0..).map_while(|index| tags::get(frame, index)).collect();
        let count = model.len();
        let (addresses, rest) = frame.split_at(frame.len().min(12));
        let meta = NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            csum_start: CSUM_START,
            ..NetHeader::PLAIN
        };
        Self {
            buf: [&vec![0xee; headroom], frame].concat(),
            start: headroom,
            meta,
            addresses,
            model,
            behind: &rest[4 * count..],
        }
    }

    /// One operation: kind, TPID and position, and a TCI.
    fn step(&mut self, step: &[u8]) {
        let &[what, place, c0, c1] = step else { return };
        let tpids = [EtherType::VLAN, EtherType::SERVICE_VLAN, EtherType::LEGACY_SERVICE_VLAN];
        let tag = Tag::new(tpids[usize::from(place) % 3], u16::from_be_bytes([c0, c1]));
        let at = usize::from(place / 3);
        let before = (self.buf.clone(), self.start, self.meta);
        if !self.apply(what, at, tag) {
            let now = (&self.buf, self.start, self.meta);
            assert_eq!(now, (&before.0, before.1, before.2), "what fails changes nothing");
        }
        let moved = usize::from(self.meta.csum_start) + self.start;
        assert_eq!(moved, usize::from(before.2.csum_start) + before.1, "offsets move along");
        let count = tags::count(&self.buf[self.start..]);
        assert_eq!(count, self.model.len().min(tags::MAX_TAGS));
    }

    fn apply(&mut self, what: u8, at: usize, tag: Tag) -> bool {
        let Self { buf, start, meta, model, .. } = self;
        let is_frame = buf.len() - *start >= 14;
        let has_room = *start >= 4 && is_frame;
        let old = if is_frame { model.get(at).copied() } else { None };
        let done = match what % 6 {
            0 => Some(tags::push(buf, start, meta, tag)).filter(|done| *done).map(|_| tag),
            1 => tags::pop(buf, start, meta),
            2 => Some(tags::insert(buf, start, meta, at, tag)).filter(|done| *done).map(|_| tag),
            3 => tags::remove(buf, start, meta, at),
            4 => tags::set(&mut buf[*start..], at, tag),
            _ => tags::translate(&mut buf[*start..], at, tag.vid()),
        };
        let expected = match what % 6 {
            0 => has_room.then(|| model.insert(0, tag)).map(|()| tag),
            1 => (!model.is_empty()).then(|| model.remove(0)),
            2 => (has_room && at <= model.len()).then(|| model.insert(at, tag)).map(|()| tag),
            3 => old.map(|_| model.remove(at)),
            4 => old.inspect(|_| model[at] = tag),
            _ => old.inspect(|old| model[at] = tags::with_vid(*old, tag.vid())),
        };
        assert_eq!(done, expected);
        done.is_some()
    }
}

/// Bytes of an operation.
const STEP_LEN: usize = 4;
/// Behind all tags that fit the headroom and the seeds.
const CSUM_START: u16 = 10_000;
