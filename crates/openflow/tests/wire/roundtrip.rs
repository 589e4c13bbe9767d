//! Round trips: what is encoded decodes, and what decodes can be encoded.

use proptest::prelude::*;
use tapswitch_openflow::{BucketLedger, DecodeError, Message, frame_len};

use crate::samples::samples;
use crate::strategies::{ledgers, message};
use crate::{encode, set_len};

proptest! {
    #[test]
    fn what_is_written_is_read(message in message()) {
        let bytes = encode(&message);
        prop_assert_eq!(frame_len(&bytes), Ok(Some(bytes.len())));
        prop_assert_eq!(Message::decode(&bytes), Ok(message));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes)?;
    }

    #[test]
    fn any_body_is_read_or_refused(
        message_type in 0..30u8,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = vec![4, message_type, 0, 0, 0, 0, 0, 1];
        bytes.extend(body);
        set_len(&mut bytes);
        check(&bytes)?;
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(
        message in message(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&message);
        for (index, byte) in damage {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes.truncate(8 + len.index(bytes.len() - 7));
        set_len(&mut bytes);
        check(&bytes)?;
    }

    #[test]
    fn ledgers_come_back_as_they_were_told_and_damage_is_refused_or_read(
        told in ledgers(),
        (at, byte) in (any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let mut body = BucketLedger::experimenter(&told);
        prop_assert_eq!(BucketLedger::all_of(&body), Ok(told));
        if !body.data.is_empty() {
            let at = at.index(body.data.len());
            body.data[at] = byte;
            if let Ok(read) = BucketLedger::all_of(&body) {
                let again = BucketLedger::experimenter(&read);
                prop_assert_eq!(BucketLedger::all_of(&again), Ok(read));
            }
        }
    }

    #[test]
    fn checks_and_texts_never_panic(message in message()) {
        let _ = message.check();
        let _ = format!("{message:?}");
        if let tapswitch_openflow::Body::FlowMod(flow_mod) = &message.body {
            prop_assert!(!flow_mod.to_string().is_empty());
        }
    }
}

#[test]
fn sound_samples_pass_the_check() {
    let unsound = ["flow_mod_actions_unknown_to_ovs", "flow_mod_match_rare"];
    for sample in samples().iter().filter(|sample| !sample.ovs.is_empty()) {
        assert_eq!(sample.message.check(), Ok(()), "{}", sample.name);
    }
    for sample in samples().iter().filter(|sample| unsound.contains(&sample.name)) {
        assert!(sample.message.check().is_err(), "{}", sample.name);
    }
}

/// What decodes can be encoded, and decodes to the same; nothing panics.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Message::decode(bytes) {
        Ok(message) => {
            let again = encode(&message);
            prop_assert_eq!(again.len() <= bytes.len() + 7, true, "only padding is added");
            prop_assert_eq!(Message::decode(&again), Ok(message));
        }
        Err(DecodeError::Message(error)) => {
            prop_assert!(error.kind.name().is_some());
            prop_assert!(!error.text.is_empty());
        }
        Err(DecodeError::Header(_)) => {}
    }
    Ok(())
}
