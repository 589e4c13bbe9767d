//! Tests of the hub and of dry runs.

use tapswitch_control::{Limits, PolicyError};
use tokio::sync::watch;

use super::*;
use crate::StoreConfig;
use crate::cluster::Standing;
use crate::rehearsals::Rehearsals;
use crate::store::Store;

/// A single hub without switches, and its keeper.
pub(super) fn hub() -> (Hub, Arc<Keeper>) {
    let journal = Arc::new(Journal::new(16));
    let (store, _) = Store::open(&StoreConfig::None, Arc::clone(&journal)).unwrap();
    let keeper = Keeper::new(store, []);
    let blueprint =
        Blueprint { limits: Limits::default(), policies: Vec::new(), start: Instant::now() };
    let seat = Seat::new(watch::channel(Standing::Alone).0, None);
    let control = Control::new(Limits::default());
    let kept = (Arc::clone(&keeper), journal);
    (Hub::new(control, (blueprint, seat), Inputs::new().1, kept, Duration::ZERO), keeper)
}

/// A dry run, and the receiver of its plan.
async fn dry_run(of: &Rehearsals) -> (Request, oneshot::Receiver<Result<Plan, RequestError>>) {
    let change = PolicyChange::Delete { name: "a".to_owned(), by_force: false };
    let (reply, answer) = oneshot::channel();
    (Request::Plan { change, turn: of.turn().await.unwrap(), reply }, answer)
}

#[tokio::test]
async fn dry_runs_keep_no_hub_waiting_and_are_not_made_for_nobody() {
    let ((mut hub, _), rehearsals) = (hub(), Rehearsals::default());
    let (request, mut answer) = dry_run(&rehearsals).await;
    hub.answer(request);
    assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
    let error = answer.await.unwrap().unwrap_err();
    let is_unknown = matches!(&error, RequestError::Policy(PolicyError::Unknown { .. }));
    assert!(is_unknown, "{error}");

    let (request, answer) = dry_run(&rehearsals).await;
    drop(answer);
    hub.answer(request);
    assert!(rehearsals.is_idle(), "its turn is over at once");
}
