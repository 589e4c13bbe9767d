//! Output files for results: opened before the work, so that nobody waits for results that cannot
//! be written.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A file to be written. If it did not exist before, it is removed unless something was written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    is_new: bool,
}

impl OutputFile {
    /// Opens the file, if one is named.
    ///
    /// # Errors
    /// If it cannot be written, with its name.
    pub(crate) fn open(path: Option<&Path>) -> Result<Option<Self>, String> {
        let Some(path) = path else { return Ok(None) };
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some(Self { file, path: path.to_owned(), is_new }))
    }

    /// Replaces the contents by `data`.
    pub(crate) fn write_json(self, data: &impl Serialize) -> Result<(), String> {
        let json = serde_json::to_string_pretty(data).map_err(|error| error.to_string())?;
        self.write(&(json + "\n"))
    }

    /// Replaces the contents by `text`.
    pub(crate) fn write(mut self, text: &str) -> Result<(), String> {
        // Files that are not regular, such as pipes, cannot be truncated.
        let _ = self.file.set_len(0);
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new {
            // Another process may have removed it already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_a_new_one_stays_only_when_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.json");
        let open = || OutputFile::open(Some(&path)).unwrap().unwrap();
        drop(open());
        assert!(!path.exists(), "nothing was found");
        open().write("a long text").unwrap();
        drop(open());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a long text", "nothing was found");
        open().write_json(&[1]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  1\n]\n");
        let missing = directory.path().join("nosuch/data.json");
        let error = OutputFile::open(Some(&missing)).unwrap_err();
        assert!(error.starts_with(&*missing.to_string_lossy()), "{error}");
        assert!(OutputFile::open(None).unwrap().is_none());
    }
}
