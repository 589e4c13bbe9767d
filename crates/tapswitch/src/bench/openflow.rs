//! A minimal controller that installs rules in a switch and disconnects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tapswitch_channel::{Config, ControllerConnection, ControllerEvent};
use tapswitch_openflow::{Body, FlowMod};

type Failure = Box<dyn std::error::Error>;

/// Adds `rules` to the switch that listens at `to`. They are in force when this returns.
pub(crate) fn install(to: SocketAddr, rules: Vec<FlowMod>) -> Result<(), Failure> {
    let mut client = Client::connect(to)?;
    client.wait(|event| matches!(event, ControllerEvent::Ready { .. }))?;
    for rule in rules {
        client.connection.send(Body::FlowMod(rule))?;
    }
    let barrier = client.connection.send(Body::BarrierRequest)?;
    client.wait(|event| matches!(event, ControllerEvent::Reply { xid, .. } if *xid == barrier))
}

struct Client {
    stream: TcpStream,
    connection: ControllerConnection,
}

impl Client {
    /// Connects as soon as the switch listens.
    fn connect(to: SocketAddr) -> Result<Self, Failure> {
        let deadline = Instant::now() + LIMIT;
        let stream = loop {
            match TcpStream::connect(to) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => {
                    return Err(format!("the switch at {to} does not listen: {error}").into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self {
            stream,
            connection: ControllerConnection::new(Config::default(), Instant::now()),
        })
    }

    /// Waits for an event. A refusal of the switch is an error.
    fn wait(&mut self, wanted: impl Fn(&ControllerEvent) -> bool) -> Result<(), Failure> {
        loop {
            while let Some(event) = self.connection.poll_event() {
                match event {
                    event if wanted(&event) => return Ok(()),
                    ControllerEvent::Error { error, .. } => {
                        return Err(format!("the switch refused a rule: {}", error.kind).into());
                    }
                    ControllerEvent::Closed(reason) => {
                        return Err(format!("the switch closed the connection: {reason}").into());
                    }
                    _ => {}
                }
            }
            self.exchange()?;
        }
    }

    /// Writes pending bytes, then reads.
    fn exchange(&mut self) -> Result<(), Failure> {
        let waiting = self.connection.poll_transmit();
        let len = waiting.len();
        self.stream.write_all(waiting)?;
        self.connection.handle_transmitted(len, Instant::now());
        let mut buf = [0; 4096];
        match self.stream.read(&mut buf)? {
            0 => self.connection.handle_eof(),
            len => self.connection.handle_bytes(&buf[..len], Instant::now()),
        }
        Ok(())
    }
}

/// How long a switch may take to start, and to answer.
const LIMIT: Duration = Duration::from_secs(10);
