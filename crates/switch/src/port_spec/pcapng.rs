//! File monitors as port options:
//! `pcapng:/var/log/web.pcapng,rotate-size=100M,rotate-time=1h,keep=10,snaplen=128`.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::guest::short_stem;
use super::{Fault, parse_switch, set};

/// A file monitor: frames sent to it are written to a pcapng file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapngSpec {
    /// The current file. Finished files are in the same directory.
    pub path: String,
    /// Size in bytes at which the next file begins.
    pub rotate_size: Option<u64>,
    /// Age at which the next file begins, unless this one is empty.
    pub rotate_time: Option<Duration>,
    /// Number of finished files to keep; `None` for all.
    pub keep: Option<u32>,
    /// Total bytes after which writing ends.
    pub max_size: Option<u64>,
    /// Time after which writing ends.
    pub max_time: Option<Duration>,
    /// Bytes to keep of each packet; `None` for all.
    pub snaplen: Option<u32>,
    /// Trains are cut into packets as on a wire, with complete checksums.
    pub wire_size: bool,
    /// Limit of bytes that wait for the disk.
    pub buffer_len: usize,
}

impl PcapngSpec {
    /// Parses a file's options ([`is_option`]) among `options`.
    pub(super) fn parse<'a>(
        path: &str,
        options: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Fault> {
        if path.contains('\0') || Path::new(path).file_name().is_none() || path.ends_with('/') {
            return Err(Fault::BadFile(path.to_owned()));
        }
        let (mut rotate_size, mut rotate_time, mut keep) = (None, None, None);
        let (mut max_size, mut max_time, mut snaplen) = (None, None, None);
        let (mut wire_size, mut buffer_len) = (None, None);
        for (key, value) in options.filter_map(|option| option.split_once('=')) {
            match key {
                "rotate-size" => set(&mut rotate_size, key, value, parse_size(value), SIZE)?,
                "rotate-time" => set(&mut rotate_time, key, value, parse_time(value), TIME)?,
                "keep" => set(&mut keep, key, value, parse_keep(value), KEEP)?,
                "max-size" => set(&mut max_size, key, value, parse_size(value), SIZE)?,
                "max-time" => set(&mut max_time, key, value, parse_time(value), TIME)?,
                "snaplen" => set(&mut snaplen, key, value, parse_snaplen(value), SNAPLEN)?,
                "wire-size" => set(&mut wire_size, key, value, parse_switch(value), "on or off")?,
                "buffer" => set(&mut buffer_len, key, value, parse_buffer(value), BUFFER)?,
                _ => {}
            }
        }
        Ok(Self {
            path: path.to_owned(),
            rotate_size,
            rotate_time,
            keep,
            max_size,
            max_time,
            snaplen,
            wire_size: wire_size.unwrap_or(true),
            buffer_len: buffer_len.unwrap_or(BUFFER_LEN),
        })
    }

    /// The path's file stem, truncated to the longest port name.
    pub fn name(&self) -> &str {
        short_stem(&self.path)
    }
}

/// True for the options that [`PcapngSpec::parse`] reads.
pub(super) fn is_option(key: &str) -> bool {
    let own = ["keep", "max-size", "max-time", "snaplen", "wire-size", "buffer"];
    own.contains(&key) || ["rotate-size", "rotate-time"].contains(&key)
}

/// Parses bytes, with K, M, G or T for powers of 1024.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = split_unit(text);
    let shift = ["", "K", "M", "G", "T"].into_iter().position(|known| known == unit)? * 10;
    let size = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (size >= SIZE_MIN).then_some(size)
}

/// Parses a time in seconds, or with s, m, h or d.
fn parse_time(text: &str) -> Option<Duration> {
    let (digits, unit) = split_unit(text);
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let seconds = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    (1..=TIME_MAX).contains(&seconds).then(|| Duration::from_secs(seconds))
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn parse_keep(text: &str) -> Option<u32> {
    text.parse().ok().filter(|keep| (1..=KEEP_MAX).contains(keep))
}

fn parse_snaplen(text: &str) -> Option<u32> {
    text.parse().ok().filter(|len| (14..=SNAPLEN_MAX).contains(len))
}

fn parse_buffer(text: &str) -> Option<usize> {
    let size = usize::try_from(parse_size(text)?).ok()?;
    (BUFFER_MIN..=BUFFER_MAX).contains(&size).then_some(size)
}

/// A number of bytes in the syntax that is parsed.
fn size_text(size: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let fitting = units.into_iter().find(|(shift, _)| size.trailing_zeros() >= *shift);
    fitting.map_or_else(|| size.to_string(), |(shift, unit)| format!("{}{unit}", size >> shift))
}

fn time_text(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let fitting = units.into_iter().find(|(factor, _)| seconds.is_multiple_of(*factor));
    fitting.map_or_else(
        || format!("{seconds}s"),
        |(factor, unit)| format!("{}{unit}", seconds / factor),
    )
}

impl fmt::Display for PcapngSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        let sizes = [("rotate-size", self.rotate_size), ("max-size", self.max_size)];
        let times = [("rotate-time", self.rotate_time), ("max-time", self.max_time)];
        for ((size_key, size), (time_key, time)) in sizes.into_iter().zip(times) {
            size.map_or(Ok(()), |size| write!(f, ",{size_key}={}", size_text(size)))?;
            time.map_or(Ok(()), |time| write!(f, ",{time_key}={}", time_text(time)))?;
        }
        self.keep.map_or(Ok(()), |keep| write!(f, ",keep={keep}"))?;
        self.snaplen.map_or(Ok(()), |len| write!(f, ",snaplen={len}"))?;
        f.write_str(if self.wire_size { "" } else { ",wire-size=off" })?;
        match self.buffer_len {
            BUFFER_LEN => Ok(()),
            len => write!(f, ",buffer={}", size_text(len as u64)),
        }
    }
}

const SIZE: &str = "a number of bytes, at least 64K, as in 100M or 2G";
const TIME: &str = "a time from 1s to 365d, as in 90s, 10m, 1h or 1d";
const KEEP: &str = "a number of files from 1 to 99999";
const SNAPLEN: &str = "a number of bytes from 14 to 262144";
const BUFFER: &str = "a number of bytes from 1M to 4G";
/// Room for more than one whole train.
const SIZE_MIN: u64 = 64 << 10;
const TIME_MAX: u64 = 365 * 86_400;
const KEEP_MAX: u32 = 99_999;
/// tcpdump's default: longer packets do not exist.
const SNAPLEN_MAX: u32 = 262_144;
/// A twentieth of a second at 10 Gb/s, or half a second at 1 Gb/s.
const BUFFER_LEN: usize = 64 << 20;
const BUFFER_MIN: usize = 1 << 20;
const BUFFER_MAX: usize = 4 << 30;

#[cfg(test)]
mod tests {
    use crate::PortSpec;

    fn parse(text: &str) -> PortSpec {
        text.parse().unwrap()
    }

    #[test]
    fn a_file_survives_a_round_trip() {
        for text in [
            "4=pcapng:/var/log/web.pcapng",
            "4=pcapng:web.pcapng,rotate-size=100M,rotate-time=1h,keep=10",
            "4=pcapng:a,max-size=2G,max-time=90s,snaplen=128,wire-size=off,buffer=256M",
            "4=pcapng:a,rotate-size=100001,mode=access,vlan=10,stall=0",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        let turned = parse("4=pcapng:/x/web.pcapng,keep=3,rotate-size=1024K,rotate-time=3600");
        assert_eq!(
            turned.to_string(),
            "4=pcapng:/x/web.pcapng,rotate-size=1M,rotate-time=1h,keep=3"
        );
        assert_eq!(turned.name(), "web");
    }

    #[test]
    fn errors_name_what_was_expected() {
        for (file, said) in [
            ("/", "cannot be the path of a file"),
            ("/tmp/", "cannot be the path of a file"),
            ("a,rotate-size=10", "rotate-size=10: expected a number of bytes, at least 64K"),
            ("a,rotate-size=1MB", "rotate-size=1MB: expected a number of bytes"),
            ("a,rotate-size=", "rotate-size=: expected a number of bytes"),
            ("a,max-size=99999999T", "expected a number of bytes"),
            ("a,rotate-time=0", "rotate-time=0: expected a time from 1s"),
            ("a,max-time=1w", "max-time=1w: expected a time"),
            ("a,keep=0", "keep=0: expected a number of files"),
            ("a,keep=1,keep=2", "option 'keep' is given twice"),
            ("a,snaplen=4", "snaplen=4: expected a number of bytes from 14"),
            ("a,wire-size=yes", "wire-size=yes: expected on or off"),
            ("a,buffer=1K", "buffer=1K: expected a number of bytes from 1M"),
            ("a,mtu=1500", "has no option 'mtu'"),
            ("a,netns=b", "has no option 'netns'"),
            ("a,queues=2", "has no option 'queues'"),
        ] {
            let text = format!("1=pcapng:{file}");
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn two_ports_do_not_write_one_file() {
        let first = parse("1=pcapng:/tmp/a.pcapng");
        assert!(first.is_same_place(&parse("2=pcapng:/tmp/a.pcapng,keep=3")));
        assert!(!first.is_same_place(&parse("2=pcapng:/tmp/b.pcapng")));
        assert!(!first.is_same_place(&parse("2=vhost:/tmp/a.pcapng")));
    }
}
