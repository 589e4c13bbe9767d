//! `tapswitch controller`: a controller alone.

use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use tapswitch_controller::{
    Config, EtcdConfig, EtcdTls, ParseEtcdError, RestConfig, StoreConfig, TlsFiles,
};
use tapswitch_switch::{Endpoint, Transport};

use crate::daemon::{Parts, serve};
use crate::management::ServeArgs;
use crate::runtime::block_on;
use crate::switch::parse_echo_interval;

#[derive(Args, Clone, Debug)]
pub(crate) struct ControllerArgs {
    /// Address to accept switches on: tcp:ADDRESS:PORT or tls:ADDRESS:PORT; the port is 6653 if
    /// omitted. May be repeated.
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp:127.0.0.1:6653")]
    pub(crate) listen: Vec<Listen>,
    /// Seconds without a message after which a switch is sent an echo request, and then until its
    /// connection is closed; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_echo_interval)]
    pub(crate) echo_interval: Duration,
    /// Where to keep policies and the audit log: a file, none, or etcd for several controllers that
    /// elect a leader, as etcd://HOST:PORT,HOST:PORT/PREFIX?ttl=SECONDS, or etcds:// with TLS.
    /// Default: /var/lib/tapswitch/controller.redb if it can be written (as root), else none.
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<StorePlace>,
    /// Address of the REST interface: ADDRESS:PORT, or off.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8653")]
    pub(crate) rest: RestPlace,
    /// URL at which others reach the REST interface of this controller when it leads; for stores in
    /// etcd. Default: the address of --rest.
    #[arg(long, value_name = "URL")]
    pub(crate) rest_url: Option<RestUrl>,
    /// Where other controllers connect for switches that only they have, when this one leads, in
    /// the form of --listen; for stores in etcd. Default: an address of --listen, unless that is a
    /// wildcard.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) relay_address: Option<Listen>,
    #[command(flatten)]
    pub(crate) store_files: StoreFilesArgs,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// Authentication between etcd and a controller. Changed files are read again.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StoreFilesArgs {
    /// CA certificates of the members of an etcds:// store (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) store_ca: Option<PathBuf>,
    /// Client certificate of the controller for etcd (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["store_key", "store_ca"])]
    pub(crate) store_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "store_cert")]
    pub(crate) store_key: Option<PathBuf>,
    /// File with a line USER:PASSWORD, if etcd requires authentication.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_login: Option<PathBuf>,
}

/// Authentication of clients and switches. SIGHUP reads the files again.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FilesArgs {
    /// File of REST tokens, as printed by `tapswitch token new`. Without it, root and the user that
    /// runs the controller have full access, and other users of this machine may read.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Certificate chain for REST and for switches (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// CA certificates of switches (PEM); switches without a certificate are refused.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// CA certificates of REST clients (PEM), in addition to tokens.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) rest_ca: Option<PathBuf>,
    /// Serve REST to other machines without tokens or without TLS.
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl FilesArgs {
    /// The first setting that nothing would use, and why: without it the controller would look
    /// guarded, and not be.
    pub(crate) fn unused(
        &self,
        listen: &[Listen],
        rest: RestPlace,
    ) -> Option<(&'static str, &'static str)> {
        let has_rest = rest != RestPlace::Off;
        let has_tls = listen.iter().any(|at| matches!(at, Listen::Tls(_)));
        let settings = [
            ("tokens", self.tokens.is_some(), has_rest, NO_REST),
            ("rest-ca", self.rest_ca.is_some(), has_rest, NO_REST),
            ("insecure", self.insecure, has_rest, NO_REST),
            ("tls-ca", self.tls_ca.is_some(), has_tls, NO_TLS),
            ("tls-cert", self.tls_cert.is_some(), has_rest || has_tls, NEITHER),
        ];
        let unused = settings.into_iter().find(|(_, is_set, is_used, _)| *is_set && !is_used);
        unused.map(|(key, .., text)| (key, text))
    }
}

const NO_REST: &str = "nothing would use it, as REST is off: give rest an address, as in \
                       127.0.0.1:8653, or leave this out";
const NO_TLS: &str = "nothing would use it, as switches are not accepted with TLS: add \
                      tls:ADDRESS:PORT to listen, or leave this out";
const NEITHER: &str = "nothing would use it, as REST is off and switches are not accepted with \
                       TLS: give rest an address, or add tls:ADDRESS:PORT to listen, or leave \
                       this out";

/// Runs it until a stop signal.
pub(crate) fn main(args: &ControllerArgs) -> Result<(), Box<dyn std::error::Error>> {
    let socket = args.socket.path("controller");
    let store = args.store.clone().unwrap_or_else(default_store).with_files(&args.store_files)?;
    let store = store.with_rest_url(args.rest_url.clone())?;
    let store = store.with_relay_address(args.relay_address)?;
    if let Some((key, text)) = args.files.unused(&args.listen, args.rest) {
        return Err(format!("--{key}: {text}").into());
    }
    let mut controller = config(&args.listen, (&store, args.rest), &args.files);
    controller.channel.echo_interval = args.echo_interval;
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

/// The configuration of a controller with these addresses, store and files.
pub(crate) fn config(
    listen: &[Listen],
    (store, rest): (&StorePlace, RestPlace),
    files: &FilesArgs,
) -> Config {
    let mut config = Config { listen: vec![], ..Config::default() };
    for at in listen {
        match *at {
            Listen::Tcp(address) => config.listen.push(address),
            Listen::Tls(address) => config.listen_tls.push(address),
        }
    }
    config.store = match store {
        StorePlace::None => StoreConfig::None,
        StorePlace::File(path) => StoreConfig::File(path.clone()),
        StorePlace::Etcd(etcd) => StoreConfig::Etcd(etcd.clone()),
    };
    let tls = |ca: &Option<PathBuf>| {
        let (cert, key) = (files.tls_cert.clone()?, files.tls_key.clone()?);
        Some(TlsFiles { cert, key, ca: ca.clone() })
    };
    config.tls = tls(&files.tls_ca);
    config.rest = match rest {
        RestPlace::Off => None,
        RestPlace::At(listen) => Some(RestConfig {
            listen,
            tokens: files.tokens.clone(),
            tls: tls(&files.rest_ca),
            is_insecure: files.insecure,
            ..RestConfig::default()
        }),
    };
    config
}

/// An address to accept switches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    Tls(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let endpoint = text.parse::<Endpoint>().map_err(|error| error.to_string())?;
        Ok(match endpoint.transport {
            Transport::Tcp => Self::Tcp(endpoint.address),
            Transport::Tls => Self::Tls(endpoint.address),
        })
    }
}

/// Where policies are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StorePlace {
    None,
    File(PathBuf),
    Etcd(EtcdConfig),
}

impl FromStr for StorePlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("empty value; expected a file, etcd://HOST:PORT,... or none".to_owned()),
            "none" => Ok(Self::None),
            url if url.contains("://") || url.starts_with("etcd:") || url.starts_with("etcds:") => {
                url.parse().map(Self::Etcd).map_err(|error: ParseEtcdError| error.to_string())
            }
            path => Ok(Self::File(path.into())),
        }
    }
}

impl StorePlace {
    /// Adds the credentials for the store; fails if they do not fit it.
    pub(crate) fn with_files(self, files: &StoreFilesArgs) -> Result<Self, String> {
        let StoreFilesArgs { store_ca, store_cert, store_key, store_login } = files;
        let Self::Etcd(mut etcd) = self else {
            let given = [store_ca, store_cert, store_key, store_login].into_iter().flatten().next();
            return match given {
                None => Ok(self),
                Some(file) => Err(format!("{}: {ONLY_ETCD}", file.display())),
            };
        };
        let own = match (store_cert, store_key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            _ => return Err("store-cert and store-key need each other".to_owned()),
        };
        etcd.login.clone_from(store_login);
        etcd.tls = match (store_ca, own) {
            (None, None) => None,
            (Some(ca), own) => Some(EtcdTls { ca: ca.clone(), own }),
            (None, Some(_)) => {
                return Err(
                    "store-cert and store-key need store-ca, the CA of etcd's certificates"
                        .to_owned(),
                );
            }
        };
        Ok(Self::Etcd(etcd))
    }

    /// Adds the URL of the REST interface; fails if nothing would use it.
    pub(crate) fn with_rest_url(mut self, url: Option<RestUrl>) -> Result<Self, String> {
        match (&mut self, url) {
            (Self::Etcd(etcd), url) => etcd.rest_url = url.map(|RestUrl(url)| url),
            (_, Some(RestUrl(url))) => return Err(format!("{url}: a REST URL {ONLY_SHARED}")),
            (_, None) => {}
        }
        Ok(self)
    }

    /// Adds the address for relayed switches; fails if nothing would use it, or nobody reach it.
    pub(crate) fn with_relay_address(mut self, at: Option<Listen>) -> Result<Self, String> {
        let Some(at) = at else { return Ok(self) };
        let (address, text) = match at {
            Listen::Tcp(address) => (address, format!("tcp:{address}")),
            Listen::Tls(address) => (address, format!("tls:{address}")),
        };
        if address.ip().is_unspecified() || address.port() == 0 {
            return Err(format!("{text}: others cannot connect there; name one address and port"));
        }
        let Self::Etcd(etcd) = &mut self else {
            return Err(format!("{text}: a relay address {ONLY_SHARED}"));
        };
        etcd.relay_address = Some(text);
        Ok(self)
    }
}

const ONLY_ETCD: &str = "this file is only for a store in etcd, as in etcds://10.0.0.1:2379";

const ONLY_SHARED: &str = "is only for controllers that share a store in etcd, as in \
                           etcd://10.0.0.1:2379; leave it out";

/// URL at which others reach REST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestUrl(String);

impl FromStr for RestUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let is_url = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with(['/', ':']) && !rest.contains(char::is_whitespace)
        });
        match is_url {
            true => Ok(Self(text.to_owned())),
            false => Err(format!(
                "'{text}' is not a URL of REST; expected one as in https://10.0.1.1:8653"
            )),
        }
    }
}

/// Where REST is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RestPlace {
    #[default]
    Off,
    At(SocketAddr),
}

impl FromStr for RestPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| {
            format!(
                "'{text}' is not an address for REST; expected ADDRESS:PORT, as in 127.0.0.1:8653, \
                 or off"
            )
        })
    }
}

/// Default store of a controller.
const STORE: &str = "/var/lib/tapswitch/controller.redb";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_switches_are_accepted() {
        let address = "127.0.0.1:6653".parse().unwrap();
        assert_eq!("tcp:127.0.0.1:6653".parse(), Ok(Listen::Tcp(address)));
        assert_eq!("tls:127.0.0.1:6653".parse(), Ok(Listen::Tls(address)));
        assert_eq!("ssl:127.0.0.1:6653".parse(), Ok(Listen::Tls(address)), "as Open vSwitch says");
        for text in ["6653", "tls:6653", "udp:127.0.0.1:1", "127.0.0.1:6653"] {
            assert!(text.parse::<Listen>().unwrap_err().contains("tls:ADDRESS:PORT"), "{text}");
        }
    }

    #[test]
    fn what_can_be_left_out_is_a_word() {
        assert_eq!("none".parse(), Ok(StorePlace::None));
        assert_eq!("./none".parse(), Ok(StorePlace::File("./none".into())));
        assert!(matches!("etcd://a:1".parse(), Ok(StorePlace::Etcd(_))));
        assert!("etcd:/a:1".parse::<StorePlace>().unwrap_err().to_string().contains("etcd://"));
        assert!("http://a:1".parse::<StorePlace>().unwrap_err().to_string().contains("etcd://"));
        assert_eq!("off".parse(), Ok(RestPlace::Off));
        assert!("8653".parse::<RestPlace>().unwrap_err().contains("ADDRESS:PORT"));
    }
}
