//! Requests that wait for an answer.

use std::collections::BTreeMap;

use tapswitch_openflow::{Body, MessageType};

/// Requests that wait for an answer, by the number of their transaction.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Type of the answer that each waits for.
    answers: BTreeMap<u32, MessageType>,
}

impl Pending {
    /// A request was sent.
    pub(crate) fn insert(&mut self, xid: u32, answer: MessageType) {
        self.answers.insert(xid, answer);
    }

    /// An answer of this type came: whether it was waited for.
    pub(crate) fn take(&mut self, xid: u32, answer: MessageType) -> bool {
        let waits = self.awaits(xid, answer);
        if waits {
            self.answers.remove(&xid);
        }
        waits
    }

    /// No answer will come.
    pub(crate) fn forget(&mut self, xid: u32) {
        self.answers.remove(&xid);
    }

    /// Whether an answer of this type is waited for.
    pub(crate) fn awaits(&self, xid: u32, answer: MessageType) -> bool {
        self.answers.get(&xid) == Some(&answer)
    }

    /// Whether the number of a transaction is in use.
    pub(crate) fn contains(&self, xid: u32) -> bool {
        self.answers.contains_key(&xid)
    }

    /// Requests that wait.
    pub(crate) fn count(&self) -> usize {
        self.answers.len()
    }
}

/// Type of the answer that a request calls for, if it does.
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

/// Most requests that may wait for an answer.
pub const MAX_PENDING: usize = 65_536;
