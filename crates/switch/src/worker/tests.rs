//! A worker by itself.

use super::*;
use crate::agent::{Agent, Identity};

/// Both errands are there when the worker looks: nothing is published between them.
#[test]
fn what_was_injected_last_is_in_the_books() {
    let identity = Identity { datapath_id: tapswitch_openflow::DatapathId(1), name: "br0".into() };
    let agent = Agent::new(identity, crate::Learning::Outer, 1, clock::coarse());
    let snapshot = agent.pipeline().snapshot().clone();
    let (shared, _reports) = Shared::new(snapshot, agent.macs().table().clone(), 1);
    let setup = WorkerSetup { index: WorkerIndex(0), core: None, shared: shared.clone() };
    let worker = setup.start().unwrap();
    let actions = vec![Action::output(PortNo(9))];
    let buf = vec![0; HEADROOM + 60];
    let errand = Errand::PacketOut { in_port: PortNo::CONTROLLER, buf, actions };
    worker.errands.send(errand).unwrap();
    drop(worker);
    assert_eq!(shared.workers[0].injected.load(Ordering::Relaxed), 1);
}
