//! The controller's end of a connection.

use std::collections::VecDeque;
use std::time::Instant;

use tapswitch_openflow::{
    Body, ErrorKind, ErrorMessage, FeaturesReply, Message, MessageType, MultipartReply,
};

use crate::link::{Incoming, Link, WhenBusy, refused};
use crate::pending::{MAX_PENDING, Pending, answer_to};
use crate::reassembly::{MAX_OPEN_MULTIPARTS, Reassembly};
use crate::{CloseReason, Config, Refusal, SendError};

/// The controller's end of a connection to a switch. See the crate documentation for its use.
#[derive(Debug)]
pub struct ControllerConnection {
    link: Link,
    phase: Phase,
    pending: Pending,
    replies: Reassembly<MultipartReply>,
    /// Events from before the features reply, delivered after [`ControllerEvent::Ready`].
    early: Vec<ControllerEvent>,
    events: VecDeque<ControllerEvent>,
}

/// State of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Hello,
    /// Waits for the features reply with this transaction ID.
    Features {
        xid: u32,
    },
    Ready,
}

/// An event for the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerEvent {
    /// The handshake is complete; messages can be sent.
    Ready {
        /// The features reply of the switch.
        features: FeaturesReply,
    },
    /// The answer to the request with this transaction ID. Multipart replies are complete.
    Reply {
        /// Transaction ID.
        xid: u32,
        /// The answer.
        body: Body,
    },
    /// The request with this transaction ID failed.
    Error {
        /// Transaction ID.
        xid: u32,
        /// The reason.
        error: ErrorMessage,
    },
    /// An unsolicited message: packet-in, port status, flow removed, experimenter.
    Message(Message),
    /// A message of the switch was refused. If it answered a request, no other answer follows.
    Refused(Refusal),
    /// The connection ended; nothing follows, not even outstanding answers.
    Closed(CloseReason),
}

impl ControllerConnection {
    /// Creates the state of a new connection.
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            link: Link::new(config, WhenBusy::Read, now),
            phase: Phase::Hello,
            pending: Pending::default(),
            replies: Reassembly::new(config.max_multipart_len, config.max_multipart_parts),
            early: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Handles received bytes.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Instant) {
        self.link.handle_bytes(bytes, now);
    }

    /// Handles the end of the stream. The event follows those of all earlier bytes.
    pub fn handle_eof(&mut self) {
        self.link.handle_eof();
    }

    /// Handles the passing of time: call it at [`Self::poll_timeout`], or at any other time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(reason) = self.link.handle_timeout(now) {
            self.events.push_back(ControllerEvent::Closed(reason));
        }
    }

    /// Reports that the first `len` bytes of [`Self::poll_transmit`] were written.
    pub fn handle_transmitted(&mut self, len: usize, now: Instant) {
        self.link.handle_transmitted(len, now);
    }

    /// Sends a message and returns its transaction ID, which identifies the answer or error. A
    /// multipart request that exceeds one message is split.
    pub fn send(&mut self, body: Body) -> Result<u32, SendError> {
        if self.phase != Phase::Ready {
            return Err(SendError::NotOpen);
        }
        let answer = answer_to(&body);
        let count = self.pending.count();
        if answer.is_some() && count >= MAX_PENDING {
            return Err(SendError::TooManyPending { count });
        }
        let xid = self.unused_xid();
        self.link.send(&parts(xid, body))?;
        if let Some(answer) = answer {
            self.pending.insert(xid, answer);
        }
        Ok(xid)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ControllerEvent> {
        while self.events.is_empty() {
            let incoming = self.link.poll_incoming()?;
            self.handle_incoming(incoming);
        }
        self.events.pop_front()
    }

    /// The bytes to write, in order; empty if there are none. They remain until
    /// [`Self::handle_transmitted`]. After the end, the remaining bytes tell the switch the reason.
    pub fn poll_transmit(&self) -> &[u8] {
        self.link.waiting()
    }

    /// When to call [`Self::handle_timeout`]; `None` after the end.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.link.deadline()
    }

    /// Takes the received bytes after the last message that was handled, for who reads the stream
    /// from here on. This connection can then not be used any more.
    pub fn take_unread(&mut self) -> Vec<u8> {
        self.link.take_unread()
    }

    /// Whether there are so many unsent bytes that [`Self::send`] refuses.
    pub fn is_busy(&self) -> bool {
        self.link.is_busy()
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// Number of unanswered requests.
    pub fn pending_count(&self) -> usize {
        self.pending.count()
    }

    fn handle_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Opened => self.ask_for_features(),
            Incoming::Message(message) => match self.phase {
                Phase::Features { xid } if message.xid == xid => self.handle_features(message),
                _ => {
                    if let Some(event) = self.handle_message(message) {
                        self.push_event(event);
                    }
                }
            },
            Incoming::Refused(refusal) => {
                self.pending.forget(refusal.xid);
                self.push_event(ControllerEvent::Refused(refusal));
            }
            Incoming::Closed(reason) => self.events.push_back(ControllerEvent::Closed(reason)),
        }
    }

    fn ask_for_features(&mut self) {
        let xid = self.link.next_xid();
        self.phase = Phase::Features { xid };
        self.link.answer(Message { xid, body: Body::FeaturesRequest });
    }

    /// Handles the answer to the features request.
    fn handle_features(&mut self, message: Message) {
        match message.body {
            Body::FeaturesReply(features) => {
                self.phase = Phase::Ready;
                self.link.handle_ready();
                self.events.push_back(ControllerEvent::Ready { features });
                self.events.extend(self.early.drain(..));
            }
            Body::Error(error) => self.close(refused(&error)),
            body => {
                if let Some(event) = self.handle_message(Message { body, ..message }) {
                    self.push_event(event);
                }
            }
        }
    }

    /// Converts a message to an event, if it completes one.
    fn handle_message(&mut self, message: Message) -> Option<ControllerEvent> {
        let Message { xid, body } = message;
        match body {
            Body::Error(error) => {
                self.pending.forget(xid);
                Some(ControllerEvent::Error { xid, error })
            }
            Body::MultipartReply(part) => self.handle_part(xid, part),
            // A late answer to a probe.
            Body::EchoReply(_) if !self.pending.contains(xid) => None,
            body if is_from_switch(body.message_type()) => Some(self.reply_or_message(xid, body)),
            body => {
                let text = format!("{}: not a message for a controller", body.message_type());
                Some(self.refuse(Refusal::new(xid, ErrorKind::OFPBRC_BAD_TYPE, text)))
            }
        }
    }

    /// Joins a part of an expected answer. Other parts are refused individually: with invented
    /// transaction IDs, a peer could otherwise make us store as much as all answers may contain.
    fn handle_part(&mut self, xid: u32, part: MultipartReply) -> Option<ControllerEvent> {
        // A failed answer is no longer expected, but its parts are consumed up to the last.
        let is_asked_for = self.pending.awaits(xid, MessageType::MultipartReply);
        if !is_asked_for && !self.replies.is_open(xid) {
            let text = "a multipart reply that was not requested".to_owned();
            return Some(self.refuse(Refusal::new(xid, ErrorKind::OFPBRC_BAD_MULTIPART, text)));
        }
        match self.replies.handle_part(xid, part, self.link.frame_len()) {
            Ok(Some(whole)) => Some(self.reply_or_message(xid, Body::MultipartReply(whole))),
            Ok(None) => None,
            Err(error) => {
                self.pending.forget(xid);
                let refusal = Refusal::new(xid, error.kind(), error.to_string());
                let event = self.refuse(refusal);
                self.push_event(event);
                if error.is_fatal() {
                    self.close(CloseReason::TooManyMultiparts { max: MAX_OPEN_MULTIPARTS });
                }
                None
            }
        }
    }

    fn reply_or_message(&mut self, xid: u32, body: Body) -> ControllerEvent {
        match self.pending.take(xid, body.message_type()) {
            true => ControllerEvent::Reply { xid, body },
            false => ControllerEvent::Message(Message { xid, body }),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> ControllerEvent {
        ControllerEvent::Refused(self.link.refuse(refusal))
    }

    /// Queues an event, or holds it back before the handshake is complete.
    fn push_event(&mut self, event: ControllerEvent) {
        if self.phase == Phase::Ready {
            self.events.push_back(event);
            return;
        }
        let count = self.early.len();
        match count < MAX_EARLY {
            true => self.early.push(event),
            false => self.close(CloseReason::TooEarly { count }),
        }
    }

    fn close(&mut self, reason: CloseReason) {
        if !self.link.is_closed() {
            let reason = self.link.close(reason);
            self.events.push_back(ControllerEvent::Closed(reason));
        }
    }

    /// A transaction ID that is not in use.
    fn unused_xid(&mut self) -> u32 {
        loop {
            let xid = self.link.next_xid();
            if !self.pending.contains(xid) {
                return xid;
            }
        }
    }
}

/// The messages for `body`: one, or the parts of a multipart.
fn parts(xid: u32, body: Body) -> Vec<Message> {
    let message = |body| Message { xid, body };
    match body {
        Body::MultipartRequest(request) => {
            let parts = request.split().into_iter();
            parts.map(|part| message(Body::MultipartRequest(part))).collect()
        }
        body => vec![message(body)],
    }
}

/// Whether switches send messages of this type.
const fn is_from_switch(message_type: MessageType) -> bool {
    matches!(
        message_type,
        MessageType::EchoReply
            | MessageType::Experimenter
            | MessageType::FeaturesReply
            | MessageType::GetConfigReply
            | MessageType::PacketIn
            | MessageType::FlowRemoved
            | MessageType::PortStatus
            | MessageType::MultipartReply
            | MessageType::BarrierReply
            | MessageType::QueueGetConfigReply
            | MessageType::RoleReply
            | MessageType::GetAsyncReply
    )
}

/// Maximum number of messages before the features reply.
const MAX_EARLY: usize = 1024;
