//! A server running beside the test.

use std::net::SocketAddr;
use std::time::Duration;

use tapswitch_controller::{Caller, Config, Handle, Reloader, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server on a port of its own.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    pub(crate) reloader: Reloader,
    pub(crate) address: SocketAddr,
    rest: Option<SocketAddr>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// The caller.
pub(crate) fn me() -> Caller {
    Caller::unix("tester")
}

/// Configuration for tests: any free port, and a newer connection always takes over.
pub(crate) fn config() -> Config {
    Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        takeover_after: Duration::ZERO,
        request_timeout: Duration::from_secs(30),
        stats_timeout: Duration::from_secs(30),
        ..Config::default()
    }
}

impl Running {
    pub(crate) async fn start(config: Config) -> Self {
        Self::run(Server::bind(config).await.unwrap())
    }

    pub(crate) fn run(server: Server) -> Self {
        let (handle, address) = (server.handle(), server.local_addrs()[0]);
        let (reloader, rest) = (server.reloader(), server.rest_addr());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async move { _ = stopped.await }));
        Self { handle, reloader, address, rest, stop, task }
    }

    /// Address of REST.
    pub(crate) fn rest(&self) -> SocketAddr {
        self.rest.unwrap()
    }

    pub(crate) async fn stop(self) -> Handle {
        self.stop.send(()).unwrap();
        within(self.task).await.unwrap();
        self.handle
    }

    /// Waits until the switch has been taken over.
    pub(crate) async fn wait_for_ports(&self, switch: u64) {
        until(async || {
            let switches = self.handle.switches().await.unwrap();
            switches.iter().any(|s| s.switch.0 == switch && s.is_connected && s.rules > 0)
        })
        .await;
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(waiting).await;
}

/// Waits for what comes. The timeout is generous, so that only what never comes fails the test.
pub(crate) async fn within<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it never came")
}
