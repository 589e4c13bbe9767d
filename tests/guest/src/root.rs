//! The guest's root: busybox and its names, modules, the program with the libraries that it needs,
//! and the script that the kernel runs first.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cpio::Archive;
use crate::error::{Error, output_of};

/// Adds busybox, its names in `/bin`, and the folders of the script's mount points.
pub(crate) fn system(archive: &mut Archive) -> Result<(), Error> {
    let busybox = find("busybox")
        .ok_or_else(|| Error::unavailable("busybox is missing", "apt-get install busybox"))?;
    for folder in ["/dev", "/proc", "/sys", "/run", "/tmp", "/root"] {
        archive.folder(folder);
    }
    archive.device("/dev/console", 5, 1);
    program(archive, &busybox, "/bin/busybox")?;
    let names = output_of(Command::new(&busybox).arg("--list"))?;
    for name in String::from_utf8_lossy(&names).lines() {
        archive.link(&format!("/bin/{name}"), "busybox");
    }
    archive.file("/init", include_bytes!("init.sh"));
    Ok(())
}

/// Adds the program at `path` of the host as `inside`, and the libraries that it needs at their
/// paths.
pub(crate) fn program(archive: &mut Archive, path: &Path, inside: &str) -> Result<(), Error> {
    archive.file(inside, &read(path)?);
    for library in libraries(path)? {
        archive.file(&library, &read(Path::new(&library))?);
    }
    Ok(())
}

/// The contents of a file of the host.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::io(path.display()))
}

/// The path of `program` on this machine; daemons may be outside the user's path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A word as sh(1) reads it unchanged.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The libraries that the program at `path` needs, and its loader.
fn libraries(path: &Path) -> Result<Vec<String>, Error> {
    let mut command = Command::new("ldd");
    command.arg(path).env("LC_ALL", "C");
    let output = command.output().map_err(Error::io("ldd"))?;
    // ldd(1) fails for a static program, and says so; a file that is not a program fails in the
    // guest.
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| library(line).transpose()).collect()
}

/// The file in a line of ldd(1); none for the kernel's own (vDSO).
fn library(line: &str) -> Result<Option<String>, Error> {
    if line.contains("=> not found") {
        return Err(Error::Wrong(format!("a library is missing here already:{line}")));
    }
    let words = line.split_whitespace();
    Ok(words.into_iter().find(|word| word.starts_with('/')).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_where_ldd_says() {
        let lines = [
            ("\tlinux-vdso.so.1 (0x00007ffd)", None),
            (
                "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)",
                Some("/lib/x86_64-linux-gnu/libc.so.6"),
            ),
            ("\t/lib64/ld-linux-x86-64.so.2 (0x7f)", Some("/lib64/ld-linux-x86-64.so.2")),
            ("\tstatically linked", None),
        ];
        for (line, expected) in lines {
            assert_eq!(library(line).unwrap().as_deref(), expected, "{line}");
        }
        let missing = library("\tlibmagic.so => not found").unwrap_err().to_string();
        assert!(missing.contains("libmagic.so"), "{missing}");
    }

    #[test]
    fn the_shell_reads_a_quoted_word_unchanged() {
        for word in ["", "a b", "it's", "$HOME `x` \\ \"", "--exact=*"] {
            let script = format!("printf %s {}", quoted(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
