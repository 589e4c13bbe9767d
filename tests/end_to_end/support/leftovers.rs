//! What a program may leave behind: namespaces and files that bear its number, and children.

use std::fs;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tapswitch_netlink::Namespace;

/// What is there of one process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    pub(crate) namespaces: Vec<String>,
    pub(crate) files: Vec<String>,
}

impl Leftovers {
    /// Of a laboratory that the process `id` has made.
    pub(crate) fn of(id: u32) -> Self {
        let prefix = format!("tapswitch-lab-{id}-");
        let mut namespaces = Namespace::list().unwrap();
        namespaces.retain(|name| name.starts_with(&prefix));
        let entries = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        Self { namespaces, files: names.filter(|name| name.starts_with(&prefix)).collect() }
    }

    pub(crate) fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Whoever makes a laboratory sweeps up behind those that were killed. So who kills one must be
/// alone while it looks at what that left.
static LABORATORIES: RwLock<()> = RwLock::new(());

/// For who makes laboratories.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    LABORATORIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// For who kills them.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    LABORATORIES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers of the processes that `id` has started and that run still.
pub(crate) fn children(id: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|child| parent(*child) == Some(id)).collect()
}

/// False for zombies too, whose command line is empty.
pub(crate) fn is_running(id: u32) -> bool {
    let path = format!("/proc/{id}/cmdline");
    Path::new(&path).exists() && fs::read(&path).is_ok_and(|line| !line.is_empty())
}

/// The fourth field of `/proc/PID/stat`; the second, in parentheses, may hold anything (proc(5)).
fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}
