//! A model checker for two small programs on weak memory.
//!
//! **Memory** is that of C11 for relaxed, release and acquire accesses and SC fences, modelled by
//! views: the stores to a location are totally ordered, each thread has a view of how far it has
//! seen each location, and a load may return any store that is not older. So a store may be seen
//! late (a store buffer), stores may be seen in another order (weaker machines, unless the later
//! store is a release), and loads may return old values as far as nothing forbids it. A fence adds
//! the views of all earlier fences. The model does not include loads that see stores which come
//! later in the program of the same thread.
//!
//! **Sleeping.** Notifications are system calls: a woken thread gets the view of its waker.
//!
//! Every state is visited once. A state in which no thread can proceed, and one has not finished,
//! is a lost wake-up.

use std::collections::HashSet;

/// The registers of a thread.
pub(crate) type Registers = [u16; 6];
pub(crate) type Location = usize;
/// How far each location has been seen.
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
    /// Loads the last store and appends another one, with acquire and release semantics.
    Exchange {
        at: fn(&Registers) -> Location,
        to: usize,
        value: fn(&Registers) -> u16,
    },
    Fence,
    /// Wakes the other thread, or prevents its next sleep.
    Notify,
    Sleep,
    /// Computes; not a separate step.
    Set(fn(&mut Registers)),
    /// Jumps if a condition holds; not a separate step.
    Jump {
        when: fn(&Registers) -> bool,
        to: usize,
    },
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Thread {
    at: usize,
    registers: Registers,
    /// The current view; the view after a fence; the view at the last fence.
    now: View,
    after_fence: View,
    at_fence: View,
    /// The view of the thread that has notified this one, if any.
    notified: Option<View>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    threads: [Thread; 2],
    /// The stores of each location: the value, and the view that an acquiring load obtains.
    stores: Vec<Vec<(u16, View)>>,
    /// The views of all fences so far.
    fences: View,
}

/// Two programs and their initial state.
pub(crate) struct Model {
    pub(crate) programs: [Vec<Op>; 2],
    pub(crate) registers: [Registers; 2],
    /// Initial values of the locations.
    pub(crate) memory: [u16; LOCATIONS],
}

/// The result of an exploration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) states: usize,
    /// Both program counters in a state in which neither thread could proceed, if there was one.
    pub(crate) stuck: Option<[usize; 2]>,
    /// A thread slept and was woken.
    pub(crate) slept: bool,
}

impl Model {
    /// Visits all states, or stops at the first that is stuck.
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
            // Computations were done with the step before.
            Some(Op::Set(_) | Op::Jump { .. }) | None => {}
        }
    }

    fn go_on(&self, mut next: State, thread: usize, open: &mut Vec<State>) {
        next.threads[thread].at += 1;
        self.compute(&mut next, thread);
        next.forget();
        open.push(next);
    }

    /// Executes instructions that are not separate steps.
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
    /// Removes stores that no thread can load any more, so that states that differ only in these
    /// are merged.
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
        // A thread that sees this store also obtains the view of the one before.
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

/// Number of locations that a program may use.
pub(crate) const LOCATIONS: usize = 6;
const STATES_MAX: usize = 3_000_000;
