//! A cable between two devices, and frames of all kinds to send through it.

use std::thread;
use std::time::{Duration, Instant};

use tapswitch_tap::{
    Burst, BurstSize, Config, Device, Engine, EngineKind, GsoType, NetHeader, NetHeaderFlags,
    Queue, Refused,
};
use tapswitch_wire::checksum::Sum;

use super::{Host, PATIENCE, config, skip};

/// The engines that this machine supports.
pub(crate) fn kinds() -> Vec<EngineKind> {
    let host = Host::new();
    let queue = one_queue(host.create(&config("kinds")));
    match Engine::open(queue, EngineKind::Uring) {
        Ok(_) => vec![EngineKind::Drain, EngineKind::Uring],
        Err(error) => {
            skip(&format!("the io_uring engine: {error}"));
            vec![EngineKind::Drain]
        }
    }
}

/// Two devices on a bridge: a frame written to one is read from the other unchanged.
pub(crate) struct Cable {
    pub(crate) host: Host,
    pub(crate) from: Engine,
    pub(crate) to: Engine,
}

impl Cable {
    pub(crate) fn new(from: EngineKind, to: EngineKind) -> Self {
        Self::with([(config("from"), from), (config("to"), to)])
    }

    /// With devices of any header length: `(configuration, engine)`.
    pub(crate) fn with(ends: [(Config, EngineKind); 2]) -> Self {
        let mut host = Host::new();
        let ends = ends.map(|(config, kind)| (one_queue(host.create(&config)), kind));
        host.netlink.create_bridge("br0").unwrap();
        for name in ["from", "to"] {
            host.netlink.set_bridge(name, "br0").unwrap();
            host.netlink.set_up(name).unwrap();
        }
        host.netlink.set_up("br0").unwrap();
        let [from, to] = ends.map(|(queue, kind)| Engine::open(queue, kind).unwrap());
        let mut cable = Self { host, from, to };
        cable.settle();
        cable
    }

    /// Sends until a frame arrives, as a port of a bridge takes a moment to forward.
    pub(crate) fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.send(&[(NetHeader::PLAIN, numbered(0, 60))]);
            if !self.receive().is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "the bridge does not forward");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn send(&mut self, frames: &[(NetHeader, Vec<u8>)]) {
        assert_eq!(self.send_all(frames), []);
    }

    /// Sends in bursts; returns the refused frames.
    pub(crate) fn send_all(&mut self, frames: &[(NetHeader, Vec<u8>)]) -> Vec<Refused> {
        let mut burst = Burst::new(BurstSize::spread(frames.len()));
        for (header, bytes) in frames {
            assert!(burst.push(header, &[bytes]));
        }
        let sent = self.from.send(&burst);
        assert_eq!((sent.count + sent.refused.len(), sent.stopped), (frames.len(), None));
        sent.refused.to_vec()
    }

    /// The queued frames of the test.
    pub(crate) fn receive(&mut self) -> Vec<(NetHeader, Vec<u8>)> {
        let mut burst = Burst::new(self.to.burst_size());
        let mut received = Vec::new();
        while self.to.recv(&mut burst).unwrap() > 0 {
            let ours = burst.iter().filter(|frame| is_ours(frame.bytes()));
            received.extend(ours.map(|frame| (frame.header(), frame.bytes().to_vec())));
        }
        received
    }

    pub(crate) fn dropped(&mut self) -> u64 {
        self.host.netlink.link("to").unwrap().stats.tx_dropped
    }
}

pub(crate) fn one_queue(tap: Device) -> Queue {
    tap.into_queues().remove(0)
}

/// Frames of all types and lengths, each containing its number.
pub(crate) fn frame(number: usize) -> (NetHeader, Vec<u8>) {
    match number % 4 {
        0 => (NetHeader::PLAIN, numbered(number, 60 + number % 1455)),
        1 => udp(number, 1 + number % 1472, 0),
        2 => udp(number, 2000 + number % 3000, 1000),
        _ => udp(number, 30_000 + number % 30_000, 1400),
    }
}

/// A frame of an unknown protocol.
pub(crate) fn numbered(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = plain_frame(len);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub(crate) fn plain_frame(len: usize) -> Vec<u8> {
    let mut bytes = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>();
    bytes[..6].copy_from_slice(&NOBODY);
    bytes[6..12].copy_from_slice(&OURS);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

/// UDP over IPv4 with a partial checksum; a train when `segment` is not zero.
pub(crate) fn udp(number: usize, payload_len: usize, segment: u16) -> (NetHeader, Vec<u8>) {
    let mut bytes = plain_frame(42 + payload_len);
    bytes[12..14].copy_from_slice(&[8, 0]);
    let ip_len = u16::try_from(28 + payload_len).unwrap();
    bytes[14..34]
        .copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 3]);
    bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
    // Netfilter on a bridge may check the packet, and drops those with a wrong header checksum.
    let checksum = Sum::of(&bytes[14..34]).checksum();
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    bytes[34..38].copy_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
    bytes[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    let header = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: if segment == 0 { GsoType::NONE } else { GsoType::UDP_L4 },
        hdr_len: 42,
        gso_size: segment,
        csum_start: 34,
        csum_offset: 6,
    };
    (header, bytes)
}

pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    bytes.get(6..12) == Some(&OURS)
}

/// Ignores `hdr_len`: it is a hint that the kernel sets.
pub(crate) fn assert_same(
    received: &[(NetHeader, Vec<u8>)],
    sent: &[(NetHeader, Vec<u8>)],
    what: &str,
) {
    assert_eq!(received.len(), sent.len(), "{what}");
    for (index, (received, sent)) in received.iter().zip(sent).enumerate() {
        let header = NetHeader { hdr_len: sent.0.hdr_len, ..received.0 };
        assert_eq!(header, sent.0, "{what}: metadata of frame {index}");
        assert!(received.1 == sent.1, "{what}: bytes of frame {index}");
    }
}

/// MAC address without a station, so that the bridge floods.
pub(crate) const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0xee];
/// Source of all frames made here.
pub(crate) const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0xaa];
