//! Filter: an eBPF program that drops or cuts frames before they are queued for the application.
//!
//! **What it is for.** A frame that nobody wants costs the kernel a place in the ring, and the
//! application a wake-up and a read. A [`Filter`] says no earlier: frames that match any of a list
//! of rules are dropped, or all but those; what is left can be cut to a snap length. All is
//! counted.
//!
//! **How the kernel uses it.** `tun_net_xmit` runs the program on each frame toward the
//! application, when its queue is picked and (on a tap device) the address filter has let it pass.
//! It drops the frame if the result is 0, else trims it to that many bytes. A drop counts in
//! `tx_dropped` of the interface. Frames that XDP redirects to the device, and what the application
//! writes, are not filtered.
//!
//! **What cutting does to metadata.** The header in front of a frame is made when the frame is read
//! and still describes the whole one. So, of a frame that was cut:
//! - A checksum that was left undone (`NEEDS_CSUM`) cannot be completed any more: payload is
//!   missing. Its place is still inside the frame, as a cut never goes deeper than 20 bytes behind
//!   the start of a TCP, UDP or SCTP header. (Inside a tunnel nothing is looked for: with tunnels
//!   and offloads, take 192 bytes or more, or check each header against the length of its frame.)
//! - A train would have a segment size that no longer divides it. Trains are therefore left whole,
//!   and counted, unless [`FilterConfig::cut_trains`] says otherwise; the alternative is a device
//!   whose offloads are off, which gets no trains.
//! - The IP header still tells the length that the packet had.
//!
//! A cut frame is good for looking at, as in a capture, and not for sending on.
//!
//! **Read first:** `run_ebpf_filter` and `tun_net_xmit` in Linux `drivers/net/tun.c`.
//!
//! **Limits.** At most [`MAX_RULES`] rules, tried one after the other. A program stays with its
//! device, also a persistent one, until another is set; it cannot be read back, nor can its
//! counters once the [`Filter`] is gone. Rules see the outermost headers, behind tags, not what is
//! in tunnels.

mod program;
mod rule;

use std::os::fd::{AsFd, BorrowedFd};

use thiserror::Error;

use crate::bpf::headers::{Headers, Link};
use crate::bpf::{AttachError, BpfError, CounterMap, Program, Setter};
use crate::ioctl;

pub use rule::{End, Rule};

/// What a filter shall do; at first nothing but count.
///
/// ```
/// use tapswitch_tap::FilterConfig;
/// use tapswitch_tap::filter::{End, Rule};
///
/// // No LLDP, no multicast DNS; of the rest the first 128 bytes.
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
    /// What happens to frames that match a rule; the opposite happens to others.
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

    /// Drops what matches any of `rules`. Replaces rules given before.
    #[must_use]
    pub fn drop_matching(self, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().collect(), keep_matching: false, ..self }
    }

    /// Drops what matches none of `rules`. Replaces rules given before.
    #[must_use]
    pub fn keep_matching(self, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().collect(), keep_matching: true, ..self }
    }

    /// Cuts frames to `bytes`, counted as they are read, without the header of metadata; at least
    /// [`MIN_SNAP_LEN`]. TCP, UDP and SCTP keep at least 20 bytes of their header.
    #[must_use]
    pub fn snap_len(self, bytes: u16) -> Self {
        Self { snap_len: Some(bytes), ..self }
    }

    /// Cuts trains, too, though their metadata then describe what is no longer there.
    #[must_use]
    pub fn cut_trains(self, cut: bool) -> Self {
        Self { cut_trains: cut, ..self }
    }

    /// How many bytes of `frame` the program keeps; 0 if it drops the frame. `frame` is one that
    /// is read, without its header of metadata, which says whether it is a train.
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

    /// The Linux release that has all that the program needs: a verifier that follows which values
    /// matter, or the segment size of a train.
    fn needed(&self) -> (u32, u32) {
        if self.snap_len.is_some() && !self.cut_trains { (5, 7) } else { (5, 3) }
    }
}

/// An eBPF program that drops or cuts frames before they are queued for the application. See the
/// [module](self) for what it does.
#[derive(Debug)]
pub struct Filter {
    config: FilterConfig,
    program: Program,
    counters: CounterMap<{ program::SUMS }>,
}

impl Filter {
    /// Loads a program that does what `config` says. Needs Linux 5.3, with a snap length 5.7, and
    /// `CAP_BPF` (before 5.8 `CAP_SYS_ADMIN`).
    ///
    /// # Errors
    /// [`FilterError`]: the configuration cannot be, or the kernel does not take the program.
    pub fn load(config: FilterConfig) -> Result<Self, FilterError> {
        config.check()?;
        let counters = CounterMap::create(NAME, 1)?;
        let code =
            program::assemble(&config, counters.as_fd()).map_err(BpfError::assemble(NAME))?;
        let program = Program::load(NAME, &code, config.needed())?;
        Ok(Self { config, program, counters })
    }

    /// Makes the program the filter of the device that `queue` belongs to, instead of any other.
    /// For those who have no [`Device`](crate::Device), and so no
    /// [`set_filter`](crate::Device::set_filter).
    ///
    /// # Errors
    /// [`AttachError`]: `queue` is none, its device is of the other kind than the program is for,
    /// or the kernel is older than Linux 4.16.
    pub fn attach(&self, queue: impl AsFd) -> Result<(), AttachError> {
        SETTER.attach(queue.as_fd(), self.as_fd(), self.config.link)
    }

    /// Leaves the device that `queue` belongs to without any filter of this kind.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn detach(queue: impl AsFd) -> Result<(), AttachError> {
        SETTER.detach(queue)
    }

    /// What the program does.
    pub fn config(&self) -> &FilterConfig {
        &self.config
    }

    /// What it has done since it was loaded.
    ///
    /// # Errors
    /// [`BpfError`], when the map cannot be read.
    pub fn counters(&self) -> Result<FilterCounters, BpfError> {
        let [frames, bytes, dropped, dropped_bytes, cut, cut_bytes, whole_trains] =
            self.counters.read(0)?;
        Ok(FilterCounters { frames, bytes, dropped, dropped_bytes, cut, cut_bytes, whole_trains })
    }

    /// Lets the kernel run the program on `frame`, `repeat` times, without any device, as a train
    /// if `gso_size` is not zero: what it answers, and how long that takes. The runs are counted.
    /// `frame` has no header of metadata in front, and at most 3 KiB.
    ///
    /// # Errors
    /// [`BpfError`]: a frame that is too long, or no privilege.
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

/// What a filter has done. A train counts as one frame, bytes are those of frames as they are read
/// from a device, without the header of metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCounters {
    /// Frames that came by.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames among them that were dropped.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Frames that were cut.
    pub cut: u64,
    /// Bytes that were cut off.
    pub cut_bytes: u64,
    /// Trains longer than the snap length that were left whole.
    pub whole_trains: u64,
}

/// What a dry run of the program tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterRun {
    /// How many bytes of the frame are kept; 0 if it is dropped.
    pub kept_len: u32,
    /// Mean time of a run in ns.
    pub run_ns: u32,
}

/// Why there is no such filter.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FilterError {
    /// More rules than a program is made for.
    #[error("{count} rules; a filter has at most {MAX_RULES}: merge prefixes and port ranges")]
    TooManyRules {
        /// Number of rules.
        count: usize,
    },
    /// A snap length that would cut into the link-layer header and tags.
    #[error("a snap length of {snap_len} bytes; use {MIN_SNAP_LEN} or more")]
    SnapLen {
        /// As asked for.
        snap_len: u16,
    },
    /// An IP prefix longer than an address.
    #[error("a prefix length of {prefix_len}; {address} has {} bits", rule::address_bits(*address))]
    Prefix {
        /// The address with it.
        address: std::net::IpAddr,
        /// As asked for.
        prefix_len: u8,
    },
    /// A condition on MAC addresses of packets that have none.
    #[error("a rule asks for a MAC address, but the packets of a tun device have none")]
    NoMac,
    /// The kernel does not take the program.
    #[error(transparent)]
    Bpf(#[from] BpfError),
}

/// Most rules of a filter.
pub const MAX_RULES: usize = 64;
/// Shortest snap length in bytes.
pub const MIN_SNAP_LEN: u16 = 64;
/// What is kept of a TCP, UDP or SCTP header, in bytes: the checksum's place lies in it.
const TRANSPORT_LEN: u8 = 20;
/// How a device gets the program.
const SETTER: Setter =
    Setter { name: "TUNSETFILTEREBPF", call: |queue, program| ioctl::set_filter(queue, program) };
/// Of the program and its map, for people who list them.
const NAME: &str = "tap_filter";
