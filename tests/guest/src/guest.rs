//! A guest: its contents and size, and its run.
//!
//! QEMU emulates the processor (TCG), so no `/dev/kvm` is needed; a boot takes about five seconds.
//! Three serial ports lead out: the console, the program's output, and reports to the rig. They and
//! the guest's root are in memory (memfd_create(2)), which QEMU opens through `/proc`: nothing is
//! written to disk, and nothing is left behind, however this process ends.

use std::env;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use tapswitch_netlink::die_with_parent;

use crate::cpio::Archive;
use crate::error::{Error, PANIC, Tail};
use crate::forks::forking;
use crate::kernel::Kernel;
use crate::root;

/// What runs in which kernel. Defaults: one processor, 512 MiB, no modules, five minutes.
#[derive(Clone, Debug)]
pub struct Guest {
    kernel: Kernel,
    modules: Vec<String>,
    /// Files of the host, and their paths in the guest.
    files: Vec<(PathBuf, String)>,
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    qemu_args: Vec<String>,
    memory_mib: u32,
    sharing: &'static str,
    reboots: bool,
    cpus: u32,
    limit: Duration,
}

impl Guest {
    /// A guest of `kernel` that runs `program` of the host, which is copied with the libraries that
    /// it needs. The program runs as root with `/proc`, `/sys`, `/dev`, busybox in `/bin`, and `lo`
    /// up.
    #[must_use]
    pub fn new(kernel: &Kernel, program: impl Into<PathBuf>) -> Self {
        Self {
            kernel: kernel.clone(),
            modules: Vec::new(),
            files: Vec::new(),
            program: program.into(),
            args: Vec::new(),
            environment: Vec::new(),
            qemu_args: Vec::new(),
            memory_mib: 512,
            sharing: SHARED,
            reboots: false,
            cpus: 1,
            limit: Duration::from_secs(300),
        }
    }

    /// Loads these modules, in this order, each after its dependencies.
    #[must_use]
    pub fn modules<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.modules.extend(names.into_iter().map(Into::into));
        self
    }

    /// Copies a file of the host to the path `inside`, executable; programs with their libraries.
    #[must_use]
    pub fn file(mut self, host: impl Into<PathBuf>, inside: impl Into<String>) -> Self {
        self.files.push((host.into(), inside.into()));
        self
    }

    /// Copies the program called `name` of the host to `/bin`, replacing busybox's.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the host has none.
    pub fn bin(self, name: &str) -> Result<Self, Error> {
        let missing = || {
            Error::unavailable(format!("{name} is not installed"), "install the package it is in")
        };
        let path = root::find(name).ok_or_else(missing)?;
        Ok(self.file(path, format!("/bin/{name}")))
    }

    /// Arguments for the program.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Further arguments for QEMU, for example devices. The guest's memory has the id `memory` and
    /// can be shared, as vhost-user requires.
    #[must_use]
    pub fn qemu_args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.qemu_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Memory in MiB, including the root.
    #[must_use]
    pub const fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Gives the guest memory that is not a file, as by default in QEMU, so that it cannot be
    /// shared.
    #[must_use]
    pub const fn private_memory(mut self) -> Self {
        self.sharing = "ram,share=off";
        self
    }

    /// Gives the guest memory in a file that QEMU passes on, while it works on a private copy
    /// (`share=off`).
    #[must_use]
    pub const fn private_file(mut self) -> Self {
        self.sharing = "memfd,share=off";
        self
    }

    /// Lets the guest boot again after a reset, a reboot or a panic, from the same root; otherwise
    /// it ends then.
    #[must_use]
    pub const fn reboots(mut self) -> Self {
        self.reboots = true;
        self
    }

    /// Lets the guest's clock count instructions, one per nanosecond, and skip idle time. Rates and
    /// delays in the guest are then those of such a processor, however slow its emulation is;
    /// several processors share it. Only with the default `TAPSWITCH_GUEST_ACCEL`.
    #[must_use]
    pub fn instruction_clock(self) -> Self {
        self.qemu_args(["-icount", "shift=0,sleep=off"])
    }

    /// Number of processors; each is a thread of QEMU.
    #[must_use]
    pub const fn cpus(mut self, count: u32) -> Self {
        self.cpus = count;
        self
    }

    /// Limit of the time from start to end.
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to the end of its program. A kernel that panics or hangs before the program has
    /// begun is booted again, as is one that meets a breakpoint of its own: if QEMU emulates each
    /// processor by a thread, one of them sometimes continues with an old translation of code that
    /// another one patches (`int3` in `ktime_get`, when the clock's source changes).
    ///
    /// # Errors
    /// [`Error::Unavailable`] without QEMU or busybox; [`Error::Panicked`], [`Error::TimedOut`],
    /// [`Error::Died`]. A failure of the program is not an error: see [`Outcome::status`].
    pub fn run(&self) -> Result<Outcome, Error> {
        for _ in 1..BOOT_COUNT {
            match self.start()?.wait() {
                Err(
                    Error::Panicked { booted: false, .. } | Error::TimedOut { booted: false, .. },
                ) => {}
                Err(Error::Panicked { why, .. }) if why.contains(BREAKPOINT) => {}
                outcome => return outcome,
            }
        }
        self.start()?.wait()
    }

    /// Starts it. It is killed when the returned value is dropped, and when the calling thread
    /// ends.
    ///
    /// # Errors
    /// As [`Self::run`], as far as they are detected at once.
    pub fn start(&self) -> Result<Running, Error> {
        let _forking = forking();
        let root = memory_file("root", &self.root(None)?)?;
        let ports = Ports::new()?;
        let mut qemu = self.qemu(&root)?;
        for port in [&ports.console, &ports.output, &ports.told] {
            qemu.args(["-serial", &format!("file:{}", path_of(port))]);
        }
        let complaints = memory_file("complaints", &[])?;
        let stderr = complaints.try_clone().map_err(Error::io("dup"))?;
        qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = die_with_parent(&mut qemu).spawn().map_err(Error::io(QEMU))?;
        Ok(Running {
            child,
            started: Instant::now(),
            release: self.kernel.release().to_owned(),
            limit: self.limit,
            ports,
            complaints,
            _root: root,
        })
    }

    /// Runs a shell on this terminal instead of the program, to its end.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn shell(&self) -> Result<ExitStatus, Error> {
        let root = memory_file("root", &self.root(Some("shell"))?)?;
        let mut qemu = self.qemu(&root)?;
        let args = ["-serial", "mon:stdio", "-serial", "null", "-serial", "null"];
        let mut child = qemu.args(args).spawn().map_err(Error::io(QEMU))?;
        child.wait().map_err(Error::io(QEMU))
    }

    /// The guest's initrd, with a file called `mark` in `/guest`.
    fn root(&self, mark: Option<&str>) -> Result<Vec<u8>, Error> {
        let mut archive = Archive::default();
        // First, because they may replace busybox's programs.
        for (host, inside) in &self.files {
            root::program(&mut archive, host, inside)?;
        }
        root::system(&mut archive)?;
        let mut names = String::new();
        for (name, bytes) in self.kernel.modules(&self.modules)? {
            archive.file(&format!("/guest/{name}.ko"), &bytes);
            names.push_str(&format!("{name}\n"));
        }
        archive.file("/guest/modules", names.as_bytes());
        root::program(&mut archive, &self.program, PROGRAM)?;
        archive.file("/guest/run", self.script().as_bytes());
        if let Some(mark) = mark {
            archive.file(&format!("/guest/{mark}"), &[]);
        }
        Ok(archive.finish())
    }

    /// The commands that run the program.
    fn script(&self) -> String {
        let mut script = String::new();
        for (name, value) in &self.environment {
            script.push_str(&format!("export {name}={}\n", root::quoted(value)));
        }
        script.push_str(PROGRAM);
        for arg in &self.args {
            script.push_str(&format!(" {}", root::quoted(arg)));
        }
        script.push('\n');
        script
    }

    fn qemu(&self, root: &File) -> Result<Command, Error> {
        check_machine()?;
        let mut qemu = Command::new(root::find(QEMU).unwrap_or_else(|| QEMU.into()));
        let accel = env::var("TAPSWITCH_GUEST_ACCEL").unwrap_or_else(|_| ACCEL.to_owned());
        let (sharing, memory) = (self.sharing, self.memory_mib);
        let memory = format!("memory-backend-{sharing},id=memory,size={memory}M");
        if !self.reboots {
            qemu.arg("-no-reboot");
        }
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-machine", "pc,memory-backend=memory", "-object", &memory])
            .args(["-m", &format!("{}M", self.memory_mib), "-smp", &self.cpus.to_string()])
            .args(["-accel", &accel, "-cpu", "max", "-append", COMMAND_LINE])
            .arg("-kernel")
            .arg(self.kernel.image())
            .args(["-initrd", &path_of(root)])
            .args(&self.qemu_args);
        Ok(qemu)
    }
}

/// A running guest, killed on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    release: String,
    limit: Duration,
    ports: Ports,
    /// QEMU's own messages.
    complaints: File,
    /// Kept open until QEMU has read it.
    _root: File,
}

impl Running {
    /// The program's output so far.
    pub fn output(&self) -> String {
        contents(&self.ports.output)
    }

    /// The messages of the kernel and of QEMU so far, for a caller that is about to give up.
    pub fn complaints(&self) -> Tail {
        self.tail()
    }

    /// Process id of QEMU.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program's output contains `text`.
    ///
    /// # Errors
    /// As [`Self::wait`]; [`Error::Died`] if the program ends before that.
    pub fn wait_for(&mut self, text: &str) -> Result<(), Error> {
        while !self.output().contains(text) {
            // Polled first: the output is complete when the end is reported.
            let status = self.poll()?;
            if let Some(status) = status.filter(|_| !self.output().contains(text)) {
                let why = format!("the program ended ({status}) and did not say {text:?}");
                return Err(self.died(why));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// [`Error::Panicked`], [`Error::TimedOut`], [`Error::Died`].
    pub fn wait(mut self) -> Result<Outcome, Error> {
        let status = loop {
            if let Some(status) = self.poll()? {
                break status;
            }
            thread::sleep(PAUSE);
        };
        Ok(Outcome {
            status,
            output: self.output(),
            console: contents(&self.ports.console),
            told: contents(&self.ports.told).replacen(&format!("{STARTED}\n"), "", 1),
            took: self.started.elapsed(),
        })
    }

    /// The program's exit status, once it is reported.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn poll(&mut self) -> Result<Option<i32>, Error> {
        // In this order: what QEMU wrote before its end is there when the end is seen.
        let ended = self.child.try_wait().map_err(Error::io(QEMU))?;
        let told = contents(&self.ports.told);
        let mut lines = told.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        if let Some(status) = lines.find_map(|line| line.strip_prefix("exit ")?.parse().ok()) {
            return Ok(Some(status));
        }
        let booted = told.lines().any(|line| line == STARTED);
        let limit = if booted { self.limit } else { self.limit.min(BOOT_LIMIT) };
        if ended.is_none() && self.started.elapsed() <= limit {
            return Ok(None);
        }
        let (release, console) = (self.release.clone(), self.tail());
        // A panic ends QEMU, but only after all messages of the kernel.
        if let Some(why) = panic_in(&contents(&self.ports.console)) {
            return Err(Error::Panicked { release, why, booted, console });
        }
        let Some(status) = ended else {
            return Err(Error::TimedOut { release, limit, booted, console });
        };
        let said = if told.is_empty() { "nothing" } else { told.trim() };
        Err(self.died(format!("QEMU ended ({status}); the guest told: {said}")))
    }

    fn died(&self, why: String) -> Error {
        Error::Died { release: self.release.clone(), why, console: self.tail() }
    }

    fn tail(&self) -> Tail {
        let parts = [&self.ports.console, &self.ports.output, &self.complaints].map(contents);
        Tail::of(&[("console", &parts[0]), ("output", &parts[1]), ("qemu", &parts[2])])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a guest's program ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Exit status as in sh(1): above 128 for a signal.
    pub status: i32,
    /// The program's output, of both streams.
    pub output: String,
    /// The kernel's messages.
    pub console: String,
    /// Lines that the program wrote to [`crate::REPORT`], and the exit status.
    pub told: String,
    /// From QEMU's start to the end of the program.
    pub took: Duration,
}

/// The files that the serial ports lead to.
#[derive(Debug)]
struct Ports {
    console: File,
    output: File,
    told: File,
}

impl Ports {
    fn new() -> Result<Self, Error> {
        let port = |name| memory_file(name, &[]);
        Ok(Self { console: port("console")?, output: port("output")?, told: port("told")? })
    }
}

/// A file without a place on disk.
fn memory_file(name: &str, contents: &[u8]) -> Result<File, Error> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC);
    let fd = fd.map_err(|errno| Error::io("memfd_create")(errno.into()))?;
    let mut file = File::from(fd);
    file.write_all(contents).map_err(Error::io(name))?;
    Ok(file)
}

/// The path under which other processes of this user find an open file of this one.
fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd())
}

/// The contents of a file so far, wherever it is being written.
fn contents(file: &File) -> String {
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    let outcome = file.read_exact_at(&mut bytes, 0);
    outcome.map_or_else(|_| String::new(), |()| String::from_utf8_lossy(&bytes).replace('\r', ""))
}

/// The kernel's panic message, with the line of the breakpoint that it met, if any.
fn panic_in(console: &str) -> Option<String> {
    let find = |text| console.lines().find(|line| line.contains(text)).map(str::trim);
    let why = find(PANIC)?;
    Some(find(BREAKPOINT).map_or(why.to_owned(), |met| format!("{why} ({met})")))
}

/// Checks that this machine has what guests need, apart from a kernel.
pub(crate) fn check_machine() -> Result<(), Error> {
    let missing = |program: &str, package: &str| {
        let what = format!("{program} is missing");
        Err(Error::unavailable(what, format!("apt-get install {package}")))
    };
    if root::find(QEMU).is_none() {
        return missing(QEMU, "qemu-system-x86");
    }
    if root::find("busybox").is_none() {
        return missing("busybox", "busybox");
    }
    Ok(())
}

/// The guest's memory, as an option of QEMU.
const SHARED: &str = "memfd,share=on";
const QEMU: &str = "qemu-system-x86_64";
/// Path of the program in the guest.
const PROGRAM: &str = "/guest/program";
/// Interval between two polls of a guest.
const PAUSE: Duration = Duration::from_millis(20);
/// The kernel's message for an unexpected breakpoint.
const BREAKPOINT: &str = "int3: 0000";
/// How often a kernel is booted that panics or hangs for reasons other than the program.
const BOOT_COUNT: usize = 3;
/// Limit until the program begins: about five seconds, on a busy machine a minute.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// One thread for all processors of a guest: with one for each, code that a processor patches may
/// be stale on another one, and kernels sometimes panic or hang.
const ACCEL: &str = "tcg,thread=single";
/// Init's report before it starts the program.
const STARTED: &str = "started";
/// Few messages, fast failure. An emulated clock is late on a busy machine, so the kernel does not
/// check it. Guests are not attacked, so no mitigations.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic no_timer_check \
                            mitigations=off nokaslr";
