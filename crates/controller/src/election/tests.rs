//! Tests of becoming leader.

use tapswitch_control::{Limits, TapPolicy};

use super::*;
use crate::cluster::Standing;
use crate::etcd::fake::FakeEtcd;
use crate::journal::Journal;
use crate::store::{Store, Wanted};

/// A controller that takes part in the election with these policies of its configuration.
struct Candidate {
    keeper: Arc<Keeper>,
    heard: mpsc::Receiver<Input>,
    _standing: watch::Sender<Standing>,
    _ends: watch::Sender<bool>,
}

impl Candidate {
    async fn start(etcd: &FakeEtcd, policies: Vec<TapPolicy>) -> Self {
        let config: EtcdConfig = format!("etcd://{}/t", etcd.endpoint).parse().unwrap();
        let place = (&config, Way::open(&config).unwrap());
        let nobody = Standing::Follower { leader: None, remembers: false };
        let (standing, receiver) = watch::channel(nobody);
        let journal = Arc::new(Journal::new(16));
        let (store, _) = Store::share(place.clone(), receiver, journal).await.unwrap();
        let keeper = Keeper::new(store, []);
        let (limits, start, met) = (Limits::default(), Instant::now(), BTreeSet::new());
        let blueprint = Blueprint { limits, policies, start, met };
        let me = Leader { id: "me".to_owned(), rest: None, openflow: None, generation: 0 };
        let (to_hub, heard) = mpsc::channel(1);
        let elector = Elector::new(place, me, to_hub);
        let (ends, ended) = watch::channel(false);
        tokio::spawn(elector.run((Arc::clone(&keeper), blueprint), ended));
        Self { keeper, heard, _standing: standing, _ends: ends }
    }

    /// Waits until it leads; returns what it has read.
    async fn leads(&mut self) -> Kept {
        match tokio::time::timeout(Duration::from_secs(60), self.heard.recv()).await {
            Ok(Some(Input::Verdict(Verdict::Lead { kept, .. }))) => kept,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn who_has_many_policies_in_its_configuration_leads() {
    const COUNT: usize = 130;
    let etcd = FakeEtcd::start().await;
    let policy = |number| TapPolicy::new(format!("p{number}"), "3".parse().unwrap());
    let mut candidate = Candidate::start(&etcd, (0..COUNT).map(policy).collect()).await;
    candidate.leads().await;
    let records = candidate.keeper.records(Wanted::After(0), COUNT * 2).await.unwrap();
    assert_eq!(records.total, COUNT as u64);
}

#[tokio::test]
async fn switches_of_the_last_term_are_expected_and_long_gone_ones_are_forgotten() {
    const GONE: u64 = 300;
    let etcd = FakeEtcd::start().await;
    let put = |id: u64, generation: u64| {
        let met = Met { generation, at_ms: 1 };
        let key = format!("/t/switches/{}", key_of(DatapathId(id)));
        etcd.put(&key, &serde_json::to_string(&met).unwrap());
    };
    (100..100 + GONE).for_each(|id| put(id, 3));
    put(1, 4);
    etcd.put("/t/switches/0000000000000002", "something else");
    let kept = Candidate::start(&etcd, vec![]).await.leads().await;
    assert_eq!(kept.switches, [DatapathId(1)].into());
    assert_eq!(etcd.keys("/t/switches/"), ["/t/switches/0000000000000001"]);
}
