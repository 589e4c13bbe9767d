//! A virtqueue of a device: the session with the VMM starts and stops it, a worker uses it.
//!
//! Both use a lock that is held for a burst or a message, never for longer. To stop a ring, the
//! session takes it out of the queue: a worker that comes later finds nothing there and continues
//! with its other ports.
//!
//! A worker is woken by the driver's notification, through a descriptor that the VMM passes and may
//! replace at any time. So a worker waits for a permanent epoll instance, and the session adds the
//! current descriptor to it, edge-triggered: a worker acknowledges a notification by polling the
//! epoll instance, and never reads the VMM's descriptor, which might block. The descriptors passed
//! are eventfds; for how we signal the driver's, see [`call`].

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::call;
use crate::chain::{Chain, Chains};
use crate::features::Features;
use crate::log::RingLog;
use crate::ring::{Ring, RingError};
use crate::shortage::{Shortage, ShortageNote};

/// Identifies the session of a ring: the sessions of a device have different numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionNumber(u64);

impl SessionNumber {
    /// The number of the session after this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A virtqueue, running or not.
#[derive(Debug)]
pub struct Queue {
    running: Arc<Mutex<Option<Running>>>,
    /// Whether there is a ring, or will be again as soon as its VMM has completed a change.
    is_running: AtomicBool,
    shortage: Arc<ShortageNote>,
    /// Readable when the driver has notified us, or a ring was started.
    poll: OwnedFd,
    started: OwnedFd,
}

/// A virtqueue that is locked: no other thread uses it, and it is neither started nor stopped.
/// Owned, so that a worker can keep it for a burst of any number of frames.
pub struct Held(ArcMutexGuard<RawMutex, Option<Running>>);

impl Deref for Held {
    type Target = Option<Running>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Held {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&**self).finish()
    }
}

impl Queue {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let started = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&poll, &started, NO_DATA, EDGES)?;
        let (running, shortage, is_running) = (Arc::default(), Arc::default(), false.into());
        Ok(Self { running, is_running, shortage, poll, started })
    }

    /// Locks the ring for a burst; the content is `None` while it is stopped. Waits for the current
    /// holder, so the caller must not hold another one; see [`Self::try_lock`].
    #[inline]
    pub fn lock(&self) -> Held {
        Held(self.running.lock_arc())
    }

    /// As [`Self::lock`], but `None` if another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<Held> {
        self.running.try_lock_arc().map(Held)
    }

    /// True while there is a ring, as far as is known without the lock. If the lock is held and
    /// there is no ring, this tells whether one will be back soon, for example because its VMM is
    /// changing memory.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// Whether the guest provides too few buffers for the frames that it is to receive. Takes no
    /// lock, and does not look into the guest's memory: known from the frames.
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage.read()
    }

    /// Acknowledges notifications.
    #[inline]
    pub fn acknowledge(&self) {
        let mut events = [const { epoll::Event { flags: EDGES, data: NO_DATA } }; 2];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // There may be none to acknowledge.
        let _ = epoll::wait(&self.poll, &mut events, Some(&at_once));
    }

    /// Starts a ring, and waits for its notifications from now on.
    ///
    /// Both sides are woken once: the worker may have gone to sleep because it found no ring, and
    /// the former back end may have disabled notifications, or may have been killed between giving
    /// buffers back and notifying.
    pub(crate) fn start(&self, mut running: Running) -> io::Result<()> {
        let mut place = self.lock();
        if let Some(kick) = &running.kick {
            epoll::add(&self.poll, kick, NO_DATA, EDGES)?;
        }
        running.notify();
        running.shortage = self.shortage.clone();
        *place = Some(running);
        self.is_running.store(true, Ordering::Relaxed);
        // The counter is full if the worker has been woken and has not looked yet.
        let _ = rustix::io::write(&self.started, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Sets [`Running::is_enabled`] of the ring, if there is one. Returns whether there is.
    pub(crate) fn set_enabled(&self, is_enabled: bool) -> bool {
        self.lock().as_mut().map(|running| running.set_enabled(is_enabled)).is_some()
    }

    /// Takes the ring out during a change, after which it is started again or [let
    /// go](Self::let_go). Chains that were fetched and not used have been undone.
    pub(crate) fn stop(&self) -> Option<Running> {
        self.stop_if(|_| true)
    }

    /// Notes that no ring will be back soon.
    pub(crate) fn let_go(&self) {
        let _place = self.lock();
        self.is_running.store(false, Ordering::Relaxed);
        self.shortage.end();
    }

    /// Removes the ring for good if it belongs to this session.
    pub(crate) fn stop_of(&self, session: SessionNumber) {
        if self.stop_if(|running| running.session == session).is_some() {
            self.let_go();
        }
    }

    fn stop_if(&self, is_meant: impl FnOnce(&Running) -> bool) -> Option<Running> {
        let mut running = self.lock().take_if(|running| is_meant(running))?;
        if let Some(kick) = &running.kick {
            // It was added when the ring was started.
            let _ = epoll::delete(&self.poll, kick);
        }
        running.put_back();
        Some(running)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

/// A started ring.
#[derive(Debug)]
pub struct Running {
    ring: Ring,
    /// Negotiated features.
    features: Features,
    /// [`Features::header_len`] of these.
    header_len: usize,
    /// Chains that were fetched together; those before `next` have been used, and those before
    /// `given` are known to the ring as used.
    ahead: Chains,
    next: usize,
    given: usize,
    /// Pieces of buffers that this burst has written to, not counting frames in a single piece.
    pub(crate) pieces_written: usize,
    /// The next chain is in memory that was removed and may come back.
    waits: bool,
    /// The driver has made a chain available since it started the ring, as far as is known.
    was_filled: bool,
    /// The note of the queue.
    shortage: Arc<ShortageNote>,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    /// Notifications sent.
    calls: u64,
    /// The log for our writes, during a migration.
    log: Option<RingLog>,
    is_enabled: bool,
    session: SessionNumber,
}

impl Running {
    /// A started ring of a device that has agreed on `features`. [`crate::Device`] passes the
    /// descriptors that wake its user (`kick`) and notify the driver (`call`); without the latter,
    /// the driver is not notified.
    pub fn new(
        ring: Ring,
        features: Features,
        kick: Option<OwnedFd>,
        call: Option<OwnedFd>,
    ) -> Self {
        let was_filled = !ring.is_new();
        let mut running = Self {
            ring,
            features,
            header_len: features.header_len(),
            ahead: Chains::default(),
            next: 0,
            given: 0,
            pieces_written: 0,
            waits: false,
            was_filled,
            shortage: Arc::default(),
            kick,
            call,
            calls: 0,
            log: None,
            is_enabled: true,
            session: SessionNumber::default(),
        };
        // Notifications are enabled explicitly.
        running.disarm();
        running
    }

    /// Sets the session to which the ring belongs.
    pub(crate) fn of_session(self, session: SessionNumber) -> Self {
        Self { session, ..self }
    }

    /// The session to which the ring belongs, and so the guest responsible for violations.
    #[inline]
    pub fn session(&self) -> SessionNumber {
        self.session
    }

    /// Logs our writes to `log` from now on, and the writes made when the ring was created.
    pub(crate) fn log_to(&mut self, log: RingLog) {
        log.note_ring();
        self.log = Some(log);
    }

    /// Sets whether frames from the guest are used or discarded.
    pub(crate) fn set_enabled(&mut self, is_enabled: bool) {
        self.is_enabled = is_enabled;
    }

    /// False while frames from the guest must be returned without being processed: its VMM has
    /// disabled the ring, or not enabled it yet.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// True if the VMM has truncated memory that we read: the bytes read were zero. The device must
    /// be reset.
    pub fn memory_was_lost(&self) -> bool {
        self.ring.memory().was_lost()
    }

    /// Negotiated features.
    #[inline]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Length in bytes of the network header in front of each frame.
    #[inline]
    pub(crate) fn header_len(&self) -> usize {
        self.header_len
    }

    /// Notifications sent to the driver since the ring was started.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The fetched chains, including used ones.
    #[inline]
    pub fn chains(&self) -> &Chains {
        &self.ahead
    }

    /// Number of descriptors of the ring.
    pub(crate) fn ring_size(&self) -> u16 {
        self.ring.size()
    }

    /// Fetches up to `limit` chains if none is left, or fewer if they have very many pieces.
    /// Returns how many there are.
    ///
    /// # Errors
    /// The driver's violation: the device must be reset.
    #[inline]
    pub fn fetch(&mut self, limit: usize) -> Result<usize, RingError> {
        if self.next == self.ahead.len() {
            self.forget_used(0);
            self.fetch_more(limit)?;
        }
        Ok(self.ahead.len() - self.next)
    }

    /// Fetches up to `count` more chains. A chain in memory that was removed waits until the memory
    /// comes back, when the ring is restarted. A guest that uses memory which is gone for good
    /// waits for ever.
    #[inline]
    fn fetch_more(&mut self, count: usize) -> Result<(), RingError> {
        match self.ring.fetch(count, &mut self.ahead) {
            Err(RingError::Address) if self.ring.memory().is_partial() => {
                self.waits = true;
                Ok(())
            }
            Ok(count) => {
                if count > 0 && !self.was_filled {
                    self.note_first();
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that the driver has made its first chain available.
    #[cold]
    fn note_first(&mut self) {
        self.was_filled = true;
        self.shortage.end();
    }

    /// Notes that a frame has found too few buffers.
    #[cold]
    pub(crate) fn note_shortage(&self) {
        self.shortage.begin(self.base(), self.is_unready());
    }

    /// Restores whether the driver has ever made a chain available.
    pub(crate) fn note_filled(&mut self, was_filled: bool) {
        self.was_filled |= was_filled;
    }

    /// True if the driver has made nothing available since it started the ring, as far as is known:
    /// Linux does so when its interface is set up, long after it has found the device. A buffer in
    /// memory that may come back counts as available.
    pub(crate) fn is_unready(&self) -> bool {
        !self.was_filled && !self.waits
    }

    /// Fetches until `count` chains are there, if the driver has made so many available. Returns
    /// whether they are. A [`Chain`] obtained before is invalid: see [`Self::peek`].
    ///
    /// # Errors
    /// As [`Self::fetch`].
    #[inline]
    pub fn fetch_at_least(&mut self, count: usize) -> Result<bool, RingError> {
        let mut left = self.ahead.len() - self.next;
        if left < count {
            self.forget_used(left);
            self.fetch_more((count - left).max(FETCH_COUNT))?;
            // A fetch ends early if chains have very many pieces.
            while self.ahead.len() < count && self.ahead.len() > left {
                left = self.ahead.len();
                self.fetch_more(count - left)?;
            }
        }
        Ok(self.ahead.len() - self.next >= count)
    }

    /// Removes used chains, and moves the few that are `left` to the start: a receiver may have
    /// some left over at every fetch, for as long as it runs.
    #[inline]
    fn forget_used(&mut self, left: usize) {
        self.give_back();
        if left == 0 {
            self.ahead.clear();
        } else if self.next > 0 {
            self.ahead.forget_first(self.next);
        }
        (self.next, self.given) = (0, 0);
    }

    /// Gives used chains back to the ring, many at a time.
    #[inline]
    fn give_back(&mut self) {
        let used = self.given..self.next;
        if let Some(log) = &self.log {
            for (chain, written) in self.ahead.used(used.clone()) {
                log.note_buffer(self.ring.memory(), &self.ahead, &chain, written);
            }
        }
        self.ring.complete_all(self.ahead.used(used));
        self.given = self.next;
    }

    /// The chain `index` places behind the next one.
    #[inline]
    pub fn peek(&self, index: usize) -> Option<Chain> {
        self.ahead.get(self.next + index)
    }

    /// Gives the next chain back, with `written` bytes in it. The driver sees it after
    /// [`Self::publish`].
    #[inline]
    pub fn complete(&mut self, written: u32) {
        if self.ahead.note_written(self.next, written) {
            self.next += 1;
        }
    }

    /// Ends a burst: publishes completed chains, and notifies the driver if it wants that.
    #[inline]
    pub fn publish(&mut self) {
        self.pieces_written = 0;
        self.give_back();
        let wants_call = self.ring.publish();
        self.note_ring();
        if wants_call {
            self.notify();
        }
    }

    /// Enables notifications before sleeping. Returns `false` if there is work.
    pub fn arm(&mut self) -> bool {
        // A chain that waits for memory stays available, and there is nothing to do about it.
        let is_idle = self.next == self.ahead.len() && (self.waits || self.ring.arm());
        self.note_ring();
        is_idle
    }

    /// Disables notifications, as we poll.
    pub fn disarm(&mut self) {
        self.ring.disarm();
        self.note_ring();
    }

    #[inline]
    fn note_ring(&self) {
        if let Some(log) = &self.log {
            log.note_ring();
        }
    }

    /// The position of the ring; see [`Ring::base`].
    pub(crate) fn base(&self) -> u32 {
        self.ring.base()
    }

    pub(crate) fn into_descriptors(self) -> (Option<OwnedFd>, Option<OwnedFd>) {
        (self.kick, self.call)
    }

    #[cold]
    fn notify(&mut self) {
        self.calls += 1;
        if let Some(call) = &self.call {
            call::signal(call);
        }
    }

    /// Undoes the fetch of unused chains, the last one first, and publishes the used ones.
    fn put_back(&mut self) {
        for index in (self.next..self.ahead.len()).rev() {
            if let Some(chain) = self.ahead.get(index) {
                self.ring.undo(&chain);
            }
        }
        self.publish();
        self.forget_used(0);
    }
}

/// It does not matter which descriptor was signalled.
const NO_DATA: epoll::EventData = epoll::EventData::new_u64(0);
/// Edge-triggered, so that a notification is consumed without reading the VMM's descriptor.
const EDGES: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);
/// Chains fetched together if more than one may be needed.
const FETCH_COUNT: usize = 32;
