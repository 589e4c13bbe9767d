//! The switch's end of a connection.
//!
//! A message of the controller is checked in this order: can it be parsed, is it for a switch, may
//! this controller send it (§6.3.7), could any switch execute it ([`Message::check`]). The rest is
//! the caller's, in the order of arrival, including barriers. Messages after a barrier or a role
//! request are not examined before that is answered.

use std::collections::VecDeque;
use std::time::Instant;

use tapswitch_openflow::{
    AsyncConfig, Body, ControllerRole, ErrorKind, ErrorMessage, Message, MessageType,
    MultipartRequest, MultipartRequestBody, RoleMessage,
};

use crate::link::{Incoming, Link, WhenBusy};
use crate::pending::answer_to;
use crate::reassembly::{MAX_OPEN_MULTIPARTS, Reassembly};
use crate::window::Window;
use crate::{CloseReason, Config, Refusal, RoleChange, SendError, wants};

/// The switch's end of a connection to a controller. See the crate documentation for its use.
#[derive(Debug)]
pub struct SwitchConnection {
    link: Link,
    role: ControllerRole,
    async_config: AsyncConfig,
    /// The controller has set its asynchronous configuration, even if to the same value.
    has_set_async: bool,
    requests: Reassembly<MultipartRequest>,
    window: Window,
    events: VecDeque<SwitchEvent>,
}

/// An event for the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchEvent {
    /// Version 1.3 is negotiated; messages can be sent.
    Ready,
    /// A permitted request of the controller. Multipart requests are complete.
    Request(Message),
    /// A role request: call [`crate::Roles`], then [`SwitchConnection::answer_role`].
    RoleRequest {
        /// Transaction ID.
        xid: u32,
        /// The request.
        request: RoleMessage,
    },
    /// The controller reports an error for the message with this transaction ID.
    Error {
        /// Transaction ID.
        xid: u32,
        /// The error.
        error: ErrorMessage,
    },
    /// A message of the controller was refused.
    Refused(Refusal),
    /// The connection ended; nothing follows.
    Closed(CloseReason),
}

impl SwitchConnection {
    /// Creates the state of a new connection.
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            link: Link::new(config, WhenBusy::Pause, now),
            role: ControllerRole::Equal,
            async_config: AsyncConfig::default(),
            has_set_async: false,
            requests: Reassembly::new(config.max_multipart_len, config.max_multipart_parts),
            window: Window::default(),
            events: VecDeque::new(),
        }
    }

    /// Handles received bytes.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Instant) {
        self.link.handle_bytes(bytes, now);
    }

    /// Handles the end of the stream. The event follows those of all earlier input, which no longer
    /// waits for answers.
    pub fn handle_eof(&mut self) {
        self.link.handle_eof();
    }

    /// Handles the passing of time: call it at [`Self::poll_timeout`], or at any other time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(reason) = self.link.handle_timeout(now) {
            self.events.push_back(SwitchEvent::Closed(reason));
        }
    }

    /// Reports that the first `len` bytes of [`Self::poll_transmit`] were written.
    pub fn handle_transmitted(&mut self, len: usize, now: Instant) {
        self.link.handle_transmitted(len, now);
    }

    /// Answers the request with this transaction ID. A multipart reply that exceeds one message is
    /// split. Answers are accepted however many bytes are unsent: requests stop instead (see
    /// [`Self::is_busy`]).
    ///
    /// # Errors
    /// If the connection is not open, or the answer cannot be encoded: then the controller gets an
    /// error instead of the answer.
    pub fn reply(&mut self, xid: u32, body: Body) -> Result<(), SendError> {
        self.note_answer(xid, body.message_type());
        let sent = self.link.send_anyway(&parts(xid, body));
        if let Err(SendError::Encode(_)) = sent {
            // The only error for a reply that is too long; the request that it should quote is no
            // longer available.
            let error = ErrorMessage::about(ErrorKind::OFPBRC_MULTIPART_BUFFER_OVERFLOW, &[]);
            self.link.send_anyway(&[Message { xid, body: Body::Error(error) }])?;
        }
        sent
    }

    /// Answers a request with an error.
    pub fn refuse(&mut self, request: &Message, kind: ErrorKind) -> Result<(), SendError> {
        if let Some(answer) = answer_to(&request.body) {
            self.note_answer(request.xid, answer);
        }
        let error = ErrorMessage::about(kind, &start_of(request));
        self.link.send_anyway(&[Message { xid: request.xid, body: Body::Error(error) }])
    }

    /// Sends an asynchronous message if the controller's role and configuration include it; returns
    /// whether. A packet-in that is refused because too many bytes are unsent is lost, which the
    /// caller should count. Other messages are accepted: the connection is closed if there are too
    /// many.
    pub fn notify(&mut self, body: Body) -> Result<bool, SendError> {
        if !wants(&self.async_config, self.role, &body) {
            return Ok(false);
        }
        let message = Message { xid: 0, body };
        match message.body {
            Body::PacketIn(_) => self.link.send(&[message])?,
            _ => self.link.send_notice(message)?,
        }
        Ok(true)
    }

    /// Answers a role request with the result of [`crate::Roles`], and adopts the role.
    pub fn answer_role(
        &mut self,
        xid: u32,
        request: RoleMessage,
        answer: Result<RoleChange, ErrorKind>,
    ) -> Result<(), SendError> {
        match answer {
            Ok(change) => {
                self.role = change.reply.role;
                self.reply(xid, Body::RoleReply(change.reply))
            }
            Err(kind) => {
                let request = Message { xid, body: Body::RoleRequest(request) };
                self.refuse(&request, kind)
            }
        }
    }

    /// Sets a role that the controller did not request: slave, when another one becomes master.
    pub const fn set_role(&mut self, role: ControllerRole) {
        self.role = role;
    }

    /// Returns the next event. No requests are returned while the connection [is
    /// busy](Self::is_busy), nor while a barrier, a role request, or four other requests wait for
    /// [`Self::reply`], [`Self::refuse`] or [`Self::answer_role`]. After these, there may be more.
    pub fn poll_event(&mut self) -> Option<SwitchEvent> {
        while self.events.is_empty() {
            let incoming = self.link.poll_incoming()?;
            if let Some(event) = self.handle_incoming(incoming) {
                self.events.push_back(event);
            }
        }
        self.events.pop_front()
    }

    /// The bytes to write, in order; empty if there are none. They remain until
    /// [`Self::handle_transmitted`]. After the end, the remaining bytes tell the controller the
    /// reason.
    pub fn poll_transmit(&self) -> &[u8] {
        self.link.waiting()
    }

    /// When to call [`Self::handle_timeout`]; `None` after the end.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.link.deadline()
    }

    /// Whether there are so many unsent bytes, or so much input behind unanswered requests, that
    /// requests are left unread. The caller should then not read from the socket either, so that a
    /// controller that sends requests faster than it reads answers has to wait.
    pub fn is_busy(&self) -> bool {
        self.link.is_busy() || self.link.is_full()
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// Role of the controller.
    pub const fn role(&self) -> ControllerRole {
        self.role
    }

    /// The asynchronous messages that the controller receives.
    pub const fn async_config(&self) -> &AsyncConfig {
        &self.async_config
    }

    /// Whether the controller has set that, even if to the same value.
    pub const fn has_set_async(&self) -> bool {
        self.has_set_async
    }

    fn handle_incoming(&mut self, incoming: Incoming) -> Option<SwitchEvent> {
        match incoming {
            Incoming::Opened => {
                self.link.handle_ready();
                Some(SwitchEvent::Ready)
            }
            Incoming::Message(message) => self.handle_message(message),
            Incoming::Refused(refusal) => Some(SwitchEvent::Refused(refusal)),
            Incoming::Closed(reason) => Some(SwitchEvent::Closed(reason)),
        }
    }

    fn handle_message(&mut self, message: Message) -> Option<SwitchEvent> {
        let Message { xid, body } = message;
        if let Err(refusal) = self.admit(xid, &body) {
            return Some(self.refuse_last(refusal));
        }
        match body {
            Body::Error(error) => Some(SwitchEvent::Error { xid, error }),
            Body::MultipartRequest(part) => self.handle_part(xid, part),
            Body::EchoReply(_) => None, // A late answer to a probe.
            Body::GetAsyncRequest => {
                let body = Body::GetAsyncReply(self.async_config);
                self.link.answer(Message { xid, body });
                None
            }
            Body::SetAsync(config) => {
                self.async_config = config;
                self.has_set_async = true;
                None
            }
            Body::RoleRequest(request) => {
                self.note_request(xid, &Body::RoleRequest(request));
                Some(SwitchEvent::RoleRequest { xid, request })
            }
            body => self.handle_request(Message { xid, body }),
        }
    }

    /// Checks whether this controller may send this to a switch.
    fn admit(&self, xid: u32, body: &Body) -> Result<(), Refusal> {
        let message_type = body.message_type();
        if !is_from_controller(message_type) {
            let text = format!("{message_type}: not a message for a switch");
            return Err(Refusal::new(xid, ErrorKind::OFPBRC_BAD_TYPE, text));
        }
        // A controller that has disconnected may have requested another role before: the switch
        // checks it then.
        let is_slave = self.role == ControllerRole::Slave && !self.window.asks_for_role();
        if is_slave && changes_state(body) {
            let text = format!("{message_type}: the controller is slave");
            return Err(Refusal::new(xid, ErrorKind::OFPBRC_IS_SLAVE, text));
        }
        Ok(())
    }

    fn handle_part(&mut self, xid: u32, part: MultipartRequest) -> Option<SwitchEvent> {
        match self.requests.handle_part(xid, part, self.link.frame_len()) {
            Ok(Some(whole)) => {
                let body = Body::MultipartRequest(whole);
                self.handle_request(Message { xid, body })
            }
            Ok(None) => None,
            Err(error) => {
                let refusal = Refusal::new(xid, error.kind(), error.to_string());
                let event = self.refuse_last(refusal);
                self.events.push_back(event);
                if error.is_fatal() {
                    self.close(CloseReason::TooManyMultiparts { max: MAX_OPEN_MULTIPARTS });
                }
                None
            }
        }
    }

    fn handle_request(&mut self, message: Message) -> Option<SwitchEvent> {
        if let Err(error) = message.check() {
            return Some(self.refuse_last(Refusal::checked(message.xid, error)));
        }
        // A controller that has disconnected waits for no more answers.
        if self.link.has_ended() && self.window.is_full() && only_asks(&message.body) {
            return None;
        }
        self.note_request(message.xid, &message.body);
        Some(SwitchEvent::Request(message))
    }

    /// Records that the current request is returned to the caller.
    fn note_request(&mut self, xid: u32, body: &Body) {
        self.window.handle_request(xid, body, self.link.frame_len());
        self.link.hold(self.window.is_full());
    }

    fn note_answer(&mut self, xid: u32, answer: MessageType) {
        self.window.handle_answer(xid, answer);
        self.link.hold(self.window.is_full());
    }

    /// Refuses the current message.
    fn refuse_last(&mut self, refusal: Refusal) -> SwitchEvent {
        SwitchEvent::Refused(self.link.refuse(refusal))
    }

    fn close(&mut self, reason: CloseReason) {
        if !self.link.is_closed() {
            let reason = self.link.close(reason);
            self.events.push_back(SwitchEvent::Closed(reason));
        }
    }
}

/// The messages for `body`: one, or the parts of a multipart.
fn parts(xid: u32, body: Body) -> Vec<Message> {
    let message = |body| Message { xid, body };
    match body {
        Body::MultipartReply(reply) => {
            let parts = reply.split().into_iter();
            parts.map(|part| message(Body::MultipartReply(part))).collect()
        }
        body => vec![message(body)],
    }
}

/// The start of a request as received, to quote in an error.
fn start_of(request: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    let whole = request.encode(&mut bytes);
    if let (Err(_), Body::MultipartRequest(joined)) = (whole, &request.body)
        && let Some(first) = joined.clone().split().into_iter().next()
    {
        let first = Message { xid: request.xid, body: Body::MultipartRequest(first) };
        // A part fits a message; if not, the error is sent without a quotation.
        let _ = first.encode(&mut bytes);
    }
    bytes
}

/// Whether controllers send messages of this type.
const fn is_from_controller(message_type: MessageType) -> bool {
    matches!(
        message_type,
        MessageType::Error
            | MessageType::EchoReply
            | MessageType::Experimenter
            | MessageType::FeaturesRequest
            | MessageType::GetConfigRequest
            | MessageType::SetConfig
            | MessageType::PacketOut
            | MessageType::FlowMod
            | MessageType::GroupMod
            | MessageType::PortMod
            | MessageType::TableMod
            | MessageType::MultipartRequest
            | MessageType::BarrierRequest
            | MessageType::QueueGetConfigRequest
            | MessageType::RoleRequest
            | MessageType::GetAsyncRequest
            | MessageType::SetAsync
            | MessageType::MeterMod
    )
}

/// Whether a message has no effect except its answer: it can be skipped if the controller has
/// disconnected.
pub fn only_asks(body: &Body) -> bool {
    match body {
        Body::FeaturesRequest
        | Body::GetConfigRequest
        | Body::QueueGetConfigRequest(_)
        | Body::BarrierRequest => true,
        Body::MultipartRequest(_) => !changes_state(body),
        _ => false,
    }
}

/// Whether a message sends packets or changes the switch, which a slave must not (§6.3.7). A
/// connection refuses these from a slave; a caller that executes requests later must check again.
pub fn changes_state(body: &Body) -> bool {
    match body {
        Body::SetConfig(_)
        | Body::PacketOut(_)
        | Body::FlowMod(_)
        | Body::GroupMod(_)
        | Body::PortMod(_)
        | Body::TableMod(_)
        | Body::MeterMod(_) => true,
        Body::MultipartRequest(request) => match &request.body {
            MultipartRequestBody::TableFeatures(tables) => !tables.is_empty(),
            _ => false,
        },
        _ => false,
    }
}
