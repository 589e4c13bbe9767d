//! Filter: an eBPF program that drops or truncates frames before they are queued for the
//! application.
//!
//! **Purpose.** An unwanted frame costs the kernel a place in the ring, and the application a
//! wake-up and a read. A [`Filter`] drops it earlier: either frames that match one of a list of
//! rules, or all others. The remaining frames can be truncated to a snap length. All of it is
//! counted.
//!
//! **In the kernel.** `tun_net_xmit` runs the program on each frame to the application, after
//! selecting its queue and (on a tap device) applying the address filter. It drops the frame if the
//! result is 0, else trims it to that many bytes. A drop counts in `tx_dropped` of the interface.
//! Frames that XDP redirects to the device, and frames that the application writes, are not
//! filtered.
//!
//! **Truncation and metadata.** The header of a frame is created when it is read, and describes the
//! whole frame. So, for a truncated frame:
//! - A deferred checksum (`NEEDS_CSUM`) can no longer be completed, because payload is missing. Its
//!   field is still inside the frame, as at least 20 bytes of a TCP, UDP or SCTP header are kept.
//!   (Headers inside a tunnel are not parsed: with tunnels and offloads, use 192 bytes or more, or
//!   check each header against the length of its frame.)
//! - A train would have an inconsistent segment size. Trains are therefore kept whole, and counted,
//!   unless [`FilterConfig::cut_trains`] is set; the alternative is a device without offloads,
//!   which gets no trains.
//! - The IP header still contains the original length.
//!
//! A truncated frame is suitable for analysis, as in a capture, and not for forwarding.
//!
//! **References:** `run_ebpf_filter` and `tun_net_xmit` in Linux `drivers/net/tun.c`.
//!
//! **Limits.** At most [`MAX_RULES`] rules, evaluated in sequence. A program stays attached to its
//! device, even a persistent one, until another is set; it cannot be read back, nor can its
//! counters after the [`Filter`] is dropped. Rules see the outermost headers, after tags, not the
//! contents of tunnels.

mod program;
mod rule;

use std::os::fd::{AsFd, BorrowedFd};

use thiserror::Error;

use crate::bpf::headers::{Headers, Link};
use crate::bpf::{AttachError, BpfError, CounterMap, Program, Setter};
use crate::ioctl;

pub use rule::{End, Rule};

/// Configuration of a filter; the default only counts.
///
/// ```
/// use tapswitch_tap::FilterConfig;
/// use tapswitch_tap::filter::{End, Rule};
///
/// // No LLDP, no multicast DNS; the first 128 bytes of all other frames.
/// let config = FilterConfig::ETHERNET
///     .drop_matching([
///         Rule::ANY.ether_type(0x88cc),
///         Rule::ANY.protocol(17).ports(End::Either, 5353..=5353),
///     ])
///     .snap_len(128);
/// assert_eq!(config.kept_len(&[0; 1000], false), 128);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterConfig {
    link: Link,
    rules: Vec<Rule>,
    /// Whether to keep or to drop frames that match a rule; the opposite applies to all others.
    keep_matching: bool,
    snap_len: Option<u16>,
    cut_trains: bool,
}

impl FilterConfig {
    /// For tap devices, whose frames start with an Ethernet header.
    pub const ETHERNET: Self = Self::new(Link::Ethernet);
    /// For tun devices, whose packets start with an IP header.
    pub const IP: Self = Self::new(Link::Ip);

    const fn new(link: Link) -> Self {
        Self { link, rules: Vec::new(), keep_matching: false, snap_len: None, cut_trains: false }
    }

    /// Drops frames that match one of `rules`. Replaces previous rules.
    #[must_use]
    pub fn drop_matching(self, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().collect(), keep_matching: false, ..self }
    }

    /// Drops frames that match none of `rules`. Replaces previous rules.
    #[must_use]
    pub fn keep_matching(self, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().collect(), keep_matching: true, ..self }
    }

    /// Truncates frames to `bytes`, not counting the metadata header; at least [`MIN_SNAP_LEN`]. At
    /// least 20 bytes of a TCP, UDP or SCTP header are kept.
    #[must_use]
    pub fn snap_len(self, bytes: u16) -> Self {
        Self { snap_len: Some(bytes), ..self }
    }

    /// Truncates trains as well, although their metadata then describes missing data.
    #[must_use]
    pub fn cut_trains(self, cut: bool) -> Self {
        Self { cut_trains: cut, ..self }
    }

    /// Returns how many bytes of `frame` the program keeps; 0 if it drops the frame. `frame` is a
    /// received frame without its metadata header, which says whether it is a train.
    pub fn kept_len(&self, frame: &[u8], is_train: bool) -> usize {
        let headers = Headers::parse(frame, self.link);
        let matched = headers.is_some_and(|headers| self.matches(&headers));
        if matched != self.keep_matching {
            return 0;
        }
        let transport = headers.and_then(|headers| headers.transport);
        let headers_end = transport.map_or(0, |at| at + usize::from(TRANSPORT_LEN));
        match self.snap_len.map(usize::from).filter(|_| self.cut_trains || !is_train) {
            Some(snap_len) => frame.len().min(snap_len.max(headers_end)),
            None => frame.len(),
        }
    }

    fn matches(&self, headers: &Headers<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(headers))
    }

    fn check(&self) -> Result<(), FilterError> {
        if self.rules.len() > MAX_RULES {
            return Err(FilterError::TooManyRules { count: self.rules.len() });
        }
        match self.snap_len.filter(|len| *len < MIN_SNAP_LEN) {
            Some(snap_len) => Err(FilterError::SnapLen { snap_len }),
            None => self.rules.iter().try_for_each(|rule| rule.check(self.link)),
        }
    }

    /// The first Linux release with all that the program needs: a verifier that prunes irrelevant
    /// values, or the segment size of a train.
    fn needed(&self) -> (u32, u32) {
        if self.snap_len.is_some() && !self.cut_trains { (5, 7) } else { (5, 3) }
    }
}

/// An eBPF program that drops or truncates frames before they are queued for the application. See
/// the [module](self) for details.
#[derive(Debug)]
pub struct Filter {
    config: FilterConfig,
    program: Program,
    counters: CounterMap<{ program::SUMS }>,
}

impl Filter {
    /// Loads a program for `config`. Needs Linux 5.3, or 5.7 with a snap length, and `CAP_BPF`
    /// (before 5.8 `CAP_SYS_ADMIN`).
    ///
    /// # Errors
    /// [`FilterError`]: the configuration is invalid, or the kernel refuses the program.
    pub fn load(config: FilterConfig) -> Result<Self, FilterError> {
        config.check()?;
        let counters = CounterMap::create(NAME, 1)?;
        let code =
            program::assemble(&config, counters.as_fd()).map_err(BpfError::assemble(NAME))?;
        let program = Program::load(NAME, &code, config.needed())?;
        Ok(Self { config, program, counters })
    }

    /// Sets the program as the filter of the device that `queue` belongs to, replacing any other.
    /// For callers without a [`Device`](crate::Device), whose
    /// [`set_filter`](crate::Device::set_filter) does the same.
    ///
    /// # Errors
    /// [`AttachError`]: `queue` is not a queue, the program is for the other type of device, or the
    /// kernel is older than Linux 4.16.
    pub fn attach(&self, queue: impl AsFd) -> Result<(), AttachError> {
        SETTER.attach(queue.as_fd(), self.as_fd(), self.config.link)
    }

    /// Removes the filter program from the device that `queue` belongs to.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn detach(queue: impl AsFd) -> Result<(), AttachError> {
        SETTER.detach(queue)
    }

    /// The configuration.
    pub fn config(&self) -> &FilterConfig {
        &self.config
    }

    /// The counters since the program was loaded.
    ///
    /// # Errors
    /// [`BpfError`] if the map cannot be read.
    pub fn counters(&self) -> Result<FilterCounters, BpfError> {
        let [frames, bytes, dropped, dropped_bytes, cut, cut_bytes, whole_trains] =
            self.counters.read(0)?;
        Ok(FilterCounters { frames, bytes, dropped, dropped_bytes, cut, cut_bytes, whole_trains })
    }

    /// Runs the program in the kernel on `frame`, `repeat` times, without a device, as a train if
    /// `gso_size` is not zero. Returns its result and the time it takes. The runs are counted.
    /// `frame` has no metadata header, and at most 3 KiB.
    ///
    /// # Errors
    /// [`BpfError`]: the frame is too long, or the privilege is missing.
    pub fn dry_run(&self, frame: &[u8], gso_size: u16, repeat: u32) -> Result<FilterRun, BpfError> {
        let run = self.program.test_run(frame, u32::from(gso_size), repeat)?;
        Ok(FilterRun { kept_len: run.value, run_ns: run.run_ns })
    }
}

/// The program, for [`Device::set_filter`](crate::Device::set_filter).
impl AsFd for Filter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// Counters of a filter. A train counts as one frame; bytes are those of received frames, without
/// the metadata header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCounters {
    /// Frames seen.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Dropped frames.
    pub dropped: u64,
    /// Bytes of the dropped frames.
    pub dropped_bytes: u64,
    /// Truncated frames.
    pub cut: u64,
    /// Bytes removed by truncation.
    pub cut_bytes: u64,
    /// Trains longer than the snap length that were kept whole.
    pub whole_trains: u64,
}

/// Result of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterRun {
    /// Number of bytes of the frame that are kept; 0 if it is dropped.
    pub kept_len: u32,
    /// Mean time of a run in ns.
    pub run_ns: u32,
}

/// Error of loading a filter.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Too many rules.
    #[error("{count} rules; a filter has at most {MAX_RULES}: merge prefixes and port ranges")]
    TooManyRules {
        /// Number of rules.
        count: usize,
    },
    /// A snap length that would cut into the link-layer header and tags.
    #[error("a snap length of {snap_len} bytes; use {MIN_SNAP_LEN} or more")]
    SnapLen {
        /// The requested length.
        snap_len: u16,
    },
    /// An IP prefix longer than the address.
    #[error("a prefix length of {prefix_len}; {address} has {} bits", rule::address_bits(*address))]
    Prefix {
        /// The address.
        address: std::net::IpAddr,
        /// The requested prefix length.
        prefix_len: u8,
    },
    /// A MAC address condition for packets without MAC addresses.
    #[error("a rule asks for a MAC address, but the packets of a tun device have none")]
    NoMac,
    /// The kernel refuses the program.
    #[error(transparent)]
    Bpf(#[from] BpfError),
}

/// Maximum number of rules of a filter.
pub const MAX_RULES: usize = 64;
/// Minimum snap length in bytes.
pub const MIN_SNAP_LEN: u16 = 64;
/// Bytes kept of a TCP, UDP or SCTP header: they include the checksum field.
const TRANSPORT_LEN: u8 = 20;
/// The ioctl that sets the program.
const SETTER: Setter =
    Setter { name: "TUNSETFILTEREBPF", call: |queue, program| ioctl::set_filter(queue, program) };
/// Name of the program and its map in listings.
const NAME: &str = "tap_filter";
