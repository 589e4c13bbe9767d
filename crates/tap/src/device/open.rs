//! Creates and opens devices.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};
use tapswitch_netlink::{Link, LinkError, Namespace, Sysfs, TunInfo};

use super::existing::{look_up, net_header, queue_count};
use super::{Device, Found, explain};
use crate::capabilities::negotiate;
use crate::config::NameWish;
use crate::{
    Capabilities, Config, CreateError, DeviceName, Flags, HeaderLen, Kind, LinkType, Mismatch,
    Offloads, Prefix, Queue, Taken, Wish, ioctl,
};

impl Device {
    /// Creates or opens the device that `config` describes, in the network namespace of the calling
    /// thread. A new device is down. This takes 0.5 ms, plus some 20 ms for the first device of a
    /// process, which runs the probe; closing the last queue takes 0.5 ms as well. If nobody seems
    /// to hold a name that is taken, it is requested again for some 30 ms.
    ///
    /// The settings that the former user of a persistent device left are reset: header length, byte
    /// order, offloads, send buffer, link type, filters, steering, carrier. If another program uses
    /// the device, nothing is reset: the layout of its frames must be the configured one. Then
    /// [`Capabilities::receive`] is an upper bound, because Linux does not report the offloads in
    /// use.
    ///
    /// # Errors
    /// [`CreateError`], which names the cause and a remedy. A failure leaves nothing behind.
    pub fn create(config: &Config) -> Result<Self, CreateError> {
        let mut opener = Opener::new(config)?;
        opener.look_first()?;
        let first = opener.open_first()?;
        let index =
            index_of(&first.name).map_err(CreateError::refused(&first.name, "SIOCGIFINDEX"))?;
        let in_use = !config.exclusive && opener.take_over(&first)?;
        let is_free = !config.exclusive && !in_use;
        let found = if is_free { Found::of(&first.fd, &first.name) } else { None };
        let capabilities = if in_use {
            Capabilities::at_most(opener.features, opener.prefix.net_header)
        } else {
            opener.apply(&first)?;
            opener.negotiate(&first)?
        };
        let name = DeviceName::from_kernel(first.name.clone());
        let queues = opener.open_others(first)?;
        opener.finish(name.as_str(), &queues[0])?;
        Ok(Self {
            name,
            index,
            kind: opener.kind,
            prefix: opener.prefix,
            multi_queue: opener.flags.contains(Flags::MULTI_QUEUE),
            capabilities,
            order: (!in_use).then(|| (0..queues.len()).collect()),
            queues: queues.into(),
            classic_filter: false,
            found,
        })
    }

    /// Opens the configured number of additional queues of an existing device: a multi-queue device
    /// in use, or a persistent device. Changes no setting of the device. [`Self::kind`],
    /// [`Self::prefix`] and [`Self::is_multi_queue`] return its actual properties; those in
    /// `config`, and NAPI, backpressure and carrier, are ignored.
    ///
    /// Linux gives a device without open queues the flags of the first opener, so the current ones
    /// are read from sysfs first. That needs `CAP_SYS_ADMIN` or a `/sys` of the same network
    /// namespace.
    ///
    /// [`Capabilities::receive`] is an upper bound, because Linux does not report the offloads in
    /// use. A single-queue device that nobody seems to hold is requested again as by
    /// [`Self::create`].
    ///
    /// # Errors
    /// [`CreateError`], including [`CreateError::NotFound`] and [`CreateError::UnknownFlags`].
    pub fn join(config: &Config) -> Result<Self, CreateError> {
        let NameWish::Fixed(name) = &config.name else {
            let what = "a numbered name is always a new device: name the one to join";
            return Err(CreateError::Contradiction { name: config.name.to_string(), what });
        };
        let not_found = || CreateError::NotFound { name: name.to_string(), kind: config.kind };
        let link = look_up(name.as_str())?.ok_or_else(not_found)?;
        let mut opener = Opener::new(config)?;
        if config.queues.get() > 1 && link.tun.is_some_and(|info| !info.multi_queue) {
            let what = Mismatch::IsSingleQueue;
            return Err(CreateError::Mismatch { name: link.name, what });
        }
        let info = opener.follow(&link)?;
        let mut first = opener.open_when_free(Flags::empty())?;
        if opener.has_napi(&first)? {
            opener.flags |= Flags::NAPI;
            first = opener.open_queue(Flags::empty())?;
        }
        // The device may have been deleted since the lookup, and this be a new one of the same
        // name.
        let index =
            index_of(&first.name).map_err(CreateError::refused(&first.name, "SIOCGIFINDEX"))?;
        if index != link.index {
            return Err(not_found());
        }
        opener.prefix = prefix_of(&first, &info)?;
        let queues = opener.open_others(first)?;
        Ok(Self {
            name: name.clone(),
            index,
            kind: opener.kind,
            prefix: opener.prefix,
            multi_queue: info.multi_queue,
            capabilities: Capabilities::at_most(opener.features, opener.prefix.net_header),
            queues: queues.into(),
            order: None,
            classic_filter: false,
            found: None,
        })
    }
}

/// A file that is a queue, and the name of its device.
struct Opened {
    fd: OwnedFd,
    name: String,
}

/// Opens files as queues of one device.
struct Opener<'a> {
    config: &'a Config,
    /// The flags that the kernel knows.
    features: Flags,
    /// The flags in use: those of `config`, adapted to an existing device.
    flags: Flags,
    kind: Kind,
    prefix: Prefix,
}

impl<'a> Opener<'a> {
    fn new(config: &'a Config) -> Result<Self, CreateError> {
        let name = config.name.as_str();
        if let Some(what) = config.contradiction() {
            return Err(CreateError::Contradiction { name: name.to_owned(), what });
        }
        let fd = ioctl::open_tun().map_err(CreateError::open)?;
        let features =
            ioctl::features(&fd).map_err(CreateError::refused(name, "TUNGETFEATURES"))?;
        let has_backpressure = features.contains(Flags::BACKPRESSURE);
        let mut flags = config.flags();
        flags.set(
            Flags::BACKPRESSURE,
            config.backpressure == Wish::Required
                || config.backpressure == Wish::IfAvailable && has_backpressure,
        );
        // Linux ignores unknown flags, so they must be checked here.
        match explain::unsupported(name, flags.difference(features)) {
            Some(error) => Err(error),
            None => Ok(Self { config, features, flags, kind: config.kind, prefix: config.prefix }),
        }
    }

    /// Checks a device that another program uses before attaching to it: a new queue immediately
    /// receives a share of the frames, which would be lost. Only the length of the network header
    /// cannot be read without a queue.
    fn look_first(&self) -> Result<(), CreateError> {
        let NameWish::Fixed(name) = &self.config.name else { return Ok(()) };
        if self.config.exclusive {
            return Ok(());
        }
        let Some(info) = look_up(name.as_str())?.and_then(|link| link.tun) else { return Ok(()) };
        let has_header = self.prefix.net_header != HeaderLen::None;
        let is_alike = info.packet_info == self.prefix.packet_info && info.net_header == has_header;
        // The kernel refuses a device of another type.
        let is_kind = Kind::of(&info) == self.kind;
        if !is_kind || !info.multi_queue || queue_count(&info) == 0 || is_alike {
            return Ok(());
        }
        let is = format!(
            "{} and {}",
            if info.packet_info { "protocol information" } else { "no protocol information" },
            if info.net_header { "a network header" } else { "no network header" }
        );
        Err(CreateError::InUse { name: name.to_string(), is, wanted: self.prefix })
    }

    /// Opens the first queue. Adopts the properties of an existing device if configured.
    fn open_first(&mut self) -> Result<Opened, CreateError> {
        let exclusive = if self.config.exclusive { Flags::TUN_EXCL } else { Flags::empty() };
        let may_follow = self.config.follow_existing && self.config.queues.get() == 1;
        match self.open_when_free(exclusive) {
            Err(CreateError::Mismatch { what, .. }) if may_follow && what.is_of_queues() => {
                self.flags.toggle(Flags::MULTI_QUEUE);
                self.open_queue(exclusive)
            }
            Err(CreateError::StaleFilter { .. }) => {
                self.clear_stale_filter()?;
                self.open_queue(exclusive)
            }
            opened => opened,
        }
    }

    /// As [`Self::open_queue`]. A name that nobody seems to hold is requested again after a moment:
    /// the last file of a program that was killed closes a little later, and so does a duplicate
    /// that another program inspects.
    fn open_when_free(&self, exclusive: Flags) -> Result<Opened, CreateError> {
        for pause in MOMENTS {
            match self.open_queue(exclusive) {
                Err(CreateError::NameTaken { by, .. }) if may_pass(&by, exclusive) => {
                    thread::sleep(pause);
                }
                outcome => return outcome,
            }
        }
        self.open_queue(exclusive)
    }

    /// Opens a file and attaches it as the next queue of the device.
    fn open_queue(&self, exclusive: Flags) -> Result<Opened, CreateError> {
        self.open_queue_of(self.config.name.as_str(), exclusive)
    }

    fn open_queue_of(&self, name: &str, exclusive: Flags) -> Result<Opened, CreateError> {
        let fd = ioctl::open_tun().map_err(CreateError::open)?;
        if let Some(index) = self.config.index {
            ioctl::set_index(&fd, index.get())
                .map_err(CreateError::refused(name, "TUNSETIFINDEX"))?;
        }
        let flags = self.flags | exclusive;
        let name = ioctl::attach(&fd, name, flags)
            .map_err(|errno| explain::attach_error(self.config, self.kind, flags, errno))?;
        // Linux reports success even if it did not make the file a queue: see `StaleFilter`.
        match ioctl::interface(&fd) {
            Ok(_) => Ok(Opened { fd, name }),
            Err(Errno::BADFD) => Err(CreateError::StaleFilter { name }),
            Err(errno) => Err(CreateError::refused(&name, "TUNGETIFF")(errno)),
        }
    }

    /// Removes a classic filter that a former user left on a persistent device. Without protocol
    /// information Linux does not try to attach the filter, so the file becomes a queue.
    fn clear_stale_filter(&self) -> Result<(), CreateError> {
        let without = Opener { flags: self.flags | Flags::NO_PI, ..*self };
        let Opened { fd, name } = without.open_queue(Flags::empty())?;
        ioctl::detach_classic_filter(&fd).map_err(CreateError::refused(&name, "TUNDETACHFILTER"))
    }

    /// Returns the first queue and opens the others.
    fn open_others(&self, first: Opened) -> Result<Vec<Queue>, CreateError> {
        let mut queues = vec![Queue::new(first.fd, self.kind, self.prefix)];
        for _ in 1..self.config.queues.get() {
            let Opened { fd, .. } = self.open_queue_of(&first.name, Flags::empty())?;
            queues.push(Queue::new(fd, self.kind, self.prefix));
        }
        Ok(queues)
    }

    /// Adopts the properties of the device as `link` shows them.
    fn follow(&mut self, link: &Link) -> Result<TunInfo, CreateError> {
        let Some(info) = link.tun else {
            let what = Mismatch::OtherDriver { kind: link.kind.clone() };
            return Err(CreateError::Mismatch { name: link.name.clone(), what });
        };
        self.kind = Kind::of(&info);
        self.flags.remove(Flags::TAP | Flags::TUN);
        self.flags.insert(self.kind.flag());
        self.flags.set(Flags::MULTI_QUEUE, info.multi_queue);
        // The first opener of a persistent device sets these flags, so they must be its own.
        self.flags.set(Flags::NO_PI, !info.packet_info);
        self.flags.set(Flags::VNET_HDR, info.net_header);
        self.flags.remove(NOT_FOR_A_GUEST);
        if queue_count(&info) == 0 {
            self.flags |= self.unseen_flags(&link.name)?;
        }
        Ok(info)
    }

    /// True if the device's queues use NAPI and this one does not: the flag belongs to the device,
    /// but each file uses the value that it was opened with.
    fn has_napi(&self, first: &Opened) -> Result<bool, CreateError> {
        let (_, flags) =
            ioctl::interface(&first.fd).map_err(CreateError::refused(&first.name, "TUNGETIFF"))?;
        Ok(flags.difference(self.flags).contains(Flags::NAPI))
    }

    /// Flags of a device without open queues that rtnetlink does not report. The first opener
    /// overwrites these as well.
    fn unseen_flags(&self, name: &str) -> Result<Flags, CreateError> {
        let unseen = (Flags::NAPI | Flags::NAPI_FRAGS | Flags::BACKPRESSURE) & self.features;
        if unseen.is_empty() {
            return Ok(unseen);
        }
        let read = || Sysfs::open(&Namespace::current()?)?.tun_flags(name);
        let unknown = |error: LinkError| CreateError::UnknownFlags {
            name: name.to_owned(),
            what: error.to_string(),
        };
        let bits = read().map_err(unknown)? & u32::from(u16::MAX);
        Ok(u16::try_from(bits).map_or(unseen, |bits| unseen & Flags::from_bits_truncate(bits)))
    }

    /// Resets the settings that an existing device keeps from its former user, except the carrier,
    /// which the flags of the first attached file set. Returns true if another program uses the
    /// device: then nothing is reset, and its properties must match.
    fn take_over(&self, first: &Opened) -> Result<bool, CreateError> {
        // If the lookup fails, another program may use the device, and a reset would break it
        // silently.
        let info = look_up(&first.name)?.and_then(|link| link.tun).unwrap_or_default();
        if queue_count(&info) > 1 {
            return self.must_be_as_wanted(first, &info).map(|()| true);
        }
        let (refused, fd) = (|call| CreateError::refused(&first.name, call), &first.fd);
        let steering = ioctl::set_steering(fd, None).or_else(unknown_call);
        steering.map_err(refused("TUNSETSTEERINGEBPF"))?;
        let filter = ioctl::set_filter(fd, None).or_else(unknown_call);
        filter.map_err(refused("TUNSETFILTEREBPF"))?;
        if self.kind == Kind::Tap {
            ioctl::set_tx_filter(fd, &[], false).map_err(refused("TUNSETTXFILTER"))?;
            ioctl::detach_classic_filter(fd).map_err(refused("TUNDETACHFILTER"))?;
        }
        Ok(false)
    }

    /// Linux ignores the flags of additional files, so either side would misread frames.
    fn must_be_as_wanted(&self, first: &Opened, info: &TunInfo) -> Result<(), CreateError> {
        let is = prefix_of(first, info)?;
        if is == self.prefix {
            return Ok(());
        }
        let is = is.to_string();
        Err(CreateError::InUse { name: first.name.clone(), is, wanted: self.prefix })
    }

    /// Sets the configured properties that a persistent device keeps.
    fn apply(&self, first: &Opened) -> Result<(), CreateError> {
        let (refused, fd) = (|call| CreateError::refused(&first.name, call), &first.fd);
        if self.prefix.net_header != HeaderLen::None {
            let len = self.prefix.net_header.bytes();
            ioctl::set_header_len(fd, len).map_err(refused("TUNSETVNETHDRSZ"))?;
            let little = ioctl::set_little_endian(fd, false).or_else(unknown_call);
            little.map_err(refused("TUNSETVNETLE"))?;
            // A kernel that refuses this call cannot be set to big-endian either.
            let big = ioctl::set_big_endian(fd, false).or_else(unknown_call);
            big.map_err(refused("TUNSETVNETBE"))?;
        }
        let send_buffer_len = self.config.send_buffer_len;
        ioctl::set_send_buffer_len(fd, send_buffer_len).map_err(refused("TUNSETSNDBUF"))?;
        // While the interface is up, Linux refuses even the link type that is already set.
        let LinkType(wanted) = self.config.link_type.unwrap_or(self.kind.link_type());
        let (is, _) = ioctl::hardware_address(fd).map_err(refused("SIOCGIFHWADDR"))?;
        if is == wanted {
            return Ok(());
        }
        let outcome = ioctl::set_link_type(fd, wanted);
        outcome.map_err(|errno| explain::link_type_error(&first.name, is, errno))
    }

    /// Sets the offloads for received frames. Without a header there are none, which must be set as
    /// well: a persistent device would keep the offloads of its former user.
    fn negotiate(&self, first: &Opened) -> Result<Capabilities, CreateError> {
        let possible = Offloads::all().within(self.prefix.net_header);
        let set = |cap| {
            negotiate(&first.fd, cap).map_err(CreateError::refused(&first.name, "TUNSETOFFLOAD"))
        };
        let send = match Capabilities::probe() {
            Ok(kernel) => kernel.send.intersection(possible),
            Err(_) => set(possible)?,
        };
        let receive = set(self.config.offloads.intersection(possible))?;
        Ok(Capabilities::new(self.features, receive, send))
    }

    /// Steps that must come last because they outlive a failure.
    fn finish(&self, name: &str, first: &Queue) -> Result<(), CreateError> {
        let refused = |call| CreateError::refused(name, call);
        if let Some(user) = self.config.owner {
            let error = |errno| explain::owner_error(name, "user", user, errno);
            ioctl::set_owner(first, user).map_err(error)?;
        }
        if let Some(group) = self.config.group {
            let error = |errno| explain::owner_error(name, "group", group, errno);
            ioctl::set_group(first, group).map_err(error)?;
        }
        match self.config.persistent {
            Some(on) => ioctl::set_persistent(first, on).map_err(refused("TUNSETPERSIST")),
            None => Ok(()),
        }
    }
}

/// Flags that a joining program does not set, whatever the configuration says.
const NOT_FOR_A_GUEST: Flags =
    Flags::NAPI.union(Flags::NAPI_FRAGS).union(Flags::BACKPRESSURE).union(Flags::NO_CARRIER);

/// Returns the metadata layout of an existing device.
fn prefix_of(first: &Opened, info: &TunInfo) -> Result<Prefix, CreateError> {
    let net_header = net_header(&first.fd, &first.name, info.net_header)?;
    Ok(Prefix { packet_info: info.packet_info, net_header })
}

/// Pauses before a name that nobody seems to hold is requested again.
const MOMENTS: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20)];

/// Whether a device of that name may be opened a moment later.
fn may_pass(by: &Taken, exclusive: Flags) -> bool {
    match by {
        Taken::Held { holders } => holders.is_empty(),
        Taken::Unheld => exclusive.is_empty(),
        Taken::Unknown => true,
        Taken::OtherDriver { .. } => false,
    }
}

/// Index of the interface `name` in the namespace of the calling thread. Any socket will do.
fn index_of(name: &str) -> rustix::io::Result<u32> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    netdevice::name_to_index(socket, name)
}

/// If the kernel does not know the call, there is nothing to reset.
fn unknown_call(errno: Errno) -> rustix::io::Result<()> {
    if errno == Errno::INVAL { Ok(()) } else { Err(errno) }
}
