//! Kernels to boot: selection, files and modules.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use rustix::fs::FlockOperation;

use crate::error::{Error, output_of};
use crate::forks::forking;
use crate::guest::check_machine;
use crate::packages::Suite;

/// A series of kernels that Debian ships, in its small "cloud" flavour for amd64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    suite: &'static str,
    /// Preferred, if available.
    wanted: (u32, u32),
    /// True if a later series will do.
    or_later: bool,
}

impl Series {
    /// 7.3, which brought `IFF_BACKPRESSURE`, or the newest later one.
    pub const V7_3: Self = Self { suite: "trixie-backports", wanted: (7, 3), or_later: true };
    /// 6.1 of Debian 12, which has no UDP trains.
    pub const V6_1: Self = Self { suite: "bookworm", wanted: (6, 1), or_later: false };

    /// The best of `names`, each of which belongs to a release.
    fn best<T>(self, releases: impl Iterator<Item = (String, T)>) -> Option<(String, T)> {
        let rank = |release: &str| {
            let numbers = numbers(release);
            let series = (*numbers.first()?, *numbers.get(1)?);
            let is_wanted = series == self.wanted;
            let will_do = is_wanted || self.or_later && series > self.wanted;
            will_do.then_some((is_wanted, numbers))
        };
        let ranked = releases.filter_map(|(release, of)| Some((rank(&release)?, release, of)));
        let best = ranked.max_by(|(a, ..), (b, ..)| a.cmp(b));
        best.map(|(_, release, of)| (release, of))
    }
}

/// A kernel that is ready to boot: image and modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    release: String,
    image: PathBuf,
    /// Module files by name.
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    /// A kernel of `series`. The first call downloads about 35 MB of packages; afterwards the
    /// kernel is in the cache ([`crate::cache`]), and the network is not used. Several processes
    /// may call at once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it cannot be obtained (no Debian, no network) or run (no amd64, no
    /// QEMU, no busybox).
    pub fn of(series: Series) -> Result<Self, Error> {
        if !cfg!(target_arch = "x86_64") {
            let what = "only kernels for amd64 are booted";
            return Err(Error::unavailable(what, "run this on such a machine"));
        }
        check_machine()?;
        let folder = cache().join(series.suite);
        fs::create_dir_all(&folder).map_err(Error::io(folder.display()))?;
        let _lock = lock(&folder.join("lock"))?;
        let kept = || series.best(kept(&folder));
        if kept().is_none() {
            let _forking = forking();
            fetch(series, &folder)?;
        }
        let Some((release, folder)) = kept() else {
            let what = format!("Debian's {} has no kernel like {:?}", series.suite, series.wanted);
            return Err(Error::unavailable(what, "name a later series in tests/guest"));
        };
        Self::open(release, &folder)
    }

    /// Its release, as `uname -r` prints it.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Its image for `qemu -kernel`.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Reads a folder with the unpacked packages of a kernel.
    fn open(release: String, folder: &Path) -> Result<Self, Error> {
        let mut files = Vec::new();
        walk(folder, &mut files).map_err(Error::io(folder.display()))?;
        let starts = |path: &&PathBuf, prefix| file_name(path).starts_with(prefix);
        let image = files.iter().find(|path| starts(path, "vmlinuz")).cloned();
        let image = image.ok_or_else(|| Error::Wrong(format!("{folder:?}: no vmlinuz in it")))?;
        let modules = files.into_iter().filter_map(|path| Some((module_name(&path)?, path)));
        Ok(Self { release, image, modules: modules.collect() })
    }

    /// The modules called `names` and their dependencies, each after its dependencies, with the
    /// bytes that insmod(8) takes.
    pub(crate) fn modules(&self, names: &[String]) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut loaded = Vec::new();
        for name in names {
            self.load(&name.replace('-', "_"), &mut loaded)?;
        }
        Ok(loaded)
    }

    fn load(&self, name: &str, loaded: &mut Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        if loaded.iter().any(|(other, _)| other == name) {
            return Ok(());
        }
        let Some(path) = self.modules.get(name) else {
            let release = &self.release;
            let message = "has no such module; if it is built in, do not ask for it";
            return Err(Error::Wrong(format!("{name}: {release} {message}")));
        };
        let bytes = decompressed(path)?;
        for needed in needs(&bytes) {
            self.load(&needed, loaded)?;
        }
        loaded.push((name.to_owned(), bytes));
        Ok(())
    }
}

/// The folder of downloaded kernels: `TAPSWITCH_GUEST_CACHE` if that is set, otherwise
/// `tapswitch-guest` in cargo's target folder, so that `cargo clean` clears it, otherwise below
/// `XDG_CACHE_HOME`.
pub fn cache() -> PathBuf {
    if let Some(folder) = env::var_os("TAPSWITCH_GUEST_CACHE") {
        return folder.into();
    }
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache");
    let user = || env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    target.map_or_else(user, Path::to_owned).join("tapswitch-guest")
}

/// Downloads the best kernel of `series` into `folder`. A folder gets the name of a release only
/// when it is complete.
fn fetch(series: Series, folder: &Path) -> Result<(), Error> {
    let work = folder.join(format!("partial-{}", process::id()));
    // Leftovers of a killed process; nobody else is here while the lock is held.
    for (name, path) in entries(folder) {
        if name.starts_with("partial-") {
            fs::remove_dir_all(&path).map_err(Error::io(path.display()))?;
        }
    }
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        outcome = fetch_into(series, folder, &work);
        let _ = fs::remove_dir_all(&work);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn fetch_into(series: Series, folder: &Path, work: &Path) -> Result<(), Error> {
    let suite = Suite::open(series.suite, work)?;
    let names = suite.names("linux-")?;
    let Some((release, packages)) = series.best(offered(&names)) else {
        return Ok(());
    };
    let unpacked = work.join("unpacked");
    fs::create_dir_all(&unpacked).map_err(Error::io(unpacked.display()))?;
    suite.unpack(&packages, &unpacked)?;
    let place = folder.join(&release);
    Kernel::open(release, &unpacked)?;
    fs::rename(&unpacked, &place).map_err(Error::io(place.display()))
}

/// The releases among `names` of packages, each with the packages that contain image and modules:
/// two in newer suites, one in older ones.
fn offered(names: &[String]) -> impl Iterator<Item = (String, Vec<String>)> {
    names.iter().filter_map(|name| {
        let is_cloud = |release: &&str| release.ends_with(FLAVOUR);
        if let Some(release) = name.strip_prefix("linux-binary-unsigned-").filter(is_cloud) {
            let modules = format!("linux-modules-{release}");
            let is_there = names.contains(&modules);
            return is_there.then(|| (release.to_owned(), vec![name.clone(), modules]));
        }
        let release = name.strip_prefix("linux-image-").filter(is_cloud)?;
        // An empty metapackage that depends on the two has this name.
        let is_whole = !names.contains(&format!("linux-binary-unsigned-{release}"));
        is_whole.then(|| (release.to_owned(), vec![name.clone()]))
    })
}

/// The releases in the cache, with their folders.
fn kept(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    entries(folder).into_iter().filter(|(name, _)| name.ends_with(FLAVOUR))
}

fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| Some((e.file_name().into_string().ok()?, e.path()))).collect()
}

/// All numbers in a release, in order.
fn numbers(release: &str) -> Vec<u32> {
    let flavour = release.strip_suffix(FLAVOUR).unwrap_or(release);
    flavour.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Locks the file at `path` until the returned value is dropped.
fn lock(path: &Path) -> Result<File, Error> {
    let file = File::create(path).map_err(Error::io(path.display()))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|errno| Error::io(path.display())(errno.into()))?;
    Ok(file)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// The kernel's name of the module in the file at `path`.
fn module_name(path: &Path) -> Option<String> {
    let name = file_name(path);
    let stem = name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.xz"))?;
    Some(stem.replace('-', "_"))
}

fn decompressed(path: &Path) -> Result<Vec<u8>, Error> {
    if path.extension() == Some(OsStr::new("xz")) {
        output_of(Command::new("busybox").arg("xzcat").arg(path))
    } else {
        fs::read(path).map_err(Error::io(path.display()))
    }
}

/// The dependencies of a module, from its section `.modinfo`: `depends=a,b`.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

/// A mirror that is being updated may return files that do not match each other.
const ATTEMPTS: u32 = 2;
/// The end of the names of all these releases.
const FLAVOUR: &str = "-cloud-amd64";

#[cfg(test)]
mod tests {
    use super::*;

    fn best(series: Series, names: &[&str]) -> Option<(String, Vec<String>)> {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        series.best(offered(&names))
    }

    #[test]
    fn the_newest_of_the_series_is_taken_or_else_the_newest_later_one() {
        let mut names = vec![
            "linux-binary-unsigned-6.19.2+deb13-cloud-amd64",
            "linux-modules-6.19.2+deb13-cloud-amd64",
            "linux-binary-unsigned-7.10.1+deb13-cloud-amd64",
            "linux-modules-7.10.1+deb13-cloud-amd64",
            "linux-binary-unsigned-7.4.1+deb13-cloud-amd64",
            "linux-modules-7.4.1+deb13-cloud-amd64",
            "linux-binary-unsigned-7.11.1+deb13-cloud-amd64",
            "linux-modules-7.11.1+deb13-amd64",
        ];
        let release = |found: Option<(String, Vec<String>)>| found.unwrap().0;
        assert_eq!(release(best(Series::V7_3, &names)), "7.10.1+deb13-cloud-amd64");
        names.extend([
            "linux-binary-unsigned-7.3.4+deb13-cloud-amd64",
            "linux-modules-7.3.4+deb13-cloud-amd64",
            "linux-binary-unsigned-7.3.12+deb13-cloud-amd64",
            "linux-modules-7.3.12+deb13-cloud-amd64",
            "linux-image-7.3.12+deb13-cloud-amd64",
        ]);
        let (release, packages) = best(Series::V7_3, &names).unwrap();
        assert_eq!(release, "7.3.12+deb13-cloud-amd64");
        assert_eq!(packages, [names[10], names[11]]);
    }

    #[test]
    fn a_former_suite_has_one_package_and_other_series_beside() {
        let names = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-47-cloud-amd64",
            "linux-image-6.1.0-48-cloud-amd64-unsigned",
            "linux-image-6.1.0-49-cloud-amd64-dbg",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-cloud-amd64",
        ];
        let (release, packages) = best(Series::V6_1, &names).unwrap();
        assert_eq!(release, "6.1.0-47-cloud-amd64");
        assert_eq!(packages, ["linux-image-6.1.0-47-cloud-amd64"]);
        assert_eq!(best(Series::V7_3, &names), None);
    }

    #[test]
    fn a_module_tells_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=vhost,tap-x\0retpoline=Y\0";
        assert_eq!(needs(module), ["vhost", "tap_x"]);
        assert_eq!(needs(b"\0depends=\0"), [""; 0]);
        assert_eq!(needs(b"nothing"), [""; 0]);
    }
}
