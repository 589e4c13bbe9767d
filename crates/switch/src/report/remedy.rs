//! Remedies for drops, by reason.

use tapswitch_datapath::DropReason;

use super::PortReport;

/// Frames that found the kernel's queue to the switch full. Not a reason of the datapath, which
/// never saw them.
pub(crate) const RING_FULL: &str = "ring_full";

impl PortReport {
    /// The remedy for drops with this reason; `None` for an unknown reason.
    pub(crate) fn remedy(&self, reason: &str) -> Option<String> {
        if reason == RING_FULL {
            return Some(RING.to_owned());
        }
        let reason = DropReason::ALL.into_iter().find(|known| known.name() == reason)?;
        let particular = match reason {
            DropReason::Oversize => self.oversize_remedy(),
            DropReason::EgressRejected => self.no_way(),
            DropReason::PortDown => self.no_way().or_else(|| self.no_buffers()),
            _ => None,
        };
        Some(particular.unwrap_or_else(|| remedy(reason).to_owned()))
    }

    /// The remedy if there is no route to a tunnel's remote.
    fn no_way(&self) -> Option<String> {
        self.tunnel.as_ref()?.warning.clone()
    }

    /// The remedy if a guest runs and provides no buffers.
    fn no_buffers(&self) -> Option<String> {
        let is_there = self.guest.as_ref().is_some_and(|guest| guest.state == "running");
        is_there.then(|| NO_BUFFERS.to_owned())
    }
}

/// The remedy that applies to all ports.
fn remedy(reason: DropReason) -> &'static str {
    use DropReason as Reason;
    match reason {
        Reason::Truncated => TRUNCATED,
        Reason::IngressLost => "the kernel ran out of memory, or the device failed: see `dmesg`",
        Reason::IngressNotIp => {
            "a program writes packets other than IP to this tun device: fix that program"
        }
        Reason::QueueDisabled => DISABLED,
        Reason::NotEncapsulated | Reason::WrongTunnel => FOREIGN,
        Reason::OuterCongested => {
            "the path of the tunnel is congested: lower the rate, or enable ECN on the hosts"
        }
        Reason::BadMetadata => METADATA,
        Reason::PortNoReceive | Reason::PortNoForward | Reason::PortNoPacketIn => PORT_CONFIG,
        Reason::VlanFiltered => FILTERED,
        Reason::Fragment => {
            "a controller wants IP fragments dropped (OFPC_FRAG_DROP): have it set the switch \
             otherwise, or senders use a smaller packet size"
        }
        Reason::VlanNotMember => {
            "the port is not a member of that VLAN: add the VLAN to vlans= (docs/vlan.md), or send \
             the frames elsewhere"
        }
        Reason::TableMiss => "no rule matches: add one for these frames, or a table-miss rule",
        Reason::NoOutput => NO_WAY_OUT,
        Reason::InvalidTtl => "packets are in a routing loop, or the sender's TTL is too small",
        Reason::Metered => METERED,
        Reason::BridgeReserved => {
            "none needed: bridges do not forward link-local frames such as LLDP and STP"
        }
        Reason::InputPort => BACK,
        Reason::NoLiveBucket | Reason::NoSuchGroup => GROUP,
        Reason::TooDeep | Reason::BadAction => {
            "the rule exceeds a limit of the switch, or sets a header that these frames do not \
             have: see `tapswitch show flows`, and simplify the rule"
        }
        Reason::NoController => {
            "rules send them to a controller, and none is connected: see `tapswitch show switch`"
        }
        Reason::ControllerQueueFull => {
            "the controller is slower than the frames sent to it: install rules for this traffic, \
             or send less"
        }
        Reason::NoSuchPort => {
            "a rule sends to a port that does not exist: see `tapswitch show flows`, and add the \
             port or change the rule"
        }
        Reason::PortDown => DOWN,
        Reason::Oversize => "give the port a larger mtu= or envelope=, or the hosts a smaller MTU",
        Reason::CannotSegment => CUT_BEFORE,
        Reason::EgressFull => FULL,
        Reason::EgressStalled => STALLED,
        Reason::SampledOut => SAMPLED,
        Reason::PortRemoved => "none needed: they waited for a port that was removed",
        Reason::NotIp => "send only untagged IP to this tun port, or use a tap: port",
        Reason::NotAddressed => {
            "they are addressed to another station than the tun device: send only its own frames \
             there, or use a tap: port"
        }
        Reason::EgressRejected => REJECTED,
        Reason::EgressFailed => {
            "the device behind the port is gone or has failed: check its state in `tapswitch show \
             ports`, and add the port again"
        }
    }
}

const BACK: &str = "none needed for floods while no other port is up, as when the switch starts; a \
                    rule that sends frames back to their ingress port needs IN_PORT as its output";
const NO_WAY_OUT: &str = "none needed if a rule drops them on purpose (`tapswitch show flows`), or \
                          for floods while no other port is up, as when the switch starts";
const FILTERED: &str = "its tags do not fit the port's mode: change mode=, vlan= or vlans= \
     (docs/vlan.md), or what the host sends";
const DISABLED: &str = "the guest sends on a queue that its VMM has not enabled: check its driver, \
                        and the number of queues of the VM";
const METADATA: &str = "the sender's driver requests impossible offloads: update the driver, or \
                        turn its offloads off";
const DOWN: &str = "the port is down: `tapswitch show ports` tells why (no-link: bring up the \
                    device or guest behind it, or add a route to a tunnel's remote; disabled: a \
                    controller did that; a file: it has reached its limit)";
const NO_BUFFERS: &str = "the guest was not running, or its interface was not up: its driver \
                          provides receive buffers once the interface is up (`ip link set IFNAME \
                          up` in the guest); frames that arrived while it booted need no remedy";
const FULL: &str = "more is sent to the port than it accepts: read faster behind the port, or send \
                    less; copies wait with `--delivery lossless`, and traffic from a link waits \
                    with pause=on there";
const SAMPLED: &str = "none needed if the policy or a rule requests a sample; else give the \
                       monitor a longer queue, or the policy `--delivery lossless`";
const GROUP: &str = "the rule's group has no live bucket, or is gone: see `tapswitch show groups`, \
                     and the ports that it watches";
const METERED: &str = "the traffic exceeds the rate of a meter: `tapswitch show meters` tells \
                       which and by how much; raise its rate or burst";
const TRUNCATED: &str = "the frames are too short, or longer than the port can read: check the \
                         sender's MTU and driver, and gso_max_size and gro_max_size of the \
                         interfaces (`ip -d link`): values above 65536 allow BIG TCP trains, which \
                         `ip link set IFNAME gso_max_size 65536 gro_max_size 65536` prevents on \
                         the interface and, for a veth, on its peer";
const FOREIGN: &str = "the packets do not belong to this tunnel: give both ends the same vni=, \
                       key= or session=; REFUSED in `tapswitch show ports` tells which differs";
const PORT_CONFIG: &str =
    "a controller has configured the port so (`ovs-ofctl mod-port` changes it)";
/// The remedy for a port that takes nothing.
pub(crate) const STALLED: &str = "make what is behind it read again (guest, program, link or \
                                  disk), or let senders wait longer with stall=MS";
const REJECTED: &str = "the kernel or the guest refused them, because of a local firewall, guest \
                        buffers in too many pieces, or a driver that lacks an offload: try \
                        offload=off, and for a tunnel check `iptables -L OUTPUT`";
const RING: &str = "the switch read too slowly: set a longer drain-ahead= for the port, for a tap \
                    or tun port also a longer txqueuelen= or more queues=, and a shorter stall= \
                    for the ports that it waits for";
/// The remedy for trains that the switch must cut and cannot.
const CUT_BEFORE: &str = "trains must be split for this port, and their headers are unknown to the \
                          switch or inconsistent: have the sender split them, with `ethtool -K \
                          DEVICE tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off \
                          tx-gre-segmentation off tx-ipxip4-segmentation off` for tunnels, \
                          otherwise with `ethtool -K DEVICE tso off`";

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel delivers trains larger than any buffer of a port, without an indication.
    #[test]
    fn trains_that_are_too_long_are_told_with_what_makes_them() {
        assert!(remedy(DropReason::Truncated).contains("gso_max_size 65536"));
    }

    /// A learning switch has one rule, NORMAL, which drops nothing, and our controllers flood to
    /// all ports they know: the first frames arrive before other ports are up.
    #[test]
    fn frames_without_a_way_out_are_not_laid_to_a_rule_alone() {
        for reason in [DropReason::NoOutput, DropReason::InputPort] {
            assert!(remedy(reason).contains("as when the switch starts"), "{}", reason.name());
        }
    }

    #[test]
    fn each_drop_has_a_remedy() {
        for reason in DropReason::ALL {
            let text = remedy(reason);
            assert!((20..600).contains(&text.len()), "{}: {text}", reason.name());
            assert!(!text.ends_with('.') && !text.contains("  "), "{}: {text}", reason.name());
        }
    }
}
