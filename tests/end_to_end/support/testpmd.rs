//! DPDK's `dpdk-testpmd` with guests' network devices (`net_virtio_user`), as a peer of the switch.
//!
//! ```text
//!  net_pcap ──> guest 0 ── switch ── guest 1 ──> net_null
//! ```
//! A file of frames, read in a loop, feeds the first guest; frames to the second are discarded. So
//! the sender never stops, whatever happens to the switch.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket,
    sockopt,
};
use serde_json::Value;
use tapswitch_netlink::die_with_parent;

use super::{eventually, is_installed, number, skip, until};

/// A running testpmd, stopped on drop.
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    telemetry: OwnedFd,
    log: PathBuf,
}

/// Configuration of its guests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guests<'a> {
    /// Sockets of the sender and of the receiver.
    pub(crate) sockets: [&'a Path; 2],
    /// It listens at them; otherwise it connects.
    pub(crate) server: bool,
    pub(crate) packed: bool,
    pub(crate) mergeable: bool,
    pub(crate) in_order: bool,
    pub(crate) queues: u16,
}

impl Testpmd {
    /// True if it is installed with all that it needs; otherwise reports the test as skipped.
    pub(crate) fn is_there() -> bool {
        let missing = |plug_in: &str| !Path::new(PLUG_INS).join(plug_in).exists();
        if is_installed(PROGRAM) && !DRIVERS.iter().any(|plug_in| missing(plug_in)) {
            return true;
        }
        skip(
            "no dpdk-testpmd; install dpdk-dev librte-net-virtio23 librte-net-pcap23 \
              librte-net-null23 librte-mempool-ring23",
        )
    }

    /// Starts it and returns at once, before a switch is there. Files go into `directory`.
    pub(crate) fn spawn(guests: Guests<'_>, directory: &Path) -> Starting {
        if guests.server {
            // It does not replace sockets of an earlier one.
            for socket in guests.sockets {
                let _ = std::fs::remove_file(socket);
            }
        }
        let frames = directory.join("frames.pcap");
        write_frames(&frames);
        // A runtime directory of its own: a killed testpmd leaves its directory behind.
        let runtime = tempfile::tempdir_in(directory).unwrap().keep();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Otherwise SIGPIPE kills it when a switch is gone.
        let mut command = Command::new("env");
        command.args([
            "--ignore-signal=PIPE",
            PROGRAM,
            "--no-huge",
            "-m",
            "256",
            "--no-pci",
            "--file-prefix=guests",
        ]);
        command.arg(format!("--lcores=(0,1)@(0-{})", cores - 1));
        command.args(guests.devices(&frames));
        command.args(["--", "-i", "--forward-mode=io", "--port-topology=paired", "--no-flush-rx"]);
        command.args(["--total-num-mbufs=4096", "--nb-cores=1"]);
        let queues = guests.queues;
        command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
        command.env("RUNTIME_DIRECTORY", &runtime);
        let log = File::create(runtime.join("log")).unwrap();
        command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = die_with_parent(&mut command).spawn().unwrap();
        Starting { child: Some(child), runtime }
    }

    /// Enters a command at its prompt.
    pub(crate) fn command(&mut self, command: &str) {
        self.input.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Frames that the first guest has sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.count(1, "opackets")
    }

    /// Frames that the second guest has received so far.
    pub(crate) fn received(&self) -> u64 {
        self.count(2, "ipackets")
    }

    /// How often it has noticed that a switch connected or disconnected.
    pub(crate) fn link_changes(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.matches("link state change event").count()
    }

    /// Stops sending, and waits until nothing more is sent.
    pub(crate) fn stop_sending(&mut self) {
        self.command("stop");
        let mut sent = self.sent();
        eventually("the end of sending", || {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.sent();
            let same = now == sent;
            sent = now;
            same.then_some(())
        });
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn count(&self, device: usize, name: &str) -> u64 {
        number(&self.ask(device)[name])
    }

    /// The counters of a device; null before the device exists.
    fn ask(&self, device: usize) -> Value {
        let question = format!("/ethdev/stats,{device}");
        retry_on_intr(|| send(&self.telemetry, question.as_bytes(), SendFlags::NOSIGNAL)).unwrap();
        answer(&self.telemetry)["/ethdev/stats"].take()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- testpmd ---\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A testpmd that has not found a switch at both sockets yet.
pub(crate) struct Starting {
    child: Option<Child>,
    runtime: PathBuf,
}

impl Starting {
    /// Waits until it has.
    pub(crate) fn ready(mut self) -> Testpmd {
        let path = self.runtime.join("dpdk/guests/dpdk_telemetry.v2");
        let telemetry = eventually("testpmd's telemetry", || {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "it has ended: {}", self.log());
            try_connect(&path)
        });
        let mut child = self.child.take().unwrap();
        let input = child.stdin.take().unwrap();
        let testpmd = Testpmd { child, input, telemetry, log: self.runtime.join("log") };
        until("its devices", || testpmd.ask(2).is_object());
        testpmd
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.runtime.join("log")).unwrap_or_default()
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Guests<'_> {
    /// Ordered by number: the source, both guests, the sink.
    fn devices(&self, frames: &Path) -> [String; 4] {
        let guest = |index: usize| {
            let mut device = format!("--vdev=net_virtio_user{index},path=");
            write!(device, "{},queues={}", self.sockets[index].display(), self.queues).unwrap();
            let options = [
                ("server", self.server),
                ("packed_vq", self.packed),
                ("mrg_rxbuf", self.mergeable),
                ("in_order", self.in_order),
            ];
            for (name, on) in options {
                write!(device, ",{name}={}", u8::from(on)).unwrap();
            }
            device
        };
        // One file for each queue of the source.
        let files = format!(",rx_pcap={}", frames.display()).repeat(self.queues.into());
        let source = format!("--vdev=net_pcap0{files},infinite_rx=1");
        [source, guest(0), guest(1), "--vdev=net_null0,no-rx=1".to_owned()]
    }
}

fn try_connect(path: &Path) -> Option<OwnedFd> {
    let telemetry = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let limit = Some(Duration::from_secs(10));
    sockopt::set_socket_timeout(&telemetry, sockopt::Timeout::Recv, limit).unwrap();
    connect(&telemetry, &SocketAddrUnix::new(path).unwrap()).ok()?;
    answer(&telemetry); // Greeting.
    Some(telemetry)
}

fn answer(telemetry: &OwnedFd) -> Value {
    let mut buf = vec![0; 16 * 1024];
    let (len, _) = retry_on_intr(|| recv(telemetry, &mut buf[..], RecvFlags::empty())).unwrap();
    serde_json::from_slice(&buf[..len]).unwrap()
}

/// A file of 64 frames of 60 to 1323 bytes, in sixteen flows between two stations.
fn write_frames(file: &Path) {
    let mut pcap = Vec::new();
    // The file header: byte order, version 2.4, snapshot length, Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        pcap.extend(word.to_le_bytes());
    }
    for number in 0..64_u8 {
        let len = 60 + u32::from(number / 16) * 421;
        let mut frame = vec![0; len as usize];
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        // An experimental EtherType, and a byte that distinguishes flows.
        frame[12..15].copy_from_slice(&[0x88, 0xb5, number % 16]);
        for word in [0, 0, len, len] {
            pcap.extend(word.to_le_bytes());
        }
        pcap.extend(frame);
    }
    std::fs::write(file, pcap).unwrap();
}

const PROGRAM: &str = "dpdk-testpmd";
const PLUG_INS: &str = "/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0";
const DRIVERS: [&str; 4] = [
    "librte_net_virtio.so.23",
    "librte_net_pcap.so.23",
    "librte_net_null.so.23",
    "librte_mempool_ring.so.23",
];
