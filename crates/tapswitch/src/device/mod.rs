//! `tapswitch device`: tun and tap devices, whoever has made them.
//!
//! Everything is read from the kernel when the command runs, and nothing is remembered: there is no
//! file and no daemon behind it. What can be known of a device stands in
//! [`tapswitch_tap::inspect`]; this only shows it, and sets what it shows.

mod change;
mod create;
mod doctor;
mod features;
mod list;
mod machine;
mod set;
mod show;
pub(crate) mod text;
pub(crate) mod users;

mod view;

use std::process::ExitCode;

use tapswitch_netlink::{Link, LinkError, Namespace, NamespaceError, Netlink};
use tapswitch_tap::inspect::{Inspected, Inspection, inspect};

use self::text::printable;
use crate::cli::device::{DeviceArgs, DeviceCommand, PlaceArgs};

type Failure = Box<dyn std::error::Error>;

pub(crate) fn main(args: DeviceArgs) -> Result<ExitCode, Failure> {
    match args.command {
        DeviceCommand::List(args) => list::main(&args)?,
        DeviceCommand::Show(args) => show::main(&args)?,
        DeviceCommand::Create(args) => create::main(&args)?,
        DeviceCommand::Delete(args) => set::delete(&args)?,
        DeviceCommand::Set(args) => set::main(&args)?,
        DeviceCommand::Doctor(args) => return Ok(doctor::main(&args)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The namespace that a command is about: a name, a path, or where the command runs.
fn namespace(netns: Option<&str>) -> Result<Namespace, NamespaceError> {
    match netns {
        None => Namespace::current(),
        Some(path) if path.contains('/') => Namespace::open_path(path),
        Some(name) => Namespace::open(name),
    }
}

/// The device called `name` in the namespace that `place` says, and what could not be looked at.
fn find(name: &str, place: &PlaceArgs) -> Result<(Inspected, Vec<String>), Failure> {
    let namespace = namespace(place.netns.as_deref())?;
    let identity = namespace.identity()?;
    let look = || Netlink::open(&namespace).and_then(|mut netlink| netlink.link(name));
    search(name, identity, inspect, look)
}

/// Finds the device among those that `inspect` tells. `look` says what is wrong where it is not
/// there: whether the name is another interface's, or the namespace may not be entered.
fn search(
    name: &str,
    identity: (u64, u64),
    inspect: impl Fn() -> Inspection,
    look: impl Fn() -> Result<Link, LinkError>,
) -> Result<(Inspected, Vec<String>), Failure> {
    let is_it = |it: &&Inspected| it.link.name == name && it.namespace_id == identity;
    for _ in 0..LOOKS {
        // Other namespaces do not matter here, but who may hold the device does.
        let Inspection { devices, unseen, .. } = inspect();
        if let Some(device) = devices.iter().find(is_it) {
            return Ok((device.clone(), unseen));
        }
        match look() {
            // It was made, or got its name, while the others were looked at.
            Ok(link) if link.tun.is_some() => {}
            Ok(_) => return Err(FindError::Other { name: name.to_owned() }.into()),
            Err(error) => return Err(elsewhere(name, &devices).unwrap_or(error.into())),
        }
    }
    Err(FindError::Hidden { name: name.to_owned() }.into())
}

/// Where else a device of that name is.
fn elsewhere(name: &str, devices: &[Inspected]) -> Option<Failure> {
    let namesakes = devices.iter().filter(|it| it.link.name == name);
    let namespaces: Vec<_> = namesakes.map(|it| it.namespace.as_str()).collect();
    let error = FindError::Elsewhere { name: name.to_owned(), namespaces: namespaces.join(", ") };
    (!namespaces.is_empty()).then(|| error.into())
}

/// Why there is no such device.
#[derive(Debug, thiserror::Error)]
enum FindError {
    #[error("interface {name}: is not a tun or tap device; `tapswitch device list` shows those")]
    Other { name: String },
    #[error("interface {name}: exists, but could not be listed; try again")]
    Hidden { name: String },
    #[error("interface {name}: not found here, but in {namespaces}; select it with --netns")]
    Elsewhere { name: String, namespaces: String },
}

/// How often a device is looked for that is there and was not seen.
const LOOKS: usize = 3;

/// What matters of that which could not be looked at: who names a namespace asks for no other.
fn unseen(found: &Inspection, netns: Option<&str>) -> Vec<String> {
    let places = if netns.is_none() { found.unseen_namespaces.as_slice() } else { &[] };
    places.iter().chain(&found.unseen).cloned().collect()
}

/// Tells what could not be looked at, on standard error: what is printed is not the whole.
fn warn_unseen(unseen: &[String]) {
    unseen.iter().for_each(|what| tell!("tapswitch: could not be examined: {}", printable(what)));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tapswitch_netlink::TunInfo;

    use super::*;

    #[test]
    fn a_device_that_comes_while_others_are_looked_at_is_found() {
        let looked = Cell::new(0);
        let inspect = || {
            let mut found = Inspection::default();
            // The first look was too early.
            if looked.replace(looked.get() + 1) > 0 {
                let mut device = Inspected::default();
                (device.link.name, device.namespace_id) = ("tap0".to_owned(), (4, 1));
                found.devices.push(device);
            }
            found
        };
        let link = |tun| {
            let mut link = Link::default();
            link.tun = tun;
            link
        };
        let look = || Ok(link(Some(TunInfo::default())));
        let (device, _) = search("tap0", (4, 1), inspect, look).unwrap();
        assert_eq!((device.link.name.as_str(), looked.get()), ("tap0", 2));
        let error = search("lo", (4, 1), inspect, || Ok(link(None))).unwrap_err();
        assert!(error.to_string().contains("not a tun or tap device"), "{error}");
        let error = search("tap0", (4, 1), Inspection::default, look).unwrap_err();
        assert!(error.to_string().contains("try again"), "{error}");
    }
}
