//! The store in one file, by `redb`: a database in a file with transactions that are there whole or
//! not at all, also after kill -9. <https://docs.rs/redb>

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageError, Table, TableDefinition, TableError, WriteTransaction,
};

use super::{
    Change, Contents, Identity, Kept, KeptPolicy, Records, StoreConfig, StoreError, Wanted,
};
use crate::audit::{Head, hex};

/// The tables, in a file or in memory.
#[derive(Debug)]
pub(super) struct Disk {
    path: Option<PathBuf>,
    /// `None` after a failure, until it is opened again.
    database: Option<Database>,
}

/// Where the log stands after changes, and the records that they made.
type Written = (Head, Vec<String>);

impl Disk {
    /// Opens the file, or makes it, and reads what is there.
    pub(super) fn open(config: &StoreConfig) -> Result<(Self, Contents), StoreError> {
        let path = match config {
            StoreConfig::File(path) => Some(path.clone()),
            StoreConfig::None | StoreConfig::Etcd(_) => None,
        };
        let failed = |error: Failure| error.at(path.as_ref());
        let database = open_database(path.as_ref()).map_err(failed)?;
        let contents = read_all(&database).map_err(failed)?;
        Ok((Self { path, database: Some(database) }, contents))
    }

    /// Makes the changes, all or none. Returns where the log stands then, and its new records.
    pub(super) fn commit<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
        head: &Head,
    ) -> Result<Written, StoreError> {
        let keeps_all = self.path.is_some();
        self.with_database(|database| write_all(database, changes, head.clone(), keeps_all))
    }

    /// At most `max` records.
    pub(super) fn records(&mut self, wanted: Wanted, max: usize) -> Result<Records, StoreError> {
        self.with_database(|database| read_records(database, wanted, max))
    }

    /// Does something with the database. After a failure it is closed: what is in memory of it may
    /// not be what is on disk.
    fn with_database<T>(
        &mut self,
        work: impl FnOnce(&Database) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let result = match self.database.take() {
            Some(database) => Ok(database),
            None => open_database(self.path.as_ref()),
        };
        let result = result.and_then(|database| Ok((work(&database)?, database)));
        match result {
            Ok((value, database)) => {
                self.database = Some(database);
                Ok(value)
            }
            Err(error) => Err(error.at(self.path.as_ref())),
        }
    }
}

fn open_database(path: Option<&PathBuf>) -> Result<Database, Failure> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_LEN);
    let Some(path) = path else {
        return Ok(builder.create_with_backend(InMemoryBackend::new())?);
    };
    let mut options = OpenOptions::new();
    // Whose traffic is copied is nobody else's business.
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    Ok(builder.create_file(options.open(path)?)?)
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
    write.commit()?;
    Ok(Contents { identity, kept: Kept { policies, unreadable }, head })
}

/// Who the controller is; decided when the store is made.
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

fn write_all<'a>(
    database: &Database,
    changes: impl Iterator<Item = &'a Change>,
    mut head: Head,
    keeps_all: bool,
) -> Result<Written, Failure> {
    let write = database.begin_write()?;
    let mut lines = Vec::new();
    {
        let mut policies = write.open_table(POLICIES)?;
        let mut audit = write.open_table(AUDIT)?;
        for change in changes {
            match change {
                Change::Put(kept) => {
                    let text = serde_json::to_string(kept)?;
                    policies.insert(&*kept.key(), text.as_str())?;
                }
                Change::Delete(name) => _ = policies.remove(name.as_str())?,
                Change::Record(draft) => {
                    let line = head.append(draft)?;
                    audit.insert(head.seq, line.as_str())?;
                    lines.push(line);
                }
            }
        }
        if !keeps_all {
            forget_oldest(&mut audit, &head)?;
        }
    }
    write.commit()?;
    Ok((head, lines))
}

/// In memory there is an end.
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

/// What went wrong, until it is told where.
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
        let kind = match any.downcast_ref() {
            Some(DatabaseError::Storage(StorageError::Io(error))) => Some(error.kind()),
            _ => any.downcast_ref().map(io::Error::kind),
        };
        let remedy = match (any.downcast_ref(), kind) {
            (Some(DatabaseError::DatabaseAlreadyOpen), _) => Some(IN_USE),
            (Some(DatabaseError::Storage(StorageError::Corrupted(_))), _)
            | (_, Some(io::ErrorKind::InvalidData)) => Some(NO_STORE),
            (_, Some(io::ErrorKind::NotFound)) => Some(NO_DIRECTORY),
            (_, Some(io::ErrorKind::IsADirectory)) => Some(NO_FILE),
            _ => None,
        };
        Self { cause: error.to_string(), remedy }
    }
}

const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
/// By name; the values are JSON.
const POLICIES: TableDefinition<'_, &str, &str> = TableDefinition::new("policies");
/// By number; the values are the lines as they are exported.
const AUDIT: TableDefinition<'_, u64, &str> = TableDefinition::new("audit");
const NO_RECORD: &str = "the last record of the audit log is no record";
const IDENTITY: &str = "identity";
/// What the database keeps in memory; it is small, and its own default is a gigabyte.
const CACHE_LEN: usize = 16 << 20;
/// Records of a log that is in memory only.
pub(super) const MAX_IN_MEMORY: usize = 10_000;
const NO_DIRECTORY: &str = "make the directory that the file shall be in, or choose another file \
                            with --store";
const NO_FILE: &str = "name a file in it with --store, such as controller.redb, which is made";
const NO_STORE: &str = "it is no store, or damaged: choose another file with --store, or put back \
                        a copy of it";
pub(super) const IN_USE: &str =
    "is another controller at work? stop it, or choose another file with --store";
