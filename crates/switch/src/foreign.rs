//! Other programs that open a device of the switch.
//!
//! A device that may have several queues can be joined by whoever is permitted to; before Linux
//! 7.3 that is anybody, unless it has an owner or a group. Who joins takes a share of the frames
//! that are for the port, and what it sends comes from there as far as the kernel knows; no counter
//! of the switch's tells of either. So a device that the switch makes gets its own user as owner.
//! The kernel tells of each file that attaches as of any change of a link that is up.

use tapswitch_netlink::Link;
use tapswitch_tap as tap;

use crate::PortSpec;

/// The queues of a device that are not the switch's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Foreign {
    /// Those that are there now.
    pub(crate) queues: u32,
    /// How often there came to be more.
    pub(crate) joins: u64,
}

impl Foreign {
    /// Notes the link as it is now, and tells when another program has come. Not each time: one may
    /// come and go as often as it likes.
    pub(crate) fn note(&mut self, spec: &PortSpec, link: &Link) {
        let before = std::mem::replace(&mut self.queues, foreign_queues(spec, link));
        if self.queues <= before {
            return;
        }
        self.joins += 1;
        if self.joins.is_power_of_two() {
            let place = spec.netns.as_ref().map_or_else(String::new, |it| format!(" --netns {it}"));
            tracing::warn!(
                "port {spec}: another program has opened the device, too ({} queues now, {} times \
                 in total): it receives frames that are meant for the port, and can send frames \
                 into it; find it with `tapswitch device show {}{place}`, and stop it",
                self.queues,
                self.joins,
                link.name,
            );
        }
    }
}

/// The kernel tells of queues of devices that may have several; of others it gives nobody more.
fn foreign_queues(spec: &PortSpec, link: &Link) -> u32 {
    let Some(tun) = link.tun.filter(|_| spec.kind.is_device()) else { return 0 };
    let all = tun.queues.unwrap_or(0).saturating_add(tun.disabled_queues.unwrap_or(0));
    all.saturating_sub(spec.queues().get().into())
}

/// Sees to it that a device that was just made is for nobody else but who has `CAP_NET_ADMIN`
/// there. On Linux 7.3, the first with `IFF_BACKPRESSURE`, it is for nobody else without an owner.
pub(crate) fn keep_out(spec: &PortSpec, device: &tap::Device) {
    if device.capabilities().has_backpressure() {
        return;
    }
    if let Err(error) = device.set_owner(rustix::process::geteuid().as_raw()) {
        tracing::warn!("port {spec}: any user may open the device: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_ports_own_are_foreign() {
        let link = |queues, disabled_queues| {
            let mut tun = tapswitch_netlink::TunInfo::default();
            (tun.queues, tun.disabled_queues) = (queues, disabled_queues);
            let mut link = Link::default();
            (link.tun, link.up) = (Some(tun), true);
            link
        };
        let spec: PortSpec = "1=tap:a,queues=2".parse().unwrap();
        let mut foreign = Foreign::default();
        for (link, queues, joins) in [
            (link(Some(2), Some(0)), 0, 0),
            (link(Some(3), Some(1)), 2, 1),
            (link(Some(3), None), 1, 1),
            (link(Some(1), None), 0, 1),
            (link(Some(4), None), 2, 2),
            (link(None, None), 0, 2),
        ] {
            foreign.note(&spec, &link);
            assert_eq!((foreign.queues, foreign.joins), (queues, joins), "{link:?}");
        }
        let cable: PortSpec = "2=netdev:a".parse().unwrap();
        assert_eq!(foreign_queues(&cable, &link(Some(2), None)), 0, "it has none of them");
    }
}
