//! The vhost-user back end: a guest's network device and its VMM's messages.
//!
//! A session is one connection. It negotiates features, shares the guest's memory, describes rings,
//! and starts and stops them ("Starting and stopping rings" in the vhost-user specification):
//!
//! - a ring is *started* by its kick descriptor, and *stopped* by the request for its position
//!   (`GET_VRING_BASE`) or the end of the session;
//! - a started ring is *used* while it is enabled, which it is from the start if there are no
//!   protocol features;
//! - while it is disabled, a receive ring gets no frames, and frames on a transmit ring are taken
//!   and discarded ("Ring states"), which is up to the user of the ring ([`Running::is_enabled`]).
//!
//! A change of memory stops every ring and restarts it at its position in the new memory, so the
//! old memory is not used without the VMM's knowledge. VMMs replace regions one by one, so a ring
//! may be outside of memory for a while: it then waits for its memory. So does a ring whose next
//! buffer is outside, while the guest has less memory than before.
//!
//! **During a migration**, our writes to the guest's memory are logged ([`crate::log`]): of all
//! rings (`VHOST_F_LOG_ALL`), or of one ring without its buffers (`VHOST_VRING_F_LOG`). A ring that
//! must be logged waits for the bitmap.
//!
//! **Nothing is lost with a session.** Buffers are given back in the order in which they were
//! fetched and within the same burst. So a ring whose position is unknown, because we were killed,
//! continues at its used index, which VMMs assume then, or at the position found from its flags; no
//! table of buffers in flight is needed (`docs/adr/0013-no-table-of-buffers-in-flight.md`).

mod arrival;
mod early;
mod notifier;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};

use self::arrival::{ArrivalError, whole_message};
use self::early::{Early, Request};
use self::notifier::NotifierError;
use crate::features::Features;
use crate::log::{DirtyLog, RingLog};
use crate::memory::{GuestMemory, MemoryError, RegionSpec, len_of};
use crate::queue::{Queue, Running, SessionNumber};
use crate::ring::{Direction, PACKED_START, Ring, RingError, RingPlace};

/// A guest's network device. It lives as long as its port, over any number of sessions.
#[derive(Debug)]
pub struct Device {
    queues: Box<[Arc<Queue>]>,
    offered: Features,
    newest: Mutex<Newest>,
}

/// The session that began last, which may have ended.
#[derive(Debug, Default)]
struct Newest {
    number: SessionNumber,
    connection: Connection,
    /// Why the device was reset; taken once, by the session that reports it.
    fault: Option<String>,
}

/// The connection to the VMM.
#[derive(Debug, Default)]
enum Connection {
    #[default]
    None,
    Open(UnixStream),
    /// No more sessions are accepted.
    Closed,
}

impl Connection {
    /// Ends the session, if any, by shutting down its connection.
    fn shut_down(&self) {
        if let Self::Open(stream) = self {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Device {
    /// A device with `pairs` queue pairs, none running, that offers all features we know.
    ///
    /// # Errors
    /// If the kernel refuses descriptors.
    pub fn new(pairs: u16) -> io::Result<Arc<Self>> {
        Self::offering(pairs, Features::OFFERED)
    }

    /// As [`Self::new`], with these features.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn offering(pairs: u16, offered: Features) -> io::Result<Arc<Self>> {
        let queues = (0..2 * u32::from(pairs)).map(|_| Queue::new().map(Arc::new));
        let queues = queues.collect::<io::Result<Box<[_]>>>()?;
        Ok(Arc::new(Self { queues, offered, newest: Mutex::default() }))
    }

    /// The queue on which the guest of pair `index` receives.
    pub fn receive_queue(&self, index: usize) -> Option<&Arc<Queue>> {
        self.queues.get(2 * index)
    }

    /// The queue on which the guest of pair `index` sends.
    pub fn transmit_queue(&self, index: usize) -> Option<&Arc<Queue>> {
        self.queues.get(2 * index + 1)
    }

    /// Serves one session on `stream`, until the VMM disconnects or violates the protocol. All
    /// rings are stopped then. Returns why the session ended. Calls `observe` for each change of
    /// the device's status, which was [`Status::default`] before and is again at the end, and for
    /// announcements.
    pub fn serve(
        self: &Arc<Self>,
        stream: UnixStream,
        mut observe: impl FnMut(News),
    ) -> SessionEnd {
        let begun = stream.try_clone().and_then(|early| Ok((early, self.begin(&stream)?)));
        let (early, number) = match begun {
            Ok((early, Some(number))) => (early, number),
            Ok((_, None)) => return SessionEnd::Closed,
            Err(error) => return SessionEnd::Refused(no_descriptor(&error)),
        };
        let session = Arc::new(Mutex::new(Session::new(self.clone(), number)));
        let mut handler = BackendReqHandler::from_stream(stream, session.clone());
        let mut told = Status::default();
        let mut tell = |news| {
            let is_old = matches!(news, News::Status(status) if status == told);
            if let News::Status(status) = news {
                told = status;
            }
            if !is_old {
                observe(news);
            }
        };
        let error = loop {
            let taken = take_early(&session, &early, &mut tell);
            match taken.and_then(|()| handler.handle_request()) {
                Ok(()) => tell(News::Status(lock(&session).status())),
                Err(error) => break error,
            }
        };
        if let connection @ Connection::Open(_) = &mut lock(&self.newest).connection {
            *connection = Connection::None;
        }
        let mut session = lock(&session);
        session.end();
        tell(News::Status(Status::default()));
        let fault = lock(&self.newest).fault.take();
        match (fault, session.refused.take(), error) {
            (Some(fault), _, _) => SessionEnd::Reset(fault),
            (_, Some(refused), _) => SessionEnd::Refused(refused),
            (_, _, Error::Disconnected | Error::SocketBroken(_) | Error::PartialMessage) => {
                SessionEnd::Closed
            }
            (_, _, error) => SessionEnd::Refused(error.to_string()),
        }
    }

    /// Registers a new session and returns its number; `None` if no more are accepted.
    fn begin(&self, stream: &UnixStream) -> io::Result<Option<SessionNumber>> {
        let mut newest = lock(&self.newest);
        if matches!(newest.connection, Connection::Closed) {
            return Ok(None);
        }
        let connection = Connection::Open(stream.try_clone()?);
        let number = newest.number.next();
        // A violation found after the end of the session before does not concern this one.
        *newest = Newest { number, connection, fault: None };
        Ok(Some(number))
    }

    /// The session that began last.
    pub fn session(&self) -> SessionNumber {
        lock(&self.newest).number
    }

    /// Ends the session, if any.
    pub fn disconnect(&self) {
        lock(&self.newest).connection.shut_down();
    }

    /// Ends the session, if any, and accepts no more.
    pub fn close(&self) {
        let mut newest = lock(&self.newest);
        newest.connection.shut_down();
        newest.connection = Connection::Closed;
    }

    /// Ends this session because of the guest's violation, unless it has ended: every ring is
    /// stopped, and the VMM has to reconnect. May be called from any thread that holds no queue.
    #[cold]
    pub fn reset(&self, session: SessionNumber, fault: impl Into<String>) {
        {
            let mut newest = lock(&self.newest);
            if newest.number != session {
                return;
            }
            newest.fault.get_or_insert_with(|| fault.into());
        }
        // Another session may begin meanwhile: its rings stay.
        for queue in &self.queues {
            queue.stop_of(session);
        }
        let newest = lock(&self.newest);
        if newest.number == session {
            newest.connection.shut_down();
        }
    }
}

/// An event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The set of running queues has changed.
    Status(Status),
    /// The guest was migrated here and cannot announce itself, as it lacks
    /// `VIRTIO_NET_F_GUEST_ANNOUNCE`: send a RARP frame with this address as if it came from the
    /// guest (`VHOST_USER_SEND_RARP`).
    Announce([u8; 6]),
}

/// The running part of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Number of queue pairs that run.
    pub pairs: u16,
    /// Negotiated features; empty while no pair runs.
    pub features: Features,
    /// True if the guest's memory is empty where a guest's memory never is: usually the VMM has
    /// mapped it privately, so that we see none of the guest's writes.
    pub is_blank: bool,
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The VMM closed the connection.
    Closed,
    /// The VMM has sent an invalid request, described by the text.
    Refused(String),
    /// The guest has violated the protocol, as described by the text.
    Reset(String),
}

/// The state of this session.
struct Session {
    device: Arc<Device>,
    number: SessionNumber,
    features: Features,
    regions: Vec<RegionSpec>,
    /// Bytes of memory that were removed, less those added since.
    away_len: u64,
    memory: Option<Arc<GuestMemory>>,
    rings: Vec<RingConfig>,
    /// The dirty bitmap.
    log: Option<Arc<DirtyLog>>,
    /// Why a request was refused, in our own words.
    refused: Option<String>,
}

/// A ring's configuration by the VMM.
#[derive(Debug, Default)]
struct RingConfig {
    size: u16,
    /// Addresses of the descriptors, the driver's part and the device's part.
    addresses: Option<[u64; 3]>,
    base: Option<u32>,
    is_enabled: bool,
    is_started: bool,
    /// The driver had made a buffer available when the ring was last stopped.
    was_filled: bool,
    /// Our writes to the ring must be logged.
    is_logged: bool,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
}

impl Session {
    fn new(device: Arc<Device>, number: SessionNumber) -> Self {
        let rings = device.queues.iter().map(|_| RingConfig::default()).collect();
        Self {
            device,
            number,
            features: Features::empty(),
            regions: Vec::new(),
            away_len: 0,
            memory: None,
            rings,
            log: None,
            refused: None,
        }
    }

    /// The pairs that run, including those that will run again when their memory is back: a VMM
    /// replaces memory piece by piece, and frames for its guest wait meanwhile.
    fn status(&self) -> Status {
        let is_running = |queue: &Arc<Queue>| queue.is_running();
        let runs = |(queues, rings): &(&[Arc<Queue>], &[RingConfig])| {
            queues.iter().all(is_running) && rings[1].is_enabled
        };
        let pairs = self.device.queues.chunks_exact(2).zip(self.rings.chunks_exact(2));
        match u16::try_from(pairs.filter(runs).count()).unwrap_or(u16::MAX) {
            0 => Status::default(),
            pairs => {
                // Examining the memory takes a while, during which workers use their rings.
                let is_blank = self.memory.as_ref().is_some_and(|memory| memory.is_blank());
                Status { pairs, features: self.features, is_blank }
            }
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingConfig> {
        let count = self.rings.len();
        match usize::try_from(index) {
            Ok(index) if index < count => Ok(&mut self.rings[index]),
            _ => self.refuse(&format!(
                "queue {index}: the port has {count} queues, counted from 0: set queues= to the \
                 number of pairs that the guest uses, or give the guest fewer"
            )),
        }
    }

    /// Refuses a request, and records why.
    fn refuse<T>(&mut self, why: &str) -> Result<T> {
        self.refused.get_or_insert_with(|| why.to_owned());
        Err(Error::InvalidParam)
    }

    /// Starts the ring if everything is in place: started, enabled (if the guest receives on it),
    /// described, with memory, and with a bitmap if it must be logged.
    fn start(&mut self, index: u32) -> Result<()> {
        self.start_or(index, |session, error| session.refuse(&format!("queue {index}: {error}")))
    }

    /// As [`Self::start`], for a ring that the current message does not concern: if it is not in
    /// the memory that is shared now, it waits for that.
    fn start_again(&mut self, index: u32) -> Result<()> {
        self.start_or(index, |session, error| match error {
            RingError::Place => Ok(()),
            error => session.refuse(&format!("queue {index}: {error}")),
        })
    }

    /// Starts the ring if everything is in place, and calls `otherwise` with an error.
    fn start_or(
        &mut self,
        index: u32,
        otherwise: impl FnOnce(&mut Self, RingError) -> Result<()>,
    ) -> Result<()> {
        let (features, memory, log) = (self.features, self.memory.clone(), self.log.clone());
        let direction = direction_of(index);
        let ring = self.ring(index)?;
        let (is_enabled, was_filled) = (ring.is_enabled, ring.was_filled);
        let is_served = ring.is_started && (is_enabled || direction == Direction::Transmit);
        if !is_served {
            self.let_go(index);
            return Ok(());
        }
        let (Some(addresses), Some(memory)) = (ring.addresses, memory) else { return Ok(()) };
        let buffers = features.contains(Features::LOG_ALL);
        let log = match (buffers || ring.is_logged, log) {
            (true, None) => return Ok(()),
            (is_wanted, log) => log.filter(|_| is_wanted),
        };
        let [descriptors, driver, device] = addresses;
        let place = RingPlace { size: ring.size, descriptors, driver, device };
        let first = if features.contains(Features::RING_PACKED) { PACKED_START } else { 0 };
        let base = ring.base.unwrap_or(first);
        let made = match Ring::new(&memory, &place, features.ring(), direction, base) {
            Ok(made) => made,
            Err(error) => return otherwise(self, error),
        };
        // They belong to the ring until it is stopped.
        let (kick, call) = (ring.kick.take(), ring.call.take());
        let mut running = Running::new(made, features, kick, call).of_session(self.number);
        running.set_enabled(is_enabled);
        running.note_filled(was_filled);
        if let Some(log) = log {
            running.log_to(RingLog::new(log, &memory, &place, features.ring(), buffers));
        }
        self.device.queues[index as usize].start(running).map_err(Error::ReqHandlerError)
    }

    /// Stops the ring if it runs, and records its position.
    fn stop(&mut self, index: u32) {
        let Some(running) = self.device.queues.get(index as usize).and_then(|queue| queue.stop())
        else {
            return;
        };
        if let Ok(ring) = self.ring(index) {
            (ring.base, ring.was_filled) = (Some(running.base()), !running.is_unready());
            (ring.kick, ring.call) = running.into_descriptors();
        }
    }

    fn stop_all(&mut self) {
        self.indices().for_each(|index| self.stop(index));
    }

    /// Tells threads that would wait for the ring that it does not come back by itself.
    fn let_go(&self, index: u32) {
        self.device.queues.get(index as usize).into_iter().for_each(|queue| queue.let_go());
    }

    /// Stops all rings for good.
    fn end(&mut self) {
        self.stop_all();
        self.indices().for_each(|index| self.let_go(index));
    }

    /// The indices of all queues: a device has at most 131,070.
    fn indices(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.rings.len()).unwrap_or(0)
    }

    /// Makes a change on which rings depend: they are stopped, and restarted at their positions, or
    /// wait.
    fn change(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.stop_all();
        change(self)?;
        self.indices().try_for_each(|index| self.start_again(index))
    }

    /// Changes some of the regions, for VMMs that replace one after the other.
    fn exchange(&mut self, exchange: impl FnOnce(&mut Vec<RegionSpec>)) -> Result<()> {
        self.change(|session| {
            let before = session.away_len.saturating_add(len_of(&session.regions));
            exchange(&mut session.regions);
            session.away_len = before.saturating_sub(len_of(&session.regions));
            session.remap()
        })
    }

    /// Maps the regions again.
    fn remap(&mut self) -> Result<()> {
        match GuestMemory::of_guest(&self.regions, self.away_len > 0) {
            Ok(memory) => self.memory = Some(memory),
            // All regions may be removed before others are added.
            Err(MemoryError::NotShared) => self.memory = None,
            Err(error) => return self.refuse(&error.to_string()),
        }
        Ok(())
    }
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.end();
        self.features = Features::empty();
        self.log = None;
        self.rings.fill_with(RingConfig::default);
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.device.offered.bits())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let known = Features::from_bits(features);
        let Some(features) = known.filter(|wanted| self.device.offered.contains(*wanted)) else {
            return self.refuse(&format!("features {features:#x}: some of them were not offered"));
        };
        self.change(|session| {
            session.features = features;
            if !features.contains(Features::PROTOCOL_FEATURES) {
                session.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
            }
            Ok(())
        })
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let specs = regions.iter().zip(files).map(|(region, file)| RegionSpec {
            guest_address: region.guest_phys_addr,
            user_address: region.user_addr,
            len: region.memory_size,
            offset: region.mmap_offset,
            file: file.into(),
        });
        let specs = specs.collect();
        self.change(|session| {
            (session.regions, session.away_len) = (specs, 0);
            session.remap()
        })?;
        Ok(None)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let spec = RegionSpec {
            guest_address: region.guest_phys_addr,
            user_address: region.user_addr,
            len: region.memory_size,
            offset: region.mmap_offset,
            file: file.into(),
        };
        if self.regions.len() >= MAX_REGIONS {
            return self.refuse(&format!("more than {MAX_REGIONS} memory regions"));
        }
        let place = |region: &RegionSpec| (region.guest_address, region.user_address, region.len);
        self.exchange(|regions| {
            // QEMU 7.2 adds each region once for each queue pair.
            regions.retain(|known| place(known) != place(&spec));
            regions.push(spec);
        })?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (address, len) = (region.guest_phys_addr, region.memory_size);
        self.exchange(|regions| {
            regions.retain(|known| (known.guest_address, known.len) != (address, len));
        })
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_REGIONS as u64)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let Ok(size) = u16::try_from(size) else {
            return self
                .refuse(&format!("queue {index}: {size} descriptors; at most 32768 are allowed"));
        };
        self.ring(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        device: u64,
        driver: u64,
        _log: u64,
    ) -> Result<()> {
        self.stop(index);
        let ring = self.ring(index)?;
        ring.addresses = Some([descriptors, driver, device]);
        ring.is_logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        self.start(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.stop(index);
        self.ring(index)?.base = Some(base);
        self.start(index)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop(index);
        self.let_go(index);
        let packed = self.features.contains(Features::RING_PACKED);
        let ring = self.ring(index)?;
        (ring.is_started, ring.was_filled) = (false, false);
        (ring.kick, ring.call) = (None, None);
        let base = ring.base.unwrap_or(if packed { PACKED_START } else { 0 });
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = u32::from(index);
        self.stop(index);
        // A VMM that cannot share its guest's memory continues without mentioning it.
        if self.memory.is_none() {
            return self.refuse(&MemoryError::NotShared.to_string());
        }
        self.ring(index)?;
        let kick = match file.ok_or(NotifierError::Missing).and_then(notifier::take) {
            Ok(kick) => kick,
            Err(error) => {
                return self.refuse(&format!("queue {index}: its kick descriptor is {error}"));
            }
        };
        let ring = self.ring(index)?;
        ring.kick = Some(kick);
        ring.is_started = true;
        self.start(index)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = u32::from(index);
        self.stop(index);
        self.ring(index)?;
        // Without a descriptor, the driver polls.
        let call = match file.map(notifier::take).transpose() {
            Ok(call) => call,
            Err(error) => {
                return self.refuse(&format!("queue {index}: its call descriptor is {error}"));
            }
        };
        self.ring(index)?.call = call;
        self.start_again(index)
    }

    /// Errors end the session, which is more informative than this descriptor.
    fn set_vring_err(&mut self, _index: u8, _file: Option<File>) -> Result<()> {
        Ok(())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.is_enabled = enable;
        if direction_of(index) == Direction::Transmit
            && self.device.queues[index as usize].set_enabled(enable)
        {
            return Ok(());
        }
        self.stop(index);
        self.start(index)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    /// They change only the messages, which the handler implements.
    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    /// Number of queue pairs, which is how network devices count here.
    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.rings.len() as u64 / 2)
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::CONFIG))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::CONFIG))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("a network device has no display"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::SHARED_OBJECT))
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::INFLIGHT_SHMFD))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::INFLIGHT_SHMFD))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::DEVICE_STATE))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::DEVICE_STATE))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InactiveOperation(VhostUserProtocolFeatures::SHMEM))
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let log = match DirtyLog::new(&file.into(), log.mmap_offset, log.mmap_size) {
            Ok(log) => log,
            Err(error) => return self.refuse(&error.to_string()),
        };
        self.change(|session| {
            session.log = Some(log);
            Ok(())
        })
    }
}

/// Waits for a message for the `vhost` crate's handler, and handles those before it that it would
/// reject.
fn take_early(
    session: &Mutex<Session>,
    stream: &UnixStream,
    tell: &mut impl FnMut(News),
) -> Result<()> {
    // An error of the connection, not of a message.
    let failed = |error: io::Error| Error::SocketBroken(error);
    loop {
        match whole_message(stream) {
            Ok(()) => {}
            Err(ArrivalError::Io(error)) => return Err(failed(error)),
            Err(late) => return lock(session).refuse(&late.to_string()),
        }
        let is_set = lock(session).features.contains(Features::PROTOCOL_FEATURES);
        let Some(early) = Early::take(stream, is_set).map_err(failed)? else { return Ok(()) };
        let outcome = match early.request {
            Request::Enable { index, on } => lock(session).set_vring_enable(index, on),
            Request::Announce(station) => {
                tell(News::Announce(station));
                Ok(())
            }
        };
        early.answer(stream, outcome.is_ok()).map_err(failed)?;
        outcome?;
    }
}

/// Why a connection cannot be duplicated, which its session needs.
fn no_descriptor(error: &io::Error) -> String {
    format!("its connection cannot be duplicated: {error}; {MORE_FILES}")
}

/// Queues come in pairs: the guest receives on the first and sends on the second (virtio 1.2
/// §5.1.2).
fn direction_of(index: u32) -> Direction {
    if index.is_multiple_of(2) { Direction::Receive } else { Direction::Transmit }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason for resetting a device with [`Running::memory_was_lost`].
pub const MEMORY_LOST: &str = "the VMM removed memory that it had shared";

/// The remedy when the kernel refuses a file descriptor.
pub const MORE_FILES: &str = "raise the limit of open files (`ulimit -n`, LimitNOFILE= of systemd)";

/// Limit of regions of a guest's memory, with hotplug.
const MAX_REGIONS: usize = 64;

#[cfg(test)]
mod tests;
