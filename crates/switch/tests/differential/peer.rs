//! A controller's connection to one switch, on the level of bytes: messages may be invalid.

use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::net::TcpStream;

use tapswitch_openflow::{
    AsyncConfig, AsyncMask, Body, ConfigFlags, ControllerRole, ErrorKind, Header, Hello, Message,
    MessageType, MultipartReplyBody, MultipartRequest, MultipartRequestBody, RoleMessage,
    SwitchConfig, frame_len,
};

use crate::common::PATIENCE;

pub(crate) struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
    xid: u32,
    /// Asynchronous messages received so far.
    events: Vec<Body>,
}

impl Peer {
    /// Sends hello, and asks for all asynchronous messages.
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut peer = Self { stream, buffer: Vec::new(), xid: 1, events: Vec::new() };
        peer.send(Body::Hello(Hello::new()));
        assert!(matches!(peer.message().body, Body::Hello(_)));
        peer.configure();
        assert_eq!(peer.barrier(), []);
        peer
    }

    /// Requests the role EQUAL, few bytes of packets, and all asynchronous messages. Both switches
    /// send whole packets nevertheless, as they buffer none (1.3.5 §7.4.1).
    pub(crate) fn configure(&mut self) {
        let (role, generation_id) = (ControllerRole::Equal, 0);
        let (message_type, mut bytes) = (MessageType::RoleRequest as u8, Vec::new());
        Message { xid: 0, body: Body::RoleRequest(RoleMessage { role, generation_id }) }
            .encode(&mut bytes)
            .unwrap();
        self.ask(message_type, &bytes[Header::LEN..]).unwrap();
        let (flags, miss_send_len) = (ConfigFlags::FRAG_NORMAL, 20);
        self.send(Body::SetConfig(SwitchConfig { flags, miss_send_len }));
        let all = AsyncMask { packet_in: 7, port_status: 0, flow_removed: 15 };
        self.send(Body::SetAsync(AsyncConfig { master: all, slave: all }));
    }

    /// Sends a message. Returns its xid.
    pub(crate) fn send(&mut self, body: Body) -> u32 {
        self.xid += 1;
        let mut bytes = Vec::new();
        Message { xid: self.xid, body }.encode(&mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
        self.xid
    }

    /// Sends a message of this type with these bytes behind its header. Returns the replies, or why
    /// it is refused.
    pub(crate) fn ask(&mut self, message_type: u8, body: &[u8]) -> Result<Vec<Body>, ErrorKind> {
        self.xid += 1;
        let xid = self.xid;
        let len = u16::try_from(Header::LEN + body.len()).unwrap();
        let mut bytes = vec![tapswitch_openflow::VERSION, message_type];
        bytes.extend(len.to_be_bytes());
        bytes.extend(xid.to_be_bytes());
        bytes.extend(body);
        self.stream.write_all(&bytes).unwrap();
        let Passed { refused, answers } = self.wait();
        match refused.into_iter().find(|(refused, _)| *refused == xid) {
            Some((_, kind)) => Err(kind),
            None => Ok(answers),
        }
    }

    /// Waits until all earlier messages are processed. Returns the refusals.
    pub(crate) fn barrier(&mut self) -> Vec<(u32, ErrorKind)> {
        let Passed { refused, answers } = self.wait();
        assert_eq!(answers, [], "nobody asked");
        refused
    }

    fn wait(&mut self) -> Passed {
        let barrier = self.send(Body::BarrierRequest);
        let mut passed = Passed::default();
        loop {
            let Message { xid, body } = self.message();
            match body {
                Body::BarrierReply if xid == barrier => return passed,
                Body::Error(error) => passed.refused.push((xid, error.kind)),
                Body::PacketIn(_) | Body::FlowRemoved(_) | Body::PortStatus(_) => {
                    self.events.push(body);
                }
                answer => passed.answers.push(answer),
            }
        }
    }

    /// Requests statistics, whose reply must fit into one message.
    pub(crate) fn statistics(&mut self, body: MultipartRequestBody) -> MultipartReplyBody {
        self.try_statistics(body).unwrap_or_else(|kind| panic!("{kind:?}"))
    }

    /// As [`Self::statistics`], for a request that may be refused.
    pub(crate) fn try_statistics(
        &mut self,
        body: MultipartRequestBody,
    ) -> Result<MultipartReplyBody, ErrorKind> {
        let request = self.send(Body::MultipartRequest(MultipartRequest::new(body)));
        loop {
            let Message { xid, body } = self.message();
            match body {
                Body::MultipartReply(reply) if xid == request => {
                    assert!(!reply.more, "it fits a message");
                    return Ok(reply.body);
                }
                Body::Error(error) if xid == request => return Err(error.kind),
                event => self.events.push(event),
            }
        }
    }

    /// The asynchronous messages received so far.
    pub(crate) fn events(&mut self) -> Vec<Body> {
        std::mem::take(&mut self.events)
    }

    /// The next message except echo requests.
    fn message(&mut self) -> Message {
        loop {
            let bytes = self.bytes();
            match Message::decode(&bytes) {
                Ok(Message { body: Body::EchoRequest(data), xid }) => {
                    let mut bytes = Vec::new();
                    Message { xid, body: Body::EchoReply(data) }.encode(&mut bytes).unwrap();
                    self.stream.write_all(&bytes).unwrap();
                }
                Ok(message) => return message,
                Err(error) => panic!("{error}: {bytes:02x?}"),
            }
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut chunk = [0; 1 << 16];
        loop {
            if let Some(len) = frame_len(&self.buffer).unwrap()
                && self.buffer.len() >= len
            {
                let rest = self.buffer.split_off(len);
                return std::mem::replace(&mut self.buffer, rest);
            }
            let len = match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == IoErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            assert!(len > 0, "the switch has closed the connection");
            self.buffer.extend(&chunk[..len]);
        }
    }
}

/// Messages before a barrier reply, except asynchronous ones.
#[derive(Default)]
struct Passed {
    /// Xids of refused messages, and the errors.
    refused: Vec<(u32, ErrorKind)>,
    answers: Vec<Body>,
}
