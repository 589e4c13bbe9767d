//! The device's side of a virtqueue as the specification has it, for tests. Like the kernel, it
//! knows only three addresses and follows what it finds there, independently of our implementation.

use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering, fence};

/// A chain of buffers: its head, and address, length and writability of each.
type Chain = (u16, Vec<(u64, u32, bool)>);

/// A device on a ring in the memory of this process.
pub(super) struct Device {
    descriptors: usize,
    avail: usize,
    used: usize,
    size: u16,
    /// Number of entries read from the available ring.
    seen: u16,
    /// Number of entries written to the used ring.
    given: u16,
    /// Value of the used index when a signal was last considered.
    considered: u16,
}

impl Device {
    pub(super) fn new(addresses: [u64; 3], size: u16, base: u16) -> Self {
        let [descriptors, avail, used] = addresses.map(|address| usize::try_from(address).unwrap());
        Self { descriptors, avail, used, size, seen: base, given: base, considered: base }
    }

    /// Returns the next chain of buffers, if one is available.
    pub(super) fn next(&mut self) -> Option<Chain> {
        if self.word(self.avail + 2).load(Ordering::Acquire) == self.seen {
            return None;
        }
        let entry = usize::from(self.seen % self.size);
        let head = self.word(self.avail + 4 + 2 * entry).load(Ordering::Relaxed);
        self.seen = self.seen.wrapping_add(1);
        Some((head, self.chain(head)))
    }

    /// Puts back the last `count` chains that [`Self::next`] returned.
    pub(super) fn undo(&mut self, count: u16) {
        self.seen = self.seen.wrapping_sub(count);
    }

    /// Returns chains, with the number of bytes written into each. Returns whether the driver wants
    /// a signal.
    pub(super) fn give(&mut self, chains: &[(u16, u32)]) -> bool {
        for (index, &(head, len)) in (0_u16..).zip(chains) {
            let entry = usize::from(self.given.wrapping_add(index) % self.size);
            write(self.used + 4 + 8 * entry, u32::from(head));
            write(self.used + 8 + 8 * entry, len);
        }
        self.given = self.given.wrapping_add(u16::try_from(chains.len()).unwrap());
        self.word(self.used + 2).store(self.given, Ordering::Release);
        fence(Ordering::SeqCst);
        let used_event = self.avail + 4 + 2 * usize::from(self.size);
        let wish = self.word(used_event).load(Ordering::Relaxed);
        let from = std::mem::replace(&mut self.considered, self.given);
        // True if one of the indices from..given equals the event index.
        self.given.wrapping_sub(from) > wish.wrapping_sub(from)
    }

    /// Requests a kick for the next chain. Returns `false` if one is available: do not sleep.
    pub(super) fn sleep(&mut self) -> bool {
        let avail_event = self.used + 4 + 8 * usize::from(self.size);
        self.word(avail_event).store(self.seen, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.word(self.avail + 2).load(Ordering::Acquire) == self.seen
    }

    /// Advances the used index without an entry, which no device does.
    pub(super) fn lie(&mut self, by: u16) {
        self.given = self.given.wrapping_add(by);
        self.word(self.used + 2).store(self.given, Ordering::Release);
    }

    /// Writes a frame with its header into as many buffers as it takes, like vhost-net. Returns the
    /// buffers to give back, or `None` without a change if there are too few.
    pub(super) fn receive(&mut self, packet: &[u8]) -> Option<Vec<(u16, u32)>> {
        let mut heads = Vec::new();
        let mut rest = packet;
        let mut first = None;
        while !rest.is_empty() {
            let Some((head, buffers)) = self.next() else {
                self.undo(u16::try_from(heads.len()).unwrap());
                return None;
            };
            assert_eq!(buffers.len(), 1);
            let (address, len, is_writable) = buffers[0];
            assert!(is_writable);
            let (now, later) = rest.split_at(rest.len().min(len.try_into().unwrap()));
            poke(address, now);
            heads.push((head, now.len().try_into().unwrap()));
            first.get_or_insert(address);
            rest = later;
        }
        poke(first.unwrap() + 10, &u16::try_from(heads.len()).unwrap().to_ne_bytes());
        Some(heads)
    }

    /// Contents and head of the next chain.
    pub(super) fn transmit(&mut self) -> Option<(u16, Vec<u8>)> {
        let (head, buffers) = self.next()?;
        let mut packet = Vec::new();
        for (address, len, is_writable) in buffers {
            assert!(!is_writable);
            packet.extend(peek(address, len.try_into().unwrap()));
        }
        Some((head, packet))
    }

    fn chain(&self, head: u16) -> Vec<(u64, u32, bool)> {
        const NEXT: u16 = 1;
        const WRITE: u16 = 2;
        let mut buffers = Vec::new();
        let mut index = head;
        loop {
            assert!(index < self.size && buffers.len() < usize::from(self.size));
            let at = self.descriptors + 16 * usize::from(index);
            let (address, len, flags, next) =
                (read::<u64>(at), read::<u32>(at + 8), read::<u16>(at + 12), read::<u16>(at + 14));
            buffers.push((address, len, flags & WRITE != 0));
            if flags & NEXT == 0 {
                return buffers;
            }
            index = next;
        }
    }

    fn word(&self, address: usize) -> &AtomicU16 {
        // SAFETY: both sides access the indices as atomics; the ring outlives the test's device.
        unsafe { AtomicU16::from_ptr(ptr::with_exposed_provenance_mut(address)) }
    }
}

/// `len` bytes that differ from seed to seed.
pub(super) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..=250_u8).map(|byte| byte ^ seed).cycle().take(len).collect()
}

/// Reads what the other side wrote before it advanced its index.
fn read<T>(address: usize) -> T {
    // SAFETY: the ring's tables are mapped, aligned, and hold integers.
    unsafe { ptr::with_exposed_provenance::<T>(address).read_volatile() }
}

fn write<T>(address: usize, value: T) {
    // SAFETY: as for reading; nothing else writes the used ring.
    unsafe { ptr::with_exposed_provenance_mut::<T>(address).write_volatile(value) }
}

fn peek(address: u64, len: usize) -> Vec<u8> {
    let start = ptr::with_exposed_provenance::<u8>(address.try_into().unwrap());
    // SAFETY: a buffer that was made available is mapped, and nothing writes it.
    unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
}

pub(super) fn poke(address: u64, bytes: &[u8]) {
    let start = ptr::with_exposed_provenance_mut::<u8>(address.try_into().unwrap());
    // SAFETY: a writable buffer that was made available is mapped, at least as long, and ours.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) }
}
