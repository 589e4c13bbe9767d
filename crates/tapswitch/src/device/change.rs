//! Setting what a device has: over rtnetlink, `ethtool` and sysfs.

use tapswitch_netlink::{Namespace, Netlink, Sysfs};

use super::{Failure, features};
use crate::cli::device::SettingArgs;

/// What was set already, in words.
#[derive(Debug, Default)]
pub(super) struct Done(Vec<String>);

impl Done {
    pub(super) fn push(&mut self, what: impl Into<String>) {
        self.0.push(what.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `error` with what was set before it, which stays as it is now.
    pub(super) fn explain(self, error: Failure) -> Failure {
        if self.0.is_empty() {
            return error;
        }
        Box::new(Partly { error: error.to_string(), done: self.0.join(", ") })
    }
}

/// Some of what was wanted is set, and the rest is not.
#[derive(Debug, thiserror::Error)]
#[error("{error}; already set: {done}")]
struct Partly {
    error: String,
    done: String,
}

/// Sets all that needs no file of the device, in an order in which each finds what it builds on;
/// switching it on is last. What was set is noted in `done`, also when the rest fails.
pub(super) fn apply(
    namespace: &Namespace,
    name: &str,
    settings: &SettingArgs,
    done: &mut Done,
) -> Result<(), Failure> {
    let mut netlink = Netlink::open(namespace)?;
    if settings.down {
        netlink.set_down(name)?;
        done.push("down");
    }
    if let Some(mac) = settings.mac {
        netlink.set_mac(name, mac.0)?;
        done.push("mac");
    }
    if let Some(mtu) = settings.mtu {
        netlink.set_mtu(name, mtu)?;
        done.push("mtu");
    }
    if let Some(count) = settings.txqueuelen {
        netlink.set_txqueuelen(name, count)?;
        done.push("txqueuelen");
    }
    if let Some(count) = settings.rx_frames {
        netlink.set_rx_frames(name, count)?;
        done.push("rx-frames");
    }
    for feature in &settings.feature {
        features::set(&mut netlink, name, feature)?;
        done.push(format!("feature {}", feature.name));
    }
    gro(namespace, name, settings, done)?;
    qdisc(&mut netlink, name, settings)?;
    if settings.qdisc.is_some() {
        done.push("qdisc");
    }
    for address in &settings.address {
        netlink.add_address(name, address.ip, address.prefix_len)?;
        done.push(format!("address {}", address.ip));
    }
    if settings.up {
        netlink.set_up(name)?;
        done.push("up");
    }
    Ok(())
}

fn qdisc(netlink: &mut Netlink, name: &str, settings: &SettingArgs) -> Result<(), Failure> {
    let Some(qdisc) = &settings.qdisc else { return Ok(()) };
    match &qdisc.0 {
        Some(spec) => Ok(netlink.set_qdisc(name, spec)?),
        // The kernel's own has no number: there is nothing to take away then.
        None if netlink.qdiscs(name)?.iter().any(|it| it.is_root() && it.handle != (0, 0)) => {
            Ok(netlink.delete_qdisc(name)?)
        }
        None => Ok(()),
    }
}

fn gro(
    namespace: &Namespace,
    name: &str,
    settings: &SettingArgs,
    done: &mut Done,
) -> Result<(), Failure> {
    let values = [
        ("gro_flush_timeout", settings.gro_flush_timeout),
        ("napi_defer_hard_irqs", settings.napi_defer_hard_irqs.map(Into::into)),
    ];
    if values.iter().all(|(_, value)| value.is_none()) {
        return Ok(());
    }
    let sysfs = Sysfs::open(namespace)?;
    for (file, value) in values {
        if let Some(value) = value {
            sysfs.write(name, file, &value.to_string())?;
            done.push(file);
        }
    }
    Ok(())
}
