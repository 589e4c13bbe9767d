//! Assignment of cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

type Failure = Box<dyn std::error::Error>;

/// The cores that this process may use.
pub(super) fn ours() -> Result<Vec<usize>, Failure> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Pins the calling thread, and threads and processes that it starts later, to one core.
pub(super) fn stay_on(core: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|cause| format!("cannot pin to core {core}: {cause}"))?;
    Ok(())
}
