//! Which switches this controller relays.
//!
//! The leader lists its switches in etcd. A follower that has had one for a while which is not in
//! the list claims it by a key bound to a lease of its own, so that of several followers one
//! relays. A relayed switch is in the leader's list, too.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tapswitch_openflow::DatapathId;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Dialler, Relay};
use crate::cluster::{Keys, Leader, Listed, Standing};
use crate::election::{Term, sees_far_more};
use crate::etcd::{Client, Compare, EtcdConfig, EtcdError, Op, Way};
use crate::news::Input;
use crate::store::key_of;

/// Relays switches while this controller follows.
#[derive(Debug)]
pub(crate) struct Relays {
    client: Client,
    keys: Keys,
    ttl: Duration,
    /// This controller's name.
    me: String,
    /// Which switches are connected here.
    term: Term,
    standing: watch::Receiver<Standing>,
    dialler: Dialler,
    to_hub: mpsc::Sender<Input>,
    lease: Option<i64>,
    /// Switches that are connected here, and since when as far as known.
    here: HashMap<DatapathId, Instant>,
    /// Generation of the leader that the following is about.
    generation: u64,
    /// Generation of the last list that was compared.
    compared: u64,
    /// Switches that the leader has not, and since when.
    missed: HashMap<DatapathId, Instant>,
    /// Claimed switches. A sender is closed when its relay has ended.
    relayed: HashMap<DatapathId, oneshot::Sender<()>>,
    /// Switches whose relay has ended, and the generation of its leader: they are relayed again at
    /// once, as a new leader does not wait for them for long. A leader that has died still lists
    /// them for a while, so only the list of a later one counts.
    ended: BTreeMap<DatapathId, u64>,
    /// The last problem that was logged.
    told: Option<String>,
}

impl Relays {
    pub(crate) fn new(
        (config, way): (&EtcdConfig, Way),
        (me, dialler): (&Leader, Dialler),
        (term, standing): (Term, watch::Receiver<Standing>),
        to_hub: mpsc::Sender<Input>,
    ) -> Self {
        Self {
            client: Client::new(way, config.ttl / 2),
            keys: Keys::new(&config.prefix),
            ttl: config.ttl,
            me: me.id.clone(),
            term,
            standing,
            dialler,
            to_hub,
            lease: None,
            here: HashMap::new(),
            generation: 0,
            compared: 0,
            missed: HashMap::new(),
            relayed: HashMap::new(),
            ended: BTreeMap::new(),
            told: None,
        }
    }

    /// Runs until it is dropped. Its lease then expires.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(self.ttl / LOOKS).await;
            if let Err(error) = self.look(Instant::now()).await {
                // The election reports that etcd does not answer.
                tracing::debug!("relays: {error}");
            }
        }
    }

    async fn look(&mut self, now: Instant) -> Result<(), EtcdError> {
        self.keep_lease().await?;
        self.forget_ended().await?;
        let ours = self.term.switches();
        self.here.retain(|switch, _| ours.contains(switch));
        ours.iter().for_each(|switch| _ = self.here.entry(*switch).or_insert(now));
        let Some(leader) = self.leader() else {
            self.missed.clear();
            return Ok(());
        };
        if self.generation != leader.generation {
            self.missed.clear();
            self.end_all().await?;
            (self.generation, self.told) = (leader.generation, None);
        }
        for switch in self.due(&leader, now).await? {
            // A leader that does not answer would cost too much time for each.
            if !self.begin(switch, &leader, now).await? {
                break;
            }
        }
        Ok(())
    }

    fn leader(&self) -> Option<Leader> {
        match &*self.standing.borrow() {
            Standing::Follower { leader, .. } => leader.clone(),
            Standing::Alone | Standing::Leader { .. } => None,
        }
    }

    /// Switches that the leader has missed for a while. A new leader could have had those that have
    /// been connected here for as long, so they are due at once. A follower that has far more than
    /// the leader is about to lead instead.
    async fn due(&mut self, leader: &Leader, now: Instant) -> Result<Vec<DatapathId>, EtcdError> {
        let found = self.client.range(&self.keys.listed(), None, 1).await?;
        let listed = found.kvs.first().and_then(|found| serde_json::from_str(&found.value).ok());
        let listed: Option<Listed> = listed;
        let Some(listed) = listed.filter(|listed| listed.generation == leader.generation) else {
            // It has just begun.
            self.missed.clear();
            return Ok(Vec::new());
        };
        let theirs = listed.switches();
        if sees_far_more(self.here.len(), theirs.len()) {
            return Ok(Vec::new());
        }
        let is_missed =
            |switch: &DatapathId| !theirs.contains(switch) && !self.relayed.contains_key(switch);
        let missed = self.here.iter().filter(|(switch, _)| is_missed(switch));
        let missed: HashMap<_, _> = missed.map(|(switch, since)| (*switch, *since)).collect();
        self.missed.retain(|switch, _| missed.contains_key(switch));
        self.ended.retain(|switch, of| !(theirs.contains(switch) && leader.generation > *of));
        let is_new = std::mem::replace(&mut self.compared, leader.generation) != leader.generation;
        for (switch, since) in missed {
            self.missed.entry(switch).or_insert(if is_new { since } else { now });
        }
        let is_due = |(switch, since): &(&DatapathId, &Instant)| {
            self.ended.contains_key(switch) || now.saturating_duration_since(**since) >= PATIENCE
        };
        let due = self.missed.iter().filter(is_due).map(|(switch, _)| *switch);
        Ok(due.take(AT_ONCE).collect())
    }

    /// Claims a switch, connects to the leader, and orders the relay. Returns whether the leader
    /// can be reached, as far as known.
    async fn begin(
        &mut self,
        switch: DatapathId,
        leader: &Leader,
        now: Instant,
    ) -> Result<bool, EtcdError> {
        // On failure it is tried again after the same time.
        self.missed.insert(switch, now);
        let Some(address) = &leader.openflow else {
            self.tell(switch, NO_ADDRESS);
            return Ok(false);
        };
        if !self.claim(switch).await? {
            return Ok(true);
        }
        match self.dialler.dial(address).await {
            Ok(stream) => {
                let (end, ended) = oneshot::channel();
                let relay = Relay { leader: stream, by: self.me.clone(), end: ended };
                self.relayed.insert(switch, end);
                self.missed.remove(&switch);
                self.ended.remove(&switch);
                // Without a hub the controller stops.
                let _ = self.to_hub.send(Input::Relay { switch, relay }).await;
                Ok(true)
            }
            Err(error) => {
                // A leader that has died is still known as such for a while.
                if !self.ended.contains_key(&switch) {
                    self.tell(switch, &format!("cannot be relayed to it: {error}"));
                }
                self.give_back(switch).await?;
                Ok(false)
            }
        }
    }

    /// Claims a switch, unless another follower has.
    async fn claim(&mut self, switch: DatapathId) -> Result<bool, EtcdError> {
        let lease = match self.lease {
            Some(lease) => lease,
            None => self.client.grant(self.ttl).await?,
        };
        self.lease = Some(lease);
        let key = self.keys.relay(&key_of(switch));
        let free = Compare::Created { key: key.clone(), revision: 0 };
        let (look, value) = (Op::Get { key: key.clone() }, self.me.clone());
        let put = Op::Put { key, value, lease: Some(lease) };
        let answer = self.client.txn(&[free], &[put], &[look]).await?;
        // An earlier request that timed out may have been executed.
        let is_ours = answer.found(0).is_some_and(|found| found.lease == lease);
        Ok(answer.succeeded || is_ours)
    }

    async fn give_back(&mut self, switch: DatapathId) -> Result<(), EtcdError> {
        let delete = Op::Delete { key: self.keys.relay(&key_of(switch)) };
        self.client.txn(&[], &[delete], &[]).await.map(drop)
    }

    /// Renews the lease, if there is one. If it has expired, the relays are claimed anew.
    async fn keep_lease(&mut self) -> Result<(), EtcdError> {
        if let Some(lease) = self.lease {
            match self.client.keep_alive(lease).await {
                Ok(true) => return Ok(()),
                Ok(false) | Err(EtcdError::NotFound(_)) => self.lease = None,
                Err(error) => return Err(error),
            }
        }
        let switches: Vec<_> = self.relayed.keys().copied().collect();
        for switch in switches {
            if !self.claim(switch).await? {
                // Dropping it ends the relay.
                self.relayed.remove(&switch);
            }
        }
        Ok(())
    }

    /// Gives back the claims of relays that have ended.
    async fn forget_ended(&mut self) -> Result<(), EtcdError> {
        let ended = self.relayed.iter().filter(|(_, end)| end.is_closed());
        let ended: Vec<_> = ended.map(|(switch, _)| *switch).collect();
        for switch in ended {
            self.give_back(switch).await?;
            self.relayed.remove(&switch);
            self.ended.insert(switch, self.generation);
        }
        Ok(())
    }

    /// Ends the relays to a former leader. The hub does so as well, but one may have begun since.
    async fn end_all(&mut self) -> Result<(), EtcdError> {
        let former: Vec<_> = std::mem::take(&mut self.relayed).into_keys().collect();
        self.ended.extend(former.iter().map(|switch| (*switch, self.generation)));
        for switch in former {
            self.give_back(switch).await?;
        }
        Ok(())
    }

    /// Logs a problem once per leader.
    fn tell(&mut self, switch: DatapathId, problem: &str) {
        if self.told.as_deref() != Some(problem) {
            tracing::warn!(
                "switch {:#x} is connected here and not to the leader, and {problem}",
                switch.0
            );
            self.told = Some(problem.to_owned());
        }
    }
}

/// Time for a switch to connect to the leader itself: those that lost all controllers, or have just
/// started, try each again every two seconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// Looks per lifetime of a lease.
const LOOKS: u32 = 4;
/// Relays begun at once, so that the lease is renewed in between.
const AT_ONCE: usize = 64;
const NO_ADDRESS: &str = "the leader has no address for it; set --relay-address (relay-address in \
                          a file) of the leader";

#[cfg(test)]
mod tests {
    use tapswitch_helpers::Log;
    use tokio::net::TcpListener;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::etcd::fake::FakeEtcd;

    const GENERATION: u64 = 7;
    const CLAIM: &str = "/t/relays/0000000000000002";

    /// A follower that has switches 1 to 3, and a leader that has 1 and 3.
    struct Lab {
        etcd: FakeEtcd,
        relays: Relays,
        to_hub: mpsc::Receiver<Input>,
        standing: watch::Sender<Standing>,
        start: Instant,
    }

    impl Lab {
        async fn new(openflow: Option<String>) -> Self {
            let etcd = FakeEtcd::start().await;
            let config: EtcdConfig = format!("etcd://{}/t", etcd.endpoint).parse().unwrap();
            let place = (&config, Way::open(&config).unwrap());
            let named = |id: &str| Leader {
                id: id.to_owned(),
                rest: None,
                openflow: openflow.clone(),
                generation: GENERATION,
            };
            let leader = Some(named("leader"));
            let (standing, following) =
                watch::channel(Standing::Follower { leader, remembers: false });
            let term = Term::new(Duration::from_secs(60));
            (1..=3).for_each(|id| term.note_switch(DatapathId(id), true));
            let (hub, to_hub) = mpsc::channel(8);
            let (me, dialler) = (named("me"), Dialler::new(None).unwrap());
            let relays = Relays::new(place, (&me, dialler), (term, following), hub);
            let lab = Self { etcd, relays, to_hub, standing, start: Instant::now() };
            lab.list(&[1, 3]);
            lab
        }

        fn list(&self, ids: &[u64]) {
            self.list_in(GENERATION, ids);
        }

        fn list_in(&self, generation: u64, ids: &[u64]) {
            let switches = ids.iter().copied().map(DatapathId).collect();
            let list = serde_json::to_string(&Listed::new(generation, &switches)).unwrap();
            self.etcd.put("/t/connected", &list);
        }

        /// Another leader with this address, which has the same switches; returns the address of
        /// the former one.
        fn lead(&self, generation: u64, address: Option<String>) -> Option<String> {
            let before = self.relays.leader().unwrap();
            let leader = Leader { openflow: address, generation, ..before.clone() };
            let following = Standing::Follower { leader: Some(leader), remembers: false };
            self.standing.send_replace(following);
            self.list_in(generation, &[1, 3]);
            before.openflow
        }

        /// Looks at this time; returns the switch that is ordered to be relayed, if any.
        async fn look(&mut self, second: u64) -> Option<(u64, Relay)> {
            let now = self.start + Duration::from_secs(second);
            self.relays.look(now).await.unwrap();
            match self.to_hub.try_recv().ok()? {
                Input::Relay { switch, relay } => Some((switch.0, relay)),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn leader() -> (TcpListener, Option<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        (listener, Some(address))
    }

    #[tokio::test]
    async fn a_switch_that_the_leader_has_missed_for_a_while_is_claimed_and_relayed() {
        let (_leader, address) = leader().await;
        let mut lab = Lab::new(address).await;
        assert!(lab.look(0).await.is_none() && lab.look(2).await.is_none());
        let (switch, relay) = lab.look(3).await.unwrap();
        assert_eq!((switch, lab.etcd.value(CLAIM).as_deref()), (2, Some("me")));
        assert!(lab.look(9).await.is_none(), "once");
        drop(relay);
        lab.list(&[1, 2, 3]);
        assert!(lab.look(10).await.is_none());
        assert_eq!(lab.etcd.value(CLAIM), None, "it has ended, and others may have it");
        assert!(lab.look(20).await.is_none() && lab.look(30).await.is_none());
        lab.standing.send_replace(Standing::Leader { generation: 8 });
        assert!(lab.look(40).await.is_none(), "who leads relays nothing");
    }

    /// The switch connects to this controller anew, and a new leader does not wait for long.
    #[tokio::test]
    async fn a_switch_whose_relay_has_ended_is_relayed_again_at_once() {
        let (_leader, address) = leader().await;
        let mut lab = Lab::new(address).await;
        assert!(lab.look(0).await.is_none());
        let relay = lab.look(3).await.unwrap();
        lab.list(&[1, 2, 3]);
        assert!(lab.look(4).await.is_none());
        drop(relay);
        assert!(lab.look(5).await.is_none(), "the leader has died, its list is still there");
        lab.relays.term.note_switch(DatapathId(2), false);
        assert!(lab.look(6).await.is_none(), "it is not there");
        lab.relays.term.note_switch(DatapathId(2), true);
        let address = lab.lead(8, Some("tcp:127.0.0.1:1".to_owned()));
        assert!(lab.look(7).await.is_none(), "that leader has died, too");
        lab.lead(9, address);
        assert!(lab.look(8).await.is_some());
    }

    /// A new leader has had time for it, unless the switch itself is new.
    #[tokio::test]
    async fn a_switch_that_a_new_leader_does_not_have_is_relayed_at_once() {
        for (second, is_relayed) in [(1, false), (3, true)] {
            let (_leader, address) = leader().await;
            let mut lab = Lab::new(address.clone()).await;
            lab.list(&[1, 2, 3]);
            assert!(lab.look(0).await.is_none());
            lab.lead(8, address);
            let at_once = lab.look(second).await;
            assert_eq!(at_once.is_some(), is_relayed);
            let later = lab.look(second + 2).await;
            assert_ne!(later.is_some(), is_relayed, "3 s after it came, if not at once");
        }
    }

    #[tokio::test]
    async fn what_a_later_leader_has_had_is_as_any_other() {
        let (_leader, address) = leader().await;
        let mut lab = Lab::new(address.clone()).await;
        assert!(lab.look(0).await.is_none());
        drop(lab.look(3).await.unwrap());
        lab.lead(8, address);
        lab.list_in(8, &[1, 2, 3]);
        assert!(lab.look(4).await.is_none());
        lab.list_in(8, &[1, 3]);
        assert!(lab.look(5).await.is_none() && lab.look(8).await.is_some());
    }

    #[tokio::test]
    async fn relays_to_a_former_leader_end() {
        let (_leader, address) = leader().await;
        let mut lab = Lab::new(address.clone()).await;
        assert!(lab.look(0).await.is_none());
        let (_, mut former) = lab.look(3).await.unwrap();
        lab.lead(8, address);
        let (_, mut next) = lab.look(4).await.unwrap();
        assert!(former.end.try_recv().is_err_and(|error| error == TryRecvError::Closed));
        assert!(next.end.try_recv().is_err_and(|error| error == TryRecvError::Empty));
        assert_eq!(lab.etcd.value(CLAIM).as_deref(), Some("me"));
    }

    #[tokio::test]
    async fn what_another_follower_has_claimed_is_left_to_it() {
        let (_leader, address) = leader().await;
        let mut lab = Lab::new(address).await;
        lab.etcd.put(CLAIM, "other");
        assert!(lab.look(0).await.is_none() && lab.look(3).await.is_none());
        assert_eq!(lab.etcd.value(CLAIM).as_deref(), Some("other"));
        lab.etcd.delete(CLAIM);
        assert!(lab.look(5).await.is_none() && lab.look(6).await.is_some());
    }

    #[tokio::test]
    async fn who_has_far_more_switches_leads_instead() {
        let (_leader, address) = leader().await;
        let mut lab = Lab::new(address).await;
        lab.list(&[1]);
        assert!(lab.look(0).await.is_none() && lab.look(9).await.is_none());
        assert!(lab.etcd.keys("/t/relays").is_empty());
    }

    #[tokio::test]
    async fn a_leader_that_cannot_be_reached_is_told_once_and_nothing_stays_claimed() {
        for (address, told) in [
            (None, "set --relay-address"),
            (Some("tcp:127.0.0.1:1".to_owned()), "cannot be relayed to it: tcp:127.0.0.1:1: "),
        ] {
            let (log, _logging) = Log::start();
            let mut lab = Lab::new(address).await;
            for second in [0, 3, 4, 7, 10] {
                assert!(lab.look(second).await.is_none());
            }
            let [line] = &log.lines_with("switch 0x2")[..] else { panic!("{:?}", log.take()) };
            assert!(line.contains(told), "{line}");
            assert!(lab.etcd.keys("/t/relays").is_empty());
        }
    }
}
