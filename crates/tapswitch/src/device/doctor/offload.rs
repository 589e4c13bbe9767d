//! Rules about offloads and coalescing.

use tapswitch_tap::{Flags, HeaderLen};

use super::finding::{Finding, Severity};
use super::subject::{Rule, Subject};
use super::switches::SwitchPort;
use crate::device::view::{
    CSUM, GRO_LIST, MANGLE_ID, TSO4, TSO6, TUNNEL, TUNNEL_CSUM, TUNNEL_HEADER_LEN,
    UDP_GRO_FORWARDING, USO, active_offloads,
};

pub(super) const RULES: &[Rule] = &[
    no_checksum,
    no_trains,
    no_udp_trains,
    stale_offloads,
    odd_header,
    short_tunnel_header,
    mangle_id,
    udp_gro_forwarding,
    napi_without_gro,
];

/// Without checksum offload there are no trains either, and some programs fail.
fn no_checksum(it: &Subject<'_>) -> Option<Finding> {
    if it.device.features.is_empty() || it.device.has(CSUM) {
        return None;
    }
    let senders = if it.machine.kernel < UDP_SEGMENT_FALLS_BACK {
        "programs that send with UDP_SEGMENT get EIO"
    } else {
        "each packet costs a pass over its payload"
    };
    let text = format!("no checksum offload, so no trains either: {senders}");
    let found = missing(it, "no-checksum", &text, &[CSUM])?;
    // A program without a header can have no more, and without `EIO` nothing is broken.
    let is_slow_only = !it.device.tun.net_header && it.machine.kernel >= UDP_SEGMENT_FALLS_BACK;
    let severity = if is_slow_only { Severity::Hint } else { found.severity };
    Some(Finding { severity, ..found })
}

/// The kernel segments TCP trains before the program reads them.
fn no_trains(it: &Subject<'_>) -> Option<Finding> {
    let is_wanting = it.device.has(CSUM) && !(it.device.has(TSO4) && it.device.has(TSO6));
    let text = "TCP trains are not accepted: the kernel cuts each into packets, and a read returns \
                1.5 kB instead of up to 64 kB";
    if is_wanting { missing(it, "no-trains", text, &[TSO4, TSO6]) } else { None }
}

/// The same for UDP, which fewer programs send.
fn no_udp_trains(it: &Subject<'_>) -> Option<Finding> {
    let feature = it.device.feature(USO)?;
    if it.machine.kernel < USO_SINCE || feature.active || !it.device.has(TSO4) {
        return None;
    }
    let text = "UDP trains (UDP_SEGMENT, QUIC) are not accepted: the kernel cuts them";
    let found = missing(it, "no-udp-trains", text, &[USO])?;
    Some(Finding { severity: Severity::Hint, ..found })
}

/// An offload that is off, and who may enable it. Its program enables what it can parse, so nobody
/// else should enable more (`TUNSETOFFLOAD`). The kernel does not report whether the program has
/// not enabled it or an administrator has disabled a feature; but a feature only becomes active if
/// the program has enabled it, and one that is requested but inactive is one that it has not. A
/// device without a program has no problem: the next program enables what it can parse
/// ([`stale_offloads`]).
fn missing(it: &Subject<'_>, rule: &'static str, text: &str, features: &[&str]) -> Option<Finding> {
    if !it.is_held() {
        return None;
    }
    let who = it.holders();
    if !it.device.tun.net_header {
        let text = match it.port {
            // A switch only disables them if configured to.
            Some(SwitchPort { switch, port, .. }) => format!(
                "{text}; port {} of switch {switch} has offload=off: remove that option from its \
                 configuration",
                port.port
            ),
            None => format!(
                "{text}; {who} reads no network header: start it so that it does (IFF_VNET_HDR; \
                 vnet_hdr=on for QEMU)"
            ),
        };
        return Some(it.finding(Severity::Warning, rule, text, None));
    }
    let off = features.iter().filter_map(|name| it.device.feature(name)).filter(|it| !it.active);
    let (refused, unwanted): (Vec<_>, Vec<_>) = off.partition(|feature| feature.requested);
    if !refused.is_empty() || unwanted.is_empty() {
        let text = format!(
            "{text}; {who} reads the network header, but has not requested the offload \
             (TUNSETOFFLOAD): only the program itself can, once it can read such frames"
        );
        return Some(it.finding(Severity::Warning, rule, text, None));
    }
    let text = format!(
        "{text}; either ethtool has switched it off, which can be undone, or {who} has not \
         requested it (TUNSETOFFLOAD), and it stays off until it does"
    );
    let on: Vec<_> = unwanted.iter().map(|it| format!("--feature {}=on", it.name)).collect();
    let found = it.finding(Severity::Warning, rule, text, it.set(&on.join(" ")));
    Some(Finding { is_sure: false, ..found })
}

/// The offloads of a persistent device stay when its program has ended.
fn stale_offloads(it: &Subject<'_>) -> Option<Finding> {
    let tun = &it.device.tun;
    it.device.offloads().filter(|offloads| !offloads.is_empty())?;
    let mend = it.set("--offloads none");
    match (tun.net_header, it.is_held()) {
        (_, false) if !it.is_free() => None,
        (false, true) => {
            let who = it.holders();
            let text = format!(
                "{who} reads no network header, but offloads of an earlier program are still on: \
                 it gets frames longer than the MTU and incomplete checksums"
            );
            Some(it.finding(Severity::Error, "stale-offloads", text, mend))
        }
        (false, false) => {
            let text = "it has no network header, but offloads of an earlier program are still on: \
                        a program that opens it as it is gets incomplete frames";
            Some(it.finding(Severity::Warning, "stale-offloads", text, mend))
        }
        (true, false) => {
            let text = format!(
                "no program holds it, and offloads of an earlier program are still on ({}): the \
                 next program must set its own, or it gets incomplete frames",
                active_offloads(it.device).join(" ")
            );
            Some(it.finding(Severity::Hint, "stale-offloads", text, mend))
        }
        (true, true) => None,
    }
}

/// Linux accepts any length from 10 bytes on: also one set by mistake or left by a former program.
fn odd_header(it: &Subject<'_>) -> Option<Finding> {
    let len = it.device.header_len()?;
    if !it.device.tun.net_header || HeaderLen::from_bytes(len).is_some() {
        return None;
    }
    let text = format!(
        "the network header is set to {len} bytes (TUNSETVNETHDRSZ), which is no valid length: \
         frames do not start where programs expect them, and each read into a shorter buffer fails \
         and loses a frame"
    );
    if it.is_held() {
        let text = format!("{text}; {} must set 10, 12, 20 or 24", it.holders());
        return Some(it.finding(Severity::Error, "odd-header", text, None));
    }
    let text = format!("{text}; the next program must set a valid one, or it inherits this one");
    let mend = it.set("--vnet-hdr 10");
    Some(it.finding(Severity::Warning, "odd-header", text, mend))
}

/// The kernel cannot store the metadata of a tunnelled train in a short header, and loses every
/// frame of any kind.
fn short_tunnel_header(it: &Subject<'_>) -> Option<Finding> {
    let has_tunnels = it.device.has(TUNNEL) || it.device.has(TUNNEL_CSUM);
    let len = it.device.header_len()?;
    if !it.device.tun.net_header || !has_tunnels || len >= TUNNEL_HEADER_LEN {
        return None;
    }
    let text = format!(
        "tunnel offloads are on with a network header of {len} bytes: every read fails and loses a \
         frame; they need {TUNNEL_HEADER_LEN} bytes"
    );
    let others: Vec<_> =
        active_offloads(it.device).into_iter().filter(|name| !name.starts_with("tunnel")).collect();
    let others = if others.is_empty() { "none".to_owned() } else { others.join(",") };
    let mend = it.set(&format!("--offloads {others}"));
    let severity = if it.is_held() { Severity::Error } else { Severity::Warning };
    Some(it.finding(severity, "short-tunnel-header", text, mend))
}

/// Forwarded traffic coalesced by NICs and GRO may have IPv4 identifications that do not increment.
fn mangle_id(it: &Subject<'_>) -> Option<Finding> {
    let feature = it.device.feature(MANGLE_ID)?;
    if feature.active || feature.is_fixed() || !it.device.has(TSO4) {
        return None;
    }
    let text = format!(
        "{MANGLE_ID} is off: forwarded TCP trains whose IPv4 identifiers are all the same are cut \
         by the kernel"
    );
    let mend = it.set(&format!("--feature {MANGLE_ID}=on"));
    Some(it.finding(Severity::Hint, "mangle-id-off", text, mend))
}

/// Coalesced datagrams are forwarded coalesced.
fn udp_gro_forwarding(it: &Subject<'_>) -> Option<Finding> {
    let on: Vec<_> =
        [UDP_GRO_FORWARDING, GRO_LIST].into_iter().filter(|name| it.device.has(name)).collect();
    if on.is_empty() {
        return None;
    }
    let arguments: Vec<_> = on.iter().map(|name| format!("--feature {name}=off")).collect();
    let mend = it.set(&arguments.join(" "));
    let names = on.join(" and ");
    if it.has_flag(Flags::NAPI) {
        let text = format!(
            "{names} is on: datagrams that its program writes are joined and forwarded as trains, \
             which an interface or a bridge that cannot take them cuts again or loses"
        );
        return Some(it.finding(Severity::Warning, "udp-gro-forwarding", text, mend));
    }
    let text =
        format!("{names} is on; it has no effect without NAPI, and it is a hazard with NAPI");
    Some(it.finding(Severity::Hint, "udp-gro-forwarding", text, mend))
}

/// NAPI costs time on each write, and coalesces nothing until a timeout is set.
fn napi_without_gro(it: &Subject<'_>) -> Option<Finding> {
    let timeout = it.device.gro_flush_timeout_ns?;
    if !it.has_flag(Flags::NAPI) || timeout > 0 {
        return None;
    }
    let text = "IFF_NAPI makes each write more expensive, but GRO does not wait for packets to \
                join (gro_flush_timeout is 0)";
    let mend = it.set("--gro-flush-timeout 20000");
    Some(it.finding(Severity::Warning, "napi-without-gro", text, mend))
}

/// From this release on, the kernel segments UDP trains itself instead of refusing them.
const UDP_SEGMENT_FALLS_BACK: (u32, u32) = (6, 11);
/// The release that introduced `TUN_F_USO4` and `TUN_F_USO6`.
const USO_SINCE: (u32, u32) = (6, 2);
