//! All runs of two small programs on weak memory.
//!
//! **Memory** is that of C11 for relaxed, release and acquire accesses and SC fences, told by
//! views: each location has all of its stores in order, each thread knows how far it has seen each
//! location, and may load any store that is not older. So a store may be seen late (what a store
//! buffer does), stores may be seen in another order (what weaker machines do, unless the later one
//! is a release), and loads may go back in time as far as nothing forbids it. A fence takes over
//! all that whoever passed a fence before knew. What the model leaves out are loads that see stores
//! which come later in the program of the same thread.
//!
//! **Sleeping.** Notifications are system calls: whoever is woken knows what the waker knew.
//!
//! All states are visited once. A state in which nobody can go on, and somebody has not finished,
//! is a lost wake-up.

use std::collections::HashSet;

/// What a thread remembers.
pub(crate) type Registers = [u16; 6];
pub(crate) type Location = usize;
/// How far each location was seen.
type View = [u8; LOCATIONS];

/// One step of a program.
#[derive(Clone)]
pub(crate) enum Op {
    Load {
        from: fn(&Registers) -> Location,
        to: usize,
        is_acquire: bool,
    },
    Store {
        to: fn(&Registers) -> Location,
        value: fn(&Registers) -> u16,
        is_release: bool,
    },
    /// Loads the last store and puts another one behind it, by acquire and release.
    Exchange {
        at: fn(&Registers) -> Location,
        to: usize,
        value: fn(&Registers) -> u16,
    },
    Fence,
    /// Wakes the other thread, or has it not sleep the next time.
    Notify,
    Sleep,
    /// Computes; not a step of its own.
    Set(fn(&mut Registers)),
    /// Goes on elsewhere when something holds; not a step of its own.
    Jump {
        when: fn(&Registers) -> bool,
        to: usize,
    },
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Thread {
    at: usize,
    registers: Registers,
    /// What it knows; what it would know after a fence; what it knew at the last one.
    now: View,
    after_fence: View,
    at_fence: View,
    /// It was notified, and by whom that knew what.
    notified: Option<View>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    threads: [Thread; 2],
    /// Each location's stores: a value, and what is known by whoever loads it by acquire.
    stores: Vec<Vec<(u16, View)>>,
    /// What all fences so far knew.
    fences: View,
}

/// Both programs.
pub(crate) struct Model {
    pub(crate) programs: [Vec<Op>; 2],
    pub(crate) registers: [Registers; 2],
    /// Locations' first values.
    pub(crate) memory: [u16; LOCATIONS],
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) states: usize,
    /// The program counters of both when neither could go on, if that was ever so.
    pub(crate) stuck: Option<[usize; 2]>,
    /// Somebody slept and was woken.
    pub(crate) slept: bool,
}

impl Model {
    /// Visits all states, or those until one is stuck.
    pub(crate) fn explore(&self) -> Outcome {
        let stores = self.memory.iter().map(|value| vec![(*value, [0; LOCATIONS])]).collect();
        let thread = |registers| Thread {
            at: 0,
            registers,
            now: [0; LOCATIONS],
            after_fence: [0; LOCATIONS],
            at_fence: [0; LOCATIONS],
            notified: None,
        };
        let threads = self.registers.map(thread);
        let mut first = State { threads, stores, fences: [0; LOCATIONS] };
        (0..2).for_each(|thread| self.compute(&mut first, thread));
        let (mut seen, mut open) = (HashSet::new(), vec![first]);
        let mut outcome = Outcome { states: 0, stuck: None, slept: false };
        while let Some(state) = open.pop() {
            if !seen.insert(state.clone()) {
                continue;
            }
            assert!(seen.len() < STATES_MAX, "more states than can be visited");
            let before = open.len();
            (0..2).for_each(|thread| self.step(&state, thread, &mut open, &mut outcome));
            if open.len() == before && !(0..2).all(|thread| self.is_finished(&state, thread)) {
                outcome.stuck = Some([state.threads[0].at, state.threads[1].at]);
                break;
            }
        }
        outcome.states = seen.len();
        outcome
    }

    fn is_finished(&self, state: &State, thread: usize) -> bool {
        state.threads[thread].at >= self.programs[thread].len()
    }

    /// Adds all states that one step of a thread leads to.
    fn step(&self, state: &State, thread: usize, open: &mut Vec<State>, outcome: &mut Outcome) {
        let mine = &state.threads[thread];
        match self.programs[thread].get(mine.at) {
            Some(&Op::Load { from, to, is_acquire }) => {
                let location = from(&mine.registers);
                for seen in usize::from(mine.now[location])..state.stores[location].len() {
                    let mut next = state.clone();
                    next.load(thread, location, seen, to, is_acquire);
                    self.go_on(next, thread, open);
                }
            }
            Some(&Op::Store { to, value, is_release }) => {
                let mut next = state.clone();
                let (to, value) = (to(&mine.registers), value(&mine.registers));
                next.store(thread, to, value, is_release);
                self.go_on(next, thread, open);
            }
            Some(&Op::Exchange { at, to, value }) => {
                let mut next = state.clone();
                let (at, value) = (at(&mine.registers), value(&mine.registers));
                next.exchange(thread, at, to, value);
                self.go_on(next, thread, open);
            }
            Some(Op::Fence) => {
                let mut next = state.clone();
                next.fence(thread);
                self.go_on(next, thread, open);
            }
            Some(Op::Notify) => {
                let (mut next, knows) = (state.clone(), mine.now);
                let other = &mut next.threads[1 - thread].notified;
                *other = Some(other.map_or(knows, |known| join(known, knows)));
                self.go_on(next, thread, open);
            }
            Some(Op::Sleep) => {
                if let Some(known) = mine.notified {
                    outcome.slept = true;
                    let mut next = state.clone();
                    next.threads[thread].notified = None;
                    next.threads[thread].now = join(mine.now, known);
                    self.go_on(next, thread, open);
                }
            }
            // What is computed was computed with the step before.
            Some(Op::Set(_) | Op::Jump { .. }) | None => {}
        }
    }

    fn go_on(&self, mut next: State, thread: usize, open: &mut Vec<State>) {
        next.threads[thread].at += 1;
        self.compute(&mut next, thread);
        next.forget();
        open.push(next);
    }

    /// Does what is no step of its own.
    fn compute(&self, state: &mut State, thread: usize) {
        let mine = &mut state.threads[thread];
        loop {
            match self.programs[thread].get(mine.at) {
                Some(Op::Set(set)) => set(&mut mine.registers),
                Some(Op::Jump { when, to }) if when(&mine.registers) => {
                    mine.at = *to;
                    continue;
                }
                Some(Op::Jump { .. }) => {}
                _ => return,
            }
            mine.at += 1;
        }
    }
}

impl State {
    /// Forgets stores that nobody can load any more: states that differ in nothing else are one.
    fn forget(&mut self) {
        let [a, b] = &self.threads;
        let gone: View = std::array::from_fn(|location| a.now[location].min(b.now[location]));
        if gone == [0; LOCATIONS] {
            return;
        }
        let move_back = |view: &mut View| {
            view.iter_mut().zip(gone).for_each(|(seen, gone)| *seen = seen.saturating_sub(gone));
        };
        for (stores, gone) in self.stores.iter_mut().zip(gone) {
            stores.drain(..usize::from(gone));
            stores.iter_mut().for_each(|(_, known)| move_back(known));
        }
        for Thread { now, after_fence, at_fence, notified, .. } in &mut self.threads {
            [now, after_fence, at_fence].into_iter().chain(notified).for_each(move_back);
        }
        move_back(&mut self.fences);
    }

    fn load(&mut self, thread: usize, location: Location, at: usize, to: usize, acquire: bool) {
        let (value, known) = self.stores[location][at];
        let mine = &mut self.threads[thread];
        mine.now[location] = u8::try_from(at).unwrap();
        mine.after_fence = join(mine.after_fence, known);
        if acquire {
            mine.now = join(mine.now, known);
        }
        mine.registers[to] = value;
    }

    fn store(&mut self, thread: usize, location: Location, value: u16, release: bool) {
        let at = u8::try_from(self.stores[location].len()).unwrap();
        let mine = &mut self.threads[thread];
        mine.now[location] = at;
        let mut known = if release { mine.now } else { mine.at_fence };
        known[location] = at;
        self.stores[location].push((value, known));
    }

    fn exchange(&mut self, thread: usize, location: Location, to: usize, value: u16) {
        let last = self.stores[location].len() - 1;
        let known = self.stores[location][last].1;
        self.load(thread, location, last, to, true);
        self.store(thread, location, value, true);
        // Whoever sees this one knows also what the one before it told.
        let told = &mut self.stores[location][last + 1].1;
        *told = join(*told, known);
    }

    fn fence(&mut self, thread: usize) {
        let mine = &mut self.threads[thread];
        mine.now = join(join(mine.now, mine.after_fence), self.fences);
        mine.at_fence = mine.now;
        self.fences = mine.now;
    }
}

fn join(a: View, b: View) -> View {
    std::array::from_fn(|location| a[location].max(b[location]))
}

/// Locations that a program may use.
pub(crate) const LOCATIONS: usize = 6;
const STATES_MAX: usize = 3_000_000;
