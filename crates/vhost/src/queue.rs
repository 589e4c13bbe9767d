//! One virtqueue of a device: the session with the VMM starts and stops it, a worker uses it.
//!
//! The two meet at a lock that is held for a burst or for a message, never for longer, and that
//! nobody waits for in the long run: stopping a ring is taking it out of its place. A worker that
//! comes later finds nothing there and goes on with its other ports.
//!
//! What wakes a worker, the driver's notification, is a descriptor that the VMM hands over and may
//! change at any time. So a worker waits for an epoll instance that stays, and the session puts
//! into it what is to be waited for. It is edge-triggered there: a worker takes note of a
//! notification by asking the epoll instance, and never reads what a VMM handed over, which might
//! make it wait. What is handed over are eventfds; how ours is signalled, see [`call`].

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

/// Which session a ring is of: those of a device have different numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionNumber(u64);

impl SessionNumber {
    /// That of the session after this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A virtqueue, running or not.
#[derive(Debug)]
pub struct Queue {
    running: Arc<Mutex<Option<Running>>>,
    /// Whether there is a ring in it, or is to be again as soon as its VMM has changed something.
    is_running: AtomicBool,
    /// Readable when the driver has notified us, or a ring was started.
    poll: OwnedFd,
    started: OwnedFd,
}

/// A virtqueue that is held: nobody else touches it, and it is neither started nor stopped. Owned,
/// so that a worker can keep it for a burst, however many frames that is.
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
        Ok(Self { running: Arc::default(), is_running: AtomicBool::new(false), poll, started })
    }

    /// The ring, for a burst; `None` inside while it is stopped. Waits for whoever has it; who
    /// holds another one must not, see [`Self::try_lock`].
    #[inline]
    pub fn lock(&self) -> Held {
        Held(self.running.lock_arc())
    }

    /// As [`Self::lock`], if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Held> {
        self.running.try_lock_arc().map(Held)
    }

    /// True while a ring is in its place, as far as can be told without holding it. Who holds it
    /// and finds none is told by this whether one is about to come back: its VMM changes memory,
    /// say.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// Takes note of notifications.
    #[inline]
    pub fn acknowledge(&self) {
        let mut events = [const { epoll::Event { flags: EDGES, data: NO_DATA } }; 2];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // There may be none: then there is nothing to take note of.
        let _ = epoll::wait(&self.poll, &mut events, Some(&at_once));
    }

    /// Puts a ring into its place; its notifications are waited for from now on.
    ///
    /// Both sides look once without being asked. The worker may sleep since it found no ring, and
    /// whoever served the ring before may have told the driver not to notify; it may also have been
    /// killed between giving buffers back and saying so.
    pub(crate) fn start(&self, mut running: Running) -> io::Result<()> {
        let mut place = self.lock();
        if let Some(kick) = &running.kick {
            epoll::add(&self.poll, kick, NO_DATA, EDGES)?;
        }
        running.notify();
        *place = Some(running);
        self.is_running.store(true, Ordering::Relaxed);
        // Full means that the worker has been woken and has not looked yet.
        let _ = rustix::io::write(&self.started, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Marks the ring in its place, if there is one; see [`Running::is_enabled`].
    pub(crate) fn set_enabled(&self, is_enabled: bool) -> bool {
        self.lock().as_mut().map(|running| running.set_enabled(is_enabled)).is_some()
    }

    /// Takes the ring out of its place, for as long as something changes: it is started again, or
    /// [let go](Self::let_go). What was fetched and not used has gone back.
    pub(crate) fn stop(&self) -> Option<Running> {
        self.stop_if(|_| true)
    }

    /// No ring comes back into its place.
    pub(crate) fn let_go(&self) {
        let _place = self.lock();
        self.is_running.store(false, Ordering::Relaxed);
    }

    /// Takes the ring out for good if it is one of this session.
    pub(crate) fn stop_of(&self, session: SessionNumber) {
        if self.stop_if(|running| running.session == session).is_some() {
            self.let_go();
        }
    }

    fn stop_if(&self, is_meant: impl FnOnce(&Running) -> bool) -> Option<Running> {
        let mut running = self.lock().take_if(|running| is_meant(running))?;
        if let Some(kick) = &running.kick {
            // It is in there, since it was when the ring was started.
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

/// A ring at work.
#[derive(Debug)]
pub struct Running {
    ring: Ring,
    /// What was negotiated.
    features: Features,
    /// What was fetched together; those before `next` were used.
    ahead: Chains,
    next: usize,
    /// Pieces of buffers that frames were put into in this burst, where they did not lie in one.
    pub(crate) pieces_written: usize,
    /// The next chain lies in memory that was taken away and may come back.
    waits: bool,
    /// The driver has made a chain available since it started the ring, as far as we have looked.
    was_filled: bool,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    /// Notifications that were sent.
    calls: u64,
    /// Where what we write is noted, while the guest is moved.
    log: Option<RingLog>,
    is_enabled: bool,
    session: SessionNumber,
}

impl Running {
    /// The ring at work, of a device that agreed on `features`. What wakes whoever uses it, and
    /// what it notifies the driver by, are handed over by [`crate::Device`]; without the latter
    /// nobody is notified.
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
            ahead: Chains::default(),
            next: 0,
            pieces_written: 0,
            waits: false,
            was_filled,
            kick,
            call,
            calls: 0,
            log: None,
            is_enabled: true,
            session: SessionNumber::default(),
        };
        // Whoever is to be notified says so.
        running.disarm();
        running
    }

    /// The same ring, which belongs to this session.
    pub(crate) fn of_session(self, session: SessionNumber) -> Self {
        Self { session, ..self }
    }

    /// The session that it belongs to: whose guest it is that does wrong.
    #[inline]
    pub fn session(&self) -> SessionNumber {
        self.session
    }

    /// From now on, what we write is noted in `log`; what was written when the ring was made is.
    pub(crate) fn log_to(&mut self, log: RingLog) {
        log.note_ring();
        self.log = Some(log);
    }

    /// Whether what the guest sends from now on is to be used, or taken and thrown away.
    pub(crate) fn set_enabled(&mut self, is_enabled: bool) {
        self.is_enabled = is_enabled;
    }

    /// False while what the guest sends is to be taken and given back unseen: its VMM has disabled
    /// the ring, or not enabled it yet.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// True when the VMM has taken memory away under us: what was read from there was zero. The
    /// device is to be reset.
    pub fn memory_was_lost(&self) -> bool {
        self.ring.memory().was_lost()
    }

    /// What was negotiated.
    #[inline]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Notifications that were sent to the driver since the ring was started.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The chains that were fetched, those that were used included.
    #[inline]
    pub fn chains(&self) -> &Chains {
        &self.ahead
    }

    /// Descriptors of the ring.
    pub(crate) fn ring_size(&self) -> u16 {
        self.ring.size()
    }

    /// Fetches up to `limit` chains when none is left, fewer where they have very many pieces.
    /// Returns how many there are.
    ///
    /// # Errors
    /// What the driver did wrong: the device is to be reset.
    #[inline]
    pub fn fetch(&mut self, limit: usize) -> Result<usize, RingError> {
        if self.next == self.ahead.len() {
            self.ahead.clear();
            self.next = 0;
            self.fetch_more(limit)?;
        }
        Ok(self.ahead.len() - self.next)
    }

    /// Fetches up to `count` chains more. One that lies in memory that was taken away waits until
    /// that comes back: the ring is then started anew. A guest that uses memory which is gone for
    /// good waits for good.
    #[inline]
    fn fetch_more(&mut self, count: usize) -> Result<(), RingError> {
        match self.ring.fetch(count, &mut self.ahead) {
            Err(RingError::Address) if self.ring.memory().is_partial() => {
                self.waits = true;
                Ok(())
            }
            Ok(count) => {
                self.was_filled |= count > 0;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The driver has made a chain available before, or has not.
    pub(crate) fn note_filled(&mut self, was_filled: bool) {
        self.was_filled |= was_filled;
    }

    /// True when the driver has made nothing available since it started the ring, as far as we have
    /// looked: Linux' does so when its interface is set up, long after it has found the device. A
    /// buffer that lies in memory which may come back is one.
    pub(crate) fn is_unready(&self) -> bool {
        !self.was_filled && !self.waits
    }

    /// Fetches so that `count` chains are there, if the driver has made so many available. Returns
    /// whether they are. A [`Chain`] from before is to be asked for again ([`Self::peek`]).
    ///
    /// # Errors
    /// As [`Self::fetch`].
    #[inline]
    pub fn fetch_at_least(&mut self, count: usize) -> Result<bool, RingError> {
        let mut left = self.ahead.len() - self.next;
        if left < count {
            self.forget_used(left);
            self.fetch_more((count - left).max(FETCH_COUNT))?;
            // There may be more, where those have very many pieces.
            while self.ahead.len() < count && self.ahead.len() > left {
                left = self.ahead.len();
                self.fetch_more(count - left)?;
            }
        }
        Ok(self.ahead.len() - self.next >= count)
    }

    /// Forgets chains that were used, and moves the few that are `left` to the start: a receiver
    /// may have some left over each time that it fetches, for as long as it runs.
    #[inline]
    fn forget_used(&mut self, left: usize) {
        if left == 0 {
            self.ahead.clear();
        } else if self.next > 0 {
            self.ahead.forget_first(self.next);
        }
        self.next = 0;
    }

    /// The chain that is `index` places behind the next one.
    #[inline]
    pub fn peek(&self, index: usize) -> Option<Chain> {
        self.ahead.get(self.next + index)
    }

    /// Gives the next chain back, with `written` bytes in it.
    #[inline]
    pub fn complete(&mut self, written: u32) {
        if let Some(chain) = self.ahead.get(self.next) {
            if let Some(log) = &self.log {
                log.note_buffer(self.ring.memory(), &self.ahead, &chain, written);
            }
            self.ring.complete(&chain, written);
            self.next += 1;
        }
    }

    /// Ends a burst: tells the driver of what was completed, and notifies it if it wants that.
    #[inline]
    pub fn publish(&mut self) {
        self.pieces_written = 0;
        let wants_call = self.ring.publish();
        self.note_ring();
        if wants_call {
            self.notify();
        }
    }

    /// Asks for notifications before sleeping. Returns `false` when there is something to do.
    pub fn arm(&mut self) -> bool {
        // What waits for memory is to be seen all the time, and nothing to be done about.
        let is_idle = self.next == self.ahead.len() && (self.waits || self.ring.arm());
        self.note_ring();
        is_idle
    }

    /// Asks for no notifications: we look by ourselves.
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

    /// Where the ring stands; see [`Ring::base`].
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

    /// Gives back what was fetched and not used, the last one first, and tells of what was.
    fn put_back(&mut self) {
        for index in (self.next..self.ahead.len()).rev() {
            if let Some(chain) = self.ahead.get(index) {
                self.ring.undo(&chain);
            }
        }
        self.ahead.clear();
        self.next = 0;
        self.publish();
    }
}

/// Which descriptor was written to is of no interest.
const NO_DATA: epoll::EventData = epoll::EventData::new_u64(0);
/// A notification is noted without reading what a VMM handed over.
const EDGES: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);
/// Chains that are fetched together where more than one may be needed.
const FETCH_COUNT: usize = 32;
