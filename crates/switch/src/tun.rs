//! A tun device as a port: IP packets on one side, Ethernet frames on the other.
//!
//! A received packet gets an Ethernet header from the port's own address to the station of the
//! packet's destination. Stations are learnt from sent frames: from packets, ARP and neighbour
//! advertisements. If none was learnt, the header is addressed to `peer=`. Without a peer it is
//! broadcast, and the port sends a request for the address: TCP and routers do not accept broadcast
//! packets, so the next packet must find its station. A sent frame loses its header; frames that
//! are not addressed to the port, and frames without IP, are dropped.
//!
//! A tun device has no Ethernet addresses, so nothing behind it answers ARP and neighbour
//! solicitations. The port answers them ([`neighbor`]), for all addresses seen as sources behind
//! it, and for those of the device itself ([`device`]). Its answers and requests are received from
//! a queue of its own, as frames like any other. An address that a host in front claims is no
//! longer behind the device, until a packet comes from it.
//!
//! A station that was not seen for [`STATION_AGE_LIMIT`] is forgotten. Addresses behind the device
//! are kept, as nothing else would answer for a host that is silent for a while.
//!
//! Limits: 2048 stations and as many addresses behind the device; a full [`table`] forgets the
//! entries that were seen longest ago. Hosts behind a router in front do not answer requests: set
//! `peer=` to that router. Duplicate address detection (RFC 4862 §5.4) is not answered. Addresses
//! of tagged stations are not learnt, as a port without Ethernet is in no VLAN.

mod device;
mod neighbor;
mod table;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use tapswitch_datapath::{DropReason, Frame, HEADROOM, Millis};
use tapswitch_netlink::Namespace;
use tapswitch_tap as tap;
use tapswitch_wire::{
    EtherType, MacAddr, NET_HEADER_LEN, NetHeader, ethernet, icmp, ipv4, ipv6, read_u16,
};

use crate::PortSpec;
use crate::rx::Received;
use crate::{bell, clock};
use device::DeviceAddresses;
use neighbor::{Claim, Question};
use table::{Source, Table};

/// State shared by the queues of a tun device.
#[derive(Debug)]
pub(crate) struct TunLink {
    mac: MacAddr,
    peer: Option<MacAddr>,
    device: DeviceAddresses,
    /// The stations of addresses in front of the device.
    stations: Table<MacAddr>,
    /// Addresses behind the device.
    behind: Table<()>,
    /// Addresses that the port has requested recently.
    asked: Table<()>,
    /// Time of the last request in milliseconds.
    asked_at: AtomicU64,
    /// Frames sent by the port itself.
    said: Mutex<VecDeque<Vec<u8>>>,
    /// Readable while there are such frames.
    bell: OwnedFd,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It is answered, or will be if the device has the address.
    Given,
    /// Too many answers are pending, or no thread can be started. A request that gets no answer is
    /// repeated.
    NoRoom,
    /// It is no request, or for an address that is not behind the device.
    NotAsked,
}

/// A queue of a tun device.
#[derive(Clone, Debug)]
pub(crate) struct TunQueue {
    pub(crate) queue: Arc<tap::Queue>,
    pub(crate) link: Arc<TunLink>,
    /// Packets have no network header.
    pub(crate) is_bare: bool,
}

impl TunLink {
    /// The state of the device of `spec`, which is in `namespace`.
    pub(crate) fn new(
        spec: &PortSpec,
        namespace: &Namespace,
        peer: Option<MacAddr>,
    ) -> io::Result<Self> {
        Ok(Self {
            mac: mac(spec),
            peer,
            device: DeviceAddresses::of(spec.name(), namespace),
            stations: Table::new(STATION_AGE_LIMIT),
            behind: Table::new(Millis(u64::MAX)),
            asked: Table::new(BETWEEN_QUESTIONS),
            asked_at: 0.into(),
            said: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The port's own address.
    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// The Ethernet header for a received packet; `None` if it is not an IP packet.
    #[inline]
    fn header(&self, packet: &[u8], now: Millis) -> Option<[u8; ethernet::HEADER_LEN]> {
        let (src, dst) = addresses(packet)?;
        if !src.is_unspecified() && self.behind.note(src, (), Source::Seen, now) {
            self.stations.forget(src);
        }
        let to = group(dst).or_else(|| self.stations.find(dst, now)).or(self.peer);
        let to = to.unwrap_or_else(|| self.ask(src, dst, now));
        let kind = if dst.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut header = [0; ethernet::HEADER_LEN];
        header[ethernet::field::DST].copy_from_slice(&to.0);
        header[ethernet::field::SRC].copy_from_slice(&self.mac.0);
        header[ethernet::field::ETHER_TYPE..].copy_from_slice(&kind.0.to_be_bytes());
        Some(header)
    }

    /// Requests the station of `dst` on behalf of a packet from `src`, unless that was done
    /// recently. Returns the broadcast address for the packet itself.
    #[cold]
    fn ask(&self, src: IpAddr, dst: IpAddr, now: Millis) -> MacAddr {
        // Limits requests for any number of addresses to one per tick of the clock.
        if self.asked.find(dst, now).is_none()
            && self.asked_at.swap(now.0, Ordering::Relaxed) != now.0
        {
            // The request is sent from the device's address in the same subnet, if any: the station
            // may have no route back to `src`.
            let question = neighbor::ask(self.mac, self.device.near(dst).unwrap_or(src), dst);
            if question.is_some_and(|question| self.say(question, QUESTIONS_MAX)) {
                self.asked.note(dst, (), Source::Seen, now);
            }
        }
        MacAddr::BROADCAST
    }

    /// Checks a frame to be sent. Returns whether it is a packet for the device. Requests that the
    /// port answers, and answers to its own requests, are not.
    pub(crate) fn admit(
        self: &Arc<Self>,
        frame: &Frame<'_>,
        now: Millis,
    ) -> Result<bool, DropReason> {
        let (head, dst, src) = (frame.head(), frame.destination(), frame.source());
        if dst != self.mac && !dst.is_multicast() {
            return Err(DropReason::NotAddressed);
        }
        let packet = head.get(ethernet::HEADER_LEN..).unwrap_or_default();
        match EtherType(read_u16(head, ethernet::field::ETHER_TYPE)) {
            EtherType::ARP => {
                if self.hear(head, now) && dst == self.mac {
                    return Ok(false);
                }
                match self.answer(head, now) {
                    Answer::Given => Ok(false),
                    Answer::NoRoom => Err(DropReason::EgressFull),
                    Answer::NotAsked => Err(DropReason::NotIp),
                }
            }
            EtherType::IPV4 | EtherType::IPV6 => {
                let (ip, _) = addresses(packet).ok_or(DropReason::NotIp)?;
                self.learn(ip, src, Source::Seen, now);
                match neighbor::discovery_of(packet) {
                    // The device may answer what the port does not.
                    Some(icmp::NEIGHBOR_SOLICITATION) => {
                        Ok(self.answer(head, now) != Answer::Given)
                    }
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
    fn learn(&self, ip: IpAddr, mac: MacAddr, source: Source, now: Millis) {
        if mac.is_unicast() && !ip.is_unspecified() {
            self.stations.note(ip, mac, source, now);
        }
    }

    /// Notes a host's claim of an address in front. Returns whether it is an ARP reply.
    #[cold]
    fn hear(&self, frame: &[u8], now: Millis) -> bool {
        let Some(Claim { ip, mac, is_reply }) = Claim::of(frame) else { return false };
        if mac == self.mac {
            return false;
        }
        self.learn(ip, mac, Source::Told, now);
        // Two hosts with one address claim it in turn: as usual, the last one wins.
        self.behind.forget(ip);
        is_reply
    }

    /// Answers a request for an address behind the device, or checks whether the device has it.
    #[cold]
    fn answer(self: &Arc<Self>, frame: &[u8], now: Millis) -> Answer {
        let Some(question) = Question::of(frame) else { return Answer::NotAsked };
        let is_possible = if self.behind.find(question.target, now).is_some() {
            self.say(question.answer(self.mac), ANSWERS_MAX)
        } else if self.device.is_due(now) {
            self.answer_later(question, now)
        } else {
            return Answer::NotAsked;
        };
        if is_possible { Answer::Given } else { Answer::NoRoom }
    }

    /// Answers in a thread if the device has the address, whose host may not have sent anything
    /// yet. Returns `false` if there is no thread for it.
    fn answer_later(self: &Arc<Self>, question: Question, now: Millis) -> bool {
        let link = self.clone();
        let look = move || {
            for ip in link.device.look() {
                link.behind.note(ip, (), Source::Told, now);
            }
            if link.behind.find(question.target, now).is_some() {
                link.say(question.answer(link.mac), ANSWERS_MAX);
            }
        };
        std::thread::Builder::new().name("tun-addresses".into()).spawn(look).is_ok()
    }

    /// Queues `frame` to be received from the port, unless `most` are pending.
    fn say(&self, frame: Vec<u8>, most: usize) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= most {
            return false;
        }
        said.push_back(frame);
        drop(said);
        bell::ring(&self.bell);
        true
    }

    /// Takes the port's next own frame, behind [`HEADROOM`] bytes of `buf`.
    pub(crate) fn recv_said(&self, buf: &mut [u8]) -> Received {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(frame) = said.pop_front() else {
            // Under the lock, so that no signal is lost. There may have been none.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            return Received::Empty;
        };
        let end = HEADROOM + frame.len();
        buf[HEADROOM..end].copy_from_slice(&frame);
        Received::Frame { meta: NetHeader::PLAIN, start: HEADROOM, end }
    }
}

/// Readable while the port has frames of its own.
impl AsFd for TunLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl TunQueue {
    /// Receives a packet as a frame behind [`HEADROOM`] bytes of `buf`. The kernel writes network
    /// header and packet contiguously, so that the packet is where it belongs behind the Ethernet
    /// header.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> Received {
        const PACKET: usize = HEADROOM + ethernet::HEADER_LEN;
        let begin = if self.is_bare { PACKET } else { PACKET - NET_HEADER_LEN };
        let len = match self.queue.recv(&mut buf[begin..]) {
            Ok(Some(len)) => len,
            Ok(None) => return Received::Empty,
            Err(tap::RecvError::Gone) => return Received::Gone,
            Err(_) => return Received::Dropped(DropReason::IngressLost),
        };
        let mut meta = match buf[begin..begin + len].first_chunk() {
            Some(header) if !self.is_bare => NetHeader::decode(header),
            _ if self.is_bare => NetHeader::PLAIN,
            _ => return Received::Dropped(DropReason::IngressLost),
        };
        meta.shift(HEADER_SHIFT);
        let end = begin + len;
        let packet = buf.get(PACKET..end).unwrap_or_default();
        // Anything but IP has no known encapsulation in Ethernet.
        let header = self.link.header(packet, clock::coarse());
        let Some(header) = header else { return Received::Dropped(DropReason::IngressNotIp) };
        buf[HEADROOM..PACKET].copy_from_slice(&header);
        Received::Frame { meta, start: HEADROOM, end }
    }

    /// The metadata of a frame, adapted to its packet without an Ethernet header.
    pub(crate) fn net_header(&self, mut meta: NetHeader) -> NetHeader {
        meta.shift(-HEADER_SHIFT);
        meta
    }

    /// Length of the network header in front of a packet.
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

/// The Ethernet address of a multicast or broadcast address (RFC 1112 §6.4, RFC 2464 §7).
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

/// The port's address: the same for the same device at each start.
fn mac(spec: &PortSpec) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    ("tun", spec.name(), &spec.netns, spec.number.0).hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    // Locally administered (IEEE 802-2014 §8.2.2).
    MacAddr([0x02, a, b, c, d, e])
}

/// [`ethernet::HEADER_LEN`] as an offset.
const HEADER_SHIFT: i16 = 14;
const _: () = assert!(ethernet::HEADER_LEN == 14 && NET_HEADER_LEN < ethernet::HEADER_LEN);
/// The age limit of the switch's MAC table.
const STATION_AGE_LIMIT: Millis = Millis(300_000);
/// Limit of the port's own pending frames.
const ANSWERS_MAX: usize = 64;
/// Limit of pending frames for requests: answers have precedence.
const QUESTIONS_MAX: usize = 32;
/// As RFC 1122 §2.3.2.1 recommends for ARP, and RFC 4861's RETRANS_TIMER.
const BETWEEN_QUESTIONS: Millis = Millis(1000);

#[cfg(test)]
mod tests;
