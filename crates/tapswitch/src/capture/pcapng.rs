//! Writing pcapng (IETF draft-ietf-opsawg-pcapng): one section, one interface, packets as on the
//! wire, and at the end how many were lost.
//!
//! Blocks are written in the machine's byte order, which the section header tells. Timestamps are
//! nanoseconds since 1970.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A capture file under way.
#[derive(Debug)]
pub(crate) struct PcapngWriter<W: Write> {
    out: W,
    /// Bytes of each packet that are kept.
    snaplen: usize,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a file with packets of the Ethernet interface `interface`, of each at most `snaplen`
    /// bytes.
    pub(crate) fn new(out: W, interface: &str, snaplen: usize) -> io::Result<Self> {
        let mut writer = Self { out, snaplen };
        writer.section_header()?;
        writer.interface_description(interface)?;
        Ok(writer)
    }

    /// Writes one packet that lies in `parts` one after the other.
    pub(crate) fn packet(&mut self, time: SystemTime, parts: &[&[u8]]) -> io::Result<()> {
        let whole_len: usize = parts.iter().map(|part| part.len()).sum();
        let kept_len = whole_len.min(self.snaplen);
        let mut block = Block::new(ENHANCED_PACKET);
        block.u32(INTERFACE);
        block.timestamp(time);
        block.len(kept_len);
        block.len(whole_len);
        let start = block.body.len();
        for part in parts {
            let room = kept_len - (block.body.len() - start);
            block.body.extend_from_slice(&part[..part.len().min(room)]);
        }
        block.pad();
        self.finish(block)
    }

    /// Ends the file: `received` packets came to the interface, `dropped` more were lost.
    pub(crate) fn end(mut self, received: u64, dropped: u64) -> io::Result<W> {
        let mut block = Block::new(INTERFACE_STATISTICS);
        block.u32(INTERFACE);
        block.timestamp(SystemTime::now());
        block.option(STATISTICS_RECEIVED, &received.to_ne_bytes());
        block.option(STATISTICS_DROPPED, &dropped.to_ne_bytes());
        block.end_of_options();
        self.finish(block)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn section_header(&mut self) -> io::Result<()> {
        let mut block = Block::new(SECTION_HEADER);
        block.u32(BYTE_ORDER_MAGIC);
        block.u16(1);
        block.u16(0);
        block.body.extend(u64::MAX.to_ne_bytes());
        block.option(
            SECTION_APPLICATION,
            concat!("tapswitch ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        block.end_of_options();
        self.finish(block)
    }

    fn interface_description(&mut self, interface: &str) -> io::Result<()> {
        let mut block = Block::new(INTERFACE_DESCRIPTION);
        block.u16(LINKTYPE_ETHERNET);
        block.u16(0);
        block.len(self.snaplen);
        block.option(INTERFACE_NAME, interface.as_bytes());
        block.option(INTERFACE_TIME_RESOLUTION, &[NANOSECONDS]);
        block.end_of_options();
        self.finish(block)
    }

    fn finish(&mut self, block: Block) -> io::Result<()> {
        self.out.write_all(&block.into_bytes())
    }
}

/// A block: type, length, body, length again (§3.1).
struct Block {
    kind: u32,
    body: Vec<u8>,
}

impl Block {
    fn new(kind: u32) -> Self {
        Self { kind, body: Vec::new() }
    }

    fn u16(&mut self, value: u16) {
        self.body.extend(value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.body.extend(value.to_ne_bytes());
    }

    fn len(&mut self, len: usize) {
        self.u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// High and low half of the nanoseconds since 1970 (§4.3).
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of 64 bits; until 2554")]
    fn timestamp(&mut self, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as u64;
        self.u32((since >> 32) as u32);
        self.u32(since as u32);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(u16::try_from(value.len()).unwrap_or(u16::MAX));
        self.body.extend_from_slice(value);
        self.pad();
    }

    fn end_of_options(&mut self) {
        self.u32(0);
    }

    fn pad(&mut self) {
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    fn into_bytes(self) -> Vec<u8> {
        let len = u32::try_from(self.body.len() + 12).unwrap_or(u32::MAX).to_ne_bytes();
        [&self.kind.to_ne_bytes()[..], &len, &self.body, &len].concat()
    }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_TIME_RESOLUTION: u16 = 9;
const NANOSECONDS: u8 = 9;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;
/// The only interface of the section.
const INTERFACE: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let mut writer = PcapngWriter::new(Vec::new(), "mon0", 64).unwrap();
        writer.packet(UNIX_EPOCH + Duration::from_nanos(5), &[&[1; 60], &[2; 41]]).unwrap();
        let file = writer.end(1, 2).unwrap();
        let mut rest = &file[..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let header = words(&rest[..8]);
            let len = header[1] as usize;
            assert_eq!(words(&rest[len - 4..len])[0] as usize, len);
            kinds.push(header[0]);
            rest = &rest[len..];
        }
        assert_eq!(
            kinds,
            [SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET, INTERFACE_STATISTICS]
        );
    }

    #[test]
    fn a_packet_is_cut_to_the_snaplen_and_keeps_its_length() {
        let mut writer = PcapngWriter::new(Vec::new(), "mon0", 64).unwrap();
        let before = writer.out.len();
        writer.packet(UNIX_EPOCH, &[&[1; 60], &[2; 41]]).unwrap();
        let block = words(&writer.out[before..]);
        assert_eq!((block[5], block[6]), (64, 101));
        assert_eq!(writer.out.len() - before, 32 + 64);
    }
}
