//! Files that are read again when they have changed.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::TlsError;

/// Files from which an end of TLS is made.
pub trait Source {
    /// What is made of them.
    type Config: fmt::Debug;

    /// The files.
    fn paths(&self) -> Vec<&Path>;

    /// Reads them.
    ///
    /// # Errors
    /// Which file is of no use, and why.
    fn read(&self) -> Result<Self::Config, TlsError>;
}

/// What was made of files, and is made anew when they are other ones.
#[derive(Debug)]
pub struct Fresh<S: Source> {
    source: S,
    config: Arc<S::Config>,
    /// What the files looked like when they were read.
    stamps: Vec<Option<Stamp>>,
}

impl<S: Source> Fresh<S> {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file is of no use, and why.
    pub fn open(source: S) -> Result<Self, TlsError> {
        // What changes while it is read is read again at the next look.
        let stamps = look(&source);
        let config = Arc::new(source.read()?);
        Ok(Self { source, config, stamps })
    }

    /// Reads the files again if they have changed.
    ///
    /// # Errors
    /// Which file is of no use now, and why; what they said before stays in force.
    pub fn refresh(&mut self) -> Result<(), TlsError> {
        let stamps = look(&self.source);
        if stamps != self.stamps {
            self.config = Arc::new(self.source.read()?);
            self.stamps = stamps;
        }
        Ok(())
    }

    /// What the files said when they were read last.
    pub fn config(&self) -> Arc<S::Config> {
        self.config.clone()
    }

    /// The files.
    pub const fn source(&self) -> &S {
        &self.source
    }
}

/// What tells a file from the one that was there before: the node, its size, and when it changed.
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
