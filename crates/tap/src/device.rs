//! A tun/tap device: creation, settings and state.

mod existing;
mod explain;
mod filters;
mod found;
mod open;
mod passed;
mod queues;
mod settings;

use rustix::io::Errno;
use tapswitch_netlink::{Link, LinkError, Namespace};
use tapswitch_wire::MacAddr;

pub use found::Found;
pub use settings::ByteOrder;

use existing::{LABEL, look, look_in};
use passed::Passed;

use crate::{Capabilities, DeviceName, Flags, Kind, Prefix, Queue, SettingError, ioctl};

/// A device and its queues. It disappears with its last queue, unless it is persistent.
///
/// [`Self::create`] creates it, [`Self::join`] opens an existing one, and [`Self::from_fds`] takes
/// file descriptors that another program opened.
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
    /// Positions in `queues` by kernel queue index; `None` if other programs had queues before.
    order: Option<Vec<usize>>,
    /// True while a classic filter that we attached is in place.
    classic_filter: bool,
    /// Its state when it was opened.
    found: Option<Found>,
}

impl Device {
    /// The queues, as many as configured.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Returns the queues, to distribute them among threads.
    pub fn into_queues(self) -> Vec<Queue> {
        self.queues.into_vec()
    }

    /// The name at creation or opening. The interface may have been renamed since.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The current name (`TUNGETIFF`).
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn current_name(&self) -> Result<String, SettingError> {
        ioctl::interface(&self.queues[0]).map(|(name, _)| name).map_err(self.failed("TUNGETIFF"))
    }

    /// Interface index, in the namespace where the device was created or found. Zero for a device
    /// from [`Self::from_fds_with`], whose interface may not be visible.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether the device carries Ethernet frames or IP packets.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Layout of the metadata before each frame, the same on every queue.
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// True if the device can have several queues.
    pub fn is_multi_queue(&self) -> bool {
        self.multi_queue
    }

    /// The state of an existing unused device before [`Self::create`] reset it; `None` otherwise,
    /// and always for a [`Config::exclusive`](crate::Config::exclusive) configuration.
    pub fn found(&self) -> Option<Found> {
        self.found
    }

    /// The offloads in each direction, and the features of the kernel.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The current flags (`TUNGETIFF`, Linux 2.6.27). Here [`Flags::NO_PI`] has another meaning:
    /// see there.
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn flags(&self) -> Result<Flags, SettingError> {
        ioctl::interface(&self.queues[0]).map(|(_, flags)| flags).map_err(self.failed("TUNGETIFF"))
    }

    /// MAC address of the interface, random unless it was set (`SIOCGIFHWADDR`). All zeros for a
    /// tun device.
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn mac(&self) -> Result<MacAddr, SettingError> {
        let (_, [a, b, c, d, e, f, ..]) =
            ioctl::hardware_address(&self.queues[0]).map_err(self.failed("SIOCGIFHWADDR"))?;
        Ok(MacAddr([a, b, c, d, e, f]))
    }

    /// The interface as rtnetlink reports it, in whichever namespace it is now.
    ///
    /// # Errors
    /// [`SettingError::Gone`]; [`SettingError::Link`] if it moved to a namespace that this process
    /// is not permitted to access.
    pub fn link(&self) -> Result<Link, SettingError> {
        let name = self.current_name()?;
        let link = match ioctl::device_namespace(&self.queues[0]) {
            Ok(namespace) => look_in(namespace, &name),
            Err(errno) => self.look_here(&name, errno),
        };
        link.map_err(|source| SettingError::Link { name, source: Box::new(source) })
    }

    /// Returns the interface called `name` in the caller's namespace if it is this device and not
    /// another one of that name. `errno` is why the kernel did not return the device's namespace.
    fn look_here(&self, name: &str, errno: Errno) -> Result<Link, LinkError> {
        let link = look(name)?;
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

    /// The current network namespace (`TUNGETDEVNETNS`, Linux 5.2). `ip link set NAME netns` moves
    /// the device; its queues keep working.
    ///
    /// # Errors
    /// [`SettingError::NotPermitted`] without `CAP_NET_ADMIN` in that namespace.
    pub fn namespace(&self) -> Result<Namespace, SettingError> {
        let fd = ioctl::device_namespace(&self.queues[0]).map_err(self.failed("TUNGETDEVNETNS"))?;
        Namespace::from_fd(fd, LABEL).map_err(self.unexpected("TUNGETDEVNETNS"))
    }

    /// The network namespace in which the first queue was opened (`SIOCGSKNS`, Linux 4.17).
    ///
    /// # Errors
    /// [`SettingError::NotPermitted`] without `CAP_NET_ADMIN` in that namespace.
    pub fn origin_namespace(&self) -> Result<Namespace, SettingError> {
        let fd = ioctl::socket_namespace(&self.queues[0]).map_err(self.failed("SIOCGSKNS"))?;
        Namespace::from_fd(fd, "(the queue's)").map_err(self.unexpected("SIOCGSKNS"))
    }

    /// Converts the errno of a failed call.
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
