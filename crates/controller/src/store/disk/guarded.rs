//! A database file that can be sealed against further writes: closing a database writes once more,
//! and would damage foreign content.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// A file that is writable until it is sealed.
#[derive(Debug)]
pub(super) struct Guarded {
    file: FileBackend,
    seal: Seal,
}

/// Whether a file is sealed.
#[derive(Clone, Debug, Default)]
pub(super) struct Seal(Arc<AtomicBool>);

impl Guarded {
    /// Writes go to `file` until the seal is set.
    pub(super) const fn new(file: FileBackend, seal: Seal) -> Self {
        Self { file, seal }
    }
}

impl Seal {
    /// Prevents all further writes.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        match self.0.load(Ordering::Acquire) {
            true => Err(io::Error::other("the file is given up")),
            false => Ok(()),
        }
    }
}

impl StorageBackend for Guarded {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.seal.check()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.seal.check()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.seal.check()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
