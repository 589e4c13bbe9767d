//! A controller's connection to one switch, byte by byte: messages may be wrong.

use std::io::{Read, Write};
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
    /// What it said by itself.
    events: Vec<Body>,
}

impl Peer {
    /// Says hello, and wants to be told of everything.
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

    /// Wants to be an equal of others, all of each packet, and to be told of everything.
    pub(crate) fn configure(&mut self) {
        let (role, generation_id) = (ControllerRole::Equal, 0);
        let (message_type, mut bytes) = (MessageType::RoleRequest as u8, Vec::new());
        Message { xid: 0, body: Body::RoleRequest(RoleMessage { role, generation_id }) }
            .encode(&mut bytes)
            .unwrap();
        self.ask(message_type, &bytes[Header::LEN..]).unwrap();
        let (flags, miss_send_len) = (ConfigFlags::FRAG_NORMAL, 0xffff);
        self.send(Body::SetConfig(SwitchConfig { flags, miss_send_len }));
        let all = AsyncMask { packet_in: 7, port_status: 0, flow_removed: 15 };
        self.send(Body::SetAsync(AsyncConfig { master: all, slave: all }));
    }

    /// Sends a message; answers its number.
    pub(crate) fn send(&mut self, body: Body) -> u32 {
        self.xid += 1;
        let mut bytes = Vec::new();
        Message { xid: self.xid, body }.encode(&mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
        self.xid
    }

    /// Sends a message of this type with these bytes behind its header; answers what it is
    /// answered, or why it is refused.
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

    /// Waits until all is done that was asked for; answers what was refused.
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

    /// Asks for statistics, whose reply must fit a message.
    pub(crate) fn statistics(&mut self, body: MultipartRequestBody) -> MultipartReplyBody {
        self.try_statistics(body).unwrap_or_else(|kind| panic!("{kind:?}"))
    }

    /// The same for a request that may be refused.
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

    /// What it has said by itself.
    pub(crate) fn events(&mut self) -> Vec<Body> {
        std::mem::take(&mut self.events)
    }

    /// The next message that is no echo.
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
            let len = self.stream.read(&mut chunk).unwrap();
            assert!(len > 0, "the switch has closed the connection");
            self.buffer.extend(&chunk[..len]);
        }
    }
}

/// What came before the answer to a barrier, but for events.
#[derive(Default)]
struct Passed {
    /// Numbers of messages, and why they are refused.
    refused: Vec<(u32, ErrorKind)>,
    answers: Vec<Body>,
}
