//! `tapswitch device list`.

use tapswitch_tap::inspect::{Inspected, inspect};

use super::args::DeviceListArgs;
use super::machine::Machine;
use super::view::DeviceView;
use super::{Failure, namespace, unseen, warn_unseen};
use crate::table::{print, print_json, table};
use crate::text::printable;
use crate::users::User;

pub(super) fn main(args: &DeviceListArgs) -> Result<(), Failure> {
    let place = args.netns.as_deref().map(|netns| namespace(Some(netns))).transpose()?;
    let identity = place.map(|namespace| namespace.identity()).transpose()?;
    let found = inspect();
    let machine = Machine::here();
    let is_there = |device: &&Inspected| identity.is_none_or(|it| it == device.namespace_id);
    let devices = found.devices.iter().filter(is_there);
    let views: Vec<_> = devices.map(|device| DeviceView::new(device, &machine)).collect();
    if args.json {
        print_json(&views);
    } else {
        show(&views);
    }
    warn_unseen(&unseen(&found, args.netns.as_deref()));
    Ok(())
}

fn show(views: &[DeviceView]) {
    let mut rows = table(&[
        "DEVICE",
        "NAMESPACE",
        "TYPE",
        "STATE",
        "QUEUES ",
        "FLAGS",
        "OWNER",
        "HELD BY",
        "DROPPED ",
    ]);
    for view in views {
        rows.add_row([
            printable(&view.name).into_owned(),
            printable(&view.namespace).into_owned(),
            view.kind.to_owned(),
            state(view),
            view.queues.to_string(),
            if view.flags.is_empty() { "-".to_owned() } else { view.flags.join(" ") },
            view.owner.map_or_else(|| "-".to_owned(), |owner| User(owner).text()),
            printable(&view.holders_text()).into_owned(),
            crate::table::grouped(view.to_program.dropped),
        ]);
    }
    print(&rows, "no tun or tap devices");
}

/// Up or down, with the reason.
pub(super) fn state(view: &DeviceView) -> String {
    let no_carrier = view.state == "up" && view.carrier == Some(false);
    if no_carrier { "up, no carrier".to_owned() } else { view.state.to_owned() }
}
