//! Listening, accepting, starting and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tapswitch_control::{Control, WhenMissing};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::connection::{Connection, ConnectionId};
use crate::hub::{Hub, Input};
use crate::{BindError, Config, Handle};

/// A controller that listens, and serves when it is run.
#[derive(Debug)]
pub struct Server {
    config: Config,
    control: Control,
    listeners: Vec<TcpListener>,
    to_hub: mpsc::Sender<Input>,
    inputs: mpsc::Receiver<Input>,
}

impl Server {
    /// Takes the addresses and reads the configured policies. Switches can connect from here on,
    /// but are answered only when the server runs.
    ///
    /// # Errors
    /// Which address cannot be listened on, or which policy cannot be, and what to do.
    pub async fn bind(config: Config) -> Result<Self, BindError> {
        let mut control = Control::new(config.limits.clone());
        for policy in &config.policies {
            let added = control.add_policy(policy.clone(), WhenMissing::Wait);
            added.map_err(|error| BindError::Policy { name: policy.name.clone(), error })?;
        }
        let mut listeners = Vec::new();
        for &address in &config.listen {
            let listener = TcpListener::bind(address).await;
            listeners.push(listener.map_err(|error| BindError::new(address, error))?);
        }
        if listeners.is_empty() {
            return Err(BindError::Nowhere);
        }
        let (to_hub, inputs) = mpsc::channel(MAX_INPUTS);
        Ok(Self { config, control, listeners, to_hub, inputs })
    }

    /// Where switches can connect, with the ports that were chosen for port 0.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Asks the server while it runs.
    pub fn handle(&self) -> Handle {
        let Config { request_timeout, stats_timeout, .. } = self.config;
        Handle::new(self.to_hub.clone(), request_timeout, stats_timeout)
    }

    /// Serves until `shutdown` is done, then closes all connections. Switches keep their rules.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { config, control, listeners, to_hub, inputs } = self;
        for address in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
            tracing::info!("listening for switches on {address}");
        }
        let mut tasks = JoinSet::new();
        let acceptor = Acceptor {
            bounds: (config.channel, config.max_waiting),
            to_hub,
            slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        };
        for listener in listeners {
            tasks.spawn(acceptor.clone().accept(listener));
        }
        drop(acceptor);
        Hub::new(control, inputs, config.takeover_after).run(shutdown).await;
        // What was told to switches before is still on its way; what they say is not heard.
        tasks.shutdown().await;
        tracing::info!("stopped; the switches keep their rules");
    }
}

/// Makes connections of what comes in.
#[derive(Clone, Debug)]
struct Acceptor {
    bounds: (tapswitch_channel::Config, usize),
    to_hub: mpsc::Sender<Input>,
    slots: Arc<Semaphore>,
}

impl Acceptor {
    /// Accepts connections until it is dropped, and with it the connections.
    async fn accept(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.start(stream, peer, &mut connections),
                    Err(error) => {
                        // Out of file descriptors, mostly: wait for some to be closed.
                        tracing::warn!("cannot accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, connections: &mut JoinSet<()>) {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            tracing::warn!(
                "{peer} is turned away: {MAX_CONNECTIONS} connections are as many as allowed"
            );
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("{peer}: no TCP_NODELAY: {error}");
        }
        let connection =
            Connection::new(ConnectionId::next(), peer, self.bounds, self.to_hub.clone());
        connections.spawn(async move {
            connection.run(stream).await;
            drop(slot);
        });
    }
}

/// Inputs that wait for the hub; with more, connections are read from later.
const MAX_INPUTS: usize = 1024;
/// Connections at a time, those among them that have not said yet who they are.
const MAX_CONNECTIONS: usize = 4096;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
