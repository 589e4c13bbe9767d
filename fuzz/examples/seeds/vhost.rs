//! Rings of well-behaved drivers, and messages of a well-behaved VMM.

/// A target, a name, an input.
pub(crate) type Input = (&'static str, &'static str, Vec<u8>);

/// Seeds of `virtqueue`, `guest_frames` and `vhost_user`.
pub(crate) fn inputs() -> Vec<Input> {
    let mut all = vec![
        ("vhost_user", "session", session(false)),
        ("vhost_user", "session_packed", session(true)),
        ("vhost_user", "memory_by_regions", memory_by_regions()),
    ];
    for (name, choices, descriptors) in [
        ("split", 0, split(0)),
        ("split_tables", 6, split_tables(0)),
        ("split_receive", 10, split(WRITE)),
        ("packed", 1, packed(0)),
        ("packed_tables", 7, packed_tables(0)),
        ("packed_receive", 9, packed(WRITE)),
    ] {
        // Eight descriptors; fetch, complete, undo, publish, sleep, poll, and start again.
        let operations = [0x20, 0x51, 0x09, 0x02, 0x03, 0x04, 0x05, 0x07, 0x40, 0x21, 0x0f, 0x40];
        let size = if choices & 1 == 0 { 3 } else { 7 };
        let head = [choices, size, operations.len() as u8];
        all.push(("virtqueue", name, [&head[..], &operations, &descriptors].concat()));
    }
    for (name, choices, from, to) in [
        ("split_to_split", [3, 3], split(0), split(WRITE)),
        ("split_to_packed", [11, 15], split_tables(0), packed_tables(WRITE)),
        ("packed_to_split", [7, 1], packed(0), split(WRITE)),
        ("legacy", [0, 0], split(0), split(WRITE)),
    ] {
        let operations = [0x10, 0x01, 0x02, 0x03, 0x00, 0x0d, 9, 9, 0x10, 0x01];
        let [from_choices, to_choices] = choices;
        let head = [from_choices, to_choices, 3, 3, operations.len() as u8];
        // Both images have the length of the longer one.
        let len = from.len().max(to.len());
        let images = [from, to].map(|mut image| {
            image.resize(len, 0);
            image
        });
        all.push(("guest_frames", name, [&head[..], &operations, &images.concat()].concat()));
    }
    all
}

/// A descriptor with its address as an offset, in the format that `fuzz/src/guest.rs` reads.
fn descriptor(offset: u64, len: u32, third: u16, fourth: u16) -> Vec<u8> {
    let words = [third, fourth].map(u16::to_le_bytes).concat();
    [&(offset + 8).to_le_bytes()[..], &len.to_le_bytes(), &words].concat()
}

/// The available ring: four heads, two of which start chains of two.
fn available(heads: &[u16]) -> Vec<u8> {
    let words = [&[0, heads.len() as u16], heads].concat();
    words.into_iter().flat_map(u16::to_le_bytes).collect()
}

fn split(write: u16) -> Vec<u8> {
    let chain = |slot: u16| (write | if slot.is_multiple_of(2) { NEXT } else { 0 }, slot + 1);
    let slots = (0..8).map(|slot| (slot, chain(slot)));
    let descriptors = slots
        .map(|(slot, (flags, next))| descriptor(0x1000 + 0x100 * u64::from(slot), 90, flags, next));
    let mut image = descriptors.collect::<Vec<_>>().concat();
    image.resize(DRIVER, 0);
    image.extend(available(&[0, 2, 5, 7]));
    image
}

fn split_tables(write: u16) -> Vec<u8> {
    let told = (0..4).map(|slot| descriptor(0x100 + 0x20 * slot, 32, INDIRECT, 0));
    let mut image = told.collect::<Vec<_>>().concat();
    image.resize(0x100, 0);
    for slot in 0..4 {
        image.extend(descriptor(0x1000 + 0x100 * slot, 12, NEXT | write, 1));
        image.extend(descriptor(0x1100 + 0x100 * slot, 90, write, 0));
    }
    image.resize(DRIVER, 0);
    image.extend(available(&[0, 1, 2, 3]));
    image
}

fn packed(write: u16) -> Vec<u8> {
    let chain = |slot: u16| write | AVAIL | if slot.is_multiple_of(3) { NEXT } else { 0 };
    let slots = (0..7u16).map(|slot| (slot, chain(slot)));
    let descriptors =
        slots.map(|(slot, flags)| descriptor(0x1000 + 0x100 * u64::from(slot), 90, slot, flags));
    descriptors.collect::<Vec<_>>().concat()
}

fn packed_tables(write: u16) -> Vec<u8> {
    let told =
        (0..4).map(|slot| descriptor(0x100 + 0x20 * slot, 32, slot as u16, INDIRECT | AVAIL));
    let mut image = told.collect::<Vec<_>>().concat();
    image.resize(0x100, 0);
    for slot in 0..4 {
        image.extend(descriptor(0x1000 + 0x100 * slot, 12, 0, write));
        image.extend(descriptor(0x1100 + 0x100 * slot, 90, 0, write));
    }
    image
}

/// A message in the format that `fuzz/src/vhost_user.rs` reads.
fn message(request: u8, fds: u8, payload: &[u8]) -> Vec<u8> {
    [&[request, 1, fds, payload.len() as u8], payload].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Features, memory, two queues started, one of them stopped again.
fn session(is_packed: bool) -> Vec<u8> {
    let features = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 1 << 15 | u64::from(is_packed) << 34;
    let mut messages = vec![
        message(3, 0, &[]),
        message(1, 0, &[]),
        message(15, 0, &[]),
        message(16, 0, &words(&[0xf3ff])),
        message(2, 0, &words(&[features])),
        message(17, 0, &[]),
        message(36, 0, &[]),
        message(5, MEMORY | 1, &words(&[1, BASE, LEN, 2 * BASE, 0])),
    ];
    let base = if is_packed { 0x8000_8000 } else { 0 };
    for index in 0..2 {
        let place = [2 * BASE, 2 * BASE + 0x600, 2 * BASE + DRIVER as u64, 0];
        messages.extend([
            message(8, 0, &words(&[index | 8 << 32])),
            message(10, 0, &words(&[index | base << 32])),
            message(9, 0, &[words(&[index]), words(&place)].concat()),
            message(13, EVENT | 1, &words(&[index])),
            message(12, EVENT | 1, &words(&[index])),
            message(14, EVENT | 1, &words(&[index])),
            message(18, 0, &words(&[index | 1 << 32])),
        ]);
    }
    messages.push(message(11, 0, &words(&[1])));
    messages.push(message(34, 0, &[]));
    messages.concat()
}

fn memory_by_regions() -> Vec<u8> {
    let region = words(&[0, BASE, LEN, 2 * BASE, 0]);
    let other = words(&[0, 4 * BASE, 0x1000, 4 * BASE, 0x1000]);
    let messages = [
        message(1, 0, &[]),
        message(15, 0, &[]),
        message(16, 0, &words(&[0xf3ff])),
        message(2, 0, &words(&[1 << 32])),
        message(37, MEMORY | 1, &region),
        message(37, MEMORY | 1, &other),
        message(38, 0, &region),
        message(5, MEMORY | 2, &words(&[2, BASE, LEN, 2 * BASE, 0, 0, 1, 0, 0])),
    ];
    messages.concat()
}

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
/// The same as in `fuzz/src/guest.rs`.
const BASE: u64 = 0x10_0000;
const LEN: u64 = 0x4000;
const DRIVER: usize = 0x300;
/// Kinds of descriptors, as in `fuzz/src/vhost_user.rs`.
const MEMORY: u8 = 0;
const EVENT: u8 = 0x80;
