//! Target `openflow_decode`: what can be read can be written, and is then read alike.

use tapswitch_openflow::Message;

/// Decodes `data` as one message.
pub fn openflow_decode(data: &[u8]) {
    let Ok(message) = Message::decode(data) else {
        return;
    };
    let mut bytes = vec![0xee];
    assert_eq!(message.encode(&mut bytes), Ok(()), "{message:?}");
    assert_eq!(bytes[0], 0xee, "encoding appends");
    assert_eq!(Message::decode(&bytes[1..]).as_ref(), Ok(&message));
    let _ = message.check();
    let _ = format!("{message:?}");
}
