//! A worker by itself.

use tapswitch_datapath::Port;
use tapswitch_wire::MacAddr;

use super::*;
use crate::agent::{Agent, Identity};

/// Both errands are there when the worker looks: nothing is published between them. The packet's
/// one end is a drop, at the port by which it came: the one that it leaves by is not there.
#[test]
fn what_was_injected_last_is_in_the_books() {
    let identity = Identity { datapath_id: tapswitch_openflow::DatapathId(1), name: "br0".into() };
    let mut agent = Agent::new(identity, crate::Learning::Outer, 1, clock::coarse());
    agent.handle_port(Port::new(PortNo(1), "p1".into(), MacAddr::ZERO, 1500, 1));
    let snapshot = agent.pipeline().snapshot().clone();
    let (shared, _reports) = Shared::new(snapshot, agent.macs().table().clone(), 1);
    let setup = WorkerSetup { index: WorkerIndex(0), core: None, shared: shared.clone() };
    let worker = setup.start().unwrap();
    let actions = vec![Action::output(PortNo(9))];
    let buf = vec![0; HEADROOM + 60];
    let errand = Errand::PacketOut { in_port: PortNo(1), buf, actions };
    worker.errands.send(errand).unwrap();
    drop(worker);
    assert_eq!(shared.workers[0].injected.load(Ordering::Relaxed), 1);
}
