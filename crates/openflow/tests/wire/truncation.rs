//! Truncated samples decode to a message or to the right error.

use tapswitch_openflow::{DecodeError, ErrorKind, HeaderError, Message};

use crate::samples::samples;
use crate::{encode, set_len};

#[test]
fn fewer_bytes_than_the_header_says_end_the_connection() {
    for sample in samples() {
        let bytes = encode(&sample.message);
        for len in 0..bytes.len() {
            let error = Message::decode(&bytes[..len]).unwrap_err();
            let is_header = matches!(error, DecodeError::Header(HeaderError::NotWhole { .. }));
            assert!(is_header, "{} cut to {len}: {error}", sample.name);
        }
    }
}

#[test]
fn a_message_cut_short_is_answered_with_a_bad_length() {
    for sample in samples() {
        let whole = encode(&sample.message);
        for len in 8..whole.len() {
            let mut bytes = whole[..len].to_vec();
            set_len(&mut bytes);
            let error = match Message::decode(&bytes) {
                // Lists and data may end anywhere between items.
                Ok(message) => {
                    assert_ne!(message, sample.message, "{} cut to {len}", sample.name);
                    continue;
                }
                Err(DecodeError::Message(error)) => error,
                Err(error) => panic!("{} cut to {len}: {error}", sample.name),
            };
            assert_eq!(error.xid, sample.message.xid);
            assert!(LENGTHS.contains(&error.kind), "{} cut to {len}: {error}", sample.name);
        }
    }
}

#[test]
fn bytes_behind_a_message_are_refused_or_part_of_it() {
    for sample in samples() {
        let mut bytes = encode(&sample.message);
        bytes.extend_from_slice(&[0xff; 3]);
        set_len(&mut bytes);
        if let Ok(message) = Message::decode(&bytes) {
            assert_ne!(message, sample.message, "{}", sample.name);
        }
    }
}

const LENGTHS: &[ErrorKind] = &[
    ErrorKind::OFPBRC_BAD_LEN,
    ErrorKind::OFPBMC_BAD_LEN,
    ErrorKind::OFPBAC_BAD_LEN,
    ErrorKind::OFPBAC_BAD_SET_LEN,
    ErrorKind::OFPBIC_BAD_LEN,
    ErrorKind::OFPTFFC_BAD_LEN,
    ErrorKind::OFPGMFC_BAD_BUCKET,
];
