//! The programs of device and driver for each of the four notification protocols.
//!
//! The driver makes buffers available one by one while the ring has room, and sleeps until one is
//! given back; the device gives back what it finds, and sleeps when it finds nothing. Whether the
//! device notifies is decided by the functions of the rings themselves; whether the driver does, by
//! a literal reading of the specification.

use super::super::packed::is_passed_by;
use super::super::passes;
use super::model::{Location, Model, Op, Registers};

/// How both sides ask for notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    SplitFlags,
    SplitIndex,
    PackedFlags,
    PackedPlaces,
}

pub(super) const KINDS: [Kind; 4] =
    [Kind::SplitFlags, Kind::SplitIndex, Kind::PackedFlags, Kind::PackedPlaces];

/// The position of one of the four fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    DevicePublishes,
    DeviceSleeps,
    DriverPublishes,
    DriverSleeps,
}

pub(super) const FENCES: [Fence; 4] =
    [Fence::DevicePublishes, Fence::DeviceSleeps, Fence::DriverPublishes, Fence::DriverSleeps];

/// The protocol of `kind`, with the fence `without` removed.
pub(super) fn protocol(kind: Kind, without: Option<Fence>) -> Model {
    let programs = [device(kind), driver(kind)].map(|program| program.assemble(without));
    let (first, memory) = match kind {
        // Counts that wrap around after the first buffer; an expired event index.
        Kind::SplitFlags => (0xffff, [0xffff, 0xffff, 1, 1, 0, 0]),
        Kind::SplitIndex => (0xffff, [0xffff, 0xffff, 0x8000, 0x8000, 0, 0]),
        // Two descriptors, of which the first was used in the first turn; no notifications are
        // wanted.
        Kind::PackedFlags | Kind::PackedPlaces => (0x8001, [used_flags(0x8000), 0, 1, 1, 0, 0]),
    };
    let mut registers = [[0; 6]; 2];
    for registers in &mut registers {
        (registers[HERE], registers[BEHIND]) = (first, first);
    }
    Model { programs, registers, memory }
}

/// A program with labels as jump targets, and with named fences.
#[derive(Default)]
struct Program {
    ops: Vec<Op>,
    fences: Vec<(usize, Fence)>,
    labels: Vec<(&'static str, usize)>,
    jumps: Vec<(usize, &'static str)>,
}

impl Program {
    fn label(&mut self, name: &'static str) {
        self.labels.push((name, self.ops.len()));
    }

    fn op(&mut self, op: Op) {
        self.ops.push(op);
    }

    fn load(&mut self, from: fn(&Registers) -> Location, to: usize, is_acquire: bool) {
        self.op(Op::Load { from, to, is_acquire });
    }

    fn store(
        &mut self,
        to: fn(&Registers) -> Location,
        value: fn(&Registers) -> u16,
        is_release: bool,
    ) {
        self.op(Op::Store { to, value, is_release });
    }

    fn fence(&mut self, fence: Fence) {
        self.fences.push((self.ops.len(), fence));
        self.op(Op::Fence);
    }

    fn jump(&mut self, when: fn(&Registers) -> bool, to: &'static str) {
        self.jumps.push((self.ops.len(), to));
        self.op(Op::Jump { when, to: usize::MAX });
    }

    fn assemble(mut self, without: Option<Fence>) -> Vec<Op> {
        for (at, name) in self.jumps {
            let to = self.labels.iter().find(|(label, _)| *label == name).unwrap().1;
            if let Op::Jump { to: place, .. } = &mut self.ops[at] {
                *place = to;
            }
        }
        for (at, fence) in self.fences {
            if Some(fence) == without {
                self.ops[at] = Op::Set(|_| ());
            }
        }
        self.ops
    }
}

/// The device: fetch, publish, arm and disarm of `SplitRing` and `PackedRing`.
fn device(kind: Kind) -> Program {
    let mut p = Program::default();
    let (available, is_new, take): (At, When, Change) = match kind {
        Kind::SplitFlags | Kind::SplitIndex => (
            |_| AVAILABLE,
            |r| r[VALUE] != r[HERE],
            |r| {
                r[COUNT] += r[VALUE].wrapping_sub(r[HERE]);
                (r[BEHIND], r[HERE]) = (r[HERE], r[VALUE]);
            },
        ),
        Kind::PackedFlags | Kind::PackedPlaces => (
            |r| slot(r[HERE]),
            |r| r[VALUE] == available_flags(r[HERE]),
            |r| {
                r[COUNT] += 1;
                (r[BEHIND], r[HERE]) = (r[HERE], next(r[HERE]));
            },
        ),
    };
    p.label("look");
    p.load(available, VALUE, true);
    p.jump(is_new, "take");
    p.arm(kind, DEVICE_WISH, |r| r[HERE]);
    p.fence(Fence::DeviceSleeps);
    p.load(available, VALUE, false);
    p.jump(is_new, "awake");
    p.op(Op::Sleep);
    p.label("awake");
    p.disarm(kind, DEVICE_WISH);
    p.jump(|_| true, "look");
    p.label("take");
    p.op(Op::Set(take));
    match kind {
        Kind::SplitFlags | Kind::SplitIndex => p.store(|_| USED, |r| r[HERE], true),
        _ => p.store(|r| slot(r[BEHIND]), |r| used_flags(r[BEHIND]), true),
    }
    p.fence(Fence::DevicePublishes);
    p.load(|_| DRIVER_WISH, WISH, false);
    p.jump(if kind == Kind::SplitIndex { |_| false } else { |r| r[WISH] == 1 }, "told");
    match kind {
        Kind::SplitIndex => p.jump(|r| !passes(r[WISH], r[BEHIND], r[HERE]), "told"),
        Kind::PackedPlaces => {
            p.load(|_| DRIVER_PLACE, WISH, false);
            p.jump(|r| !is_passed_by(r[WISH], [r[BEHIND], r[HERE]], SIZE), "told");
        }
        Kind::SplitFlags | Kind::PackedFlags => {}
    }
    p.op(Op::Notify);
    p.label("told");
    p.jump(|r| r[COUNT] < BUFFERS, "look");
    p
}

/// The driver, like Linux's, one buffer after the other: an event index is passed by the buffer at
/// that position.
fn driver(kind: Kind) -> Program {
    let mut p = Program::default();
    let (returned, is_back, take_back): (At, When, Change) = match kind {
        Kind::SplitFlags | Kind::SplitIndex => (
            |_| USED,
            |r| r[VALUE] != r[BEHIND],
            |r| {
                r[BACK] += r[VALUE].wrapping_sub(r[BEHIND]);
                r[BEHIND] = r[VALUE];
            },
        ),
        Kind::PackedFlags | Kind::PackedPlaces => (
            |r| slot(r[BEHIND]),
            |r| r[VALUE] == used_flags(r[BEHIND]),
            |r| {
                r[BACK] += 1;
                r[BEHIND] = next(r[BEHIND]);
            },
        ),
    };
    p.label("offer");
    p.jump(|r| r[COUNT] == BUFFERS || r[COUNT] - r[BACK] == SIZE, "wait");
    p.op(Op::Set(|r| r[COUNT] += 1));
    match kind {
        Kind::SplitFlags | Kind::SplitIndex => {
            p.store(|_| AVAILABLE, |r| r[HERE].wrapping_add(1), true);
        }
        _ => p.store(|r| slot(r[HERE]), |r| available_flags(r[HERE]), true),
    }
    p.fence(Fence::DriverPublishes);
    p.load(|_| DEVICE_WISH, WISH, false);
    p.jump(if kind == Kind::SplitIndex { |_| false } else { |r| r[WISH] == 1 }, "told");
    match kind {
        Kind::SplitIndex => p.jump(|r| r[WISH] != r[HERE], "told"),
        Kind::PackedPlaces => {
            p.load(|_| DEVICE_PLACE, WISH, false);
            p.jump(|r| r[WISH] != r[HERE], "told");
        }
        Kind::SplitFlags | Kind::PackedFlags => {}
    }
    p.op(Op::Notify);
    p.label("told");
    p.op(Op::Set(match kind {
        Kind::SplitFlags | Kind::SplitIndex => |r| r[HERE] = r[HERE].wrapping_add(1),
        _ => |r| r[HERE] = next(r[HERE]),
    }));
    p.jump(|_| true, "offer");
    p.label("wait");
    p.load(returned, VALUE, true);
    p.jump(is_back, "back");
    p.arm(kind, DRIVER_WISH, |r| r[BEHIND]);
    p.fence(Fence::DriverSleeps);
    p.load(returned, VALUE, false);
    p.jump(is_back, "awake");
    p.op(Op::Sleep);
    p.label("awake");
    p.disarm(kind, DRIVER_WISH);
    p.jump(|_| true, "wait");
    p.label("back");
    p.op(Op::Set(take_back));
    p.jump(|r| r[BACK] < BUFFERS, "offer");
    p
}

impl Program {
    /// Asks for a notification of the buffer at `place`.
    fn arm(&mut self, kind: Kind, wish: Location, place: fn(&Registers) -> u16) {
        let is_device = wish == DEVICE_WISH;
        let (at, place_at): (At, At) = match is_device {
            true => (|_| DEVICE_WISH, |_| DEVICE_PLACE),
            false => (|_| DRIVER_WISH, |_| DRIVER_PLACE),
        };
        match kind {
            Kind::SplitFlags | Kind::PackedFlags => self.store(at, |_| 0, false),
            Kind::SplitIndex => self.store(at, place, false),
            Kind::PackedPlaces => {
                self.store(place_at, place, false);
                self.store(at, |_| 2, true);
            }
        }
    }

    /// Asks for no notifications; an event index expires by itself.
    fn disarm(&mut self, kind: Kind, wish: Location) {
        let at: At = if wish == DEVICE_WISH { |_| DEVICE_WISH } else { |_| DRIVER_WISH };
        if kind != Kind::SplitIndex {
            self.store(at, |_| 1, false);
        }
    }
}

/// The position after this one, as bits.
fn next(place: u16) -> u16 {
    if place & 0x7fff == SIZE - 1 { (place & 0x8000) ^ 0x8000 } else { place + 1 }
}

fn slot(place: u16) -> Location {
    usize::from(place & 0x7fff)
}

/// Flags of a buffer that is available at a position: AVAIL equals its wrap counter, USED is the
/// inverse.
fn available_flags(place: u16) -> u16 {
    if place & 0x8000 != 0 { 0x0080 } else { 0x8000 }
}

/// Flags of a buffer that is used at a position: both equal its wrap counter.
fn used_flags(place: u16) -> u16 {
    if place & 0x8000 != 0 { 0x8080 } else { 0 }
}

type At = fn(&Registers) -> Location;
type When = fn(&Registers) -> bool;
type Change = fn(&mut Registers);

/// Buffers that pass through the ring, and its size.
const BUFFERS: u16 = 5;
const SIZE: u16 = 2;

/// Registers: position of the next buffer to take or offer; position of the last one, or of the
/// next one to be given back; the loaded value; number of buffers taken or offered; number given
/// back.
const HERE: usize = 0;
const BEHIND: usize = 1;
const VALUE: usize = 2;
const WISH: usize = 3;
const COUNT: usize = 4;
const BACK: usize = 5;

/// Locations of split rings. In packed rings, the first two are the flags of descriptors, and the
/// event indices are positions.
const AVAILABLE: Location = 0;
const USED: Location = 1;
const DEVICE_WISH: Location = 2;
const DRIVER_WISH: Location = 3;
const DEVICE_PLACE: Location = 4;
const DRIVER_PLACE: Location = 5;
