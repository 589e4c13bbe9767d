//! Lost responses and changes of leaders.

use super::*;
use crate::Caller;
use crate::audit::{Draft, Verifier, What};
use crate::etcd::fake::FakeEtcd;
use crate::store::{KeptPolicy, MAX_TOGETHER, Origin, Store};
use tapswitch_control::TapPolicy;
use tapswitch_openflow::DatapathId;

/// A controller with etcd, which leads or not.
struct Rig {
    etcd: FakeEtcd,
    store: Store,
    standing: watch::Sender<Standing>,
}

impl Rig {
    async fn start() -> Self {
        Self::join(FakeEtcd::start().await).await
    }

    /// Adds a controller.
    async fn join(etcd: FakeEtcd) -> Self {
        let config: EtcdConfig = format!("etcd://{}/t", etcd.endpoint).parse().unwrap();
        let nobody = Standing::Follower { leader: None, remembers: false };
        let (standing, receiver) = watch::channel(nobody);
        let journal = Arc::new(Journal::new(16));
        let way = Way::open(&config).unwrap();
        let (store, _) = Store::share((&config, way), receiver, journal).await.unwrap();
        Self { etcd, store, standing }
    }

    /// Makes it the leader, like the elector.
    fn lead(&self) {
        self.etcd.delete("/t/leader");
        let generation = self.etcd.put("/t/leader", "{}").cast_unsigned();
        self.standing.send_replace(Standing::Leader { generation });
    }

    async fn add(&self, name: &str) -> Result<(), StoreError> {
        let policy = TapPolicy::new(name, "3".parse().unwrap());
        let draft = Draft::new(&Caller::unix("ann"), What::PolicyAdd, "accepted").about(&policy);
        let origin = Origin::now("ann");
        let kept = Box::new(KeptPolicy { policy, origin });
        self.store.commit(vec![Change::Put(kept), Change::Record(draft)], self.store.term()).await
    }

    async fn record(&self) -> Result<(), StoreError> {
        self.store.commit(vec![Change::Record(draft())], self.store.term()).await
    }

    /// Verifies the log; returns the number of records.
    async fn verify(&self) -> u64 {
        let records = self.store.records(Wanted::After(0), 100).await.unwrap();
        let mut verifier = Verifier::default();
        records.lines.iter().for_each(|line| verifier.check(line).unwrap());
        assert_eq!(verifier.head().map(|head| head.0), Some(records.total));
        records.total
    }

    fn policies(&self) -> Vec<String> {
        self.etcd.keys("/t/policies/")
    }
}

fn draft() -> Draft {
    Draft::new(&Caller::unix("bob"), What::TokenRefused, "refused: no")
}

#[tokio::test]
async fn only_the_leader_changes_policies() {
    let rig = Rig::start().await;
    let refused = rig.add("a").await.unwrap_err().to_string();
    assert!(refused.contains("does not lead"), "{refused}");
    rig.record().await.unwrap();
    rig.lead();
    rig.add("a").await.unwrap();
    assert_eq!((rig.policies().len(), rig.verify().await), (1, 2));
}

#[tokio::test]
async fn who_was_deposed_without_knowing_it_writes_nothing() {
    let old = Rig::start().await;
    old.lead();
    old.add("a").await.unwrap();
    let new = Rig::join(old.etcd.clone()).await;
    new.lead();
    new.add("b").await.unwrap();
    assert!(matches!(*old.standing.borrow(), Standing::Leader { .. }), "it does not know");
    let refused = old.add("c").await.unwrap_err().to_string();
    assert!(refused.contains("does not lead"), "{refused}");
    assert_eq!(old.policies(), ["/t/policies/a", "/t/policies/b"]);
    old.record().await.unwrap();
    assert_eq!(new.verify().await, 3, "one log of both");
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_made_once() {
    let rig = Rig::start().await;
    rig.lead();
    rig.add("a").await.unwrap();
    rig.etcd.lose_answer(vec![]);
    rig.add("b").await.unwrap();
    assert_eq!((rig.policies().len(), rig.verify().await), (2, 2));
}

/// It is executed while its outcome is being found out.
#[tokio::test]
async fn a_change_that_is_made_late_is_made_once() {
    for before in 1..=4 {
        let rig = Rig::start().await;
        rig.lead();
        rig.add("a").await.unwrap();
        rig.etcd.delay(before);
        rig.add("b").await.unwrap();
        rig.record().await.unwrap();
        assert!(!rig.etcd.is_late());
        assert_eq!((rig.policies().len(), rig.verify().await), (2, 3), "before request {before}");
    }
}

/// Adds a policy whose transaction is executed late, before this request after it. Meanwhile the
/// controller steps down.
async fn add_and_step_down(rig: &Rig, before: usize) -> Result<(), StoreError> {
    rig.lead();
    rig.etcd.delay(before);
    let stepping_down = async {
        while !rig.etcd.is_late() {
            tokio::task::yield_now().await;
        }
        let nobody = Standing::Follower { leader: None, remembers: true };
        rig.standing.send_replace(nobody);
    };
    tokio::join!(rig.add("a"), stepping_down).0
}

#[tokio::test]
async fn who_steps_down_does_not_deny_what_may_still_be_made() {
    let rig = Rig::start().await;
    let refused = add_and_step_down(&rig, usize::MAX).await.unwrap_err().to_string();
    assert!(refused.contains("does not lead") && refused.contains("may still be"), "{refused}");
    // It was not seen at first.
    let rig = Rig::start().await;
    add_and_step_down(&rig, 3).await.unwrap();
    assert_eq!((rig.policies().len(), rig.verify().await), (1, 1));
}

/// When a controller stops, it no longer leads, and a switch may just have connected.
#[tokio::test]
async fn that_a_switch_is_not_noted_after_a_term_is_no_error() {
    let rig = Rig::start().await;
    let meet = Change::Meet(DatapathId(1));
    let ended = rig.store.commit(vec![meet.clone()], rig.store.term()).await.unwrap_err();
    assert!(is_of_no_matter(&ended, [&meet]));
    assert!(!is_of_no_matter(&ended, [&meet, &Change::Record(draft())]));
    assert!(!is_of_no_matter(&StoreError::closed(), [&meet]));
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_found_behind_those_of_others() {
    let rig = Rig::start().await;
    rig.lead();
    let draft = |what| Draft::new(&Caller::unix("bob"), what, "accepted");
    let ours = draft(What::AuditExport);
    // A record that another controller writes after ours.
    let mut head = Head::empty();
    head.append(&ours).unwrap();
    let theirs = head.append(&draft(What::TokenRefused)).unwrap();
    let record = format!("/t/audit/{:020}", 2);
    rig.etcd.lose_answer(vec![(record, theirs.clone()), ("/t/head".to_owned(), theirs)]);
    rig.store.commit(vec![Change::Record(ours)], rig.store.term()).await.unwrap();
    assert_eq!(rig.verify().await, 2, "ours and theirs, each once");
}

#[tokio::test]
async fn the_last_change_of_a_policy_counts() {
    let rig = Rig::start().await;
    rig.lead();
    let policy = TapPolicy::new("a", "3".parse().unwrap());
    let origin = Origin::now("ann");
    let kept = Box::new(KeptPolicy { policy, origin });
    let changes = vec![Change::Delete("a".to_owned()), Change::Put(kept)];
    rig.store.commit(changes, rig.store.term()).await.unwrap();
    assert_eq!(rig.policies().len(), 1);
}

#[tokio::test]
async fn the_leader_keeps_the_switches_that_connected() {
    let rig = Rig::start().await;
    let meet = |id| rig.store.commit(vec![Change::Meet(DatapathId(id))], rig.store.term());
    meet(1).await.unwrap_err();
    rig.lead();
    meet(0xab).await.unwrap();
    meet(1).await.unwrap();
    rig.record().await.unwrap();
    let keys = ["/t/switches/0000000000000001", "/t/switches/00000000000000ab"];
    assert_eq!(rig.etcd.keys("/t/switches/"), keys);
    let met: Met = serde_json::from_str(&rig.etcd.value(keys[0]).unwrap()).unwrap();
    assert_eq!(TermId::of(met.generation), rig.store.term());
    assert!(met.at_ms > 0);
}

#[tokio::test]
async fn what_was_decided_in_a_term_before_is_not_written_in_this_one() {
    let rig = Rig::start().await;
    rig.lead();
    let before = rig.store.term();
    rig.lead();
    let delete = || vec![Change::Delete("a".to_owned())];
    rig.store.commit(delete(), before).await.unwrap_err();
    rig.store.commit(delete(), rig.store.term()).await.unwrap();
}

#[tokio::test]
async fn those_who_ask_for_much_do_not_hurt_each_other() {
    let rig = Rig::start().await;
    rig.lead();
    let many = || {
        let delete = |number| Change::Delete(format!("p{number}"));
        let changes = (0..MAX_TOGETHER).map(delete).chain([Change::Record(draft())]).collect();
        rig.store.commit(changes, rig.store.term())
    };
    let (first, second, third) = tokio::join!(many(), rig.record(), many());
    [first, second, third].into_iter().for_each(|outcome| outcome.unwrap());
    assert_eq!(rig.verify().await, 3);
}
