//! A tun device as a port: IP packets on one side, Ethernet frames on the other.
//!
//! On the way in a packet gets an Ethernet header, from the port's own address to the station that
//! the packet's destination was last seen at: it is learnt from what goes out, packets and what
//! hosts say of themselves by ARP and neighbour advertisements. Where nothing was learnt, the
//! header is addressed to `peer=`, or to all. On the way out it loses the header; what is not
//! addressed to the port, and what is not IP, goes no further.
//!
//! A tun device knows no addresses of Ethernet, so nobody behind it answers who asks for one. The
//! port does ([`answer`]), for all that were seen as sources behind it, and for those of the device
//! itself. What it says comes in by a queue of its own: frames like any other. An address that a
//! host in front says is its own is none behind the device any more, until a packet comes from it.
//!
//! A station that was not seen for [`STATION_AGE_LIMIT`] is forgotten. Addresses behind the device
//! are not, as nobody else would answer for a host that says nothing for a while.
//!
//! Limits: [`table::STATIONS_MAX`] stations and as many addresses behind the device; a table that
//! is full forgets those that were seen longest ago. Duplicate address detection (RFC 4862 §5.4) is
//! not answered. Addresses of tagged stations are not learnt: a port without Ethernet is in no VLAN.

mod answer;
mod table;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use tapswitch_datapath::{DropReason, Frame, HEADROOM, Millis};
use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_tap as tap;
use tapswitch_wire::{
    EtherType, MacAddr, NET_HEADER_LEN, NetHeader, ethernet, icmp, ipv4, ipv6, read_u16,
};

use crate::PortSpec;
use crate::rx::Received;
use crate::{bell, clock};
use answer::{Claim, Question};
use table::Table;

/// What the queues of one tun device have in common.
#[derive(Debug)]
pub(crate) struct TunLink {
    name: String,
    namespace: Namespace,
    mac: MacAddr,
    peer: Option<MacAddr>,
    /// Where addresses in front of the device were last seen.
    stations: Table<MacAddr>,
    /// Addresses behind the device.
    behind: Table<()>,
    answers: Mutex<VecDeque<Vec<u8>>>,
    /// Readable while there are answers.
    bell: OwnedFd,
    /// When the device was last asked for its addresses.
    asked: Mutex<Option<Instant>>,
}

/// One queue of a tun device.
#[derive(Clone, Debug)]
pub(crate) struct TunQueue {
    pub(crate) queue: Arc<tap::Queue>,
    pub(crate) link: Arc<TunLink>,
    /// Without a network header in front of each packet.
    pub(crate) is_bare: bool,
}

impl TunLink {
    /// For the device of `spec`, which is in `namespace`.
    pub(crate) fn new(
        spec: &PortSpec,
        namespace: &Namespace,
        peer: Option<MacAddr>,
    ) -> io::Result<Self> {
        Ok(Self {
            name: spec.name().to_owned(),
            namespace: namespace.clone(),
            mac: mac(spec),
            peer,
            stations: Table::new(STATION_AGE_LIMIT),
            behind: Table::new(Millis(u64::MAX)),
            answers: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asked: Mutex::default(),
        })
    }

    /// The port's own address.
    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// The Ethernet header for a packet that comes in; `None` when it is no IP packet.
    #[inline]
    fn header(&self, packet: &[u8], now: Millis) -> Option<[u8; ethernet::HEADER_LEN]> {
        let (src, dst) = addresses(packet)?;
        if !self.behind.refresh(src, (), now) && !src.is_unspecified() {
            self.behind.set(src, (), now);
            self.stations.forget(src);
        }
        let to = group(dst).or_else(|| self.stations.find(dst, now)).or(self.peer);
        let kind = if dst.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut header = [0; ethernet::HEADER_LEN];
        header[ethernet::field::DST].copy_from_slice(&to.unwrap_or(MacAddr::BROADCAST).0);
        header[ethernet::field::SRC].copy_from_slice(&self.mac.0);
        header[ethernet::field::ETHER_TYPE..].copy_from_slice(&kind.0.to_be_bytes());
        Some(header)
    }

    /// Looks at a frame that goes out. Answers whether it is a packet for the device; a question
    /// that the port has answered itself is none.
    pub(crate) fn admit(&self, frame: &Frame<'_>, now: Millis) -> Result<bool, DropReason> {
        let head = frame.head();
        let (Some(dst), Some(src)) = (address_at(head, 0), address_at(head, 6)) else {
            return Err(DropReason::NotIp);
        };
        if dst != self.mac && !dst.is_multicast() {
            return Err(DropReason::NotAddressed);
        }
        let packet = head.get(ethernet::HEADER_LEN..).unwrap_or_default();
        match EtherType(read_u16(head, ethernet::field::ETHER_TYPE)) {
            EtherType::ARP => {
                self.hear(head, now);
                self.answer(head, now).then_some(false).ok_or(DropReason::NotIp)
            }
            EtherType::IPV4 | EtherType::IPV6 => {
                let (ip, _) = addresses(packet).ok_or(DropReason::NotIp)?;
                self.learn(ip, src, now);
                match answer::discovery_of(packet) {
                    Some(icmp::NEIGHBOR_SOLICITATION) => Ok(!self.answer(head, now)),
                    Some(icmp::NEIGHBOR_ADVERTISEMENT) => {
                        self.hear(head, now);
                        Ok(true)
                    }
                    _ => Ok(true),
                }
            }
            _ => Err(DropReason::NotIp),
        }
    }

    #[inline]
    fn learn(&self, ip: IpAddr, mac: MacAddr, now: Millis) {
        if !self.stations.refresh(ip, mac, now) && mac.is_unicast() && !ip.is_unspecified() {
            self.stations.set(ip, mac, now);
        }
    }

    /// Notes what a host in front says of itself.
    #[cold]
    fn hear(&self, frame: &[u8], now: Millis) {
        let Some(Claim { ip, mac }) = Claim::of(frame) else { return };
        if mac == self.mac {
            return;
        }
        self.learn(ip, mac, now);
        // Two hosts with one address say so by turns: as elsewhere, the last one has it.
        self.behind.forget(ip);
    }

    /// Answers who has asked for an address behind the device. Returns `false` when it is none, or
    /// when too many answers wait.
    #[cold]
    fn answer(&self, frame: &[u8], now: Millis) -> bool {
        let Some(question) = Question::of(frame) else { return false };
        let is_behind = || self.behind.find(question.target, now).is_some();
        if !is_behind() {
            self.look_for_addresses(now);
        }
        if !is_behind() {
            return false;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // Who asks faster than that will ask again.
        if answers.len() >= ANSWERS_MAX {
            return false;
        }
        answers.push_back(question.answer(self.mac));
        drop(answers);
        bell::ring(&self.bell);
        true
    }

    /// The host behind the device may not have said anything yet. Asked for at most once a second.
    fn look_for_addresses(&self, now: Millis) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_some_and(|at| at.elapsed() < BETWEEN_QUESTIONS) {
            return;
        }
        *asked = Some(Instant::now());
        let addresses =
            Netlink::open(&self.namespace).and_then(|mut netlink| netlink.addresses(&self.name));
        // A device that is gone has none.
        for address in addresses.unwrap_or_default() {
            self.behind.set(address.ip, (), now);
        }
    }

    /// Takes the next answer: a frame behind [`HEADROOM`] bytes of `buf`.
    pub(crate) fn recv_answer(&self, buf: &mut [u8]) -> Received {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answer) = answers.pop_front() else {
            // Under the lock, so that no bell is missed. It may not have rung.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            return Received::Empty;
        };
        let end = HEADROOM + answer.len();
        buf[HEADROOM..end].copy_from_slice(&answer);
        Received::Frame { meta: NetHeader::PLAIN, start: HEADROOM, end }
    }
}

/// What is readable while there are answers.
impl AsFd for TunLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl TunQueue {
    /// Receives one packet as a frame behind [`HEADROOM`] bytes of `buf`. The kernel writes network
    /// header and packet in one piece, to where the Ethernet header and the packet shall lie.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> Received {
        const PACKET: usize = HEADROOM + ethernet::HEADER_LEN;
        let begin = if self.is_bare { PACKET } else { PACKET - NET_HEADER_LEN };
        let len = match self.queue.recv(&mut buf[begin..]) {
            Ok(Some(len)) => len,
            Ok(None) => return Received::Empty,
            Err(tap::RecvError::Gone) => return Received::Gone,
            Err(_) => return Received::Lost,
        };
        let mut meta = match buf[begin..begin + len].first_chunk() {
            Some(header) if !self.is_bare => NetHeader::decode(header),
            _ if self.is_bare => NetHeader::PLAIN,
            _ => return Received::Lost,
        };
        meta.shift(HEADER_SHIFT);
        let end = begin + len;
        let packet = buf.get(PACKET..end).unwrap_or_default();
        // What is not IP has no way through Ethernet that anybody knows.
        let header = self.link.header(packet, clock::coarse());
        let Some(header) = header else { return Received::Lost };
        buf[HEADROOM..PACKET].copy_from_slice(&header);
        Received::Frame { meta, start: HEADROOM, end }
    }

    /// What the device wants in front of a packet with this metadata of its frame.
    pub(crate) fn net_header(&self, mut meta: NetHeader) -> NetHeader {
        meta.shift(-HEADER_SHIFT);
        meta
    }

    /// Bytes that the device wants in front of a packet.
    pub(crate) fn net_header_len(&self) -> usize {
        if self.is_bare { 0 } else { NET_HEADER_LEN }
    }
}

/// Source and destination of an IP packet.
#[inline]
fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let address = |field| Some(<[u8; 4]>::try_from(packet.get(field)?).ok()?.into());
            Some((address(ipv4::field::SRC)?, address(ipv4::field::DST)?))
        }
        6 => {
            let address = |field| Some(<[u8; 16]>::try_from(packet.get(field)?).ok()?.into());
            Some((address(ipv6::field::SRC)?, address(ipv6::field::DST)?))
        }
        _ => None,
    }
}

/// The address of a group of stations (RFC 1112 §6.4, RFC 2464 §7).
fn group(ip: IpAddr) -> Option<MacAddr> {
    match ip {
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some(MacAddr::BROADCAST),
        IpAddr::V4(ip) if ip.is_multicast() => {
            let [_, b, c, d] = ip.octets();
            Some(MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
        }
        IpAddr::V6(ip) if ip.is_multicast() => Some(group_v6(ip)),
        _ => None,
    }
}

fn group_v6(ip: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = ip.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

fn address_at(frame: &[u8], at: usize) -> Option<MacAddr> {
    frame.get(at..)?.first_chunk().copied().map(MacAddr)
}

/// The same for the same device at each start.
fn mac(spec: &PortSpec) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    ("tun", spec.name(), &spec.netns, spec.number.0).hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    // Locally administered (IEEE 802-2014 §8.2.2).
    MacAddr([0x02, a, b, c, d, e])
}

/// [`ethernet::HEADER_LEN`] as a distance.
const HEADER_SHIFT: i16 = 14;
const _: () = assert!(ethernet::HEADER_LEN == 14 && NET_HEADER_LEN < ethernet::HEADER_LEN);
/// As long as the MAC table of the switch keeps one.
const STATION_AGE_LIMIT: Millis = Millis(300_000);
/// Most answers that wait to be taken.
const ANSWERS_MAX: usize = 64;
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
