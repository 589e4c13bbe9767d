//! What both ends have in common: framing, hello, echo, keepalive, error messages, the outbox
//! (OpenFlow 1.3.5 §6.3.1, §6.3.2, §7.4.4, §7.5).
//!
//! States: *Hello* until the peer's hello agrees with ours; only a hello or an error may come.
//! *Open*: messages go both ways. *Closed*: nothing is read or sent any more; what waits in the
//! outbox, such as the error that says why, can still be written.

use std::time::Instant;

use tapswitch_openflow::{
    Body, DecodeError, ErrorKind, ErrorMessage, Header, Hello, Message, MessageError, MessageType,
    VERSION, in_one_line,
};

use crate::frames::Frames;
use crate::keepalive::{Keepalive, Verdict};
use crate::outbox::Outbox;
use crate::{CloseReason, Config, Refusal, SendError};

/// One end of a connection, as far as both ends are alike.
#[derive(Debug)]
pub(crate) struct Link {
    config: Config,
    state: State,
    frames: Frames,
    outbox: Outbox,
    keepalive: Keepalive,
    /// When the handshake must be done; `None` once it is, or when it has all time.
    handshake_deadline: Option<Instant>,
    /// Number of the echo request that probes the peer.
    probe_xid: Option<u32>,
    /// Number of the last transaction that this end began.
    last_xid: u32,
    /// What to do with input while the outbox is full.
    when_busy: WhenBusy,
    /// Whether the end has to answer before it takes anything more than an echo.
    is_held: bool,
    /// Whether the stream ended: what came before is read, then the connection is closed.
    has_ended: bool,
    /// Bytes of notices that were taken although too much waited.
    notice_len: usize,
    /// Why the connection must end, found while answering.
    failure: Option<CloseReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hello,
    Open,
    Closed,
}

/// What an end does with input while too much waits to be written. One end must read on: if
/// neither did, both would wait forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    /// Goes on reading.
    Read,
    /// Leaves it unread.
    Pause,
}

/// What came in, for the end to handle.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Both ends speak version 1.3.
    Opened,
    /// A message that is not handled here.
    Message(Message),
    /// A message that was answered with an error.
    Refused(Refusal),
    /// The connection ended.
    Closed(CloseReason),
}

impl Link {
    /// Says hello.
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

    /// Bytes came in. What they are, [`Self::poll_incoming`] tells.
    pub(crate) fn handle_bytes(&mut self, bytes: &[u8], now: Instant) {
        if self.state != State::Closed && !bytes.is_empty() {
            self.keepalive.handle_bytes(now);
            self.frames.push(bytes);
        }
    }

    /// The stream ended. [`Self::poll_incoming`] says so after all that came before.
    pub(crate) const fn handle_eof(&mut self) {
        self.has_ended = true;
    }

    /// Time passed. Returns the reason if the connection ended by that.
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
            // It is our turn: an answer to a probe may wait behind what is left unread.
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

    /// The handshake is done.
    pub(crate) const fn handle_ready(&mut self) {
        self.handshake_deadline = None;
    }

    /// Bytes of the outbox were written. While input is left unread, that the peer takes bytes is
    /// the sign of life.
    pub(crate) fn handle_transmitted(&mut self, len: usize, now: Instant) {
        if len > 0 && self.is_paused() {
            self.keepalive.handle_bytes(now);
        }
        self.outbox.advance(len);
    }

    /// Whether the end has to answer before it takes anything more. An echo is answered meanwhile,
    /// if it comes next. After the end of the stream nothing is held any more.
    pub(crate) const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// The next thing that came in and is not handled here.
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

    /// Sends all of `messages`, or none, unless too much waits already.
    pub(crate) fn send(&mut self, messages: &[Message]) -> Result<(), SendError> {
        if self.state == State::Open && self.is_busy() {
            return Err(SendError::Busy { len: self.outbox.waiting().len() });
        }
        self.send_anyway(messages)
    }

    /// Sends all of `messages`, or none, however much waits.
    pub(crate) fn send_anyway(&mut self, messages: &[Message]) -> Result<(), SendError> {
        if self.state != State::Open {
            return Err(SendError::NotOpen);
        }
        Ok(self.outbox.push_all(messages)?)
    }

    /// Sends what the peer must know, though too much waits. It would be wrong for good about what
    /// is lost here; so one that lets too many of these wait as well is cut off, and looks afresh
    /// when it comes back.
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

    /// Answers without being asked by the caller. A peer that lets too many answers wait is not
    /// worth more of them.
    pub(crate) fn answer(&mut self, message: Message) {
        if self.state == State::Closed {
            return;
        }
        let len = self.outbox.waiting().len();
        if len >= self.config.max_unsent_len.saturating_mul(2) {
            self.failure = Some(CloseReason::NotReading { len });
            return;
        }
        // Answers are an echo's own data or a few bytes, so they fit a message.
        let _ = self.outbox.push_all(&[message]);
    }

    /// Answers the message that came last with an error.
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

    /// Number for a transaction that this end begins; never 0.
    pub(crate) fn next_xid(&mut self) -> u32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let probe = self.keepalive.deadline().filter(|_| self.state == State::Open);
        [self.handshake_deadline, probe].into_iter().flatten().min()
    }

    /// Bytes of the message that came last.
    pub(crate) fn frame_len(&self) -> usize {
        self.frames.current().len()
    }

    /// Bytes that wait to be written.
    pub(crate) fn waiting(&self) -> &[u8] {
        self.outbox.waiting()
    }

    /// Whether as many bytes wait as may wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.outbox.waiting().len() >= self.config.max_unsent_len
    }

    /// Whether as much was read as can be kept until the end has answered.
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

    /// Asks the peer for a sign of life. While its answer would be left unread there is no asking:
    /// it lives if it takes what waits.
    fn probe(&mut self) {
        if self.is_paused() {
            return;
        }
        let xid = self.next_xid();
        self.probe_xid = Some(xid);
        // One message of eight bytes in an interval: it fits, and needs no bound.
        let _ = self.outbox.push_all(&[Message { xid, body: Body::EchoRequest(Vec::new()) }]);
    }

    /// Whether input is left unread for now.
    fn is_paused(&self) -> bool {
        self.when_busy == WhenBusy::Pause && self.is_busy() && !self.has_ended
    }

    /// Whether the next message is left for later.
    fn must_wait(&self) -> bool {
        let is_echo = |header: Header| {
            header.message_type == MessageType::EchoRequest as u8
                || header.message_type == MessageType::EchoReply as u8
        };
        self.is_held && !self.has_ended && !self.frames.peek().is_some_and(is_echo)
    }

    /// Goes on to the next message; `false` when it is not there whole.
    fn next_frame(&mut self) -> Result<bool, CloseReason> {
        if self.state == State::Hello
            && let Some(header) = self.frames.peek()
        {
            check_first(&header)?;
        }
        self.frames.advance().map_err(CloseReason::from)
    }

    /// Tells the peer what is wrong with bytes that are no message, if it may understand that. Its
    /// length being wrong, where the next message would begin is not known.
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
            // Who does not speak our version answers in its own; this error is the same in all.
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

/// What an error says in reply to the handshake.
pub(crate) fn refused(error: &ErrorMessage) -> CloseReason {
    let text = error.text().filter(|text| !text.is_empty());
    let start = |text: String| text.chars().take(TEXT_LEN_MAX).collect::<String>();
    CloseReason::Refused {
        kind: error.kind,
        text: text.map_or_else(String::new, |text| format!(": {}", in_one_line(&start(text)))),
    }
}

/// Refuses what is no OpenFlow by its first eight bytes, so that nobody waits for the 20 KiB that
/// the length of an HTTP request would announce.
fn check_first(header: &Header) -> Result<(), CloseReason> {
    let Header { message_type, length: len, .. } = *header;
    let is_first =
        message_type == MessageType::Hello as u8 || message_type == MessageType::Error as u8;
    match is_first && usize::from(len) <= MAX_HELLO_LEN {
        true => Ok(()),
        false => Err(CloseReason::NotOpenFlow { message_type, len }),
    }
}

/// How many times the bytes that may wait may be notices: those of some six hundred thousand rules
/// that went, by default.
const NOTICE_SHARE: usize = 8;
/// Bytes that are read while the end has to answer: more than one message, so that an echo is there
/// whole.
const MAX_HELD_LEN: usize = 64 << 10;
/// Characters of a peer's text that go to the log: a line or two.
const TEXT_LEN_MAX: usize = 200;
/// Versions of OpenFlow, 1.0 to 1.5.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=6;
/// Most bytes of a hello: far more than a bitmap of all versions there could be.
const MAX_HELLO_LEN: usize = 2048;
