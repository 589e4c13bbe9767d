//! The file of a database, which can be given up without writing to it any more: a database that is
//! closed writes once more, and would damage what somebody else has put there meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// A file, as long as nobody gives it up.
#[derive(Debug)]
pub(super) struct Guarded {
    file: FileBackend,
    seal: Seal,
}

/// Whether nothing is written to a file any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Seal(Arc<AtomicBool>);

impl Guarded {
    /// What is written goes to `file` until the seal is set.
    pub(super) const fn new(file: FileBackend, seal: Seal) -> Self {
        Self { file, seal }
    }
}

impl Seal {
    /// From now on nothing is written.
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
