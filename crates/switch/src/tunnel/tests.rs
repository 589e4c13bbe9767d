//! Tests of tunnels that wait for their path.

use std::fmt;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Mutex;

use tapswitch_helpers::{is_root, unique, unprivileged};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::PortKind;

/// A tunnel in a namespace that has its local address and no route to its remote end.
struct Site {
    namespace: OwnedNamespace,
    tunnel: Tunnel,
}

impl Site {
    fn new() -> Self {
        let name = unique("sw-tunnel");
        let namespace = OwnedNamespace::create(&name).unwrap();
        let mut netlink = Netlink::open(&namespace).unwrap();
        netlink.create_veth("d0", "d1", &namespace).unwrap();
        ["lo", "d0", "d1"].iter().for_each(|name| netlink.set_up(name).unwrap());
        netlink.add_address("d0", LOCAL.into(), 24).unwrap();
        let spec = format!("1=vxlan:remote=10.8.0.2,local=10.9.0.1,vni=42,netns={name}");
        let spec: PortSpec = spec.parse().unwrap();
        let PortKind::Vxlan(vxlan) = &spec.kind else { panic!("{spec}") };
        let tunnel = Tunnel::open(&spec, Kind::Vxlan(vxlan.clone())).unwrap();
        Self { namespace, tunnel }
    }

    fn ip(&self, command: &str) {
        let output = self.namespace.command("ip").args(command.split(' ')).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }

    fn why(&self) -> String {
        self.tunnel.report().warning.unwrap_or_default()
    }
}

/// Only privileged threads can enter a namespace.
#[test]
fn whether_there_is_a_path_is_found_out_without_a_thread() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert!(site.why().starts_with("there is no route to 10.8.0.2"), "{}", site.why());
    site.ip("route add blackhole 10.8.0.2");
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert!(site.why().contains("one of type blackhole"), "{}", site.why());
    site.ip("route replace 10.8.0.2 dev d0");
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert!(site.why().contains("CAP_SYS_ADMIN"), "opening needs a thread: {}", site.why());
    assert_eq!(site.tunnel.look(), Look::Opened);
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert_eq!(site.why(), "");
    site.ip("addr del 10.9.0.1/24 dev d0");
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Changed);
    assert!(site.why().starts_with("its local address 10.9.0.1 is gone"), "{}", site.why());
}

#[test]
fn the_log_says_what_keeps_a_tunnel_down_now() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    let log = Log::default();
    let look = |site: &mut Site| {
        log.during(|| site.tunnel.look());
        log.take()
    };
    assert!(look(&mut site).is_empty(), "no news");
    site.ip("route add prohibit 10.8.0.2");
    let [line] = look(&mut site).try_into().unwrap();
    assert!(line.contains("is down: ") && line.contains("one of type prohibit"), "{line}");
    site.ip("route replace 10.8.0.2 dev d0");
    let taken = site.namespace.enter(|| UdpSocket::bind((LOCAL, 4789))).unwrap().unwrap();
    let [line] = look(&mut site).try_into().unwrap();
    assert!(line.contains("is down: 10.9.0.1:4789: the UDP port is used"), "{line}");
    assert!(look(&mut site).is_empty(), "no news");
    drop(taken);
    let [line] = look(&mut site).try_into().unwrap();
    assert!(line.ends_with("is up: there is a route to 10.8.0.2"), "{line}");
}

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// The lines that are logged by this thread.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn during<R>(&self, action: impl FnOnce() -> R) -> R {
        tracing::subscriber::with_default(self.clone(), action)
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
