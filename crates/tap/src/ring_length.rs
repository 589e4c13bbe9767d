//! Lengths of the kernel's rings.

/// The next length, from `length` on, at which the rings of a device with `IFF_BACKPRESSURE` lose
/// nothing, as far as Linux 7.3 can.
///
/// The kernel (`__tun_wake_queue`) lets the qdisc go on when half of a full ring has been read, and
/// may count one frame that was read just before the ring became full. If that frame alone is half
/// of the ring, the qdisc goes on while the ring is full, and the next packet is dropped. That is
/// so for 2 and 3; and for 32 and 33, because from 32 on a reader makes room for 16 frames at a
/// time (`ptr_ring`). A ring of 1 is full whenever there is something to read, and needs no care.
pub const fn lossless_ring_length(length: u32) -> u32 {
    match length {
        2 | 3 => 4,
        32 | 33 => 34,
        _ => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for a frame once half of the ring was read, one frame of it before the ring was full.
    #[test]
    fn a_ring_has_room_when_its_qdisc_goes_on() {
        for asked in 2..1000 {
            let length = lossless_ring_length(asked);
            let freed_at_once = if length >= 32 { 16 } else { 1 };
            assert!(length >= asked && (length / 2 - 1) / freed_at_once > 0, "{asked}: {length}");
        }
        assert_eq!([1, 4, 34, 128].map(lossless_ring_length), [1, 4, 34, 128]);
    }
}
