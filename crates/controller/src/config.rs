//! Configuration of the server and of REST.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tapswitch_control::{Limits, TapPolicy};

use crate::{StoreConfig, TlsFiles};

/// Configuration of the server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Listening addresses for switches. By default reachable from this machine only.
    pub listen: Vec<SocketAddr>,
    /// Listening addresses for switches with TLS.
    pub listen_tls: Vec<SocketAddr>,
    /// Key and certificates for these.
    pub tls: Option<TlsFiles>,
    /// Configured policies. They wait for monitors that do not exist yet.
    pub policies: Vec<TapPolicy>,
    /// Store of added policies and the audit log.
    pub store: StoreConfig,
    /// REST; `None` to disable it.
    pub rest: Option<RestConfig>,
    /// Limits of the control plane. Without [`Limits::discovery`] each switch is isolated.
    pub limits: Limits,
    /// Whether to discover links, with the key of the store or of the limits.
    pub discover: bool,
    /// Timeouts and limits of each connection.
    pub channel: tapswitch_channel::Config,
    /// Maximum messages queued for a switch that does not read, in addition to the channel's bytes.
    /// This is several times the number of rules, as a switch may get all of them at once.
    pub max_waiting: usize,
    /// Maximum connections of switches. When it is reached, unidentified ones are closed for new
    /// ones.
    pub max_connections: usize,
    /// Time for an older connection of a switch to show a sign of life when there is a newer one.
    /// If it does, the newer one is refused, else it replaces the older one; if this is zero, at
    /// once.
    pub takeover_after: Duration,
    /// Maximum time for which a request waits for switches.
    pub request_timeout: Duration,
    /// Maximum time for which a report waits for counters before it uses the last ones.
    pub stats_timeout: Duration,
    /// Number of events kept for reconnecting listeners, and maximum lag of a listener.
    pub max_events: usize,
}

/// Configuration of REST.
#[derive(Clone, Debug)]
pub struct RestConfig {
    /// Listening address. By default reachable from this machine only.
    pub listen: SocketAddr,
    /// File of tokens; without it the user that runs the controller, and root, may do everything,
    /// and other users may only read.
    pub tokens: Option<PathBuf>,
    /// Certificate and key, for HTTPS.
    pub tls: Option<TlsFiles>,
    /// Whether to listen on non-loopback addresses without tokens or TLS.
    pub is_insecure: bool,
    /// Time without progress after which a write ends its connection.
    pub write_timeout: Duration,
    /// Maximum connections. When it is reached, unauthenticated ones are closed for new ones.
    pub max_connections: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, OPENFLOW_PORT))],
            listen_tls: Vec::new(),
            tls: None,
            policies: Vec::new(),
            store: StoreConfig::None,
            rest: None,
            limits: Limits::default(),
            discover: true,
            channel: tapswitch_channel::Config::default(),
            max_waiting: 1 << 18,
            max_connections: 4096,
            takeover_after: Duration::from_secs(1),
            request_timeout: Duration::from_secs(10),
            stats_timeout: Duration::from_secs(2),
            max_events: 4096,
        }
    }
}

impl Default for RestConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], REST_PORT)),
            tokens: None,
            tls: None,
            is_insecure: false,
            write_timeout: Duration::from_secs(30),
            max_connections: 512,
        }
    }
}

/// Port assigned to OpenFlow by IANA.
const OPENFLOW_PORT: u16 = 6653;
/// Next to OpenFlow's 6653.
const REST_PORT: u16 = 8653;
