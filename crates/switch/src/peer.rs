//! One OpenFlow connection: bytes in and out of a socket, the state machine between.

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

/// Room that a packet-out takes up until its worker is done with it.
pub(crate) type PacketOutRoom = OwnedSemaphorePermit;

/// What the server asks of a connection.
#[derive(Debug)]
pub(crate) enum ToPeer {
    /// Answer a request.
    Reply(u32, Body),
    /// Answer a request with an error.
    Refuse(Message, ErrorKind),
    /// Send an asynchronous message, if the controller wants such.
    Notify(Body),
    /// The same of a packet-in; with its fate where the controller is known to want it.
    PacketIn(PacketIn, Option<Arc<PacketFate>>),
    /// Answer a request for a role.
    AnswerRole(u32, RoleMessage, Result<RoleChange, ErrorKind>),
    /// The controller is slave now.
    Demote,
}

/// What a connection tells the server.
#[derive(Debug)]
pub(crate) enum FromPeer {
    /// The connection is new: how to reach it, and where it comes from.
    Opened { orders: Orders, origin: Origin },
    /// The connection is there for a while.
    Lasts,
    /// Something came of the connection.
    Event(SwitchEvent),
    /// The same, a packet-out; the room is free again when its packet was sent.
    PacketOut(SwitchEvent, PacketOutRoom),
    /// Whether frames for the controller are of use here.
    Listens(bool),
    /// The connection is gone; nothing follows.
    Gone,
}

/// Who made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The switch, to a controller; on trial while that hung up at once the last time.
    Controller { endpoint: Endpoint, is_on_trial: bool },
    /// Somebody who connected to the switch.
    Accepted,
}

/// The way to a connection.
#[derive(Debug)]
pub(crate) struct Orders {
    sender: mpsc::UnboundedSender<ToPeer>,
    /// Packet-ins on their way. What else there is, is bounded: by the requests that a connection
    /// hands out before they are answered, and by what changes in the switch.
    packet_ins: Arc<AtomicUsize>,
}

/// The other end of [`Orders`].
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

    /// Orders something. Returns `false` when a packet-in finds too many before it.
    pub(crate) fn send(&self, order: ToPeer) -> bool {
        if is_packet_in(&order) {
            // Relaxed: a bound on memory, which nothing else depends on.
            if self.packet_ins.load(Ordering::Relaxed) >= PACKET_IN_QUEUE_LEN {
                return false;
            }
            self.packet_ins.fetch_add(1, Ordering::Relaxed);
        }
        // A connection that has just ended wants no orders.
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

    /// What is ordered already.
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

/// A connection to be carried on.
#[derive(Debug)]
pub(crate) struct Peer {
    id: ConnectionId,
    to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
    inbox: Inbox,
    /// The place of who connects to the switch.
    place: Option<Place>,
    /// True for who connects to the switch: such tools get no asynchronous messages until they
    /// ask, by configuration, role or mask.
    is_quiet: bool,
    /// Room for packet-outs on their way to workers, in bytes: who sends more has to wait.
    room: Arc<Semaphore>,
    unsent: Unsent,
    /// What the server was told last.
    listens: bool,
    /// When to give up what still waits to be written, once the connection has ended.
    last_words_until: Option<Instant>,
}

impl Peer {
    pub(crate) fn new(
        id: ConnectionId,
        to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
        inbox: Inbox,
        place: Option<Place>,
    ) -> Self {
        let is_quiet = place.is_some();
        let (listens, last_words_until) = (false, None);
        let room = Arc::new(Semaphore::new(PACKET_OUT_ROOM));
        let unsent = Unsent::new(&Config::default());
        Self { id, to_server, inbox, place, is_quiet, room, unsent, listens, last_words_until }
    }

    /// Carries the connection on until it ends or the server lets it go.
    pub(crate) async fn run(mut self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Ended {
        let (reader, writer) = tokio::io::split(stream);
        let mut socket = Socket { reader, writer, is_flushed: true, buf: vec![0; READ_LEN] };
        let ended = self.serve(&mut socket).await;
        // By TLS this says that nothing was cut off; nobody need be there to hear it.
        let _ = tokio::time::timeout(LAST_WORDS_TIME, socket.writer.shutdown()).await;
        ended
    }

    async fn serve(&mut self, socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>) -> Ended {
        let mut connection = SwitchConnection::new(Config::default(), Instant::now());
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

    /// The stream broke. What came before is told, and that it ended.
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
        // As much as there is at most has room, and one that is larger goes alone.
        let bytes = u32::try_from(bytes.min(PACKET_OUT_ROOM)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(bytes).await.map_err(io::Error::other)?;
        self.tell(FromPeer::PacketOut(event, room)).await
    }

    /// Waits for one thing and does it. Reading, writing and flushing may all be given up while
    /// they wait, and nothing is lost.
    async fn step(
        &mut self,
        connection: &mut SwitchConnection,
        socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>,
    ) -> io::Result<()> {
        let timeout = connection.poll_timeout().or(self.last_words_until);
        // Who does not read the answers is not asked for more.
        let reads = !connection.is_closed() && !connection.is_busy();
        let Socket { reader, writer, is_flushed, buf } = socket;
        let output = connection.poll_transmit();
        let has_output = !output.is_empty();
        tokio::select! {
            len = reader.read(buf), if reads => match len {
                Ok(0) => connection.handle_eof(),
                Ok(len) => connection.handle_bytes(&buf[..len], Instant::now()),
                // By TLS, an end without a farewell; a message that was cut off is noticed.
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

    /// Does what was ordered, and what is ordered already: bytes that come in make many orders, so
    /// that one at a time would leave more and more of them.
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
        // A connection that has ended says so by its events.
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

    /// Who configures the switch's messages wants them, and who takes a role: that counts, not
    /// whether it changes anything. To ask which role one has is no wish.
    fn note_interest(&mut self, event: &SwitchEvent) {
        self.is_quiet &= match event {
            SwitchEvent::Request(Message { body: Body::SetConfig(_), .. }) => false,
            SwitchEvent::RoleRequest { request, .. } => request.role == ControllerRole::NoChange,
            _ => true,
        };
    }

    /// Tells the server when it has changed whether frames for the controller are of use here.
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

    /// Whether who does not read any more still has time to take what waits, such as the error
    /// that says why the connection ended.
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
    /// Whether it was ever of use.
    pub(crate) was_ready: bool,
    /// Whether it was there for a while.
    pub(crate) has_lasted: bool,
    /// What the socket said, or TLS.
    pub(crate) error: Option<io::Error>,
}

/// Both directions of a stream.
struct Socket<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    /// False while TLS may hold something that it was given.
    is_flushed: bool,
    buf: Vec<u8>,
}

/// Writes as much as goes, or what was written before; returns how much.
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

/// What a packet-out of `len` bytes costs, in bytes of a packet: each action may send it once.
pub(crate) fn packet_out_weight(len: usize, actions: usize) -> usize {
    (len + PACKET_LEN_MIN) * actions.max(1)
}

/// Bytes that take as long to copy as a small packet takes for everything else.
const PACKET_LEN_MIN: usize = 1024;
/// What packet-outs of one connection may cost that wait for their workers: a few dozen of their
/// turns.
const PACKET_OUT_ROOM: usize = 4 << 20;
/// Bytes read at once.
const READ_LEN: usize = 64 << 10;
/// Orders that are obeyed before anything else is looked at: more than the bytes that are read at
/// once can lead to, which are 64 KiB of messages of some seventy bytes each.
const ORDER_COUNT: usize = 1024;
/// Packet-ins that may wait for a connection; each has at most 64 KiB. Who listens gets fewer than
/// that, by the room for reports. What the connection has taken is bounded by its own limit.
const PACKET_IN_QUEUE_LEN: usize = 1024;
/// Time for a peer to take what was written when the connection ended. After that it does not
/// keep the switch from connecting again.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
