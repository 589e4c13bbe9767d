//! Properties of the machine that the rules need.

use std::fs;
use std::thread;

use tapswitch_tap::Flags;
use tapswitch_tap::inspect::{Inspected, known_flags};

/// Properties of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// Kernel release, such as 6.18.
    pub(super) kernel: (u32, u32),
    /// Number of cores that this process may use.
    pub(super) cores: usize,
    /// Whether the kernel has `IFF_BACKPRESSURE`, if known.
    pub(super) backpressure: Option<bool>,
}

impl Machine {
    /// Whether every user may open `device`, or attach a queue to it. If neither owner nor group is
    /// set, Linux 7.3 requires `CAP_NET_ADMIN`; earlier releases only check an owner or a group
    /// that is set. A non-persistent device with one queue is never available to others.
    pub(super) fn opens_to_all(&self, device: &Inspected) -> bool {
        let tun = &device.tun;
        let is_nobodys = tun.owner.is_none() && tun.group.is_none();
        self.kernel < (7, 3) && is_nobodys && (tun.persistent || tun.multi_queue)
    }

    pub(super) fn here() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            kernel: version(&release),
            cores: thread::available_parallelism().map_or(1, Into::into),
            backpressure: known_flags().ok().map(|flags| flags.contains(Flags::BACKPRESSURE)),
        }
    }
}

/// The first two numbers; zero if missing.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.trim().split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_two_numbers_and_more() {
        assert_eq!(version("6.18.44-cloud-amd64\n"), (6, 18));
        assert_eq!(version("7.3-rc1"), (7, 3));
        assert_eq!(version("7"), (7, 0));
        assert_eq!(version(""), (0, 0));
    }
}
