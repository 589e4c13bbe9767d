//! The process of the long-running commands `run`, `switch` and `controller`.
//!
//! One thread serves everything except the workers and the store, which have their own. SIGTERM and
//! SIGINT stop the process cleanly: workers end, devices and sockets are removed. SIGHUP makes a
//! controller read its tokens and certificates again; a process without such files stops on it,
//! unless it was started by nohup(1). The configuration file is read only at the start.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tapswitch_controller::{Reloader, Server as Controller};
use tapswitch_switch::{Config as SwitchConfig, Switch, WorkerEnded};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::management::{Management, Services};
use crate::runtime::{HANGUP, StopSignals};

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
    pub(crate) fn read(path: &Path) -> Option<Self> {
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

/// Runs the parts until a stop signal, which is also handled during the start.
pub(crate) async fn serve(mut parts: Parts) -> Result<(), Failure> {
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
        match &running.reloader {
            Some(reloader) if signal == HANGUP && reloader.has_files() => {
                reloader.reload();
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
    /// Of the controller.
    reloader: Option<Reloader>,
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
        let (mut endpoints, mut reloader) = (Vec::new(), None);
        if let Some(config) = parts.controller {
            let controller = Controller::bind(config).await?;
            for address in controller.local_addrs() {
                endpoints.push(format!("controller on {address}"));
            }
            endpoints
                .extend(controller.rest_addr().map(|at| format!("REST of the controller on {at}")));
            services.controller = Some(controller.handle());
            reloader = Some(controller.reloader());
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
        Ok(Self { services, reloader, socket, endpoints, end, tasks })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_as_many_files_as_it_can() {
        let limit = getrlimit(Resource::Nofile);
        let less = limit.current.map(|current| current - 1);
        setrlimit(Resource::Nofile, Rlimit { current: less, ..limit }).unwrap();
        allow_files();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }
}
