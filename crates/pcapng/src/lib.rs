//! Writes blocks of pcapng files (IETF draft-ietf-opsawg-pcapng): one section with one Ethernet
//! interface, its packets, and the number of packets lost.
//!
//! ```
//! use tapswitch_pcapng::{Statistics, begin, packet, statistics};
//!
//! let mut file = Vec::new();
//! begin(&mut file, "tapswitch 0.1.0", "watch0", 128);
//! packet(&mut file, 1_700_000_000_000_000_000, 128, &[&[0; 60], &[1; 1400]]);
//! let counts = Statistics { written: 1, dropped: 0, comment: None };
//! statistics(&mut file, 1_700_000_000_000_000_000, &counts);
//! ```
//!
//! Blocks are written in native byte order, which the section header records. Timestamps are
//! nanoseconds since 1970 (UTC). A truncated file can be read up to its last complete block.
//!
//! **Not supported:** file I/O; reading beyond [`next_block`]; several sections or interfaces;
//! simple packet blocks, name resolution, decryption secrets.

#![forbid(unsafe_code)]

/// Packet counts of the interface, for [`statistics`]. The number of packets received
/// (`isb_ifrecv`) is the sum of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics<'a> {
    /// Packets in the file (`isb_usrdeliv`).
    pub written: u64,
    /// Packets dropped for lack of room (`isb_ifdrop`). A dropped train may count as one packet;
    /// `comment` should then say so.
    pub dropped: u64,
    /// Comment on the counts (`opt_comment`).
    pub comment: Option<&'a str>,
}

/// Begins a section, and a file if it is the first: `application` writes packets of `interface`,
/// each truncated to `snaplen` bytes. A `snaplen` of 0 declares no limit.
pub fn begin(out: &mut Vec<u8>, application: &str, interface: &str, snaplen: u32) {
    let mut block = Block::open(out, SECTION_HEADER);
    block.u32(BYTE_ORDER_MAGIC);
    // Version 1.0.
    block.u16(1);
    block.u16(0);
    // The section length is not known yet.
    block.u64(u64::MAX);
    block.option(SECTION_APPLICATION, application.as_bytes());
    block.end_of_options();
    block.close();
    let mut block = Block::open(out, INTERFACE_DESCRIPTION);
    block.u16(LINKTYPE_ETHERNET);
    block.u16(0);
    block.u32(snaplen);
    block.option(INTERFACE_NAME, interface.as_bytes());
    block.option(INTERFACE_TIME_RESOLUTION, &[NANOSECONDS]);
    block.end_of_options();
    block.close();
}

/// Appends the packet that is the concatenation of `parts`: its first `snaplen` bytes and its
/// original length.
pub fn packet(out: &mut Vec<u8>, time_ns: u64, snaplen: usize, parts: &[&[u8]]) {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut packet = Packet::begin(out, time_ns, snaplen, len);
    parts.iter().for_each(|part| packet.push(part));
    packet.end();
}

/// Length in bytes of the block of a packet of `len` bytes, truncated to `snaplen`.
pub const fn packet_block_len(len: usize, snaplen: usize) -> usize {
    let kept = if len < snaplen { len } else { snaplen };
    PACKET_OVERHEAD + kept.next_multiple_of(4)
}

/// A packet block that is written piece by piece.
#[derive(Debug)]
pub struct Packet<'a> {
    block: Block<'a>,
    /// Bytes still to be written.
    room: usize,
}

impl<'a> Packet<'a> {
    /// Begins the block of a packet of `len` bytes and reserves room for its first `snaplen` bytes,
    /// which the caller [pushes](Self::push).
    pub fn begin(out: &'a mut Vec<u8>, time_ns: u64, snaplen: usize, len: usize) -> Self {
        let room = len.min(snaplen);
        out.reserve(packet_block_len(len, snaplen));
        let mut block = Block::open(out, ENHANCED_PACKET);
        block.u32(INTERFACE);
        block.time(time_ns);
        block.len(room);
        block.len(len);
        Self { block, room }
    }

    /// Appends the next bytes of the packet; bytes beyond the snaplen are ignored.
    pub fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.room)];
        self.block.out.extend_from_slice(bytes);
        self.room -= bytes.len();
    }

    /// Appends the next `len` bytes, truncated to the snaplen. `fill` writes them.
    pub fn push_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let len = len.min(self.room);
        let start = self.block.out.len();
        self.block.out.resize(start + len, 0);
        fill(&mut self.block.out[start..]);
        self.room -= len;
    }

    /// Ends the block. Bytes that were not pushed are zero.
    pub fn end(mut self) {
        let len = self.block.out.len() + self.room;
        self.block.out.resize(len, 0);
        self.block.pad();
        self.block.close();
    }
}

/// Appends the packet counts since the start of the section.
pub fn statistics(out: &mut Vec<u8>, time_ns: u64, statistics: &Statistics<'_>) {
    let Statistics { written, dropped, comment } = *statistics;
    let received = written.saturating_add(dropped);
    let mut block = Block::open(out, INTERFACE_STATISTICS);
    block.u32(INTERFACE);
    block.time(time_ns);
    if let Some(comment) = comment {
        block.option(COMMENT, comment.as_bytes());
    }
    block.option(STATISTICS_RECEIVED, &received.to_ne_bytes());
    block.option(STATISTICS_DROPPED, &dropped.to_ne_bytes());
    block.option(STATISTICS_DELIVERED, &written.to_ne_bytes());
    block.end_of_options();
    block.close();
}

/// Returns the length of the block at the start of `bytes` if it is complete and both length fields
/// agree.
pub fn next_block(bytes: &[u8]) -> Option<usize> {
    let len = word(bytes, 4)? as usize;
    let is_block = len >= BLOCK_OVERHEAD && len.is_multiple_of(4);
    let is_whole = is_block && word(bytes.get(..len)?, len - 4)? as usize == len;
    is_whole.then_some(len)
}

/// Returns the timestamp of the packet block at the start of `bytes`; `None` for other blocks.
pub fn packet_time(bytes: &[u8]) -> Option<u64> {
    let is_packet = word(bytes, 0)? == ENHANCED_PACKET;
    let (high, low) = (word(bytes, TIME_AT)?, word(bytes, TIME_AT + 4)?);
    is_packet.then_some((u64::from(high) << 32) | u64::from(low))
}

/// Sets the timestamp of the packet block at the start of `bytes`; other blocks are left alone.
pub fn set_packet_time(bytes: &mut [u8], time_ns: u64) {
    if packet_time(bytes).is_some() {
        bytes[TIME_AT..TIME_AT + 8].copy_from_slice(&time_bytes(time_ns));
    }
}

/// A block: type, length, body, length again (§3.1).
#[derive(Debug)]
struct Block<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Block<'a> {
    fn open(out: &'a mut Vec<u8>, kind: u32) -> Self {
        let start = out.len();
        let mut block = Self { out, start };
        block.u32(kind);
        // Placeholder for the length, which `close` writes.
        block.u32(0);
        block
    }

    fn u16(&mut self, value: u16) {
        self.out.extend(value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.out.extend(value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.out.extend(value.to_ne_bytes());
    }

    fn len(&mut self, len: usize) {
        self.u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    fn time(&mut self, time_ns: u64) {
        self.out.extend(time_bytes(time_ns));
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.u16(code);
        self.u16(u16::try_from(value.len()).unwrap_or(u16::MAX));
        self.out.extend_from_slice(value);
        self.pad();
    }

    fn end_of_options(&mut self) {
        self.u32(0);
    }

    fn pad(&mut self) {
        let len = self.out.len() - self.start;
        self.out.resize(self.start + len.next_multiple_of(4), 0);
    }

    fn close(self) {
        let len = u32::try_from(self.out.len() - self.start + 4).unwrap_or(u32::MAX).to_ne_bytes();
        self.out.extend(len);
        self.out[self.start + 4..self.start + 8].copy_from_slice(&len);
    }
}

/// High and low 32 bits of the timestamp (§4.3).
#[expect(clippy::cast_possible_truncation, reason = "the two halves of 64 bits")]
fn time_bytes(time_ns: u64) -> [u8; 8] {
    let [a, b, c, d] = ((time_ns >> 32) as u32).to_ne_bytes();
    let [e, f, g, h] = (time_ns as u32).to_ne_bytes();
    [a, b, c, d, e, f, g, h]
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_TIME_RESOLUTION: u16 = 9;
const NANOSECONDS: u8 = 9;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;
const STATISTICS_DELIVERED: u16 = 8;
/// The only interface of the section.
const INTERFACE: u32 = 0;
/// Bytes of a block without its body: type and both lengths.
const BLOCK_OVERHEAD: usize = 12;
/// Bytes of a packet block without the packet and its padding.
const PACKET_OVERHEAD: usize = BLOCK_OVERHEAD + 20;
/// Offset of the timestamp in a packet block.
const TIME_AT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of `file`: their kinds and where they start.
    fn blocks(file: &[u8]) -> Vec<(u32, usize)> {
        let (mut at, mut blocks) = (0, Vec::new());
        while let Some(len) = next_block(&file[at..]) {
            blocks.push((word(file, at).unwrap(), at));
            at += len;
        }
        blocks
    }

    fn example() -> Vec<u8> {
        let mut file = Vec::new();
        begin(&mut file, "tests", "mon0", 64);
        packet(&mut file, (7 << 32) + 5, 64, &[&[1; 60], &[2; 41]]);
        let comment = Some("all of it");
        let counts = Statistics { written: 1, dropped: 2, comment };
        statistics(&mut file, 9, &counts);
        file
    }

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let kinds: Vec<_> = blocks(&example()).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(
            kinds,
            [SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET, INTERFACE_STATISTICS]
        );
    }

    #[test]
    fn a_packet_is_cut_to_the_snaplen_and_keeps_its_length() {
        let file = example();
        let (_, at) = blocks(&file)[2];
        let block = &file[at..];
        assert_eq!(next_block(block), Some(packet_block_len(101, 64)));
        assert_eq!((word(block, 20), word(block, 24)), (Some(64), Some(101)));
        assert_eq!(block[28..92], [&[1; 60][..], &[2; 4]].concat());
    }

    #[test]
    fn what_came_is_what_was_written_and_what_was_dropped() {
        let file = example();
        let (_, at) = blocks(&file)[3];
        // Three options of eight bytes behind the head and the comment.
        let counts = [40, 52, 64]
            .map(|offset| u64::from_ne_bytes(*file[at + offset..].first_chunk().unwrap()));
        assert_eq!(counts, [3, 2, 1]);
    }

    #[test]
    fn the_time_of_a_packet_can_be_changed() {
        let mut file = example();
        let (_, at) = blocks(&file)[2];
        assert_eq!(packet_time(&file[at..]), Some((7 << 32) + 5));
        set_packet_time(&mut file[at..], 1_700_000_000_123_456_789);
        assert_eq!(packet_time(&file[at..]), Some(1_700_000_000_123_456_789));
        assert_eq!(blocks(&file).len(), 4);
        assert_eq!(packet_time(&file), None, "no packet");
    }

    #[test]
    fn a_packet_that_ends_early_is_filled_up() {
        let mut file = Vec::new();
        let mut packet = Packet::begin(&mut file, 1, 100, 10);
        packet.push(&[7; 2]);
        packet.push_with(1, |room| room.fill(7));
        packet.end();
        assert_eq!(next_block(&file), Some(packet_block_len(10, 100)));
        assert_eq!(file[28..38], [7, 7, 7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_whole_block_is_none() {
        let file = example();
        let first = next_block(&file).unwrap();
        for len in 0..first {
            assert_eq!(next_block(&file[..len]), None, "{len}");
        }
        for words in [[1, 0, 0, 0], [1, 11, 0, 0], [1, 14, 0, 14], [1, 16, 0, 12]] {
            let bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
            assert_eq!(next_block(&bytes), None, "{words:?}");
        }
    }
}
