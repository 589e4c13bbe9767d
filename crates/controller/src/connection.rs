//! One connection: decodes bytes to news for the hub, and sends the hub's orders.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tapswitch_channel::{CloseReason, ControllerConnection, ControllerEvent, Refusal, SendError};
use tapswitch_control::Ticket;
use tapswitch_openflow::{Body, DatapathId, ErrorKind, FeaturesReply, Message, Relayed};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

mod backlog;

use crate::news::{ConnectionId, Input, News, Order, Orders};
use crate::places::Place;
use crate::relay::{self, Relay};
use crate::tickets::Tickets;
use backlog::Backlog;

/// The receiving end of [`Orders`].
#[derive(Debug)]
struct Inbox {
    messages: mpsc::Receiver<Order>,
    close: oneshot::Receiver<String>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    id: ConnectionId,
    peer: SocketAddr,
    place: Place,
    channel: ControllerConnection,
    max_waiting: usize,
    backlog: Backlog,
    /// The switch, once it has identified itself.
    switch: Option<DatapathId>,
    /// `None` until the switch has identified itself.
    inbox: Option<Inbox>,
    /// Shared with its orders.
    is_heard: Arc<AtomicBool>,
    /// Transaction id of the echo request of the hub.
    echo_xid: Option<u32>,
    tickets: Tickets,
    /// The session to which replies belong, and the transaction id of an unanswered role request.
    session: u64,
    role_xid: Option<u32>,
    /// Begins when all output is written.
    relay: Option<Relay>,
}

/// Why a connection ends.
enum End {
    Channel(CloseReason),
    Hub(String),
    Io(io::Error),
    Relay(Relay),
}

impl Connection {
    pub(crate) fn new(
        (id, peer, place): (ConnectionId, SocketAddr, Place),
        (config, max_waiting): (tapswitch_channel::Config, usize),
        to_hub: mpsc::Sender<Input>,
    ) -> Self {
        let channel = ControllerConnection::new(config, Instant::now());
        let tickets = Tickets::default();
        Self {
            id,
            peer,
            place,
            channel,
            max_waiting,
            backlog: Backlog::new(to_hub),
            switch: None,
            inbox: None,
            is_heard: Arc::default(),
            echo_xid: None,
            tickets,
            session: 0,
            role_xid: None,
            relay: None,
        }
    }

    /// Its place among the connections.
    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// Runs the connection until it ends.
    pub(crate) async fn run(mut self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let end = self.serve(&mut reader, &mut writer).await;
        let reason = match end {
            End::Relay(relay) => {
                let reason = self.relay((reader, writer), relay).await;
                return self.close(reason).await;
            }
            End::Channel(reason) => reason.to_string(),
            End::Hub(reason) => reason,
            End::Io(error) => error.to_string(),
        };
        // Tells the switch why, if that is possible in time.
        let _ = tokio::time::timeout(LAST_WORDS, self.write_all(&mut writer)).await;
        match self.switch {
            Some(_) => self.close(reason).await,
            None => tracing::info!("{}: not accepted as a switch: {reason}", self.peer),
        }
    }

    /// Tells the hub that it has ended.
    async fn close(mut self, reason: String) {
        self.tell(News::Closed { reason });
        self.backlog.send_all().await;
    }

    /// Relays the switch until that ends, for whatever reason; returns that.
    async fn relay<S: AsyncRead + AsyncWrite>(
        &mut self,
        stream: (ReadHalf<S>, WriteHalf<S>),
        relay: Relay,
    ) -> String {
        let unread = self.channel.take_unread();
        let inbox = &mut self.inbox;
        tokio::select! {
            reason = relay::relay(stream, unread, relay, Arc::clone(&self.is_heard)) => reason,
            reason = recalled(inbox) => reason,
        }
    }

    /// Reads, writes and flushes are cancellation-safe:
    /// <https://docs.rs/tokio/latest/tokio/macro.select.html#cancellation-safety>
    async fn serve(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> End {
        let mut buf = vec![0; READ_LEN];
        // TLS buffers written data until it is flushed.
        let mut is_flushed = true;
        loop {
            if let Err(end) = self.handle_events() {
                return end;
            }
            let output = self.channel.poll_transmit();
            let has_output = !output.is_empty();
            if !has_output
                && is_flushed
                && let Some(relay) = self.relay.take()
            {
                return End::Relay(relay);
            }
            let takes_messages = !self.channel.is_busy() && self.relay.is_none();
            let deadline = self.channel.poll_timeout();
            let takes_news = self.backlog.has_room();
            tokio::select! {
                len = reader.read(&mut buf), if takes_news => match len {
                    Ok(0) => self.channel.handle_eof(),
                    Ok(len) => {
                        let bytes = buf.get(..len).unwrap_or_default();
                        self.channel.handle_bytes(bytes, Instant::now());
                        self.is_heard.store(true, Ordering::Relaxed);
                    }
                    // TLS ended without close_notify; a truncated message is detected.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        self.channel.handle_eof();
                    }
                    Err(error) => return End::Io(error),
                },
                written = write_or_flush(writer, output), if has_output || !is_flushed => {
                    match written {
                        Ok(0) => {}
                        Ok(len) => self.channel.handle_transmitted(len, Instant::now()),
                        Err(error) => return End::Io(error),
                    }
                    is_flushed = !has_output;
                }
                order = next_order(&mut self.inbox, takes_messages) => match order {
                    Next::Order(order) => {
                        if let Err(end) = self.obey_all(order) {
                            return end;
                        }
                    }
                    Next::Close(reason) => return End::Hub(reason),
                },
                () = self.backlog.send_some() => {}
                () = sleep_until(deadline) => self.channel.handle_timeout(Instant::now()),
            }
        }
    }

    /// Sends events to the hub.
    fn handle_events(&mut self) -> Result<(), End> {
        while let Some(event) = self.channel.poll_event() {
            match event {
                ControllerEvent::Ready { features } => self.handle_ready(features)?,
                ControllerEvent::Reply { xid, .. } if self.role_xid == Some(xid) => {
                    self.role_xid = None;
                    self.tell(News::Role(Ok(())));
                }
                ControllerEvent::Reply { xid, .. } if self.echo_xid == Some(xid) => {
                    self.echo_xid = None;
                    self.tell(News::Alive);
                }
                ControllerEvent::Reply { xid, body } => {
                    let ticket = match body {
                        Body::BarrierReply => self.tickets.take_barrier(xid),
                        _ => self.tickets.take(xid),
                    };
                    if let Some(ticket) = ticket {
                        self.tell(News::Reply { ticket, body });
                    }
                }
                ControllerEvent::Error { xid, error } => self.handle_error(xid, error.kind),
                ControllerEvent::Message(Message { body, .. }) => self.tell(news(body)),
                ControllerEvent::Refused(refusal) => self.handle_refused(&refusal),
                ControllerEvent::Closed(reason) => return Err(End::Channel(reason)),
                _ => {}
            }
        }
        Ok(())
    }

    fn handle_ready(&mut self, features: FeaturesReply) -> Result<(), End> {
        if features.auxiliary_id != 0 {
            let reason = "an auxiliary connection, which is not used here".to_owned();
            return Err(End::Hub(reason));
        }
        if !self.place.keep() {
            return Err(End::Hub("it was closed to make room for another one".to_owned()));
        }
        let (messages, waiting) = mpsc::channel(self.max_waiting);
        let (close, closing) = oneshot::channel();
        self.inbox = Some(Inbox { messages: waiting, close: closing });
        self.switch = Some(features.datapath_id);
        let orders = Orders { messages, close, is_heard: self.is_heard.clone() };
        self.tell(News::Ready { features, peer: self.peer, orders });
        Ok(())
    }

    fn handle_error(&mut self, xid: u32, kind: ErrorKind) {
        if self.role_xid.take_if(|role_xid| *role_xid == xid).is_some() {
            self.tell(News::Role(Err(kind)));
            return;
        }
        match self.tickets.take(xid) {
            Some(ticket) => self.tell(News::Error { ticket, kind }),
            None => tracing::debug!("{}: error {kind} for an unknown request", self.peer),
        }
    }

    /// A message of the switch could not be decoded; if it was a reply, there will be none.
    fn handle_refused(&mut self, refusal: &Refusal) {
        tracing::warn!("{}: cannot parse a message of the switch: {refusal}", self.peer);
        if let Some(ticket) = self.tickets.take(refusal.xid) {
            self.tell(News::Error { ticket, kind: refusal.kind });
        }
    }

    /// Executes an order, and further queued ones while there is room.
    fn obey_all(&mut self, order: Order) -> Result<(), End> {
        self.obey(order)?;
        while !self.channel.is_busy() && self.relay.is_none() {
            let waiting = self.inbox.as_mut().and_then(|inbox| inbox.messages.try_recv().ok());
            let Some(order) = waiting else { break };
            self.obey(order)?;
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) -> Result<(), End> {
        match order {
            Order::Send(ticket, body) => self.send(ticket, body),
            Order::Echo => {
                let sent = self.channel.send(Body::EchoRequest(Vec::new()));
                self.echo_xid = Some(sent.map_err(|error| End::Hub(error.to_string()))?);
                Ok(())
            }
            Order::Relay(relay) => {
                self.relay = Some(relay);
                Ok(())
            }
            Order::Role { session, request } => {
                (self.session, self.tickets) = (session, Tickets::default());
                let sent = self.channel.send(Body::RoleRequest(request));
                self.role_xid = Some(sent.map_err(|error| End::Hub(error.to_string()))?);
                Ok(())
            }
        }
    }

    fn send(&mut self, ticket: Ticket, body: Body) -> Result<(), End> {
        let is_change = body.is_modification();
        // Whether a packet-out succeeds is of no interest.
        let is_heard_of = !matches!(body, Body::PacketOut(_));
        match self.channel.send(body) {
            Ok(xid) if is_heard_of => self.tickets.insert(xid, ticket, is_change),
            Ok(_) => {}
            Err(SendError::Encode(error)) => {
                tracing::error!("{}: cannot send a message: {error}", self.peer);
                let kind = ErrorKind::OFPBRC_BAD_LEN;
                self.tell(News::Error { ticket, kind });
            }
            Err(error) => return Err(End::Hub(error.to_string())),
        }
        Ok(())
    }

    async fn write_all(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while !self.channel.poll_transmit().is_empty() {
            let len = writer.write(self.channel.poll_transmit()).await?;
            self.channel.handle_transmitted(len, Instant::now());
        }
        // With TLS this sends close_notify: nothing was truncated.
        writer.shutdown().await
    }

    /// Queues news for the hub. The switch must have been identified before.
    fn tell(&mut self, news: News) {
        if let Some(switch) = self.switch {
            let (connection, session) = (self.id, self.session);
            let input = Input::News { connection, session, switch, news };
            if self.backlog.push(input) {
                tracing::warn!(
                    "{}: packet-ins arrive faster than they can be processed; some are skipped, \
                     which does not affect forwarding",
                    self.peer
                );
            }
        }
    }
}

/// The news in an unsolicited message.
fn news(body: Body) -> News {
    match &body {
        Body::Experimenter(said) => match Relayed::of(said) {
            Some(Relayed { by }) => News::Relayed { by },
            None => News::Message(body),
        },
        _ => News::Message(body),
    }
}

/// Writes as much as possible, or flushes; returns the number of bytes written.
async fn write_or_flush(
    writer: &mut (impl AsyncWrite + Unpin),
    output: &[u8],
) -> io::Result<usize> {
    if output.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    writer.write(output).await
}

/// The next order.
enum Next {
    Order(Order),
    Close(String),
}

/// Waits until the hub takes a relayed connection back: there is another leader, or it closes the
/// connection. Other orders are not for a relayed switch.
async fn recalled(inbox: &mut Option<Inbox>) -> String {
    loop {
        match next_order(inbox, true).await {
            Next::Close(reason) => return reason,
            Next::Order(Order::Role { .. }) => return "another controller leads now".to_owned(),
            Next::Order(_) => {}
        }
    }
}

/// Waits for the next order; messages stay queued unless `takes_orders`.
async fn next_order(inbox: &mut Option<Inbox>, takes_orders: bool) -> Next {
    let Some(Inbox { messages, close }) = inbox else {
        return std::future::pending().await;
    };
    let stopped = || Next::Close("the controller stops".to_owned());
    tokio::select! {
        biased;
        reason = close => reason.map_or_else(|_| stopped(), Next::Close),
        order = messages.recv(), if takes_orders => order.map_or_else(stopped, Next::Order),
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

const READ_LEN: usize = 64 << 10;
/// Maximum time for sending the reason at the end of a connection.
const LAST_WORDS: Duration = Duration::from_secs(1);
