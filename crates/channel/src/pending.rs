//! Unanswered requests.

use std::collections::BTreeMap;

use tapswitch_openflow::{Body, MessageType};

/// Unanswered requests, by transaction ID.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Type of the expected answers.
    answers: BTreeMap<u32, MessageType>,
}

impl Pending {
    /// Records a sent request.
    pub(crate) fn insert(&mut self, xid: u32, answer: MessageType) {
        self.answers.insert(xid, answer);
    }

    /// Records an answer of this type; returns whether it was expected.
    pub(crate) fn take(&mut self, xid: u32, answer: MessageType) -> bool {
        let waits = self.awaits(xid, answer);
        if waits {
            self.answers.remove(&xid);
        }
        waits
    }

    /// Removes a request that will not be answered.
    pub(crate) fn forget(&mut self, xid: u32) {
        self.answers.remove(&xid);
    }

    /// Whether an answer of this type is expected.
    pub(crate) fn awaits(&self, xid: u32, answer: MessageType) -> bool {
        self.answers.get(&xid) == Some(&answer)
    }

    /// Whether a transaction ID is in use.
    pub(crate) fn contains(&self, xid: u32) -> bool {
        self.answers.contains_key(&xid)
    }

    /// Number of unanswered requests.
    pub(crate) fn count(&self) -> usize {
        self.answers.len()
    }
}

/// Type of the answer to a request, if it has one.
pub(crate) const fn answer_to(request: &Body) -> Option<MessageType> {
    Some(match request {
        Body::EchoRequest(_) => MessageType::EchoReply,
        Body::FeaturesRequest => MessageType::FeaturesReply,
        Body::GetConfigRequest => MessageType::GetConfigReply,
        Body::MultipartRequest(_) => MessageType::MultipartReply,
        Body::BarrierRequest => MessageType::BarrierReply,
        Body::QueueGetConfigRequest(_) => MessageType::QueueGetConfigReply,
        Body::RoleRequest(_) => MessageType::RoleReply,
        Body::GetAsyncRequest => MessageType::GetAsyncReply,
        _ => return None,
    })
}

/// Maximum number of unanswered requests.
pub const MAX_PENDING: usize = 65_536;
