//! Errors of creating, opening and configuring a device.

use std::io;

use rustix::io::Errno;
use tapswitch_netlink::LinkError;
use tapswitch_wire::MacAddr;
use thiserror::Error;

use crate::{Kind, Prefix};

/// Error of creating or opening a device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The clone device is missing (`ENOENT`, `ENODEV`, `ENXIO`).
    #[error(
        "/dev/net/tun: {source}; load the module with `modprobe tun`, or create the node: \
         mkdir -p /dev/net && mknod /dev/net/tun c 10 200"
    )]
    NoTun {
        /// Error of open(2).
        source: io::Error,
    },
    /// The process or the system has too many open files (`EMFILE`, `ENFILE`).
    #[error(
        "/dev/net/tun: {source}; each queue is a file: raise the limit (`ulimit -n`, LimitNOFILE= \
         of systemd), or ask for fewer queues"
    )]
    TooManyFiles {
        /// Error of open(2).
        source: io::Error,
    },
    /// The clone device cannot be opened.
    #[error(
        "/dev/net/tun: {source}; it must be readable and writable by this user (mode 0666 is \
         usual), on a file system without the mount option nodev, and permitted by the container's \
         device rules"
    )]
    Open {
        /// Error of open(2).
        source: io::Error,
    },
    /// The configuration contradicts itself; no kernel supports it.
    #[error("{name}: {what}")]
    Contradiction {
        /// Name of the device.
        name: String,
        /// The contradiction and the remedy.
        what: &'static str,
    },
    /// This kernel lacks a required feature.
    #[error("{name}: this kernel has no {feature}, which needs Linux {since}; {remedy}")]
    Unsupported {
        /// Name of the device.
        name: String,
        /// The flag or call.
        feature: &'static str,
        /// The release that introduced it.
        since: &'static str,
        /// The alternative.
        remedy: &'static str,
    },
    /// `EPERM` or `EACCES`. A device that root has prepared is opened with
    /// [`Config::exclusive(false)`](crate::Config::exclusive).
    #[error(
        "{name}: not permitted; creating a {kind} device needs CAP_NET_ADMIN (run as root), or let \
         root prepare it (`{command}; ip link set {name} up`) for this user, and open it with \
         exclusive(false)"
    )]
    NotPermitted {
        /// Name of the device.
        name: String,
        /// The requested type.
        kind: Kind,
        /// The command that creates it.
        command: String,
    },
    /// `EPERM`, for a [numbered](crate::Config::numbered) name. Such a device is always new, so
    /// root cannot prepare it; a device with a fixed name can be prepared.
    #[error(
        "{pattern}: not permitted; creating a {kind} device needs CAP_NET_ADMIN (run as root); or \
         let root prepare one with a fixed name (`{command}; ip link set {name} up`) for this \
         user, and open it with Config::new of that name and exclusive(false)"
    )]
    NumberedNotPermitted {
        /// The requested pattern.
        pattern: String,
        /// The requested type.
        kind: Kind,
        /// A name that fits the pattern.
        name: String,
        /// The command that creates a device of that name.
        command: String,
    },
    /// `EPERM`, for a configuration with [`Config::napi_fragments`](crate::Config::napi_fragments).
    #[error(
        "{name}: not permitted; napi_fragments(true) needs CAP_NET_ADMIN in the initial user \
         namespace, which root in a container may lack; leave it out, or run as root of the host"
    )]
    FragmentsNotPermitted {
        /// Name of the device.
        name: String,
    },
    /// `EPERM`: the device exists and belongs to another user or group.
    #[error(
        "{name}: not permitted; only {allowed} may open it; run as that, or with CAP_NET_ADMIN, or \
         let root recreate it for this user: `ip link del {name}; {command}`"
    )]
    NotOwner {
        /// Name of the device.
        name: String,
        /// The permitted users, in words.
        allowed: String,
        /// The command that creates it.
        command: String,
    },
    /// `EPERM`: the device exists and has neither owner nor group. Up to Linux 6.18 any user could
    /// open it; Linux 7.3 requires `CAP_NET_ADMIN`.
    #[error(
        "{name}: not permitted; it has neither owner nor group, and from Linux 7.3 on such a \
         device can be opened only with CAP_NET_ADMIN (run as root); or let root recreate it with \
         an owner: `ip link del {name}; {command}`"
    )]
    NoOwner {
        /// Name of the device.
        name: String,
        /// The command that creates it.
        command: String,
    },
    /// `EBUSY`.
    #[error("{name}: {by}; choose another name{}", by.remedy(name))]
    NameTaken {
        /// Name of the device.
        name: String,
        /// What uses the name.
        by: Taken,
    },
    /// `EBUSY`: the link type was to change while the interface is up.
    #[error(
        "{name}: its link type is {is}, and can change only while it is down: `ip link set {name} \
         down`, or keep it with link_type(LinkType({is}))"
    )]
    InterfaceUp {
        /// Name of the device.
        name: String,
        /// The current one: see [`LinkType`](crate::LinkType).
        is: u16,
    },
    /// `EINVAL`: the owner or the group does not exist in this user namespace.
    #[error(
        "{name}: this user namespace has no {whom} {number}; use an ID that is mapped in it \
         (`/proc/self/uid_map`, `gid_map`)"
    )]
    Unmapped {
        /// Name of the device.
        name: String,
        /// `user` or `group`.
        whom: &'static str,
        /// The requested ID.
        number: u32,
    },
    /// `EBUSY`: another interface has the requested index.
    #[error("{name}: another interface has the index {index}; choose another, or none")]
    IndexTaken {
        /// Name of the device.
        name: String,
        /// The requested index.
        index: u32,
    },
    /// `EINVAL`: an interface of that name exists with other properties.
    #[error("{name}: exists, but {what}, or remove it with `ip link del {name}`")]
    Mismatch {
        /// Name of the device.
        name: String,
        /// How it differs from the configuration.
        what: Mismatch,
    },
    /// Another program uses the device with another frame layout.
    #[error(
        "{name}: another program has opened queues of it with {is} in front of each frame instead \
         of {wanted}; request the same, or use the device as it is with Device::join"
    )]
    InUse {
        /// Name of the device.
        name: String,
        /// The layout of its frames, in words.
        is: String,
        /// The requested layout.
        wanted: Prefix,
    },
    /// No program holds the device, and the flags that must be kept cannot be read.
    #[error(
        "{name}: {what}; the first program to open it sets its flags (IFF_NAPI, IFF_BACKPRESSURE) \
         again, so join it where /sys shows it or with CAP_SYS_ADMIN, or set the flags that you \
         want with Device::create and exclusive(false)"
    )]
    UnknownFlags {
        /// Name of the device.
        name: String,
        /// Why they cannot be read.
        what: String,
    },
    /// There is no such device to join.
    #[error("{name}: no such interface; create it first with `ip tuntap add {name} mode {kind}`")]
    NotFound {
        /// Name of the device.
        name: String,
        /// The requested type.
        kind: Kind,
    },
    /// The properties of the interface cannot be queried over netlink.
    #[error("{name}: {source}")]
    Link {
        /// Name of the device.
        name: String,
        /// Error of the kernel.
        source: Box<LinkError>,
    },
    /// `E2BIG`.
    #[error(
        "{name}: Linux allows at most 256 queues per device, including those of other programs and \
         detached ones; {queues} were requested"
    )]
    TooManyQueues {
        /// Name of the device.
        name: String,
        /// The requested number.
        queues: u16,
    },
    /// `EBADFD` immediately after attaching: a former user of the persistent device left a classic
    /// filter. Linux then looks for the filter at the same address in the memory of this program
    /// and, if it finds one, reports success without making the file a queue.
    #[error(
        "{name}: Linux cannot attach a queue because a classic filter was left on the device; open \
         it once with packet_info(false), or remove it with `ip link del {name}`"
    )]
    StaleFilter {
        /// Name of the device.
        name: String,
    },
    /// No file descriptor was passed.
    #[error("no file descriptor was given; pass at least one")]
    NoDescriptor,
    /// A passed file descriptor is not a queue of a tun/tap device.
    #[error("file descriptor {fd}: {what}")]
    NotAQueue {
        /// Its number.
        fd: i32,
        /// The problem and the remedy.
        what: &'static str,
    },
    /// The file descriptors belong to different devices.
    #[error(
        "the file descriptors belong to several devices, {first} and {other}: pass those of one \
         device at a time"
    )]
    SeveralDevices {
        /// One device.
        first: String,
        /// Another.
        other: String,
    },
    /// The frame layout of the device cannot be determined.
    #[error(
        "{name}: {what}; open it where the interface is visible, or tell with \
         Device::from_fds_with whether there is protocol information"
    )]
    UnknownPrefix {
        /// Name of the device.
        name: String,
        /// The reason.
        what: String,
    },
    /// Any other error of the kernel.
    #[error("{name}: {call}: {source}")]
    Ioctl {
        /// Name of the device.
        name: String,
        /// Name of the ioctl(2) or other call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl CreateError {
    /// Converts the errno of a call that the kernel refused for the device `name`.
    pub(crate) fn refused(name: &str, call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Ioctl { name: name.to_owned(), call, source: errno.into() }
    }

    pub(crate) fn open(errno: Errno) -> Self {
        let source = errno.into();
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => Self::NoTun { source },
            Errno::MFILE | Errno::NFILE => Self::TooManyFiles { source },
            _ => Self::Open { source },
        }
    }
}

/// What uses a requested name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Taken {
    /// An interface that is not a tun/tap device.
    #[error(
        "the name is taken by an interface that is {}, not a tun/tap device",
        described(kind.as_deref())
    )]
    OtherDriver {
        /// Its driver, such as `bridge`; `None` for hardware and `lo`.
        kind: Option<String>,
    },
    /// A prepared persistent device that no program holds.
    #[error("the name is taken by a persistent device, which no program holds")]
    Unheld,
    /// A device that a program holds.
    #[error("the name is taken by a device that {} open", holding(holders))]
    Held {
        /// The programs, each as `NAME (PID)`; none when they cannot be seen.
        holders: Vec<String>,
    },
    /// Unknown.
    #[error("the name is taken by another interface, or another program has the device open")]
    Unknown,
}

impl Taken {
    /// The remedy other than another name. Hardware cannot be removed.
    fn remedy(&self, name: &str) -> String {
        match self {
            Self::OtherDriver { kind: None } => String::new(),
            Self::OtherDriver { .. } | Self::Unknown => {
                format!(" or remove it with `ip link del {name}`")
            }
            Self::Unheld => format!(
                ", or open the prepared device with exclusive(false); `ip link del {name}` removes \
                 it with all its settings"
            ),
            Self::Held { .. } => format!(
                ", or end that program first; only a multi-queue device can be shared, with \
                 exclusive(false) or Device::join; `ip link del {name}` takes it away from its \
                 program"
            ),
        }
    }
}

fn holding(holders: &[String]) -> String {
    match holders {
        [] => "another program has".to_owned(),
        [one] => format!("{one} has"),
        several => format!("{} have", several.join(", ")),
    }
}

/// How an existing interface differs from the configuration, and which setting to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// Not a tun/tap device.
    #[error("is {}, not a tun/tap device; choose another name", described(kind.as_deref()))]
    OtherDriver {
        /// Its driver, such as `bridge`; `None` for hardware.
        kind: Option<String>,
    },
    /// A tun device instead of a tap device, or the other way round.
    #[error("is a {is} device; open it with kind(Kind::{is:?})")]
    OtherKind {
        /// The actual type.
        is: Kind,
    },
    /// It is a multi-queue device, and was to be opened as a single-queue device.
    #[error("was created multi-queue; open it with queues >= 1 and multi_queue(true)")]
    IsMultiQueue,
    /// It is a single-queue device, and was to be opened as a multi-queue device.
    #[error("was created with a single queue; open it with queues = 1 and multi_queue(false)")]
    IsSingleQueue,
    /// Unknown.
    #[error(
        "is not a {kind} device with multi_queue({multi_queue}); change these settings to those \
         that `ip -d link show` prints"
    )]
    Unknown {
        /// The requested type.
        kind: Kind,
        /// The requested setting.
        multi_queue: bool,
    },
}

impl Mismatch {
    /// True if the difference is, or may be, the number of queues.
    pub(crate) const fn is_of_queues(&self) -> bool {
        matches!(self, Self::IsMultiQueue | Self::IsSingleQueue | Self::Unknown { .. })
    }
}

fn described(kind: Option<&str>) -> String {
    kind.map_or_else(|| "hardware or lo".to_owned(), |kind| format!("of kind {kind}"))
}

/// Error of reading or changing a setting of a device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The interface was deleted; its queues are unusable (`EBADFD`).
    #[error("{name}: the interface was deleted")]
    Gone {
        /// Name of the device.
        name: String,
    },
    /// `EPERM` or `EACCES`.
    #[error("{name}: {what}: not permitted; it needs CAP_NET_ADMIN in its network namespace")]
    NotPermitted {
        /// Name of the device.
        name: String,
        /// The setting.
        what: &'static str,
    },
    /// The setting only exists for tap devices.
    #[error("{name}: {what} is for tap devices, and this is a tun device")]
    NotATap {
        /// Name of the device.
        name: String,
        /// The setting.
        what: &'static str,
    },
    /// The interface must be down to change the setting (`EBUSY`).
    #[error("{name}: {what} can change only while it is down: `ip link set {name} down`")]
    InterfaceUp {
        /// Name of the device.
        name: String,
        /// The setting.
        what: &'static str,
    },
    /// Linux switches the carrier on only while a queue is attached. A carrier stays on when the
    /// last queue is detached, and attaching a queue does not restore it.
    #[error(
        "{name}: no queue is attached, and Linux switches the carrier on only while one is; attach \
         one first"
    )]
    NoQueue {
        /// Name of the device.
        name: String,
    },
    /// Classic filters break persistent and multi-queue devices.
    #[error(
        "{name}: a classic filter on a {what} device makes Linux lose queues that attach later; \
         use an eBPF filter (Device::set_filter)"
    )]
    FilterUnsafe {
        /// Name of the device.
        name: String,
        /// The reason, in a word.
        what: &'static str,
    },
    /// More addresses than Linux compares exactly.
    #[error(
        "{name}: Linux compares 8 addresses and hashes further multicast addresses, but the \
         unicast address {address} beyond them would switch the filter off; use an eBPF filter"
    )]
    TooManyAddresses {
        /// Name of the device.
        name: String,
        /// The first address beyond the limit.
        address: MacAddr,
    },
    /// No queue has this position.
    #[error("{name}: there is no queue {queue}, the device was opened with {count}")]
    NoSuchQueue {
        /// Name of the device.
        name: String,
        /// The requested position.
        queue: usize,
        /// Number of queues.
        count: usize,
    },
    /// The queue is already in the requested state, or the device is a single-queue device.
    #[error("{name}: queue {queue} cannot change: {what}")]
    QueueState {
        /// Name of the device.
        name: String,
        /// The queue.
        queue: usize,
        /// The reason and the remedy.
        what: &'static str,
    },
    /// The kernel refuses the value.
    #[error("{name}: {what}: the kernel rejected it; {remedy}")]
    Refused {
        /// Name of the device.
        name: String,
        /// The setting.
        what: &'static str,
        /// The values that it accepts.
        remedy: &'static str,
    },
    /// The interface cannot be queried over netlink.
    #[error("{name}: {source}")]
    Link {
        /// Name of the device.
        name: String,
        /// Error of the kernel.
        source: Box<LinkError>,
    },
    /// Any other error.
    #[error("{name}: {what}: {source}")]
    Other {
        /// Name of the device.
        name: String,
        /// The setting.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl SettingError {
    /// Converts an errno that has the same meaning for any setting.
    pub(crate) fn new(name: &str, what: &'static str, errno: Errno) -> Self {
        let name = name.to_owned();
        match errno {
            Errno::BADFD => Self::Gone { name },
            Errno::PERM | Errno::ACCESS => Self::NotPermitted { name, what },
            _ => Self::Other { name, what, source: errno.into() },
        }
    }
}

impl From<SettingError> for io::Error {
    fn from(error: SettingError) -> Self {
        let kind = match &error {
            SettingError::NotPermitted { .. } => io::ErrorKind::PermissionDenied,
            SettingError::Gone { .. } => io::ErrorKind::NotFound,
            SettingError::InterfaceUp { .. } => io::ErrorKind::ResourceBusy,
            SettingError::Other { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
