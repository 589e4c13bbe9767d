//! A tap device: making it, and what is known about it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};
use tapswitch_wire::MacAddr;

use crate::ioctl::{self, flags};
use crate::{Config, CreateError, DeviceName, Offloads, Queue, probe};

/// A tap device and its queues. It goes away with the last queue, unless it is persistent.
#[derive(Debug)]
pub struct Device {
    name: DeviceName,
    index: u32,
    capabilities: Capabilities,
    /// At least one.
    queues: Box<[Queue]>,
}

impl Device {
    /// Makes or opens the device that `config` describes, in the network namespace of the calling
    /// thread. A device that is made is down. Takes half a millisecond, the first of a process some
    /// twenty for a probe; closing the last queue takes as long.
    ///
    /// # Errors
    /// [`CreateError`], which names the cause and a remedy. Nothing is left behind.
    pub fn create(config: &Config) -> Result<Self, CreateError> {
        let exclusive = if config.exclusive { flags::TUN_EXCL } else { 0 };
        let first = open_queue(config, exclusive)?;
        reset(&first, config)?;
        let receive =
            negotiate(&first, config.offloads).map_err(refused(config, "TUNSETOFFLOAD"))?;
        let capabilities = Capabilities { receive, send: sendable(&first, config, receive)? };
        let index = index_of(&config.name).map_err(refused(config, "SIOCGIFINDEX"))?;
        let mut queues = vec![Queue::new(first)];
        for _ in 1..config.queues.get() {
            queues.push(Queue::new(open_queue(config, 0)?));
        }
        Ok(Self { name: config.name.clone(), index, capabilities, queues: queues.into() })
    }

    /// Changes, while traffic flows, what may be left undone in frames that are received on any
    /// queue, to the best that the kernel has within `at_most`; answers what that is.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn set_offloads(&mut self, at_most: Offloads) -> io::Result<Offloads> {
        self.capabilities.receive = negotiate(&self.queues[0], at_most)?;
        Ok(self.capabilities.receive)
    }

    /// The queues, as many as were asked for.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// The queues alone, to be shared out among threads.
    pub fn into_queues(self) -> Vec<Queue> {
        self.queues.into_vec()
    }

    /// The name it was made with. Somebody may have renamed it since.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The name it has now (`TUNGETIFF`).
    ///
    /// # Errors
    /// When the device is gone.
    pub fn current_name(&self) -> io::Result<String> {
        Ok(ioctl::name(&self.queues[0])?)
    }

    /// Index of the interface in the namespace where it was made.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// MAC address of the kernel's end, random unless it was set.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn mac(&self) -> io::Result<MacAddr> {
        Ok(ioctl::mac(&self.queues[0])?)
    }

    /// What may be left undone in frames, in each direction.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}

/// What may be left undone in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// In frames that come from the device: what the kernel has and the configuration permits.
    pub receive: Offloads,
    /// In frames that go to the device: what this kernel understands. The rest must be done before
    /// sending. Found out by a probe; without the privilege for that (`CAP_SYS_ADMIN`), taken to
    /// be what the kernel offers the other way, which came in the same releases.
    pub send: Offloads,
}

/// Opens a file and makes it the next queue of the device.
fn open_queue(config: &Config, more_flags: u16) -> Result<OwnedFd, CreateError> {
    let fd = ioctl::open_tun().map_err(CreateError::open)?;
    let multi_queue = if config.is_multi_queue() { flags::MULTI_QUEUE } else { 0 };
    let flags = flags::TAP | flags::NO_PI | flags::VNET_HDR | multi_queue | more_flags;
    match ioctl::attach(&fd, config.name.as_str(), flags) {
        Ok(()) => Ok(fd),
        Err(errno) => Err(attach_error(config, errno)),
    }
}

fn attach_error(config: &Config, errno: Errno) -> CreateError {
    let name = config.name.clone();
    match errno {
        Errno::PERM | Errno::ACCESS => CreateError::NotPermitted { name },
        Errno::BUSY => CreateError::NameTaken { name },
        Errno::INVAL => CreateError::Mismatch { name, multi_queue: config.is_multi_queue() },
        Errno::TOOBIG => CreateError::TooManyQueues { name, queues: config.queues.get() },
        _ => refused(config, "TUNSETIFF")(errno),
    }
}

/// Sets what a persistent device keeps from its former user. The send buffer is none of that: it
/// is unlimited on each new file.
fn reset(fd: &OwnedFd, config: &Config) -> Result<(), CreateError> {
    ioctl::set_header_len(fd, ioctl::HEADER_LEN).map_err(refused(config, "TUNSETVNETHDRSZ"))?;
    ioctl::set_native_byte_order(fd).map_err(refused(config, "TUNSETVNETLE"))
}

/// Sets the best offloads within `cap` that the kernel takes.
fn negotiate(fd: impl AsFd, cap: Offloads) -> rustix::io::Result<Offloads> {
    let fd = fd.as_fd();
    for rung in Offloads::ladder(cap) {
        match ioctl::set_offload(fd, rung.bits()) {
            Ok(()) => return Ok(rung),
            Err(Errno::INVAL) => {}
            Err(other) => return Err(other),
        }
    }
    Err(Errno::INVAL)
}

/// What the kernel understands; `receive` is what the device is set to.
fn sendable(fd: &OwnedFd, config: &Config, receive: Offloads) -> Result<Offloads, CreateError> {
    if let Some(probed) = probe::sendable() {
        return Ok(probed);
    }
    let offered = negotiate(fd, Offloads::all()).map_err(refused(config, "TUNSETOFFLOAD"))?;
    negotiate(fd, receive).map_err(refused(config, "TUNSETOFFLOAD"))?;
    Ok(offered)
}

/// Index of the interface called `name` in the namespace of the calling thread. Any socket will do.
fn index_of(name: &DeviceName) -> rustix::io::Result<u32> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    netdevice::name_to_index(socket, name.as_str())
}

fn refused(config: &Config, call: &'static str) -> impl FnOnce(Errno) -> CreateError {
    let name = config.name.clone();
    move |errno| CreateError::Ioctl { name, call, source: errno.into() }
}
