//! Why something about a device failed.

use std::io;

use rustix::io::Errno;
use tapswitch_netlink::LinkError;
use tapswitch_wire::MacAddr;
use thiserror::Error;

use crate::{Kind, Prefix};

/// Why a device could not be made or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The clone device is missing (`ENOENT`, `ENODEV`, `ENXIO`).
    #[error(
        "/dev/net/tun: {source}; load the module with `modprobe tun`, or create the node: \
         mkdir -p /dev/net && mknod /dev/net/tun c 10 200"
    )]
    NoTun {
        /// What open(2) said.
        source: io::Error,
    },
    /// This process, or the machine, has no more files (`EMFILE`, `ENFILE`).
    #[error(
        "/dev/net/tun: {source}; each queue is a file: raise the limit (`ulimit -n`, LimitNOFILE= \
         of systemd), or ask for fewer queues"
    )]
    TooManyFiles {
        /// What open(2) said.
        source: io::Error,
    },
    /// The clone device cannot be opened.
    #[error(
        "/dev/net/tun: {source}; it must be readable and writable by this user (mode 0666 is \
         usual), on a file system without the mount option nodev, and permitted by the container's \
         device rules"
    )]
    Open {
        /// What open(2) said.
        source: io::Error,
    },
    /// The configuration cannot be met by any kernel.
    #[error("{name}: {what}")]
    Contradiction {
        /// The device.
        name: String,
        /// What contradicts what, and the remedy.
        what: &'static str,
    },
    /// This kernel lacks what is required.
    #[error("{name}: this kernel has no {feature}, which needs Linux {since}; {remedy}")]
    Unsupported {
        /// The device.
        name: String,
        /// The flag or call.
        feature: &'static str,
        /// The release that has it.
        since: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// `EPERM` or `EACCES`. What root has prepared is opened with
    /// [`Config::exclusive(false)`](crate::Config::exclusive).
    #[error(
        "{name}: not permitted; creating a {kind} device needs CAP_NET_ADMIN (run as root), or let \
         root prepare it (`{command}; ip link set {name} up`) for this user, and open it with \
         exclusive(false)"
    )]
    NotPermitted {
        /// The device.
        name: String,
        /// What it was to be.
        kind: Kind,
        /// What makes it.
        command: String,
    },
    /// `EPERM`, of a [numbered](crate::Config::numbered) name. Such a device is always new, so
    /// nobody can prepare it; one with a name can be.
    #[error(
        "{pattern}: not permitted; creating a {kind} device needs CAP_NET_ADMIN (run as root); or \
         let root prepare one with a fixed name (`{command}; ip link set {name} up`) for this \
         user, and open it with Config::new of that name and exclusive(false)"
    )]
    NumberedNotPermitted {
        /// The pattern, as asked for.
        pattern: String,
        /// What it was to be.
        kind: Kind,
        /// A name that fits the pattern.
        name: String,
        /// What makes a device of that name.
        command: String,
    },
    /// `EPERM`, of a configuration with [`Config::napi_fragments`](crate::Config::napi_fragments).
    #[error(
        "{name}: not permitted; napi_fragments(true) needs CAP_NET_ADMIN in the initial user \
         namespace, which root in a container may lack; leave it out, or run as root of the host"
    )]
    FragmentsNotPermitted {
        /// The device.
        name: String,
    },
    /// `EPERM`: the device is there, but for somebody else.
    #[error(
        "{name}: not permitted; only {allowed} may open it; run as that, or with CAP_NET_ADMIN, or \
         let root recreate it for this user: `ip link del {name}; {command}`"
    )]
    NotOwner {
        /// The device.
        name: String,
        /// The users who may, in words.
        allowed: String,
        /// What makes it.
        command: String,
    },
    /// `EPERM`: the device is there, and belongs to nobody. Up to Linux 6.18 any user could open
    /// it; Linux 7.3 lets nobody do so without `CAP_NET_ADMIN`.
    #[error(
        "{name}: not permitted; it has neither owner nor group, and from Linux 7.3 on such a \
         device can be opened only with CAP_NET_ADMIN (run as root); or let root recreate it with \
         an owner: `ip link del {name}; {command}`"
    )]
    NoOwner {
        /// The device.
        name: String,
        /// What makes it.
        command: String,
    },
    /// `EBUSY`.
    #[error("{name}: {by}; choose another name{}", by.remedy(name))]
    NameTaken {
        /// The device.
        name: String,
        /// By whom.
        by: Taken,
    },
    /// `EBUSY`: the link type was to change, and the interface is up.
    #[error(
        "{name}: its link type is {is}, and can change only while it is down: `ip link set {name} \
         down`, or keep it with link_type(LinkType({is}))"
    )]
    InterfaceUp {
        /// The device.
        name: String,
        /// What it is: see [`LinkType`](crate::LinkType).
        is: u16,
    },
    /// `EINVAL`: the owner or the group is none of this user namespace.
    #[error(
        "{name}: this user namespace has no {whom} {number}; use an ID that is mapped in it \
         (`/proc/self/uid_map`, `gid_map`)"
    )]
    Unmapped {
        /// The device.
        name: String,
        /// `user` or `group`.
        whom: &'static str,
        /// As asked for.
        number: u32,
    },
    /// `EBUSY`: the interface would have an index that another has.
    #[error("{name}: another interface has the index {index}; choose another, or none")]
    IndexTaken {
        /// The device.
        name: String,
        /// As asked for.
        index: u32,
    },
    /// `EINVAL`: the interface is there, but of another kind.
    #[error("{name}: exists, but {what}, or remove it with `ip link del {name}`")]
    Mismatch {
        /// The device.
        name: String,
        /// How it differs from what was asked for.
        what: Mismatch,
    },
    /// Another program uses the device in another way.
    #[error(
        "{name}: another program has opened queues of it with {is} in front of each frame instead \
         of {wanted}; request the same, or use the device as it is with Device::join"
    )]
    InUse {
        /// The device.
        name: String,
        /// What precedes its frames, in words.
        is: String,
        /// As asked for.
        wanted: Prefix,
    },
    /// Nobody holds the device, and the flags that it would keep cannot be read.
    #[error(
        "{name}: {what}; the first program to open it sets its flags (IFF_NAPI, IFF_BACKPRESSURE) \
         again, so join it where /sys shows it or with CAP_SYS_ADMIN, or set the flags that you \
         want with Device::create and exclusive(false)"
    )]
    UnknownFlags {
        /// The device.
        name: String,
        /// Why they cannot be read.
        what: String,
    },
    /// There is no such device to join.
    #[error("{name}: no such interface; create it first with `ip tuntap add {name} mode {kind}`")]
    NotFound {
        /// The device.
        name: String,
        /// What it was to be.
        kind: Kind,
    },
    /// The interface cannot be asked over netlink, which tells what it is.
    #[error("{name}: {source}")]
    Link {
        /// The device.
        name: String,
        /// What the kernel said.
        source: Box<LinkError>,
    },
    /// `E2BIG`.
    #[error(
        "{name}: Linux allows at most 256 queues per device, including those of other programs and \
         detached ones; {queues} were requested"
    )]
    TooManyQueues {
        /// The device.
        name: String,
        /// As asked for.
        queues: u16,
    },
    /// `EBADFD` from the very first: a former user of the persistent device attached a classic
    /// filter. Linux then looks for the filter at the same address of this program's memory, and
    /// when there is one, reports success without making the file a queue.
    #[error(
        "{name}: Linux cannot attach a queue because a classic filter was left on the device; open \
         it once with packet_info(false), or remove it with `ip link del {name}`"
    )]
    StaleFilter {
        /// The device.
        name: String,
    },
    /// No queue was handed over at all.
    #[error("no file descriptor was given; pass at least one")]
    NoDescriptor,
    /// What was handed over is no queue of a tun/tap device.
    #[error("file descriptor {fd}: {what}")]
    NotAQueue {
        /// Its number.
        fd: i32,
        /// What is wrong, and the remedy.
        what: &'static str,
    },
    /// The file descriptors are not all queues of one device.
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
    /// What precedes each frame cannot be learnt.
    #[error(
        "{name}: {what}; open it where the interface is visible, or tell with \
         Device::from_fds_with whether there is protocol information"
    )]
    UnknownPrefix {
        /// The device.
        name: String,
        /// Why not.
        what: String,
    },
    /// Any other refusal.
    #[error("{name}: {call}: {source}")]
    Ioctl {
        /// The device.
        name: String,
        /// Name of the ioctl(2) or other call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl CreateError {
    pub(crate) fn open(errno: Errno) -> Self {
        let source = errno.into();
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => Self::NoTun { source },
            Errno::MFILE | Errno::NFILE => Self::TooManyFiles { source },
            _ => Self::Open { source },
        }
    }
}

/// Who has a name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Taken {
    /// An interface that is no tun/tap device.
    #[error(
        "the name is taken by an interface that is {}, not a tun/tap device",
        described(kind.as_deref())
    )]
    OtherDriver {
        /// Its driver, such as `bridge`; `None` for hardware and `lo`.
        kind: Option<String>,
    },
    /// A persistent device that was prepared, and that no program holds.
    #[error("the name is taken by a persistent device, which no program holds")]
    Unheld,
    /// A device that a program holds.
    #[error("the name is taken by a device that {} open", holding(holders))]
    Held {
        /// The programs, each as `NAME (PID)`; none when they cannot be seen.
        holders: Vec<String>,
    },
    /// It is not to be learnt.
    #[error("the name is taken by another interface, or another program has the device open")]
    Unknown,
}

impl Taken {
    /// What to do but for choosing another name. Hardware cannot be removed.
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

/// How an interface differs from what was asked for, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// No tun/tap device at all.
    #[error("is {}, not a tun/tap device; choose another name", described(kind.as_deref()))]
    OtherDriver {
        /// Its driver, such as `bridge`; `None` for hardware.
        kind: Option<String>,
    },
    /// A tun device instead of a tap device, or the other way round.
    #[error("is a {is} device; open it with kind(Kind::{is:?})")]
    OtherKind {
        /// What it is.
        is: Kind,
    },
    /// It takes several queues, and was to be opened as one that does not.
    #[error("was created multi-queue; open it with queues >= 1 and multi_queue(true)")]
    IsMultiQueue,
    /// It takes one queue, and was to be opened as one that takes several.
    #[error("was created with a single queue; open it with queues = 1 and multi_queue(false)")]
    IsSingleQueue,
    /// It is not to be learnt.
    #[error(
        "is not a {kind} device with multi_queue({multi_queue}); change these settings to those \
         that `ip -d link show` prints"
    )]
    Unknown {
        /// As asked for.
        kind: Kind,
        /// As asked for.
        multi_queue: bool,
    },
}

impl Mismatch {
    /// True when it is, or may be, about the number of queues.
    pub(crate) const fn is_of_queues(&self) -> bool {
        matches!(self, Self::IsMultiQueue | Self::IsSingleQueue | Self::Unknown { .. })
    }
}

fn described(kind: Option<&str>) -> String {
    kind.map_or_else(|| "hardware or lo".to_owned(), |kind| format!("of kind {kind}"))
}

/// Why a setting of a device could not be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The interface was deleted; its queues are of no more use (`EBADFD`).
    #[error("{name}: the interface was deleted")]
    Gone {
        /// The device.
        name: String,
    },
    /// `EPERM` or `EACCES`.
    #[error("{name}: {what}: not permitted; it needs CAP_NET_ADMIN in its network namespace")]
    NotPermitted {
        /// The device.
        name: String,
        /// The setting.
        what: &'static str,
    },
    /// The setting is for the other kind of device.
    #[error("{name}: {what} is for tap devices, and this is a tun device")]
    NotATap {
        /// The device.
        name: String,
        /// The setting.
        what: &'static str,
    },
    /// The interface must be down for that (`EBUSY`).
    #[error("{name}: {what} can change only while it is down: `ip link set {name} down`")]
    InterfaceUp {
        /// The device.
        name: String,
        /// The setting.
        what: &'static str,
    },
    /// Linux switches the carrier on only while a queue is attached. One that is on stays so when
    /// the last queue is detached, and attaching one does not bring it back.
    #[error(
        "{name}: no queue is attached, and Linux switches the carrier on only while one is; attach \
         one first"
    )]
    NoQueue {
        /// The device.
        name: String,
    },
    /// Classic filters break persistent and multi-queue devices.
    #[error(
        "{name}: a classic filter on a {what} device makes Linux lose queues that attach later; \
         use an eBPF filter (Device::set_filter)"
    )]
    FilterUnsafe {
        /// The device.
        name: String,
        /// Why, in a word.
        what: &'static str,
    },
    /// More addresses than Linux compares.
    #[error(
        "{name}: Linux compares 8 addresses and hashes further multicast addresses, but the \
         unicast address {address} beyond them would switch the filter off; use an eBPF filter"
    )]
    TooManyAddresses {
        /// The device.
        name: String,
        /// The first that is too much.
        address: MacAddr,
    },
    /// No such queue.
    #[error("{name}: there is no queue {queue}, the device was opened with {count}")]
    NoSuchQueue {
        /// The device.
        name: String,
        /// As asked for.
        queue: usize,
        /// How many there are.
        count: usize,
    },
    /// The queue is as it was to be already, or the device has one queue for good.
    #[error("{name}: queue {queue} cannot change: {what}")]
    QueueState {
        /// The device.
        name: String,
        /// The queue.
        queue: usize,
        /// Why not, and the remedy.
        what: &'static str,
    },
    /// The kernel does not know the value.
    #[error("{name}: {what}: the kernel rejected it; {remedy}")]
    Refused {
        /// The device.
        name: String,
        /// The setting.
        what: &'static str,
        /// What it takes.
        remedy: &'static str,
    },
    /// The interface cannot be asked over netlink.
    #[error("{name}: {source}")]
    Link {
        /// The device.
        name: String,
        /// What the kernel said.
        source: Box<LinkError>,
    },
    /// Anything else.
    #[error("{name}: {what}: {source}")]
    Other {
        /// The device.
        name: String,
        /// The setting.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl SettingError {
    /// What `errno` means for any setting.
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
