//! Small datagrams as fast as one core sends them, counted where the receiver's kernel accepts
//! them.
//!
//! 18 bytes of payload make frames of 60 bytes, 64 with the frame check sequence. A tap device
//! never makes its sender wait, so the result is the lower of the sender's and the forwarder's
//! rate. Nobody reads the receiver's socket: its queue fills up, which keeps the cost of an
//! application out of the measurement.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use clap::Args;
use tapswitch_netlink::Namespace;

use crate::process;

use super::candidate::Stage;

type Failure = Box<dyn std::error::Error>;

#[derive(Args, Clone, Debug)]
pub(crate) struct UdpFloodArgs {
    /// Destination, as ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) to: SocketAddr,
    /// Duration in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
}

/// Sends until the time is over.
pub(crate) fn main(args: &UdpFloodArgs) -> Result<(), Failure> {
    let unspecified: IpAddr = if args.to.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((unspecified, 0))?;
    socket.connect(args.to)?;
    let deadline = Instant::now() + Duration::from_secs(args.seconds);
    let payload = [0x5a; PAYLOAD_LEN];
    while Instant::now() < deadline {
        for _ in 0..BURST_COUNT {
            // An error caused by an earlier datagram is reported here, and this datagram is lost.
            let _ = socket.send(&payload);
        }
    }
    Ok(())
}

/// Datagrams per second that the receiver's kernel accepts while the sender floods. A frame
/// contains one of them unless the forwarder creates trains.
#[expect(clippy::cast_precision_loss, reason = "rates are shown with five digits")]
pub(crate) async fn rate(stage: &Stage, length: Duration) -> Result<f64, Failure> {
    let to = SocketAddr::from((stage.receiver().ipv4(), PORT));
    let _sink = stage.receiver().namespace.enter(move || UdpSocket::bind(to))??;
    let program = std::env::current_exe()?;
    let namespace: &Namespace = &stage.sender().namespace;
    let (to, seconds) = (to.to_string(), (length + WARM_UP * 2).as_secs().max(2).to_string());
    let args = ["bench", "udp-flood", "--to", &to, "--seconds", &seconds];
    let (program, args) = process::on_core(stage.host_core(), &program.to_string_lossy(), &args);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let _flood = process::start(namespace, &program, &args)?;
    tokio::time::sleep(WARM_UP).await;
    let (start, before) = (Instant::now(), stage.receiver().received_datagrams()?);
    tokio::time::sleep(length).await;
    let (elapsed, after) = (start.elapsed(), stage.receiver().received_datagrams()?);
    Ok((after - before) as f64 / elapsed.as_secs_f64())
}

const PAYLOAD_LEN: usize = 18;
const PORT: u16 = 9;
/// Datagrams between two reads of the clock.
const BURST_COUNT: usize = 1024;
const WARM_UP: Duration = Duration::from_millis(500);
