//! `tapswitch device create`.
//!
//! The device is made persistent when all else is done. Until then it lives by this program's file,
//! so that whatever fails, or kills it, leaves nothing behind.

use tapswitch_netlink::Namespace;
use tapswitch_tap::{Config, CreateError, Device, HeaderLen, Offloads, Taken, Wish};

use super::change::{Done, apply};
use super::set::{BY_OPTION, SetError};
use super::{Failure, namespace};
use crate::cli::device::{DeviceCreateArgs, HeaderArg, Switch};

pub(super) fn main(args: &DeviceCreateArgs) -> Result<(), Failure> {
    let namespace = namespace(args.place.netns.as_deref())?;
    args.flags.check(args.name.as_str())?;
    check_offloads(args)?;
    SetError::check_mac(args.name.as_str(), args.kind.into(), args.settings.mac)?;
    let config = config(args);
    let device = namespace.enter(|| Device::create(&config))?.map_err(in_our_words)?;
    finish(&device, &namespace, args)
}

/// Refuses offloads that the header cannot tell of: they would be left out without a word.
fn check_offloads(args: &DeviceCreateArgs) -> Result<(), SetError> {
    let wanted = args.settings.offloads.map_or(Offloads::empty(), |it| it.0);
    SetError::check_offloads(args.name.as_str(), wanted, Some(header_len(args).bytes()), BY_OPTION)
}

/// The length that is asked for, or else what a program finds which does not set it.
fn header_len(args: &DeviceCreateArgs) -> HeaderLen {
    match args.flags.vnet_hdr {
        Some(HeaderArg::Off) => HeaderLen::None,
        asked => asked.and_then(HeaderArg::len).unwrap_or(HeaderLen::Legacy),
    }
}

/// What this command can do instead; the library speaks of its own options.
fn in_our_words(error: CreateError) -> Failure {
    match error {
        CreateError::NameTaken { name, by: by @ (Taken::Unheld | Taken::Held { .. }) } => {
            Box::new(Exists { name, by })
        }
        CreateError::NotPermitted { name, .. } => Box::new(NotPermitted { name }),
        other => Box::new(other),
    }
}

/// Only root makes devices.
#[derive(Debug, thiserror::Error)]
#[error("{name}: not permitted; creating a device needs CAP_NET_ADMIN: run as root")]
struct NotPermitted {
    name: String,
}

/// There is a device of that name.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}: {by}; choose another name, change the existing device with `tapswitch device set`, or \
     delete it with `tapswitch device delete`"
)]
struct Exists {
    name: String,
    by: Taken,
}

fn finish(device: &Device, namespace: &Namespace, args: &DeviceCreateArgs) -> Result<(), Failure> {
    // Whatever was set goes with the device when this fails.
    apply(namespace, device.name().as_str(), &args.settings, &mut Done::default())?;
    Ok(device.set_persistent(true)?)
}

fn config(args: &DeviceCreateArgs) -> Config {
    let (flags, settings) = (&args.flags, &args.settings);
    let is_on = |switch: Option<Switch>| switch.is_some_and(Switch::is_on);
    let wish = if is_on(flags.backpressure) { Wish::Required } else { Wish::Off };
    let mut config = Config::new(args.name.clone())
        .kind(args.kind.into())
        .multi_queue(args.multi_queue)
        .net_header(header_len(args))
        .packet_info(is_on(flags.pi))
        .napi(is_on(flags.napi))
        .backpressure(wish)
        // Its program says what it can take; what is set here would stay.
        .offloads(settings.offloads.map_or(Offloads::empty(), |it| it.0));
    if let Some(owner) = settings.owner {
        config = config.owner(owner.0);
    }
    if let Some(group) = settings.group {
        config = config.group(group.0);
    }
    config
}
