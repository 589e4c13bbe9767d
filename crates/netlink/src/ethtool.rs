//! `SIOCETHTOOL`: commands whose arguments and results share one buffer
//! (`include/uapi/linux/ethtool.h`).

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater};

/// Reads or sets one number: `struct ethtool_value`.
pub(crate) fn value(socket: impl AsFd, name: &str, command: Value, data: u32) -> io::Result<u32> {
    let mut words = [command.0, data];
    // SAFETY: the commands of `Value` read and write two words.
    unsafe { exchange(socket, name, &mut words) }?;
    Ok(words[1])
}

/// A command that takes a `struct ethtool_value`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value(u32);

impl Value {
    pub(crate) const RX_CHECKSUM: Self = Self(0x14);
    pub(crate) const TX_CHECKSUM: Self = Self(0x16);
    pub(crate) const SCATTER_GATHER: Self = Self(0x18);
    pub(crate) const TSO: Self = Self(0x1e);
    pub(crate) const GSO: Self = Self(0x23);
    pub(crate) const GRO: Self = Self(0x2b);

    /// `ETHTOOL_S*` is `ETHTOOL_G*` plus one for all of these.
    pub(crate) const fn setter(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The names of the features, by bit.
pub(crate) fn feature_names(socket: impl AsFd, name: &str) -> io::Result<Vec<String>> {
    let socket = socket.as_fd();
    let count = feature_count(socket, name)?;
    let mut words = vec![0; 3 + count * NAME_WORDS];
    (words[0], words[1]) = (GSTRINGS, SS_FEATURES);
    // SAFETY: the kernel writes three words and the names of all features, whose number is fixed
    // when it is built and was queried above.
    unsafe { exchange(socket, name, &mut words) }?;
    Ok(words[3..].chunks_exact(NAME_WORDS).map(text).collect())
}

fn feature_count(socket: impl AsFd, name: &str) -> io::Result<usize> {
    let mask = (1_u64 << SS_FEATURES).to_ne_bytes();
    let [a, b, c, d, e, f, g, h] = mask;
    let halves = [[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes);
    let mut words = [GSSET_INFO, 0, halves[0], halves[1], 0];
    // SAFETY: the kernel writes the four words of struct ethtool_sset_info and one for each bit of
    // the mask, which has one bit.
    unsafe { exchange(socket, name, &mut words) }?;
    let count = words[4];
    if count == 0 || count > MAX_FEATURES {
        return Err(Errno::OPNOTSUPP.into());
    }
    usize::try_from(count).map_err(|_| Errno::OPNOTSUPP.into())
}

/// 32 features: `struct ethtool_get_features_block`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    pub(crate) available: u32,
    pub(crate) requested: u32,
    pub(crate) active: u32,
    pub(crate) never_changed: u32,
}

/// The state of `count` features.
pub(crate) fn features(socket: impl AsFd, name: &str, count: usize) -> io::Result<Vec<Block>> {
    let blocks = count.div_ceil(32);
    let mut words = vec![0; 2 + 4 * blocks];
    words[0] = GFEATURES;
    words[1] = u32::try_from(blocks).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes two words and at most as many blocks as the second one states.
    unsafe { exchange(socket, name, &mut words) }?;
    let block = |words: &[u32]| match *words {
        [available, requested, active, never_changed] => {
            Block { available, requested, active, never_changed }
        }
        _ => Block::default(),
    };
    Ok(words[2..].chunks_exact(4).map(block).collect())
}

/// Requests feature number `bit` of `count` to be on or off.
pub(crate) fn set_feature(
    socket: impl AsFd,
    name: &str,
    count: usize,
    bit: usize,
    on: bool,
) -> io::Result<()> {
    let blocks = count.div_ceil(32);
    let mut words = vec![0; 2 + 2 * blocks];
    words[0] = SFEATURES;
    words[1] = u32::try_from(blocks).map_err(|_| Errno::INVAL)?;
    let mask = 1 << (bit % 32);
    let block = words.get_mut(2 + 2 * (bit / 32)..).ok_or(Errno::INVAL)?;
    if let [valid, requested, ..] = block {
        (*valid, *requested) = (mask, if on { mask } else { 0 });
    }
    // SAFETY: the kernel reads two words and as many blocks of two words as the second one states,
    // and writes nothing.
    unsafe { exchange(socket, name, &mut words) }
}

/// Length of `struct ethtool_coalesce` in words.
const COALESCE_WORDS: usize = 23;
/// Index of `rx_max_coalesced_frames` in it.
const COALESCE_RX_FRAMES: usize = 2;

/// Number of frames that the driver may batch before delivering them (`ethtool -c`, rx-frames).
pub(crate) fn rx_frames(socket: impl AsFd, name: &str) -> io::Result<u32> {
    Ok(coalesce(socket, name)?[COALESCE_RX_FRAMES])
}

pub(crate) fn set_rx_frames(socket: impl AsFd, name: &str, count: u32) -> io::Result<()> {
    let socket = socket.as_fd();
    let mut words = coalesce(socket, name)?;
    (words[0], words[COALESCE_RX_FRAMES]) = (SCOALESCE, count);
    // SAFETY: the kernel reads a struct ethtool_coalesce, which `words` is as long as.
    unsafe { exchange(socket, name, &mut words) }
}

fn coalesce(socket: impl AsFd, name: &str) -> io::Result<[u32; COALESCE_WORDS]> {
    let mut words = [0; COALESCE_WORDS];
    words[0] = GCOALESCE;
    // SAFETY: the kernel writes a struct ethtool_coalesce, which `words` is as long as.
    unsafe { exchange(socket, name, &mut words) }?;
    Ok(words)
}

/// The text of a `struct ethtool_gstrings` entry, up to its terminating zero.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// `struct ifreq` with `ifr_data`.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u32,
    /// The union has 24 bytes with 8-byte pointers, and fewer with 4-byte ones.
    rest: [u8; 16],
}

/// # Safety
/// The command in the first of `words` must read and write no more than `words`.
unsafe fn exchange(socket: impl AsFd, name: &str, words: &mut [u32]) -> io::Result<()> {
    let data = words.as_mut_ptr();
    let mut request = Request { name: [0; libc::IFNAMSIZ], data, rest: [0; 16] };
    // The last byte stays zero to terminate the name.
    request.name[..libc::IFNAMSIZ - 1]
        .get_mut(..name.len())
        .ok_or(Errno::NODEV)?
        .copy_from_slice(name.as_bytes());
    // SAFETY: (no safe call exists.) SIOCETHTOOL takes a pointer to struct ifreq, the layout of
    // `Request`.
    let update = unsafe { Updater::<SIOCETHTOOL, Request>::new(&mut request) };
    // SAFETY: the caller guarantees that the command stays within `words`, which the request points
    // to; both outlive the call and nothing else refers to them.
    Ok(unsafe { ioctl::ioctl(socket, update) }?)
}

/// `include/uapi/linux/sockios.h`.
const SIOCETHTOOL: Opcode = 0x8946;
const GCOALESCE: u32 = 0x0e;
const SCOALESCE: u32 = 0x0f;
const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
/// `ETH_SS_FEATURES`.
const SS_FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN` in words.
const NAME_WORDS: usize = 32 / 4;
/// More than any kernel has; current ones have some sixty.
const MAX_FEATURES: u32 = 4096;
