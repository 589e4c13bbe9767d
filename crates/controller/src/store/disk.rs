//! The store in one file, by `redb`: an embedded database whose transactions are atomic, also if
//! the process is killed. <https://docs.rs/redb>

mod guarded;
mod quietly;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Builder, CommitError, Database, DatabaseError, Key, ReadTransaction, ReadableDatabase,
    ReadableTable, ReadableTableMetadata, StorageBackend, StorageError, Table, TableDefinition,
    TableError, WriteTransaction,
};
use tapswitch_openflow::DatapathId;

use super::met::{self, expected};
use super::{
    Change, Contents, Identity, Kept, KeptPolicy, Records, StoreConfig, StoreError, Wanted,
};
use crate::audit::{Head, hex};
use crate::clock::unix_time;
use guarded::{Guarded, Seal};

/// The tables, in a file or in memory.
#[derive(Debug)]
pub(super) struct Disk {
    path: Option<PathBuf>,
    /// `None` after a failure, until it is reopened.
    database: Option<Database>,
    /// The file.
    file: Option<OurFile>,
    /// State of the file after our last write. `None`: unknown.
    stamp: Option<Stamp>,
    /// State of the file when foreign content was found in it.
    foreign: Option<Stamp>,
    /// Identifies the content: owner, head of the log, and a hash of the policies.
    identity: Identity,
    head: Head,
    policies: u64,
    /// Whether it was missing at its path at the last check.
    is_lost: bool,
}

/// Device and inode.
type FileId = (u64, u64);

/// Modification time and length of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    written: (i64, i64),
    len: u64,
}

/// An open database file.
#[derive(Debug)]
struct OurFile {
    id: FileId,
    seal: Seal,
}

type Opened = (Database, Option<OurFile>);

/// What is at the path of an open store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Our file, in this state.
    Ours(Stamp),
    /// The file was deleted or moved.
    Nothing,
    /// Our file, truncated to nothing. A store in use is never empty.
    Emptied,
    Taken,
}

/// Head of the log after changes, and the new records.
type Written = (Head, Vec<String>);

impl Disk {
    /// Opens or creates the file, and reads its content.
    pub(super) fn open(config: &StoreConfig) -> Result<(Self, Contents), StoreError> {
        let path = match config {
            StoreConfig::File(path) => Some(path.clone()),
            StoreConfig::None | StoreConfig::Etcd(_) => None,
        };
        let failed = |error: Failure| error.at(path.as_ref());
        let (database, file) = open_database(path.as_ref()).map_err(failed)?;
        let contents = guard(|| read_all(&database)).map_err(failed)?;
        let policies = guard(|| hash_policies(&database)).map_err(failed)?;
        let (identity, head) = (contents.identity.clone(), contents.head.clone());
        let (stamp, foreign, is_lost) = (None, None, false);
        let database = Some(database);
        let mut disk =
            Self { path, database, file, stamp, foreign, identity, head, policies, is_lost };
        disk.leave();
        Ok((disk, contents))
    }

    /// Commits the changes atomically. Returns the head of the log and the new records.
    pub(super) fn commit<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
        head: &Head,
    ) -> Result<Written, StoreError> {
        let keeps_all = self.path.is_some();
        self.see_to_the_file()?;
        let (written, changed) =
            self.with_database(|database| write_all(database, changes, head.clone(), keeps_all))?;
        self.head = written.0.clone();
        self.policies ^= changed;
        self.leave();
        Ok(written)
    }

    /// At most `max` records.
    pub(super) fn records(&mut self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        self.with_database(|database| read_records(database, wanted, max))
    }

    /// Checks that the file is in place, and reports if it no longer is.
    pub(super) fn look(&mut self) {
        let found = self.see_to_the_file();
        let was_lost = std::mem::replace(&mut self.is_lost, found.is_err());
        if let Err(error) = found
            && !was_lost
        {
            tracing::error!("{error}");
        }
    }

    /// Writes to a deleted or replaced file would be lost with this process. A deleted file is
    /// written again.
    fn see_to_the_file(&mut self) -> Result<(), StoreError> {
        let file = self.file.as_ref().map(|file| file.id);
        let Some((path, file)) = self.path.clone().zip(file) else { return Ok(()) };
        let failed = |error: Failure| error.at(Some(&path));
        let place = place(&path, file).map_err(failed)?;
        if let Place::Ours(stamp) = place
            && self.is_as_left(stamp, &path).map_err(failed)?
        {
            return Ok(());
        }
        let what = match (place, &self.database) {
            (Place::Nothing, Some(database)) => {
                let (database, file) = write_anew(&path, database).map_err(failed)?;
                tracing::warn!("the store {} was deleted: it is written again", path.display());
                (self.database, self.file) = (Some(database), file);
                self.leave();
                return Ok(());
            }
            (Place::Ours(_), _) => "something else was written into the file",
            (Place::Nothing, None) => "nothing is there now",
            (Place::Emptied, _) => {
                self.give_up();
                "the file was emptied"
            }
            (Place::Taken, _) => "another file is there now",
        };
        let error = StoreError::new("its file was changed by others", &what);
        Err(error.with_remedy(TAKE_BACK).at(Some(&path)))
    }

    /// Records the state of the file; nothing is written until the next change.
    fn leave(&mut self) {
        let file = self.path.as_ref().zip(self.file.as_ref());
        self.stamp = match file.map(|(path, file)| place(path, file.id)) {
            Some(Ok(Place::Ours(stamp))) => Some(stamp),
            _ => None,
        };
    }

    /// Whether nobody else has written to our file since, or its content is the same nevertheless,
    /// as after `touch` or when a copy was restored. If not, nothing may be written to it, not even
    /// by closing the database.
    fn is_as_left(&mut self, now: Stamp, path: &Path) -> Result<bool, Failure> {
        if self.stamp.is_none_or(|left| left == now) {
            return Ok(true);
        }
        if self.foreign == Some(now) {
            return Ok(false);
        }
        self.give_up();
        self.database = None;
        if !self.is_ours(path) {
            self.foreign = Some(now);
            return Ok(false);
        }
        let (database, file) = open_database(Some(&path.to_path_buf()))?;
        (self.database, self.file, self.foreign) = (Some(database), file, None);
        self.leave();
        Ok(true)
    }

    /// Prevents all writes to the file until it is opened again.
    fn give_up(&self) {
        if let Some(file) = &self.file {
            file.seal.set();
        }
    }

    /// Whether the file has our last content. It is read without opening the database, which would
    /// write.
    fn is_ours(&self, path: &Path) -> bool {
        let contents = guard(|| {
            let copy = InMemoryBackend::new();
            let bytes = fs::read(path)?;
            copy.set_len(bytes.len() as u64)?;
            copy.write(0, &bytes)?;
            let copy = builder().create_with_backend(copy)?;
            Ok((read_all(&copy)?, hash_policies(&copy)?))
        });
        contents.is_ok_and(|(it, policies)| {
            (it.identity, it.head, policies)
                == (self.identity.clone(), self.head.clone(), self.policies)
        })
    }

    /// Runs an operation on the database. After a failure it is closed, as its state in memory may
    /// differ from the disk.
    fn with_database<T>(
        &mut self,
        work: impl FnOnce(&Database) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let result = match self.database.take() {
            Some(database) => Ok(database),
            None => {
                // Must not be a replaced or new file.
                self.see_to_the_file()?;
                open_database(self.path.as_ref()).map(|(database, file)| {
                    self.file = file;
                    database
                })
            }
        };
        let result = result.and_then(|database| Ok((guard(|| work(&database))?, database)));
        match result {
            Ok((value, database)) => {
                self.database = Some(database);
                Ok(value)
            }
            Err(error) => {
                // What was written, also by closing it, is unknown.
                self.stamp = None;
                Err(error.at(self.path.as_ref()))
            }
        }
    }
}

fn open_database(path: Option<&PathBuf>) -> Result<Opened, Failure> {
    let Some(path) = path else {
        return Ok((builder().create_with_backend(InMemoryBackend::new())?, None));
    };
    open_file(options().create(true).truncate(false).open(path)?)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // The policies are confidential.
    options.read(true).write(true).mode(0o600);
    options
}

/// Opens a database in this file. A file that was empty is emptied again on failure, as on a full
/// disk: a partial one would be taken for a damaged store.
fn open_file(file: File) -> Result<Opened, Failure> {
    let (found, again) = (file.metadata()?, file.try_clone()?);
    let seal = Seal::default();
    let database = guard(|| {
        let guarded = Guarded::new(FileBackend::new(file)?, seal.clone());
        Ok(builder().create_with_backend(guarded)?)
    });
    if database.is_err() && found.len() == 0 {
        // If that fails, the next open reports damage.
        let _ = again.set_len(0);
    }
    Ok((database?, Some(OurFile { id: file_id(&found), seal })))
}

/// The same in a new file with the content of `old`.
fn write_anew(path: &Path, old: &Database) -> Result<Opened, Failure> {
    let file = options().create_new(true).open(path)?;
    let made = open_file(file).and_then(|(new, id)| {
        copy_all(old, &new)?;
        Ok((new, id))
    });
    made.inspect_err(|_| _ = fs::remove_file(path))
}

fn place(path: &Path, file: FileId) -> Result<Place, Failure> {
    match fs::metadata(path) {
        Ok(found) if file_id(&found) == file && found.len() == 0 => Ok(Place::Emptied),
        Ok(found) if file_id(&found) == file => Ok(Place::Ours(Stamp::of(&found))),
        Ok(_) => Ok(Place::Taken),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Place::Nothing),
        Err(error) => Err(error.into()),
    }
}

impl Stamp {
    fn of(found: &fs::Metadata) -> Self {
        Self { written: (found.mtime(), found.mtime_nsec()), len: found.len() }
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_LEN);
    builder
}

fn file_id(found: &fs::Metadata) -> FileId {
    (found.dev(), found.ino())
}

/// Runs an operation on a database. `redb` relies on the length in its header, and panics if the
/// file is shorter.
fn guard<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let damaged = |()| Failure { cause: DAMAGED.to_owned(), remedy: Some(NO_STORE) };
    quietly::catch(work).map_err(damaged)?
}

fn copy_all(from: &Database, to: &Database) -> Result<(), Failure> {
    let (read, write) = (from.begin_read()?, to.begin_write()?);
    copy_table(&read, &write, META)?;
    copy_table(&read, &write, POLICIES)?;
    copy_table(&read, &write, AUDIT)?;
    Ok(write.commit()?)
}

fn copy_table<K: Key + 'static>(
    read: &ReadTransaction,
    write: &WriteTransaction,
    definition: TableDefinition<'_, K, &'static str>,
) -> Result<(), Failure> {
    let mut table = write.open_table(definition)?;
    for entry in read.open_table(definition)?.iter()? {
        let (key, value) = entry?;
        table.insert(key.value(), value.value())?;
    }
    Ok(())
}

fn read_all(database: &Database) -> Result<Contents, Failure> {
    let write = database.begin_write()?;
    let identity = read_identity(&write)?;
    let (mut policies, mut unreadable) = (Vec::new(), Vec::new());
    for entry in write.open_table(POLICIES)?.iter()? {
        let (name, text) = entry?;
        match serde_json::from_str::<KeptPolicy>(text.value()) {
            Ok(kept) => policies.push(kept),
            Err(error) => unreadable.push((name.value().to_owned(), error.to_string())),
        }
    }
    policies.sort_by(|a, b| a.origin.created_at.cmp(&b.origin.created_at));
    let last = write.open_table(AUDIT)?.last()?.map(|(_, line)| line.value().to_owned());
    let head = match last {
        None => Head::empty(),
        Some(line) => Head::of(&line).ok_or_else(|| io::Error::other(NO_RECORD))?,
    };
    let switches = read_switches(&mut write.open_table(META)?, unix_time().0)?;
    write.commit()?;
    Ok(Contents { identity, kept: Kept { policies, unreadable, switches }, head })
}

/// The switches that connected in the last run of the controller, or in an earlier one within
/// a month. Deletes the others, and begins a new run.
fn read_switches(
    meta: &mut Table<'_, &str, &str>,
    now: u64,
) -> Result<BTreeSet<DatapathId>, Failure> {
    let last_start = meta.get(START)?.and_then(|time| time.value().parse().ok()).unwrap_or(0);
    let mut met = Vec::new();
    for entry in meta.iter()? {
        let (key, time) = entry?;
        let Some(switch) = switch_of(key.value()) else { continue };
        // The time is that of its first connection in a run, and a run may take many months.
        let time = time.value().parse::<u64>().unwrap_or(0);
        met.push((if time > last_start { now } else { time }, switch));
    }
    let met = expected(met, now);
    meta.retain(|key, _| switch_of(key).is_none())?;
    for (time, switch) in &met {
        meta.insert(&*switch_key(*switch), &*time.to_string())?;
    }
    meta.insert(START, &*now.to_string())?;
    Ok(met.into_iter().map(|(_, switch)| switch).collect())
}

/// Key of the time when the switch was last stored.
fn switch_key(switch: DatapathId) -> String {
    format!("{SWITCH}{}", met::key_of(switch))
}

fn switch_of(key: &str) -> Option<DatapathId> {
    met::switch_of(key.strip_prefix(SWITCH)?)
}

/// Reads the identity, which is generated for a new store.
fn read_identity(write: &WriteTransaction) -> Result<Identity, Failure> {
    let mut table = write.open_table(META)?;
    let known = table.get(IDENTITY)?.map(|text| serde_json::from_str(text.value()));
    match known {
        Some(identity) => Ok(identity?),
        None => {
            let identity = new_identity()?;
            table.insert(IDENTITY, serde_json::to_string(&identity)?.as_str())?;
            Ok(identity)
        }
    }
}

pub(super) fn new_identity() -> io::Result<Identity> {
    let (mut id, mut lldp_key) = ([0; 16], [0; 32]);
    crate::random::fill(&mut id)?;
    crate::random::fill(&mut lldp_key)?;
    Ok(Identity { id: hex(&id), lldp_key })
}

/// Writes changes. Returns the head of the log, the new records, and the change of the policies'
/// hash.
fn write_all<'a>(
    database: &Database,
    changes: impl Iterator<Item = &'a Change>,
    mut head: Head,
    keeps_all: bool,
) -> Result<(Written, u64), Failure> {
    let write = database.begin_write()?;
    let (mut lines, mut changed) = (Vec::new(), 0);
    {
        let mut policies = write.open_table(POLICIES)?;
        let mut audit = write.open_table(AUDIT)?;
        let mut meta = write.open_table(META)?;
        for change in changes {
            match change {
                Change::Put(kept) => {
                    let text = serde_json::to_string(kept)?;
                    let old = policies.insert(&*kept.key(), text.as_str())?;
                    changed ^= hash_policy(&kept.key(), &text);
                    changed ^= old.map_or(0, |old| hash_policy(&kept.key(), old.value()));
                }
                Change::Delete(name) => {
                    let old = policies.remove(name.as_str())?;
                    changed ^= old.map_or(0, |old| hash_policy(name, old.value()));
                }
                Change::Record(draft) => {
                    let line = head.append(draft)?;
                    audit.insert(head.seq, line.as_str())?;
                    lines.push(line);
                }
                Change::Meet(switch) => {
                    let time = unix_time().0.to_string();
                    meta.insert(&*switch_key(*switch), time.as_str())?;
                }
            }
        }
        if !keeps_all {
            forget_oldest(&mut audit, &head)?;
        }
    }
    write.commit()?;
    Ok(((head, lines), changed))
}

/// A hash of all policies, independent of their order, so that it can be updated incrementally.
fn hash_policies(database: &Database) -> Result<u64, Failure> {
    let read = database.begin_read()?;
    read.open_table(POLICIES)?.iter()?.try_fold(0, |hash, entry| {
        let (key, text) = entry?;
        Ok(hash ^ hash_policy(key.value(), text.value()))
    })
}

fn hash_policy(key: &str, text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, text).hash(&mut hasher);
    hasher.finish()
}

/// Limits the log in memory.
fn forget_oldest(audit: &mut Table<'_, u64, &str>, head: &Head) -> Result<(), Failure> {
    let first_kept = (head.seq + 1).saturating_sub(MAX_IN_MEMORY as u64);
    audit.retain_in(..first_kept, |_, _| false)?;
    Ok(())
}

fn read_records(database: &Database, wanted: Wanted, max: usize) -> Result<Records, Failure> {
    let read = database.begin_read()?;
    let table = match read.open_table(AUDIT) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Records::default()),
        table => table?,
    };
    let total = table.len()?;
    let text = |entry: Result<(_, redb::AccessGuard<'_, &str>), redb::StorageError>| {
        entry.map(|(_, line): (redb::AccessGuard<'_, u64>, _)| line.value().to_owned())
    };
    let lines: Result<_, _> = match wanted {
        Wanted::After(seq) => table.range(seq.saturating_add(1)..)?.take(max).map(text).collect(),
        Wanted::Before(seq) => table.range(..seq)?.rev().take(max).map(text).collect(),
    };
    Ok(Records { lines: lines?, total })
}

/// A failure, before the path is added.
struct Failure {
    cause: String,
    remedy: Option<&'static str>,
}

impl Failure {
    fn at(self, path: Option<&PathBuf>) -> StoreError {
        let error = StoreError::new("it cannot be read or written", &self.cause).at(path);
        match self.remedy {
            Some(remedy) => error.with_remedy(remedy),
            None => error,
        }
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &(dyn std::error::Error + 'static) = &error;
        let kind = io_error(any).map(io::Error::kind);
        let remedy = match (any.downcast_ref(), kind) {
            (Some(DatabaseError::DatabaseAlreadyOpen), _) => Some(IN_USE),
            (Some(DatabaseError::Storage(StorageError::Corrupted(_))), _)
            | (_, Some(io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)) => {
                Some(NO_STORE)
            }
            (_, Some(io::ErrorKind::NotFound)) => Some(NO_DIRECTORY),
            (_, Some(io::ErrorKind::IsADirectory)) => Some(NO_FILE),
            (_, Some(io::ErrorKind::PermissionDenied)) => Some(NOT_OURS),
            (_, Some(io::ErrorKind::ReadOnlyFilesystem)) => Some(READ_ONLY),
            _ => None,
        };
        // `redb`'s message for a store in use ends with a full stop.
        Self { cause: error.to_string().trim_end_matches('.').to_owned(), remedy }
    }
}

/// The system's error, if it is the cause.
fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let storage = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(DatabaseError::Storage(error)), _) | (_, Some(CommitError::Storage(error))) => {
            Some(error)
        }
        _ => error.downcast_ref(),
    };
    match storage {
        Some(StorageError::Io(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
/// By name; values are JSON.
const POLICIES: TableDefinition<'_, &str, &str> = TableDefinition::new("policies");
/// By number; values are the exported lines.
const AUDIT: TableDefinition<'_, u64, &str> = TableDefinition::new("audit");
const NO_RECORD: &str = "the last record of the audit log is no record";
const IDENTITY: &str = "identity";
const SWITCH: &str = "switch ";
/// Key of the time of the last start.
const START: &str = "start";
/// Cache size of the database, which is small; the default is one gigabyte.
const CACHE_LEN: usize = 16 << 20;
/// Maximum records of a log in memory.
pub(super) const MAX_IN_MEMORY: usize = 10_000;
const NO_DIRECTORY: &str = "create the directory of the file, or choose another file with --store";
const NO_FILE: &str = "name a file in it with --store, such as controller.redb; it is created";
const NO_STORE: &str = "it is no store, or damaged: choose another file with --store, or restore a \
                        copy of it";
const DAMAGED: &str = "its contents are inconsistent";
const NOT_OURS: &str = "give the user that runs the controller access to it and its directory \
                        (chown, chmod), or choose another file with --store";
const READ_ONLY: &str = "policies cannot be changed until it can be written; mount its file system \
                         writable, or choose another file with --store; active policies stay in \
                         effect";
const TAKE_BACK: &str = "policies cannot be changed until the former file is restored; or restart \
                         the controller to continue with what is there then; active policies stay \
                         in effect";
pub(super) const IN_USE: &str = "another process uses it, probably another controller: stop that \
                                 one, or choose another file with --store";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_cut_off_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.redb");
        let config = StoreConfig::File(path.clone());
        drop(Disk::open(&config).unwrap());
        OpenOptions::new().write(true).open(&path).unwrap().set_len(500_000).unwrap();
        let damaged = Disk::open(&config).map(drop).unwrap_err().to_string();
        assert!(damaged.contains("no store, or damaged"), "{damaged}");
    }

    /// What the test above prints, in a process of its own.
    #[test]
    fn of_a_damaged_store_our_message_alone_is_printed() {
        let test = "store::disk::tests::a_store_that_was_cut_off_is_damaged";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = command.args(["--exact", test, "--nocapture"]).output().unwrap();
        let [out, err] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(ran.status.success() && out.contains("1 passed"), "{out}{err}");
        assert!(!err.contains("panicked"), "{err}");
    }

    /// A run of these that starts at some time, in days.
    fn run(database: &Database, day: u64, met: &[u64]) -> Vec<u64> {
        let write = database.begin_write().unwrap();
        let mut meta = write.open_table(META).unwrap();
        let now = day * 24 * 3600 * 1000;
        let known = read_switches(&mut meta, now).ok().unwrap();
        for switch in met {
            let time = (now + 5000).to_string();
            meta.insert(&*switch_key(DatapathId(*switch)), time.as_str()).unwrap();
        }
        drop(meta);
        write.commit().unwrap();
        known.into_iter().map(|switch| switch.0).collect()
    }

    #[test]
    fn switches_of_the_last_run_are_expected_however_long_it_took() {
        let database = builder().create_with_backend(InMemoryBackend::new()).unwrap();
        assert!(run(&database, 100, &[1, 2]).is_empty());
        // They stayed connected for forty days, and did not come back before the next start.
        assert_eq!(run(&database, 140, &[]), [1, 2]);
        assert_eq!(run(&database, 140, &[1]), [1, 2]);
        assert_eq!(run(&database, 165, &[]), [1, 2]);
        assert_eq!(run(&database, 171, &[]), [1], "the other one has gone for a month");
        assert!(run(&database, 400, &[3]).is_empty());
        // The clock was put back.
        assert_eq!(run(&database, 10, &[]), [3]);
        assert_eq!(run(&database, 11, &[]), [3]);
    }
}
