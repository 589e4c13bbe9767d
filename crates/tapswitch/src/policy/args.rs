//! The command line of `tapswitch policy`.

use clap::{Args, Subcommand};
use tapswitch_control::{
    Direction, EthType, Expiry, IpPrefix, IpProto, MonitorSpec, Point, PortRange, Sample, Schedule,
    Tagging, Transport, Vlan,
};
use tapswitch_openflow::Delivery;
use tapswitch_wire::MacAddr;

use crate::management::AskArgs;

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Copy matching traffic to a monitor. All fields but the monitor are optional.
    Add(Box<PolicyAddArgs>),
    /// Replace the policy of the same name. Frames that both policies copy are copied without a
    /// gap; omitted fields are reset to their defaults.
    Set(Box<PolicyAddArgs>),
    /// List all policies with their counters.
    List(AskArgs),
    /// Show one policy with its ledger.
    Show(PolicyNameArgs),
    /// Delete a policy and stop copying.
    Delete(PolicyDeleteArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyAddArgs {
    /// Name of the policy.
    pub(crate) name: String,
    /// Destination of the copies: a port (3, or 0x1/3 for port 3 of datapath 1), the name of a
    /// port, the MAC or IP address of a host, or several ports that share the flows
    /// (one-of:0x1/3+0x2/4). May be repeated: each monitor gets a copy.
    #[arg(long, value_name = "MONITOR", required = true)]
    pub(crate) monitor: Vec<MonitorSpec>,
    /// Filter expression in the syntax of tcpdump, in addition to the other fields. Refused if
    /// OpenFlow 1.3 cannot match it.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Source MAC address.
    #[arg(long, value_name = "MAC")]
    pub(crate) src_mac: Option<MacAddr>,
    /// Destination MAC address.
    #[arg(long, value_name = "MAC")]
    pub(crate) dst_mac: Option<MacAddr>,
    /// EtherType after all tags: ipv4, ipv6, arp or a number such as 0x88b5. Link-local protocols
    /// such as LLDP are not copied.
    #[arg(long, value_name = "TYPE")]
    pub(crate) eth_type: Option<EthType>,
    /// Source IPv4 or IPv6 address or prefix.
    #[arg(long, value_name = "IP[/LEN]")]
    pub(crate) src_ip: Option<IpPrefix>,
    /// Destination IPv4 or IPv6 address or prefix.
    #[arg(long, value_name = "IP[/LEN]")]
    pub(crate) dst_ip: Option<IpPrefix>,
    /// IP protocol: tcp, udp, icmp, icmpv6, sctp or a number.
    #[arg(long, value_name = "PROTO")]
    pub(crate) ip_proto: Option<IpProto>,
    /// VLAN ID of the outermost tag, "untagged" or "tagged".
    #[arg(long, value_name = "VID")]
    pub(crate) vlan: Option<Vlan>,
    /// TCP, UDP or SCTP source port or range; a range needs several rules.
    #[arg(long, value_name = "PORT[-PORT]")]
    pub(crate) src_port: Option<PortRange>,
    /// TCP, UDP or SCTP destination port or range; a range needs several rules.
    #[arg(long, value_name = "PORT[-PORT]")]
    pub(crate) dst_port: Option<PortRange>,
    /// Direction: forward (source to destination) or both (also replies, with source and
    /// destination exchanged). Default: both, if such frames have replies.
    #[arg(long, value_name = "DIRECTION")]
    pub(crate) direction: Option<Direction>,
    /// Print the changes on each switch, and whether it is proved that all frames reach their
    /// destinations; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Apply the policy even if the proof found frames that would not reach their destinations.
    #[arg(long)]
    pub(crate) force: bool,
    /// Contract for copies that the monitor cannot take: best-effort, lossless (senders wait as
    /// long as the monitor's port allows), lossless:MS (at most MS milliseconds at a time) or
    /// sample-on-pressure.
    #[arg(long, value_name = "CONTRACT", default_value = "best-effort")]
    pub(crate) delivery: Delivery,
    /// Bytes of each packet to keep.
    #[arg(long, value_name = "LEN")]
    pub(crate) snaplen: Option<u16>,
    /// Copy one of N frames, such as 1/10.
    #[arg(long, value_name = "1/N")]
    pub(crate) sample: Option<Sample>,
    /// VLAN tags of the copies: keep or strip (the two outermost tags; only the outermost on Open
    /// vSwitch).
    #[arg(long, value_name = "keep|strip", default_value = "keep")]
    pub(crate) tags: Tagging,
    /// Where frames are copied if other rules rewrite them: ingress (before) or egress (after, on
    /// the way to the host of dst-mac).
    #[arg(long, value_name = "ingress|egress")]
    pub(crate) point: Option<Point>,
    /// How copies reach a monitor on another switch: svlan (with an additional tag) or rewrite
    /// (copied at the egress, with another destination address).
    #[arg(long, value_name = "svlan|rewrite", default_value = "svlan")]
    pub(crate) transport: Transport,
    /// Priority. If a switch has no room for all policies, the lowest gives way; among equals, the
    /// newest.
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub(crate) priority: u8,
    /// When the policy deletes itself: a time span such as 30m or 7d, or a time such as
    /// 2026-11-22T18:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<Expiry>,
    /// When copies are made, in UTC: "Mon-Fri 08:00-18:00; Sat 10:00-12:00".
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<Schedule>,
    /// Person responsible for the policy.
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// Purpose of the policy.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyNameArgs {
    /// Name of the policy.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyDeleteArgs {
    /// Name of the policy.
    pub(crate) name: String,
    /// Print the changes on each switch, and whether it is proved that all other frames reach their
    /// destinations; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete it even if the proof found frames that would not reach their destinations.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}
