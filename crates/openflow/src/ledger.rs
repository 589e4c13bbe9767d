//! Ledger of the copies made by a group: our experimenter multipart (§7.3.5.15).
//!
//! OpenFlow 1.3 reports only what a bucket processed. A tapswitch ([`crate::MANUFACTURER`]) also
//! reports, for each bucket of one group or of all, what was delivered, what is queued, and what
//! was dropped for which reason. The layout is in `docs/openflow.md`; reasons are sent as text, so
//! that a reader needs no table of them.

use crate::codec::{Codec, Reader, Writer, layout_codec};
use crate::fault::Within;
use crate::multipart::BucketCounter;
use crate::{CheckError, EXPERIMENTER, ErrorKind, Experimenter, GroupId, Text};

/// Requests the ledgers of a group's buckets, or of all with [`GroupId::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRequest {
    /// The group.
    pub group_id: GroupId,
}

layout_codec!(LedgerRequest { group_id, pad 4 });

impl LedgerRequest {
    /// The body of the multipart request.
    pub fn experimenter(&self) -> Experimenter {
        wrap(|w| w.put(self))
    }

    /// Decodes the body of a multipart request.
    ///
    /// # Errors
    /// Another experimenter (`OFPBRC_BAD_EXPERIMENTER`), another type (`OFPBRC_BAD_EXP_TYPE`), or
    /// malformed (`OFPBRC_BAD_LEN`).
    pub fn of(body: &Experimenter) -> Result<Self, CheckError> {
        unwrap(body, "ledger_request")
    }
}

/// Ledger of one bucket. At rest, for a bucket with one output: processed = delivered + Σ drops +
/// queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLedger {
    /// The group.
    pub group_id: GroupId,
    /// Index of the bucket.
    pub bucket: u32,
    /// Packets and bytes that the bucket handled.
    pub processed: BucketCounter,
    /// Copies accepted by a port.
    pub delivered: BucketCounter,
    /// Copies waiting for a port.
    pub queued: u64,
    /// Dropped copies by reason.
    pub drops: Vec<BucketDrops>,
}

layout_codec!(BucketLedger sized {
    pad 2,
    group_id,
    bucket,
    pad 4,
    processed,
    delivered,
    queued,
    drops,
});

impl BucketLedger {
    /// The body of the multipart reply.
    pub fn experimenter(buckets: &[Self]) -> Experimenter {
        wrap(|w| Self::encode_all(buckets, w))
    }

    /// Decodes the body of a multipart reply.
    ///
    /// # Errors
    /// As for [`LedgerRequest::of`].
    pub fn all_of(body: &Experimenter) -> Result<Vec<Self>, CheckError> {
        unwrap(body, "ledger_reply")
    }
}

/// Copies dropped for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketDrops {
    /// Name of the reason.
    pub reason: Text<24>,
    /// Number of copies.
    pub count: u64,
}

layout_codec!(BucketDrops { reason, count });

fn wrap(write: impl FnOnce(&mut Writer<'_>)) -> Experimenter {
    let mut data = Vec::new();
    write(&mut Writer::new(&mut data));
    Experimenter { experimenter: EXPERIMENTER, exp_type: LEDGER, data }
}

fn unwrap<T: Codec>(body: &Experimenter, what: &'static str) -> Result<T, CheckError> {
    match (body.experimenter, body.exp_type) {
        (EXPERIMENTER, LEDGER) => {}
        (EXPERIMENTER, exp_type) => {
            let text = format!("multipart of experimenter {EXPERIMENTER:#x}: no type {exp_type}");
            return Err(CheckError::new(ErrorKind::OFPBRC_BAD_EXP_TYPE, text));
        }
        (other, _) => {
            let text = format!("multipart: unknown experimenter {other:#x}");
            return Err(CheckError::new(ErrorKind::OFPBRC_BAD_EXPERIMENTER, text));
        }
    }
    let mut reader = Reader::new(&body.data, 0, ErrorKind::OFPBRC_BAD_LEN);
    let value = reader.take().and_then(|value| reader.finish().map(|()| value)).within(what);
    value.map_err(|fault| {
        let error = fault.into_error(0);
        CheckError::new(error.kind, error.text)
    })
}

/// `exp_type` of the multipart.
const LEDGER: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(bucket: u32, drops: Vec<BucketDrops>) -> BucketLedger {
        let counter = |count| BucketCounter { packet_count: count, byte_count: count * 100 };
        let (processed, delivered) = (counter(10), counter(7));
        BucketLedger { group_id: GroupId(9), bucket, processed, delivered, queued: 1, drops }
    }

    #[test]
    fn what_is_asked_and_told_is_understood() {
        let request = LedgerRequest { group_id: GroupId::ALL };
        assert_eq!(LedgerRequest::of(&request.experimenter()), Ok(request));
        let full = BucketDrops { reason: "egress_full".into(), count: 2 };
        let told = vec![ledger(0, vec![]), ledger(1, vec![full, BucketDrops::default()])];
        let body = BucketLedger::experimenter(&told);
        assert_eq!(body.data.len(), 56 + 56 + 2 * 32);
        assert_eq!(BucketLedger::all_of(&body), Ok(told));
        assert_eq!(BucketLedger::all_of(&BucketLedger::experimenter(&[])), Ok(vec![]));
    }

    #[test]
    fn what_is_not_ours_or_not_whole_is_refused() {
        let whole = BucketLedger::experimenter(&[ledger(0, vec![BucketDrops::default()])]);
        let kind = |body: &Experimenter| BucketLedger::all_of(body).unwrap_err().kind;
        let other = Experimenter { experimenter: 1, ..whole.clone() };
        assert_eq!(kind(&other), ErrorKind::OFPBRC_BAD_EXPERIMENTER);
        let other = Experimenter { exp_type: 2, ..whole.clone() };
        assert_eq!(kind(&other), ErrorKind::OFPBRC_BAD_EXP_TYPE);
        for len in 1..whole.data.len() {
            let cut = Experimenter { data: whole.data[..len].to_vec(), ..whole.clone() };
            assert_eq!(kind(&cut), ErrorKind::OFPBRC_BAD_LEN, "{len} bytes");
        }
        let long = LedgerRequest { group_id: GroupId(1) }.experimenter();
        let long = Experimenter { data: [long.data, vec![0]].concat(), ..long };
        let error = LedgerRequest::of(&long).unwrap_err();
        assert_eq!(error.text, "ledger_request at byte 8: 1 bytes left over");
    }
}
