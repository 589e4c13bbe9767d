//! Assignment of guests to ports of the switch, and their sockets.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::hosts;

/// The guests of a stage. A guest is identified by the number of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Sender and receiver of each pair.
    pub(super) pairs: &'static [(u8, u8)],
    /// The guest that gets copies.
    pub(super) monitor: Option<u8>,
}

impl Layout {
    /// One sender and one receiver.
    pub(super) const PAIR: Self = Self { pairs: &[(1, 2)], monitor: None };
    /// The same with a monitor.
    pub(super) const MONITORED: Self = Self { monitor: Some(3), ..Self::PAIR };
    /// Two pairs, one monitor.
    pub(super) const TWO_PAIRS: Self = Self { pairs: &[(1, 2), (4, 5)], monitor: Some(3) };

    /// Four idle guests.
    pub(super) const FOUR: Self = Self { monitor: None, ..Self::TWO_PAIRS };

    /// All guests, by the number of their port.
    pub(super) fn guests(&self) -> impl Iterator<Item = u8> + Clone {
        self.pairs.iter().flat_map(|&(from, to)| [from, to]).chain(self.monitor)
    }

    /// The same in the order for a switch, which assigns them to its threads in turn: senders come
    /// first, so that each thread gets the same number of them.
    pub(super) fn ports(&self) -> impl Iterator<Item = u8> + Clone {
        let senders = self.pairs.iter().map(|&(from, _)| from);
        senders.chain(self.pairs.iter().map(|&(_, to)| to)).chain(self.monitor)
    }
}

/// A directory with one socket per guest. The guests' program listens, and switches connect: so the
/// guests continue when their switch is exchanged.
#[derive(Debug)]
pub(super) struct Sockets(TempDir);

impl Sockets {
    pub(super) fn create() -> std::io::Result<Self> {
        Ok(Self(hosts::directory()?))
    }

    /// The socket of a guest.
    pub(super) fn path(&self, guest: u8) -> PathBuf {
        self.directory().join(format!("guest{guest}"))
    }

    /// A name for objects of the same stage.
    pub(super) fn name(&self) -> String {
        let name = self.directory().file_name().unwrap_or_default().to_string_lossy();
        format!("vhost-{}", name.rsplit('-').next().unwrap_or_default())
    }

    /// Directory for files of programs.
    pub(super) fn directory(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_two_threads_has_one_who_sends() {
        let ports: Vec<_> = Layout::TWO_PAIRS.ports().collect();
        assert_eq!(ports, [1, 4, 2, 5, 3]);
        assert_eq!(Layout::MONITORED.ports().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
