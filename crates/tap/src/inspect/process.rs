//! The programs that hold a queue: open files of `/dev/net/tun` in `/proc/PID/fd`, with the name of
//! their device in `/proc/PID/fdinfo` (the line `iff:`, `tun_chr_show_fdinfo` in
//! `drivers/net/tun.c`).
//!
//! A detached queue (`TUNSETQUEUE`) still shows the name; a file that never was a queue has none.
//! Processes that exit meanwhile are skipped.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{major, minor};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use tapswitch_netlink::Namespace;

use super::handle::is_same_file;
use super::unseen::{counted, remedy};
use super::{Handle, QueueState};

/// An open file of a process that is a queue of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Process ID.
    pub pid: u32,
    /// Name of the process, at most 15 bytes (`/proc/PID/comm`).
    pub command: String,
    /// Command line, arguments separated by spaces (`/proc/PID/cmdline`), truncated to 200 bytes;
    /// empty if it cannot be read.
    pub arguments: String,
    /// User ID of the process; `None` if it cannot be read.
    pub uid: Option<u32>,
    /// Parent process; `None` if it cannot be read.
    pub parent: Option<u32>,
    /// Start time, in clock ticks since boot.
    pub started: u64,
    /// File descriptor in that process.
    pub fd: i32,
    /// How certain it is that the file is a queue of this device.
    pub certainty: Certainty,
    /// State of the file, if it could be duplicated.
    pub queue: Option<QueueState>,
    /// A number for the open file: holders with the same number share it, as after fork(2). `None`
    /// if that could not be determined.
    pub file: Option<usize>,
}

/// How certain it is that a file belongs to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certainty {
    /// Confirmed by the kernel.
    #[default]
    Exact,
    /// The name matches, and no other visible device has that name.
    Name,
    /// The name matches, but devices in other namespaces have the same name.
    Ambiguous,
}

/// A file that may be a queue of a device.
#[derive(Debug)]
pub(super) struct Suspect {
    holder: Holder,
    /// Name of the device.
    device: String,
    namespace: Option<Namespace>,
}

impl Suspect {
    /// The namespace of the device, if known.
    pub(super) fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// The devices among `candidates`, given by name and namespace, that this file may belong to:
    /// the index of each, and the holder.
    pub(super) fn holders(self, candidates: &[(String, (u64, u64))]) -> Vec<(usize, Holder)> {
        let place = self.namespace.as_ref().and_then(|namespace| namespace.identity().ok());
        let indexes = matching(&self.device, place, candidates);
        let certainty = match (place, indexes.len()) {
            (Some(_), _) => Certainty::Exact,
            (None, 1) => Certainty::Name,
            (None, _) => Certainty::Ambiguous,
        };
        let holder = Holder { certainty, ..self.holder };
        indexes.into_iter().map(|index| (index, holder.clone())).collect()
    }
}

fn matching(
    name: &str,
    place: Option<(u64, u64)>,
    candidates: &[(String, (u64, u64))],
) -> Vec<usize> {
    let is_it = |(other, other_place): &(String, (u64, u64))| {
        other == name && place.is_none_or(|place| place == *other_place)
    };
    (0..).zip(candidates).filter(|(_, it)| is_it(it)).map(|(index, _)| index).collect()
}

/// The programs that hold the device `name` in the namespace `place`, each as `NAME (PID)`; without
/// those whose device is unknown.
pub(crate) fn holders_of(name: &str, place: (u64, u64)) -> Vec<String> {
    let candidates = [(name.to_owned(), place)];
    let is_it = |suspect: &Suspect| suspect.device == name && suspect.namespace.is_some();
    let mut texts: Vec<_> = suspects(&mut Vec::new())
        .into_iter()
        .filter(is_it)
        .flat_map(|suspect| suspect.holders(&candidates))
        .map(|(_, holder)| format!("{} ({})", holder.command.escape_debug(), holder.pid))
        .collect();
    texts.dedup();
    texts
}

/// All open files that are queues, by start time of the process, so that a process that passes a
/// file on comes before the recipient; then by descriptor.
///
/// Each file is duplicated for a moment ([`Handle::borrow`]). The threads of this process take
/// turns, so that none mistakes the duplicate of another for a further holder.
pub(super) fn suspects(unseen: &mut Vec<String>) -> Vec<Suspect> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = Vec::new();
    let mut files = Files::default();
    let mut hidden = 0;
    for pid in numbers("/proc").unwrap_or_default() {
        match queues_of(pid) {
            Ok(queues) => found.extend(queues.filter_map(|fd| suspect(pid, fd, &mut files))),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => hidden += 1,
            Err(_) => {}
        }
    }
    if hidden > 0 {
        unseen.push(format!(
            "the devices that are held by {}: not permitted; {}",
            counted(hidden),
            remedy()
        ));
    }
    found.sort_by_key(|suspect: &Suspect| {
        let Holder { started, pid, fd, .. } = suspect.holder;
        (started, pid, fd)
    });
    found
}

/// The files of a process that may be queues. Without privilege, root may list the descriptors of
/// another root's process but not read the links. A process that is inaccessible even with
/// `CAP_SYS_PTRACE` is outside of this container, which has devices of its own.
fn queues_of(pid: u32) -> io::Result<impl Iterator<Item = u32>> {
    let directory = format!("/proc/{pid}/fd");
    let fds = numbers(&directory)?;
    let target = fds.first().map(|first| fs::read_link(format!("{directory}/{first}")));
    if let Some(Err(cause)) = target
        && cause.kind() == io::ErrorKind::PermissionDenied
        && !may_trace()
    {
        return Err(cause);
    }
    Ok(fds.into_iter().filter(move |fd| is_tun(&format!("{directory}/{fd}"))))
}

fn may_trace() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// The numeric names in a directory, sorted.
fn numbers(directory: &str) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(directory)?.flatten();
    let mut numbers: Vec<_> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// True for an open file of the clone device. Its node may be anywhere, but has its name; other
/// files are not examined, because that could block on a file server.
fn is_tun(path: &str) -> bool {
    let target = fs::read_link(path).unwrap_or_default();
    target.to_str().is_some_and(|target| target.starts_with('/') && target.contains("tun"))
        && fs::metadata(path).is_ok_and(|metadata| {
            let number = (major(metadata.rdev()), minor(metadata.rdev()));
            metadata.file_type().is_char_device() && number == TUN_DEVICE
        })
}

fn suspect(pid: u32, fd: u32, files: &mut Files) -> Option<Suspect> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let device = device_name(&text)?.to_owned();
    let mut holder = Holder { pid, fd: i32::try_from(fd).ok()?, ..Holder::default() };
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    command.trim_end().clone_into(&mut holder.command);
    holder.arguments = arguments(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default());
    holder.uid = fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid());
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    holder.parent = parent(&stat);
    holder.started = start_time(&stat).unwrap_or_default();
    let mut namespace = None;
    match Handle::borrow(pid, holder.fd) {
        Ok(queue) if queue.name().is_ok_and(|name| name == device) => {
            holder.queue = queue.state().ok();
            namespace = queue.namespace(&format!("of {device} of process {pid}")).ok();
            // If this process has closed a known file meanwhile, the duplicate took its place.
            drop(queue);
            holder.file = files.number((pid, holder.fd));
        }
        // Closed, replaced or renamed meanwhile; the process may run another program now.
        Ok(_) => return None,
        Err(cause) if is_gone(&cause) => return None,
        // Not permitted.
        Err(_) => {}
    }
    Some(Suspect { holder, device, namespace })
}

fn is_gone(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::SRCH | Errno::BADF))
}

/// Known open files, each by the first process and descriptor that has it.
#[derive(Debug, Default)]
struct Files(Vec<(u32, i32)>);

impl Files {
    /// The number of the file, the same as before if it is known. `None` if it was closed.
    fn number(&mut self, file: (u32, i32)) -> Option<usize> {
        is_same_file(file, file)?;
        let known = self.0.iter().position(|&other| is_same_file(file, other) == Some(true));
        Some(known.unwrap_or_else(|| {
            self.0.push(file);
            self.0.len() - 1
        }))
    }
}

/// The device name in the text of `/proc/PID/fdinfo/N`.
fn device_name(text: &str) -> Option<&str> {
    let name = text.lines().find_map(|line| line.strip_prefix("iff:"))?.trim();
    (!name.is_empty()).then_some(name)
}

/// Converts `/proc/PID/cmdline`: arguments, each terminated by a zero byte.
fn arguments(bytes: &[u8]) -> String {
    let bytes = bytes.get(..ARGUMENTS_LEN).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).replace('\0', " ").trim_end().to_owned()
}

/// Parent of a process: the 4th field of `/proc/PID/stat`.
fn parent(stat: &str) -> Option<u32> {
    field(stat, 4)?.parse().ok()
}

/// Start time of a process: the 22nd field of `/proc/PID/stat`.
fn start_time(stat: &str) -> Option<u64> {
    field(stat, 22)?.parse().ok()
}

/// The field with that number, from the 3rd on. The second, in parentheses, may contain any
/// character (proc(5)).
fn field(stat: &str, number: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(number - 3)
}

/// Held while the files of processes are looked at.
static TURN: Mutex<()> = Mutex::new(());
/// Maximum number of bytes of a command line.
const ARGUMENTS_LEN: usize = 200;
/// Device numbers of the clone device (`Documentation/admin-guide/devices.txt`).
const TUN_DEVICE: (u32, u32) = (10, 200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_among_the_lines() {
        let text = "pos:\t0\nflags:\t02104002\nmnt_id:\t24\nino:\t105\niff:\ttap0\n";
        assert_eq!(device_name(text), Some("tap0"));
        assert_eq!(device_name("pos:\t0\niff:\t\n"), None, "attached to nothing");
        assert_eq!(device_name("pos:\t0\n"), None);
        assert_eq!(device_name(""), None);
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let fields: Vec<_> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("17 (a) b (c) {}", fields.join(" "));
        assert_eq!((parent(&stat), start_time(&stat)), (Some(4), Some(22)));
        assert_eq!(start_time("17 (a"), None);
        assert_eq!(start_time("17 (a) 1 2"), None);
    }

    #[test]
    fn a_name_in_several_namespaces_belongs_to_one_if_that_is_known() {
        let candidates = [("tap0".to_owned(), (0, 1)), ("tap0".to_owned(), (0, 2))];
        assert_eq!(matching("tap0", Some((0, 2)), &candidates), [1]);
        assert_eq!(matching("tap0", None, &candidates), [0, 1]);
        assert_eq!(matching("tap0", Some((0, 3)), &candidates), [0; 0]);
        assert_eq!(matching("tap1", None, &candidates), [0; 0]);
    }
}
