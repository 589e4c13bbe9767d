//! Named network namespaces, kept where `ip netns` keeps them.
//!
//! A namespace exists as long as a process, an open file or a mount refers to it. A *named* one is
//! an `nsfs` file bind-mounted on `/run/netns/NAME`, so it outlives its creator. The directory is a
//! shared mount: creation and removal propagate to other mount namespaces (ip-netns(8),
//! namespaces(7)).
//!
//! A thread belongs to one namespace, and a socket permanently to the one it was opened in. So this
//! module never moves a thread that it does not own: [`Namespace::enter`] runs a closure on a new
//! thread, and what the closure opens works on any thread.
//!
//! Out of scope: private `/sys` and `/etc/netns/NAME` as `ip netns exec` mounts them.
//! `/sys/class/net` shows the interfaces of the namespace in which `/sys` was mounted; use
//! [`crate::Netlink`], and [`crate::Sysfs`] for settings that only sysfs has.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use thiserror::Error;

/// A network namespace, held open. Clones share the file.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// The name under [`DIRECTORY`], a path, or [`CURRENT`].
    label: Arc<str>,
    file: Arc<File>,
}

impl Namespace {
    /// Creates an empty namespace called `name` that contains only `lo`, down. As `ip netns add`;
    /// `ip netns exec NAME` works with it.
    ///
    /// # Errors
    /// [`NamespaceError::Exists`], [`NamespaceError::Name`], [`NamespaceError::NotPermitted`]
    /// (needs `CAP_SYS_ADMIN`), or the error of the mount.
    pub fn create(name: &str) -> Result<Self, NamespaceError> {
        let path = path_of(name)?;
        let failed = |cause| NamespaceError::from_io("create", name, cause);
        prepare_directory().map_err(failed)?;
        OpenOptions::new().write(true).create_new(true).mode(0o000).open(&path).map_err(failed)?;
        let mounted = on_thread(|| mount_new_namespace(&path)).and_then(|outcome| outcome);
        mounted.map_err(|cause| {
            // Best effort: the first error is the one to report.
            let _ = fs::remove_file(&path);
            failed(cause)
        })?;
        Self::open(name)
    }

    /// Opens the namespace called `name`.
    ///
    /// # Errors
    /// [`NamespaceError::NotFound`], or [`NamespaceError::NotANamespace`] for a stale name after a
    /// crash or a reboot.
    pub fn open(name: &str) -> Result<Self, NamespaceError> {
        Self::open_labelled(&path_of(name)?, name)
    }

    /// Opens a namespace by its file, for example `/proc/PID/ns/net` of a container.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_path(path: impl AsRef<Path>) -> Result<Self, NamespaceError> {
        let path = path.as_ref();
        Self::open_labelled(path, &path.to_string_lossy())
    }

    /// Opens a namespace by name, or by path if `place` contains a slash.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn find(place: &str) -> Result<Self, NamespaceError> {
        Self::open_labelled(&path_to(place)?, place)
    }

    /// The [identity](Self::identity) of the namespace that a name or path, as for [`Self::find`],
    /// currently refers to; `None` if there is none. Opens nothing.
    ///
    /// # Errors
    /// If it cannot be examined.
    pub fn identity_of(place: &str) -> Result<Option<(u64, u64)>, NamespaceError> {
        match fs::metadata(path_to(place)?) {
            Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(NamespaceError::from_io("examine", place, cause)),
        }
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn current() -> Result<Self, NamespaceError> {
        Self::open_labelled(Path::new("/proc/thread-self/ns/net"), CURRENT)
    }

    /// Wraps an open file of a namespace, as returned by `ioctl(fd, TUNGETDEVNETNS)`; `label` is
    /// its name in messages.
    ///
    /// # Errors
    /// [`NamespaceError::NotANamespace`].
    pub fn from_fd(fd: OwnedFd, label: &str) -> Result<Self, NamespaceError> {
        Self::checked(File::from(fd), Path::new(label), label)
    }

    /// Removes the name, as `ip netns del`. The namespace and its virtual interfaces are deleted
    /// with the last process, socket or file that refers to it.
    ///
    /// # Errors
    /// [`NamespaceError::NotFound`], [`NamespaceError::NotPermitted`].
    pub fn delete(name: &str) -> Result<(), NamespaceError> {
        let path = path_of(name)?;
        let failed = |cause| NamespaceError::from_io("delete", name, cause);
        match rustix::mount::unmount(&path, UnmountFlags::DETACH) {
            // EINVAL: a file without a mount, left by a reboot or a crash.
            Ok(()) | Err(Errno::INVAL) => fs::remove_file(&path).map_err(failed),
            Err(cause) => Err(failed(cause.into())),
        }
    }

    /// True if a namespace called `name` exists.
    pub fn exists(name: &str) -> bool {
        Self::open(name).is_ok()
    }

    /// The names of all named namespaces, sorted.
    ///
    /// # Errors
    /// If the directory cannot be read. A missing directory is not an error.
    pub fn list() -> Result<Vec<String>, NamespaceError> {
        let failed = |cause| NamespaceError::from_io("list", DIRECTORY, cause);
        let entries = match fs::read_dir(DIRECTORY) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect::<Vec<_>>();
        names.sort_unstable();
        Ok(names)
    }

    /// Runs `action` on a new thread inside this namespace and waits for it. Sockets and tap
    /// devices that it opens stay in this namespace wherever they are used. A panic of `action` is
    /// propagated.
    ///
    /// Costs a thread, about 50 µs: for set-up, not for packets.
    ///
    /// # Errors
    /// [`NamespaceError::NotPermitted`] (needs `CAP_SYS_ADMIN`, unless the caller is already
    /// inside), or if no thread can be started.
    pub fn enter<R: Send>(&self, action: impl FnOnce() -> R + Send) -> Result<R, NamespaceError> {
        let already_there = self.is_same(&Self::current()?)?;
        on_thread(|| {
            if !already_there {
                self.move_this_thread()?;
            }
            Ok(action())
        })
        .and_then(|outcome| outcome)
        .map_err(|cause| NamespaceError::from_io("enter", &self.label, cause))
    }

    /// A [`Command`] whose child runs inside this namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let inside = self.clone();
        let join = move || inside.move_this_thread();
        // SAFETY: (safe code cannot run anything between fork and exec.) The closure runs in the
        // child after fork, where only async-signal-safe calls are allowed: it makes one raw
        // setns(2) on a file that it owns, and neither allocates, locks nor panics.
        unsafe { command.pre_exec(join) };
        command
    }

    /// The name, the path, or `(current)`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// True if both are the same namespace, however they were opened.
    ///
    /// # Errors
    /// If the files cannot be examined.
    pub fn is_same(&self, other: &Self) -> Result<bool, NamespaceError> {
        Ok(self.identity()? == other.identity()?)
    }

    fn open_labelled(path: &Path, label: &str) -> Result<Self, NamespaceError> {
        let failed = |cause| NamespaceError::from_io("open", label, cause);
        let file = File::open(path).map_err(failed)?;
        Self::checked(file, path, label)
    }

    fn checked(file: File, path: &Path, label: &str) -> Result<Self, NamespaceError> {
        let failed = |cause| NamespaceError::from_io("open", label, cause);
        let kind = rustix::fs::fstatfs(&file).map_err(|cause| failed(cause.into()))?;
        if kind.f_type != NSFS_MAGIC || !is_network(&file).unwrap_or(true) {
            return Err(NamespaceError::NotANamespace {
                name: label.to_owned(),
                path: path.to_owned(),
            });
        }
        Ok(Self { label: label.into(), file: Arc::new(file) })
    }

    /// Device and inode number of the namespace's file: equal for the same namespace, different for
    /// any two that exist at the same time.
    ///
    /// # Errors
    /// If the file cannot be examined.
    pub fn identity(&self) -> Result<(u64, u64), NamespaceError> {
        let metadata = self
            .file
            .metadata()
            .map_err(|cause| NamespaceError::from_io("examine", &self.label, cause))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    fn move_this_thread(&self) -> io::Result<()> {
        let network = Some(LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(self.file.as_fd(), network)?)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A named namespace that is deleted on drop, also after a panic. Dereferences to [`Namespace`].
#[derive(Debug)]
pub struct OwnedNamespace(Namespace);

impl OwnedNamespace {
    /// Creates a namespace as [`Namespace::create`] does, and owns it.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    pub fn create(name: &str) -> Result<Self, NamespaceError> {
        Namespace::create(name).map(Self)
    }
}

impl Deref for OwnedNamespace {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.0
    }
}

impl Drop for OwnedNamespace {
    fn drop(&mut self) {
        // Another process may have removed it already; other errors cannot be handled here.
        let _ = Namespace::delete(&self.0.label);
    }
}

/// Makes the kernel send `SIGTERM` to the child of `command` when its parent dies, so that no child
/// is left behind (`PR_SET_PDEATHSIG`, prctl(2)).
///
/// The kernel's "parent" is the *thread* that spawns: spawn from one that lives as long as the
/// child should. The setting is lost when the child executes a set-user-ID program.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        // The parent may have died before the signal was armed.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: the closure runs in the child after fork, where only async-signal-safe calls are
    // allowed: it makes two raw system calls, and neither allocates, locks nor panics.
    unsafe { command.pre_exec(arm) }
}

/// The path of the namespace called `name`.
fn path_of(name: &str) -> Result<PathBuf, NamespaceError> {
    let plain = !matches!(name, "" | "." | "..") && name.len() <= NAME_LEN_MAX;
    if !plain || name.contains(['/', '\0']) {
        return Err(NamespaceError::Name { name: name.to_owned() });
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// The path of the namespace with this name or path.
fn path_to(place: &str) -> Result<PathBuf, NamespaceError> {
    if place.contains('/') { Ok(place.into()) } else { path_of(place) }
}

/// Makes [`DIRECTORY`] a shared mount point, the first time after a boot. Holds the same lock as
/// `ip netns`, because two binds on top of each other would hide names.
fn prepare_directory() -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY)?;
    let lock = File::open(DIRECTORY)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match rustix::mount::mount_change(DIRECTORY, shared) {
        // Not a mount point yet.
        Err(Errno::INVAL) => {
            rustix::mount::mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            rustix::mount::mount_change(DIRECTORY, shared)?;
        }
        outcome => outcome?,
    }
    Ok(())
}

/// Moves the calling thread into a new namespace and mounts it on `path`.
fn mount_new_namespace(path: &Path) -> io::Result<()> {
    // SAFETY: (rustix has no safe form, because of CLONE_FILES.) The flags do not hold
    // CLONE_FILES, so no thread sees another table of file descriptors than before.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(rustix::mount::mount_bind("/proc/thread-self/ns/net", path)?)
}

/// Runs `action` on a new thread; propagates a panic.
fn on_thread<R: Send>(action: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, action)?;
        thread.join().map_or_else(|payload| panic::resume_unwind(payload), Ok)
    })
}

/// Whether the file is a network namespace.
fn is_network(file: &File) -> io::Result<bool> {
    // SAFETY: `NS_GET_NSTYPE` (Linux 4.11) takes no argument, changes nothing and returns a number.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE) };
    if kind < 0 { Err(io::Error::last_os_error()) } else { Ok(kind == libc::CLONE_NEWNET) }
}

/// Remedy for a name without a namespace; a path is the caller's own.
fn remedy(name: &str) -> String {
    if name.contains('/') {
        return "; expected a path such as /proc/PID/ns/net".to_owned();
    }
    format!(", perhaps left over from a crash; run `ip netns del {name}`")
}

/// `_IO(0xb7, 3)` of `linux/nsfs.h`.
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;

/// Error of an operation on a namespace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The name is not a valid file name.
    #[error("namespace name {name:?}: must be 1 to 255 bytes without '/', and not '.' or '..'")]
    Name {
        /// The name.
        name: String,
    },
    /// The namespace does not exist.
    #[error("namespace {name}: not found; `ip netns list` lists the namespaces")]
    NotFound {
        /// Name or path.
        name: String,
    },
    /// The name is in use.
    #[error("namespace {name}: already exists; choose another name or run `ip netns del {name}`")]
    Exists {
        /// The name.
        name: String,
    },
    /// The file is not a namespace.
    #[error("namespace {name}: {path} is not a network namespace{}", remedy(name))]
    NotANamespace {
        /// Name or path as given.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// Not permitted.
    #[error("cannot {action} namespace {name}: not permitted; needs CAP_SYS_ADMIN, run as root")]
    NotPermitted {
        /// The action that failed.
        action: &'static str,
        /// Name or path.
        name: String,
    },
    /// Any other error.
    #[error("cannot {action} namespace {name}: {source}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// Name or path.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl NamespaceError {
    fn from_io(action: &'static str, name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { name },
            io::ErrorKind::AlreadyExists => Self::Exists { name },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { action, name },
            _ => Self::Io { action, name, source },
        }
    }
}

/// Directory in which `ip netns` keeps named namespaces (ip-netns(8)).
const DIRECTORY: &str = "/run/netns";
/// Label of a thread's own namespace in messages; not a possible output of `ip netns list`.
const CURRENT: &str = "(current)";
/// `NAME_MAX` of Linux.
const NAME_LEN_MAX: usize = 255;
/// File system type of namespace files, "nsfs" (`include/uapi/linux/magic.h`).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        for name in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
            assert!(matches!(path_of(name), Err(NamespaceError::Name { .. })), "{name:?}");
        }
        assert_eq!(path_of("blue").unwrap(), Path::new("/run/netns/blue"));
    }

    #[test]
    fn a_missing_namespace_is_named() {
        let error = Namespace::open("no-such-namespace").unwrap_err();
        assert_eq!(
            error.to_string(),
            "namespace no-such-namespace: not found; `ip netns list` lists the namespaces"
        );
    }

    #[test]
    fn a_file_that_is_no_namespace_is_told_apart() {
        let error = Namespace::open_path("/proc/self/status").unwrap_err();
        assert!(matches!(error, NamespaceError::NotANamespace { .. }));
    }

    #[test]
    fn a_namespace_is_found_by_its_path_too() {
        let path = "/proc/self/ns/net";
        let found = Namespace::find(path).unwrap();
        assert_eq!(
            (found.label(), found.identity().ok()),
            (path, Namespace::identity_of(path).unwrap())
        );
        assert!(matches!(Namespace::find("no-such"), Err(NamespaceError::NotFound { .. })));
        for place in ["no-such", "/proc/self/ns/no-such", "/proc/4194305/ns/net"] {
            assert_eq!(Namespace::identity_of(place).unwrap(), None, "{place}");
        }
    }

    #[test]
    fn the_current_namespace_is_itself() {
        let (a, b) = (Namespace::current().unwrap(), Namespace::current().unwrap());
        assert!(a.is_same(&b).unwrap());
    }
}
