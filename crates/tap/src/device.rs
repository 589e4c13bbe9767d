//! A tun/tap device: making it, changing it, and what is known about it.

mod explain;
mod filters;
mod found;
mod open;
mod passed;
mod queues;
mod settings;

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use tapswitch_netlink::{Link, LinkError, Namespace, Netlink};
use tapswitch_wire::MacAddr;

pub use found::Found;
use passed::Passed;
pub use settings::ByteOrder;

use crate::{Capabilities, DeviceName, Flags, Kind, Prefix, Queue, SettingError, ioctl};

/// A device and its queues. It goes away with the last queue, unless it is persistent.
///
/// Made by [`Self::create`], found by [`Self::join`], or handed over as file descriptors to
/// [`Self::from_fds`].
#[derive(Debug)]
pub struct Device {
    name: DeviceName,
    index: u32,
    kind: Kind,
    prefix: Prefix,
    multi_queue: bool,
    capabilities: Capabilities,
    /// At least one.
    queues: Box<[Queue]>,
    /// Which of `queues` has which index in the kernel, or `None` when others were there first.
    order: Option<Vec<usize>>,
    /// This device has a classic filter by us.
    classic_filter: bool,
    /// How it was when it was opened.
    found: Option<Found>,
}

impl Device {
    /// The queues, as many as were asked for.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// The queues alone, to be shared out among threads.
    pub fn into_queues(self) -> Vec<Queue> {
        self.queues.into_vec()
    }

    /// The name it was made or found with. Somebody may have renamed it since.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The name it has now (`TUNGETIFF`).
    ///
    /// # Errors
    /// When the device is gone.
    pub fn current_name(&self) -> Result<String, SettingError> {
        ioctl::interface(&self.queues[0]).map(|(name, _)| name).map_err(self.failed("TUNGETIFF"))
    }

    /// Index of the interface in the namespace where it was made or found; zero when it was handed
    /// over and could not be seen.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What its frames are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What lies in front of each frame, on every queue.
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// True when it may have several queues.
    pub fn is_multi_queue(&self) -> bool {
        self.multi_queue
    }

    /// How [`Self::create`] found the device when it was there already and nobody used it; `None`
    /// otherwise, and when [`Config::exclusive`](crate::Config::exclusive) says that it is made.
    pub fn found(&self) -> Option<Found> {
        self.found
    }

    /// What may be left undone in frames, in each direction, and what the kernel can do besides.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The flags it has now (`TUNGETIFF`, Linux 2.6.27). [`Flags::NO_PI`] says something else than
    /// its name: see there.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn flags(&self) -> Result<Flags, SettingError> {
        ioctl::interface(&self.queues[0]).map(|(_, flags)| flags).map_err(self.failed("TUNGETIFF"))
    }

    /// MAC address of the kernel's end, random unless it was set (`SIOCGIFHWADDR`). All zeros for a
    /// tun device.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn mac(&self) -> Result<MacAddr, SettingError> {
        let (_, [a, b, c, d, e, f, ..]) =
            ioctl::hardware_address(&self.queues[0]).map_err(self.failed("SIOCGIFHWADDR"))?;
        Ok(MacAddr([a, b, c, d, e, f]))
    }

    /// The interface as rtnetlink shows it, wherever it is now.
    ///
    /// # Errors
    /// [`SettingError::Gone`]; [`SettingError::Link`] when it moved to another namespace and this
    /// program has no privilege to look there.
    pub fn link(&self) -> Result<Link, SettingError> {
        let name = self.current_name()?;
        let link = match ioctl::device_namespace(&self.queues[0]) {
            Ok(namespace) => look_in(namespace, &name),
            Err(errno) => self.look_here(&name, errno),
        };
        link.map_err(|source| SettingError::Link { name, source: Box::new(source) })
    }

    /// The interface where the caller is, if it is this one and not another of the same name: the
    /// namespace of the device was not told, because of `errno`.
    fn look_here(&self, name: &str, errno: Errno) -> Result<Link, LinkError> {
        let link = open::look(name)?;
        let is_it = Passed::of(&self.queues[0]).is_ok_and(|passed| passed.is(&link));
        if is_it && (self.index == 0 || self.index == link.index) {
            return Ok(link);
        }
        Err(LinkError::Refused {
            action: format!("look at the device {name}"),
            namespace: "(current)".to_owned(),
            reason: "another interface has that name; the device was moved to a namespace that \
                     this program may not access"
                .to_owned(),
            source: errno.into(),
        })
    }

    /// The network namespace that it is in now (`TUNGETDEVNETNS`, Linux 5.2). Devices move with
    /// `ip link set NAME netns`; their queues keep working.
    ///
    /// # Errors
    /// [`SettingError::NotPermitted`] without `CAP_NET_ADMIN` there.
    pub fn namespace(&self) -> Result<Namespace, SettingError> {
        let fd = ioctl::device_namespace(&self.queues[0]).map_err(self.failed("TUNGETDEVNETNS"))?;
        Namespace::from_fd(fd, LABEL).map_err(self.unexpected("TUNGETDEVNETNS"))
    }

    /// The network namespace in which its first queue was opened (`SIOCGSKNS`, Linux 4.17).
    ///
    /// # Errors
    /// [`SettingError::NotPermitted`] without `CAP_NET_ADMIN` there.
    pub fn origin_namespace(&self) -> Result<Namespace, SettingError> {
        let fd = ioctl::socket_namespace(&self.queues[0]).map_err(self.failed("SIOCGSKNS"))?;
        Namespace::from_fd(fd, "(the queue's)").map_err(self.unexpected("SIOCGSKNS"))
    }

    /// What a failed call means.
    fn failed(&self, what: &'static str) -> impl Fn(Errno) -> SettingError {
        let name = self.name.as_str();
        move |errno| SettingError::new(name, what, errno)
    }

    fn unexpected<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        what: &'static str,
    ) -> impl Fn(E) -> SettingError {
        let name = self.name.as_str();
        move |cause| SettingError::Other {
            name: name.to_owned(),
            what,
            source: std::io::Error::other(cause),
        }
    }
}

/// The interface called `name` in `namespace`.
fn look_in(namespace: OwnedFd, name: &str) -> Result<Link, LinkError> {
    Netlink::open(&Namespace::from_fd(namespace, LABEL)?)?.link(name)
}

/// What messages call a namespace that was found by a queue.
const LABEL: &str = "(the device's)";
