//! What a program may leave behind: namespaces and files with its number, and children.

use std::fs;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tapswitch_netlink::Namespace;

/// The leftovers of one process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    pub(crate) namespaces: Vec<String>,
    pub(crate) files: Vec<String>,
}

impl Leftovers {
    /// Those of a lab that the process `id` has made.
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

/// A program that makes a lab removes the leftovers of killed ones. So a test that kills one must
/// be alone while it examines the leftovers.
static LABORATORIES: RwLock<()> = RwLock::new(());

/// For tests that make labs.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    LABORATORIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that kill them.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    LABORATORIES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Running processes that `id` has started.
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

/// The fourth field of `/proc/PID/stat`; the second, in parentheses, may contain anything
/// (proc(5)).
fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}
