//! Prediction of a run's next packet.

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{ipv4, read_u16, read_u32, tcp, udp};

use super::headers::{Headers, is_right_checksum_v4};
use super::template::Template;

/// What is known of the next packet of a run, if it has full length.
///
/// Numbers that differ from packet to packet are compared as such. Everything else is as in the
/// first packet, of which there is a copy: a whole prediction, written to memory and compared soon
/// after, would wait for the stores.
#[derive(Clone, Debug, Default)]
#[repr(align(16))]
pub(super) struct Next {
    /// Bits of the headers that are equal in all full packets. Zero in other bits, and behind the
    /// headers.
    known: [u64; WORDS_MAX],
    /// These bits.
    mask: [u64; WORDS_MAX],
    /// How many words are compared.
    width: Width,
    pub(super) numbers: Numbers,
}

/// Predictions for the runs of a batch. They are reused from batch to batch, since clearing them
/// would cost as much as making them.
#[derive(Clone, Debug)]
pub(super) struct Nexts {
    all: Vec<Next>,
    /// How many of them are used.
    used: u32,
}

impl Nexts {
    /// Creates `count` of them.
    pub(super) fn new(count: usize) -> Self {
        Self { all: vec![Next::default(); count], used: 0 }
    }

    /// Forgets all predictions.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Next> {
        self.all.get_mut(at as usize)
    }

    /// Sets an unused prediction by `set`, and returns its index, if that succeeds.
    pub(super) fn add(&mut self, set: impl FnOnce(&mut Next) -> bool) -> Option<u32> {
        let at = self.used;
        if self.all.len() == at as usize {
            self.all.push(Next::default());
        }
        let is_set = self.all.get_mut(at as usize).is_some_and(set);
        self.used += u32::from(is_set);
        is_set.then_some(at)
    }
}

/// Numbers of the next packet, and what is known of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// Number of packets that may still join; more than zero, as the run would have ended.
    pub(super) left: u32,
    /// Bytes of payload that may still join, at least one packet's.
    pub(super) room: u32,
    /// Length of the frame in bytes.
    pub(super) frame_len: usize,
    /// Zero for IPv6.
    pub(super) identification: u16,
    /// Sum of the IPv4 header without identification and checksum.
    pub(super) ipv4: u32,
    /// Zero for UDP.
    pub(super) sequence: u32,
    /// Sum of the pseudo-header.
    pub(super) pseudo_header: Sum,
}

/// Words of headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Width {
    #[default]
    Six,
    Eight,
    Sixteen,
    TwentyFour,
    /// For short frames: this takes more instructions than sixteen words.
    Twelve,
}

impl Next {
    /// Predicts a packet with these `numbers` after the `first` one, which has headers like
    /// `template`. Returns false if it has too long headers, or hardly any payload.
    pub(super) fn set(&mut self, template: &Template, first: &[u8], numbers: Numbers) -> bool {
        let end = usize::from(template.headers.end);
        let is_fit = |width: &Width| (end..=first.len()).contains(&(8 * width.words()));
        let Some(width) = Width::ALL.into_iter().find(is_fit) else {
            return false;
        };
        let (bits, _) = template.foretold.as_chunks();
        let words = bits.iter().zip(first.as_chunks().0).take(width.words());
        for ((known, mask), (bits, bytes)) in self.known.iter_mut().zip(&mut self.mask).zip(words) {
            *mask = u64::from_ne_bytes(*bits);
            *known = u64::from_ne_bytes(*bytes) & *mask;
        }
        (self.width, self.numbers) = (width, numbers);
        true
    }

    /// Whether `frame` has the headers that are known.
    #[inline]
    pub(super) fn is_like(&self, frame: &[u8]) -> bool {
        // One comparison without a loop for each width.
        let words = frame.as_chunks().0;
        match self.width {
            Width::Six => self.has_words::<6>(words),
            Width::Eight => self.has_words::<8>(words),
            Width::Sixteen => self.has_words::<16>(words),
            Width::TwentyFour => self.has_words::<24>(words),
            Width::Twelve => self.has_words::<12>(words),
        }
    }

    #[expect(clippy::inline_always, reason = "a call costs as much as the comparison")]
    #[inline(always)]
    fn has_words<const COUNT: usize>(&self, words: &[[u8; 8]]) -> bool {
        let Some(words) = words.first_chunk::<COUNT>() else {
            return false;
        };
        let mut differing = 0;
        for (at, word) in words.iter().enumerate() {
            differing |= (u64::from_ne_bytes(*word) & self.mask[at]) ^ self.known[at];
        }
        differing == 0
    }
}

impl Numbers {
    /// Checksum and flags of TCP or UDP in `frame`, if it has this length and these numbers. The
    /// flags of UDP are zero. A checksum that no packet of a train has is none, either: all ones in
    /// TCP, zero in UDP.
    #[inline]
    pub(super) fn read(&self, headers: &Headers, frame: &[u8]) -> Option<(u16, u8)> {
        if frame.len() != self.frame_len
            || headers.is_v4 && !self.has_identification(frame, headers.network.into())
        {
            return None;
        }
        let transport = usize::from(headers.transport);
        if !headers.is_tcp {
            let udp = frame.get(transport..transport + udp::HEADER_LEN)?;
            let checksum = read_u16(udp, udp::field::CHECKSUM);
            return (checksum != 0).then_some((checksum, 0));
        }
        let tcp = frame.get(transport..transport + tcp::MIN_HEADER_LEN)?;
        let checksum = read_u16(tcp, tcp::field::CHECKSUM);
        let is_next = read_u32(tcp, tcp::field::SEQUENCE) == self.sequence && checksum != 0xffff;
        is_next.then_some((checksum, tcp[tcp::field::FLAGS]))
    }

    /// Whether the IPv4 header at `at` has this identification, and the right checksum.
    #[inline]
    fn has_identification(&self, frame: &[u8], at: usize) -> bool {
        let Some(header) = frame.get(at..at + ipv4::MIN_HEADER_LEN) else {
            return false;
        };
        let identification = read_u16(header, ipv4::field::IDENTIFICATION);
        let checksum = read_u16(header, ipv4::field::CHECKSUM);
        let sum = self.ipv4 + u32::from(identification);
        identification == self.identification && is_right_checksum_v4(sum, checksum)
    }

    /// Advances to the packet after one with `size` bytes of payload. Returns whether none is
    /// predicted, because of its `flags` or because there is no room.
    #[inline]
    pub(super) fn advance(&mut self, size: u32, flags: u8) -> bool {
        self.left -= 1;
        self.room -= size;
        self.identification = self.identification.wrapping_add(1);
        self.sequence = self.sequence.wrapping_add(size);
        if self.left == 0 || self.room < size || flags != 0 {
            // No frame is so short.
            self.frame_len = 0;
        }
        self.frame_len == 0
    }
}

impl Width {
    const ALL: [Self; 5] = [Self::Six, Self::Eight, Self::Sixteen, Self::TwentyFour, Self::Twelve];

    const fn words(self) -> usize {
        match self {
            Self::Six => 6,
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::TwentyFour => WORDS_MAX,
            Self::Twelve => 12,
        }
    }
}

/// Words of the longest headers that are predicted, for example TCP over IPv6 with timestamps in
/// VXLAN over IPv6, and eight tags.
const WORDS_MAX: usize = 24;
