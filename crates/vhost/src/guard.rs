//! What becomes of us when a VMM takes memory away that it has shared.
//!
//! A file that is cut short leaves a mapping whose pages are gone: touching one raises `SIGBUS`,
//! which ends the process, and with it the ports of all other guests. A memfd that is sealed
//! against shrinking cannot do that, but nobody need seal it.
//!
//! So there is a handler. It looks whether the address lies in a mapping of a guest; if so, it puts
//! empty memory of our own in place of the whole mapping and notes the hit, and the access goes on
//! with zeroes. Whoever serves the guest sees the note ([`Guarded::was_hit`]) and resets the port.
//! Any other `SIGBUS` is none of our business and goes where it went before.
//!
//! The whole mapping, as a page alone would make three mappings of one, and a process may have but
//! so many (`vm.max_map_count`, 65,530 by default): a guest could use them up by frames on every
//! other page. Where the whole cannot be had, it is the page; the table knows how large the pages
//! of each mapping are, as of hugetlbfs a part of one cannot be replaced.
//!
//! The handler runs in the middle of anything, so it takes no lock and allocates nothing: the
//! mappings are in a table of atomics, of fixed size. When the table is full, no memory more is
//! taken from anybody: a mapping that is not guarded would be a weapon against all others.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A range of addresses whose loss is survived, from its making to its drop.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// Its place in the table.
    slot: &'static Slot,
}

impl Guarded {
    /// Guards the `len` bytes at `start`, which are whole pages of `page_size` bytes, a power of
    /// two, and mapped. `None` when the table is full.
    pub(crate) fn new(start: usize, len: usize, page_size: usize) -> Option<Self> {
        install();
        let slot = SLOTS.iter().find(|slot| slot.claim(start, len, page_size))?;
        Some(Self { slot })
    }

    /// True when a page in the range was gone.
    #[inline]
    pub(crate) fn was_hit(&self) -> bool {
        self.slot.hit.load(Ordering::Relaxed)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.slot.release();
    }
}

#[derive(Debug)]
struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    /// Zero while the slot is not in use.
    len: AtomicUsize,
    page_size: AtomicUsize,
    hit: AtomicBool,
}

impl Slot {
    const fn empty() -> Self {
        Self {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            page_size: AtomicUsize::new(1),
            hit: AtomicBool::new(false),
        }
    }

    fn claim(&self, start: usize, len: usize, page_size: usize) -> bool {
        if self.taken.swap(true, Ordering::Acquire) {
            return false;
        }
        self.hit.store(false, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
        self.page_size.store(page_size, Ordering::Relaxed);
        self.len.store(len, Ordering::Release);
        true
    }

    fn release(&self) {
        self.len.store(0, Ordering::Relaxed);
        self.taken.store(false, Ordering::Release);
    }

    /// True when `address` is guarded here.
    fn contains(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Acquire);
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < len
    }
}

/// Puts the handler in place, once for the process.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the call reads one structure and writes another, both of which are there.
        let outcome = unsafe { libc::sigaction(libc::SIGBUS, &action, PREVIOUS.0.get().cast()) };
        // It cannot fail: the signal is a valid one. If it does, a loss is not survived.
        debug_assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
    });
}

/// What handled the signal before.
struct Previous(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is in place.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(std::cell::UnsafeCell::new(MaybeUninit::zeroed()));

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure.
    let info = unsafe { &*info };
    // SAFETY: for SIGBUS it has an address.
    let address = unsafe { info.si_addr() } as usize;
    match SLOTS.iter().find(|slot| slot.contains(address)) {
        Some(slot) if replace(slot, address) => slot.hit.store(true, Ordering::Relaxed),
        _ => give_back(),
    }
}

/// Puts empty memory over the mapping of which the page at `address` is gone, or over that page
/// alone when the kernel gives no more.
fn replace(slot: &Slot, address: usize) -> bool {
    let (start, len) = (slot.start.load(Ordering::Relaxed), slot.len.load(Ordering::Relaxed));
    let size = slot.page_size.load(Ordering::Relaxed);
    put_pages(start, len) || put_pages(address & !(size - 1), size)
}

/// Puts empty pages over those that lie there.
fn put_pages(start: usize, len: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the pages lie in a guest's mapping, which consists of whole pages and is only ever
    // copied from and to: any bytes will do there. It stays where it is as long as this thread
    // uses it, and the kernel exchanges it under other threads at one moment. mmap(2) is a bare
    // system call and safe in a handler.
    let put = unsafe { libc::mmap(start as *mut libc::c_void, len, access, flags, -1, 0) };
    put != libc::MAP_FAILED
}

/// Lets whoever was there before us have the signal: it comes again when the handler returns.
fn give_back() {
    // SAFETY: `PREVIOUS` was filled before this handler could run; sigaction(2) is safe in a
    // handler.
    unsafe { libc::sigaction(libc::SIGBUS, PREVIOUS.0.get().cast(), ptr::null_mut()) };
}

static SLOTS: [Slot; SLOT_COUNT] = [const { Slot::empty() }; SLOT_COUNT];
/// Regions of all guests together; one guest has a few, and 64 at most.
const SLOT_COUNT: usize = 4096;
