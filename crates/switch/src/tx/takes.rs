//! Which frames a port takes as they are, and which must be completed or cut for it first.

use std::fmt;

use tapswitch_datapath::Frame;
use tapswitch_netdev as netdev;
use tapswitch_offload::is_sctp_checksum;
use tapswitch_tap as tap;
use tapswitch_wire::{EtherType, GsoType, NetHeaderFlags, tcp};

/// The offloads that a port accepts in frames sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Takes {
    /// Partial checksums.
    pub(crate) checksum: bool,
    /// Trains of these kinds.
    pub(crate) tcp_v4: bool,
    pub(crate) tcp_v6: bool,
    /// TCP trains with CWR on the first packet only.
    pub(crate) tcp_ecn: bool,
    /// TCP trains with CWR on all packets: see [`has_cwr_on_all`].
    pub(crate) cwr_on_all: bool,
    pub(crate) udp: bool,
    /// Trains of these kinds that Linux would lose or refuse: see [`is_hidden`] and [`is_odd`].
    pub(crate) hidden: bool,
}

impl Takes {
    /// Only packets with complete checksums.
    pub(crate) const NOTHING: Self = Self {
        checksum: false,
        tcp_v4: false,
        tcp_v6: false,
        tcp_ecn: false,
        cwr_on_all: false,
        udp: false,
        hidden: false,
    };

    /// All frames as they are.
    pub(crate) const EVERYTHING: Self = Self {
        checksum: true,
        tcp_v4: true,
        tcp_v6: true,
        tcp_ecn: true,
        cwr_on_all: true,
        udp: true,
        hidden: true,
    };

    #[inline]
    pub(super) fn takes(self, frame: &Frame<'_>) -> bool {
        match frame.meta.is_train() {
            true => {
                self.takes_train(frame.meta.gso_type)
                    && (self.hidden || !is_hidden(frame) && !is_odd(frame))
                    && (self.cwr_on_all || !has_cwr_on_all(frame))
            }
            false => self.takes_packet(frame),
        }
    }

    #[inline]
    fn takes_packet(self, frame: &Frame<'_>) -> bool {
        // The receiver would not know that SCTP's checksum is not an internet checksum: the
        // metadata does not say so.
        !frame.meta.needs_checksum()
            || self.checksum && !is_sctp_checksum(&frame.meta, frame.layout())
    }

    #[inline]
    pub(super) fn takes_train(self, kind: GsoType) -> bool {
        if kind.has_ecn() && !self.tcp_ecn {
            return false;
        }
        match kind.kind() {
            GsoType::TCPV4 => self.tcp_v4,
            GsoType::TCPV6 => self.tcp_v6,
            GsoType::UDP_L4 => self.udp,
            _ => false,
        }
    }

    pub(super) fn remove_train(&mut self, kind: GsoType) {
        match kind.kind() {
            GsoType::TCPV4 => self.tcp_v4 = false,
            GsoType::TCPV6 => self.tcp_v6 = false,
            _ => self.udp = false,
        }
    }
}

impl From<tap::Offloads> for Takes {
    fn from(offloads: tap::Offloads) -> Self {
        Self {
            checksum: offloads.contains(tap::Offloads::CSUM),
            tcp_v4: offloads.contains(tap::Offloads::TSO4),
            tcp_v6: offloads.contains(tap::Offloads::TSO6),
            // The kernel itself cuts trains where it must.
            tcp_ecn: offloads.intersects(tap::Offloads::TSO4 | tap::Offloads::TSO6),
            // The receiver behind a tap device is a host, which takes a train as it is.
            cwr_on_all: offloads.intersects(tap::Offloads::TSO4 | tap::Offloads::TSO6),
            udp: offloads.contains(tap::Offloads::USO),
            hidden: false,
        }
    }
}

impl From<netdev::Capabilities> for Takes {
    fn from(capabilities: netdev::Capabilities) -> Self {
        let udp = capabilities.send_udp_trains;
        Self { udp, cwr_on_all: false, hidden: false, ..Self::EVERYTHING }
    }
}

/// As in `csum,tso4,tso6,tso_ecn,uso`.
impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checksum, tcp_v4, tcp_v6, tcp_ecn, udp, cwr_on_all: _, hidden: _ } = *self;
        let flags = [checksum, tcp_v4, tcp_v6, tcp_ecn, udp];
        let names = ["csum", "tso4", "tso6", "tso_ecn", "uso"].into_iter().zip(flags);
        let names: Vec<_> = names.filter_map(|(name, is_there)| is_there.then_some(name)).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

/// True for a train whose packets are inside a tunnel, or behind tags that Linux does not parse:
/// those of TPID 0x9100, and more than seven. Linux could not cut it where it must, and loses it
/// silently. A tunnel is detected by the position of the checksum, as the metadata has no flag for
/// it (before Linux 6.17), or the port did not negotiate it.
#[inline]
fn is_hidden(frame: &Frame<'_>) -> bool {
    let tags = frame.layout().tags;
    frame.has_inner_checksum() || tags > 0 && has_hidden_tags(frame, tags.into())
}

/// True for a train that Linux refuses although it takes trains of its kind. The error would be the
/// same as for an unknown kind, or for a full port, both of which concern all senders ([`doubt`]);
/// and a guest can send such trains. Honest senders have no reason to. It is:
///
/// - a train of one packet, which may have the size that Linux reserves (`GSO_BY_FRAGS`), or be
///   shorter than that size behind its options;
/// - UDP with more packets than `UDP_MAX_SEGMENTS`;
/// - one with a checksum that is neither partial nor verified. Guests cannot report verified ones.
///
/// [`doubt`]: super::doubt
#[inline]
fn is_odd(frame: &Frame<'_>) -> bool {
    const VOUCHED: u8 = NetHeaderFlags::NEEDS_CSUM | NetHeaderFlags::DATA_VALID;
    let count = frame.wire_packets();
    count < 2 || frame.meta.flags & VOUCHED == 0 || has_more_than(UDP_PACKETS_MAX, count, frame)
}

/// True for a UDP train of so many packets that kernels before Linux 6.9 refuse it.
pub(super) fn is_long_for_some(frame: &Frame<'_>) -> bool {
    has_more_than(UDP_PACKETS_MAX / 2, frame.wire_packets(), frame)
}

/// True for a UDP train of `count` packets if that is more than `most`.
#[inline]
fn has_more_than(most: u32, count: u32, frame: &Frame<'_>) -> bool {
    frame.meta.gso_type.kind() == GsoType::UDP_L4 && count > most
}

/// True for a TCP train whose packets all have CWR, a bit of AccECN's counter (RFC 9768 §3.2.2).
/// The metadata cannot express this, and Linux clears CWR on all packets but the first when it cuts
/// a train, and so do interfaces with TSO; the receiver would count marks that nobody set.
#[inline]
fn has_cwr_on_all(frame: &Frame<'_>) -> bool {
    if !matches!(frame.meta.gso_type, GsoType::TCPV4 | GsoType::TCPV6) {
        return false;
    }
    let flags_at = frame.layout().transport.map(|at| usize::from(at) + tcp::field::FLAGS);
    flags_at.and_then(|at| frame.head().get(at)).is_some_and(|flags| flags & tcp::CWR != 0)
}

#[inline(never)]
fn has_hidden_tags(frame: &Frame<'_>, tags: usize) -> bool {
    let is_known = |tpid| matches!(tpid, EtherType::VLAN | EtherType::SERVICE_VLAN);
    let is_found = |at| frame.tag(at).is_some_and(|tag| is_known(tag.tpid()));
    tags > LINUX_TAGS_MAX || !(0..tags).all(is_found)
}

/// Tags that Linux parses: it gives up at the eighth in the frame (`__vlan_get_protocol_offset`
/// with `VLAN_MAX_DEPTH`).
const LINUX_TAGS_MAX: usize = 7;
/// Packets of a UDP train (`UDP_MAX_SEGMENTS` in Linux `include/linux/udp.h`); half as many before
/// Linux 6.9.
const UDP_PACKETS_MAX: u32 = 128;
