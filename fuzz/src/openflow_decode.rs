//! Target `openflow_decode`: what can be read can be written, and is then read alike.

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

/// What a switch tells of its copies is read by the controller.
fn ledger(message: &Message) {
    let Body::MultipartReply(reply) = &message.body else { return };
    let MultipartReplyBody::Experimenter(body) = &reply.body else { return };
    if let Ok(buckets) = BucketLedger::all_of(body) {
        let again = BucketLedger::all_of(&BucketLedger::experimenter(&buckets));
        assert_eq!(again, Ok(buckets));
    }
}
