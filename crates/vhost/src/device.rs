//! The back end of vhost-user: what a VMM says of its guest's network device, and what follows.
//!
//! A session is one connection. It negotiates features, shares the guest's memory, describes rings,
//! and starts and stops them ("Starting and stopping rings" in the vhost-user specification):
//!
//! - a ring is *started* by its kick descriptor, and *stopped* by the question where it stands
//!   (`GET_VRING_BASE`) or the end of the session;
//! - a started ring is *used* while it is enabled, which it is from the start when there are no
//!   protocol features;
//! - while it is not, a ring by which the guest receives gets nothing, and what the guest sends is
//!   taken and thrown away ("Ring states"): whoever serves it asks ([`Running::is_enabled`]).
//!
//! A change of memory stops every ring and starts it again where it stood, in terms of the new
//! memory, so nothing of the old one is used behind the VMM's back. VMMs exchange regions one by
//! one, so a ring may lie nowhere for a while: then it waits for the memory that it lies in. So
//! does a ring whose next buffer does, as long as less memory is there than was.
//!
//! **While a guest is moved** to another machine, what we write to its memory is noted
//! ([`crate::log`]): of all rings (`VHOST_F_LOG_ALL`), or of one ring but not of its buffers
//! (`VHOST_VRING_F_LOG`). A ring of which something is to be noted waits for the map.
//!
//! **Nothing is lost with a session.** Buffers are given back in the order in which they came and
//! within the burst that took them, so a ring whose place is not known (ours was killed) goes on
//! from its used index, which is what VMMs assume then, or from where its flags say; no table of
//! buffers in flight is needed (`docs/adr/0013-no-table-of-buffers-in-flight.md`).

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

use self::early::{Early, Request};
use self::notifier::NotifierError;
use crate::features::Features;
use crate::log::{DirtyLog, RingLog};
use crate::memory::{GuestMemory, MemoryError, RegionSpec, len_of};
use crate::queue::{Queue, Running, SessionNumber};
use crate::ring::{Direction, PACKED_START, Ring, RingError, RingPlace};

/// A guest's network device, as long as the port lives: sessions come and go.
#[derive(Debug)]
pub struct Device {
    queues: Box<[Arc<Queue>]>,
    offered: Features,
    newest: Mutex<Newest>,
}

/// The session that began last, which may be over.
#[derive(Debug, Default)]
struct Newest {
    number: SessionNumber,
    connection: Connection,
    /// Why the device was reset, for whoever reports it; taken once.
    fault: Option<String>,
}

/// The connection to the VMM.
#[derive(Debug, Default)]
enum Connection {
    #[default]
    None,
    Open(UnixStream),
    /// There will be none any more.
    Closed,
}

impl Connection {
    /// Ends the session, if there is one, which finds out either way.
    fn shut_down(&self) {
        if let Self::Open(stream) = self {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Device {
    /// A device with `pairs` pairs of queues, none running, that offers all that we know.
    ///
    /// # Errors
    /// When the kernel gives no descriptors.
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

    /// The queue by which the guest receives frames of pair `index`.
    pub fn receive_queue(&self, index: usize) -> Option<&Arc<Queue>> {
        self.queues.get(2 * index)
    }

    /// The queue by which the guest sends frames of pair `index`.
    pub fn transmit_queue(&self, index: usize) -> Option<&Arc<Queue>> {
        self.queues.get(2 * index + 1)
    }

    /// Serves one session on `stream`, until the VMM goes or does something that it must not. Every
    /// ring is stopped then. Answers why the session ended. `observe` is told each time that the
    /// device's status has changed; it was [`Status::default`] before, and is again at the end. It
    /// is told of announcements, too.
    pub fn serve(
        self: &Arc<Self>,
        stream: UnixStream,
        mut observe: impl FnMut(News),
    ) -> SessionEnd {
        let (Ok(early), Some(number)) = (stream.try_clone(), self.begin(&stream)) else {
            return SessionEnd::Closed;
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

    /// Notes that a session begins, and answers which; nothing when there is to be none any more,
    /// or nothing to end one by.
    fn begin(&self, stream: &UnixStream) -> Option<SessionNumber> {
        let mut newest = lock(&self.newest);
        if matches!(newest.connection, Connection::Closed) {
            return None;
        }
        let connection = Connection::Open(stream.try_clone().ok()?);
        let number = newest.number.next();
        // What was found when the session before had ended already is not this one's.
        *newest = Newest { number, connection, fault: None };
        Some(number)
    }

    /// The session that began last.
    pub fn session(&self) -> SessionNumber {
        lock(&self.newest).number
    }

    /// Ends the session, if there is one.
    pub fn disconnect(&self) {
        lock(&self.newest).connection.shut_down();
    }

    /// Ends the session, if there is one, and lets none begin any more.
    pub fn close(&self) {
        let mut newest = lock(&self.newest);
        newest.connection.shut_down();
        newest.connection = Connection::Closed;
    }

    /// Ends this session because of what the guest did, unless it is over: every ring is stopped,
    /// and the VMM has to start anew. Any thread may say so; not while it holds a queue.
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

/// What a session tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Other queues run now.
    Status(Status),
    /// The guest was moved here and does not say so itself, for want of
    /// `VIRTIO_NET_F_GUEST_ANNOUNCE`: a RARP frame with this address is to be sent as if it came
    /// from the guest (`VHOST_USER_SEND_RARP`).
    Announce([u8; 6]),
}

/// What of a device runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Pairs of queues, both of which run.
    pub pairs: u16,
    /// What was negotiated; nothing while no pair runs.
    pub features: Features,
    /// True when the guest's memory holds nothing where a guest's memory always does: the VMM has
    /// it mapped privately, as a rule, and we see none of what the guest writes.
    pub is_blank: bool,
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The VMM closed the connection.
    Closed,
    /// The VMM asked for something that cannot be, and what.
    Refused(String),
    /// The guest did something that it must not, and what.
    Reset(String),
}

/// What the VMM has said in this session.
struct Session {
    device: Arc<Device>,
    number: SessionNumber,
    features: Features,
    regions: Vec<RegionSpec>,
    /// Bytes of memory that were taken away, less those that came since.
    away_len: u64,
    memory: Option<Arc<GuestMemory>>,
    rings: Vec<RingConfig>,
    /// Where pages that we write are noted.
    log: Option<Arc<DirtyLog>>,
    /// Why a request was refused, in our words.
    refused: Option<String>,
}

/// What the VMM has said of one ring.
#[derive(Debug, Default)]
struct RingConfig {
    size: u16,
    /// Addresses of descriptors, driver's and device's part.
    addresses: Option<[u64; 3]>,
    base: Option<u32>,
    is_enabled: bool,
    is_started: bool,
    /// The driver had made a buffer available when it was stopped last.
    was_filled: bool,
    /// What we write to the ring is to be noted.
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

    /// What runs now, or is to run again as soon as the memory that it lies in is there again: a
    /// VMM exchanges that piece by piece, and what goes to its guest waits meanwhile.
    fn status(&self) -> Status {
        let is_running = |queue: &Arc<Queue>| queue.is_running();
        let runs = |(queues, rings): &(&[Arc<Queue>], &[RingConfig])| {
            queues.iter().all(is_running) && rings[1].is_enabled
        };
        let pairs = self.device.queues.chunks_exact(2).zip(self.rings.chunks_exact(2));
        match u16::try_from(pairs.filter(runs).count()).unwrap_or(u16::MAX) {
            0 => Status::default(),
            pairs => {
                // It takes a while to look at it, while workers use their rings.
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
                "queue {index}: the port has {count}, counted from 0: give it as many pairs \
                 (queues=) as the guest is to use, or the guest no more than it has"
            )),
        }
    }

    /// Refuses a request, and notes why.
    fn refuse<T>(&mut self, why: &str) -> Result<T> {
        self.refused.get_or_insert_with(|| why.to_owned());
        Err(Error::InvalidParam)
    }

    /// Starts the ring if it can be: started, enabled unless the guest sends by it, described, with
    /// memory, and with a map where what it writes is to be noted.
    fn start(&mut self, index: u32) -> Result<()> {
        self.start_or(index, |session, error| session.refuse(&format!("queue {index}: {error}")))
    }

    /// The same of a ring that is not what a message is about: when it does not lie in the memory
    /// that is shared now, it waits for that.
    fn start_again(&mut self, index: u32) -> Result<()> {
        self.start_or(index, |session, error| match error {
            RingError::Place => Ok(()),
            error => session.refuse(&format!("queue {index}: {error}")),
        })
    }

    /// Starts the ring if it can be, or does what is `otherwise` to be done.
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
        // From here on they are the ring's, until it is stopped.
        let (kick, call) = (ring.kick.take(), ring.call.take());
        let mut running = Running::new(made, features, kick, call).of_session(self.number);
        running.set_enabled(is_enabled);
        running.note_filled(was_filled);
        if let Some(log) = log {
            running.log_to(RingLog::new(log, &memory, &place, features.ring(), buffers));
        }
        self.device.queues[index as usize].start(running).map_err(Error::ReqHandlerError)
    }

    /// Stops the ring if it runs, and remembers where it stands.
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

    /// Lets whoever would wait for the ring know that it does not come back by itself.
    fn let_go(&self, index: u32) {
        self.device.queues.get(index as usize).into_iter().for_each(|queue| queue.let_go());
    }

    /// Stops all rings for good.
    fn end(&mut self) {
        self.stop_all();
        self.indices().for_each(|index| self.let_go(index));
    }

    /// All queues' numbers: a device has 131,070 at most.
    fn indices(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.rings.len()).unwrap_or(0)
    }

    /// Changes something that rings depend on: they are stopped, and started again where they
    /// stood, or wait.
    fn change(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.stop_all();
        change(self)?;
        self.indices().try_for_each(|index| self.start_again(index))
    }

    /// Changes some of the regions, as VMMs do that exchange one after the other.
    fn exchange(&mut self, exchange: impl FnOnce(&mut Vec<RegionSpec>)) -> Result<()> {
        self.change(|session| {
            let before = session.away_len.saturating_add(len_of(&session.regions));
            exchange(&mut session.regions);
            session.away_len = before.saturating_sub(len_of(&session.regions));
            session.remap()
        })
    }

    /// Maps the regions anew.
    fn remap(&mut self) -> Result<()> {
        match GuestMemory::of_guest(&self.regions, self.away_len > 0) {
            Ok(memory) => self.memory = Some(memory),
            // All of it may go before other regions come.
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
            return self.refuse(&format!("features {features:#x}: more than were offered"));
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
            // QEMU 7.2 tells of each region once for each pair of queues.
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
            return self.refuse(&format!("queue {index}: {size} descriptors, 32768 at most"));
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
        // A VMM that cannot share its guest's memory goes on without a word of it.
        if self.memory.is_none() {
            return self.refuse(&MemoryError::NotShared.to_string());
        }
        self.ring(index)?;
        let kick = match file.ok_or(NotifierError::Missing).and_then(notifier::take) {
            Ok(kick) => kick,
            Err(error) => return self.refuse(&format!("queue {index}: its kick is {error}")),
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
        // Without one the driver looks by itself.
        let call = match file.map(notifier::take).transpose() {
            Ok(call) => call,
            Err(error) => return self.refuse(&format!("queue {index}: its call is {error}")),
        };
        self.ring(index)?.call = call;
        self.start_again(index)
    }

    /// Errors end the session, which says more than a descriptor.
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

    /// What they change is the messages, which are the handler's.
    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    /// Pairs of queues: that is how network devices count here.
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

/// Takes what the handler does not.
fn take_early(
    session: &Mutex<Session>,
    stream: &UnixStream,
    tell: &mut impl FnMut(News),
) -> Result<()> {
    // The monitor's end of it, not what it said.
    let failed = |error: io::Error| Error::SocketBroken(error);
    loop {
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

/// Queues come in pairs, by which the guest receives and sends (virtio 1.2 §5.1.2).
fn direction_of(index: u32) -> Direction {
    if index.is_multiple_of(2) { Direction::Receive } else { Direction::Transmit }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a device is reset whose [`Running::memory_was_lost`].
pub const MEMORY_LOST: &str = "the monitor took memory away that it had shared";
/// Regions that a guest's memory may have, with hotplug.
const MAX_REGIONS: usize = 64;

#[cfg(test)]
mod tests;
