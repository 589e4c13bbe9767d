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
        Reason::IngressNotIp => "whoever sends into this tun device sends what is not IP",
        Reason::QueueDisabled => DISABLED,
        Reason::NotEncapsulated | Reason::WrongTunnel => FOREIGN,
        Reason::OuterCongested => {
            "the path of the tunnel is congested: lower the rate, or have the hosts speak ECN"
        }
        Reason::BadMetadata => METADATA,
        Reason::PortNoReceive | Reason::PortNoForward | Reason::PortNoPacketIn => PORT_CONFIG,
        Reason::VlanFiltered => FILTERED,
        Reason::Fragment => {
            "a controller wants IP fragments dropped (OFPC_FRAG_DROP): have it set the switch \
             otherwise, or senders use a smaller packet size"
        }
        Reason::VlanNotMember => {
            "the port is no member of that VLAN: add it to vlans= (docs/vlan.md), or send it \
             elsewhere"
        }
        Reason::TableMiss => "no rule matches: add one for it, or for all that no other matches",
        Reason::NoOutput => NO_WAY_OUT,
        Reason::InvalidTtl => "packets go around in a loop of routers, or their TTL is too small",
        Reason::Metered => METERED,
        Reason::BridgeReserved => {
            "nothing: bridges keep such frames (LLDP, STP and their like) to one cable"
        }
        Reason::InputPort => BACK,
        Reason::NoLiveBucket | Reason::NoSuchGroup => GROUP,
        Reason::TooDeep | Reason::BadAction => {
            "the rule asks for more than the switch does, or for what such frames have not: see \
             `tapswitch show flows`, and simplify it"
        }
        Reason::NoController => {
            "rules send them to a controller, and none listens: see `tapswitch show switch`"
        }
        Reason::ControllerQueueFull => {
            "controllers are slower than what is sent to them: have rules for it, or send less"
        }
        Reason::NoSuchPort => {
            "a rule sends to a port that is not there: see `tapswitch show flows`, and add the \
             port or change the rule"
        }
        Reason::PortDown => DOWN,
        Reason::Oversize => "give the port a larger mtu= or envelope=, or the hosts a smaller MTU",
        Reason::CannotSegment => CUT_BEFORE,
        Reason::EgressFull => FULL,
        Reason::EgressStalled => STALLED,
        Reason::SampledOut => SAMPLED,
        Reason::PortRemoved => "nothing: they waited for a port that was removed",
        Reason::NotIp => "send only IP without VLANs to this tun port, or make it a tap: port",
        Reason::NotAddressed => {
            "they are for another station than the tun device: send it only what is for it, or \
             make it a tap: port"
        }
        Reason::EgressRejected => REJECTED,
        Reason::EgressFailed => {
            "what is behind the port is gone or failed: look at its state in `tapswitch show \
             ports`, and add the port anew"
        }
    }
}

const BACK: &str = "nothing, where they are for all and no other port is up, as when the switch \
     starts; a rule that is to send frames back where they came from needs IN_PORT as its output";
const NO_WAY_OUT: &str = "nothing, where a rule drops them on purpose (`tapswitch show flows`), or \
     where they were for all ports while no other one was up, as when the switch starts";
const FILTERED: &str = "its tags do not fit the port's mode: change mode=, vlan= or vlans= \
     (docs/vlan.md), or what the host sends";
const DISABLED: &str = "the guest sends by a queue that its monitor has not enabled: look at its \
     driver, and at the number of queues of the VM";
const METADATA: &str = "whoever sends here asks for offloads that cannot be: mend or update that \
     driver, or turn its offloads off";
const DOWN: &str = "the port is down: `tapswitch show ports` tells how (no-link: bring up what \
     is behind it, or give a tunnel a way to its other end; disabled: a controller did that; a \
     file: it has reached its limit)";
const NO_BUFFERS: &str = "the guest was not there, or its interface was not up: its driver gives \
     buffers to receive into when that is set up (`ip link set IFNAME up` in the guest); nothing \
     is to be done about what came while it booted";
const FULL: &str = "more comes for the port than it takes: read faster what is behind it, or \
     send less; copies wait with `--delivery lossless`, what comes in by a link with pause=on \
     there";
const SAMPLED: &str = "nothing, if the policy or a rule asked for a sample; else give its \
     monitor more room, or the policy `--delivery lossless`";
const GROUP: &str = "the group of the rule has no way out: look at `tapswitch show groups`, and \
     at the ports that it watches";
const METERED: &str = "more comes than a meter lets pass: `tapswitch show meters` tells which and \
     by how much; whoever set it can give it a higher rate or burst";
const TRUNCATED: &str = "whoever sends here sends frames that are too short, or longer than the \
     port reads: look at its MTU, at its driver, and at gso_max_size and gro_max_size of the \
     interfaces (`ip -d link`): above 65536 they make trains that are longer than an IP header can \
     say (BIG TCP), which `ip link set IFNAME gso_max_size 65536 gro_max_size 65536` ends at the \
     interface and, of a veth, at its other end";
const FOREIGN: &str = "what comes is not of this tunnel: give both ends the same vni=, key= or \
     session=; which of these `tapswitch show ports` tells (REFUSED)";
const PORT_CONFIG: &str = "a controller has configured the port like that (`ovs-ofctl mod-port` \
     changes it)";
/// The remedy for a port that takes nothing.
pub(crate) const STALLED: &str = "see to it that what is behind it reads again (its guest, its \
     program, its link, its disk), or let others wait longer for it with stall=MS";
const REJECTED: &str = "the kernel or the guest refused them: a tunnel's local firewall, a guest \
     with buffers in very many pieces, or a driver that lacks an offload: try offload=off, and for \
     a tunnel look at `iptables -L OUTPUT`";
const RING: &str = "the switch read too slowly: give the port a longer drain-ahead=, a tap or tun \
     port also a longer txqueuelen= or more queues=, and the ports that it waits for a shorter \
     stall=";
/// The remedy for trains that the switch must cut and cannot.
const CUT_BEFORE: &str = "trains came that must be cut for this port, with headers that the switch \
     does not know or that contradict themselves: have them cut where they are sent, those in \
     tunnels by `ethtool -K DEVICE tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off \
     tx-gre-segmentation off tx-ipxip4-segmentation off`, others by `ethtool -K DEVICE tso off`";

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
