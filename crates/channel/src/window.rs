//! Limits the requests that a switch handles at once (OpenFlow 1.3.5 §6.2, §6.3.7).
//!
//! A request with an answer is open until it is answered. No more messages are returned to the
//! caller while
//! - a barrier is open: later messages are to be handled after it, errors included;
//! - a role request is open: later messages are checked against the new role;
//! - [`MAX_OPEN`] requests are open: answers are longer than requests, and a controller that sends
//!   requests faster than they are answered would exhaust memory;
//! - [`MAX_BEHIND_LEN`] bytes of messages without an answer follow an open request: the switch may
//!   have to store them until it has answered.

use tapswitch_openflow::{Body, MessageType};

use crate::pending::answer_to;

/// The requests that the switch has received and not answered.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Transaction ID of each, and type of its answer. IDs may be reused.
    open: Vec<(u32, MessageType)>,
    /// Bytes of messages without an answer that were returned while a request is open.
    behind_len: usize,
}

impl Window {
    /// Records a request of `len` bytes.
    pub(crate) fn handle_request(&mut self, xid: u32, body: &Body, len: usize) {
        match answer_to(body) {
            Some(answer) => self.open.push((xid, answer)),
            None if self.open.is_empty() => {}
            None => self.behind_len = self.behind_len.saturating_add(len),
        }
    }

    /// Records an answer of this type, or an error instead.
    pub(crate) fn handle_answer(&mut self, xid: u32, answer: MessageType) {
        if let Some(index) = self.open.iter().position(|open| *open == (xid, answer)) {
            self.open.remove(index);
        }
        if self.open.is_empty() {
            self.behind_len = 0;
        }
    }

    /// Whether further messages have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= MAX_OPEN
            || self.behind_len >= MAX_BEHIND_LEN
            || self.is_open(MessageType::BarrierReply)
            || self.asks_for_role()
    }

    /// Whether a role request is open.
    pub(crate) fn asks_for_role(&self) -> bool {
        self.is_open(MessageType::RoleReply)
    }

    fn is_open(&self, answer: MessageType) -> bool {
        self.open.iter().any(|&(_, open)| open == answer)
    }
}

/// Maximum number of open requests. A switch answers them in sequence, so more would gain nothing;
/// and each answer may contain all of its tables.
pub(crate) const MAX_OPEN: usize = 4;
/// Maximum bytes of messages without an answer after an open request: a few thousand rules, which
/// the switch accepts while an answer is prepared.
const MAX_BEHIND_LEN: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::{FlowMod, FlowModCommand};

    fn flow_mod() -> Body {
        Body::FlowMod(FlowMod::new(FlowModCommand::Add))
    }

    #[test]
    fn messages_without_an_answer_are_counted_behind_one_with() {
        let mut window = Window::default();
        window.handle_request(1, &flow_mod(), usize::MAX);
        assert!(!window.is_full(), "nothing keeps the switch from taking it");
        window.handle_request(2, &Body::FeaturesRequest, 8);
        window.handle_request(3, &flow_mod(), MAX_BEHIND_LEN - 1);
        assert!(!window.is_full());
        window.handle_request(4, &flow_mod(), 1);
        assert!(window.is_full());
        window.handle_answer(2, MessageType::FeaturesReply);
        assert!(!window.is_full());
        window.handle_request(5, &Body::FeaturesRequest, 8);
        assert!(!window.is_full(), "they were taken");
    }

    #[test]
    fn numbers_may_be_used_twice() {
        let mut window = Window::default();
        window.handle_request(0, &Body::FeaturesRequest, 8);
        window.handle_request(0, &Body::BarrierRequest, 8);
        window.handle_answer(0, MessageType::FeaturesReply);
        assert!(window.is_full(), "the barrier is open");
        window.handle_answer(0, MessageType::BarrierReply);
        assert!(!window.is_full());
    }
}
