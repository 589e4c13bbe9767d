//! One OpenFlow connection: bytes in and out of a socket, the state machine between.

use std::io;
use std::time::Instant;

use tapswitch_channel::{
    CloseReason, Config, ConnectionId, RoleChange, SendError, SwitchConnection, SwitchEvent,
};
use tapswitch_openflow::{AsyncConfig, Body, ControllerRole, ErrorKind, Message, RoleMessage};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// What the server asks of a connection.
#[derive(Debug)]
pub(crate) enum ToPeer {
    /// Answer a request.
    Reply(u32, Body),
    /// Answer a request with an error.
    Refuse(Message, ErrorKind),
    /// Send an asynchronous message, if the controller wants such.
    Notify(Body),
    /// Answer a request for a role.
    AnswerRole(u32, RoleMessage, Result<RoleChange, ErrorKind>),
    /// The controller is slave now.
    Demote,
}

/// What a connection tells the server.
#[derive(Debug)]
pub(crate) enum FromPeer {
    /// Something came of the connection.
    Event(SwitchEvent),
    /// A frame for the controller found the connection congested.
    PacketInLost(Body),
}

/// A connection to be carried on.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: ConnectionId,
    pub(crate) stream: TcpStream,
    pub(crate) to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
    pub(crate) inbox: mpsc::UnboundedReceiver<ToPeer>,
    /// True for who connects to the switch: such tools get no asynchronous messages until they
    /// ask, by configuration, role or mask.
    pub(crate) is_quiet: bool,
}

impl Peer {
    /// Carries the connection on until it ends or the server lets it go. Returns whether it was
    /// ever of use.
    pub(crate) async fn run(mut self) -> bool {
        let mut connection = SwitchConnection::new(Config::default(), Instant::now());
        let mut was_ready = false;
        let mut buf = vec![0; READ_LEN];
        loop {
            while let Some(event) = connection.poll_event() {
                was_ready |= event == SwitchEvent::Ready;
                self.note_interest(&event);
                if self.tell(FromPeer::Event(event)).await.is_err() {
                    return was_ready;
                }
            }
            let unsent = !connection.poll_transmit().is_empty();
            if connection.is_closed() && !unsent {
                return was_ready;
            }
            if let Err(error) = self.step(&mut connection, &mut buf, unsent).await {
                let reason = CloseReason::Eof;
                tracing::debug!("connection {}: {error}", self.id.0);
                // The server is gone when it does not want to hear it.
                let _ = self.tell(FromPeer::Event(SwitchEvent::Closed(reason))).await;
                return was_ready;
            }
        }
    }

    /// Waits for one thing and does it.
    async fn step(
        &mut self,
        connection: &mut SwitchConnection,
        buf: &mut [u8],
        unsent: bool,
    ) -> io::Result<()> {
        let timeout = connection.poll_timeout();
        // Who does not read the answers is not asked for more.
        let reads = !connection.is_closed() && !connection.is_busy();
        tokio::select! {
            readable = self.stream.readable(), if reads => {
                readable?;
                match self.stream.try_read(buf) {
                    Ok(0) => connection.handle_eof(),
                    Ok(len) => connection.handle_bytes(&buf[..len], Instant::now()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            writable = self.stream.writable(), if unsent => {
                writable?;
                match self.stream.try_write(connection.poll_transmit()) {
                    Ok(len) => connection.handle_transmitted(len, Instant::now()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            order = self.inbox.recv() => match order {
                Some(order) => self.obey(connection, order).await?,
                None => return Err(io::Error::other("the switch stops")),
            },
            () = sleep_until(timeout), if timeout.is_some() => {
                connection.handle_timeout(Instant::now());
            }
        }
        Ok(())
    }

    async fn obey(&self, connection: &mut SwitchConnection, order: ToPeer) -> io::Result<()> {
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
            ToPeer::Notify(_) if self.is_quiet && has_defaults(connection) => Ok(()),
            ToPeer::Notify(body) => return self.notify(connection, body).await,
        };
        // A connection that has ended says so by its events.
        sent.or_else(|error| match error {
            SendError::NotOpen => Ok(()),
            error => Err(io::Error::other(error)),
        })
    }

    async fn notify(&self, connection: &mut SwitchConnection, body: Body) -> io::Result<()> {
        let packet_in = matches!(body, Body::PacketIn(_)).then(|| body.clone());
        match (connection.notify(body), packet_in) {
            (Err(SendError::Busy { .. }), Some(body)) => {
                self.tell(FromPeer::PacketInLost(body)).await
            }
            _ => Ok(()),
        }
    }

    /// Who configures the switch's messages wants them.
    fn note_interest(&mut self, event: &SwitchEvent) {
        if let SwitchEvent::Request(Message { body: Body::SetConfig(_), .. }) = event {
            self.is_quiet = false;
        }
    }

    async fn tell(&self, news: FromPeer) -> io::Result<()> {
        let sent = self.to_server.send((self.id, news)).await;
        sent.map_err(|_| io::Error::other("the switch stops"))
    }
}

fn has_defaults(connection: &SwitchConnection) -> bool {
    connection.role() == ControllerRole::Equal
        && *connection.async_config() == AsyncConfig::default()
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
    }
}

/// Bytes read at once.
const READ_LEN: usize = 64 << 10;
