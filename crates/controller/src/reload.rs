//! What a running server reads again when it is told to: tokens and certificates.

use std::sync::Arc;

use crate::rest::RestFiles;
use crate::tls::Tls;

/// What can be read again.
#[derive(Clone, Debug)]
pub(crate) struct Reloader {
    pub(crate) rest: Option<RestFiles>,
    /// For switches.
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Reloader {
    /// Reads all again; what is wrong with a file is said, and that file changes nothing.
    pub(crate) fn reload(&self) {
        if let Some(rest) = &self.rest {
            rest.reload();
        }
        if let Some(tls) = &self.tls {
            tls.reload();
        }
    }

    /// Whether there is anything to read.
    pub(crate) const fn has_files(&self) -> bool {
        self.rest.is_some() || self.tls.is_some()
    }
}
