//! Packages of any Debian suite, downloaded and unpacked in a folder of their own, never installed.
//!
//! apt(8) gets folders of its own for lists and downloads, so neither the machine's sources nor its
//! lists change, and no privilege is needed. It checks signatures and digests as usual, and uses
//! the machine's configuration of proxies.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, output_of};
use crate::sources;

/// A suite of Debian, with its folders below one folder of ours.
pub(crate) struct Suite {
    folder: PathBuf,
    /// The subject of error messages.
    name: String,
}

impl Suite {
    /// Reads the package lists of the suite called `name`; `folder` is for its files alone.
    pub(crate) fn open(name: &str, folder: &Path) -> Result<Self, Error> {
        let suite = Self { folder: folder.to_owned(), name: name.to_owned() };
        for part in ["parts", "lists/partial", "cache/archives/partial", "debs"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(Error::io(path.display()))?;
        }
        let path = folder.join("parts/debian.sources");
        fs::write(&path, machine_sources(name)?).map_err(Error::io(path.display()))?;
        suite.apt("apt-get", ["update"])?;
        Ok(suite)
    }

    /// Names of all packages that start with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        // `pkgnames` would also list what is, or was once, installed.
        let pattern = format!("^{}", prefix.replace('.', "\\."));
        let output = self.apt("apt-cache", ["search", "--names-only", &pattern])?;
        let text = String::from_utf8_lossy(&output);
        Ok(text.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect())
    }

    /// Downloads `packages` and unpacks them into `folder`.
    pub(crate) fn unpack(&self, packages: &[String], folder: &Path) -> Result<(), Error> {
        let arguments = ["download"].into_iter().chain(packages.iter().map(String::as_str));
        self.apt("apt-get", arguments)?;
        let debs = self.folder.join("debs");
        for entry in fs::read_dir(&debs).map_err(Error::io(debs.display()))? {
            let deb = entry.map_err(Error::io(debs.display()))?.path();
            output_of(Command::new("dpkg-deb").arg("--extract").args([&deb, folder]))?;
        }
        Ok(())
    }

    fn apt<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Vec<u8>, Error> {
        let mut command = Command::new(program);
        let within = |option: &str, path: &str| {
            let path = self.folder.join(path);
            ["-o".to_owned(), format!("{option}={}", path.display())]
        };
        command
            .args(within("Dir::Etc::SourceParts", "parts"))
            .args(within("Dir::State::Lists", "lists"))
            .args(within("Dir::Cache", "cache"))
            .args(OPTIONS.iter().flat_map(|option| ["-o", option]))
            .args(arguments)
            .current_dir(self.folder.join("debs"))
            .env("LC_ALL", "C");
        output_of(&mut command).map_err(|error| {
            let what = format!("packages of Debian's {} cannot be had: {error}", self.name);
            Error::unavailable(what, "see that apt-get update works and the network is there")
        })
    }
}

/// The machine's own sources, for another suite.
fn machine_sources(suite: &str) -> Result<String, Error> {
    let none = |why: String| {
        Err(Error::unavailable(why, "only Debian's own sources lead to its other kernels"))
    };
    let Some(codename) = codename() else {
        return none("/etc/os-release names no release of Debian".to_owned());
    };
    let mut one_line = read_all("list");
    one_line.extend(fs::read_to_string("/etc/apt/sources.list"));
    let text = sources::for_suite(&read_all("sources"), &one_line, &codename, suite);
    if text.is_empty() {
        return none(format!("apt has no source for {codename} main"));
    }
    Ok(text)
}

/// The contents of all files of `/etc/apt/sources.list.d` with this extension.
fn read_all(extension: &str) -> Vec<String> {
    let entries = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path()).collect::<Vec<_>>();
    paths.retain(|path| path.extension() == Some(OsStr::new(extension)));
    paths.sort_unstable();
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// The Debian release of the machine.
fn codename() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let field = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().map(|value| value.trim_matches('"').to_owned())
    };
    (field("ID")? == "debian").then(|| field("VERSION_CODENAME"))?
}

/// Makes apt use our folders, fail when anything fails, and give up after some time.
const OPTIONS: [&str; 7] = [
    "Dir::Etc::SourceList=/dev/null",
    "APT::Sandbox::User=root",
    "APT::Update::Error-Mode=any",
    "Acquire::Languages=none",
    "Acquire::Retries=1",
    "Acquire::http::Timeout=20",
    "Acquire::https::Timeout=20",
];
