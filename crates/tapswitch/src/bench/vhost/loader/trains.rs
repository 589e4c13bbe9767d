//! TCP trains instead of frames: guests that defer segmentation and checksums, as Linux guests do.
//!
//! They circulate as frames do. The first ones come from a file (`net_pcap`), as plain frames; the
//! guests' `csum` engine marks sent frames for segmentation at [`SEGMENT_LEN`], and recognises
//! received ones as marked. Sixteen are in flight: with more, the senders' rings occasionally
//! overflow.

use std::path::Path;
use std::time::Duration;

use etherparse::PacketBuilder;
use tapswitch_pcapng as pcapng;

use super::{Failure, Loader};

/// Additional options of the guests.
pub(super) fn options() -> [String; 1] {
    [format!("--mbuf-size={BUFFER_LEN}")]
}

/// The device that the first trains come from. The file is created in `directory`.
pub(super) fn source(directory: &Path) -> Result<String, Failure> {
    let path = directory.join("trains.pcapng");
    std::fs::write(&path, file()?)?;
    Ok(format!("--vdev=net_pcap0,rx_pcap={}", path.display()))
}

/// The device that discards the monitors' frames: one that nothing connects to. For `net_null` the
/// engine would complete all checksums, which costs more than everything else.
pub(super) fn drain(directory: &Path) -> String {
    format!("--vdev=net_vhost0,iface={}", directory.join("drain").display())
}

/// A file with the train.
fn file() -> Result<Vec<u8>, Failure> {
    let payload: Vec<u8> = (0..=u8::MAX).cycle().take(PAYLOAD_LEN).collect();
    let mut file = Vec::new();
    pcapng::begin(&mut file, "tapswitch", "trains", 0);
    for number in 0..UNDER_WAY {
        let mut frame = Vec::with_capacity(TRAIN_LEN);
        let headers = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64)
            .tcp(40_000, 5201, number * u32::try_from(PAYLOAD_LEN)?, u16::MAX)
            .ack(1);
        headers.write(&mut frame, &payload)?;
        pcapng::packet(&mut file, 0, usize::MAX, &[&frame]);
    }
    Ok(file)
}

impl Loader {
    /// Configures the guests to send and receive trains.
    pub(super) async fn prepare_trains(&mut self) -> Result<(), Failure> {
        for guest in 0..self.guest_count() {
            self.offload(guest, &OFFLOADS).await?;
            self.write(&format!("tso set {SEGMENT_LEN} {guest}")).await?;
        }
        for drain in self.guest_count()..self.device_count() {
            self.offload(drain, &[CHECKSUM]).await?;
        }
        self.say("port start all", "Done").await
    }

    /// Stops the device, and enables these offloads.
    async fn offload(&mut self, device: usize, offloads: &[(&str, &str)]) -> Result<(), Failure> {
        self.say(&format!("port stop {device}"), "Done").await?;
        for (way, offload) in offloads {
            self.write(&format!("port config {device} {way}_offload {offload} on")).await?;
        }
        self.write(&format!("csum set tcp hw {device}")).await
    }

    /// Sends trains from the first sender, and starts circulation.
    pub(super) async fn start_trains(&mut self) -> Result<(), Failure> {
        let source = self.device_count();
        // Which rewinds its file.
        self.say(&format!("port stop {source}"), "Done").await?;
        self.say(&format!("port start {source}"), "Done").await?;
        let before = self.passage()?.sent;
        self.forward(&[source, 0]).await?;
        let fed = async {
            while self.passage()?.sent - before < u64::from(UNDER_WAY) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, Failure>(())
        };
        let fed = tokio::time::timeout(FEED_LIMIT, fed).await;
        fed.unwrap_or_else(|_| Err("the guests send no trains".into()))?;
        self.say("stop", "Done.").await?;
        self.forward(&(0..source).collect::<Vec<_>>()).await
    }

    /// Forwards from each of these devices to the other one of its pair.
    async fn forward(&mut self, devices: &[usize]) -> Result<(), Failure> {
        let devices: Vec<_> = devices.iter().map(usize::to_string).collect();
        self.write(&format!("set portlist {}", devices.join(","))).await?;
        self.say("set fwd csum", "Set csum packet forwarding mode").await?;
        self.say("start", "packet forwarding - ports=").await
    }
}

/// Direction and name of the offloads.
const OFFLOADS: [(&str, &str); 6] = [
    ("rx", "tcp_lro"),
    ("rx", "tcp_cksum"),
    ("rx", "scatter"),
    ("tx", "tcp_tso"),
    CHECKSUM,
    ("tx", "multi_segs"),
];
const CHECKSUM: (&str, &str) = ("tx", "tcp_cksum");
/// Length of a train in bytes without the check sequence.
pub(in crate::bench::vhost) const TRAIN_LEN: usize = 14 + 20 + 20 + PAYLOAD_LEN;
/// As many segments as fit an IP packet.
const PAYLOAD_LEN: usize = 44 * SEGMENT_LEN;
const SEGMENT_LEN: usize = 1460;
const UNDER_WAY: u32 = 16;
/// Length of the guests' buffers in bytes: a page, the maximum of Linux.
const BUFFER_LEN: usize = 4096;
const FEED_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_one_packet_of_ip() {
        let file = file().unwrap();
        assert!(TRAIN_LEN - 14 <= usize::from(u16::MAX));
        let mut packets = 0;
        let mut rest = &file[..];
        while let Some(len) = pcapng::next_block(rest) {
            packets += usize::from(pcapng::packet_time(rest).is_some());
            rest = &rest[len..];
        }
        assert_eq!(packets, 16);
        let frame = file.windows(2).position(|type_| type_ == [0x08, 0x00]).unwrap();
        let packet = etherparse::SlicedPacket::from_ethernet(&file[frame - 12..][..TRAIN_LEN]);
        assert!(packet.unwrap().transport.is_some());
    }
}
