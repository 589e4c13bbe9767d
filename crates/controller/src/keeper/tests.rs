//! What is written, when, and what happens on failure.

use futures_util::FutureExt;

use super::*;
use crate::cluster::Standing;
use crate::etcd::fake::FakeEtcd;
use crate::etcd::{EtcdConfig, Way};
use crate::journal::Journal;

/// A leader with a shared store, and the sender that makes it a follower.
async fn leader() -> (Arc<Keeper>, watch::Sender<Standing>) {
    leader_at(&FakeEtcd::start().await).await
}

async fn leader_at(etcd: &FakeEtcd) -> (Arc<Keeper>, watch::Sender<Standing>) {
    let generation = etcd.put("/t/leader", "{}").cast_unsigned();
    let config: EtcdConfig = format!("etcd://{}/t", etcd.endpoint).parse().unwrap();
    let (standing, receiver) = watch::channel(Standing::Leader { generation });
    let (way, journal) = (Way::open(&config).unwrap(), Arc::new(Journal::new(16)));
    let (store, _) = Store::share((&config, way), receiver, journal).await.unwrap();
    let keeper = Keeper::new(store, []);
    keeper.begin([]);
    (keeper, standing)
}

async fn put(claim: &Claim) -> Result<(), StoreError> {
    let policy = TapPolicy::new("a", "3".parse().unwrap());
    claim.put(&Caller::unix("ann"), &policy, (How::default(), None)).await
}

#[tokio::test]
async fn a_deletion_that_was_perhaps_written_is_put_right() {
    let (keeper, standing) = leader().await;
    let claim = keeper.claim("a").unwrap();
    put(&claim).await.unwrap();
    let policy = TapPolicy::new("a", "3".parse().unwrap());
    let kept = keeper.kept(policy).unwrap();
    let leads = standing.send_replace(Standing::Leader { generation: 1 << 40 });
    claim.delete(&Caller::unix("ann"), &kept, false).await.unwrap_err();
    assert!(matches!(keeper.lock().stale.get("a"), Some(Change::Put(_))), "it is in force");
    standing.send_replace(leads);
    claim.delete(&Caller::unix("ann"), &kept, false).await.unwrap();
    assert!(keeper.lock().stale.is_empty());
}

#[tokio::test]
async fn who_changes_a_policy_did_not_add_it() {
    let (keeper, _standing) = leader().await;
    let claim = keeper.claim("a").unwrap();
    put(&claim).await.unwrap();
    let policy = TapPolicy::new("a", "3".parse().unwrap());
    let added = keeper.kept(policy.clone()).unwrap();
    assert_eq!((added.origin.owner.as_str(), &added.origin.changed_by), ("unix:ann", &None));
    let how = How { replaces: true, ..How::default() };
    let bob = Caller::unix("bob");
    claim.put(&bob, &policy, (how, Some(&added))).await.unwrap();
    let changed = keeper.kept(policy).unwrap().origin;
    let (by, at) = (changed.changed_by.clone(), changed.changed_at.clone());
    assert!(by.as_deref() == Some("unix:bob") && at > Some(String::new()), "{changed:?}");
    assert_eq!(Origin { changed_at: None, changed_by: None, ..changed }, added.origin);
    claim.take_back(Some(added.clone()), Draft::new(&bob, how.what(), "refused")).await;
    assert_eq!(keeper.origin("a"), Some(added.origin));
}

#[tokio::test]
async fn where_monitors_were_found_is_kept_for_the_policy_in_force_after_a_change() {
    let etcd = FakeEtcd::start().await;
    let (keeper, _standing) = leader_at(&etcd).await;
    let claim = keeper.claim("a").unwrap();
    put(&claim).await.unwrap();
    let kept = || etcd.value("/t/policies/a").unwrap();
    let in_force = std::cell::RefCell::new("0x1/3");
    let current = async { Some(TapPolicy::new("a", in_force.borrow().parse().unwrap())) };
    let late = Arc::clone(&keeper).pin("a".to_owned(), current);
    tokio::join!(late, async {
        tokio::task::yield_now().await;
        assert!(!kept().contains("0x1/3"), "whoever has the name is not disturbed");
        *in_force.borrow_mut() = "0x2/3";
        drop(claim);
    });
    assert!(kept().contains("0x2/3"), "{}", kept());
    Arc::clone(&keeper).pin("a".to_owned(), async { None }).await;
    assert!(kept().contains("0x2/3"), "it is gone, and its end is written by others");
}

#[tokio::test]
async fn a_policy_of_the_configuration_is_kept_beside_one_that_was_added() {
    let etcd = FakeEtcd::start().await;
    let (keeper, _standing) = leader_at(&etcd).await;
    put(&keeper.claim("a").unwrap()).await.unwrap();
    let policy = TapPolicy::new("a", "0x1/3".parse().unwrap());
    let origin = Origin::now(CONFIGURATION);
    keeper.begin([KeptPolicy { policy: policy.clone(), origin }]);
    Arc::clone(&keeper).pin("a".to_owned(), async { Some(policy) }).await;
    assert_eq!(etcd.keys("/t/policies/"), ["/t/policies/ a", "/t/policies/a"]);
}

#[tokio::test]
async fn a_leader_writes_what_the_configuration_has_and_had() {
    let etcd = FakeEtcd::start().await;
    let (keeper, _standing) = leader_at(&etcd).await;
    let some = |names: std::ops::Range<usize>| {
        let named = |number| TapPolicy::new(format!("p{number:03}"), "3".parse().unwrap());
        let kept = |policy| KeptPolicy { policy, origin: Origin::now(CONFIGURATION) };
        names.map(named).map(kept).collect::<Vec<_>>()
    };
    // More than a transaction takes.
    let first = Configured { unstored: some(0..100), gone: Vec::new() };
    keeper.keep_configured(first).await.unwrap();
    assert_eq!(etcd.keys("/t/policies/").len(), 100);
    let gone = some(0..90).into_iter().map(|kept| (kept, What::PolicyDelete, LEFT)).collect();
    keeper.keep_configured(Configured { unstored: some(90..100), gone }).await.unwrap();
    assert_eq!(etcd.keys("/t/policies/").len(), 10);
    let whats: Vec<_> = log(&keeper).await.into_iter().map(|(what, _)| what).collect();
    assert_eq!(whats, vec!["policy.delete"; 90]);
}

#[tokio::test]
async fn the_end_of_a_policy_of_the_configuration_takes_none_that_was_added_with_it() {
    let etcd = FakeEtcd::start().await;
    let (keeper, _standing) = leader_at(&etcd).await;
    put(&keeper.claim("a").unwrap()).await.unwrap();
    let policy = TapPolicy::new("a", "0x1/3".parse().unwrap());
    let origin = Origin::now(CONFIGURATION);
    keeper.begin([KeptPolicy { policy: policy.clone(), origin: origin.clone() }]);
    Arc::clone(&keeper).pin("a".to_owned(), async { Some(policy.clone()) }).await;
    Arc::clone(&keeper).expire(&policy, Some(origin)).await;
    assert_eq!(etcd.keys("/t/policies/"), ["/t/policies/a"]);
    let whats: Vec<_> = log(&keeper).await.into_iter().map(|(what, _)| what).collect();
    assert_eq!(whats, ["policy.add", "policy.expire"]);
    assert_eq!(keeper.origin("a"), None, "it is over here");
}

#[tokio::test]
async fn what_fails_late_in_another_term_takes_no_record_of_this_one_with_it() {
    let (keeper, _standing) = leader().await;
    let mut known = keeper.lock();
    let draft = |text: &str| Draft::new(&Caller::unix("ann"), What::PolicyAdd, text);
    let term = known.term;
    known.owe(term, "a", (Change::Delete("a".to_owned()), draft("1")));
    known.owed.push(draft("2"));
    let late = known.take_debt();
    known.next_term();
    known.owe(term + 1, "b", (Change::Delete("b".to_owned()), draft("3")));
    known.owe_again(late);
    let Debt { stale, records, .. } = known.take_debt();
    let results: Vec<_> = records.drafts().map(|draft| draft.result().to_owned()).collect();
    assert_eq!((stale.len(), results), (1, vec!["2".to_owned(), "3".to_owned()]));
    assert!(stale.contains_key("b"));
}

#[tokio::test]
async fn changes_that_could_not_be_written_have_an_end() {
    let (keeper, _standing) = leader().await;
    for number in 0..MAX_STALE {
        let name = number.to_string();
        keeper.lock().stale.insert(name.clone(), Change::Delete(name));
    }
    let refused = put(&keeper.claim("a").unwrap()).await.unwrap_err().to_string();
    assert!(refused.contains("too many changes could not be written: 8192"), "{refused}");
    assert_eq!(keeper.lock().stale.len(), MAX_STALE);
    put(&keeper.claim("7").unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_policy_of_nobody_can_be_deleted() {
    let (keeper, _standing) = leader().await;
    let claim = keeper.claim_last("a").await.unwrap();
    let policy = TapPolicy::new("a", "3".parse().unwrap());
    keeper.kept(policy.clone()).unwrap_err();
    let kept = keeper.kept_to_delete(policy).unwrap();
    claim.delete(&Caller::unix("ann"), &kept, false).await.unwrap();
    assert_eq!(keeper.records(Wanted::After(0), 10).await.unwrap().total, 1);
}

async fn record(keeper: &Arc<Keeper>) -> Result<(), StoreError> {
    keeper.record(Draft::new(&Caller::unix("bob"), What::AuditExport, ACCEPTED)).await
}

/// Action and result of all records.
async fn log(keeper: &Keeper) -> Vec<(String, String)> {
    let lines = keeper.records(Wanted::After(0), 100).await.unwrap().lines;
    let record = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    lines.iter().map(record).map(|it| (text(&it["what"]), text(&it["result"]))).collect()
}

#[tokio::test]
async fn a_change_that_is_written_late_is_on_record() {
    let etcd = FakeEtcd::start().await;
    let (keeper, _standing) = leader_at(&etcd).await;
    let claim = keeper.claim("a").unwrap();
    put(&claim).await.unwrap();
    etcd.set_full(true);
    let why = Draft::new(&Caller::unix("ann"), What::PolicyAdd, "refused: no room");
    claim.take_back(None, why).await;
    drop(claim);
    let bob = Draft::new(&Caller::unix("bob"), What::TokenRefused, "refused");
    keeper.record_or_owe(bob).await;
    let end = TapPolicy::new("b", "3".parse().unwrap());
    Arc::clone(&keeper).expire(&end, None).await;
    keeper.pay().await.unwrap_err();
    assert_eq!(log(&keeper).await.len(), 1);
    etcd.set_full(false);
    keeper.pay().await.unwrap();
    let log = log(&keeper).await;
    let whats: Vec<_> = log.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(whats, ["policy.add", "policy.add", "token.refused", "policy.expire"]);
    assert_eq!(log[1].1, "refused: no room");
    assert!(etcd.keys("/t/policies/").is_empty(), "it is taken out as well");
}

#[tokio::test]
async fn who_hangs_up_takes_no_record_away() {
    let etcd = FakeEtcd::start().await;
    let (keeper, _standing) = leader_at(&etcd).await;
    etcd.set_full(true);
    let draft = |name| Draft::new(&Caller::unix(name), What::TokenRefused, "refused");
    keeper.record_or_owe(draft("ann")).await;
    assert!(keeper.record_or_owe(draft("bob")).now_or_never().is_none(), "who waits hangs up");
    // It is written after that one.
    record(&keeper).await.unwrap_err();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    etcd.set_full(false);
    keeper.pay().await.unwrap();
    assert_eq!(log(&keeper).await.len(), 2);
}

#[tokio::test]
async fn who_could_not_change_anything_is_on_record_later() {
    let etcd = FakeEtcd::start().await;
    let (keeper, _standing) = leader_at(&etcd).await;
    let claim = keeper.claim("a").unwrap();
    etcd.set_full(true);
    put(&claim).await.unwrap_err();
    etcd.set_full(false);
    put(&claim).await.unwrap();
    let log = log(&keeper).await;
    assert!(log[0].1.starts_with("refused: the store") && log[1].1 == "accepted", "{log:?}");
    assert_eq!(log.len(), 2);
}

#[tokio::test]
async fn who_does_not_lead_any_more_still_writes_records() {
    let (keeper, standing) = leader().await;
    let claim = keeper.claim("a").unwrap();
    standing.send_replace(Standing::Follower { leader: None, remembers: true });
    keeper.end();
    put(&claim).await.unwrap_err();
    let refused = Draft::new(&Caller::unix("ann"), What::PolicyAdd, "refused: it is over");
    claim.take_back(None, refused).await;
    record(&keeper).await.unwrap();
    assert!(keeper.lock().stale.is_empty(), "whoever leads now knows what there is to be");
    assert_eq!(keeper.records(Wanted::After(0), 10).await.unwrap().total, 1);
}

#[tokio::test]
async fn a_change_of_a_term_before_is_neither_made_nor_taken_back() {
    let etcd = FakeEtcd::start().await;
    let (keeper, standing) = leader_at(&etcd).await;
    let late = keeper.claim("a").unwrap();
    put(&late).await.unwrap();
    let policy = TapPolicy::new("a", "3".parse().unwrap());
    let kept = keeper.kept(policy).unwrap();
    // Others have led meanwhile without changes.
    keeper.end();
    etcd.delete("/t/leader");
    let generation = etcd.put("/t/leader", "{}").cast_unsigned();
    keeper.begin([kept.clone()]);
    standing.send_replace(Standing::Leader { generation });
    let refused = || Draft::new(&Caller::unix("ann"), What::PolicyAdd, "refused: too late");
    late.take_back(None, refused()).await;
    assert_eq!(etcd.keys("/t/policies/"), ["/t/policies/a"], "it is in force");
    assert_eq!(keeper.origin("a").unwrap(), kept.origin);
    put(&late).await.unwrap_err();
    late.delete(&Caller::unix("ann"), &kept, false).await.unwrap_err();
    assert!(keeper.lock().stale.is_empty());
    assert_eq!(keeper.records(Wanted::After(0), 10).await.unwrap().total, 1);
}

#[tokio::test]
async fn a_deletion_comes_right_behind_the_change_before() {
    let (keeper, _standing) = leader().await;
    let claim = keeper.claim("a").unwrap();
    let waiting = tokio::spawn({
        let keeper = Arc::clone(&keeper);
        async move { keeper.claim_last("a").await.map(|_| ()) }
    });
    while !keeper.lock().awaited.contains("a") {
        tokio::task::yield_now().await;
    }
    keeper.claim_last("a").await.unwrap_err();
    keeper.claim("b").unwrap();
    drop(claim);
    keeper.claim("a").unwrap_err();
    waiting.await.unwrap().unwrap();
    keeper.claim("a").unwrap();
}

#[tokio::test]
async fn who_was_deposed_without_knowing_it_writes_records() {
    let (keeper, standing) = leader().await;
    // For etcd, this is the leader of no term.
    standing.send_replace(Standing::Leader { generation: 1 << 40 });
    let claim = keeper.claim("a").unwrap();
    put(&claim).await.unwrap_err();
    assert!(!keeper.lock().stale.is_empty());
    record(&keeper).await.unwrap();
    keeper.end();
    keeper.begin([]);
    put(&claim).await.unwrap_err();
    assert!(keeper.lock().stale.is_empty(), "that was of a term before");
}

#[tokio::test]
async fn a_switch_that_could_not_be_kept_is_kept_when_it_connects_again() {
    let keeper = Keeper::new(Store::closed(), []);
    Arc::clone(&keeper).meet(DatapathId(1)).await;
    assert!(keeper.lock().met.is_empty());
}
