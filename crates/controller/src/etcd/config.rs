//! Configuration of the shared store.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A store in etcd, shared by several controllers, one of which leads.
///
/// Text form: `etcd://HOST:PORT[,HOST:PORT...][/PREFIX][?ttl=SECONDS]`, or `etcds://` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdConfig {
    /// Members as `host:port`; at least one.
    pub endpoints: Vec<String>,
    /// Prefix of all keys: each fabric has its own.
    pub prefix: String,
    /// Silence of the leader after which another controller takes over.
    pub ttl: Duration,
    /// Whether to use TLS, which needs [`Self::tls`].
    pub is_secure: bool,
    /// Certificates for TLS.
    pub tls: Option<EtcdTls>,
    /// A file with a line `USER:PASSWORD`, for an etcd with authentication. It is read for each
    /// authentication.
    pub login: Option<PathBuf>,
    /// URL of this controller's REST for clients of followers; `None` for the address that it
    /// listens on.
    pub rest_url: Option<String>,
    /// Where other controllers connect for switches that only they have, when this one leads, as
    /// `tcp:ADDRESS:PORT` or `tls:ADDRESS:PORT`; `None` for an address that it listens on.
    pub relay_address: Option<String>,
}

/// Certificates for etcd as PEM. They are reloaded when they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// CA of the members.
    pub ca: PathBuf,
    /// Our certificate and its key, if members require one.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl EtcdConfig {
    /// Text form without secrets.
    pub(crate) fn place(&self) -> String {
        let scheme = if self.is_secure { SECURE_SCHEME } else { SCHEME };
        format!("{scheme}{}{}", self.endpoints.join(","), self.prefix)
    }
}

impl FromStr for EtcdConfig {
    type Err = ParseEtcdError;

    fn from_str(text: &str) -> Result<Self, ParseEtcdError> {
        let wrong = |what| ParseEtcdError { text: text.to_owned(), what };
        let secure = text.strip_prefix(SECURE_SCHEME);
        let rest = secure.or_else(|| text.strip_prefix(SCHEME));
        let rest = rest.ok_or_else(|| wrong("it does not begin with etcd:// or etcds://"))?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(a, b)| (a, Some(b)));
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<_> = members.split(',').map(str::to_owned).collect();
        if !endpoints.iter().all(|endpoint| is_endpoint(endpoint)) {
            return Err(wrong(
                "each member must be HOST:PORT; user and password belong into the file of \
                 --store-login",
            ));
        }
        let prefix = match prefix.trim_matches('/') {
            "" => DEFAULT_PREFIX.to_owned(),
            prefix => format!("/{prefix}"),
        };
        let seconds = match query.map(|query| query.strip_prefix("ttl=").map(str::parse)) {
            None => DEFAULT_TTL_S,
            Some(Some(Ok(seconds @ 1..=MAX_TTL_S))) => seconds,
            Some(_) => return Err(wrong("only ttl= with 1 to 60 seconds may follow the ?")),
        };
        Ok(Self {
            endpoints,
            prefix,
            ttl: Duration::from_secs(seconds),
            is_secure: secure.is_some(),
            tls: None,
            login: None,
            rest_url: None,
            relay_address: None,
        })
    }
}

/// Whether it is host or address with a port.
fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_name = !host.is_empty() && !host.contains([':', '@', ' ']);
    (is_bracketed || is_name) && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// The text is not a valid etcd store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a store in etcd: {what}; expected \
     etcd://HOST:PORT,HOST:PORT,.../PREFIX?ttl=SECONDS, as in etcd://10.0.0.1:2379,10.0.0.2:2379, \
     or etcds:// for TLS"
)]
pub struct ParseEtcdError {
    text: String,
    what: &'static str,
}

/// Prefix of the text form.
const SCHEME: &str = "etcd://";
const SECURE_SCHEME: &str = "etcds://";
const DEFAULT_PREFIX: &str = "/tapswitch";
/// Minimum that etcd grants with its default election timeout.
const DEFAULT_TTL_S: u64 = 2;
const MAX_TTL_S: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_store_is() {
        let one: EtcdConfig = "etcd://localhost:2379".parse().unwrap();
        assert_eq!((one.endpoints.len(), one.prefix.as_str()), (1, "/tapswitch"));
        assert_eq!(one.ttl, Duration::from_secs(2));
        let more: EtcdConfig = "etcd://10.0.0.1:2379,[::1]:2380/lab/two/?ttl=5".parse().unwrap();
        assert_eq!(more.endpoints, ["10.0.0.1:2379", "[::1]:2380"]);
        assert_eq!((more.prefix.as_str(), more.ttl.as_secs()), ("/lab/two", 5));
        assert!(!more.is_secure);
        let secure: EtcdConfig = "etcds://a:1,b:2/lab".parse().unwrap();
        assert!(secure.is_secure);
        assert_eq!(secure.place(), "etcds://a:1,b:2/lab");
    }

    #[test]
    fn what_is_no_store_is_told_so() {
        let texts = [
            "etcd://",
            "etcd://host",
            "etcd://host:0",
            "etcd://user@host:2379",
            "etcd://a:1,,b:2",
            "etcd://a:1?ttl=0",
            "etcd://a:1?ttl=x",
            "etcd://a:1?lease=3",
            "etcdx://a:1",
        ];
        for text in texts {
            let error = text.parse::<EtcdConfig>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("as in etcd://"), "{error}");
        }
    }
}
