//! Target `gre`: a GRE or ERSPAN packet yields the frame inside, or is refused with a reason.

use tapswitch_tunnel::{About, Carrier, GreRefusal, Session};

/// Decapsulates `data`: the kind of tunnel (1 byte), its key (4 bytes), a GRE packet.
pub fn gre(data: &[u8]) {
    let Some((&[kind, a, b, c, d], packet)) = data.split_first_chunk() else { return };
    let session = Session::new(u16::from_be_bytes([c, d]) & Session::MAX);
    let carrier = match (kind % 4, session) {
        (1, Some(session)) => Carrier::ErspanII(session),
        (2, Some(session)) => Carrier::ErspanIII(session),
        (3, _) => Carrier::Gre { key: None },
        _ => Carrier::Gre { key: Some(u32::from_be_bytes([a, b, c, d])) },
    };
    match carrier.frame_of(packet) {
        Ok(start) => {
            let frame = &packet[start..];
            assert!(frame.len() >= 14 && start >= carrier.prefix_len().min(4));
            let again = [carrier.prefix(&About::default()).bytes(), frame].concat();
            assert_eq!(carrier.frame_of(&again), Ok(carrier.prefix_len()));
        }
        Err(GreRefusal::Runt) => assert!(packet.len() < 4 + 4 + 4 + 4 + 20 + 14),
        Err(_) => {}
    }
}
