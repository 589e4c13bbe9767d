//! The flow of a packet, in a tunnel or not.

use tapswitch_wire::{EtherType, Parsed, ethernet, ip_proto, parse, read_u32, tcp, udp};

use super::headers::{Found, Headers, LEN_MAX, is_same_v4, is_same_v6};
use super::{Tunnels, around};
use crate::layers::Outer;

impl Headers {
    /// Parses the headers of `frame`, including those inside `tunnels`.
    #[inline]
    pub(super) fn find(frame: &[u8], tunnels: Tunnels) -> Found {
        let Ok(parsed @ Parsed { key, layout }) = parse(frame) else {
            return Found::Foreign;
        };
        if tunnels.may_include(&key) {
            return around::find(frame, &parsed);
        }
        if !matches!(key.ip_proto, ip_proto::TCP | ip_proto::UDP) {
            return Found::Foreign;
        }
        let is_framed =
            usize::from(layout.network) == ethernet::HEADER_LEN + 4 * usize::from(layout.tags);
        let (Some(transport), true) = (layout.transport, is_framed) else {
            return Found::Unclear;
        };
        let headers = Self {
            is_v4: key.eth_type() == EtherType::IPV4,
            is_tcp: key.ip_proto == ip_proto::TCP,
            link_end: layout.network,
            network: layout.network,
            transport,
            end: layout.end,
        };
        match usize::from(headers.end) <= LEN_MAX && headers.can_repeat(frame) {
            true => Found::Flow(headers, None),
            false => Found::Unclear,
        }
    }

    /// Whether `other` is of the same flow as `first`, which has these headers and `outer`. Its TCP
    /// header may have another length.
    #[inline]
    pub(super) fn is_same_flow(&self, outer: Option<&Outer>, first: &[u8], other: &[u8]) -> bool {
        let (network, transport) = (usize::from(self.network), usize::from(self.transport));
        let min_len = if self.is_tcp { tcp::MIN_HEADER_LEN } else { udp::HEADER_LEN };
        if other.len() < transport + min_len
            || read_u32(first, transport) != read_u32(other, transport)
        {
            return false;
        }
        let between = network..transport;
        let is_same_around = match outer {
            None => first[..network] == other[..network],
            Some(outer) => around::is_same(outer, network, first, other),
        };
        is_same_around
            && match self.is_v4 {
                true => is_same_v4(&first[between.clone()], &other[between]),
                false => is_same_v6(&first[between.clone()], &other[between]),
            }
    }
}
