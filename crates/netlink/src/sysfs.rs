//! Settings of interfaces that only sysfs has: `gro_flush_timeout`, `napi_defer_hard_irqs`,
//! `tun_flags`, owner and group.
//!
//! `/sys/class/net` shows the interfaces of the namespace in which that sysfs was *mounted*,
//! whoever reads it. So a sysfs of the requested namespace is created as a detached mount: only its
//! file descriptor refers to it, no path, and it is unmounted when that is closed (`fsopen` and
//! `fsmount`, Linux 5.2). That needs `CAP_SYS_ADMIN`. Without it, the visible `/sys` is used if it
//! shows exactly the interfaces that rtnetlink reports.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::{Link, LinkError, Namespace, Netlink};

/// The interfaces of one namespace as files.
#[derive(Debug)]
pub struct Sysfs {
    /// The directory `class/net`.
    interfaces: OwnedFd,
    namespace: String,
}

impl Sysfs {
    /// Opens the sysfs of `namespace`.
    ///
    /// # Errors
    /// [`LinkError::Refused`] without `CAP_SYS_ADMIN` over the mount namespace, unless `/sys` shows
    /// this network namespace.
    pub fn open(namespace: &Namespace) -> Result<Self, LinkError> {
        let label = namespace.label();
        let mounted = match namespace.enter(mount) {
            Ok(Ok(interfaces)) => Ok(interfaces),
            Ok(Err(Errno::PERM | Errno::ACCESS)) => Err(not_permitted(label)),
            Ok(Err(cause)) => Err(failure("open sysfs", "", label, cause.into())),
            Err(cause) => Err(LinkError::Namespace(cause)),
        };
        let interfaces = mounted.or_else(|cause| visible(namespace).ok_or(cause))?;
        Ok(Self { interfaces, namespace: label.to_owned() })
    }

    /// Reads the file `file` of the interface `name`, without surrounding white space.
    ///
    /// # Errors
    /// [`LinkError::NotFound`] if there is no such interface or file.
    pub fn read(&self, name: &str, file: &str) -> Result<String, LinkError> {
        let read = || -> io::Result<String> {
            let mut text = String::new();
            self.file(name, file, OFlags::RDONLY)?.read_to_string(&mut text)?;
            Ok(text.trim().to_owned())
        };
        read().map_err(|cause| self.error(&format!("read {file} of {name}"), name, cause))
    }

    /// Writes `value` to the file `file` of the interface `name`.
    ///
    /// # Errors
    /// [`LinkError::NotPermitted`] without `CAP_NET_ADMIN`, [`LinkError::NotFound`] if there is no
    /// such interface or file, [`LinkError::Refused`] if the kernel refuses the value.
    pub fn write(&self, name: &str, file: &str, value: &str) -> Result<(), LinkError> {
        let write = || self.file(name, file, OFlags::WRONLY)?.write_all(value.as_bytes());
        write()
            .map_err(|cause| self.error(&format!("set {file} of {name} to {value}"), name, cause))
    }

    /// The flags of the tun or tap device `name` (`IFF_*`, `include/uapi/linux/if_tun.h`). Here bit
    /// 0x1000 means "no packet information"; in the result of `TUNGETIFF` it means "no filter".
    ///
    /// # Errors
    /// [`LinkError::NotFound`] if it is not such a device.
    pub fn tun_flags(&self, name: &str) -> Result<u32, LinkError> {
        let text = self.read(name, "tun_flags")?;
        let number = u32::from_str_radix(text.trim_start_matches("0x"), 16);
        number.map_err(|_| self.error("read tun_flags", name, io::ErrorKind::InvalidData.into()))
    }

    /// How long in nanoseconds the kernel may hold packets that `name` receives, to join them into
    /// trains (`gro_flush_timeout`, Linux 3.19). 0 disables it.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn gro_flush_timeout_ns(&self, name: &str) -> Result<u64, LinkError> {
        self.number(name, "gro_flush_timeout")
    }

    /// Number of empty polls before interrupts are enabled again (`napi_defer_hard_irqs`, Linux
    /// 5.8).
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn napi_defer_hard_irqs(&self, name: &str) -> Result<u64, LinkError> {
        self.number(name, "napi_defer_hard_irqs")
    }

    fn number(&self, name: &str, file: &str) -> Result<u64, LinkError> {
        let text = self.read(name, file)?;
        text.parse()
            .map_err(|_| self.error("read a number", name, io::ErrorKind::InvalidData.into()))
    }

    fn file(&self, name: &str, file: &str, flags: OFlags) -> io::Result<std::fs::File> {
        // A name with a slash would leave the directory.
        if [name, file].iter().any(|part| part.is_empty() || part.contains('/')) {
            return Err(Errno::NOENT.into());
        }
        let path = format!("{name}/{file}");
        let flags = flags | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.interfaces, path, flags, Mode::empty())?;
        Ok(file.into())
    }

    fn error(&self, action: &str, name: &str, cause: io::Error) -> LinkError {
        failure(action, name, &self.namespace, cause)
    }
}

/// A detached sysfs of the calling thread's namespace.
fn mount() -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let mount = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    directory(mount, "class/net")
}

/// The visible sysfs, if it belongs to `namespace`.
fn visible(namespace: &Namespace) -> Option<OwnedFd> {
    let links = Netlink::open(namespace).ok()?.links().ok()?;
    let interfaces = directory(rustix::fs::CWD, "/sys/class/net").ok()?;
    let sysfs = Sysfs { interfaces, namespace: String::new() };
    links.iter().all(|link| sysfs.shows(link)).then_some(sysfs.interfaces)
}

impl Sysfs {
    /// MAC addresses are random: two namespaces with the same interfaces have different addresses.
    fn shows(&self, link: &Link) -> bool {
        let address = link.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        self.number(&link.name, "ifindex").is_ok_and(|index| index == link.index.into())
            && address.is_none_or(|mac| self.read(&link.name, "address").is_ok_and(|it| it == mac))
    }
}

fn directory(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Root of a user namespace may change the network, but not the mounts of another user namespace.
fn not_permitted(namespace: &str) -> LinkError {
    let reason = "not permitted; needs CAP_SYS_ADMIN over the mounts: run as root, or in a user \
                  namespace by `unshare --mount`";
    LinkError::not_permitted("open sysfs".to_owned(), namespace.to_owned(), reason)
}

fn failure(action: &str, name: &str, namespace: &str, cause: io::Error) -> LinkError {
    let cause = match Errno::from_io_error(&cause) {
        // The directory of the interface does not exist, or was removed while it was read.
        Some(Errno::NOENT) => Errno::NODEV.into(),
        _ => cause,
    };
    LinkError::new(action, name, namespace, cause.into())
}
