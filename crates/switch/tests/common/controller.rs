//! A controller driven by a test, which shows the switch's messages.

use std::collections::VecDeque;
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tapswitch_channel::{Config, ControllerConnection, ControllerEvent};
use tapswitch_openflow::{
    Body, ConfigFlags, ControllerRole, ErrorKind, FeaturesReply, FlowMod, FlowRemoved, GroupMod,
    Message, MultipartReplyBody, MultipartRequest, MultipartRequestBody, PacketIn, PortStatus,
    RoleMessage, SwitchConfig,
};
use tapswitch_switch::Endpoint;

use super::{PATIENCE, eventually};

pub(crate) struct Controller {
    stream: TcpStream,
    connection: ControllerConnection,
    pub(crate) features: FeaturesReply,
    /// Events that arrived while something else was waited for.
    events: VecDeque<ControllerEvent>,
}

/// A listener to which switches connect.
pub(crate) fn listen() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = Endpoint::tcp(listener.local_addr().unwrap());
    (listener, endpoint)
}

/// The next connection.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = eventually("a switch connects", || listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    stream
}

impl Controller {
    /// Connects to a switch and asks for its messages.
    pub(crate) fn connect(to: SocketAddr) -> Self {
        let mut controller = Self::over(TcpStream::connect(to).unwrap());
        controller.configure();
        controller
    }

    /// Waits for a switch to connect.
    pub(crate) fn accept(listener: &TcpListener) -> Self {
        Self::over(accept(listener))
    }

    /// Performs the handshake with the switch at the other end.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        stream.set_nodelay(true).unwrap();
        let connection = ControllerConnection::new(Config::default(), Instant::now());
        let features = FeaturesReply {
            datapath_id: tapswitch_openflow::DatapathId(0),
            n_buffers: 0,
            n_tables: 0,
            auxiliary_id: 0,
            capabilities: tapswitch_openflow::Capabilities::empty(),
        };
        let mut controller = Self { stream, connection, features, events: VecDeque::new() };
        controller.features = controller.wait("the handshake", |event| match event {
            ControllerEvent::Ready { features } => Some(features.clone()),
            _ => None,
        });
        controller
    }

    /// Requests whole packets; accepted connections get none before.
    pub(crate) fn configure(&mut self) {
        let config = SwitchConfig { flags: ConfigFlags::FRAG_NORMAL, miss_send_len: 0xffff };
        self.send(Body::SetConfig(config));
        self.barrier();
    }

    pub(crate) fn send(&mut self, body: Body) -> u32 {
        let xid = self.connection.send(body).unwrap();
        self.flush();
        xid
    }

    /// Sends several messages in one write.
    pub(crate) fn send_all(&mut self, bodies: Vec<Body>) -> Vec<u32> {
        let xids = bodies.into_iter().map(|body| self.connection.send(body).unwrap()).collect();
        self.flush();
        xids
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The reply to a request.
    pub(crate) fn request(&mut self, body: Body) -> Body {
        let sent = self.send(body);
        self.wait_and_keep("an answer", |event| match event {
            ControllerEvent::Reply { xid, body } if *xid == sent => Some(body.clone()),
            ControllerEvent::Error { xid, error } if *xid == sent => {
                panic!("{} instead of an answer", error.kind)
            }
            _ => None,
        })
    }

    pub(crate) fn statistics(&mut self, request: MultipartRequestBody) -> MultipartReplyBody {
        match self.request(Body::MultipartRequest(MultipartRequest::new(request))) {
            Body::MultipartReply(reply) => reply.body,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until all earlier messages are processed, without an error.
    pub(crate) fn barrier(&mut self) {
        assert_eq!(self.request(Body::BarrierRequest), Body::BarrierReply);
        let errors = self.events.iter().filter(|event| {
            matches!(event, ControllerEvent::Error { .. } | ControllerEvent::Refused(_))
        });
        assert_eq!(errors.collect::<Vec<_>>(), Vec::<&ControllerEvent>::new());
    }

    /// Changes rules and groups, and waits until the changes are in force.
    pub(crate) fn apply(&mut self, changes: Vec<Body>) {
        self.send_all(changes);
        self.barrier();
    }

    pub(crate) fn flow(&mut self, flow_mod: FlowMod) {
        self.apply(vec![Body::FlowMod(flow_mod)]);
    }

    pub(crate) fn group(&mut self, group_mod: GroupMod) {
        self.apply(vec![Body::GroupMod(group_mod)]);
    }

    /// Sends a message that the switch must refuse.
    pub(crate) fn refused(&mut self, body: Body) -> ErrorKind {
        let sent = self.send(body);
        self.error_for(sent)
    }

    pub(crate) fn error_for(&mut self, sent: u32) -> ErrorKind {
        self.wait_and_keep("an error", |event| match event {
            ControllerEvent::Error { xid, error } if *xid == sent => Some(error.kind),
            _ => None,
        })
    }

    pub(crate) fn role(&mut self, role: ControllerRole, generation_id: u64) -> ControllerRole {
        match self.request(Body::RoleRequest(RoleMessage { role, generation_id })) {
            Body::RoleReply(reply) => reply.role,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn packet_in(&mut self, wanted: impl Fn(&PacketIn) -> bool) -> PacketIn {
        self.wait("a packet-in", |event| match event {
            ControllerEvent::Message(Message { body: Body::PacketIn(packet), .. })
                if wanted(packet) =>
            {
                Some(packet.clone())
            }
            _ => None,
        })
    }

    pub(crate) fn flow_removed(&mut self) -> FlowRemoved {
        self.wait("flow-removed", |event| match event {
            ControllerEvent::Message(Message { body: Body::FlowRemoved(removed), .. }) => {
                Some(removed.clone())
            }
            _ => None,
        })
    }

    pub(crate) fn port_status(&mut self, wanted: impl Fn(&PortStatus) -> bool) -> PortStatus {
        self.wait("port-status", |event| match event {
            ControllerEvent::Message(Message { body: Body::PortStatus(status), .. })
                if wanted(status) =>
            {
                Some(status.clone())
            }
            _ => None,
        })
    }

    /// The events so far that nobody waited for.
    pub(crate) fn events(&self) -> impl Iterator<Item = &ControllerEvent> {
        self.events.iter()
    }

    /// Waits for one event and discards those before it.
    pub(crate) fn wait<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&ControllerEvent) -> Option<T>,
    ) -> T {
        while let Some(event) = self.events.pop_front() {
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(found) = self.next(deadline, what, &mut wanted) {
                return found;
            }
        }
    }

    /// Waits for one event and keeps those before it for later.
    fn wait_and_keep<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&ControllerEvent) -> Option<T>,
    ) -> T {
        if let Some(place) = self.events.iter().position(|event| wanted(event).is_some()) {
            let event = self.events.remove(place).unwrap();
            return wanted(&event).unwrap();
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.next(deadline, what, &mut wanted) {
                Ok(found) => return found,
                Err(event) => self.events.push_back(event),
            }
        }
    }

    /// The next event: what was wanted, or the event itself.
    fn next<T>(
        &mut self,
        deadline: Instant,
        what: &str,
        wanted: &mut impl FnMut(&ControllerEvent) -> Option<T>,
    ) -> Result<T, ControllerEvent> {
        loop {
            if let Some(event) = self.connection.poll_event() {
                let found = wanted(&event);
                let closed = matches!(event, ControllerEvent::Closed(_));
                assert!(!closed || found.is_some(), "waiting for {what}: {event:?}");
                return found.ok_or(event);
            }
            assert!(Instant::now() < deadline, "no answer in time: {what}");
            self.flush();
            self.read();
        }
    }

    fn read(&mut self) {
        let mut buf = [0; 65_536];
        match self.stream.read(&mut buf) {
            Ok(0) => self.connection.handle_eof(),
            Ok(len) => self.connection.handle_bytes(&buf[..len], Instant::now()),
            Err(error) if error.kind() == IoErrorKind::WouldBlock => {
                self.connection.handle_timeout(Instant::now());
            }
            Err(error) if error.kind() == IoErrorKind::ConnectionReset => {
                self.connection.handle_eof();
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn flush(&mut self) {
        let len = self.connection.poll_transmit().len();
        self.stream.write_all(self.connection.poll_transmit()).unwrap();
        self.connection.handle_transmitted(len, Instant::now());
    }
}
