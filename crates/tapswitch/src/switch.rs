//! `tapswitch switch`: a switch alone.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tapswitch_switch::{
    CORE_COUNT_MAX, Config, DatapathId, Endpoint, FailMode, Learning, PeerName, PortSpec, Tls,
    usable_cores,
};

use crate::daemon::{Parts, serve};
use crate::management::ServeArgs;
use crate::runtime::block_on;

#[derive(Args, Clone, Debug)]
pub(crate) struct SwitchArgs {
    /// Name of the bridge.
    #[arg(long, default_value = "br0", value_parser = parse_bridge_name)]
    pub(crate) name: String,
    /// Unique datapath ID, not zero: decimal, or hexadecimal with 0x or with all sixteen digits.
    #[arg(long, value_name = "ID", default_value = "0x1", value_parser = parse_datapath_id)]
    pub(crate) datapath_id: DatapathId,
    /// Controller to connect to: tcp:ADDRESS:PORT or tls:ADDRESS:PORT; the port is 6653 if omitted.
    /// May be repeated.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) controller: Vec<Endpoint>,
    /// Address to accept OpenFlow connections on, for ovs-ofctl for example: tcp:ADDRESS:PORT or
    /// tls:ADDRESS:PORT. May be repeated.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) listen: Vec<Endpoint>,
    #[command(flatten)]
    pub(crate) tls: SwitchTlsArgs,
    /// Seconds without a message after which the peer of a connection is sent an echo request, and
    /// then until the connection is closed; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_echo_interval)]
    pub(crate) echo_interval: Duration,
    /// What to do while no controller answers: standalone (forward as a learning switch) or secure
    /// (continue with the installed rules).
    #[arg(long, value_name = "MODE", default_value = "standalone")]
    pub(crate) fail_mode: FailMode,
    /// Tags that distinguish VLANs in MAC learning: outer (the outermost tag) or stack (the two
    /// outermost tags).
    #[arg(long, value_name = "outer|stack", default_value = "outer")]
    pub(crate) learning: Learning,
    /// Port of the switch, as `NUMBER=KIND:ARGUMENT[,OPTION...]`; may be repeated. `tapswitch port`
    /// adds and removes ports of a running switch.
    ///
    /// NUMBER is 1 to 4095, or "local". The kinds are:
    ///
    /// `tap:NAME[,netns=NS][,queues=N]`: tap device
    ///
    /// `tun:NAME[,peer=MAC][,netns=NS][,queues=N]`: tun device (IP without Ethernet)
    ///
    /// `netdev:IFNAME[,netns=NS]`: existing interface
    ///
    /// `vhost:PATH[,server|client][,queues=N][,owner=USER][,group=GROUP][,permissions=MODE]`:
    /// virtual machine by vhost-user
    ///
    /// `vxlan:remote=IP,vni=V`, `gre:remote=IP[,key=K]`, `erspan:remote=IP,session=S,version=2|3`:
    /// tunnel
    ///
    /// `pcapng:PATH[,rotate-size=SIZE][,rotate-time=TIME][,keep=N]`: capture file
    ///
    /// Options:
    ///
    /// mtu=BYTES: maximum payload of a packet
    ///
    /// envelope=BYTES: room for VLAN tags on top of the MTU (default 8); the MTU of a netdev
    /// interface is raised by this much and restored when the port closes; 0 leaves it unchanged
    ///
    /// gro=on|off|auto: join received packets into trains (default auto: while it pays; on for
    /// tunnels)
    ///
    /// offload=off: send only whole packets with complete checksums
    ///
    /// stall=MS: how long senders wait for this port while it takes nothing (default 50)
    ///
    /// drain-ahead=on|off|KIB: how much to read ahead from this port while it waits for another one
    ///
    /// pause=on|off|auto: whether traffic from this port waits for full ports (default auto: unless
    /// a bridge is behind it)
    ///
    /// flood=on|off: whether the port receives flooded frames (default off for gre, erspan and
    /// pcapng, else on)
    ///
    /// txqueuelen=FRAMES, backpressure=on|off|auto: rings of tap and tun devices
    ///
    /// `mode=access,vlan=VID`, `mode=trunk[,vlans=VIDS][,native=VID]`,
    /// `mode=dot1q-tunnel,vlan=SVID[,vlans=VIDS]`,
    /// `mode=qinq,map=VIDS:SVID[/VID]+...[,untagged=SVID]`,
    /// `mode=provider[,vlans=SVIDS][,tpid=0x88a8|0x8100|0x9100][,translate=OUTSIDE:INSIDE+...]`:
    /// VLAN mode, with VIDS as in 10+20-30
    ///
    /// See docs/ports.md and docs/vlan.md.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Vec<PortSpec>,
    /// Number of worker threads. Default: the number of queues of the port that has most, at most
    /// the number of cores.
    #[arg(long, value_name = "N", value_parser = parse_worker_count)]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Cores to pin the workers to, separated by commas, each once.
    #[arg(long, value_name = "CORES", value_delimiter = ',', value_parser = parse_core)]
    pub(crate) cores: Vec<usize>,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// TLS between a switch and its controllers. Changed files are read again for each connection.
#[derive(Args, Clone, Debug)]
pub(crate) struct SwitchTlsArgs {
    /// Certificate chain of the switch for tls: (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the switch (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// CA certificates that controllers and connecting tools must be signed by (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Name in the controller's certificate, if not the address: a host name, or any to accept
    /// every name that the CA signed.
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    pub(crate) tls_name: Option<PeerName>,
}

impl SwitchTlsArgs {
    pub(crate) fn tls(self) -> Option<Tls> {
        let name = self.tls_name.unwrap_or_default();
        Some(Tls { cert: self.tls_cert?, key: self.tls_key?, ca: self.tls_ca?, name })
    }
}

/// Runs it until a stop signal.
pub(crate) fn main(args: SwitchArgs) -> Result<(), Box<dyn std::error::Error>> {
    let socket = args.socket.path(&args.name);
    let SwitchArgs { name, datapath_id, controller, listen, fail_mode, learning, port, .. } = args;
    let switch = Config {
        controllers: controller,
        listen,
        tls: args.tls.tls(),
        echo_interval: args.echo_interval,
        fail_mode,
        learning,
        ports: port,
        workers: args.workers,
        cores: args.cores,
        ..Config::new(name, datapath_id)
    };
    block_on(serve(Parts { switch: Some(switch), socket, ..Parts::default() }))
}

/// Parses the name of a bridge, which is also the name of its socket.
pub(crate) fn parse_bridge_name(text: &str) -> Result<String, String> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if is_name && text.len() <= BRIDGE_NAME_LEN_MAX && text.bytes().all(is_known) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is not a valid bridge name; expected up to {BRIDGE_NAME_LEN_MAX} letters, \
         digits, '-', '_' and '.', of which the first is a letter or a digit"
    ))
}

/// Parses an interval in seconds; [`Duration::MAX`] for 0.
pub(crate) fn parse_echo_interval(text: &str) -> Result<Duration, String> {
    match text.parse().ok().filter(|seconds: &u64| *seconds <= ECHO_INTERVAL_MAX_S) {
        Some(0) => Ok(Duration::MAX),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(format!(
            "{text} is not a valid interval; expected 1 to {ECHO_INTERVAL_MAX_S} seconds, or 0 to \
             send no echo requests"
        )),
    }
}

/// Parses a number of workers.
pub(crate) fn parse_worker_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= WORKER_COUNT_MAX);
    count.ok_or_else(|| {
        format!("{text} is not a valid number of workers; expected 1 to {WORKER_COUNT_MAX}")
    })
}

/// Parses a core number.
pub(crate) fn parse_core(text: &str) -> Result<usize, String> {
    let usable = usable_cores();
    let is_there = |core: &usize| match usable {
        [] => *core < CORE_COUNT_MAX,
        usable => usable.contains(core),
    };
    text.parse().ok().filter(is_there).ok_or_else(|| {
        let known = if usable.is_empty() { "a number".to_owned() } else { ranges(usable) };
        format!("this process may not use core '{text}'; expected {known}")
    })
}

/// Formats numbers as ranges, such as 0-3,8.
fn ranges(numbers: &[usize]) -> String {
    let chunks = numbers.chunk_by(|one, next| one + 1 == *next);
    let text = |chunk: &[usize]| match chunk {
        [first, .., last] => format!("{first}-{last}"),
        _ => chunk.iter().map(ToString::to_string).collect(),
    };
    chunks.map(text).collect::<Vec<_>>().join(",")
}

/// Parses a datapath ID: decimal, or hexadecimal with 0x or with all sixteen digits, as switches
/// and controllers print it. Zero is refused, as by Open vSwitch (`other_config:datapath-id`): an
/// ID that was never set looks like that.
pub(crate) fn parse_datapath_id(text: &str) -> Result<DatapathId, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() == 16 => (text, 16),
        None => (text, 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u64::from_str_radix(digits, radix).ok().filter(|_| is_number) {
        Some(0) => Err(format!(
            "'{text}' is not a datapath ID, because it is zero; give each switch of a controller \
             its own number from 1 on, such as 0x1"
        )),
        Some(id) => Ok(DatapathId(id)),
        None => Err(format!(
            "'{text}' is not a datapath ID; expected decimal digits, or 0x and up to 16 \
             hexadecimal digits, or exactly 16 of them"
        )),
    }
}

/// Leaves room in a file name for a suffix.
const BRIDGE_NAME_LEN_MAX: usize = 64;
/// Each worker takes a thread and a few files; a process may have some thousand files.
const WORKER_COUNT_MAX: usize = 128;
/// The longest interval of echo requests: a day.
const ECHO_INTERVAL_MAX_S: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_listed_in_ranges() {
        for (numbers, text) in [(&[0][..], "0"), (&[0, 1, 2, 5, 7, 8], "0-2,5,7-8"), (&[], "")] {
            assert_eq!(ranges(numbers), text);
        }
    }

    #[test]
    fn an_interval_of_zero_is_without_end() {
        assert_eq!(parse_echo_interval("0"), Ok(Duration::MAX));
        assert_eq!(parse_echo_interval("86400"), Ok(Duration::from_secs(86_400)));
        for text in ["", "-1", "86401", "0.5", "5s"] {
            let error = parse_echo_interval(text).unwrap_err();
            assert!(error.contains("expected 1 to 86400 seconds, or 0"), "{error}");
        }
    }

    #[test]
    fn datapath_numbers_are_read_as_they_are_printed() {
        for (text, id) in [("16", 16), ("0x10", 16), ("0X1f", 31), ("0000000000000010", 16)] {
            assert_eq!(parse_datapath_id(text), Ok(DatapathId(id)), "{text}");
        }
        let id = DatapathId(0x42);
        assert_eq!(parse_datapath_id(&id.to_string()), Ok(id));
        for text in ["", "0x", "+1", "0x+1", "1f", "0x10000000000000000", "000000000000000g"] {
            assert!(parse_datapath_id(text).is_err(), "{text}");
        }
        for text in ["0", "0x0", "0000000000000000"] {
            let error = parse_datapath_id(text).unwrap_err();
            assert!(error.contains("it is zero; give each switch"), "{error}");
        }
    }
}
