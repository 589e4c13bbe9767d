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

use tapswitch_netlink::{Namespace, NamespaceError};
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
    // Other namespaces do not matter here, but who may hold the device does.
    let Inspection { devices, unseen, .. } = inspect();
    let is_it = |it: &&Inspected| it.link.name == name && it.namespace_id == identity;
    if let Some(device) = devices.iter().find(is_it) {
        return Ok((device.clone(), unseen));
    }
    // Says whether the name is another interface's, or the namespace may not be entered.
    let link = tapswitch_netlink::Netlink::open(&namespace).and_then(|mut it| it.link(name));
    let elsewhere = devices.iter().filter(|it| it.link.name == name);
    let elsewhere: Vec<_> = elsewhere.map(|it| it.namespace.clone()).collect();
    Err(match (link, elsewhere.as_slice()) {
        (Ok(_), _) => FindError::Other { name: name.to_owned() }.into(),
        (Err(error), []) => error.into(),
        (Err(_), _) => {
            let namespaces = elsewhere.join(", ");
            FindError::Elsewhere { name: name.to_owned(), namespaces }.into()
        }
    })
}

/// Why there is no such device.
#[derive(Debug, thiserror::Error)]
enum FindError {
    #[error("interface {name}: is no tun or tap device; `tapswitch device list` shows those")]
    Other { name: String },
    #[error("interface {name}: not found here, but in {namespaces}; name that with --netns")]
    Elsewhere { name: String, namespaces: String },
}

/// What matters of that which could not be looked at: who names a namespace asks for no other.
fn unseen(found: &Inspection, netns: Option<&str>) -> Vec<String> {
    let places = if netns.is_none() { found.unseen_namespaces.as_slice() } else { &[] };
    places.iter().chain(&found.unseen).cloned().collect()
}

/// Tells what could not be looked at, on standard error: what is printed is not the whole.
fn warn_unseen(unseen: &[String]) {
    unseen.iter().for_each(|what| tell!("tapswitch: not seen: {}", printable(what)));
}
