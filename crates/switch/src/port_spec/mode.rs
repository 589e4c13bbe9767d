//! The options of a port mode: `mode=trunk,vlans=10+20-30,native=1` and the like.
//!
//! Options may be given in any order, so they are collected as text first, and parsed when the mode
//! is known.

use std::fmt;
use std::str::FromStr;

use tapswitch_datapath::vlan::{
    MapEntry, PortMode, Provider, Selective, ServiceMap, Translations, Trunk, Tunnel, Vid, VidSet,
};
use tapswitch_wire::EtherType;

use super::Fault;

/// The options of a mode as text.
#[derive(Debug, Default)]
pub(super) struct ModeOptions {
    mode: Option<String>,
    /// Keys and values in the given order.
    others: Vec<(&'static str, String)>,
}

impl ModeOptions {
    /// Takes an option. Returns `false` if it is not one of a mode.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, Fault> {
        let is_known = |known: &&&str| **known == key;
        if key == "mode" {
            check_once(key, self.mode.is_some())?;
            self.mode = Some(value.to_owned());
        } else if let Some(key) = OPTIONS.iter().find(is_known) {
            check_once(key, self.others.iter().any(|(other, _)| other == key))?;
            self.others.push((key, value.to_owned()));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The mode that the options describe, if any.
    pub(super) fn build(mut self) -> Result<Option<PortMode>, Fault> {
        let Some(mode) = self.mode.take() else {
            return match self.others.first() {
                Some((key, _)) => Err(Fault::NoMode { key }),
                None => Ok(None),
            };
        };
        let Some((mode, known)) = MODES.iter().find(|(name, _)| *name == mode) else {
            return Err(bad("mode", &mode, MODE_EXPECTED));
        };
        if let Some((key, _)) = self.others.iter().find(|(key, _)| !known.contains(key)) {
            return Err(Fault::NotOfMode { mode, key, known: known.join(", ") });
        }
        self.of_mode(mode).map(Some)
    }

    fn of_mode(&self, mode: &'static str) -> Result<PortMode, Fault> {
        Ok(match mode {
            "access" => PortMode::Access(self.needed(mode, "vlan", VID_EXPECTED)?),
            "trunk" => PortMode::Trunk(Trunk {
                vlans: self.vlans("vlans")?.unwrap_or_else(VidSet::all),
                native: self.vid("native")?,
            }),
            "dot1q-tunnel" => PortMode::Tunnel(Tunnel {
                service: self.needed(mode, "vlan", VID_EXPECTED)?,
                customers: self.vlans("vlans")?,
            }),
            "qinq" => PortMode::Selective(self.selective(mode)?),
            _ => PortMode::Provider(self.provider()?),
        })
    }

    fn selective(&self, mode: &'static str) -> Result<Selective, Fault> {
        let untagged = self.vid("untagged")?;
        let Some(text) = self.find("map") else {
            let (key, expected) = ("map", MAP_EXPECTED);
            return Err(Fault::Missing { mode, key, expected });
        };
        let entries: Option<Vec<_>> = text.split('+').map(parse_entry).collect();
        let map = ServiceMap::new(entries.ok_or_else(|| bad("map", text, MAP_EXPECTED))?);
        let map = map.map_err(|error| contradiction("map", text, error))?;
        Ok(Selective { map, untagged })
    }

    fn provider(&self) -> Result<Provider, Fault> {
        let tpid = self.read("tpid", parse_tpid, TPID_EXPECTED)?;
        let text = self.find("translate").unwrap_or_default();
        let pairs = self.read("translate", parse_pairs, TRANSLATE_EXPECTED)?.unwrap_or_default();
        let wrong = |error: &dyn fmt::Display| contradiction("translate", text, error);
        let translations = Translations::new(pairs).map_err(|error| wrong(&error))?;
        let tpid = tpid.unwrap_or(EtherType::SERVICE_VLAN);
        Provider::new(self.vlans("vlans")?, tpid, translations).map_err(|error| wrong(&error))
    }

    fn needed<T: FromStr>(
        &self,
        mode: &'static str,
        key: &'static str,
        expected: &'static str,
    ) -> Result<T, Fault> {
        let value = self.read(key, |text| text.parse().ok(), expected)?;
        value.ok_or(Fault::Missing { mode, key, expected })
    }

    fn vid(&self, key: &str) -> Result<Option<Vid>, Fault> {
        self.read(key, |text| text.parse().ok(), VID_EXPECTED)
    }

    fn vlans(&self, key: &str) -> Result<Option<VidSet>, Fault> {
        self.read(key, parse_set, SET_EXPECTED)
    }

    /// The parsed value of an option, if given.
    fn read<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, Fault> {
        let read = |text| parse(text).ok_or_else(|| bad(key, text, expected));
        self.find(key).map(read).transpose()
    }

    fn find(&self, key: &str) -> Option<&str> {
        self.others.iter().find(|(other, _)| *other == key).map(|(_, value)| value.as_str())
    }
}

/// Displays a mode as the options that set it.
pub(super) struct ModeText<'a>(pub(super) &'a PortMode);

impl fmt::Display for ModeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PortMode::Access(vlan) => write!(f, "mode=access,vlan={vlan}"),
            PortMode::Trunk(Trunk { vlans, native }) => {
                f.write_str("mode=trunk")?;
                list(f, "vlans", (*vlans != VidSet::all()).then_some(vlans))?;
                option(f, "native", native.as_ref())
            }
            PortMode::Tunnel(Tunnel { service, customers }) => {
                write!(f, "mode=dot1q-tunnel,vlan={service}")?;
                list(f, "vlans", customers.as_ref())
            }
            PortMode::Selective(Selective { map, untagged }) => {
                write!(f, "mode=qinq,map={}", joined(map.entries()))?;
                option(f, "untagged", untagged.as_ref())
            }
            PortMode::Provider(provider) => provider_text(f, provider),
        }
    }
}

fn provider_text(f: &mut fmt::Formatter<'_>, provider: &Provider) -> fmt::Result {
    let (tpid, translations) = (provider.tpid(), provider.translations());
    f.write_str("mode=provider")?;
    let unlisted = Provider::new(None, tpid, translations.clone());
    let is_listed = unlisted.is_ok_and(|unlisted| unlisted != *provider);
    list(f, "vlans", is_listed.then(|| provider.vlans()))?;
    if tpid != EtherType::SERVICE_VLAN {
        write!(f, ",tpid={:#06x}", tpid.0)?;
    }
    let pairs: Vec<_> = translations.pairs().iter().map(|(a, b)| format!("{a}:{b}")).collect();
    if pairs.is_empty() { Ok(()) } else { write!(f, ",translate={}", pairs.join("+")) }
}

fn option(f: &mut fmt::Formatter<'_>, key: &str, value: Option<&Vid>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, ",{key}={value}"))
}

fn list(f: &mut fmt::Formatter<'_>, key: &str, value: Option<&VidSet>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, ",{key}={value}"))
}

fn joined(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

fn check_once(key: &str, is_there: bool) -> Result<(), Fault> {
    if is_there { Err(Fault::Twice(key.to_owned())) } else { Ok(()) }
}

fn bad(key: &str, value: &str, expected: &'static str) -> Fault {
    Fault::BadValue { key: key.to_owned(), value: value.to_owned(), expected }
}

fn contradiction(key: &str, value: &str, error: impl fmt::Display) -> Fault {
    let (key, value) = (key.to_owned(), value.to_owned());
    Fault::Contradiction { key, value, what: error.to_string() }
}

/// `10`, or `20-30`.
fn parse_range(text: &str) -> Option<(Vid, Vid)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

/// `10+20-30`.
fn parse_set(text: &str) -> Option<VidSet> {
    let mut set = VidSet::none();
    for range in text.split('+') {
        let (first, last) = parse_range(range)?;
        set.insert_range(first, last);
    }
    Some(set)
}

/// `10:100`, `20-29:200` or `30:300/31`.
fn parse_entry(text: &str) -> Option<MapEntry> {
    let (customers, service) = text.split_once(':')?;
    let (first, last) = parse_range(customers)?;
    let (service, inner) = match service.split_once('/') {
        Some((service, inner)) => (service, Some(inner.parse().ok()?)),
        None => (service, None),
    };
    Some(MapEntry { first, last, service: service.parse().ok()?, inner })
}

/// `100:1100+200:1200`.
fn parse_pairs(text: &str) -> Option<Vec<(Vid, Vid)>> {
    let pair = |text: &str| {
        let (outside, inside) = text.split_once(':')?;
        Some((outside.parse().ok()?, inside.parse().ok()?))
    };
    text.split('+').map(pair).collect()
}

fn parse_tpid(text: &str) -> Option<EtherType> {
    let number = u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    Some(EtherType(number)).filter(|tpid| tpid.is_tag())
}

/// The modes, and the options of each.
const MODES: [(&str, &[&str]); 5] = [
    ("access", &["vlan"]),
    ("trunk", &["vlans", "native"]),
    ("dot1q-tunnel", &["vlan", "vlans"]),
    ("qinq", &["map", "untagged"]),
    ("provider", &["vlans", "tpid", "translate"]),
];
const OPTIONS: [&str; 7] = ["vlan", "vlans", "native", "map", "untagged", "tpid", "translate"];
const MODE_EXPECTED: &str = "access, trunk, dot1q-tunnel, qinq or provider";
const VID_EXPECTED: &str = "a VLAN identifier from 1 to 4094";
const SET_EXPECTED: &str = "VLAN identifiers from 1 to 4094 and ranges of them, as in 10+20-30";
const MAP_EXPECTED: &str =
    "C-VLANs with their S-VLAN, as in 10:100+20-29:200, or 30:300/31 to translate";
const TPID_EXPECTED: &str = "0x88a8, 0x8100 or 0x9100";
const TRANSLATE_EXPECTED: &str = "S-VLANs outside and inside, as in 100:1100+200:1200";
