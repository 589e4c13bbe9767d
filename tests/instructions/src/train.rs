//! Two trains of 45 packets as input.

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ip_proto, ipv4, read_u16, write_u16};

/// A train as a tap device's host sends it: everything that can be deferred is.
pub(crate) struct Train {
    pub(crate) meta: NetHeader,
    /// Headroom and the frame.
    pub(crate) buf: Vec<u8>,
    pub(crate) headers_len: usize,
}

impl Train {
    /// TCP with timestamps over IPv4, behind up to two tags.
    pub(crate) fn tcp_ipv4(tags: usize) -> Self {
        let mut ip = TCP_IPV4;
        write_u16(&mut ip, ipv4::field::TOTAL_LENGTH, to_u16(TCP_IPV4.len() + PAYLOAD_LEN));
        let checksum = Sum::of(&ip[..20]).checksum();
        write_u16(&mut ip, ipv4::field::CHECKSUM, checksum);
        let upper_len = to_u16(ip.len() - 20 + PAYLOAD_LEN);
        let pseudo = pseudo_header_v4(&ip[12..16], &ip[16..20], ip_proto::TCP, upper_len);
        write_u16(&mut ip, 20 + 16, pseudo.partial());
        Self::new(tags, [0x08, 0x00], &ip, GsoType::TCPV4, 20, 16)
    }

    /// UDP over IPv6, behind up to two tags.
    pub(crate) fn udp_ipv6(tags: usize) -> Self {
        let mut ip = UDP_IPV6;
        let upper_len = to_u16(ip.len() - 40 + PAYLOAD_LEN);
        write_u16(&mut ip, 4, upper_len);
        write_u16(&mut ip, 40 + 4, upper_len);
        let pseudo = pseudo_header_v6(&ip[8..24], &ip[24..40], ip_proto::UDP, upper_len.into());
        write_u16(&mut ip, 40 + 6, pseudo.partial());
        Self::new(tags, [0x86, 0xdd], &ip, GsoType::UDP_L4, 40, 6)
    }

    /// The same from another port.
    pub(crate) fn of_flow(mut self, flow: usize) -> Self {
        let at = HEADROOM + usize::from(self.meta.csum_start);
        let port = read_u16(&self.buf, at);
        write_u16(&mut self.buf, at, port + to_u16(flow));
        self
    }

    pub(crate) fn frame(&self) -> &[u8] {
        &self.buf[HEADROOM..]
    }

    fn new(
        tags: usize,
        eth_type: [u8; 2],
        ip: &[u8],
        gso_type: GsoType,
        ip_len: usize,
        csum_offset: u16,
    ) -> Self {
        let addresses = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let link = [&addresses, &TAGS[TAGS.len() - 4 * tags..], &eth_type].concat();
        let headers_len = link.len() + ip.len();
        let mut buf = [&[0; HEADROOM], &link[..], ip].concat();
        buf.extend((0..=u8::MAX).cycle().take(PAYLOAD_LEN));
        let meta = NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            gso_type,
            hdr_len: to_u16(headers_len),
            gso_size: to_u16(SEGMENT_LEN),
            csum_start: to_u16(link.len() + ip_len),
            csum_offset,
        };
        Self { meta, buf, headers_len }
    }
}

/// Narrows a length that was chosen here.
#[expect(clippy::cast_possible_truncation, reason = "less than 64 KiB, all of them")]
fn to_u16(len: usize) -> u16 {
    len as u16
}

/// IPv4 and TCP headers without lengths and checksums.
const TCP_IPV4: [u8; 52] = [
    0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, //
    0x03, 0xe8, 0x14, 0x51, 0, 0, 0x10, 0, 0, 0, 0x20, 0, 0x80, 0x10, 1, 0xf5, 0, 0, 0, 0, //
    1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2,
];
/// IPv6 and UDP headers without lengths and checksum.
const UDP_IPV6: [u8; 48] = [
    0x60, 0, 0, 0, 0, 0, 17, 64, //
    0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
    0x03, 0xe8, 0x14, 0x51, 0, 0, 0, 0,
];
/// An S-tag and a C-tag, each preceded by its TPID.
const TAGS: [u8; 8] = [0x88, 0xa8, 0, 200, 0x81, 0, 0, 100];
/// Bytes in front of the frame.
pub(crate) const HEADROOM: usize = 64;
/// Packets of a train: as many as the IP length permits.
pub(crate) const SEGMENTS: u32 = 45;
/// Payload of each packet in bytes.
const SEGMENT_LEN: usize = 1448;
/// Payload of a train in bytes.
const PAYLOAD_LEN: usize = SEGMENTS as usize * SEGMENT_LEN;
