//! The files of a file monitor: the current one, and the finished ones.
//!
//! ```text
//! web.pcapng                        current file
//! web_00007_20261122101500.pcapng   finished file: number, and time (UTC)
//! ```
//! A current file left by an earlier run counts as finished. Nothing is overwritten, and only
//! finished files of this monitor are removed, including those of earlier runs.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The files of one monitor.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    folder: PathBuf,
    stem: String,
    /// Including the dot; empty if there is none.
    ending: String,
    /// Number of finished files to keep.
    keep: Option<u32>,
}

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenFileError {
    /// Another port or program writes to the file.
    #[error(
        "{}: another port or program writes to it; give each its own file",
        path.display()
    )]
    Busy {
        /// Path of the file.
        path: PathBuf,
    },
    /// The path is in use by something other than a file.
    #[error("{}: exists and is not a regular file; choose another name", path.display())]
    NoFile {
        /// Its path.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("{}: {source}; its directory must exist and be writable", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Files {
    /// The files of a monitor that writes to `path`.
    pub(super) fn new(path: &str, keep: Option<u32>) -> Result<Self, OpenFileError> {
        let failed = |source| OpenFileError::Io { path: path.into(), source };
        let path = std::path::absolute(path).map_err(failed)?;
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let ending = path.extension().and_then(OsStr::to_str);
        let ending = ending.map_or_else(String::new, |ending| format!(".{ending}"));
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { path, folder, stem, ending, keep })
    }

    /// Path of the current file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Directory of the files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates an empty current file and locks it; an existing one becomes finished.
    pub(super) fn open(&self) -> Result<File, OpenFileError> {
        let failed = |source| OpenFileError::Io { path: self.path.clone(), source };
        self.put_aside()?;
        let mut options = OpenOptions::new();
        // Captured traffic is private.
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(&self.path).map_err(failed)?;
        self.lock(&file)?;
        Ok(file)
    }

    /// Makes the file of an earlier run a finished one.
    fn put_aside(&self) -> Result<(), OpenFileError> {
        let failed = |source| OpenFileError::Io { path: self.path.clone(), source };
        let found = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed)?,
        };
        if !found.is_file() {
            return Err(OpenFileError::NoFile { path: self.path.clone() });
        }
        self.lock(&File::open(&self.path).map_err(failed)?)?;
        if found.len() == 0 {
            return fs::remove_file(&self.path).map_err(failed);
        }
        self.finish(found.modified().unwrap_or(UNIX_EPOCH)).map_err(failed)
    }

    fn lock(&self, file: &File) -> Result<(), OpenFileError> {
        match file.try_lock() {
            // Some file systems do not support locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(OpenFileError::Busy { path: self.path.clone() }),
        }
    }

    /// Renames the current file to a finished one, and removes the oldest of those beyond the
    /// number to keep.
    pub(super) fn finish(&self, at: SystemTime) -> io::Result<()> {
        let finished = self.finished()?;
        let number = finished.last().map_or(0, |(number, _)| *number) + 1;
        let name = format!("{}_{number:05}_{}{}", self.stem, time_text(at), self.ending);
        fs::rename(&self.path, self.folder.join(name))?;
        let excess = self.keep.map_or(0, |keep| (finished.len() + 1).saturating_sub(keep as usize));
        finished.iter().take(excess).try_for_each(|(_, path)| match fs::remove_file(path) {
            // Somebody else has renamed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }

    /// Whether `file` is still the one at the path: somebody may have renamed it.
    pub(super) fn is_at_its_path(&self, file: &File) -> bool {
        let place = |of: fs::Metadata| (of.dev(), of.ino());
        let (own, there) =
            (file.metadata().map(place), fs::symlink_metadata(&self.path).map(place));
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }

    /// Removes the oldest finished file, if there is one and not all are to be kept.
    pub(super) fn remove_oldest(&self) -> Option<PathBuf> {
        self.keep?;
        let (_, oldest) = self.finished().ok()?.into_iter().next()?;
        fs::remove_file(&oldest).ok().map(|()| oldest)
    }

    /// Finished files with their numbers, oldest first.
    fn finished(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(|name| self.number(name))
                && entry.file_type()?.is_file()
            {
                found.push((number, entry.path()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The number in the name of a finished file.
    fn number(&self, name: &str) -> Option<u64> {
        let name = name.strip_prefix(&self.stem)?.strip_prefix('_')?;
        let (number, time) = name.strip_suffix(&self.ending)?.split_once('_')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_ours = number.len() >= 5 && time.len() == 14 && is_number(number) && is_number(time);
        is_ours.then(|| number.parse().ok()).flatten()
    }
}

/// As `20261122101500`, UTC.
fn time_text(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of a number of days since 1970, by the Gregorian calendar. Years start in
/// March here, so that a leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01, in cycles of 400 years.
    let days = days + 719_468;
    let (cycle, of_cycle) = (days / 146_097, days % 146_097);
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, repeatedly.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|it| name(it).into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn files(folder: &Path, keep: Option<u32>) -> Files {
        Files::new(folder.join("web.pcapng").to_str().unwrap(), keep).unwrap()
    }

    #[test]
    fn times_are_told_as_dates() {
        for (seconds, text) in [
            (0, "19700101000000"),
            (951_782_399, "20000228235959"),
            (951_782_400, "20000229000000"),
            (1_709_251_199, "20240229235959"),
            (1_709_251_200, "20240301000000"),
            (4_107_542_399, "21000228235959"),
            (4_107_542_400, "21000301000000"),
        ] {
            assert_eq!(time_text(at(seconds)), text);
        }
    }

    #[test]
    fn finished_files_are_numbered_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), Some(2));
        for name in ["web_1_2.pcapng", "web_00001_20260101000000.txt", "other.pcapng"] {
            fs::write(folder.path().join(name), "theirs").unwrap();
        }
        for time in [5, 6, 7] {
            files.open().unwrap().write_all(b"x").unwrap();
            files.finish(at(time)).unwrap();
        }
        drop(files.open().unwrap());
        assert_eq!(
            names(folder.path()),
            [
                "other.pcapng",
                "web.pcapng",
                "web_00001_20260101000000.txt",
                "web_00002_19700101000006.pcapng",
                "web_00003_19700101000007.pcapng",
                "web_1_2.pcapng",
            ]
        );
        let oldest = files.remove_oldest().unwrap();
        assert!(oldest.ends_with("web_00002_19700101000006.pcapng"));
    }

    #[test]
    fn a_file_with_another_name_is_not_the_one_at_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), None);
        let file = files.open().unwrap();
        assert!(files.is_at_its_path(&file));
        fs::rename(files.path(), folder.path().join("moved.pcapng")).unwrap();
        assert!(!files.is_at_its_path(&file));
        fs::write(files.path(), "theirs").unwrap();
        assert!(!files.is_at_its_path(&file));
    }

    #[test]
    fn what_was_left_is_put_aside_and_all_is_kept_unless_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), None);
        fs::write(files.path(), "an earlier run").unwrap();
        drop(files.open().unwrap());
        assert_eq!(names(folder.path()).len(), 2);
        drop(files.open().unwrap());
        assert_eq!(names(folder.path()).len(), 2, "an empty one is nothing to keep");
        assert_eq!(files.remove_oldest(), None);
    }

    #[test]
    fn a_file_has_one_writer_and_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), None);
        let held = files.open().unwrap();
        let error = files.open().unwrap_err();
        assert!(matches!(error, OpenFileError::Busy { .. }), "{error}");
        drop(held);
        fs::remove_file(files.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", files.path()).unwrap();
        let error = files.open().unwrap_err();
        assert!(matches!(error, OpenFileError::NoFile { .. }), "{error}");
        let nowhere = Files::new("/nowhere/at/all.pcapng", None).unwrap();
        assert!(nowhere.open().unwrap_err().to_string().contains("its directory must exist"));
    }
}
