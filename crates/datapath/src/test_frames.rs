//! Frames for the unit tests.

use tapswitch_wire::checksum::{Sum, pseudo_header_v4};

/// Addresses and ports of a TCP flow.
#[derive(Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) src: u8,
    pub(crate) dst: u8,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
}

pub(crate) const FLOW: Tcp = Tcp { src: 1, dst: 2, src_port: 40_000, dst_port: 80 };

/// A TCP segment over IPv4 with `payload_len` bytes and valid checksums, from station 1 to 2.
pub(crate) fn tcp_frame(payload_len: usize) -> Vec<u8> {
    FLOW.frame(payload_len)
}

impl Tcp {
    pub(crate) fn frame(self, payload_len: usize) -> Vec<u8> {
        let Self { src, dst, src_port, dst_port } = self;
        let total_len = (40 + payload_len) as u16;
        let mut frame = vec![2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 0x08, 0x00];
        frame.extend([0x45, 0x00]);
        frame.extend(total_len.to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
        frame.extend(src_port.to_be_bytes());
        frame.extend(dst_port.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend((0..payload_len).map(|i| i as u8));
        let ip = Sum::of(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&ip.to_be_bytes());
        let pseudo = pseudo_header_v4(&frame[26..30], &frame[30..34], 6, total_len - 20);
        let tcp = pseudo.add_bytes(&frame[34..]).checksum();
        frame[50..52].copy_from_slice(&tcp.to_be_bytes());
        frame
    }
}
