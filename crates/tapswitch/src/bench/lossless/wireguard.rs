//! wireguard-go as a tunnel between two hosts, for comparison: in the paper the program that is
//! most sensitive to a short ring.
//!
//! It creates its tun device and its socket where it is started, at the end of the link; the device
//! is then moved to its host (wireguard.com, "Routing & Network Namespaces"). It is configured over
//! its socket (wireguard.com/xplatform, "Cross-platform Userspace Implementation"). It does not use
//! backpressure.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tapswitch_netlink::{Namespace, Netlink};
use tokio::process::Child;

use crate::hosts::{Host, INTERFACE};
use crate::process;

use super::Failure;
use super::stage::Losses;

/// A running end of a tunnel, ended on drop with its device.
#[derive(Debug)]
pub(super) struct WireGuard {
    _child: Child,
    /// Not removed by the program when it is killed.
    socket: PathBuf,
    host: Namespace,
}

/// One end of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    /// wireguard-go.
    pub(super) program: &'a Path,
    /// Namespace of the end of the link.
    pub(super) room: &'a Namespace,
    /// The host that gets the device.
    pub(super) host: &'a Host,
    /// Address of the other end of the link.
    pub(super) remote: Ipv4Addr,
    /// Length of the device's ring in frames.
    pub(super) queue: u32,
    pub(super) mtu: u32,
}

impl End<'_> {
    /// Starts it, and moves the device to the host, as an interface like any other.
    pub(super) async fn start(self) -> Result<WireGuard, Failure> {
        let name = format!("wg{}x{}", std::process::id() % 1_000_000, self.host.number);
        std::fs::create_dir_all(SOCKETS)?;
        let socket = Path::new(SOCKETS).join(format!("{name}.sock"));
        let program = self.program.display().to_string();
        let child = process::start(self.room, &program, &["-f", &name])?;
        let host = Namespace::clone(&self.host.namespace);
        let started = WireGuard { _child: child, socket, host };
        wait_for(&started.socket).await?;
        tell(&started.socket, &self.settings())?;
        let mut room = Netlink::open(self.room)?;
        room.move_to_namespace(&name, &started.host)?;
        let mut netlink = Netlink::open(&started.host)?;
        netlink.rename(&name, INTERFACE)?;
        netlink.set_txqueuelen(INTERFACE, self.queue)?;
        netlink.set_mtu(INTERFACE, self.mtu)?;
        netlink.add_address(INTERFACE, IpAddr::V4(self.host.ipv4()), 24)?;
        netlink.set_up(INTERFACE)?;
        Ok(started)
    }

    /// Its configuration.
    fn settings(&self) -> String {
        let (ours, theirs) = if self.host.number == 1 { (0, 1) } else { (1, 0) };
        let endpoint = SocketAddr::from((self.remote, PORT));
        format!(
            "set=1\nprivate_key={}\nlisten_port={PORT}\npublic_key={}\nendpoint={endpoint}\n\
             allowed_ip=0.0.0.0/0\n\n",
            KEYS[ours].0, KEYS[theirs].1
        )
    }
}

impl WireGuard {
    /// Losses before it, and after it at `up` in `room`.
    pub(super) fn losses(&self, room: &Namespace) -> Result<Losses, Failure> {
        let mut netlink = Netlink::open(&self.host)?;
        let dropped = netlink.link(INTERFACE)?.stats.tx_dropped;
        let shed = shed(&mut netlink, INTERFACE)? + shed(&mut Netlink::open(room)?, "up")?;
        Ok(Losses { drops: [("ring_full".to_owned(), dropped)].into(), shed })
    }
}

/// Drops of the root discipline of `name`.
fn shed(netlink: &mut Netlink, name: &str) -> Result<u64, Failure> {
    let qdiscs = netlink.qdiscs(name)?;
    Ok(qdiscs.iter().find(|it| it.is_root()).map_or(0, |it| it.drops))
}

impl Drop for WireGuard {
    fn drop(&mut self) {
        // It may have removed it itself.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Waits until a process listens at `socket`.
async fn wait_for(socket: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + START_LIMIT;
    while UnixStream::connect(socket).is_err() {
        if Instant::now() > deadline {
            return Err(format!("wireguard-go did not start within {START_LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// One request and its answer.
fn tell(socket: &Path, request: &str) -> Result<(), Failure> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(START_LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    let mut byte = [0];
    while !answer.ends_with("\n\n") && stream.read(&mut byte)? == 1 {
        answer.push(char::from(byte[0]));
    }
    if answer.starts_with("errno=0\n") {
        return Ok(());
    }
    Err(format!("wireguard-go refused its settings: {}", answer.trim()).into())
}

/// Directory of its sockets.
const SOCKETS: &str = "/var/run/wireguard";
const PORT: u16 = 51_820;
const START_LIMIT: Duration = Duration::from_secs(20);
/// Private and public keys of Alice and Bob (RFC 7748 §6.1), which are not secret.
const KEYS: [(&str, &str); 2] = [
    (
        "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
    ),
    (
        "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    ),
];
