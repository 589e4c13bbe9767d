//! Unsent bytes.

use tapswitch_openflow::{EncodeError, Message};

/// Unsent bytes, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Number of `bytes` that were written.
    written: usize,
}

impl Outbox {
    /// Adds all of `messages`, or none.
    pub(crate) fn push_all(&mut self, messages: &[Message]) -> Result<(), EncodeError> {
        let start = self.bytes.len();
        let result = messages.iter().try_for_each(|message| message.encode(&mut self.bytes));
        if result.is_err() {
            self.bytes.truncate(start);
        }
        result
    }

    /// Records that `len` of the unsent bytes were written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.written = self.bytes.len().min(self.written.saturating_add(len));
        // Moving the rest costs no more than writing the bytes before it.
        if self.written >= self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    /// The unsent bytes.
    pub(crate) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::Body;

    fn barrier(xid: u32) -> Message {
        Message { xid, body: Body::BarrierRequest }
    }

    #[test]
    fn bytes_go_out_in_order_whatever_is_written_at_once() {
        let mut outbox = Outbox::default();
        let messages: Vec<_> = (0..10).map(barrier).collect();
        outbox.push_all(&messages).unwrap();
        let all = outbox.waiting().to_vec();
        let mut out = Vec::new();
        while !outbox.waiting().is_empty() {
            let len = outbox.waiting().len().min(7);
            out.extend_from_slice(&outbox.waiting()[..len]);
            outbox.advance(len);
        }
        assert_eq!(out, all);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let mut outbox = Outbox::default();
        let too_long = Message { xid: 1, body: Body::EchoRequest(vec![0; 70_000]) };
        assert!(outbox.push_all(&[barrier(1), too_long]).is_err());
        assert!(outbox.waiting().is_empty());
    }
}
