//! Target `vxlan`: a datagram yields the frame inside, and what its metadata leaves undone can be
//! done.

use tapswitch_offload::Segments;
use tapswitch_tunnel::{HEADER_LEN, Vni, frame_of, header, left_undone};
use tapswitch_wire::parse;

/// Decapsulates `data`: the VNI (3 bytes), the MTU (2 bytes), a datagram.
pub fn vxlan(data: &[u8]) {
    let Some((&[a, b, c, m0, m1], datagram)) = data.split_first_chunk() else {
        return;
    };
    let (number, mtu) = (u32::from_be_bytes([0, a, b, c]), u16::from_be_bytes([m0, m1]));
    let Some(vni) = Vni::new(number) else { return };
    let Ok(frame) = frame_of(datagram, vni) else {
        let is_ours = datagram.len() >= HEADER_LEN + 14
            && datagram[0] & 8 != 0
            && datagram[4..7] == header(vni)[4..7];
        assert!(!is_ours, "a frame was refused");
        return;
    };
    assert_eq!(frame, &datagram[HEADER_LEN..]);
    assert_eq!(frame_of(&[&header(vni)[..], frame].concat(), vni), Ok(frame));
    let meta = left_undone(frame, mtu.into());
    assert_eq!(meta.check(frame.len()), Ok(()));
    let Ok(network) = parse(frame).map(|parsed| usize::from(parsed.layout.network)) else {
        return;
    };
    if !meta.is_train() {
        return;
    }
    let Ok(mut packets) = Segments::new(&meta, frame, &[]) else { return };
    let mut headers = vec![0; packets.headers_len()];
    while let Some(packet) = packets.next(&mut headers) {
        assert!(packet.frame_len() <= network + usize::from(mtu), "packets fit the tunnel");
    }
}
