//! The cores that workers may stay on.

use std::sync::OnceLock;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores that the kernel's masks have room for.
pub const CORE_COUNT_MAX: usize = CpuSet::MAX_CPU;

/// The numbers of the cores that a thread of this process can be kept on: those that are there, and
/// that its control group leaves it. None when the kernel does not tell.
pub fn usable_cores() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    // The mask of a thread that has its own: what it inherits may be less than it can have.
    CORES.get_or_init(|| thread::spawn(ask).join().unwrap_or_default())
}

/// Asks for all cores, of which the kernel gives those that can be had (sched_setaffinity(2)).
fn ask() -> Vec<usize> {
    let mut all = CpuSet::new();
    (0..CORE_COUNT_MAX).for_each(|core| all.set(core));
    let given = sched_setaffinity(None, &all).and_then(|()| sched_getaffinity(None));
    let cores = given.map(|set| (0..CORE_COUNT_MAX).filter(|core| set.is_set(*core)).collect());
    cores.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cores_of_this_thread_are_among_them() {
        let (own, usable) = (sched_getaffinity(None).unwrap(), usable_cores());
        assert!(
            !usable.is_empty()
                && (0..CORE_COUNT_MAX).all(|core| { !own.is_set(core) || usable.contains(&core) })
        );
    }
}
