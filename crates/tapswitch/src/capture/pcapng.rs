//! Writes a capture as pcapng: blocks of [`tapswitch_pcapng`] to any writer.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tapswitch_pcapng::{self as pcapng, Statistics};

/// A capture file being written.
#[derive(Debug)]
pub(crate) struct PcapngWriter<W: Write> {
    out: W,
    /// Bytes of each packet to keep.
    snaplen: usize,
    block: Vec<u8>,
    written: u64,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a file of packets of the Ethernet interface `interface`, truncated to `snaplen`
    /// bytes.
    pub(crate) fn new(out: W, interface: &str, snaplen: usize) -> io::Result<Self> {
        let mut writer = Self { out, snaplen, block: Vec::new(), written: 0 };
        let bound = u32::try_from(snaplen).unwrap_or(u32::MAX);
        pcapng::begin(&mut writer.block, APPLICATION, interface, bound);
        writer.flush_block()?;
        Ok(writer)
    }

    /// Writes one packet that consists of `parts`.
    pub(crate) fn packet(&mut self, time: SystemTime, parts: &[&[u8]]) -> io::Result<()> {
        pcapng::packet(&mut self.block, since_1970(time), self.snaplen, parts);
        self.written += 1;
        self.flush_block()
    }

    /// Flushes the packets written so far.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the file: `dropped` frames were lost in addition to the written packets.
    pub(crate) fn end(mut self, dropped: u64) -> io::Result<W> {
        let statistics = Statistics { written: self.written, dropped, comment: Some(COMMENT) };
        pcapng::statistics(&mut self.block, since_1970(SystemTime::now()), &statistics);
        self.flush_block()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn flush_block(&mut self) -> io::Result<()> {
        self.out.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

/// Nanoseconds since 1970, until 2554.
fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos();
    u64::try_from(since).unwrap_or(u64::MAX)
}

const APPLICATION: &str = concat!("tapswitch ", env!("CARGO_PKG_VERSION"));
/// Meaning of the counters at the end of a file.
const COMMENT: &str = "packets; a dropped train counts as one";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_blocks_in_order() {
        let mut writer = PcapngWriter::new(Vec::new(), "mon0", 64).unwrap();
        let time = UNIX_EPOCH + Duration::from_nanos(5);
        writer.packet(time, &[&[1; 60], &[2; 41]]).unwrap();
        let file = writer.end(2).unwrap();
        let (mut at, mut times) = (0, Vec::new());
        while let Some(len) = pcapng::next_block(&file[at..]) {
            times.push(pcapng::packet_time(&file[at..]));
            at += len;
        }
        assert_eq!((at, times), (file.len(), vec![None, None, Some(5), None]));
    }
}
