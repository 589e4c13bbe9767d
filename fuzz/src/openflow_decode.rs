//! Target `openflow_decode`: every decoded message can be encoded, and decodes to the same again.

use tapswitch_openflow::{Body, BucketLedger, Message, MultipartReplyBody};

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
    ledger(&message);
    let _ = format!("{message:?}");
}

/// The controller can read any ledger of a switch.
fn ledger(message: &Message) {
    let Body::MultipartReply(reply) = &message.body else { return };
    let MultipartReplyBody::Experimenter(body) = &reply.body else { return };
    if let Ok(buckets) = BucketLedger::all_of(body) {
        let again = BucketLedger::all_of(&BucketLedger::experimenter(&buckets));
        assert_eq!(again, Ok(buckets));
    }
}
