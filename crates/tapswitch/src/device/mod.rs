//! `tapswitch device`: tun and tap devices of any program.
//!
//! Everything is read from the kernel when the command runs; there is no file and no daemon.
//! [`tapswitch_tap::inspect`] collects the state of devices; this module prints and changes it.

mod args;
mod change;
mod create;
mod doctor;
mod features;
mod list;
mod machine;
mod set;
mod show;
mod view;

use std::process::ExitCode;

use tapswitch_netlink::{Link, LinkError, Namespace, NamespaceError, Netlink};
use tapswitch_tap::inspect::{Inspected, Inspection, inspect};

use crate::text::printable;

use args::{DeviceCommand, PlaceArgs};

pub(crate) use args::DeviceArgs;

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

/// The namespace of a command: a name, a path, or the current one.
fn namespace(netns: Option<&str>) -> Result<Namespace, NamespaceError> {
    match netns {
        None => Namespace::current(),
        Some(path) if path.contains('/') => Namespace::open_path(path),
        Some(name) => Namespace::open(name),
    }
}

/// The device `name` in the namespace of `place`, and what could not be inspected.
fn find(name: &str, place: &PlaceArgs) -> Result<(Inspected, Vec<String>), Failure> {
    let namespace = namespace(place.netns.as_deref())?;
    let identity = namespace.identity()?;
    let look = || Netlink::open(&namespace).and_then(|mut netlink| netlink.link(name));
    search(name, identity, inspect, look)
}

/// Finds the device in the result of `inspect`. `look` determines the error if it is not there: the
/// name belongs to another interface, or the namespace is not accessible.
fn search(
    name: &str,
    identity: (u64, u64),
    inspect: impl Fn() -> Inspection,
    look: impl Fn() -> Result<Link, LinkError>,
) -> Result<(Inspected, Vec<String>), Failure> {
    let is_it = |it: &&Inspected| it.link.name == name && it.namespace_id == identity;
    for _ in 0..LOOKS {
        // Other namespaces are irrelevant here, but hidden holders are not.
        let Inspection { devices, unseen, .. } = inspect();
        if let Some(device) = devices.iter().find(is_it) {
            return Ok((device.clone(), unseen));
        }
        match look() {
            // It was created or renamed during the inspection.
            Ok(link) if link.tun.is_some() => {}
            Ok(_) => return Err(FindError::Other { name: name.to_owned() }.into()),
            Err(error) => return Err(elsewhere(name, &devices).unwrap_or(error.into())),
        }
    }
    Err(FindError::Hidden { name: name.to_owned() }.into())
}

/// Other namespaces with a device of that name.
fn elsewhere(name: &str, devices: &[Inspected]) -> Option<Failure> {
    let namesakes = devices.iter().filter(|it| it.link.name == name);
    let namespaces: Vec<_> = namesakes.map(|it| it.namespace.as_str()).collect();
    let error = FindError::Elsewhere { name: name.to_owned(), namespaces: namespaces.join(", ") };
    (!namespaces.is_empty()).then(|| error.into())
}

/// Why the device was not found.
#[derive(Debug, thiserror::Error)]
enum FindError {
    #[error("interface {name}: is not a tun or tap device; `tapswitch device list` shows those")]
    Other { name: String },
    #[error("interface {name}: exists, but could not be listed; try again")]
    Hidden { name: String },
    #[error("interface {name}: not found here, but in {namespaces}; select it with --netns")]
    Elsewhere { name: String, namespaces: String },
}

/// Number of attempts to find a device that exists and was not seen.
const LOOKS: usize = 3;

/// The relevant failures of inspection: with a namespace named, others are irrelevant.
fn unseen(found: &Inspection, netns: Option<&str>) -> Vec<String> {
    let places = if netns.is_none() { found.unseen_namespaces.as_slice() } else { &[] };
    places.iter().chain(&found.unseen).cloned().collect()
}

/// Reports failures of inspection on standard error: the output is incomplete.
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
            // The first inspection was too early.
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
