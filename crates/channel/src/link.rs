//! The common part of both ends: framing, hello, echo, keepalive, error messages, the outbox
//! (OpenFlow 1.3.5 §6.3.3, §6.3.4, §7.4.4, §7.5).
//!
//! States: *Hello* until the version is negotiated; only a hello or an error is accepted. *Open*:
//! messages in both directions. *Closed*: nothing is read or sent any more; the remaining bytes of
//! the outbox, such as an error with the reason, can still be written.

use std::time::Instant;

use tapswitch_openflow::{
    Body, DecodeError, ErrorKind, ErrorMessage, Header, Hello, Message, MessageError, MessageType,
    VERSION, in_one_line,
};

use crate::frames::Frames;
use crate::keepalive::{Keepalive, Verdict};
use crate::outbox::Outbox;
use crate::{CloseReason, Config, Refusal, SendError};

/// The common part of one end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    config: Config,
    state: State,
    frames: Frames,
    outbox: Outbox,
    keepalive: Keepalive,
    /// Deadline of the handshake; `None` after it, or without a limit.
    handshake_deadline: Option<Instant>,
    /// Transaction ID of the pending echo request.
    probe_xid: Option<u32>,
    /// Transaction ID of the last request of this end.
    last_xid: u32,
    /// How to treat input while the outbox is full.
    when_busy: WhenBusy,
    /// Whether the end has to answer before it accepts anything except an echo.
    is_held: bool,
    /// Whether the stream ended: remaining input is processed, then the connection is closed.
    has_ended: bool,
    /// Bytes of notices that were accepted beyond the limit.
    notice_len: usize,
    /// Why the connection must end, detected while answering.
    failure: Option<CloseReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hello,
    Open,
    Closed,
}

/// How an end treats input while too many bytes are unsent. One end must continue to read:
/// otherwise both would wait forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    /// Continue to read.
    Read,
    /// Leave it unread.
    Pause,
}

/// Input to be handled by the end.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Version 1.3 is negotiated.
    Opened,
    /// A message that is not handled by the link.
    Message(Message),
    /// A message that was answered with an error.
    Refused(Refusal),
    /// The connection ended.
    Closed(CloseReason),
}

impl Link {
    /// Sends the hello.
    pub(crate) fn new(config: Config, when_busy: WhenBusy, now: Instant) -> Self {
        let mut link = Self {
            config,
            state: State::Hello,
            frames: Frames::default(),
            outbox: Outbox::default(),
            keepalive: Keepalive::new(config.echo_interval, now),
            handshake_deadline: now.checked_add(config.handshake_timeout),
            probe_xid: None,
            last_xid: 0,
            when_busy,
            is_held: false,
            has_ended: false,
            notice_len: 0,
            failure: None,
        };
        let xid = link.next_xid();
        link.answer(Message { xid, body: Body::Hello(Hello::new()) });
        link
    }

    /// Appends received bytes. [`Self::poll_incoming`] processes them.
    pub(crate) fn handle_bytes(&mut self, bytes: &[u8], now: Instant) {
        if self.state != State::Closed && !bytes.is_empty() {
            self.keepalive.handle_bytes(now);
            self.frames.push(bytes);
        }
    }

    /// Records the end of the stream, which [`Self::poll_incoming`] reports after all earlier
    /// input.
    pub(crate) const fn handle_eof(&mut self) {
        self.has_ended = true;
    }

    /// Takes the received bytes after the last handled message.
    pub(crate) fn take_unread(&mut self) -> Vec<u8> {
        let unread = self.frames.rest().to_vec();
        self.frames.clear();
        unread
    }

    /// Handles the passing of time. Returns the reason if that ends the connection.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<CloseReason> {
        if self.state == State::Closed {
            return None;
        }
        if self.handshake_deadline.is_some_and(|deadline| now >= deadline) {
            let after = self.config.handshake_timeout;
            return Some(self.close(CloseReason::HandshakeTimeout { after }));
        }
        if self.state != State::Open {
            return None;
        }
        if self.is_held {
            // This end has to act: the answer to a probe may be in the unread input.
            self.keepalive.handle_bytes(now);
        }
        match self.keepalive.handle_timeout(now) {
            Verdict::Wait => None,
            Verdict::Probe => {
                self.probe();
                None
            }
            Verdict::Dead => {
                let after = self.config.echo_interval;
                Some(self.close(CloseReason::Dead { after }))
            }
        }
    }

    /// Ends the handshake.
    pub(crate) const fn handle_ready(&mut self) {
        self.handshake_deadline = None;
    }

    /// Records written bytes. While input is left unread, writing is the evidence that the peer is
    /// alive.
    pub(crate) fn handle_transmitted(&mut self, len: usize, now: Instant) {
        if len > 0 && self.is_paused() {
            self.keepalive.handle_bytes(now);
        }
        self.outbox.advance(len);
    }

    /// Sets whether the end has to answer before it accepts anything more. An echo that comes next
    /// is still answered. After the end of the stream nothing is held back.
    pub(crate) const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Returns the next input that is not handled here.
    pub(crate) fn poll_incoming(&mut self) -> Option<Incoming> {
        loop {
            if self.state == State::Closed {
                return None;
            }
            if let Some(reason) = self.failure.take() {
                return Some(Incoming::Closed(self.close(reason)));
            }
            if self.is_paused() || self.must_wait() {
                return None;
            }
            match self.next_frame() {
                Ok(false) if self.has_ended => {
                    return Some(Incoming::Closed(self.close(CloseReason::Eof)));
                }
                Ok(false) => return None,
                Ok(true) => {}
                Err(reason) => {
                    self.tell_why(&reason);
                    return Some(Incoming::Closed(self.close(reason)));
                }
            }
            let incoming = match self.state {
                State::Hello => Some(self.handle_first_frame()),
                _ => self.handle_frame(),
            };
            if incoming.is_some() {
                return incoming;
            }
        }
    }

    /// Sends all of `messages`, or none, unless too many bytes are unsent.
    pub(crate) fn send(&mut self, messages: &[Message]) -> Result<(), SendError> {
        if self.state == State::Open && self.is_busy() {
            return Err(SendError::Busy { len: self.outbox.waiting().len() });
        }
        self.send_anyway(messages)
    }

    /// Sends all of `messages`, or none, however many bytes are unsent.
    pub(crate) fn send_anyway(&mut self, messages: &[Message]) -> Result<(), SendError> {
        if self.state != State::Open {
            return Err(SendError::NotOpen);
        }
        Ok(self.outbox.push_all(messages)?)
    }

    /// Sends a notice that must not be lost, even if too many bytes are unsent: the peer's state
    /// would stay wrong. If too many notices are unsent as well, the connection is closed, and the
    /// peer resynchronises when it reconnects.
    pub(crate) fn send_notice(&mut self, message: Message) -> Result<(), SendError> {
        let len = self.outbox.waiting().len();
        if !self.is_busy() {
            self.notice_len = 0;
        }
        if self.notice_len >= self.config.max_unsent_len.saturating_mul(NOTICE_SHARE) {
            self.failure = Some(CloseReason::NotReading { len });
            return Err(SendError::NotOpen);
        }
        self.send_anyway(&[message])?;
        self.notice_len += self.outbox.waiting().len().saturating_sub(len);
        Ok(())
    }

    /// Sends an automatic answer. If too many of them are unsent, the connection is closed.
    pub(crate) fn answer(&mut self, message: Message) {
        if self.state == State::Closed {
            return;
        }
        let len = self.outbox.waiting().len();
        if len >= self.config.max_unsent_len.saturating_mul(2) {
            self.failure = Some(CloseReason::NotReading { len });
            return;
        }
        // Answers consist of an echo's own data or a few bytes, so they fit a message.
        let _ = self.outbox.push_all(&[message]);
    }

    /// Answers the current message with an error.
    pub(crate) fn refuse(&mut self, refusal: Refusal) -> Refusal {
        let error = ErrorMessage::about(refusal.kind, self.frames.current());
        self.answer(Message { xid: refusal.xid, body: Body::Error(error) });
        refusal
    }

    /// Ends the connection.
    pub(crate) fn close(&mut self, reason: CloseReason) -> CloseReason {
        self.state = State::Closed;
        self.handshake_deadline = None;
        self.frames.clear();
        reason
    }

    /// A new transaction ID of this end; never 0.
    pub(crate) fn next_xid(&mut self) -> u32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// When to call [`Self::handle_timeout`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let probe = self.keepalive.deadline().filter(|_| self.state == State::Open);
        [self.handshake_deadline, probe].into_iter().flatten().min()
    }

    /// Length of the current message in bytes.
    pub(crate) fn frame_len(&self) -> usize {
        self.frames.current().len()
    }

    /// The unsent bytes.
    pub(crate) fn waiting(&self) -> &[u8] {
        self.outbox.waiting()
    }

    /// Whether the limit of unsent bytes is reached.
    pub(crate) fn is_busy(&self) -> bool {
        self.outbox.waiting().len() >= self.config.max_unsent_len
    }

    /// Whether the limit of held-back input is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.is_held && self.frames.rest().len() >= MAX_HELD_LEN
    }

    /// Whether the stream ended.
    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the connection ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Sends an echo request. While its answer would be left unread, no request is sent: the peer
    /// is alive if it reads the unsent bytes.
    fn probe(&mut self) {
        if self.is_paused() {
            return;
        }
        let xid = self.next_xid();
        self.probe_xid = Some(xid);
        // One message of eight bytes per interval fits, and needs no limit.
        let _ = self.outbox.push_all(&[Message { xid, body: Body::EchoRequest(Vec::new()) }]);
    }

    /// Whether input is currently left unread.
    fn is_paused(&self) -> bool {
        self.when_busy == WhenBusy::Pause && self.is_busy() && !self.has_ended
    }

    /// Whether the next message has to wait.
    fn must_wait(&self) -> bool {
        let is_echo = |header: Header| {
            header.message_type == MessageType::EchoRequest as u8
                || header.message_type == MessageType::EchoReply as u8
        };
        self.is_held && !self.has_ended && !self.frames.peek().is_some_and(is_echo)
    }

    /// Advances to the next message; `false` if it is incomplete.
    fn next_frame(&mut self) -> Result<bool, CloseReason> {
        if self.state == State::Hello
            && let Some(header) = self.frames.peek()
        {
            check_first(&header)?;
        }
        self.frames.advance().map_err(CloseReason::from)
    }

    /// Sends an error about bytes that are not a message, if the peer may understand it. If the
    /// length is wrong, the start of the next message is unknown.
    fn tell_why(&mut self, reason: &CloseReason) {
        let rest = self.frames.rest();
        let speaks_openflow = rest.first().is_some_and(|version| VERSIONS.contains(version))
            && rest.get(1) != Some(&(MessageType::Error as u8));
        let error = match reason {
            CloseReason::NotOpenFlow { .. } if speaks_openflow => {
                let text = "a connection begins with a hello of at most 2048 bytes";
                ErrorMessage::with_text(ErrorKind::OFPHFC_INCOMPATIBLE, text)
            }
            CloseReason::Header(_) if speaks_openflow => {
                ErrorMessage::about(ErrorKind::OFPBRC_BAD_LEN, rest)
            }
            _ => return,
        };
        let xid = self.frames.peek().map_or(0, |header| header.xid);
        self.answer(Message { xid, body: Body::Error(error) });
    }

    /// Handles the first message: the peer's hello, or an error in reply to ours.
    fn handle_first_frame(&mut self) -> Incoming {
        let mut frame = self.frames.current().to_vec();
        if frame.get(1) == Some(&(MessageType::Error as u8))
            && let Some(version) = frame.first_mut()
        {
            // A peer without our version answers in its own; the format of this error is the same
            // in all versions.
            *version = VERSION;
        }
        let reason = match Message::decode(&frame) {
            Ok(Message { body: Body::Hello(hello), .. }) if hello.agrees_on_1_3() => {
                self.state = State::Open;
                return Incoming::Opened;
            }
            Ok(Message { xid, body: Body::Hello(hello) }) => {
                let kind = ErrorKind::OFPHFC_INCOMPATIBLE;
                let error = ErrorMessage::with_text(kind, "this end speaks OpenFlow 1.3 (0x04)");
                self.answer(Message { xid, body: Body::Error(error) });
                CloseReason::Version { version: hello.version }
            }
            Ok(Message { body: Body::Error(error), .. }) => refused(&error),
            Ok(other) => {
                let message_type = other.body.message_type() as u8;
                CloseReason::NotOpenFlow { message_type, len: 0 }
            }
            Err(DecodeError::Header(error)) => error.into(),
            Err(DecodeError::Message(error)) => CloseReason::BadHello(self.refuse(error.into())),
        };
        Incoming::Closed(self.close(reason))
    }

    fn handle_frame(&mut self) -> Option<Incoming> {
        let message = match Message::decode(self.frames.current()) {
            Ok(message) => message,
            Err(DecodeError::Header(error)) => {
                return Some(Incoming::Closed(self.close(error.into())));
            }
            Err(DecodeError::Message(error)) => return Some(self.handle_malformed(error)),
        };
        let xid = message.xid;
        match message.body {
            Body::EchoRequest(data) => {
                self.answer(Message { xid, body: Body::EchoReply(data) });
                None
            }
            Body::EchoReply(_) if self.probe_xid == Some(xid) => {
                self.probe_xid = None;
                None
            }
            Body::Hello(_) => None, // Both ends agreed already; a second hello changes nothing.
            body => Some(Incoming::Message(Message { xid, body })),
        }
    }

    /// Answers a malformed message with its error, unless it is an error itself.
    fn handle_malformed(&mut self, error: MessageError) -> Incoming {
        let message_type = self.frames.current().get(1);
        let refusal = match message_type == Some(&(MessageType::Error as u8)) {
            true => error.into(),
            false => self.refuse(error.into()),
        };
        Incoming::Refused(refusal)
    }
}

/// The reason in an error that answers the handshake.
pub(crate) fn refused(error: &ErrorMessage) -> CloseReason {
    let text = error.text().filter(|text| !text.is_empty());
    let start = |text: String| text.chars().take(TEXT_LEN_MAX).collect::<String>();
    CloseReason::Refused {
        kind: error.kind,
        text: text.map_or_else(String::new, |text| format!(": {}", in_one_line(&start(text)))),
    }
}

/// Refuses a stream that is not OpenFlow by its first eight bytes, instead of waiting for the 20
/// KiB that the length field of an HTTP request would announce.
fn check_first(header: &Header) -> Result<(), CloseReason> {
    let Header { message_type, length: len, .. } = *header;
    let is_first =
        message_type == MessageType::Hello as u8 || message_type == MessageType::Error as u8;
    match is_first && usize::from(len) <= MAX_HELLO_LEN {
        true => Ok(()),
        false => Err(CloseReason::NotOpenFlow { message_type, len }),
    }
}

/// Limit of notices as a multiple of the limit of unsent bytes: by default some six hundred
/// thousand removed rules.
const NOTICE_SHARE: usize = 8;
/// Maximum bytes to read while the end has to answer: more than one message, so that an echo is
/// complete.
const MAX_HELD_LEN: usize = 64 << 10;
/// Maximum number of characters of a peer's text in the log: a line or two.
const TEXT_LEN_MAX: usize = 200;
/// Versions of OpenFlow, 1.0 to 1.5.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=6;
/// Maximum length of a hello in bytes: far more than a bitmap of all possible versions.
const MAX_HELLO_LEN: usize = 2048;
