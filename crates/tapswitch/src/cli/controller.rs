//! The command line of `controller`, `token` and `audit`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use tapswitch_controller::{EtcdConfig, EtcdTls, ParseEtcdError, Role};

use super::{AskArgs, ServeArgs};

#[derive(Args, Clone, Debug)]
pub(crate) struct ControllerArgs {
    /// Where to accept switches, as tcp:ADDRESS:PORT or tls:ADDRESS:PORT; may be given several
    /// times.
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp:127.0.0.1:6653")]
    pub(crate) listen: Vec<Listen>,
    /// Where policies and the audit log are kept: a file, none, or etcd for several controllers of
    /// which one leads, as etcd://HOST:PORT,HOST:PORT/PREFIX?ttl=SECONDS, or etcds:// for etcd by
    /// TLS; /var/lib/tapswitch/controller.redb when not given and root.
    #[arg(long, value_name = "PLACE")]
    pub(crate) store: Option<StorePlace>,
    /// Where REST is served: ADDRESS:PORT, or off.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8653")]
    pub(crate) rest: RestPlace,
    /// Where others reach REST of this controller when it leads, for those who ask a follower;
    /// without it, what --rest says.
    #[arg(long, value_name = "URL")]
    pub(crate) rest_url: Option<RestUrl>,
    #[command(flatten)]
    pub(crate) store_files: StoreFilesArgs,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// How etcd and a controller know each other. Files are read again when they have changed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StoreFilesArgs {
    /// Who vouches for the members of an etcds:// store (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) store_ca: Option<PathBuf>,
    /// The controller's certificate for them (PEM), where they want to see one.
    #[arg(long, value_name = "FILE", requires_all = ["store_key", "store_ca"])]
    pub(crate) store_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", requires = "store_cert")]
    pub(crate) store_key: Option<PathBuf>,
    /// File with a line of USER:PASSWORD, for an etcd that asks who writes.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_login: Option<PathBuf>,
}

/// Who may come in, and by which certificates. SIGHUP reads the files again.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FilesArgs {
    /// File of tokens for REST, as `tapswitch token new` prints them; without it the user that runs
    /// this, and root, may do everything, and other users of this machine may look.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Certificate for REST and for switches (PEM), with those that vouch for it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Who vouches for switches (PEM): those without a certificate of theirs are turned away.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Who vouches for clients of REST (PEM), besides their tokens.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) rest_ca: Option<PathBuf>,
    /// Serve REST to other machines without tokens or without TLS.
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// Where switches are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    Tls(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = |rest: &str| rest.parse().map_err(|_| no_endpoint(text));
        match text.split_once(':') {
            Some(("tcp", rest)) => address(rest).map(Self::Tcp),
            Some(("tls" | "ssl", rest)) => address(rest).map(Self::Tls),
            _ => Err(no_endpoint(text)),
        }
    }
}

fn no_endpoint(text: &str) -> String {
    format!(
        "'{text}' is not an endpoint; expected tcp:ADDRESS:PORT or tls:ADDRESS:PORT, as in \
         tcp:127.0.0.1:6653 or tls:[::]:6653; host names are not resolved"
    )
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
    /// The same, with what is needed to reach it; or what does not fit.
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

    /// The same, with where others reach REST of this controller; or why nobody asks for that.
    pub(crate) fn with_rest_url(mut self, url: Option<RestUrl>) -> Result<Self, String> {
        match (&mut self, url) {
            (Self::Etcd(etcd), url) => etcd.rest_url = url.map(|RestUrl(url)| url),
            (_, Some(RestUrl(url))) => return Err(format!("{url}: {ONLY_SHARED}")),
            (_, None) => {}
        }
        Ok(self)
    }
}

const ONLY_ETCD: &str = "this file is only for a store in etcd, as in etcds://10.0.0.1:2379";

const ONLY_SHARED: &str = "a REST URL is only for controllers that share a store in etcd, as in \
                           etcd://10.0.0.1:2379; leave it out";

/// Where others reach REST.
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

#[derive(Args, Clone, Debug)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token: prints it once, and the lines for the file of tokens, which do not tell it.
    New {
        /// Whose it is, as the audit log will say.
        name: String,
        /// What it allows.
        #[arg(long, value_name = "ROLE")]
        role: RoleName,
        /// Append the lines to this file, made for its owner alone, and print the token alone.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// What a token allows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleName {
    /// Look.
    Viewer,
    /// Add and delete policies, too.
    Operator,
    /// Read the audit log, too.
    Admin,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Viewer => Self::Viewer,
            RoleName::Operator => Self::Operator,
            RoleName::Admin => Self::Admin,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct AuditArgs {
    /// Go on with records as they are written.
    #[arg(long, conflicts_with_all = ["export", "verify"])]
    pub(crate) follow: bool,
    /// Write all records to this file, as lines of JSON; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Option<PathBuf>,
    /// Check that no record was changed, removed or inserted.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Read the records from an export instead of a running controller.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["export", "follow"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

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
