//! Tests of the hub and of dry runs.

use std::sync::atomic::AtomicBool;

use tapswitch_control::{Expiry, Limits, PolicyError, WhenMissing};
use tapswitch_openflow::Capabilities;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::change::How;
use crate::cluster::Standing;
use crate::rehearsals::Rehearsals;
use crate::store::{Store, Wanted};
use crate::{Caller, StoreConfig};

/// A single hub without switches, and its keeper.
pub(super) fn hub() -> (Hub, Arc<Keeper>) {
    let journal = Arc::new(Journal::new(16));
    let (store, _) = Store::open(&StoreConfig::None, Arc::clone(&journal)).unwrap();
    let keeper = Keeper::new(store, []);
    let blueprint = Blueprint {
        limits: Limits::default(),
        policies: Vec::new(),
        start: Instant::now(),
        met: std::collections::BTreeSet::new(),
    };
    let seat = Seat::new(watch::channel(Standing::Alone).0, None);
    let control = Control::new(Limits::default());
    let kept = (Arc::clone(&keeper), journal);
    (Hub::new(control, (blueprint, seat), Inputs::new().1, kept, Duration::ZERO), keeper)
}

/// Switch 1 has connected, and has reported nothing yet.
pub(super) fn connected() -> (Input, mpsc::Receiver<Order>) {
    let (messages, sent) = mpsc::channel(64);
    let (close, is_heard) = (oneshot::channel().0, Arc::new(AtomicBool::new(false)));
    let features = FeaturesReply {
        datapath_id: DatapathId(1),
        n_buffers: 0,
        n_tables: 1,
        auxiliary_id: 0,
        capabilities: Capabilities::default(),
    };
    let orders = Orders { messages, close, is_heard };
    let news = News::Ready { features, peer: "127.0.0.1:1".parse().unwrap(), orders };
    let connection = ConnectionId::next();
    (Input::News { connection, session: 0, switch: DatapathId(1), news }, sent)
}

fn policy(name: &str) -> TapPolicy {
    TapPolicy::new(name, "3".parse().unwrap())
}

/// A dry run, and the receiver of its plan.
async fn dry_run(of: &Rehearsals) -> (Request, oneshot::Receiver<Result<Plan, RequestError>>) {
    let change = PolicyChange::Delete { name: "a".to_owned(), by_force: false };
    let (reply, answer) = oneshot::channel();
    (Request::Plan { change, turn: of.turn().await.unwrap(), reply }, answer)
}

#[test]
fn dry_runs_keep_no_hub_waiting_and_are_not_made_for_nobody() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(make_dry_runs());
}

/// In a runtime with one thread for dry runs.
async fn make_dry_runs() {
    let ((mut hub, _), rehearsals) = (hub(), Rehearsals::default());
    let (request, mut answer) = dry_run(&rehearsals).await;
    // The thread is busy for as long as the hub has not returned.
    let (until, returned) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || returned.recv());
    hub.answer(request);
    assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
    drop(until);
    let error = answer.await.unwrap().unwrap_err();
    let is_unknown = matches!(&error, RequestError::Policy(PolicyError::Unknown { .. }));
    assert!(is_unknown, "{error}");

    let (request, answer) = dry_run(&rehearsals).await;
    drop(answer);
    hub.answer(request);
    assert!(rehearsals.is_idle(), "its turn is over at once");
}

/// Switches would not be sent the requests, and not answer.
#[test]
fn who_led_last_keeps_nobody_waiting_for_switches() {
    let (mut hub, _) = hub();
    let features = FeaturesReply {
        datapath_id: DatapathId(1),
        n_buffers: 0,
        n_tables: 1,
        auxiliary_id: 0,
        capabilities: Capabilities::empty(),
    };
    hub.control.handle_connected(&features, Millis(0));
    let nobody = Standing::Follower { leader: None, remembers: true };
    hub.seat.standing.send_replace(nobody);
    let (reply, mut stats) = oneshot::channel();
    hub.handle_request(Request::Stats(reply));
    let (reply, mut loads) = oneshot::channel();
    hub.handle_request(Request::Loads(reply));
    let (reply, mut details) = oneshot::channel();
    hub.handle_request(Request::Details { switch: DatapathId(1), reply });
    assert!(stats.try_recv().is_ok() && loads.try_recv().is_ok_and(|loads| loads.is_empty()));
    let is_refused = matches!(details.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert!(is_refused, "the caller is told that there is no leader");
}

/// The end of the old policy is written when its last counters have arrived.
#[tokio::test]
async fn a_policy_that_ends_while_it_is_replaced_does_not_take_the_other_with_it() {
    let (mut hub, keeper) = hub();
    let (ann, replacing) = (Caller::unix("ann"), How { replaces: true, ..How::default() });
    let short = TapPolicy { expires: Some(Expiry::After(5)), ..policy("a") };
    keeper.claim("a").unwrap().put(&ann, &short, (How::default(), None)).await.unwrap();
    hub.control.add_policy(short.clone(), WhenMissing::Wait).unwrap();
    // While the time of day is unknown, it is in force without any switch.
    let schedule = Some("Mon 08:00-18:00".parse().unwrap());
    let next = TapPolicy { schedule, snaplen: Some(64), ..policy("a") };
    let claim = keeper.claim("a").unwrap();
    let before = keeper.kept(short).unwrap();
    claim.put(&ann, &next, (replacing, Some(&before))).await.unwrap();
    hub.control.replace_policy(next, WhenMissing::Wait).unwrap();
    hub.control.handle_timeout(Millis(5000));
    hub.transmit();
    while hub.handle_events() {
        hub.transmit();
    }
    assert!(hub.control.has_policy("a"));
    drop(claim);
    let written = async { while keeper.records(Wanted::After(0), 10).await.unwrap().total < 3 {} };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("the end is on record");
    assert!(keeper.origin("a").is_some(), "the new one is still in the store");
}
