//! Tests of becoming leader.

use tapswitch_control::{Limits, TapPolicy};

use super::*;
use crate::cluster::Standing;
use crate::etcd::fake::FakeEtcd;
use crate::journal::Journal;
use crate::store::{Store, Wanted};

#[tokio::test]
async fn who_has_many_policies_in_its_configuration_leads() {
    const COUNT: usize = 130;
    let etcd = FakeEtcd::start().await;
    let config: EtcdConfig = format!("etcd://{}/t", etcd.endpoint).parse().unwrap();
    let place = (&config, Way::open(&config).unwrap());
    let nobody = Standing::Follower { leader: None, remembers: false };
    let (_standing, receiver) = watch::channel(nobody);
    let journal = Arc::new(Journal::new(16));
    let (store, _) = Store::share(place.clone(), receiver, journal).await.unwrap();
    let keeper = Keeper::new(store, []);
    let policy = |number| TapPolicy::new(format!("p{number}"), "3".parse().unwrap());
    let policies = (0..COUNT).map(policy).collect();
    let blueprint = Blueprint { limits: Limits::default(), policies, start: Instant::now() };
    let me = Leader { id: "me".to_owned(), rest: None, generation: 0 };
    let (to_hub, mut heard) = mpsc::channel(1);
    let elector = Elector::new(place, me, to_hub);
    let (_ends, ended) = watch::channel(false);
    tokio::spawn(elector.run((Arc::clone(&keeper), blueprint), ended));
    let verdict = tokio::time::timeout(Duration::from_secs(10), heard.recv()).await;
    assert!(matches!(verdict, Ok(Some(Input::Verdict(Verdict::Lead { .. })))), "{verdict:?}");
    let records = keeper.records(Wanted::After(0), COUNT * 2).await.unwrap();
    assert_eq!(records.total, COUNT as u64);
}
