//! Counters of a DPDK program, read from its telemetry socket: exact and current, unlike its
//! printed statistics.
//!
//! The socket keeps message boundaries (`SOCK_SEQPACKET`); an answer is one JSON object with the
//! question as its key.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};
use serde::Deserialize;
use serde_json::Value;

type Failure = Box<dyn std::error::Error>;

/// A connection to a DPDK program.
#[derive(Debug)]
pub(super) struct Telemetry(OwnedFd);

/// Frames that an Ethernet device of it has received and sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct PortCounts {
    #[serde(rename = "ipackets")]
    pub(super) received: u64,
    #[serde(rename = "opackets")]
    pub(super) sent: u64,
}

impl Telemetry {
    /// Connects to the program with this runtime directory, as soon as it listens.
    pub(super) async fn connect(runtime: &Path, limit: Duration) -> Result<Self, Failure> {
        let path = runtime.join("dpdk_telemetry.v2");
        let deadline = Instant::now() + limit;
        loop {
            match Self::try_connect(&path) {
                Ok(telemetry) => return Ok(telemetry),
                Err(error) if Instant::now() > deadline => {
                    return Err(format!("no telemetry at {}: {error}", path.display()).into());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn try_connect(path: &Path) -> Result<Self, Failure> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_LIMIT))?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let telemetry = Self(socket);
        telemetry.answer()?; // The greeting.
        Ok(telemetry)
    }

    /// Counters of the device with this number.
    pub(super) fn counts(&self, device: usize) -> Result<PortCounts, Failure> {
        let question = format!("/ethdev/stats,{device}");
        retry_on_intr(|| send(&self.0, question.as_bytes(), SendFlags::NOSIGNAL))?;
        let mut answer = self.answer()?;
        Ok(serde_json::from_value(answer["/ethdev/stats"].take())?)
    }

    fn answer(&self) -> Result<Value, Failure> {
        let mut buf = vec![0; ANSWER_LEN];
        let (len, _) = retry_on_intr(|| recv(&self.0, &mut buf[..], RecvFlags::empty()))?;
        Ok(serde_json::from_slice(&buf[..len])?)
    }
}

/// Maximum length of an answer, as announced in the greeting.
const ANSWER_LEN: usize = 16 * 1024;
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
