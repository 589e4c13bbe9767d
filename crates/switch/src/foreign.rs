//! Other programs that attach to a device of the switch.
//!
//! Another program can attach to a multi-queue device if it is permitted; before Linux 7.3 anybody
//! is, unless the device has an owner or a group. It takes a share of the frames for the port, and
//! its own frames appear to come from the port; neither shows in the switch's counters. So a device
//! that the switch creates gets the switch's user as owner. The kernel reports each file that
//! attaches as a link change, if the link is up.

use tapswitch_netlink::Link;
use tapswitch_tap as tap;

use crate::PortSpec;
use crate::command::shell_word;

/// Queues of a device that are opened by other programs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Foreign {
    /// Their current number.
    pub(crate) queues: u32,
    /// How often their number has grown.
    pub(crate) joins: u64,
}

impl Foreign {
    /// Notes the current link, and logs new programs. Not each time, as a program may attach and
    /// detach at any rate.
    pub(crate) fn note(&mut self, spec: &PortSpec, link: &Link) {
        let before = std::mem::replace(&mut self.queues, foreign_queues(spec, link));
        if self.queues <= before {
            return;
        }
        self.joins += 1;
        if self.joins.is_power_of_two() {
            let place = spec
                .netns
                .as_ref()
                .map_or_else(String::new, |it| format!(" --netns {}", shell_word(it)));
            tracing::warn!(
                "port {spec}: another program has opened the device, too (queues of others now: \
                 {}, times in total: {}): it receives frames that are meant for the port, and can \
                 send frames into it; find it with `tapswitch device show {}{place}`, and stop it",
                self.queues,
                self.joins,
                shell_word(&link.name),
            );
        }
    }
}

/// The kernel reports the queues of multi-queue devices only; other devices cannot be joined.
fn foreign_queues(spec: &PortSpec, link: &Link) -> u32 {
    let Some(tun) = link.tun.filter(|_| spec.kind.is_device()) else { return 0 };
    let all = tun.queues.unwrap_or(0).saturating_add(tun.disabled_queues.unwrap_or(0));
    all.saturating_sub(spec.queues().get().into())
}

/// Restricts a device that was just created to its owner and holders of `CAP_NET_ADMIN`. Linux 7.3,
/// the first with `IFF_BACKPRESSURE`, does so for devices without an owner as well.
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
