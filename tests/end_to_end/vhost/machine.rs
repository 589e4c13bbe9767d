//! Virtual machines with vhost-user interfaces. Each runs a shell that takes commands over a serial
//! port, so one boot serves many checks, and the test controls the order of events.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tapswitch_guest::{Error, Guest, Kernel, Running, Series};

use super::lab::Seen;
use crate::support::*;

/// An interface of a machine, and the socket that QEMU and the switch share.
#[derive(Clone, Debug)]
pub(super) struct Nic {
    socket: PathBuf,
    /// QEMU listens there, and the switch connects.
    qemu_listens: bool,
    queues: u16,
    /// Further options of QEMU's device, such as `packed=on`.
    options: String,
}

impl Nic {
    /// QEMU connects, repeatedly, because of `reconnect`.
    pub(super) fn new(socket: &Path) -> Self {
        let (socket, options) = (socket.to_owned(), String::new());
        Self { socket, qemu_listens: false, queues: 1, options }
    }

    pub(super) fn qemu_listens(self) -> Self {
        Self { qemu_listens: true, ..self }
    }

    pub(super) fn queues(self, queues: u16) -> Self {
        Self { queues, ..self }
    }

    pub(super) fn options(self, options: &str) -> Self {
        Self { options: options.to_owned(), ..self }
    }

    /// QEMU's arguments for the interface `index` of the machine `number`.
    fn args(&self, number: u8, index: usize) -> Vec<String> {
        let side = if self.qemu_listens { "server=on,wait=off" } else { "reconnect=1" };
        let path = self.socket.display();
        let queues = self.queues;
        let mut device = format!("virtio-net-pci,netdev=n{index},romfile=");
        device.push_str(&format!(",mac={},{NO_MSIX}", mac(number, index)));
        if queues > 1 {
            device.push_str(",mq=on");
        }
        if !self.options.is_empty() {
            device.push_str(&format!(",{}", self.options));
        }
        let chardev = format!("socket,id=c{index},path={path},{side}");
        let netdev = format!("vhost-user,id=n{index},chardev=c{index},queues={queues}");
        ["-chardev", &chardev, "-netdev", &netdev, "-device", &device].map(str::to_owned).into()
    }
}

/// The MAC address of an interface of a machine.
pub(super) fn mac(number: u8, index: usize) -> String {
    format!("52:54:00:00:{number:02x}:{index:02x}")
}

/// A running machine, killed on drop.
pub(super) struct Machine {
    running: Running,
    shell: BufReader<UnixStream>,
    /// QEMU's monitor socket.
    monitor: PathBuf,
    number: u8,
}

impl Machine {
    /// Starts it; [`Self::wait_until_ready`] waits for its shell.
    pub(super) fn start(
        series: Series,
        number: u8,
        directory: &Path,
        nics: &[Nic],
    ) -> Result<Self, Error> {
        Self::start_as(series, number, directory, nics, |guest| guest)
    }

    /// The same, with changes to the guest.
    pub(super) fn start_as(
        series: Series,
        number: u8,
        directory: &Path,
        nics: &[Nic],
        change: impl FnOnce(Guest) -> Guest,
    ) -> Result<Self, Error> {
        let file = |what| directory.join(format!("{}.{what}", unique()));
        let (shell, monitor) = (file("shell"), file("qmp"));
        let chardev = format!("socket,id=shell,path={},server=on,wait=off", shell.display());
        let args = (0..).zip(nics).flat_map(|(index, nic)| nic.args(number, index));
        let modules: &[_] = match series {
            // Its virtio_pci is built in.
            Series::V7_3 => &["virtio_net"],
            _ => &["virtio_pci", "virtio_net"],
        };
        let guest = Guest::new(&Kernel::of(series)?, "/usr/bin/env")
            .args(["sh", "-c", SHELL])
            .modules(modules.iter().copied())
            .qemu_args(["-chardev", &chardev, "-device", "isa-serial,chardev=shell,index=3"])
            .qemu_args(["-qmp", &format!("unix:{},server=on,wait=off", monitor.display())])
            .qemu_args(args)
            // A kernel that crashes while it boots, because of the emulation, boots again.
            .reboots()
            .limit(PATIENCE * 10);
        let tools = TOOLS.into_iter().filter(|tool| is_installed(tool));
        let guest = tools.into_iter().try_fold(guest, Guest::bin)?;
        let mut running = change(guest).start()?;
        let shell = connect(&shell, &mut running)?;
        shell.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        Ok(Self { running, shell: BufReader::new(shell), monitor, number })
    }

    /// Process id of QEMU.
    pub(super) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Waits until the shell runs; after a reset, that of the next boot.
    pub(super) fn wait_until_ready(&mut self) {
        self.read_to("<ready>", BOOT_PATIENCE);
    }

    /// Runs a command in the guest and returns its output; it must succeed.
    pub(super) fn run(&mut self, command: &str) -> String {
        let (status, said) = self.try_run(command);
        assert_eq!(status, 0, "machine {}: {command}: {said}", self.number);
        said
    }

    /// The same for a command that may fail; also returns its exit status.
    pub(super) fn try_run(&mut self, command: &str) -> (i32, String) {
        assert!(!command.contains('\n'), "one line: {command}");
        self.shell.get_mut().write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut said = String::new();
        loop {
            let line = self.read_line(Instant::now() + PATIENCE * 2, command);
            let status = line.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
            if let Some(status) = status.and_then(|status| status.parse().ok()) {
                return (status, said);
            }
            said.push_str(&line);
            said.push('\n');
        }
    }

    /// A number that a command prints.
    pub(super) fn number(&mut self, command: &str) -> u64 {
        let said = self.run(command);
        said.trim().parse().unwrap_or_else(|_| panic!("{command}: {said}"))
    }

    /// Sets an interface up with an address, and disables all packets that it would send on its
    /// own.
    pub(super) fn configure(&mut self, interface: &str, address: &str) {
        self.run(&format!("ip addr add {address}/24 dev {interface}"));
        self.run(&format!("ip link set {interface} up"));
    }

    /// Pings until there is a reply.
    pub(super) fn ping(&mut self, ip: &str) {
        let command = format!("for i in $(seq 60); do ping -c 1 -W 1 {ip} && break; done");
        let said = self.run(&command);
        assert!(said.contains(" 0% packet loss"), "{said}");
    }

    /// Sends all of the data to the sink there, which must receive it unchanged.
    pub(super) fn send_data(&mut self, ip: &str) {
        let said = self.run(&format!("timeout 200 nc {ip} {SINK_PORT} -e /bin/give"));
        assert_eq!(said, "same\n", "machine {} to {ip}", self.number);
    }

    /// Sends the data there repeatedly in the background, with pauses for others that need the
    /// processor.
    pub(super) fn send_forever(&mut self, ip: &str) {
        let send = format!("timeout 60 nc {ip} {SINK_PORT} -e /bin/give");
        self.run(&format!("while :; do {send}; sleep 0.2; done >/dev/null 2>&1 &"));
    }

    /// Packets with errors that the guest's kernel counted.
    pub(super) fn checksum_errors(&mut self) -> u64 {
        let text = self.run("cat /proc/net/snmp");
        count_checksum_errors(&text)
    }

    /// A counter of an interface.
    pub(super) fn counter(&mut self, interface: &str, name: &str) -> u64 {
        self.number(&format!("cat /sys/class/net/{interface}/statistics/{name}"))
    }

    /// What the guest's kernel has counted at an interface in `direction`, `rx` or `tx`.
    pub(super) fn seen(&mut self, interface: &str, direction: &str) -> Seen {
        let frames = self.counter(interface, &format!("{direction}_packets"));
        Seen { frames, bytes: self.counter(interface, &format!("{direction}_bytes")) }
    }

    /// Resets the machine as its reset button would.
    pub(super) fn reset(&mut self) {
        Monitor::connect(&self.monitor).execute("system_reset", &json!({}));
    }

    /// Migrates this machine to `there`, which waits for it, and waits until it is there.
    pub(super) fn move_to(&mut self, there: &Arriving) {
        let uri = json!({ "uri": format!("unix:{}", there.socket.display()) });
        // It listens once it has answered.
        Monitor::connect(&there.machine.monitor).execute("migrate-incoming", &uri);
        let mut monitor = Monitor::connect(&self.monitor);
        monitor.execute("migrate", &uri);
        until("the machine is moved", || {
            let answer = monitor.execute("query-migrate", &json!({}));
            assert_ne!(answer["status"], "failed", "{answer}");
            answer["status"] == "completed"
        });
    }

    /// The connection has ended: QEMU has ended, or is about to.
    fn give_up(&mut self, what: &str) -> ! {
        let how = eventually("the end of QEMU", || self.running.poll().transpose());
        let complaints = self.running.complaints();
        panic!("machine {}: {what}: {how:?}\n{complaints}", self.number);
    }

    fn read_to(&mut self, wanted: &str, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.read_line(deadline, wanted) != wanted {}
    }

    /// The next line of the shell's output.
    fn read_line(&mut self, deadline: Instant, what: &str) -> String {
        let mut line = Vec::new();
        loop {
            match self.shell.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => {
                    return String::from_utf8_lossy(&line).trim_end().to_owned();
                }
                Ok(_) => self.give_up(what),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{what}: {error}"),
            }
            let number = self.number;
            let complaints = || self.running.complaints();
            assert!(Instant::now() < deadline, "machine {number}: {what}\n{}", complaints());
        }
    }
}

/// A machine that waits for an incoming migration.
pub(super) struct Arriving {
    machine: Machine,
    /// The socket where it is to listen.
    socket: PathBuf,
}

impl Arriving {
    /// Starts it with the same configuration as the other one, except for its sockets.
    pub(super) fn start(
        series: Series,
        number: u8,
        directory: &Path,
        nics: &[Nic],
    ) -> Result<Self, Error> {
        let socket = directory.join(format!("{}.move", unique()));
        let wait = |guest: Guest| guest.qemu_args(["-incoming", "defer"]);
        let machine = Machine::start_as(series, number, directory, nics, wait)?;
        Ok(Self { machine, socket })
    }

    /// The machine, when the migration is complete.
    pub(super) fn arrived(self) -> Machine {
        self.machine
    }
}

/// QEMU's monitor (QMP).
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(path: &Path) -> Self {
        // QEMU may have just been started, and not have the socket yet.
        let stream = eventually("QEMU's ear", || UnixStream::connect(path).ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut monitor = Self(BufReader::new(stream));
        // The greeting.
        monitor.read();
        monitor.execute("qmp_capabilities", &json!({}));
        monitor
    }

    /// Executes a command, and returns its result.
    fn execute(&mut self, command: &str, arguments: &Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments });
        self.0.get_mut().write_all(request.to_string().as_bytes()).unwrap();
        // Events may come first.
        loop {
            let mut answer = self.read();
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            if let Some(outcome) = answer.get_mut("return") {
                return outcome.take();
            }
        }
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// Starts machines and waits until all of them are ready; `None`, reported as skipped, if none can
/// run.
pub(super) fn boot<const N: usize>(
    machines: [impl FnOnce() -> Result<Machine, Error>; N],
) -> Option<[Machine; N]> {
    let mut started = Vec::with_capacity(N);
    for start in machines {
        started.push(start_or_skip(start)?);
    }
    started.iter_mut().for_each(Machine::wait_until_ready);
    started.try_into().ok()
}

fn start_or_skip(start: impl FnOnce() -> Result<Machine, Error>) -> Option<Machine> {
    match start() {
        Ok(machine) => Some(machine),
        Err(Error::Unavailable { what, remedy }) => {
            skip(&format!("{what}; {remedy}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Connects to a socket of QEMU, which creates it when it starts.
fn connect(path: &Path, running: &mut Running) -> Result<UnixStream, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            return Ok(stream);
        }
        running.poll()?;
        assert!(Instant::now() < deadline, "{}", running.complaints());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The data that both ends of a connection have: lines of numbers, so no part of it equals another.
/// In a guest, `seq` generates it.
pub(super) fn data() -> Vec<u8> {
    (100_000..DATA_END).flat_map(|number: u32| format!("{number}\n").into_bytes()).collect()
}

/// The release of the guest's kernel.
pub(super) fn kernel_of(machine: &mut Machine) -> String {
    machine.run("uname -r").trim().to_owned()
}

/// True if the programs for these tests are installed.
pub(super) fn can_boot() -> bool {
    tapswitch_guest::inside().is_none() && can_run(&["ping"]) && fs::exists("/usr/bin/env").unwrap()
}

/// The port where each end compares what it receives with the data.
pub(super) const SINK_PORT: u16 = 5201;
/// Behind the last number of the data, in [`SHELL`] too: 700,000 bytes, about twenty trains.
const DATA_END: u32 = 200_000;
/// QEMU 7.2 without KVM uses an interrupt route that it has not created, and crashes, when a driver
/// turns MSI-X on for a vhost-user device.
const NO_MSIX: &str = "vectors=0";
/// Copied into the guest if the host has them.
const TOOLS: [&str; 2] = ["ethtool", "iperf3"];
/// An emulated processor on a busy machine is slow.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);
/// Reads commands from the fourth serial port and answers there, followed by a line `<STATUS>`.
/// Every address is answered for on its own interface only, as routers do.
///
/// The data is sent by `cat`, which writes all of it to the socket at once. `nc` alone writes 1 KiB
/// at a time, and a guest that is slower than its peer would send each write as a packet of its
/// own.
const SHELL: &str = r#"
stty -F /dev/ttyS3 raw -echo
exec </dev/ttyS3 >/dev/ttyS3 2>&1
cd /proc/sys/net
for what in all default; do echo 1 >ipv6/conf/$what/disable_ipv6; done 2>/dev/null
echo 1 >ipv4/conf/all/arp_ignore
echo 2 >ipv4/conf/all/arp_announce
cd /tmp
seq 100000 199999 >/tmp/data
cat >/bin/give <<'END'
#!/bin/sh
cat /tmp/data
cat >&2
END
cat >/bin/sink <<'END'
#!/bin/sh
head -c 700000 >/tmp/got.$$
cmp /tmp/got.$$ /tmp/data >/dev/null && echo same || echo different
rm /tmp/got.$$
END
chmod +x /bin/give /bin/sink
nc -ll -p 5201 -e /bin/sink </dev/null >/dev/null 2>&1 &
echo '<ready>'
while read -r line; do eval "$line"; echo "<$?>"; done
"#;
