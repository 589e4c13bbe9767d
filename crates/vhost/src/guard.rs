//! The guard against a VMM that truncates shared memory.
//!
//! Truncating a file leaves mappings without pages: touching one raises `SIGBUS`, which ends the
//! process with the ports of all other guests. Sealing a memfd against shrinking prevents that, but
//! VMMs need not do it.
//!
//! So there is a signal handler. If the address is in a guest's mapping, the handler replaces the
//! whole mapping by empty memory and records the hit, and the access continues with zeroes. The
//! thread that serves the guest sees the record ([`Guarded::was_hit`]) and resets the port. Any
//! other `SIGBUS` is passed to the previous handler.
//!
//! The whole mapping is replaced, as replacing a single page splits it into three, and the number
//! of mappings is limited (`vm.max_map_count`, 65,530 by default): a guest could exhaust it with
//! frames on every other page. If the whole mapping cannot be replaced, the page is; the table has
//! the page size of each mapping, as on hugetlbfs a part of a page cannot be replaced.
//!
//! The handler may interrupt anything, so it takes no lock and allocates nothing: the mappings are
//! in a fixed-size table of atomics. When the table is full, no more memory is accepted: an
//! unguarded mapping could be used against all guests.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A guarded range of addresses, until it is dropped.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// Its slot in the table.
    slot: &'static Slot,
}

impl Guarded {
    /// Guards the `len` bytes at `start`, which are mapped whole pages of `page_size` bytes, a
    /// power of two. `None` if the table is full.
    pub(crate) fn new(start: usize, len: usize, page_size: usize) -> Option<Self> {
        install();
        let slot = SLOTS.iter().find(|slot| slot.claim(start, len, page_size))?;
        Some(Self { slot })
    }

    /// True if a page in the range was missing.
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
    /// Zero if the slot is not in use.
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

    /// True if `address` is guarded by this slot.
    fn contains(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Acquire);
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < len
    }
}

/// Installs the handler, once per process.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the call reads one structure and writes another, both of which exist.
        let outcome = unsafe { libc::sigaction(libc::SIGBUS, &action, PREVIOUS.0.get().cast()) };
        // It cannot fail, as the signal is valid. If it did, there would be no guard.
        debug_assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
    });
}

/// The previous handler of the signal.
struct Previous(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(std::cell::UnsafeCell::new(MaybeUninit::zeroed()));

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure.
    let info = unsafe { &*info };
    // SAFETY: for SIGBUS there is an address.
    let address = unsafe { info.si_addr() } as usize;
    match SLOTS.iter().find(|slot| slot.contains(address)) {
        Some(slot) if replace(slot, address) => slot.hit.store(true, Ordering::Relaxed),
        _ => give_back(),
    }
}

/// Replaces the mapping whose page at `address` is missing by empty memory, or only that page if
/// the kernel refuses more.
fn replace(slot: &Slot, address: usize) -> bool {
    let (start, len) = (slot.start.load(Ordering::Relaxed), slot.len.load(Ordering::Relaxed));
    let size = slot.page_size.load(Ordering::Relaxed);
    put_pages(start, len) || put_pages(address & !(size - 1), size)
}

/// Replaces pages by empty ones.
fn put_pages(start: usize, len: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the pages are in a guest's mapping, which consists of whole pages and is only copied
    // from and to, so any bytes are valid. It stays at its address as long as this thread uses it,
    // and the kernel replaces it atomically for other threads. mmap(2) is a bare system call and
    // safe in a handler.
    let put = unsafe { libc::mmap(start as *mut libc::c_void, len, access, flags, -1, 0) };
    put != libc::MAP_FAILED
}

/// Restores the previous handler: the signal is raised again when this handler returns.
fn give_back() {
    // SAFETY: `PREVIOUS` was filled before this handler could run; sigaction(2) is safe in a
    // handler.
    unsafe { libc::sigaction(libc::SIGBUS, PREVIOUS.0.get().cast(), ptr::null_mut()) };
}

static SLOTS: [Slot; SLOT_COUNT] = [const { Slot::empty() }; SLOT_COUNT];
/// Limit of regions of all guests together; a guest has a few, and at most 64.
const SLOT_COUNT: usize = 4096;
