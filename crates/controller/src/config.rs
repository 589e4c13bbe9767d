//! What can be set for the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tapswitch_control::{Limits, TapPolicy};

use crate::{RestConfig, StoreConfig, TlsFiles};

/// What can be set for the server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where switches connect. By default only this machine's can.
    pub listen: Vec<SocketAddr>,
    /// Where switches connect by TLS.
    pub listen_tls: Vec<SocketAddr>,
    /// Key and certificates for them.
    pub tls: Option<TlsFiles>,
    /// Policies from the start. They wait for monitors that are not there yet.
    pub policies: Vec<TapPolicy>,
    /// Where policies that are added, and the audit log, are kept.
    pub store: StoreConfig,
    /// REST, if wanted.
    pub rest: Option<RestConfig>,
    /// The limits of the control plane. Without [`Limits::discovery`] each switch stands alone.
    pub limits: Limits,
    /// Whether links between switches are looked for, by the store's key or that of the limits.
    pub discover: bool,
    /// Times and limits of each connection.
    pub channel: tapswitch_channel::Config,
    /// Messages that may wait for a switch that does not read, beside the bytes that the channel
    /// lets wait. A switch gets all of its rules at once, so this is several times as many.
    pub max_waiting: usize,
    /// Connections of switches at a time. When there are as many, those make room that have not
    /// said which switch they are.
    pub max_connections: usize,
    /// How long an older connection of a switch has to give a sign of life when there is a newer
    /// one; if it gives none, that takes its place, and is refused otherwise.
    pub takeover_after: Duration,
    /// How long a request may wait for switches.
    pub request_timeout: Duration,
    /// How long a report waits for counters before it makes do with those that came last.
    pub stats_timeout: Duration,
    /// Events that are remembered for those who come back, and that a listener may be behind.
    pub max_events: usize,
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

/// The port that IANA assigned to OpenFlow.
const OPENFLOW_PORT: u16 = 6653;
