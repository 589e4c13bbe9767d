//! The headers of GRE and ERSPAN before an Ethernet frame.
//!
//! ```text
//!  GRE (RFC 2784, RFC 2890)
//!  |C| |K|S| Reserved0       | Ver |         Protocol Type         |
//!  | Checksum, Reserved1 (C) | Key (K) | Sequence Number (S), 32 bits each, where the flag is set
//!  ERSPAN II (protocol 0x88be), behind GRE with a sequence number
//!  |Ver= 1 |      VLAN             | COS |En |T|    Session ID     |
//!  |      Reserved         |                 Index                 |
//!  ERSPAN III (protocol 0x22eb), likewise
//!  |Ver= 2 |      VLAN             | COS |BSO|T|    Session ID     |
//!  |                          Timestamp                            |
//!  |             SGT               |P|   FT    |  Hw ID    |D|Gra|O|
//!  | eight bytes for the platform, where O is set                  |
//! ```
//! GRE carries frames as Transparent Ethernet Bridging (0x6558). ERSPAN is unidirectional: copies
//! of a switch's traffic for an analyser (draft-foschiano-erspan-03).
//!
//! Sent: no checksum (the frame has its own); for ERSPAN the sequence number, VLAN and priority of
//! the outermost tag, which stays in the frame, T for a truncated frame, and for III the time in
//! units of 100 ns. Accepted: any of C (which is verified), K and S; packets are not reordered by
//! sequence number, as RFC 2890 §2.2 permits for protocols that do not require it.

use std::fmt;
use std::net::IpAddr;

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{EtherType, ethernet, read_u16};

/// The encapsulation, which identifies one of several tunnels to a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// GRE with or without a key.
    Gre {
        /// 32 bits that both ends must agree upon.
        key: Option<u32>,
    },
    /// ERSPAN II.
    ErspanII(Session),
    /// ERSPAN III.
    ErspanIII(Session),
}

/// An ERSPAN session: 10 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session(u16);

impl Session {
    /// Maximum value.
    pub const MAX: u16 = (1 << 10) - 1;

    /// `None` if it exceeds 10 bits.
    pub const fn new(session: u16) -> Option<Self> {
        if session <= Self::MAX { Some(Self(session)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Properties of one frame for its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its sequence number in the session.
    pub sequence: u32,
    /// Time of sending, in units of 100 ns; wraps around after 429 s.
    pub time: u32,
    /// Priority and VLAN ID of its outermost tag, as a TCI; `None` without a tag.
    pub tci: Option<u16>,
    /// It was truncated.
    pub is_cut: bool,
}

/// The headers before a frame.
#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    bytes: [u8; PREFIX_MAX],
    len: usize,
}

impl Prefix {
    /// No headers.
    pub(crate) const EMPTY: Self = Self { bytes: [0; PREFIX_MAX], len: 0 };

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
        self
    }
}

/// Why a packet contains no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GreRefusal {
    /// Shorter than its headers and an Ethernet header.
    #[error("shorter than its headers and an Ethernet header")]
    Runt,
    /// Another protocol or version, bits that must be zero, or a wrong checksum.
    #[error("not a header of this kind of tunnel, or a wrong checksum")]
    Malformed,
    /// Another key or session.
    #[error("another key or session")]
    Other,
}

impl Carrier {
    /// True for encapsulations with a sequence number.
    pub const fn counts(self) -> bool {
        !matches!(self, Self::Gre { .. })
    }

    /// True for encapsulations with a timestamp.
    pub(crate) const fn is_timed(self) -> bool {
        matches!(self, Self::ErspanIII(_))
    }

    /// The key or session, if any.
    pub fn id(self) -> Option<u32> {
        match self {
            Self::Gre { key } => key,
            Self::ErspanII(session) | Self::ErspanIII(session) => Some(session.0.into()),
        }
    }

    /// Length of the headers before each sent frame in bytes.
    pub const fn prefix_len(self) -> usize {
        match self {
            Self::Gre { key: None } => 4,
            Self::Gre { key: Some(_) } => 8,
            Self::ErspanII(_) => 16,
            Self::ErspanIII(_) => 20,
        }
    }

    /// Bytes of a packet to `remote` other than the inner frame's payload: IP, these headers, and
    /// Ethernet.
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    pub const fn overhead(self, remote: IpAddr) -> u32 {
        let ip = if remote.is_ipv4() { 20 } else { 40 };
        ip + self.prefix_len() as u32 + ethernet::HEADER_LEN as u32
    }

    /// Creates the headers of one frame.
    pub fn prefix(self, about: &About) -> Prefix {
        let sequence = about.sequence.to_be_bytes();
        match self {
            Self::Gre { key: None } => Prefix::EMPTY.push(&gre(0, TRANSPARENT_ETHERNET)),
            Self::Gre { key: Some(key) } => {
                Prefix::EMPTY.push(&gre(KEY, TRANSPARENT_ETHERNET)).push(&key.to_be_bytes())
            }
            Self::ErspanII(session) => {
                let tag = if about.tci.is_some() { TAG_IN_FRAME } else { 0 };
                let prefix = Prefix::EMPTY.push(&gre(SEQUENCE, ERSPAN_II)).push(&sequence);
                prefix.push(&first_word(1, session, about, tag)).push(&[0; 4])
            }
            Self::ErspanIII(session) => {
                let prefix = Prefix::EMPTY.push(&gre(SEQUENCE, ERSPAN_III)).push(&sequence);
                let prefix = prefix.push(&first_word(2, session, about, 0));
                prefix.push(&about.time.to_be_bytes()).push(&[0, 0, PDU, UNITS_OF_100_NS])
            }
        }
    }

    /// Whether a packet of this tunnel may begin with `quoted`, which begins after the IP header.
    /// Routers quote at least eight bytes of a packet that they did not forward (RFC 792): enough
    /// to distinguish keys, but not sessions.
    pub(crate) fn may_have_sent(self, quoted: &[u8]) -> bool {
        let ours = self.prefix(&About::default());
        let bits = ours.bytes().iter().zip(self.own_bits()).zip(quoted);
        bits.into_iter().all(|((ours, own), quoted)| (ours ^ quoted) & own == 0)
    }

    /// Mask of the prefix bits that are the same for each frame, and that distinguish this tunnel
    /// as far as possible.
    const fn own_bits(self) -> &'static [u8] {
        match self {
            Self::Gre { key: None } => &[0xff; 4],
            Self::Gre { key: Some(_) } => &[0xff; 8],
            // Sequence number, tag and truncation depend on the frame.
            Self::ErspanII(_) | Self::ErspanIII(_) => {
                &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xf0, 0, 3, 0xff]
            }
        }
    }

    /// Offset of the frame in `packet`, which begins after the IP header.
    ///
    /// # Errors
    /// [`GreRefusal`] if it contains no frame of this tunnel.
    #[inline]
    pub fn frame_of(self, packet: &[u8]) -> Result<usize, GreRefusal> {
        let (protocol, key, has_sequence, at) = parse_gre(packet)?;
        let start = match (self, protocol) {
            (Self::Gre { key: ours }, TRANSPARENT_ETHERNET) if ours == key => at,
            (Self::Gre { .. }, TRANSPARENT_ETHERNET) => return Err(GreRefusal::Other),
            (Self::ErspanII(session), ERSPAN_II) if has_sequence => {
                check_first_word(packet, at, 1, session)?;
                at + 8
            }
            (Self::ErspanIII(session), ERSPAN_III) => {
                check_first_word(packet, at, 2, session)?;
                at + 12 + platform_len(packet, at)?
            }
            _ => return Err(GreRefusal::Malformed),
        };
        let is_there = start + ethernet::HEADER_LEN <= packet.len();
        if is_there { Ok(start) } else { Err(GreRefusal::Runt) }
    }
}

/// In the syntax of a port option.
impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gre { key: None } => Ok(()),
            Self::Gre { key: Some(key) } => write!(f, "key={key}"),
            Self::ErspanII(session) => write!(f, "session={session},version=2"),
            Self::ErspanIII(session) => write!(f, "session={session},version=3"),
        }
    }
}

/// Priority and VLAN ID of the outermost tag of `frame`; `None` without a tag.
#[inline]
pub(crate) fn outer_tci(frame: &[u8]) -> Option<u16> {
    let is_tagged = frame.len() >= ethernet::HEADER_LEN + ethernet::TAG_LEN
        && EtherType(read_u16(frame, ethernet::ADDRESSES_LEN)).is_tag();
    is_tagged.then(|| read_u16(frame, ethernet::HEADER_LEN))
}

const fn gre(flags: u16, protocol: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (flags.to_be_bytes(), protocol.to_be_bytes());
    [a, b, c, d]
}

/// `middle` are the two bits before T.
fn first_word(version: u32, session: Session, about: &About, middle: u32) -> [u8; 4] {
    let tci = about.tci.unwrap_or_default();
    let (vlan, priority) = (u32::from(tci & 0x0fff), u32::from(tci >> 13));
    let cut = u32::from(about.is_cut);
    let word = version << 28 | vlan << 16 | priority << 13 | middle << 11 | cut << 10;
    (word | u32::from(session.0)).to_be_bytes()
}

fn check_first_word(
    packet: &[u8],
    at: usize,
    version: u32,
    session: Session,
) -> Result<(), GreRefusal> {
    let word = word(packet, at)?;
    if word >> 28 != version {
        return Err(GreRefusal::Malformed);
    }
    let is_ours = word & u32::from(Session::MAX) == u32::from(session.0);
    if is_ours { Ok(()) } else { Err(GreRefusal::Other) }
}

/// Length in bytes of the optional header of ERSPAN III; the packet must contain an Ethernet frame.
fn platform_len(packet: &[u8], at: usize) -> Result<usize, GreRefusal> {
    let word = word(packet, at + 8)?;
    if word >> 10 & 0x1f != 0 {
        return Err(GreRefusal::Malformed);
    }
    Ok(if word & 1 == 0 { 0 } else { 8 })
}

/// Protocol, key, whether there is a sequence number, and the end of the header.
#[inline]
fn parse_gre(packet: &[u8]) -> Result<(u16, Option<u32>, bool, usize), GreRefusal> {
    let first = word(packet, 0)?;
    let [a, b, c, d] = first.to_be_bytes();
    let (flags, protocol) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    // RFC 2784 §2.3: receivers that do not implement RFC 1701 must drop packets with any of the
    // bits 1 to 5 set; RFC 2890 has reintroduced K and S.
    if flags & !(CHECKSUM | KEY | SEQUENCE) & 0xfc07 != 0 {
        return Err(GreRefusal::Malformed);
    }
    let mut at = 4;
    if flags & CHECKSUM != 0 {
        if Sum::of(packet).partial() != 0xffff {
            return Err(GreRefusal::Malformed);
        }
        at += 4;
    }
    let mut key = None;
    if flags & KEY != 0 {
        key = Some(word(packet, at)?);
        at += 4;
    }
    let has_sequence = flags & SEQUENCE != 0;
    at += if has_sequence { 4 } else { 0 };
    Ok((protocol, key, has_sequence, at))
}

#[inline]
fn word(packet: &[u8], at: usize) -> Result<u32, GreRefusal> {
    let bytes = packet.get(at..).and_then(<[u8]>::first_chunk).ok_or(GreRefusal::Runt)?;
    Ok(u32::from_be_bytes(*bytes))
}

/// Maximum length of the sent headers.
pub const PREFIX_MAX: usize = 20;
const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const TRANSPARENT_ETHERNET: u16 = 0x6558;
const ERSPAN_II: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;
/// En: the VLAN tag is preserved in the frame.
const TAG_IN_FRAME: u32 = 3;
/// P: an Ethernet frame, and FT: of Ethernet.
const PDU: u8 = 0x80;
/// Gra.
const UNITS_OF_100_NS: u8 = 1 << 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SESSION: Session = Session::new(0x155).unwrap();

    fn packet(carrier: Carrier, about: &About) -> Vec<u8> {
        [carrier.prefix(about).bytes(), &[7; 20]].concat()
    }

    #[test]
    fn headers_are_those_of_the_documents() {
        let about = About { sequence: 5, time: 0x0102_0304, tci: Some(0xa064), is_cut: true };
        let bytes = |carrier: Carrier| carrier.prefix(&about).bytes().to_vec();
        assert_eq!(bytes(Carrier::Gre { key: None }), [0, 0, 0x65, 0x58]);
        assert_eq!(bytes(Carrier::Gre { key: Some(42) }), [0x20, 0, 0x65, 0x58, 0, 0, 0, 42]);
        // VLAN 100, priority 5, the tag in the frame, cut, session 0x155.
        let second = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 5, 0x10, 0x64, 0xbd, 0x55, 0, 0, 0, 0];
        assert_eq!(bytes(Carrier::ErspanII(SESSION)), second);
        let third = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 5, 0x20, 0x64, 0xa5, 0x55, 1, 2, 3, 4];
        assert_eq!(bytes(Carrier::ErspanIII(SESSION)), [&third[..], &[0, 0, 0x80, 2]].concat());
    }

    /// Priority 0 and VLAN ID 0 is a tag as well.
    #[test]
    fn a_priority_tag_of_zeros_is_a_tag() {
        let word = |tci| {
            let prefix = Carrier::ErspanII(SESSION).prefix(&About { tci, ..About::default() });
            prefix.bytes()[8..12].to_vec()
        };
        assert_eq!(word(Some(0)), [0x10, 0, 0x19, 0x55], "En is 11");
        assert_eq!(word(None), [0x10, 0, 0x01, 0x55], "En is 00");
    }

    #[test]
    fn each_thing_that_is_wrong_has_its_name() {
        let ours = Carrier::Gre { key: Some(1) };
        let refused = |packet: &[u8]| ours.frame_of(packet).unwrap_err();
        assert_eq!(
            refused(&packet(Carrier::Gre { key: Some(2) }, &About::default())),
            GreRefusal::Other
        );
        assert_eq!(
            refused(&packet(Carrier::Gre { key: None }, &About::default())),
            GreRefusal::Other
        );
        assert_eq!(refused(&[0x20, 0, 0x65, 0x58, 0, 0, 0, 1]), GreRefusal::Runt);
        assert_eq!(refused(&[0x20, 0, 0x08, 0x00, 0, 0, 0, 1]), GreRefusal::Malformed);
        // Routing, recursion, and version 1, which is PPTP's.
        for flags in [0x40, 0x01, 0x04] {
            assert_eq!(
                refused(&[0x20 | flags, 0, 0x65, 0x58, 0, 0, 0, 1]),
                match flags {
                    0x01 => GreRefusal::Runt,
                    _ => GreRefusal::Malformed,
                }
            );
        }
        assert_eq!(refused(&[0x20, 1, 0x65, 0x58, 0, 0, 0, 1]), GreRefusal::Malformed);
        let session = packet(Carrier::ErspanII(Session::new(3).unwrap()), &About::default());
        assert_eq!(Carrier::ErspanII(SESSION).frame_of(&session), Err(GreRefusal::Other));
        assert_eq!(Carrier::ErspanIII(SESSION).frame_of(&session), Err(GreRefusal::Malformed));
        assert_eq!(Session::new(1024), None);
    }

    #[test]
    fn what_a_tunnel_sent_is_told_from_what_others_did() {
        let about = About { sequence: 5, time: 6, tci: Some(0xa064), is_cut: true };
        let session = |number| Session::new(number).unwrap();
        let carriers = [
            Carrier::Gre { key: None },
            Carrier::Gre { key: Some(1) },
            Carrier::Gre { key: Some(2) },
            Carrier::ErspanII(session(1)),
            Carrier::ErspanII(session(0x201)),
            Carrier::ErspanIII(session(1)),
        ];
        for ours in carriers {
            let told = |len: usize| {
                let is_told = |other: &Carrier| {
                    let packet = packet(*other, &about);
                    ours.may_have_sent(&packet[..len.min(packet.len())])
                };
                carriers.into_iter().filter(is_told).collect::<Vec<_>>()
            };
            assert_eq!(told(20), [ours], "all of the headers");
            assert!(told(8).contains(&ours) && told(8).len() <= 2, "sessions alone are alike");
            assert_eq!(told(0).len(), carriers.len(), "nothing is told");
        }
    }

    #[test]
    fn a_checksum_is_verified() {
        let mut packet = [&[0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 9][..], &[5; 33]].concat();
        let checksum = Sum::of(&packet).checksum();
        packet[4..6].copy_from_slice(&checksum.to_be_bytes());
        let ours = Carrier::Gre { key: Some(9) };
        assert_eq!(ours.frame_of(&packet), Ok(12));
        packet[20] ^= 1;
        assert_eq!(ours.frame_of(&packet), Err(GreRefusal::Malformed));
    }

    #[test]
    fn tags_are_told() {
        let tagged = [&[0; 12][..], &[0x81, 0, 0xa0, 0x64, 8, 0]].concat();
        assert_eq!(
            (outer_tci(&tagged), outer_tci(&tagged[..16]), outer_tci(&[0; 60])),
            (Some(0xa064), None, None)
        );
    }

    fn carrier() -> impl Strategy<Value = Carrier> {
        let session = (0..=Session::MAX).prop_map(|number| Session::new(number).unwrap());
        prop_oneof![
            proptest::option::of(any::<u32>()).prop_map(|key| Carrier::Gre { key }),
            session.clone().prop_map(Carrier::ErspanII),
            session.prop_map(Carrier::ErspanIII),
        ]
    }

    proptest! {
        #[test]
        fn what_is_put_in_comes_out_of_the_same_tunnel(
            ours in carrier(),
            theirs in carrier(),
            (sequence, time) in any::<(u32, u32)>(),
            tci in any::<Option<u16>>(),
            is_cut in any::<bool>(),
        ) {
            let packet = packet(theirs, &About { sequence, time, tci, is_cut });
            prop_assert_eq!(theirs.frame_of(&packet), Ok(theirs.prefix_len()));
            prop_assert_eq!(ours.frame_of(&packet).is_ok(), ours == theirs);
        }

        #[test]
        fn any_bytes_are_a_frame_or_refused(
            ours in carrier(),
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Ok(start) = ours.frame_of(&bytes) {
                prop_assert!(start + 14 <= bytes.len());
            }
        }
    }
}
