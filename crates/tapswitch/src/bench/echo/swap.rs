//! Processing of a frame by the echo, and its number of packets.
//!
//! Only addresses are exchanged, so every checksum stays correct, even a partial one: all of them
//! are sums. Ports stay unchanged, so that a host reaches itself through the device, at another
//! address, by TCP as well.

use serde::{Deserialize, Serialize};

/// Type of the device, which determines where the IP header starts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Layer {
    /// Ethernet frames.
    Tap,
    /// IP packets.
    Tun,
}

impl Layer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tap => "TAP",
            Self::Tun => "TUN",
        }
    }

    const fn header_len(self) -> usize {
        match self {
            Self::Tap => 14,
            Self::Tun => 0,
        }
    }
}

/// Exchanges source and destination.
#[inline]
pub(super) fn swap_addresses(layer: Layer, frame: &mut [u8]) {
    if layer == Layer::Tap
        && let Some(macs) = frame.first_chunk_mut::<12>()
    {
        let (destination, source) = macs.split_at_mut(6);
        destination.swap_with_slice(source);
    }
    let Some((version, packet)) = ip_packet(layer, frame) else { return };
    let (start, len) = if version == 4 { (12, 4) } else { (8, 16) };
    if let Some(addresses) = packet.get_mut(start..start + 2 * len) {
        let (source, destination) = addresses.split_at_mut(len);
        source.swap_with_slice(destination);
    }
}

/// The IP packet in `frame`, and its version.
#[inline]
fn ip_packet(layer: Layer, frame: &mut [u8]) -> Option<(u8, &mut [u8])> {
    let is_ip = match layer {
        Layer::Tap => matches!(frame.get(12..14), Some([0x08, 0x00] | [0x86, 0xdd])),
        Layer::Tun => true,
    };
    let packet = frame.get_mut(layer.header_len()..).filter(|_| is_ip)?;
    match *packet.first()? >> 4 {
        version @ (4 | 6) => Some((version, packet)),
        _ => None,
    }
}

/// Counters of the echo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Frames that were read and written back; a train counts as one.
    pub(super) frames: u64,
    /// Trains among them.
    pub(super) trains: u64,
    /// Packets that they contain on a wire with the interface's MTU.
    pub(super) packets: u64,
    /// Bytes of those packets, including the headers of each.
    pub(super) bytes: u64,
    /// Frames that were read but that the kernel refused; they count for nothing else.
    pub(super) lost: u64,
}

impl Tally {
    /// Counts one frame that was read and written: see [`Self::count`].
    #[inline]
    pub(super) fn settle(&mut self, is_sent: bool, layer: Layer, gso_size: u16, frame: &[u8]) {
        if is_sent {
            self.count(layer, gso_size, frame);
        } else {
            self.lost += 1;
        }
    }

    /// Counts one frame; `gso_size` is the payload per packet of a train, or zero.
    #[inline]
    pub(super) fn count(&mut self, layer: Layer, gso_size: u16, frame: &[u8]) {
        let (packets, bytes) = on_the_wire(layer, gso_size, frame);
        self.frames += 1;
        self.trains += u64::from(gso_size != 0);
        self.packets += packets;
        self.bytes += bytes;
    }

    pub(super) fn plus(self, more: Self) -> Self {
        Self {
            frames: self.frames + more.frames,
            trains: self.trains + more.trains,
            packets: self.packets + more.packets,
            bytes: self.bytes + more.bytes,
            lost: self.lost + more.lost,
        }
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            frames: self.frames - earlier.frames,
            trains: self.trains - earlier.trains,
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            lost: self.lost - earlier.lost,
        }
    }
}

/// Packets and bytes of a frame on a wire.
#[inline]
fn on_the_wire(layer: Layer, gso_size: u16, frame: &[u8]) -> (u64, u64) {
    let len = frame.len() as u64;
    if gso_size == 0 {
        return (1, len);
    }
    let headers = headers_len(layer, frame).unwrap_or(0) as u64;
    let packets = len.saturating_sub(headers).div_ceil(gso_size.into()).max(1);
    (packets, len + (packets - 1) * headers)
}

/// Length of the headers of each packet of a train. The hint in the virtio header is not used: on
/// forwarded frames it is too long.
fn headers_len(layer: Layer, frame: &[u8]) -> Option<usize> {
    let start = layer.header_len();
    let first = *frame.get(start)?;
    let (protocol, transport) = match first >> 4 {
        4 => (*frame.get(start + 9)?, start + usize::from(first & 0x0f) * 4),
        _ => (*frame.get(start + 6)?, start + 40),
    };
    match protocol {
        6 => Some(transport + usize::from(*frame.get(transport + 12)? >> 4) * 4),
        _ => Some(transport + 8),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, PacketBuilderStep, SlicedPacket, TransportSlice};

    use super::*;

    #[test]
    fn addresses_change_places_and_every_checksum_stays_right() {
        for frame in [ipv4().udp(7, 9), ipv6().udp(7, 9)].map(|builder| written(builder, &[1; 99]))
        {
            let mut swapped = frame.clone();
            swap_addresses(Layer::Tap, &mut swapped);
            assert_eq!((&swapped[..6], &swapped[6..12]), (&frame[6..12], &frame[..6]));
            assert_checksums(&swapped);
            assert_ne!(swapped, frame);
            swap_addresses(Layer::Tap, &mut swapped);
            assert_eq!(swapped, frame, "twice is not at all");
        }
    }

    #[test]
    fn a_packet_of_a_tun_device_is_the_same_without_the_front() {
        for frame in [ipv4().udp(7, 9), ipv6().udp(7, 9)].map(|builder| written(builder, &[1; 99]))
        {
            let (mut swapped, mut packet) = (frame.clone(), frame[14..].to_vec());
            swap_addresses(Layer::Tap, &mut swapped);
            swap_addresses(Layer::Tun, &mut packet);
            assert_eq!(packet, swapped[14..]);
        }
    }

    #[test]
    fn what_is_no_ip_or_is_cut_short_is_survived() {
        let mut arp = [0; 42];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        arp[26] = 1;
        let before = arp;
        swap_addresses(Layer::Tap, &mut arp);
        assert_eq!(arp[14..], before[14..], "nothing but the MAC addresses");
        let frame = written(ipv4().udp(7, 9), &[]);
        for len in 0..frame.len() {
            let mut cut = frame[..len].to_vec();
            swap_addresses(Layer::Tap, &mut cut);
            Tally::default().count(Layer::Tap, 1, &cut);
        }
    }

    #[test]
    fn a_train_counts_as_the_packets_that_it_is_on_the_wire() {
        let mut tally = Tally::default();
        tally.count(Layer::Tap, 0, &written(ipv4().udp(7, 9), &[0; 1400]));
        assert_eq!(tally, Tally { frames: 1, packets: 1, bytes: 1442, ..Tally::default() });
        let train = written(ipv4().udp(7, 9), &[0; 1400 * 3 + 1]);
        tally.count(Layer::Tap, 1400, &train);
        let bytes = 1442 + 3 * 1442 + 43;
        assert_eq!(tally, Tally { frames: 2, trains: 1, packets: 5, bytes, lost: 0 });
    }

    #[test]
    fn each_packet_of_a_train_has_all_headers() {
        let payload = vec![0; 1448 * 10];
        let options = ipv4().tcp(7, 9, 0, 1).options_raw(&[1; 12]).unwrap();
        for (frame, headers) in [
            (written(options, &payload), 14 + 20 + 32),
            (written(ipv6().udp(7, 9), &payload), 14 + 40 + 8),
        ] {
            let mut tally = Tally::default();
            tally.count(Layer::Tap, 1448, &frame);
            assert_eq!((tally.packets, tally.bytes), (10, 10 * (headers + 1448)));
        }
    }

    type Builder = PacketBuilderStep<etherparse::IpHeaders>;

    fn ipv4() -> Builder {
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
    }

    fn ipv6() -> Builder {
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([5; 16], [6; 16], 64)
    }

    fn written<T: Written>(builder: T, payload: &[u8]) -> Vec<u8> {
        builder.bytes(payload)
    }

    trait Written {
        fn bytes(self, payload: &[u8]) -> Vec<u8>;
    }

    impl Written for PacketBuilderStep<etherparse::UdpHeader> {
        fn bytes(self, payload: &[u8]) -> Vec<u8> {
            let mut frame = Vec::new();
            self.write(&mut frame, payload).unwrap();
            frame
        }
    }

    impl Written for PacketBuilderStep<etherparse::TcpHeader> {
        fn bytes(self, payload: &[u8]) -> Vec<u8> {
            let mut frame = Vec::new();
            self.write(&mut frame, payload).unwrap();
            frame
        }
    }

    /// By an independent implementation.
    fn assert_checksums(frame: &[u8]) {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP") };
        let header = udp.to_header();
        let expected = match packet.net.unwrap() {
            etherparse::NetSlice::Ipv4(ip) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                header.calc_checksum_ipv4(&ip, udp.payload())
            }
            etherparse::NetSlice::Ipv6(ip) => {
                header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(header.checksum, expected.unwrap());
    }
}
