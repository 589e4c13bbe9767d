//! A virtual machine with VLAN devices of its own, an 802.1Q one on an 802.1ad one, behind its
//! VMM's tap device; a host at the other end of a `dot1q-tunnel` port, without tags.
//!
//! ```text
//!  Linux 6.1 or 7.3        QEMU          switch                customer's switch      host
//!  c10 on s100 on eth0 ── virtio ── vm0 ── provider │ dot1q-tunnel ── trunk │ access ── t2
//!                 S+C tags                          S                 C
//! ```
//! All of that runs on the machine's own kernel, which needs no 8021q: the switches do the tagging.
//! Checksums and trains that the guest's virtio_net leaves undone pass through QEMU, the tap
//! device, a packet socket and two switches, and back.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::thread;

use tapswitch_guest::{Error, Guest, Kernel, Outcome, Series, inside};
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tempfile::TempDir;

use crate::support::*;

#[test]
fn with_linux_6_1_talks_through_a_tunnel_port() {
    talk(Series::V6_1, &["virtio_pci", "virtio_net", "8021q"]);
}

#[test]
fn with_linux_7_3_talks_through_a_tunnel_port() {
    // Its virtio_pci is built in.
    talk(Series::V7_3, &["virtio_net", "8021q"]);
}

/// The part that runs in the machine.
#[test]
fn inside_its_devices_get_what_was_sent() {
    if inside().is_none() || !std::path::Path::new("/sys/class/net/eth0").exists() {
        return;
    }
    // A provider port accepts no untagged frames: the guest must not send any.
    std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
    let mut netlink = Netlink::open(&Namespace::current().unwrap()).unwrap();
    netlink.set_up("eth0").unwrap();
    netlink.create_service_vlan("s100", "eth0", 100).unwrap();
    netlink.set_up("s100").unwrap();
    netlink.create_vlan("c10", "s100", 10).unwrap();
    netlink.set_up("c10").unwrap();
    netlink.add_address("c10", IpAddr::V4(GUEST), 24).unwrap();
    assert_eq!(["eth0", "s100", "c10"].map(|name| netlink.link(name).unwrap().mtu), [1500; 3]);
    eventually("an echo of a full-size datagram", || {
        let socket = UdpSocket::bind((GUEST, 0)).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        // Linux sets "don't fragment" (ip(7), `IP_MTU_DISCOVER`).
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(1472).collect();
        socket.send_to(&sent, (HOST, PORT)).unwrap();
        let mut buf = [0; 2000];
        let (len, _) = socket.recv_from(&mut buf).ok()?;
        (buf[..len] == sent).then_some(())
    });
    let mut stream = TcpStream::connect((HOST, PORT)).unwrap();
    let sent: Vec<u8> = (0..=250).cycle().take(LEN).collect();
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::with_capacity(LEN);
    stream.read_to_end(&mut received).unwrap();
    assert!(received == sent, "other bytes came back");
    assert_eq!(checksum_errors(&Namespace::current().unwrap()), 0);
}

fn talk(series: Series, modules: &[&str]) {
    if inside().is_some() || !can_run(&[]) {
        return;
    }
    // A kernel that crashes while it boots, because of the emulation, takes its tap device along.
    for _ in 1..BOOT_COUNT {
        if try_to_talk(series, modules) {
            return;
        }
    }
    assert!(try_to_talk(series, modules), "the guest's kernel does not boot");
}

fn try_to_talk(series: Series, modules: &[&str]) -> bool {
    let lab = Lab::new();
    let ended = thread::scope(|scope| {
        let guest = scope.spawn(|| lab.room.enter(|| run(series, modules)).unwrap());
        // It may end before it has a device, if it cannot run here.
        let has_device = || lab.link("vm0").is_some();
        until("the machine's device", || has_device() || guest.is_finished());
        let parts = has_device().then(|| (lab.start_switches(), lab.start_echo()));
        let ended = guest.join().unwrap();
        if ended.as_ref().is_ok_and(|outcome| outcome.status == 0)
            && let Some((switches, _)) = &parts
        {
            lab.judge(switches);
        }
        ended
    });
    match ended {
        Ok(outcome) => {
            let passed = outcome.output.contains("test result: ok. 1 passed");
            assert!(outcome.status == 0 && passed, "{}", outcome.output);
            true
        }
        Err(Error::Unavailable { what, remedy }) => {
            skip(&format!("{what}; {remedy}"));
            true
        }
        Err(Error::Panicked { booted: false, .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Runs the machine in the calling thread's namespace, where its tap device appears as `vm0`.
fn run(series: Series, modules: &[&str]) -> Result<Outcome, Error> {
    let kernel = Kernel::of(series)?;
    let tests = std::env::current_exe().unwrap();
    let guest = Guest::new(&kernel, tests)
        .modules(modules.iter().copied())
        .args(["--exact", "virtual_machine::inside_its_devices_get_what_was_sent", "--nocapture"])
        .env("TAPSWITCH_GUEST", kernel.release())
        .qemu_args(["-netdev", "tap,id=net0,ifname=vm0,script=no,downscript=no"])
        .qemu_args(["-device", "virtio-net-pci,netdev=net0,romfile="])
        .memory_mib(1024)
        .cpus(2);
    guest.start()?.wait()
}

struct Lab {
    room: OwnedNamespace,
    host: Host,
    directory: TempDir,
}

impl Lab {
    fn new() -> Self {
        let (room, host, directory) = (room(), Host::new(2), directory());
        let quiet = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        room.enter(quiet).unwrap();
        Self { room, host, directory }
    }

    fn link(&self, name: &str) -> Option<tapswitch_netlink::Link> {
        Netlink::open(&self.room).unwrap().link(name).ok()
    }

    /// The provider's switch and the customer's.
    fn start_switches(&self) -> [Daemon; 2] {
        Netlink::open(&self.room).unwrap().set_up("vm0").unwrap();
        let provider = self.start_switch(
            "provider",
            "1=netdev:vm0,mtu=1500,envelope=8,mode=provider,vlans=100",
            "2=tap:site,mode=dot1q-tunnel,vlan=100",
        );
        until("the site's link", || self.link("site").is_some_and(|link| link.up));
        let (interface, netns) = (&self.host.interface, self.host.name());
        let customer = self.start_switch(
            "customer",
            "1=netdev:site,mtu=1500,envelope=4,mode=trunk,vlans=10",
            &format!("2=tap:{interface},netns={netns},mode=access,vlan=10"),
        );
        until("the host's link", || self.host.netlink().link(interface).is_ok());
        self.host.configure();
        [provider, customer]
    }

    fn start_switch(&self, name: &str, first: &str, second: &str) -> Daemon {
        let socket = self.socket(name);
        let args = ["switch", "--name", name, "--socket", &socket, "--port", first];
        let args = [&args[..], &["--port", second]].concat();
        Daemon::tapswitch(&self.room, self.directory.path(), &args)
    }

    fn socket(&self, name: &str) -> String {
        self.directory.path().join(format!("{name}.sock")).display().to_string()
    }

    /// The host sends back what it receives: datagrams, and one connection.
    fn start_echo(&self) -> [thread::JoinHandle<()>; 2] {
        let datagrams = self.host.namespace.enter(|| UdpSocket::bind((HOST, PORT))).unwrap();
        let connections = self.host.namespace.enter(|| TcpListener::bind((HOST, PORT))).unwrap();
        let (datagrams, connections) = (datagrams.unwrap(), connections.unwrap());
        let echo = move || {
            let mut buf = [0; 2000];
            while let Ok((len, from)) = datagrams.recv_from(&mut buf) {
                datagrams.send_to(&buf[..len], from).unwrap();
            }
        };
        // Both end with the process: a test that fails does not connect.
        [thread::spawn(echo), thread::spawn(move || return_one(&connections))]
    }

    /// Checks that trains passed everywhere, and nothing was dropped or corrupted.
    fn judge(&self, switches: &[Daemon; 2]) {
        for (name, switch) in ["provider", "customer"].into_iter().zip(switches) {
            let args = ["show", "ports", "--json", "--socket", &self.socket(name)];
            let ports = tapswitch(&args).json();
            for port in ports.as_array().unwrap() {
                assert!(has_lost_nothing(port), "{port} {}", switch.log());
                let count = |what: &str| number(&port["rx"][what]);
                assert!(count("packets") > 2 * count("frames"), "trains: {port}");
            }
        }
        assert_eq!(checksum_errors(&self.host.namespace), 0);
    }
}

fn return_one(connections: &TcpListener) {
    let (mut stream, _) = connections.accept().unwrap();
    let mut received = Vec::with_capacity(LEN);
    stream.read_to_end(&mut received).unwrap();
    stream.write_all(&received).unwrap();
}

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 5201;
/// Bytes of the connection, in each direction.
const LEN: usize = 2 << 20;
const BOOT_COUNT: usize = 3;
