//! One OpenFlow connection: the socket and the state machine on top of it.

mod unsent;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tapswitch_channel::{
    Config, ConnectionId, RoleChange, SendError, SwitchConnection, SwitchEvent,
};
use tapswitch_openflow::{
    AsyncConfig, Body, ControllerRole, ErrorKind, Message, PacketIn, RoleMessage,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::Endpoint;
use crate::fate::PacketFate;
use crate::places::Place;
use unsent::Unsent;

/// Space that a packet-out uses until its worker has executed it.
pub(crate) type PacketOutRoom = OwnedSemaphorePermit;

/// A request from the server to a connection.
#[derive(Debug)]
pub(crate) enum ToPeer {
    /// Answer a request.
    Reply(u32, Body),
    /// Answer a request with an error.
    Refuse(Message, ErrorKind),
    /// Send an asynchronous message, if the controller wants it.
    Notify(Body),
    /// Send a packet-in, if the controller wants it; with its fate if the controller is known to.
    PacketIn(PacketIn, Option<Arc<PacketFate>>),
    /// Answer a role request.
    AnswerRole(u32, RoleMessage, Result<RoleChange, ErrorKind>),
    /// The controller has become slave.
    Demote,
}

/// A notification from a connection to the server.
#[derive(Debug)]
pub(crate) enum FromPeer {
    /// A new connection: how to send to it, and its origin.
    Opened { orders: Orders, origin: Origin },
    /// The connection has lasted for a while.
    Lasts,
    /// An event of the connection's state machine.
    Event(SwitchEvent),
    /// A packet-out; the space is released when its packet was sent.
    PacketOut(SwitchEvent, PacketOutRoom),
    /// Whether packet-ins are wanted on this connection.
    Listens(bool),
    /// The connection has ended; nothing follows.
    Gone,
}

/// The side that opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The switch, to a controller; on trial if the controller closed the last connection at once.
    Controller { endpoint: Endpoint, is_on_trial: bool },
    /// A peer that connected to the switch.
    Accepted,
}

/// The sending end of a connection's requests.
#[derive(Debug)]
pub(crate) struct Orders {
    sender: mpsc::UnboundedSender<ToPeer>,
    /// Pending packet-ins. Other requests are bounded by the number of requests that a connection
    /// passes on before they are answered, and by the rate of changes in the switch.
    packet_ins: Arc<AtomicUsize>,
}

/// The receiving end of [`Orders`].
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: mpsc::UnboundedReceiver<ToPeer>,
    packet_ins: Arc<AtomicUsize>,
}

impl Orders {
    pub(crate) fn channel() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let packet_ins = Arc::new(AtomicUsize::new(0));
        (Self { sender, packet_ins: packet_ins.clone() }, Inbox { receiver, packet_ins })
    }

    /// Sends a request. Returns `false` for a packet-in if too many are pending.
    pub(crate) fn send(&self, order: ToPeer) -> bool {
        if is_packet_in(&order) {
            // Relaxed: a memory limit, on which nothing else depends.
            if self.packet_ins.load(Ordering::Relaxed) >= PACKET_IN_QUEUE_LEN {
                return false;
            }
            self.packet_ins.fetch_add(1, Ordering::Relaxed);
        }
        // A connection that has just ended ignores requests.
        let _ = self.sender.send(order);
        true
    }
}

impl Inbox {
    pub(crate) async fn recv(&mut self) -> Option<ToPeer> {
        let order = self.receiver.recv().await?;
        self.note_taken(&order);
        Some(order)
    }

    /// A request that is already pending.
    pub(crate) fn try_recv(&mut self) -> Option<ToPeer> {
        let order = self.receiver.try_recv().ok()?;
        self.note_taken(&order);
        Some(order)
    }

    fn note_taken(&self, order: &ToPeer) {
        if is_packet_in(order) {
            self.packet_ins.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn is_packet_in(order: &ToPeer) -> bool {
    matches!(order, ToPeer::PacketIn(..))
}

/// A connection that is ready to run.
#[derive(Debug)]
pub(crate) struct Peer {
    id: ConnectionId,
    to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
    inbox: Inbox,
    /// The place of an accepted connection.
    place: Option<Place>,
    /// True for an accepted connection: such tools receive no asynchronous messages until they ask
    /// for them by configuration, role or mask.
    is_quiet: bool,
    /// Space in bytes for packet-outs on their way to workers: a peer that sends more has to wait.
    room: Arc<Semaphore>,
    channel: Config,
    unsent: Unsent,
    /// The last [`FromPeer::Listens`].
    listens: bool,
    /// Deadline for writing pending output after the connection has ended.
    last_words_until: Option<Instant>,
}

impl Peer {
    pub(crate) fn new(
        id: ConnectionId,
        to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
        inbox: Inbox,
        place: Option<Place>,
        channel: Config,
    ) -> Self {
        let is_quiet = place.is_some();
        let (listens, last_words_until) = (false, None);
        let room = Arc::new(Semaphore::new(PACKET_OUT_ROOM));
        let unsent = Unsent::new(&channel);
        Self {
            id,
            to_server,
            inbox,
            place,
            is_quiet,
            room,
            channel,
            unsent,
            listens,
            last_words_until,
        }
    }

    /// Runs the connection until it ends or the server drops it.
    pub(crate) async fn run(mut self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Ended {
        let (reader, writer) = tokio::io::split(stream);
        let mut socket = Socket { reader, writer, is_flushed: true, buf: vec![0; READ_LEN] };
        let ended = self.serve(&mut socket).await;
        // In TLS this tells the peer that nothing was truncated; the peer may be gone.
        let _ = tokio::time::timeout(LAST_WORDS_TIME, socket.writer.shutdown()).await;
        ended
    }

    async fn serve(&mut self, socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>) -> Ended {
        let mut connection = SwitchConnection::new(self.channel, Instant::now());
        let mut was_ready = false;
        let end = |was_ready| Ended { was_ready, has_lasted: false, error: None };
        loop {
            while let Some(event) = connection.poll_event() {
                if event == SwitchEvent::Ready {
                    was_ready = true;
                    self.place.iter().for_each(Place::keep);
                }
                self.note_interest(&event);
                if self.tell_event(event).await.is_err() {
                    return end(was_ready);
                }
            }
            self.is_quiet &= !connection.has_set_async();
            if self.tell_interest(&connection, was_ready).await.is_err() {
                return end(was_ready);
            }
            let unsent = !connection.poll_transmit().is_empty();
            if connection.is_closed() && !(unsent && self.has_time_for_last_words()) {
                return end(was_ready);
            }
            if let Err(error) = self.step(&mut connection, socket).await {
                tracing::debug!("connection {}: {error}", self.id.0);
                self.tell_rest(&mut connection).await;
                return Ended { was_ready, has_lasted: false, error: Some(error) };
            }
        }
    }

    /// The stream broke: reports the remaining events and the end.
    async fn tell_rest(&self, connection: &mut SwitchConnection) {
        connection.handle_eof();
        while let Some(event) = connection.poll_event() {
            if self.tell_event(event).await.is_err() {
                return; // The server is gone.
            }
        }
    }

    async fn tell_event(&self, event: SwitchEvent) -> io::Result<()> {
        let SwitchEvent::Request(Message { body: Body::PacketOut(packet), .. }) = &event else {
            return self.tell(FromPeer::Event(event)).await;
        };
        let bytes = packet_out_weight(packet.data.len(), packet.actions.len());
        // A packet-out larger than the whole space is sent alone.
        let bytes = u32::try_from(bytes.min(PACKET_OUT_ROOM)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(bytes).await.map_err(io::Error::other)?;
        self.tell(FromPeer::PacketOut(event, room)).await
    }

    /// Waits for one event and handles it. Reading, writing and flushing may all be cancelled
    /// without loss.
    async fn step(
        &mut self,
        connection: &mut SwitchConnection,
        socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>,
    ) -> io::Result<()> {
        let timeout = connection.poll_timeout().or(self.last_words_until);
        // A peer that does not read the answers is not read either.
        let reads = !connection.is_closed() && !connection.is_busy();
        let Socket { reader, writer, is_flushed, buf } = socket;
        let output = connection.poll_transmit();
        let has_output = !output.is_empty();
        tokio::select! {
            len = reader.read(buf), if reads => match len {
                Ok(0) => connection.handle_eof(),
                Ok(len) => connection.handle_bytes(&buf[..len], Instant::now()),
                // In TLS, an end without close_notify; a truncated message is detected.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    connection.handle_eof();
                }
                Err(error) => return Err(error),
            },
            written = write_or_flush(writer, output), if has_output || !*is_flushed => {
                match written? {
                    0 => {}
                    len => {
                        connection.handle_transmitted(len, Instant::now());
                        self.unsent.handle_transmitted(len);
                    }
                }
                *is_flushed = !has_output;
            }
            order = self.inbox.recv() => match order {
                Some(order) => self.obey_all(connection, order)?,
                None => return Err(io::Error::other("the switch stops")),
            },
            () = sleep_until(timeout), if timeout.is_some() => {
                connection.handle_timeout(Instant::now());
            }
        }
        Ok(())
    }

    /// Executes a request and all that are pending: received bytes may cause many requests, so that
    /// handling one at a time would let them accumulate.
    fn obey_all(&mut self, connection: &mut SwitchConnection, first: ToPeer) -> io::Result<()> {
        self.obey(connection, first)?;
        for _ in 0..ORDER_COUNT {
            match self.inbox.try_recv() {
                Some(order) => self.obey(connection, order)?,
                None => break,
            }
        }
        Ok(())
    }

    fn obey(&mut self, connection: &mut SwitchConnection, order: ToPeer) -> io::Result<()> {
        let sent = match order {
            ToPeer::Reply(xid, body) => connection.reply(xid, body),
            ToPeer::Refuse(request, kind) => connection.refuse(&request, kind),
            ToPeer::AnswerRole(xid, request, answer) => {
                connection.answer_role(xid, request, answer)
            }
            ToPeer::Demote => {
                connection.set_role(ControllerRole::Slave);
                Ok(())
            }
            ToPeer::Notify(_) | ToPeer::PacketIn(..) if self.is_quiet => Ok(()),
            ToPeer::Notify(body) => connection.notify(body).map(|_| ()),
            ToPeer::PacketIn(packet, fate) => {
                self.unsent.tell(connection, packet, fate.as_deref());
                Ok(())
            }
        };
        // An ended connection reports that by its events.
        sent.or_else(|error| match error {
            SendError::NotOpen => Ok(()),
            SendError::Encode(error) => {
                let id = self.id.0;
                tracing::warn!(
                    "connection {id}: cannot encode a message, which was not sent: {error}"
                );
                Ok(())
            }
            error => Err(io::Error::other(error)),
        })
    }

    /// A peer that sends a configuration wants asynchronous messages, and so does one that requests
    /// a role, even if nothing changes. Querying the role does not count.
    fn note_interest(&mut self, event: &SwitchEvent) {
        self.is_quiet &= match event {
            SwitchEvent::Request(Message { body: Body::SetConfig(_), .. }) => false,
            SwitchEvent::RoleRequest { request, .. } => request.role == ControllerRole::NoChange,
            _ => true,
        };
    }

    /// Notifies the server of changes in whether packet-ins are wanted here.
    async fn tell_interest(
        &mut self,
        connection: &SwitchConnection,
        ready: bool,
    ) -> io::Result<()> {
        let AsyncConfig { master, slave } = connection.async_config();
        let mask = if connection.role() == ControllerRole::Slave { slave } else { master };
        let listens = ready && !connection.is_closed() && !self.is_quiet && mask.packet_in != 0;
        if listens == self.listens {
            return Ok(());
        }
        self.listens = listens;
        self.tell(FromPeer::Listens(listens)).await
    }

    /// Whether a peer that no longer reads still has time to take the pending output, such as the
    /// error that explains why the connection ended.
    fn has_time_for_last_words(&mut self) -> bool {
        let now = Instant::now();
        now < *self.last_words_until.get_or_insert(now + LAST_WORDS_TIME)
    }

    async fn tell(&self, news: FromPeer) -> io::Result<()> {
        let sent = self.to_server.send((self.id, news)).await;
        sent.map_err(|_| io::Error::other("the switch stops"))
    }
}

/// How a connection ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Whether the OpenFlow handshake was completed.
    pub(crate) was_ready: bool,
    /// Whether it lasted for a while.
    pub(crate) has_lasted: bool,
    /// The error of the socket or TLS.
    pub(crate) error: Option<io::Error>,
}

/// Both directions of a stream.
struct Socket<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    /// False while the TLS layer may hold unsent data.
    is_flushed: bool,
    buf: Vec<u8>,
}

/// Writes as much as possible, or flushes earlier data. Returns the number of bytes written.
async fn write_or_flush(
    writer: &mut (impl AsyncWrite + Unpin),
    output: &[u8],
) -> io::Result<usize> {
    if output.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    writer.write(output).await
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
    }
}

/// The cost of a packet-out of `len` bytes, in bytes: each action may send the packet once.
pub(crate) fn packet_out_weight(len: usize, actions: usize) -> usize {
    (len + PACKET_LEN_MIN) * actions.max(1)
}

/// Bytes whose copying takes as long as the fixed cost of a small packet.
const PACKET_LEN_MIN: usize = 1024;
/// Limit of the cost of a connection's packet-outs that wait for workers: a few dozen of their
/// turns.
const PACKET_OUT_ROOM: usize = 4 << 20;
/// Bytes per read.
const READ_LEN: usize = 64 << 10;
/// Requests that are executed before other events: more than one read can cause, which is 64 KiB of
/// messages of about seventy bytes each.
const ORDER_COUNT: usize = 1024;
/// Limit of packet-ins that wait for a connection, of at most 64 KiB each. A connection that wants
/// packet-ins gets fewer, as the space for reports is limited. Output that the connection has
/// accepted has a limit of its own.
const PACKET_IN_QUEUE_LEN: usize = 1024;
/// Time for a peer to take the output when the connection has ended. After that, the switch may
/// reconnect.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
