//! Guest memory for the targets: a region of 16 KiB, in a file that continues behind it with bytes
//! that must not be touched.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use tapswitch_vhost::{Chain, Chains, GuestMemory, RegionSpec, RingPlace};

/// Start of the guest's addresses; the VMM's start at twice as much.
pub(crate) const BASE: u64 = 0x10_0000;
/// Bytes of the shared region.
pub(crate) const LEN: u64 = FILE_LEN as u64;
/// As many bytes follow behind it.
const FILE_LEN: usize = 0x4000;
/// Offsets of a ring's descriptors, its driver's part and its device's; then tables, and buffers.
const DRIVER: u64 = 0x300;
const DEVICE: u64 = 0x600;
pub(crate) const TABLES: u64 = 0x800;
const TABLES_END: u64 = 0xc00;
/// The bytes behind the shared region.
const CANARY: u8 = 0xca;

/// A guest's memory.
#[derive(Clone)]
pub(crate) struct Guest {
    file: Rc<OwnedFd>,
    pub(crate) memory: Arc<GuestMemory>,
}

thread_local! {
    /// Guests for reuse: creating one costs more than most inputs do.
    static GUESTS: RefCell<Vec<Guest>> = const { RefCell::new(Vec::new()) };
}

impl Guest {
    /// Memory that contains `image`, with descriptors that point into it. `None` if the machine has
    /// none.
    pub(crate) fn new(image: &[u8]) -> Option<Self> {
        let is_free = |guest: &&Self| Rc::strong_count(&guest.file) == 1;
        let free = GUESTS.with_borrow(|guests| guests.iter().find(is_free).cloned());
        let guest = free.map_or_else(Self::make, Some)?;
        guest.write(0, &[0; FILE_LEN]);
        guest.write(0, image);
        for slot in (0..DRIVER / 16).chain(TABLES / 16..TABLES_END / 16) {
            guest.aim(16 * slot);
        }
        Some(guest)
    }

    fn make() -> Option<Self> {
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).ok()?;
        rustix::io::pwrite(&file, &[CANARY; FILE_LEN], LEN).ok()?;
        let region = RegionSpec {
            guest_address: BASE,
            user_address: 2 * BASE,
            len: LEN,
            offset: 0,
            file: file.try_clone().ok()?,
        };
        let guest = Self { memory: GuestMemory::new(&[region]).ok()?, file: Rc::new(file) };
        GUESTS.with_borrow_mut(|guests| guests.push(guest.clone()));
        Some(guest)
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// A ring of `size` descriptors.
    pub(crate) fn place(size: u16) -> RingPlace {
        let at = |offset| 2 * BASE + offset;
        RingPlace { size, descriptors: at(0), driver: at(DRIVER), device: at(DEVICE) }
    }

    /// Writes as many bytes as there is room for.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        if let Some(room) = self.memory.find_start(BASE + offset.min(LEN - 1), LEN) {
            room.write(bytes);
        }
    }

    /// Makes the descriptor at `offset` point into memory, unless its address is among the highest.
    fn aim(&self, offset: u64) {
        let mut address = [0; 8];
        if let Some(bytes) = self.memory.find(BASE + offset, 8) {
            bytes.read(&mut address);
        }
        let address = u64::from_le_bytes(address);
        if address >> 60 != 0xf {
            // Some start before the region or end behind it.
            self.write(offset, &(BASE - 8 + address % (LEN + 16)).to_le_bytes());
        }
    }

    /// Panics if a byte behind the shared region has changed.
    pub(crate) fn check(&self) {
        let mut behind = [0; FILE_LEN];
        let read = rustix::io::pread(&self.file, &mut behind, LEN);
        assert_eq!(read, Ok(behind.len()));
        assert!(behind.iter().all(|byte| *byte == CANARY), "a byte that is not shared has changed");
    }
}

/// Reads a whole buffer, whose pieces must have the stated total length and be within the shared
/// region.
pub(crate) fn check_chain(chains: &Chains, chain: &Chain) {
    let pieces: usize = chains.pieces(chain).map(|piece| piece.len()).sum();
    assert_eq!(pieces, chain.len());
    for piece in chains.pieces(chain) {
        assert!(piece.len() as u64 <= LEN && !piece.is_empty());
    }
}

/// A power of two up to 32.
pub(crate) fn size_of(choice: u8) -> u16 {
    1 << (choice % 6)
}

/// Removes and returns the first byte.
pub(crate) fn take(data: &mut &[u8]) -> Option<u8> {
    let (first, rest) = data.split_first()?;
    *data = rest;
    Some(*first)
}
