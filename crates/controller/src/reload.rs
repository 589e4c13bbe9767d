//! Reloads tokens and certificates of a running server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapswitch_tls::TlsError;

use crate::rest::RestFiles;
use crate::tls::Tls;

/// Reloads the files of a running [`crate::Server`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reloader {
    pub(crate) rest: Option<RestFiles>,
    /// For switches.
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Reloader {
    /// Reloads tokens and certificates; an invalid file is reported and has no effect. Existing
    /// connections continue.
    pub fn reload(&self) {
        if let Some(rest) = &self.rest {
            rest.reload_tokens();
        }
        let ends = [
            ("REST", self.rest.as_ref().and_then(RestFiles::tls)),
            ("switches", self.tls.as_ref()),
        ];
        let ends = ends.into_iter().filter_map(|(whom, tls)| Some((whom, tls?.reload())));
        for told in in_words(ends) {
            match told {
                Ok(text) => tracing::info!("{text}"),
                Err(text) => tracing::error!("{text}"),
            }
        }
    }

    /// Whether there may be anything to reload.
    pub const fn has_files(&self) -> bool {
        self.rest.is_some() || self.tls.is_some()
    }
}

/// Describes the results for certificates. Both servers may have the same one: it is reported once,
/// with its uses.
fn in_words<'a>(
    ends: impl Iterator<Item = (&'static str, Result<&'a Path, TlsError>)>,
) -> Vec<Result<String, String>> {
    let mut told: BTreeMap<Result<PathBuf, String>, Vec<&str>> = BTreeMap::new();
    for (whom, read) in ends {
        let read = read.map(Path::to_path_buf).map_err(|error| error.to_string());
        told.entry(read).or_default().push(whom);
    }
    let told = told.into_iter().map(|(read, whom)| (read, whom.join(" and ")));
    told.map(|(read, whom)| match read {
        Ok(cert) => Ok(format!("{}: read again, for {whom}", cert.display())),
        Err(error) => Err(format!("{error}; the previous certificate for {whom} stays in use")),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use tapswitch_tls::{Source, TlsFiles};

    use super::*;

    #[test]
    fn a_certificate_that_both_ends_have_is_told_of_once() {
        let (a, b) = (Path::new("/a.pem"), Path::new("/b.pem"));
        let told = |rest, switches| in_words([("REST", rest), ("switches", switches)].into_iter());
        let both = "/a.pem: read again, for REST and switches".to_owned();
        assert_eq!(told(Ok(a), Ok(a)), [Ok(both)]);
        let each = ["/a.pem: read again, for REST", "/b.pem: read again, for switches"];
        assert_eq!(told(Ok(a), Ok(b)), each.map(|text| Ok(text.to_owned())));
        let wrong = || {
            let files = TlsFiles { cert: "/gone".into(), key: "/gone".into(), ca: None };
            files.read().map(|_| a)
        };
        let both = told(wrong(), wrong());
        let [Err(text)] = &both[..] else { panic!("{both:?}") };
        assert!(
            text.ends_with("the previous certificate for REST and switches stays in use"),
            "{text}"
        );
        assert_eq!(told(wrong(), Ok(a)).len(), 2);
    }
}
