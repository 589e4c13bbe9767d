//! An archive for `initrd`: cpio in the "newc" format, which the kernel unpacks into its root
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! A member is a header of 110 ASCII characters, the name with a terminating zero, and the data;
//! name and data are each padded to a multiple of four bytes. Folders must precede their contents.
//!
//! Not supported: owners (everything is root's), times, hard links.

use std::collections::BTreeSet;

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    /// Paths in the archive, without the leading slash.
    names: BTreeSet<String>,
}

impl Archive {
    /// Adds a file, readable and executable by everybody, and the folders above it.
    pub(crate) fn file(&mut self, path: &str, data: &[u8]) {
        self.member(path, FILE | 0o755, (0, 0), data);
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.member(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a folder.
    pub(crate) fn folder(&mut self, path: &str) {
        self.member(path, FOLDER | 0o755, (0, 0), &[]);
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.member(path, DEVICE | 0o600, (major, minor), &[]);
    }

    /// The finished archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.append("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn member(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            if self.names.insert(path[..end].to_owned()) {
                self.append(&path[..end], FOLDER | 0o755, (0, 0), &[]);
            }
        }
        if self.names.insert(path.to_owned()) {
            self.append(path, mode, device, data);
        }
    }

    fn append(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let (major, minor) = device;
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor,
        // namesize, check.
        let fields = [
            number,
            mode,
            0,
            0,
            links,
            0,
            len(data.len()),
            0,
            0,
            major,
            minor,
            len(name.len() + 1),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const DEVICE: u32 = 0o020_000;

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn another_program_reads_it() {
        let mut archive = Archive::default();
        archive.device("/dev/console", 5, 1);
        archive.file("/bin/of/three", b"abc");
        archive.link("/bin/sh", "of/three");
        archive.folder("/proc");
        archive.file("/bin/of/three", b"only the first counts");
        let Some(listing) = list(&archive.finish()) else {
            return crate::skip("busybox is missing");
        };
        let lines = listing.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let seen = lines.map(|words| format!("{} {}", words[0], words[5..].join(" ")));
        let expected = [
            "drwxr-xr-x dev",
            "crw------- dev/console",
            "drwxr-xr-x bin",
            "drwxr-xr-x bin/of",
            "-rwxr-xr-x bin/of/three",
            "lrwxrwxrwx bin/sh -> of/three",
            "drwxr-xr-x proc",
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected, "{listing}");
    }

    fn list(archive: &[u8]) -> Option<String> {
        let mut command = Command::new("busybox");
        command.args(["cpio", "-tv"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().ok()?;
        child.stdin.take()?.write_all(archive).unwrap();
        Some(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
    }
}
