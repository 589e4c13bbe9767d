//! The cores to which workers can be pinned.

use std::sync::OnceLock;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Number of cores in a kernel CPU mask.
pub const CORE_COUNT_MAX: usize = CpuSet::MAX_CPU;

/// The numbers of the cores to which threads of this process can be pinned: those that exist and
/// that the cpuset allows. Empty if the kernel does not report them.
pub fn usable_cores() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    // In a thread of its own, as its inherited mask may be narrower than what it can set.
    CORES.get_or_init(|| thread::spawn(ask).join().unwrap_or_default())
}

/// Requests all cores; the kernel grants the usable ones (sched_setaffinity(2)).
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
