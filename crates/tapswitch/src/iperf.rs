//! Runs iperf3 and parses its JSON.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tapswitch_netlink::Namespace;
use tokio::process::Child;

use crate::process::{self, ProcessError};

/// Results of one run, at the receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Iperf {
    pub(crate) bits_per_second: f64,
    /// Lost datagrams.
    pub(crate) lost_percent: f64,
    /// Retransmitted segments; zero for UDP.
    pub(crate) retransmits: u64,
}

impl Iperf {
    pub(crate) fn gbps(&self) -> f64 {
        self.bits_per_second / 1e9
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.bits_per_second > 0.0
    }
}

/// Starts a server in `namespace` and waits until it listens. Restarts it if it exits: the previous
/// server, killed a moment ago, may still hold the port.
pub(crate) async fn serve(namespace: &Namespace) -> Result<Child, IperfError> {
    let start = || process::start(namespace, "iperf3", &["-s"]);
    let deadline = Instant::now() + START_LIMIT;
    let mut server = start()?;
    while !server.id().is_some_and(listens) {
        if Instant::now() > deadline {
            return Err(IperfError::NoServer);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        if matches!(server.try_wait(), Ok(Some(_))) {
            server = start()?;
        }
    }
    Ok(server)
}

/// Sends TCP from `namespace` to the server at `target`; `more` are additional arguments.
pub(crate) async fn tcp(
    namespace: &Namespace,
    target: IpAddr,
    length: Duration,
    more: &[&str],
) -> Result<Iperf, IperfError> {
    let output = run(namespace, target, length, more).await?;
    let End { sum_received, sum_sent, .. } = output.end;
    let received = sum_received.ok_or(IperfError::NoSum)?;
    Ok(Iperf {
        bits_per_second: received.bits_per_second,
        retransmits: sum_sent.and_then(|sent| sent.retransmits).unwrap_or_default(),
        ..Iperf::default()
    })
}

/// Sends a stream of UDP datagrams at a moderate rate.
pub(crate) async fn udp(
    namespace: &Namespace,
    target: IpAddr,
    length: Duration,
) -> Result<Iperf, IperfError> {
    let output = run(namespace, target, length, &["-u", "-b", "500M", "-l", "1400"]).await?;
    let sum = output.end.sum.ok_or(IperfError::NoSum)?;
    let lost_percent = sum.lost_percent.unwrap_or_default();
    let bits_per_second = sum.bits_per_second * (100.0 - lost_percent) / 100.0;
    Ok(Iperf { bits_per_second, lost_percent, retransmits: 0 })
}

async fn run(
    namespace: &Namespace,
    target: IpAddr,
    length: Duration,
    more: &[&str],
) -> Result<Output, IperfError> {
    let (target, seconds) = (target.to_string(), format!("{:.1}", length.as_secs_f64()));
    let args = [&["-J", "-c", &target, "-t", &seconds], more].concat();
    let text = process::run(namespace, "iperf3", &args, length + GRACE).await?;
    let output: Output = serde_json::from_str(&text)?;
    match output.error {
        Some(error) => Err(IperfError::Said(error)),
        None => Ok(output),
    }
}

/// Whether the process listens on iperf3's port, according to the socket table of its namespace.
fn listens(pid: u32) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let path = format!("/proc/{pid}/net/{table}");
        let sockets = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
        sockets.lines().any(is_listening)
    })
}

/// Parses a line of `/proc/PID/net/tcp`: number, local address, remote address, state (proc(5)).
fn is_listening(line: &str) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state) = (words.next(), words.next(), words.next());
    local.is_some_and(|local| local.ends_with(PORT_SUFFIX)) && state == Some(LISTEN)
}

#[derive(Deserialize)]
struct Output {
    error: Option<String>,
    #[serde(default)]
    end: End,
}

#[derive(Default, Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sum: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    #[serde(default)]
    bits_per_second: f64,
    lost_percent: Option<f64>,
    retransmits: Option<u64>,
}

/// Error of running iperf3.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IperfError {
    /// It could not be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It did not start listening.
    #[error("iperf3: the server did not start to listen within five seconds")]
    NoServer,
    /// It reported an error.
    #[error("iperf3: {0}")]
    Said(String),
    /// Its output could not be parsed.
    #[error("iperf3: cannot parse its output: {0}")]
    Output(#[from] serde_json::Error),
    /// Its output contains no sum.
    #[error("iperf3: its output has no summary")]
    NoSum,
}

/// Default port of iperf3.
pub(crate) const PORT: u16 = 5201;
/// The same in hexadecimal, as in the kernel's socket tables.
const PORT_SUFFIX: &str = ":1451";
/// `TCP_LISTEN` (Linux `include/net/tcp_states.h`).
const LISTEN: &str = "0A";
const START_LIMIT: Duration = Duration::from_secs(5);
/// Time that a run may take beyond its length.
const GRACE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_recognised() {
        let line = "   0: 00000000:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0";
        assert!(is_listening(line));
        assert!(!is_listening(&line.replace("0A", "01")));
        assert!(!is_listening(&line.replace(":1451", ":1452")));
        assert!(!is_listening("  sl  local_address rem_address   st tx_queue rx_queue tr"));
    }

    #[test]
    fn a_sum_is_read() {
        let text = r#"{"end":{"sum":{"bits_per_second":10,"lost_percent":20}}}"#;
        let output: Output = serde_json::from_str(text).unwrap();
        assert_eq!(output.end.sum.unwrap().lost_percent, Some(20.0));
    }
}
