//! Persistent state: policies, identity, audit log.
//!
//! The store runs on a thread of its own, as writes wait for the disk. It takes all queued changes
//! at once, so that many changes take one write. A change is answered when it is on disk or has
//! failed. After a failure the next change reopens the store, so that a disk with free space again
//! is noticed.
//!
//! A store shared by several controllers is in etcd (`shared`): it has the same jobs, a task
//! instead of a thread, and a guard so that only the leader changes policies.

mod disk;
mod met;
mod shared;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use tapswitch_control::{Direction, TapPolicy};
use tapswitch_openflow::DatapathId;
use tokio::sync::{mpsc, oneshot, watch};

use crate::audit::{Draft, Head, json_len};
use crate::caller::CONFIGURATION;
use crate::clock::now_text;
use crate::cluster::{Standing, TermId};
use crate::etcd::{EtcdConfig, Misfit, Way};
use crate::journal::{Journal, Kind};
use disk::Disk;
pub(crate) use met::{MAX_MET, Met, expected_of_terms, key_of, switch_of};
use shared::SharedClerk;

/// Location of policies and audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreConfig {
    /// In memory: lost when the controller ends; the audit log is limited to the last 10,000
    /// records.
    #[default]
    None,
    /// In this file, which is created if missing; its directory must exist.
    File(PathBuf),
    /// In etcd, shared by several controllers, one of which leads.
    Etcd(EtcdConfig),
}

/// A policy as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptPolicy {
    /// With an explicit direction.
    #[serde(deserialize_with = "policy_kept")]
    pub(crate) policy: TapPolicy,
    #[serde(flatten)]
    pub(crate) origin: Origin,
}

impl KeptPolicy {
    /// Key in the store: the name. An entry for a policy of the configuration file says that it was
    /// in force, and where its monitors were; it has a separate key, as an added policy of that
    /// name may be stored, which is used again when the file no longer has it. Policy names never
    /// begin with a blank.
    pub(crate) fn key(&self) -> Cow<'_, str> {
        let name = &self.policy.name;
        match self.is_configured() {
            true => configured_key(name).into(),
            false => name.into(),
        }
    }

    /// Whether it is of the configuration file.
    pub(crate) fn is_configured(&self) -> bool {
        self.origin.owner == CONFIGURATION
    }
}

/// Key in the store of a policy of the configuration file.
pub(crate) fn configured_key(name: &str) -> String {
    format!(" {name}")
}

/// Origin of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// When it was added or the controller started with it; RFC 3339.
    pub created_at: String,
    /// Who added it; `configuration` for a policy of the configuration file.
    pub owner: String,
    /// When it was last changed, if ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<String>,
    /// Who changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
}

impl Origin {
    /// Origin of a policy added now.
    pub(crate) fn now(owner: impl Into<String>) -> Self {
        let (created_at, owner) = (now_text(), owner.into());
        Self { created_at, owner, changed_at: None, changed_by: None }
    }

    /// The origin with a change now.
    pub(crate) fn changed_by(self, who: &str) -> Self {
        let (changed_at, changed_by) = (Some(now_text()), Some(who.to_owned()));
        Self { changed_at, changed_by, ..self }
    }
}

/// A policy stored when one direction was the default keeps it: both directions would copy more
/// than was requested.
fn policy_kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TapPolicy, D::Error> {
    let mut policy = TapPolicy::deserialize(deserializer)?;
    policy.direction.get_or_insert(Direction::Forward);
    Ok(policy)
}

/// Identity of the controller, independent of its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// 16 random bytes in hexadecimal.
    pub id: String,
    /// Key that signs its LLDP frames.
    pub lldp_key: [u8; 32],
}

/// Content of a store when it is opened.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) identity: Identity,
    pub(crate) kept: Kept,
    pub(crate) head: Head,
}

/// The stored policies.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order in which they were added.
    pub(crate) policies: Vec<KeptPolicy>,
    /// Names of stored policies that cannot be decoded, and why.
    pub(crate) unreadable: Vec<(String, String)>,
    /// Switches that connected recently.
    pub(crate) switches: BTreeSet<DatapathId>,
}

/// A change. Those submitted together are atomic.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Box<KeptPolicy>),
    Delete(String),
    Record(Draft),
    /// A switch connected.
    Meet(DatapathId),
}

impl Change {
    /// Approximate number of bytes written.
    fn size(&self) -> usize {
        match self {
            Self::Put(kept) => json_len(kept),
            Self::Delete(name) => name.len(),
            Self::Record(draft) => draft.size(),
            Self::Meet(_) => size_of::<DatapathId>(),
        }
    }
}

/// Selects audit records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// After this number, oldest first.
    After(u64),
    /// Before this number, newest first.
    Before(u64),
}

/// A running store. Cheap to clone; it is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    jobs: mpsc::Sender<Job>,
    /// Whether this controller leads, if the store is shared.
    standing: Option<watch::Receiver<Standing>>,
}

#[derive(Debug)]
enum Job {
    Commit(Waiting),
    Records {
        wanted: Wanted,
        max: usize,
        reply: oneshot::Sender<Result<Records, StoreError>>,
    },
    /// Check that the file is in place.
    Look,
}

/// Audit records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    /// Lines of JSON.
    pub(crate) lines: Vec<String>,
    /// Total number of records.
    pub(crate) total: u64,
}

impl Store {
    /// Opens a shared store. The leader reads its policies.
    pub(crate) async fn share(
        place: (&EtcdConfig, Way),
        standing: watch::Receiver<Standing>,
        journal: Arc<Journal>,
    ) -> Result<(Self, Identity), StoreError> {
        let (clerk, identity) = SharedClerk::open(place, standing.clone(), journal).await?;
        let (jobs, waiting) = mpsc::channel(MAX_JOBS);
        // It ends when all senders are gone.
        tokio::spawn(clerk.run(waiting));
        Ok((Self { jobs, standing: Some(standing) }, identity))
    }

    /// Opens or creates a local store.
    pub(crate) fn open(
        config: &StoreConfig,
        journal: Arc<Journal>,
    ) -> Result<(Self, Contents), StoreError> {
        let (disk, contents) = Disk::open(config)?;
        let (jobs, waiting) = mpsc::channel(MAX_JOBS);
        let clerk = Clerk { disk, head: contents.head.clone(), journal };
        let spawned = thread::Builder::new().name("store".to_owned()).spawn(|| clerk.run(waiting));
        spawned.map_err(|error| StoreError::new("its thread cannot be started", &error))?;
        Ok((Self { jobs, standing: None }, contents))
    }

    /// A store that rejects all writes.
    #[cfg(test)]
    pub(crate) fn closed() -> Self {
        Self { jobs: mpsc::channel(1).0, standing: None }
    }

    /// The current term.
    pub(crate) fn term(&self) -> TermId {
        self.standing.as_ref().map_or(TermId::ALONE, |standing| standing.borrow().term())
    }

    /// Commits these changes atomically; rejects changes of policies from an earlier term. They are
    /// on disk when this returns.
    pub(crate) async fn commit(
        &self,
        changes: Vec<Change>,
        term: TermId,
    ) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Job::Commit(Waiting { changes, term, reply })).await?;
        answer.await.map_err(|_| StoreError::closed())?
    }

    /// At most `max` audit records.
    pub(crate) async fn records(&self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Job::Records { wanted, max, reply }).await?;
        answer.await.map_err(|_| StoreError::closed())?
    }

    /// Checks that the file is in place; no effect without a file.
    pub(crate) async fn look(&self) {
        // A stopped store has reported why.
        let _ = self.ask(Job::Look).await;
    }

    async fn ask(&self, job: Job) -> Result<(), StoreError> {
        self.jobs.send(job).await.map_err(|_| StoreError::closed())
    }
}

/// State of the thread.
struct Clerk {
    disk: Disk,
    head: Head,
    journal: Arc<Journal>,
}

/// Queued changes, and the caller that waits.
#[derive(Debug)]
struct Waiting {
    changes: Vec<Change>,
    /// Term in which they were decided.
    term: TermId,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Clerk {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut next = jobs.blocking_recv();
        while let Some(job) = next.take() {
            match job {
                Job::Records { wanted, max, reply } => {
                    let _ = reply.send(self.disk.records(wanted, max));
                }
                Job::Commit(first) => {
                    let mut batch = vec![first];
                    next = collect(&mut batch, &mut jobs, MAX_BATCH);
                    self.commit(batch);
                }
                Job::Look => self.disk.look(),
            }
            next = next.or_else(|| jobs.blocking_recv());
        }
    }

    fn commit(&mut self, batch: Vec<Waiting>) {
        let changes = batch.iter().flat_map(|waiting| &waiting.changes);
        let result = self.disk.commit(changes, &self.head);
        let result = result.map(|(head, lines)| {
            self.head = head;
            lines.iter().for_each(|line| tell(&self.journal, line));
        });
        if let Err(error) = &result {
            tracing::error!("{error}");
        }
        for waiting in batch {
            // The caller may be gone.
            let _ = waiting.reply.send(result.clone());
        }
    }
}

/// Publishes a new record.
fn tell(journal: &Journal, line: &str) {
    let record: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    journal.publish(Kind::Audit, json!({ "record": record }));
}

/// Collects queued changes, at most `max_count` including the first; returns the job after them,
/// which is another kind, or exceeds the limit.
fn collect(
    batch: &mut Vec<Waiting>,
    jobs: &mut mpsc::Receiver<Job>,
    max_count: usize,
) -> Option<Job> {
    let size = |changes: &[Change]| changes.iter().map(Change::size).sum::<usize>();
    let mut len: usize = batch.iter().map(|waiting| size(&waiting.changes)).sum();
    let mut count: usize = batch.iter().map(|waiting| waiting.changes.len()).sum();
    while count < max_count {
        let job = jobs.try_recv().ok()?;
        let Job::Commit(waiting) = job else { return Some(job) };
        len += size(&waiting.changes);
        count += waiting.changes.len();
        if len > MAX_BATCH_LEN || count > max_count {
            return Some(Job::Commit(waiting));
        }
        batch.push(waiting);
    }
    None
}

/// Why the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store{}: {what}: {cause}; {remedy}", named(place.as_ref()))]
pub struct StoreError {
    place: Option<String>,
    what: &'static str,
    cause: String,
    remedy: &'static str,
}

impl StoreError {
    pub(crate) fn new(what: &'static str, cause: &dyn std::fmt::Display) -> Self {
        Self { place: None, what, cause: cause.to_string(), remedy: MAKE_ROOM }
    }

    fn at(self, path: Option<&PathBuf>) -> Self {
        Self { place: path.map(|path| path.display().to_string()), ..self }
    }

    pub(crate) fn at_place(self, place: &str) -> Self {
        Self { place: Some(place.to_owned()), ..self }
    }

    pub(crate) fn with_remedy(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }

    pub(crate) fn closed() -> Self {
        Self::new("it is closed", &"the controller stops").with_remedy("start it again")
    }
}

impl From<Misfit> for StoreError {
    fn from(Misfit { cause, remedy, place }: Misfit) -> Self {
        let error = Self::new("the configuration does not fit", &cause);
        error.with_remedy(remedy).at_place(&place)
    }
}

fn named(place: Option<&String>) -> String {
    place.map_or_else(String::new, |place| format!(" {place}"))
}

/// Maximum queued jobs; beyond it callers wait.
const MAX_JOBS: usize = 1024;
/// Maximum changes written at once.
const MAX_BATCH: usize = 512;
/// Maximum changes requested together, in addition to a policy and its record: etcd takes 128 keys
/// in a transaction by default.
pub(crate) const MAX_TOGETHER: usize = 64;
/// Maximum bytes written at once: etcd takes transactions of up to 1.5 MiB, and a transaction fails
/// as a whole.
const MAX_BATCH_LEN: usize = 512 << 10;
const MAKE_ROOM: &str = "policies cannot be changed until it can be written; make room on \
     its disk, or choose another file with --store; active policies stay in effect";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Caller;
    use crate::audit::{Verifier, What};

    fn kept(name: &str, created_at: &str) -> KeptPolicy {
        let policy = TapPolicy::new(name, "3".parse().unwrap()).with_defaults_said();
        let origin = Origin { created_at: created_at.to_owned(), ..Origin::now("ann") };
        KeptPolicy { policy, origin }
    }

    fn put(kept: &KeptPolicy) -> Change {
        Change::Put(Box::new(kept.clone()))
    }

    #[test]
    fn what_cannot_be_opened_is_told_with_what_helps() {
        let directory = tempfile::tempdir().unwrap();
        let error = |path: PathBuf| {
            let opened = Store::open(&StoreConfig::File(path), Arc::new(Journal::new(1)));
            opened.map(|_| ()).unwrap_err().to_string()
        };
        let missing = error(directory.path().join("nowhere").join("store"));
        assert!(missing.contains("create the directory"), "{missing}");
        let no_file = error(directory.path().to_owned());
        assert!(no_file.contains("name a file in it"), "{no_file}");
        let path = directory.path().join("text");
        std::fs::write(&path, "this is no store\n".repeat(1000)).unwrap();
        let damaged = error(path);
        assert!(damaged.contains("no store, or damaged"), "{damaged}");
    }

    fn open(config: &StoreConfig) -> (Store, Contents) {
        // The thread of a dropped store may not have closed its file yet.
        for _ in 0..1000 {
            match Store::open(config, Arc::new(Journal::new(16))) {
                Err(error) if error.remedy == disk::IN_USE => {
                    thread::sleep(std::time::Duration::from_millis(5));
                }
                opened => return opened.unwrap(),
            }
        }
        panic!("the store stays in use");
    }

    #[test]
    fn a_policy_that_was_kept_without_a_direction_has_one() {
        let mut kept = kept("old", "2026-01-01T00:00:00Z");
        kept.policy.direction = None;
        let text = serde_json::to_string(&kept).unwrap();
        assert!(!text.contains("direction"), "{text}");
        assert!(text.ends_with(r#""created_at":"2026-01-01T00:00:00Z","owner":"ann"}"#), "{text}");
        let old: KeptPolicy = serde_json::from_str(&text).unwrap();
        assert_eq!(old.policy.direction, Some(Direction::Forward));
    }

    #[tokio::test]
    async fn what_is_written_at_once_is_bounded_by_its_length() {
        let (sender, mut jobs) = mpsc::channel(100);
        let long = TapPolicy::new("n".repeat(30_000), "3".parse().unwrap());
        let draft = Draft::new(&Caller::unix("ann"), What::PolicyAdd, "accepted").about(&long);
        for _ in 0..60 {
            let (changes, reply) = (vec![Change::Record(draft.clone())], oneshot::channel().0);
            let term = TermId::ALONE;
            sender.try_send(Job::Commit(Waiting { changes, term, reply })).unwrap();
        }
        drop(sender);
        let (mut sizes, mut next) = (vec![], jobs.recv().await);
        while let Some(Job::Commit(first)) = next.take() {
            let mut batch = vec![first];
            next = collect(&mut batch, &mut jobs, MAX_BATCH);
            sizes.push(batch.len());
            next = if next.is_none() { jobs.recv().await } else { next };
        }
        assert_eq!(sizes, [17, 17, 17, 9], "all of them, in turn");
    }

    #[tokio::test]
    async fn what_was_written_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::File(directory.path().join("c.redb"));
        let (store, contents) = open(&config);
        assert!(contents.kept.policies.is_empty());
        let b = kept("b", "2026-01-01T00:00:00.000Z");
        let a = kept("a", "2026-01-02T00:00:00.000Z");
        store.commit(vec![put(&a), put(&b)], TermId::ALONE).await.unwrap();
        store.commit(vec![put(&kept("c", ""))], TermId::ALONE).await.unwrap();
        store.commit(vec![Change::Delete("c".to_owned())], TermId::ALONE).await.unwrap();
        drop(store);
        let again = open(&config).1;
        assert_eq!(again.kept.policies, [b, a], "in the order in which they were added");
        assert_eq!(again.identity, contents.identity);
    }

    #[tokio::test]
    async fn a_store_that_was_deleted_is_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.redb");
        let config = StoreConfig::File(path.clone());
        let (store, contents) = open(&config);
        let record = Change::Record(Draft::new(&Caller::unix("ann"), What::PolicyAdd, "accepted"));
        let (a, b) = (kept("a", "1"), kept("b", "2"));
        store.commit(vec![put(&a), record.clone()], TermId::ALONE).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        store.look().await;
        // Jobs are answered in order.
        store.records(Wanted::After(0), 1).await.unwrap();
        assert!(path.exists(), "also while nobody changes anything");
        std::fs::remove_file(&path).unwrap();
        store.commit(vec![put(&b), record], TermId::ALONE).await.unwrap();
        drop(store);
        let again = open(&config).1;
        assert_eq!(again.kept.policies, [a, b]);
        assert_eq!((again.identity, again.head.seq), (contents.identity, 2));
    }

    #[tokio::test]
    async fn a_store_that_was_replaced_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let (path, aside) = (directory.path().join("c.redb"), directory.path().join("aside"));
        let config = StoreConfig::File(path.clone());
        let (store, _) = open(&config);
        let (a, b) = (kept("a", "1"), kept("b", "2"));
        store.commit(vec![put(&a)], TermId::ALONE).await.unwrap();
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&path, "").unwrap();
        let refused = store.commit(vec![put(&b)], TermId::ALONE).await.unwrap_err().to_string();
        assert!(refused.contains("another file is there now; "), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"", "it is left alone");
        // An emptied one is not used either, as by a copy over it: the new one would have one
        // policy.
        std::fs::rename(&aside, &path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        let refused = store.commit(vec![put(&b)], TermId::ALONE).await.unwrap_err().to_string();
        assert!(refused.contains("emptied"), "{refused}");
        std::fs::write(&path, whole).unwrap();
        store.commit(vec![put(&b)], TermId::ALONE).await.unwrap();
        drop(store);
        assert_eq!(open(&config).1.kept.policies, [a, b]);
    }

    /// Another store is copied over it, into the same file.
    #[tokio::test]
    async fn a_store_in_whose_file_something_else_was_written_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("c.redb"), directory.path().join("other"));
        let config = StoreConfig::File(path.clone());
        let (store, contents) = open(&config);
        let record = Change::Record(Draft::new(&Caller::unix("ann"), What::PolicyAdd, "accepted"));
        let (a, b) = (kept("a", "1"), kept("b", "2"));
        let changes = |kept: &KeptPolicy| vec![put(kept), record.clone()];
        store.commit(changes(&a), TermId::ALONE).await.unwrap();
        let whole = std::fs::read(&path).unwrap();
        drop(open(&StoreConfig::File(other.clone())));
        let mut damaged = whole.clone();
        damaged[4096..].fill(7);
        for foreign in [std::fs::read(&other).unwrap(), damaged, b"anything".to_vec()] {
            std::fs::write(&path, &foreign).unwrap();
            store.look().await;
            let refused = store.commit(changes(&b), TermId::ALONE).await.unwrap_err().to_string();
            assert!(refused.contains("else was written into the file; "), "{refused}");
            assert!(store.records(Wanted::After(0), 1).await.is_err(), "nor is it read");
            assert_eq!(std::fs::read(&path).unwrap(), foreign, "it is left alone");
        }
        // One that was restored, or merely touched, is the same.
        std::fs::write(&path, whole).unwrap();
        store.look().await;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        store.commit(changes(&b), TermId::ALONE).await.unwrap();
        drop(store);
        let again = open(&config).1;
        assert_eq!(again.kept.policies, [a, b]);
        assert_eq!((again.identity, again.head.seq), (contents.identity, 2));
    }

    #[tokio::test]
    async fn the_audit_log_goes_on_where_it_ended() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::File(directory.path().join("c.redb"));
        for _ in 0..3 {
            let (store, _) = open(&config);
            let record =
                || Change::Record(Draft::new(&Caller::unix("ann"), What::PolicyAdd, "accepted"));
            store.commit(vec![record(), record()], TermId::ALONE).await.unwrap();
        }
        let (store, contents) = open(&config);
        assert_eq!(contents.head.seq, 6);
        let mut verifier = Verifier::default();
        let records = store.records(Wanted::After(0), 100).await.unwrap();
        records.lines.iter().for_each(|line| verifier.check(line).unwrap());
        assert_eq!((verifier.head().unwrap().0, records.total), (6, 6));
        let newest = store.records(Wanted::Before(6), 2).await.unwrap().lines;
        assert_eq!(
            newest.iter().map(|line| Head::of(line).unwrap().seq).collect::<Vec<_>>(),
            [5, 4]
        );
    }

    #[tokio::test]
    async fn a_log_in_memory_keeps_the_last_records() {
        let (store, _) = open(&StoreConfig::None);
        let record = Change::Record(Draft::new(&Caller::unix("ann"), What::PolicyAdd, "accepted"));
        store.commit(vec![record; disk::MAX_IN_MEMORY + 10], TermId::ALONE).await.unwrap();
        let records = store.records(Wanted::After(0), 1).await.unwrap();
        assert_eq!(Head::of(&records.lines[0]).unwrap().seq, 11);
        assert_eq!(records.total, disk::MAX_IN_MEMORY as u64);
    }

    #[test]
    fn one_file_is_for_one_controller() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::File(directory.path().join("c.redb"));
        let _first = open(&config);
        let error = Store::open(&config, Arc::new(Journal::new(1))).unwrap_err().to_string();
        assert!(error.contains("another controller"), "{error}");
    }

    #[test]
    fn what_is_no_store_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        std::fs::write(&path, "not a database\n").unwrap();
        let config = StoreConfig::File(path.clone());
        let error = Store::open(&config, Arc::new(Journal::new(1))).unwrap_err().to_string();
        assert!(error.contains("notes.txt"), "{error}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "not a database\n");
        let nowhere = StoreConfig::File(directory.path().join("no/c.redb"));
        let error = Store::open(&nowhere, Arc::new(Journal::new(1))).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}
