//! Finds network namespaces: the caller's own, named ones, and those of processes. A namespace that
//! only an open file or a mount refers to cannot be found.

use std::collections::HashSet;
use std::fs;

use crate::Namespace;

/// Result of [`survey`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// Each namespace once: the current one first, then named ones, then those of processes, whose
    /// label is `/proc/PID/ns/net`.
    pub namespaces: Vec<Namespace>,
    /// Number of processes whose namespace may not be read, which needs `CAP_SYS_PTRACE`.
    pub hidden_processes: usize,
    /// Names in `/run/netns` that could not be opened.
    pub broken_names: Vec<String>,
}

/// Searches for network namespaces. Takes a few microseconds per process.
pub fn survey() -> Survey {
    let mut search = Search::default();
    if let Ok(current) = Namespace::current() {
        search.add(current);
    }
    for name in Namespace::list().unwrap_or_default() {
        match Namespace::open(&name) {
            Ok(namespace) => search.add(namespace),
            Err(_) => search.found.broken_names.push(name),
        }
    }
    let mut processes = processes();
    processes.sort_unstable();
    processes.into_iter().for_each(|pid| search.add_process(pid));
    search.found
}

#[derive(Default)]
struct Search {
    found: Survey,
    seen: HashSet<(u64, u64)>,
}

impl Search {
    fn add(&mut self, namespace: Namespace) {
        if namespace.identity().is_ok_and(|identity| self.seen.insert(identity)) {
            self.found.namespaces.push(namespace);
        }
    }

    /// A process that ended meanwhile does not count as hidden.
    fn add_process(&mut self, pid: u32) {
        let path = format!("/proc/{pid}/ns/net");
        match Namespace::open_path(&path) {
            Ok(namespace) => self.add(namespace),
            Err(crate::NamespaceError::NotPermitted { .. }) => self.found.hidden_processes += 1,
            Err(_) => {}
        }
    }
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
