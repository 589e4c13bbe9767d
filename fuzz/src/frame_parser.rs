//! Target `frame_parser`: the layout of any frame is valid, and `etherparse` agrees.

use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice, VlanSlice};
use tapswitch_wire::{
    FlowKey, MAX_KEY_TAGS, Parsed, TAG_DEEPER, Tag, ethernet, ip_proto, ipv6, parse, tags,
};

/// Parses `data` as a frame.
pub fn frame_parser(data: &[u8]) {
    let Ok(parsed) = parse(data) else {
        assert!(data.len() < LINK_LEN_MAX, "only what is cut short is refused");
        return;
    };
    check_layout(&parsed, data.len());
    check_tags(&parsed);
    check_prefix(&parsed, data);
    if let Ok(sliced) = SlicedPacket::from_ethernet(data) {
        // It also parses 802.1AE, which is encrypted.
        let is_secured = sliced.link_exts.iter().any(|ext| matches!(ext, LinkExtSlice::Macsec(_)));
        if !is_secured {
            check_against(&parsed.key, &sliced);
        }
    }
}

fn check_layout(Parsed { key, layout }: &Parsed, len: usize) {
    let link_len = ethernet::HEADER_LEN + usize::from(layout.tags) * ethernet::TAG_LEN;
    let (network, end) = (usize::from(layout.network), usize::from(layout.end));
    assert!(link_len <= network && network <= end && end <= len);
    match layout.transport {
        Some(transport) => {
            assert!(layout.network < transport && transport < layout.end);
            assert_eq!(layout.protocol, key.ip_proto);
        }
        None => {
            assert_eq!(layout.protocol, 0);
            assert_eq!((key.l4_src, key.l4_dst), ([0; 2], [0; 2]));
        }
    }
}

fn check_tags(Parsed { key, layout }: &Parsed) {
    let tags = usize::from(layout.tags);
    assert_eq!(key.tag_count(), tags.min(MAX_KEY_TAGS));
    assert_eq!(key.tags_present & TAG_DEEPER != 0, tags > MAX_KEY_TAGS);
    let (present, absent) = key.tags.split_at(key.tag_count());
    assert!(present.iter().all(|tag| tag.tpid().is_tag()));
    assert!(absent.iter().all(|tag| *tag == Tag::default()));
}

/// A frame may be truncated behind its headers. Only the options of neighbour discovery are further
/// back.
fn check_prefix(whole: &Parsed, data: &[u8]) {
    let cut = parse(&data[..usize::from(whole.layout.end)]);
    assert_eq!(cut.as_ref().map(|cut| cut.layout), Ok(whole.layout));
    if whole.layout.protocol != ip_proto::ICMPV6 {
        assert_eq!(cut, Ok(*whole));
    }
}

/// Compares with `etherparse`, which knows fewer tags, and does not accept wrong lengths.
fn check_against(key: &FlowKey, sliced: &SlicedPacket) {
    let vlan_ids = sliced.vlan_ids();
    for (ours, theirs) in key.tags.iter().zip(&vlan_ids) {
        assert_eq!(ours.vid(), theirs.value());
    }
    if let Some(VlanSlice::SingleVlan(tag)) = sliced.vlan() {
        assert_eq!(key.tags[0].pcp(), tag.priority_code_point().value());
    }
    let is_comparable = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            assert_eq!(key.ip_src[..4], ip.header().source());
            assert_eq!(key.ip_dst[..4], ip.header().destination());
            ip.extensions().auth.is_none()
        }
        Some(NetSlice::Ipv6(ip)) => {
            assert_eq!(key.ip_src, ip.header().source());
            assert_eq!(key.ip_dst, ip.header().destination());
            let extensions = ip.extensions().clone().into_iter();
            extensions.count() <= ipv6::MAX_EXTENSIONS
        }
        _ => false,
    };
    if is_comparable {
        check_ports(key, sliced);
    }
}

fn check_ports(key: &FlowKey, sliced: &SlicedPacket) {
    let (protocol, ports) = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            (ip_proto::TCP, (tcp.source_port(), tcp.destination_port()))
        }
        Some(TransportSlice::Udp(udp)) => {
            (ip_proto::UDP, (udp.source_port(), udp.destination_port()))
        }
        _ => return,
    };
    let (src, dst) = (key.l4_src, key.l4_dst);
    assert_eq!(key.ip_proto, protocol);
    assert_eq!((u16::from_be_bytes(src), u16::from_be_bytes(dst)), ports);
}

/// An Ethernet header with as many tags as the parser follows.
const LINK_LEN_MAX: usize = ethernet::HEADER_LEN + tags::MAX_TAGS * ethernet::TAG_LEN;
