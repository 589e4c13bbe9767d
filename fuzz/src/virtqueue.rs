//! Target `virtqueue`: whatever a ring contains and the driver does meanwhile, no more is fetched
//! than the ring has, and nothing outside the shared region is touched.

use std::collections::VecDeque;

use tapswitch_vhost::{Chain, Chains, Direction, Ring, RingFeatures};

use crate::guest::{Guest, LEN, check_chain, size_of, take};

/// `data`: choices, the ring's size, the number of bytes of operations, the operations, and the
/// memory contents.
pub fn virtqueue(data: &[u8]) {
    let Some((&[choices, size, count], rest)) = data.split_first_chunk() else { return };
    let (mut operations, image) = rest.split_at(rest.len().min(count.into()));
    let Some(guest) = Guest::new(image) else { return };
    let has = |bit: u8| choices & bit != 0;
    let mut device = Device {
        guest,
        features: RingFeatures { packed: has(1), event_index: has(2), indirect: has(4) },
        direction: if has(8) { Direction::Receive } else { Direction::Transmit },
        size: if has(1) && has(16) { 1 + u16::from(size) % 32 } else { size_of(size) },
        chains: Chains::default(),
        held: VecDeque::new(),
        given_back: 0,
    };
    let Some(mut ring) = device.ring(device.start()) else { return };
    while let Some(operation) = take(&mut operations) {
        match device.operate(ring, operation, &mut operations) {
            Some(next) => ring = next,
            None => break,
        }
    }
    device.guest.check();
}

/// The user of the ring, and the guest.
struct Device {
    guest: Guest,
    features: RingFeatures,
    direction: Direction,
    size: u16,
    chains: Chains,
    /// Buffers that were fetched and not completed.
    held: VecDeque<Chain>,
    /// Buffers that were completed and not published.
    given_back: usize,
}

impl Device {
    /// Start index of a new ring.
    fn start(&self) -> u32 {
        if self.features.packed { 0x8000_8000 } else { 0 }
    }

    fn ring(&mut self, base: u32) -> Option<Ring> {
        self.chains.clear();
        (self.held, self.given_back) = (VecDeque::new(), 0);
        let place = Guest::place(self.size);
        let ring = Ring::new(&self.guest.memory, &place, self.features, self.direction, base);
        // A base beyond the ring is the only possible error.
        assert!(ring.is_ok() || base & 0x7fff >= self.size.into(), "{ring:?}");
        ring.ok()
    }

    /// Executes one operation. `None` if the ring can no longer be used.
    fn operate(&mut self, mut ring: Ring, operation: u8, more: &mut &[u8]) -> Option<Ring> {
        match operation % 8 {
            0 => self.fetch(&mut ring, operation / 8)?,
            1 => {
                if let Some(chain) = self.held.pop_front() {
                    ring.complete(&chain, u32::from(operation / 8) * 40);
                    self.given_back += 1;
                }
            }
            2 => {
                if let Some(chain) = self.held.pop_back() {
                    ring.undo(&chain);
                }
            }
            3 => {
                ring.publish();
                self.given_back = 0;
            }
            4 => {
                ring.arm();
            }
            5 => ring.disarm(),
            6 => {
                let offset = u16::from_le_bytes([take(more)?, take(more)?]);
                self.guest.write(u64::from(offset) % LEN, &[take(more)?, take(more)?]);
            }
            // Another back end continues, where this one stopped or was killed.
            _ => {
                let killed = operation & 8 != 0;
                while let Some(chain) = self.held.pop_back().filter(|_| !killed) {
                    ring.undo(&chain);
                }
                if !killed {
                    ring.publish();
                }
                return self.ring(if killed { self.start() } else { ring.base() });
            }
        }
        Some(ring)
    }

    fn fetch(&mut self, ring: &mut Ring, limit: u8) -> Option<()> {
        if self.held.is_empty() {
            self.chains.clear();
        }
        let before = self.chains.len();
        let outcome = ring.fetch(limit.into(), &mut self.chains);
        let fetched = (before..self.chains.len()).filter_map(|index| self.chains.get(index));
        for chain in fetched {
            check_chain(&self.chains, &chain);
            self.held.push_back(chain);
        }
        assert!(self.held.len() + self.given_back <= self.size.into(), "more than the ring holds");
        // Invalid contents end the ring.
        outcome.ok().map(|_| ())
    }
}
