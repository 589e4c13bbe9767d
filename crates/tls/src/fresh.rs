//! Configuration files that are read again when they change.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::TlsError;

/// Files from which a TLS configuration is built.
pub trait Source {
    /// The configuration.
    type Config: fmt::Debug;

    /// The files.
    fn paths(&self) -> Vec<&Path>;

    /// Reads the files and builds the configuration.
    ///
    /// # Errors
    /// Names the unusable file and the reason.
    fn read(&self) -> Result<Self::Config, TlsError>;
}

/// A configuration that is rebuilt when its files change.
#[derive(Debug)]
pub struct Fresh<S: Source> {
    source: S,
    config: Arc<S::Config>,
    /// State of the files before they were last read.
    stamps: Vec<Option<Stamp>>,
}

impl<S: Source> Fresh<S> {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the unusable file and the reason.
    pub fn open(source: S) -> Result<Self, TlsError> {
        // Taken first: a file that changes while it is read is read again at the next refresh.
        let stamps = look(&source);
        let config = Arc::new(source.read()?);
        Ok(Self { source, config, stamps })
    }

    /// Reads the files again if they have changed.
    ///
    /// # Errors
    /// Names the unusable file and the reason; the previous configuration stays in force.
    pub fn refresh(&mut self) -> Result<(), TlsError> {
        let stamps = look(&self.source);
        if stamps != self.stamps {
            self.config = Arc::new(self.source.read()?);
            self.stamps = stamps;
        }
        Ok(())
    }

    /// The configuration from the last successful read.
    pub fn config(&self) -> Arc<S::Config> {
        self.config.clone()
    }

    /// The files.
    pub const fn source(&self) -> &S {
        &self.source
    }
}

/// Identifies a version of a file: its inode, size and change time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    node: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

fn look(source: &impl Source) -> Vec<Option<Stamp>> {
    let stamp = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        let node = (data.dev(), data.ino());
        Some(Stamp { node, size: data.size(), changed: (data.ctime(), data.ctime_nsec()) })
    };
    source.paths().into_iter().map(stamp).collect()
}
