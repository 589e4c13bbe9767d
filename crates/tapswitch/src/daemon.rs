//! The long-running commands: `run`, `switch` and `controller`.
//!
//! One thread serves everything except the workers and the store, which have their own. SIGTERM and
//! SIGINT stop the process cleanly: workers end, devices and sockets are removed. SIGHUP makes a
//! controller read its tokens and certificates again; a process without such files stops on it,
//! unless it was started by nohup(1). The configuration file is read only at the start.

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tapswitch_controller::Server as Controller;
use tapswitch_switch::{Config as SwitchConfig, Switch, WorkerEnded};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::controller::{ControllerArgs, StorePlace};
use crate::cli::{RunArgs, ServeArgs, SwitchArgs};
use crate::config::{RunConfig, configure};
use crate::management::{Management, Services, default_path};

/// The parts of a process.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) controller: Option<tapswitch_controller::Config>,
    pub(crate) switch: Option<SwitchConfig>,
    /// Management socket.
    pub(crate) socket: PathBuf,
    /// The file that the configuration was read from.
    pub(crate) file: Option<ReadFile>,
}

/// A file that was read at the start.
#[derive(Debug)]
pub(crate) struct ReadFile {
    path: PathBuf,
    contents: Vec<u8>,
}

impl ReadFile {
    fn read(path: &Path) -> Option<Self> {
        let contents = std::fs::read(path).ok()?;
        Some(Self { path: path.to_owned(), contents })
    }

    /// Warns if this file has changed: SIGHUP does not read it again.
    fn warn_if_changed(&self) {
        let now = std::fs::read(&self.path);
        if now.is_ok_and(|contents| contents != self.contents) {
            tracing::warn!(
                "{} has changed, but is read only at the start: restart to apply it; `tapswitch \
                 policy` and `tapswitch port` change the running process",
                self.path.display()
            );
        }
    }
}

type Failure = Box<dyn std::error::Error>;

impl Parts {
    /// Whether a controller has files that SIGHUP reads again.
    fn has_files(&self) -> bool {
        let has_files = |it: &tapswitch_controller::Config| it.rest.is_some() || it.tls.is_some();
        self.controller.as_ref().is_some_and(has_files)
    }
}

/// `tapswitch run`.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let file = ReadFile::read(&args.config);
    let RunConfig { switch, controller, forgets } = RunConfig::read(&args.config)?;
    if forgets {
        tracing::warn!(
            "policies that are added at run time, and the audit log, are kept only in memory and \
             are lost when this process exits; set controller.store in {} to a file, or to \
             \"none\" to silence this warning",
            args.config.display()
        );
    }
    let socket = socket_path(&args.socket, &switch.name);
    block_on(serve(Parts { controller, switch: Some(switch), socket, file }))
}

/// `tapswitch switch`.
pub(crate) fn switch(args: SwitchArgs) -> Result<(), Failure> {
    let socket = socket_path(&args.socket, &args.name);
    let SwitchArgs { name, datapath_id, controller, listen, fail_mode, learning, port, .. } = args;
    let switch = SwitchConfig {
        controllers: controller,
        listen,
        tls: args.tls.tls(),
        fail_mode,
        learning,
        ports: port,
        workers: args.workers,
        cores: args.cores,
        ..SwitchConfig::new(name, datapath_id)
    };
    block_on(serve(Parts { switch: Some(switch), socket, ..Parts::default() }))
}

/// `tapswitch controller`.
pub(crate) fn controller(args: &ControllerArgs) -> Result<(), Failure> {
    let socket = socket_path(&args.socket, "controller");
    let store = args.store.clone().unwrap_or_else(default_store).with_files(&args.store_files)?;
    let store = store.with_rest_url(args.rest_url.clone())?;
    let mut controller = tapswitch_controller::Config { listen: vec![], ..Default::default() };
    configure(&mut controller, &args.listen, (&store, args.rest), &args.files);
    block_on(serve(Parts { controller: Some(controller), socket, ..Parts::default() }))
}

/// The default store of a controller, if it can be written.
fn default_store() -> StorePlace {
    let path = Path::new(STORE);
    let made = path.parent().map_or(Ok(()), |directory| {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
    });
    let may = made.and_then(|()| {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
    });
    match may {
        Ok(_) => StorePlace::File(path.to_owned()),
        Err(error) => {
            tracing::warn!(
                "{STORE}: {error}: policies and the audit log are kept only in memory; choose \
                 another file with --store"
            );
            StorePlace::None
        }
    }
}

fn socket_path(args: &ServeArgs, name: &str) -> PathBuf {
    args.socket.clone().unwrap_or_else(|| default_path(name))
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// Runs the parts until a stop signal, which is also handled during the start.
async fn serve(mut parts: Parts) -> Result<(), Failure> {
    allow_files();
    let mut signals = StopSignals::listen()?;
    let file = parts.file.take();
    let has_files = parts.has_files();
    let mut running = tokio::select! {
        running = Running::start(parts) => running?,
        // The files are being read anyway.
        signal = signals.next_stop(has_files) => {
            tracing::info!("{signal}: stopping before everything has started");
            return Ok(());
        }
    };
    running.announce();
    let signal = loop {
        let signal = tokio::select! {
            signal = signals.any() => signal,
            failure = running.failure() => {
                running.stop().await;
                return Err(failure);
            }
        };
        match &running.services.controller {
            Some(controller) if signal == HANGUP && controller.has_files() => {
                controller.reload();
                file.iter().for_each(ReadFile::warn_if_changed);
            }
            _ if signals.spares(signal) => {}
            _ => break signal,
        }
    };
    tracing::info!("{signal}: stopping");
    running.stop().await;
    Ok(())
}

/// Raises the limit of open files to the maximum (getrlimit(2)). Shells and service managers set a
/// lower one for the sake of programs that use select(2). A guest needs some twenty files, and each
/// switch of a controller one.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, ..limit };
    if most.current != limit.current
        && let Err(error) = setrlimit(Resource::Nofile, most)
    {
        tracing::debug!("cannot raise the limit on open files: {error}");
    }
}

/// The running parts of a process.
pub(crate) struct Running {
    pub(crate) services: Services,
    socket: PathBuf,
    endpoints: Vec<String>,
    end: watch::Sender<bool>,
    tasks: JoinSet<Result<(), WorkerEnded>>,
}

impl Running {
    /// Starts the controller, then the switch, then the management socket. If one fails, the
    /// previous ones are stopped.
    pub(crate) async fn start(parts: Parts) -> Result<Self, Failure> {
        let (end, ended) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut services = Services::default();
        let mut endpoints = Vec::new();
        if let Some(config) = parts.controller {
            let controller = Controller::bind(config).await?;
            for address in controller.local_addrs() {
                endpoints.push(format!("controller on {address}"));
            }
            endpoints
                .extend(controller.rest_addr().map(|at| format!("REST of the controller on {at}")));
            services.controller = Some(controller.handle());
            let ended = ended.clone();
            tasks.spawn(async move {
                controller.run(wait(ended)).await;
                Ok(())
            });
        }
        if let Some(config) = parts.switch {
            let name = config.name.clone();
            let switch = Switch::start(config).await?;
            endpoints.push(format!("switch {name}"));
            for endpoint in switch.local_endpoints()? {
                endpoints.push(format!("switch {name} listens on {endpoint}"));
            }
            services.switch = Some(switch.handle());
            let ended = ended.clone();
            tasks.spawn(async move { switch.run(wait(ended)).await });
        }
        let mut management = Management::bind(&parts.socket, services.clone())?;
        let socket = management.path().to_owned();
        tasks.spawn(async move {
            tokio::select! {
                () = management.serve() => {}
                () = wait(ended) => {}
            }
            Ok(())
        });
        Ok(Self { services, socket, endpoints, end, tasks })
    }

    /// Path of the management socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    fn announce(&self) {
        for endpoint in &self.endpoints {
            tracing::info!("{endpoint}: running");
        }
        tracing::info!("management socket: {}", self.socket.display());
    }

    /// Waits until a part ends by itself, which is always a failure: a process that continued
    /// without it would look healthy.
    async fn failure(&mut self) -> Failure {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error.into(),
            Some(Err(error)) => format!("a component failed: {error}").into(),
            Some(Ok(Ok(()))) | None => "a component ended unexpectedly".into(),
        }
    }

    /// Stops all parts and waits for them.
    pub(crate) async fn stop(mut self) {
        // All receivers are still there, or have ended already.
        let _ = self.end.send(true);
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!("{error}"),
                Err(error) => tracing::error!("a component failed: {error}"),
            }
        }
    }
}

async fn wait(mut ended: watch::Receiver<bool>) {
    // An error means that the sender is gone, which also is the end.
    let _ = ended.wait_for(|ended| *ended).await;
}

/// The stop signals. By default they end the process at once without cleanup, so listen before
/// creating anything.
pub(crate) struct StopSignals {
    term: Signal,
    int: Signal,
    hangup: Signal,
    quit: Signal,
    /// The process was started with SIGHUP ignored, as by nohup(1).
    ignores_hangup: bool,
}

impl StopSignals {
    /// Starts catching the signals.
    pub(crate) fn listen() -> std::io::Result<Self> {
        // Must precede catching the signals, which changes it.
        let ignores_hangup = ignores_hangup();
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            ignores_hangup,
        })
    }

    /// Waits for the next signal that is not ignored, and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            let signal = self.any().await;
            if !self.spares(signal) {
                return signal;
            }
        }
    }

    /// True for the hangup of a terminal that the process is to outlive.
    fn spares(&self, signal: &str) -> bool {
        self.ignores_hangup && signal == HANGUP
    }

    /// Waits for the next signal of any meaning.
    async fn any(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            _ = self.hangup.recv() => HANGUP,
            _ = self.quit.recv() => "SIGQUIT",
        }
    }

    /// Waits for the next stop signal; with `may_reload`, SIGHUP is none.
    async fn next_stop(&mut self, may_reload: bool) -> &'static str {
        loop {
            match self.next().await {
                HANGUP if may_reload => {}
                signal => return signal,
            }
        }
    }
}

/// Whether this process was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    static AT_THE_START: OnceLock<bool> = OnceLock::new();
    let status = || std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    *AT_THE_START.get_or_init(|| is_ignored(&status(), SignalKind::hangup()))
}

/// Whether a process with this status (proc_pid_status(5)) ignores a signal.
fn is_ignored(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signals are counted from 1.
    mask.is_some_and(|mask| mask >> (signal.as_raw_value() - 1) & 1 == 1)
}

const HANGUP: &str = "SIGHUP";
/// Default store of a controller.
const STORE: &str = "/var/lib/tapswitch/controller.redb";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_ignores_is_read_from_its_status() {
        let of = |mask: &str| {
            let status = format!("Name:\ttapswitch\nSigBlk:\tffffffffffffffff\nSigIgn:\t{mask}\n");
            [SignalKind::hangup(), SignalKind::terminate()].map(|it| is_ignored(&status, it))
        };
        assert_eq!(of("0000000000000001"), [true, false]);
        assert_eq!(of("0000000000004000"), [false, true]);
        assert_eq!(of("0000000000000000"), [false, false]);
        assert!(!is_ignored("", SignalKind::hangup()));
    }

    #[test]
    fn a_process_may_have_as_many_files_as_it_can() {
        let limit = getrlimit(Resource::Nofile);
        let less = limit.current.map(|current| current - 1);
        setrlimit(Resource::Nofile, Rlimit { current: less, ..limit }).unwrap();
        allow_files();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }
}
