//! Hosts, slow or long links, and switches between them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tapswitch_netdev as netdev;
use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_switch::report::{PortReport, TapReport};
use tempfile::TempDir;
use tokio::process::Child;

use crate::hosts::{self, Host, INTERFACE};
use crate::management::{Request, Topic, ask};
use crate::process;

use super::Failure;

/// A running switch, ended on drop.
#[derive(Debug)]
pub(super) struct Switch {
    _child: Child,
    socket: PathBuf,
    _directory: TempDir,
}

impl Switch {
    /// Starts a switch with `ports`; `more` is added to its configuration.
    pub(super) async fn start(ports: &[String], more: &str) -> Result<Self, Failure> {
        Self::start_on(None, ports, more).await
    }

    /// As [`Self::start`], pinned to `core`.
    pub(super) async fn start_on(
        core: Option<usize>,
        ports: &[String],
        more: &str,
    ) -> Result<Self, Failure> {
        let directory = hosts::directory()?;
        let [file, socket] = ["lossless.toml", "lossless.sock"].map(|it| directory.path().join(it));
        let ports: Vec<_> = ports.iter().map(|port| format!("'{port}'")).collect();
        std::fs::write(&file, format!("switch.port = [{}]\n{more}", ports.join(", ")))?;
        let (config, path) = (file.display().to_string(), socket.display().to_string());
        let args = ["run", "--log", "error", "-c", &config, "--socket", &path];
        let program = std::env::current_exe()?;
        let (program, args) = process::on_core(core, &program.to_string_lossy(), &args);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let namespace = Namespace::current()?;
        let mut child = process::command(&namespace, &program, &args).spawn()?;
        let deadline = Instant::now() + START_LIMIT;
        while !socket.exists() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("the switch exited ({status})").into());
            }
            if Instant::now() > deadline {
                return Err(format!("the switch did not start within {START_LIMIT:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Self { _child: child, socket, _directory: directory })
    }

    pub(super) fn ports(&self) -> Result<Vec<PortReport>, Failure> {
        Ok(ask(Some(&self.socket), &Request::Show(Topic::Ports))?)
    }

    pub(super) fn taps(&self) -> Result<Vec<TapReport>, Failure> {
        Ok(ask(Some(&self.socket), &Request::Show(Topic::Taps))?)
    }

    /// Frames that it has marked so far (ECN), because they were queued for too long.
    pub(super) fn marked(&self) -> Result<u64, Failure> {
        Ok(self.ports()?.iter().map(|port| port.pressure.marked).sum())
    }

    /// Its losses so far, including those before and after it.
    pub(super) fn losses(&self) -> Result<Losses, Failure> {
        let mut losses = Losses::default();
        for port in self.ports()? {
            losses.shed += shed(&port);
            for (reason, count) in port.drops {
                *losses.drops.entry(reason).or_default() += count;
            }
        }
        Ok(losses)
    }
}

/// Lost frames, by the counter that shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Losses {
    /// By reason, as reported by the switch, including `ring_full`.
    pub(super) drops: BTreeMap<String, u64>,
    /// Dropped by queueing disciplines: before the switch's rings, of the interfaces that it sends
    /// to, and of those that its tunnels use.
    pub(super) shed: u64,
}

impl Losses {
    /// Difference to `before`.
    pub(super) fn since(mut self, before: &Self) -> Self {
        self.shed = self.shed.saturating_sub(before.shed);
        for (reason, count) in &mut self.drops {
            *count = count.saturating_sub(before.drops.get(reason).copied().unwrap_or(0));
        }
        self.drops.retain(|_, count| *count > 0);
        self
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.shed += more.shed;
        for (reason, count) in &more.drops {
            *self.drops.entry(reason.clone()).or_default() += count;
        }
    }

    /// Frames dropped because the kernel's ring to the switch was full.
    pub(super) fn ring_full(&self) -> u64 {
        self.drops.get("ring_full").copied().unwrap_or(0)
    }

    /// Frames that the switch itself dropped.
    pub(super) fn in_switch(&self) -> u64 {
        self.drops.values().sum::<u64>() - self.ring_full()
    }
}

fn shed(port: &PortReport) -> u64 {
    let before = port.ring.as_ref().map_or(0, |ring| ring.shed);
    before + port.queueing.as_ref().map_or(0, |queueing| queueing.shed)
}

/// A host on a tap port with these options. The switch creates its interface.
pub(super) fn tap_host(number: u8, role: &str, options: &str) -> Result<(Host, String), Failure> {
    let host = Host::create(number, role)?;
    let comma = if options.is_empty() { "" } else { "," };
    let port = format!("{}{comma}{options}", host.port_spec());
    Ok((host, port))
}

/// A host on a link: a veth pair whose other end, `pN` in `room`, is a port of the switch. Frames
/// from the switch are limited to `mbps`, with the queue of a token bucket; unlimited if `None`.
pub(super) async fn link_host(
    number: u8,
    role: &str,
    room: &Namespace,
    mbps: Option<f64>,
) -> Result<(Host, String), Failure> {
    let host = Host::create(number, role)?;
    let name = format!("p{number}");
    join(&host.namespace, INTERFACE, room, &name)?;
    if let Some(mbps) = mbps {
        limit_rate(room, &name, mbps).await?;
    }
    let port = format!("{number}=netdev:{name},netns={}", room.label());
    Ok((host, port))
}

/// A pair of interfaces, both up.
pub(super) fn join(
    here: &Namespace,
    name: &str,
    there: &Namespace,
    peer: &str,
) -> Result<(), Failure> {
    Netlink::open(here)?.create_veth(name, peer, there)?;
    Netlink::open(here)?.set_up(name)?;
    Ok(Netlink::open(there)?.set_up(peer)?)
}

/// Limits `name` to `mbps` (tc-tbf(8)). The bucket holds ten milliseconds of traffic, and the queue
/// before it more than the largest socket buffer, which the kernel doubles: the socket fills up
/// first.
pub(super) async fn limit_rate(room: &Namespace, name: &str, mbps: f64) -> Result<(), Failure> {
    let rate = format!("{:.0}bit", mbps * 1e6);
    let bucket = format!("{:.0}", (mbps * 1e6 / 8.0 / 100.0).max(BUCKET_LEN_MIN));
    let shape = ["rate", &rate, "burst", &bucket, "limit", &QUEUE_LEN.to_string()];
    tc(room, &[&["qdisc", "replace", "dev", name, "root", "tbf"], &shape[..]].concat()).await
}

/// Delays frames sent by `name` (tc-netem(8)), with room for all that are in flight.
pub(super) async fn delay(room: &Namespace, name: &str, by: Duration) -> Result<(), Failure> {
    let delay = format!("{}us", by.as_micros());
    let shape = ["delay", &delay, "limit", "100000"];
    tc(room, &[&["qdisc", "replace", "dev", name, "root", "netem"], &shape[..]].concat()).await
}

/// Whether this kernel can delay links.
pub(super) async fn has_netem() -> Result<bool, Failure> {
    let room = hosts::namespace("ask")?;
    Ok(delay(&room, "lo", Duration::from_millis(1)).await.is_ok())
}

async fn tc(room: &Namespace, args: &[&str]) -> Result<(), Failure> {
    process::run(room, "tc", args, Duration::from_secs(10)).await?;
    Ok(())
}

/// Room for the longest train, which a smaller bucket would never release.
const BUCKET_LEN_MIN: f64 = 70_000.0;
/// Length in bytes of the queue before a rate-limited link.
const QUEUE_LEN: usize = 16 << 20;
const _: () = assert!(QUEUE_LEN > 2 * netdev::SEND_BUFFER_LEN);
const START_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(shed: u64, drops: &[(&str, u64)]) -> Losses {
        Losses {
            shed,
            drops: drops.iter().map(|&(name, count)| (name.to_owned(), count)).collect(),
        }
    }

    #[test]
    fn losses_are_told_apart_by_who_has_them() {
        let all = losses(3, &[("ring_full", 5), ("egress_full", 7), ("table_miss", 1)]);
        let since = all.clone().since(&losses(1, &[("ring_full", 4), ("table_miss", 1)]));
        assert_eq!(since, losses(2, &[("ring_full", 1), ("egress_full", 7)]));
        assert_eq!((all.ring_full(), all.in_switch()), (5, 8));
        let mut sum = since;
        sum.add(&losses(1, &[("ring_full", 1)]));
        assert_eq!(sum, losses(3, &[("ring_full", 2), ("egress_full", 7)]));
    }
}
