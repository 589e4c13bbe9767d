//! The two types of maps that the programs use.
//!
//! User space writes a [`TableMap`] and a program reads it: an array, whose lookup the kernel
//! inlines. A program writes a [`CounterMap`] and user space reads it: one set of counters per CPU,
//! so that the program needs no atomic operations; reading adds them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use super::BpfError;
use super::sys::{self, MapType};

/// A table of `LEN` numbers that a program reads.
#[derive(Debug)]
pub(crate) struct TableMap<const LEN: usize> {
    fd: OwnedFd,
    program: &'static str,
}

impl<const LEN: usize> TableMap<LEN> {
    /// Creates a table of zeros for the program called `program`.
    pub(crate) fn create(program: &'static str) -> Result<Self, BpfError> {
        let fd = create(MapType::Array, program, size_of::<u32>(), LEN)?;
        Ok(Self { fd, program })
    }

    /// Writes the whole table, one entry after the other.
    pub(crate) fn write(&self, table: &[u16; LEN]) -> Result<(), BpfError> {
        for (key, entry) in (0..).zip(table) {
            let value = u32::from(*entry).to_ne_bytes();
            // SAFETY: the map was created for values of four bytes.
            unsafe { sys::update(self.fd.as_fd(), key, &value) }
                .map_err(|source| BpfError::new(self.program, "BPF_MAP_UPDATE_ELEM", source))?;
        }
        Ok(())
    }
}

impl<const LEN: usize> AsFd for TableMap<LEN> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets of `SUMS` counters that a program increments.
#[derive(Debug)]
pub(crate) struct CounterMap<const SUMS: usize> {
    fd: OwnedFd,
    program: &'static str,
}

impl<const SUMS: usize> CounterMap<SUMS> {
    /// Creates `count` sets of zeros for the program called `program`.
    pub(crate) fn create(program: &'static str, count: usize) -> Result<Self, BpfError> {
        let fd = create(MapType::PerCpuArray, program, SUMS * size_of::<u64>(), count)?;
        Ok(Self { fd, program })
    }

    /// The set at `key`, summed over all CPUs.
    pub(crate) fn read(&self, key: u32) -> Result<[u64; SUMS], BpfError> {
        let mut values = vec![0; SUMS * possible_cpus()];
        // SAFETY: there is room for a set of each possible CPU.
        unsafe { sys::lookup(self.fd.as_fd(), key, &mut values) }
            .map_err(|source| BpfError::new(self.program, "BPF_MAP_LOOKUP_ELEM", source))?;
        let mut sums = [0_u64; SUMS];
        for set in values.chunks_exact(SUMS) {
            for (sum, value) in sums.iter_mut().zip(set) {
                *sum = sum.wrapping_add(*value);
            }
        }
        Ok(sums)
    }
}

impl<const SUMS: usize> AsFd for CounterMap<SUMS> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn create(
    map_type: MapType,
    program: &'static str,
    value_len: usize,
    count: usize,
) -> Result<OwnedFd, BpfError> {
    sys::create_map(map_type, program, value_len, count)
        .map_err(|source| BpfError::new(program, "BPF_MAP_CREATE", source))
}

/// At least the number of possible CPUs, for each of which a per-CPU map has values. Constant while
/// the kernel runs.
fn possible_cpus() -> usize {
    static KNOWN: OnceLock<usize> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let list = std::fs::read_to_string("/sys/devices/system/cpu/possible");
        list.ok().and_then(|list| last_cpu(&list)).map_or(MAX_CPUS, |last| last + 1)
    })
}

/// The last number of a list like `0-3,8`. CPUs are counted from 0, so their number is at most one
/// more.
fn last_cpu(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok().filter(|last| *last < MAX_CPUS)
}

/// More than any Linux supports (`NR_CPUS`), in case sysfs is not available.
const MAX_CPUS: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_of_cpus_makes_too_little_room() {
        assert_eq!(last_cpu("0-1\n"), Some(1));
        assert_eq!(last_cpu("0"), Some(0));
        assert_eq!(last_cpu("0-3,8-11\n"), Some(11));
        assert_eq!(last_cpu(""), None);
        assert_eq!(last_cpu("0-99999"), None);
        let online = std::thread::available_parallelism().unwrap().get();
        assert!(possible_cpus() >= online);
    }
}
