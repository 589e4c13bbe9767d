//! The configuration file of `tapswitch run`.
//!
//! TOML with the keys of `tapswitch switch` and `tapswitch policy add`. Every error names file,
//! line, column, key, and the expected value.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use tapswitch_control::{MonitorSpec, TapPolicy};
use tapswitch_switch::{
    Config as SwitchConfig, DatapathId, Endpoint, FailMode, Learning, PortSpec, Tls, Transport,
};
use toml::Spanned;

use crate::controller::{self, FilesArgs, Listen, RestPlace, StoreFilesArgs, StorePlace};
use crate::switch::{
    parse_bridge_name, parse_core, parse_datapath_id, parse_echo_interval, parse_worker_count,
};

/// What `tapswitch run` runs.
#[derive(Debug)]
pub(crate) struct RunConfig {
    pub(crate) switch: SwitchConfig,
    pub(crate) controller: Option<tapswitch_controller::Config>,
    /// True if added policies are only kept in memory, and the file does not ask for that.
    pub(crate) forgets: bool,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default = "default_bridge", deserialize_with = "bridge_name")]
    bridge: String,
    switch: SwitchSection,
    controller: Option<ControllerSection>,
    #[serde(default)]
    policy: Vec<Spanned<TapPolicy>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SwitchSection {
    #[serde(default = "default_datapath_id", deserialize_with = "datapath_id")]
    datapath_id: DatapathId,
    controller: Option<Texts>,
    #[serde(default)]
    listen: Texts,
    #[serde(default, deserialize_with = "echo_interval")]
    echo_interval: Option<Duration>,
    #[serde(default)]
    fail_mode: FailMode,
    #[serde(default)]
    learning: Learning,
    /// There may be none yet: `tapswitch port add` adds some later.
    #[serde(default)]
    port: Texts,
    #[serde(default, deserialize_with = "worker_count")]
    workers: Option<NonZeroUsize>,
    #[serde(default)]
    cores: Vec<Spanned<i64>>,
    tls_cert: Option<Spanned<PathBuf>>,
    tls_key: Option<Spanned<PathBuf>>,
    tls_ca: Option<Spanned<PathBuf>>,
    tls_name: Option<Spanned<String>>,
}

impl SwitchSection {
    /// Requires all files or none.
    fn tls(&self) -> Result<Option<Tls>, Fault> {
        let name = parse_one(self.tls_name.as_ref(), "switch.tls-name")?.unwrap_or_default();
        let files = [&self.tls_cert, &self.tls_key, &self.tls_ca];
        if let [Some(cert), Some(key), Some(ca)] = files {
            let [cert, key, ca] = [cert, key, ca].map(|file| file.get_ref().clone());
            return Ok(Some(Tls { cert, key, ca, name }));
        }
        let given = files.into_iter().flatten().map(Spanned::span);
        match given.chain(self.tls_name.iter().map(Spanned::span)).next() {
            None => Ok(None),
            Some(span) => {
                let text = "switch: TLS needs all of tls-cert, tls-key and tls-ca";
                Err(Fault::new(span, text.to_owned()))
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ControllerSection {
    listen: Option<Spanned<Texts>>,
    #[serde(default, deserialize_with = "echo_interval")]
    echo_interval: Option<Duration>,
    store: Option<Spanned<String>>,
    store_ca: Option<PathBuf>,
    store_cert: Option<PathBuf>,
    store_key: Option<PathBuf>,
    store_login: Option<PathBuf>,
    rest: Option<Spanned<String>>,
    rest_url: Option<Spanned<String>>,
    relay_address: Option<Spanned<String>>,
    tokens: Option<Spanned<PathBuf>>,
    tls_cert: Option<Spanned<PathBuf>>,
    tls_key: Option<Spanned<PathBuf>>,
    tls_ca: Option<Spanned<PathBuf>>,
    rest_ca: Option<Spanned<PathBuf>>,
    insecure: Option<Spanned<bool>>,
}

impl ControllerSection {
    /// A certificate needs its key, and other TLS settings need both.
    fn files(&self) -> Result<FilesArgs, Fault> {
        let all = [&self.tls_cert, &self.tls_key, &self.tls_ca, &self.rest_ca];
        if let [None, _, ..] | [_, None, ..] = all
            && let Some(given) = all.into_iter().flatten().next()
        {
            let text = "controller: TLS needs both of tls-cert and tls-key";
            return Err(Fault::new(given.span(), text.to_owned()));
        }
        let path = |file: &Option<Spanned<PathBuf>>| file.as_ref().map(|it| it.get_ref().clone());
        let [tls_cert, tls_key, tls_ca, rest_ca] = all.map(path);
        let tokens = path(&self.tokens);
        let insecure = self.insecure.as_ref().is_some_and(|it| *it.get_ref());
        Ok(FilesArgs { tokens, tls_cert, tls_key, tls_ca, rest_ca, insecure })
    }

    /// Fails if nothing would use one of the files.
    fn check_used(
        &self,
        files: &FilesArgs,
        listen: &[Listen],
        rest: RestPlace,
    ) -> Result<(), Fault> {
        let Some((key, text)) = files.unused(listen, rest) else { return Ok(()) };
        let span = match key {
            "tokens" => self.tokens.as_ref().map(Spanned::span),
            "rest-ca" => self.rest_ca.as_ref().map(Spanned::span),
            "insecure" => self.insecure.as_ref().map(Spanned::span),
            "tls-ca" => self.tls_ca.as_ref().map(Spanned::span),
            _ => self.tls_cert.as_ref().map(Spanned::span),
        };
        Err(Fault { key: None, span, text: format!("controller.{key}: {text}") })
    }

    /// Addresses to accept switches on.
    fn listens(&mut self) -> Result<Vec<Listen>, Fault> {
        let Some(listen) = self.listen.take() else { return Ok(vec![default_listen()]) };
        let (span, texts) = (listen.span(), listen.into_inner());
        let key = "controller.listen";
        if texts.is_empty() {
            let text = format!(
                "{key}: empty, so no switch could connect; expected [\"tcp:ADDRESS:PORT\"]"
            );
            return Err(Fault::new(span, text));
        }
        let has_tls = self.tls_cert.is_some() && self.tls_key.is_some();
        distinct(parse_all(texts, key)?, key, |at| match at {
            // The file's own switch connects to this address.
            Listen::Tcp(address) | Listen::Tls(address) if address.port() == 0 => {
                Some("the port may not be 0: switches need a known port to connect to")
            }
            Listen::Tls(_) if !has_tls => Some("TLS needs both of tls-cert and tls-key"),
            _ => None,
        })
    }

    fn store_files(&self) -> StoreFilesArgs {
        StoreFilesArgs {
            store_ca: self.store_ca.clone(),
            store_cert: self.store_cert.clone(),
            store_key: self.store_key.clone(),
            store_login: self.store_login.clone(),
        }
    }

    /// Where policies are kept and REST is served: neither by default.
    fn places(&self) -> Result<(StorePlace, RestPlace), Fault> {
        const STORE: &str = "controller.store";
        const URL: &str = "controller.rest-url";
        const RELAY: &str = "controller.relay-address";
        let unfit = |key: &str, at: &Option<Spanned<String>>, text: String| Fault {
            key: None,
            span: at.as_ref().map(Spanned::span),
            text: format!("{key}: {text}"),
        };
        let store = parse_one(self.store.as_ref(), STORE)?.unwrap_or(StorePlace::None);
        let rest = parse_one(self.rest.as_ref(), "controller.rest")?;
        let store = store.with_files(&self.store_files());
        let store = store.map_err(|text| unfit(STORE, &self.store, text))?;
        let store = store.with_rest_url(parse_one(self.rest_url.as_ref(), URL)?);
        let store = store.map_err(|text| unfit(URL, &self.rest_url, text))?;
        let store = store.with_relay_address(parse_one(self.relay_address.as_ref(), RELAY)?);
        let store = store.map_err(|text| unfit(RELAY, &self.relay_address, text))?;
        Ok((store, rest.unwrap_or(RestPlace::Off)))
    }
}

/// A list whose members are parsed later: for a wrong member, the TOML parser would report the
/// start of the list.
type Texts = Vec<Spanned<String>>;

/// Parses `texts`, with their positions; `key` is the list's.
fn parse_all<T: FromStr<Err: fmt::Display>>(
    texts: Texts,
    key: &str,
) -> Result<Vec<Spanned<T>>, Fault> {
    let parse = |text: Spanned<String>| match text.get_ref().parse() {
        Ok(meaning) => Ok(Spanned::new(text.span(), meaning)),
        Err(error) => Err(Fault::new(text.span(), format!("{key}: {error}"))),
    };
    texts.into_iter().map(parse).collect()
}

fn parse_one<T: FromStr<Err: fmt::Display>>(
    text: Option<&Spanned<String>>,
    key: &str,
) -> Result<Option<T>, Fault> {
    let texts = text.cloned().into_iter().collect();
    Ok(parse_all(texts, key)?.pop().map(Spanned::into_inner))
}

/// Requires distinct members of a list; `lacks` is the message for a duplicate.
fn distinct<T: PartialEq>(
    list: Vec<Spanned<T>>,
    key: &str,
    lacks: impl Fn(&T) -> Option<&'static str>,
) -> Result<Vec<T>, Fault> {
    let mut known = Vec::with_capacity(list.len());
    for item in list {
        let (span, item) = (item.span(), item.into_inner());
        if known.contains(&item) {
            return Err(Fault::new(span, format!("{key}: it is in the list twice")));
        }
        if let Some(text) = lacks(&item) {
            return Err(Fault::new(span, format!("{key}: {text}")));
        }
        known.push(item);
    }
    Ok(known)
}

fn read_controller(mut section: ControllerSection) -> Result<tapswitch_controller::Config, Fault> {
    let (store, rest) = section.places()?;
    let (files, listens) = (section.files()?, section.listens()?);
    section.check_used(&files, &listens, rest)?;
    let mut config = controller::config(&listens, (&store, rest), &files);
    if let Some(interval) = section.echo_interval {
        config.channel.echo_interval = interval;
    }
    Ok(config)
}

fn endpoints(texts: Texts, key: &str, has_tls: bool) -> Result<Vec<Endpoint>, Fault> {
    distinct(parse_all(texts, key)?, key, |at| match at.transport {
        Transport::Tls if !has_tls => Some("TLS needs all of tls-cert, tls-key and tls-ca"),
        _ => None,
    })
}

/// Cores of the workers.
fn cores(numbers: &[Spanned<i64>]) -> Result<Vec<usize>, Fault> {
    let core = |number: &Spanned<i64>| {
        let wrong = |text| Fault::new(number.span(), format!("switch.cores: {text}"));
        let core = parse_core(&number.get_ref().to_string()).map_err(wrong)?;
        Ok(Spanned::new(number.span(), core))
    };
    let cores = numbers.iter().map(core).collect::<Result<_, Fault>>()?;
    distinct(cores, "switch.cores", |_| None)
}

impl RunConfig {
    /// Reads and checks the file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let bytes = std::fs::read(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let text = String::from_utf8_lossy(&bytes);
        let parsed = match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => Err(not_text(error)),
        };
        parsed.map_err(|fault| fault.at(path, &text))
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let read = toml::from_str(text).map_err(|error| Fault::of_toml(&error, text));
        let File { bridge, switch, controller, policy } = read?;
        let tls = switch.tls()?;
        let specs = parse_all(switch.port, "switch.port")?;
        let ports = Ports { datapath_id: switch.datapath_id, specs };
        ports.check()?;
        check_policies(&policy, controller.is_some(), &ports)?;
        let forgets = controller.as_ref().is_some_and(|section| section.store.is_none());
        let controller = controller.map(read_controller).transpose()?;
        // A switch with a controller in the same file connects to it, unless configured otherwise.
        let controllers = match switch.controller {
            Some(texts) => endpoints(texts, "switch.controller", tls.is_some())?,
            None => controller.iter().filter_map(own_controller).collect(),
        };
        let policies = policy.into_iter().map(Spanned::into_inner).collect();
        let controller =
            controller.map(|config| tapswitch_controller::Config { policies, ..config });
        let defaults = SwitchConfig::new(bridge, switch.datapath_id);
        let switch = SwitchConfig {
            controllers,
            listen: endpoints(switch.listen, "switch.listen", tls.is_some())?,
            tls,
            echo_interval: switch.echo_interval.unwrap_or(defaults.echo_interval),
            fail_mode: switch.fail_mode,
            learning: switch.learning,
            ports: ports.specs.into_iter().map(Spanned::into_inner).collect(),
            workers: switch.workers,
            cores: cores(&switch.cores)?,
            ..defaults
        };
        Ok(Self { switch, controller, forgets })
    }
}

/// The address at which a switch reaches the controller of its own process.
fn own_controller(own: &tapswitch_controller::Config) -> Option<Endpoint> {
    let by_tls = own.listen_tls.first().map(|at| Endpoint::tls(*at));
    own.listen.first().map(|at| Endpoint::tcp(*at)).or(by_tls)
}

/// Checks what can be checked before anything runs: policies need a controller, distinct names, and
/// monitors that may exist.
fn check_policies(
    policies: &[Spanned<TapPolicy>],
    has_controller: bool,
    ports: &Ports,
) -> Result<(), Fault> {
    for (position, policy) in policies.iter().enumerate() {
        let fault = |text| Err(Fault::new(policy.span(), text));
        let fault_at = |key: &str, text| {
            Err(Fault { key: Some(key.to_owned()), ..Fault::new(policy.span(), text) })
        };
        let TapPolicy { name, .. } = policy.get_ref();
        if !has_controller {
            return fault(format!(
                "policy '{name}' needs a controller; add a [controller] section"
            ));
        }
        if policies[..position].iter().any(|other| other.get_ref().name == *name) {
            return fault(format!("policy '{name}' is defined twice; give each its own name"));
        }
        if let Err(error) = policy.get_ref().check() {
            let text = error.to_string();
            let key = text.split([':', ' ']).next().unwrap_or_default();
            return fault_at(key, format!("policy '{name}': {text}"));
        }
        if let Some(missing) = ports.missing_monitor(policy.get_ref()) {
            let text =
                format!("policy '{name}': monitor '{missing}' does not exist; {}", ports.names());
            return fault_at("monitor", text);
        }
    }
    Ok(())
}

/// The ports of the switch, with their positions in the text.
struct Ports {
    datapath_id: DatapathId,
    specs: Vec<Spanned<PortSpec>>,
}

impl Ports {
    fn check(&self) -> Result<(), Fault> {
        for (position, port) in self.specs.iter().enumerate() {
            let spec = port.get_ref();
            for other in self.specs[..position].iter().map(Spanned::get_ref) {
                if spec.number == other.number {
                    let text = format!(
                        "switch.port: number {} is already used by {other}; give each port its own",
                        spec.number
                    );
                    return Err(Fault::new(port.span(), text));
                }
                if spec.is_same_place(other) {
                    let text = format!(
                        "switch.port: {other} is the same interface or socket; give each port \
                         its own"
                    );
                    return Err(Fault::new(port.span(), text));
                }
            }
        }
        Ok(())
    }

    /// Returns the monitor if it is a port that the switch does not have. Hosts may appear later,
    /// and other switches may connect.
    fn missing_monitor(&self, policy: &TapPolicy) -> Option<String> {
        let has = |wanted: &dyn Fn(&PortSpec) -> bool| {
            self.specs.iter().any(|port| wanted(port.get_ref()))
        };
        let is_ours =
            |switch: &Option<DatapathId>| switch.is_none_or(|switch| switch == self.datapath_id);
        let is_known = |monitor: &&MonitorSpec| match monitor {
            MonitorSpec::Port { switch, port } if is_ours(switch) => {
                has(&|spec| spec.number == *port)
            }
            MonitorSpec::Name { switch, name } if is_ours(switch) => {
                has(&|spec| spec.name() == name)
            }
            _ => true,
        };
        let missing = policy.monitor.iter().flat_map(MonitorSpec::members).find(|it| !is_known(it));
        missing.map(ToString::to_string)
    }

    fn names(&self) -> String {
        let texts: Vec<_> = self
            .specs
            .iter()
            .map(|port| format!("{} ({})", port.get_ref().number, port.get_ref().name()))
            .collect();
        match texts.as_slice() {
            [] => "the switch has no ports".to_owned(),
            texts => format!("the ports are {}", texts.join(", ")),
        }
    }
}

/// An error and its position in the text.
#[derive(Debug)]
struct Fault {
    span: Option<Range<usize>>,
    /// The key in the section that starts there.
    key: Option<String>,
    text: String,
}

impl Fault {
    fn new(span: Range<usize>, text: String) -> Self {
        Self { span: Some(span), key: None, text }
    }

    fn of_toml(error: &toml::de::Error, file: &str) -> Self {
        let span = error.span();
        let source = span.as_ref().and_then(|span| file.get(span.start..)).unwrap_or_default();
        let text = match section_once(source) {
            Some(name) => {
                format!("there is one section of this name; write it in single brackets: [{name}]")
            }
            None => in_words_of_toml(error.message()),
        };
        Self { span, key: None, text }
    }

    fn at(self, path: &Path, file: &str) -> ConfigError {
        let place = self.span.map(|span| {
            let key = self.key.and_then(|key| key_in_section(file, span.start, &key));
            Place::of(file, key.unwrap_or(span.start))
        });
        ConfigError::Wrong { path: path.to_owned(), place, text: self.text }
    }
}

/// Before the error, the text is the same with the invalid bytes replaced.
fn not_text(error: std::str::Utf8Error) -> Fault {
    let at = error.valid_up_to();
    Fault::new(at..at, "not UTF-8; save the file in UTF-8, as TOML requires".to_owned())
}

/// Position of `key` in the section whose heading is at `start`.
fn key_in_section(file: &str, start: usize, key: &str) -> Option<usize> {
    let mut at = start;
    for (index, line) in file.get(start..)?.split_inclusive('\n').enumerate() {
        let set = line.trim_start();
        if index > 0 && set.starts_with('[') {
            return None;
        }
        if set.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('=')) {
            return Some(at + line.len() - set.len());
        }
        at += line.len();
    }
    None
}

/// The name of a section that occurs once, if `source` begins with its heading in double brackets.
fn section_once(source: &str) -> Option<&str> {
    let (name, _) = source.strip_prefix("[[")?.split_once("]]")?;
    let name = name.trim();
    ["switch", "controller"].contains(&name).then_some(name)
}

/// Replaces the parser's messages about data structures by messages about TOML syntax.
fn in_words_of_toml(message: &str) -> String {
    if let Some((found, _)) = message.split_once(", expected struct ") {
        return format!(
            "{found}, expected a section: keys below a heading in brackets, such as [switch] or \
             [[policy]]"
        );
    }
    match message.split_once(", expected a sequence") {
        Some(("invalid type: map", _)) => {
            "this section can occur several times; write it in double brackets, as in [[policy]]"
                .to_owned()
        }
        Some((found, _)) => {
            let list = if found.contains("string") { "[\"...\"]" } else { "[...]" };
            format!("{found}, expected a list; write it in brackets: {list}")
        }
        // The parser's message where one of several words is expected.
        None if message == "wanted string or table" => {
            "expected text; write it in quotes: \"...\"".to_owned()
        }
        None => tapswitch_controller::in_words(message),
    }
}

/// A line and a column, both from 1, and the key that is set there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    line: usize,
    column: usize,
    source: String,
}

impl Place {
    fn of(text: &str, offset: usize) -> Self {
        let before = &text[..offset.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count() + 1;
        let source = text[start..].lines().next().unwrap_or_default().trim();
        // A file that is not text may contain a line of megabytes.
        let (end, mark) = match source.char_indices().nth(SOURCE_LEN_MAX) {
            Some((end, _)) => (end, "..."),
            None => (source.len(), ""),
        };
        Self { line, column, source: format!("{}{mark}", &source[..end]) }
    }
}

/// Error of a configuration file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}; choose the configuration file with -c", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The file contains an error.
    #[error("{}{}: {text}{}", path.display(), Position(place.as_ref()), Quoted(place.as_ref()))]
    Wrong {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file.
        place: Option<Place>,
        /// The error, and the expected value.
        text: String,
    },
}

/// `:LINE:COLUMN` after a file name.
struct Position<'a>(Option<&'a Place>);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(place) => write!(f, ":{}:{}", place.line, place.column),
            None => Ok(()),
        }
    }
}

/// The line itself, after the message.
struct Quoted<'a>(Option<&'a Place>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(place) if !place.source.is_empty() => write!(f, "\n  in: {}", place.source),
            _ => Ok(()),
        }
    }
}

/// Maximum number of characters of a quoted line.
const SOURCE_LEN_MAX: usize = 160;

fn default_bridge() -> String {
    "br0".to_owned()
}

fn default_datapath_id() -> DatapathId {
    DatapathId(1)
}

fn default_listen() -> Listen {
    // OpenFlow's IANA port, on this host only.
    Listen::Tcp(([127, 0, 0, 1], 6653).into())
}

fn bridge_name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    parse_bridge_name(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn echo_interval<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let seconds = i64::deserialize(deserializer)?.to_string();
    parse_echo_interval(&seconds).map(Some).map_err(serde::de::Error::custom)
}

fn worker_count<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<NonZeroUsize>, D::Error> {
    let count = i64::deserialize(deserializer)?.to_string();
    parse_worker_count(&count).map(Some).map_err(serde::de::Error::custom)
}

fn datapath_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<DatapathId, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_datapath_id(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests;
